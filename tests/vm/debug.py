# SPDX-License-Identifier: GPL-2.0
"""What only a debug kernel can be asked, after all else has run: whether its checks still stand, and what leaked."""

import os
import re
import time

from tests.vm import flavour, kernel
from tests.vm.fabric import loop, read
from tests.vm.scenario import Failed, command, require, scenario

LEAKS = "/sys/kernel/debug/kmemleak"


@scenario("debug.lockdep", 60)
def lockdep(report):
    """Lockdep switches itself off at its first report and when it runs out of room: it must still be on."""
    stats = read("/proc/lockdep_stats") or ""
    found = re.search(r"debug_locks:\s*(\d)", stats)
    require(found, "this kernel has no lockdep")
    report.note(stats)
    require(found.group(1) == "1", "lockdep is switched off")


def write(word):
    """A command to kmemleak."""
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
