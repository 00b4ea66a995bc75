# SPDX-License-Identifier: GPL-2.0
"""What the kernel has given out, to see that all of it comes back: slab objects, pages, pins, sockets, percpu memory.

Some numbers must be equal before and after. Others move by themselves: caches fill, the other parts of the kernel that
are exercised keep something, the measuring program grows. There a leak is told by its slope, for it grows by at least
one object a round, in each part of the rounds: what grows in one part and not in another is something else.
"""

import os
import re
import subprocess
import time
from collections import Counter
from contextlib import contextmanager

from tests.guest import fabric
from tests.guest.fabric import read, wait_until
from tests.guest.scenario import PATIENCE, Failed

# Of these caches the module takes objects, or causes others to; the rest of the kernel's are measured and shown, too.
OURS = re.compile(r"^(kmalloc|skbuff|sock_inode|UDP|net_namespace|vmap_area|filp|vm_area|radix_tree|maple_node|ib_|kernfs)")
# Objects a round that are a leak. One that is lost in every second round is found.
OBJECTS_A_ROUND = 0.4
# Pages a round. What the traffic moves would be 128 for one region.
PAGES_A_ROUND = 16
PER_CPU_KB_A_ROUND = 0.5
KMEMLEAK = "/sys/kernel/debug/kmemleak"


def slabinfo(column):
    """A number of each cache, by its column behind the name (slabinfo(5))."""
    rows = (line.split() for line in (read("/proc/slabinfo") or "").splitlines()[2:])
    return {row[0]: int(row[column]) for row in rows}


def slab_objects():
    """Objects in use by cache. Empty slabs are given back first, and with them what the processors keep at hand."""
    for cache in os.listdir("/sys/kernel/slab"):
        try:
            fabric.write(f"/sys/kernel/slab/{cache}/shrink", 1)
        except OSError:
            pass
    return slabinfo(1)


def slab_sizes():
    return slabinfo(3)


def settled_slab_objects():
    """The same when it falls no further: namespaces and sockets are freed in workers, and by RCU."""
    found = slab_objects()
    for _ in range(10):
        time.sleep(0.3)
        later = slab_objects()
        falling = any(later.get(name, 0) < n for name, n in found.items() if OURS.match(name))
        found = {name: min(n, found.get(name, n)) for name, n in later.items()}
        if not falling:
            break
    return found


def table(path, names):
    """Numbers of a file of `NAME NUMBER` lines."""
    return {name: int(re.search(rf"^{name}:?\s+(\d+)", read(path) or "", re.M)[1]) for name in names}


def pinned():
    """Pages that are pinned for RDMA and the like."""
    # Each processor counts for itself; this adds it up.
    fabric.write("/proc/sys/vm/stat_refresh", 1)
    counts = table("/proc/vmstat", ("nr_foll_pin_acquired", "nr_foll_pin_released"))
    return counts["nr_foll_pin_acquired"] - counts["nr_foll_pin_released"]


def areas():
    """Areas of virtual memory that the module has allocated. Once it is unloaded its functions have no names any more."""
    lines = (read("/proc/vmallocinfo") or "").splitlines()
    return sum("[ferroce]" in line or line.split()[2].startswith("0x") for line in lines)


def vmalloc():
    """KiB of areas of virtual memory, by the function that has allocated them."""
    found = Counter()
    for line in (read("/proc/vmallocinfo") or "").splitlines():
        _, size, who = line.split()[:3]
        found[who.split("+")[0]] += int(size) / 1024
    return found


def resources(of_kernel=False):
    """Objects in use on any device, by kind: those of processes, or those that the kernel has for itself. `rdma res` names
    who has the latter in brackets."""
    found = {}
    for kind in ("qp", "cq", "mr", "pd", "ctx"):
        shown = subprocess.run(["rdma", "res", "show", kind], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True,
                               timeout=30 * PATIENCE, check=False).stdout
        if count := sum(bool(line.strip()) and (" comm [" in line) == of_kernel for line in shown.splitlines()):
            found[kind] = count
    return found


@contextmanager
def none_kept():
    """Whatever processes make of a device that is there before and behind the block is gone soon after it, and the kernel
    has as much for itself as it had before: it may have taken over nothing."""
    before = resources(of_kernel=True)
    yield
    wait_until("nothing is left of the objects", lambda: not resources())
    wait_until("the kernel has what it had", lambda: resources(of_kernel=True) == before)


# What of the memory the kernel accounts for by what it is used for (proc_meminfo(5)).
ACCOUNTED = ("MemFree", "Buffers", "Cached", "SwapCached", "AnonPages", "Slab", "KernelStack", "PageTables", "Percpu", "VmallocUsed")


