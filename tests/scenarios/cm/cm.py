# SPDX-License-Identifier: GPL-2.0
"""Connections by librdmacm: rdma-core's own programs, unchanged, from rdma_resolve_addr to rdma_disconnect."""

import os
import re
import tempfile
from contextlib import contextmanager

from tests.guest import flavour
from tests.guest.fabric import both_ends, counters, pair, read, wait_until
from tests.guest.programs import program as ours, run_both
from tests.guest.rdma_cm import connections, listens, talk
from tests.guest.scenario import Skipped, add, command, require, scenario, shortened
from tests.scenarios.interop.interop import ORDERS, rxe_loaded
from tests.scenarios.messages.pingpong import PATHS
from tests.scenarios.verbs.groups import GROUPS, memberships, snooping

PINGS = shortened(50, 5)
CONNECTIONS = shortened(1000, 10)


@contextmanager
def packets_come(ends, least):
    """At least so many come to each end meanwhile; both drivers count that under the same name."""
    before = [counters(end.dev)["rcvd_pkts"] for end in ends]
    yield
    for end, count in zip(ends, before):
        came = counters(end.dev)["rcvd_pkts"] - count
        require(came >= least, f"only {came} packets came to {end.dev}")


def rping(ends, family, *options, size=100):
    """rping with data checked at both ends: SEND, READ and WRITE in turn. Returns the client's lines."""
    every = ["-v", "-V", "-C", str(PINGS), "-S", str(size), *options]
    anywhere = "0.0.0.0" if family == 4 else "::"
    outs = talk(["rping", "-s", "-a", anywhere, *every], ["rping", "-c", "-a", ends[0].address(family), *every], ends)
    for out in outs:
        require("error" not in out.lower() and "invalid" not in out, f"rping: {out[-300:]}")
    seen = len(re.findall(r"ping data: rdma-ping", outs[1]))
    require(seen == PINGS, f"{seen} pings of {PINGS}")


def rpings(_report, where, local, family):
    """Rping over one path, small and large."""
    with connections(), both_ends(where, local) as ends, packets_come(ends, 0 if local else PINGS):
        for size in (64, 65535):
            rping(ends, family, size=size)


for _path, _where, _local, _family in PATHS:
    add(f"cm.rping-{_path}", 120, f"rping -v -V over {_path}", rpings, _where, _local, _family)


def between_drivers(_report, order):
    """Rping between ferroce and rdma_rxe; the first end is the server."""
    with rxe_loaded(), connections(), pair(drivers=ORDERS[order]) as ends:
        for family in (4, 6):
            rping(ends, family, size=4097)


for _order in ORDERS:
    add(f"cm.rping-{_order}", 120, f"rping -v -V between the drivers, {_order}", between_drivers, _order)


def program(_report, name, options, want, places):
    """Another program of rdma-core, in each of these places."""
    with connections():
        for where in places:
            with both_ends(where) as ends:
                outs = talk([name, *options], [name, *options, "-s", ends[0].ip4], ends)
                for out, text in zip(outs, want):
                    require(re.search(text, out), f"{name} on {where}: no {text!r} in {out[-300:]!r}")


MESSAGES = shortened(100, 10)
COMPLETE = ("test complete\nreturn status 0",) * 2
for _name, _options, _want, _places in (
        ("ucmatose", ("-c", "8", "-C", str(MESSAGES), "-S", "5000"), COMPLETE, ("pair", "loop")),
        ("udaddy", ("-c", "4", "-C", str(MESSAGES), "-S", "1000"), COMPLETE, ("pair", "loop")),
        # On one device its second connection is rejected by the CM as a stale one (status 10).
        ("cmtime", ("-c", str(CONNECTIONS)), ("", r"(?m)^disconnect +\d+ +[1-9]"), ("pair",))):
    add(f"cm.{_name}", 120, f"{_name} {' '.join(_options)}, in each of {' and '.join(_places)}", program, _name, _options, _want,
        _places)


@scenario("cm.client-server", 60)
def client_and_server(_report):
    """rdma_client and rdma_server: 16 bytes each way; rdma_xclient and rdma_xserver by RC."""
    with connections(), both_ends("pair") as ends:
        outs = talk(["rdma_server"], ["rdma_client", "-s", ends[0].ip4], ends)
        require("rdma_server: end 0" in outs[0] and "rdma_client: end 0" in outs[1], f"{outs}")
        # It posts a message inline on a queue pair for which it asked for no room.
        outs = talk(["rdma_xserver"], ["rdma_xclient", "-s", ends[0].ip4], ends)
        require("rdma_xserver: end 0" in outs[0] and "rdma_xclient: end 0" in outs[1], f"{outs}")


