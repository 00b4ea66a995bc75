# SPDX-License-Identifier: GPL-2.0
"""What may not stand in the headers of IP: marks of congestion, fragments; and packets above the MTU of the port."""

import json
import shutil
from dataclasses import replace

from tests.guest import roce
from tests.guest.cases import cases
from tests.guest.fabric import acquaint, batch, loop, mac, pair, show_packets, tagged
from tests.guest.peer import exchange
from tests.guest.relay import Relay
from tests.guest.scenario import Failed, add, require, scenario
from tests.scenarios.losses.fault import controlled
from tests.scenarios.packets.packets import captured
from tests.scenarios.paths.isolation import ethernet, sender, victim


@scenario("headers.no-ecn", 60, rxe="rdma_rxe has other counters")
def no_ecn(_report):
    """Whatever traffic class is asked for, no packet says that it takes part in ECN: that is the device's to say."""
    with controlled(bridged=True) as ends:
        acquaint(*ends)
        with Relay(ends) as relay:
            for family in (4, 6):
                for asked in (0xb9, 0x03):
                    relay.packets.clear()
                    exchange(ends, family, "-c", asked, "-e", 1, "-o", "sr", "-s", "M+1")
                    seen = sorted({p.traffic_class for p in relay.packets})
                    require(len(relay.packets) >= 8 and seen == [asked & 0xfc],
                            f"IPv{family}: asked for {asked:#04x}, and {len(relay.packets)} packets have "
                            f"{', '.join(map(hex, seen))}")


@scenario("headers.vlan-priority", 90, rxe="rdma_rxe has other counters")
def vlan_priority(_report):
    """The PCP of a VLAN follows the traffic class, by the map of the VLAN, as a socket's does (rt_tos2priority)."""
    with controlled(bridged=True) as ends:
        uppers = tagged(ends)
        acquaint(*uppers)
        show_packets(uppers)
        for end in uppers:
            # What the class 0xb8 (DSCP EF) makes of the priority is TC_PRIO_INTERACTIVE_BULK.
            batch([f"link set {end.netdev} type vlan egress-qos-map 0:1 4:5"], netns=end.netns)
        with Relay(ends) as relay:
            for family in (4, 6):
                for asked, want in ((0, 1), (0xb8, 5)):
                    relay.packets.clear()
                    exchange(uppers, family, "-c", asked, "-e", 1, "-o", "sr", "-s", "M+1")
                    seen = sorted({p.priority for p in relay.packets})
                    require(len(relay.packets) >= 8 and seen == [want], f"IPv{family}: class {asked:#04x} has {seen}")


def flow(_report):
    """Datagrams and connections of many flow labels, traffic classes and hop limits, over both families. The capture is
    judged outside."""
    what = next(case for case in cases("verbs") if case.name == "flow")
    with pair() as ends:
        with captured(ends, "/tmp/flow.pcap"):
            said = what.run(*ends)
    shutil.copy("/tmp/flow.pcap", "/srv/results/headers.flow.pcap")
    with open("/srv/results/headers.flow.flow.json", "w", encoding="utf-8") as f:
        json.dump({"capture": "headers.flow.pcap", "said": said}, f)


add("headers.flow", 90, "flow label, UDP source port by it, traffic class and hop limit of UD, groups and RC, by tshark",
    flow, leaves=".flow.json", rxe="rdma_rxe has other counters")


@scenario("headers.fields", 120, rxe="rdma_rxe has other counters")
def fields(_report):
    """Completions of datagrams say the VLAN, the sender's MAC address and the kind of network header that there were."""
    what = next(case for case in cases("verbs") if case.name == "ud-fields")

    def run(ends, vlan):
        for one in (ends, [replace(end, ip4=end.ip6) for end in ends]):
            what.run(*one, VLAN=str(vlan), SMAC="0x" + mac(one[0]).replace(":", ""))

    with pair() as ends:
        run(ends, 0)
        uppers = tagged(ends, 4094)
        for number, end in enumerate(uppers, 1):
            batch([f"link set upper address 02:00:00:00:07:0{number}"], netns=end.netns)
        run(uppers, 4094)
        run(ends, 0)
    # By packets it would come by `lo`, which has no addresses.
    with loop(True) as end:
        run((end, end), 0)


@scenario("headers.fragments", 60, rxe="rdma_rxe has other counters")
def fragmented(_report):
    """A perfect packet in two IP fragments is dropped and counted as trouble with the IP header; whole it is taken."""
    with pair() as ends:
        acquaint(*ends)

        def send(*packets):
            for packet in packets:
                wire.send(ethernet(mac(ends[1]), mac(ends[0]), packet))

        with sender("fb", ends[1].netdev) as wire, victim(ends, 4) as target:
            packet = target.packet()
            target.require_refused("in fragments", lambda: send(*roce.fragments(packet, 40)), "drop_ip_header")
            target.require_taken("whole", lambda: send(packet))


@scenario("headers.path-mtu", 60, rxe="rdma_rxe has other counters")
def path_mtu(_report):
    """A path MTU above what the port's netdev carries is refused when the queue pair is set up."""
    with pair() as ends:
        for end in ends:
            batch([f"link set {end.netdev} mtu 1500"], netns=end.netns)
        exchange(ends, 4, "-m", 1024, "-s", "M+1")
        try:
            exchange(ends, 4, "-m", 2048, "-s", "1")
        except Failed as e:
            require("to RTR: Invalid argument" in str(e), f"refused otherwise: {e}")
        else:
            raise Failed("2048 was accepted over a netdev with an MTU of 1500")
