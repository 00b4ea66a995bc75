# SPDX-License-Identifier: GPL-2.0
"""Packets that come or would leave by another way than that of their queue pair: through another netdev, in another
network namespace, from an address that is no longer ours."""

import re
import socket
import tempfile
from contextlib import contextmanager
from dataclasses import replace

from tests.guest import roce
from tests.guest.fabric import acquaint, batch, counters, gid_index, mac, pair, wait_until
from tests.guest.netlink import in_netns
from tests.guest.peer import Conversation, exchange
from tests.guest.relay import Relay
from tests.guest.scenario import Failed, command, require, scenario
from tests.scenarios.hostile import generator
from tests.scenarios.losses.fault import controlled, progress
from tests.scenarios.messages import pingpong


class Victim:
    """The victim of hostile packets with one queue pair in RTS, and the connection over which it answers."""

    def __init__(self, control, ends, family):
        self.ask, self.ends = control.ask, ends
        self.us, self.peer = (end.address(family) for end in ends)
        self.make("rts")

    def make(self, kind):
        """A new queue pair of a kind in place of the one that is there; see hostile/victim.py."""
        self.qpn, _, self.psn, self.send_psn, *_ = map(int, self.ask(f"make 1 {kind}")[0].split()[2:])

    def expected(self):
        return int(self.ask("states")[0].split()[3])

    def packet(self):
        """What the peer's queue pair would send next: a SEND for which a receive is posted."""
        return roce.packet(self.peer, self.us, self.qpn, self.expected(), bytes(range(64)))

    def effect(self, send):
        """What a packet did: counters of the device that grew, and by how many PSNs the queue pair moved."""
        dev = self.ends[0].dev
        before, psn = counters(dev), self.expected()
        grown = {}

        def counted():
            nonlocal grown
            grown = {name: n - before[name] for name, n in counters(dev).items() if n != before[name]}
            return "rcvd_pkts" in grown or any(name.startswith("drop_") for name in grown)

        send()
        wait_until("the packet is counted", counted)
        return grown, (self.expected() - psn) & 0xffffff

    def require_refused(self, what, send, reason="drop_interface"):
        """The packet must be dropped for that reason, and have no other effect."""
        grown, moved = self.effect(send)
        require(not moved and grown == {reason: 1}, f"{what}: the queue pair moved by {moved} PSNs, counted {grown}")

    def require_taken(self, what, send):
        """The same packet must be good on the right way: else its refusal has shown nothing."""
        grown, moved = self.effect(send)
        require(moved == 1 and grown.get("rcvd_pkts") == 1, f"{what}: moved by {moved} PSNs, counted {grown}")


@contextmanager
def victim(ends, family):
    """A victim at the first end; its peer is said to be at the second, where nobody is."""
    peer = ends[1].address(family)
    with tempfile.TemporaryFile("w+") as out, generator.victim(ends, family, peer, peer, out) as control:
        yield Victim(control, ends, family)


def ethernet(source, target, packet):
    kind = roce.ETH_IPV6 if packet[0] >> 4 == 6 else roce.ETH_IPV4
    return bytes.fromhex((target + source).replace(":", "")) + kind.to_bytes(2, "big") + packet


def sender(netns, netdev):
    """A socket that puts frames on a wire."""
    made = in_netns(netns, lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW))
    in_netns(netns, lambda: made.bind((netdev, 0)))
    return made


@scenario("isolation.second-netdev", 60, rxe="rdma_rxe has other counters")
def second_netdev(_report):
    """A perfect packet with the peer's address that arrives by another netdev does not reach the queue pair."""
    with pair() as ends:
        acquaint(*ends)
        batch(["link add vc netns fa type veth peer name vd netns fb"])
        for netns, netdev in (("fa", "vc"), ("fb", "vd")):
            batch([f"link set {netdev} up"], netns=netns)
        # The kernel itself may not refuse it.
        command(["sysctl", "-q", "-w", "net.ipv4.conf.all.rp_filter=0", "net.ipv4.conf.vc.rp_filter=0"], netns="fa")
        frames = ((mac(ends[1]), mac(ends[0])), (mac(replace(ends[1], netdev="vd")), mac(replace(ends[0], netdev="vc"))))
        with sender("fb", ends[1].netdev) as right, sender("fb", "vd") as wrong:
            for family in (4, 6):
                with victim(ends, family) as target:
                    packet = target.packet()
                    target.require_refused(f"IPv{family} by another netdev",
                                           lambda: wrong.send(ethernet(*frames[1], packet)))
                    target.require_taken(f"IPv{family} by the right one",
                                         lambda: right.send(ethernet(*frames[0], packet)))


def watch_egress(end, protocol):
    """Counts the packets of RoCE that leave by a netdev."""
    command(["tc", "qdisc", "add", "dev", end[1], "clsact"], netns=end[0])
    ip = "ip6" if protocol == "ipv6" else "ip"
    command(["tc", "filter", "add", "dev", end[1], "egress", "protocol", protocol, "u32", "match", ip, "protocol", "17", "0xff",
             "match", ip, "dport", str(roce.PORT), "0xffff", "action", "pass"], netns=end[0])


