# SPDX-License-Identifier: GPL-2.0
"""What may not stand in the headers of IP: marks of congestion, fragments; and packets above the MTU of the port."""

from tests.guest import roce
from tests.guest.fabric import batch, pair
from tests.guest.peer import exchange
from tests.guest.relay import Relay
from tests.guest.scenario import Failed, require, scenario
from tests.scenarios.hostile.hostile import mac
from tests.scenarios.losses.fault import acquaint, controlled
from tests.scenarios.paths.isolation import ethernet, only_ferroce, sender, victim


@scenario("headers.no-ecn", 60)
def no_ecn(report):
    """Whatever traffic class is asked for, no packet says that it takes part in ECN: nobody would read the marks."""
    only_ferroce()
    with controlled(bridged=True) as ends:
        acquaint(ends)
        with Relay(ends) as relay:
            for family in (4, 6):
                for asked in (0xb9, 0x03):
                    relay.packets.clear()
                    exchange(ends, family, "-c", asked, "-e", 1, "-o", "sr", "-s", "M+1")
                    seen = sorted({p.traffic_class for p in relay.packets})
                    report.note(f"IPv{family}: asked for {asked:#04x}, {len(relay.packets)} packets with "
                                f"{', '.join(map(hex, seen))}")
                    require(len(relay.packets) >= 8 and seen == [asked & 0xfc],
                            f"IPv{family}: asked for {asked:#04x}, and {len(relay.packets)} packets have "
                            f"{', '.join(map(hex, seen))}")


@scenario("headers.fragments", 60)
def fragmented(_report):
    """A perfect packet in two IP fragments is dropped and counted as trouble with the IP header; whole it is taken."""
    only_ferroce()
    with pair() as ends:
        acquaint(ends)
        wire = sender("fb", ends[1].netdev)

        def send(*packets):
            for packet in packets:
                wire.send(ethernet(mac(ends[1]), mac(ends[0]), packet))

        try:
            with victim(ends, 4) as target:
                packet = target.packet()
                reason = target.require_refused("in fragments", lambda: send(*roce.fragments(packet, 40)))
                require(reason == "drop_ip_header", f"counted as {reason}")
                target.require_taken("whole", lambda: send(packet))
        finally:
            wire.close()


@scenario("headers.path-mtu", 60)
def path_mtu(report):
    """A path MTU above what the port's netdev carries is refused when the queue pair is set up."""
    only_ferroce()
    with pair() as ends:
        for end in ends:
            batch([f"link set {end.netdev} mtu 1500"], netns=end.netns)
        exchange(ends, 4, "-m", 1024, "-s", "M+1")
        try:
            exchange(ends, 4, "-m", 2048, "-s", "1")
        except Failed as e:
            report.note(str(e))
            require("to RTR: Invalid argument" in str(e), f"refused otherwise: {e}")
        else:
            raise Failed("2048 was accepted over a netdev with an MTU of 1500")
