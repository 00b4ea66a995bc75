# SPDX-License-Identifier: GPL-2.0
"""From a UDP datagram to the RoCE packets in it: BTH, extension headers, ICRC, and batches taken apart."""

import zlib
from dataclasses import dataclass, field

from . import mad, opcodes
from .network import Datagram

BTH, ICRC = 12, 4
# A packet has no more: BTH, the longest headers with 4096 bytes of data, ICRC.
MOST = BTH + 28 + 4096 + ICRC
# The queue pair of management datagrams.
GSI = 1
GOOD, BAD, UNKNOWN = "good", "bad", "not checked"


@dataclass
class Packet:
    """A RoCE packet. `length` is that of the payload, without pad; `fields` are those of the extension headers."""

    frame: int
    at: int
    # Interface of the capture, netdev of a cooked one, and whether on its way out: one place where packets are seen.
    place: tuple
    src: str
    dst: str
    sport: int
    vlans: tuple[int, ...]
    traffic_class: int
    hops: int
    opcode: int
    se: int
    migreq: int
    pad: int
    tver: int
    pkey: int
    fecn: int
    becn: int
    dqpn: int
    ackreq: int
    psn: int
    length: int
    icrc: str
    # Which of how many packets of one captured frame.
    piece: int = 0
    pieces: int = 1
    # The headers end before their fields do.
    cut: bool = False
    fields: dict[str, int] = field(default_factory=dict)
    mad: dict | None = None
    # It was handed over in memory, and would have been as many packets.
    handed: bool = False
    span: int = 1
    # What the module says of it alone: `outcome` of a request, `reason` of a drop.
    told: dict[str, str] = field(default_factory=dict)

    @property
    def captured(self) -> bool:
        """Whether a capture has it, and not the events alone."""
        return self.frame > 0

    @property
    def name(self) -> str:
        """Its opcode in words."""
        return opcodes.name_of(self.opcode)

    @property
    def service(self) -> str:
        """RC, UC, UD and so on."""
        return opcodes.SERVICES.get(self.opcode & 0xe0, "?")

    @property
    def base(self) -> int:
        """Its opcode without the service."""
        return self.opcode & 0x1f

    @property
    def reliable(self) -> bool:
        """Whether it is acknowledged."""
        return self.service in ("RC", "XRC")

    @property
    def is_response(self) -> bool:
        """Whether it comes from the responder."""
        return self.reliable and self.base in opcodes.RESPONSES

    @property
    def syndrome(self) -> int | None:
        """Of an AETH that was captured."""
        return self.fields.get("syndrome")

    @property
    def code(self) -> int:
        """What a NAK says: the lower bits of its syndrome."""
        return (self.syndrome or 0) & 0x1f

    @property
    def is_nak(self) -> bool:
        """A NAK of any kind but RNR."""
        return (self.is_response and self.base == opcodes.ACKNOWLEDGE and self.syndrome is not None
                and opcodes.syndrome_kind(self.syndrome) == opcodes.NAK)

    @property
    def is_rnr(self) -> bool:
        """An RNR NAK."""
        return (self.is_response and self.base == opcodes.ACKNOWLEDGE and self.syndrome is not None
                and opcodes.syndrome_kind(self.syndrome) == opcodes.RNR_NAK)


def icrc(header: bytes, body: bytes) -> bytes:
    """The ICRC of what follows an IP and a UDP header: a CRC over all but what changes on the way (IBTA A17.3.3)."""
    masked = bytearray(header + body[:BTH])
    udp, total = len(header) - 8, 8 + len(body) + ICRC
    if masked[0] >> 4 == 4:
        # That of a packet of a batch is not that of the batch.
        masked[2:4] = (udp + total & 0xffff).to_bytes(2, "big")
        for at in (1, 8, 10, 11):
            masked[at] = 0xff
    else:
        masked[4:6] = (total & 0xffff).to_bytes(2, "big")
        masked[0] |= 0x0f
        masked[1:4] = b"\xff\xff\xff"
        masked[7] = 0xff
    masked[udp + 4:udp + 6] = (total & 0xffff).to_bytes(2, "big")
    masked[udp + 6:udp + 8] = b"\xff\xff"
    masked[udp + 8 + 4] = 0xff
    return zlib.crc32(body[BTH:], zlib.crc32(b"\xff" * 8 + masked)).to_bytes(4, "little")


