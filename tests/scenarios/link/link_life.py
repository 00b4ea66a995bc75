# SPDX-License-Identifier: GPL-2.0
"""The life of a link: added, refused, followed through changes of its netdev, deleted, with nothing left behind."""

import os
import re
import select
import subprocess
from contextlib import contextmanager

from tests.guest import flavour
from tests.guest.cases import cases
from tests.guest.fabric import (IB, batch, counters, devices, gid_index, link_add, link_del, loop, no_dad,
                                pair, port_state, read, wait_active, wait_until, wire)
from tests.guest.programs import both_running
from tests.guest.scenario import PATIENCE, Skipped, command, last_line, require, scenario
from tests.guest.tunnels import open_tun
from tests.judges import kernel
from tests.scenarios.interop.interop import rxe_loaded

MODULE = flavour.current().module
DEV = flavour.current().prefix + "0"
OTHER = flavour.current().prefix + "1"
PORT = 18600


def loaded(module=MODULE):
    return os.path.isdir(f"/sys/module/{module}")


def unload(module=MODULE):
    command(["modprobe", "-r", module], timeout=60)
    require(not loaded(module), f"{module} is still loaded after modprobe -r")


def refused(name, netdev, errno_text, *words):
    """A link that must be refused, with the errno's text and, from ferroce, a sentence with the given words. The
    kernel passes no extack to link types, so the sentence is in its log."""
    log = kernel.Log()
    out = link_add(name, netdev, ok=None)
    require(out.returncode != 0, f"rdma link add {name} on {netdev} was accepted")
    if flavour.current().is_ferroce:
        require(errno_text in out.stdout, f"expected {errno_text}: {out.stdout.strip()}")
        said = [line for line in log.new() if line.startswith(f"{MODULE}:")]
        require(said, f"no sentence says why: {out.stdout.strip()}")
        for word in words:
            require(word.lower() in said[-1].lower(), f"the sentence does not speak of {word}: {said[-1]}")
    require(name not in devices() or name == DEV, f"{name} exists although it was refused")


@scenario("link.autoload", 60)
def autoload(_report):
    """`rdma link add` loads the module by its alias; `modprobe -r` takes it away again."""
    if loaded():
        unload()
    with wire() as (netdev, _):
        require(not kernel.udp_sockets(), "a UDP socket is open before the first link")
        link_add(DEV, netdev)
        require(loaded(), "the module is not loaded")
        wait_active(DEV)
        shown = command(["rdma", "link", "show", f"{DEV}/1"]).stdout
        require(f"netdev {netdev}" in shown and "state ACTIVE" in shown, f"rdma link shows: {last_line(shown)}")
        require(kernel.udp_sockets() >= 1, "no UDP socket while a link exists")
        link_del(DEV)
        require(DEV not in devices(), "the device is still there")
        wait_until("UDP sockets are closed", lambda: not kernel.udp_sockets())
    unload()


@scenario("link.udev", 60)
def udev(_report):
    """A machine's udevd looks at devices while they come and go: names and device nodes are right, and nothing is held."""
    # It takes no questions from a chroot otherwise.
    env = os.environ | {"SYSTEMD_IGNORE_CHROOT": "1"}

    def udevadm(*argv):
        return command(["udevadm", *argv], env=env).stdout

    daemon = subprocess.Popen(["/usr/lib/systemd/systemd-udevd"], stdin=subprocess.DEVNULL, env=env)
    try:
        wait_until("udevd takes orders", lambda: os.path.exists("/run/udev/control"))
        # Its rules load what belongs to a device by units of systemd, which does not run here.
        command(["modprobe", "-a", "ib_uverbs", "ib_umad"])
        with wire() as (netdev, _):
            for _ in range(3):
                link_add(DEV, netdev)
                udevadm("settle")
                known = udevadm("info", "--query=property", f"/sys/class/infiniband/{DEV}")
                require(re.search("^USEC_INITIALIZED=", known, re.M), f"udevd has not looked at {DEV}: {known}")
                require(f"\nNAME={DEV}\n" in known, f"it has another name: {known}")
                for node in (*os.listdir("/sys/class/infiniband_verbs"), "umad0"):
                    require(node == "abi_version" or os.path.exists(f"/dev/infiniband/{node}"), f"there is no node {node}")
                link_del(DEV)
            # Here it is still busy with what has gone.
            for _ in range(10):
                link_add(DEV, netdev)
                link_del(DEV)
        udevadm("settle")
        require(not devices(), f"{devices()} are left")
    finally:
        daemon.terminate()
        daemon.wait(30 * PATIENCE)


