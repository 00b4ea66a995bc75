# SPDX-License-Identifier: GPL-2.0
"""What every picture shows of a packet: a label, an arrow, a remark; and which packets may stand in one row."""

from collections.abc import Callable
from dataclasses import dataclass

from . import mad, opcodes
from .half import DROPPED, LOST, MASK, UNANSWERED
from .merge import Sent
from .packet import BAD
from .talk import Talk

MASKED = "masked"
# As many packets that are alike are drawn one by one.
FEW = 3


def masked(keys: bool) -> Callable[[str, int], str]:
    """A function that writes the value of a field, and hides those that are keys unless `keys`."""
    def write(name: str, value: int) -> str:
        return MASKED if name in opcodes.KEYS and not keys else f"{value:#x}"

    return write


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
    length = packet.fields.get("dmalen", 0) if packet.base in (opcodes.READ_REQUEST, opcodes.FLUSH) else packet.length
    words = f"{packet.name} PSN {packet.psn}"
    if packet.base not in opcodes.ATOMICS:
        words += f", {length} B"
    return words + (" (ack)" if packet.ackreq else "") + (" (solicited)" if packet.se else "")


def remark(one: Sent) -> str:
    """What is to be said of a packet."""
    said = list(one.remarks)
    if one.vanished:
        said.insert(0, "lost between the places of the capture")
    elif one.fate == DROPPED:
        said.append("dropped by the responder: one before it is missing")
    elif one.fate == UNANSWERED:
        said.append("no answer in time")
    if one.packet.traffic_class & 3 == 3:
        said.append("marked CE: congestion")
    if one.packet.icrc == BAD:
        said.append("wrong ICRC")
    return "; ".join(said)


@dataclass
class Row:
    """A row of a ladder: one packet, or several that are alike."""

    sent: list[Sent]
    label: str
    remark: str

    @property
    def first(self) -> Sent:
        """The packet that it begins with."""
        return self.sent[0]

    @property
    def lost(self) -> bool:
        """Whether they did not arrive."""
        return self.first.fate == LOST

    @property
    def dropped(self) -> bool:
        """Whether the responder has thrown them away."""
        return self.first.fate == DROPPED


def alike(one: Sent, other: Sent) -> bool:
    """Whether a packet goes into a row with the one before it."""
    a, b = one.packet, other.packet
    return (one.rightward == other.rightward and a.opcode == b.opcode and b.psn - a.psn & MASK == 1 and not a.mad
            and a.base in opcodes.MIDDLE and a.length == b.length and one.fate == other.fate and one.cause == other.cause
            and a.ackreq == b.ackreq and quiet(other) and remark(one) == remark(other))


def quiet(one: Sent) -> bool:
    """Whether nothing is said of a packet that is of it alone."""
    return not [said for said in one.remarks if said not in ("again", "lost")]


def rows(talk: Talk, fold: bool) -> list[Row]:
    """The rows of a ladder."""
    groups: list[list[Sent]] = []
    for one in talk.sent:
        if fold and groups and alike(groups[-1][-1], one):
            groups[-1].append(one)
        else:
            groups.append([one])
    made = []
    for group in groups:
        if len(group) > FEW:
            made.append(folded(group))
        else:
            made += [Row([one], label(one), remark(one)) for one in group]
    return made


def folded(group: list[Sent]) -> Row:
    """Several packets in a row."""
    first, last = group[0].packet, group[-1].packet
    words = f"{len(group)} x {first.name} PSN {first.psn} to {last.psn}, {first.length} B each"
    return Row(group, words + " (ack)" * first.ackreq, remark(group[0]))
