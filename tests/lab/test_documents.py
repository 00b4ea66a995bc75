# SPDX-License-Identifier: GPL-2.0
"""The checks of documents find what leads nowhere. That they find nothing else, the documents show."""

import tempfile
import unittest
from pathlib import Path

from tests.lab import documents

C = """static int ucma_get_device(struct id *id,
			   int index)
{
	return ucma_other(id);
}

struct cma_device *
cma_find(int n)
{
}
static const struct file_operations ucma_fops = {
	.open = ucma_open,
};
#define CMA_PORT 1
enum kind {
	KIND_A = 1,
	KIND_B,
};
TRACE_EVENT(cm_id_attach,
DECLARE_UVERBS_NAMED_METHOD(
	UVERBS_METHOD_QP_CREATE,
int declared_only(int n);
struct used *pointer;
"""
RUST = """pub struct Ctx<'a> {}
impl Ctx<'_> {
    pub fn may_move(&self) {}
}
enum State {
    Inline,
}
macro_rules! operations { }
fn f() { other_call(); }
"""
VALUES = "pub enum Status {\n    RetryExcErr = 12,\n}\npub mod vendor {\n    pub const RETRY: u32 = 3;\n}\n"


class Documents(unittest.TestCase):
    def test_definitions(self):
        for suffix, text, symbols in ((".c", C, ("ucma_other", "ucma_open", "declared_only", "used", "get_device")),
                                      (".rs", RUST, ("other_call", "State::Far", "Other::may_move", "Inline")),
                                      (".py", "def f():\n    g()\n", ("g",))):
            for symbol in symbols:
                self.assertFalse(documents.defines(suffix, text, symbol), symbol)

    def test_references(self):
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "a.c").write_text(C, encoding="utf-8")
            where = {"ferroce": Path(folder), "linux": Path(folder), "rdma-core": None}
            for bad in ("`linux:a.c#ucma_other`", "`linux:b.c#cma_find`", "`linux:a.c`", "`ferroce:a.c:12`"):
                found, _ = documents.check_references("x.md", bad, where)
                self.assertEqual(len(found), 1, bad)

    def test_names(self):
        sources = {"rust/core/ctx.rs": RUST, "rust/core/rc/mod.rs": "impl Ctx<'_> {\n    fn settle() {}\n}\npub const MOST: u8 = 1;\n"}
        for bad in ("core::gone", "rc::LEAST", "ctx::MOST", "Ctx::gone", "Gone::may_move", "ctx::{Ctx, Gone}"):
            self.assertEqual(len(documents.check_names("a.md", f"`{bad}`\n", sources)), 1, bad)

    def test_links(self):
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "b.md").write_text("# The `first` one: this\n```\n# not one\n```\n", encoding="utf-8")
            (Path(folder) / "a.md").write_text("## Here\n", encoding="utf-8")
            for bad in ("[x](c.md)", "[x](b.md#not-one)", "[x](#there)", "![x](c.svg)", "[x\ny](c.md)"):
                self.assertEqual(len(documents.check_links("a.md", bad, Path(folder))), 1, bad)

    def test_values(self):
        good = "| 0 | `RETRY_EXC_ERR` | |\n| 3 | `RETRY_EXC_ERR` | no ACK |\n"
        self.assertEqual(documents.check_values(good, VALUES), [])
        for bad in (good + "| 4 | `RETRY_EXC_ERR` | |\n", good.splitlines()[0], good.replace("EXC", "EXT"), good + good):
            self.assertTrue(documents.check_values(bad, VALUES), bad)
