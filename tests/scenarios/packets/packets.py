# SPDX-License-Identifier: GPL-2.0
"""Captures on the wire."""

import re
import signal
from contextlib import contextmanager

from tests.guest.fabric import read, show_packets, wait_until
from tests.guest.programs import spawn
from tests.guest.scenario import PATIENCE, require, say


def told(proc, err):
    """What tcpdump says when it is asked: how many packets it has written, and how many the kernel has kept for it."""
    def all_told():
        return re.findall(r"(\d+) packets? captured, (\d+) packets? received by filter", read(err) or "")

    before = len(all_told())
    proc.send_signal(signal.SIGUSR1)
    wait_until("tcpdump tells what it has", lambda: len(all_told()) > before, 30)
    return tuple(map(int, all_told()[-1]))


@contextmanager
def captured(ends, path):
    """Everything of RoCE that passes the first end's netdev, within the block, into a file, packet by packet. The buffer
    has a place of the largest packet's size for each, so that size is given."""
    show_packets(ends)
    end = ends[0]
    err = path + ".err"
    with open(err, "w", encoding="utf-8") as out:
        proc = spawn(["tcpdump", "-i", end.netdev, "--immediate-mode", "-U", "-w", path, "-B", "16384", "-s", "4600",
                      "-Z", "root", "udp", "port", "4791"], end.netns, out)
    try:
        wait_until("tcpdump listens", lambda: "listening on" in (read(err) or ""), 30)
        # Until it had its filter the kernel kept everything for it.
        others = told(proc, err)[1]
        yield

        def written():
            done, kept = told(proc, err)
            return 0 < done == kept - others

        # It trails behind.
        wait_until("tcpdump has written all that was kept for it", written, 30)
    finally:
        proc.send_signal(signal.SIGINT)
        proc.wait(timeout=20 * PATIENCE)
    say(read(err))
    require("\n0 packets dropped by kernel" in read(err), "the kernel dropped packets of the capture")
