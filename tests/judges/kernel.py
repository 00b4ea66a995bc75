# SPDX-License-Identifier: GPL-2.0
"""What the kernel has to say about a scenario: complaints in its log, and things left behind."""

import errno
import os
import re
import socket
import subprocess
import time

from tests.guest import flavour
from tests.guest.fabric import devices, listing, read
from tests.guest.netlink import NAMED
from tests.guest.scenario import PATIENCE
from tests.judges import leaks

LOST = "(the log overran and lost lines)"

COMPLAINT = re.compile(
    r"WARNING:|\bBUG\b|\bOops\b|[Cc]all [Tt]race|general protection|kernel panic|"
    r"soft lockup|hard LOCKUP|rcu.*(?:stall|starved)|blocked for more than|hung task|hogged CPU|"
    r"possible (?:circular|recursive|irq lock)|inconsistent lock state|lockdep|non-static key|refcount_t|"
    r"KASAN|KFENCE|KCSAN|UBSAN|kmemleak|use-after-free|usercopy:|unregister_netdevice: waiting|"
    r"memory leak|rust_kernel: panicked|page allocation failure|scheduling while atomic|"
    r"sleeping function called|leaked|list_(?:add|del) corruption|DEBUG_LOCKS_WARN_ON|ODEBUG:|"
    # A network card's driver that keeps pages of a page_pool it has given up.
    r"stalled pool shutdown|"
    # A program that died in the provider: a segfault, or one of the `traps:`.
    r"(?:segfault|trap|fault|error):?\b.* in libferroce|" + re.escape(LOST), re.IGNORECASE)

# What a kernel says of itself while it boots, and the marks of the suite: whole messages, so that a report that speaks
# of the same things is none of them.
HARMLESS = re.compile(r"(?:\[ *[\d.]+\] )?(?:" + "|".join((
    r"lab: (?:begin .*|end .*|done)",
    r"(?:Kernel command|Command) line: .*",
    r'PCI: Using host bridge windows from ACPI; if necessary, use "pci=nocrs" and report a bug',
    # The processor's faults, which only KVM shows.
    r"(?:Spectre V2 |RETBleed|Speculative Return Stack Overflow|ITS): WARNING: .*",
    r"(?:MDS|TAA|MMIO Stale Data) CPU bug present and SMT on, data leak possible\. See https://\S+ for more details\.",
    # The checks of a kernel introduce themselves.
    r"rcu: \tRCU (?:lockdep checking|callback double-/use-after-free debug) is enabled\.",
    r"\tRCU CPU stall warnings timeout set to \d+ \(rcu_cpu_stall_timeout\)\.",
    r"\.\.\. MAX_LOCKDEP_\w+: +\d+",
    r"kasan: KernelAddressSanitizer initialized .*",
    r"kmemleak: Kernel memory leak detector (?:initialized .*|disabled)",
)) + r")\s*")

# A frame of a stack trace, which names what reported rather than what went wrong.
FRAME = re.compile(r"^(?:\[ *[\d.]+\])?\s+(?:\? )?[\w.$]+\+0x[0-9a-f]+/0x[0-9a-f]+(?: \[\w+\])?$")

UDP_PORT = 4791
NETDEVS = "/sys/class/net"
UDP_ENCAP, UDP_ENCAP_L2TPINUDP = 100, 3


def hold_encapsulation():
    """Sockets of a UDP encapsulation, to be kept open. The kernel rewrites its own code when the first one is opened
    and when the last one is closed, and an emulated machine of two processors does not always survive that: links that
    come and go must not make it do so each time."""
    held = []
    for family in (socket.AF_INET, socket.AF_INET6):
        held.append(socket.socket(family, socket.SOCK_DGRAM))
        held[-1].setsockopt(socket.IPPROTO_UDP, UDP_ENCAP, UDP_ENCAP_L2TPINUDP)
    return held


class Log:
    """The kernel's log from now on."""

    def __init__(self):
        self.fd = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK)
        os.lseek(self.fd, 0, os.SEEK_END)

    def new(self):
        lines = []
        while True:
            try:
                record = os.read(self.fd, 8192).decode(errors="replace")
            except BlockingIOError:
                return lines
            except OSError as e:
                if e.errno == errno.EPIPE:
                    lines.append(LOST)
                    continue
                raise
            lines.append(record.split(";", 1)[-1].split("\n", 1)[0])


