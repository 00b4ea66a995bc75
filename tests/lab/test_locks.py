# SPDX-License-Identifier: GPL-2.0
"""Two runs of the laboratory that want the same: one waits, and says for whom."""

import contextlib
import io
import tempfile
import threading
import time
import unittest
from pathlib import Path

from tests.lab import locks


class Two(unittest.TestCase):
    """Two holders of one lock. Files that are opened each for itself exclude each other within a process, too."""

    def setUp(self):
        self.path = Path(self.enterContext(tempfile.TemporaryDirectory())) / "build" / "lock"

    def test_the_second_waits_and_says_so(self):
        order, said = [], io.StringIO()

        def second():
            with locks.lock(self.path, locks.BUILDING):
                order.append("second")

        other = threading.Thread(target=second)
        with contextlib.redirect_stdout(said):
            with locks.lock(self.path, locks.BUILDING):
                other.start()
                while other.is_alive() and not said.getvalue():
                    time.sleep(0.01)
                order.append("first")
            other.join(30)
        self.assertEqual(order, ["first", "second"])
        self.assertIn("another build in this checkout is at work; waiting for it", said.getvalue())

    def test_sharers_do_not_wait(self):
        with locks.lock(self.path, locks.SETTING_UP, shared=True), locks.lock(self.path, locks.SETTING_UP, shared=True):
            self.assertTrue(self.path.exists())
