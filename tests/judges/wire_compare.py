# SPDX-License-Identifier: GPL-2.0
"""Judges the captures of `packets.fields`: every packet against what must be there, and ferroce's against rdma_rxe's."""

import json
import os
from collections import Counter
from dataclasses import dataclass

from command.trace.opcodes import RESPONSES
from tests.guest.scenario import require
from tests.judges.wire_decode import decode
from tests.judges.wire_expect import ACK, ACKNOWLEDGE, ANSWERED, FETCH_AND_ADD, NAK, RC, RNR, understand

# The delay that PLAN in wire.py asks for, code 24 (IBTA table 45).
RNR_SECONDS = 0.04096
RNR_SYNDROME = RNR | 24

# What the responder must answer to a mistake before anything else: the syndrome, and the packet of the message it names.
REFUSALS = {"n": (RNR_SYNDROME, 0), "g": (NAK["sequence"], 1), "l": (NAK["invalid request"], 2),
            "k": (NAK["access"], 0), "K": (NAK["access"], 0), "e": (NAK["access"], 0), "E": (NAK["access"], 0),
            "q": (NAK["invalid request"], 0), "Q": (NAK["invalid request"], 0)}
# What the asking side is told then: enum ibv_wc_status.
SUCCESS, REM_INV_REQ, REM_ACCESS, REM_OP = 0, 9, 10, 11
TOLD = {RNR_SYNDROME: SUCCESS, NAK["sequence"]: SUCCESS, NAK["invalid request"]: REM_INV_REQ,
        NAK["access"]: REM_ACCESS, NAK["operation"]: REM_OP}

# Where rdma_rxe answers otherwise: IBTA has a SEND that its receive has no room for as an invalid request, for it was the
# requester that asked for too much; rdma_rxe answers that it failed itself.
RXE_REFUSES = {"l": (NAK["operation"], 2)}
# After it has said that it is not ready, rdma_rxe has every packet behind that one for out of sequence.
RXE_ADDS = {"n": {NAK["sequence"]}}


@dataclass(frozen=True)
class Difference:
    """A way in which ferroce's packets are known not to be rdma_rxe's, and why that is right."""

    side: str           # of ferroce: "requester" or "responder"
    field: str
    why: str
    packet: str = ""    # how the name of the packet begins
    message: str = ""   # how the description of the message ends


NO_ID = "0, as nothing is ever cut to fragments, and DF says so (RFC 6864); rdma_rxe counts"
MIGRATED = "1: the connection was never moved to another path (IBTA's state MIGRATED); rdma_rxe leaves it 0"
KEEPS = "1: it keeps packets behind a gap, which another ferroce may use; others ignore the bit (IBTA 9.2)"
INTERVAL = "within long messages each driver counts its packets in its own way until it asks, about 64"
LONG = "of 81920 bytes"

# Those of every packet.
ALWAYS = (
    Difference("requester", "ip_id", NO_ID),
    Difference("responder", "ip_id", NO_ID),
    Difference("requester", "migreq", MIGRATED),
    Difference("responder", "migreq", MIGRATED),
    Difference("requester", "reserved", KEEPS),
)
DIFFERENCES = ALWAYS + (
    Difference("requester", "ackreq", "the responses are the acknowledgement, nobody has to ask", packet="READ Request"),
    Difference("requester", "ackreq", INTERVAL, packet="SEND Middle", message=LONG),
    Difference("requester", "ackreq", INTERVAL, packet="WRITE Middle", message=LONG),
    Difference("responder", "syndrome", "a SEND too long for its receive: see RXE_REFUSES", message="mistake l"),
)


