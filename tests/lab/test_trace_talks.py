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


FIRST = [(0, request(0, 0, bytes(1024))), (1, request(1, 1, bytes(1024))), (2, request(2, 2, bytes(452)))]
AHEAD = [(at, request(at, at and 1, bytes(1024))) for at in range(5)]
# A READ and its responses; from the second one on it is asked for again.
READ, AGAIN = request(7, 0x0c, b"", roce.reth(0, RKEY, 3000)), request(8, 0x0c, b"", roce.reth(1024, RKEY, 1976))
RESPONSES = [answer(7, 0x1f, 0x0d, bytes(1024)), answer(8, 0x1f, 0x0e, bytes(1024)), answer(9, 0x1f, 0x0f, bytes(952))]
ANEW = answer(8, 0x1f, 0x0d, bytes(1024))


def behind(at, packets):
    """The same packets again, from this time on."""
    return [(at + n, packet) for n, (_, packet) in enumerate(packets)]


# Packets, and what is found of them. As they are: `fates` (for each row x where it is lost, d for dropped, l for late), `done` (when each
# message was), its `psns`, `again` (how often each was sent again), `says` (all findings). Some values: of the requests of the
# `left`, and of the `talk`. Words of rows by their number (`cause`, `label`, `remark`), and of findings.
JOINED = (
    ([*FIRST, (30, answer(1, NAK_SEQUENCE)), *behind(35, FIRST[1:]), (70, answer(2))], {
        "fates": ".xd....", "cause": [(4, "sequence NAK"), (5, "sequence NAK")], "again": [2],
        "left": {"retransmitted": 2, "lost": 1, "sequence_naks": 1, "causes": {"sequence NAK": 2}},
        "finding": [(0, "2 packets were retransmitted"), (0, "1 packet was lost on the way to 192.0.2.2")]}),
    # A report: two of them are missing, and what is between and behind them is kept.
    ([*AHEAD, (30, answer(1, NAK_SEQUENCE, roce.MISSING, struct.pack("<Q", 0b1010))), (5060, request(1, 1, bytes(1024))),
      (5061, request(3, 1, bytes(1024))), (5090, answer(4))], {
        "fates": ".x.x.....", "cause": [(6, "report of missing packets"), (7, "report of missing packets")],
        "left": {"retransmitted": 2, "lost": 2, "reports": 1, "sequence_naks": 0},
        "finding": [(0, "2 packets were retransmitted"), (0, "after 1 report of missing packets: lost on the way to 192.0.2.2")],
        "label": [(5, "PSN 1 is missing, others behind it are kept")]}),
    ([*FIRST, *behind(67_002, FIRST), (67_050, answer(2))], {
        "left": {"causes": {"timeout": 3}},
        "finding": [(0, "3 packets were retransmitted by 192.0.2.1 QP 0x11 after a timeout of ~67 ms, 1 time: "
                        "the packet or its ACK was lost, or the peer is slow")]}),
    # The answer had passed: it is the way of the answer that loses.
    ([(0, request(0)), (40, answer(0)), (67_000, request(0)), (67_040, answer(0))], {
        "finding": [(1, "though the answer had passed here")], "remark": [(2, "had been answered already")]}),
    ([(0, request(0)), (20, answer(0, RNR_640)), (720, request(0)), (750, answer(0))], {
        "left": {"rnr_naks": 1, "causes": {"RNR NAK": 1}}, "label": [(1, "RNR NAK, wait 640 us, PSN 0")],
        "says": ["1 RNR NAK from 192.0.2.2 QP 0x22: no receive was posted in time; it asked for 640 us, and 192.0.2.1 waited 700 us"]}),
    # Packets that are on their way when the RNR NAK comes are dropped, and that costs no timeout.
    ([*FIRST, (20, answer(0, RNR_640)), (30, answer(0, NAK_SEQUENCE)), *behind(700, FIRST), (720, answer(0, RNR_640)),
      *behind(1500, FIRST), (1550, answer(2))], {"left": {"causes": {"RNR NAK": 6}, "lost": 0}, "fates": ".dd...dd....."}),
    # A READ uses a PSN for each response, and is asked for again from the response that is missing.
    ([(0, READ), (30, RESPONSES[0]), (31, RESPONSES[2]), (40, AGAIN), (70, ANEW), (71, RESPONSES[2]), (90, request(10)),
      (130, answer(10))], {
        "left": {"messages": 2, "length": 3064, "causes": {"missing READ response": 1}}, "done": [71, 130],
        "remark": [(2, "PSN 8 is missing before it")]}),
    # The responder's end does not see which response is missing: what is asked for again tells it.
    ([(0, READ), *((5 + n, one) for n, one in enumerate(RESPONSES)), (40, AGAIN), (45, ANEW), (46, RESPONSES[2])], {
        "left": {"causes": {"missing READ response": 1}, "answered_again": 2}}),
    ([(0, request(0)), (3, request(0)), (50, answer(0))], {"left": {"retransmitted": 0, "duplicates": 1}}),
    ([(0, request(0)), (1, request(2)), (2, request(1)), (50, answer(2))], {
        "left": {"retransmitted": 0, "late": 1, "never_seen": 0}, "fates": "..l."}),
    # What is seen for the first time when it is sent again was lost before it came here.
    ([(0, request(0)), (1, request(2)), (20, answer(1, NAK_SEQUENCE)), (30, request(1)), (31, request(2)), (60, answer(2))], {
        "left": {"causes": {"sequence NAK": 2}}, "remark": [(3, "its first transmission was not seen here")],
        "finding": [(0, "packets were lost before they came here")]}),
    ([(0, request(0)), (1, request(2)), (5000, request(1)), (5001, request(2)), (5060, answer(2))], {
        "left": {"causes": {"timeout": 2}}}),
    ([(0, request(0)), (10, answer(0)), (20, request(1)), (21, request(2))], {
        "says": ["2 packets of 192.0.2.1 QP 0x11 (PSN 1 to 2) had no answer when the capture ended"]}),
    ([(0, request(0)), (10, answer(0)), *((20 + 67_000 * n, request(1)) for n in range(8))], {
        "finding": [(-1, "PSN 1 left 192.0.2.1 QP 0x11 8 times in 469 ms and was never answered")]}),
    ([(0, request(0, 0x0a, bytes(64), roce.reth(0, RKEY, 64))), (10, answer(0, NAK_ACCESS))], {
        "says": ["192.0.2.2 QP 0x22 has refused PSN 0: remote access error; the request fails, and the queue pair goes to ERR"]}),
    # PSNs wrap.
    ([(0, request(0xfffffe, 0, bytes(1024))), (1, request(0xffffff, 1, bytes(1024))), (2, request(0, 2, bytes(8))), (40, answer(0)),
      (50, request(1)), (90, answer(1))], {"done": [40, 90], "psns": [(0xfffffe, 0), (1, 1)]}),
    ([(0, request(0, 0x24)), (1, request(2, 0x24)), (2, roce.packet(B, A, QP_A, 9, b"", 0x24))], {
        "talk": {"service": "UC", "known": "a guess: no other is left"}, "left": {"never_seen": 1, "unanswered": 0}}),
    ([(0, request(0))], {
        "talk": {"left": {"address": A, "qpn": None}, "known": "one direction only"},
        "finding": [(-1, "no packet of 192.0.2.2 was captured")]}),
    ([(0, request(0)), (10, answer(0)), (20, roce.packet(B, A, QP_A, 0, b"", 0x81, bytes(16)))], {
        "label": [(2, "CNP: congestion")], "to": [(2, "left")], "finding": [(-1, "1 CNP came")]}),
    ([(0, request(0)), (10, answer(0)), (1000, request(0x500000)), (1010, answer(0x500000))], {
        "remark": [(2, "another connection")], "left": {"never_seen": 0, "retransmitted": 0}}),
)


