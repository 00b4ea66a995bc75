# SPDX-License-Identifier: GPL-2.0
"""The house rules see what they should see, and nothing else."""

import re
import unittest

from tests.lab import check, config, rules


class Unsafe(unittest.TestCase):
    """Where unsafe may be, and what must stand before it."""

    def check(self, path, text):
        return rules.check_unsafe(path, text, rules.strip(text))

    def test_outside_sys(self):
        self.assertTrue(self.check("rust/verbs/qp.rs", "fn f() { unsafe { g() } }\n"))
        self.assertTrue(self.check("rust/link/mod.rs", "use kernel::bindings::x;\n"))

    def test_words_in_comments_and_strings_do_not_count(self):
        self.assertFalse(self.check("rust/verbs/qp.rs", '// unsafe\nconst A: &str = "unsafe { bindings:: }";\n'))
        self.assertFalse(self.check("rust/verbs/qp.rs", "#![forbid(unsafe_code)]\n"))

    def test_reason_needed(self):
        self.assertTrue(self.check("rust/sys/a.rs", "fn f() {\n    unsafe { g() }\n}\n"))
        self.assertFalse(self.check("rust/sys/a.rs", "fn f() {\n    // SAFETY: `g` is fine.\n    unsafe { g() }\n}\n"))

    def test_reason_of_another_block_does_not_count(self):
        text = "fn f() {\n    // SAFETY: `g` is fine.\n    unsafe { g() };\n    unsafe { h() }\n}\n"
        self.assertEqual(len(self.check("rust/sys/a.rs", text)), 1)

    def test_statement_over_several_lines(self):
        text = "fn f() {\n    // SAFETY: Fine.\n    let x =\n        unsafe { g() };\n}\n"
        self.assertFalse(self.check("rust/sys/a.rs", text))

    def test_unsafe_fn_needs_a_section(self):
        self.assertTrue(self.check("rust/sys/a.rs", "/// Does it.\npub unsafe fn f() {}\n"))
        self.assertFalse(self.check("rust/sys/a.rs", "/// Does it.\n///\n/// # Safety\n///\n/// Be careful.\n"
                                                     "pub unsafe fn f() {}\n"))

    def test_callbacks_are_bound_by_their_table(self):
        self.assertFalse(self.check("rust/sys/a.rs", 'unsafe extern "C" fn f(x: u32) {}\n'))

    def test_pointer_types_are_no_items(self):
        self.assertFalse(self.check("rust/sys/a.rs", 'type F = unsafe extern "C" fn(u32) -> u32;\n'))


class Released(unittest.TestCase):
    """What goes to RCU goes last."""

    def check(self, body, path="rust/sys/table.rs"):
        text = "impl T {\n    fn f(&self) {\n" + body + "    }\n}\n"
        return rules.check_release(path, rules.strip(text))

    def test_last_statement(self):
        self.assertFalse(self.check("        a();\n        // Why.\n        node.release(unsafe { b(c(old)) });\n"))
        self.assertFalse(self.check("        node.release(old)\n"))
        self.assertTrue(self.check("        node.release(old);\n        place.store(null);\n"))
        self.assertTrue(self.check("        if x {\n            node.release(old);\n        }\n        place.store(null);\n"))
        self.assertFalse(self.check("        lock.release(old);\n        a();\n", path="rust/verbs/mr.rs"))


class Trusted(unittest.TestCase):
    """Who may write to any address."""

    def check(self, path, text):
        return rules.check_trusted(path, rules.strip(text))

    def test_only_named_files_copy(self):
        copies = "use crate::sys::memory::{\n    Memory,\n    UserMemory, //\n};\n"
        self.assertEqual(len(self.check("rust/datapath/deliver.rs", copies)), 1)
        self.assertTrue(self.check("rust/verbs/mr.rs", "fn f(m: &impl crate::sys::memory::Memory) {}\n"))
        self.assertTrue(self.check("rust/verbs/fast.rs", "use crate::sys::listed::ListedMemory;\n"))
        self.assertFalse(self.check("rust/datapath/memory/region.rs", copies))
        self.assertFalse(self.check("rust/sys/listed.rs", copies))

    def test_others_may_hand_it_on(self):
        self.assertFalse(self.check("rust/verbs/mr.rs", "use crate::sys::memory::KernelMemory;\n"))
        self.assertFalse(self.check("rust/transport/unreliable/tests.rs", "struct Memory;\n"))


