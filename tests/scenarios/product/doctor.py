# SPDX-License-Identifier: GPL-2.0
"""Mistakes that people make, planted one at a time: `ferroce doctor` finds each, and nothing else, and names what fixes
it. Where that is a command it is carried out, and the doctor has nothing to say any more. Here is one of each thing that it
looks at; all of its answers are in tests/lab/test_doctor.py, on machines that are made up."""

import json
import os
import re
import subprocess
import tempfile
from contextlib import contextmanager

from tests.guest.fabric import batch, devices, gid_index, gid_of, gid_table, loop, port_state, wait_active, wait_until
from tests.guest.scenario import command, require, scenario

PROVIDERS = "/usr/lib/x86_64-linux-gnu/libibverbs"
PROVIDER = f"{PROVIDERS}/libferroce-rdmav34.so"
DRIVERS = "/etc/libibverbs.d"
NOBODY = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")


def doctor(*before):
    """The problems that it finds, with what must run in front of it."""
    done = command([*before, "ferroce", "doctor", "--json"], ok=(0, 1))
    found = json.loads(done.stdout)
    problems = [f for f in found["findings"] if f["status"] == "problem"]
    require(len(problems) == found["problems"], f"it counts {found['problems']} problems and lists {len(problems)}")
    require(done.returncode == (1 if problems else 0), f"exit {done.returncode} with {len(problems)} problems")
    return problems


def healthy(*before):
    problems = doctor(*before)
    require(not problems, f"problems on a machine that has none: {problems}")


def finds(report, check, text, fix, *before, beside=()):
    """One problem, with these words, and those that are known beside it; returns its fix."""
    problems = doctor(*before)
    said = [(p["check"], p["text"], p["fix"]) for p in problems]
    require(sorted(p["check"] for p in problems) == sorted([check, *beside]), f"not one problem of {check}: {said}")
    one = next(p for p in problems if p["check"] == check)
    require(re.search(text, one["text"]), f"it does not say {text}: {said}")
    require(re.search(fix, one["fix"]), f"it does not name {fix}: {said}")
    report.note(f"{one['text']} | {one['fix']}")
    return one["fix"]


def carry_out(fix, *before):
    """A fix that is a command, by a shell, as a person would."""
    command([*before, "sh", "-ec", fix])


@contextmanager
def machine():
    """One link on a machine on which all is well."""
    with loop() as end:
        healthy()
        yield end


@scenario("product.doctor-netdev", 180, rxe="it is about ferroce")
def netdev_mistakes(report):
    """The doctor finds a netdev that is down, without carrier, with no address, or no link."""
    with machine() as end:
        batch([f"link set {end.netdev} down"])
        wait_until("the port is down", lambda: "DOWN" in port_state(end.dev))
        carry_out(finds(report, "netdev", f"{end.netdev} of {end.dev} is down", f"^ip link set {end.netdev} up$"))
        wait_active(end.dev)
        end.gid()
        healthy()

        batch(["link set v1 down"])
        wait_until("the port is down", lambda: "DOWN" in port_state(end.dev))
        finds(report, "netdev", f"{end.netdev} of {end.dev} has no carrier", "ip link set PEER up")
        batch(["link set v1 up"])
        wait_active(end.dev)

        batch([f"addr flush dev {end.netdev}"])
        wait_until("its GIDs go", lambda: not {gid_of(end.ip4), gid_of(end.ip6)} & {gid for _, gid, _ in gid_table(end.dev)})
        fix = finds(report, "gid", f"{end.netdev} of {end.dev} has no address",
                     f"^ip addr add .* dev {end.netdev} \\(")
        carry_out(fix.split(" (")[0])
        gid_index(end.dev, "192.0.2.1")
        healthy()

        command(["rdma", "link", "delete", end.dev])
        carry_out(finds(report, "link", "there is no ferroce link", r"^ferroce add v\d$"))
        require(devices() == [end.dev], f"ferroce add has made {devices()}")
        healthy()


@scenario("product.doctor-rivals", 180, rxe="it is about ferroce")
def rivals(report):
    """The doctor finds packet filters that drop RoCE, exclusive devices, and rdma_rxe."""
    with machine() as end:
        try:
            command(["nft", "add table inet guard; add chain inet guard gate { type filter hook input priority 0; policy drop; }; "
                     "add rule inet guard gate tcp dport 22 accept"])
            fix = finds(report, "firewall", "chain gate of the table inet guard .nft. drops UDP port 4791",
                         r"^nft insert rule inet guard gate udp dport 4791 accept \(")
            carry_out(fix.split(" (")[0])
            healthy()
        finally:
            command(["nft", "delete table inet guard"])

        command(["rdma", "system", "set", "netns", "exclusive"])
        try:
            carry_out(finds(report, "netns mode", "exclusive", "^rdma system set netns shared$"))
            healthy()
        finally:
            command(["rdma", "system", "set", "netns", "shared"])

        command(["rdma", "link", "delete", end.dev])
        command(["rdma", "link", "add", "rx0", "type", "rxe", "netdev", end.netdev])
        try:
            carry_out(finds(report, "rdma_rxe", f"the link rx0 on {end.netdev}.*4791", "^rdma link delete rx0$"))
            require(devices() == [], f"{devices()} are still there")
        finally:
            if devices():
                command(["rdma", "link", "delete", "rx0"])
    command(["modprobe", "-r", "rdma_rxe"])


