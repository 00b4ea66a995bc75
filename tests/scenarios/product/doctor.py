# SPDX-License-Identifier: GPL-2.0
"""Mistakes that people make, planted one at a time: `ferroce doctor` finds each, and nothing else, and names what fixes
it. Where that is a command it is carried out, and the doctor has nothing to say any more."""

import json
import os
import re
import shutil
import socket
import subprocess
import tempfile
from contextlib import contextmanager

from tests.guest.fabric import batch, devices, gid_index, gid_of, gid_table, loop, pair, port_state, wait_active, wait_until
from tests.guest.scenario import command, require, scenario

PROVIDERS = "/usr/lib/x86_64-linux-gnu/libibverbs"
DRIVERS = "/etc/libibverbs.d"
NOTE = b"ferroce\0"


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
    """The doctor finds a netdev that is down, without carrier, with a small MTU, no address, or no link."""
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

        batch([f"link set {end.netdev} mtu 800"])
        finds(report, "mtu", f"{end.netdev} has the MTU 800.*IB MTU of {end.dev} 512",
              f"^ip link set {end.netdev} mtu 1500")
        batch([f"link set {end.netdev} mtu 4500"])

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
    """The doctor finds packet filters that drop RoCE, exclusive devices, rdma_rxe, and a program with the UDP port."""
    with machine() as end:
        for text, rule in (("{ type filter hook input priority 0; }", "udp dport 4791 drop"),
                           ("{ type filter hook output priority 0; }",
                            "meta l4proto udp udp dport { 53, 4000-5000 } counter drop"),
                           ("{ type filter hook input priority 0; policy drop; }",
                            "ct state established,related accept"),
                           ("{ type filter hook input priority 0; policy drop; }", "tcp dport 22 accept")):
            try:
                command(["nft", f"add table inet guard; add chain inet guard gate {text}; "
                         f"add rule inet guard gate {rule}"])
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

        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
            taken.bind(("", 4791))
            finds(report, "udp port", "a program has the UDP port 4791", r"^ss -ulpn sport = :4791")
        finds(report, "link", "there is no ferroce link", "^ferroce add")
    command(["modprobe", "-r", "rdma_rxe"])


# In nft's JSON. tests/lab/test_command.py has this one and others judged.
FILTERS = os.path.join(os.path.dirname(__file__), "filters")


@scenario("product.firewalls", 300)
def firewalls(report):
    """What firewalld puts into the kernel: the doctor says that RoCE is blocked, no packet gets through, and what the doctor
    names opens it; where a rule decides by what nobody knows, it says that and how to tell."""
    with pair() as (here, there):
        inside, outside = (("ip", "netns", "exec", end.netns) for end in (there, here))
        knocked = command([*outside, "ferroce", "try", there.ip4]).stdout
        require("open both ways" in knocked and "it works" in knocked, f"ferroce try without a filter: {knocked}")
        command([*inside, "nft", "-j", "-f", f"{FILTERS}/firewalld.json"])
        fix = finds(report, "firewall", "the chain filter_INPUT of the table inet .* drops UDP port 4791",
                    "^nft insert rule inet .* filter_INPUT ", *inside)
        knocked = command([*outside, "ferroce", "try", there.ip4], ok=(1,)).stdout
        require("something is missing" in knocked, f"ferroce try through firewalld: {knocked}")
        report.note(knocked.splitlines()[-4 if "proof" in knocked else -3])
        carry_out(fix.split(" (")[0], *inside)
        healthy(*inside)
        knocked = command([*outside, "ferroce", "try", there.ip4]).stdout
        require("it works" in knocked, f"ferroce try through firewalld with the port open: {knocked}")
        command([*inside, "nft", "flush", "ruleset"])
        command([*inside, "nft", "add table ip guard; add chain ip guard gate { type filter hook input priority 0; }; "
                 "add rule ip guard gate ip saddr 198.51.100.0/24 drop"])
        found = json.loads(command([*inside, "ferroce", "doctor", "--json"]).stdout)
        doubts = [f for f in found["findings"] if f["status"] == "unknown"]
        require(len(doubts) == found["unknown"] == 1 and doubts[0]["check"] == "firewall", f"in doubt: {doubts}")
        require("198.51.100.0" in doubts[0]["text"] and "ferroce try PEER" in doubts[0]["proof"], f"it says {doubts}")
        report.note(doubts[0]["text"])


