# SPDX-License-Identifier: GPL-2.0
"""Boots the stock kernel on a throw-away copy of the made root."""

import os
import re
import shlex
import shutil
import subprocess
import tempfile
import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.guest.scenario import PATIENCE
from tests.lab import config, debian, disk
from tests.lab.say import LabError
from tests.lab.shell import captured, in_namespace, kill_group, overlay

# Drivers of emulated hardware nobody asks for: their probing is a good part of the boot.
BLACKLIST = ("kvm_amd,kvm_intel,kvm,ahci,libata,psmouse,sr_mod,iTCO_wdt,i6300esb,i2c_i801,lpc_ich,pcspkr,"
             "serio_raw,powernow_k8,acpi_cpufreq,qemu_fw_cfg")


# What an emulated processor can do decides what runs: with ERMS or FSRM the kernel copies by one instruction that the
# emulator carries out a byte at a time, and what `max` means is another thing in each release. So it is a model with
# what every qemu emulates, or it refuses to start.
CPU = "Westmere-v1,+smep,+rdrand,enforce"
# It finds who takes a user's address for the kernel's, and makes emulated guests a seventh slower: so not all have it.
SMAP = ",+smap"


QEMU = "qemu-system-x86_64"
# That of Debian 13; from 7.2 to this one emulation has become faster by a third.
NEW_ENOUGH = 10


def emulator(program=QEMU):
    return (debian.output([program, "--version"]).splitlines() or ["qemu is not there"])[0]


def is_new_enough(version):
    found = re.search(r"version (\d+)", version)
    return bool(found) and int(found.group(1)) >= NEW_ENOUGH


def qemu(kvm):
    """The program that runs guests: this machine's, but to emulate, a newer one that setup has fetched where that is old."""
    newer = config.newer_emulator() / QEMU
    return str(newer) if not kvm and newer.exists() else shutil.which(QEMU) or QEMU


def machine(program, kind, cpu, megabytes, kernel, append, *more):
    """A command line of qemu for a machine with two processors, without all that it has when nothing is said. Its console
    is the standard error, and what is written to it last is kept."""
    return [program, "-machine", kind, "-cpu", cpu, "-smp", "2", "-m", f"{megabytes}M", "-nodefaults", "-display", "none",
            "-monitor", "none", "-serial", "file:/proc/self/fd/2", "-device", "virtio-rng-pci", *more,
            "-kernel", str(kernel), "-append", append]


def pc(kvm, megabytes, kernel, append, *more):
    """The same for one of x86-64."""
    return machine(qemu(kvm), f"q35,accel={'kvm' if kvm else 'tcg'}", "host" if kvm else CPU, megabytes, kernel, append, *more)


def folder_of_host(path, name, tag):
    """Words for qemu: a folder of the host that a guest mounts by this tag."""
    return ["-fsdev", f"local,id={name},path={path},security_model=none,multidevs=remap",
            "-device", f"virtio-9p-pci,fsdev={name},mount_tag={tag}"]


@cache
def kvm_works(root):
    """Whether KVM can run this very kernel. The device node may exist and be of no use, so it is tried."""
    return os.access("/dev/kvm", os.R_OK | os.W_OK) and probe_kvm(root)


def probe_kvm(root):
    """Boots the kernel with no root file system: one that runs gets as far as saying so, and then panics and leaves."""
    argv = [QEMU, "-machine", "q35,accel=kvm", "-cpu", "host", "-m", "512", "-display", "none",
            "-monitor", "none", "-nodefaults", "-serial", "stdio", "-no-reboot", "-kernel", str(root.vmlinuz),
            "-append", "console=ttyS0 panic=-1 quiet loglevel=7"]
    try:
        return "Unable to mount root fs" in captured(argv, 20).stdout
    except (LabError, OSError):
        return False


def memory():
    for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) // 1024
    return 0


# Megabytes for a guest: enough to register more than 1 GiB.
MEMORY = 4096


def guest_memory():
    """Megabytes for the guest, less where the host has not much."""
    return MEMORY if memory() > 7000 else MEMORY // 2


@dataclass(frozen=True)
class Machine:
    processors: int = 2
    # Off, the kernel's measures against the processor's faults cost nothing.
    mitigations: str = "off"
    smap: bool = False
    # Of a fresh Debian that it boots in place of the laboratory's: see tests/lab/fresh.py.
    suite: str = ""
    # Not x86-64: see tests/lab/aarch64.py.
    aarch64: bool = False

    @property
    def cpu(self):
        return CPU + SMAP if self.smap else CPU

    @property
    def is_usual(self):
        """Whether it boots the laboratory's root."""
        return not self.suite and not self.aarch64


