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
