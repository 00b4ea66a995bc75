# SPDX-License-Identifier: GPL-2.0
"""`ferroce trace why`: what it says of events, each rule by a run in which it must speak, and one in which it must not."""

import ast
import contextlib
import io
import os
import re
import subprocess
import sys
import unittest
from string import Formatter
from unittest import mock

from command.trace import events, sentences, why
from tests.lab.config import CHECKOUT
from tests.lab.test_command import ferroce

A, B = "0x11", "0x22"
# Numbers, and names of IBTA, of libibverbs and of the module.
NAMES = re.compile(r"\b(?:\d[\w.]*|[A-Z][A-Z_]+|[a-z]+_\w+)\b", re.ASCII)
CHINESE = re.compile("[\u4e00-\u9fff]")
RETH = "0a00ffff" + B[2:].zfill(8) + "00000005" + "0000000000001000" + "{:08x}" + "00000040"


def line(at, name, **fields):
    """An event as tracefs prints it."""
    words = " ".join(f"{key}={value}" for key, value in fields.items())
    return f"  prog-88      [000] b.... {at / 1000:12.6f}: ferroce_{name}: {words}"


def taken(at, wr_id=7, slot=0, opcode="SEND"):
    """A WQE is taken from the ring."""
    return line(at, "taken", qpn=A, index=slot, slot=slot, wr_id=hex(wr_id), opcode=opcode, len=64, status="SUCCESS")


def sent(at, opcode="RC_SEND_ONLY", head="04", slot=0):
    return line(at, "tx", qpn=A, dqpn=B, opcode=opcode, psn=5, slot=slot, head=head)


def ended(at, status, qpn=A, wr_id=7, opcode="SEND"):
    return line(at, "complete", qpn=qpn, cq=1, wr_id=hex(wr_id), status=status, opcode=opcode, byte_len=0, vendor_err="0x0")


def met(at, what, count=1):
    return line(at, "recover", qpn=A, what=what, count=count, una=5)


def key(at, number, what="REGISTER", access="0x7", done=1):
    """A key comes or goes, or should have."""
    return line(at, "key", key=hex(number), what=what, len=64, access=access, pieces=1, done=done)


def said(*lines):
    """What is said of a run. In Chinese as much is said, with the same numbers and names."""
    run = events.parse("\n".join(lines))
    english = why.reasons(run)
    for one, other in zip(english, why.reasons(run, "zh"), strict=True):
        missing = set(NAMES.findall(one)) - set(NAMES.findall(other))
        if missing or not CHINESE.search(other):
            raise AssertionError(f"{missing} of {one} is not in {other}")
    return english


class Reading(unittest.TestCase):
    def test_the_text_of_each_program(self):
        for text in (" prog-88 [000] b....     0.604000: ferroce_qp_state: qpn=0x11 from=RTS to=ERR why=USER",
                     "  rc-88    [001]   12.604000: ferroce_qp_state: qpn=0x11 from=RTS to=ERR why=USER",
                     "rc    88 [001]   12.604000: ferroce:ferroce_qp_state: qpn=0x11 from=RTS to=ERR why=USER"):
            one, = events.parse(f"# tracer: nop\n{text}\nsomething else\n").all
            self.assertEqual((one.name, one.qpn, one["to"], one["why"]), ("qp_state", "0x11", "ERR", "USER"))
        self.assertEqual(one.at, 12604000.0)

    def test_what_is_lost_makes_all_of_it_doubtful(self):
        self.assertEqual(events.parse("# entries-in-buffer/entries-written: 10/25   #P:2").lost, 15)
        found = said("CPU:1 [LOST 4 EVENTS]", sent(1), ended(2, "LOC_PROT_ERR"))
        self.assertTrue(found[0].startswith("perhaps: wr 7"))
        self.assertIn("4 events had no room", found[-1])

    def test_a_run_without_a_fault_has_no_reasons(self):
        self.assertEqual(said(sent(1), ended(2, "SUCCESS"), ended(3, "SUCCESS", B, opcode="RECV"),
                              line(4, "verb_done", op="create_qp", ret=0), line(5, "verb_done", op="poll", ret=3)), [])


