# SPDX-License-Identifier: GPL-2.0
"""Stock perftest: latency and bandwidth of SEND, WRITE and READ, from 1 B to 8 MiB, and of atomic operations. It checks
no data; others do."""

import re

from tests.guest import flavour
from tests.guest.fabric import both_ends, counters
from tests.guest.programs import run_both
from tests.guest.scenario import add, require, shortened

PORT = 18515
TOOLS = ("ib_send_lat", "ib_send_bw", "ib_write_lat", "ib_write_bw", "ib_read_lat", "ib_read_bw")
# perftest's own smallest number of iterations is 5.
ITERS = 5
# Enough of them that both ends sleep, wrap their queues and wait for each other.
ITERS_OF_OPTIONS = shortened(100, 20)
# `-a` is 2 B to 8 MiB in powers of two.
EVERY = [1 << n for n in range(24)]
# Those whose figures are kept. A tool for latency has no others, for with each size it compares clocks for a quarter of a
# second at either end; the one for bandwidth moves them in the same ways.
SHOWN = [1, 64, 4096, 65536, 1 << 20, 8 << 20]
SHORT_SIZES = [1, 65537]


def rows(text):
    """The result lines of a perftest program: bytes first, numbers after it."""
    found = []
    for line in text.splitlines():
        field = line.split()
        if len(field) >= 4 and re.fullmatch(r"\d+", field[0]) and re.fullmatch(r"\d+", field[1]):
            found.append(field)
    return found


def measure(tool, ends, sizes, iters=ITERS, limit=150, family=4):
    """One run; `sizes` is the option that selects them. Returns the client's rows."""
    def side(end):
        argv = [tool, "-d", end.dev, "-x", str(end.gid(family)), "-F", "-n", str(iters), "-p", str(PORT), "-m", "4096",
                # A second: how soon a busy machine answers is no verdict.
                "-u", "18", *sizes]
        # A warning about few iterations for the depth is no help to anybody.
        return argv + (["-t", str(iters)] if tool.endswith("_bw") and "read" not in tool and "atomic" not in tool else [])

    return converse(tool, side(ends[0]), side(ends[1]), ends, limit)


def converse(what, server, client, ends, limit):
    """Runs a tool at both ends, each with its command line; the client's gets the server's address.
    Returns the client's rows."""
    outs = run_both(server, [*client, ends[0].tcp], ends, PORT, limit)
    for out in outs:
        for bad in ("Completion with error", "Failed", "failed", "Unable"):
            require(bad not in out, f"{what}: {next((ln for ln in out.splitlines() if bad in ln), bad)}")
    return rows(outs[1])


def moved(ends):
    """Bytes that the devices of both ends have sent, by packets or without."""
    return sum(counters(dev).get(name, 0) for dev in {end.dev for end in ends} for name in ("sent_bytes", "local_bytes"))


def sweep(tool, where, local):
    """A scenario: from one byte to 8 MiB."""
    lat = tool.endswith("_lat")
    sizes = shortened(SHOWN if lat else EVERY, SHORT_SIZES)
    runs = [["-s", "1"], ["-a"]] if sizes is EVERY else [["-s", str(size)] for size in sizes]

    def run(report):
        with both_ends(where, local) as ends:
            before = moved(ends)
            found = [row for options in runs for row in measure(tool, ends, options)]
            bytes_moved = moved(ends) - before
        seen = [int(row[0]) for row in found]
        require(seen == sizes, f"{tool} reported sizes {seen}")
        # The figures are of the machine and how busy it is: an iteration that is interrupted rounds to no rate at all.
        # What must have happened is the work.
        asked = ITERS * sum(seen)
        if flavour.current().is_ferroce:
            require(bytes_moved >= asked, f"{tool} moved {bytes_moved} bytes of {asked}")
        for row in found:
            # Latency: typical and least; bandwidth: average in MiB/s.
            value = float(row[4]) if lat else float(row[3])
            if int(row[0]) in SHOWN:
                report.cell(tool=tool, path=where, size=int(row[0]), value=value, unit="us" if lat else "MiB/s")

    return run


def unreliable(tool, service, where, local):
    """A scenario: another service, from a byte to what it can carry, or a message that a socket's queue holds."""
    def run(report):
        with both_ends(where, local) as ends:
            for size in SIZES_OF[service]:
                found = measure(tool, ends, ["-c", service, "-s", str(size)], iters=20)
                require([int(row[0]) for row in found] == [size], f"{tool} reported {found}")
                report.note(f"{size}: {' '.join(found[0])}")

    return run


def with_shared_receives(where, local):
    """A scenario: SENDs to queue pairs that share their receives."""
    def run(report):
        with both_ends(where, local) as ends:
            for tool, options in (("ib_send_bw", ["-q", "16"]), ("ib_send_lat", [])):
                # As many receives as iterations at most, and more of them than queue pairs.
                found = measure(tool, ends, ["-s", "4096", "--use-srq", *options], iters=100)
                require([int(row[0]) for row in found] == [4096], f"{tool} reported {found}")
                report.cell(tool=tool, path=where, size=4096, value=float(found[0][3]), unit="as printed")

    return run


for _path, _where, _local in (("loop-local", "loop", True), ("veth", "pair", None)):
    add(f"perftest.srq.{_path}", 120, f"ib_send_bw and ib_send_lat --use-srq over {_path}",
        with_shared_receives(_where, _local))
