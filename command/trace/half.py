# SPDX-License-Identifier: GPL-2.0
"""One direction of a connection: the requests of one end, and what the other answers. It says of each packet what it is:
new, again and why, late, lost, an answer to what."""

import bisect
from dataclasses import dataclass, field
from statistics import median

from . import opcodes
from .merge import Sent

HALF, MASK = 1 << 23, 0xffffff
# PSNs do not jump so far within one connection.
JUMP = 1 << 20
# Where no round trip was seen: a packet that is sent again sooner is one that the network has doubled.
AT_ONCE = 100_000
# Whom a NAK makes send again does so at once: not later than these many round trips, or this time. The packets of one such
# turn follow each other within the last time.
PROMPT, SLOW, TURN = 8, 1_000_000, 5_000_000
# As many of the last round trips tell how long one is.
RECENT = 64
AFTER_NAK, AFTER_REPORT, AFTER_RNR, IMPLIED, TIMEOUT, DUPLICATE = (
    "sequence NAK", "report of missing packets", "RNR NAK", "missing READ response", "timeout", "duplicate")
LOST, DROPPED, LATE, UNANSWERED = "lost", "dropped", "late", "unanswered"


@dataclass
class Slot:
    """A PSN, or the PSNs that the responses to a READ use, and all times that it was sent."""

    first: int
    span: int
    sends: list[Sent]
    # By which packet it was answered first.
    answer: Sent | None = None
    responses: set[int] = field(default_factory=set)
    # How many of the responses are there without a gap.
    through: int = 0

    @property
    def end(self) -> int:
        """The PSN behind it."""
        return self.first + self.span


@dataclass
class Message:
    """A work request as the wire shows it."""

    operation: str
    first: int
    last: int
    length: int
    packets: int
    slots: list[Slot]
    whole: bool

    @property
    def begun(self) -> int:
        """When its first packet left."""
        return min(slot.sends[0].at for slot in self.slots)

    @property
    def answer(self) -> Sent | None:
        """What completes it."""
        return self.slots[-1].answer if all(slot.answer for slot in self.slots) else None

    @property
    def repeated(self) -> int:
        """How many of its packets were sent again."""
        return sum(one.again > 0 and one.cause != DUPLICATE for slot in self.slots for one in slot.sends)


@dataclass
class Run:
    """Packets that were sent again one after the other, for one reason."""

    cause: str
    first: int
    # How long the sender had waited.
    waited: int
    packets: int = 1
    # What the peer had asked for, of an RNR NAK.
    asked: int = 0


@dataclass
class Wanted:
    """The PSN that is to be sent again, because of what, since when, and how long after that."""

    first: int
    cause: str
    since: int
    asked: int = 0


