# SPDX-License-Identifier: GPL-2.0
"""What only a debug kernel can be asked: the module's own unit tests, what leaked, and whether its checks still stand."""

import errno
import glob
import json
import os
import re
import time
from contextlib import contextmanager

from tests.guest import flavour, netlink
from tests.guest.cases import cases
from tests.guest.fabric import loop, read, wait_until
from tests.guest.scenario import Failed, add, command, last_line, require, scenario
from tests.judges import kernel
from tests.scenarios.messages.pingpong import once

LEAKS = "/sys/kernel/debug/kmemleak"
KUNIT = "/sys/kernel/debug/kunit"
# Where the host puts what the guest needs: the programs, and the tests that the sources contain.
HERE = os.path.join(os.path.dirname(__file__), "..", "..", "..")
EXPECTED = os.path.join(HERE, "kunit.json")
PLANTED = os.path.join(HERE, "ferroce_planted.ko")


def ktap(text):
    """The verdicts in the KTAP of one suite: test -> "ok", "not ok" or "skipped"; and the plan."""
    found, plan = {}, None
    for line in text.splitlines():
        if match := re.match(r"\s+1\.\.(\d+)$", line):
            plan = int(match.group(1))
        elif match := re.match(r"\s+(ok|not ok) \d+ (\S+)(.*)$", line):
            word, name, rest = match.groups()
            found[name] = "skipped" if word == "ok" and "# SKIP" in rest else word
    return found, plan


def judge_kunit(expected, suites):
    """What is wrong with these outputs of suites, if anything, given the names of the tests in the sources."""
    wrong = [f"{suite} is not in the kernel" for suite in expected if suite not in suites]
    wrong += [f"{suite} is not in the sources" for suite in suites if suite not in expected]
    for suite in expected:
        found, plan = ktap(suites.get(suite, ""))
        if suite in suites and plan != len(expected[suite]):
            wrong.append(f"{suite} has {plan} tests, the sources have {len(expected[suite])}")
        wrong += [f"{suite}.{test}: {found.get(test, 'did not run')}" for test in expected[suite]
                  if suite in suites and found.get(test) != "ok"]
    return wrong


@scenario("debug.kunit", 120)
def kunit(report):
    """The unit tests of the pure code, as they are on the host, run in the kernel: every one that the sources have."""
    module = flavour.current().module
    command(["modprobe", module])
    with open(EXPECTED, encoding="utf-8") as f:
        expected = json.load(f)
    suites = {}
    for folder in sorted(glob.glob(f"{KUNIT}/{module}_*")):
        with open(f"{folder}/run", "w", encoding="ascii") as f:
            f.write("1")
        suites[os.path.basename(folder)] = output = read(f"{folder}/results") or ""
        print(output)
    wrong = judge_kunit(expected, suites)
    report.note(f"{sum(map(len, expected.values()))} tests in {len(suites)} suites")
    require(not wrong, "; ".join(wrong))


# The kinds of failure that fail-nth knows, each with its switches: none of them is to leave anything out.
FAULTS = {"failslab": {"ignore-gfp-wait": "N"},
          "fail_page_alloc": {"ignore-gfp-wait": "N", "ignore-gfp-highmem": "N", "min-order": "0"},
          "fail_usercopy": {}}


def prepare_faults():
    """Lets memory be refused to system calls of a thread that asks for it, without a word in the log."""
    for kind, switches in FAULTS.items():
        for name, value in (switches | {"verbose": "0"}).items():
            with open(f"/sys/kernel/debug/{kind}/{name}", "w", encoding="ascii") as f:
                f.write(value)


@contextmanager
def failing(nth):
    """The nth chance to fail of what this thread asks the kernel fails. Yields a function that says, afterwards, whether
    it had that many."""
    happened = []
    control = os.open("/proc/thread-self/fail-nth", os.O_RDWR | os.O_CLOEXEC)
    try:
        os.pwrite(control, str(nth).encode(), 0)
        try:
            yield lambda: happened[0]
        finally:
            # What is copied here counts, too: if that was the chance then there were fewer before.
            try:
                happened.append(os.pread(control, 16, 0).strip() == b"0")
                os.pwrite(control, b"0", 0)
            except OSError as e:
                if e.errno != errno.EFAULT:
                    raise
                happened.append(False)
    finally:
        os.close(control)


@scenario("debug.scarce.verbs", 200)
def scarce_verbs(report):
    """Each step of a program's life with each of its allocations refused: it fails cleanly or works, nothing leaks."""
    prepare_faults()
    report.allow("vmalloc was refused memory")
    with loop(False) as end:
        for line in cases("scarce")[0].run(end).splitlines()[:-1]:
            report.note(line)
        once((end, end), 4, 1024, iters=3)


