# SPDX-License-Identifier: GPL-2.0
"""What lies between two devices: packets leave in batches, which devices and tunnels on the way take apart, or do not."""

import os
import re
from contextlib import ExitStack, contextmanager
from dataclasses import replace

from tests.guest import flavour
from tests.guest.fabric import (
    IB, WIRE_MTU, End, acquaint, batch, counters, grown, link_del, linked, pair, set_local_path, setting, show_packets, tagged,
    tx_packets, unsteered, wait_active, wait_until)
from tests.guest.peer import exchange
from tests.guest.scenario import Skipped, add, command, require, scenario
from tests.scenarios.losses.fault import controlled, disturb
from tests.scenarios.messages.pingpong import talk

# Messages of one packet, of many, and of more than fit into a batch.
MESSAGES = ("-m", 4096, "-s", "1,M+1,65536,300000")


def left_by(end):
    """Packets as the netdev counts them, in which a batch is one, and as the device does."""
    return tx_packets(end), counters(end.dev).get("sent_pkts", 0)


def talk_and_count(ends, families=(4, 6)):
    """Moves checked data; returns how often the first netdev was given something, and packets of the device."""
    before = left_by(ends[0])
    for family in families:
        exchange(ends, family, *MESSAGES)
    after = left_by(ends[0])
    return after[0] - before[0], after[1] - before[1]


@scenario("paths.batches", 60, rxe="rdma_rxe makes no batches")
def batches(_report):
    """Over veth batches stay whole, so the netdev sees far fewer packets than there are; gso off makes them single."""
    with pair() as ends:
        given, packets = talk_and_count(ends)
        require(given < packets / 2, f"{packets} packets were given to the netdev in {given} pieces")
        show_packets(ends)
        require_single(*talk_and_count(ends))


def steered(ends):
    """Moves long messages to one end, whose CPU sends none; returns how many batches were executed on other CPUs, and packets that came out of order."""
    def counted():
        found = [counters(end.dev) for end in ends]
        return [sum(one[name] for one in found) for name in ("rx_steered", "kept_requests", "out_of_sequence")]

    before = counted()
    exchange(ends, 4, "-1", "-m", 4096, "-s", f"M+1,{1 << 20}")
    return [now - then for now, then in zip(counted(), before)]


@scenario("paths.steering", 60, rxe="rdma_rxe has one work item for each queue pair")
def steering(_report):
    """Batches of long messages are executed on another CPU, in order: not where that is switched off, nor for processes
    that may run on one CPU alone."""
    cpus = os.sched_getaffinity(0)
    if len(cpus) < 2:
        raise Skipped("there is one CPU")
    with pair() as ends:
        def some():
            batches, *disorder = steered(ends)
            require(not any(disorder), f"{disorder} packets out of order")
            return batches

        # The host may take a CPU away, which gets no batches then.
        wait_until("batches are steered", some, 40)
        with unsteered(ends):
            batches, _, _ = steered(ends)
        require(not batches, f"{batches} batches were steered with steering off")
        os.sched_setaffinity(0, {min(cpus)})
        try:
            batches, _, _ = steered(ends)
        finally:
            os.sched_setaffinity(0, cpus)
        require(not batches, f"{batches} batches were steered to a CPU where the processes may not run")


# Frames of the neighbours' and the programs' own that may be counted at one place and not yet at another.
STRAY = 10


def require_single(given, packets):
    """The netdev was given each packet by itself; the programs' own TCP comes on top."""
    require(packets and given >= packets, f"{packets} packets in {given} pieces")


@scenario("paths.no-offloads", 90)
def without(_report):
    """Netdevs that know nothing of batches, before which the stack takes them apart; and such that compute no checksum, take no
    scattered packet and make no batch."""
    with pair() as ends:
        for features in (["tx-gso-list"], ["tx", "rx", "sg", "gso", "gro"]):
            for end in ends:
                command(["ethtool", "-K", end.netdev, *(word for feature in features for word in (feature, "off"))],
                        netns=end.netns)
            require_single(*talk_and_count(ends))


