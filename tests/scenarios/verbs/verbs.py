# SPDX-License-Identifier: GPL-2.0
"""The cases of the C program `verbs_cases` on one device, by the local path and by packets."""

import re
from contextlib import contextmanager, nullcontext

from tests.guest import flavour
from tests.guest.cases import cases
from tests.guest.fabric import WAYS, counters, each_way, grown, loop, pair, read, setting
from tests.guest.scenario import Skipped, add, command, require, scenario

# Packets of a stream must not overtake each other, whichever CPU sends them. With nothing lost on the way, a
# receiver sees a gap in the PSNs if and only if a later packet came first. What is sent again because an answer is late
# has PSNs that were seen: it is a duplicate, and no gap.
GAPS = ("out_of_sequence", "kept_requests", "out_of_sequence_response")
# Whether another CPU was free, or was taken, at the right moment is not for us to say: then a case is run again.
ATTEMPTS = 5
# Packets that CPU 0 sends go into the second band of the qdisc.
SLOW_CPU = """add table inet slow_cpu
add chain inet slow_cpu output { type filter hook output priority 0; }
add rule inet slow_cpu output oifname "lo" meta cpu 0 meta priority set 0x10002
"""


@contextmanager
def delay_on_the_way():
    """Packets on `lo` take a millisecond, and those that CPU 0 sends three: what another CPU sends too early overtakes
    them. Those of one CPU keep their order."""
    # What next sends by `lo` may take packets out of netem and into the backlog of its own CPU, and another
    # CPU may work through its own before that: so they would overtake each other without the driver. With RPS all of
    # them go into the backlog of CPU 0.
    with setting("/sys/class/net/lo/queues/rx-0/rps_cpus", "1"):
        command(["tc", "qdisc", "replace", "dev", "lo", "root", "handle", "1:", "prio", "bands", "2",
                 "priomap", *["0"] * 16])
        try:
            for band, delay in enumerate(("1ms", "3ms"), 1):
                command(["tc", "qdisc", "add", "dev", "lo", "parent", f"1:{band}", "netem", "delay", delay,
                         "limit", "100000"])
            done = command(["nft", SLOW_CPU], ok=None)
            # Where all take a millisecond nothing overtakes.
            if "not supported" in done.stdout:
                raise Skipped("this kernel has no nftables, by which the packets of one CPU are made late")
            require(not done.returncode, f"nft: {done.stdout}")
            yield
        finally:
            command(["nft", "delete table inet slow_cpu"], ok=None)
            command(["tc", "qdisc", "del", "dev", "lo", "root"])


@contextmanager
def no_loss_on_the_way(delayed):
    """Room on `lo`, by which what a device sends to itself goes, for more packets than can be under way, which may be
    `delayed`. Yields a function that says how many the kernel has dropped nevertheless."""
    def dropped():
        shown = command(["tc", "-s", "qdisc", "show", "dev", "lo"]).stdout if delayed else ""
        rows = (read("/proc/net/softnet_stat") or "").splitlines()
        return (sum(int(row.split()[1], 16) for row in rows)
                + sum(map(int, re.findall(r"\(dropped (\d+)", shown))))

    with (setting("/proc/sys/net/core/netdev_max_backlog", "100000"),
          delay_on_the_way() if delayed else nullcontext()):
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


def stream(report, end, what, delayed):
    """Runs a case until what it is about has happened, and judges the order of the packets each time."""
    for _ in range(ATTEMPTS):
        with no_loss_on_the_way(delayed) as dropped:
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


def case(report, what, ways, delayed=False):
    """One case on a device that serves itself in these ways, or with packets that take their time."""
    with loop() as end:
        each_way(report, end, ways,
                 lambda _: stream(report, end, what, delayed) if what.counter else what.run(end))


def about(what):
    return f"{what.shows}; {' and '.join(WAYS[way] for way in what.ways)}"


for _what in cases("verbs") + cases("users") + cases("memory") + cases("queues"):
    # One that does not end may not be run again and again.
    _limit = (_what.seconds + 30) * (ATTEMPTS if _what.counter else 1) * len(_what.ways)
    if _what.ways:
        add(f"{_what.group}.{_what.name}", _limit, about(_what), case, _what, _what.ways)
    if _what.name == "stream-in-bursts":
        # A queue that moves has to wait here for what is under way.
        add(f"verbs.{_what.name}.delayed", _limit, f"{_what.shows}; by packets that are late, more so from one CPU",
            case, _what, ("wire",), True)


@scenario("verbs.ud-veth", 240)
def between_two(report):
    """Datagrams between two devices over veth: messages, and every odd address vector."""
    with pair() as ends:
        for what in cases("verbs"):
            if what.name in ("ud-messages", "ud-odd-handles"):
                said = what.run(*ends).splitlines()[:-1]
                for line in said if what.name == "ud-odd-handles" else ():
                    report.note(line)
