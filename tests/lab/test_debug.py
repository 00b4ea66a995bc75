# SPDX-License-Identifier: GPL-2.0
"""What kernels with all checks have that is theirs: leaks, unit tests, bugs on purpose."""

import contextlib
import io
import re
import unittest
from unittest import mock

from tests.guest import agent, scenario
from tests.guest.scenario import Failed, Report
from tests.judges import kernel
from tests.lab import config
from tests.scenarios.debug import debug as guest

scenario.load_all()


class Leaks(unittest.TestCase):
    """What kmemleak lists fails, and an empty list does not, nor one of what ib_core loses by itself."""

    OURS = "unreferenced object 0xff (size 8):\n  comm \"rdma\", pid 1\n    ferroce_link_add+0x1/0x2\n"
    TASK = ("unreferenced object 0xfe (size 6080):\n  comm \"python3\", pid 376\n    dup_task_struct+0x38/0x620\n"
            "    copy_process+0x486/0x2d30\n")
    CREDENTIALS = ("unreferenced object 0xfd (size 176):\n  comm \"python3\", pid 379\n    prepare_creds+0x25/0x410\n"
                   "    prepare_exec_creds+0xf/0x200\n")

    METHODS = ("unreferenced object 0xfc (size 576):\n  comm \"ferroce\", pid 380\n    radix_tree_node_alloc+0x1/0x2\n"
               "    radix_tree_insert+0x3/0x4\n    uapi_add_elm+0x5/0x6\n    uapi_add_get_elm+0x7/0x8\n")

    def judged(self, *listed):
        report = Report()
        with contextlib.redirect_stdout(io.StringIO()):
            guest.judge(report, "now", list(listed))
        return report

    def test_judged(self):
        self.assertEqual(self.judged().allows, [])
        with self.assertRaisesRegex(Failed, "1 leaks now: unreferenced object 0xff | comm"):
            self.judged(self.OURS)

    def test_what_ib_core_loses(self):
        report = self.judged(self.TASK, self.CREDENTIALS, self.METHODS)
        self.assertEqual(report.allows, ["kmemleak found something"])
        self.assertIn("3 objects that ib_core itself has lost", report.notes[0])
        said = ["kmemleak: 3 new suspected memory leaks (see x)", "hello"]
        self.assertEqual(kernel.without_reports(said, report.allows[0]), ["hello"])

    def test_no_more_than_that(self):
        with self.assertRaisesRegex(Failed, "1 leaks now: unreferenced object 0xff | comm"):
            self.judged(self.TASK, self.OURS)


class Kunit(unittest.TestCase):
    """Unit tests in the kernel: none is missed."""

    def test_every_module_of_tests_is_a_suite(self):
        """A file of the core runs its tests in the kernel too; those that need collections are files of their own."""
        for path in (config.CHECKOUT / "rust/core").rglob("*.rs"):
            before = re.split(r"^mod tests \{$", path.read_text(encoding="utf-8"), maxsplit=1, flags=re.M)
            if len(before) == 2:
                # The attributes begin behind the last line that belongs to something else.
                self.assertIn("kunit_tests(ferroce_", before[0][before[0].rindex("\n}\n"):], str(path))


class Planted(unittest.TestCase):
    """Bugs on purpose: each is there, is asked for, and the suite would fail for it."""

    def test_same_list(self):
        source = (config.CHECKOUT / "tests/scenarios/debug/planted_c/ferroce_planted.c").read_text(encoding="utf-8")
        self.assertEqual(re.findall(r'^\t\{ "([\w-]+)", \w+ \},$', source, re.M), [bug for bug, _ in guest.PLANTS])

    def test_silence_fails(self):
        report = "BUG: KASAN: slab-use-after-free in plant+0x1/0x2"
        with mock.patch.object(kernel, "note"):
            for lines, status in (([report], "passed"), (["calm"], "failed"), (["WARNING: other"], "failed")):
                result = agent.judge({"status": "passed", "detail": ""}, lines, [], "KASAN: slab-use-after-free")
                self.assertEqual(result["status"], status, lines)
            self.assertEqual(agent.judge({"status": "passed", "detail": ""}, [report], [])["status"], "failed")
