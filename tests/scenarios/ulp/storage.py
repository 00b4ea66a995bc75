# SPDX-License-Identifier: GPL-2.0
"""What the scenarios of the kernel's own users of RDMA share: fio, two devices of one namespace, and what must be as
before."""

import errno
import glob
import os
import re
import signal
import stat
import subprocess
import tempfile
from contextlib import contextmanager

from tests.guest import fabric, flavour
from tests.guest.fabric import batch, counters, devices, link_del, linked, read, two_ends, wait_until, wire
from tests.guest.scenario import PATIENCE, Failed, command, require, say

FIO = ["fio", "--direct=1", "--thread", "--verify=crc32c", "--verify_fatal=1", "--group_reporting",
       "--output-format=terse"]
MIB = 1 << 20
# What a target has.
DISK = "/dev/ram0"


def own_mounts():
    """What the scenario mounts is its own, and vanishes with its process."""
    os.unshare(os.CLONE_NEWNS)
    command(["mount", "--make-rprivate", "/"])


@contextmanager
def modules(*names):
    """With these modules. Those that do not want to go afterwards have lost something."""
    command(["modprobe", "-a", *names])
    yield
    wait_until(f"{names} go", lambda: command(["modprobe", "-r", *reversed(names)], ok=None).returncode == 0)


def write(path, text):
    say(f"+ {text} > {path}")
    fabric.write(path, text)


# Packets between two addresses of one namespace go by the netdevs only if the table `local` is asked last.
RULES = ["pref 1 iif v0 lookup local", "pref 1 iif v1 lookup local", "pref 2 lookup 77", "pref 3 lookup local"]


def route(ends):
    """The ways between the two. Those of a netdev that goes down vanish."""
    batch([f"route replace {there.ip4} dev {here.netdev} src {here.ip4} table 77" for here, there in (ends, ends[::-1])])


@contextmanager
def two_links(driver=None):
    """Two devices on a veth pair in the first namespace, the only one that NVMe over Fabrics and iSER know; of the flavour
    under test, or of another."""
    drivers = (driver or flavour.current(),) * 2
    ends = two_ends((None, None), ("v0", "v1"), drivers)
    with wire():
        batch([f"addr add {ends[1].ip4}/24 dev v1"])
        for end in ends:
            command(["sysctl", "-q", "-w", f"net.ipv4.conf.{end.netdev}.accept_local=1",
                     f"net.ipv4.conf.{end.netdev}.rp_filter=0"])
        batch([f"rule add {rule}" for rule in RULES] + ["rule del pref 0"])
        try:
            route(ends)
            with linked(ends, drivers):
                yield ends
        finally:
            batch(["rule add pref 0 lookup local"] + [f"rule del {rule}" for rule in RULES])


def module_goes(_ends):
    """The driver of the devices is unloaded. No user of theirs keeps it."""
    command(["modprobe", "-r", flavour.current().module])


def verified(path, mib):
    """fio writes a file or a disk and reads it back: random 4 KiB in its first half, 1 MiB in sequence in the other."""
    half = mib * MIB // 2
    command([*FIO, "--ioengine=libaio", "--iodepth=32", f"--filename={path}", f"--size={half}", "--name=random",
             "--rw=randwrite", "--bs=4k", "--name=sequential", "--stonewall", f"--offset={half}", "--rw=write", "--bs=1M"], timeout=120)


def disks_of(pattern):
    """The names of the disks whose folders in sysfs are these."""
    return [os.path.basename(path) for path in glob.glob(f"/sys/class/{pattern}/device/target*/*/block/*")]


def ram_disk(size):
    """A disk for a target. What is mounted from here on is the scenario's own."""
    own_mounts()
    command(["modprobe", "brd", "rd_nr=1", f"rd_size={size >> 10}"])


def configfs():
    """By which the kernel's targets are told what to do; their modules bring it."""
    if not os.path.ismount("/sys/kernel/config"):
        command(["mount", "-t", "configfs", "none", "/sys/kernel/config"])


def disk_file(disks):
    """The file of the first disk of these, when it is there. In sysfs a disk is sooner."""
    def is_there():
        return any(os.path.exists(f"/dev/{name}") for name in disks()[:1])

    wait_until("there is a disk", is_there, 60)
    path = f"/dev/{disks()[0]}"
    require(stat.S_ISBLK(os.stat(path).st_mode), f"{path} is no disk")
    return path