class Part:
    """One capture with what is known of it."""

    def __init__(self, told, folder):
        self.__dict__.update(told)
        self.name = f"{self.asks} asks {self.serves}, IPv{self.family}"
        self.talk = understand(self.client, self.mtu, self.types)
        # On these nobody knows how often something is sent.
        self.mistaken = {m.lane for m in self.talk.messages if m.mistake}
        self.packets = decode(os.path.join(folder, self.capture))
        self.requests, self.answers = {}, {}
        own = {lane["here"]["qpn"]: n for n, lane in self.talk.lanes.items()}
        theirs = {lane["there"]["qpn"]: n for n, lane in self.talk.lanes.items()}
        for p in self.packets:
            asked = p["src"] == self.client_ip
            lane = (theirs if asked else own).get(p["dqpn"])
            self.require(lane is not None, p, f"is for queue pair {p['dqpn']}, which nobody has")
            self.require(asked == (p["opcode"] not in RESPONSES), p, "comes from the wrong side")
            p["lane"] = lane
            (self.requests if asked else self.answers).setdefault(lane, []).append(p)

    def require(self, truth, p, text):
        require(truth, f"{self.name}: packet {p['number']}, {p['name']} PSN {p['psn']:#x} from {p['src']}: {text}")

    def expect(self, p, want):
        """Every field of a packet that is known beforehand."""
        for name, value in want.items():
            have = p.get(name)
            if isinstance(value, bytes) and have != value:
                at = next((i for i, (a, b) in enumerate(zip(have, value)) if a != b), min(len(have), len(value)))
                self.require(False, p, f"{len(have)} bytes of payload, not {len(value)}, or others from {at} on")
            self.require(have == value, p, f"{name} is {have}, not {value}")
        for name in ("va", "rkey", "dmalen", "imm", "syndrome", "msn", "swap", "original", "qkey"):
            self.require((name in p) == (name in want), p, f"a header with {name} too many or too few")


# The length of the header that a field shows.
HEADER_OF = {"dmalen": 16, "imm": 4, "syndrome": 4, "swap": 28, "original": 8, "qkey": 8}


def says_that_it_keeps(part, p):
    """Requests of RC that ferroce sends have the lowest reserved bit behind AckReq, and READ responses to another ferroce."""
    sender, other = (part.asks, part.serves) if p["src"] == part.client_ip else (part.serves, part.asks)
    if 0x0d <= p["opcode"] <= 0x10:
        return sender == other == "ferroce"
    return sender == "ferroce" and p["opcode"] < 0x20 and p["opcode"] not in (0x11, 0x12)


def judge_frame(part):
    """What holds for every packet of both drivers."""
    ports = {}
    for p in part.packets:
        payload = len(p["payload"])
        ip = 20 if part.family == 4 else 40
        headers = sum(HEADER_OF.get(name, 0) for name in p)
        length = 8 + 12 + headers + payload + len(p["pad_bytes"]) + 4
        want = {
            "tver": 0, "pkey": 0xffff, "fecn": 0, "becn": 0, "reserved": int(says_that_it_keeps(part, p)), "pad": -payload % 4,
            "pad_bytes": bytes(-payload % 4), "dport": 4791, "udp_sum": 0, "udp_len": length, "frame_len": 14 + ip + length,
        } | ({"ip_len": 20 + length, "ip_header": 20, "ttl4": 64, "tos4": 0} if part.family == 4 else
             {"ip6_len": length, "next_header": 17, "ttl6": 64, "tos6": 0})
        for name, value in want.items():
            part.require(p[name] == value, p, f"{name} is {p[name]}, not {value}")
        # The connection has not been moved to another path. rdma_rxe does not say so.
        if (part.asks if p["src"] == part.client_ip else part.serves) == "ferroce":
            part.require(p["migreq"], p, "it says that the connection is being migrated")
        # One way through the network for all packets of a queue pair, or they overtake each other.
        first = ports.setdefault((p["src"], p["lane"]), p["sport"])
        part.require(p["sport"] == first >= 0xc000, p, f"UDP source port {p['sport']} after {first}")


# An acknowledgement before the last packet of its message. How many there are, and where, depends on the moment.
IN_THE_MIDDLE = "in the middle of a message"


