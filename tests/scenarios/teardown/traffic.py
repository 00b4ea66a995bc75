# SPDX-License-Identifier: GPL-2.0
"""Traffic to take everything away from: conversations of the C program `verbs_traffic`, and where they take place."""

import os
import signal
import subprocess
import time

from tests.guest import flavour, netlink
from tests.guest.fabric import devices, gid_index, wait_until
from tests.guest.programs import program
from tests.guest.scenario import PATIENCE, Failed, say

PROGRAM = program("verbs_traffic")

# How a side ends that was asked to destroy everything; see traffic_c/traffic.h.
NO_DEVICE, DESTROYED = 3, 4
DEVICES = [flavour.current().prefix + "0", flavour.current().prefix + "1"]
ADDRESSES = ["10.77.0.1", "10.77.0.2"]


class Traffic:
    """The program that forks conversations, in the first namespace. Use it in a `with`."""

    def __init__(self):
        self.proc = subprocess.Popen([PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        os.set_blocking(self.proc.stdout.fileno(), False)
        self.text = b""
        self.forked = []
        self.running, self.closed, self.ended = set(), set(), {}
        # What completions say that are in error, the signals that were sent, and what may never be.
        self.errors, self.asked, self.words = {}, {}, {}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for pid in self.alive():
            os.kill(pid, signal.SIGKILL)
        self.proc.stdin.close()
        self.proc.kill()
        self.proc.wait()
        self.proc.stdout.close()

    def listen(self):
        while chunk := self.proc.stdout.read():
            self.text += chunk
        *lines, self.text = self.text.split(b"\n")
        for line in lines:
            word, pid, *rest = line.decode().split(" ", 2)
            if word == "forked":
                self.forked.append((int(pid), int(rest[0])))
            elif word == "ended":
                self.ended[int(pid)] = int(rest[0])
            elif word in ("error", "broken"):
                (self.errors if word == "error" else self.words)[int(pid)] = rest[0]
            else:
                {"running": self.running, "closed": self.closed}[word].add(int(pid))

    def until(self, what, test):
        end = time.monotonic() + 20 * PATIENCE
        while True:
            self.listen()
            if test():
                return
            if self.words or self.proc.poll() is not None or time.monotonic() > end:
                raise Failed(f"{what}: not so; {self.words or ''} ended {self.ended}")
            time.sleep(0.002)

    def start(self, conversations):
        """Starts conversations, each of ((device, GID index), (device, GID index), bytes), until traffic runs; their processes."""
        self.forked, self.ended, self.errors, self.asked = [], {}, {}, {}
        self.running, self.closed = set(), set()
        for one, two, size in conversations:
            self.proc.stdin.write(f"{one[0]} {one[1]} {two[0]} {two[1]} {size}\n".encode())
        self.proc.stdin.flush()
        self.until("the conversations are forked", lambda: len(self.forked) == len(conversations))
        self.until("traffic runs", lambda: self.running >= set(self.pids()))
        if self.errors or self.ended:
            raise Failed(f"before anything was taken away: errors {self.errors}, ended {self.ended}")
        return self.pids()

    def pids(self):
        return [pid for pair in self.forked for pid in pair]

    def alive(self):
        """Those that have not ended, as far as is known."""
        self.listen()
        return [pid for pid in self.pids() if pid not in self.ended]

    def signal(self, pid, number):
        """A signal to a process that may have ended."""
        self.asked.setdefault(pid, set()).add(number)
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            pass

    def kill_all(self):
        """Ends the processes that are left, which must be possible whatever has become of their devices."""
        for pid in self.alive():
            self.signal(pid, signal.SIGKILL)
        self.until("the processes can be killed", lambda: not self.alive())
        for pid, status in self.ended.items():
            asked = self.asked.get(pid, set())
            # A crash, and an end that nobody asked for, are none of these.
            wanted = {-signal.SIGKILL} if signal.SIGKILL in asked else set()
            wanted |= {NO_DEVICE, DESTROYED} if signal.SIGUSR1 in asked else set()
            if self.words or status not in wanted:
                raise Failed(f"process {pid} ended with {status}: {self.words.get(pid, 'without a word')}; {self.ended}")


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
