# SPDX-License-Identifier: GPL-2.0
"""ferroce against the kernel's own rdma_rxe over veth: two implementations of RoCEv2 that share no code."""

from contextlib import contextmanager
from itertools import product

from tests.guest import flavour
from tests.guest.fabric import pair
from tests.guest.peer import exchange
from tests.guest.scenario import SHORT, Skipped, add, command, require, scenario
from tests.scenarios.messages.perftest import measure
from tests.scenarios.messages.pingpong import SIZES, talk

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
    with rxe_loaded(), pair(drivers=drivers) as ends:
        yield ends


@contextmanager
def both_orders():
    """Two devices of two drivers, in either order: the second one's program is the client."""
    with two_drivers(ORDERS["to-rxe"]) as ends:
        yield tuple(ends), tuple(reversed(ends))


@scenario("interop.services", 180)
def services(_report):
    """ibv_uc_pingpong, ibv_ud_pingpong and ibv_srq_pingpong with 16 queue pairs -c between the drivers, either way."""
    with both_orders() as orders:
        for ends, family in product(orders, (4, 6)):
            for kind, sizes in SIZES.items():
                for size in sizes:
                    talk(ends, family, 1024, size=size, iters=10, kind=kind)
            talk(ends, family, 1024, "-q", "16", iters=200, kind="srq")


@scenario("interop.perftest", 120)
def perftest(_report):
    """perftest's READs, as many under way as the other can take, and atomic operations between the drivers, either way."""
    with both_orders() as orders:
        for ends in orders:
            for tool, options, size in (("ib_read_bw", "-s 65536", 65536), ("ib_read_lat", "-s 65536", 65536),
                                        ("ib_atomic_bw", "-A CMP_AND_SWAP", 8), ("ib_atomic_bw", "-A FETCH_AND_ADD", 8)):
                found = measure(tool, ends, options.split(), iters=50)
                require([int(row[0]) for row in found] == [size], f"{tool} {options} reported {found}")


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


def every(_report, family):
    """Every operation at the sizes that matter and at every MTU. The second end asks, and nothing else moves."""
    with both_orders() as orders:
        for ends, mtu in product(orders, MTUS):
            for plan in (EDGES, MIXTURES, LARGE):
                exchange(ends, family, "-m", mtu, *plan, *PATIENT)


for _family in (4, 6):
    add(f"interop.operations-ipv{_family}", 240, f"every operation, 0 B to 1 MiB, every MTU, IPv{_family}, either asks",
        every, _family)


@scenario("interop.windows", 120)
def windows(_report):
    """Memory lent through windows of both types, written, read, and the key given back; and ATOMIC WRITE, which perftest
    cannot: either asks."""
    with both_orders() as orders:
        for ends in orders:
            exchange(ends, 4, "-1", "-s", "1,M,3M+5,65536", "-o", "kK", *PATIENT)
            for family in (4, 6):
                exchange(ends, family, "-1", "-s", 8, "-o", "A", "-n", 20, *PATIENT)


@scenario("interop.64-mib", 300)
def huge(_report):
    """64 MiB by every operation, either asks, data checked at both ends."""
    with both_orders() as orders:
        for ends, family in zip(orders, (4, 6)):
            exchange(ends, family, *HUGE, *PATIENT, limit=120)
