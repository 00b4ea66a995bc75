# SPDX-License-Identifier: GPL-2.0
"""What the device takes of what belongs to all: time on a CPU, and grace periods, which interrupt every CPU."""

import os
import subprocess

from tests.guest.cases import PROGRAM, cases
from tests.guest.fabric import counters, loop, read, wait_until
from tests.guest.programs import busy, on_cpu, running
from tests.guest.scenario import PATIENCE, Failed, require, scenario, shortened

TICK = os.sysconf("SC_CLK_TCK")


def processes():
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def cpu_time(pid):
    """Seconds that a process has had of a CPU; 0 when it is not there."""
    text = read(f"/proc/{pid}/stat")
    if not text:
        return 0.0
    field = text.rsplit(")", 1)[1].split()
    return (int(field[11]) + int(field[12])) / TICK


def kernel_workers():
    """The threads of workqueues, by number, with what they have had."""
    return {pid: cpu_time(pid) for pid in processes() if (read(f"/proc/{pid}/comm") or "").startswith("kworker")}


# What a process that only computes must get of a CPU beside one that copies. Two equals have a half each; a worker of
# the highest priority left it a hundredth.
LEAST_SHARE = 0.1


@scenario("fairness.computing", 90, rxe="rdma_rxe has no local path")
def computing(report):
    """Gigabytes are copied within a device: processes that compute on the same CPUs get their share of them."""
    with loop(True) as end, running(on_cpu(0, [PROGRAM, end.dev, end.gid(), "copy"]), out=subprocess.PIPE, err=None,
                                    stdin=subprocess.PIPE, text=True) as copier:
        require((copier.stdout.readline() or "").strip() == "running", "nothing is copied")
        with busy() as spinners:
            workers, before, own = kernel_workers(), counters(end.dev)["local_bytes"], cpu_time(copier.pid)

            def copying():
                """Who copied, and for how long."""
                spent = {pid: t - workers.get(pid, 0.0) for pid, t in kernel_workers().items()}
                return {pid: t for pid, t in spent.items() if t > 0.1} | {copier.pid: cpu_time(copier.pid) - own}

            def computed():
                return [cpu_time(proc.pid) for proc in spinners]

            # The clock is what they have had of the CPUs together: how busy the host is does not matter.
            wait_until("CPU time is spent", lambda: sum(copying().values()) + sum(computed()) > 3.0 * len(spinners), 30)
            spent, got = copying(), computed()
            copied = counters(end.dev)["local_bytes"] - before
            who = ", ".join(f"{read(f'/proc/{pid}/comm')} {t:.1f} s" for pid, t in spent.items())
            report.note(f"copied {copied >> 20} MiB: {who}; computing had {', '.join(f'{t:.1f}' for t in got)} s")
            require(copied > 0 and sum(spent.values()) > 0.1, "nothing was copied meanwhile")
            # All CPUs are busy all the time.
            each = (sum(got) + sum(spent.values())) / len(got)
            for cpu, mine in enumerate(got):
                require(mine > LEAST_SHARE * each, f"computing on CPU {cpu} had {mine:.1f} of its {each:.1f} s: {who}")
        copier.stdin.close()
        require(copier.wait(timeout=60 * PATIENCE) == 0, f"the copying process: exit {copier.returncode}")


def grace_period_thread():
    """The thread that wakes up for each expedited grace period."""
    for pid in processes():
        if (read(f"/proc/{pid}/comm") or "").startswith("rcu_exp_gp_kth"):
            return pid
    raise Failed("the kernel has no thread for expedited grace periods")


@scenario("fairness.grace-periods", 90, rxe="about the driver's own grace periods")
def grace_periods(report):
    """Regions, CQs and queue pairs are made and destroyed: not each costs a grace period that interrupts all CPUs."""
    count = shortened(200, 40)
    with loop(True) as end:
        (churn,) = (case for case in cases("load") if case.name == "churn")
        said = churn.run(end, COUNT=str(count), PID=str(grace_period_thread()))
        wrong = []
        for line in said.splitlines()[:-1]:
            kind, objects, slept = line.split()
            report.note(f"{objects} x {kind}: {slept} expedited grace periods")
            # The rest of the kernel has some now and then.
            if int(slept) > count // 4:
                wrong.append(f"{slept} for {objects} x {kind}")
        require(not wrong, f"expedited grace periods: {', '.join(wrong)}")
