# SPDX-License-Identifier: GPL-2.0
"""`ferroce trace show` of recorded events: the ladder holds each of them once, at its end, also beside captures."""

import contextlib
import ctypes
import json
import random
import re
import unittest
from collections import Counter
from pathlib import Path

from command.trace import elf, mermaid, opcodes, page, text, why
from command.trace.capture import NotReadable
from command.trace.data import data
from command.trace.events import parse
from command.trace.half import DROPPED, LOST
from command.trace.trace import load
from command.trace.view import mask
from tests.guest import roce
from tests.lab import rules, test_why
from tests.lab.config import CHECKOUT
from tests.lab.frames import A, B, ethernet, pcap

FOLDER = CHECKOUT / "tests/lab/traces"
# Events that are shown wherever they stand; others may be of no interest, or are packets.
ALWAYS = ("qp", "qp_state", "taken", "complete", "recover", "unsent", "key", "async_event", "offload", "cq_event")
# The header of a SEND Only.
BTH = "04" + "00ffff" + "00000022" + "00000005"
LEGS = re.compile(r"^in [\d.]+ (?:us|ms): taken \+\d+, first packet \+\d+.*completed \+\d+ us$")


def recorded(name):
    return (FOLDER / f"{name}.txt").read_text(encoding="utf-8")


def ladder(*texts):
    return load([(f"{number}.txt", one.encode()) for number, one in enumerate(texts)])


def packets(events, name):
    """How often each packet is in events of a kind."""
    return Counter((event["dqpn"], int(event["head"][:2], 16), event.number("psn")) for event in events.named(name))


def captured(events, lost):
    """What tcpdump would have seen of each packet at its sender, and at its receiver unless it is lost."""
    ends, sender, receiver = {}, [], []
    for event in events.named("tx"):
        ends.setdefault(event.qpn, A if not ends else B)
    for event, gone in zip(events.named("tx"), lost, strict=True):
        src = ends[event.qpn]
        head = bytes.fromhex(event["head"])
        whole = roce.packet(src, B if src == A else A, event.number("dqpn"), 0, bytes(event.number("len")), head[0], head[12:])
        frame = ethernet(whole[:28] + head[:12] + whole[40:-4] + roce.icrc(whole[:20], whole[20:28], head[:12] + whole[40:-4]))
        at = round(event.at * 1000) + events.ahead + 3000
        sender.append((at, frame))
        if not gone:
            receiver.append((at + 2000, frame))
    return pcap(sender, magic=0xa1b23c4d), pcap(receiver, magic=0xa1b23c4d)