class Failures(unittest.TestCase):
    def only(self, *lines):
        found = said(*lines)
        self.assertEqual(len(found), 1, found)
        return found[0]

    def test_no_receive(self):
        nak = line(2, "request", qpn=B, psn=5, opcode="RC_SEND_ONLY", outcome="NO_RECEIVE")
        one = self.only(line(0, "taken", qpn=A, index=0, slot=0, wr_id="0x7", opcode="SEND", len=64), sent(1), nak,
                        met(3, "RNR_NAK", 3), ended(4, "RNR_RETRY_EXC_ERR"))
        self.assertIn("wr 7 of QP 0x11 (SEND, 64 B) ended with RNR_RETRY_EXC_ERR: QP 0x22", one)
        self.assertIn("had no receive 3 times", one)

    def test_no_answer(self):
        lines = [sent(1), met(3, "TIMEOUT", 7), ended(9, "RETRY_EXC_ERR")]
        self.assertIn("is not on this machine, or nothing has reached it", self.only(*lines))
        # What was before this request is not of it.
        early = [met(0.1, "TIMEOUT", 9), line(0.1, "drop", dqpn=B, opcode="RC_SEND_ONLY", psn=1, reason="drop_icrc"), taken(0.5)]
        one = next(text for text in said(*early, *lines) if "RETRY_EXC_ERR" in text)
        self.assertIn("7 ACK timeouts", one)
        self.assertNotIn("drop_icrc", one)
        gone = [line(2, "drop", dqpn=B, opcode="RC_SEND_ONLY", psn=5, reason="drop_unknown_qp")] * 2
        one = self.only(*lines, *gone)
        self.assertIn("7 ACK timeouts long", one)
        self.assertIn("dropped: 2 by drop_unknown_qp: there is no such queue pair", one)
        state = line(0.5, "qp_state", qpn=B, **{"from": "RTS"}, to="ERR", why="USER")
        self.assertIn("QP 0x22 is in ERR, and takes no requests: user", self.only(state, *lines))
        one = self.only(state, *lines, line(2, "drop", dqpn=B, opcode="RC_SEND_ONLY", psn=5, reason="drop_state"))
        self.assertIn("QP 0x22 is in ERR since 8.5 ms before (user)", one)
        back = line(2, "drop", dqpn=A, opcode="RC_ACKNOWLEDGE", psn=5, reason="drop_address")
        self.assertIn("The answers came, and were dropped: 1 by drop_address", self.only(*lines, back))
        came = line(2, "rx", qpn=B, dqpn=B, opcode="RC_SEND_ONLY", psn=5)
        self.assertIn("is here and has dropped nothing", self.only(*lines, came))

    def test_no_answer_from_memory(self):
        """On the local path nothing is handed over to a queue pair that takes nothing."""
        lines = [taken(0.5), met(3, "TIMEOUT", 7), ended(9, "RETRY_EXC_ERR")]
        gone = [line(2, "drop", dqpn=B, opcode="RC_SEND_ONLY", psn=5, reason="drop_unknown_qp")] * 2
        self.assertIn("2 by drop_unknown_qp: there is no such queue pair", self.only(*lines, *gone))
        state = line(0.1, "qp_state", qpn=B, **{"from": "RTS"}, to="ERR", why="USER")
        dropped = [line(2, "drop", dqpn=B, opcode="RC_SEND_ONLY", psn=5, reason="drop_state")] * 2
        self.assertIn("2 by drop_state: the queue pair is in a state that takes no packets. QP 0x22 is in ERR since", self.only(state, *lines, *dropped))
        # Of two nobody can say which it was.
        other = line(2, "drop", dqpn="0x33", opcode="RC_SEND_ONLY", psn=5, reason="drop_state")
        self.assertEqual(len(said(*lines, *dropped, other)), 3)

    def test_psns_that_do_not_fit(self):
        lines = [taken(0.5), sent(1), met(3, "TIMEOUT", 7), ended(9, "RETRY_EXC_ERR")]
        came = line(2, "request", qpn=B, psn=5, opcode="RC_SEND_ONLY", outcome="OUTSIDE_WINDOW")
        self.assertIn("QP 0x22 has executed none (2 outside window): its rq_psn is not our sq_psn", self.only(*lines, came, came))
        done = line(2, "request", qpn=B, psn=5, opcode="RC_SEND_ONLY", outcome="EXECUTED")
        self.assertIn("its answers, were lost on the way", self.only(*lines, came, done))

    def test_no_right(self):
        request = taken(1.5, opcode="WRITE") + "\n" + sent(2, "RC_WRITE_ONLY", RETH.format(0x1234))
        end = ended(5, "REM_ACCESS_ERR", opcode="RDMA_WRITE")
        # Another request is in flight behind it, with a key that is right; and one key could not be invalidated.
        other = [taken(2.5, 8, 1, "WRITE"), sent(3, "RC_WRITE_ONLY", RETH.format(0x5), slot=1), key(0, 0x5)]
        self.assertIn("the R_Key 0x1234 is that of no region", self.only(request, *other, end))
        self.assertIn("was given to 64 bytes",
                      self.only(key(0, 0x1234), key(1, 0x1234, "INVALIDATE", done=0), request, end))
        swap = taken(1.5, opcode="COMPARE_SWAP") + "\n" + sent(2, "RC_COMPARE_SWAP", RETH.format(0x1234))
        self.assertIn("IBV_ACCESS_REMOTE_ATOMIC", self.only(key(0, 0x1234), swap, ended(5, "REM_ACCESS_ERR", opcode="COMP_SWAP")))
        self.assertIn("that of no region or window", self.only(request, end))
        self.assertIn("registered without IBV_ACCESS_REMOTE_WRITE", self.only(key(0, 0x1234, access="0x1"), request, end))
        self.assertIn("was deregistered 4 ms before",
                      self.only(key(0, 0x1234), key(1, 0x1234, "DEREGISTER"), request, end))
        self.assertIn("lacks the right", self.only(line(1, "handed", qpn=A, to=B, opcode="RC_WRITE_ONLY", psn=5), end))

    def test_the_peers_fault(self):
        short = ended(4, "LOC_LEN_ERR", B, 9, "RECV")
        found = said(sent(1), short, ended(5, "REM_INV_REQ_ERR"))
        self.assertIn("longer than this receive", found[0])
        self.assertIn("the receive that it took, wr 9 of QP 0x22", found[1])
        self.assertIn("does not permit it", self.only(sent(1), ended(5, "REM_INV_REQ_ERR")))
        found = said(sent(1), ended(4, "LOC_PROT_ERR", B, 9, "RECV"), ended(5, "REM_OP_ERR"))
        self.assertIn("entry of the receive names memory that its lkey does not cover", found[0])
        self.assertIn("wr 9 of QP 0x22, names memory", found[1])
        found = said(sent(1), ended(4, "LOC_QP_OP_ERR", B, 9, "RECV"), ended(5, "REM_OP_ERR"))
        self.assertIn("the receive is malformed", found[0])
        self.assertIn("wr 9 of QP 0x22, is malformed", found[1])

    def test_our_own_fault(self):
        for status, words in (("LOC_PROT_ERR", "lkey does not cover"), ("LOC_QP_OP_ERR", "max_rd_atomic 0"),
                              ("MW_BIND_ERR", "IBV_ACCESS_MW_BIND"), ("LOC_LEN_ERR", "longer than the queue pair sends"),
                              ("BAD_RESP_ERR", "does not fit"), ("LOC_ACCESS_ERR", "no right to write")):
            self.assertIn(words, self.only(sent(1), ended(2, status)))
        ud = line(0, "qp", qpn=A, known_as=A, type="UD", dev="fe0")
        self.assertIn("address handle", self.only(ud, sent(1), ended(2, "LOC_QP_OP_ERR")))

    def test_flushes(self):
        found = said(sent(1), ended(2, "LOC_PROT_ERR"), ended(3, "WR_FLUSH_ERR", wr_id=8), ended(3, "WR_FLUSH_ERR", wr_id=9))
        self.assertEqual(found[1], "2 requests of QP 0x11 were flushed: wr 7 failed before")
        state = line(1, "qp_state", qpn=A, **{"from": "RTS"}, to="ERR", why="USER")
        self.assertIn("moved it to ERR", self.only(state, ended(2, "WR_FLUSH_ERR")))
        refused = line(1, "request", qpn=A, psn=5, opcode="RC_WRITE_ONLY", outcome="ACCESS_ERROR")
        self.assertIn("it has refused a request of its peer (access error)", self.only(refused, ended(2, "WR_FLUSH_ERR")))
        made = line(0, "qp", qpn=A, known_as=A, type="RC", dev="fe0", send_cq=1, recv_cq=2)
        for cq, words in ((1, "its CQ was full"), (2, "its CQ was full"), (3, "it is in ERR")):
            full = line(1, "cq_event", dev="fe0", cq=cq, what="OVERRUN")
            self.assertIn(words, self.only(made, full, ended(2, "WR_FLUSH_ERR")))


