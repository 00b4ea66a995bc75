# SPDX-License-Identifier: GPL-2.0
"""ferroce against the kernel's own rdma_rxe over veth: two implementations of RoCEv2 that share no code."""

from contextlib import contextmanager

from tests.guest import flavour
from tests.guest.fabric import pair
from tests.guest.peer import exchange
from tests.guest.scenario import SHORT, Skipped, add, command, last_line, require, shortened
from tests.scenarios.messages.perftest import measure
from tests.scenarios.messages.pingpong import SIZES, once

ORDERS = {"to-rxe": (flavour.FERROCE, flavour.RXE), "from-rxe": (flavour.RXE, flavour.FERROCE)}


@contextmanager
def rxe_loaded():
    """With rdma_rxe beside ferroce. It is unloaded afterwards: other scenarios want the UDP port for themselves."""
    if not flavour.current().is_ferroce:
        raise Skipped("rdma_rxe is the driver under test")
    command(["modprobe", "rdma_rxe"])
    try:
        yield
    finally:
        command(["modprobe", "-r", "rdma_rxe"], ok=None)


@contextmanager
def two_drivers(drivers):
    """Two devices of two drivers."""
    with rxe_loaded(), pair(drivers=drivers) as ends:
        yield ends


def pingpong(order):
    """A scenario: ibv_rc_pingpong over both families and two MTUs; the second end is the client."""
    def run(report):
        with two_drivers(ORDERS[order]) as ends:
            for family in (4, 6):
                # On a kernel full of checks rdma_rxe needs longer for the last than the program's retries last.
                for mtu, size in ((1024, 1), (4096, 4096), (1024, 65536))[:shortened(3, 2)]:
                    usec = once(ends, family, mtu, size=size, iters=10)
                    report.cell(path=f"ipv{family}", mtu=mtu, size=size, usec=usec)

    return run


for _order in ORDERS:
    add(f"interop.pingpong-{_order}", 60, f"ibv_rc_pingpong -c between the drivers, {_order}", pingpong(_order))


def unreliable(kind, order):
    """A scenario: another service between the drivers, both families, with data checks."""
    def run(report):
        with two_drivers(ORDERS[order]) as ends:
            for family in (4, 6):
                for size in SIZES[kind]:
                    usec = once(ends, family, 1024, size=size, iters=10, kind=kind)
                    report.cell(path=f"ipv{family}", size=size, usec=usec)

    return run


for _kind in SIZES:
    for _order in ORDERS:
        add(f"interop.{_kind}-pingpong-{_order}", 60, f"ibv_{_kind}_pingpong -c between the drivers, {_order}",
            unreliable(_kind, _order))


def shared(order):
    """A scenario: 16 queue pairs between the drivers, on each side with one queue of receives."""
    def run(report):
        with two_drivers(ORDERS[order]) as ends:
            for family in (4, 6):
                usec = once(ends, family, 1024, size=4096, iters=200, kind="srq", queue_pairs=16)
                report.cell(path=f"ipv{family}", size=4096, usec=usec)

    return run


for _order in ORDERS:
    add(f"interop.srq-pingpong-{_order}", 60, f"ibv_srq_pingpong -c with 16 queue pairs between the drivers, {_order}",
        shared(_order))


def read_tool(tool, order):
    """A scenario: perftest's READs between the drivers, which agree on as many under way as the other one can take."""
    def run(report):
        with two_drivers(ORDERS[order]) as ends:
            found = measure(tool, ends, ["-s", "65536"], iters=50)
            require([int(row[0]) for row in found] == [65536], f"{tool} reported {found}")
            report.note(" ".join(found[0]))

    return run


for _tool in ("ib_read_bw", "ib_read_lat"):
    for _order in ORDERS:
        add(f"interop.{_tool}-{_order}", 60, f"{_tool} without a number of outstanding READs, {_order}",
            read_tool(_tool, _order))


