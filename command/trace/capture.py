# SPDX-License-Identifier: GPL-2.0
"""Reads captures: pcap and pcapng, of either byte order and resolution, also compressed, cut short or of several sections."""

import struct
import zlib
from collections import Counter
from dataclasses import dataclass, field
from typing import Iterator

# The first four bytes, little endian: how many units a second has, and how long the header of a record is.
PCAP = {0xa1b2c3d4: (10**6, 16), 0xa1b23c4d: (10**9, 16), 0xa1b2cd34: (10**6, 24)}
SECTION, INTERFACE, OLD_PACKET, SIMPLE, STATISTICS, ENHANCED = 0x0a0d0d0a, 1, 2, 3, 5, 6
BYTE_ORDER = 0x1a2b3c4d
# Options of an interface and of its statistics.
NAME, RESOLUTION, OFFSET, DROPPED, DROPPED_BY_OS = 2, 9, 14, 5, 7
# No packet is so long; a record that says so is damaged.
MAX_RECORD = 1 << 26


class NotReadable(Exception):
    """Why a file cannot be shown, in a sentence."""


@dataclass
class Interface:
    """Where packets were captured: its link type and its clock."""

    link: int
    name: str = ""
    units: int = 10**6
    offset: int = 0
    snap: int = 0


@dataclass
class Frame:
    """One captured frame: `data` may be shorter than it was, `length`. `at` is in nanoseconds since 1970."""

    number: int
    at: int
    link: int
    interface: int
    data: bytes
    length: int


