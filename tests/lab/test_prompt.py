# SPDX-License-Identifier: GPL-2.0
"""When a guest that somebody waits for is booted again."""

import contextlib
import io
import tempfile
import unittest
from pathlib import Path

from tests.guest.prompt import BEGUN
from tests.lab import prompt, suite
from tests.lab.test_suite import REPLACED, breakpoint_at


class Dead:
    """A guest that has ended, with what it left."""

    kvm = False

    def __init__(self, folder, console, begun=False, status=None):
        self.results, self.console = Path(folder), "console.log"
        self.lines = console
        for name, text in ((BEGUN, "" if begun else None), (prompt.STATUS, status)):
            if text is not None:
                (self.results / name).write_text(text, encoding="ascii")

    def console_tail(self, _lines):
        """What the kernel said."""
        return self.lines

    def output_tail(self, _lines):
        """What the command printed."""
        return []


class Attended(unittest.TestCase):
    """A guest that the emulator has killed before it began is followed by another; no other one is."""

    FAULT = breakpoint_at("sched_clock_cpu+0x9/0x1f0", REPLACED)

    def attended(self, *guests):
        """The exit status, and how many guests there were."""
        used = []

        def make():
            folder = tempfile.TemporaryDirectory()
            self.addCleanup(folder.cleanup)
            used.append(Dead(folder.name, **guests[len(used)]))
            return used[-1]

        with contextlib.redirect_stdout(io.StringIO()):
            return prompt.attended(make, lambda vm: None), len(used)

    def test_another_one_is_booted(self):
        self.assertEqual(self.attended({"console": self.FAULT}, {"console": [], "begun": True, "status": "3"}), (3, 2))

    def test_not_for_ever(self):
        self.assertEqual(self.attended(*[{"console": self.FAULT}] * 9), (prompt.DIED, suite.MOST_REPEATED + 1))

    def test_not_when_the_command_had_begun(self):
        self.assertEqual(self.attended({"console": self.FAULT, "begun": True}), (prompt.DIED, 1))

    def test_not_for_another_fault(self):
        self.assertEqual(self.attended({"console": ["BUG: unable to handle page fault"]}), (prompt.DIED, 1))
