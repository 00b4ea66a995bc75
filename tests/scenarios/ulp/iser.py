# SPDX-License-Identifier: GPL-2.0
"""iSCSI over RDMA: the stock kernel's LIO target with a RAM disk, and open-iscsi."""

import os
import re
import shutil
import subprocess
from contextlib import contextmanager

from tests.guest.fabric import wait_until
from tests.guest.programs import listens_at
from tests.guest.scenario import command, require, say, scenario
from tests.scenarios.ulp import lio
from tests.scenarios.ulp.storage import disk_file, disks_of, no_namespace_is_left, two_links, used, write

NAME = "iqn.2026-01.org.example:ferroce"
INITIATOR = f"{NAME}-host"


@contextmanager
def target(address):
    """The target, with one disk for our initiator."""
    with lio.target("iscsi_target_mod", "ib_isert", "ib_iser") as tree:
        group = f"{lio.LIO}/iscsi/{NAME}/tpgt_1"
        portal = f"{group}/np/{address}:3260"
        for path in (f"{lio.LIO}/iscsi", os.path.dirname(group), group, portal):
            tree.folder(path)
        tree.disk(group, INITIATOR)
        write(f"{portal}/iser", "1")
        write(f"{group}/attrib/authentication", "0")
        tree.on(f"{group}/enable")
        yield


@contextmanager
def session(address, replacement=120):
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
            yield disk_file(disks)
        finally:
            command([*node, "--logout"], timeout=120)
            wait_until("the disk goes", lambda: not disks(), 60)
    finally:
        daemon.terminate()
        daemon.wait()


def disks():
    return disks_of("iscsi_session/*")


@scenario("ulp.iser", 180)
def iser(_report):
    """iSCSI over RDMA between two devices: fio verifies, both disks compared."""
    with two_links() as ends, target(ends[1].ip4), session(ends[1].ip4) as disk:
        kind = command(["iscsiadm", "-m", "session"]).stdout
        require(re.search(r"^iser: ", kind, re.M), f"not by iSER: {kind}")
        used(ends, disk, lio.SIZE)
    no_namespace_is_left()
