# SPDX-License-Identifier: GPL-2.0
"""NFS over RDMA: the stock kernel's nfsd in the first network namespace, and its client in another.

Not the other way round: svcrdma of 7.3 loses a reference to the transport of each NFS 4.1 backchannel
(xprt_setup_rdma_bc takes one for a put in __svc_rdma_free that is no longer there), and that keeps the server's network
namespace alive for ever, with any device.
"""

import errno
import filecmp
import glob
import os
import shutil
import subprocess
from contextlib import contextmanager

from tests.guest.fabric import add_links, batch, counters, devices, link_del, linked, read, two_ends, wait_until, wire, write
from tests.guest.programs import listens, listens_at
from tests.guest.scenario import add, command, require, say, scenario
from tests.scenarios.interop.interop import ORDERS, rxe_loaded
from tests.scenarios.losses.fault import calm, disturb
from tests.scenarios.ulp.storage import (
    MIB, Load, grown, module_goes, modules, no_namespace_is_left, own_mounts, verified)

PLACE = "/tmp/ulp-nfs"
EXPORT, MOUNT = f"{PLACE}/export", f"{PLACE}/mount"
PIPEFS = f"{PLACE}/pipefs"
SOURCES = "/srv/lab/tests"
# When a client connects again just while its device goes, rdma_cm says one of these between two steps, and sunrpc
# (call_connect_status) hands what it has no name for to readers and writers, on a hard mount, too.
GOING = (errno.EINVAL, errno.ENODEV)
VERSIONS = {"3": "vers=3,nolock,mountproto=tcp,mountport=20048", "4.2": "vers=4.2"}


@contextmanager
def client_and_server(drivers):
    """A device in a namespace for the client, and one in the first for the server."""
    server, client = two_ends((None, "fa"), ("v0", "v1"), drivers and drivers[::-1])
    with wire():
        try:
            batch([f"netns add {client.netns}", f"link set {client.netdev} netns {client.netns}"])
            batch(["link set lo up", f"link set {client.netdev} up", f"addr add {client.ip4}/24 dev {client.netdev}"],
                  netns=client.netns)
            with linked((client, server), drivers or (None, None)) as ends:
                yield ends
        finally:
            if os.path.exists(f"/run/netns/{client.netns}"):
                batch([f"netns del {client.netns}"])


class Server:
    """nfsd over RDMA with a tmpfs to share, and the daemons that it asks."""

    def __init__(self):
        self.daemons = []

    def __enter__(self):
        for path in (EXPORT, MOUNT, PIPEFS, "/run/rpcbind"):
            os.makedirs(path, exist_ok=True)
        for path in (EXPORT, "/var/lib/nfs", "/run/rpcbind"):
            command(["mount", "-t", "tmpfs", "none", path])
        for name in ("etab", "rmtab"):
            with open(f"/var/lib/nfs/{name}", "w", encoding="ascii"):
                pass
        os.mkdir("/var/lib/nfs/nfsdcld")
        command(["mount", "-t", "nfsd", "none", "/proc/fs/nfsd"])
        command(["mount", "-t", "rpc_pipefs", "none", PIPEFS])
        for argv, ready in ((["rpcbind", "-f", "-w"], lambda _: listens_at("/run/rpcbind.sock")),
                            (["nfsdcld", "-F", "-p", PIPEFS, "-s", "/var/lib/nfs/nfsdcld"], watches),
                            (["rpc.mountd", "-F", "--port", "20048"], lambda pid: listens(pid, 20048))):
            say("+ " + " ".join(argv))
            daemon = subprocess.Popen(argv, stdin=subprocess.DEVNULL, process_group=0)
            self.daemons.append(daemon)
            # What comes next asks it, and does not ask twice.
            wait_until(f"{argv[0]} is there", lambda pid=daemon.pid, ready=ready: ready(pid), 20)
        command(["exportfs", "-i", "-o", "rw,fsid=0,no_root_squash,insecure,no_subtree_check", f"*:{EXPORT}"])
        self.start()
        return self

    def __exit__(self, *_):
        for argv in (["rpc.nfsd", "0"], ["exportfs", "-ua"]):
            command(argv, ok=None)
        for daemon in self.daemons:
            daemon.terminate()
            daemon.wait()
        for path in ("/proc/fs/nfsd", PIPEFS, EXPORT):
            command(["umount", path], ok=None)

    def start(self):
        """Serves. By RDMA alone it would not: NFS 4 wants TCP to be there."""
        command(["rpc.nfsd", "--no-udp", "--rdma=20049", "4"])

    def stop(self):
        """Serves no more, and forgets who has connected."""
        command(["rpc.nfsd", "0"])


def watches(pid):
    """Whether a program watches a folder: nfsdcld does, for the pipe that the kernel will ask it by."""
    return any("inotify" in (read(path) or "") for path in glob.glob(f"/proc/{pid}/fdinfo/*"))


