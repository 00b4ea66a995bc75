# SPDX-License-Identifier: GPL-2.0
"""What the files of a capture hold, read and joined."""

import os
from dataclasses import dataclass, field

from . import capture
from .capture import NotReadable
from .findings import many
from .merge import merge
from .network import Skipped
from .opcodes import duration
from .packet import Packet, packets
from .talk import Talk, talks_of

# Interfaces of the next file.
NEXT_FILE = 1000


@dataclass
class Trace:
    """Everything that a picture is made of."""

    files: list[str]
    frames: int = 0
    packets: int = 0
    begin: int = 0
    end: int = 0
    talks: list[Talk] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    # Of the interfaces.
    names: dict[int, str] = field(default_factory=dict)

    def headline(self) -> str:
        """The first line of every picture."""
        return (f"{', '.join(self.files)}: {many(self.packets, 'packet')} of RoCE v2 in {many(self.frames, 'frame')}, "
                f"{duration(self.end - self.begin)}, {many(len(self.talks), 'conversation')}")


def load(contents: list[tuple[str, bytes]]) -> Trace:
    """Reads captures, by path and bytes; raises NotReadable, with the name, if there is nothing to show."""
    # A path may hold bytes that are no text.
    contents = [(name.encode(errors="replace").decode(), data) for name, data in contents]
    trace = Trace([os.path.basename(name) for name, _ in contents])
    found: list[Packet] = []
    skipped = Skipped()
    for number, (name, data) in enumerate(contents):
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
                found += packets(frame.number, frame.at, number * NEXT_FILE + frame.interface, whole)
    trace.notes += skipped.notes() + of_packets(found)
    if not found:
        raise NotReadable(f"{', '.join(name for name, _ in contents)}: {nothing(trace)}")
    sent, notes = merge(found, trace.names)
    trace.notes += notes
    trace.packets = len(sent)
    trace.begin, trace.end = min(one.at for one in sent), max(one.at for one in sent)
    trace.talks = talks_of(sent)
    return trace


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
