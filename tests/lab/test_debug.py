# SPDX-License-Identifier: GPL-2.0
"""What a debug kernel prints is seen for what it is, and its configuration asks for what is to print it."""

import contextlib
import importlib
import io
import unittest
from unittest import mock

from tests.lab import debug
from tests.vm import kernel, scenario
from tests.vm.scenario import Failed

# Its scenarios are for the debug kernel alone: here they must not join the others.
with mock.patch.dict(scenario.REGISTRY):
    guest = importlib.import_module("tests.vm.debug")

REPORTS = [
    "BUG: KASAN: slab-use-after-free in f+0x1/0x2 [ferroce]",
    "WARNING: possible circular locking dependency detected",
    "WARNING: possible recursive locking detected",
    "WARNING: inconsistent lock state",
    "[ BUG: Invalid wait context ]",
    "WARNING: suspicious RCU usage",
    "WARNING: held lock freed!",
    "BUG: sleeping function called from invalid context at mm/slub.c:1",
    "BUG: scheduling while atomic: python3/12/0x00000002",
    "DEBUG_LOCKS_WARN_ON(1)",
    "WARNING: CPU: 0 PID: 1 at lib/debugobjects.c:1 debug_print_object+0x1/0x2",
    "kmemleak: 3 new suspected memory leaks (see /sys/kernel/debug/kmemleak)",
    "INFO: task rdma:12 blocked for more than 60 seconds.",
    "watchdog: BUG: soft lockup - CPU#0 stuck for 26s! [rdma:12]",
    "rcu: INFO: rcu_preempt detected stalls on CPUs/tasks:",
    "rust_kernel: panicked at rust/verbs/qp.rs:1:1:",
    "list_del corruption. prev->next should be 0, but was 1",
    "refcount_t: underflow; use-after-free.",
    "unregister_netdevice: waiting for v0 to become free. Usage count = 2",
    "ref_tracker: netdev@0 has 1/1 users at: leaked reference.",
]

CALM = [
    "ferroce: loading out-of-tree module taints kernel.",
    "fe0: port 1 is up",
]


class Reports(unittest.TestCase):
    """Every kind of report fails a scenario."""

    def test_each_kind(self):
        for line in REPORTS:
            self.assertTrue(kernel.complaints([line]), line)

    def test_other_lines(self):
        self.assertFalse(kernel.complaints(CALM))


class Leaks(unittest.TestCase):
    """What kmemleak lists fails, and an empty list does not."""

    def test_judged(self):
        with contextlib.redirect_stdout(io.StringIO()):
            guest.judge("now", [])
            with self.assertRaisesRegex(Failed, "1 leaks now: unreferenced object 0xff | comm"):
                guest.judge("now", ["unreferenced object 0xff (size 8):\n  comm \"rdma\", pid 1\n"])


class Fragment(unittest.TestCase):
    """The configuration keeps what the target is for."""

    def test_checks(self):
        text = debug.FRAGMENT.read_text(encoding="utf-8").splitlines()
        for name in ("KASAN", "KASAN_VMALLOC", "PROVE_LOCKING", "PROVE_RCU", "DEBUG_ATOMIC_SLEEP", "DEBUG_OBJECTS",
                     "DEBUG_KMEMLEAK", "DEBUG_LIST", "DEBUG_SG", "RUST_DEBUG_ASSERTIONS", "DETECT_HUNG_TASK",
                     "SOFTLOCKUP_DETECTOR"):
            self.assertIn(f"CONFIG_{name}=y", text)

    def test_no_line_twice(self):
        names = [line.split("=")[0] for line in debug.FRAGMENT.read_text(encoding="utf-8").splitlines()
                 if line.startswith("CONFIG_")]
        self.assertEqual(len(names), len(set(names)))


if __name__ == "__main__":
    unittest.main()