class Joining(unittest.TestCase):
    """What packets mean beside each other."""

    def test_joined(self):
        for packets, wanted in JOINED:
            with self.subTest(**wanted):
                talk = one_talk(packets)
                rows, messages, findings = talk["rows"], talk["messages"], talk["findings"]
                whole = {"fates": "".join({"": ".", "lost": "x"}.get(row["fate"], row["fate"][:1]) for row in rows), "says": findings,
                         "done": [message["done"] for message in messages],
                         "psns": [(message["first_psn"], message["last_psn"]) for message in messages],
                         "again": [message["retransmitted"] for message in messages]}
                self.assertEqual({what: whole[what] for what in wanted.keys() & whole.keys()},
                                 {what: wanted[what] for what in wanted.keys() & whole.keys()})
                for what, held in (("left", talk["requests"]["left"]), ("talk", talk)):
                    self.assertEqual({name: held[name] for name in wanted.get(what, ())}, wanted.get(what, {}))
                for what in ("cause", "label", "remark", "to"):
                    for number, words in wanted.get(what, ()):
                        self.assertIn(words, rows[number][what])
                for number, words in wanted.get("finding", ()):
                    self.assertIn(words, findings[number])

    def test_a_message(self):
        talk = one_talk([*FIRST, (50, answer(2, msn=1)), (60, request(3)), (99, answer(3, msn=2))])
        self.assertEqual((talk["left"], talk["right"]), ({"address": A, "qpn": QP_A}, {"address": B, "qpn": QP_B}))
        self.assertEqual((talk["known"], talk["mtu"]), ("by acknowledgements", 1024))
        self.assertEqual([(m["operation"], m["first_psn"], m["last_psn"], m["length"], m["begun"], m["done"]) for m in talk["messages"]],
                         [("SEND", 0, 2, 2500, 0, 50), ("SEND", 3, 3, 64, 60, 99)])
        left = talk["requests"]["left"]
        self.assertEqual((left["retransmitted"], left["round_trip"], left["per_ack"], left["most_per_ack"]), (0, 43.5, 2, 3))
        self.assertEqual(talk["findings"], [])
        self.assertIn("for 3 packets; completes SEND of 2500 B in 50 us", talk["rows"][3]["remark"])

    def test_atomic(self):
        extension = struct.pack("!QIQQ", 0x1000, RKEY, 1, 0)
        talk = one_talk([(0, request(0, 0x14, b"", extension)), (20, roce.packet(B, A, QP_A, 0, b"", 0x12, struct.pack("!IQ", 1, 41)))])
        self.assertEqual([(m["operation"], m["length"], m["done"]) for m in talk["messages"]], [("FETCH_AND_ADD", 8, 20)])
        self.assertEqual(talk["rows"][1]["headers"], [["AETH", {"syndrome": 0, "msn": 1, "meaning": "ACK"}],
                                                      ["AtomicAckETH", {"original": 41}]])

    def test_pairs(self):
        """Each queue pair with its peer, by the PSNs that are answered."""
        packets = []
        for n in range(3):
            for psn in range(2):
                at = 100 * psn + n
                packets += [(at, roce.packet(A, B, 0x20 + n, 1000 * n + psn)),
                            (at + 10, roce.packet(B, A, 0x12 - n, 1000 * n + psn, b"", 0x11, roce.aeth(0x1f)))]
        talks = shown(packets)["conversations"]
        self.assertEqual([(talk["left"]["qpn"], talk["right"]["qpn"]) for talk in talks], [(0x12, 0x20), (0x11, 0x21), (0x10, 0x22)])


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
    # Of each hundred packets.
    LOSS = 8

    def __init__(self, seed):
        self.draw = random.Random(seed)
        self.psn = self.draw.randrange(1 << 24)
        # Of each packet: opcode and payload.
        self.packets = []
        for _ in range(12):
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
        if len(near) > 6 and self.draw.randrange(100) < self.LOSS:
            self.lost[bytes(packet)] += 1
            return
        far.append((self.now + self.WAY, packet))
        self.after(self.WAY, what, value)

    def go(self):
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
        self.stamp += 1
        self.after(self.TIMEOUT, "expire", self.stamp)

    def expire(self, stamp):
        """The timer: nothing has happened since it was started."""
        if stamp == self.stamp:
            self.back(self.una)

    def back(self, number):
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
        self.passes(answer(self.psn + number & 0xffffff, syndrome), self.right, self.left, "told", (number, syndrome))

    def told(self, said):
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
