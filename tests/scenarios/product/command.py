# SPDX-License-Identifier: GPL-2.0
"""The command `ferroce`: links come and go by it, and it says what they are and what was refused."""

import json
import re
import subprocess
from contextlib import contextmanager

from tests.guest import flavour
from tests.guest.fabric import batch, counters, devices, gid_index, link_del, loop, pair, port_state, read, wait_until, wire
from tests.guest.programs import listens
from tests.guest.scenario import Skipped, command, require, scenario
from tests.scenarios.messages.pingpong import PORT


def ferroce(*words, ok=(0,), before=()):
    """What it prints."""
    return command([*before, "ferroce", *words], ok=ok).stdout


@contextmanager
def spawned(argv):
    """A program that runs until the end."""
    with subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL) as proc:
        try:
            yield proc
        finally:
            proc.kill()


def need_ferroce():
    """Nothing here is about rdma_rxe."""
    if not flavour.current().is_ferroce:
        raise Skipped("it is about ferroce")


@scenario("product.command", 120)
def links_come_and_go(report):
    """`ferroce add`, `show` and `del`; the kernel's sentence where it refuses; nothing for who is not root."""
    need_ferroce()
    nobody = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
    require("no ferroce link" in ferroce("show"), "a link is shown before there is one")
    with wire() as (netdev, peer):
        said = ferroce("add", netdev)
        require(devices() == ["fe0"] and "ACTIVE" in port_state("fe0"), f"{devices()} after ferroce add: {said}")
        index = gid_index("fe0", "10.77.0.1")
        version = re.escape(read("/sys/class/infiniband/fe0/fw_ver"))
        want = rf"^fe0: ACTIVE, netdev {netdev} MTU 4500, IB MTU 4096, version {version}$"
        for shown in (said, ferroce("show", before=nobody), ferroce("show", netdev)):
            require(re.search(want, shown, re.M), f"the link is not shown as {want}")
            require(re.search(rf"GID {index}: 10\.77\.0\.1 .*use -d fe0 -g {index}$", shown, re.M), "no GID to use")
        report.note(shown.splitlines()[0])

        said = ferroce("add", peer, "second")
        require(devices() == ["fe0", "second"], f"{devices()} after the second link")
        data = json.loads(ferroce("show", "--json"))
        mtu = command(["ibv_devinfo", "-d", "second"]).stdout
        require(f"active_mtu:\t\t{data[1]['ib_mtu']} " in mtu, f"ferroce shows {data[1]['ib_mtu']}: {mtu}")
        require([(one["device"], one["netdev"], one["state"]) for one in data]
                == [("fe0", netdev, "ACTIVE"), ("second", peer, "ACTIVE")], f"as JSON: {data}")

        said = ferroce("add", netdev, ok=(1,))
        require(f"was refused: {netdev} has a ferroce link already" in said, f"no reason of the refusal: {said}")
        report.note(said.strip())
        require("there is no netdev nothing" in ferroce("add", "nothing", ok=(1,)), "an add to nothing")
        batch([f"link add link {netdev} name v0.7 type vlan id 7"])
        said = ferroce("add", "v0.7", ok=(1,))
        require("vlan" in said.split("was refused:")[1].lower(), f"no word of the VLAN: {said}")
        report.note(said.strip())
        require("needs root" in ferroce("del", "fe0", ok=(1,), before=nobody), "somebody else may delete")
        require(devices() == ["fe0", "second"], f"{devices()} after what was refused")

        ferroce("del", peer)
        require(devices() == ["fe0"], f"{devices()} after ferroce del by the netdev's name")
        ferroce("del", "fe0")
        require(devices() == [], f"{devices()} after ferroce del")
        require("there is no ferroce link fe0" in ferroce("del", "fe0", ok=(1,)), "deleted twice")


@scenario("product.peers", 120)
def peers(report):
    """`ferroce show` names peers and whether they answer; `-p` tells a device from none, and from no machine."""
    need_ferroce()
    with pair() as (here, there):
        inside = ("ip", "netns", "exec", here.netns)
        for family, address in ((4, there.ip4), (6, there.ip6)):
            dropped = counters(there.dev)["drop_malformed"]
            require("does not refuse" in ferroce("show", "-p", address, before=inside), f"no device at {address}")
            require(counters(there.dev)["drop_malformed"] == dropped + 1, f"IPv{family}: the empty datagram was not counted")
        shown = ferroce("show", before=inside)
        line = re.search(r"^ +peers: (.*)$", shown, re.M)
        require(line, f"no peers are shown: {shown}")
        report.note(line.group(1))
        for address in (there.ip4, there.ip6):
            require(re.search(rf"{address} (reachable|delay|probe|stale)", line.group(1)), f"{address} is not shown as found")
        nobody = "10.77.0.99"
        require("not reachable" in ferroce("show", "-p", nobody, ok=(1,), before=inside), "a machine at an unused address")
        data = json.loads(ferroce("show", "--json", before=inside))[0]["peers"]
        require(data.get(nobody) in ("incomplete", "failed") and there.ip4 in data, f"as JSON: {data}")
        link_del(there.dev, netns=there.netns)
        wait_until("the address without a device refuses the port",
                   lambda: "it refuses UDP 4791" in ferroce("show", "-p", there.ip4, ok=(0, 1), before=inside))
        require("is no IP address" in ferroce("show", "-p", "nowhere", ok=(1,)), "a name was taken for an address")


@scenario("product.try", 120)
def attempts(report):
    """`ferroce try` sends over the link that is there, or over one of its own that goes again."""
    need_ferroce()
    with loop() as end:
        before = counters(end.dev)
        said = ferroce("try")
        after = counters(end.dev)
        talked = [kind for kind in ("RC", "UC", "UD") if f"{kind}: 200 round trips" in said]
        require(said.rstrip().endswith("it works") and len(talked) == 3, f"ferroce try says: {said}")
        # Each of three programs sends 200 messages each way.
        segments = after["local_segments"] - before["local_segments"]
        require(segments >= 1200, f"{segments} pieces of messages were sent")
        require(f"local_segments {segments}" in said, f"not the {segments} pieces that were sent")
        report.note(said.splitlines()[1])
        require(devices() == [end.dev], f"{devices()} after ferroce try")

        # What sends until it is ended, grows in any second.
        port = str(PORT + 7)
        argv = ["ibv_rc_pingpong", "-d", end.dev, "-g", str(end.gid()), "-p", port, "-n", "100000000"]
        with spawned(argv) as server:
            wait_until("the server listens", lambda: listens(server.pid, PORT + 7))
            with spawned([*argv, "127.0.0.1"]):
                since = counters(end.dev)["local_segments"]
                wait_until("it sends", lambda: counters(end.dev)["local_segments"] > since)
                shown = json.loads(ferroce("show", "-w", "2", "--json"))[0]
        grown, all_of_them = (shown[what].get("local_segments", 0) for what in ("grown", "counters"))
        require(0 < grown < all_of_them, f"what grew: {shown}")
        report.note(f"{grown} of {all_of_them} pieces while it watched")
    said = ferroce("try")
    require("ferroce-try" in said and said.rstrip().endswith("it works"), f"ferroce try without a link says: {said}")
    require(devices() == [], f"{devices()} are left")
