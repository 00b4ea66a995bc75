# SPDX-License-Identifier: GPL-2.0
"""Management datagrams that no peer should send, to queue pair 1: each is counted, and answered as the standard says or not
at all; nothing of them is left behind. See tests/hostile/src/mad.rs for what is sent."""

import re
import tempfile

from tests.guest.fabric import wait_until
from tests.guest.programs import spawn, tail
from tests.guest.scenario import add, command, last_line, require
from tests.scenarios.cm.cm import connections, listens
from tests.scenarios.hostile.hostile import address, attacked_pair, run_packets


def objects():
    """How many there are of what connection management makes, in the whole machine."""
    shown = command(["rdma", "resource", "show"]).stdout
    return {name: sum(int(n) for n in re.findall(rf"\b{name} (\d+)", shown)) for name in ("cm_id", "qp", "pd", "cq", "mr")}


def management(family, name, listening):
    """A scenario: management datagrams to queue pair 1 of a device, while somebody listens for connections."""
    def run(report):
        with connections(), attacked_pair() as ends, tempfile.TemporaryFile("w+") as out:
            victim, proc = ends[0], None
            try:
                if listening:
                    proc = spawn(["rping", "-s", "-P", "-a", address(victim, family)], victim.netns, out)
                    wait_until("rping listens", lambda: listens(proc.pid), 20)
                before = objects()
                for line in run_packets(ends, family, name, limit=90):
                    report.note(line)
                require(proc is None or proc.poll() is None, f"the server ended: {last_line(tail(out))}")
                # A connection that has ended takes its time to be forgotten.
                wait_until(f"what was there before is there again: {before}", lambda: objects() == before, 20)
                if listening:
                    client = ["rping", "-c", "-C", "5", "-v", "-V", "-a", address(victim, family)]
                    done = command(client, netns=ends[1].netns).stdout
                    require(done.count("ping data: rdma-ping") == 5, "the server does not serve any more")
            finally:
                if proc:
                    proc.kill()
                    proc.wait()

    return run


for _family in (4, 6):
    for _name, _listening, _about in (
            ("mad-sizes", False, "datagrams of every size and opcode to queue pair 1: but one of 256 bytes all are dropped"),
            ("mad-classes", False, "every class and method to queue pair 1: answered as the standard says, or not"),
            ("mad-cm", True, "floods of REQ, late and repeated messages of connection management, to one who listens")):
        add(f"hostile.{_name}-ipv{_family}", 120, f"{_about}; IPv{_family}", management(_family, _name, _listening))