def judge_messages(part, lane=0):
    """The messages of a lane, one after the other: each packet is the one that must come next."""
    requests, answers = iter(part.requests[lane]), iter(part.answers.get(lane, []))
    reliable = not part.types or part.types[lane] == RC
    for m in part.talk.messages:
        if m.mistake or m.lane != lane:
            continue
        sent = []
        for want in m.requests:
            p = next(requests, None)
            require(p, f"{part.name}: {m.what}: not all of it was sent")
            part.expect(p, want)
            p["message"] = m.what
            sent.append(p)
        last = sent[-1]
        # Where an acknowledgement may come before the last: at a packet that asked for one, or later.
        places = {p["psn"]: n for n, p in enumerate(sent)}
        first_asked = next((n for n, p in enumerate(sent) if p["ackreq"]), len(sent))
        part.require(last["ackreq"] or last["opcode"] in ANSWERED or not reliable, last,
                     "nobody asks for an acknowledgement")
        for want in m.answers:
            p = next(answers, None)
            while p and p["opcode"] == ACKNOWLEDGE and p["psn"] != want["psn"]:
                part.require(places.get(p["psn"], -1) >= first_asked and p["syndrome"] == ACK, p, "nobody asked for it")
                p["message"] = IN_THE_MIDDLE
                p = next(answers, None)
            require(p, f"{part.name}: {m.what}: not all of it was answered")
            part.expect(p, want)
            part.require(not p["ackreq"], p, "a response asks for an acknowledgement")
            p["message"] = m.what
    for rest in (*requests, *answers):
        part.require(False, rest, "nobody knows what it is for")


def judge_mistake(part, m):
    """A lane on which one message was refused, or came to its end at the second attempt."""
    requests, answers = part.requests.get(m.lane, []), part.answers.get(m.lane, [])
    require(answers, f"{part.name}: nothing answers mistake {m.mistake}")
    known = {want["psn"]: want for want in m.requests}
    for p in requests:
        # Whatever is sent again is what was sent before.
        part.require(p["psn"] in known, p, "is not of this message")
        part.expect(p, known[p["psn"]])
        p["message"] = m.what
    for p in answers:
        part.require(p["opcode"] == ACKNOWLEDGE, p, "is no acknowledgement")
        p["message"] = m.what
    syndrome, nth = REFUSALS[m.mistake]
    if part.serves == "rxe":
        syndrome, nth = RXE_REFUSES.get(m.mistake, (syndrome, nth))
    psn = m.requests[nth]["psn"]
    first = answers[0]
    part.require((first["syndrome"], first["psn"]) == (syndrome, psn), first,
                 f"syndrome {first['syndrome']:#x} to mistake {m.mistake}, and {syndrome:#x} for PSN {psn:#x} is right")
    for p in answers[1:]:
        good = {syndrome, ACK} | (RXE_ADDS.get(m.mistake, set()) if part.serves == "rxe" else set())
        part.require(p["syndrome"] in good, p, f"syndrome {p['syndrome']:#x} after {syndrome:#x}")
    status, words = part.talk.outcomes[m.mistake]
    require(status == TOLD[syndrome], f"{part.name}: mistake {m.mistake} ended with {words}")
    if status:
        require(len(answers) == 1, f"{part.name}: {len(answers)} answers to mistake {m.mistake}")
        return
    part.require((answers[-1]["syndrome"], answers[-1]["psn"], answers[-1]["msn"]) == (ACK, m.requests[-1]["psn"], 1),
                 answers[-1], "is not the acknowledgement of the whole message")
    # rdma_rxe waits by the tick, and sometimes less than it was told.
    if m.mistake == "n" and part.asks == "ferroce":
        for nak in (p for p in answers if p["syndrome"] == RNR_SYNDROME):
            later = [p["time"] for p in requests if p["psn"] == psn and p["time"] > nak["time"]]
            part.require(later and later[0] - nak["time"] >= RNR_SECONDS, nak,
                         "it was not waited for as long as it says")


# Field by field: what depends on the run is expressed by what it refers to.
def row(part, p):
    """A packet as it is compared with the other driver's."""
    lane = part.talk.lanes[p["lane"]]
    fields = {k: v for k, v in p.items() if k not in
              ("number", "time", "src", "src4", "src6", "dqpn", "sport", "icrc_bytes", "icrc_computed", "message")}
    if "va" in p:
        fields["va"] = p["va"] - lane["there"]["addr"]
        fields["rkey"] = p["rkey"] - lane["there"]["rkey"]
    if "sqpn" in p:
        fields["sqpn"] = p["sqpn"] - lane["here"]["qpn"]
    if p["opcode"] == FETCH_AND_ADD:
        # Nobody reads it, and rdma_rxe leaves there what was in that memory.
        del fields["compare"]
    return fields