SIZES_OF = {"UC": shortened((1, 4096, 65536), (65536,)), "UD": shortened((1, 4096), (4096,))}
for _service, _tools in (("UC", TOOLS[:4]), ("UD", TOOLS[:2])):
    for _tool in _tools:
        for _path, _where, _local in (("loop-local", "loop", True), ("veth", "pair", None)):
            add(f"perftest.{_tool}-{_service.lower()}.{_path}", 120, f"{_tool} -c {_service} over {_path}",
                unreliable(_tool, _service, _where, _local))
for _tool in TOOLS:
    for _path, _where, _local in (("loop-local", "loop", True), ("veth", "pair", None)):
        add(f"perftest.{_tool}.{_path}", 300, f"{_tool} over {_path}, 1 B to 8 MiB", sweep(_tool, _where, _local))


def atomic(tool, where, local):
    """A scenario: both kinds of atomic operations."""
    def run(report):
        with both_ends(where, local) as ends:
            for kind in ("CMP_AND_SWAP", "FETCH_AND_ADD"):
                found = measure(tool, ends, ["-A", kind])
                require([int(row[0]) for row in found] == [8], f"{tool} {kind} reported {found}")
                report.note(f"{kind}: " + " ".join(found[0]))

    return run


for _tool in ("ib_atomic_lat", "ib_atomic_bw"):
    for _path, _where, _local in (("loop-local", "loop", True), ("veth", "pair", None)):
        add(f"perftest.{_tool}.{_path}", 120, f"{_tool} over {_path}, CMP_AND_SWAP and FETCH_AND_ADD",
            atomic(_tool, _where, _local))


def multicast(where, local, own):
    """A scenario: datagrams to a group, of a scope that reaches the other end, or of the program's own, which stays in one
    device (ff01::/16). Both need the GID of an IPv6 address."""
    def run(report):
        with both_ends(where, local) as ends:
            group = [] if own else ["-M", "255:14:0:0:0:0:0:0:0:0:0:0:0:0:1:2"]
            before = [counters(end.dev) for end in ends]
            found = measure("ib_send_bw", ends, ["-c", "UD", "-g", *group, "-s", "1024"], iters=20, family=6)
            require([int(row[0]) for row in found] == [1024], f"ib_send_bw reported {found}")
            report.note(" ".join(found[0]))
            if flavour.current().is_ferroce:
                for end, name, old in zip(ends, ("rcvd_pkts", "sent_pkts"), before):
                    packets = counters(end.dev)[name] - old[name]
                    require(packets == 20, f"{end.dev}: {name} grew by {packets} for 20 datagrams to a group")

    return run


add("perftest.multicast.loop-local", 120, "ib_send_bw to the program's own group on one device", multicast("loop", True, True))
add("perftest.multicast.veth", 120, "ib_send_bw to a group over veth", multicast("pair", None, False))


# What perftest is asked for besides the defaults, with the size of a message: sleeping on events, both directions, many
# queue pairs, receives that run out under the sender; for each service and operation that has it. It posts
# nothing inline on a device that it does not know by its vendor.
OPTIONS = (
    ("ib_send_bw", 4096, "-e"), ("ib_send_lat", 64, "-e"), ("ib_read_bw", 4096, "-e"), ("ib_atomic_bw", 8, "-e"),
    ("ib_send_bw", 4096, "-e -c UC"), ("ib_send_bw", 1024, "-e -c UD"),
    ("ib_send_bw", 4096, "-b"), ("ib_write_bw", 65536, "-b"), ("ib_read_bw", 65536, "-b"), ("ib_atomic_bw", 8, "-b"),
    ("ib_send_bw", 4096, "-b -c UC"), ("ib_write_bw", 4096, "-b -c UC"), ("ib_send_bw", 1024, "-b -c UD"),
    ("ib_send_bw", 4096, "-q 16"), ("ib_write_bw", 4096, "-q 16"), ("ib_read_bw", 4096, "-q 16"),
    ("ib_atomic_bw", 8, "-q 16"), ("ib_write_bw", 1024, "-q 16 -b -c UC"), ("ib_send_bw", 1024, "-q 16 -e -b"),
    ("ib_send_bw", 64, "-r 1"), ("ib_send_bw", 4096, "-r 4 -q 16 -b"),
    ("ib_send_bw", 64, "-c UC"), ("ib_send_lat", 64, "-c UD"), ("ib_write_bw", 64, "-q 16"),
)


def with_options(where, local):
    """A scenario: all of OPTIONS between the same two ends."""
    def run(report):
        with both_ends(where, local) as ends:
            for tool, size, text in shortened(OPTIONS, OPTIONS[::4]):
                options, fixed = text.split(), "atomic" in tool
                before = moved(ends)
                found = measure(tool, ends, options + ([] if fixed else ["-s", str(size)]), iters=ITERS_OF_OPTIONS)
                done = moved(ends) - before
                require([int(row[0]) for row in found] == [size], f"{tool} {text} reported {found}")
                asked = size * ITERS_OF_OPTIONS * (16 if "-q" in options else 1) * (2 if "-b" in options else 1)
                # What atomic operations carry is in no count of bytes.
                if flavour.current().is_ferroce and not fixed:
                    require(done >= asked, f"{tool} {text} moved {done} bytes of {asked}")
                report.note(f"{tool} {text}: {' '.join(found[0])}")

    return run


for _path, _where, _local in (("loop-local", "loop", True), ("veth", "pair", None)):
    add(f"perftest.options.{_path}", 400, f"events, both directions, 16 queue pairs, few receives over {_path}",
        with_options(_where, _local))
