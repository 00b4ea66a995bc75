# SPDX-License-Identifier: GPL-2.0
"""`make bench PROFILE=ROW`: what an operation's instructions are spent on, or where processors are while a tool runs.

Both ask the emulator, and the kernel knows nothing of it. Of an operation each instruction is counted: the emulator
names all that it carries out (`log exec`), for some whole operations. While a tool of perftest runs, each processor is
looked at again and again: what it does, what it waits for, and whether it sleeps.
"""

import bisect
import json
import os
import re
import socket
import subprocess
import threading
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field
from operator import itemgetter

from tests.lab import say

# At least so many instructions are looked at, and so many batches of operations.
INSTRUCTIONS, BATCHES = 2_000_000, 4
# Functions that the table names, and columns of a name.
SHOWN, WIDTH = 40, 80
# The line that qemu writes: `Trace 0: 0x7f.. [cs_base/pc/flags/cflags] symbol`.
TRACE = re.compile(rb"^Trace 0: \S+ \[[0-9a-f]+/([0-9a-f]+)/")

# What a function of the kernel belongs to, by the first expression that its name begins with.
AREAS = [
    ("CRC", r"crc32"),
    ("copying and clearing", r"__memcpy|memcpy|memset|__memset|clear_page|rep_movs|_?copy_(to|from)|__?copy_|_copy_"),
    ("memory allocator", r"kmem_|kmalloc|__kmalloc|kfree|___slab|__slab|slab_|put_cpu|__free|free_|get_page|alloc_pages|__alloc_(pages|frozen)"
                         r"|__rmqueue|__put_partials|get_from_free|refill_obj|__pcs_|__refill|mod_(node|memcg|lruvec)|__mod_|obj_cgroup"
                         r"|kvfree|rcu_free|__kvmalloc"),
    ("locks and RCU", r"_raw_|__local_bh|__rcu_read|rcu_|mutex_|queued_spin|__mutex|srcu|__srcu|down_|up_|lock_|refcount|kref|call_rcu"
                      r"|__call_rcu"),
    ("interrupts, timers, scheduler",
     r"irq|__irq|asm_|sysvec|common_interrupt|handle_|tick|hrtimer|__hrtimer|ktime|timer|__timer|mod_timer|__mod_timer|schedule|__schedule"
     r"|sched|__sched|do_sched|pick_|update_|enqueue_task|dequeue_|try_to_wake|ttwu|set_next|put_prev|finish_task|yield|native_|read_tsc"
     r"|kernel_fpu|irq_fpu|save_fpregs|xsave|xrstor|restore_fp|switch_fpu|fpregs|lapic|apic|clockevents|pvclock|sysfs_|__wake|wake_|cpuacct"
     r"|raise_softirq|__raise|handle_softirqs|do_softirq|__do_softirq|rebalance|run_|profile_|calc_|account|task_|trigger_|perf_|psi_|vruntime"
     r"|__update|min_vruntime|place_entity|avg_|entity_|_nohz|nohz|x2apic|ack_|queue_work|__queue_work|insert_work|kick_pool|queue_delayed"
     r"|process_one|worker_|pwq_|set_work|move_linked|mod_delayed|kthread|delayed_work|tasklet|__tasklet|idle_|wq_"),
    ("system call", r"entry_|do_syscall|syscall|__x64_sys|x64_sys|ksys|vfs_|__se_sys|fd|__fdget|fput|rw_verify|exit_to_user|security_"
                    r"|apparmor|fsnotify|__fsnotify|ib_uverbs|uverbs|__get_user|__put_user|lookup_|ret_from|clear_bhb|srso|its_return"),
    ("network stack", r"ip|__ip|udp|__udp|skb|__skb|___skb|dev_|__dev|netif|__netif|napi|__napi|net_|veth|nf_|fib|__fib|inet|__inet|eth_|neigh"
                      r"|__neigh|dst_|__dst|rt_|sock_|sk_|__sk|consume_skb|kfree_skb|build_skb|__build|enqueue_to|process_backlog|validate_xmit"
                      r"|qdisc|__qdisc|sch_|pfifo|tcp|loopback|xfrm|rtm|rps|get_rps|gro|page_frag|csum|__csum|passthru|bpf|arp|icmp|raw"
                      r"|lookup|compute_score|reuseport|br_|vlan|harmonize|skbuff|noqueue|jhash|__get_hash|flow"),
]
PROGRAM = "program, libibverbs and provider"
HALTED = "halted"
# Where a processor spins until another one releases a lock; below it on the stack is who wants it.
SPINS = "native_queued_spin_lock_slowpath"
WANTED_LOCK = "waiting for a lock"
DRIVER_MODULES = ("ferroce", "rdma_rxe")
# Words of the stack that are looked at for that, and seconds between two looks.
WORDS, PAUSE = 60, 0.01
STACK = re.compile(r"RSP=([0-9a-f]+)")
STATE = re.compile(r"^CPU#(\d+)$.*?^RIP=([0-9a-f]+) RFL=[0-9a-f]+ [^\n]* CPL=(\d) [^\n]*HLT=(\d)", re.M | re.S)
# Seconds that the emulator has for an answer.
PATIENT = 30
OTHER = "other of the kernel"


