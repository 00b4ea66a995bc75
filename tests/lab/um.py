# SPDX-License-Identifier: GPL-2.0
"""The fast guest: the kernel as a program of the host (User Mode Linux), which runs at the machine's own speed.

Its root is the laboratory's by hostfs, with what is written there in memory. It is for the inner loop and for the kernel
full of checks; the stock kernel stays the judge of the product.
"""

import json
import os
import shlex
import socket
import struct
import subprocess
import sys
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

from tests.guest.prompt import LOST
from tests.guest.scenario import CHECKS, PATIENCE
from tests.judges.kernel import complaints, without_reports
from tests.lab import boot, build, checks, config, made, prompt, say, suite
from tests.lab.locks import lock

MAKE = "make LLVM=1 ARCH=um"
PLAIN = made.Kind("um", "fast guest's kernel", 8, MAKE, ("kernel.config", "ulp.config", "um/base.config"), "linux", "vmlinux",
                  ("um/arch-um.patch",))
DEBUG = made.Kind("um-debug", "fast guest's kernel with all checks", 9, MAKE,
                  ("kernel.config", "ulp.config", "checks.config", "um/base.config", "um/debug.config"), "linux", "vmlinux",
                  ("um/arch-um.patch", "um/checks.patch"))
KINDS = {kind.name: kind for kind in (PLAIN, DEBUG)}
# What cannot run here: patterns of names, each with the reason that is printed.
LEFT_OUT = (
    *((f"{machine}.*", "the machines are qemu's") for machine in ("one-processor", "eight-processors", "aarch64")),
    *((name, "it is about Debian's own kernel, boot and packages") for name in ("packages.*", "fresh-sid.*")),
    *((name, "each page of a process may be a mapping of the host's, which has at most 65,530 for a program")
      for name in ("verbs.large-mr", "verbs.two-gib")),
    *((name, "all that a program computes is accounted to the kernel here, and it is asked whether this one computes")
      for name in ("cm.rstream", "cm.riostream")),
    ("stock.*", "each of these cases has a scenario of its own here"),
    *((name, "threads of one process do not run at the same time here")
      for name in ("verbs.stream", "verbs.stream-busy-cpus*")),
)
# What a whole run has here, with all checks, and not on the stock kernel: the driver's own behaviour.
TIER = tuple(f"{subject}.*" for subject in (
    "batches", "commands", "counters", "errors", "fault", "groups", "headers", "hostile", "in-flight", "isolation", "kernel",
    "limits", "losses", "memory", "observe", "queues", "races", "scale", "users", "verbs")) + (
        "pyverbs.rounds", "teardown.closed", "teardown.pairs", "teardown.some-orders", "ulp.iser*", "ulp.srp*")
# What a whole run has here without checks, at the machine's speed: programs that others wrote, and the network around.
PLAIN_TIER = (*(f"{subject}.*" for subject in (
    "cm", "examples", "fairness", "footprint", "interop", "link", "newer", "once", "packets", "paths", "perftest", "pingpong", "trace", "ucx",
    "ulp", "walks")), *(
    f"product.{case}" for case in ("command", "doctor-netdev", "doctor-provider", "doctor-rivals", "peers", "try", "wheel")),
    # Rounds enough to measure what each leaves behind.
    "teardown.orders")
# Of the former, too: what has a twin with all checks, and shows another peer or another way.
TWINS = ("errors.*.veth", "fault.rxe-*", "kernel.*.veth")
# Of these subjects the stock kernel has what only it has (threads of one process that run at the same time, network cards,
# tunnels, uprobes), and of each kind of program one.
STOCK = ("verbs.stream*", "cm.rstream", "cm.riostream", "link.parent", "link.unsuitable-netdev", "paths.e1000", "paths.tunnel-*",
         "paths.virtio-net", "perftest.tools.veth", "pingpong.veth-ipv4", "trace.calls", "ulp.nvme-local")
CONSOLE = "tty1"
# The same for all users of the machine, whatever their TMPDIR says.
LOCK = Path("/tmp/ferroce-um.lock")


