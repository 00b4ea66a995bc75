# SPDX-License-Identifier: GPL-2.0
"""`ferroce trace show`: captures of every form are read, whatever is in them or missing."""

import contextlib
import gzip
import io
import os
import random
import struct
import tempfile
import unittest
from pathlib import Path
from unittest import mock

from command.trace import capture, record
from command.trace.capture import NotReadable
from command.trace.data import data
from command.trace.trace import load
from tests.guest import roce
from tests.lab.frames import (A, A6, B, B6, BEGIN, QP_B, US, answer, block, conversation, enhanced, ethernet,
                              every_opcode, everything, interface, one_talk, option, pcap, request, section)
from tests.lab.test_command import ferroce


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
            for length in range(0, len(contents), 3 if len(contents) < 1000 else 17):
                with contextlib.suppress(NotReadable):
                    everything(contents[:length])

    def test_snapped_anywhere(self):
        """Frames may be cut at any length: what is in them is shown as far as it was captured."""
        for number, packet in enumerate((*every_opcode(), roce.packet(A6, B6, QP_B, 1))):
            for keep in range(number % 3, len(packet) + 14, 3):
                with contextlib.suppress(NotReadable):
                    everything(pcap([(BEGIN, ethernet(packet), keep)]))

    def test_random(self):
        """Neither noise nor damage to a capture is an error of the program's."""
        draw = random.Random(37)
        for magic in (b"", b"\xd4\xc3\xb2\xa1", b"\xa1\xb2\x3c\x4d", section(), section() + interface()):
            for _ in range(60):
                with contextlib.suppress(NotReadable):
                    everything(magic + draw.randbytes(draw.randrange(400)))
        whole = conversation()
        for _ in range(200):
            damaged = bytearray(whole)
            for _ in range(draw.randrange(1, 30)):
                damaged[draw.randrange(24, len(damaged))] = draw.randrange(256)
            with contextlib.suppress(NotReadable):
                everything(bytes(damaged))
        # Frames of noise behind good addresses and ports.
        for _ in range(100):
            noise = ethernet(request(1))[:42] + draw.randbytes(draw.randrange(80))
            with contextlib.suppress(NotReadable):
                everything(pcap([(BEGIN, noise)] * 3))


class Folder(unittest.TestCase):
    """What a run leaves in a folder takes the place of what an earlier one has left, and of nothing else."""

    def test_of_an_earlier_run(self):
        with tempfile.TemporaryDirectory() as folder:
            for name in ("@here.pcap", "left.pcap", "events.txt", "notes.txt"):
                Path(folder, name).touch()
            record.clear(folder)
            self.assertEqual(os.listdir(folder), ["notes.txt"])
            record.clear(f"{folder}/new")
            self.assertTrue(os.path.isdir(f"{folder}/new"))

    def test_of_somebody_else(self):
        for names in (["events.txt"], ["events.txt", "mine.pcap"]):
            with tempfile.TemporaryDirectory() as folder:
                for name in names:
                    Path(folder, name).touch()
                with self.assertRaisesRegex(NotReadable, f"holds files of somebody else, such as {names[-1]}"):
                    record.clear(folder)
                self.assertEqual(sorted(os.listdir(folder)), names)


class Terminal(unittest.TestCase):
    """What somebody else has named is no order to the terminal."""

    def test_names(self):
        with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()) as said:
            path = Path(folder, "a\x1b[2J\x9b.pcap")
            path.write_bytes(conversation())
            ferroce.main(["trace", "show", str(path)])
        self.assertTrue(said.getvalue().startswith("a?[2J?.pcap: "), said.getvalue())
        self.assertNotRegex(said.getvalue(), "[\x1b\x9b]")


class Wire(unittest.TestCase):
    """One run with --wire at a time."""

    def test_another_waits(self):
        with tempfile.TemporaryDirectory() as folder, mock.patch.object(record, "LOCK", f"{folder}/lock"), \
                mock.patch.object(record, "LOCAL_PATH", f"{folder}/local_path"):
            path = Path(folder, "local_path")
            path.write_text("1", encoding="ascii")
            first = contextlib.ExitStack()
            first.enter_context(record.by_the_wire())
            self.assertEqual(path.read_text(encoding="ascii"), "0")
            # The first one ends when the second one says that it waits.
            with mock.patch("builtins.print", side_effect=lambda *_, **__: first.close()) as said, record.by_the_wire():
                self.assertIn("waiting for another run with --wire", said.call_args.args[0])
                self.assertEqual(path.read_text(encoding="ascii"), "0")
            self.assertEqual(path.read_text(encoding="ascii"), "1")


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
