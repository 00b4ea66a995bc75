# SPDX-License-Identifier: GPL-2.0
"""How a dead guest is judged."""

import unittest

from tests.lab import suite

BREAKPOINT = "[    2.474874] Oops: int3: 0000 [#1] SMP NOPTI"
PANIC = "[    2.483695] Kernel panic - not syncing: Fatal exception in interrupt"


class Emulation(unittest.TestCase):
    """A guest runs again only for what qemu alone can have done."""

    def test_a_forgotten_breakpoint_is_the_emulator_s(self):
        self.assertTrue(suite.emulation_failed(["[ 1.0] Booting", BREAKPOINT, PANIC]))

    def test_nothing_else_is(self):
        for line in ("[ 9.0] Oops: invalid opcode: 0000 [#1] SMP", "[ 9.0] BUG: KASAN: use-after-free in x",
                     "[ 9.0] BUG: unable to handle page fault for address: 0", "[ 9.0] WARNING: CPU: 0 PID: 1 at x"):
            self.assertFalse(suite.emulation_failed([line, PANIC]))
            # What came first counts.
            self.assertFalse(suite.emulation_failed([line, BREAKPOINT, PANIC]))
        self.assertFalse(suite.emulation_failed(["[ 1.0] Booting", PANIC]))
        self.assertFalse(suite.emulation_failed([]))


if __name__ == "__main__":
    unittest.main()