@scenario("debug.scarce.links", 300)
def scarce_links(report):
    """A link is added and deleted with each of the allocations on the way refused: it is there whole or not at all."""
    prepare_faults()
    report.allow("vmalloc was refused memory")
    command(["modprobe", flavour.current().module])
    refused = {"add": 0, "delete": 0}
    netns = netlink.NetNs()
    try:
        netns.run(lambda: command(["ip", "link", "add", "n0", "type", "dummy"]))
        netns.run(lambda: command(["ip", "link", "set", "n0", "up"]))

        def attempt(act, nth):
            """Whether the chance came; and whether it was done nevertheless."""
            done = True
            with failing(nth) as came:
                try:
                    act()
                except OSError:
                    done = False
            return came(), done

        def add_link(nth):
            return attempt(lambda: netlink.rdma_link_add(netns, "fn0", "ferroce", "n0"), nth)

        def delete_link(nth):
            index = netlink.rdma_devices()["fn0"]
            return attempt(lambda: netlink.rdma_link_delete(index), nth)

        def really(is_there):
            """The deletion of a device goes on for a moment."""
            wait_until(f"the device is {'there' if is_there else 'gone'}",
                       lambda: ("fn0" in netlink.rdma_devices()) == is_there)

        nth, came = 1, True
        while came:
            came, _ = add_link(nth)
            # An answer may be lost though it was done: what is there decides.
            there = "fn0" in netlink.rdma_devices()
            refused["add"] += came and not there
            require(came or there, "a link was refused though nothing failed")
            if there and came:
                netlink.rdma_link_delete(netlink.rdma_devices()["fn0"])
                really(False)
            # The first hundred one by one, and then every third: it takes seconds each here.
            nth += 1 if nth < 100 else 3
        report.note(f"adding: {nth} chances, {refused['add']} times refused")
        nth, came = 1, True
        while came:
            came, _ = delete_link(nth)
            refused["delete"] += came and "fn0" in netlink.rdma_devices()
            if "fn0" not in netlink.rdma_devices():
                really(False)
                if came:
                    netlink.rdma_link_add(netns, "fn0", "ferroce", "n0")
                    really(True)
            nth += 1 if nth < 100 else 3
        report.note(f"deleting: {nth} chances, {refused['delete']} times refused")
    finally:
        netns.run(lambda: command(["ip", "link", "del", "n0"], ok=None))
        netns.delete()
    require(refused["add"] > 20, f"only {refused['add']} of the additions were refused")
    wait_until("the device goes", lambda: "fn0" not in netlink.rdma_devices(), 20)


@scenario("debug.lockdep", 60)
def lockdep(report):
    """Lockdep switches itself off at its first report and when it runs out of room: it must still be on."""
    stats = read("/proc/lockdep_stats") or ""
    found = re.search(r"debug_locks:\s*(\d)", stats)
    require(found, "this kernel has no lockdep")
    report.note(stats)
    require(found.group(1) == "1", "lockdep is switched off")


def write(word):
    """A command to kmemleak. It refuses them once it has switched itself off, for lack of memory."""
    with open(LEAKS, "w", encoding="ascii") as f:
        f.write(word)


def scan():
    """What kmemleak holds for lost. It says nothing of objects younger than five seconds, nor of those whose content
    changed since it looked last: hence a pause, and two looks."""
    time.sleep(6)
    for _ in range(2):
        write("scan")
    with open(LEAKS, encoding="utf-8", errors="replace") as f:
        # The boot loses nothing, so no look is taken before: each takes half a minute.
        return ["unreferenced object" + o for o in f.read().split("unreferenced object")[1:]]


@scenario("debug.leaks", 180)
def leaks(_report):
    """Nothing allocated by the module, or for it, is out of reach, neither while it is loaded nor afterwards."""
    module = flavour.current().module
    with loop():
        pass
    judge("while the module is loaded", scan())
    if os.path.isdir(f"/sys/module/{module}"):
        command(["modprobe", "-r", module])
    require(not kernel.refcount(), "the module stays")
    judge("after unloading", scan())


def judge(when, found):
    """Fails with the first object and its allocation's stack in one line; the log has them all."""
    print(f"{len(found)} leaks {when}\n{''.join(found)}")
    if found:
        first = " | ".join(line.strip() for line in found[0].splitlines()[:14])
        raise Failed(f"{len(found)} leaks {when}: {first}")


# The bugs of ferroce_planted.c with what the kernel says of each, in running order: a report of KASAN switches lockdep
# off, and so does lockdep's own.
PLANTS = (
    ("sleep-in-atomic", "BUG: sleeping function called from invalid context"),
    ("rcu-unprotected", "WARNING: suspicious RCU usage"),
    ("refcount-underflow", "refcount_t: "),
    ("list-corruption", "list_del corruption"),
    ("timer-freed", "ODEBUG: free active .* object type: hrtimer"),
    ("work-freed", "ODEBUG: free active .* object type: timer_list"),
    ("leak", "kmemleak: .* new suspected memory leaks"),
    ("lock-order", "WARNING: possible circular locking dependency"),
    ("use-after-free", "BUG: KASAN: slab-use-after-free"),
    ("out-of-bounds", "BUG: KASAN: slab-out-of-bounds"),
    ("vmalloc-out-of-bounds", "BUG: KASAN: vmalloc-out-of-bounds"),
    ("double-free", "BUG: KASAN: double-free"),
)


def plant(bug):
    """A scenario: a module with that bug is loaded, which the kernel reports."""
    def run(_report):
        done = command(["insmod", PLANTED, f"bug={bug}"], ok=None)
        require("canceled" in last_line(done.stdout).lower(), f"the bug was not planted: {last_line(done.stdout)}")
        if bug == "leak":
            # The module is gone, and its names with it.
            found = [o for o in scan() if 'comm "insmod"' in o]
            require(len(found) >= 8, f"kmemleak found {len(found)} of 16 objects")
            write("clear")

    return run


for _bug, _says in PLANTS:
    add(f"debug.finds.{_bug}", 120 if _bug == "leak" else 30, f"the debug kernel reports a planted bug: {_bug}",
        plant(_bug), _says)
