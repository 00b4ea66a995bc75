# SPDX-License-Identifier: GPL-2.0
"""Programs that connect by librdmacm: their kernel module, when one listens, and both ends of a conversation."""

import re
import subprocess
import time
from contextlib import contextmanager

from tests.guest.fabric import read
from tests.guest.netlink import in_netns
from tests.guest.programs import run_both
from tests.guest.scenario import PATIENCE, command


@contextmanager
def connections():
    """With rdma_ucm, which librdmacm talks to."""
    command(["modprobe", "rdma_ucm"])
    try:
        yield
    finally:
        command(["modprobe", "-r", "rdma_ucm"], ok=None)


def listens(pid, netns=None):
    """Whether a program listens for connections, and has come back from the call: while it is in there the kernel shows
    it as one that listens, but does not find it yet. A device that belongs to a network namespace is seen there alone."""
    shown = in_netns(netns, lambda: subprocess.run(
        ["rdma", "res", "show", "cm_id"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True,
        timeout=30 * PATIENCE, check=False)).stdout
    return re.search(rf"state LISTEN .*\bpid {pid}\b", shown) and has_come_back(pid)


def has_come_back(pid):
    """Whether a program's first thread has come back from a call that waits for locks alone: it sleeps so that it can be
    interrupted, or has computed in the meantime."""
    def look():
        fields = (read(f"/proc/{pid}/task/{pid}/stat") or "").rpartition(")")[2].split()
        # The state and the time in user mode: see proc_pid_stat(5).
        return (fields[0], int(fields[11])) if fields else ("X", 0)

    before = look()
    time.sleep(0.05)
    state, computed = look()
    return state == "S" or computed > before[1]


def talk(server, client, ends, limit=60):
    return run_both(server, client, ends, 0, limit, ready=listens)
