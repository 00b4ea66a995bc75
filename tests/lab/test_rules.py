# SPDX-License-Identifier: GPL-2.0
"""The house rules see what they should see."""

import re
import unittest

from tests.lab import check, rules

SINGLE = "// SPDX-License-Identifier: GPL-2.0\n"
COPIES = "use crate::sys::memory::{\n    Runs,\n    UserMemory, //\n};\n"


def unsafe(path, text):
    """By the code alone, as the others that are asked about Rust."""
    return rules.check_unsafe(path, text, rules.strip(text))


def released(path, body):
    return rules.check_release(path, "impl T {\n    fn f(&self) {\n" + rules.strip(body) + "    }\n}\n")


def commands(path, text):
    return rules.check_commands(path, text, lambda only: check.meaningless(only, ["verbs.uc-messages.loop", "fault.loss"]))


def trusted(path, text):
    return rules.check_trusted(path, rules.strip(text))


def rooms(path, text):
    return rules.check_rooms(path, rules.strip(text))


# Each rule with what it must find: a path, a text. What it must let pass is in the tree.
FOUND = (
    (unsafe, "rust/verbs/qp.rs", "fn f() { unsafe { g() } }\n"),
    (unsafe, "rust/link.rs", "use kernel::bindings::x;\n"),
    (unsafe, "rust/sys/a.rs", "/// Does it.\npub unsafe fn f() {}\n"),
    (released, "rust/sys/table.rs", "        node.release(old);\n        place.store(null);\n"),
    (released, "rust/sys/table.rs", "        if x {\n            node.release(old);\n        }\n        place.store(null);\n"),
    (trusted, "rust/datapath/deliver.rs", COPIES),
    (trusted, "rust/verbs/mr.rs", "fn f(m: &impl crate::sys::memory::Runs) {}\n"),
    (trusted, "rust/verbs/mr.rs", "use crate::sys::listed::ListedMemory;\n"),
    (commands, "a.md", "x\n`ONLY=verbs.uc,fault`"),
    (rooms, "rust/core/rc/qp.rs", "use crate::datapath::Tx;\n"),
    (rooms, "rust/sys/ib.rs", "use crate::verbs::Qp;\n"),
    (rooms, "rust/link/netdev.rs", "use crate::{sys::NetDev, verbs::Device};\n"),
    (rooms, "rust/core/wire/bth.rs", "fn f() { x.unwrap(); }\n"),
    # Parts of the core that stand alone, and what others may have of it.
    (rooms, "rust/core/wire/bth.rs", "use crate::core::segment::Segment;\n"),
    (rooms, "rust/core/gate.rs", "use crate::core::uabi::Wqe;\n"),
    (rooms, "rust/sys/ring.rs", "use crate::core::rc;\n"),
    (rooms, "rust/sys/ring.rs", "use crate::core::{\n    uabi,\n    queue,\n};\n"),
    (rooms, "rust/link.rs", "use crate::core::uabi;\n"),
    (rooms, "rust/core/uabi/mod.rs", "use std::vec::Vec;\n"),
    (rules.check_spdx, "rust/core/wire/bth.rs", SINGLE),
    (rules.check_spdx, "rust/core/queue/wqe.rs", SINGLE),
    (rules.check_spdx, "rust/sys/ib.rs", "//! Words.\n"),
    (rules.check_width, "rust/a/b.rs", "\n//" + "x" * 99 + "\n"),
    (rules.check_prose, "Documentation/a.md", "```\n```\n" + "x" * 101 + "\n"),
    (rules.check_prose, "Documentation/a.md", "| " + "y" * 117 + " |\n"),
    # A Chinese character, and its punctuation, have two columns.
    (rules.check_prose, "Documentation/a.md", "\u5305" * 49 + "\uff0cab,\n"),
    (rules.check_prose, "Documentation/a.md", "| " + "\u5305" * 58 + "  |\n"),
    (rules.check_width, "rust/a/b.rs", "//" + "\u5305" * 49 + "x\n"),
    *((rules.check_patience, "tests/guest/x.c", line) for line in (
        "alarm(60);", "double end = now() + 30;", "next_device_event(ctx, 5000, &e)", "poll(&fd, 1, 30000)",
        "unsigned long end = jiffies + 90 * HZ;", 'CHECK(wait < 30000, "late");', "proc.wait(timeout=60)")),
)


