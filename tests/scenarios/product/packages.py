# SPDX-License-Identifier: GPL-2.0
"""The Debian packages on a machine that has nothing else of ours: installed, upgraded and removed while in use."""

import filecmp
import glob
import os
import subprocess
from contextlib import contextmanager

from tests.guest.fabric import batch, counters, devices, pair, read, wait_until
from tests.guest.programs import both_running, listens, running
from tests.guest.scenario import command, require, say, scenario
from tests.scenarios.messages.pingpong import PORT
from tests.scenarios.product.command import ferroce
from tests.scenarios.product.doctor import finds, healthy

FIRST, NEWER = "/srv/packages", "/srv/newer"
# What was written since the boot, and what was there before: see tests/guest/root.sh.
UPPER, LOWER = "/run/root/upper", "/run/root/lower"
# Documentation's addresses (RFC 5737).
ADDRESS = "192.0.2.1"
# Of `ferroce try`: three programs send 200 each way.
MESSAGES = 3 * 2 * 200


def apt(words, cwd=None):
    """Runs apt as for a person who says yes, by a shell; what it prints is in the log while it does so."""
    say(f"+ apt -y {words}")
    done = subprocess.run(f"exec apt -y {words}", shell=True, cwd=cwd, stdin=subprocess.DEVNULL, check=False,
                          stderr=subprocess.STDOUT, env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"})
    require(done.returncode == 0, f"apt {words}: exit {done.returncode}")
    say("apt is done")


def install(folder):
    apt("install ./*.deb", cwd=folder)


def known():
    """Version and state of each of our packages that dpkg has heard of, by name."""
    form = "${Package} ${Version} ${db:Status-Abbrev}\n"
    out = command(["dpkg-query", "-W", "-f", form, "ferroce*"], ok=(0, 1)).stdout
    rows = [line.split() for line in out.splitlines() if not line.startswith("dpkg-query: ")]
    return {row[0]: (row[1], row[2]) for row in rows if len(row) == 3}


def ours():
    """Versions of our packages that are installed, by name."""
    return {name: version for name, (version, state) in known().items() if state == "ii"}


def versions(folder):
    return dict(name.split("_")[:2] for name in os.listdir(folder))


def have(folder):
    """Sees to it that the packages of a folder are what is installed, whatever ran before."""
    if ours() != versions(folder):
        if ours():
            apt(f"purge {' '.join(ours())}")
        install(folder)
    require(ours() == versions(folder), f"installed are {ours()}, and not {versions(folder)}")


@contextmanager
def card():
    """A network card of the machine's with an address."""
    names = [n for n in sorted(os.listdir("/sys/class/net")) if os.path.exists(f"/sys/class/net/{n}/device")]
    # The emulator's wires hold back what nobody at the other end would take.
    batch(["link set lo up", *[f"link set {name} up" for name in names], f"addr add {ADDRESS}/24 dev {names[0]}"])
    try:
        yield names[0]
    finally:
        for dev in devices():
            command(["rdma", "link", "delete", dev])
        batch([f"addr flush dev {names[0]}", *[f"link set {name} down" for name in names]])


def works(report, netdev):
    """Adds a link, and tries it as a person does; stock programs see it, those of anybody."""
    said = ferroce("add", netdev)
    require(devices() == ["fe0"] and "fe0: ACTIVE" in said, f"ferroce add: {said}")
    before = counters("fe0")["local_segments"]
    said = ferroce("try")
    require(said.rstrip().endswith("it works"), f"ferroce try: {said}")
    sent = counters("fe0")["local_segments"] - before
    require(sent >= MESSAGES, f"{sent} pieces of messages were sent")
    report.note(said.splitlines()[1])
    said = command(["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "ibv_devinfo", "-d", "fe0"]).stdout
    require("PORT_ACTIVE" in said, f"ibv_devinfo: {said}")
    healthy()


@scenario("packages.install", 200, machine="fresh", rxe="it is about ferroce")
def installed(report):
    """On a Debian without anything of RDMA: `apt install ./*.deb`, `ferroce add`, `ferroce try`, and all is well."""
    require(not ours(), f"{ours()} are here already")
    require(not os.path.exists("/usr/bin/ibv_devinfo"), "this machine has programs of RDMA already")
    with card() as netdev:
        install(FIRST)
        require(ours() == versions(FIRST), f"installed are {ours()}, and not {versions(FIRST)}")
        works(report, netdev)
    # A package is stripped, and keeps what a tracer looks for.
    with open(glob.glob("/usr/lib/*/libibverbs/libferroce-rdmav34.so")[0], "rb") as f:
        data = f.read()
    kept = {name: data.count(f"\0ferroce\0{name}\0".encode()) for name in ("post_send", "post_recv", "doorbell", "polled", "arm")}
    require(all(kept.values()), f"probes of the provider: {kept}")
    new_kernel()


HOOKS = "/usr/share/kernel/postinst.d", "/usr/share/kernel/header_postinst.d"


def new_kernel():
    """What the hook of kernel packages says of the kernel that runs, and of one without the module."""
    other = "/lib/modules/9.9.9-other"
    os.makedirs(other, exist_ok=True)
    try:
        for folder in HOOKS:
            for release, want in ((os.uname().release, ""), (os.path.basename(other), "has no module ferroce")):
                said = command(["run-parts", "--exit-on-error", f"--arg={release}", "--regex=^zz-ferroce$", folder]).stdout
                require(want in said if want else not said, f"{folder} of {release}: {said}")
    finally:
        os.rmdir(other)


def pieces(ends):
    return [counters(end.dev)["sent_pkts"] for end in ends]


def pingpong(end):
    """A program that has the device open until it is ended."""
    return ["ibv_rc_pingpong", "-e", "-c", "-d", end.dev, "-g", end.gid(), "-n", "100000000", "-p", PORT]


@contextmanager
def talk(ends):
    """Two programs that talk until they are ended, slowly: they leave the machine to others."""
    for end in ends:
        command(["tc", "qdisc", "add", "dev", end.netdev, "root", "netem", "delay", "5ms"], netns=end.netns)
    with both_running(pingpong(ends[0]), [*pingpong(ends[1]), ends[0].tcp], ends, PORT) as programs:
        wait_until("both send", lambda: min(pieces(ends)) > 10)
        yield programs


def still_talk(ends, programs):
    since = pieces(ends)
    wait_until("they go on", lambda: all(now > then + 10 for now, then in zip(pieces(ends), since)))
    require(all(program.poll() is None for program in programs), "a program has ended")


@scenario("packages.upgrade", 300, machine="fresh", rxe="it is about ferroce")
def upgraded(report):
    """An upgrade while programs talk: they go on, new ones talk to the old module, and a reload brings the new one."""
    have(FIRST)
    old, new = (versions(folder)["ferroce"] for folder in (FIRST, NEWER))
    with pair() as ends:
        with talk(ends) as programs:
            install(NEWER)
            require(ours() == versions(NEWER), f"installed are {ours()}, and not {versions(NEWER)}")
            still_talk(ends, programs)
            require(read("/sys/module/ferroce/version") == old, "the module in use was replaced")
            # Programs that begin now have the new provider, and the old module.
            since = counters(ends[0].dev)["local_segments"]
            said = ferroce("try", before=("ip", "netns", "exec", ends[0].netns))
            sent = counters(ends[0].dev)["local_segments"] - since
            require(said.rstrip().endswith("it works") and sent >= MESSAGES, f"{sent} pieces sent; ferroce try: {said}")
        fix = finds(report, "module", "was replaced while in use", "^modprobe -r ferroce && modprobe ferroce")
        # Programs that have the device open keep nobody from it.
        with running(pingpong(ends[0]), ends[0].netns) as server:
            wait_until("the server listens", lambda: listens(server.pid, PORT))
            command(["sh", "-ec", fix.split(" (")[0]])
        require(devices() == [], f"{devices()} after the module was loaded again")
        require(read("/sys/module/ferroce/version") == new, "not the new module was loaded")
    with card() as netdev:
        works(report, netdev)


# What is written anew all the time, and nobody's but apt's and dpkg's.
APT = ("/var/lib/dpkg/", "/var/lib/apt/", "/var/cache/", "/var/log/", "/tmp/", "/srv/", "/root/", "/run/", "/mnt/")


def written():
    """Files that were made or written since the boot, but for those of the package managers."""
    paths = [os.path.join(folder, name).removeprefix(UPPER) for folder, _, names in os.walk(UPPER) for name in names]
    return sorted(path for path in paths if not path.startswith(APT))


def gone(files):
    """Nothing of the packages is on the disk or found by modprobe."""
    require(not ours(), f"dpkg says that {ours()} are installed")
    left = [path for path in files if os.path.lexists(path)]
    require(not left, f"files are left: {left}")
    names = [path for path in written() if "ferroce" in path]
    require(not names, f"files of that name are left: {names}")
    said = command(["modprobe", "ferroce"], ok=None).stdout
    require("not found" in said, f"modprobe finds a module: {said}")


KEPT = ("/etc/systemd/system/sys-subsystem-net-devices-eth9.device.wants/ferroce@eth9.service",
        "/etc/systemd/system/ferroce@eth9.service.d/link.conf")


@scenario("packages.remove", 300, machine="fresh", rxe="it is about ferroce")
def removed(report):
    """A removal with a link there leaves the link; installed again all works; a removal and a purge leave no file, nor the
    links that were kept."""
    if not ours():
        install(FIRST)
    names = sorted(ours())
    files = [path for path in command(["dpkg", "-L", *names]).stdout.split("\n") if path and not os.path.isdir(path)]
    require(len(files) > 10, f"the packages have only {files}")
    with card() as netdev:
        ferroce("add", netdev)
        apt(f"remove {' '.join(names)}")
        require(devices() == ["fe0"], "the link went with the packages")
        require("fe0" not in command(["ibv_devices"]).stdout, "a program sees the device without a provider")
        command(["rdma", "link", "delete", "fe0"])
        command(["rmmod", "ferroce"])
        gone(files)
        install(FIRST)
        works(report, netdev)
        # As `ferroce add --keep` leaves it; systemd does not run here.
        for path in KEPT:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "w", encoding="utf-8") as f:
                f.write("[Service]\n")
        apt(f"purge {' '.join(names)}")
        left = [path for path in KEPT if os.path.lexists(path)]
        require(not left, f"links that were kept are left: {left}")
    command(["rmmod", "ferroce"])
    gone(files)
    # A removal leaves a package that has a script for its end known to dpkg.
    require(not known(), f"dpkg still knows of {known()}")
    index = f"/usr/lib/modules/{os.uname().release}/modules.dep"
    require(filecmp.cmp(index, LOWER + index, shallow=False), f"{index} is not what it was before")
    report.note(f"{len(files)} files came and went")