@scenario("link.devinfo", 60)
def devinfo(report):
    """Stock tools see the device: ibv_devices, ibv_devinfo -v, rdma dev, rdma link."""
    with loop() as end:
        for argv in (["ibv_devices"], ["ibv_devinfo", "-d", end.dev, "-v"], ["rdma", "dev"], ["rdma", "link"]):
            out = command(argv).stdout
            require(end.dev in out, f"{argv[0]} does not list {end.dev}")
            require("Warning" not in out, f"{argv[0]}: {out.strip()}")
        report.note("$ rdma link\n" + command(["rdma", "link"]).stdout)
        out = command(["ibv_devinfo", "-d", end.dev]).stdout
        report.note(f"$ ibv_devinfo -d {end.dev}\n{out}")
        for want in ("PORT_ACTIVE", "Ethernet", "active_mtu:\t\t4096"):
            require(want in out, f"ibv_devinfo does not say {want!r}")


@scenario("link.refused", 60, rxe="rdma_rxe answers ENFILE here and leaves its sockets open")
def not_taken(_report):
    """A name in use, a VLAN, a bridge's port, and a UDP port that rdma_rxe holds are refused with an errno and a sentence; the
    first link lives on, and the VLAN's address is a GID of it."""
    with loop() as end:
        refused(end.dev, "v1", "File exists", "name")
        require(end.dev in devices(), "the first link is gone")
        batch([f"link add link {end.netdev} name v0.7 type vlan id 7", "link set v0.7 up",
               "addr add 10.78.0.1/24 dev v0.7"])
        refused(OTHER, "v0.7", "Operation not permitted", "VLAN")
        gid_index(end.dev, "10.78.0.1")
        batch(["link del v0.7", "link add br7 type bridge", "link add d0 type dummy", "link set d0 master br7"])
        refused(OTHER, "d0", "Operation not permitted", "br7")
        batch(["link del d0", "link del br7"])
    with rxe_loaded(), wire() as (netdev, peer):
        command(["rdma", "link", "add", "rx9", "type", "rxe", "netdev", peer])
        refused(DEV, netdev, "Address already in use", "4791")
        command(["rdma", "link", "delete", "rx9"])
        wait_until("rdma_rxe closes its sockets", lambda: not kernel.udp_sockets())
        link_add(DEV, netdev)
        link_del(DEV)


@scenario("link.unsuitable-netdev", 60)
def unsuitable(_report):
    """A netdev that is no Ethernet and no tunnel of IP packets, or is not there, is refused."""
    out = command(["rdma", "link", "add", DEV, "type", flavour.current().link_type, "netdev", "nothere"], ok=None)
    require(out.returncode != 0, "a netdev that does not exist was accepted")
    if not flavour.current().is_ferroce:
        raise Skipped("rdma_rxe takes any netdev")
    # A kernel need not have every type.
    if all(command(["ip", "link", "add", "o0", "type", kind], ok=None).returncode for kind in ("nlmon", "vcan", "ipoib")):
        raise Skipped("this kernel has no netdev of such a type")
    try:
        refused(DEV, "o0", "Operation not supported", "Ethernet", "tunnel")
    finally:
        batch(["link del o0"])


@scenario("link.tun", 90)
def on_tun(_report):
    """A link on a tun device, which has no Ethernet address: GIDs of IPv4 and IPv6, also of addresses that come later, a
    GUID of its own, DOWN and ACTIVE with the netdev, and it goes with that."""
    command(["modprobe", "tun"], ok=None)
    no_dad()
    guids = []
    for number in (1, 2):
        with open_tun(None, "t0"):
            batch([f"addr add 10.77.{number}.1/24 dev t0", f"addr add fd77:{number}::1/64 dev t0", "link set t0 up"])
            link_add(DEV, "t0")
            wait_active(DEV)
            guids.append(read(f"{IB}/{DEV}/node_guid"))
            for address in (f"10.77.{number}.1", f"fd77:{number}::1"):
                gid_index(DEV, address)
            require(read(f"{IB}/{DEV}/ports/1/gid_attrs/ndevs/0") == "t0", "GID 0 has no netdev")
            if flavour.current().is_ferroce:
                batch([f"addr add 10.78.{number}.1/24 dev t0"])
                gid_index(DEV, f"10.78.{number}.1")
            batch(["link set t0 down"])
            wait_until("the port is DOWN", lambda: "DOWN" in port_state(DEV))
            batch(["link set t0 up"])
            wait_active(DEV)
            if number == 1:
                link_del(DEV)
    wait_until("the device goes", lambda: DEV not in devices())
    # Locally administered, as an EUI-64 has it: inverted.
    require(guids[0] != guids[1] and not any(int(guid[:2], 16) & 3 for guid in guids), f"GUIDs {guids}")