class Half:
    """The requests of one end. PSNs are counted on beyond 24 bits, so that they can be compared."""

    def __init__(self, reliable: bool, mtu: int | None):
        self.reliable = reliable
        self.mtu = mtu
        self.slots: dict[int, Slot] = {}
        # The first PSNs of all slots, and of those that were not answered.
        self.order: list[int] = []
        self.waiting: list[int] = []
        # The PSN behind the last one, once there is any; the first that is not acknowledged.
        self.begun = False
        self.next = self.una = 0
        self.active = 0
        self.round_trips: list[int] = []
        self.shortest = AT_ONCE
        self.runs: list[Run] = []
        self.run: Run | None = None
        self.run_next = self.run_at = 0
        # What was asked to be sent again.
        self.wanted: Wanted | None = None
        # The NAK that has ended it, and its PSN.
        self.fatal: Sent | None = None
        self.fatal_at = 0
        self.never_seen = 0
        self.needless = 0
        self.coalesced: list[int] = []

    def extended(self, psn: int) -> int:
        """A PSN of a packet, counted on."""
        if not self.begun:
            self.begun, self.next, self.una = True, psn, psn
        return self.next + ((psn - self.next + HALF & MASK) - HALF)

    def span_of(self, one: Sent) -> int:
        """How many PSNs a request uses."""
        length = one.packet.fields.get("dmalen", 0)
        if one.packet.base != opcodes.READ_REQUEST or not self.mtu:
            return one.packet.span
        return max(-(-length // self.mtu), one.packet.span)

    def slot_of(self, seq: int) -> Slot | None:
        """The slot that a PSN belongs to."""
        if seq in self.slots:
            return self.slots[seq]
        at = bisect.bisect_right(self.order, seq) - 1
        slot = self.slots[self.order[at]] if at >= 0 else None
        return slot if slot and seq < slot.end else None

    # ---- requests

    def request(self, one: Sent) -> None:
        """A request leaves."""
        seq = self.extended(one.packet.psn)
        slot = self.slot_of(seq)
        if slot is None and abs(seq - self.next) > JUMP:
            one.remarks.append("the PSN jumps: another connection")
            self.restart(seq)
        if slot is not None:
            self.repeated(one, seq, slot)
        elif seq < self.next:
            self.in_gap(one, seq)
        else:
            self.run = None
            if seq > self.next:
                gap = seq - self.next
                self.never_seen += gap
                one.remarks.append("the PSN before it was not seen" if gap == 1 else f"{gap} PSNs before it were not seen")
            self.enter(one, seq)
            self.next = seq + self.slots[seq].span
        self.active = one.at

    def restart(self, seq: int) -> None:
        """Another connection of the same queue pairs."""
        self.next = self.una = seq
        self.waiting.clear()
        self.run = self.wanted = None

    def enter(self, one: Sent, seq: int) -> None:
        """A PSN that was not seen before."""
        self.slots[seq] = Slot(seq, self.span_of(one), [one])
        bisect.insort(self.order, seq)
        if self.reliable:
            bisect.insort(self.waiting, seq)

    def in_gap(self, one: Sent, seq: int) -> None:
        """A PSN that was passed over, and never seen: late, or lost before it came here and now sent again."""
        if self.continues(one, seq) or self.heeds(one, seq) or self.reliable and one.at - self.active > self.prompt():
            self.cause_of(one, seq, [])
            one.remarks.append("its first transmission was not seen here")
        else:
            one.fate = LATE
            one.remarks.append("late: packets behind it came before it")
        self.enter(one, seq)
        self.never_seen -= 1

    def repeated(self, one: Sent, seq: int, slot: Slot) -> None:
        """A PSN that was sent before."""
        one.again = len(slot.sends)
        if self.reliable:
            self.cause_of(one, seq, slot.sends)
            if slot.answer and one.cause != DUPLICATE:
                self.needless += 1
                one.remarks.append("had been answered already: the answer was lost or late")
        else:
            one.cause = DUPLICATE
            one.remarks.append("a duplicate")
        slot.sends.append(one)

    def continues(self, one: Sent, seq: int) -> bool:
        """Whether packets are being sent again, and this is the next of them."""
        if self.run is None:
            return False
        # Its answer has shown that the responder has thrown this one away.
        thrown = seq == self.una and seq in self.slots and self.slots[seq].sends[-1].fate == DROPPED
        since = one.at - self.run_at
        # Some of them may have been lost before they came here.
        return thrown or seq == self.run_next and since <= TURN or seq > self.run_next and since <= SLOW

    def heeds(self, one: Sent, seq: int) -> bool:
        """Whether a packet is sent again because a NAK has asked for it, and not by a timer after a silence."""
        if self.wanted is None or self.wanted.first > seq:
            return False
        if self.wanted.cause == AFTER_RNR:
            # Others that leave meanwhile were on their way.
            return seq == self.wanted.first
        if self.wanted.cause == AFTER_REPORT:
            # It is given time to come by itself.
            return True
        if seq != self.wanted.first and self.continues(one, seq):
            return False
        return one.at - self.active <= self.prompt()

    def prompt(self) -> float:
        """What is done within this time is done because of what came before it, and not by a timer."""
        return max(PROMPT * median(self.round_trips[-RECENT:] or [0]), SLOW)

    def cause_of(self, one: Sent, seq: int, before: list[Sent]) -> None:
        """Why a packet is sent again."""
        one.again = max(one.again, 1)
        end = seq + self.span_of(one)
        wanted = self.wanted
        if wanted and self.heeds(one, seq):
            self.wanted = None
            self.begin(one, Run(wanted.cause, seq, one.at - wanted.since, asked=wanted.asked))
            one.remarks.append(f"again, {opcodes.duration(one.at - wanted.since)} after the {wanted.cause}"
                               + (f" of PSN {wanted.first & MASK}" if wanted.first != seq else ""))
        elif self.run and self.continues(one, seq):
            one.cause = self.run.cause
            self.run.packets += 1
            one.remarks.append("again")
        elif before and one.packet.base == opcodes.READ_REQUEST and one.at - self.active < SLOW and (
                before[-1].packet.psn != one.packet.psn):
            self.begin(one, Run(IMPLIED, seq, one.at - self.active))
            one.remarks.append("again, for the rest: a response was lost behind this place")
        elif before and one.at - before[-1].at < self.shortest:
            one.cause = DUPLICATE
            one.remarks.append("a duplicate: too soon to be sent again")
            return
        else:
            waited = one.at - self.active
            if wanted and wanted.cause != AFTER_RNR:
                self.wanted = None
            self.begin(one, Run(TIMEOUT, seq, waited))
            if before and not before[-1].fate:
                before[-1].fate = UNANSWERED
            one.remarks.append(f"again, after {opcodes.duration(waited)} without an answer")
        self.run_next, self.run_at = end, one.at
        if one.cause == AFTER_REPORT and before and not before[-1].fate:
            before[-1].fate = LOST
            before[-1].remarks.append("lost")

    def begin(self, one: Sent, run: Run) -> None:
        """Packets are sent again from here on."""
        one.cause = run.cause
        self.run = run
        self.runs.append(run)
        if run.cause in (AFTER_NAK, AFTER_RNR):
            self.discarded(run.first)

    def discarded(self, seq: int) -> None:
        """What was sent behind a packet that is lost or came too early has been thrown away by the responder."""
        lost = self.slots.get(seq)
        since = lost.sends[-1].at if lost else 0
        for at in range(bisect.bisect_right(self.order, seq), len(self.order)):
            last = self.slots[self.order[at]].sends[-1]
            if last.at > since and not last.fate:
                last.fate = DROPPED

    # ---- responses

    def response(self, one: Sent) -> None:
        """A response comes."""
        packet = one.packet
        if not self.begun:
            return
        seq = self.extended(packet.psn)
        if seq >= self.next:
            one.remarks.append("answers nothing that was seen")
            return
        if packet.is_nak or packet.is_rnr:
            self.refused(one, seq)
        elif packet.base == opcodes.ACKNOWLEDGE:
            self.advance(one, seq + 1)
        else:
            self.data(one, seq)
        self.active = one.at

    def advance(self, one: Sent, to: int) -> None:
        """All requests before a PSN are answered."""
        done = []
        while self.waiting and self.slots[self.waiting[0]].end <= to:
            slot = self.slots[self.waiting.pop(0)]
            slot.answer = one
            done.append(slot)
        if not done:
            if one.packet.base == opcodes.ACKNOWLEDGE and one.packet.syndrome is not None and not (
                    one.packet.is_nak or one.packet.is_rnr):
                one.remarks.append("nothing new")
            return
        self.una = max(self.una, to)
        if self.wanted and self.wanted.first < to:
            self.wanted = None
        if len(done[-1].sends) == 1:
            trip = one.at - done[-1].sends[0].at
            self.shortest = min(self.shortest, trip) if self.round_trips else trip
            self.round_trips.append(trip)
        self.coalesced.append(len(done))
        if len(done) > 1:
            one.remarks.append(f"for {len(done)} packets")

    def refused(self, one: Sent, seq: int) -> None:
        """A NAK: what is before its PSN is acknowledged by it, and the packet is lost, too early, or wrong."""
        self.advance(one, seq)
        if one.packet.is_rnr:
            self.wanted = Wanted(seq, AFTER_RNR, one.at, opcodes.RNR_TIMERS[one.packet.code] * 1000)
        elif one.packet.code != opcodes.SEQUENCE:
            self.fatal, self.fatal_at = one, seq
            self.wanted = None
        elif self.wanted and self.wanted.cause == AFTER_RNR and self.wanted.first == seq:
            one.remarks.append("for what came behind the RNR NAK")
        else:
            self.wanted = Wanted(seq, AFTER_NAK, one.at)
            slot = self.slot_of(seq)
            if slot:
                self.lose(slot)
            else:
                one.remarks.append("that packet was not seen here")

    def reported(self, one: Sent) -> None:
        """A ferroce says what it misses: what is before the PSN is acknowledged by it, and what is behind is kept."""
        if not self.begun:
            return
        seq = self.extended(one.packet.psn)
        if seq >= self.next:
            one.remarks.append("answers nothing that was seen")
            return
        self.advance(one, seq)
        self.wanted = Wanted(seq, AFTER_REPORT, one.at)
        self.active = one.at

    def lose(self, slot: Slot) -> None:
        """A packet has not come to the responder, or came when the one before it was still missing."""
        one, before = slot.sends[-1], self.slot_of(slot.first - 1)
        if before and before.sends[-1].at > one.at:
            one.fate = DROPPED
        elif one.fate != LOST:
            one.fate = LOST
            one.remarks.append("lost")

    def data(self, one: Sent, seq: int) -> None:
        """A response to a READ or to an atomic operation."""
        slot = self.slot_of(seq)
        if slot is None:
            one.remarks.append("answers nothing that was seen")
            return
        self.advance(one, slot.first)
        if seq in slot.responses:
            one.again = 1
            one.cause = "repeated request" if len(slot.sends) > 1 else DUPLICATE
            one.remarks.append("again")
        slot.responses.add(seq)
        while slot.first + slot.through in slot.responses:
            slot.through += 1
        missing = slot.first + slot.through
        if missing < seq and not slot.answer:
            if self.wanted is None:
                one.remarks.append(f"PSN {missing & MASK} is missing before it")
                self.wanted = Wanted(missing, IMPLIED, one.at)
            return
        if one.packet.base in opcodes.LAST | opcodes.ONLY:
            self.advance(one, slot.end)

    # ---- the end

    def messages(self) -> list[Message]:
        """What the packets were parts of."""
        made: list[Message] = []
        group: list[Slot] = []
        for seq in self.order:
            slot = self.slots[seq]
            base = slot.sends[0].packet.base
            if group and (base in opcodes.FIRST | opcodes.ONLY or seq != group[-1].end):
                made.append(self.message(group))
                group = []
            group.append(slot)
            if base in opcodes.LAST | opcodes.ONLY:
                made.append(self.message(group))
                group = []
        return made + ([self.message(group)] if group else [])

    def message(self, group: list[Slot]) -> Message:
        """A message of these slots."""
        packets = [slot.sends[0].packet for slot in group]
        base = [packet.base for packet in packets]
        whole = base[0] in opcodes.ONLY | opcodes.FIRST and base[-1] in opcodes.ONLY | opcodes.LAST
        length = sum(packet.length for packet in packets)
        if base[0] in (opcodes.READ_REQUEST, opcodes.FLUSH):
            length = packets[0].fields.get("dmalen", 0)
        elif base[0] in opcodes.ATOMICS:
            length = 8
        return Message(opcodes.operation(packets[-1].opcode), group[0].first & MASK, group[-1].end - 1 & MASK, length,
                       len(group), group, whole)
