# SPDX-License-Identifier: GPL-2.0
"""The table of errors: every status that a reliable connection can report, each with all its causes.

The C program `verbs_cases` provokes and judges them, family by family: by the local path, by packets on one device,
and between two network namespaces.
"""

import re

from tests.guest.cases import cases, run_program
from tests.guest.fabric import each_way, loop, pair
from tests.guest.scenario import Failed, add, last_line, require

VETH = "between two namespaces"


def judge(report, done):
    """The lines of a table become notes; none of its causes may have failed."""
    for line in done.stdout.splitlines():
        report.note(line)
    if done.returncode:
        wrong = [line for line in done.stdout.splitlines() if line.startswith(("failed:", "FAILED"))]
        raise Failed(f"{last_line(done.stdout)}: {' '.join(wrong[:2])}")
    if not re.search(r"^[1-9]\d* causes, 0 failed$", last_line(done.stdout)):
        raise Failed(f"no causes were tried: {last_line(done.stdout)}")


def family(report, what, veth):
    """One family of causes on one device, by each way, or between two."""
    def on(*ends):
        judge(report, run_program(f"table-{what.name}", *ends, seconds=what.seconds))

    if veth:
        with pair() as ends:
            on(*ends)
    else:
        with loop() as end:
            each_way(report, end, [way for way in what.ways if way != "veth"], lambda _: on(end))


def printed(report, what, rows):
    """A table that the program prints while it provokes one row after the other."""
    with loop(False) as end:
        lines = what.run(end).splitlines()
    for line in lines:
        report.note(line)
    require(sum("|" in line for line in lines) == rows, f"{len(lines)} lines, and not {rows}")


for _what in cases("errors"):
    add(f"errors.{_what.name}", (_what.seconds + 30) * 2, f"{_what.shows}; on one device, by both ways", family, _what, False)
    if "veth" in _what.ways:
        add(f"errors.{_what.name}.veth", _what.seconds + 30, f"{_what.shows}; {VETH}", family, _what, True)

# As many rows as the enumeration of libibverbs has. The events of a port are the same on every path.
(_what,) = (_what for _what in cases("tables") if _what.name == "every-event")
add("errors.every-event", _what.seconds + 30, _what.shows, printed, _what, 20)
