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
READ_REQUEST, ACKNOWLEDGE = 0x0c, 0x11
KINDS = {"s": "send", "S": "send", "z": "send", "w": "write", "W": "write", "Z": "write", "r": "read"}
WITH_IMMEDIATE, SOLICITED = "SWZ", "zZ"
# The kinds of the mistakes; see mistakes[] in peer_c.
MISTAKES = {"n": "s", "g": "s", "l": "s", "k": "w", "K": "r", "e": "w", "E": "r", "q": "w", "Q": "r"}


@dataclass
class Message:
    """One message: the requester's packets and what the responder answers."""

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
    """Which of first, middle, last and only a packet is."""
    return ONLY if count == 1 else FIRST if n == 0 else LAST if n == count - 1 else MIDDLE


def make(what, letter, lane, psn, msn, size, seed, va, rkey, mtu):
    """The message and how many PSNs it takes."""
    kind = KINDS[letter]
    pieces = cut(pattern(size, seed), mtu)
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
        request = {"opcode": SHAPES[kind][where], "psn": at(n), "payload": piece,
                   "se": int(letter in SOLICITED and where in (LAST, ONLY))}
        if kind == "write" and where in (FIRST, ONLY):
            request |= reth
        if letter in WITH_IMMEDIATE and where in (LAST, ONLY):
            request["opcode"] += 1
            request["imm"] = ~seed & 0xffffffff
        m.requests.append(request)
    m.answers.append({"opcode": ACKNOWLEDGE, "psn": at(count - 1), "payload": b"", "se": 0, "syndrome": ACK, "msn": msn})
    return m, count


def understand(text, mtu):
    """What the client of a run has printed."""
    lanes = {}
    for lane, who, qpn, psn, addr, rkey in re.findall(
            r"^lane (\d+) (here|there) qpn (\d+) psn (\d+) addr (\d+) rkey (\d+)$", text, re.M):
        lanes.setdefault(int(lane), {})[who] = {"qpn": int(qpn), "psn": int(psn), "addr": int(addr), "rkey": int(rkey)}
    messages = []
    psn, msn = lanes[0]["here"]["psn"], 0
    for letter, size, seed, va in re.findall(r"^step (.) size (\d+) seed (\d+) va (\d+) imm \d+$", text, re.M):
        msn += 1
        message, taken = make(f"{letter} of {size} bytes", letter, 0, psn, msn, int(size), int(seed), int(va),
                              lanes[0]["there"]["rkey"], mtu)
        messages.append(message)
        psn = (psn + taken) & 0xffffff
    for letter, lane, size, seed, va, rkey in re.findall(
            r"^mistake (.) lane (\d+) size (\d+) seed (\d+) va (\d+) key (\d+)$", text, re.M):
        message, _ = make(f"mistake {letter}", MISTAKES[letter], int(lane), lanes[int(lane)]["here"]["psn"], 1,
                          int(size), int(seed), int(va), int(rkey), mtu)
        message.mistake = letter
        messages.append(message)
    outcomes = {letter: (int(status), words) for letter, status, words in
                re.findall(r"^outcome (.) status (\d+) (.*)$", text, re.M)}
    return Talk(lanes, messages, outcomes)
