# SPDX-License-Identifier: GPL-2.0
"""Captures on the wire, and what one message looks like there."""

import os
import re
import shutil
import signal
from contextlib import contextmanager

from tests.guest.fabric import pair, read, show_packets, wait_until
from tests.guest.programs import spawn
from tests.guest.scenario import PATIENCE, add, require, say
from tests.scenarios.messages.pingpong import talk

# The message that is captured, in bytes, and the path MTU.
SIZE, MTU = 2500, 1024


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


def capture(ends, path, family):
    """One exchange of pingpong, captured at the first end's veth."""
    with captured(ends, path):
        talk(ends, family, MTU, size=SIZE, iters=1)
        # The header of the file; then six packets of data and two acknowledgements, each with a record header of 16
        # bytes, Ethernet, IPv4 (IPv6 has more), UDP, BTH, AETH and ICRC.
        whole = 24 + 2 * SIZE + 6 * (16 + 14 + 20 + 8 + 12 + 4) + 2 * (16 + 14 + 20 + 8 + 12 + 4 + 4)
        wait_until("the messages are in the capture", lambda: os.path.getsize(path) >= whole, 30)


def scenario(_report, family):
    """One exchange over IPv4 or IPv6. The capture is judged outside, where nothing is emulated."""
    path = f"/tmp/message{family}.pcap"
    with pair() as ends:
        capture(ends, path, family)
    shutil.copy(path, f"/srv/results/packets.message-ipv{family}.pcap")


for _family in (4, 6):
    add(f"packets.message-ipv{_family}", 120, f"one message over IPv{_family} as tshark decodes it; ICRC by scapy",
        scenario, _family, leaves=".pcap")
