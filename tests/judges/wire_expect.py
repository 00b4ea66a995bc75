# SPDX-License-Identifier: GPL-2.0
"""What must be on the wire for what verbs_peer did, worked out from what it printed: packet by packet (IBTA 9.7)."""

import re
from dataclasses import dataclass, field

ACK = 0x1f                      # positive, and the responder does not count credits
NAK = {"sequence": 0x60, "invalid request": 0x61, "access": 0x62, "operation": 0x63}
RNR = 0x20
FIRST, MIDDLE, LAST, ONLY = range(4)
# Opcodes of first, middle, last and only packet; what an immediate adds to the last two.
SHAPES = {"send": (0x00, 0x01, 0x02, 0x04), "write": (0x06, 0x07, 0x08, 0x0a), "response": (0x0d, 0x0e, 0x0f, 0x10)}
READ_REQUEST, READ_RESPONSE_ONLY, ACKNOWLEDGE, ATOMIC_ACKNOWLEDGE = 0x0c, 0x10, 0x11, 0x12
CMP_AND_SWP, FETCH_AND_ADD, ATOMIC_WRITE = 0x13, 0x14, 0x1d
# Requests that are answered by a response: nobody has to ask for an acknowledgement of them.
ANSWERED = (READ_REQUEST, CMP_AND_SWP, FETCH_AND_ADD, ATOMIC_WRITE)
# Services by the letters of the option -T: what is added to the opcodes of RC. Datagrams are of one packet each.
RC, UC, UD = "rud"
SERVICE = {RC: 0, UC: 0x20, UD: 0x60}
QKEY = 0x1ee7ca5e               # see endpoint.c
KINDS = {"s": "send", "S": "send", "z": "send", "w": "write", "W": "write", "y": "write", "Z": "write", "r": "read"}
# A WRITE without immediate data may be posted as solicited, too ("y"), but no packet of it may say so (IBTA 9.2.2.2).
WITH_IMMEDIATE, SOLICITED = "SWZ", "zZ"
# The kinds of the mistakes; see mistakes[] in peer_c.
MISTAKES = {"n": "s", "g": "s", "l": "s", "k": "w", "K": "r", "e": "w", "E": "r", "q": "w", "Q": "r"}


@dataclass
class Message:
    """One message: the requester's packets and what the responder answers, on a reliable service."""

    what: str
    lane: int
    requests: list = field(default_factory=list)
    answers: list = field(default_factory=list)
    mistake: str = ""


@dataclass
class Talk:
    """What one run of verbs_peer has told."""

    lanes: dict
    messages: list
    outcomes: dict


