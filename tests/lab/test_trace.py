# SPDX-License-Identifier: GPL-2.0
"""`ferroce trace show`: captures of every form, made here by hand, and what is made of them."""

import contextlib
import gzip
import heapq
import io
import json
import random
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path

from command.trace import capture, mermaid, opcodes, page, text
from command.trace.capture import NotReadable
from command.trace.data import data
from command.trace.trace import load, only
from tests.guest import roce
from tests.judges import wire_decode
from tests.lab import config
from tests.lab.test_command import ferroce

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
    """A block of pcapng."""
    body += bytes(-len(body) % 4)
    length = struct.pack(order + "I", len(body) + 12)
    return struct.pack(order + "I", kind) + length + body + length


def option(code, value, order="<"):
    """An option of a block."""
    return struct.pack(order + "HH", code, len(value)) + value + bytes(-len(value) % 4)


def section(order="<"):
    """The block that a section begins with."""
    return block(capture.SECTION, struct.pack(order + "IHHq", capture.BYTE_ORDER, 1, 0, -1), order)


def interface(order="<", link=1, resolution=None, offset=None, name=None):
    """The block of an interface."""
    options = b""
    if name:
        options += option(capture.NAME, name.encode(), order)
    if resolution is not None:
        options += option(capture.RESOLUTION, bytes([resolution]), order)
    if offset is not None:
        options += option(capture.OFFSET, struct.pack(order + "q", offset), order)
    return block(capture.INTERFACE, struct.pack(order + "HHI", link, 0, 0) + options + bytes(4), order)


def enhanced(units, frame, number=0, order="<"):
    """The block of a packet."""
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
    """The only conversation of packets."""
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


def everything(contents):
    """Every picture of a capture."""
    trace = load([("x.pcap", contents)])
    return text.draw(trace), page.draw(trace, True), mermaid.draw(trace), json.dumps(data(trace, False))


