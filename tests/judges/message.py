# SPDX-License-Identifier: GPL-2.0
"""What one message looks like on the wire: as tshark, scapy and `ferroce trace` decode it, who must agree."""

from tests.guest.scenario import require
from tests.judges.wire_decode import decode
from tests.judges.wire_expect import ACKNOWLEDGE
from tests.scenarios.packets.packets import MTU, SIZE


def judge(packets):
    """Checks the packets of one exchange: each side sends one message of three packets, and acknowledges one."""
    by_source = {}
    for p in packets:
        by_source.setdefault(p["src"], []).append(p)
    require(len(by_source) == 2, f"packets come from {sorted(by_source)}")
    for (source, mine), theirs in zip(by_source.items(), reversed(by_source.values())):
        sends = [p for p in mine if p["opcode"] != ACKNOWLEDGE]
        acks = [p for p in mine if p["opcode"] == ACKNOWLEDGE]
        require([p["opcode"] for p in sends] == [0, 1, 2], f"{source} sent {[p['name'] for p in sends]}")
        psns = [p["psn"] for p in sends]
        require([(n - psns[0]) & 0xffffff for n in psns] == [0, 1, 2], f"{source}: PSNs {psns}")
        lengths = [len(p["payload"]) for p in sends]
        require(lengths == [MTU, MTU, SIZE - 2 * MTU], f"{source}: payloads {lengths}")
        require(len({p["dqpn"] for p in mine}) == 1, f"{source} addresses several queue pairs")
        require(len({p["sport"] for p in mine}) == 1, f"{source} uses several UDP source ports")
        require(mine[0]["sport"] >= 0xC000, f"{source}: UDP source port {mine[0]['sport']}")
        require(sends[-1]["ackreq"], f"{source} asks for no acknowledgement")
        last = next(p["psn"] for p in theirs if p["opcode"] == 2)
        require(last in [p["psn"] for p in acks], f"{source} does not acknowledge the last packet")
        require(not any(p["syndrome"] >> 5 for p in acks), f"{source} sent a NAK")


def judge_file(path):
    packets = decode(path)
    judge(packets)
    print(f"{len(packets)} ICRCs agree with scapy's")
