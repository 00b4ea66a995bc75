# SPDX-License-Identifier: GPL-2.0
"""ferroce against the kernel's own rdma_rxe over veth: two implementations of RoCEv2 that share no line."""

from contextlib import contextmanager

from tests.vm import flavour
from tests.vm.fabric import pair
from tests.vm.peer import exchange
from tests.vm.pingpong import once
from tests.vm.scenario import Skipped, add, command

ORDERS = {"to-rxe": (flavour.FERROCE, flavour.RXE), "from-rxe": (flavour.RXE, flavour.FERROCE)}


@contextmanager
def strangers(drivers):
    """Two devices of two drivers. rdma_rxe is unloaded afterwards: other scenarios want the UDP port for themselves."""
    if not flavour.current().is_ferroce:
        raise Skipped("rdma_rxe is the driver under test")
    command(["modprobe", "rdma_rxe"])
    try:
        with pair(drivers=drivers) as ends:
            yield ends
    finally:
        command(["modprobe", "-r", "rdma_rxe"], ok=None)


def pingpong(order):
    """A scenario: ibv_rc_pingpong over both families and two MTUs; the second end is the client."""
    def run(report):
        with strangers(ORDERS[order]) as ends:
            for family in (4, 6):
                for mtu, size in ((1024, 1), (4096, 4096), (1024, 65536)):
                    usec = once(ends, family, mtu, size=size, iters=10)
                    report.cell(path=f"ipv{family}", mtu=mtu, size=size, usec=usec)

    return run


for _order in ORDERS:
    add(f"interop.pingpong-{_order}", 60, f"ibv_rc_pingpong -c between the drivers, {_order}", pingpong(_order))


SIZES = "0,1,M-1,M,M+1,65536"


def operations(order, family, mtu):
    """A scenario: every operation at the sizes that matter, asked by either side, checked at both."""
    def run(report):
        with strangers(ORDERS[order]) as ends:
            report.note(exchange(ends, family, "-m", mtu, "-s", SIZES)[0].strip().splitlines()[-1])
            report.note(exchange(ends, family, "-m", mtu, "-s", 1 << 20, "-o", "sWr")[0].strip().splitlines()[-1])

    return run


for _order, _family, _mtu in (("to-rxe", 4, 1024), ("from-rxe", 4, 4096), ("to-rxe", 6, 256), ("from-rxe", 6, 1024)):
    add(f"interop.{_order}-ipv{_family}-mtu{_mtu}", 60,
        f"every operation, 0 B to 1 MiB, asked by both sides, IPv{_family}, MTU {_mtu}, {_order}",
        operations(_order, _family, _mtu))