class Whole(unittest.TestCase):
    """Each event is in the picture."""

    def judge(self, name):
        """Returns the only conversation of a recording."""
        trace, events = ladder(recorded(name)), parse(recorded(name))
        talk, = trace.talks
        seen = Counter(mark.event.name for mark in talk.marks)
        self.assertEqual({kind: seen[kind] for kind in ALWAYS}, {kind: len(list(events.named(kind))) for kind in ALWAYS})
        # A call is one mark, or two where something was seen within it.
        called = sum(1 for _ in events.named("verb_done"))
        self.assertTrue(called <= seen["verb"] + seen["verb_done"] and seen["verb"] == called, seen)
        for mark in talk.marks:
            end = talk.pair.right if mark.rightward else talk.pair.left
            if mark.event.qpn:
                self.assertEqual(int(mark.event.qpn, 0), end.qpn, mark)
        times = [one.at for one in talk.items()]
        self.assertEqual((times, [one.number for one in talk.items()]), (sorted(times), list(range(len(times)))))
        self.assertEqual(trace.events, len(events.all))
        return trace, events, talk

    def test_local_path(self):
        trace, _, talk = self.judge("local")
        self.assertEqual((trace.packets, trace.handed, trace.frames), (0, 4, 0))
        self.assertIn("0 packets of RoCE v2, 4 handed over in memory", trace.headline())
        self.assertEqual([(one.packet.length, one.packet.span) for one in talk.sent if one.packet.length], [(2500, 3)] * 2)
        self.assertTrue(all(message.answer and message.operation == "SEND" for side in talk.sides for message in side.messages))
        done = [mark for mark in talk.marks if mark.event.name == "complete"]
        self.assertEqual(Counter((mark.event["opcode"], bool(LEGS.match(mark.remark))) for mark in done),
                         {("SEND", True): 2, ("RECV", False): 2})
        # What a call does is within it: the states within modify_qp, the queue pairs within create_qp.
        self.assertEqual({mark.depth for mark in talk.marks if mark.event.name in ("qp", "qp_state", "taken")}, {1})
        drawn = text.draw(trace)
        self.assertEqual(len(re.findall(r"SEND PSN \d+ to \d+, 2500 B in memory +(?:=+>|<=+)", drawn)), 2)
        self.assertEqual(len(re.findall("CQ \\d+: event delivered", drawn)), len([1 for mark in talk.marks if mark.event["what"] == "DELIVERED"]))

    def test_lost_packets_are_those_that_never_arrived(self):
        trace, events, talk = self.judge("lossy")
        lost = packets(events, "tx") - packets(events, "rx")
        self.assertTrue(lost)
        self.assertEqual(Counter((f"{one.packet.dqpn:#x}", one.packet.opcode, one.packet.psn) for one in talk.sent if one.fate == LOST),
                         lost)
        late = sum(1 for _ in events.named("request", outcome="OUT_OF_SEQUENCE"))
        self.assertEqual(sum(one.fate == DROPPED for one in talk.sent), late)
        arrived = [one for one in talk.sent if one.fate != LOST]
        self.assertTrue(arrived and all(one.way > 0 for one in arrived))
        self.assertEqual(sum("there in" in line for line in text.draw(trace, False).splitlines()), len(arrived))

    def test_beside_captures(self):
        """The packets of captures and of events are the same ones, of which each knows what the other does not."""
        events = parse(recorded("lossy"))
        alone = data(ladder(recorded("lossy")), False)["conversations"][0]
        left, right = captured(events, [row["fate"] == LOST for row in alone["rows"] if row["kind"] == "packet"])
        for ahead in (True, False):
            told = recorded("lossy") if ahead else re.sub("# the clock.*\n", "", recorded("lossy"))
            both = data(load([("left.pcap", left), ("right.pcap", right), ("events.txt", told.encode())]), False)
            talk, = both["conversations"]
            self.assertEqual(both["packets"], len(list(events.named("tx"))))
            self.assertEqual((talk["left"]["address"], talk["right"]["address"]), (A, B))
            self.assertEqual([(row["kind"], row["label"], row.get("fate")) for row in talk["rows"]],
                             [(row["kind"], row["label"], row.get("fate")) for row in alone["rows"]])
            drawn = [row for row in talk["rows"] if row["kind"] == "packet"]
            self.assertEqual({(row["icrc"], len(row["seen"])) for row in drawn if row["fate"] != LOST}, {("good", 4)})
            self.assertEqual({len(row["seen"]) for row in drawn if row["fate"] == LOST}, {2})

    def test_two_texts_are_one_run(self):
        lines = recorded("lossy").splitlines(keepends=True)
        halves = "".join(lines[:60]), "".join(lines[60:])
        self.assertEqual(text.draw(ladder(*halves)).split("\n")[1:], text.draw(ladder("".join(lines))).split("\n")[1:])


