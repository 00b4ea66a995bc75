# SPDX-License-Identifier: GPL-2.0
"""A capture for Wireshark and tshark with a comment on each packet: what it is, and what both ends did then."""

import struct
from collections import defaultdict

from .capture import BYTE_ORDER, ENHANCED, INTERFACE, NAME, RESOLUTION, SECTION, NotReadable
from .findings import findings
from .merge import Sent
from .text import title
from .trace import Trace
from .view import label, remark

COMMENT, NANOSECONDS = 1, 9


def block(kind: int, body: bytes) -> bytes:
    """A block of pcapng."""
    length = struct.pack("<I", len(body) + 12)
    return struct.pack("<I", kind) + length + body + length


def option(code: int, value: bytes) -> bytes:
    """An option of a block."""
    # Its length has 16 bits.
    value = value[:0xffff]
    return struct.pack("<HH", code, len(value)) + value + bytes(-len(value) % 4)


def comments(trace: Trace) -> dict[tuple[int, int], list[str]]:
    """What is said of each frame, in a line for each packet and for what follows it."""
    said: dict[tuple[int, int], list[str]] = defaultdict(list)
    for talk in trace.talks:
        last: list[list[str]] = []
        for one in talk.items():
            if isinstance(one, Sent):
                last = [said[frame] for frame in one.frames]
                words = f"{label(one)}: {remark(one)}" if remark(one) else label(one)
            else:
                end = talk.pair.right if one.rightward else talk.pair.left
                words = f"then {end}: {one.label}" + f"; {one.why or one.remark}" * bool(one.why or one.remark)
            for lines in last:
                lines.append(words)
    return said


def draw(trace: Trace) -> bytes:
    """The capture; raises NotReadable where nothing was captured."""
    if not trace.captured:
        raise NotReadable("nothing was captured: a pcapng needs packets, and events alone have only their headers")
    about = [trace.headline(), *trace.notes]
    about += [f"{title(talk)}: {sentence}" for talk in trace.talks for sentence in findings(talk)]
    made = block(SECTION, struct.pack("<IHHq", BYTE_ORDER, 1, 0, -1) + option(COMMENT, "\n".join(about).encode()) + bytes(4))
    links: dict[tuple[int, int], int] = {}
    for (interface, _), frame in trace.captured.items():
        if (interface, frame.link) not in links:
            links[interface, frame.link] = len(links)
            name = trace.names.get(interface, f"interface {interface}")
            made += block(INTERFACE, struct.pack("<HHI", frame.link, 0, 0) + option(NAME, name.encode())
                          + option(RESOLUTION, bytes([NANOSECONDS])) + bytes(4))
    said = comments(trace)
    for key, frame in sorted(trace.captured.items(), key=lambda one: one[1].at):
        if key in said:
            head = struct.pack("<IIIII", links[key[0], frame.link], frame.at >> 32, frame.at & 0xffffffff, len(frame.data), frame.length)
            made += block(ENHANCED, head + frame.data + bytes(-len(frame.data) % 4)
                          + option(COMMENT, "\n".join(said[key]).encode()) + bytes(4))
    return made
