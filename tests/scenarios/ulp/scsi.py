# SPDX-License-Identifier: GPL-2.0
"""SCSI over RDMA: the stock kernel's targets (LIO), by configfs, with a RAM disk; open-iscsi with iSER, and the kernel's
initiator of SRP, connected by rdma_cm."""

import os
import re
import shutil
import subprocess
from contextlib import contextmanager, suppress

from tests.guest.fabric import IB, gid_table, read, wait_until
from tests.guest.programs import listens_at
from tests.guest.scenario import add, command, require, say, scenario
from tests.scenarios.ulp.storage import (
    DISK, MIB, configfs, disk_file, disks_of, gone, modules, no_namespace_is_left, ram_disk, two_links, used, write)

LIO = "/sys/kernel/config/target"
BACKSTORE = f"{LIO}/core/iblock_0"
DEVICE = f"{BACKSTORE}/disk"
SIZE = 8 * MIB


class Tree:
    """What is made in configfs, to be taken away again."""

    def __init__(self):
        self.undo = []

    def folder(self, path):
        if not os.path.isdir(path):
            os.mkdir(path)
            self.undo.append((os.rmdir, path))
        return path

    def link(self, target, path):
        os.symlink(target, path)
        self.undo.append((os.unlink, path))

    def disk(self, group, initiator):
        """Lets one initiator see the disk, as LUN 0 of a portal group, by an entry in `acls` that is removed before the LUN:
        when a LUN goes that initiators see without one, the kernel may read a record that it has just freed
        (core_clear_lun_from_tpg walks the list without rcu_read_lock; KASAN has reported it)."""
        lun, seen = f"{group}/lun/lun_0", f"{group}/acls/{initiator}/lun_0"
        self.folder(lun)
        self.link(DEVICE, f"{lun}/disk")
        for path in (os.path.dirname(seen), seen):
            self.folder(path)
        self.link(lun, f"{seen}/disk")

    def on(self, path):
        write(path, "1")
        self.undo.append((lambda path: write(path, "0"), path))


@contextmanager
def lio_target(*names):
    """A tree with a disk, and these modules."""
    ram_disk(SIZE)
    # The driver of SCSI disks, for who has no udev that loads it when one comes.
    command(["modprobe", "sd_mod"])
    # LIO loads each of its kinds of disks that there is when it is first used.
    kinds = [name for name in ("target_core_iblock", "target_core_file", "target_core_pscsi", "target_core_user")
             if command(["modinfo", "-n", name], ok=None).returncode == 0]
    with modules("brd", *kinds, *names):
        configfs()
        tree = Tree()
        try:
            for path in (BACKSTORE, DEVICE):
                tree.folder(path)
            write(f"{DEVICE}/control", f"udev_path={DISK}")
            write(f"{DEVICE}/enable", "1")
            yield tree
        finally:
            for undo, path in reversed(tree.undo):
                undo(path)


NAME = "iqn.2026-01.org.example:ferroce"
INITIATOR = f"{NAME}-host"


@contextmanager
def iser_target(address):
    """The target, with one disk for our initiator."""
    with lio_target("iscsi_target_mod", "ib_isert", "ib_iser") as tree:
        group = f"{LIO}/iscsi/{NAME}/tpgt_1"
        portal = f"{group}/np/{address}:3260"
        for path in (f"{LIO}/iscsi", os.path.dirname(group), group, portal):
            tree.folder(path)
        tree.disk(group, INITIATOR)
        write(f"{portal}/iser", "1")
        write(f"{group}/attrib/authentication", "0")
        tree.on(f"{group}/enable")
        yield


@contextmanager
def iser_session(address, replacement=120):
    """A session of open-iscsi; gives its disk. I/O waits so many seconds for another connection when there is none."""
    # Its configuration and what it remembers are for this session alone.
    if os.path.ismount("/etc/iscsi"):
        command(["umount", "/etc/iscsi", "/var/lib/iscsi"])
    shutil.copytree("/etc/iscsi", "/tmp/ulp-iscsi", dirs_exist_ok=True)
    command(["mount", "--bind", "/tmp/ulp-iscsi", "/etc/iscsi"])
    command(["mount", "-t", "tmpfs", "none", "/var/lib/iscsi"])
    with open("/etc/iscsi/initiatorname.iscsi", "w", encoding="ascii") as f:
        f.write(f"InitiatorName={INITIATOR}\n")
    os.makedirs("/run/lock/iscsi", exist_ok=True)
    say("+ iscsid -f")
    # It ends its whole process group with itself.
    daemon = subprocess.Popen(["iscsid", "-f"], stdin=subprocess.DEVNULL, process_group=0)
    node = ["iscsiadm", "-m", "node", "-T", NAME, "-p", address]
    try:
        wait_until("iscsid listens", lambda: listens_at("@ISCSIADM_ABSTRACT_NAMESPACE"), 20)
        command([*node, "-I", "iser", "-o", "new"])
        command([*node, "-o", "update", "-n", "node.session.timeo.replacement_timeout", "-v", str(replacement)])
        command([*node, "--login"], timeout=120)
        try:
            yield disk_file(iser_disks)
        finally:
            command([*node, "--logout"], timeout=120)
            wait_until("the disk goes", lambda: not iser_disks(), 60)
    finally:
        daemon.terminate()
        daemon.wait()