class Commands(unittest.TestCase):
    """What the documentation tells to type."""

    def check(self, text):
        known = ["verbs.uc-messages.loop", "fault.loss"]
        return rules.check_commands("a.md", text, lambda only: check.meaningless(only, known))

    def test_names_that_mean_no_test(self):
        self.assertFalse(self.check("(`make check ONLY=verbs.uc*,fault`; `ONLY=fault.loss`) `ONLY=...`"))
        self.assertEqual(self.check("x\n`ONLY=verbs.uc,fault`"), ["a.md:2: no test is called verbs.uc"])


class Rooms(unittest.TestCase):
    """The order of the rooms."""

    def check(self, path, text):
        return rules.check_rooms(path, rules.strip(text))

    def test_order(self):
        self.assertFalse(self.check("rust/datapath/tx.rs", "use crate::transport::Qp;\nuse crate::sys::skb;\n"))
        self.assertTrue(self.check("rust/transport/qp.rs", "use crate::datapath::Tx;\n"))
        self.assertTrue(self.check("rust/sys/ib.rs", "use crate::verbs::Qp;\n"))
        self.assertFalse(self.check("rust/verbs/qp.rs", "use crate::{uabi::Wqe, link::Link};\n"))
        self.assertTrue(self.check("rust/link/netdev.rs", "use crate::{sys::NetDev, verbs::Device};\n"))

    def test_pure_rooms_do_not_panic(self):
        self.assertTrue(self.check("rust/wire/bth.rs", "fn f() { x.unwrap(); }\n"))
        self.assertFalse(self.check("rust/wire/bth.rs", "#[cfg(test)]\nmod tests { fn f() { x.unwrap(); } }\n"))
        for head in ('#[cfg(any(test, CONFIG_KUNIT = "y"))]', '#![cfg(any(test, CONFIG_KUNIT = "y"))]'):
            self.assertFalse(self.check("rust/wire/bth.rs", head + "\nmod tests { fn f() { x.unwrap(); } }\n"))
        self.assertTrue(self.check("rust/uabi/mod.rs", "use std::vec::Vec;\n"))
        self.assertFalse(self.check("rust/transport/tests/traffic.rs", "use std::vec::Vec;\n"))


class Map(unittest.TestCase):
    """The table of the rooms."""

    def test_each_row(self):
        rows = [f"//! | [`{name}`] | x | {', '.join(sorted(uses))} |" for name, uses in rules.ROOMS.items()]
        self.assertFalse(rules.check_map("\n".join(rows)))
        self.assertEqual(len(rules.check_map("\n".join(rows[1:]))), 1)
        self.assertEqual(len(rules.check_map("\n".join(rows + ["//! | [`attic`] | x | |"]))), 1)
        self.assertTrue(rules.check_map("\n".join(rows).replace("sys", "")))


class Spdx(unittest.TestCase):
    """The licence line."""

    def test_places(self):
        dual = "// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB\n"
        single = "// SPDX-License-Identifier: GPL-2.0\n"
        self.assertFalse(rules.check_spdx("rust/wire/bth.rs", dual))
        self.assertTrue(rules.check_spdx("rust/wire/bth.rs", single))
        self.assertFalse(rules.check_spdx("rust/sys/ib.rs", single))
        self.assertTrue(rules.check_spdx("rust/sys/ib.rs", "//! Words.\n"))
        self.assertFalse(rules.check_spdx("README.md", "<!-- SPDX-License-Identifier: GPL-2.0 -->\n"))
        self.assertFalse(rules.check_spdx("a.sh", "#!/bin/sh\n# SPDX-License-Identifier: GPL-2.0\n"))


class Width(unittest.TestCase):
    """The page is 100 columns wide."""

    def test_the_most_and_one_more(self):
        self.assertFalse(rules.check_width("rust/a/b.rs", "//" + "x" * 98 + "\n"))
        self.assertEqual(rules.check_width("rust/a/b.rs", "\n//" + "x" * 99 + "\n"),
                         ["rust/a/b.rs:2: 101 columns, 100 are the most"])

    def test_columns_are_characters(self):
        self.assertFalse(rules.check_width("rust/a/b.rs", "//" + "\u00e4" * 98 + "\n"))


