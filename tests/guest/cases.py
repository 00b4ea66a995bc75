# SPDX-License-Identifier: GPL-2.0
"""The cases of the C program `verbs_cases`, as it lists them: what there is to know of one stands beside it in C."""

import os
from dataclasses import dataclass

from tests.guest import flavour
from tests.guest.programs import program
from tests.guest.scenario import Failed, Skipped, command, last_line

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


def verdict(done):
    """What the program's end means."""
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
            return [Case(row[0], row[1], tuple(row[2].split()), int(row[3]), *row[4:]) for row in rows if row[0] == group]
    raise SystemExit(f"{path} is missing: it is made with the programs of the guest, as by `python3 -m tests.lab check`")
