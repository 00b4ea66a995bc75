# SPDX-License-Identifier: GPL-2.0
"""`ferroce trace show`: what packets mean beside each other, also where they were captured twice or lost."""

import heapq
import random
import struct
import unittest
from collections import Counter

from command.trace.data import data
from command.trace.trace import load
from tests.guest import roce
from tests.lab.frames import (A, B, BEGIN, CONNECT, NAK_ACCESS, NAK_SEQUENCE, QP_A, QP_B, RKEY, RNR_640, US, answer,
                              cm, enhanced, ethernet, interface, one_talk, pcap, request, section, shown)


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

    def test_report_of_missing_packets(self):
        ahead = [(at, request(at, at and 1, bytes(1024))) for at in range(5)]
        # Two of them are missing, and what is between and behind them is kept.
        kept = struct.pack("<Q", 0b1010)
        talk = one_talk([*ahead, (30, answer(1, NAK_SEQUENCE, roce.MISSING, kept)), (5060, request(1, 1, bytes(1024))),
                         (5061, request(3, 1, bytes(1024))), (5090, answer(4))])
        self.assertEqual([row["fate"] for row in talk["rows"]], ["", "lost", "", "lost", "", "", "", "", ""])
        self.assertEqual([row["cause"] for row in talk["rows"][6:8]], ["report of missing packets"] * 2)
        left = talk["requests"]["left"]
        self.assertEqual((left["retransmitted"], left["lost"], left["reports"], left["sequence_naks"]), (2, 2, 1, 0))
        self.assertIn("2 packets were retransmitted", talk["findings"][0])
        self.assertIn("after 1 report of missing packets: lost on the way to 192.0.2.2", talk["findings"][0])
        self.assertEqual(talk["rows"][5]["label"], "PSN 1 is missing, others behind it are kept")

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
        for seed in range(50):
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
        self.assertGreater(min(sums["sequence NAK"], sums["timeout"]), 30, sums)
