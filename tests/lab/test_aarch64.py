# SPDX-License-Identifier: GPL-2.0
"""Tests of what aarch64.py decides without a compiler or an emulator."""

import tempfile
import unittest
from pathlib import Path

from tests.lab import aarch64, boot, check


class WhatWasBuilt(unittest.TestCase):
    """A file of another processor, or of none, is noticed."""

    def test_only_elf_of_64_bits_for_aarch64_is_for_it(self):
        head = b"\x7fELF\x02\x01\x01" + bytes(9)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "file"
            for content, wanted in ((head + b"\x01\x00\xb7\x00", True), (head + b"\x03\x00\xb7\x00", True),
                                    (head + b"\x03\x00\x3e\x00", False),
                                    (b"\x7fELF\x01" + head[5:] + b"\x01\x00\xb7\x00", False),
                                    (b"", False), (b"text", False)):
                path.write_bytes(content)
                self.assertEqual(aarch64.is_for_it(path), wanted, content)


class Recipe(unittest.TestCase):
    """What the set-up is made of has one compiler: that of the kernel."""

    def test_the_compiler_is_left_open(self):
        self.assertIn(f"@-{aarch64.TRIPLET}", aarch64.CROSS_PACKAGES)

    def test_the_compiler_for_32_bits_is_the_other_of_the_same_version(self):
        line = aarch64.kernel_make("7.3.4", "aarch64-linux-gnu-gcc-14")
        self.assertIn(" CC=aarch64-linux-gnu-gcc-14 ", line)
        self.assertIn(" CC_COMPAT=arm-linux-gnueabihf-gcc-14 ", line)

    def test_no_list_of_another_architecture_is_asked_for(self):
        self.assertIn("-o APT::Architecture=arm64 ", aarch64.apt("arm64"))
        self.assertNotIn("APT::Architecture", aarch64.apt("amd64"))


class Choice(unittest.TestCase):
    """It runs when it is asked for, in a guest of its own."""

    def test_a_whole_run_leaves_it_out(self):
        known = ["host.lab", "aarch64.build", "aarch64.pingpong.veth-ipv4"]
        self.assertEqual(check.pick_tests("", known), ["host.lab"])
        self.assertEqual(check.pick_tests("aarch64", known), known[1:])

    def test_one_machine_is_of_it(self):
        self.assertEqual([name for name, machine in boot.MACHINES.items() if machine.aarch64], ["aarch64"])
        self.assertEqual([name for name, machine in boot.MACHINES.items() if machine.is_usual],
                         ["", "one-processor", "mitigated"])


if __name__ == "__main__":
    unittest.main()
