# SPDX-License-Identifier: GPL-2.0
"""Judges the captures of `packets.kinds`: packets of UC, of UD and of the atomic operations, as `wire_compare` does those
of RC."""

from collections import Counter

from tests.guest.scenario import require
from tests.judges import wire_compare
from tests.judges.wire_compare import ALWAYS, Difference, judge_frame, judge_messages
from tests.judges.wire_expect import FETCH_AND_ADD

RESPONSE = "the response is the acknowledgement, nobody has to ask"
DIFFERENCES = ALWAYS + (
    Difference("requester", "ackreq", RESPONSE, packet="CMP_AND_SWP"),
    Difference("requester", "ackreq", RESPONSE, packet="FETCH_AND_ADD"),
    Difference("requester", "ackreq", RESPONSE, packet="ATOMIC WRITE"),
)
# Each of these must have been in every capture: the packets are of the requester, by the beginning of their name.
NAMES = ("UC SEND First", "UC SEND Middle", "UC SEND Last", "UC SEND Last with Immediate", "UC SEND Only",
         "UC SEND Only with Immediate", "UC WRITE First", "UC WRITE Middle", "UC WRITE Last",
         "UC WRITE Last with Immediate", "UC WRITE Only", "UC WRITE Only with Immediate", "UD SEND Only",
         "UD SEND Only with Immediate", "CMP_AND_SWP", "FETCH_AND_ADD", "ATOMIC WRITE", "Atomic Acknowledge",
         "WRITE Last", "WRITE Only")


def judge(parts):
    """Each capture by itself: every message of every lane."""
    for part in parts:
        judge_frame(part)
        for lane in part.talk.lanes:
            judge_messages(part, lane)
        seen = Counter(p["name"] for p in part.packets)
        missing = [name for name in NAMES if not seen[name]]
        require(not missing, f"{part.name}: there is no packet of these: {', '.join(missing)}")
        for p in part.packets:
            part.require(not p["ackreq"] or p["name"][:2] not in ("UC", "UD"), p, "asks for what there is not")
            if p["opcode"] == FETCH_AND_ADD and part.asks == "ferroce":
                part.require(p["compare"] == 0, p, f"compares with {p['compare']:#x}, which is some memory of the kernel's")
        print(f"{part.name}: {len(part.packets)} packets of {len(part.talk.messages)} messages, of "
              f"{len(seen)} opcodes")


def judge_file(path):
    wire_compare.judge_file(path, judge, DIFFERENCES)
