# SPDX-License-Identifier: GPL-2.0
"""Links on netdevs without a link layer: packets of IP go in and come out as they are."""

from tests.guest.fabric import batch, counters
from tests.guest.peer import exchange
from tests.guest.scenario import add, command, require, scenario, shortened
from tests.guest.tunnels import TUNNELS, tun_pair, tunnel_pair
from tests.scenarios.messages.pingpong import talk

# Messages of one packet, of many, and of more than fit into a batch. The wire is a program, and may be slow: the ACK timeout
# is long.
MESSAGES = ("-t", 20, "-s", shortened("1,M+1,65536,300000", "1,M+1,65536"))


def active_mtu(dev):
    """What `ibv_devinfo` says."""
    shown = command(["ibv_devinfo", "-d", dev]).stdout
    return int(shown.split("active_mtu:")[1].split()[0])


@scenario("paths.tun", 180)
def tun(_report):
    """Two devices on tun devices with a program for a wire: RC, UC and UD over IPv4 and IPv6, and the tunnel's MTU is
    respected."""
    with tun_pair() as (ends, wire):
        require(active_mtu(ends[0].dev) == 4096, f"an MTU of 4500 makes {active_mtu(ends[0].dev)}")
        for family in (4, 6):
            for kind in ("rc", "uc", "ud"):
                talk(ends, family, 1024, size=1024, iters=20, kind=kind)
            before, carried = counters(ends[0].dev), wire.packets
            exchange(ends, family, "-m", 4096, *MESSAGES)
            sent = counters(ends[0].dev).get("sent_pkts", 0) - before.get("sent_pkts", 0)
            require(wire.packets - carried >= sent, f"{sent} packets were sent, {wire.packets - carried} carried")
        for end in ends:
            batch([f"link set {end.netdev} mtu 1500"], netns=end.netns)
        require(active_mtu(ends[0].dev) == 1024, f"an MTU of 1500 makes {active_mtu(ends[0].dev)}")
        exchange(ends, 4, "-m", 1024, *MESSAGES)


def tunnel(_report, kind):
    """Data by tunnels of a kind."""
    with tunnel_pair(kind) as ends:
        for family in TUNNELS[kind][1]:
            exchange(ends, family, "-m", 4096, *MESSAGES)


for _kind in TUNNELS:
    add(f"paths.tunnel-{_kind}", 90, f"two devices on tunnels of type {_kind}: data of every size arrive", tunnel, _kind,
        rxe="rdma_rxe is not judged on these")