@contextmanager
def monitor(folder):
    """A function that asks the emulator in this folder as one would at its monitor."""
    # Short, however long the folder's own path is.
    short = os.open(folder, os.O_PATH | os.O_DIRECTORY)
    try:
        with socket.socket(socket.AF_UNIX) as wire:
            wire.settimeout(PATIENT)
            wire.connect(f"/proc/self/fd/{short}/monitor")
            with wire.makefile("rw", encoding="utf-8") as talk:
                talk.readline()

                def execute(command, **arguments):
                    talk.write(json.dumps({"execute": command, "arguments": arguments}) + "\n")
                    talk.flush()
                    for line in talk:
                        answer = json.loads(line)
                        if "return" in answer or "error" in answer:
                            return answer.get("return") or str(answer.get("error", ""))
                    raise OSError("the emulator has hung up")

                execute("qmp_capabilities")
                # A monitor's lines are for a terminal.
                yield lambda line: execute("human-monitor-command", **{"command-line": line}).replace("\r", "")
    finally:
        os.close(short)


@dataclass
class Watched:
    operations: int = 0
    # Instructions by address.
    at: Counter = field(default_factory=Counter)


def look(guest, mark, batch):
    """Counts the instructions of some whole batches, of which each begins at the address `mark`."""
    pipe = guest.work / "instructions"
    if not pipe.exists():
        os.mkfifo(pipe)
    found, done = Watched(), threading.Event()

    def read():
        total, at, seen = 0, None, 0
        begins = b"%016x" % mark
        with open(pipe, "rb") as lines:
            for line in lines:
                match = TRACE.match(line)
                if not match:
                    continue
                here = match[1]
                if here == begins:
                    if at is not None:
                        found.at.update(at)
                        total += at.total()
                        seen += 1
                        if total >= INSTRUCTIONS and seen >= BATCHES:
                            break
                    at = Counter()
                if at is not None:
                    at[here] += 1
            found.operations = seen * batch
            done.set()
            # The emulator goes on until it is told not to.
            for line in lines:
                pass

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    with monitor(guest.work) as ask:
        ask("stop")
        ask("one-insn-per-tb on")
        ask("logfile ../../instructions")
        ask("log exec,nochain")
        ask("cont")
        waited = done.wait(600)
        ask("log none")
        ask("one-insn-per-tb off")
        ask(f"logfile {os.devnull}")
    if not waited:
        raise say.LabError(f"{found.operations} operations in ten minutes: the emulator tells too little")
    reader.join()
    return found


class Names:
    """Functions and programs by address."""

    # Bytes that the last function may have. No function is known to end: what is far behind the last one is none, such as a
    # -1 on a stack.
    LAST = 4096

    def __init__(self, symbols, maps):
        """From /proc/kallsyms, and /proc/PID/maps of the program."""
        self.functions = []
        for line in symbols.splitlines():
            address, kind, name, *module = line.split()
            if kind in "tTwW":
                self.functions.append((int(address, 16), name, module[0].strip("[]") if module else ""))
        self.functions.sort(key=itemgetter(0))
        self.starts = [start for start, _, _ in self.functions]
        self.maps = []
        for line in maps.splitlines():
            place, _, _, _, _, *path = line.split(maxsplit=5)
            first, last = (int(it, 16) for it in place.split("-"))
            self.maps.append((first, last, os.path.basename(path[0]) if path else "memory"))

    def name(self, address):
        """The function and its module; the file, of a program."""
        if address < 1 << 63:
            return next((name for first, last, name in self.maps if first <= address < last), "another program"), PROGRAM
        at = bisect.bisect_right(self.starts, address) - 1
        if at < 0 or address > self.starts[-1] + self.LAST:
            return f"{address:#x}", ""
        # Of several names at one address the first one.
        return self.functions[bisect.bisect_left(self.starts, self.starts[at])][1:]


