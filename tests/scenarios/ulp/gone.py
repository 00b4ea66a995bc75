# SPDX-License-Identifier: GPL-2.0
"""Devices that go under a disk of the kernel's own, while it is written and read: its users are told, and nothing
hangs or is left. (What is mounted by NFS waits, and goes on: see nfs.py.)"""

from contextlib import contextmanager

from tests.guest.fabric import batch, devices, link_del, wait_until
from tests.guest.scenario import add
from tests.scenarios.ulp import iser, nvme, srp
from tests.scenarios.ulp.storage import Load, module_goes, no_namespace_is_left, two_links


@contextmanager
def nvme_disk(ends):
    with nvme.target(ends[1].ip4), nvme.connected(*ends) as host:
        yield host.disk


@contextmanager
def iser_disk(ends):
    with iser.target(ends[1].ip4), iser.session(ends[1].ip4, replacement=2) as disk:
        yield disk


@contextmanager
def srp_disk(ends):
    with srp.target(*ends[::-1]) as guid, srp.session(*ends, guid) as disk:
        yield disk


def links_go(ends):
    """The initiator's link is deleted, and then the target's."""
    for end in ends:
        link_del(end.dev)


def wire_goes(ends):
    """A netdev of the pair is deleted, and with it go the other and both devices."""
    batch([f"link del {ends[1].netdev}"])
    wait_until("both devices go", lambda: not devices())


def gone(_report, disk_of):
    """The initiator's device and the target's go at once."""
    for act in (links_go, wire_goes, module_goes):
        with two_links() as ends, disk_of(ends) as disk, Load(disk) as load:
            load.moves("at first")
            act(ends)
            load.fails()
    no_namespace_is_left()


for _name, _disk_of in (("nvme", nvme_disk), ("iser", iser_disk), ("srp", srp_disk)):
    add(f"ulp.{_name}-gone", 180, f"{_name} under load: both links go, then the wire, then the module", gone, _disk_of)
