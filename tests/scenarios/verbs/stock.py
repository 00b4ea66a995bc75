# SPDX-License-Identifier: GPL-2.0
"""All cases of `verbs_cases` on the stock kernel, a group in one scenario. Each has a scenario of its own in the fast guest,
where all checks look on; the stock kernel runs threads at the same time, and is what users have."""

from tests.guest.cases import cases, run_program
from tests.guest.fabric import WAYS, each_way, loop, pair
from tests.guest.scenario import Failed, Skipped, add, require
from tests.scenarios.verbs import errors

GROUPS = ("verbs", "users", "memory", "queues", "races")
# Those that have a scenario of their own on the stock kernel.
ELSEWHERE = ("large-mr", "two-gib")


def together(report, group, ways):
    """Each case of a group on one device, by each way; every failure is told."""
    failed = []
    with loop() as end:
        for what in cases(group):
            if what.name in ELSEWHERE or what.counter:
                continue
            for way in (way for way in ways if way in what.ways):
                try:
                    each_way(report, end, (way,), lambda _, what=what: what.run(end))
                except Skipped as e:
                    report.skip(f"{what.name} {WAYS[way]}", str(e))
                except Failed as e:
                    failed.append(f"{what.name} {e}")
    require(not failed, f"{len(failed)} failed: {'; '.join(failed)}")


def causes(report):
    """Every cause of every status, between two namespaces."""
    with pair() as ends:
        errors.judge(report, run_program("table", *ends, seconds=sum(what.seconds for what in cases("errors"))))


for _group in GROUPS:
    _limit = 60 + sum(5 + what.seconds // 4 for what in cases(_group)) * 2
    add(f"stock.{_group}", _limit, f"each case of {_group}, one after the other, by both ways", together, _group, ("local", "wire"))
add("stock.errors", 300, f"{causes.__doc__.splitlines()[0][:-1].lower()}, one after the other", causes)