class KUnit(unittest.TestCase):
    """Its assertions, which are not those of Rust."""

    SUITE = """#[cfg_attr(CONFIG_KUNIT = "y", kernel::prelude::kunit_tests(x))]
mod tests {
    fn f() {
        assert!(a == "b");
        %s
    }
}
"""

    def test_no_messages(self):
        for line in ('assert!(a, "b {c}");', 'assert_eq!(\n            a,\n            "b",\n            "{c}"\n        );'):
            self.assertEqual(rules.check_kunit("rust/a.rs", self.SUITE % line),
                             ["rust/a.rs:5: KUnit's assertions take no message"])

    def test_others_may_have_them(self):
        self.assertFalse(rules.check_kunit("rust/a.rs", self.SUITE % 'assert_eq!(a, "b");'))
        self.assertFalse(rules.check_kunit("rust/a.rs", 'mod tests {\n    assert!(a, "b");\n}\n' + self.SUITE % ""))


class Prose(unittest.TestCase):
    """The width of documents."""

    def found(self, text, path="Documentation/a.md"):
        return [line.split(":")[1] for line in rules.check_prose(path, text)]

    def test_prose_and_tables(self):
        self.assertFalse(self.found("x" * 100 + "\n| " + "y" * 116 + " |\n"))
        self.assertEqual(self.found("x" * 101 + "\n| " + "y" * 117 + " |\n"), ["1", "2"])

    def test_code_is_left_alone(self):
        self.assertFalse(self.found("    " + "x" * 200 + "\n```\n" + "y" * 200 + "\n```\n"))
        self.assertEqual(self.found("```\n```\n" + "y" * 200 + "\n"), ["3"])

    def test_documents_to_be_broken_exist(self):
        self.assertFalse(self.found("x" * 101, path=sorted(rules.UNBROKEN)[0]))


class Homonyms(unittest.TestCase):
    """One meaning for each type name of a crate."""

    def found(self, files):
        return rules.check_homonyms({path: rules.strip(text) for path, text in files.items()})

    def test_two_definitions(self):
        found = self.found({"rust/wire/a.rs": "pub struct Kind;\n", "rust/sys/b.rs": "\npub(super) enum Kind {}\n"})
        self.assertEqual(found, ["rust/wire/a.rs:1: the type name Kind is defined 2 times, also at rust/sys/b.rs:2"])
        self.assertTrue(self.found({"rust/a/a.rs": "struct A;\n", "rust/b/a.rs": "unsafe trait A {}\n"}))

    def test_crates_stand_alone(self):
        self.assertFalse(self.found({"rust/a/a.rs": "struct Cq;\n", "userspace-provider/src/cq.rs": "struct Cq;\n"}))

    def test_aliases_inner_types_and_tests_do_not_count(self):
        self.assertFalse(self.found({"rust/a/a.rs": "struct A;\n", "rust/a/b.rs": "type A = u8;\n// struct A;\n",
                                     "rust/a/c.rs": "fn f() {\n    struct A;\n}\n", "rust/a/tests.rs": "struct A;\n",
                                     "rust/a/d.rs": "#[cfg(test)]\nmod tests {\n}\nstruct A;\n"}))


class Patience(unittest.TestCase):
    """Limits on time have one place."""

    def found(self, line):
        return len(rules.check_patience("tests/guest/x.c", line))

    def test_numbers_of_their_own(self):
        for line in ("alarm(60);", "double end = now() + 30;", "next_device_event(ctx, 5000, &e)", "poll(&fd, 1, 30000)",
                     "unsigned long end = jiffies + 90 * HZ;", "CHECK(wait < 30000, \"late\");", "proc.wait(timeout=60)"):
            self.assertEqual(self.found(line), 1, line)

    def test_patience_and_short_pauses(self):
        for line in ("alarm(2 * patience());", "now() + 3 * patience();", "event_within(s, 1000 * patience())",
                     "next_device_event(ctx, 20, &e)", "usleep(1000);", "proc.wait(timeout=60 * PATIENCE)"):
            self.assertEqual(self.found(line), 0, line)


