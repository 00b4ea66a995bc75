# SPDX-License-Identifier: GPL-2.0
"""What is skipped is compared with a list, both ways."""

import unittest
from unittest import mock

from tests.lab import skips
from tests.lab.suite import Result

LINES = {"stock": (skips.Skip("paths.vrf", "no VRF"), skips.Skip("link.parent", "has none", False))}


class Both(unittest.TestCase):
    def judged(self, *results, whole=True):
        with mock.patch.object(skips, "ALLOWED", LINES):
            return {r.name: r.status for r in skips.judge(results, "stock", whole)}

    def test_what_is_listed_stays_skipped(self):
        self.assertEqual(self.judged(Result("paths.vrf", "skipped", "this kernel has no VRF")), {"paths.vrf": "skipped"})

    def test_what_is_not_listed_fails_whole_or_in_part(self):
        found = self.judged(Result("paths.vrf", "skipped", "another reason"), Result("a", "passed", skips=[["x", "why"]]),
                            Result("b", "passed"), whole=False)
        self.assertEqual(found, {"paths.vrf": "failed", "a": "failed", "b": "passed"})

    def test_a_line_that_nothing_needs_fails_a_whole_run(self):
        self.assertEqual(self.judged(Result("b", "passed")), {"b": "passed", "skips.paths.vrf": "failed"})
        self.assertEqual(self.judged(Result("b", "passed"), whole=False), {"b": "passed"})