class Load:
    """fio beside what the scenario does: it writes 16 KiB here and there, and checks what it has written. Use it in a
    `with`. After errors that are `excused` it goes on: what they hit is not checked."""

    # Threads, each with a part of its own. At the end of a disk that has gone nothing is read, without an error; of fio's
    # engines those that have many requests of one thread under way take that for a block that is full of what it is not.
    THREADS = 16

    def __init__(self, path, excused=()):
        self.out = tempfile.TemporaryFile("w+")
        self.excused = excused
        part = 4 * MIB // self.THREADS
        argv = [*FIO, "--ioengine=psync", f"--numjobs={self.THREADS}", f"--size={part}", f"--offset_increment={part}",
                f"--filename={path}", "--name=load", "--rw=randwrite", "--bs=16k", "--verify_backlog=4", "--time_based",
                "--runtime=3600"]
        if path.startswith("/dev/"):
            # It opens the disk anew now and then, and would make an ordinary file in the place of one that has gone.
            argv.append("--allow_file_create=0")
        if excused:
            # Of reading, writing and verifying.
            names = ":".join(errno.errorcode[number] for number in excused)
            argv += ["--continue_on_error=io", f"--ignore_error={names},{names},{names}"]
        say("+ " + " ".join(argv))
        self.proc = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=self.out, stderr=subprocess.STDOUT)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.proc.poll() is None:
            self.proc.kill()
            try:
                self.proc.wait(5)
            except subprocess.TimeoutExpired:
                # What it waits for goes with the disk.
                pass
            self.text()
        self.out.close()

    def text(self):
        self.out.seek(0)
        text = self.out.read()
        say(f"fio: {text[-2000:]}")
        return text

    def written(self):
        """How many bytes it has written by now. (Bytes that came from disks are also those of fio's own program.)"""
        found = re.search(r"(?m)^wchar: (\d+)", read(f"/proc/{self.proc.pid}/io") or "")
        return int(found[1]) if found else 0

    def moves(self, what):
        """Waits until a MiB more has been written."""
        before = self.written()
        wait_until(f"fio goes on {what}", lambda: self._alive() and self.written() >= before + MIB, 60)

    def _alive(self):
        if self.proc.poll() is not None:
            # Its results are one line of numbers; what went wrong stands before them.
            words = [line for line in self.text().splitlines() if not line.startswith("3;")]
            raise Failed(f"fio: exit {self.proc.returncode}: {' / '.join(words)[:600] or 'without a word'}")
        return True

    def ends(self):
        self._alive()
        self.proc.send_signal(signal.SIGINT)
        error = self._result()
        require(not error or error in self.excused, f"fio: error {error}")

    def fails(self):
        """Waits until it has got an error."""
        require(self._result(), "fio: ended without an error")

    def _result(self):
        """Waits for the end, when all that it has read must have been what it wrote; the error that it says in its results.
        Its exit status tells of signals as well."""
        self._wait()
        text = self.text()
        found = re.search(r"(?m)^3;[^;]*;load;\d+;(\d+);", text)
        require(found, f"fio: exit {self.proc.returncode}")
        require("verify:" not in text, f"fio: {text[:text.index(found[0])].strip()[:600]}")
        return int(found[1])

    def _wait(self):
        try:
            self.proc.wait(60 * PATIENCE)
        except subprocess.TimeoutExpired:
            raise Failed("fio does not end") from None


def grown(ends, before, names, least):
    """Each device has counted at least so much of each of these since then; rdma_rxe counts packets only."""
    for end, then in zip(ends, before):
        now = counters(end.dev)
        for name in names:
            if name in then:
                require(now[name] - then[name] >= least, f"{end.dev}: {name} grew by {now[name] - then[name]} only")


def same(one, other, size):
    """Two disks hold the same; the copies of the page cache are not what is compared."""
    for path in (one, other):
        command(["blockdev", "--flushbufs", path])
    with open(one, "rb") as a, open(other, "rb") as b:
        for offset in range(0, size, MIB):
            require(a.read(MIB) == b.read(MIB), f"{one} and {other} differ in the MiB at {offset}")


def used(ends, disk, size, names=("sent_pkts", "rcvd_pkts"), least=None):
    """A disk holds what was written, and so does the target's; each device has moved all of it, by the counters of these names."""
    before = [counters(end.dev) for end in ends]
    verified(disk, size // MIB)
    same(disk, DISK, size)
    grown(ends, before, names, least or size // 4096)


def no_namespace_is_left():
    """ib_core changes its mode only when no network namespace is alive but the first, by whatever it was held."""
    wait_until("no network namespace is held",
               lambda: command(["rdma", "system", "set", "netns", "exclusive"], ok=None).returncode == 0)
    command(["rdma", "system", "set", "netns", "shared"])


def links_go(ends):
    """The initiator's link is deleted, and then the target's."""
    for end in ends:
        link_del(end.dev)


def wire_goes(ends):
    """A netdev of the pair is deleted, and with it go the other and both devices."""
    batch([f"link del {ends[1].netdev}"])
    wait_until("both devices go", lambda: not devices())


def gone(_report, disk_of):
    """The devices of initiator and target go under a disk of the kernel's own, while it is written and read: its users are
    told, and nothing hangs or is left. (What is mounted by NFS waits, and goes on: see nfs.py.)"""
    for act in (links_go, wire_goes, module_goes):
        with two_links() as ends, disk_of(ends) as disk, Load(disk) as load:
            load.moves("at first")
            act(ends)
            load.fails()
    no_namespace_is_left()