@dataclass
class Capture:
    """The frames of a file, and what is to be said of it."""

    frames: list[Frame] = field(default_factory=list)
    names: dict[int, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    dropped: Counter = field(default_factory=Counter)


def unpacked(data: bytes) -> tuple[bytes, bool]:
    """A gzip file's contents, as far as it goes, and whether it is whole; other data as they are."""
    if data[:2] != b"\x1f\x8b":
        return data, True
    engine = zlib.decompressobj(zlib.MAX_WBITS | 16)
    try:
        return engine.decompress(data), engine.eof
    except zlib.error:
        return b"", False


def read(data: bytes) -> Capture:
    """Everything in a file; raises NotReadable if it is no capture."""
    if not data:
        raise NotReadable("the file is empty")
    data, whole = unpacked(data)
    if len(data) < 4:
        raise NotReadable("this is no capture: it is shorter than the header of one")
    little, big = (int.from_bytes(data[:4], order) for order in ("little", "big"))
    found = Capture()
    if SECTION == little:
        blocks = Blocks(data, found)
        found.frames = list(blocks.frames())
    elif little in PCAP or big in PCAP:
        found.frames = list(of_pcap(data, "<" if little in PCAP else ">", found))
    else:
        raise NotReadable("this is no capture: it begins neither as pcap nor as pcapng")
    if not whole:
        found.notes.append("the compressed file ends too early or is damaged")
    dropped = sum(found.dropped.values())
    if dropped:
        found.notes.append(f"{dropped} packets were dropped while capturing: what looks lost may just not have been captured")
    return found


def of_pcap(data: bytes, order: str, found: Capture) -> Iterator[Frame]:
    """The records of a pcap file."""
    if len(data) < 24:
        raise NotReadable("this is no capture: it ends in its header")
    units, head = PCAP[struct.unpack_from(order + "I", data)[0]]
    # The upper bits say how long the FCS is.
    link = struct.unpack_from(order + "I", data, 20)[0] & 0x0fffffff
    at, number = 24, 0
    while at + head <= len(data):
        seconds, parts, kept, length = struct.unpack_from(order + "IIII", data, at)
        if kept > MAX_RECORD:
            found.notes.append(f"the record behind frame {number} is damaged; the rest cannot be read")
            return
        number += 1
        frame = data[at + head:at + head + kept]
        yield Frame(number, seconds * 10**9 + parts * 10**9 // units, link, 0, frame, max(length, len(frame)))
        at += head + kept
    if at != len(data):
        found.notes.append("the file ends in the middle of a record")


def options(body: bytes, order: str) -> Iterator[tuple[int, bytes]]:
    """The options at the end of a block."""
    at = 0
    while at + 4 <= len(body):
        code, length = struct.unpack_from(order + "HH", body, at)
        if not code:
            return
        yield code, body[at + 4:at + 4 + length]
        at += 4 + (length + 3 & ~3)


class Blocks:
    """The blocks of a pcapng file."""

    def __init__(self, data: bytes, found: Capture):
        self.data = data
        self.found = found
        self.order = "<"
        # Of this section; numbers go on from one section to the next.
        self.interfaces: list[Interface] = []
        self.base = 0
        self.number = 0

    def frames(self) -> Iterator[Frame]:
        """The packets of every block that has one."""
        at = 0
        while at + 12 <= len(self.data):
            kind = struct.unpack_from(self.order + "I", self.data, at)[0]
            if kind == SECTION:
                if not self.section(at):
                    return
            length = struct.unpack_from(self.order + "I", self.data, at + 4)[0]
            if length < 12 or length % 4 or length > MAX_RECORD:
                self.found.notes.append(f"the block behind frame {self.number} is damaged; the rest cannot be read")
                return
            if at + length > len(self.data):
                break
            yield from self.block(kind, self.data[at + 8:at + length - 4])
            at += length
        if at != len(self.data):
            self.found.notes.append("the file ends in the middle of a block")

    def section(self, at: int) -> bool:
        """Begins a section: it has a byte order and interfaces of its own."""
        magic = self.data[at + 8:at + 12]
        order = {BYTE_ORDER: "<", int.from_bytes(BYTE_ORDER.to_bytes(4, "little"), "big"): ">"}.get(
            int.from_bytes(magic, "little"))
        if order is None:
            self.found.notes.append("a section without a byte order; the rest cannot be read")
            return False
        self.order = order
        self.base += len(self.interfaces)
        self.interfaces = []
        return True

    def block(self, kind: int, body: bytes) -> Iterator[Frame]:
        """The packet of a block, if it has one."""
        if kind == INTERFACE and len(body) >= 8:
            self.interface(body)
        elif kind == ENHANCED and len(body) >= 20:
            number, high, low, kept, length = struct.unpack_from(self.order + "IIIII", body)
            yield from self.packet(number, high << 32 | low, body[20:20 + kept], length)
        elif kind == OLD_PACKET and len(body) >= 20:
            number, _, high, low, kept, length = struct.unpack_from(self.order + "HHIIII", body)
            yield from self.packet(number, high << 32 | low, body[20:20 + kept], length)
        elif kind == SIMPLE and len(body) >= 4 and self.interfaces:
            length = struct.unpack_from(self.order + "I", body)[0]
            snap = self.interfaces[0].snap or length
            yield from self.packet(0, 0, body[4:4 + min(length, snap)], length)
        elif kind == STATISTICS and len(body) >= 12:
            for code, value in options(body[12:], self.order):
                if code in (DROPPED, DROPPED_BY_OS) and len(value) == 8:
                    self.found.dropped[self.base + struct.unpack_from(self.order + "I", body)[0], code] = (
                        struct.unpack(self.order + "Q", value)[0])

    def interface(self, body: bytes) -> None:
        """Begins an interface."""
        link, _, snap = struct.unpack_from(self.order + "HHI", body)
        made = Interface(link, snap=snap)
        for code, value in options(body[8:], self.order):
            if code == NAME:
                made.name = value.decode(errors="replace")
            elif code == RESOLUTION and value:
                power = value[0] & 0x7f
                made.units = 2**power if value[0] & 0x80 else 10**min(power, 30)
            elif code == OFFSET and len(value) == 8:
                made.offset = struct.unpack(self.order + "q", value)[0]
        self.interfaces.append(made)
        self.found.names[self.base + len(self.interfaces) - 1] = made.name

    def packet(self, interface: int, units: int, data: bytes, length: int) -> Iterator[Frame]:
        """A packet of one of the interfaces of this section."""
        self.number += 1
        if interface >= len(self.interfaces):
            return
        of = self.interfaces[interface]
        at = of.offset * 10**9 + units * 10**9 // of.units
        yield Frame(self.number, at, of.link, self.base + interface, data, max(length, len(data)))
