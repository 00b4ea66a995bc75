# SPDX-License-Identifier: GPL-2.0
"""A great many objects, threads that share objects, and commands that no library sends."""

from tests.guest.cases import cases
from tests.guest.fabric import each_way, loop
from tests.guest.scenario import SEED, add, seeded, shortened
from tests.judges import leaks
from tests.scenarios.messages.pingpong import talk
from tests.scenarios.verbs.verbs import about

# How many, and how many on a kernel full of checks.
COUNTS = {"regions": shortened(20000, 5000), "queue-pairs": shortened(4000, 800), "random": shortened(200000, 20000)}


def crowd(report, case):
    """A case of the C program on a device that must be whole afterwards."""
    def by(way):
        with leaks.none_kept(), seeded():
            done = case.run(end, COUNT=str(COUNTS.get(case.name, 0)), SEED=str(SEED))
        report.note(f"{way}: " + "; ".join(done.splitlines()[:-1]))
        talk((end, end), 4, 1024, iters=10)

    with loop() as end:
        each_way(report, end, case.ways, by)


for _case in cases("scale") + cases("races") + cases("commands"):
    add(f"{_case.group}.{_case.name}", (_case.seconds + 30) * len(_case.ways), about(_case), crowd, _case)