# By the name that a scenario says in its `machine`.
MACHINES = {"": Machine(), "one-processor": Machine(processors=1, mitigations="auto", smap=True),
            "eight-processors": Machine(processors=8),
            "fresh": Machine(suite=config.SUITE), "fresh-sid": Machine(suite="sid"), "aarch64": Machine(aarch64=True)}

# An emulated TSC is a good clock, but on a busy host it looks bad to the watchdog; then every look at the time is a device
# access, and the kernel rewrites its code on the way, which emulation may not survive. And the kernel gives up where a
# timer has not ticked while it waited for ten ticks, as happens when the emulator's threads wait for a processor.
# DAMON's thread runs from early in the boot, each few milliseconds, and is who met code that the kernel was rewriting.
EMULATED = "tsc=reliable clocksource=tsc no_timer_check damon_stat.enabled=N"

# What a guest loads before it has its root: for its disks, and for the devices that it was booted with.
DRIVERS = "virtio_console virtio_net e1000 virtio_rng virtio_blk erofs overlay"

# For `make bench PROFILE=`. The path of a socket has to be short: it is seen from where qemu starts, the folder mnt/b below.
MONITOR = ["-qmp", "unix:../../monitor,server=on,wait=off"]

# Two network cards of a kind on one wire, for each kind.
CARDS = " ".join(f"-netdev hubport,hubid={hub},id={kind}{n} -device {kind},netdev={kind}{n}"
                 for hub, kind in enumerate(("virtio-net-pci", "e1000")) for n in (1, 2))


def own_root(lower, place):
    """Shell lines that make a root of the guest's own at $M, upon this one, with the tests in it."""
    q = shlex.quote
    return [
        *overlay(lower, place),
        "mkdir -p $M/srv/lab/tests $M/srv/results",
        f"cd {q(str(config.CHECKOUT))}/tests && cp -r guest judges scenarios __init__.py $M/srv/lab/tests/",
    ]


# Compiled here it takes a second, and in a guest's emulation as long as its boot.
COMPILED = "chroot $M python3 -m compileall -q --invalidation-mode unchecked-hash /srv/lab/tests"


def boot_root(folders, release="", drivers=""):
    """Shell lines that make a folder at $B that a guest boots from, before it has the root of $M from disks: with one
    program, busybox, for each file that it opens there it asks the host for; and the names of the drivers to load.
    `folders` are places of others that are to be mounted."""
    q = shlex.quote
    udev = [f"cp $M/srv/lab/tests/guest/coldplug.sh $B/usr/{f}" for f in ("lib/systemd/systemd-udevd", "bin/udevadm")]
    return [
        "B=$W/b",
        "mkdir -p " + " ".join(f"$B{q(f)}" for f in (
            "/dev", "/etc", "/lib/modules", "/mnt", "/proc", "/run", "/sys", "/tmp", "/usr/bin", "/usr/lib/systemd", *folders)),
        "ln -s usr/bin $B/bin",
        "cp $M/usr/bin/busybox $B/bin/",
        "chroot $B /bin/busybox --install -s /bin",
        "cp $M/srv/lab/tests/guest/root.sh $B/",
        "mount --bind $M/usr/lib/modules $B/lib/modules",
        # In two steps: where a driver is missing the first one fails, and with it the boot.
        f"chroot $M modprobe -S {q(release)} -a --show-depends {drivers} >$B/wanted" if drivers else ": >$B/wanted",
        "sed -n 's/^insmod //p' $B/wanted >$B/drivers",
        *udev,
    ]


