# SPDX-License-Identifier: GPL-2.0
"""The command `ferroce`: links come and go by it, and it says what they are and what was refused."""

import ipaddress
import json
import os
import re
import subprocess
import tempfile
from contextlib import suppress

from tests.guest.fabric import (WIRE_MTU, batch, counters, devices, gid_index, gid_table, link_del, loop, pair, port_state, read,
                                wait_until, wire, write)
from tests.guest.programs import both_running, running
from tests.guest.scenario import command, require, scenario
from tests.scenarios.messages.pingpong import PORT


def ferroce(*words, ok=(0,), before=()):
    return command([*before, "ferroce", *words], ok=ok).stdout


@scenario("product.command", 120, rxe="it is about ferroce")
def links_come_and_go(report):
    """`ferroce add`, `show` and `del`; the kernel's sentence where it refuses; nothing for who is not root."""
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
        require("needs root" in ferroce("del", "fe0", ok=(1,), before=nobody), "somebody else may delete")
        require(devices() == ["fe0", "second"], f"{devices()} after what was refused")

        ferroce("del", peer)
        require(devices() == ["fe0"], f"{devices()} after ferroce del by the netdev's name")
        ferroce("del", "fe0")
        require(devices() == [], f"{devices()} after ferroce del")
        require("there is no ferroce link fe0" in ferroce("del", "fe0", ok=(1,)), "deleted twice")


@scenario("product.peers", 240, rxe="it is about ferroce")
def peers(report):
    """`ferroce show` names peers and whether they answer; `ferroce try PEER` says which leg of the way is missing."""
    with pair() as (here, there):
        inside, outside = (("ip", "netns", "exec", end.netns) for end in (here, there))

        def missing(address, words, status=1):
            """It says that something is missing, in these words."""
            said = ferroce("try", address, ok=(status,), before=inside)
            require(re.search(words, said), f"ferroce try {address} does not say {words}: {said}")
            report.note(re.search(words, said).group())

        local = next(str(ipaddress.IPv6Address(gid)) for _, gid, _ in gid_table(there.dev) if gid.startswith("fe80:"))
        for family, address in ((4, there.ip4), (6, there.ip6), (6, f"{local}%{here.netdev}")):
            said = ferroce("try", address, before=inside)
            require(re.search("^ok +port: .* open both ways", said, re.M), f"IPv{family}: {said}")
            require(re.search("^hint +message: no program waits", said, re.M), f"IPv{family}, without a program: {said}")
        shown = ferroce("show", before=inside)
        line = re.search(r"^ +peers: (.*)$", shown, re.M)
        require(line, f"no peers are shown: {shown}")
        report.note(line.group(1))
        for address in (there.ip4, there.ip6):
            require(re.search(rf"{address} (reachable|delay|probe|stale)", line.group(1)), f"{address} is not shown as found")

        # A message with data, to who waits for one.
        argv = [*outside, "ferroce", "try", "--listen"]
        with running(argv, out=subprocess.PIPE, err=None, text=True) as waiting:
            require("ferroce try 10.77.0.2" in waiting.stdout.readline(), "the listener does not say what to type")
            wait_until("the message arrives", lambda: "3 of 60000 B there and back" in ferroce(
                "try", there.ip4, before=inside))
            text = waiting.communicate()[0]
        require(waiting.returncode == 0 and "data checked" in text, f"the listener says: {text}")
        report.note(text.strip().replace("\n", " | "))
        # The same where the netdev of the listener carries less.
        batch([f"link set {there.netdev} mtu 1500"], netns=there.netns)
        with running(argv, out=subprocess.PIPE, err=None, text=True):
            wait_until("the listener cannot accept", lambda: "cannot accept the connection" in ferroce(
                "try", there.ip4, ok=(0, 1), before=inside))
        batch([f"link set {there.netdev} mtu {WIRE_MTU}"], netns=there.netns)

        # What else is missing is in tests/lab/test_doctor.py, on machines that are made up.
        nobody = "10.77.0.99"
        missing(nobody, f"no machine says that it has the address {nobody}")
        missing("203.0.113.1", "there is no route to 203.0.113.1")
        missing(here.ip4, "is this machine itself")
        data = json.loads(ferroce("show", "--json", before=inside))[0]["peers"]
        require(data.get(nobody) in ("incomplete", "failed") and there.ip4 in data, f"as JSON: {data}")

        # What is lost without a word on the way back; and here, of which the doctor knows.
        for end, hook, words in ((outside, "output", "packets left .*none came back"),
                                 (inside, "input", "the chain gate of the table inet guard")):
            command([*end, "nft", f"add table inet guard; add chain inet guard gate {{ type filter hook {hook} priority 0; }}; "
                     "add rule inet guard gate udp dport 4791 drop"])
            missing(there.ip4, words)
            command([*end, "nft", "delete table inet guard"])

        link_del(there.dev, netns=there.netns)
        wait_until("the address without a device refuses the port",
                   lambda: "refuses UDP port 4791" in ferroce("try", there.ip4, ok=(0, 1), before=inside))
        link_del(here.dev, netns=here.netns)
        missing(there.ip4, f"has no ferroce link.*\n +fix: +ferroce add {here.netdev}")
        # It leaves the /sys of the first namespace in place.
        said = ferroce("add", here.netdev, ok=(1,), before=("nsenter", f"--net=/run/netns/{here.netns}"))
        require("as nsenter -n leaves it" in said, f"in the network namespace alone: {said}")


