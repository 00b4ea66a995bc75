# SPDX-License-Identifier: GPL-2.0
"""The fast guest: a kernel for each recipe, and what is left out there is named."""

import unittest
from unittest import mock

from tests.guest import scenario
from tests.lab import check, checks, debug, made, um


class Kinds(unittest.TestCase):
    """What a kernel is made of decides where it is, and of two fragments the later one wins."""

    def test_the_later_fragment_wins(self):
        lines = um.DEBUG.configuration().splitlines()
        self.assertIn("# CONFIG_PREEMPT_VOLUNTARY is not set", lines)
        self.assertNotIn("CONFIG_PREEMPT_VOLUNTARY=y", lines)
        self.assertIn('CONFIG_LOCALVERSION="-umd"', lines)
        self.assertNotIn('CONFIG_LOCALVERSION="-um"', lines)

    def test_recipe(self):
        class Root:
            recipe, version = "r", "7.3.4-1"

        before = {kind.name: kind.recipe(Root) for kind in (um.PLAIN, um.DEBUG, debug.KIND)}
        self.assertEqual(len(set(before.values())), 3)
        Root.version = "7.3.5-1"
        self.assertFalse(set(before.values()) & {kind.recipe(Root) for kind in (um.PLAIN, um.DEBUG, debug.KIND)})
        read = made.Path.read_text
        with mock.patch.object(made.Path, "read_text", lambda path, **kw: read(path, **kw) + "\n" * path.name.endswith(".patch")):
            self.assertNotEqual(um.PLAIN.recipe(Root), before["um"])


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

    def test_the_stock_kernel_has_no_checks(self):
        plan = check.choose("", "stock")
        self.assertFalse(set(plan.guests) & set(um.KINDS))
        self.assertTrue(all(r.name.startswith("debug.") for r in plan.left_out))
        self.assertIn("debug.kunit", [r.name for r in plan.left_out])

    def test_a_whole_run_has_both(self):
        plan = check.choose("")
        fast, stock = plan.guests[um.DEBUG.name].everything(), plan.guests[""].everything()
        self.assertFalse(plan.left_out)
        for name in ("debug.kunit", "debug.leaks", "verbs.fence", "errors.remote-access", "teardown.closed"):
            self.assertIn(name, fast)
        for name in ("verbs.stream-busy-cpus", "verbs.large-mr", "paths.e1000", "stock.users", "ulp.nvme-local"):
            self.assertIn(name, stock)
        # What a round leaves is measured where no check holds back what was freed.
        self.assertIn("teardown.orders", plan.guests[um.PLAIN.name].everything())
        self.assertIn("teardown.some-orders", fast)
        self.assertNotIn("verbs.fence", stock)

    def test_what_is_named_runs_on_its_machine(self):
        self.assertEqual(set(check.choose("verbs.fence,debug.kunit").guests), {"", um.DEBUG.name})

    def test_checks_are_asked_last(self):
        queue = check.choose("debug,verbs.fence", um.DEBUG.name).guests[um.DEBUG.name]
        self.assertEqual(queue.last, ["debug.lockdep", "debug.leaks"])
        self.assertTrue(all(n.startswith("debug.finds.") for n in queue.once) and queue.once)
        self.assertEqual(check.choose("verbs.fence", um.PLAIN.name).guests[um.PLAIN.name].everything(), ["verbs.fence"])
        self.assertEqual(check.choose("debug.lockdep", um.DEBUG.name).guests[um.DEBUG.name].everything(), ["debug.lockdep"])

    def test_patterns_are_about_something(self):
        for pattern in (*um.TIER, *um.TWINS, *um.PLAIN_TIER, *um.STOCK, *debug.WATCHED,
                        *(pattern for pattern, _ in um.LEFT_OUT + debug.LEFT_OUT)):
            self.assertTrue(any(checks.is_one_of(n, [pattern]) for n in scenario.REGISTRY), pattern)