@scenario("cm.perftest", 120)
def perftest(_report):
    """perftest -R: its own connections and librdmacm's data path, RC and UD."""
    with connections(), both_ends("pair") as ends:
        for tool, options in (("ib_send_bw", []), ("ib_write_bw", []), ("ib_read_lat", []), ("ib_send_lat", ["-c", "UD"])):
            side = [tool, "-R", "-F", "-n", "20", "-s", "1024", *options]
            with tempfile.NamedTemporaryFile() as listened:
                outs = run_both(side, side + [ends[0].ip4], ends, 0, 100, ready=listens,
                                env={"LD_PRELOAD": ours("in_step.so"), "LISTENED": listened.name})
                times = os.stat(listened.name).st_size
            require(times == 2, f"{tool} listened {times} times")
            require(re.search(r"(?m)^\s*1024\s+20\b", outs[1]), f"{tool}: {outs[1][-300:]}")


def rsockets(_report, tool):
    """TCP's calls over librdmacm, with every byte checked by the receiver."""
    runs = [(20 * 5 * 5, ["-S", "20000", "-C", "20", "-I", "5", "-T", "v"])]
    if tool == "riostream":
        # Each side polls the last byte of what the other writes, and then writes its own there: a value that were stored
        # twice would come over that.
        runs.append((0, ["-S", "16", "-C", "1", "-I", str(shortened(20000, 200))]))
    with connections(), both_ends("pair") as ends:
        for packets, options in runs:
            with packets_come(ends, packets):
                outs = talk([tool, *options], [tool, *options, "-s", ends[0].ip4], ends)
            require(re.search(r"(?m)^custom ", outs[1]), f"{tool}: {outs[1][-300:]}")


for _tool in ("rstream", "riostream"):
    add(f"cm.{_tool}", 150, f"{_tool} -T v: rsockets, with the data checked", rsockets, _tool)


def prints(text):
    """Whether a program has printed that. Its output must not be held back (stdbuf)."""
    return lambda pid: text in (read(f"/proc/{pid}/fd/1") or "")


def mckey(ends, joined=lambda: True):
    """Messages to a group of IPv4: all of them come, if none is sent before `joined` says that the way is there."""
    if not flavour.current().is_ferroce:
        raise Skipped("mckey's messages did not arrive when this was tried with rdma_rxe of 7.3")
    side = ["stdbuf", "-oL", "mckey", "-m", GROUPS[0], "-C", str(MESSAGES), "-S", "1000"]
    outs = run_both([*side, "-b", ends[0].ip4], [*side, "-s", "-b", ends[1].ip4], ends, 0, 60,
                    ready=lambda pid: prints("receiving data")(pid) and joined())
    require("data transfers complete" in outs[0], f"mckey: {outs[0][-300:]}")
    for out in outs:
        require("return status 0" in out, f"mckey: {out[-300:]}")
    # It asks for no completion, and destroys all as soon as it has posted: what a worker is late with is lost.
    left = counters(ends[1].dev)["sq_offloaded"]
    require(left == 0, f"the datagrams of a process that cannot wait for them were left to a worker, {left} times")


@scenario("cm.mckey", 90)
def groups(_report):
    """mckey: rdma_join_multicast of a group of IPv4 between two devices; for one of IPv6 the kernel's clear error."""
    with connections(), pair() as ends:
        mckey(ends)
        refused = command(["mckey", "-m", "ff15::1:4d", "-b", ends[0].ip6], netns=ends[0].netns, ok=None)
        # ENOTSUPP, which has no word outside the kernel.
        require("mckey: failure joining: Unknown error 524" in refused.stdout, f"a group of IPv6: {refused.stdout[-300:]}")


@scenario("cm.mckey-snooping", 90)
def snooped_groups(_report):
    """mckey over a bridge that snoops and floods nothing: what passes does so because rdma_join_multicast was heard."""
    with connections(), pair(bridged=True) as ends:
        snooping(ends)
        mckey(ends, lambda: memberships(ends[0])[0])
        wait_until("the bridge hears that the group is left", lambda: not memberships(ends[0])[0], 20)
