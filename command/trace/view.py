# SPDX-License-Identifier: GPL-2.0
"""What every picture shows of a packet: a label, an arrow, a remark; and which packets may stand in one row."""

import re
from collections.abc import Callable
from dataclasses import dataclass

from . import mad, opcodes
from .half import DROPPED, LOST, MASK, UNANSWERED
from .marks import Mark
from .merge import SENT, Sent
from .packet import BAD
from .talk import Talk
from .trace import Trace

MASKED = "masked"
# What a responder does with a request, but for executing it.
OUTCOMES = {"DUPLICATE": "it has this one already", "OUT_OF_SEQUENCE": "dropped by the responder: one before it is missing",
            "KEPT": "kept by the responder until one before it comes",
            "NO_RECEIVE": "there is no receive", "OUTSIDE_WINDOW": "dropped: a PSN of long ago",
            "UNKNOWN_READ": "dropped: a READ that is not kept any more", "NOT_READY": "dropped: the queue pair is not ready",
            "INVALID_REQUEST": "refused: invalid request", "ACCESS_ERROR": "refused: no access",
            "LOCAL_ERROR": "refused: a fault of the responder's", "TOO_LONG": "dropped: too long", "DENIED": "dropped: no access",
            "INVALID": "dropped: invalid"}
# As many packets that are alike are drawn one by one.
FEW = 3


def masked(keys: bool) -> Callable[[str, int], str]:
    """A function that writes the value of a field, and hides those that are keys unless `keys`."""
    def write(name: str, value: int) -> str:
        return MASKED if name in opcodes.KEYS and not keys else f"{value:#x}"

    return write


def mask(trace: Trace) -> None:
    """Takes the keys out of the sentences of a trace."""
    def without(said: str) -> str:
        return re.sub(r"(R_Key) 0x[0-9a-f]+", rf"\1 ({MASKED})", said)

    trace.notes = [without(note) for note in trace.notes]
    for mark in (mark for talk in trace.talks for mark in talk.marks):
        mark.why = without(mark.why)


def label(one: Sent) -> str:
    """A packet in a few words."""
    packet = one.packet
    if packet.mad:
        return mad.text(packet.mad, masked(False))
    if packet.base == opcodes.ACKNOWLEDGE and packet.reliable:
        said = "ACK" if packet.syndrome is None else opcodes.syndrome_text(packet.syndrome)
        return f"{said}, PSN {packet.psn}"
    if packet.service == "CNP":
        return "CNP: congestion"
    if packet.service == "MISSING":
        return f"PSN {packet.psn} is missing, others behind it are kept"
    if packet.handed:
        psns = f"{packet.psn}" + (f" to {packet.psn + packet.span - 1 & MASK}" if packet.span > 1 else "")
        return f"{opcodes.operation(packet.opcode)} PSN {psns}, {packet.length} B in memory"
    length = packet.fields.get("dmalen", 0) if packet.base in (opcodes.READ_REQUEST, opcodes.FLUSH) else packet.length
    words = f"{packet.name} PSN {packet.psn}"
    if packet.base not in opcodes.ATOMICS:
        words += f", {length} B"
    return words + (" (ack)" if packet.ackreq else "") + (" (solicited)" if packet.se else "")


def remark(one: Sent) -> str:
    """What is to be said of a packet."""
    said = list(one.remarks)
    if one.vanished:
        said.insert(0, "lost on the way" if SENT in one.seen else "lost between the places of the capture")
    elif one.fate == DROPPED and "outcome" not in one.told:
        said.append("dropped by the responder: one before it is missing")
    elif one.fate == UNANSWERED:
        said.append("no answer in time")
    if "reason" in one.told:
        said.append(f"dropped there: {one.told['reason']}")
    if one.told.get("outcome", "EXECUTED") != "EXECUTED":
        said.append(OUTCOMES.get(one.told["outcome"], one.told["outcome"].lower()))
    if one.packet.traffic_class & 3 == 3:
        said.append("marked CE: congestion")
    if one.packet.icrc == BAD:
        said.append("wrong ICRC")
    return "; ".join(said)


@dataclass
class Row:
    """A row of a ladder: one packet, several that are alike, or a mark."""

    items: list[Sent] | list[Mark]
    label: str
    remark: str

    @property
    def first(self) -> Sent | Mark:
        """What it begins with."""
        return self.items[0]

    @property
    def mark(self) -> Mark | None:
        """The mark, if it is one."""
        return self.first if isinstance(self.first, Mark) else None

    @property
    def lost(self) -> bool:
        """Whether packets did not arrive."""
        return isinstance(self.first, Sent) and self.first.fate == LOST

    @property
    def dropped(self) -> bool:
        """Whether somebody has thrown packets away."""
        return isinstance(self.first, Sent) and (self.first.fate == DROPPED or "reason" in self.first.told)


def alike(one: Sent, other: Sent) -> bool:
    """Whether a packet goes into a row with the one before it."""
    a, b = one.packet, other.packet
    return (one.rightward == other.rightward and a.opcode == b.opcode and b.psn - a.psn & MASK == 1 and not a.mad
            and a.base in opcodes.MIDDLE and a.length == b.length and one.fate == other.fate and one.cause == other.cause
            and a.ackreq == b.ackreq and not a.handed and quiet(other) and remark(one) == remark(other))


def quiet(one: Sent) -> bool:
    """Whether nothing is said of a packet that is of it alone."""
    return not [said for said in one.remarks if said not in ("again", "lost")]


def rows(talk: Talk, fold: bool) -> list[Row]:
    """The rows of a ladder."""
    groups: list[list] = []
    for one in talk.items():
        last = groups[-1][-1] if groups else None
        if fold and isinstance(one, Sent) and isinstance(last, Sent) and alike(last, one):
            groups[-1].append(one)
        else:
            groups.append([one])
    made = []
    for group in groups:
        if isinstance(group[0], Mark):
            made.append(of_mark(group[0]))
        elif len(group) > FEW:
            made.append(folded(group))
        else:
            made += [Row([one], label(one), remark(one)) for one in group]
    return made


def of_mark(mark: Mark) -> Row:
    """A mark in a row."""
    return Row([mark], "  " * mark.depth + mark.label, mark.remark)


def folded(group: list[Sent]) -> Row:
    """Several packets in a row."""
    first, last = group[0].packet, group[-1].packet
    words = f"{len(group)} x {first.name} PSN {first.psn} to {last.psn}, {first.length} B each"
    return Row(group, words + " (ack)" * first.ackreq, remark(group[0]))
