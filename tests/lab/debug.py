# SPDX-License-Identifier: GPL-2.0
"""The debug kernel, with KASAN, lockdep and their like, under qemu; and `make check-debug`.

It boots without udev and systemd, on a small init of our own, for under these checks and emulation both take
minutes.
"""

import os
import shlex
from dataclasses import dataclass

from tests.guest.scenario import load_all
from tests.lab import boot, build, check, checks, disk, made, processors, suite
from tests.lab.say import LabError

KIND = made.Kind("debug", "debug kernel", 10, "make LLVM=1 ARCH=x86_64",
                 ("kernel.config", "ulp.config", "checks.config", "debug.config"), "bzImage", "arch/x86/boot/bzImage")

# Stands for the PATIENCE that the stock kernel gets, for this one is ten times slower.
SLOW = 20
LIMIT = 4 * 3600
# Beside each other on two processors: a guest of this kernel waits for a third of its time.
GUESTS = 3
# Megabytes: enough for what runs here, and what is not there need not be searched for leaks.
MEMORY = 2048
# Every scenario of the suite runs here too, with the fewer rounds of `scenario.shortened`, but for these: patterns of
# names, each with the reason that is printed.
LEFT_OUT = (
    ("verbs.two-gib", "moves gigabytes, which takes hours here"),
    ("verbs.huge-messages", "moves as much as that"),
    ("verbs.large-mr", "registers gigabytes, which are not there"),
    ("interop.64-mib", "64 MiB through rdma_rxe take an hour here"),
    ("fault.rxe-*", "rdma_rxe's part in them is not what is examined here; fault.* and interop.* run"),
    ("one-processor.*", "there is one machine for the debug kernel"),
    ("aarch64.*", "there is one machine for the debug kernel"),
    ("packages.*", "the packages are for the stock kernel"),
    ("fresh-sid.*", "the packages are for the stock kernel"),
    ("pyverbs.rounds", "pyverbs.test_* run, and what is left is for kmemleak to find"),
    ("product.*", "they are about the command ferroce; what it has the kernel do, others have it do here"),
    ("walks.runs", "it compiles and debugs programs, which takes too long here; the fast guest has it with all checks"),
    ("newer.pyverbs", "pyverbs.test_* are nearly all of these"),
    ("ulp.nvme-*", "nvmet inverts locks of its own: nvmet_config_sem, and the connection manager's handler_mutex"),
    ("ulp.nfs*", "svcrdma loses the transport of each NFS 4.1 backchannel, with any device: kmemleak finds it"),
)
# kmemleak takes as much time as all other checks. So a whole run has it for these alone, in a guest of their own: each
# kind of object made, used and destroyed; memory that is refused; errors; devices that go.
WATCHED = ("debug.*", "errors.*.veth", "examples.*", "groups.*", "in-flight.*", "kernel.*.veth",
           "link.*", "memory.*", "queues.*", "cm.rping-veth-*", "ulp.*", "hostile.packets-ipv4")


