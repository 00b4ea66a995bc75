# SPDX-License-Identifier: GPL-2.0
"""Who takes much pays for it: memory cgroups, RLIMIT_MEMLOCK, the device's own limits, and a great many regions."""

import os
import re
import signal
import threading
from contextlib import contextmanager

from tests.guest import flavour
from tests.guest.cases import Talker, cases
from tests.guest.fabric import loop, pair, read, wait_until, write
from tests.guest.scenario import PATIENCE, SHORT, Failed, Skipped, command, require, scenario, shortened
from tests.judges import leaks
from tests.scenarios.messages.pingpong import talk

MIB = 1 << 20
# The rings that limits.c makes.
RING = 4 * MIB
# Objects of a kind where they are made to be few.
MOST = 64
# Bytes of slabs that an idle queue pair may take, its part of what ib_core and the mappings need included.
FOOTPRINT = 5.2 * 1024
CASES = {what.name: what for what in cases("limits")}


class Group:
    def __init__(self, path):
        self.path = path

    def number(self, name, key=None):
        """A file's number, or that of a key in it."""
        text = read(f"{self.path}/{name}") or ""
        found = re.search(rf"^{key} (\d+)$" if key else r"^(\d+)$", text, re.M)
        require(found, f"{self.path}/{name} has no {key or 'number'}")
        return int(found[1])

    def write(self, name, value):
        write(f"{self.path}/{name}", value)

    def enter(self):
        self.write("cgroup.procs", os.getpid())


@contextmanager
def cgroup(controller):
    mounted = re.search(r"^\S+ (\S+) cgroup2 ", read("/proc/mounts") or "", re.M)
    base = mounted[1] if mounted else "/run/cgroup2"
    if not mounted:
        os.makedirs(base, exist_ok=True)
        command(["mount", "-t", "cgroup2", "cgroup2", base])
    group = Group(f"{base}/ferroce-limits")
    try:
        if controller not in (read(f"{base}/cgroup.controllers") or "").split():
            raise Skipped(f"cgroups have no {controller} controller")
        Group(base).write("cgroup.subtree_control", f"+{controller}")
        os.mkdir(group.path)
        try:
            yield group
        finally:
            # It is busy until the last process is gone.
            wait_until("the cgroup is empty", lambda: not read(f"{group.path}/cgroup.procs"))
            os.rmdir(group.path)
    finally:
        if not mounted:
            command(["umount", base])


@contextmanager
def memory_group(limit):
    """A cgroup with so much memory, and no swap."""
    with cgroup("memory") as group:
        group.write("memory.max", limit)
        if os.path.exists(f"{group.path}/memory.swap.max"):
            group.write("memory.swap.max", 0)
        yield group