def iser_disks():
    return disks_of("iscsi_session/*")


@scenario("ulp.iser", 180)
def iser(_report):
    """iSCSI over RDMA between two devices: fio verifies, both disks compared."""
    with two_links() as ends, iser_target(ends[1].ip4), iser_session(ends[1].ip4) as disk:
        kind = command(["iscsiadm", "-m", "session"]).stdout
        require(re.search(r"^iser: ", kind, re.M), f"not by iSER: {kind}")
        used(ends, disk, SIZE)
    no_namespace_is_left()


PORT = 5555
PORTS = "/sys/class/srp_remote_ports"
PARAMETERS = "/sys/module/ib_srp/parameters"


@contextmanager
def srp_target(there, here):
    """The target at one device, with a disk for the initiator at another; gives the number that it asks for it by."""
    with lio_target("ib_srpt", "ib_srp") as tree:
        # A port by its first GID, an initiator by its extension, which is 0, and the GUID of its node: by addresses srpt
        # would take the one that was connected to for the initiator's.
        gid = next(gid_table(there.dev))[1].replace(":", "")
        initiator = read(f"{IB}/{here.dev}/node_guid").replace(":", "")
        port = f"{LIO}/srpt/0x{gid}"
        group = f"{port}/0x{gid}"
        for path in (f"{LIO}/srpt", port, group):
            tree.folder(path)
        tree.disk(group, f"0x{initiator:0>32}")
        tree.on(f"{group}/enable")
        listener = f"{LIO}/srpt/discovery_auth/rdma_cm_port"
        write(listener, str(PORT))
        try:
            yield int(read("/sys/module/ib_srpt/parameters/srpt_service_guid"), 0)
        finally:
            write(listener, "0")


def srp_disks():
    return disks_of("srp_host/host*")


@contextmanager
def srp_session(here, there, guid):
    """A session of the kernel's initiator; gives its disk."""
    # Seconds until what has lost its connection is given up; it is not made anew. Where that failed, ib_srp would take
    # requests for free whose completions it polls afterwards, and would have them in its list twice (srp_rport_reconnect).
    write(f"{PARAMETERS}/reconnect_delay", "off")
    write(f"{PARAMETERS}/fast_io_fail_tmo", "1")
    write(f"/sys/class/infiniband_srp/srp-{here.dev}-1/add_target",
          f"id_ext={guid:016x},ioc_guid={guid:016x},src={here.ip4},dest={there.ip4}:{PORT}")
    try:
        yield disk_file(srp_disks)
    finally:
        for port in os.listdir(PORTS):
            # It may be going by itself, when its device has gone.
            with suppress(OSError):
                write(f"{PORTS}/{port}/delete", "1")
        wait_until("the disk goes", lambda: not srp_disks() and not os.listdir(PORTS), 60)


@scenario("ulp.srp", 180)
def srp(_report):
    """SCSI over RDMA between two devices: fio verifies, both disks compared. Without shared receives, at the end of which
    srpt gives back a cache that it has not taken."""
    with two_links() as ends, srp_target(*ends[::-1]) as guid, srp_session(*ends, guid) as disk:
        used(ends, disk, SIZE)
    no_namespace_is_left()


@contextmanager
def iser_disk(ends):
    with iser_target(ends[1].ip4), iser_session(ends[1].ip4, replacement=2) as disk:
        yield disk


@contextmanager
def srp_disk(ends):
    with srp_target(*ends[::-1]) as guid, srp_session(*ends, guid) as disk:
        yield disk


for _disk in (iser_disk, srp_disk):
    _name = _disk.__name__.removesuffix("_disk")
    add(f"ulp.{_name}-gone", 180, f"{_name} under load: both links go, then the wire, then the module", gone, _disk)