@contextmanager
def alone(what):
    """Holds the lock of this machine's fast guest: its virtual processors and programs stay each on one processor of the
    host and wake each other without a pause, so that two guests starve each other. The file that is locked is passed on to
    the guest, which may outlive who started it."""
    with lock(LOCK, lambda whose: f"the fast guest runs already, for {whose or 'another program'}") as f:
        f.truncate(0)
        f.write(f"{what} in {config.CHECKOUT} (process {os.getpid()})")
        f.flush()
        try:
            yield f
        finally:
            f.truncate(0)


class Guest(boot.Guest):
    """One boot of it. What the command prints goes by the second console, which may be a terminal."""

    BOOT_LIMIT = 30 * PATIENCE
    # It lies in memory as far as it is used.
    MEMORY = "4G"

    def __init__(self, *args, lock=None, terminal=False, **kw):
        self.lock = lock
        self.terminal = terminal
        super().__init__(*args, **kw)

    @property
    def WHAT(self):
        return self.root.kind.about

    def _script(self, agent, extra, env):
        q = shlex.quote
        kernel, mnt = self.root, self.work / "mnt"
        mnt.mkdir(exist_ok=True)
        # With all checks what counts is that each path is walked; what is measured is measured without them.
        short = {"FERROCE_SHORT": "1"} if kernel.kind is DEBUG else {}
        sets = shlex.join(f"{k}={v}" for k, v in (short | env).items())
        start = self.work / "start"
        # A prompt opens the console itself. A command's output is no terminal.
        start.write_text(f"exec env {sets} {agent}" + ("" if self.terminal else f" 2>&1 | cat >/dev/{CONSOLE}") + "\n",
                         encoding="utf-8")
        args = ["/srv/lab/vmlinux", f"mem={self.MEMORY}", f"ncpus={self.machine.processors}", "seccomp=on", "noreboot",
                "root=/dev/root", "rootfstype=hostfs", "rootflags=/", "rw", "init=/srv/lab/init", "con=null",
                "con0=null,fd:2", "con1=fd:8,fd:9" if self.terminal else "con1=null,fd:9", "loglevel=7", "log_buf_len=4M",
                "panic=-1", "oops=panic", "printk.time=1", "uml_dir=/tmp/uml/", "umid=lab"]
        if kernel.kind is DEBUG:
            args += ["kasan_multi_shot", checks.NO_SHEAVES]
        return "\n".join([
            # What is said here is not the command's output.
            "exec 9>&1 8<&0 >&2 </dev/null",
            *boot.own_root(kernel.path, mnt),
            f"cp -a {q(str((kernel.folder / 'root').resolve()))}/. $M/",
            f"cp {q(str(kernel.folder / '.config'))} $M/usr/lib/modules/{kernel.release}/config",
            *extra,
            boot.COMPILED,
            f"cp {q(str(start))} {q(str(made.HERE / 'um/init'))} {q(str(kernel.image.resolve()))} $M/srv/lab/",
            "chmod 755 $M/srv/lab/init",
            *[f"mkdir -p $M{q(there)}; mount --bind {q(str(here))} $M{q(there)}" for there, here in self.folders.items()],
            "mount -t proc proc $M/proc",
            # Of its own, for it must be executable.
            f"mount -t tmpfs -o size={self.MEMORY} tmpfs $M/tmp",
            # Not the first process of its namespace, which no signal ends.
            "chroot $M env -i TMPDIR=/tmp " + shlex.join(args) + " || exit",
        ])

    @property
    def how(self):
        return "at the machine's own speed"

    def start(self, keys=subprocess.DEVNULL, screen=None):
        """Starts the guest; its console goes to a file from the first line on."""
        with open(self.output, "wb") as out, open(self.console, "wb") as err:
            # In namespaces of its own, so that what it has started ends with it.
            self.proc = subprocess.Popen(
                ["unshare", "--mount", "--propagation", "private", "--pid", "--fork", "--kill-child", "sh", "-e", "-c",
                 self.script], stdin=keys, stdout=screen or out, stderr=err, pass_fds=(self.lock.fileno(),),
                start_new_session=True)

    def _kernel(self):
        """The host's number of the process that is the kernel."""
        pid = str(self.proc.pid)
        for _generation in ("the shell", "the kernel"):
            pid = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()[0]
        return pid

    def ask(self):
        """Has a kernel that hangs say what each of its tasks waits for. It listens in its interrupts."""
        with suppress(OSError, IndexError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as wire:
            wire.settimeout(10)
            # It answers who has a name.
            wire.bind(f"\0ferroce-um-{os.getpid()}")
            wire.connect(f"/proc/{self._kernel()}/root/tmp/uml/lab/mconsole")
            text = b"sysrq t"
            wire.send(struct.pack("=III512s", 0xCAFEBABE, 2, len(text), text))
            wire.recv(1024)


def modules(kernel):
    """ferroce.ko for this kernel, and what else its scenarios load."""
    return made.modules(kernel, build.KERNEL_CLIENT, *([checks.PLANTED] if kernel.kind is DEBUG else []))


def setup_lines(kernel):
    """Builds everything; returns the shell lines that put it into the guest's root, which is at $M."""
    module, client, *planted = modules(kernel)
    lines = build.guest_setup(kernel.root, made=module, release=kernel.release, client=client)
    for path in planted:
        expected = build.LAB / "kunit.json"
        expected.write_text(json.dumps(checks.kunit_tests()), encoding="utf-8")
        lines.append(f"cp {shlex.quote(str(path))} {shlex.quote(str(expected))} $M/srv/lab/")
    return lines


def place(scenario, guest="", whole=False):
    """Where a scenario runs: on its machine, or where it needs all checks in the fast guest with these. Of the usual
    machine's scenarios a whole run has the tier of that guest there, and `guest` may name a kind of it for all."""
    if scenario.machine == CHECKS:
        return DEBUG.name
    if scenario.machine:
        return scenario.machine
    if whole:
        name = scenario.name
        if checks.is_one_of(name, STOCK) or checks.reason(name, LEFT_OUT):
            return ""
        tiers = ((PLAIN.name, TWINS), (DEBUG.name, TIER), (PLAIN.name, PLAIN_TIER))
        return next((kind for kind, tier in tiers if checks.is_one_of(name, tier)), "")
    return guest if guest in KINDS else ""


def left_out(name, where, guest):
    """Why a scenario, whose place this is, does not run in the guest that the user wants; None where it does."""
    if guest and where != guest and where in KINDS:
        return "it needs a kernel with all checks"
    if guest in KINDS and where != guest:
        return "its machine is qemu's"
    return checks.reason(name, LEFT_OUT) if where in KINDS else None


def run(kernel, names, lines, on_result, limit, again, ended):
    """Runs scenarios in a guest of this kernel."""
    with alone("make check") as held:
        suite.run(kernel, names, lines, True, checks.reader(kernel, on_result), limit, again, ended, label=kernel.kind.name,
                  guest_class=partial(Guest, lock=held))


def attended(root, kind, with_module, folder, command, limit):
    """The exit status of a command in the fast guest, or of a prompt; another than 0 where the kernel has complained."""
    kernel = made.make(root, kind)
    install = []
    if with_module:
        install = build.native_install(kernel.release, build.provider(root), made.modules(kernel)[0])
    with alone(f"make {kind.name}") as held:
        vm = prompt.guest(kernel, install, folder, command, partial(Guest, lock=held, terminal=command is None),
                          console=f"/dev/{CONSOLE}")
        status = prompt.run(lambda: vm, limit) if command is not None else on_terminal(vm)
    wrong = complaints(without_reports(vm.console_tail(20000), "kmemleak found something"))
    for line in wrong:
        say.line(f"the kernel complains: {line.strip()}")
    lost = boot.tail_of(vm.results / LOST, 10000)
    if lost:
        say.line(checks.readable(kernel, "lost for ever:\n" + "\n".join(lost)))
    if wrong or lost:
        say.line(f"the whole log is {vm.console}")
    return status or int(bool(wrong or lost))


def on_terminal(vm):
    """A prompt on this terminal, which the guest has as its second console."""
    with prompt.as_it_was(sys.stdin.fileno()):
        vm.start(sys.stdin, sys.stdout)
        try:
            vm.proc.wait()
        finally:
            vm.stop()
    # What a person's last command came to is no verdict.
    return prompt.DIED if prompt.status_of(vm) == prompt.DIED else 0
