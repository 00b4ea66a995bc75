# SPDX-License-Identifier: GPL-2.0
"""The cases of the C program `verbs_cases` on one device, by the local path and by packets."""

from contextlib import contextmanager

from tests.guest import flavour
from tests.guest.cases import cases
from tests.guest.fabric import WAYS, counters, each_way, grown, loop, pair, read, setting
from tests.guest.scenario import add, require, scenario

# Packets of a stream must not overtake each other, whichever CPU sends them. With nothing lost on the way, a
# receiver sees a gap in the PSNs if and only if a later packet came first. What is sent again because an answer is late
# has PSNs that were seen: it is a duplicate, and no gap.
GAPS = ("out_of_sequence", "kept_requests", "out_of_sequence_response")
# Whether another CPU was free, or was taken, at the right moment is not for us to say: then a case is run again.
ATTEMPTS = 5


@contextmanager
def no_loss_on_the_way():
    """Room on `lo`, by which what a device sends to itself goes, for more packets than can be under way. Yields a function
    that says how many the kernel has dropped nevertheless."""
    def dropped():
        return sum(int(row.split()[1], 16) for row in (read("/proc/net/softnet_stat") or "").splitlines())

    with setting("/proc/sys/net/core/netdev_max_backlog", "100000"):
        first = dropped()
        yield lambda: dropped() - first


def judge_order(report, grown, lost):
    """That no packet overtook another, which the order of arrival shows however long anything took."""
    report.note(", ".join(f"{key} {value}" for key, value in grown.items() if value))
    # What comes after the end, for a queue pair in RESET, is dropped rightly and is no gap. Nobody but the driver damages
    # what goes by `lo`, or loses what the kernel has not dropped.
    require(not grown["drop_icrc"] and not grown["drop_no_memory"] and grown["send_lost"] <= lost,
            f"the kernel has dropped {lost} packets, and the device counts {grown}")
    if lost:
        # Who overtook whom cannot be seen then. The data were checked all the same.
        report.skip("the order of packets", f"{lost} packets were lost on the way")
        return
    wrong = {key: grown[key] for key in GAPS if grown[key]}
    require(not wrong, f"packets were overtaken: {wrong}")


def stream(report, end, what):
    """Runs a case until what it is about has happened, and judges the order of the packets each time."""
    for _ in range(ATTEMPTS):
        with no_loss_on_the_way() as dropped:
            before = counters(end.dev)
            what.run(end)
            grew = grown(before, counters(end.dev))
            lost = dropped()
        if not flavour.current().is_ferroce:
            return
        judge_order(report, grew, lost)
        if grew[what.counter]:
            return
    require(False, f"{what.counter} did not count in {ATTEMPTS} runs")


def case(report, what):
    """One case on a device that serves itself."""
    with loop() as end:
        each_way(report, end, what.ways, lambda _: stream(report, end, what) if what.counter else what.run(end))


def about(what):
    return f"{what.shows}; {' and '.join(WAYS[way] for way in what.ways)}"


for _what in cases("verbs") + cases("users") + cases("memory") + cases("queues"):
    # One that does not end may not be run again and again.
    _limit = (_what.seconds + 30) * (ATTEMPTS if _what.counter else 1) * len(_what.ways)
    if _what.ways:
        add(f"{_what.group}.{_what.name}", _limit, about(_what), case, _what)


@scenario("verbs.ud-veth", 240)
def between_two(report):
    """Datagrams between two devices over veth: messages, and every odd address vector."""
    with pair() as ends:
        for what in cases("verbs"):
            if what.name in ("ud-messages", "ud-odd-handles"):
                said = what.run(*ends).splitlines()[:-1]
                for line in said if what.name == "ud-odd-handles" else ():
                    report.note(line)