@scenario("link.loopback-netdev", 60)
def on_lo(_report):
    """A link on `lo` works, for students and CI have nothing else: its port is ACTIVE, its addresses are GIDs, also one
    that comes later. Who asks for its speed, which `lo` does not tell, nor a macvlan that has it of another netdev, leaves no
    line in the log."""
    log = kernel.Log()
    batch(["link set lo up"])
    link_add(DEV, "lo")
    wait_active(DEV)
    for address in ("127.0.0.1", "::1"):
        gid_index(DEV, address)
    if flavour.current().is_ferroce:
        batch(["addr add 10.78.0.1/32 dev lo"])
        try:
            gid_index(DEV, "10.78.0.1")
        finally:
            batch(["addr del 10.78.0.1/32 dev lo"])
        batch(["link add d0 type dummy", "link add link d0 name m0 type macvlan", "link set d0 up", "link set m0 up"])
        link_add(OTHER, "m0")
        wait_active(OTHER)
        require(read(f"{IB}/{OTHER}/ports/1/rate").startswith("2.5 "), "a speed that nobody has told")
        link_del(OTHER)
        batch(["link del d0"])
        said = [line for line in log.new() if "speed is unknown" in line]
        require(not said, f"the port was asked for its speed: {said}")
    link_del(DEV)


@contextmanager
def events_of(dev):
    """The asynchronous events of a device, as `ibv_asyncwatch` prints them: yields a function that gives the name of the next
    one, or None where none comes for so long."""
    with subprocess.Popen(["stdbuf", "-oL", "ibv_asyncwatch", "-d", dev], stdout=subprocess.PIPE, bufsize=0) as proc:
        def line(limit):
            if select.select([proc.stdout], [], [], limit * PATIENCE)[0]:
                return proc.stdout.readline().decode()
            return None

        def next_one(limit=10):
            said = line(limit)
            return said and re.search(r"IBV_EVENT_(\w+)", said)[1]

        # It has the device open when it says so.
        require("FD" in (line(10) or ""), "ibv_asyncwatch does not begin")
        try:
            yield next_one
        finally:
            proc.kill()


@scenario("link.event-order", 60, rxe="rdma_rxe sends them in any order")
def event_order(_report):
    """When the netdev is set down, programs hear of the port first, and then of the GIDs of addresses that go with it."""
    with loop() as end, events_of(end.dev) as next_event:
        for _ in range(10):
            batch([f"link set {end.netdev} down"])
            seen = [next_event(), next_event()]
            require(seen == ["PORT_ERR", "GID_CHANGE"], f"programs hear of {seen}")
            batch([f"link set {end.netdev} up", f"addr add {end.ip6}/64 dev {end.netdev} nodad"])
            gid_index(end.dev, end.ip6)
            seen = set()
            while not {"PORT_ACTIVE", "GID_CHANGE"} <= seen:
                seen.add(next_event())
                require(None not in seen, f"programs hear of no more than {seen}")
            # What else comes belongs to that.
            while next_event(0.1):
                pass