class Said(unittest.TestCase):
    """What is said of events stands beside them."""

    def of(self, *lines):
        return ladder("\n".join(lines) + "\n")

    def test_why_beside_its_event(self):
        trace = self.of(test_why.taken(0), test_why.sent(1, head=BTH), test_why.met(3, "RNR_NAK", 3), test_why.ended(4, "RNR_RETRY_EXC_ERR"))
        talk, = trace.talks
        mark, = (mark for mark in talk.marks if mark.why)
        self.assertEqual((mark.event.name, mark.bad, trace.notes), ("complete", True, [mark.why]))
        for drawn in (text.draw(trace), page.draw(trace, False), mermaid.draw(trace), json.dumps(data(trace, False))):
            self.assertIn("Post receives before the peer sends", drawn)

    def test_a_queue_pair_that_has_sent_nothing(self):
        trace = self.of(test_why.line(0, "qp", qpn="0x9", type="RC", dev="fe0", send_cq=1, recv_cq=1),
                        test_why.ended(4, "LOC_PROT_ERR", "0x9"))
        talk, = trace.talks
        self.assertEqual((str(talk.pair.left), str(talk.pair.right), talk.sent), ("fe0 QP 0x9", "nobody", []))
        self.assertIn("CQE: wr 7 SEND LOC_PROT_ERR", text.draw(trace))

    def test_calls_of_a_program_without_queue_pairs(self):
        trace = self.of(test_why.line(0, "verb", op="alloc_pd", dev="fe0"), test_why.line(0.004, "verb_done", op="alloc_pd", ret=-12))
        self.assertIn("alloc_pd fe0: ENOMEM, 4 us", text.draw(trace))
        self.assertEqual(str(trace.talks[0].pair.left), "prog-88")

    def test_a_drop_is_at_its_arrow(self):
        trace = self.of(test_why.sent(1, head=BTH), test_why.line(2, "drop", dqpn=test_why.B, opcode="RC_SEND_ONLY", psn=5,
                                                                   reason="drop_unknown_qp", head=BTH))
        talk, = trace.talks
        self.assertEqual([(one.told, one.fate) for one in talk.sent], [({"reason": "drop_unknown_qp"}, "")])
        self.assertRegex(text.draw(trace), r"SEND Only PSN 5, 0 B +-+>\|  there in 1 ms; dropped there: drop_unknown_qp")

    def test_lost_events(self):
        trace = self.of(test_why.sent(1, head=BTH), "CPU:1 [LOST 4 EVENTS]")
        self.assertIn("note: 4 events had no room in the buffer: what is said may be wrong", text.draw(trace))

    def test_keys(self):
        head = test_why.RETH.format(0x1a2b3c4d)
        lines = [test_why.key(0, 0x1a2b3c4d), test_why.taken(1, opcode="WRITE"), test_why.sent(2, "RC_WRITE_ONLY", head),
                 test_why.ended(5, "REM_ACCESS_ERR", opcode="RDMA_WRITE")]
        trace = self.of(*lines)
        self.assertIn("1a2b3c4d", text.draw(trace))
        self.assertIn("0x1a2b3c4d", page.draw(trace, True))
        mask(trace)
        for drawn in (text.draw(trace), page.draw(trace, False), mermaid.draw(trace), json.dumps(data(trace, False))):
            self.assertNotIn("1a2b3c4d", drawn)
            self.assertIn("R_Key (masked)", drawn)


