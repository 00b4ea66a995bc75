# SPDX-License-Identifier: GPL-2.0
"""What stands between a terminal and the guest's console."""

import contextlib
import io
import os
import pty
import select
import socket
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from tests.guest.prompt import BEGUN
from tests.lab import config, prompt, suite
from tests.lab.test_suite import REPLACED, breakpoint_at

CODE = """
import signal, sys
from tests.lab import prompt
class Guest:
    def alive(self): return True
signal.signal(signal.SIGHUP, signal.SIG_IGN)
prompt.relay(Guest(), sys.argv[1])
"""


class Relay(unittest.TestCase):
    """Keys go to the console and what it says to the screen, until either is gone."""

    def setUp(self):
        self.place = tempfile.TemporaryDirectory()
        self.addCleanup(self.place.cleanup)
        path = f"{self.place.name}/console"
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(path)
            server.listen(1)
            self.person, terminal = pty.openpty()
            self.proc = subprocess.Popen([sys.executable, "-c", CODE, path], cwd=config.CHECKOUT, stdin=terminal,
                                         stdout=terminal, stderr=subprocess.PIPE, start_new_session=True)
            os.close(terminal)
            self.console, _ = server.accept()
        self.addCleanup(self.console.close)
        self.addCleanup(self.proc.stderr.close)
        self.console.sendall(b"hello ")
        self.assertEqual(self.screen(6), b"hello ")

    def screen(self, length):
        """So many bytes of what is shown."""
        data = b""
        while len(data) < length and select.select([self.person], [], [], 60)[0]:
            data += os.read(self.person, 100)
        return data

    def ends(self):
        """It ends by itself, and without an error."""
        self.assertEqual(self.proc.wait(timeout=60), 0, self.proc.stderr.read())

    def test_keys_are_the_guests(self):
        # The key that would end a program on this side, and one that a terminal would translate.
        os.write(self.person, b"a\x03\r")
        self.assertEqual(self.console.recv(3, socket.MSG_WAITALL), b"a\x03\r")
        self.console.close()
        self.ends()
        os.close(self.person)

    def test_the_window_is_closed(self):
        os.close(self.person)
        self.ends()


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


if __name__ == "__main__":
    unittest.main()
