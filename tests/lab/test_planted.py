# SPDX-License-Identifier: GPL-2.0
"""The planted faults can be planted, and the tests that shall notice them exist."""

import unittest

from tests.lab import check, config, planted


class Faults(unittest.TestCase):
    def test_each_can_be_planted(self):
        for fault in planted.faults():
            with self.subTest(fault.name):
                text = (config.CHECKOUT / fault.file).read_text(encoding="utf-8")
                self.assertNotEqual(fault.plant(text), text)

    def test_their_tests_exist(self):
        tests = check.names()
        for fault in planted.faults():
            for name in fault.notice.split(","):
                with self.subTest(fault.name, test=name):
                    self.assertTrue(any(check.wanted(test, name) for test in tests))

    def test_a_whole_run_would_notice_each(self):
        whole = [name for name in check.names() if not check.on_request(name)]
        for fault in planted.faults():
            with self.subTest(fault.name):
                self.assertTrue(any(check.wanted(test, name) for test in whole for name in fault.notice.split(",")))

    def test_failures_are_read_from_the_lines_of_check(self):
        text = "passed     1.2 s  a.b\nfailed     3.0 s  c.d: why\nfailed    12.5 s  e.f\n\nfailed:\n  c.d: why\n"
        self.assertEqual(planted.failures(text), ["c.d", "e.f"])
        text = ("failed             a.b: the guest died: BUG: KASAN: use-after-free\n"
                "failed             c.d: not run: the guests before it died, or time ran out\n"
                "failed             guest.hangs: the guest hangs\n\nfailed:\n  a.b: the guest died\n")
        self.assertEqual(planted.failures(text), ["a.b", "guest.hangs"])

    def test_who_has_noticed(self):
        fault = planted.Fault("x", "f", "a", "b", "c.d")
        failed, passed = "failed     1.0 s  c.d: why\n", "passed     1.0 s  c.d\n"
        no_guest, over = "failed            c.d: the guest did not boot\n", "\n1 passed, 1 failed, 0 skipped\n"
        # The first that fails is enough.
        for text, who in ((passed + over, []), (failed + over, ["c.d"]), (failed, ["c.d"])):
            self.assertEqual(planted.noticed(fault, text), who)
        # Without a guest, or without an end, nothing is shown.
        for text in (no_guest + over, passed):
            with self.subTest(text), self.assertRaises(planted.say.LabError):
                planted.noticed(fault, text)