class Calls(unittest.TestCase):
    """Calls of the libraries, as uprobes tell of them."""

    @staticmethod
    def call(at, text):
        return f"  prog-88      [000] DNZff {at / 1000:12.6f}: {text}"

    def test_a_nest(self):
        begun = [self.call(0, "ferroce_call__ibv_create_qp: (0x7f10)"), self.call(0.01, "ferroce_call__ibv_cmd_create_qp: (0x7f20)"),
                 self.call(0.02, "ferroce_call__execute_ioctl: (0x7f30)"), test_why.line(0.03, "verb", op="create_qp", dev="fe0"),
                 test_why.line(0.04, "qp", qpn="0x11", type="RC", dev="fe0", send_cq=1, recv_cq=1)]
        ended = [test_why.line(0.05, "verb_done", op="create_qp", ret=0), self.call(0.06, "ferroce_return__execute_ioctl: (0x7f20 <- 0x7f30) ret=0x0"),
                 self.call(0.07, "ferroce_return__ibv_cmd_create_qp: (0x7f10 <- 0x7f20) ret=0x0"),
                 self.call(0.08, "ferroce_return__ibv_create_qp: (0x7f00 <- 0x7f10) ret=0x5600")]
        talk, = ladder("\n".join(begun + ended)).talks
        self.assertEqual([(mark.depth, mark.label) for mark in talk.items()], [
            (0, "ibv_create_qp() begins"), (1, "ibv_cmd_create_qp() begins"), (2, "execute_ioctl() begins"), (3, "create_qp fe0 begins"),
            (4, "QP 0x11, RC:  send,  receive WQEs; CQs 1, 1"), (3, "create_qp returns 0, 20 us"), (2, "execute_ioctl returns 0, 40 us"),
            (1, "ibv_cmd_create_qp returns 0, 60 us"), (0, "ibv_create_qp returns done, 80 us")])

    def test_what_fails(self):
        for name, ret, words in (("ibv_create_qp", "0x0", "NULL"), ("ibv_modify_qp", "0x16", "EINVAL"),
                                 ("rdma_bind_addr", "0xffffffff", "-1"), ("rdma_bind_addr", "0xffffffffffffffff", "-1")):
            talk, = ladder("\n".join([self.call(0, f"ferroce_call__{name}: (0x7f10)"),
                                      self.call(0.01, f"ferroce_return__{name}: (0x1 <- 0x7f10) ret={ret}")])).talks
            mark, = talk.marks
            self.assertEqual((mark.label, mark.bad), (f"{name}(): {words}, 10 us", True))

    def test_a_return_that_nobody_has_seen(self):
        talk, = ladder("\n".join([self.call(0, "ferroce_call__rdma_create_qp: (0x1)"), self.call(0.01, "ferroce_call__ibv_create_qp: (0x2)"),
                                  self.call(0.02, "ferroce_return__rdma_create_qp: (0x3 <- 0x1) ret=0x0"),
                                  self.call(0.03, "ferroce_call__rdma_destroy_qp: (0x1)")])).talks
        self.assertEqual([mark.depth for mark in talk.items()], [0, 1, 0, 0])

    def test_a_name_that_is_known_later(self):
        """trace_pipe names a thread <...> until the kernel knows its name."""
        begun, ended = self.call(0, "ferroce_call__ibv_alloc_pd: (0x1)"), self.call(0.01, "ferroce_return__ibv_alloc_pd: (0x3 <- 0x1) ret=0x5")
        talk, = ladder("\n".join([begun.replace("prog", "<...>"), ended])).talks
        self.assertEqual([mark.label for mark in talk.marks], ["ibv_alloc_pd(): done, 10 us"])

    def test_where_functions_are(self):
        """The offsets of this Python's own libraries are those that it has loaded them at."""
        held = [line.split() for line in Path("/proc/self/maps").read_text(encoding="ascii").splitlines()]
        path = next(one[-1] for one in held if "/libc.so" in one[-1])
        maps = [one for one in held if one[-1] == path]
        known = elf.functions(Path(path).read_bytes())
        libc = ctypes.CDLL(path)
        for name in ("getpid", "ioctl", "strtoul", "qsort"):
            address = ctypes.cast(getattr(libc, name), ctypes.c_void_p).value
            begin, offset = next((int(one[0].split("-")[0], 16), int(one[2], 16)) for one in maps
                                 if int(one[0].split("-")[0], 16) <= address < int(one[0].split("-")[1], 16))
            self.assertEqual(known[name], address - begin + offset, name)
        self.assertEqual(elf.functions(b"#!/bin/sh"), {})

    def test_probes_of_the_provider(self):
        """A request from where it was posted to where its completion was polled, and what has no queue pair of its own."""
        lines = [test_why.line(0, "qp", qpn="0x11", type="RC", dev="fe0", send_cq=1, recv_cq=1)]
        lines += [self.call(n / 100, f"ferroce_user_post_recv: (0x7f10) qpn=0x11 wr_id=0x{n} index={n}") for n in range(3)]
        lines += [self.call(1, "ferroce_user_arm: (0x7f10) cq=4 solicited=1"),
                  self.call(2, "ferroce_user_post_send: (0x7f10) qpn=0x11 wr_id=0x7 opcode=2 index=9"),
                  self.call(2.002, "ferroce_user_doorbell: (0x7f10) qpn=0x11 queue=0"),
                  test_why.line(2.005, "doorbell", qpn="0x11", producer=10, taken=9, by="INLINE"),
                  test_why.line(2.006, "taken", qpn="0x11", index=9, slot=1, wr_id="0x7", opcode="SEND", len=64, status="SUCCESS"),
                  test_why.ended(2.05, "SUCCESS"), self.call(2.06, "ferroce_user_polled: (0x7f10) qpn=0x11 wr_id=0x7 status=0 cq=4"),
                  test_why.ended(2.07, "WR_FLUSH_ERR"), self.call(2.1, "ferroce_user_polled: (0x7f10) qpn=0x11 wr_id=0x7 status=5 cq=4"),
                  self.call(3, "ferroce_user_arm: (0x7f10) cq=4 solicited=0"),
                  self.call(4, "ferroce_user_post_srq_recv: (0x7f10) srq=6 wr_id=0x1 index=0")]
        drawn = ladder("\n".join(lines))
        marks = [(mark.label, mark.remark, mark.bad) for talk in drawn.talks for mark in talk.items()]
        self.assertEqual([one for one in marks if not one[0].startswith("QP")], [
            ("3 receives posted, the last one wr 2, WQE 2", "", False), ("CQ armed for the next solicited completion", "", False),
            ("SEND posted: wr 7, WQE 9", "", False), ("doorbell of the send queue", "", False),
            ("doorbell for 1 WQE: the caller sends", "", False), ("WQE 9: wr 7 SEND 64 B", "", False),
            ("CQE: wr 7 SEND SUCCESS, 0 B", "in 50 us: doorbell +5, taken +1, completed +44 us", False),
            ("polled: wr 7 SUCCESS", "10 us after its CQE", False), ("CQE: wr 7 SEND WR_FLUSH_ERR, 0 B", "", True),
            ("polled: wr 7 WR_FLUSH_ERR", "30 us after its CQE", True), ("CQ armed for the next completion", "", False),
            ("receive of SRQ 6 posted: wr 1, WQE 0", "", False)])
        self.assertEqual(len(drawn.talks), 1)

    def test_arguments_of_probes(self):
        self.assertEqual(elf.probes(b"#!/bin/sh"), [])
        for argument, wanted in (("4@52(%rdi)", "+52(%di):x32"), ("8@(%r12)", "+0(%r12):x64"), ("8@-8(%rbp)", "-8(%bp):x64"),
                                 ("4@%eax", "%ax:x32"), ("-4@%r9d", "%r9:x32"), ("8@%rsi", "%si:x64"), ("-4@$-1", "\\-1:x32"),
                                 ("4@w3", "%x3:x32"), ("8@x0", "%x0:x64"), ("4@[x21, 52]", "+52(%x21):x32"), ("8@[x2]", "+0(%x2):x64"),
                                 ("4@name(%rip)", None), ("8@8(%rax,%rbx,4)", None)):
            self.assertEqual(elf.fetch(argument, "x"), wanted, argument)

    def test_a_kernel_without_uprobes(self):
        trace = ladder("# note: this kernel has no uprobes\n" + recorded("local"))
        self.assertIn("note: this kernel has no uprobes", text.draw(trace))


