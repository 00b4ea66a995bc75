# SPDX-License-Identifier: GPL-2.0
"""The command line."""

import importlib
import pkgutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

from tests import bench, lab
from tests.lab import cli
from tests.lab.shell import in_good_order


class Words(unittest.TestCase):
    """What is imported only when its word is said must not wait until then to show that it is broken."""

    def test_every_module_can_be_imported(self):
        for package in (lab, bench):
            for module in pkgutil.iter_modules(package.__path__):
                if module.name != "__main__":
                    importlib.import_module(f"{package.__name__}.{module.name}")

    def test_dashes_part_a_word_from_a_command(self):
        self.assertEqual(cli.rest(["--", "sh", "-c", "--"]), ["sh", "-c", "--"])
        self.assertEqual(cli.rest(["sh"]), ["sh"])


class Shell(unittest.TestCase):
    """`lab shell` ends as what ran in the root did."""

    def test_exit_status(self):
        with mock.patch.multiple(cli.setup, setup=mock.DEFAULT, in_use=mock.DEFAULT), \
                mock.patch.object(cli, "chroot_command", lambda _root, argv, cwd: argv):
            for argv, status in ((["sh", "-c", "exit 3"], 3), (["--", "sh", "-c", "kill -9 $$"], 137)):
                self.assertEqual(cli.carry_out(cli.parser().parse_args(["shell", *argv])), status)


class Ending(unittest.TestCase):
    """Told twice to end, as by `timeout make`, the laboratory still does what it does last."""

    def test_twice(self):
        code = ("import os, signal\nfrom tests.lab import cli\n"
                "for n in cli.ENDING: signal.signal(n, cli.end)\n"
                "try:\n    os.kill(os.getpid(), signal.SIGTERM)\n"
                "finally:\n    os.kill(os.getpid(), signal.SIGTERM)\n    print('the sum')\n")
        done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, check=False)
        self.assertEqual((done.stdout, done.returncode), ("the sum\n", 143))

    def test_one_that_runs_in_another(self):
        """It is asked to end, and not killed, for it has guests of its own."""
        code = ("import signal, sys, time\nfrom tests.lab import cli\n"
                "for n in cli.ENDING: signal.signal(n, cli.end)\n"
                "try:\n    print('ready', flush=True)\n    time.sleep(600)\n"
                "finally:\n    open(sys.argv[1], 'w').write('ended its guests')\n")
        real = subprocess.Popen.communicate

        def communicate(proc, timeout=None):
            if timeout == 600:
                proc.stdout.readline()
                raise KeyboardInterrupt
            return real(proc, timeout=timeout)

        with tempfile.TemporaryDirectory() as folder, mock.patch.object(subprocess.Popen, "communicate", communicate):
            said = Path(folder) / "said"
            with self.assertRaises(KeyboardInterrupt):
                in_good_order([sys.executable, "-c", code, said], 600, stdout=subprocess.PIPE)
            self.assertEqual(said.read_text(encoding="utf-8"), "ended its guests")
        done = in_good_order(["sh", "-c", "echo words; exit 3"], stdout=subprocess.PIPE, text=True)
        self.assertEqual((done.stdout, done.returncode), ("words\n", 3))