@contextmanager
def mounted(ends, version):
    """Mounts at the first end what the second one shares. In another namespace than the first a client gives up for
    good when there is no device, unless told otherwise."""
    path = EXPORT if version == "3" else "/"
    command(["mount", "-t", "nfs", "-o", f"{VERSIONS[version]},proto=rdma,port=20049,fatal_neterrors=none",
             f"{ends[1].ip4}:{path}", MOUNT], timeout=120, netns=ends[0].netns)
    try:
        yield
    finally:
        # One that is busy goes with its last user.
        if command(["umount", MOUNT], ok=None).returncode:
            command(["umount", "-l", MOUNT], ok=None)


@contextmanager
def served(drivers=None):
    """A server at the second end of a pair."""
    own_mounts()
    with modules("nfsd", "rpcrdma", "nfsv3", "nfsv4"):
        with client_and_server(drivers) as ends, Server() as server:
            yield ends, server
        no_namespace_is_left()


def forget():
    """Drops what the client has cached."""
    os.sync()
    write("/proc/sys/vm/drop_caches", 3)


def files(top):
    return sorted(os.path.relpath(os.path.join(where, name), top) for where, _, names in os.walk(top) for name in names)


def equal(one, other):
    names = files(one)
    require(names == files(other), f"{one} and {other} hold other files")
    wrong = filecmp.cmpfiles(one, other, names, shallow=False)[1:]
    require(not any(wrong), f"{one} and {other} differ in {wrong}")


def transfer(ends, version):
    """fio verifies a file, which must be the server's; by packets."""
    before = [counters(end.dev) for end in ends]
    verified(f"{MOUNT}/{version}", 4)
    require(filecmp.cmp(f"{MOUNT}/{version}", f"{EXPORT}/{version}", shallow=False), "the server has another file")
    grown(ends, before, ["sent_pkts", "rcvd_pkts"], 4 * MIB // 4096)


@scenario("ulp.nfs", 180)
def nfs(_report):
    """NFS 3 and 4.2 over RDMA: fio verifies, a tree copied and compared, a program built in it."""
    with served() as (ends, _):
        with mounted(ends, "3"):
            transfer(ends, "3")
        with mounted(ends, "4.2"):
            transfer(ends, "4.2")
            shutil.copytree(SOURCES, f"{MOUNT}/tests")
            forget()
            equal(SOURCES, f"{MOUNT}/tests")
            equal(SOURCES, f"{EXPORT}/tests")
            command(["gcc", "-o", "made", "-Itests/guest/lib_c", *glob.glob(f"{MOUNT}/tests/scenarios/teardown/traffic_c/*.c"),
                     "tests/guest/lib_c/rdma.c", "tests/guest/lib_c/control.c", "-libverbs"], timeout=120, cwd=MOUNT)
            require(os.access(f"{EXPORT}/made", os.X_OK), "the server has no program")


@contextmanager
def unheard(end):
    """Nothing that an end sends arrives."""
    disturb([end], "loss 100%")
    try:
        yield
    finally:
        calm([end])


@scenario("ulp.nfs-lost", 180)
def lost(_report):
    """NFS 4.2 under load: the server restarted, the client's link deleted and back, then the server's."""
    with served() as (ends, server), mounted(ends, "4.2"), Load(f"{MOUNT}/file", excused=GOING) as load:
        load.moves("at first")
        # svcrdma does not refuse who asks for a connection while it stops (nothing empties sc_accept_q): that client is
        # told to wait, and does so for a quarter of an hour.
        with unheard(ends[0]):
            server.stop()
        server.start()
        load.moves("when the server is back")
        for end, whose in zip(ends, ("client's", "server's")):
            link_del(end.dev, netns=end.netns)
            add_links([end])
            load.moves(f"when the {whose} link is back")
        refused = command(["umount", MOUNT], ok=None)
        require(refused.returncode, "a mount in use went")
        load.ends()


@scenario("ulp.nfs-gone", 180)
def gone(_report):
    """NFS 4.2 under load: the module is unloaded with both devices, and loaded again; then the client's network
    namespace loses its name, and goes with the mount."""
    with served() as (ends, _):
        with mounted(ends, "4.2"), Load(f"{MOUNT}/file", excused=GOING) as load:
            load.moves("at first")
            module_goes(ends)
            add_links(ends)
            load.moves("with the module loaded again")
            batch([f"netns del {ends[0].netns}"])
            load.moves("in a namespace without a name")
            load.ends()
        wait_until("both devices go with the namespace", lambda: not devices())


def between_drivers(_report, order):
    """The first end is the client."""
    with rxe_loaded(), served(ORDERS[order]) as (ends, _), mounted(ends, "4.2"):
        transfer(ends, "4.2")


for _order in ORDERS:
    add(f"ulp.nfs-{_order}", 120, f"NFS 4.2 over RDMA between the drivers, {_order}: fio verifies", between_drivers, _order)