class Damaged(unittest.TestCase):
    """Text that was cut off or is not quite text of events is no error of the program's."""

    def everything(self, told):
        with contextlib.suppress(NotReadable):
            why.draw(parse(told))
        with contextlib.suppress(NotReadable):
            trace = ladder(told)
            text.draw(trace)
            data(trace, False)

    def test_cut(self):
        whole = recorded("local")
        for length in range(0, len(whole), 97):
            self.everything(whole[:length])

    def test_words(self):
        """Those of an event that are missing, or no numbers."""
        draw = random.Random(4791)
        for lines in (recorded(name).splitlines() for name in ("local", "lossy") for _ in range(30)):
            for _ in range(4):
                number = draw.randrange(len(lines))
                words = lines[number].split(" ")
                at = draw.randrange(len(words))
                words[at:at + 1] = [word + draw.choice(("=", "=?", "=0x")) for word in words[at].split("=")[:draw.randrange(2)]]
                lines[number] = " ".join(words)
            self.everything("\n".join(lines))

    def test_what_is_said(self):
        with self.assertRaisesRegex(NotReadable, "event tx at 0.001000 has no dqpn that can be read: its line is damaged"):
            ladder(test_why.line(1, "tx", qpn="0x11", head=BTH))


class Forms(unittest.TestCase):
    """All pictures have all of it."""

    def test_mermaid(self):
        trace = ladder(recorded("local"))
        talk, = trace.talks
        self.assertEqual(len(re.findall("^    Note (?:left of A|right of B): [-\\d.]+ us ", mermaid.draw(trace), re.M)), len(talk.marks))

    def test_names_of_opcodes(self):
        """What the module's events call an opcode is known, and its number."""
        header = (CHECKOUT / "rust/sys/ferroce_trace_names.h").read_text(encoding="utf-8")
        found = re.findall(r'\{ (0x[0-9a-f]+), "((?:RC|UC|UD|CONGESTION)_\w+)" \}', header)
        known = {name: int(number, 0) for number, name in found if "RESERVED" not in name}
        self.assertGreater(len(known), 30)
        self.assertEqual({name: opcodes.of_trace(name) for name in known}, known)

    def test_count(self):
        """Users are told of as many trace events as there are."""
        self.assertIn(f"{len(rules.event_fields(rules.read(rules.EVENTS)))} trace events", rules.read("README.md"))
