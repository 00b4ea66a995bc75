# SPDX-License-Identifier: GPL-2.0
"""Captures made by hand, for the tests of `ferroce trace`: files of every kind, packets of two ends, a whole conversation."""

import json
import struct
import subprocess

from command.trace import capture, mermaid, opcodes, page, text
from command.trace.data import data
from command.trace.trace import load
from tests.guest import roce

A, B = "192.0.2.1", "192.0.2.2"
A6, B6 = "2001:db8::1", "2001:db8::2"
QP_A, QP_B = 0x11, 0x22
US = 1000
BEGIN = 1_700_000_000 * 10**9
RKEY, QKEY = 0x1a2b3c4d, 0x1ee7ca5e
NAK_SEQUENCE, NAK_ACCESS, RNR_640 = 0x60, 0x62, 0x20 | 12


def ethernet(packet, *tags):
    """A frame with these VLAN tags, each a TPID and a VLAN."""
    kind = roce.ETH_IPV6 if packet[0] >> 4 == 6 else roce.ETH_IPV4
    return bytes(12) + b"".join(struct.pack("!HH", *tag) for tag in tags) + kind.to_bytes(2, "big") + packet


def pcap(frames, order="<", magic=0xa1b2c3d4, link=1):
    """A pcap file of frames, each a time in nanoseconds and its bytes, or also how many of them to keep."""
    units, head = capture.PCAP[magic]
    made = struct.pack(order + "IHHiIII", magic, 2, 4, 0, 0, 262144, link)
    for at, frame, *keep in frames:
        kept = frame[:keep[0]] if keep else frame
        made += struct.pack(order + "IIII", at // 10**9, at % 10**9 * units // 10**9, len(kept), len(frame))
        made += bytes(head - 16) + kept
    return made


def block(kind, body, order="<"):
    body += bytes(-len(body) % 4)
    length = struct.pack(order + "I", len(body) + 12)
    return struct.pack(order + "I", kind) + length + body + length


def option(code, value, order="<"):
    return struct.pack(order + "HH", code, len(value)) + value + bytes(-len(value) % 4)


def section(order="<"):
    return block(capture.SECTION, struct.pack(order + "IHHq", capture.BYTE_ORDER, 1, 0, -1), order)


def interface(order="<", link=1, resolution=None, offset=None, name=None):
    options = b""
    if name:
        options += option(capture.NAME, name.encode(), order)
    if resolution is not None:
        options += option(capture.RESOLUTION, bytes([resolution]), order)
    if offset is not None:
        options += option(capture.OFFSET, struct.pack(order + "q", offset), order)
    return block(capture.INTERFACE, struct.pack(order + "HHI", link, 0, 0) + options + bytes(4), order)


def enhanced(units, frame, number=0, order="<"):
    head = struct.pack(order + "IIIII", number, units >> 32, units & 0xffffffff, len(frame), len(frame))
    return block(capture.ENHANCED, head + frame, order)


def request(psn, opcode=4, payload=b"x" * 64, extension=b""):
    """A packet of A to B."""
    return roce.packet(A, B, QP_B, psn, payload, opcode, extension)


def answer(psn, syndrome=0x1f, opcode=roce.ACKNOWLEDGE, payload=b"", msn=0):
    """What B answers."""
    extension = struct.pack("!I", syndrome << 24 | msn) if opcode != 0x0e else b""
    return roce.packet(B, A, QP_A, psn, payload, opcode, extension)


def shown(packets, **how):
    """The data of packets, each with its time in microseconds."""
    return data(load([("x.pcap", pcap([(BEGIN + int(at * US), ethernet(packet)) for at, packet in packets], **how))]), False)


def one_talk(packets):
    talks = shown(packets)["conversations"]
    assert len(talks) == 1, [(talk["left"], talk["right"]) for talk in talks]
    return talks[0]


def every_opcode():
    """A packet of each opcode of the table."""
    made = []
    for number, (opcode, (_, headers)) in enumerate(sorted(opcodes.OPCODES.items())):
        lengths = sum(opcodes.HEADERS[letter][0] for letter in headers)
        extension = bytes((7 * n + opcode) & 0xff or 1 for n in range(lengths))
        made.append(roce.packet(A, B, QP_B, number, b"payload." * 4, opcode, extension))
    return made


def conversation():
    """A capture with a bit of everything: a loss, an RNR NAK, a READ, a datagram, a connection manager, a batch."""
    mad = bytes([1, 7, 2, 3]) + bytes(12) + b"\x00\x10" + bytes(6)
    mad += (bytes(4) + b"\1\2\3\4" + struct.pack("!Q", 0x1061234) + bytes(16)).ljust(32, b"\0") + QP_A.to_bytes(3, "big") + bytes(197)
    deth = roce.deth(QKEY, 1)
    packets = [
        (0, roce.packet(A, B, 1, 1, mad, 0x64, deth)),
        (10, request(0, 0, bytes(1024))), (11, request(1, 1, bytes(1024))), (12, request(2, 2, bytes(400))),
        (30, answer(1, NAK_SEQUENCE)), (40, request(1, 1, bytes(1024))), (41, request(2, 2, bytes(400))), (60, answer(2)),
        (70, request(3)), (80, answer(3, RNR_640)), (800, request(3)), (810, answer(3)),
        (900, request(4, 0x0c, b"", roce.reth(0xffff800012345678, RKEY, 2000))),
        (910, answer(4, 0x1f, 0x0d, bytes(1024))), (911, answer(5, 0x1f, 0x0f, bytes(976))),
        (950, roce.packet(A, B, 0x77, 5, b"datagram", 0x64, roce.deth(QKEY, 0x66)))]
    return pcap([(BEGIN + at * US, ethernet(packet)) for at, packet in packets])


def tshark(path, *words, home="/tmp"):
    """What it prints of a file, or does so with: exit status, output, and what it complains of."""
    done = subprocess.run(["tshark", "-n", "-r", str(path), *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          env={"HOME": str(home), "PATH": "/usr/bin:/bin"})
    return done.returncode, done.stdout, [line for line in done.stderr.splitlines() if "as user" not in line]


def everything(contents):
    trace = load([("x.pcap", contents)])
    return text.draw(trace), page.draw(trace, True), mermaid.draw(trace), json.dumps(data(trace, False))


def cm(src, dst, attribute, fields):
    """A message of the connection manager: bytes at places behind the header of the MAD."""
    mad = bytearray(256)
    mad[:4], mad[16:18] = bytes([1, 7, 2, 3]), attribute.to_bytes(2, "big")
    for at, value in fields.items():
        mad[24 + at:24 + at + len(value)] = value
    return roce.packet(src, dst, 1, attribute, bytes(mad), 0x64, roce.deth(0x80010000, 1))


CONNECT = [
    (0, cm(A, B, 0x10, {0: b"\1\2\3\4", 8: struct.pack("!Q", 0x1061c06), 32: QP_A.to_bytes(3, "big") + b"\4",
                        44: b"\0\0\5" + bytes([20 << 3 | 7]), 48: b"\xff\xff", 50: b"\x36", 95: bytes([14 << 3]),
                        140: b"\0\x40\x11\x22" + bytes(12) + bytes([192, 0, 2, 1]) + bytes(12) + bytes([192, 0, 2, 2]) + b"hello"})),
    (5, cm(B, A, 0x13, {0: b"\5\6\7\x08", 4: b"\1\2\3\4", 12: QP_B.to_bytes(3, "big"), 20: b"\0\0\x09", 27: b"\xe0"})),
    (9, cm(A, B, 0x14, {0: b"\1\2\3\4", 4: b"\5\6\7\x08"}))]