@scenario("product.try", 120, rxe="it is about ferroce")
def attempts(report):
    """`ferroce try` sends over the link that is there, or over one of its own that goes again."""
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
        argv = ["ibv_rc_pingpong", "-d", end.dev, "-g", end.gid(), "-p", PORT + 7, "-n", "100000000"]
        with both_running(argv, [*argv, "127.0.0.1"], (end, end), PORT + 7):
            since = counters(end.dev)["local_segments"]
            wait_until("it sends", lambda: counters(end.dev)["local_segments"] > since)
            shown = json.loads(ferroce("show", "-w", "2", "--json"))[0]
        grown, all_of_them = (shown[what].get("local_segments", 0) for what in ("grown", "counters"))
        require(0 < grown < all_of_them, f"what grew: {shown}")
        report.note(f"{grown} of {all_of_them} pieces while it watched")
    said = ferroce("try")
    require("ferroce-try" in said and said.rstrip().endswith("it works"), f"ferroce try without a link says: {said}")
    require(devices() == [], f"{devices()} are left")


# Makes what is refused, one after the other; prints each errno.
REFUSED = """
import errno, sys
from pyverbs.addr import AH, AHAttr, GID, GlobalRoute
from pyverbs.cq import CQ
from pyverbs.device import Context
from pyverbs.enums import *
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from pyverbs.srq import SRQ, SrqAttr, SrqInitAttr
from pyverbs.wr import RecvWR, SGE, SendWR

context = Context(name=sys.argv[1])
pd, cq = PD(context), CQ(context, 16)


def queue_pair(kind=IBV_QPT_RC, **cap):
    return QP(pd, QPInitAttr(qp_type=kind, scq=cq, rcq=cq, cap=QPCap(**cap)))


def reset_to(state, **values):
    attr = QPAttr(qp_state=state)
    for name, value in values.items():
        setattr(attr, name, value)
    mask = IBV_QP_STATE | (IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS if values else 0)
    small.modify(attr, mask)


small = queue_pair(max_send_wr=4, max_recv_wr=4)
sges = [SGE(0, 0, 0)] * 2
for attempt in {
    "wr": lambda: queue_pair(max_send_wr=16385), "type": lambda: queue_pair(kind=IBV_QPT_RAW_PACKET),
    "cqe": lambda: CQ(context, (1 << 20) + 1), "srq": lambda: SRQ(pd, SrqInitAttr(SrqAttr(max_wr=65537))),
    "state": lambda: reset_to(IBV_QPS_RTS), "pkey": lambda: reset_to(IBV_QPS_INIT, port_num=1, pkey_index=1),
    "send": lambda: small.post_send(SendWR(num_sge=0)),
    "list": lambda: small.post_recv(RecvWR(num_sge=2, sg=sges)),
    "memory": lambda: queue_pair(max_send_wr=8192, max_inline_data=512),
    "rights": lambda: MR(pd, 4096, IBV_ACCESS_REMOTE_WRITE),
    "a GID": lambda: AH(pd, attr=AHAttr(is_global=1, gr=GlobalRoute(dgid=context.query_gid(1, 0), sgid_index=200))),
}.values() if len(sys.argv) == 2 else [lambda: queue_pair(max_send_wr=8192, max_inline_data=512)]:
    try:
        attempt()
        print("taken")
    except Exception as e:
        print(type(e).__name__, e)
"""
# What the provider says, and what the module.
BY_PROVIDER = ("max_send_wr is 16385, and may be 0 to 16384", "qp_type is 8, and may be 2 (RC), 3 (UC) or 4 (UD)",
               "CQ: cqe is 1048577, and may be 0 to 1048576", "max_wr is 65537, and may be 0 to 65536",
               "modify_qp from state 0 to 3", "modify_qp from state 0 to 1", "takes no such request in its state",
               # These ib_core refuses, and the module says nothing.
               "access 0x2 has remote write or atomic without local write", "create_ah: there is no GID 200")
