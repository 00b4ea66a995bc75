# SPDX-License-Identifier: GPL-2.0
"""Conversations: what two queue pairs have sent each other, packet by packet, and what comes of it all."""

from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import median

from . import opcodes
from .half import DUPLICATE, LATE, LOST, Half, Message
from .marks import Mark
from .merge import Sent
from .packet import BAD, GSI
from .pairing import BY_DETH, End, Flow, Pair, flow_of, pair_up


@dataclass
class Side:
    """What one end asked for."""

    half: Half
    messages: list[Message] = field(default_factory=list)


@dataclass
class Talk:
    """A conversation: its two ends, its packets in order of time, and what each end asked for, the left one first."""

    pair: Pair
    sent: list[Sent] = field(default_factory=list)
    sides: tuple[Side, Side] | None = None
    mtu: int | None = None
    # What the module has done meanwhile, at either end.
    marks: list[Mark] = field(default_factory=list)

    def items(self) -> list[Sent | Mark]:
        """Packets and marks in order of time; each has its place there as its number."""
        found: list[Sent | Mark] = sorted([*self.sent, *self.marks], key=lambda one: one.at)
        for number, one in enumerate(found):
            one.number = number
        return found

    @property
    def qpns(self) -> set[int]:
        """The numbers of its queue pairs."""
        return {end.qpn for end in (self.pair.left, self.pair.right) if end.qpn is not None}

    def count(self, test: Callable[[Sent], bool]) -> int:
        """How many packets are so."""
        return sum(1 for one in self.sent if test(one))


def talks_of(sent: list[Sent], told: dict[tuple[str, str, int], int] | None = None) -> list[Talk]:
    """All conversations, in the order in which they begin; `told` is which queue pair sends, as the module's events say."""
    pairs = pair_up(sent, told or {})
    found: dict[Pair, Talk] = {}
    for one in sent:
        pair, rightward = pair_of(one, pairs)
        one.rightward = rightward
        found.setdefault(pair, Talk(pair)).sent.append(one)
    for talk in found.values():
        follow(talk)
    return list(found.values())


def pair_of(one: Sent, pairs: dict[Flow, Pair]) -> tuple[Pair, bool]:
    """The pair that a packet belongs to, and whether it goes to the right."""
    packet = one.packet
    if packet.service == "UD":
        own, other = End(packet.src, packet.fields.get("sqpn")), End(packet.dst, packet.dqpn)
        backward = pairs.get((str(other), str(own), 0, "UD"))
        if backward:
            return backward, False
        pair = Pair(own, other, "CM" if packet.mad and other.qpn == GSI else "UD", BY_DETH)
        return pairs.setdefault((str(own), str(other), 0, "UD"), pair), True
    if packet.service in ("CNP", "MISSING"):
        for flow in ((packet.src, packet.dst, packet.dqpn, service) for service in ("RC", "UC", "XRC")):
            if flow in pairs:
                return pairs[flow], pairs[flow].right == End(packet.dst, packet.dqpn)
        pair = Pair(End(packet.src, None), End(packet.dst, packet.dqpn), packet.service, "the packet names one end")
        return pairs.setdefault(flow_of(one), pair), True
    pair = pairs[flow_of(one)]
    if pair.left == pair.right:
        return pair, not packet.is_response
    return pair, pair.right == End(packet.dst, packet.dqpn)


def mtu_of(talk: Talk) -> int | None:
    """The path MTU: what a packet carries that is not the last of its message."""
    full = [one.packet.length for one in talk.sent if one.packet.base in opcodes.FIRST | opcodes.MIDDLE
            and one.packet.service in ("RC", "UC", "XRC")]
    return max(full, default=None)


def follow(talk: Talk) -> None:
    """Goes through the packets of a conversation and says of each what it is."""
    talk.mtu = mtu_of(talk)
    service = talk.pair.service
    if service not in ("RC", "UC", "XRC"):
        return
    halves = Half(service != "UC", talk.mtu), Half(service != "UC", talk.mtu)
    for one in talk.sent:
        packet = one.packet
        answers = halves[one.rightward if talk.pair.left != talk.pair.right else 0]
        if packet.service == "MISSING":
            answers.reported(one)
        elif packet.opcode not in opcodes.OPCODES or packet.service != service:
            continue
        elif packet.is_response:
            answers.response(one)
        else:
            halves[not one.rightward].request(one)
    talk.sides = Side(halves[0], halves[0].messages()), Side(halves[1], halves[1].messages())
    for side in talk.sides:
        for message in side.messages:
            completes(message)


def completes(message: Message) -> None:
    """Says of an answer what it completes."""
    answer = message.answer
    if answer:
        taken = opcodes.duration(answer.at - message.begun)
        answer.remarks.append(f"completes {message.operation} of {message.length} B in {taken}")


@dataclass
class Sums:
    """The figures of one direction of a conversation."""

    messages: int
    length: int
    packets: int
    retransmitted: int
    causes: dict[str, int]
    duplicates: int
    late: int
    lost: int
    # Lost, and first seen when it was sent again or not at all.
    never_seen: int
    rnr_naks: int
    sequence_naks: int
    reports: int
    answered_again: int
    unanswered: int
    # Median of what was sent once, in nanoseconds.
    round_trip: float | None
    # Packets that one answer acknowledges: on average, and at most.
    per_ack: float | None
    most_per_ack: int


def sums(talk: Talk, left: bool) -> Sums:
    """What the requests of one end amount to."""
    side = talk.sides[0 if left else 1] if talk.sides else None
    own = [one for one in talk.sent if one.rightward == left and not one.packet.is_response]
    back = [one for one in talk.sent if one.rightward != left and one.packet.is_response]
    again = [one for one in own if one.again and one.cause != DUPLICATE]
    trips, acks = (side.half.round_trips, side.half.coalesced) if side else ([], [])
    causes: dict[str, int] = {}
    for one in again:
        causes[one.cause] = causes.get(one.cause, 0) + 1
    return Sums(
        messages=len(side.messages) if side else len(own),
        length=sum(message.length for message in side.messages) if side else sum(one.packet.length for one in own),
        packets=len(own), retransmitted=len(again), causes=causes,
        duplicates=sum(one.cause == DUPLICATE for one in own), late=sum(one.fate == LATE for one in own),
        lost=sum(one.fate == LOST for one in own), never_seen=side.half.never_seen if side else 0,
        rnr_naks=sum(one.packet.is_rnr for one in back),
        sequence_naks=sum(one.packet.is_nak and one.packet.code == opcodes.SEQUENCE for one in back),
        reports=sum(one.rightward != left and one.packet.service == "MISSING" for one in talk.sent),
        answered_again=sum(one.again > 0 for one in back if one.packet.base != opcodes.ACKNOWLEDGE),
        unanswered=len(side.half.waiting) if side else 0, round_trip=median(trips) if trips else None,
        per_ack=sum(acks) / len(acks) if acks else None, most_per_ack=max(acks, default=0))


def damaged(talk: Talk) -> int:
    """Packets whose ICRC is wrong."""
    return talk.count(lambda one: one.packet.icrc == BAD)