@scenario("link.parent", 90, rxe="rdma_rxe has no parent")
def parent(report):
    """What code that looks for topology finds: the card of a netdev that has one, as a PCI function with its NUMA node, and
    nothing at all for a netdev without; the name stays what it was; GID 0 has a netdev."""
    with loop() as end:
        require(not os.path.exists(f"{IB}/{end.dev}/device"), "a veth has no card")
        # Mooncake's look-up of a bus id two levels up, which must find a folder.
        require(os.path.realpath(f"{IB}/{end.dev}/../..") == "/sys/devices/virtual", "it is no virtual device")
        require(read(f"{IB}/{end.dev}/ports/1/gid_attrs/ndevs/0") == end.netdev, "GID 0 has no netdev")
    cards = [name for name in sorted(os.listdir("/sys/class/net")) if os.path.exists(f"/sys/class/net/{name}/device")]
    if not cards:
        report.skip("a netdev with a card", "this machine has none")
    for name in cards:
        batch([f"link set {name} up"])
        link_add(DEV, name)
        try:
            require(devices() == [DEV], f"it is called {devices()}")
            # NCCL: the real path of `device`, of which the last part is a bus id; its subsystem is pci.
            path = os.path.realpath(f"{IB}/{DEV}/device")
            require(re.fullmatch(r"[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]", os.path.basename(path)), f"no bus id: {path}")
            require(os.path.basename(os.path.realpath(f"{path}/subsystem")) == "pci", f"{path} is not of PCI")
            # Mooncake, and DLSlime.
            require(os.path.realpath(f"{IB}/{DEV}/../..") == path, "the bus id is not two levels up")
            node = read(f"{IB}/{DEV}/device/numa_node")
            require(node is not None and int(node) >= -1, f"NUMA node {node}")
            require(os.path.realpath(f"/sys/class/net/{name}").startswith(path + "/"), f"{name} is not on {path}")
        finally:
            link_del(DEV)
            batch([f"link set {name} down"])


@scenario("link.mtu", 60)
def mtu(_report):
    """The active MTU follows the netdev's."""
    with loop() as end:
        for wire_mtu, want in ((1500, 1024), (576, 256), (9000, 4096), (2200, 2048), (4500, 4096)):
            batch([f"link set {end.netdev} mtu {wire_mtu}"])
            seen = ""

            def active():
                nonlocal seen
                seen = command(["ibv_devinfo", "-d", end.dev]).stdout
                return f"active_mtu:\t\t{want} " in seen

            wait_until(f"active MTU {want} at a netdev MTU of {wire_mtu}", active, 5)


@scenario("link.netdev-used", 90)
def netdev_used(_report):
    """Removing the netdev flushes the queue pairs of a process before the device goes."""
    flush = next(case for case in cases("tables") if case.name == "netdev-gone")
    with loop() as end:
        flush.run(end)
        wait_until("the device goes", lambda: end.dev not in devices())


@scenario("link.sockets-per-netns", 90)
def sockets(_report):
    """UDP 4791 is open in a namespace exactly while it has a link."""
    def count(netns):
        out = command(["ss", "-Huan", "sport", "=", str(kernel.UDP_PORT)], netns=netns).stdout
        return len([line for line in out.splitlines() if line.strip()])

    with pair() as (one, two):
        require(count(one.netns) >= 1 and count(two.netns) >= 1, "a namespace with a link has no socket")
        require(not kernel.udp_sockets(), "the first namespace has a socket and no link")
        link_del(one.dev, netns=one.netns)
        wait_until("the socket goes with its last link", lambda: count(one.netns) == 0)
        require(count(two.netns) >= 1, "the other namespace lost its socket")


def takes_from_pollers(act):
    """Does `act`, which takes the device of an end away, while programs poll: what they have posted is flushed, which is
    all that they hear of it, and so they end by themselves."""
    with loop() as end:
        argv = ["ibv_rc_pingpong", "-d", end.dev, "-g", end.gid(), "-n", "1000000000", "-p", PORT]
        with both_running(argv, [*argv, end.tcp], (end, end), PORT) as procs:
            for _ in range(2):
                before = counters(end.dev)["local_segments"]
                wait_until("messages move", lambda b=before: counters(end.dev)["local_segments"] > b)
            require(all(p.poll() is None for p in procs), "pingpong ended too early")
            act(end)
            for p in procs:
                require(p.wait(timeout=60 * PATIENCE) == 1, f"pingpong ended with {p.returncode}")
        wait_until("the device goes", lambda: end.dev not in devices(), 20)
    wait_until("the module is free", lambda: not kernel.refcount(), 10)


@scenario("link.delete-in-use", 90, rxe="rdma_rxe waits for the program for ever")
def delete_in_use(_report):
    """Deleting a link under programs that poll ends them."""
    takes_from_pollers(lambda end: link_del(end.dev))


@scenario("link.unload-in-use", 90, rxe="rdma_rxe waits for the program for ever")
def unload_in_use(_report):
    """Unloading the module under programs that poll ends them."""
    takes_from_pollers(lambda _end: unload())
