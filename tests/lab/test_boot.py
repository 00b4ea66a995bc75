# SPDX-License-Identifier: GPL-2.0
"""Which program emulates a guest."""

import tempfile
import unittest
from pathlib import Path
from unittest import mock

from tests.lab import boot, config


class Emulator(unittest.TestCase):
    """A newer qemu that setup has fetched stands for this machine's, but not where KVM runs the guest."""

    def test_versions(self):
        self.assertFalse(boot.is_new_enough("QEMU emulator version 7.2.22 (Debian 1:7.2+dfsg-7+deb12u18+b3)"))
        self.assertTrue(boot.is_new_enough("QEMU emulator version 10.0.13 (Debian 1:10.0.13+ds-0+deb13u1)"))
        self.assertFalse(boot.is_new_enough("qemu is not there"))

    def test_the_newer_one(self):
        with tempfile.TemporaryDirectory() as folder:
            newer = Path(folder) / boot.QEMU
            with mock.patch.object(config, "newer_emulator", lambda: Path(folder)):
                self.assertNotEqual(boot.qemu(kvm=False), str(newer))
                newer.touch()
                self.assertEqual(boot.qemu(kvm=False), str(newer))
                self.assertNotEqual(boot.qemu(kvm=True), str(newer))


if __name__ == "__main__":
    unittest.main()