@scenario("paths.bridge", 60)
def bridge(_report):
    """A bridge between the two, which hands batches on as they are."""
    with pair(bridged=True) as ends:
        port = replace(ends[1], netns=None, netdev=f"b{ends[1].netdev}")
        before = tx_packets(port)
        given, packets = talk_and_count(ends)
        require(given <= tx_packets(port) - before + STRAY and given < packets / 2,
                f"{packets} packets, {given} pieces for the bridge, which forwarded {tx_packets(port) - before}")


@contextmanager
def upon(ends, make):
    """Devices on netdevs upon those of two ends: `make(end, other)` are the `ip` commands that make one called `upper`."""
    made = []
    for number, (end, other) in enumerate((ends, reversed(ends)), 1):
        link_del(end.dev, netns=end.netns)
        batch([*make(end, other), "link set upper up", f"addr add 10.99.0.{number}/24 dev upper",
               f"addr add fd99::{number}/64 dev upper nodad"], netns=end.netns)
        made.append(replace(end, dev=f"{flavour.current().prefix}x{number}", netdev="upper", ip4=f"10.99.0.{number}",
                            ip6=f"fd99::{number}", tcp=f"10.99.0.{number}"))
    with linked(made):
        yield made


@scenario("paths.vlan", 60)
def vlan(_report):
    """A VLAN upon each netdev: its addresses are GIDs of the device of the netdev, and packets have its tag."""
    with pair() as ends:
        given, packets = talk_and_count(tagged(ends))
        require(packets and given, f"{packets} packets left, {given} of them by the VLAN")


def vxlan(end, other):
    """A tunnel: batches are wrapped, and must have room for the tunnel's headers in front of each packet."""
    return [f"link add upper type vxlan id 7 dev {end.netdev} local {end.ip4} remote {other.ip4} dstport 4789",
            f"link set upper mtu {WIRE_MTU}"]


def macvlan(end, _other):
    """A macvlan upon each netdev: another Ethernet address on the same wire."""
    # Else the netdev below answers for the address of the macvlan, or the macvlan, whichever is first.
    command(["sysctl", "-q", "-w", "net.ipv4.conf.all.arp_ignore=1"], netns=end.netns)
    return [f"link add link {end.netdev} name upper type macvlan mode bridge"]


def by_upper(_report, make):
    """By netdevs upon the wire, which has all that they are given."""
    with pair(mtu=WIRE_MTU + 100) as ends, upon(ends, make) as uppers:
        before = tx_packets(ends[0])
        given, packets = talk_and_count(uppers)
        below = tx_packets(ends[0]) - before
        require(packets and below >= given > 0, f"{packets} packets, {given} for the upper netdev, {below} below it")


for _make in (vxlan, macvlan):
    add(f"paths.{_make.__name__}", 60, _make.__doc__, by_upper, _make)


@scenario("paths.bond", 90)
def bond(_report):
    """A bond of two wires at each end; one wire is lost under traffic, and the other goes on."""
    def bonded(end, _):
        return ["link add upper type bond mode active-backup miimon 50 fail_over_mac active",
                f"link set upper mtu {WIRE_MTU}"] + [
                    line for slave in (end.netdev, "s2") for line in (f"link set {slave} down", f"link set {slave} master upper")]

    command(["modprobe", "bonding", "max_bonds=0"])
    with ExitStack() as stack:
        stack.callback(command, ["modprobe", "-r", "bonding"])
        ends = stack.enter_context(pair())
        batch([f"link add s2 mtu {WIRE_MTU} netns fa type veth peer name s2 mtu {WIRE_MTU} netns fb"])
        with upon(ends, bonded) as both:
            talk_and_count(both)
            # The active wire of one end, and with it the carrier of the other.
            batch([f"link set {ends[0].netdev} down"], netns=ends[0].netns)
            wait_until("the other wire is the active one",
                       lambda: "active_slave s2" in command(["ip", "-d", "link", "show", "upper"], netns="fa").stdout
                       and "active_slave s2" in command(["ip", "-d", "link", "show", "upper"], netns="fb").stdout)
            talk_and_count(both)


