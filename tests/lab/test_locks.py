# SPDX-License-Identifier: GPL-2.0
"""Two runs of the laboratory that want the same: one waits, and says for whom."""

import contextlib
import io
import os
import tempfile
import threading
import time
import unittest
from pathlib import Path
from unittest import mock

from tests.lab import config, locks, um


class Two(unittest.TestCase):
    """Two holders of one lock. Files that are opened each for itself exclude each other within a process, too."""

    def setUp(self):
        self.path = Path(self.enterContext(tempfile.TemporaryDirectory())) / "build" / "lock"

    def test_the_second_waits_and_says_so(self):
        fast = f"the fast guest runs already, for make um in {config.CHECKOUT} (process {os.getpid()})"
        # Not the machine's own, which a guest may have.
        with mock.patch.object(um, "LOCK", self.path.with_name("um")):
            for take, whom in ((lambda: locks.lock(self.path, locks.BUILDING), "another build in this checkout is at work"),
                               (lambda: um.alone("make um"), fast)):
                order, said = [], io.StringIO()

                def second():
                    with take():
                        order.append("second")

                other = threading.Thread(target=second)
                with contextlib.redirect_stdout(said):
                    with take():
                        other.start()
                        while other.is_alive() and not said.getvalue():
                            time.sleep(0.01)
                        order.append("first")
                    other.join(30)
                self.assertEqual(order, ["first", "second"])
                self.assertIn(f"{whom}; waiting for it", said.getvalue())

    def test_sharers_do_not_wait(self):
        with locks.lock(self.path, locks.SETTING_UP, shared=True), locks.lock(self.path, locks.SETTING_UP, shared=True):
            self.assertTrue(self.path.exists())
