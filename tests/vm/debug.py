# SPDX-License-Identifier: GPL-2.0
"""What only a debug kernel can be asked: the module's own unit tests, what leaked, and whether its checks still stand."""

import glob
import json
import os
import re
import time

from tests.vm import flavour, kernel
from tests.vm.fabric import loop, read
from tests.vm.scenario import Failed, add, command, last_line, require, scenario

LEAKS = "/sys/kernel/debug/kmemleak"
KUNIT = "/sys/kernel/debug/kunit"
# Where the host puts what the guest needs: the programs, and the tests that the sources contain.
HERE = os.path.join(os.path.dirname(__file__), "..", "..")
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
