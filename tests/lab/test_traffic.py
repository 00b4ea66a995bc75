# SPDX-License-Identifier: GPL-2.0
"""Tests of how the traffic under teardown is judged."""

import io
import signal
import unittest

from tests.guest.scenario import Failed
from tests.scenarios.teardown.traffic import DESTROYED, Traffic


class Said(Traffic):
    """Traffic whose program has said these lines; process 7 was asked to destroy everything, and 8 is killed."""

    def __init__(self, *lines):  # pylint: disable=super-init-not-called
        said = io.BytesIO("".join(line + "\n" for line in ("forked 7 8", *lines)).encode())
        said.poll = lambda: None
        said.stdout = said
        self.proc, self.text, self.forked = said, b"", []
        self.running, self.closed, self.ended = set(), set(), {}
        self.errors, self.asked, self.words = {}, {7: {signal.SIGUSR1}, 8: {signal.SIGKILL}}, {}


class HowTheyEnd(unittest.TestCase):
    """What fails a round, and what does not."""

    def test_as_asked(self):
        """Destroyed and killed, with errors of a peer that is gone on the way."""
        Said("error 8 transport retry counter exceeded", f"ended 7 {DESTROYED}", "ended 8 -9").kill_all()

    def test_not_as_asked(self):
        """A crash, an end by itself, a kill that nobody sent, and what may never be."""
        for lines in (("ended 7 -11", "ended 8 -9"), (f"ended 7 {DESTROYED}", "ended 8 0"), ("ended 7 -9", "ended 8 -9"),
                      ("broken 8 received data: byte 3 is 00, not 01", f"ended 7 {DESTROYED}", "ended 8 1")):
            with self.assertRaises(Failed, msg=lines):
                Said(*lines).kill_all()
