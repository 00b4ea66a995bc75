# SPDX-License-Identifier: GPL-2.0
"""A great many objects, threads that share objects, and commands that no library sends."""

import os

from tests.guest.cases import cases
from tests.guest.fabric import loop
from tests.guest.scenario import add, shortened
from tests.judges import leaks
from tests.scenarios.messages.pingpong import once

SEED = os.environ.get("FERROCE_SEED", "1000")
# How many, and how many on a kernel full of checks.
COUNTS = {"regions": shortened(20000, 5000), "queue-pairs": shortened(4000, 800), "random": shortened(200000, 20000)}


def crowd(case, local):
    """A scenario: a case of the C program on a device that must be whole afterwards."""
    def run(report):
        with loop(local) as end:
            with leaks.none_kept():
                for line in case.run(end, COUNT=str(COUNTS.get(case.name, 0)), SEED=SEED).splitlines()[:-1]:
                    report.note(line)
            once((end, end), 4, 1024, iters=10)

    return run


for _case in cases("scale") + cases("races") + cases("commands"):
    for _way in _case.ways:
        add(f"{_case.group}.{_case.name}.{_way}", _case.seconds + 30, _case.shows, crowd(_case, _way == "local"))
