# SPDX-License-Identifier: GPL-2.0
"""CPUs that go offline and come back while messages are on their way."""

import glob
import json
import random
import tempfile
from contextlib import ExitStack, contextmanager

from tests.guest.fabric import both_ends, counters, setting, wait_until
from tests.guest.programs import both_running, tail
from tests.guest.scenario import SEED, Failed, Skipped, add, command, require, seeded, shortened
from tests.scenarios.messages.perftest import PLACES

PORT = 18515
# How often each CPU goes and comes back, and the packets that must move each time.
TIMES, STEP = shortened(3, 2), 100
# Conversations that do not end by themselves: checked data in batches that another CPU executes, processes that sleep,
# many queue pairs of a process that polls, and READs.
PINGPONG = ("ibv_rc_pingpong", "-p", str(PORT), "-n", "100000000")
PERFTEST = ("-F", "-p", str(PORT), "--run_infinitely", "-D", "5")
CONVERSATIONS = {
    "checked": (*PINGPONG, "-c", "-m", "4096", "-s", "65536"),
    "asleep": (*PINGPONG, "-e", "-s", "64"),
    "streams": ("ib_write_bw", *PERFTEST, "-s", "4096", "-q", "16"),
    "reads": ("ib_read_bw", *PERFTEST, "-s", "65536"),
}


def others():
    """The files that take CPUs offline, but for the first CPU."""
    return sorted(glob.glob("/sys/devices/system/cpu/cpu[1-9]*/online"))


@contextmanager
def endless(argv, ends):
    """A conversation; yields its two processes, and where they print."""
    def side(end):
        return [*argv, "-d", end.dev, "-g" if "pingpong" in argv[0] else "-x", end.gid()]

    with tempfile.TemporaryFile("w+") as out:
        with both_running(side(ends[0]), [*side(ends[1]), ends[0].tcp], ends, PORT, out) as sides:
            yield sides, out


def moved(sides):
    """What each queue pair of both programs sends and expects next, by device and number."""
    pids = {process.pid for process in sides}
    shown = json.loads(command(["rdma", "-j", "resource", "show", "qp"]).stdout or "[]")
    return {(qp["ifname"], qp["lqpn"]): (qp.get("sq-psn"), qp.get("rq-psn")) for qp in shown if qp.get("pid") in pids}


def goes_on(what, ends, sides, out):
    """Each queue pair moves on, more packets arrive, and both programs run."""
    def packets():
        return sum(counters(end.dev).get(name, 0) for end in ends for name in ("rcvd_pkts", "local_segments"))

    def arrived():
        for process in sides:
            if process.poll() is not None:
                raise Failed(f"{what}: a program ended with {process.returncode}: {tail(out)[-300:]}")
        return packets() >= then + STEP

    def have_moved():
        now = moved(sides)
        return arrived() and all(now.get(qp) != before for qp, before in since.items())

    then = packets()
    # In the beginning there are no queue pairs yet.
    wait_until(f"{what}: packets arrive", arrived, 30)
    since = moved(sides)
    require(len(since) >= 2, f"{what}: {len(since)} queue pairs are shown")
    wait_until(f"{what}: each queue pair moves on", have_moved, 30)


def hotplug(_report, where, local):
    """Each conversation, while CPUs go and come back."""
    if not others():
        raise Skipped("no CPU can go offline")
    draw = random.Random(SEED)
    with seeded(), both_ends(where, local) as ends:
        for name, argv in CONVERSATIONS.items():
            with endless(argv, ends) as (sides, out):
                goes_on(f"{name}, all CPUs", ends, sides, out)
                for turn in range(TIMES):
                    # At least one, at most all but the first.
                    away = draw.sample(others(), draw.randint(1, len(others())))
                    with ExitStack() as offline:
                        for path in away:
                            offline.enter_context(setting(path, "0"))
                        goes_on(f"{name}, {len(away)} CPUs offline, turn {turn}", ends, sides, out)
                    goes_on(f"{name}, CPUs online again, turn {turn}", ends, sides, out)


for _name, _where, _local in PLACES:
    add(f"cpus.hotplug.{_name}", 240, "CPUs go offline and come back under conversations that go on, " + _name,
        hotplug, _where, _local)
