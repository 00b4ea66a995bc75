# SPDX-License-Identifier: GPL-2.0
"""The cases of the C program `verbs_cases`, as it lists them: what there is to know of one stands beside it in C."""

import os
import subprocess
from dataclasses import dataclass

from tests.guest import flavour
from tests.guest.programs import program
from tests.guest.scenario import PATIENCE, Failed, Skipped, command, last_line, say

PROGRAM = program("verbs_cases")


@dataclass(frozen=True)
class Case:
    """One line of `verbs_cases --list`; see main.c and `struct test_case`."""

    group: str
    name: str
    ways: tuple
    seconds: int
    counter: str
    rxe: str
    shows: str

    def run(self, *ends, group=None, **env):
        """Runs it on one device that talks to itself, or between two, if it is said so in a cgroup; returns what it
        printed, if it passed. Some cases read numbers in the environment."""
        if not flavour.current().is_ferroce and self.rxe:
            raise Skipped(f"rdma_rxe {self.rxe}")
        return verdict(run_program(self.name, *ends, seconds=self.seconds, group=group, **env))


def run_program(name, *ends, seconds, group=None, **env):
    """Runs the program with the name of what it is to do, and the places of these ends."""
    places = [word for end in ends for word in (end.dev, str(end.gid()))]
    rxe = {} if flavour.current().is_ferroce else {"RXE": "1"}
    return command([PROGRAM, *places, name], ok=None, timeout=seconds, env={**os.environ, **rxe, **env},
                   preexec_fn=group and group.enter)


class Talker:
    """A case that says what it has, a line each, and goes on when it is told to. Use it in a `with`."""

    def __init__(self, end, name, before=None, **env):
        self.proc = subprocess.Popen([PROGRAM, end.dev, str(end.gid()), name], stdin=subprocess.PIPE,
                                     stdout=subprocess.PIPE, text=True, bufsize=1, preexec_fn=before,
                                     env={**os.environ, **env})

    def line(self):
        """The next line; None when it has ended."""
        line = self.proc.stdout.readline()
        say(f"the program: {line.strip()}")
        return line.strip() or None

    def tell(self, what=""):
        self.proc.stdin.write(what + "\n")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.proc.kill()
        self.proc.wait(timeout=60 * PATIENCE)
        self.proc.stdin.close()
        self.proc.stdout.close()


def verdict(done):
    if done.returncode == 77:
        raise Skipped(last_line(done.stdout).removeprefix("skipped: "))
    if done.returncode:
        said = last_line(done.stdout)
        raise Failed(said.removeprefix("failed: ") if done.returncode == 1 else f"exit {done.returncode}: {said}")
    return done.stdout


def cases(group):
    """Those of a group. In the guest the list lies beside the program, elsewhere where it was made."""
    here = os.path.dirname(PROGRAM)
    for folder in (here, os.path.join(here, "build", "lab")):
        path = os.path.join(folder, "verbs_cases.list")
        if os.path.exists(path):
            with open(path, encoding="utf-8") as f:
                rows = [line.rstrip("\n").split("\t") for line in f]
            return [Case(*name.split("."), tuple(ways.split()), int(seconds), *rest) for name, ways, seconds, *rest in rows
                    if name.startswith(group + ".")]
    raise SystemExit(f"{path} is missing: it is made with the programs of the guest, as by `python3 -m tests.lab check`")
