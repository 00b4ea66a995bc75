# SPDX-License-Identifier: GPL-2.0
"""The table of errors: every status that a reliable connection can report, each with all its causes.

The C program `verbs_cases` provokes and judges them, family by family: by the local path, by packets on one device,
and between two network namespaces. `python3 -m tests.lab guest python3 -m tests.scenarios.verbs.errors` prints the table.
"""

import re
import sys

from tests.guest import flavour
from tests.guest.cases import cases, run_program
from tests.guest.fabric import loop, pair
from tests.guest.scenario import Failed, add, last_line, require

WAYS = {"local": "by the local path", "wire": "by packets on one device", "veth": "between two namespaces"}


def table(way, name, seconds):
    """Runs the program on one way; returns what it printed."""
    if way == "veth":
        with pair() as ends:
            return run_program(name, *ends, seconds=seconds)
    with loop(way == "local") as end:
        return run_program(name, end, seconds=seconds)


def family(way, what):
    """A scenario: one family of causes on one way; its notes are the lines of the table."""
    def run(report):
        done = table(way, f"table-{what.name}", what.seconds)
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
        failed |= table(way, "table", sum(what.seconds for what in cases("errors"))).returncode
    return failed


def printed(what, way, rows):
    """A scenario: a table that the program prints while it provokes one row after the other."""
    def run(report):
        with loop(way == "local") as end:
            lines = what.run(end).splitlines()
        for line in lines:
            report.note(line)
        require(sum("|" in line for line in lines) == rows, f"{len(lines)} lines, and not {rows}")

    return run


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

for _way, _words in WAYS.items():
    for _what in cases("errors"):
        # rdma_rxe has no local path.
        if _way in _what.ways and (_way != "local" or flavour.current().is_ferroce):
            add(f"errors.{_what.name}.{_way}", _what.seconds + 30, f"{_what.shows}; {_words}", family(_way, _what))

# As many as the enumerations of libibverbs have.
_ROWS = {"every-event": 20, "every-status": 24}
for _what in cases("tables"):
    if _what.name in _ROWS:
        # An answer is forged as a packet, and the events of a port are the same on every path.
        add(f"errors.{_what.name}", _what.seconds + 30, _what.shows, printed(_what, "wire", _ROWS[_what.name]))