@contextmanager
def covered(path, text=None):
    """A folder that is empty, or a file that says something else, in mounts of its own: what stands in front of a command to run
    it there."""
    # It ends with its parent's end of the pipe, whatever happens to that.
    argv = ["unshare", "--mount", "--propagation", "private", "sh", "-c", "echo; exec cat"]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder, tempfile.NamedTemporaryFile() as other:
        try:
            holder.stdout.readline()
            inside = ["nsenter", "--mount", "--root", f"--target={holder.pid}", "--"]
            other.write(text or b"")
            other.flush()
            what = ["-t", "tmpfs", "tmpfs"] if text is None else ["--bind", other.name]
            command([*inside, "mount", *what, path])
            yield inside
        finally:
            holder.stdin.close()
            holder.wait()


def contents(path):
    with open(path, "rb") as f:
        return f.read()


@scenario("product.doctor-provider", 180, rxe="it is about ferroce")
def provider_mistakes(report):
    """The doctor finds what keeps libibverbs from the provider, and programs from the device or from memory."""
    with machine() as end:
        node = uverbs(end.dev)
        with covered(DRIVERS) as inside:
            carry_out(finds(report, "provider", "no file in /etc/libibverbs.d", f"echo driver {PROVIDERS}/libferroce >",
                              *inside),
                      *inside)
            healthy(*inside)
        good = contents(PROVIDER)
        at = good.index(b"\x08\0\0\0\x08\0\0\0\x01\0\0\0ferroce\0") + 20
        ours = good[at]
        other = good[:at] + bytes([ours + 2, 0, 0, 0, ours + 1]) + good[at + 5:]
        with covered(PROVIDER, other) as inside:
            finds(report, "provider", f"module of {end.dev} speaks version {ours} .*uverbs_abi_ver.* versions {ours + 1} to "
                  f"{ours + 2}:", "of one release", *inside)
        with covered("/dev/infiniband") as inside:
            fix = finds(report, "device node", f"{node} is missing", "^udevadm trigger .* mknod -m 666", *inside)
            carry_out(fix.split("without udev: ")[1], *inside)
            healthy(*inside)
        mode = os.stat(node).st_mode & 0o777
        os.chmod(node, 0o600)
        try:
            fix = finds(report, "device node", f"{node} cannot be opened by users", f"^chmod 666 {node};")
            carry_out(fix.split(";")[0])
            healthy()
        finally:
            os.chmod(node, mode)
        finds(report, "memlock", "only 64 KiB", "^echo '. - memlock unlimited'", "prlimit", "--memlock=65536:65536",
              *NOBODY)
        healthy(*NOBODY)


def uverbs(dev):
    for name in os.listdir("/sys/class/infiniband_verbs"):
        path = f"/sys/class/infiniband_verbs/{name}/ibdev"
        if os.path.exists(path) and contents(path).decode().strip() == dev:
            return f"/dev/infiniband/{name}"
    return ""


# Says how many devices the libibverbs in a file finds.
COUNTS = """import ctypes, sys
library, number = ctypes.CDLL(sys.argv[1]), ctypes.c_int(-1)
library.ibv_get_device_list.restype = ctypes.c_void_p
library.ibv_get_device_list(ctypes.byref(number))
print(number.value, "devices")
"""


@scenario("product.wheel", 120, rxe="it is about ferroce")
def wheel(_report):
    """A program with a libibverbs of another name, which looks for providers in another folder, as those in Python wheels
    do, sees the device; but not where the provider is named as rdma-core names its own. (What the doctor says of that is in
    tests/lab/test_doctor.py.)"""
    system = os.path.realpath("/usr/lib/x86_64-linux-gnu/libibverbs.so.1")
    data = contents(system)
    for old, new in ((b"\0libibverbs.so.1\0", b"\0libibverbz.so.1\0"),
                     (PROVIDERS.encode() + b"/lib%s-rdmav", PROVIDERS.encode()[:-1] + b"z/lib%s-rdmav")):
        require(data.count(old) == 1 and len(old) == len(new), f"{old} is not once in {system}")
        data = data.replace(old, new)
    with machine(), tempfile.NamedTemporaryFile(prefix="libibverbs-1de1263b.so.1.14") as library:
        library.write(data)
        library.flush()
        argv = ["python3", "-c", COUNTS, library.name]
        require("1 devices" in command(argv).stdout, "it finds no device")
        with covered(f"{DRIVERS}/ferroce.driver", b"driver ferroce\n") as inside:
            require("0 devices" in command([*inside, *argv]).stdout, "a provider in another folder is found")


@scenario("product.doctor-module", 180, rxe="it is about ferroce")
def module_mistakes(report):
    """The doctor finds a module that was replaced, or is missing; and loads the one that is there."""
    release = os.uname().release
    file = f"/lib/modules/{release}/updates/ferroce.ko"
    with machine():
        good = contents(file)
        number = contents("/sys/module/ferroce/notes/.note.gnu.build-id")
        other = good.replace(number, number[:-1] + bytes([number[-1] ^ 1]))
        require(other != good, "the number of the build is not in the module")
        with covered(file, other) as inside:
            finds(report, "module", f"another one than {re.escape(file)}", "^modprobe -r ferroce && modprobe ferroce",
                  *inside)
        # Without the module there is no link either, which is found, too: so another answer is taken from among two.
        command(["modprobe", "-r", "ferroce"])
        with covered(os.path.dirname(file)) as inside:
            finds(report, "module", f"there is no module ferroce for the kernel {re.escape(release)}",
                  "^apt install ferroce-dkms", *inside, beside=["link"])
        finds(report, "link", "there is no ferroce link", "^ferroce add")
        require(os.path.exists("/sys/module/ferroce"), "the doctor has not tried to load the module")