@contextmanager
def own_mounts():
    """A mount namespace in which files can be covered; what stands in front of a command to run it there."""
    # It ends with its parent's end of the pipe, whatever happens to that.
    argv = ["unshare", "--mount", "--propagation", "private", "sh", "-c", "echo; exec cat"]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        try:
            holder.stdout.readline()
            yield ["nsenter", "--mount", "--root", f"--target={holder.pid}", "--"]
        finally:
            holder.stdin.close()
            holder.wait()


@contextmanager
def covered(path, text=None):
    """A folder that is empty, or a file that says something else, in mounts of its own."""
    with own_mounts() as inside, tempfile.TemporaryDirectory() as place:
        if text is None:
            command([*inside, "mount", "-t", "tmpfs", "tmpfs", path])
        else:
            with open(f"{place}/other", "wb") as f:
                f.write(text)
            command([*inside, "mount", "--bind", f"{place}/other", path])
        yield inside


def contents(path):
    with open(path, "rb") as f:
        return f.read()


@scenario("product.doctor-provider", 180, rxe="it is about ferroce")
def provider_mistakes(report):
    """The doctor finds what keeps libibverbs from the provider, and programs from the device or from memory."""
    with machine() as end:
        node = uverbs(end.dev)
        with covered(PROVIDERS) as inside:
            finds(report, "provider", f"{PROVIDERS}/libferroce-rdmav34.so is missing", "^apt install", *inside)
        with own_mounts() as inside, tempfile.TemporaryDirectory() as place:
            shutil.copy(f"{PROVIDERS}/libferroce-rdmav65.so", place)
            command([*inside, "mount", "--bind", place, PROVIDERS])
            finds(report, "provider", "private ABI 34 and looks for .*; there is only libferroce-rdmav65.so", "^ln -s",
                  *inside)
        with covered(DRIVERS) as inside:
            carry_out(finds(report, "provider", "no file in /etc/libibverbs.d", f"echo driver {PROVIDERS}/libferroce >",
                              *inside),
                      *inside)
            healthy(*inside)
        good = contents(f"{PROVIDERS}/libferroce-rdmav34.so")
        at = good.index(b"\x08\0\0\0\x08\0\0\0\x01\0\0\0" + NOTE) + 20
        ours = good[at]
        for newest, oldest, said, fix in ((ours + 2, ours + 1, f"versions {ours + 1} to {ours + 2}", "of one release"),
                                          (ours - 1, ours - 1, f"version {ours - 1}", "ferroce-provider")):
            other = good[:at] + bytes([newest, 0, 0, 0, oldest]) + good[at + 5:]
            with covered(f"{PROVIDERS}/libferroce-rdmav34.so", other) as inside:
                finds(report, "provider", f"module of {end.dev} speaks version {ours} .*uverbs_abi_ver.* {said}:", fix,
                      *inside)
        with covered("/etc/ld.so.cache", b"") as inside:
            finds(report, "libibverbs", "libibverbs is not installed", "^apt install libibverbs1", *inside)
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
        nobody = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
        finds(report, "memlock", "only 64 KiB", "^echo '. - memlock unlimited'", "prlimit", "--memlock=65536:65536",
              *nobody)
        healthy(*nobody)


# Says how many devices the libibverbs in a file finds, as often as it is asked.
COUNTS = """import ctypes, sys
library = ctypes.CDLL(sys.argv[1])
library.ibv_get_device_list.restype = ctypes.c_void_p
for _ in sys.stdin:
    number = ctypes.c_int(-1)
    library.ibv_get_device_list(ctypes.byref(number))
    print(number.value, flush=True)
"""


@contextmanager
def program_of_a_wheel(library, *before):
    """A program with a libibverbs of its own; yields a function that says how many devices it finds."""
    with subprocess.Popen([*before, "python3", "-c", COUNTS, library], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                          text=True) as proc:
        def count():
            print(file=proc.stdin, flush=True)
            return int(proc.stdout.readline())

        try:
            yield count
        finally:
            proc.stdin.close()
            proc.wait()


