# SPDX-License-Identifier: GPL-2.0
"""NVMe over Fabrics: the stock kernel's nvmet-rdma with a RAM disk, and its nvme-rdma as the host."""

import json
import os
import re
from contextlib import contextmanager

from tests.guest import flavour
from tests.guest.fabric import link_add, link_del, loop, read, wait_active, wait_until
from tests.guest.scenario import add, command, require, scenario
from tests.scenarios.ulp.storage import (
    DISK, MIB, Load, configfs, disk_file, gone, modules, no_namespace_is_left, ram_disk, route, two_links, used, write)

NVMET = "/sys/kernel/config/nvmet"
NQN = "ferroce"
PORT = f"{NVMET}/ports/1"
SUBSYSTEM = f"{NVMET}/subsystems/{NQN}"
NAMESPACE = f"{SUBSYSTEM}/namespaces/1"
SIZE = 16 * MIB


def share():
    """Lets hosts have the disk."""
    os.symlink(SUBSYSTEM, f"{PORT}/subsystems/{NQN}")


def withdraw():
    """Removes every controller of a host, and admits none."""
    os.unlink(f"{PORT}/subsystems/{NQN}")


@contextmanager
def target(address, shared=False):
    """The kernel's target at an address, with modules of its own; with receives that its connections share or not."""
    ram_disk(SIZE)
    command(["modprobe", "nvmet-rdma", f"use_srq={'y' if shared else 'n'}"])
    with modules("brd", "nvmet-rdma", "nvme-rdma"):
        configfs()
        for path in (SUBSYSTEM, NAMESPACE, PORT):
            os.mkdir(path)
        try:
            write(f"{SUBSYSTEM}/attr_allow_any_host", "1")
            write(f"{NAMESPACE}/device_path", DISK)
            write(f"{NAMESPACE}/enable", "1")
            for name, text in (("trtype", "rdma"), ("adrfam", "ipv4"), ("traddr", address), ("trsvcid", "4420")):
                write(f"{PORT}/addr_{name}", text)
            share()
            yield
        finally:
            if os.path.islink(f"{PORT}/subsystems/{NQN}"):
                withdraw()
            for path in (PORT, NAMESPACE, SUBSYSTEM):
                os.rmdir(path)


class Host:
    def __init__(self, here, there):
        out = command(["nvme", "connect", "-t", "rdma", "-a", there.ip4, "-s", "4420", "-w", here.ip4, "-n", NQN, "-o", "json",
                       "--nr-io-queues=2", "--queue-size=33", "--reconnect-delay=1", "--ctrl-loss-tmo=600",
                       "--keep-alive-tmo=5"])
        self.name = json.loads(out.stdout[out.stdout.index("{"):])["device"]
        self.disk = disk_file(disks)

    def state(self):
        """Such as `live`; nothing once it has gone."""
        return read(f"/sys/class/nvme/{self.name}/state") or ""

    def becomes(self, state):
        """Waits for a state of the controller."""
        wait_until(f"{self.name} becomes {state or 'nothing'}", lambda: self.state() == state, 60)

    def disconnect(self):
        """Takes it away, whatever is under way."""
        command(["nvme", "disconnect", "-n", NQN])
        self.becomes("")


def disks():
    """The disks of hosts, without the paths that they are made of."""
    return [name for name in os.listdir("/sys/block") if re.fullmatch(r"nvme\d+n\d+", name)]


@contextmanager
def connected(here, there):
    """A host that goes afterwards, if it is still there."""
    host = Host(here, there)
    try:
        yield host
    finally:
        if host.state():
            host.disconnect()


@scenario("ulp.nvme-local", 120)
def local(_report):
    """NVMe over Fabrics on one device: fio verifies, both disks compared."""
    with loop(local_path=True) as end, target(end.ip4), connected(end, end) as host:
        # Written once, read twice.
        used([end], host.disk, SIZE, ["local_bytes"], 3 * SIZE)


@scenario("ulp.nvme-srq", 120)
def shared_receives(_report):
    """NVMe over Fabrics by packets of one device, with a target whose connections share their receives: fio verifies."""
    with loop(local_path=False) as end, target(end.ip4, shared=True), connected(end, end) as host:
        require(command(["rdma", "resource", "show", "srq"]).stdout, "the target has no shared receive queue")
        used([end], host.disk, SIZE)


@scenario("ulp.nvme-veth", 120)
def veth(_report):
    """NVMe over Fabrics between two devices: fio verifies, both disks compared; reconnected and disconnected under load."""
    with two_links() as ends, target(ends[1].ip4):
        with connected(*ends) as host:
            used(ends, host.disk, SIZE)
            with Load(host.disk) as load:
                load.moves("at first")
                command(["nvme", "reset", f"/dev/{host.name}"])
                load.moves("when reconnected")
                load.ends()
            with Load(host.disk) as load:
                load.moves("at first")
                host.disconnect()
                load.fails()
        with connected(*ends) as host, Load(host.disk) as load:
            load.moves("on another connection")
            load.ends()
    no_namespace_is_left()


@scenario("ulp.nvme-lost", 180)
def lost(_report):
    """NVMe under load: the link down and back, controllers removed, the target's link deleted and back, then the host's."""
    with two_links() as ends, target(ends[1].ip4):
        one, two = ends
        with connected(*ends) as host, Load(host.disk) as load:
            load.moves("at first")
            # rdma_rxe's queue pair of management datagrams breaks for good when one cannot leave.
            if flavour.current().is_ferroce:
                command(["ip", "link", "set", two.netdev, "down"])
                host.becomes("connecting")
                command(["ip", "link", "set", two.netdev, "up"])
                route(ends)
                host.becomes("live")
                load.moves("when the link is back")
            withdraw()
            host.becomes("connecting")
            share()
            host.becomes("live")
            load.moves("with a new controller")
            # What a driver's module waits for is the target's, so it is refused.
            refused = command(["modprobe", "-r", "nvmet-rdma"], ok=None)
            require(refused.returncode, "nvmet-rdma went under load")
            link_del(two.dev)
            host.becomes("connecting")
            link_add(two.dev, two.netdev)
            wait_active(two.dev)
            # The target listens no more, and not by itself again.
            withdraw()
            share()
            host.becomes("live")
            load.moves("when the target's link is back")
            link_del(one.dev)
            load.fails()
            host.becomes("")
    no_namespace_is_left()


@contextmanager
def disk_between(ends):
    with target(ends[1].ip4), connected(*ends) as host:
        yield host.disk


add("ulp.nvme-gone", 180, "nvme under load: both links go, then the wire, then the module", gone, disk_between)