def atomic_tool(kind, order):
    """A scenario: perftest's atomic operations between the drivers."""
    def run(report):
        with two_drivers(ORDERS[order]) as ends:
            found = measure("ib_atomic_bw", ends, ["-A", kind], iters=200)
            require([int(row[0]) for row in found] == [8], f"{kind} reported {found}")
            report.note(" ".join(found[0]))

    return run


for _kind in ("CMP_AND_SWAP", "FETCH_AND_ADD"):
    for _order in ORDERS:
        add(f"interop.{_kind.lower().replace('_', '-')}-{_order}", 60, f"ib_atomic_bw -A {_kind}, {_order}",
            atomic_tool(_kind, _order))

# Here the second end asks and the first one serves; nothing else moves between the two.
ASKS = {"ferroce-asks": (flavour.RXE, flavour.FERROCE), "rxe-asks": (flavour.FERROCE, flavour.RXE)}

MTUS = (256, 4096) if SHORT else (256, 512, 1024, 2048, 4096)
MESSAGES = "sSwWr"
# On a busy machine, or a kernel full of checks, rdma_rxe takes seconds to answer.
PATIENT = ("-t", 20)
# Every message in four shapes of scatter/gather lists; then mixtures over three queue pairs at once: signalled, mostly
# unsignalled, and fenced.
EDGES = ("-1", "-s", "0,1,M-1,M,M+1", "-o", MESSAGES + "buf", "-q", 3, "-e", 4)
MIXTURES = ("-1", "-s", "3M+5,16M-3", "-o", "buf", "-q", 3)
LARGE = ("-1", "-s", 1 << 20, "-o", MESSAGES, "-e", 4)
HUGE = ("-1", "-s", 64 << 20, "-o", MESSAGES, "-e", 4, "-m", 4096)


def every(who, family):
    """A scenario: every operation at the sizes that matter and at every MTU, data checked at both ends."""
    def run(report):
        with two_drivers(ASKS[who]) as ends:
            for mtu in MTUS:
                done = [exchange(ends, family, "-m", mtu, *plan, *PATIENT)[0] for plan in (EDGES, MIXTURES, LARGE)]
                report.note(f"MTU {mtu}: " + "; ".join(map(last_line, done)))

    return run


def huge(who, family):
    """A scenario: 64 MiB by every operation, data checked at both ends."""
    def run(report):
        with two_drivers(ASKS[who]) as ends:
            report.note(last_line(exchange(ends, family, *HUGE, *PATIENT, limit=120)[0]))

    return run


def windows(who):
    """A scenario: memory lent through windows of both types, written, read, and the key given back."""
    def run(report):
        with two_drivers(ASKS[who]) as ends:
            report.note(last_line(exchange(ends, 4, "-1", "-s", "1,M,3M+5,65536", "-o", "kK", *PATIENT)[0]))

    return run


def atomic_write(who):
    """A scenario: eight bytes written at once, which perftest cannot."""
    def run(report):
        with two_drivers(ASKS[who]) as ends:
            for family in (4, 6):
                report.note(last_line(exchange(ends, family, "-1", "-s", 8, "-o", "A", "-n", 20, *PATIENT)[1]))

    return run


for _who in ASKS:
    add(f"interop.{_who}-atomic-write", 60, f"ATOMIC WRITE, {_who}", atomic_write(_who))
    add(f"interop.{_who}-windows", 60, f"memory windows of both types, {_who}", windows(_who))
    for _family in (4, 6):
        add(f"interop.{_who}-ipv{_family}", 120, f"every operation, 0 B to 1 MiB, every MTU, IPv{_family}, {_who}",
            every(_who, _family))
if not SHORT:
    for _who, _family in (("ferroce-asks", 4), ("rxe-asks", 6)):
        add(f"interop.{_who}-64-mib", 150, f"64 MiB by every operation, IPv{_family}, {_who}", huge(_who, _family))
