# SPDX-License-Identifier: GPL-2.0
"""What the files of a capture hold, read and joined."""

import os
from dataclasses import dataclass, field

from . import capture, events, why
from .capture import NotReadable
from .events import Event, Events
from .findings import many
from .marks import Mark, Marks
from .merge import merge
from .module import Module
from .network import Skipped
from .opcodes import duration
from .packet import Packet, packets
from .pairing import BY_EVENTS, End, Pair
from .talk import Talk, talks_of

# Interfaces of the next file.
NEXT_FILE = 1000


@dataclass
class Trace:
    """Everything that a picture is made of."""

    files: list[str]
    frames: int = 0
    packets: int = 0
    # Handed over in memory, and events of the module.
    handed: int = 0
    events: int = 0
    begin: int = 0
    end: int = 0
    talks: list[Talk] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    # Of the interfaces.
    names: dict[int, str] = field(default_factory=dict)
    # What was captured, by interface and number.
    captured: dict[tuple[int, int], capture.Frame] = field(default_factory=dict)

    def headline(self) -> str:
        """The first line of every picture."""
        frames = f" in {many(self.frames, 'frame')}" if self.frames or not self.events else ""
        handed = f"{self.handed} handed over in memory, " if self.handed else ""
        told = f"{many(self.events, 'event')} of the module, " if self.events else ""
        return (f"{', '.join(self.files)}: {many(self.packets, 'packet')} of RoCE v2{frames}, {handed}{told}"
                f"{duration(self.end - self.begin)}, {many(len(self.talks), 'conversation')}")


def load(contents: list[tuple[str, bytes]]) -> Trace:
    """Reads captures and recorded events, by path and bytes; raises NotReadable, with the name, if there is nothing to show."""
    # A path may hold bytes that are no text.
    contents = [(name.encode(errors="replace").decode(), data) for name, data in contents]
    trace = Trace([os.path.basename(name) for name, _ in contents])
    found: list[Packet] = []
    told = Events()
    skipped = Skipped()
    for number, (name, data) in enumerate(contents):
        if events.holds(data):
            told.add(events.parse(data.decode(errors="replace")))
            continue
        try:
            got = capture.read(data)
        except NotReadable as e:
            raise NotReadable(f"{name}: {e}") from None
        trace.notes += [f"{name}: {note}" if len(contents) > 1 else note for note in got.notes]
        trace.frames += len(got.frames)
        for interface in {frame.interface for frame in got.frames}:
            own = got.names.get(interface) or f"interface {interface}"
            trace.names[number * NEXT_FILE + interface] = f"{os.path.basename(name)}, {own}" if len(contents) > 1 else own
        for frame in got.frames:
            whole = skipped.datagram(frame)
            if whole:
                trace.captured[number * NEXT_FILE + frame.interface, frame.number] = frame
                found += packets(frame.number, frame.at, number * NEXT_FILE + frame.interface, whole)
    trace.notes += skipped.notes() + of_packets(found)
    if not found and not told.all:
        raise NotReadable(f"{', '.join(name for name, _ in contents)}: {nothing(trace)}")
    join(trace, found, told)
    return trace


def join(trace: Trace, captured: list[Packet], told: Events) -> None:
    """Makes conversations of packets and events."""
    module = Module(told, captured)
    sent, notes = merge(captured + module.packets, trace.names, bool(told.all))
    trace.notes += notes
    trace.handed = sum(one.packet.handed for one in sent)
    trace.packets, trace.events = len(sent) - trace.handed, len(told.all)
    trace.talks = talks_of(sent, module.pairs)
    marks = Marks(told, module.ahead)
    attach(trace, marks, module)
    reasons = why.explained(told)
    trace.notes += [said for _, said in reasons] + why.losses(told) + told.notes
    for event, said in reasons:
        mark = marks.marked.get(id(event))
        if mark:
            mark.why = said
    times = [one.at for talk in trace.talks for one in (*talk.sent, *talk.marks)]
    trace.begin, trace.end = min(times, default=0), max(times, default=0)


def attach(trace: Trace, marks: Marks, module: Module) -> None:
    """Puts marks beside the packets of their queue pairs. What is of no queue pair stands where its process has the first one."""
    where: dict[int, tuple[Talk, bool]] = {}
    for talk in trace.talks:
        for end, rightward in ((talk.pair.left, False), (talk.pair.right, True)):
            if end.qpn is not None and talk.pair.service != "CM":
                where.setdefault(end.qpn, (talk, rightward))
    for qpn, found in marks.by_qp.items():
        if qpn not in where:
            made = marks.made.get(f"{qpn:#x}")
            where[qpn] = alone(trace, End(module.address(qpn), qpn), made)
        put(found, *where[qpn])
    for (task, thread), found in marks.by_process.items():
        own = [where[int(qpn, 0)] for qpn, owner in marks.owners.items() if owner == thread and int(qpn, 0) in where]
        name = f"{task}-{thread}"
        put(found, *(min(own, key=lambda one: trace.talks.index(one[0])) if own
                     else alone(trace, End(name, None, name), None)))
    trace.talks.sort(key=lambda talk: min(one.at for one in talk.sent or talk.marks))


def alone(trace: Trace, end: End, made: Event | None) -> tuple[Talk, bool]:
    """A conversation of one end, of which no packet is known."""
    talk = Talk(Pair(end, End("", None), made["type"] if made else "calls" if end.qpn is None else "?", BY_EVENTS))
    trace.talks.append(talk)
    return talk, False


def put(found: list[Mark], talk: Talk, rightward: bool) -> None:
    """Puts marks at an end."""
    for mark in found:
        mark.rightward = rightward
    talk.marks += found


def nothing(trace: Trace) -> str:
    """Why there is nothing to show."""
    why = f" ({'; '.join(trace.notes)})" if trace.notes else ""
    return (f"no RoCE v2 (UDP port 4791) in {many(trace.frames, 'frame')}{why}. What an adapter sends by itself, and messages "
            "by ferroce's local path, no capture of the host sees")


def of_packets(found: list[Packet]) -> list[str]:
    """What is to be said of batches and of what is cut short."""
    notes = []
    batches = {(packet.place, packet.frame): packet.pieces for packet in found if packet.pieces > 1}
    if batches:
        total = sum(batches.values())
        there = sum(packet.pieces > 1 for packet in found)
        notes.append(f"{many(len(batches), 'frame')} {'hold' if len(batches) > 1 else 'holds'} {total} packets in batches (GSO): "
                     "they have one time each; ethtool -K DEV gso off shows packets")
        if there < total:
            notes.append(f"{total - there} packets of batches were cut off: the capture needs a longer snap length "
                         "(tcpdump -s 0)")
    cut = sum(packet.cut for packet in found)
    if cut:
        notes.append(f"{many(cut, 'packet')} cut off within their headers: the capture needs a longer snap length "
                     "(tcpdump -s 128)")
    return notes


def only(trace: Trace, qpn: int) -> None:
    """Leaves the conversations of a queue pair; raises NotReadable where there are none."""
    kept = [talk for talk in trace.talks if qpn in talk.qpns]
    if not kept:
        known = sorted({number for talk in trace.talks for number in talk.qpns})
        raise NotReadable(f"no queue pair {qpn:#x} is in the capture; there are {', '.join(map(hex, known))}")
    trace.talks = kept