def watched(end):
    shown = command(["tc", "-s", "filter", "show", "dev", end[1], "egress"], netns=end[0]).stdout
    return int(re.search(r"Sent \d+ bytes (\d+) pkt", shown).group(1))


@scenario("isolation.removed-address", 90, rxe="rdma_rxe has other counters")
def removed_address(_report):
    """The address of a connection is removed: its packets stop, are counted as lost and then as sent again, and the
    connection goes on when it is back."""
    with controlled() as ends:
        end = ends[1]
        # The ways to the peer remain: these keep the routes of the prefixes.
        command(["sysctl", "-q", "-w", "net.ipv4.conf.all.promote_secondaries=1"], netns=end.netns)
        batch([f"addr add 10.77.0.22/24 dev {end.netdev}", f"addr add fd77::22/64 dev {end.netdev} nodad"], netns=end.netns)
        for family, address_ in ((4, f"{end.ip4}/24"), (6, f"{end.ip6}/64")):
            at = end.netns, end.netdev
            watch_egress(at, "ip" if family == 4 else "ipv6")

            def counted(name):
                return counters(end.dev)[name]

            def wait_for(name):
                before = counted(name)
                wait_until(f"{name} grows", lambda: counted(name) > before or not talk.alive())
                require(counted(name) > before, f"{name} did not grow: {talk.words()}")

            # Only this end asks, so there is always something that it wants to send. Retries take a minute.
            with Conversation(ends, "-1", "-s", "1,M+1,65536", "-t", 20, family=family) as talk:
                require(watched(at), "no packet was seen to leave")
                batch([f"addr del {address_} dev {end.netdev}"], netns=end.netns)
                wait_for("send_lost")
                left = watched(at)
                wait_for("send_retried")
                wait_for("send_lost")
                require(watched(at) == left, f"{watched(at) - left} packets left with a removed address")
                batch([f"addr add {address_} dev {end.netdev}" + (" nodad" if family == 6 else "")], netns=end.netns)
                end.gid(family)
                progress(ends)
                talk.finish()
            command(["tc", "qdisc", "del", "dev", end.netdev, "clsact"], netns=end.netns)


@scenario("isolation.moved-vlan", 60, rxe="rdma_rxe has other counters")
def moved_vlan(_report):
    """A VLAN of the link's netdev that lives in another namespace: its GID is refused when a connection is made, and nothing
    leaves through the link's namespace; if it has the address of a peer, datagrams reach that nevertheless."""
    with controlled(bridged=True) as ends:
        for end in ends:
            batch([f"link add link {end.netdev} name vl type vlan id 7"], netns=end.netns)
        batch(["netns add fv"])
        try:
            batch(["link set vl netns fv"], netns=ends[0].netns)
            for netns, address_ in (("fv", "10.78.0.1"), (ends[1].netns, "10.78.0.2")):
                batch(["link set vl up", f"addr add {address_}/24 dev vl"], netns=netns)
            index = in_netns("fv", lambda: socket.if_nametoindex("vl"))
            # A netdev with the same number, by which packets would leave.
            batch([f"link add leak index {index} type dummy", "link set leak up", "addr add 10.78.0.3/24 dev leak",
                   f"route add 10.78.0.2 dev {ends[0].netdev} metric 1",
                   f"neigh replace 10.78.0.2 lladdr {mac(ends[1])} nud permanent dev {ends[0].netdev}"],
                  netns=ends[0].netns)
            watch_egress((ends[0].netns, "leak"), "ip")
            # The kernel has it among the link's, for the VLAN is upon its netdev.
            gid_index(ends[0].dev, "10.78.0.1")
            batch([f"addr add {ends[1].ip4}/32 dev vl"], netns="fv")
            gid_index(ends[0].dev, ends[1].ip4)
            pingpong.talk(ends, 4, 1024, size=1024, iters=20, kind="ud")
            far = [replace(end, ip4=ip4) for end, ip4 in zip(ends, ("10.78.0.1", "10.78.0.2"))]
            with Relay(ends) as relay:
                try:
                    # The client, who asks, is the one with the VLAN.
                    exchange(far[::-1], 4, "-1", "-s", "1,M+1", "-r", 2, "-t", 14)
                    raise AssertionError("traffic runs by the VLAN of another namespace")
                except Failed as e:
                    require(re.search(r"client of verbs_peer: exit 1: [^;]*to RTR: Cannot assign requested address", str(e)),
                            f"it was not refused with EADDRNOTAVAIL: {e}")
                leaked = watched((ends[0].netns, "leak"))
                untagged = [p for p in relay.packets if p.source == "10.78.0.1" and p.vlan != 7]
                require(not leaked and not untagged,
                        f"in the link's namespace {leaked} packets left by another netdev, {len(untagged)} untagged")
        finally:
            batch(["netns del fv"])