class Circles(unittest.TestCase):
    """Who imports whom within a room."""

    def check(self, files):
        return rules.check_circles({path: rules.strip(text) for path, text in files.items()})

    def found(self, *texts):
        """Files a.rs, b.rs, ... of a room with these texts."""
        return self.check({f"rust/datapath/{name}.rs": text for name, text in zip("abcd", texts)})

    def test_two_files(self):
        self.assertFalse(self.found("use super::b::B;\n", "struct B;\n"))
        found = self.found("use super::b::B;\n", "use crate::datapath::a::A;\n")
        self.assertEqual(len(found), 1)
        self.assertIn("a.rs -> b.rs -> a.rs", found[0])

    def test_over_a_third(self):
        found = self.found("use super::b::B;\n", "use super::{c::{self, C}, nothing};\n", "use crate::{datapath::a::A, sys};\n")
        self.assertEqual(len(found), 1)
        self.assertIn("3 files", found[0])

    def test_paths_without_use(self):
        self.assertTrue(self.found("fn f() { super::b::g() }\n", "fn g() -> super::a::A {}\n"))

    def test_what_is_no_import(self):
        self.assertFalse(self.found("use super::b::B;\n", "// use super::a::A;\npub(in crate::datapath::a) fn g() {}\n"))
        self.assertFalse(self.found("use super::b::B;\n", "use kernel::a::A;\nuse super::nothing;\n"))

    def test_tests_do_not_count(self):
        self.assertFalse(self.found("use super::b::B;\n",
                                    "#[cfg(test)]\nmod tests {\n    use crate::datapath::a::A;\n}\n"))
        # What follows an item for tests does.
        self.assertTrue(self.found("use super::b::B;\n",
                                   "#[cfg(test)]\n#[derive(Debug)]\nconst N: [u8; 2] = [1, 2];\nuse super::a::A;\n"))
        self.assertFalse(self.check({"rust/wire/a.rs": "use super::tests::x;\n",
                                     "rust/wire/tests.rs": "use super::a::A;\n"}))

    def test_a_module_and_its_parts(self):
        # `mod x;` is no import; what the parent defines, and the part uses, is one.
        part = "use super::Whole;\n"
        self.assertFalse(self.check({"rust/wire/mod.rs": "mod part;\npub struct Whole;\n", "rust/wire/part.rs": part}))
        self.assertTrue(self.check({"rust/wire/mod.rs": "mod part;\nuse part::P;\npub struct Whole;\n",
                                    "rust/wire/part.rs": part}))

    def test_names_that_are_passed_on(self):
        # The parent only passes the name on.
        files = {"rust/wire/mod.rs": "mod a;\nmod b;\npub use a::A;\npub struct Whole;\n",
                 "rust/wire/a.rs": "use super::Whole;\n", "rust/wire/b.rs": "use super::A;\n"}
        self.assertFalse(self.check(files))
        # It leads on to the file that has it.
        self.assertTrue(self.check(files | {"rust/wire/a.rs": "use super::b::B;\n"}))
        # It uses it itself.
        whole = files["rust/wire/mod.rs"].replace("Whole;", "Whole(A);")
        self.assertTrue(self.check(files | {"rust/wire/mod.rs": whole}))

    def test_rooms_stand_alone(self):
        self.assertFalse(self.check({"rust/sys/ib/qp.rs": "use crate::sys::lock::L;\n",
                                     "rust/sys/lock.rs": "use crate::sys::ib::qp::Q;\n"}))
        # The provider is another crate, with names of its own.
        provider = "userspace-provider/src/"
        self.assertTrue(self.check({provider + "a.rs": "use crate::ffi::b::B;\n", provider + "ffi/b.rs": "use crate::a::A;\n",
                                    provider + "ffi/mod.rs": "mod b;\n"}))


class Version(unittest.TestCase):
    """The version stands in several files and is the same in all."""

    def test_each_file_is_read(self):
        texts = {"rust/uabi/mod.rs": "pub const MODULE_VERSION: [u16; 3] = [1, 20, 3];\n",
                 "command/ferroce": 'ROCE_PORT = 4791\nVERSION = "1.20.3"\n',
                 "CHANGELOG.md": "# Changes\n\n## 1.20.3 (a date)\n\n## 1.20.2\n",
                 "debian/changelog": "ferroce (1.20.3) unstable; urgency=medium\n"}
        self.assertEqual(set(texts), set(rules.VERSIONS))
        for path, text in texts.items():
            self.assertFalse(rules.check_version(path, text, "1.20.3"), path)
            self.assertTrue(rules.check_version(path, text, "1.20.2"), path)
            self.assertTrue(rules.check_version(path, "", "1.20.3"), path)


class Documents(unittest.TestCase):
    """What a document promises is what the source has."""

    def test_values_of_vendor_err(self):
        source = (config.CHECKOUT / "rust/transport/completion.rs").read_text(encoding="utf-8")
        values = {int(value, 0) for value in re.findall(r"^    pub const \w+: u32 = (\w+);$", source, re.M)}
        text = (config.CHECKOUT / "Documentation/verbs.md").read_text(encoding="utf-8")
        table = text[text.index("| `vendor_err` | status |"):].split("\n\n")[0]
        told = {int(value, 0) for value in re.findall(r"^\| (0x\d+|\d+) ", table, re.M)}
        self.assertEqual(told, values | {0})


if __name__ == "__main__":
    unittest.main()
