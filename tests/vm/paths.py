# SPDX-License-Identifier: GPL-2.0
"""What lies between two devices: packets leave in batches, which devices and tunnels on the way take apart, or do not."""

from contextlib import contextmanager

from tests.vm.fabric import WIRE_MTU, End, batch, counters, link_add, link_del, no_dad, pair, read, show_packets, wait_active
from tests.vm.peer import exchange
from tests.vm.scenario import Skipped, command, require, scenario
from tests.vm import flavour

# Messages of one packet, of many, and of more than fit into a batch.
MESSAGES = ("-m", 4096, "-s", "1,M+1,65536,300000")


def left_by(end):
    """Packets as the netdev counts them, in which a batch is one, and as the device does."""
    netdev = read(f"/sys/class/net/{end.netdev}/statistics/tx_packets") if not end.netns else \
        command(["cat", f"/sys/class/net/{end.netdev}/statistics/tx_packets"], netns=end.netns).stdout
    return int(netdev), counters(end.dev).get("sent_pkts", 0)


def talk_and_count(ends, families=(4, 6)):
    """Moves checked data; returns how often the first netdev was given something, and packets of the device."""
    before = left_by(ends[0])
    for family in families:
        exchange(ends, family, *MESSAGES)
    after = left_by(ends[0])
    return after[0] - before[0], after[1] - before[1]


@scenario("paths.batches", 60)
def batches(report):
    """Over veth batches stay whole, so the netdev sees far fewer packets than there are; gso off makes them single."""
    if not flavour.current().is_ferroce:
        raise Skipped("rdma_rxe makes no batches")
    with pair() as ends:
        given, packets = talk_and_count(ends)
        report.note(f"{packets} packets in {given} pieces")
        require(given < packets / 2, f"{packets} packets were given to the netdev in {given} pieces")
        show_packets(ends)
        given, packets = talk_and_count(ends)
        # The programs' own TCP comes on top.
        require(given >= packets, f"gso off: {packets} packets in {given} pieces")


@scenario("paths.no-gso-list", 60)
def no_gso_list(_report):
    """A netdev that knows nothing of batches: the stack takes them apart before it."""
    with pair() as ends:
        for end in ends:
            command(["ethtool", "-K", end.netdev, "tx-gso-list", "off"], netns=end.netns)
        talk_and_count(ends)


@scenario("paths.bridge", 60)
def bridge(_report):
    """A bridge between the two."""
    with pair(bridged=True) as ends:
        talk_and_count(ends)


@scenario("paths.vxlan", 60)
def vxlan(_report):
    """A tunnel: batches are wrapped, and must have room for the tunnel's headers in front of each packet."""
    with pair(mtu=WIRE_MTU + 100) as ends:
        tunnels = []
        for number, (end, other) in enumerate(((ends[0], ends[1]), (ends[1], ends[0])), 1):
            batch([f"link add vx type vxlan id 7 dev {end.netdev} local {end.ip4} remote {other.ip4} dstport 4789",
                   f"link set vx mtu {WIRE_MTU} up", f"addr add 10.99.0.{number}/24 dev vx",
                   f"addr add fd99::{number}/64 dev vx nodad"], netns=end.netns)
            tunnels.append(End(f"{flavour.current().prefix}x{number}", end.netns, "vx", f"10.99.0.{number}",
                               f"fd99::{number}", f"10.99.0.{number}"))
        for end in ends:
            link_del(end.dev, netns=end.netns)
        try:
            for end in tunnels:
                link_add(end.dev, end.netdev, netns=end.netns)
                wait_active(end.dev)
            talk_and_count(tunnels)
        finally:
            for end in tunnels:
                link_del(end.dev, netns=end.netns, ok=None)


@contextmanager
def router(ends):
    """Puts both ends behind a router, in networks of their own."""
    batch(["netns add fr"])
    try:
        command(["sysctl", "-q", "-w", "net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1"], netns="fr")
        no_dad("fr")
        routed = []
        for number, end in enumerate(ends, 1):
            batch([f"link add w{number} mtu {WIRE_MTU} netns fr type veth peer name w0 mtu {WIRE_MTU} netns {end.netns}"])
            batch([f"addr add 10.66.{number}.254/24 dev w{number}", f"addr add fd66:{number}::254/64 dev w{number} nodad",
                   f"link set w{number} up"], netns="fr")
            batch([f"addr add 10.66.{number}.1/24 dev w0", f"addr add fd66:{number}::1/64 dev w0 nodad",
                   "link set w0 up", f"route add 10.66.0.0/16 via 10.66.{number}.254",
                   f"route add fd66::/16 via fd66:{number}::254"], netns=end.netns)
            routed.append(End(f"{flavour.current().prefix}r{number}", end.netns, "w0", f"10.66.{number}.1",
                              f"fd66:{number}::1", f"10.66.{number}.1"))
        yield routed
    finally:
        batch(["netns del fr"])


@scenario("paths.routed", 60)
def routed(_report):
    """A router between two networks: the hop limit falls, the ICRC does not care."""
    with pair() as ends, router(ends) as far:
        try:
            for end in far:
                link_add(end.dev, end.netdev, netns=end.netns)
                wait_active(end.dev)
            talk_and_count(far)
        finally:
            for end in far:
                link_del(end.dev, netns=end.netns, ok=None)