def pattern(size, seed):
    """The bytes of a message; see word() in lib_c/rdma.c."""
    out = bytearray()
    mask = (1 << 64) - 1
    for n in range((size + 7) // 8):
        x = ((n + 1) * 0x9e3779b97f4a7c15 + seed * 0xbf58476d1ce4e5b9) & mask
        out += (x ^ x >> 29).to_bytes(8, "little")
    return bytes(out[:size])


def cut(data, mtu):
    """Pieces of a packet each; an empty message is one empty packet."""
    return [data[i:i + mtu] for i in range(0, len(data), mtu)] or [b""]


def place(n, count):
    return ONLY if count == 1 else FIRST if n == 0 else LAST if n == count - 1 else MIDDLE


def make(what, letter, lane, psn, msn, size, seed, va, rkey, mtu, service=RC):
    """The message and how many PSNs it takes."""
    kind = KINDS[letter]
    pieces = cut(pattern(size, seed), mtu if service != UD else 1 << 12)
    count = len(pieces)
    m = Message(what, lane)
    reth = {"va": va, "rkey": rkey, "dmalen": size}

    def at(n):
        return (psn + n) & 0xffffff

    if kind == "read":
        m.requests.append({"opcode": READ_REQUEST, "psn": psn, "payload": b"", "se": 0, **reth})
        for n, piece in enumerate(pieces):
            answer = {"opcode": SHAPES["response"][place(n, count)], "psn": at(n), "payload": piece, "se": 0}
            if place(n, count) != MIDDLE:
                answer |= {"syndrome": ACK, "msn": msn}
            m.answers.append(answer)
        return m, count
    for n, piece in enumerate(pieces):
        where = place(n, count)
        request = {"opcode": SERVICE[service] + SHAPES[kind][where], "psn": at(n), "payload": piece,
                   "se": int(letter in SOLICITED and where in (LAST, ONLY))}
        if kind == "write" and where in (FIRST, ONLY):
            request |= reth
        if letter in WITH_IMMEDIATE and where in (LAST, ONLY):
            request["opcode"] += 1
            request["imm"] = ~seed & 0xffffffff
        m.requests.append(request)
    if service == RC:
        m.answers.append({"opcode": ACKNOWLEDGE, "psn": at(count - 1), "payload": b"", "se": 0, "syndrome": ACK, "msn": msn})
    return m, count


def make_atomic(letter, lane, psn, msn, va, rkey, operands):
    """An operation on eight bytes: see atomics.c. `operands` are the two that were posted, and what was there."""
    first, second, before = operands
    m = Message(f"atomic {letter}", lane)
    request = {"psn": psn, "payload": b"", "se": 0}
    answer = {"psn": psn, "payload": b"", "se": 0, "syndrome": ACK, "msn": msn}
    if letter == "A":
        request |= {"opcode": ATOMIC_WRITE, "va": va, "rkey": rkey, "dmalen": 8, "payload": second.to_bytes(8, "little")}
        answer |= {"opcode": READ_RESPONSE_ONLY}
    else:
        # What is compared with means nothing in a FETCH_AND_ADD.
        request |= {"opcode": FETCH_AND_ADD, "swap": first} if letter == "a" else \
            {"opcode": CMP_AND_SWP, "swap": second, "compare": first}
        request |= {"va": va, "rkey": rkey}
        answer |= {"opcode": ATOMIC_ACKNOWLEDGE, "original": before}
    m.requests.append(request)
    m.answers.append(answer)
    return m


def understand(text, mtu, types):
    """What the client of a run has printed; `types` are those of its lanes, if they are not all of RC."""
    lanes = {}
    for lane, who, qpn, psn, addr, rkey in re.findall(
            r"^lane (\d+) (here|there) qpn (\d+) psn (\d+) addr (\d+) rkey (\d+)$", text, re.M):
        lanes.setdefault(int(lane), {})[who] = {"qpn": int(qpn), "psn": int(psn), "addr": int(addr), "rkey": int(rkey)}
    messages = []
    psn, msn = {lane: both["here"]["psn"] for lane, both in lanes.items()}, dict.fromkeys(lanes, 0)
    for what, letter, n, rest in re.findall(r"^(step|atomic) (.) lane (\d+) (.*)$", text, re.M):
        lane, taken = int(n), 1
        msn[lane] += 1
        named = {name: int(value) for name, value in re.findall(r"(\w+) (\d+)", rest)}
        rkey = lanes[lane]["there"]["rkey"]
        if what == "step":
            service = types[lane] if types else RC
            message, taken = make(f"{letter} of {named['size']} bytes", letter, lane, psn[lane], msn[lane], named["size"],
                                  named["seed"], named["va"], rkey, mtu, service)
            if service == UD:
                message.requests[0] |= {"qkey": QKEY, "sqpn": lanes[lane]["here"]["qpn"]}
        else:
            message = make_atomic(letter, lane, psn[lane], msn[lane], named["va"], rkey,
                                  [named[name] for name in ("first", "second", "before")])
        messages.append(message)
        psn[lane] = (psn[lane] + taken) & 0xffffff
    for letter, lane, size, seed, va, rkey in re.findall(
            r"^mistake (.) lane (\d+) size (\d+) seed (\d+) va (\d+) key (\d+)$", text, re.M):
        message, _ = make(f"mistake {letter}", MISTAKES[letter], int(lane), lanes[int(lane)]["here"]["psn"], 1,
                          int(size), int(seed), int(va), int(rkey), mtu)
        message.mistake = letter
        messages.append(message)
    outcomes = {letter: (int(status), words) for letter, status, words in
                re.findall(r"^outcome (.) status (\d+) (.*)$", text, re.M)}
    return Talk(lanes, messages, outcomes)