class Guest:
    """One boot. Results are read from `results`, which the guest writes through 9p."""

    WHAT = "stock kernel"
    # Under emulation it takes 10 s on two idle cores.
    BOOT_LIMIT = 60 * PATIENCE
    # Beyond a scenario's own limit the agent ends it; if even that does not happen the guest is stuck.
    GRACE = 45

    def __init__(self, root, work, agent, kvm=True, extra=(), env=None, counting=False, machine=MACHINES[""], folders=None,
                 more=""):
        """`work` is a fresh folder; `agent` the command to run in the guest; `extra` shell lines that finish the
        root before the boot, with its path in $M. `counting`: one processor, emulated, whose clock moves by a
        nanosecond with each instruction. `folders` of the host are at the places in the guest that they are named by;
        `more` is for the command line of qemu."""
        self.root = root
        self.work = Path(work)
        self.results = self.work / "results"
        self.results.mkdir(parents=True, exist_ok=True)
        self.console = self.work / "console.log"
        self.output = self.work / "output.log"
        self.kvm = kvm and not counting
        self.counting = counting
        self.machine = machine
        self.folders = {"/srv/results": self.results, **(folders or {})}
        self.more = more
        self.began = time.monotonic()
        self.proc = None
        self.script = self._script(agent, extra, env or {})

    def _script(self, agent, extra, env):
        q = shlex.quote
        mnt = self.work / "mnt"
        mnt.mkdir(exist_ok=True)
        sets = " ".join(f"{k}={q(v)}" for k, v in env.items())
        vng = [
            vng_program(), "--qemu", qemu(self.kvm), "--run", f"{mnt}/b/lib/modules/{self.root.release}/vmlinuz", "--root", f"{mnt}/b",
            "--busybox", f"{mnt}/b/bin/busybox", "--force-9p", "--rw", "--user", "root", "--cpus",
            str(1 if self.counting else self.machine.processors),
            "--memory", f"{guest_memory()}M", "--verbose",
            *[f"--rwdir={there}={here}" for there, here in self.folders.items()],
            "--append", f"module_blacklist={BLACKLIST}",
            "--append", "oops=panic", "--append", "apparmor=0",
            "--append", f"mitigations={self.machine.mitigations}",
            # No scenario says so much that the log overruns.
            "--append", "log_buf_len=4M",
        ]
        if not self.kvm:
            vng += ["--disable-kvm", "--append", EMULATED]
        # The same root once more, as what it is made of: a program starts from it in half of the time.
        changes = f"{mnt}/changes"
        vng.append(f"--qemu-opts={' '.join(disk.options(disk.of(self.root.path), changes) + MONITOR)} {CARDS}"
                   # Behind virtme-ng's own choice, so that it wins.
                   + ("" if self.kvm else f" -cpu {self.machine.cpu}") + (" -icount shift=0" if self.counting else "")
                   + f" {self.more}".rstrip())
        if self.machine.suite:
            agent = f"sh /srv/lab/tests/guest/udev.sh {agent}"
        vng += ["--exec", f"exec env FOLDERS={q(' '.join(self.folders))} {sets} sh /root.sh {agent}"]
        lines = [
            *own_root(self.root.path, mnt),
            *extra,
            COMPILED,
            disk.of_changes(f"{mnt}/u", changes),
            *boot_root(self.folders, self.root.release, DRIVERS),
            # vng finds its own other programs by PATH alone.
            f"export PATH={q(str(config.cache() / 'venv/bin'))}:$PATH",
            "cd $B",
            "exec " + shlex.join(vng),
        ]
        return "\n".join(lines)

    @property
    def how(self):
        """How its instructions are carried out."""
        return "KVM" if self.kvm else "emulated, no KVM"

    def start(self):
        """Starts the guest; its console goes to a file from the first line on."""
        # virtme-ng hands its own standard streams to qemu: they must be files.
        with open(self.output, "wb") as out, open(self.console, "wb") as err, open("/dev/null", "rb") as null:
            self.proc = subprocess.Popen(in_namespace(self.script), stdin=null, stdout=out, stderr=err,
                                         start_new_session=True)
        self.began = time.monotonic()

    def alive(self):
        return self.proc.poll() is None

    def stop(self):
        if self.proc and self.proc.poll() is None:
            kill_group(self.proc)

    def ask(self):
        """Has a kernel that hangs say more, where there is a way."""

    def console_tail(self, lines=25):
        return tail_of(self.console, lines)

    def output_tail(self, lines=5):
        return tail_of(self.output, lines)


def tail_of(path, lines):
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    return [line.rstrip() for line in text.splitlines() if line.strip()][-lines:]


def vng_program():
    """virtme-ng of the version the suite is made for, from the cache."""
    program = config.cache() / "venv" / "bin" / "vng"
    if not program.exists():
        raise LabError(f"virtme-ng is missing at {program}; run make setup")
    return str(program)


def fresh_work(name):
    """A new folder for one run, under build/vm; the last few are kept to look at."""
    base = config.BUILD / "vm"
    base.mkdir(parents=True, exist_ok=True)
    old = sorted((p for p in base.iterdir() if p.is_dir()), key=lambda p: p.stat().st_mtime)
    for path in old[:-8]:
        # A folder in use is a mount point somewhere else only; removing what it holds here harms nobody.
        shutil.rmtree(path, ignore_errors=True)
    # Guests beside each other may begin in the same second.
    return Path(tempfile.mkdtemp(prefix=f"{time.strftime('%H%M%S')}-{name}-", dir=base))
