# SPDX-License-Identifier: GPL-2.0
"""What the kernel has to say about a scenario: complaints in its log, and things left behind."""

import errno
import os
import re
import socket
import subprocess
import time

from tests.vm import flavour, stock
from tests.vm.fabric import devices, read
from tests.vm.scenario import PATIENCE

COMPLAINT = re.compile(
    r"WARNING:|\bBUG\b|\bOops\b|[Cc]all [Tt]race|general protection|kernel panic|"
    r"soft lockup|hard LOCKUP|rcu.*(?:stall|starved)|blocked for more than|hung task|"
    r"possible (?:circular|recursive|irq lock)|inconsistent lock state|lockdep|refcount_t|"
    r"KASAN|KFENCE|KCSAN|UBSAN|kmemleak|use-after-free|unregister_netdevice: waiting|"
    r"memory leak|rust_kernel: panicked|page allocation failure|scheduling while atomic|"
    r"sleeping function called|leaked|list_(?:add|del) corruption|DEBUG_LOCKS_WARN_ON|ODEBUG:", re.IGNORECASE)

# Said by an emulated machine whatever is loaded.
HARMLESS = re.compile(
    r"Speculat|Spectre|mitigation|clocksource|hrtimer: interrupt took|perf: interrupt took|"
    r"Unpatched return thunk|\bBUGs?: .*mitigat|taints kernel|module verification failed", re.IGNORECASE)

# A frame of a stack trace, which names what reported rather than what went wrong.
FRAME = re.compile(r"^(?:\[ *[\d.]+\])?\s+(?:\? )?[\w.$]+\+0x[0-9a-f]+/0x[0-9a-f]+(?: \[\w+\])?$")

UDP_PORT = 4791
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
        """Lines since the last call."""
        lines = []
        while True:
            try:
                record = os.read(self.fd, 8192).decode(errors="replace")
            except BlockingIOError:
                return lines
            except OSError as e:
                if e.errno == errno.EPIPE:
                    lines.append("(the log overran and lost lines)")
                    continue
                raise
            lines.append(record.split(";", 1)[-1].split("\n", 1)[0])


def complaints(lines):
    """Those lines of the log that no scenario may cause."""
    return [line for line in lines
            if COMPLAINT.search(line) and not HARMLESS.search(line) and not FRAME.match(line)]


def note(text):
    """Marks the kernel's log, so that a console that ends in a crash says where it was."""
    try:
        with open("/dev/kmsg", "w", encoding="utf-8") as f:
            f.write(f"<5>lab: {text}\n")
    except OSError:
        pass


def udp_sockets(pid="self"):
    """Number of sockets bound to the RoCE port in a process's network namespace."""
    count = 0
    for table in ("udp", "udp6"):
        for line in (read(f"/proc/{pid}/net/{table}") or "").splitlines()[1:]:
            if int(line.split()[1].rsplit(":", 1)[1], 16) == UDP_PORT:
                count += 1
    return count


def netns_names():
    """Named network namespaces."""
    try:
        return sorted(os.listdir("/run/netns"))
    except FileNotFoundError:
        return []


def netdevs():
    """Network devices of the first namespace."""
    return sorted(os.listdir("/sys/class/net"))


def refcount():
    """Users of the module under test; None when it is not loaded."""
    text = read(f"/sys/module/{flavour.current().module}/refcnt")
    return None if text is None else int(text)


def uverbs():
    """Open user contexts leave their character device in use: the device nodes themselves."""
    try:
        return sorted(n for n in os.listdir("/sys/class/infiniband_verbs") if n.startswith("uverbs"))
    except FileNotFoundError:
        return []


class Baseline:
    """The machine before the first scenario; later it must look the same."""

    def __init__(self):
        self.netdevs = netdevs()
        self.netns = netns_names()
        self.devices = devices()
        self.refcount = refcount() or 0
        self.pinned = stock.pinned()
        self.areas = stock.areas()

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
                                ("network namespace", netns_names(), self.netns),
                                ("network device", netdevs(), self.netdevs)):
            found += [f"{what} {name}" for name in now if name not in then]
        if uverbs() and not devices():
            found.append(f"verbs character devices {uverbs()}")
        if udp_sockets():
            found.append(f"{udp_sockets()} UDP sockets on port {UDP_PORT}")
        count = refcount() or 0
        if count > self.refcount:
            found.append(f"{count} references to the module")
        if stock.pinned() > self.pinned:
            found.append(f"{stock.pinned() - self.pinned} pinned pages")
        if not devices() and stock.areas() > self.areas:
            found.append(f"{stock.areas() - self.areas} rings of the module")
        return found

    def clean(self):
        """Removes by force what a failed scenario left; a guest that cannot be cleaned is replaced."""
        def quietly(*argv):
            try:
                subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL, timeout=20)
            except subprocess.TimeoutExpired:
                pass

        for dev in devices():
            if dev not in self.devices:
                quietly("rdma", "link", "delete", dev)
        for name in netns_names():
            if name not in self.netns:
                quietly("ip", "netns", "del", name)
        for dev in netdevs():
            if dev not in self.netdevs:
                quietly("ip", "link", "del", dev)
        for module in ("ferroce", "rdma_rxe"):
            if module != flavour.current().module and read(f"/sys/module/{module}/refcnt") is not None:
                quietly("modprobe", "-r", module)
