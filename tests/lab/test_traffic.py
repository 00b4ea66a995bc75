# SPDX-License-Identifier: GPL-2.0
"""Tests of how the traffic under teardown is judged."""

import signal
import unittest

from tests.guest.scenario import Failed
from tests.scenarios.teardown.traffic import DESTROYED, judge


class HowTheyEnd(unittest.TestCase):
    """What fails a round, and what does not: process 7 was asked to destroy everything, and 8 is killed."""

    ASKED = {7: {signal.SIGUSR1}, 8: {signal.SIGKILL}}

    def test_as_asked(self):
        judge({7: DESTROYED, 8: -9}, self.ASKED, {})

    def test_not_as_asked(self):
        """A crash, an end by itself, a kill that nobody sent, and what may never be."""
        for seventh, eighth, words in ((-11, -9, {}), (DESTROYED, 0, {}), (-9, -9, {}),
                                       (DESTROYED, 1, {8: "received data: byte 3 is 00, not 01"})):
            with self.assertRaises(Failed, msg=(seventh, eighth)):
                judge({7: seventh, 8: eighth}, self.ASKED, words)
