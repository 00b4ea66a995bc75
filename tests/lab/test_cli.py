# SPDX-License-Identifier: GPL-2.0
"""The command line."""

import importlib
import io
import pkgutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

from tests import bench, lab
from tests.lab import boot, build, cli
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


class Guest(unittest.TestCase):
    """`lab guest` ends as what ran in the guest did."""

    def status(self, command, runs):
        """Runs a command in a guest that is the host itself, or that dies."""
        with tempfile.TemporaryDirectory() as place, mock.patch.object(sys, "stdout", io.StringIO()), \
                mock.patch.object(boot, "fresh_work", lambda _: place), \
                mock.patch.object(boot, "kvm_works", lambda _: False), \
                mock.patch.object(build, "guest_setup", lambda *_: []), \
                mock.patch.object(boot.Guest, "_script", lambda self, agent, *_: self.here(agent)), \
                mock.patch.object(boot.Guest, "here", lambda self, agent: agent.replace("/srv/results", str(self.results)),
                                  create=True), \
                mock.patch.object(boot, "in_namespace", lambda script: ["sh", "-c", script if runs else ":"]):
            return cli.guest(mock.Mock(path=Path("/")), command)

    def test_exit_status(self):
        self.assertEqual(self.status(["exit", "0"], True), 0)
        self.assertEqual(self.status(["--", "true; sh -c 'exit 7' # that is all"], True), 7)
        self.assertEqual(self.status(["kill -9 $$"], True), 137)

    def test_a_command_that_does_not_end_is_no_success(self):
        with mock.patch.object(cli, "GUEST_LIMIT", 0.1):
            self.assertEqual(self.status(["sleep 100"], True), 124)

    def test_a_guest_that_dies_is_no_success(self):
        self.assertEqual(self.status(["true"], False), 125)

    def test_shell(self):
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
