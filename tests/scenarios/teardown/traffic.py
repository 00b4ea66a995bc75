# SPDX-License-Identifier: GPL-2.0
"""Traffic to take everything away from: conversations of the C program `verbs_traffic`, and where they take place."""

import os
import signal
import socket
import subprocess
import time

from tests.guest import flavour, netlink
from tests.guest.fabric import devices, gid_index, wait_until
from tests.guest.programs import program
from tests.guest.scenario import PATIENCE, Failed, say

PROGRAM = program("verbs_traffic")

# How a side ends that was asked to destroy everything; see traffic_c/traffic.c.
NO_DEVICE, DESTROYED = 3, 4
DEVICES = [flavour.current().prefix + "0", flavour.current().prefix + "1"]
ADDRESSES = ["10.77.0.1", "10.77.0.2"]


def judge(ended, asked, words):
    """How processes have ended must be how they were asked to; none may have had a word to say."""
    for pid, status in ended.items():
        # A crash, and an end that nobody asked for, are none of these.
        wanted = {-signal.SIGKILL} if signal.SIGKILL in asked.get(pid, ()) else set()
        wanted |= {NO_DEVICE, DESTROYED} if signal.SIGUSR1 in asked.get(pid, ()) else set()
        if words or status not in wanted:
            raise Failed(f"process {pid} ended with {status}: {words.get(pid, 'without a word')}; {ended}")


class Traffic:
    """Conversations, in the first namespace. Use it in a `with`."""

    def __init__(self):
        self.said, self.pipe = os.pipe()
        os.set_blocking(self.said, False)
        self.text = b""
        self.begun = 0
        self.procs = {}
        self.running, self.closed = set(), set()
        # What completions say that are in error, the signals that were sent, and what may never be.
        self.errors, self.asked, self.words = {}, {}, {}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for proc in self.procs.values():
            proc.kill()
            proc.wait()
        os.close(self.said)
        os.close(self.pipe)

    def listen(self):
        try:
            while chunk := os.read(self.said, 1 << 16):
                self.text += chunk
        except BlockingIOError:
            pass
        *lines, self.text = self.text.split(b"\n")
        for line in lines:
            word, pid, *rest = line.decode().split(" ", 2)
            if word in ("error", "broken"):
                (self.errors if word == "error" else self.words)[int(pid)] = rest[0]
            else:
                {"running": self.running, "closed": self.closed}[word].add(int(pid))

    @property
    def ended(self):
        """The exit status of each process that has ended."""
        return {pid: proc.returncode for pid, proc in self.procs.items() if proc.poll() is not None}

    def until(self, what, test):
        end = time.monotonic() + 20 * PATIENCE
        while True:
            self.listen()
            if test():
                return
            if self.words or time.monotonic() > end:
                raise Failed(f"{what}: not so; {self.words or ''} ended {self.ended}")
            time.sleep(0.002)

    def converse(self, one, two, size):
        """Starts the two sides of a conversation, each a device and the index of a GID. Both kinds of receive queues get
        both directions, beside messages of UC and beside datagrams."""
        beside = ["datagrams"] if self.begun // 2 % 2 else []
        words = [["asks", *beside], beside]
        if self.begun % 2:
            words[self.begun // 2 % 2] = [*words[self.begun // 2 % 2], "shares"]
        self.begun += 1
        for (device, gid), mine, what in zip((one, two), socket.socketpair(), words):
            with mine:
                argv = [PROGRAM, device, gid, size, mine.fileno(), *what]
                proc = subprocess.Popen(list(map(str, argv)), stdin=subprocess.DEVNULL, stdout=self.pipe,
                                        pass_fds=[mine.fileno()])
            self.procs[proc.pid] = proc

    def start(self, conversations):
        """Starts conversations until traffic runs."""
        self.procs, self.errors, self.asked = {}, {}, {}
        self.running, self.closed = set(), set()
        for conversation in conversations:
            self.converse(*conversation)
        self.until("traffic runs", lambda: self.running >= set(self.procs))
        if self.errors or self.ended:
            raise Failed(f"before anything was taken away: errors {self.errors}, ended {self.ended}")

    def pids(self):
        return list(self.procs)

    def alive(self):
        """Those that have not ended."""
        return [pid for pid, proc in self.procs.items() if proc.poll() is None]

    def signal(self, pid, number):
        """A signal to a process that may have ended."""
        self.asked.setdefault(pid, set()).add(number)
        self.procs[pid].send_signal(number)

    def kill_all(self):
        """Ends the processes that are left, which must be possible whatever has become of their devices."""
        for pid in self.alive():
            self.signal(pid, signal.SIGKILL)
        self.until("the processes can be killed", lambda: not self.alive())
        judge(self.ended, self.asked, self.words)


class Site:
    """Two namespaces, a wire, a device at each end of it."""

    def __init__(self):
        self.spaces = [netlink.NetNs(), netlink.NetNs()]
        netlink.veth(*((f"v{i}", self.spaces[i]) for i in range(2)), mtu=4500)
        for i in range(2):
            netlink.configure(self.spaces[i], f"v{i}", f"{ADDRESSES[i]}/24")
        # A first packet that comes before the wire is found to be up is lost, and ARP waits a second before it asks again.
        for i in range(2):
            netlink.add_neighbour(self.spaces[i], f"v{i}", ADDRESSES[1 - i], netlink.mac(self.spaces[1 - i], f"v{1 - i}"),
                                  netlink.NUD_STALE)
        for i in range(2):
            netlink.rdma_link_add(self.spaces[i], DEVICES[i], flavour.current().link_type, f"v{i}")
        self.numbers = netlink.rdma_devices()
        self.gids = [gid_index(DEVICES[i], ADDRESSES[i]) for i in range(2)]

    def places(self):
        """Device and GID index of both ends."""
        return list(zip(DEVICES, self.gids))

    def delete_link(self, side):
        netlink.rdma_link_delete(self.numbers[DEVICES[side]])

    def delete_netdev(self, side):
        """`ip link del`, from this end; it takes the other end along, whose namespace is kept meanwhile. Each second
        that somebody still refers to a netdev the kernel announces its end anew (netdev_wait_allrefs_any), in a namespace
        that nothing else keeps: if that has gone, the kernel reads what was freed with it, with rdma_rxe as well."""
        self.spaces[1 - side].run(lambda: netlink.delete_netdev(self.spaces[side], f"v{side}"))

    def delete_space(self, side):
        self.spaces[side].delete()

    def take_down(self):
        for side in range(2):
            if DEVICES[side] in netlink.rdma_devices():
                try:
                    self.delete_link(side)
                except OSError as e:
                    say(f"the link of {DEVICES[side]} is going by itself: {e}")
        for space in self.spaces:
            space.delete()
        wait_until("the devices go", lambda: not devices(), 20)
