# SPDX-License-Identifier: GPL-2.0
"""The table of errors: every status that a reliable connection can report, each with all its causes.

The C program `verbs_cases` provokes and judges them, family by family: by the local path, by packets on one device,
and between two network namespaces. `python3 -m tests.lab guest python3 -m tests.vm.errors` prints the table.
"""

import os
import re
import sys

from tests.vm import flavour
from tests.vm.fabric import loop, pair
from tests.vm.scenario import Failed, add, command, last_line
from tests.vm.verbs import PROGRAM

# By the names of the families in verbs_c/causes.c, with the seconds that each takes on an idle emulated machine.
FAMILIES = {
    "lengths": 60, "local-operation": 60, "local-protection": 120, "remote-access": 90, "invalid-requests": 60,
    "remote-operation": 90, "retries": 90, "receiver-not-ready": 90, "flushes": 60, "refusals": 90,
}
WAYS = {"local": "by the local path", "wire": "by packets on one device", "veth": "between two namespaces"}


def table(way, name):
    """Runs the program on one way; returns what it printed."""
    env = dict(os.environ) if flavour.current().is_ferroce else dict(os.environ, RXE="1")
    limit = 2 * max(FAMILIES.values()) if name == "table" else FAMILIES[name.removeprefix("table-")]
    if way == "veth":
        with pair() as (one, two):
            return command([PROGRAM, one.dev, str(one.gid()), two.dev, str(two.gid()), name], ok=None, timeout=limit, env=env)
    with loop(way == "local") as end:
        return command([PROGRAM, end.dev, str(end.gid()), name], ok=None, timeout=limit, env=env)


def family(way, name):
    """A scenario: one family of causes on one way; its notes are the lines of the table."""
    def run(report):
        done = table(way, f"table-{name}")
        for line in done.stdout.splitlines():
            report.note(line)
        if done.returncode:
            wrong = [line for line in done.stdout.splitlines() if line.startswith(("failed:", "FAILED"))]
            raise Failed(f"{last_line(done.stdout)}: {' '.join(wrong[:2])}")
        if not re.search(r"^[1-9]\d* causes, 0 failed$", last_line(done.stdout)):
            raise Failed(f"no causes were tried: {last_line(done.stdout)}")

    return run


def main(ways):
    """Prints the table; without names of ways, for all three."""
    failed = 0
    for way in ways or WAYS:
        print(f"\n{WAYS[way]}:")
        failed |= table(way, "table").returncode
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

for _way, _words in WAYS.items():
    for _name, _limit in FAMILIES.items():
        # rdma_rxe has no local path.
        if _way != "local" or flavour.current().is_ferroce:
            add(f"errors.{_name}.{_way}", _limit + 30, f"errors: {_name}, {_words}", family(_way, _name))
