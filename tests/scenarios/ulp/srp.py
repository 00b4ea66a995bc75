# SPDX-License-Identifier: GPL-2.0
"""SCSI over RDMA (SRP): the stock kernel's LIO target with a RAM disk, and its initiator, connected by rdma_cm."""

import os
from contextlib import contextmanager, suppress

from tests.guest.fabric import IB, gid_table, read, wait_until
from tests.guest.scenario import scenario
from tests.scenarios.ulp import lio
from tests.scenarios.ulp.storage import disk_file, disks_of, no_namespace_is_left, two_links, used, write

PORT = 5555
PORTS = "/sys/class/srp_remote_ports"
PARAMETERS = "/sys/module/ib_srp/parameters"


@contextmanager
def target(there, here):
    """The target at one device, with a disk for the initiator at another; gives the number that it asks for it by."""
    with lio.target("ib_srpt", "ib_srp") as tree:
        # A port by its first GID, an initiator by its extension, which is 0, and the GUID of its node: by addresses srpt
        # would take the one that was connected to for the initiator's.
        gid = next(gid_table(there.dev))[1].replace(":", "")
        initiator = read(f"{IB}/{here.dev}/node_guid").replace(":", "")
        port = f"{lio.LIO}/srpt/0x{gid}"
        group = f"{port}/0x{gid}"
        for path in (f"{lio.LIO}/srpt", port, group):
            tree.folder(path)
        tree.disk(group, f"0x{initiator:0>32}")
        tree.on(f"{group}/enable")
        listener = f"{lio.LIO}/srpt/discovery_auth/rdma_cm_port"
        write(listener, str(PORT))
        try:
            yield int(read("/sys/module/ib_srpt/parameters/srpt_service_guid"), 0)
        finally:
            write(listener, "0")


def disks():
    return disks_of("srp_host/host*")


@contextmanager
def session(here, there, guid):
    """A session of the kernel's initiator; gives its disk."""
    # Seconds until what has lost its connection is given up; it is not made anew. Where that failed, ib_srp would take
    # requests for free whose completions it polls afterwards, and would have them in its list twice (srp_rport_reconnect).
    write(f"{PARAMETERS}/reconnect_delay", "off")
    write(f"{PARAMETERS}/fast_io_fail_tmo", "1")
    write(f"/sys/class/infiniband_srp/srp-{here.dev}-1/add_target",
          f"id_ext={guid:016x},ioc_guid={guid:016x},src={here.ip4},dest={there.ip4}:{PORT}")
    try:
        yield disk_file(disks)
    finally:
        for port in os.listdir(PORTS):
            # It may be going by itself, when its device has gone.
            with suppress(OSError):
                write(f"{PORTS}/{port}/delete", "1")
        wait_until("the disk goes", lambda: not disks() and not os.listdir(PORTS), 60)


@scenario("ulp.srp", 180)
def srp(_report):
    """SCSI over RDMA between two devices: fio verifies, both disks compared. Without shared receives, at the end of which
    srpt gives back a cache that it has not taken."""
    with two_links() as ends, target(*ends[::-1]) as guid, session(*ends, guid) as disk:
        used(ends, disk, lio.SIZE)
    no_namespace_is_left()
