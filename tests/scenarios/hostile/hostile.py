# SPDX-License-Identifier: GPL-2.0
"""Packets that no peer should send, to queue pairs of all kinds: nothing is written, leaked or broken that may not be,
and each packet is counted under its reason. Here go some of them, by the wire, others each time; all of them go to the pure
code on the host (tests/hostile/tests). The victim is victim.py."""

import re
import socket
import struct
import tempfile
import time
from contextlib import contextmanager
from dataclasses import replace

from tests.guest import roce
from tests.guest.fabric import (
    acquaint, batch, counters, link_add, link_del, mac, pair, show_packets, wait_active, wait_until, wait_up)
from tests.guest.netlink import in_netns
from tests.guest.peer import Conversation, exchange
from tests.guest.scenario import SHORT, add, command, require, scenario, seeded
from tests.scenarios.hostile.generator import Judge, run_family, victim, wire
from tests.scenarios.hostile.noise import Mads, flood

# Beside the two devices' addresses: the attacker's, where no queue pair is, and a second one of the victim.
ATTACKER = {4: "10.77.0.66", 6: "fd77::66"}
SECOND = {4: "10.77.0.9", 6: "fd77::9"}


@contextmanager
def attacked_pair():
    """A pair; the first end is the victim's. Its queue of received packets holds every burst."""
    command(["sysctl", "-q", "-w", "net.core.netdev_max_backlog=20000"])
    with pair() as ends:
        acquaint(*ends)
        # The victim's answers are judged packet by packet.
        show_packets(ends)
        victim, attacker = ends
        enemy = mac(attacker)
        for family, bits in ((4, 24), (6, 64)):
            nodad = " nodad" if family == 6 else ""
            batch([f"addr add {SECOND[family]}/{bits} dev {victim.netdev}{nodad}",
                   f"neigh replace {ATTACKER[family]} lladdr {enemy} nud permanent dev {victim.netdev}",
                   f"neigh replace {attacker.address(family)} lladdr {enemy} nud permanent dev {victim.netdev}"],
                  netns=victim.netns)
            batch([f"addr add {ATTACKER[family]}/{bits} dev {attacker.netdev}{nodad}"], netns=attacker.netns)
        yield ends


# Of so many cases of a family one goes by the wire: more where the kernel's part judges, memory above all. Over IPv6 the
# header of IP alone is another one.
FAMILIES = {4: {"opcodes": 200, "headers": 10, "requests": 4, "talks": 12, "responses": 4, "network": 1}, 6: {"headers": 40, "network": 1}}


def attack(report, family):
    """Packets of some families against the victim, and a good conversation afterwards."""
    with attacked_pair() as ends, tempfile.TemporaryFile("w+") as out, wire(ends) as (link, _), seeded():
        places = {"us": ATTACKER[family], "victim": ends[0].address(family), "victim-too": SECOND[family],
                  "other": ends[1].address(family), "our-mac": mac(ends[1]), "victim-mac": mac(ends[0])}
        for name, one_of in FAMILIES[family].items():
            settings = {**places, "one-of": one_of * (8 if SHORT else 1)}
            with victim(ends, family, places["us"], places["other"], out) as control:
                report.note(run_family(link, Judge(ends[0].dev), control, settings, name))
        exchange(ends, family, "-s", "1,M+1,65536")


add("hostile.packets-ipv4", 300, "opcodes, lengths, turned bits, requests out of order and beyond regions and windows, "
    "forged responses, oddities of IP: each as the model says; IPv4", attack, 4, rxe="rdma_rxe has other counters")
add("hostile.packets-ipv6", 120, "turned bits, oddities of IP: each as the model says; IPv6", attack, 6,
    rxe="rdma_rxe has other counters")


@scenario("hostile.mads", 120, rxe="rdma_rxe has other counters")
def mads(report):
    """Management datagrams of every size and opcode, and with wrong Q_Keys, to queue pair 1: only what is right is answered."""
    with attacked_pair() as ends:
        with wire(ends) as (link, frame), seeded():
            talk = Mads(ends[0], ATTACKER[4], link, frame)
            talk.run()
            report.note(f"{talk.sent} datagrams sent")


