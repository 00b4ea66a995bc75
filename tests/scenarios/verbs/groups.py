# SPDX-License-Identifier: GPL-2.0
"""Multicast groups: the cases of the C program on one device, between two over veth and over a bridge that snoops; and what
becomes of a membership when the link, its netdev or its namespace goes."""

import tempfile
import time
from contextlib import contextmanager

from tests.guest.cases import PROGRAM, cases
from tests.guest.fabric import batch, link_del, pair, wait_until
from tests.guest.programs import running, tail
from tests.guest.scenario import add, command, require, scenario
from tests.scenarios.verbs.verbs import about, case

CASES = {what.name: what for what in cases("groups")}
# Those of the cases "messages" and "held".
GROUPS = ("239.1.0.77", "ff15::1:4d")
# Their names in /proc/net.
HELD = {"igmp": "4D0001EF", "igmp6": "ff15000000000000000000000001004d"}

for _what in CASES.values():
    if _what.ways:
        add(f"groups.{_what.name}", (_what.seconds + 30) * len(_what.ways), about(_what), case, _what)


@scenario("groups.veth", 240)
def veth(_report):
    """Two devices in one group over veth: each member gets each datagram once, wherever it is sent."""
    with pair() as ends:
        for name in ("messages", "refuses", "churn"):
            CASES[name].run(*ends)
            CASES[name].run(*reversed(ends))


def snooping(ends):
    """A bridge that hands datagrams to groups only where a member has said so."""
    # A querier counts as one after the longest time that an answer may take, as that was when it became one.
    batch(["link set br0 type bridge mcast_snooping 1 mcast_query_response_interval 10 mcast_startup_query_interval 100",
           "link set br0 type bridge mcast_querier 1"])
    for end in ends:
        command(["bridge", "link", "set", "dev", f"b{end.netdev}", "mcast_flood", "off"])
    time.sleep(0.2)


def memberships(end):
    """Whether that bridge knows of a member at this end, for each of the groups."""
    shown = [line.split() for line in command(["bridge", "mdb", "show", "dev", "br0"]).stdout.splitlines()]
    return [any(group in words and f"b{end.netdev}" in words for words in shown) for group in GROUPS]


@contextmanager
def held(end):
    """A process with queue pairs in a group of each family. Yields a function that says whether the host is in them."""
    def member():
        shown = [word in command(["cat", f"/proc/net/{name}"], netns=end.netns).stdout for name, word in HELD.items()]
        require(shown[0] == shown[1], f"only one of the groups is there: {shown}")
        return shown[0]

    with tempfile.TemporaryFile("w+") as out, running([PROGRAM, end.dev, end.gid(), "held"], end.netns, out):
        wait_until("the process is in the groups", lambda: "held" in tail(out), 20)
        yield member


@scenario("groups.snooping", 240)
def over_a_bridge(_report):
    """A bridge that snoops and floods nothing: what passes does so because IGMP and MLD were heard."""
    with pair(bridged=True) as ends:
        snooping(ends)
        for name in ("messages", "churn"):
            CASES[name].run(*ends)
        wait_until("the bridge hears that the groups are left", lambda: not any(memberships(ends[1])), 20)
        with held(ends[1]):
            wait_until("the bridge hears of both groups", lambda: all(memberships(ends[1])), 20)
        wait_until("the bridge hears that the groups are left", lambda: not any(memberships(ends[1])), 20)


@scenario("groups.gone", 120, rxe="rdma_rxe has other counters")
def gone(_report):
    """A group is left when the link goes, and nothing is in the way when the netdev or the namespace does."""
    with pair() as ends:
        with held(ends[0]) as member:
            require(member(), "the host is in no group")
            link_del(ends[0].dev, netns=ends[0].netns)
            require(not member(), "the groups are not left with the link")
    for goes in ("link del {}", "link set {} netns fb"):
        with pair() as ends:
            with held(ends[0]) as member:
                require(member(), "the host is in no group")
                batch([goes.format(ends[0].netdev)], netns=ends[0].netns)
                wait_until("the groups go with the netdev", lambda: not member())
