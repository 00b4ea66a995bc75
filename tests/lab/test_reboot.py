# SPDX-License-Identifier: GPL-2.0
"""What is told of a machine of systemd's whose stages do not all pass."""

import unittest

from tests.lab import reboot

CONSOLE = """[   38.7] Module qemu_fw_cfg is blacklisted

reboot: failed
Nov 29 01:40:02 lab ferroce[401]: fe0 on eth0 was refused
Traceback (most recent call last):
AssertionError: links are {'rdma0': ('eth0', True)}

reboot: because AssertionError: links are {'rdma0': ('eth0', True)}
[  124.3] reboot: Power down
"""


class Words(unittest.TestCase):
    """The cause stands where it is read."""

    def test_of_a_stage_that_failed(self):
        self.assertEqual(reboot.reason(True, [], CONSOLE),
                         "it went through 0 of 2 stages: AssertionError: links are {'rdma0': ('eth0', True)}")
        said = reboot.last_words(CONSOLE).splitlines()
        self.assertIn("refused", said[0])
        self.assertEqual(said[-1], "AssertionError: links are {'rdma0': ('eth0', True)}")

    def test_of_one_that_hangs(self):
        self.assertEqual(reboot.reason(False, ["1"], "Starting udev\n"), "it does not end")
        self.assertEqual(reboot.last_words("Starting udev\n"), "Starting udev\n")