BY_MODULE = ("max_send_wr is 16385 (0x4001), and may be 0 to 16384", "cqe is 1048577 (0x100001), and may be 1 to 1048576",
             "max_wr of an SRQ is 65537 (0x10001), and may be 0 to 65536", "no transition from state 0 to 3 with attr_mask 0x1",
             "pkey_index is 1 (0x1), and may be 0 to 0", "create_qp of python3[", "create_cq of python3[",
             "create_srq of python3[", "modify_qp of python3[")


@scenario("product.refusals", 240, rxe="it is about ferroce")
def refusals(report):
    """What is refused has words, with attribute, value and range: of the provider in libibverbs' log, of the module in
    the kernel's; and none where nobody asks for them."""
    control = "/proc/dynamic_debug/control"
    with loop() as end, tempfile.TemporaryDirectory() as place:
        os.chmod(place, 0o777)
        argv = ["python3", "-c", REFUSED, end.dev]
        log = f"{place}/log"
        words = {**os.environ, "VERBS_LOG_LEVEL": "1", "VERBS_LOG_FILE": log}
        with open("/dev/kmsg", encoding="utf-8", errors="replace") as kernel:
            os.set_blocking(kernel.fileno(), False)
            os.lseek(kernel.fileno(), 0, os.SEEK_END)
            write(control, "module ferroce +p")
            try:
                command(argv, env=words)
            finally:
                write(control, "module ferroce -p")
            lines = []
            with suppress(BlockingIOError):
                while line := os.read(kernel.fileno(), 8192):
                    lines.append(line.decode(errors="replace"))
        said = read(log)
        for one in BY_PROVIDER:
            require(one in said, f"the provider does not say {one!r}: {said}")
        for one in BY_MODULE:
            require(any(one in line for line in lines), f"the module does not say {one!r}: {lines}")
        report.note(said.splitlines()[0])
        report.note(lines[0].split(";")[-1].strip())
        nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
        command(["prlimit", "--memlock=1048576:1048576", *nobody, *argv, "memory"],
                env={**words, "VERBS_LOG_FILE": f"{place}/other"})
        said = read(f"{place}/other")
        require("count against RLIMIT_MEMLOCK" in said and "create_qp of RC: no memory for" in said,
                f"the provider says of too little memory: {said}")
        report.note(said)
