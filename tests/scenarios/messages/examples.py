# SPDX-License-Identifier: GPL-2.0
"""The examples that a student reads first (tests/examples) print what their README shows."""

from tests.guest import flavour
from tests.guest.fabric import WAYS, each_way, loop, pair
from tests.guest.programs import program, run_both
from tests.guest.rdma_cm import connections, listens
from tests.guest.scenario import add, command, require, scenario
from tests.guest.shown import compare, document, prompts
from tests.scenarios.cm.cm import prints

README = "tests/examples/README.md"
# Name and TCP port of those with two sides that meet there.
PAIRS = (("rc", 18520), ("ud", 18521))
# Those that play both sides themselves.
ALONE = {
    "claims": "what tutorials say of verbs, tried",
    "events": "waiting for a completion in the right order, and what the wrong ones miss",
    "memory": "limits, keys and rights of regions, and one that goes under traffic",
    "rnr": "a receive that comes late, none at all, and credits",
    "srq": "three connections that share a receive queue, its limit and its end",
    "write_imm": "RDMA WRITE with immediate data, and the receive that it needs",
}
# In the order of statuses.c: see Documentation/verbs.md.
VENDOR_ERR = [0, 8, 0x161, 1, 1, 2, 1, 0x162, 0x163, 3, 4]
# What rdma_rxe says instead of what the README shows.
RXE = {"claims": (("wrong lkey: local protection error", "wrong lkey: Work Request Flushed Error"),),
       "memory": (("wrong lkey: local protection error", "wrong lkey: Work Request Flushed Error"),)}


def shown(name, argv):
    """What the README shows of a program with this many arguments, the words among them being these."""
    words = [word for word in argv if word in ("listen", "connect", "send")]
    found = [text for line, text in prompts(document(README)).items()
             if line[0] == name and len(line) - 1 == len(argv) and all(word in line for word in words)]
    require(len(found) == 1, f"{README} shows {name} with such arguments {len(found)} times")
    return found[0]


def sides(name, arguments, ends, port, ready=None):
    """Runs both sides of an example, each with its arguments, and compares what they print."""
    outs = run_both(*([program(f"example_{name}"), *argv] for argv in arguments), ends, port, ready=ready)
    for argv, out in zip(arguments, outs):
        compare(f"{name} {' '.join(argv)}", shown(name, argv), out)


def meeting(report, name, port):
    """Both sides of an example, on one device and between two."""
    def on(ends):
        argv = [[end.dev, str(end.gid())] for end in ends]
        sides(name, (argv[0], [*argv[1], ends[0].tcp]), ends, port)

    with loop() as end:
        each_way(report, end, list(WAYS), lambda _: on((end, end)))
    with pair() as ends:
        on(ends)


for _name, _port in PAIRS:
    add(f"examples.{_name}", 60, f"tests/examples/{_name}.c, both sides, on one device and between two", meeting, _name, _port)


def alone(report, name):
    """An example that plays both sides, by each way of a device to itself."""
    text = shown(name, ("fe0", "1"))
    for ours, theirs in () if flavour.current().is_ferroce else RXE.get(name, ()):
        text = text.replace(ours, theirs)

    def once(_):
        compare(name, text, command([program(f"example_{name}"), end.dev, str(end.gid())]).stdout)

    with loop() as end:
        each_way(report, end, list(WAYS), once)


for _name, _about in ALONE.items():
    add(f"examples.{_name}", 60, f"tests/examples/{_name}.c: {_about}", alone, _name)


@scenario("examples.statuses", 30)
def statuses(report):
    """tests/examples/statuses.c provokes each status of a completion that it explains."""
    # rdma_rxe never completes a READ with max_rd_atomic 0, and the program says so.
    ok = (0,) if flavour.current().is_ferroce else (1,)
    with loop(True) as end:
        done = command([program("example_statuses"), end.dev, str(end.gid())], ok=ok)
    lines = done.stdout.splitlines()
    for line in lines:
        report.note(line)
    require(len(lines) >= 11, "it explains less than eleven")
    if flavour.current().is_ferroce:
        compare("statuses", shown("statuses", ("fe0", "1")), done.stdout)
        values = [int(line.split("vendor_err ")[1].split()[0], 0) for line in lines]
        require(values == VENDOR_ERR, f"vendor_err: {values}, not {VENDOR_ERR}")
    else:
        require(sum("has not completed" in line for line in lines) == 1, "rdma_rxe does what it did not: the example can be simpler")


@scenario("examples.cm", 60)
def cm(_report):
    """tests/examples/cm.c: a connection by librdmacm between two devices, event by event."""
    with connections(), pair() as ends:
        sides("cm", (["listen", ends[0].ip4], ["connect", ends[0].ip4]), ends, 0, listens)


@scenario("examples.mcast", 60,
          rxe="rdma_rxe joins no group on its netdev, and the datagrams did not arrive when this was tried")
def mcast(_report):
    """tests/examples/mcast.c: datagrams to a group, each received by two queue pairs of another device."""
    with pair() as ends:
        argv = [[end.dev, str(end.gid()), "239.1.2.3"] for end in ends]
        sides("mcast", (argv[0], [*argv[1], "send"]), ends, 0, prints("members"))
