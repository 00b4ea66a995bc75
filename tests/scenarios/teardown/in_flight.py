# SPDX-License-Identifier: GPL-2.0
"""Packets that outlive their sender: the memory they are made of comes back to nobody."""

import re

from tests.guest import flavour
from tests.guest.fabric import add_links, counters, devices, link_del, pair, wait_until
from tests.guest.peer import exchange
from tests.guest.programs import both_running
from tests.guest.scenario import command, require, scenario
from tests.scenarios.link.link_life import loaded, unload

PORT = 18515
# Bytes that may wait: more than the queue pair has under way.
PLENTY = 64 << 20


def waiting(end):
    """Packets in the queue of an end's netdev."""
    shown = command(["tc", "-s", "qdisc", "show", "dev", end.netdev], netns=end.netns).stdout
    return int(re.search(r"backlog \S+ (\d+)p", shown).group(1))


@scenario("in-flight.unload", 90)
def unloaded(_report):
    """The module is unloaded while its packets wait in a queue; they arrive later, and a new link works."""
    with pair() as ends:
        server, client = (["ibv_rc_pingpong", "-d", end.dev, "-g", end.gid(), "-p", PORT, "-m", "4096", "-s", "1000000",
                           "-n", "1000000"] for end in ends)
        with both_running(server, [*client, ends[0].tcp], ends, PORT):
            wait_until("packets are sent", lambda: counters(ends[0].dev).get("sent_pkts", 0) > 1000)
            command(["tc", "qdisc", "add", "dev", ends[0].netdev, "root", "plug", "limit", str(PLENTY)],
                    netns=ends[0].netns)
            wait_until("packets wait", lambda: waiting(ends[0]))
        for end in ends:
            link_del(end.dev, netns=end.netns)
        unload(flavour.current().module)
        require(waiting(ends[0]), "no packet waits any more")
        command(["tc", "qdisc", "change", "dev", ends[0].netdev, "root", "plug", "release_indefinite"],
                netns=ends[0].netns)
        wait_until("the queue is empty", lambda: not waiting(ends[0]))
        command(["tc", "qdisc", "del", "dev", ends[0].netdev, "root"], netns=ends[0].netns)
        require(not loaded() and not devices(), "the module came back")
        add_links(ends)
        exchange(ends, 4, "-s", "1,65536")