class Rules(unittest.TestCase):
    def test_found(self):
        for rule, path, text in FOUND:
            self.assertEqual(len(rule(path, text)), 1, text)

    def test_table_of_rooms(self):
        rows = [f"//! | [`{name}`] | x | {', '.join(sorted(uses))} |" for name, uses in rules.ROOMS.items()]
        self.assertFalse(rules.check_map("\n".join(rows)))
        self.assertEqual(len(rules.check_map("\n".join(rows[1:]))), 1)
        self.assertEqual(len(rules.check_map("\n".join(rows + ["//! | [`attic`] | x | |"]))), 1)
        self.assertTrue(rules.check_map("\n".join(rows).replace("sys", "")))
        short = "\n".join(rows).replace("core::batch, core::gate, core::uabi", "core::{uabi, gate, batch}")
        self.assertFalse(rules.check_map(short))
        self.assertEqual(len(rules.check_map(short.replace("uabi, ", ""))), 1)

    def test_each_file_with_a_version_is_read(self):
        texts = {"rust/core/uabi/mod.rs": "pub const MODULE_VERSION: [u16; 3] = [1, 20, 3];\n",
                 "command/ferroce": 'ROCE_PORT = 4791\nVERSION = "1.20.3"\n',
                 "CHANGELOG.md": "# Changes\n\n## 1.20.3 (a date)\n\n## 1.20.2\n",
                 "debian/changelog": "ferroce (1.20.3) unstable; urgency=medium\n"}
        self.assertEqual(set(texts), set(rules.VERSIONS))
        for path, text in texts.items():
            self.assertFalse(rules.check_version(path, text, "1.20.3"), path)
            self.assertTrue(rules.check_version(path, text, "1.20.2"), path)
            self.assertTrue(rules.check_version(path, "", "1.20.3"), path)


class Events(unittest.TestCase):
    """What the header of the trace events says is what Rust and the document say."""

    SOURCES = {"rust/a.rs": "/// It.\n#[repr(u8)]\npub enum What {\n    /// One.\n    OneThing = 3,\n    /// More.\n    Other,\n}\n",
               "rust/o.rs": "opcodes! {\n    /// Send.\n    0x04 RcSendOnly: Rc Send Only None Any;\n}\n",
               "rust/c.rs": 'counters! {\n    Sent = "sent_pkts",\n    DropIcrc = "drop_icrc",\n}\n',
               "rust/q.rs": "/// `enum ibv_x`\npub const WC_GRH: u32 = 1;\n// `enum ibv_wc_opcode`\npub const WC_SEND: u32 = 0;\n"
                            "pub const WC_RECV: u32 = 1 << 7;\npub const WC_IMM: u32 = WC_RECV + 1;\n"}
    GOOD = {"rust/a.rs: What": '{ 3, "ONE_THING" },\t\\\n\t{ 4, "OTHER" })',
            "rust/o.rs: opcodes": '{ 0x04, "RC_SEND_ONLY" })', "rust/c.rs: counters": '{ 1, "drop_icrc" })',
            "rust/q.rs: WC_": '{ 0, "SEND" },\t\\\n{ 128, "RECV" },\t\\\n{ 129, "IMM" })'}
    EVENT = 'TRACE_EVENT(ferroce_x,\n\tTP_printk("qpn=0x%x what=%s",\n\t\t  a, b)\n);\n'

    def symbols(self, of, rows):
        comment = f"/* {of} */\n" if of else ""
        return rules.check_symbols(f"{comment}#define ferroce_show_x(value)\t\\\n\t__print_symbolic(value,\t\\\n\t{rows}\n", self.SOURCES.get)

    def test_symbols(self):
        for of, rows in self.GOOD.items():
            self.assertEqual(self.symbols(of, rows), [], of)
            self.assertEqual(len(self.symbols(of, rows.replace("1", "2").replace("4", "5").replace("2", "7", 1))), 1, of)
            self.assertEqual(len(self.symbols(of, re.sub(r"\w\"", 'X"', rows, count=1))), 1, of)
        self.assertEqual(len(self.symbols("rust/a.rs: Nothing", '{ 3, "ONE_THING" })')), 1)
        self.assertEqual(len(self.symbols("", '{ 3, "ONE_THING" })')), 1)
        self.assertEqual(len(rules.check_symbols("", self.SOURCES.get)), 1)

    def test_fields(self):
        document = "- `x` (`qpn`,\n  `what`): when\n"
        probed = document + "\n## Probes of the provider\n\n- `x` (`cq`): when\n"
        self.assertEqual(rules.check_events(self.EVENT, probed, {"x": ("cq:x",)}), [])
        for probes in ({}, {"x": ("cq:x", "wr_id:u")}):
            self.assertEqual(len(rules.check_events(self.EVENT, probed, probes)), 1)
        self.assertEqual(rules.check_events(self.EVENT, document, {}), [])
        for wrong in (document.replace("what", "why"), document.replace("`qpn`,", ""), document + "- `y` (`qpn`): when\n", ""):
            self.assertEqual(len(rules.check_events(self.EVENT, wrong, {})), 1, wrong)
        packet = self.EVENT.replace("TRACE_EVENT(ferroce_x", "DECLARE_EVENT_CLASS(ferroce_packet") + "DEFINE_EVENT(ferroce_packet, ferroce_x,\n"
        self.assertEqual(rules.check_events(packet, document, {}), [])

    def test_count(self):
        """Users are told of as many trace events as there are."""
        there = len(rules.event_fields(rules.read(rules.EVENTS)))
        self.assertIn(f"{there} trace events", rules.read("README.md"))