def checked(header: bytes, piece: bytes, length: int, place: int = 0) -> str:
    """Whether the ICRC of a packet is right; unknown where not all of it is there. In a batch each has the next IPv4
    identification, or all have the same."""
    if not header or len(piece) < length or length < BTH + ICRC:
        return UNKNOWN
    identification = int.from_bytes(header[4:6], "big")
    for step in {place, 0} if header[0] >> 4 == 4 else {0}:
        own = header[:4] + (identification + step & 0xffff).to_bytes(2, "big") + header[6:]
        if icrc(own, piece[:-ICRC]) == piece[-ICRC:]:
            return GOOD
    return BAD


def piece_length(whole: Datagram) -> int:
    """How long each packet of a batch is but the last, which may be shorter; the length of all if it is one packet."""
    payload, length = whole.payload, whole.length
    if length <= MOST and checked(whole.header, payload, length) == GOOD:
        return length
    if length < 2 * (BTH + ICRC) or length <= MOST and len(payload) < length:
        return length
    # Each begins with a BTH of the same partition and queue pair; opcode, flags and PSN differ.
    mark, at = payload[2:4] + payload[5:8], BTH + ICRC
    while 0 <= (at := payload.find(mark[:2], at + 2)) <= MOST + 2:
        size = at - 2
        if payload[at + 3:at + 6] == mark[2:] and plausible(whole, size):
            return size
    return length


def plausible(whole: Datagram, size: int) -> bool:
    """Whether a batch has packets of this size: known opcodes to the same queue pair, the first with a right ICRC where that
    can be told, else with PSNs that go up by one."""
    payload = whole.payload
    psns = []
    for at in range(0, len(payload) - BTH + 1, size):
        if payload[at] not in opcodes.OPCODES or payload[at + 5:at + 8] != payload[5:8]:
            return False
        psns.append(int.from_bytes(payload[at + 9:at + 12], "big"))
    if checked(whole.header, payload[:size], size) == GOOD:
        return True
    return len(psns) > 1 and all(b - a & 0xffffff == 1 for a, b in zip(psns, psns[1:]))


def packets(frame_number: int, at: int, interface: int, whole: Datagram) -> list[Packet]:
    """All packets of a datagram; none if it is too short for a BTH."""
    size = piece_length(whole) or 1
    offsets = range(0, max(whole.length, 1), size)
    made = []
    for offset in offsets:
        piece = whole.payload[offset:offset + size]
        if len(piece) < BTH:
            break
        one = packet(whole, piece, min(size, whole.length - offset), offset // size)
        one.frame, one.at, one.place = frame_number, at, (interface, *whole.place)
        one.piece, one.pieces = offset // size, len(offsets)
        made.append(one)
    return made


def packet(whole: Datagram, piece: bytes, length: int, place: int) -> Packet:
    """A packet of `length` bytes, of which `piece` was captured, at a place of its batch."""
    flags, congestion, ack = piece[1], piece[4], piece[8]
    made = Packet(
        0, 0, (), whole.src, whole.dst, whole.sport, whole.vlans, whole.traffic_class, whole.hops, piece[0],
        se=flags >> 7, migreq=flags >> 6 & 1, pad=flags >> 4 & 3, tver=flags & 15, pkey=int.from_bytes(piece[2:4], "big"),
        fecn=congestion >> 7, becn=congestion >> 6 & 1, dqpn=int.from_bytes(piece[5:8], "big"), ackreq=ack >> 7,
        psn=int.from_bytes(piece[9:12], "big"), length=0, icrc=checked(whole.header, piece, length, place))
    at = BTH
    for letter in opcodes.OPCODES.get(piece[0], ("", ""))[1]:
        size, fields = opcodes.HEADERS[letter]
        for name, (begin, end) in fields.items():
            if at + end <= len(piece):
                made.fields[name] = int.from_bytes(piece[at + begin:at + end], "big")
            else:
                made.cut = True
        at += size
    made.length = max(length - at - ICRC - made.pad, 0)
    if made.service == "UD" and made.dqpn == GSI:
        made.mad = mad.decode(piece[at:at + made.length])
    return made