def rows(part, side):
    """The packets of one side by the message they belong to, as they are compared."""
    table = {}
    ends = {m.lane: m.requests[-1]["psn"] for m in part.talk.messages if m.mistake}
    for lane, packets in (part.requests if side == "requester" else part.answers).items():
        known = set()
        for p in packets:
            # How often a request is repeated that is not served, or a NAK, and how much of a refused message is under way
            # when the refusal arrives: that depends on the moment, and so does whether a request that was repeated is
            # acknowledged as a duplicate. What they look like does not.
            key, again = (lane, p["message"]), (p["psn"], p.get("syndrome"))
            if (lane in part.mistaken and again in known) or p["message"] == IN_THE_MIDDLE:
                continue
            if lane in part.mistaken and p.get("syndrome") == ACK and p["psn"] != ends[lane]:
                continue
            if lane in part.mistaken and part.serves == "rxe" and p.get("syndrome") in RXE_ADDS.get(p["message"].split()[-1], ()):
                continue
            known.add(again)
            table.setdefault(key, []).append((p, row(part, p)))
    return table


def compare(side, ours, theirs, seen, differences=DIFFERENCES):
    """One side's packets, message by message and place by place; returns how many were compared."""
    mine, others = rows(ours, side), rows(theirs, side)
    count = 0
    for key in sorted(mine.keys() | others.keys()):
        a, b = mine.get(key, []), others.get(key, [])
        refused = side == "requester" and key[0] in ours.mistaken
        require(len(a) == len(b) or (a and b and refused),
                f"{ours.name}, the {side}'s packets of {key[1]}: {len(a)}, and {len(b)} of {theirs.name}")
        for (p, x), (_, y) in zip(a, b):
            count += 1
            for name in sorted(x.keys() | y.keys()):
                if x.get(name) != y.get(name):
                    d = known_difference(side, name, p, differences)
                    require(d, f"{ours.name}, the {side}'s {p['name']} PSN {p['psn']:#x} of {key[1]}: {name} is "
                               f"{x.get(name)}, and {y.get(name)} where {theirs.name}")
                    seen[d] += 1
    return count


def known_difference(side, name, p, differences):
    for d in differences:
        if (d.side, d.field) == (side, name) and p["name"].startswith(d.packet) and p["message"].endswith(d.message):
            return d
    return None


def compare_all(parts, differences):
    """ferroce's requester and responder against those of rdma_rxe, over both families; prints what differs."""
    seen = Counter()
    for family in (4, 6):
        of = {(p.asks, p.serves): p for p in parts if p.family == family}
        reference = of["rxe", "rxe"]
        for side, part in (("requester", of["ferroce", "rxe"]), ("responder", of["rxe", "ferroce"])):
            count = compare(side, part, reference, seen, differences)
            print(f"IPv{family}: {count} packets of ferroce's {side} are those of rdma_rxe's, but for this:")
    for d in differences:
        print(f"  {d.side}, {d.packet or 'every packet'}: {d.field} differs {seen[d]} times: {d.why}")
        require(seen[d], f"a difference that is not there any more: {d.side}, {d.field}: {d.why}")


def judge_each(parts):
    for part in parts:
        judge_frame(part)
        judge_messages(part)
        mistakes = [m for m in part.talk.messages if m.mistake]
        for m in mistakes:
            judge_mistake(part, m)
        print(f"{part.name}: {len(part.packets)} packets, {len(part.talk.messages) - len(mistakes)} messages, "
              f"{len(mistakes)} mistakes")


def judge_file(path, judge=judge_each, differences=DIFFERENCES):
    with open(path, encoding="utf-8") as f:
        parts = [Part(one, os.path.dirname(path)) for one in json.load(f)]
    judge(parts)
    compare_all(parts, differences)