# Reports that a scenario may allow, by their first and their last line.
REPORTS = {
    "out of memory in a cgroup": (r"invoked oom-killer", r"Memory cgroup out of memory: Killed process"),
    "vmalloc was refused memory": (r"vmalloc error: size", r"\d+ pages reserved"),
    "a page fault was refused memory": ("VM_FAULT_OOM leaked out to the #PF handler",) * 2,
    "kmemleak found something": (r"kmemleak: \d+ new suspected memory leaks",) * 2,
    "kmemleak was refused memory": (r"kmemleak: Cannot allocate a scan area", r"scanning the full object"),
}


def without_reports(lines, name):
    """The lines without the whole reports of a kind."""
    first, last = (re.compile(text) for text in REPORTS[name])
    kept, held = [], []
    for line in lines:
        if held or first.search(line):
            held.append(line)
            if last.search(line):
                held = []
        else:
            kept.append(line)
    # One that does not end is of another kind.
    return kept + held


def complaints(lines):
    """Those lines of the log that no scenario may cause."""
    return [line for line in lines
            if COMPLAINT.search(line) and not HARMLESS.fullmatch(line) and not FRAME.match(line)]


def note(text):
    """Marks the kernel's log, so that a console that ends in a crash says where it was."""
    try:
        with open("/dev/kmsg", "w", encoding="utf-8") as f:
            f.write(f"<5>lab: {text}\n")
    except OSError:
        pass


def udp_sockets():
    """Number of sockets bound to the RoCE port in this network namespace."""
    count = 0
    for table in ("udp", "udp6"):
        for line in (read(f"/proc/self/net/{table}") or "").splitlines()[1:]:
            if int(line.split()[1].rsplit(":", 1)[1], 16) == UDP_PORT:
                count += 1
    return count


def refcount():
    """Users of the module under test; None when it is not loaded."""
    text = read(f"/sys/module/{flavour.current().module}/refcnt")
    return None if text is None else int(text)


def uverbs():
    """Open user contexts leave their character device in use: the device nodes themselves."""
    return [name for name in listing("/sys/class/infiniband_verbs") if name.startswith("uverbs")]


class Baseline:
    """The machine before the first scenario; later it must look the same."""

    def __init__(self):
        self.netdevs = listing(NETDEVS)
        self.netns = listing(NAMED)
        self.devices = devices()
        self.refcount = refcount() or 0
        self.pinned = leaks.pinned()
        self.areas = leaks.areas()

    def left_over(self, patience=5.0):
        """What is there that was not there before. Freeing may end a little later, so it is given some time."""
        end = time.monotonic() + patience * PATIENCE / 2
        while True:
            found = self._look()
            if not found or time.monotonic() > end:
                return found
            time.sleep(0.1)

    def _look(self):
        found = []
        for what, now, then in (("RDMA device", devices(), self.devices),
                                ("network namespace", listing(NAMED), self.netns),
                                ("network device", listing(NETDEVS), self.netdevs)):
            found += [f"{what} {name}" for name in now if name not in then]
        if uverbs() and not devices():
            found.append(f"verbs character devices {uverbs()}")
        if udp_sockets():
            found.append(f"{udp_sockets()} UDP sockets on port {UDP_PORT}")
        count = refcount() or 0
        if count > self.refcount:
            found.append(f"{count} references to the module")
        if leaks.pinned() > self.pinned:
            found.append(f"{leaks.pinned() - self.pinned} pinned pages")
        if not devices() and leaks.areas() > self.areas:
            found.append(f"{leaks.areas() - self.areas} rings of the module")
        return found

    def clean(self):
        """Removes by force what a failed scenario left; a guest that cannot be cleaned is replaced."""
        def quietly(*argv):
            try:
                subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL, timeout=20)
            except subprocess.TimeoutExpired:
                pass

        for now, then, words in ((devices, self.devices, ("rdma", "link", "delete")),
                                 (lambda: listing(NAMED), self.netns, ("ip", "netns", "del")),
                                 (lambda: listing(NETDEVS), self.netdevs, ("ip", "link", "del"))):
            for name in now():
                if name not in then:
                    quietly(*words, name)
        for module in ("ferroce", "rdma_rxe"):
            if module != flavour.current().module and read(f"/sys/module/{module}/refcnt") is not None:
                quietly("modprobe", "-r", module)
