# SPDX-License-Identifier: GPL-2.0
"""`make demo`: a person sees stock programs talk through the device, every cell of the matrix, and the packets."""

from tests.lab import boot, build, say, suite
from tests.scenarios.messages.pingpong import ITERS, MTUS, PATHS
from tests.scenarios.packets.packets import MTU, SIZE

LIMIT = 15 * 60
WORDS = {
    "loop-local": "one device to itself, local path on",
    "loop-wire": "one device to itself, local path off",
    "veth-ipv4": "two network namespaces over veth, IPv4",
    "veth-ipv6": "two network namespaces over veth, IPv6",
}


def run(root, with_module):
    """Runs the demo; 0 when everything worked."""
    lines = build.guest_setup(root, with_module)
    names = ["link.devinfo", *[f"pingpong.{path}" for path, *_ in PATHS], "packets.message-ipv4"]
    results = {}

    def on_result(result):
        results[result.name] = result
        say.verdict(result.status, result.name, result.seconds, result.detail)
        if result.name == "link.devinfo":
            say.quote("\n".join(result.notes).splitlines())

    say.step(f"rdma link add; ibv_rc_pingpong -c, {ITERS} round trips of 4096 B with checked data, by each path; a capture")
    suite.run(root, suite.Queue(names), lines, boot.kvm_works(root), on_result, LIMIT, [], label="demo")
    good = all(r.status == "passed" for r in results.values())
    cells = {(cell["path"], cell["mtu"], cell["mode"]): cell["usec"] for r in results.values() for cell in r.cells}
    show_table(cells)
    if results["packets.message-ipv4"].notes:
        say.line(f"\nOne message of {SIZE} B each way at MTU {MTU}, as tshark decodes it:")
        say.quote(results["packets.message-ipv4"].notes)
    done = len(cells)
    wanted = len(PATHS) * len(MTUS) * 2
    say.line(f"\n{done} of {wanted} cells of the matrix passed with checked data"
             + ("" if good else "; something failed, see above"))
    return 0 if good and done == wanted else 1


def show_table(cells):
    """Microseconds per round trip, paths down, MTUs across."""
    say.line("\nibv_rc_pingpong -c: microseconds per round trip of 4096 B (the machine is emulated unless it has KVM)")
    rows = []
    for path, *_ in PATHS:
        for mode in ("polling", "events"):
            rows.append([WORDS[path], mode]
                        + [f"{cells[path, mtu, mode]:.0f}" if (path, mtu, mode) in cells else "-" for mtu in MTUS])
    say.table(rows, ["path", "CQ", *[f"MTU {mtu}" for mtu in MTUS]])
