# SPDX-License-Identifier: GPL-2.0
"""The planted faults can be planted, and the tests that shall notice them exist."""

import os
import tempfile
import unittest
from pathlib import Path

from tests.lab import check, config, planted, tree


class Faults(unittest.TestCase):
    def test_each_can_be_planted(self):
        for fault in planted.faults():
            with self.subTest(fault.name):
                text = (config.CHECKOUT / fault.file).read_text(encoding="utf-8")
                self.assertNotEqual(fault.plant(text), text)

    def test_names_are_unique_and_their_tests_exist(self):
        faults, tests = planted.faults(), check.names()
        self.assertEqual(len({f.name for f in faults}), len(faults))
        for fault in faults:
            for name in fault.notice.split(","):
                with self.subTest(fault.name, test=name):
                    self.assertTrue(any(check.wanted(test, name) for test in tests))

    def test_a_whole_run_would_notice_each(self):
        whole = [name for name in check.names() if not check.on_request(name)]
        for fault in planted.faults():
            with self.subTest(fault.name):
                self.assertTrue(any(check.wanted(test, name) for test in whole for name in fault.notice.split(",")))

    def test_each_is_tried_in_the_cheapest_tier_first(self):
        order = [planted.HOST, planted.FAST, planted.STOCK]
        notice = "packages.install,verbs.large-mr,verbs.fence,host.ferroce-core"
        tiers = planted.tiers(planted.Fault("x", "", "f", "a", "b", notice))
        self.assertEqual([tier for tier, _names in tiers], order)
        self.assertEqual(tiers[0][1], ["host.ferroce-core"])
        self.assertTrue(all(name.startswith("verbs.fence") for name in tiers[1][1]), tiers)
        self.assertIn("packages.install", tiers[2][1])

    def test_what_can_be_run_here_can_be_run_in_the_copy(self):
        names = ("command/ferroce", "tests/guest/coldplug.sh", "Makefile")
        with tempfile.TemporaryDirectory() as folder:
            tree.copy(Path(folder))
            for name in names:
                with self.subTest(name):
                    self.assertEqual(os.access(Path(folder) / name, os.X_OK), os.access(config.CHECKOUT / name, os.X_OK))
                    # As where a copy was made before.
                    (Path(folder) / name).chmod(0o600)
            tree.copy(Path(folder))
            self.assertTrue(os.access(Path(folder) / names[0], os.X_OK))

    def test_what_is_not_there_once_is_said(self):
        fault = planted.Fault("x", "", "f", "a", "b", "")
        for text in ("", "aa"):
            with self.assertRaises(planted.say.LabError):
                fault.plant(text)
        self.assertEqual(fault.plant("cac"), "cbc")

    def test_failures_are_read_from_the_lines_of_check(self):
        text = "passed     1.2 s  a.b\nfailed     3.0 s  c.d: why\nfailed    12.5 s  e.f\n\nfailed:\n  c.d: why\n"
        self.assertEqual(planted.failures(text), ["c.d", "e.f"])
        text = ("failed             a.b: the guest died: BUG: KASAN: use-after-free\n"
                "failed             c.d: not run: the guests before it died, or time ran out\n"
                "failed             guest.hangs: the guest hangs\n\nfailed:\n  a.b: the guest died\n")
        self.assertEqual(planted.failures(text), ["a.b", "guest.hangs"])

    def test_who_has_noticed(self):
        fault = planted.Fault("x", "", "f", "a", "b", "c.d")
        failed, passed = "failed     1.0 s  c.d: why\n", "passed     1.0 s  c.d\n"
        no_guest, over = "failed            c.d: the guest did not boot\n", "\n1 passed, 1 failed, 0 skipped\n"
        # The first that fails is enough.
        for text, late, who in ((passed + over, False, []), (failed + over, False, ["c.d"]), (failed, True, ["c.d"])):
            self.assertEqual(planted.noticed(fault, text, late), who)
        # Without a guest, or without an end, nothing is shown.
        for text, late in ((no_guest + over, False), (no_guest, True), (passed, True), (passed, False)):
            with self.subTest(text, late=late), self.assertRaises(planted.say.LabError):
                planted.noticed(fault, text, late)
