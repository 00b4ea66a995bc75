# SPDX-License-Identifier: GPL-2.0
"""Captures on the wire, and what one message looks like there."""

import os
import shutil
import signal
import time
from contextlib import contextmanager

from tests.guest.fabric import pair, read, show_packets, wait_until
from tests.guest.programs import spawn
from tests.guest.scenario import add, require, say
from tests.judges.message import MTU, SIZE
from tests.scenarios.messages.pingpong import once


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
        yield
        time.sleep(0.5)
    finally:
        proc.send_signal(signal.SIGINT)
        proc.wait(timeout=20)
    say(read(err))
    require("\n0 packets dropped by kernel" in read(err), "the kernel dropped packets of the capture")


def capture(ends, path, family):
    """One exchange of pingpong, captured at the first end's veth."""
    with captured(ends, path):
        once(ends, family, MTU, size=SIZE, iters=1)
        # The header of the file; then six packets of data and two acknowledgements, each with a record header of 16
        # bytes, Ethernet, IPv4 (IPv6 has more), UDP, BTH, AETH and ICRC.
        whole = 24 + 2 * SIZE + 6 * (16 + 14 + 20 + 8 + 12 + 4) + 2 * (16 + 14 + 20 + 8 + 12 + 4 + 4)
        wait_until("the messages are in the capture", lambda: os.path.getsize(path) >= whole, 30)


def scenario(family):
    """A scenario: one exchange over IPv4 or IPv6. The capture is judged outside, where nothing is emulated."""
    def run(_report):
        path = f"/tmp/message{family}.pcap"
        with pair() as ends:
            capture(ends, path, family)
        shutil.copy(path, f"/srv/results/packets.message-ipv{family}.pcap")

    return run


for _family in (4, 6):
    add(f"packets.message-ipv{_family}", 120, f"one message over IPv{_family} as tshark decodes it; ICRC by scapy",
        scenario(_family), leaves=".pcap")