def queue_pairs(dev):
    """Numbers of the queue pairs of a device that are connected."""
    shown = command(["rdma", "resource", "show", "qp", "link", f"{dev}/1"]).stdout
    return re.findall(r"lqpn (\d+) rqpn \d+ type RC state RTS", shown)


def drops(grown):
    return {name: n for name, n in grown.items() if name.startswith("drop_")}


def growth(ends, before, count):
    """By how much each counter of each device has grown, when this many packets were dropped. Had more been, they would
    have come by then: each device is read for at least 20 ms longer, for ib_core gives out what it read last."""
    def look():
        return [{name: n - old[name] for name, n in counters(end.dev).items() if n != old[name]}
                for end, old in zip(ends, before)]

    wait_until(f"{count} packets are dropped", lambda: sum(sum(drops(grown).values()) for grown in look()) >= count)
    time.sleep(0.02)
    return look()


@scenario("hostile.noise", 90, rxe="rdma_rxe has other counters")
def noise(report):
    """Noise to a queue pair that talks: all of it is dropped, and the conversation goes on to its good end."""
    count = 2000 if SHORT else 20000
    with attacked_pair() as ends, Conversation(ends, "-s", "1,M+1,65536") as talk:
        (target,) = queue_pairs(ends[0].dev)
        time.sleep(0.02)
        before = counters(ends[0].dev)
        with wire(ends) as (link, frame), seeded():
            report.note(flood(link, frame, (ends[1].ip4, ATTACKER[4], ends[0].ip4), int(target), count))
        require(talk.alive(), "a program ended")
        # Not behind its end, when what comes late for its queue pairs would be dropped, too.
        (grown,) = growth(ends[:1], [before], count)
        report.note(", ".join(f"{name} {n}" for name, n in sorted(grown.items())))
        dropped = sum(drops(grown).values())
        require(dropped == count, f"{dropped} packets were dropped of {count} that should be: {grown}")
        talk.finish()


def grows(ends, target, qpn):
    """By how much each counter of each device grows when five datagrams come to an address: the BTH of a SEND to a queue pair,
    and as many bytes as an empty one has. Nobody looks further if the queue pair is none."""
    before = [counters(end.dev) for end in ends]
    family = socket.AF_INET6 if ":" in target else socket.AF_INET
    with in_netns("fb", lambda: socket.socket(family, socket.SOCK_DGRAM)) as sender:
        for psn in range(5):
            sender.sendto(struct.pack("!BBHIII", roce.SEND_ONLY, 0x40, 0xffff, qpn, 1 << 31 | psn, 0), (target, roce.PORT))
    return growth(ends, before, 5)


@scenario("hostile.nobody", 60, rxe="rdma_rxe has other counters")
def nobody(_report):
    """Packets for no queue pair are counted where they came in; queue pairs of another namespace are none."""
    with attacked_pair() as ends:
        for target in (ends[0].ip4, ends[0].ip6):
            require(grows(ends, target, 0x123456) == [{"drop_unknown_qp": 5}, {}], "not counted at the netdev's device")
        with Conversation(ends, "-s", "1") as talk:
            other = int(queue_pairs(ends[1].dev)[0])
            # The numbers of the conversation grow; drops are what is compared here.
            seen = [drops(grown) for grown in grows(ends, ends[0].ip4, other)]
            require(seen == [{"drop_unknown_qp": 5}, {}], f"a queue pair of another namespace: {seen}")
            talk.finish()
        batch(["link add vc netns fa type veth peer name vd netns fb"])
        batch(["addr add 10.79.0.1/24 dev vc", "link set vc up"], netns="fa")
        batch(["addr add 10.79.0.2/24 dev vd", "link set vd up"], netns="fb")
        for netns, netdev in (("fa", "vc"), ("fb", "vd")):
            wait_up(netns, netdev)
        seen = grows(ends, "10.79.0.1", 0x123456)
        require(seen == [{"drop_unknown_qp": 5}, {}], f"a netdev without a device: {seen}")
        third = replace(ends[0], dev="fe2", netdev="vc", ip4="10.79.0.1")
        link_add(third.dev, third.netdev, netns="fa")
        try:
            wait_active(third.dev)
            seen = grows((*ends, third), "10.79.0.1", 0x123456)
            require(seen == [{}, {}, {"drop_unknown_qp": 5}], f"a netdev with a device: {seen}")
        finally:
            link_del(third.dev, netns="fa")