class Files(unittest.TestCase):
    """One packet, in files of every kind."""

    AT = BEGIN + 123_456_789

    def judge(self, contents, at, link=1, name=None):
        """It holds the packet, at this time."""
        got = capture.read(contents)
        self.assertEqual([(frame.at, frame.link) for frame in got.frames], [(at, link)])
        self.assertEqual(got.notes, [])
        if name:
            self.assertEqual(list(got.names.values()), [name])
        trace = load([("x", contents)])
        self.assertEqual(trace.talks[0].sent[0].packet.psn, 5)

    def test_pcap(self):
        for order in "<>":
            for magic, at in ((0xa1b2c3d4, self.AT // US * US), (0xa1b23c4d, self.AT), (0xa1b2cd34, self.AT // US * US)):
                self.judge(pcap([(self.AT, ethernet(request(5)))], order, magic), at)
        packed = gzip.compress(pcap([(self.AT, ethernet(request(5)))]))
        self.judge(packed, self.AT // US * US)
        with self.assertRaises(NotReadable):
            load([("x", packed[:12])])
        self.assertIn("compressed", str(capture.read(packed[:-6]).notes))

    def test_pcapng(self):
        frame = ethernet(request(5))
        for order in "<>":
            for resolution, offset, units, at in (
                    (None, None, self.AT // US, self.AT // US * US), (9, None, self.AT, self.AT),
                    (6, 1_600_000_000, self.AT // US - 1_600_000_000 * 10**6, self.AT // US * US),
                    (0x80 | 20, None, self.AT * 2**20 // 10**9, self.AT * 2**20 // 10**9 * 10**9 // 2**20)):
                self.judge(section(order) + interface(order, 1, resolution, offset, "eth0") + enhanced(units, frame, 0, order),
                           at, name="eth0")
        simple = block(capture.SIMPLE, struct.pack("<I", len(frame)) + frame)
        self.judge(section() + interface() + simple, 0)
        old = struct.pack("<HHIIII", 0, 0, 0, 5_000_000, len(frame), len(frame)) + frame
        self.judge(section() + interface() + block(capture.OLD_PACKET, old), 5 * 10**9)

    def test_sections_and_interfaces(self):
        """Interfaces are those of their section, and each has its own clock; blocks that nobody knows are passed over."""
        frame = ethernet(request(5))
        other = ethernet(answer(5))
        got = capture.read(section() + interface(name="a") + interface(resolution=9, name="b") + block(0x0bad, b"1234")
                           + enhanced(3_000_000, frame) + enhanced(4 * 10**9, other, 1)
                           + section(">") + interface(">", resolution=3, name="c") + enhanced(5000, frame, 0, ">"))
        self.assertEqual([(frame.interface, frame.at) for frame in got.frames],
                         [(0, 3 * 10**9), (1, 4 * 10**9), (2, 5 * 10**9)])
        self.assertEqual(got.names, {0: "a", 1: "b", 2: "c"})

    def test_what_was_dropped_is_said(self):
        statistics = struct.pack("<III", 0, 0, 0) + option(capture.DROPPED, struct.pack("<Q", 12))
        got = capture.read(section() + interface() + enhanced(1, ethernet(request(5))) + block(capture.STATISTICS, statistics))
        self.assertIn("12 packets were dropped while capturing", got.notes[0])

    def test_what_is_no_capture(self):
        nothing = pcap([(BEGIN, ethernet(roce.packet(A, B, QP_B, 1)[:28] + bytes(20)).replace(b"\x12\xb7", b"\x12\xb8"))])
        for contents, why in ((b"", "empty"), (b"#!", "no capture"), (b"#!/bin/sh\n" * 9, "no capture"),
                              (pcap([])[:20], "ends in its header"), (pcap([]), "in 0 frames"), (nothing, "no RoCE v2"),
                              (pcap([(BEGIN, ethernet(request(1)))], link=105), "link type 105, which is not known"),
                              (pcap([(BEGIN, ethernet(request(1)))], link=247), "InfiniBand")):
            with self.assertRaisesRegex(NotReadable, why):
                load([("/tmp/x.pcap", contents)])

    def test_cut_anywhere(self):
        """A file that ends anywhere, also in the middle of a header, is shown as far as it goes."""
        ng = section() + interface() + b"".join(enhanced(n, ethernet(request(n))) for n in range(3))
        for contents in (conversation(), ng, gzip.compress(conversation())):
            for length in range(0, len(contents), 1 if len(contents) < 1000 else 7):
                with contextlib.suppress(NotReadable):
                    everything(contents[:length])

    def test_snapped_anywhere(self):
        """Frames may be cut at any length: what is in them is shown as far as it was captured."""
        for packet in (*every_opcode(), roce.packet(A6, B6, QP_B, 1)):
            for keep in range(len(packet) + 14):
                with contextlib.suppress(NotReadable):
                    everything(pcap([(BEGIN, ethernet(packet), keep)]))

    def test_random(self):
        """Neither noise nor damage to a capture is an error of the program's."""
        draw = random.Random(37)
        for magic in (b"", b"\xd4\xc3\xb2\xa1", b"\xa1\xb2\x3c\x4d", section(), section() + interface()):
            for _ in range(200):
                with contextlib.suppress(NotReadable):
                    everything(magic + draw.randbytes(draw.randrange(400)))
        whole = conversation()
        for _ in range(600):
            damaged = bytearray(whole)
            for _ in range(draw.randrange(1, 30)):
                damaged[draw.randrange(24, len(damaged))] = draw.randrange(256)
            with contextlib.suppress(NotReadable):
                everything(bytes(damaged))
        # Frames of noise behind good addresses and ports.
        for _ in range(300):
            noise = ethernet(request(1))[:42] + draw.randbytes(draw.randrange(80))
            with contextlib.suppress(NotReadable):
                everything(pcap([(BEGIN, noise)] * 3))


class Layers(unittest.TestCase):
    """The same packet below other headers."""

    def judge(self, frame, link=1, **want):
        """It is found whole, with a right ICRC unless another is wanted."""
        row = data(load([("x", pcap([(BEGIN, frame)], link=link))]), False)["conversations"][0]["rows"][0]
        want = {"psn": 5, "dqpn": QP_B, "length": 64, "icrc": "good", "vlans": []} | want
        self.assertEqual({name: row[name] for name in want}, want)

    def test_links(self):
        packet = request(5)
        self.judge(ethernet(packet))
        self.judge(ethernet(packet, (0x8100, 7)), vlans=[7])
        self.judge(ethernet(packet, (0x88a8, 0x3007), (0x8100, 9)), vlans=[7, 9])
        self.judge(ethernet(packet) + bytes(4))
        self.judge(struct.pack("!HHH8sH", 4, 1, 6, bytes(8), 0x0800) + packet, 113)
        self.judge(struct.pack("!HHIHBB8s", 0x0800, 0, 2, 1, 4, 6, bytes(8)) + packet, 276)
        self.judge(struct.pack("!HHIHBB8sHH", 0x8100, 0, 2, 1, 4, 6, bytes(8), 5, 0x0800) + packet, 276, vlans=[5])
        for link in (12, 14, 101, 228):
            self.judge(packet, link)
        self.judge(b"\2\0\0\0" + packet, 0)
        self.judge(b"\0\0\0\2" + packet, 108)

    def test_ipv6(self):
        packet = roce.packet(A6, B6, QP_B, 5, b"x" * 64)
        self.judge(ethernet(packet), src=A6)
        self.judge(packet, 101)
        self.judge(packet, 229)
        # A hop-by-hop header, a routing header, and those of a fragment that is all there is.
        for kind, extension in ((0, bytes([17, 0]) + bytes(6)), (43, bytes([17, 1]) + bytes(14)), (44, bytes([17, 0]) + bytes(6)),
                                (51, bytes([17, 4]) + bytes(22))):
            with_one = packet[:4] + (len(packet) - 40 + len(extension)).to_bytes(2, "big") + bytes([kind]) + packet[7:40]
            self.judge(ethernet(with_one + extension + packet[40:]), icrc="not checked")

    def test_ipv4(self):
        packet = roce.with_options(request(5))
        # The options have changed what the ICRC covers.
        self.judge(ethernet(packet), icrc="bad")
        first, later = roce.fragments(request(5), 56)
        self.judge(ethernet(first), icrc="not checked")
        with self.assertRaisesRegex(NotReadable, "later IP fragments"):
            load([("x", pcap([(BEGIN, ethernet(later))]))])
        v1 = bytes(12) + b"\x89\x15" + bytes(60)
        with self.assertRaisesRegex(NotReadable, "RoCE v1"):
            load([("x", pcap([(BEGIN, v1)]))])
        marked = bytearray(request(5))
        marked[1] = 3
        self.judge(ethernet(bytes(marked)), remark="marked CE: congestion")

    def test_icrc(self):
        for packet in (request(5), roce.packet(A6, B6, QP_B, 5, b"x" * 64)):
            damaged = bytearray(packet)
            damaged[-10] ^= 1
            self.judge(ethernet(bytes(damaged)), icrc="bad")
        row = data(load([("x", pcap([(BEGIN, ethernet(request(5)), 90)]))]), False)["conversations"][0]["rows"][0]
        self.assertEqual((row["icrc"], row["length"]), ("not checked", 64))


def batch(packets, step):
    """What a capture shows of packets that are handed to a netdev at once: the first one's headers, and all behind them. The
    identification of each is `step` more than that of the one before it."""
    payload = b""
    for number, packet in enumerate(packets):
        made = bytearray(packet)
        made[4:6] = (0x4711 + step * number).to_bytes(2, "big")
        payload += bytes(made[28:-4]) + roce.icrc(made[:20], made[20:28], made[28:-4])
    length = len(payload) + 8
    head = packets[0][:2] + (20 + length).to_bytes(2, "big") + b"\x47\x11" + packets[0][6:24]
    return head + length.to_bytes(2, "big") + packets[0][26:28] + payload


class Batches(unittest.TestCase):
    """Several packets in one captured frame."""

    def test_taken_apart(self):
        first, middle, last = (opcode for opcode in (0, 1, 2))
        for size, count in ((1024, 5), (4096, 3), (256, 12)):
            packets = [request(n, first if not n else middle if n < count - 1 else last, bytes(size if n < count - 1 else 100))
                       for n in range(count)]
            for step in (0, 1):
                got = data(load([("x", pcap([(BEGIN, ethernet(batch(packets, step)))]))]), False)
                rows = got["conversations"][0]["rows"]
                self.assertEqual([(row["psn"], row["length"], row["icrc"], row["piece"], row["pieces"]) for row in rows],
                                 [(n, size if n < count - 1 else 100, "good", n, count) for n in range(count)])
                self.assertIn(f"1 frame holds {count} packets in batches", got["notes"][0])
                self.assertEqual(got["conversations"][0]["requests"]["left"]["messages"], 1)

    def test_of_ipv6(self):
        packets = [roce.packet(A6, B6, QP_B, n, bytes(1024), 1) for n in range(3)]
        payload = b"".join(packet[48:] for packet in packets)
        length = len(payload) + 8
        head = packets[0][:4] + length.to_bytes(2, "big") + packets[0][6:44] + length.to_bytes(2, "big") + packets[0][46:48]
        rows = data(load([("x", pcap([(BEGIN, ethernet(head + payload))]))]), False)["conversations"][0]["rows"]
        self.assertEqual([(row["psn"], row["icrc"]) for row in rows], [(n, "good") for n in range(3)])

    def test_cut_short(self):
        """Of a batch that was not captured whole, there are the packets that were, and a word of the others."""
        packets = [request(n, 1, bytes(1024)) for n in range(6)]
        got = data(load([("x", pcap([(BEGIN, ethernet(batch(packets, 1)), 2500)]))]), False)
        self.assertEqual([row["psn"] for row in got["conversations"][0]["rows"]], [0, 1, 2])
        self.assertIn("3 packets of batches were cut off", got["notes"][1])

    def test_large_packet_is_none(self):
        """A packet that holds what looks like another's header is one packet."""
        inner = request(1)[28:]
        row = one_talk([(0, request(0, 4, bytes(512) + inner + bytes(-len(inner) % 4)))])["rows"][0]
        self.assertEqual((row["pieces"], row["icrc"]), (1, "good"))


class Joining(unittest.TestCase):
    """What packets mean beside each other."""

    FIRST = [(0, request(0, 0, bytes(1024))), (1, request(1, 1, bytes(1024))), (2, request(2, 2, bytes(452)))]

    def test_a_message(self):
        talk = one_talk([*self.FIRST, (50, answer(2, msn=1)), (60, request(3)), (99, answer(3, msn=2))])
        self.assertEqual((talk["left"], talk["right"]), ({"address": A, "qpn": QP_A}, {"address": B, "qpn": QP_B}))
        self.assertEqual((talk["known"], talk["mtu"]), ("by acknowledgements", 1024))
        self.assertEqual([(m["operation"], m["first_psn"], m["last_psn"], m["length"], m["begun"], m["done"]) for m in talk["messages"]],
                         [("SEND", 0, 2, 2500, 0, 50), ("SEND", 3, 3, 64, 60, 99)])
        left = talk["requests"]["left"]
        self.assertEqual((left["retransmitted"], left["round_trip"], left["per_ack"], left["most_per_ack"]), (0, 43.5, 2, 3))
        self.assertEqual(talk["findings"], [])
        self.assertIn("for 3 packets; completes SEND of 2500 B in 50 us", talk["rows"][3]["remark"])

    def test_sequence_nak(self):
        talk = one_talk([*self.FIRST, (30, answer(1, NAK_SEQUENCE)), (35, request(1, 1, bytes(1024))), (36, request(2, 2, bytes(452))),
                         (70, answer(2))])
        self.assertEqual([row["fate"] for row in talk["rows"]], ["", "lost", "dropped", "", "", "", ""])
        self.assertEqual([row["cause"] for row in talk["rows"][4:6]], ["sequence NAK"] * 2)
        left = talk["requests"]["left"]
        self.assertEqual((left["retransmitted"], left["lost"], left["sequence_naks"], left["causes"]), (2, 1, 1, {"sequence NAK": 2}))
        self.assertIn("2 packets were retransmitted", talk["findings"][0])
        self.assertIn("1 packet was lost on the way to 192.0.2.2", talk["findings"][0])
        self.assertEqual(talk["messages"][0]["retransmitted"], 2)

    def test_timeout(self):
        talk = one_talk([*self.FIRST, (67_002, request(0, 0, bytes(1024))), (67_003, request(1, 1, bytes(1024))),
                         (67_004, request(2, 2, bytes(452))), (67_050, answer(2))])
        self.assertEqual(talk["requests"]["left"]["causes"], {"timeout": 3})
        self.assertEqual(talk["findings"][0], "3 packets were retransmitted by 192.0.2.1 QP 0x11 after a timeout of ~67 ms, 1 time: "
                                              "the packet or its ACK was lost, or the peer is slow")
        # The answer had passed: it is the way of the answer that loses.
        talk = one_talk([(0, request(0)), (40, answer(0)), (67_000, request(0)), (67_040, answer(0))])
        self.assertIn("though the answer had passed here", talk["findings"][1])
        self.assertIn("had been answered already", talk["rows"][2]["remark"])

    def test_rnr(self):
        talk = one_talk([(0, request(0)), (20, answer(0, RNR_640)), (720, request(0)), (750, answer(0))])
        self.assertEqual(talk["requests"]["left"]["rnr_naks"], 1)
        self.assertEqual(talk["requests"]["left"]["causes"], {"RNR NAK": 1})
        self.assertEqual(talk["findings"], ["1 RNR NAK from 192.0.2.2 QP 0x22: no receive was posted in time; it asked for 640 us, and "
                                            "192.0.2.1 waited 700 us"])
        self.assertEqual(talk["rows"][1]["label"], "RNR NAK, wait 640 us, PSN 0")

    def test_rnr_with_packets_behind(self):
        """Packets that are on their way when the RNR NAK comes are dropped, and that costs no timeout."""
        talk = one_talk([*self.FIRST, (20, answer(0, RNR_640)), (30, answer(0, NAK_SEQUENCE)), *((700 + n, one) for n, one in self.FIRST),
                         (720, answer(0, RNR_640)), *((1500 + n, one) for n, one in self.FIRST), (1550, answer(2))])
        left = talk["requests"]["left"]
        self.assertEqual((left["causes"], left["lost"]), ({"RNR NAK": 6}, 0))
        self.assertEqual([row["fate"] for row in talk["rows"]], ["", "dropped", "dropped", "", "", "", "dropped", "dropped", "", "", "", "", ""])

    def test_read(self):
        """A READ uses a PSN for each response, and is asked for again from the response that is missing."""
        talk = one_talk([(0, request(7, 0x0c, b"", roce.reth(0, RKEY, 3000))), (30, answer(7, 0x1f, 0x0d, bytes(1024))),
                         (31, answer(9, 0x1f, 0x0f, bytes(952))), (40, request(8, 0x0c, b"", roce.reth(1024, RKEY, 1976))),
                         (70, answer(8, 0x1f, 0x0d, bytes(1024))), (71, answer(9, 0x1f, 0x0f, bytes(952))), (90, request(10)),
                         (130, answer(10))])
        left = talk["requests"]["left"]
        self.assertEqual((left["messages"], left["length"], left["causes"]), (2, 3064, {"missing READ response": 1}))
        self.assertIn("PSN 8 is missing before it", talk["rows"][2]["remark"])
        self.assertEqual([m["done"] for m in talk["messages"]], [71, 130])

    def test_read_whose_response_is_lost_later(self):
        """The responder's end does not see which response is missing: what is asked for again tells it."""
        talk = one_talk([(0, request(7, 0x0c, b"", roce.reth(0, RKEY, 3000))), (5, answer(7, 0x1f, 0x0d, bytes(1024))),
                         (6, answer(8, 0x1f, 0x0e, bytes(1024))), (7, answer(9, 0x1f, 0x0f, bytes(952))),
                         (40, request(8, 0x0c, b"", roce.reth(1024, RKEY, 1976))), (45, answer(8, 0x1f, 0x0d, bytes(1024))),
                         (46, answer(9, 0x1f, 0x0f, bytes(952)))])
        self.assertEqual(talk["requests"]["left"]["causes"], {"missing READ response": 1})
        self.assertEqual(talk["requests"]["left"]["answered_again"], 2)

    def test_atomic(self):
        extension = struct.pack("!QIQQ", 0x1000, RKEY, 1, 0)
        talk = one_talk([(0, request(0, 0x14, b"", extension)), (20, roce.packet(B, A, QP_A, 0, b"", 0x12, struct.pack("!IQ", 1, 41)))])
        self.assertEqual([(m["operation"], m["length"], m["done"]) for m in talk["messages"]], [("FETCH_AND_ADD", 8, 20)])
        self.assertEqual(talk["rows"][1]["headers"], [["AETH", {"syndrome": 0, "msn": 1, "meaning": "ACK"}],
                                                      ["AtomicAckETH", {"original": 41}]])

    def test_duplicate_and_late(self):
        talk = one_talk([(0, request(0)), (3, request(0)), (50, answer(0))])
        left = talk["requests"]["left"]
        self.assertEqual((left["retransmitted"], left["duplicates"]), (0, 1))
        talk = one_talk([(0, request(0)), (1, request(2)), (2, request(1)), (50, answer(2))])
        left = talk["requests"]["left"]
        self.assertEqual((left["retransmitted"], left["late"], left["never_seen"]), (0, 1, 0))
        self.assertEqual([row["fate"] for row in talk["rows"]], ["", "", "late", ""])

    def test_lost_before_the_capture(self):
        """What is seen for the first time when it is sent again was lost before it came here."""
        talk = one_talk([(0, request(0)), (1, request(2)), (20, answer(1, NAK_SEQUENCE)), (30, request(1)), (31, request(2)),
                         (60, answer(2))])
        self.assertEqual(talk["requests"]["left"]["causes"], {"sequence NAK": 2})
        self.assertIn("its first transmission was not seen here", talk["rows"][3]["remark"])
        self.assertIn("packets were lost before they came here", talk["findings"][0])
        talk = one_talk([(0, request(0)), (1, request(2)), (5000, request(1)), (5001, request(2)), (5060, answer(2))])
        self.assertEqual(talk["requests"]["left"]["causes"], {"timeout": 2})

    def test_no_answer(self):
        talk = one_talk([(0, request(0)), (10, answer(0)), (20, request(1)), (21, request(2))])
        self.assertEqual(talk["findings"], ["2 packets of 192.0.2.1 QP 0x11 (PSN 1 to 2) had no answer when the capture ended"])
        talk = one_talk([(0, request(0)), (10, answer(0)), *((20 + 67_000 * n, request(1)) for n in range(8))])
        self.assertIn("PSN 1 left 192.0.2.1 QP 0x11 8 times in 469 ms and was never answered", talk["findings"][-1])

    def test_refused(self):
        talk = one_talk([(0, request(0, 0x0a, bytes(64), roce.reth(0, RKEY, 64))), (10, answer(0, NAK_ACCESS))])
        self.assertEqual(talk["findings"], ["192.0.2.2 QP 0x22 has refused PSN 0: remote access error; the request fails, and the queue "
                                            "pair goes to ERR"])

    def test_psns_wrap(self):
        talk = one_talk([(0, request(0xfffffe, 0, bytes(1024))), (1, request(0xffffff, 1, bytes(1024))), (2, request(0, 2, bytes(8))),
                         (40, answer(0)), (50, request(1)), (90, answer(1))])
        self.assertEqual([(m["first_psn"], m["last_psn"], m["done"]) for m in talk["messages"]], [(0xfffffe, 0, 40), (1, 1, 90)])

    def test_uc(self):
        talk = one_talk([(0, request(0, 0x24)), (1, request(2, 0x24)), (2, roce.packet(B, A, QP_A, 9, b"", 0x24))])
        self.assertEqual((talk["service"], talk["known"]), ("UC", "a guess: no other is left"))
        self.assertEqual(talk["requests"]["left"]["never_seen"], 1)
        self.assertEqual(talk["requests"]["left"]["unanswered"], 0)

    def test_pairs(self):
        """Each queue pair with its peer, by the PSNs that are answered; what nothing tells is said to be unknown."""
        packets = []
        for n in range(3):
            for psn in range(2):
                at = 100 * psn + n
                packets += [(at, roce.packet(A, B, 0x20 + n, 1000 * n + psn)),
                            (at + 10, roce.packet(B, A, 0x12 - n, 1000 * n + psn, b"", 0x11, roce.aeth(0x1f)))]
        talks = shown(packets)["conversations"]
        self.assertEqual([(talk["left"]["qpn"], talk["right"]["qpn"]) for talk in talks], [(0x12, 0x20), (0x11, 0x21), (0x10, 0x22)])
        talk = one_talk([(0, request(0))])
        self.assertEqual((talk["left"]["qpn"], talk["known"]), (None, "one direction only"))
        self.assertIn("no packet of 192.0.2.2 was captured", talk["findings"][-1])

    def test_congestion_notification(self):
        talk = one_talk([(0, request(0)), (10, answer(0)), (20, roce.packet(B, A, QP_A, 0, b"", 0x81, bytes(16)))])
        self.assertEqual((talk["rows"][2]["label"], talk["rows"][2]["to"]), ("CNP: congestion", "left"))
        self.assertIn("1 CNP came", talk["findings"][-1])

    def test_another_connection(self):
        talk = one_talk([(0, request(0)), (10, answer(0)), (1000, request(0x500000)), (1010, answer(0x500000))])
        self.assertIn("another connection", talk["rows"][2]["remark"])
        self.assertEqual((talk["requests"]["left"]["never_seen"], talk["requests"]["left"]["retransmitted"]), (0, 0))


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


class ConnectionManager(unittest.TestCase):
    """Queue pairs that it has connected, and its messages."""

    def test_pair(self):
        """It tells the pair also where only one direction was captured."""
        talks = shown([*CONNECT, (20, request(5))])["conversations"]
        self.assertEqual([(talk["service"], talk["known"]) for talk in talks],
                         [("CM", "by the DETH"), ("RC", "by the connection manager")])
        self.assertEqual(talks[1]["left"], {"address": A, "qpn": QP_A})
        self.assertEqual([row["label"] for row in talks[0]["rows"]], [
            "CM REQ, RC, QP 0x11, PSN 5, retries 7, RNR retries 6, port 7174, private data 5 B",
            "CM REP, QP 0x22, PSN 9, RNR retries 7", "CM RTU"])
        mad = talks[0]["rows"][0]["mad"]
        self.assertEqual((mad["port_space"], mad["source"], mad["destination"], mad["path_mtu"], mad["ack_timeout"]),
                         ("TCP", A, B, 3, 14))

    def test_refusal(self):
        talks = shown([CONNECT[0], (5, cm(B, A, 0x12, {4: b"\1\2\3\4", 10: b"\0\x1c"}))])["conversations"]
        self.assertEqual(talks[0]["rows"][1]["label"], "CM REJ, of the REQ: refused by the consumer")
        self.assertIn("192.0.2.2 has refused a connection: refused by the consumer", talks[0]["findings"])


class Places(unittest.TestCase):
    """One exchange, captured at both ends."""

    def both(self, ahead, ways):
        """Two captures, of A's end and of B's, whose clock is `ahead` microseconds; the latter without these packets."""
        left, right = [], []
        for number, (at, packet) in enumerate(ways):
            from_a = packet[12:16] == request(0)[12:16]
            left.append((BEGIN + (at if from_a else at + 20) * US, ethernet(packet)))
            if number not in self.lost:
                right.append((BEGIN + (at + 20 + ahead if from_a else at + ahead) * US, ethernet(packet)))
        return data(load([("left.pcap", pcap(left)), ("right.pcap", pcap(right))]), False)

    def test_joined(self):
        ways = [(0, request(0)), (1, request(1)), (2, request(2)), (30, answer(1, NAK_SEQUENCE)), (60, request(1)), (61, request(2)),
                (90, answer(2)), (100, request(3)), (130, answer(3))]
        self.lost = {1}
        for ahead in (0, 3_200_000, -3_200_000):
            got = self.both(ahead, ways)
            talk = got["conversations"][0]
            self.assertEqual(got["packets"], len(ways))
            self.assertIn("8 packets were captured in several places", got["notes"][0])
            self.assertEqual(len(got["notes"]), 2 if ahead else 1, got["notes"])
            if ahead:
                self.assertIn(f"the clock of right.pcap, interface 0 is {ahead / 1000:+.3f} ms", got["notes"][1])
            self.assertEqual([row["psn"] for row in talk["rows"]], [0, 1, 2, 1, 1, 2, 2, 3, 3])
            self.assertEqual([row["number"] for row in talk["rows"] if row["fate"] == "lost"], [1])
            self.assertEqual(len(talk["rows"][1]["seen"]), 1)
            self.assertIn("1 packet was seen at one place of the capture and not at the next", talk["findings"][-1])

    def test_bridge(self):
        """Two interfaces in one file, as of a bridge: each packet is shown once."""
        blocks = section() + interface(name="in") + interface(resolution=9, name="out")
        for at, packet in ((0, request(0)), (50, answer(0)), (99, request(1)), (150, answer(1))):
            first, second = (0, 1) if packet[12:16] == request(0)[12:16] else (1, 0)
            for number, later in ((first, 0), (second, 3)):
                time = BEGIN // US + at + later
                blocks += enhanced(time * US if number else time, ethernet(packet), number)
        got = data(load([("x", blocks)]), False)
        self.assertEqual((got["packets"], got["frames"]), (4, 8))
        self.assertEqual(got["conversations"][0]["rows"][0]["seen"], {"in": 0, "out": 3})
        self.assertEqual(got["conversations"][0]["requests"]["left"]["retransmitted"], 0)


class Model:
    """A requester and a responder that go back, with a network between them that loses packets; times in microseconds."""

    WAY, TIMEOUT, WINDOW = 20, 3000, 16

    def __init__(self, seed, messages=12, loss=8):
        self.draw, self.loss = random.Random(seed), loss
        self.psn = self.draw.randrange(1 << 24)
        # Of each packet: opcode and payload.
        self.packets = []
        for _ in range(messages):
            length = self.draw.randrange(1, 6)
            self.packets += [(4, 64)] if length == 1 else [(0, 256), *[(1, 256)] * (length - 2), (2, 64)]
        self.left, self.right, self.lost = [], [], Counter()
        self.una = self.cursor = self.highest = self.expected = self.repeated = self.stamp = 0
        self.silent = self.sending = False
        self.events = []
        self.begin()

    def begin(self):
        """Runs until all is acknowledged."""
        self.timer = self.now = 0
        self.go()
        while self.una < len(self.packets):
            self.now, _, what, value = heapq.heappop(self.events)
            getattr(self, what)(value)

    def after(self, delay, what, value=0):
        """Something happens later; what happens at one time happens in the order in which it was planned."""
        self.timer += 1
        heapq.heappush(self.events, (self.now + delay, self.timer, what, value))

    def passes(self, packet, near, far, what, value):
        """A packet leaves, and arrives unless it is lost. The first ones are spared, so that both captures have begun."""
        near.append((self.now, packet))
        if len(near) > 6 and self.draw.randrange(100) < self.loss:
            self.lost[bytes(packet)] += 1
            return
        far.append((self.now + self.WAY, packet))
        self.after(self.WAY, what, value)

    def go(self):
        """Sends on."""
        if not self.sending:
            self.sending = True
            self.after(1, "send")

    def send(self, _):
        """The next request, and the one after it."""
        self.sending = False
        if self.cursor < min(len(self.packets), self.una + self.WINDOW):
            number, (opcode, length) = self.cursor, self.packets[self.cursor]
            self.repeated += number < self.highest
            self.cursor += 1
            self.highest = max(self.highest, self.cursor)
            self.passes(request(self.psn + number & 0xffffff, opcode, bytes(length)), self.left, self.right, "arrive", number)
            self.wait()
            self.go()

    def wait(self):
        """Starts the timer anew."""
        self.stamp += 1
        self.after(self.TIMEOUT, "expire", self.stamp)

    def expire(self, stamp):
        """The timer: nothing has happened since it was started."""
        if stamp == self.stamp:
            self.back(self.una)

    def back(self, number):
        """Goes back to a request."""
        self.cursor = number
        self.go()

    def arrive(self, number):
        """A request comes to the responder."""
        if number == self.expected:
            self.expected, self.silent = number + 1, False
            if self.packets[number][0] in (2, 4):
                self.say(number, 0x1f)
        elif number > self.expected and not self.silent:
            self.silent = True
            self.say(self.expected, NAK_SEQUENCE)
        elif number < self.expected:
            self.say(self.expected - 1, 0x1f)

    def say(self, number, syndrome):
        """An answer."""
        self.passes(answer(self.psn + number & 0xffffff, syndrome), self.right, self.left, "told", (number, syndrome))

    def told(self, said):
        """An answer comes to the requester."""
        number, syndrome = said
        before, self.una = self.una, max(self.una, number + (syndrome == 0x1f))
        if syndrome == NAK_SEQUENCE and number >= before:
            self.back(number)
        elif self.una > before:
            self.cursor = max(self.cursor, self.una)
            self.wait()
            self.go()


class Models(unittest.TestCase):
    """Runs of a model, of which everything is known."""

    @staticmethod
    def of(packets, ahead=0):
        """A capture of these packets."""
        return pcap([(BEGIN + (at + ahead) * US, ethernet(packet)) for at, packet in sorted(packets, key=lambda one: one[0])])

    def test_losses(self):
        sums = Counter()
        for seed in range(150):
            with self.subTest(seed=seed):
                model = Model(seed)
                alone = data(load([("x", self.of(model.left))]), False)["conversations"]
                ahead = random.Random(seed).choice((0, 3_200_000, -70))
                both = data(load([("x", self.of(model.left)), ("y", self.of(model.right, ahead))]), False)["conversations"]
                for talks in (alone, both):
                    self.assertEqual(len(talks), 1)
                    asked = talks[0]["requests"]["left"]
                    self.assertEqual((asked["retransmitted"], asked["duplicates"], asked["late"]), (model.repeated, 0, 0))
                    self.assertEqual(asked["packets"], len(model.packets) + model.repeated)
                    self.assertEqual(asked["unanswered"], 0)
                    self.assertTrue(all(message["done"] is not None and message["whole"] for message in talks[0]["messages"]))
                    self.assertEqual(sum(message["packets"] for message in talks[0]["messages"]), len(model.packets))
                lost = Counter((row["opcode"], row["psn"], row["to"]) for row in both[0]["rows"]
                               if row["fate"] == "lost" and len(row["seen"]) == 1)
                want = Counter()
                for packet, times in model.lost.items():
                    want[packet[28], int.from_bytes(packet[37:40], "big"),
                         "right" if packet[12:16] == request(0)[12:16] else "left"] += times
                self.assertEqual(lost, want)
                sums += Counter(asked["causes"])
        self.assertGreater(min(sums["sequence NAK"], sums["timeout"]), 100, sums)


class Page(HTMLParser):
    """What a page holds."""

    def __init__(self, source):
        super().__init__()
        self.tags, self.rows, self.texts, self.inside, self.scripts = [], [], [], [], []
        self.feed(source)

    def handle_starttag(self, tag, attrs):
        held = dict(attrs)
        self.tags.append((tag, held))
        if tag not in ("meta", "input", "rect", "path", "line"):
            self.inside.append((tag, held))
        if tag == "g":
            self.rows.append(held["data-sel"])

    def handle_endtag(self, tag):
        while self.inside and self.inside.pop()[0] != tag:
            pass

    def handle_data(self, data):
        tag, held = self.inside[-1] if self.inside else ("", {})
        if tag == "script":
            self.scripts.append((held.get("type"), data))
        elif held.get("class") == "label":
            self.texts.append(data)


class Pictures(unittest.TestCase):
    """Text, page, mermaid and JSON of one capture say the same."""

    def setUp(self):
        self.trace = load([("<x>.pcap", conversation())])
        self.data = data(self.trace, False)
        self.rows = [row for talk in self.data["conversations"] for row in talk["rows"]]

    def test_text(self):
        drawn = text.draw(self.trace, False)
        for row in self.rows:
            self.assertIn(f"{row['time']:12.1f}  {row['label']}", drawn)
        for finding in (said for talk in self.data["conversations"] for said in talk["findings"]):
            self.assertIn(f"  * {finding}", drawn)
        self.assertEqual(sum("-x" in line for line in drawn.splitlines()), 1)

    def test_folding(self):
        packets = [(n, request(n, 0 if not n else 1, bytes(256))) for n in range(20)]
        drawn = text.draw(load([("x", pcap([(BEGIN + at * US, ethernet(packet)) for at, packet in packets]))]))
        self.assertIn("19 x SEND Middle PSN 1 to 19, 256 B each (ack)", drawn)

    def test_page(self):
        source = page.draw(self.trace, False)
        held = Page(source)
        self.assertEqual(held.texts, [row["label"] for row in self.rows])
        self.assertEqual(held.rows, [f"{n}-{row['number']}" for n, talk in enumerate(self.data["conversations"]) for row in talk["rows"]])
        inner = next(json.loads(script) for kind, script in held.scripts if kind == "application/json")
        self.assertEqual([row["label"] for talk in inner["conversations"] for row in talk["rows"]], held.texts)
        self.assertNotIn("<x>", source)
        policy = [held["content"] for tag, held in held.tags if held.get("http-equiv") == "Content-Security-Policy"]
        self.assertEqual(policy, [page.POLICY])
        # No script, style, image or link of another place, and no address but the name space of SVG.
        self.assertFalse([tag for tag, held in held.tags if tag in ("img", "link", "iframe", "object") or "src" in held or "href" in held])
        self.assertEqual(set(re.findall(r"https?://[^\"' ]+", source)), {page.NS})
        ids = [held["id"] for _, held in held.tags if "id" in held]
        self.assertEqual(len(ids), len(set(ids)))
        for name in re.findall(r'(?:find|getElementById)\("(\w+)"\)', source):
            self.assertIn(name, ids)

    def test_mermaid(self):
        drawn = mermaid.draw(self.trace, False)
        self.assertEqual(len(re.findall(r"^ +(?:A|B)-[->x]+(?:A|B): ", drawn, re.M)), len(self.rows))
        self.assertEqual(drawn.count("```mermaid"), len(self.data["conversations"]))
        self.assertNotIn(";", drawn)

    def test_keys(self):
        """A page can be shown to others: it has no key, unless that is asked for."""
        for key in (RKEY, QKEY):
            for drawn in (page.draw(self.trace, False), json.dumps(self.data), text.draw(self.trace), mermaid.draw(self.trace)):
                self.assertNotIn(str(key), drawn)
                self.assertNotIn(f"{key:x}", drawn)
            self.assertIn(str(key), page.draw(self.trace, True))

    def test_only(self):
        only(self.trace, 0x66)
        self.assertEqual([talk.pair.service for talk in self.trace.talks], ["UD"])
        with self.assertRaisesRegex(NotReadable, "0x5 .*there are 0x66, 0x77"):
            only(self.trace, 5)


class Command(unittest.TestCase):
    """`ferroce trace show` itself."""

    def setUp(self):
        place = tempfile.TemporaryDirectory()
        self.addCleanup(place.cleanup)
        self.place = Path(place.name)
        self.file = self.place / "x.pcap"
        self.file.write_bytes(conversation())

    def run_it(self, *words):
        """Exit status, output, errors."""
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            status = ferroce.main(["trace", "show", *map(str, words)])
        return status, out.getvalue(), err.getvalue()

    def test_forms(self):
        for form, begin in (("text", "x.pcap: "), ("html", "<!DOCTYPE html>"), ("mermaid", "```mermaid"), ("json", "{")):
            status, out, err = self.run_it(self.file, "--as", form)
            self.assertEqual((status, err), (0, ""))
            self.assertTrue(out.startswith(begin), out[:80])
            target = self.place / "out"
            self.assertEqual(self.run_it(self.file, "--as", form, "-o", target), (0, "", ""))
            self.assertEqual(target.read_text(encoding="utf-8"), out)

    def test_errors(self):
        script = self.place / "script"
        script.write_text("#!/bin/sh\n", encoding="utf-8")
        for words, why in (((script,), "no capture"), ((self.place / "none",), "No such file"), ((self.place,), "Is a directory"),
                           ((self.file, "--qp", "0x99"), "no queue pair 0x99"),
                           ((self.file, "-o", self.place / "no/such"), "No such file")):
            status, out, err = self.run_it(*words)
            self.assertEqual((status, out), (1, ""))
            self.assertRegex(err, f"^ferroce: .*{why}")

    def test_installed(self):
        """It finds its parts where they are installed, whatever the prefix, and leaves nothing there."""
        (self.place / "usr/bin").mkdir(parents=True)
        program = shutil.copy(config.CHECKOUT / "command/ferroce", self.place / "usr/bin/ferroce")
        argv = [sys.executable, program, "trace", "show", "-"]

        def run():
            return subprocess.run(argv, input=conversation(), stdout=subprocess.PIPE, stderr=subprocess.PIPE)

        missing = run()
        self.assertEqual(missing.returncode, 1)
        self.assertIn(b"is missing", missing.stderr)
        shared = self.place / "usr/share/ferroce/trace"
        shutil.copytree(config.CHECKOUT / "command/trace", shared, ignore=shutil.ignore_patterns("__pycache__"))
        done = run()
        self.assertEqual((done.returncode, done.stderr), (0, b""))
        self.assertTrue(done.stdout.startswith(b"-: 16 packets"))
        self.assertFalse((shared / "__pycache__").exists())


@unittest.skipUnless(shutil.which("tshark"), "there is no tshark here")
class Wireshark(unittest.TestCase):
    """tshark sees the same in every field that both name."""

    # Our names of the fields, and its.
    CM = {"REQ": {"service_id": "serviceid", "qkey": "localqkey", "qpn": "localqpn", "responder_resources": "responderres",
                  "initiator_depth": "initdepth", "remote_timeout": "remoteresptout", "psn": "startpsn",
                  "local_timeout": "localresptout", "retry_count": "retrcount", "pkey": "pkey", "path_mtu": "pppmtu",
                  "rnr_retry": "rnrretrcount", "max_cm_retries": "maxcmretr", "srq": "srq", "ack_timeout": "prim_localacktout"},
          "REP": {"remote_id": "remotecommid", "qkey": "localqkey", "qpn": "localqpn", "psn": "startpsn",
                  "responder_resources": "respres", "initiator_depth": "initdepth", "target_ack_delay": "tgtackdelay",
                  "rnr_retry": "rnrretrcount", "srq": "srq"},
          "REJ": {"local_id": "localcommid", "remote_id": "remotecommid", "message": "msgrej", "reason": "reason"},
          "DREQ": {"local_id": "localcommid", "remote_id": "remotecommid"}}

    def setUp(self):
        place = tempfile.TemporaryDirectory()
        self.addCleanup(place.cleanup)
        self.path = Path(place.name) / "x.pcap"

    def test_every_opcode(self):
        packets = [packet for packet in every_opcode() if packet[28] < 0x80]
        contents = pcap([(BEGIN + n * US, ethernet(packet)) for n, packet in enumerate(packets)])
        self.path.write_bytes(contents)
        theirs = wire_decode.by_tshark(str(self.path))
        mine = sorted((row for talk in data(load([("x", contents)]), True)["conversations"] for row in talk["rows"]),
                      key=lambda row: row["frame"])
        self.assertEqual(len(theirs), len(mine))
        for they, row in zip(theirs, mine):
            fields = {name: value for _, header in row["headers"] for name, value in header.items()}
            self.assertEqual({name: row[name] for name in wire_decode.BTH}, {name: they[name] for name in wire_decode.BTH})
            known = [name for name in fields if name in they]
            self.assertEqual({name: fields[name] for name in known}, {name: they[name] for name in known}, row["name"])
            self.assertEqual(row["icrc"], "good")
            self.assertEqual(they["src4"], row["src"])

    def test_connection_manager(self):
        """Messages of random bytes."""
        draw = random.Random(4791)
        for attribute, name in ((0x10, "REQ"), (0x12, "REJ"), (0x13, "REP"), (0x15, "DREQ")):
            for _ in range(3):
                self.path.write_bytes(pcap([(BEGIN, ethernet(cm(A, B, attribute, {0: draw.randbytes(232)})))]))
                argv = ["tshark", "-n", "-r", str(self.path), "-T", "fields"]
                for field in self.CM[name].values():
                    argv += ["-e", f"infiniband.cm.{name.lower()}.{field}"]
                done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                      env={"HOME": "/tmp", "PATH": "/usr/bin:/bin"})
                self.assertEqual(done.returncode, 0, done.stderr)
                theirs = [wire_decode.number(value) for value in done.stdout.rstrip("\n").split("\t")]
                mad = data(load([("x", self.path.read_bytes())]), True)["conversations"][0]["rows"][0]["mad"]
                self.assertEqual(dict(zip(self.CM[name], theirs)), {field: mad[field] for field in self.CM[name]}, name)


if __name__ == "__main__":
    unittest.main()
