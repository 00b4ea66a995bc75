# SPDX-License-Identifier: GPL-2.0
"""The targets of the stock kernel (LIO), by configfs, with a RAM disk."""

import os
from contextlib import contextmanager

from tests.guest.scenario import command
from tests.scenarios.ulp.storage import DISK, MIB, configfs, modules, ram_disk, write

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
def target(*names):
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