@scenario("paths.link-local", 60)
def link_local(_report):
    """The GIDs of IPv6 link-local addresses, which mean something on their netdev alone."""
    with pair() as ends:
        local = []
        for end in ends:
            shown = command(["ip", "-6", "-o", "addr", "show", "dev", end.netdev, "scope", "link"], netns=end.netns).stdout
            local.append(replace(end, ip6=re.search(r"inet6 (fe80::[0-9a-f:]+)/", shown).group(1)))
        given, packets = talk_and_count(local, families=(6,))
        require(given and packets, f"{packets} packets left, the netdev was given {given}")


def cards(_report, driver):
    """Between two network cards of the machine, as the emulator has them."""
    found = [name for name in sorted(os.listdir("/sys/class/net"))
             if os.path.basename(os.path.realpath(f"/sys/class/net/{name}/device/driver")) == driver]
    if len(found) != 2:
        raise Skipped(f"this machine has not two cards of {driver}, but {len(found)}")
    with pair() as ends, ExitStack() as stack:
        for card, end in zip(found, ends):
            batch([f"link set {card} netns {end.netns} name upper"])
            stack.callback(batch, ["link set upper down", f"link set upper netns 1 name {card}"], netns=end.netns)
        others = stack.enter_context(upon(ends, lambda *_: [f"link set upper mtu {WIRE_MTU}"]))
        given, packets = talk_and_count(others)
        require(packets and given, f"{packets} packets left, the card was given {given}")


for _driver in ("virtio_net", "e1000"):
    add(f"paths.{_driver.replace('_', '-')}", 60, f"between two network cards, driver {_driver}, on a wire of the emulator",
        cards, _driver)


# What a host with a firewall has: connections are tracked, and nothing else comes in.
RULES = """table inet lab {
    chain input {
        type filter hook input priority filter; policy drop;
        iif lo accept
        meta l4proto { icmp, ipv6-icmp, tcp } accept
        udp dport 4791 ct state new,established counter accept
    }
    chain output {
        type filter hook output priority filter; policy accept;
        ct state invalid counter drop
    }
}
"""


@scenario("paths.firewall", 60)
def firewall(_report):
    """nftables and connection tracking at both ends, which look at every packet."""
    with pair() as ends:
        for end in ends:
            done = command(["nft", RULES], netns=end.netns, ok=None)
            if done.returncode and "not supported" in done.stdout:
                raise Skipped("this kernel has no nftables")
            require(not done.returncode, f"nft: {done.stdout}")
        talk_and_count(ends)
        shown = command(["nft", "list", "chain", "inet", "lab", "input"], netns=ends[1].netns).stdout
        seen = int(re.search(r"counter packets (\d+)", shown).group(1))
        # It counts what it sees: a batch is one there.
        require(seen > 0, "the firewall has seen no packet")


@scenario("paths.small-mtu", 60)
def small_mtu(report):
    """Messages between two devices whose netdevs carry 1500 bytes."""
    with pair() as ends:
        for end in ends:
            batch([f"link set {end.netdev} mtu 1500"], netns=end.netns)
        before = counters(ends[1].dev)["sent_pkts"]
        talk(ends, 4, 1024, size=65536, iters=10)
        sent = counters(ends[1].dev)["sent_pkts"] - before
        report.note(f"{sent} packets")
        require(sent >= 10 * 64, f"only {sent} packets: they did not go by the wire")


