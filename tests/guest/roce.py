# SPDX-License-Identifier: GPL-2.0
"""RoCE v2 packets in Python: taken apart as far as scenarios look at them, and made, with their ICRC."""

import ipaddress
import struct
import zlib
from dataclasses import dataclass

PORT = 4791
ETH_IPV4, ETH_IPV6, ETH_VLAN = 0x0800, 0x86dd, 0x8100
UDP = 17
SEND_ONLY, ACKNOWLEDGE, CNP, MISSING = 4, 17, 0x81, 0xc0
NAK = 3
# The ECN bits of a traffic class (RFC 3168).
ECT_0, CE = 2, 3


@dataclass(frozen=True)
class Packet:
    """What scenarios ask about a packet. `kind` is request, response (to a READ), ack, nak or cnp."""

    vlan: int | None
    source: str
    destination: str
    traffic_class: int
    opcode: int
    qpn: int
    psn: int
    kind: str
    # PCP of the VLAN tag.
    priority: int | None


def kind_of(opcode, syndrome):
    if opcode in (ACKNOWLEDGE, MISSING):
        return "nak" if syndrome >> 5 == NAK else "ack"
    if opcode == CNP:
        return "cnp"
    return "response" if 13 <= opcode <= 16 else "request"


def parse(frame):
    """The packet in an Ethernet frame, or None if it is no RoCE v2."""
    ethertype, at, vlan, priority = int.from_bytes(frame[12:14], "big"), 14, None, None
    if ethertype == ETH_VLAN:
        tag = int.from_bytes(frame[14:16], "big")
        vlan, priority = tag & 0xfff, tag >> 13
        ethertype, at = int.from_bytes(frame[16:18], "big"), 18
    if ethertype == ETH_IPV4 and frame[at + 9] == UDP:
        traffic_class = frame[at + 1]
        source, destination = frame[at + 12:at + 16], frame[at + 16:at + 20]
        at += 4 * (frame[at] & 15)
    elif ethertype == ETH_IPV6 and frame[at + 6] == UDP:
        traffic_class = (int.from_bytes(frame[at:at + 2], "big") >> 4) & 0xff
        source, destination = frame[at + 8:at + 24], frame[at + 24:at + 40]
        at += 40
    else:
        return None
    bth = frame[at + 8:]
    if int.from_bytes(frame[at + 2:at + 4], "big") != PORT or len(bth) < 16:
        return None
    source, destination = str(ipaddress.ip_address(source)), str(ipaddress.ip_address(destination))
    return Packet(vlan, source, destination, traffic_class, bth[0],
                  int.from_bytes(bth[5:8], "big"), int.from_bytes(bth[9:12], "big"), kind_of(bth[0], bth[12]), priority)


def ip_checksum(header):
    """The checksum of an IPv4 header whose field is zero."""
    total = sum(struct.unpack(f"!{len(header) // 2}H", header))
    while total >> 16:
        total = (total & 0xffff) + (total >> 16)
    return ~total & 0xffff


def ip_header(source, destination, length):
    """An IP header in front of `length` bytes of UDP. With IPv4 it may be fragmented."""
    source, destination = ipaddress.ip_address(source), ipaddress.ip_address(destination)
    if source.version == 6:
        return struct.pack("!IHBB", 6 << 28, length, UDP, 64) + source.packed + destination.packed
    header = struct.pack("!BBHHHBBH", 0x45, 0, 20 + length, 0x4711, 0, 64, UDP, 0) + source.packed + destination.packed
    return header[:10] + ip_checksum(header).to_bytes(2, "big") + header[12:]


def marked(frame):
    """An IPv4 packet in an Ethernet frame with a mark of congestion, as a switch puts it on packets that may have one."""
    ip = bytearray(frame[14:34])
    ip[1] |= CE if ip[1] & CE else 0
    ip[10:12] = b"\0\0"
    ip[10:12] = ip_checksum(ip).to_bytes(2, "big")
    return frame[:14] + bytes(ip) + frame[34:]


def icrc(ip, udp, ib):
    """The four bytes at the end: a CRC over all else but what changes on the way, for which ones stand."""
    ip, udp, ib = bytearray(ip), bytearray(udp), bytearray(ib)
    if ip[0] >> 4 == 4:
        ip[1] = ip[8] = ip[10] = ip[11] = 0xff
    else:
        ip[0] |= 0x0f
        ip[1:4] = b"\xff\xff\xff"
        ip[7] = 0xff
    udp[6:8] = b"\xff\xff"
    ib[4] = 0xff
    return zlib.crc32(b"\xff" * 8 + ip + udp + ib).to_bytes(4, "little")


def packet(source, destination, qpn, psn, payload=b"", opcode=SEND_ONLY, extension=b"", pkey=0xffff, keeps=False, asks=True):
    """An IP packet that asks for an acknowledgement, or not. It may say that its sender keeps packets."""
    pad = -len(payload) % 4
    ib = struct.pack("!BBHII", opcode, pad << 4, pkey, qpn, asks << 31 | keeps << 24 | psn) + extension + payload + bytes(pad)
    length = 8 + len(ib) + 4
    ip, udp = ip_header(source, destination, length), struct.pack("!HHHH", 0xc123, PORT, length, 0)
    return ip + udp + ib + icrc(ip, udp, ib)


def aeth(syndrome):
    """What an answer begins with."""
    return struct.pack("!I", syndrome << 24)


def reth(address, key, length):
    """What a WRITE or a READ begins with."""
    return struct.pack("!QII", address, key, length)


def deth(qkey, source_qpn):
    """What a datagram begins with."""
    return struct.pack("!II", qkey, source_qpn)


def with_options(made):
    """An IPv4 packet with four bytes of options that do nothing."""
    header = struct.pack("!BBH", 0x46, 0, len(made) + 4) + made[4:10] + b"\0\0" + made[12:20] + b"\1\1\1\0"
    return header[:10] + ip_checksum(header).to_bytes(2, "big") + header[12:] + made[20:]


def fragments(packet, first):
    """An IPv4 packet in two pieces, the first with `first` bytes of its payload, a multiple of 8."""
    pieces = []
    for offset, data, more in ((0, packet[20:20 + first], 0x2000), (first, packet[20 + first:], 0)):
        header = packet[:2] + struct.pack("!HHH", 20 + len(data), 0x4711, more | offset // 8) + packet[8:10] + b"\0\0" \
            + packet[12:20]
        pieces.append(header[:10] + ip_checksum(header).to_bytes(2, "big") + header[12:] + data)
    return pieces