@scenario("product.wheel", 120, rxe="it is about ferroce")
def wheel(report):
    """A program with a libibverbs of another name, which looks for providers in another folder, as those in Python wheels
    do, sees the device; where it does not, the doctor says what fixes it."""
    system = os.path.realpath("/usr/lib/x86_64-linux-gnu/libibverbs.so.1")
    data = contents(system)
    for old, new in ((b"\0libibverbs.so.1\0", b"\0libibverbz.so.1\0"),
                     (PROVIDERS.encode() + b"/lib%s-rdmav", PROVIDERS.encode()[:-1] + b"z/lib%s-rdmav")):
        require(data.count(old) == 1 and len(old) == len(new), f"{old} is not once in {system}")
        data = data.replace(old, new)
    with machine(), tempfile.TemporaryDirectory() as place:
        library = f"{place}/libibverbs-1de1263b.so.1.14"
        with open(library, "wb") as f:
            f.write(data)
        with program_of_a_wheel(library) as count:
            require(count() == 1, "it finds no device")
            healthy()
        # As rdma-core's own providers are named, and this one was.
        with covered(f"{DRIVERS}/ferroce.driver", b"driver ferroce\n") as inside:
            with program_of_a_wheel(library, *inside) as count:
                require(count() == 0, "a provider in another folder is found")
                fix = finds(report, "other libibverbs", f"a libibverbs of its own, {library}, of the private ABI 34",
                             f"^echo driver {PROVIDERS}/libferroce >{DRIVERS}/ferroce.driver", *inside)
            carry_out(fix.split(",")[0], *inside)
            with program_of_a_wheel(library, *inside) as count:
                require(count() == 1, "it finds no device after the fix")
                healthy(*inside)


def uverbs(dev):
    for name in os.listdir("/sys/class/infiniband_verbs"):
        path = f"/sys/class/infiniband_verbs/{name}/ibdev"
        if os.path.exists(path) and contents(path).decode().strip() == dev:
            return f"/dev/infiniband/{name}"
    return ""


@scenario("product.doctor-module", 180, rxe="it is about ferroce")
def module_mistakes(report):
    """The doctor finds a module that is missing, replaced or not allowed, and a kernel that cannot have one."""
    release = os.uname().release
    file = f"/lib/modules/{release}/updates/ferroce.ko"
    with machine() as end:
        good = contents(file)
        number = contents("/sys/module/ferroce/notes/.note.gnu.build-id")
        other = good.replace(number, number[:-1] + bytes([number[-1] ^ 1]))
        require(other != good, "the number of the build is not in the module")
        with covered(file, other) as inside:
            finds(report, "module", f"another one than {re.escape(file)}", "^modprobe -r ferroce && modprobe ferroce",
                  *inside)

        # Without the module there is no link either, which is found, too: so another answer is taken from among two.
        command(["modprobe", "-r", "ferroce"])
        require(end.dev not in devices(), "the device outlived its module")
        with covered(os.path.dirname(file)) as inside:
            finds(report, "module", f"there is no module ferroce for the kernel {re.escape(release)}",
                  "^apt install ferroce-dkms", *inside, beside=["link"])
            config = contents(f"/lib/modules/{release}/config")
            other = config.replace(b"\nCONFIG_RUST=y\n", b"\n# CONFIG_RUST is not set\n")
            require(other != config, "this kernel is built without CONFIG_RUST")
            with tempfile.NamedTemporaryFile() as f:
                f.write(other)
                f.flush()
                command([*inside, "mount", "--bind", f.name, f"/lib/modules/{release}/config"])
                finds(report, "kernel", f"the kernel {re.escape(release)} is built without CONFIG_RUST", "linux-image",
                      *inside, beside=["link"])
        with covered("/sys/module/module/parameters/sig_enforce", b"Y\n") as inside:
            finds(report, "module", "enforces signatures: .*ferroce.ko is not signed", "ferroce-dkms.*(mokutil|no UEFI)", *inside,
                  beside=["link"])
        with own_mounts() as inside, tempfile.NamedTemporaryFile() as f:
            # As Secure Boot has it; product.boot has the kernel do so.
            f.write(b"none [integrity] confidentiality\n")
            f.flush()
            command([*inside, "mount", "-t", "securityfs", "securityfs", "/sys/kernel/security"])
            command([*inside, "mount", "--bind", f.name, "/sys/kernel/security/lockdown"])
            finds(report, "module", r"locked down \(integrity.*ferroce.ko is not signed", "ferroce-dkms.*(mokutil|no UEFI)", *inside,
                  beside=["link"])
        require(not os.path.exists("/sys/module/ferroce"), "the doctor has loaded what it says cannot be loaded")
        finds(report, "link", "there is no ferroce link", "^ferroce add")
        require(os.path.exists("/sys/module/ferroce"), "the doctor has not tried to load the module")
