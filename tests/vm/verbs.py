# SPDX-License-Identifier: GPL-2.0
"""The cases of the C program `verbs_cases`, on one device, by the local path and by packets; and programs that die."""

import os
import re
import signal
import subprocess
import time

from tests.vm import flavour, kernel
from tests.vm.fabric import counters, loop, pair, wait_until
from tests.vm.scenario import Failed, Skipped, add, command, last_line, require, scenario
from tests.vm.talk import listens

# In the guest the program lies beside the tests' folder.
PROGRAM = os.path.join(os.path.dirname(__file__), "..", "..", "verbs_cases")

# What rdma_rxe is known to do otherwise: the cases are judged on it, so its own faults are named here.
RXE_DIFFERS = {
    "scribbled-rings": "has rings of another layout",
    "sqd": "never sends what was posted in SQD",
    "stranger": "has no local path",
    "two-gib": "takes minutes",
    "numbers-not-reused": "gives the lowest free number",
    "solicited": "makes no event for a completion in error",
    "large-mr": "cannot register more than 1 GiB",
}

# What a case is for does not happen unless this counts.
COUNTED = {
    "stream": "sq_offloaded",
    "stream-in-bursts": "sq_offloaded",
    "stream-crowded": "sq_offload_ended",
}
# Packets of a stream must not overtake each other, whichever CPU sends them: none of these may count.
OVERTAKEN = ("out_of_sequence", "retransmitted_pkts", "out_of_sequence_response", "seq_nak_rcvd")

LONG = {"large-messages": 180, "two-gib": 240, "large-mr": 120}
# Packets do not say which queue pair sent them: there the PSN is all that keeps a stranger on the same address out.
LOCAL_ONLY = {"two-gib", "stranger"}


def case_names():
    """The names in the two tables of the program, from its source: the host lists scenarios without running it."""
    names = []
    for source in ("data.c", "errors.c"):
        with open(os.path.join(os.path.dirname(__file__), "verbs_c", source), encoding="utf-8") as f:
            names += re.findall(r'^\t\{ "([\w-]+)", \w+ \},$', f.read(), re.M)
    return names


def case(name, local, delay=None):
    """A scenario: one case with the local path on or off, or with packets that take their time."""
    def run(report):
        if not flavour.current().is_ferroce and name in RXE_DIFFERS:
            raise Skipped(f"rdma_rxe {RXE_DIFFERS[name]}")
        with loop(local) as end:
            if delay:
                # What a device sends to itself goes by way of this one.
                command(["tc", "qdisc", "replace", "dev", "lo", "root", "netem", "delay", delay])
            before = counters(end.dev)
            env = dict(os.environ) if flavour.current().is_ferroce else dict(os.environ, RXE="1")
            try:
                done = command([PROGRAM, end.dev, str(end.gid()), name], ok=None, timeout=LONG.get(name, 60), env=env)
            finally:
                if delay:
                    command(["tc", "qdisc", "del", "dev", "lo", "root"])
            after = counters(end.dev)
        if done.returncode == 77:
            raise Skipped(last_line(done.stdout).removeprefix("skipped: "))
        if done.returncode:
            raise Failed(last_line(done.stdout).removeprefix("failed: ") if done.returncode == 1
                         else f"exit {done.returncode}: {last_line(done.stdout)}")
        if name in COUNTED and flavour.current().is_ferroce:
            grown = {key: value - before[key] for key, value in after.items()}
            report.note(", ".join(f"{key} {value}" for key, value in grown.items() if value))
            require(grown[COUNTED[name]] > 0, f"{COUNTED[name]} did not count")
            wrong = {key: grown[key] for key in OVERTAKEN if grown[key]}
            require(not wrong, f"packets were lost or overtaken: {wrong}")

    return run


for _name in case_names():
    add(f"verbs.{_name}.local", LONG.get(_name, 60) + 30, f"{_name}, by the local path", case(_name, True))
    if _name not in LOCAL_ONLY:
        add(f"verbs.{_name}.wire", LONG.get(_name, 60) + 30, f"{_name}, by packets", case(_name, False))


# A queue that moves has to wait here for what is under way.
add("verbs.stream-in-bursts.delayed", 90, "stream-in-bursts, by packets that take a millisecond",
    case("stream-in-bursts", False, "1ms"))


@scenario("verbs.killed-programs", 120)
def killed(_report):
    """Programs killed in the middle of their traffic leave nothing behind, and the device works on."""
    from tests.vm.pingpong import once
    with pair() as ends:
        for round_ in range(3):
            port = str(18700 + round_)
            argv = ["-g", "@", "-n", "1000000000", "-s", "65536", "-p", port]
            with open("/dev/null", "r+b") as null:
                procs = []
                for end, target in zip(ends, ([], [ends[0].tcp])):
                    line = ["ip", "netns", "exec", end.netns, "ibv_rc_pingpong", "-d", end.dev, *argv, *target]
                    line[line.index("@")] = str(end.gid())
                    procs.append(subprocess.Popen(line, stdin=null, stdout=null, stderr=null))
                    if not target:
                        wait_until("the server listens", lambda: listens(procs[0].pid, int(port)))
                time.sleep(1)
                for proc in procs if round_ != 1 else reversed(procs):
                    proc.send_signal(signal.SIGKILL)
                    time.sleep(0.3)
                for proc in procs:
                    proc.wait(timeout=30)
        once(ends, 4, 1024, iters=10)
    wait_until("the module is free", lambda: not kernel.refcount(), 10)