class Repairs(unittest.TestCase):
    def test_what_went_well_in_the_end(self):
        found = said(sent(1), met(2, "RNR_NAK", 2), met(3, "SEQUENCE_NAK"), met(3, "RETRANSMITTED", 4), met(4, "TIMEOUT"),
                     ended(5, "SUCCESS"))
        for one, words in zip(found, ("waited for receives of QP 0x22 2 times", "ACK timeout 1 time",
                                      "4 packets again, after 1 NAK and 0 probes"), strict=True):
            self.assertIn(words, one)

    def test_a_network_that_marks_packets(self):
        one, = said(sent(1), met(2, "SLOWDOWN", 3), ended(5, "SUCCESS"))
        self.assertIn("has made its window smaller 3 times: the network marks its packets", one)
        self.assertIn("on the way to QP 0x22", one)

    def test_packets_for_nobody_and_verbs_that_fail(self):
        found = said(line(1, "drop", dqpn="0x99", opcode="RC_SEND_ONLY", psn=1, reason="drop_unknown_qp"),
                     line(2, "verb_done", op="create_qp", ret=-22), line(3, "verb_done", op="create_qp", ret=-22))
        self.assertEqual(len(found), 2)
        self.assertIn("packets for QP 0x99 were dropped: 1 by drop_unknown_qp", found[0])
        self.assertIn("create_qp failed with EINVAL", found[1])

    def test_missed_events(self):
        def polled(at, wr_id=7):
            return line(at, "user_polled", qpn=A, wr_id=hex(wr_id), status=0, cq=4)

        arm = line(2, "user_arm", cq=4, solicited=0)
        one, = said(ended(1, "SUCCESS"), arm, polled(302))
        self.assertIn("wr 7 of QP 0x11 was completed 1 ms before its CQ was armed, and polled 300 ms after that", one)
        # Polled at once; completed behind the arming, whenever that was polled; of another queue; found by another poll.
        self.assertEqual(said(ended(1, "SUCCESS"), arm, polled(2.1)), [])
        self.assertEqual(said(arm, ended(3, "SUCCESS"), polled(302)), [])
        self.assertEqual(said(ended(1, "SUCCESS"), arm.replace("cq=4", "cq=5"), polled(302)), [])
        self.assertEqual(said(ended(1, "SUCCESS", wr_id=6), ended(1, "SUCCESS"), arm, polled(2.1, 6), polled(302)), [])

    def test_addresses_that_are_not_bound(self):
        call = line(1, "call__rdma_bind_addr")
        bad, good = (line(5, "return__rdma_bind_addr", ret=ret) for ret in ("0xffffffff", "0x0"))
        bound = line(2, "x").replace("ferroce_x: ", "cm_id_attach: cm.id=4 src=10.77.0.1:0 dst=0.0.0.0:0 device=fe0")
        one, = said(call, bound, bad)
        self.assertIn("though the kernel has bound the address to fe0: libibverbs lists no such device (ENODEV)", one)
        one, = said(call, bad)
        self.assertIn("the kernel has not bound the address: no device has a GID of it (ENODEV)", one)
        self.assertEqual(said(call, bound, good), [])
        # What was bound before is of another call.
        one, = said(line(0.5, "x").replace("ferroce_x: ", "cm_id_attach: device=fe0"), call, bad)
        self.assertIn("the kernel has not bound", one)

    def test_no_device_for_the_connection_manager(self):
        one, = said(line(1, "call__rdma_create_event_channel"), line(2, "return__rdma_create_event_channel", ret="0x0"))
        self.assertIn("rdma_create_event_channel failed, for libibverbs lists no device (ENODEV)", one)
        self.assertEqual(said(line(1, "call__rdma_create_event_channel"), line(2, "return__rdma_create_event_channel", ret="0x55550")), [])

    def test_each_reason_of_a_drop_is_explained(self):
        self.assertTrue(drop_reasons())
        self.assertEqual(drop_reasons() - set(sentences.SENTENCES), set())
        found = said(*(line(1, "drop", dqpn="0x99", opcode="RC_SEND_ONLY", psn=1, reason=one) for one in drop_reasons()))
        self.assertEqual([one for one in drop_reasons() if one not in found[0]], [])


