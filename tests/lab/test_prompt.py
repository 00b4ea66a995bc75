# SPDX-License-Identifier: GPL-2.0
"""When a guest that somebody waits for is booted again."""

import contextlib
import io
import tempfile
import unittest
from pathlib import Path
from unittest import mock

from tests.guest.prompt import BEGUN
from tests.lab import prompt, suite
from tests.lab.test_suite import REPLACED, breakpoint_at


class Attended(unittest.TestCase):
    """A guest that the emulator has killed before it began is followed by another; no other one is."""

    FAULT = breakpoint_at("sched_clock_cpu+0x9/0x1f0", REPLACED)

    def attended(self, *guests):
        """The exit status, and how many guests there were. Each has ended, with what it left."""
        used = []

        def make():
            left = guests[len(used)]
            results = Path(self.enterContext(tempfile.TemporaryDirectory()))
            for name in left.keys() & {BEGUN, prompt.STATUS}:
                (results / name).write_text(left[name], encoding="ascii")
            used.append(mock.Mock(kvm=False, results=results, console_tail=lambda _: left["console"], output_tail=lambda _: []))
            return used[-1]

        with contextlib.redirect_stdout(io.StringIO()):
            return prompt.attended(make, lambda vm: None), len(used)

    def test_another_one_is_booted(self):
        self.assertEqual(self.attended({"console": self.FAULT}, {"console": [], BEGUN: "", prompt.STATUS: "3"}), (3, 2))

    def test_not_for_ever(self):
        self.assertEqual(self.attended(*[{"console": self.FAULT}] * 9), (prompt.DIED, suite.MOST_REPEATED + 1))

    def test_not_when_the_command_had_begun(self):
        self.assertEqual(self.attended({"console": self.FAULT, BEGUN: ""}), (prompt.DIED, 1))

    def test_a_command_that_does_not_end_is_no_success(self):
        vm = mock.Mock(alive=lambda: True, output=Path("/nowhere"))
        with mock.patch.object(prompt.sys, "stdout", mock.Mock()):
            self.assertEqual(prompt.run(lambda: vm, 0), 124)

    def test_not_for_another_fault(self):
        self.assertEqual(self.attended({"console": ["BUG: unable to handle page fault"]}), (prompt.DIED, 1))
