# SPDX-License-Identifier: GPL-2.0
"""The house rules see what they should see, and nothing else."""

import unittest

from tests.lab import rules


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
