# SPDX-License-Identifier: GPL-2.0
"""The fast guest: a kernel for each recipe, and what is left out there is named."""

import unittest

from tests.guest import scenario
from tests.lab import check, checks, kernels, um


class Choice(unittest.TestCase):
    """Where each scenario runs, and why one does not."""

    def setUp(self):
        scenario.load_all()

    def test_each_runs_once_or_has_a_reason(self):
        names = [n for n in scenario.REGISTRY if not check.on_request(n)]
        for guest in ("", "stock", um.PLAIN.name, um.DEBUG.name):
            plan = check.choose("", guest)
            scenarios = [n for n in plan.everything() if n in scenario.REGISTRY]
            self.assertEqual(sorted(scenarios + [r.name for r in plan.left_out]), sorted(names), guest)
            self.assertEqual(bool(plan.host), guest == "")
            self.assertTrue(all(r.status == "skipped" and r.detail for r in plan.left_out))

    def test_patterns_are_about_something(self):
        for pattern in (*um.TIER, *um.TWINS, *um.PLAIN_TIER, *um.STOCK, *(pattern for pattern, _ in um.LEFT_OUT)):
            self.assertTrue(any(checks.is_one_of(n, [pattern]) for n in scenario.REGISTRY), pattern)

    def test_some_tests_for_every_kernel(self):
        self.assertEqual(check.meaningless(kernels.SHORT, check.names()), [])
