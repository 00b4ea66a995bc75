# SPDX-License-Identifier: GPL-2.0
"""What stands between a terminal and the guest's console."""

import os
import pty
import select
import socket
import subprocess
import sys
import tempfile
import unittest

from tests.lab import config

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


if __name__ == "__main__":
    unittest.main()