def area(name, module):
    if module == PROGRAM:
        return PROGRAM
    if module in DRIVER_MODULES:
        return "driver"
    if module == HALTED:
        return HALTED
    if name.startswith(SPINS):
        return WANTED_LOCK
    return next((title for title, names in AREAS if re.match(names, name)), OTHER)


def demangled(names):
    """Names of Rust as they are written."""
    try:
        out = subprocess.run(["c++filt"], input="\n".join(names), stdout=subprocess.PIPE, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return dict(zip(names, names))
    return {name: re.sub(r"\[[0-9a-f]+\]", "", shown)[:WIDTH] for name, shown in zip(names, out.splitlines())}


def spent(found, names):
    """Instructions of one operation, by function and module."""
    functions = Counter()
    for address, count in found.at.items():
        functions[names.name(int(address, 16))] += count / found.operations
    return functions


def show(title, columns):
    """Tables of areas and of functions: `columns` has, by its head, how much was found at each function and module."""
    areas = {head: Counter() for head in columns}
    for head, found in columns.items():
        for what, count in found.items():
            areas[head][area(*what)] += count

    def lines(parts, cells):
        """A line for each, the largest first."""
        order = sorted(set().union(*parts.values()), key=lambda one: -max(found.get(one, 0) for found in parts.values()))
        return [[*cells(one), *(f"{found.get(one, 0):,.1f}" for found in parts.values())] for one in order]

    say.line(f"\n{title}:")
    say.table(lines(areas, lambda one: [one]) + [["all", *(f"{found.total():,.1f}" for found in areas.values())]], ["", *columns])
    named = {head: {what: count for what, count in found.items() if what[0] not in ("", HALTED)} for head, found in columns.items()}
    # Those that have most in any column.
    most = {what for found in named.values() for what in sorted(found, key=found.get)[-SHOWN:]}
    named = {head: {what: found.get(what, 0) for what in most} for head, found in named.items()}
    shown = demangled([part for found in named.values() for name, _ in found for part in name.split(" < ")])
    say.line("")
    say.table(lines(named, lambda what: [" < ".join(shown[part] for part in what[0].split(" < ")), what[1], area(*what)]),
              ["function", "module", "area", *columns])


class Sampler:
    """Looks at the processors until it is told to end."""

    def __init__(self, guest, names):
        self.guest, self.names = guest, names
        # What each processor was found at, by its number.
        self.found = {}
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def end(self):
        """Parts of a hundred, by processor and what it was found at."""
        self.ended.set()
        self.thread.join()
        return {f"CPU {cpu}": {what: 100 * count / counts.total() for what, count in counts.items()}
                for cpu, counts in sorted(self.found.items())}

    def _run(self):
        with monitor(self.guest.work) as ask:
            while not self.ended.wait(PAUSE):
                registers = ask("info registers -a")
                stacks = STACK.findall(registers)
                for cpu, address, ring, halted in STATE.findall(registers):
                    what = self._what(ask, int(address, 16), ring, halted == "1", stacks[int(cpu)])
                    self.found.setdefault(cpu, Counter())[what] += 1

    def _what(self, ask, address, ring, is_halted, stack):
        if is_halted:
            return HALTED, HALTED
        if ring != "0":
            return "", PROGRAM
        name, module = self.names.name(address)
        if name == SPINS:
            words = re.findall(r"0x([0-9a-f]{16})", ask(f"x /{WORDS}gx 0x{stack}"))
            below = (self.names.name(int(word, 16)) for word in words)
            wants = [name for name, module in below if module in DRIVER_MODULES]
            return " < ".join([name, *wants[:1]]), module
        return name, module


def names_of(guest, driver):
    """What the guest has written down for this driver."""
    texts = [guest.results / f"{driver}.{file}" for file in ("symbols", "maps")]
    return Names(*(path.read_text(encoding="utf-8") if path.exists() else "" for path in texts))


def watch(guest, event):
    """What the guest's event asks for."""
    driver, folder = event["driver"], guest.results
    say.step(f"look at {driver}")
    found = look(guest, int(event["mark"], 16), event["batch"])
    names = names_of(guest, driver)
    (folder / f"{driver}.seen").write_text("", encoding="utf-8")
    return spent(found, names)