@scenario("limits.memory-cgroup", 90, rxe="rdma_rxe bounds nothing")
def memory_cgroup(report):
    """Rings are charged to the cgroup of who makes them: its limit ends it, and all comes back."""
    limit = 96 * MIB
    with loop(True) as end, memory_group(limit) as group, Talker(end, "limit-cgroup", group.enter) as talker:
        require(talker.line() == "0 queues", "the program did not begin")
        before = group.number("memory.current")
        talker.tell()
        require(talker.line() == "4 queues", "the first queues")
        charged = group.number("memory.current") - before
        require(charged >= 4 * RING * 9 // 10, f"{charged} bytes were charged for {4 * RING} of rings")
        talker.tell()
        line = talker.line()
        if line and not line.startswith("failed"):
            count = int(line.split()[0])
            require(count > 4 and count * RING <= limit, f"{line} of 4 MiB in a cgroup of {limit} bytes")
            talker.tell()
            require(talker.line() == "0 queues", "destroying the queues")
            # The program still runs.
            wait_until("the charge is given back",
                       lambda: group.number("memory.current") < before + RING)
            talker.tell()
            require(talker.line() == "passed", "the end of the program")
        elif line:
            raise Failed(line.removeprefix("failed: "))
        else:
            status = talker.proc.wait(timeout=60 * PATIENCE)
            require(status == -signal.SIGKILL and group.number("memory.events", "oom_kill") == 1,
                    f"the program ended with {status}")
            report.allow("out of memory in a cgroup")
            wait_until("the charge is given back", lambda: group.number("memory.current") < RING)


@scenario("limits.memlock", 60, rxe="rdma_rxe bounds nothing")
def memlock(_report):
    """Rings of an ordinary user are under RLIMIT_MEMLOCK with what he pins, and free it when they go."""
    with loop(True) as end:
        CASES["limit-memlock"].run(end)


@contextmanager
def reloaded(*options):
    """The module loaded with these parameters, and at the end as anybody loads it."""
    module = flavour.current().module
    command(["modprobe", "-r", module])
    command(["modprobe", module, *options])
    try:
        yield
    finally:
        command(["modprobe", "-r", module])
        command(["modprobe", module])


@scenario("limits.device", 90, rxe="rdma_rxe bounds nothing")
def device(_report):
    """All kinds of objects are counted: limits hold, what goes makes room, and what is refused or fails leaves no trace."""
    with reloaded(f"most_objects={MOST}"), loop(True) as end, leaks.none_kept():
        CASES["limit-device"].run(end, MOST=str(MOST))


@scenario("limits.rdma-cgroup", 60)
def rdma_cgroup(_report):
    """The rdma controller of cgroups bounds the objects of each kind, and has its count back when they go."""
    with loop(True) as end, cgroup("rdma") as group:
        group.write("rdma.max", f"{end.dev} hca_handle=1 hca_object={MOST}")

        def used():
            return re.findall(rf"^{end.dev} (.*)$", read(f"{group.path}/rdma.current") or "", re.M)

        CASES["limit-objects"].run(end, group=group, MOST=str(MOST))
        wait_until("all is given back", lambda: set(used()) <= {"hca_handle=0 hca_object=0"})


def shrink():
    """Memory is short: what can give some back does, and the log says nothing of it."""
    for value in "42":
        write("/proc/sys/vm/drop_caches", value)


def packet_pages():
    """Pages that the kernel can have back and that are in no slab: nobody else has such ones."""
    read("/proc/sys/vm/stat_refresh")
    (found,) = re.findall(r"^nr_kernel_misc_reclaimable (\d+)$", read("/proc/vmstat"), re.M)
    return int(found)


@scenario("limits.packet-memory", 90, rxe="rdma_rxe bounds nothing")
def packet_memory(_report):
    """Pages that packets were made in are bounded, and the kernel has the full ones back, also while they are in use."""
    # For each CPU 64 that were full and the one that it fills, of 32 KiB each; that one stays.
    cpus, page = os.cpu_count(), max(1, 32768 // os.sysconf("SC_PAGE_SIZE"))
    with pair() as ends:
        talk(ends, 4, 4096, size=MIB, iters=20)
        kept = packet_pages()
        require(0 < kept <= cpus * 65 * page, f"{kept} pages are kept on {cpus} CPUs")
        shrink()
        left = packet_pages()
        require(0 < left <= cpus * page, f"of {kept} pages {left} are left on {cpus} CPUs")
        # What is taken while it is used harms nobody: the program looks at the data.
        ended = threading.Event()

        def press():
            while not ended.wait(0.02):
                shrink()

        presser = threading.Thread(target=press)
        presser.start()
        try:
            talk(ends, 4, 4096, size=MIB, iters=shortened(100, 20))
        finally:
            ended.set()
            presser.join()


@scenario("footprint.queue-pairs", 120, rxe="rdma_rxe bounds nothing")
def footprint(report):
    """An idle queue pair of RC with the smallest rings takes few slabs, and gives them back."""
    count, sizes = shortened(512, 128), leaks.slab_sizes()

    def said(talker, line):
        """The objects in use, when the program has come so far."""
        require(talker.line() == line, f"the program is not at: {line}")
        found = leaks.settled_slab_objects()
        talker.tell()
        return found

    def more(then, now):
        """Bytes for one queue pair, by cache."""
        grown = {name: (n - then.get(name, 0)) * sizes.get(name, 0) / count for name, n in now.items()}
        return dict(sorted(((name, n) for name, n in grown.items() if abs(n) >= 8), key=lambda of: -of[1]))

    with loop(True) as end, Talker(end, "limit-footprint", COUNT=str(count)) as talker:
        for _ in range(2):
            stages = [said(talker, line) for line in ("0 made", f"{count} made", f"{count} connected", "0 made")]
        require(talker.line() == "passed", "the end of the program")
    before, made, connected, after = stages
    of_each = {}
    for what, now in (("made", made), ("connected", connected), ("gone", after)):
        grown = more(before, now)
        # The kernel drops areas of virtual memory many at a time.
        of_each[what] = sum(n for name, n in grown.items() if what != "gone" or name != "vmap_area")
        report.note(f"{what}: {of_each[what] / 1024:.2f} KiB; " + ", ".join(f"{name} {n:.0f}" for name, n in grown.items()))
    # A kernel full of checks adds to each object, keeps some of what is freed, and looks for leaks itself.
    if not SHORT:
        require(of_each["gone"] <= 128, "the memory of queue pairs did not come back")
        require(max(of_each["made"], of_each["connected"]) <= FOOTPRINT, f"a queue pair takes more than {FOOTPRINT} bytes of slabs")