def drop_reasons():
    """Why the module drops a packet, in the words of its events."""
    text = (CHECKOUT / "rust/sys/ferroce_trace_names.h").read_text(encoding="utf-8")
    return {word for word in text.split('"') if word.startswith("drop_")}


def said_by_rules():
    """The ids that stand in a call of say()."""
    tree, found = ast.parse((CHECKOUT / "command/trace/why.py").read_text(encoding="utf-8")), set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] == "say":
            for one in node.args:
                either = (one.body, one.orelse) if isinstance(one, ast.IfExp) else (one,)
                found |= {word.value for word in either if isinstance(word, ast.Constant)}
    return found


def places(template):
    """The values that a sentence takes."""
    return {name for _, name, _, _ in Formatter().parse(template) if name is not None}


class Languages(unittest.TestCase):
    """Each sentence stands in the catalogue, in both languages, and the command says it in the one that is wanted."""

    LOSSY = CHECKOUT / "tests/lab/traces/lossy.txt"
    ENGLISH = "- QP 0x50a50f has sent 3 packets again, after 1 NAK and 1 probe: packets or answers were lost or late on the way\n"
    IN_CHINESE = "- QP 0x50a50f 重传了 3 个包，起因是 1 个 NAK 和 1 个探测包：包或应答在途中丢失或迟到\n"

    def test_both_languages(self):
        for name, templates in sentences.SENTENCES.items():
            with self.subTest(name):
                self.assertEqual(len(templates), len(sentences.LANGUAGES))
                english, chinese = templates
                self.assertEqual(places(english), places(chinese))
                bare = re.sub("{[^}]*}", "", english)
                self.assertEqual(set(NAMES.findall(bare)) - set(NAMES.findall(chinese)), set())
                self.assertIsNone(CHINESE.search(english))
                # What is but names, values and punctuation has nothing to translate.
                self.assertEqual(bool(CHINESE.search(chinese)), bool(re.search("[a-z]", NAMES.sub("", bare))))

    def test_each_is_said(self):
        rules = said_by_rules() | set(why.GONE.values()) | drop_reasons()
        self.assertEqual(set(sentences.SENTENCES), rules)

    def test_values(self):
        run = events.parse("\n".join((taken(0.5), sent(1), met(3, "TIMEOUT", 7), ended(9, "RETRY_EXC_ERR"),
                                      line(2, "drop", dqpn=B, opcode="RC_SEND_ONLY", psn=5, reason="drop_unknown_qp"))))
        self.assertEqual(why.reasons(run, "zh"), [
            "QP 0x11 的 wr 7（SEND, 64 B）以 RETRY_EXC_ERR 结束：ACK 超时 7 次，没有应答。请求包到了，但被丢弃："
            "1 个计入 drop_unknown_qp：没有这个 QP，它已销毁，或两端交换的 QP 号有误"])
        for count, words in ((1, "1 event had"), (2, "2 events had")):
            self.assertTrue(sentences.say("en", "events_lost", lost=count).startswith(words))
            self.assertIn(f"丢了 {count} 个事件", sentences.say("zh", "events_lost", lost=count))
        self.assertEqual((why.draw(events.parse("")), why.draw(events.parse(""), "zh")),
                         ("no event of the module was recorded\n", "没有录到模块的任何事件\n"))

    def test_which_language(self):
        for variables, words, wanted in (
                ({}, (), self.ENGLISH), ({"LANG": "C.UTF-8"}, (), self.ENGLISH), ({"LANG": "zh_CN.UTF-8"}, (), self.IN_CHINESE),
                ({"LC_MESSAGES": "zh_SG", "LANG": "de_DE"}, (), self.IN_CHINESE),
                ({"LC_ALL": "C", "LANG": "zh_CN.UTF-8"}, (), self.ENGLISH),
                ({"LC_ALL": "", "LANG": "zh_CN.UTF-8"}, (), self.IN_CHINESE),
                ({"LANG": "zh_CN.UTF-8"}, ("--lang", "en"), self.ENGLISH), ({}, ("--lang", "zh"), self.IN_CHINESE)):
            out = io.StringIO()
            with mock.patch.dict(os.environ, variables, clear=True), contextlib.redirect_stdout(out):
                self.assertEqual(ferroce.main(["trace", "why", str(self.LOSSY), *words]), 0)
            self.assertEqual(out.getvalue(), wanted, (variables, words))

    def test_encodings(self):
        """A terminal may not have the characters."""
        argv = [sys.executable, CHECKOUT / "command/ferroce", "trace", "why", "--lang", "zh", self.LOSSY]
        for encoding, status in (("utf-8", 0), ("gb18030", 0), ("latin-1", 1)):
            done = subprocess.run(argv, env=os.environ | {"PYTHONIOENCODING": encoding}, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            self.assertEqual((done.returncode, done.stdout.decode(encoding)), (status, "" if status else self.IN_CHINESE))
            self.assertEqual(b"lacks characters" in done.stderr, bool(status))