def unaccounted():
    """KiB of pages that are neither free nor of any use that the kernel tells: those of packets, those that somebody pinned
    whose process has ended. What programs take, and files that are read again, do not count."""
    memory = table("/proc/meminfo", ("MemTotal", *ACCOUNTED))
    # Each processor keeps some free pages at hand, at times megabytes.
    kept = sum(int(n) for n in re.findall(r"^ +count: +(\d+)", read("/proc/zoneinfo") or "", re.M))
    return memory.pop("MemTotal") - sum(memory.values()) - 4 * kept


def udp_sockets():
    """UDP sockets of the first network namespace, of the port or not."""
    text = "\n".join(read(f"/proc/net/{name}") or "" for name in ("sockstat", "sockstat6"))
    return sum(int(n) for n in re.findall(r"^UDP6?: inuse (\d+)", text, re.M))


class Stock:
    """One measurement, when nothing of the module is there."""

    def __init__(self):
        fabric.write("/proc/sys/vm/drop_caches", 3)
        self.objects = settled_slab_objects()
        self.exact = {"pinned pages": pinned(), "areas of the module": areas(), "UDP sockets": udp_sockets()}
        self.vmalloc = vmalloc()
        self.kilobytes = {"pages of no known use": unaccounted(), **table("/proc/meminfo", ("SUnreclaim", "Percpu"))}


MEMORY = {"pages of no known use": 4 * PAGES_A_ROUND, "SUnreclaim": 4 * PAGES_A_ROUND, "Percpu": PER_CPU_KB_A_ROUND}
# What a leak makes grow: in which part of a measurement, what it is, and how much of it a round is a leak. Each area by
# itself, for a stack of a new worker here and a module there are none.
GROWS = (("objects", "objects of {}", lambda name: OBJECTS_A_ROUND if OURS.match(name) else None),
         ("vmalloc", "KiB of areas of {}", lambda name: 4 * OBJECTS_A_ROUND), ("kilobytes", "KiB of {}", MEMORY.get))


def judge(samples, slopes=True):
    """Compares measurements, each with the number of rounds before it; returns what is worth telling."""
    first, last = samples[0][1], samples[-1][1]
    wrong = [f"{what}: {n} at first, {last.exact[what]} at the end" for what, n in first.exact.items()
             if last.exact[what] > n]
    least = {}
    for part, what, limit in GROWS:
        for name in sorted(getattr(last, part)):
            values = [(at, getattr(sample, part).get(name, 0)) for at, sample in samples]
            if values[0][1] < values[-1][1]:
                print(f"{what.format(name)}: {[round(value) for _, value in values]}")
            # The least slope of all parts: a leak is in each.
            least[part, name] = grown = min((b - a) / (rb - ra) for (ra, a), (rb, b) in zip(values, values[1:]))
            if slopes and limit(name) is not None and grown >= limit(name):
                wrong.append(f"{grown:.2f} {what.format(name)} a round")
    if wrong:
        raise Failed("left behind: " + "; ".join(wrong))
    growing = sorted(((n, name) for (part, name), n in least.items() if part == "objects" and n > 0.05), reverse=True)[:5]
    return [f"measured after rounds {', '.join(str(n) for n, _ in samples)}: pins, areas and sockets equal ({last.exact}); KiB a round "
            + ", ".join(f"{name} {n:+.2f}" for (part, name), n in least.items() if part == "kilobytes")
            + "; slab objects a round: " + (", ".join(f"{name} {n:+.2f}" for n, name in growing) or "none grow")]


def write(word):
    """A command to kmemleak. It refuses them once it has switched itself off, for lack of memory."""
    fabric.write(KMEMLEAK, word)


def scan():
    """What kmemleak holds for lost. It says nothing of objects younger than five seconds, nor of those whose content
    changed since it looked last: hence a pause, and two looks."""
    time.sleep(6)
    for _ in range(2):
        write("scan")
    with open(KMEMLEAK, encoding="utf-8", errors="replace") as f:
        # The boot loses nothing, so no look is taken before: each takes half a minute.
        return ["unreferenced object" + o for o in f.read().split("unreferenced object")[1:]]


# What the kernel makes for a process, to which the driver takes no reference. ib_core takes one with each object, and
# loses it where a context is refused, by any driver: the method GET_CONTEXT frees that without rdma_restrack_put(),
# unlike the command, and the process that asked is never freed. `debug.scarce.verbs` is refused some; whether kmemleak
# sees what is left of it depends on stale words that point there.
OF_A_PROCESS = re.compile(r"\b(?:copy_process|prepare_exec_creds|begin_new_exec)\+0x")
# ib_uverbs builds a tree of methods for each device. Where memory is refused for the lower node of a branch, the radix
# tree keeps the upper ones, empty, and ib_uverbs frees a tree by its entries: they stay. `debug.scarce.links` refuses it.
OF_A_REFUSED_TREE = re.compile(r"\bradix_tree_insert\+0x.*\buapi_add_get_elm\+0x", re.S)


def is_of_ib_core(reported):
    """Whether it is an object that ib_core loses by itself, whatever the driver does."""
    return bool(OF_A_PROCESS.search(reported) or OF_A_REFUSED_TREE.search(reported))