@scenario("paths.vrf", 90)
def vrf(_report):
    """The netdevs are in VRFs, and udp_l3mdev_accept lets sockets outside of these have their packets: data between two
    devices, datagrams also to an address that another VRF has as well, and from one to itself by packets."""
    with controlled() as ends:
        if command(["ip", "link", "add", "red", "type", "vrf", "table", "9"], ok=None).returncode:
            raise Skipped("this kernel has no VRF")
        batch(["link del red"])
        for end in ends:
            batch(["link add red type vrf table 10", "link set red up", f"link set {end.netdev} master red",
                   f"addr replace {end.ip6}/64 dev {end.netdev} nodad"], netns=end.netns)
            command(["sysctl", "-q", "-w", "net.ipv4.udp_l3mdev_accept=1"], netns=end.netns)
            batch(["link add blue type vrf table 11", "link set blue up", "link add twin type dummy",
                   f"addr add {end.ip4}/32 dev twin", "link set twin master blue"], netns=end.netns)
            wait_active(end.dev)
        for family in (4, 6):
            for end in ends:
                end.gid(family)
            before = left_by(ends[0])
            exchange(ends, family, *MESSAGES)
            given, packets = (now - then for now, then in zip(left_by(ends[0]), before))
            require(packets and given, f"IPv{family}: {packets} packets left, the netdev was given {given}")
            if flavour.current().is_ferroce:
                talk(ends, family, 1024, size=1024, iters=20, kind="ud")
                set_local_path(ends[0].dev, False)
                before = counters(ends[0].dev)["sent_pkts"]
                exchange((ends[0], ends[0]), family, *MESSAGES)
                require(counters(ends[0].dev)["sent_pkts"] > before, "no packet from the device to itself")
                require(not counters(ends[0].dev)["drop_interface"], "packets were dropped for the netdev that they came by")


@contextmanager
def router(ends):
    """Puts both ends behind a router, in networks of their own."""
    batch(["netns add fr"])
    try:
        command(["sysctl", "-q", "-w", "net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1"], netns="fr")
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
            acquaint(routed[-1], replace(routed[-1], netns="fr", netdev=f"w{number}", ip4=f"10.66.{number}.254",
                                         ip6=f"fd66:{number}::254"))
        yield routed
    finally:
        batch(["netns del fr"])


@scenario("paths.routed", 60)
def routed(_report):
    """A router between two networks: the hop limit falls, the ICRC does not care."""
    with pair() as ends, router(ends) as far, linked(far):
        talk_and_count(far)


@contextmanager
def taking_part(ends):
    """Connections that are made meanwhile let the network mark their packets."""
    with setting(f"{IB}/{ends[0].dev}/ecn", "1"), setting(f"{IB}/{ends[1].dev}/ecn", "1"):
        yield


@scenario("paths.marked-batches", 60, rxe="rdma_rxe has other counters")
def marked_batches(report):
    """A qdisc marks batches in place of losing them, over both families: nothing is lost, the marks take effect."""
    with controlled() as ends:
        acquaint(*ends)
        disturb(ends[1:], "loss 10% ecn limit 20000 seed 17")
        for family in (4, 6):
            before, batches = [counters(end.dev) for end in ends], tx_packets(ends[1])
            with taking_part(ends), unsteered(ends):
                exchange(ends, family, "-1", "-o", "w", "-s", 1 << 20, "-n", 8)
            receiver, sender = (grown(was, counters(end.dev)) for end, was in zip(ends, before))
            batches = tx_packets(ends[1]) - batches
            report.note(f"IPv{family}: {sender['sent_pkts']} packets in {batches} batches, of which "
                        f"{receiver['np_ecn_marked_roce_packets']} came marked; {receiver['np_cnp_sent']} notifications, "
                        f"{sender['rp_cnp_handled']} came")
            require(batches < sender["sent_pkts"] / 2, "the packets did not leave in batches")
            lost = {name: receiver[name] for name in ("out_of_sequence", "kept_requests", "missing_sent") if receiver[name]}
            require(not lost, f"packets are missing: {lost}")
            require(not sender["retransmitted_pkts"], f"{sender['retransmitted_pkts']} packets were sent again")
            require(0 < receiver["np_cnp_sent"] <= receiver["np_ecn_marked_roce_packets"] <= batches, "the marks were not told")
            require(sender["rp_cnp_handled"] == receiver["np_cnp_sent"], "notifications were lost")