class DebugGuest(boot.Guest):
    """A guest with the debug kernel: qemu without virtme-ng, and an init of our own."""

    WHAT = "debug kernel"
    CHECKS = "kmemleak=off"
    BOOT_LIMIT = 900
    GRACE = 300

    def _script(self, agent, extra, env):
        q = shlex.quote
        kernel = self.root
        mnt = self.work / "mnt"
        mnt.mkdir(exist_ok=True)
        sets = " ".join(f"{k}={q(v)}" for k, v in env.items())
        init = boot.write_init(self.work / "init", f"FOLDERS=/srv/results sh /root.sh env {sets} {agent}")
        # Every report is wanted, not only the first; the stalls of a slow machine are none.
        append = ("console=ttyS0 loglevel=7 log_buf_len=16M panic=-1 oops=panic root=fsroot rootfstype=9p "
                  "rootflags=trans=virtio,version=9p2000.L,msize=512000,cache=loose,access=any rw init=/init "
                  f"kasan_multi_shot {self.CHECKS} printk.time=1 rcupdate.rcu_cpu_stall_timeout=180 watchdog_thresh=60 "
                  f"workqueue.watchdog_thresh=180 {boot.EMULATED}")
        changes = f"{mnt}/changes"
        qemu = boot.pc(self.kvm, MEMORY, kernel.image.resolve(), append, "-no-reboot",
                       *boot.folder_of_host(f"{mnt}/b", "root", "fsroot"),
                       *boot.folder_of_host(self.results, "results", "results"),
                       *disk.options(disk.of(kernel.path), changes), *processors.OPTIONS)
        lines = [
            *boot.own_root(kernel.path, mnt),
            f"cp -a {q(str((kernel.folder / 'root').resolve()))}/. $M/",
            *extra,
            boot.COMPILED,
            disk.of_changes(f"{mnt}/u", changes),
            *boot.boot_root(["/srv/results"]),
            f"cp {q(str(init))} $B/init",
            "cd $B",
            "exec " + shlex.join(qemu),
        ]
        return "\n".join(lines)

    def symbols(self):
        """It is at the addresses that it was linked for."""
        return processors.Symbols((self.root.folder / "System.map").read_text(encoding="ascii"))


class WatchedGuest(DebugGuest):
    """One in which kmemleak looks for what is lost."""

    WHAT = "debug kernel with kmemleak"
    CHECKS = checks.NO_SHEAVES


@dataclass
class Plan:
    watched: suite.Queue
    other: suite.Queue
    left_out: list

    def queues(self):
        return (WatchedGuest, self.watched), (DebugGuest, self.other)

    def everything(self):
        return list(dict.fromkeys(self.watched.everything() + self.other.everything()))


def choose(only):
    """The scenarios asked for. If these are few, each is watched for what it leaks."""
    if bad := check.meaningless(only, load_all()):
        raise LabError(f"no scenario of the debug kernel is called {', '.join(bad)}; make check-debug ONLY=name takes a "
                       "name, its beginning up to a point, or a pattern with *")
    names = [n for n in load_all() if check.wanted(n, only)]
    # From the end: the scenarios of the last modules take longest, and begun first they let the guests end together.
    names = [n for n in names[::-1] if not n.startswith(checks.FINDS)] + [n for n in names if n.startswith(checks.FINDS)]
    left_out = [suite.Result(n, "skipped", f"left out on the debug kernel: {why}") for n in names
                if (why := checks.reason(n, LEFT_OUT))]
    picked = [n for n in names if not checks.reason(n, LEFT_OUT)]
    watched = [n for n in picked if only or checks.is_one_of(n, WATCHED)]
    other = [n for n in picked if n not in watched]
    return Plan(checks.queue(watched), suite.Queue(other, last=[checks.LOCKDEP] if other else []), left_out)


def run(root, only):
    """Runs what is asked for on the debug kernel; 0 when nothing failed and the kernel reported nothing."""
    kernel = made.make(root, KIND)
    os.environ.update({"FERROCE_PATIENCE": str(SLOW), "FERROCE_SHORT": "1"})
    build.c_programs(root)
    plan = choose(only)
    picked = plan.everything()
    if not picked:
        why = plan.left_out[0].detail if plan.left_out else "it is for the stock kernel"
        raise LabError(f"nothing of {only} runs here: {why}")
    with check.Sum(picked, "debug", not check.picks(only)) as total:
        total.results += plan.left_out

        show = checks.reader(kernel, total.add)
        lines, kvm = checks.guest_setup(kernel), boot.kvm_works(root)

        def guests(kinds):
            for kind, queue in kinds:
                suite.run(kernel, queue, lines, kvm, show, LIMIT, total.again, label="debug", guest_class=kind)

        # A guest that is done with one queue helps with the other.
        kinds = plan.queues()
        with suite.beside([queue for _, queue in kinds], [lambda: guests(kinds[::-1])] * (GUESTS - 1)):
            guests(kinds)
    return total.status
