# SPDX-License-Identifier: GPL-2.0
"""The hands of hostile_packets, which decides what goes by the wire and what must come of it, and knows neither sockets nor
counters: a line of its output is a frame to be sent, a word for the victim, or one of those here."""

import errno
import os
import socket
import subprocess
import time
from contextlib import contextmanager

from tests.guest import roce
from tests.guest.fabric import counters, mac, wait_until
from tests.guest.netlink import in_netns
from tests.guest.programs import listens, program, running, tail
from tests.guest.scenario import PATIENCE, SEED, Failed, last_line, require, say

PACKETS = program("hostile_packets")
VICTIM = os.path.join(os.path.dirname(__file__), "victim.py")
PORT = 18900
# Of <linux/if_packet.h>, where socket has no names for them.
SOL_PACKET, PACKET_IGNORE_OUTGOING = 263, 23
# Frames after which the victim is waited for: fewer than its queue of received packets holds.
BURST = 500
# Counters of what the victim does by itself, and of how packets happen to lie in memory: they do not say what became of a
# packet. The last two are of packets whose traffic class says that they are marked.
NOT_JUDGED = ("sent_pkts", "sent_bytes", "rcvd_bytes", "rx_linearized", "rx_steered", "retransmitted_pkts", "ack_timeout",
              "tail_probes", "np_ecn_marked_roce_packets", "np_cnp_sent")


@contextmanager
def wire(ends):
    """A packet socket of the attacker, and a function that makes frames to the victim of IP packets."""
    victim, attacker = ends
    head = bytes.fromhex((mac(victim) + mac(attacker)).replace(":", ""))
    every = socket.htons(3)  # ETH_P_ALL
    with in_netns(attacker.netns, lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW, every)) as made:
        in_netns(attacker.netns, lambda: made.bind((attacker.netdev, 0)))
        made.setsockopt(SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)
        made.setsockopt(socket.SOL_SOCKET, 33, 64 << 20)  # SO_RCVBUFFORCE
        made.settimeout(0.04)
        yield made, lambda ip: head + (roce.ETH_IPV6 if ip[0] >> 4 == 6 else roce.ETH_IPV4).to_bytes(2, "big") + ip


def send(link, frame):
    """Sends a frame, as soon as those before it have left room."""
    end = time.monotonic() + 20 * PATIENCE
    while True:
        try:
            return link.send(frame)
        except OSError as full:
            if not (isinstance(full, TimeoutError) or full.errno == errno.ENOBUFS) or time.monotonic() > end:
                raise Failed(f"a frame cannot be sent: {full}") from full
            time.sleep(0.001)


def hear(link, wanted, what=lambda frame: [frame], limit=2):
    """What is in the frames that come until none comes for a while; so much is worth waiting for."""
    heard, end = [], time.monotonic() + limit * PATIENCE
    while True:
        try:
            heard += what(link.recv(1 << 16))
        except TimeoutError:
            if len(heard) >= wanted or time.monotonic() > end:
                return heard


class Judge:
    """The counters of a device, and between which bounds they have to grow."""

    def __init__(self, dev):
        self.dev = dev
        self.begin()

    def begin(self):
        # ib_core keeps values for 10 ms; older ones are not wanted here.
        time.sleep(0.015)
        self.before, self.bounds = counters(self.dev), {}

    def expect(self, *names):
        """A packet is sent that is counted under these; behind which a "?" stands, perhaps."""
        for name in names:
            least, most = self.bounds.get(name.strip("?"), (0, 0))
            self.bounds[name.strip("?")] = least + (not name.endswith("?")), most + 1

    def differences(self):
        grown = {name: n - self.before[name] for name, n in counters(self.dev).items() if name not in NOT_JUDGED}
        bounds = {**dict.fromkeys(grown, (0, 0)), **self.bounds}
        return [f"{name} grew by {grown.get(name)}, not {least} to {most}" for name, (least, most) in bounds.items()
                if not least <= grown.get(name, -1) <= most]

    def settle(self):
        """Waits until every counter has grown by what it should; more, or less in the end, is an error."""
        end = time.monotonic() + 10 * PATIENCE
        while self.differences() and time.monotonic() < end:
            time.sleep(0.011)
        # What is too much may come a little later.
        time.sleep(0.015)
        wrong = self.differences()
        require(not wrong, f"counters: {'; '.join(wrong)}")
        self.begin()


class Control:
    """The connection over which the victim is asked."""

    def __init__(self, netns, address):
        control = in_netns(netns, lambda: socket.create_connection((address, PORT), 20 * PATIENCE))
        self.lines = control.makefile("rw")
        control.close()
        self.regions = self.answer()

    def line(self):
        try:
            return self.lines.readline().strip()
        except OSError as e:
            raise Failed(f"the victim: {e}") from e

    def answer(self):
        lines = []
        while (line := self.line()) != "done":
            require(line and not line.startswith("failed"), f"the victim: {line or 'is gone'}")
            lines.append(line)
        return lines

    def ask(self, what):
        self.lines.write(what + "\n")
        self.lines.flush()
        return self.answer()


@contextmanager
def victim(ends, family, attacker, other, out):
    """The victim at the first end, and its control; it must end well. The others are the peers of its queue pairs."""
    gids = [ip if ":" in ip else f"::ffff:{ip}" for ip in (attacker, other)]
    try:
        with running(["python3", VICTIM, ends[0].dev, ends[0].gid(family), *gids, PORT], ends[0].netns, out) as proc:
            wait_until("the victim listens", lambda: listens(proc.pid, PORT))
            control = Control(ends[1].netns, ends[0].tcp)
            yield control
            control.lines.close()
            require(proc.wait(timeout=30 * PATIENCE) == 0, f"the victim: {last_line(tail(out))}")
    finally:
        say("the victim: " + last_line(tail(out)))


def run_family(link, judge, control, settings, family):
    """Runs a family of hostile_packets; what it says of it."""
    def answer(words):
        match words.split():
            case ["hello"]:
                return control.regions
            case ["begin"]:
                judge.begin()
            case ["settle"]:
                judge.settle()
            case ["hear", wanted]:
                return [frame.hex() for frame in hear(link, int(wanted))]
            case _:
                return control.ask(words)
        return []

    sent, words = 0, [f"{key}={value}" for key, value in {**settings, "seed": SEED}.items()]
    with subprocess.Popen([PACKETS, *words, family], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as proc:
        for line in map(str.strip, proc.stdout):
            what, _, rest = line.partition(" ")
            if what in ("said", "failed"):
                require(what == "said", rest)
                return rest
            if what != "send":
                try:
                    lines = [*answer(line), "done"]
                except Failed as wrong:
                    # It knows what it was that went wrong.
                    lines = [f"failed {wrong}"]
                proc.stdin.write("".join(f"{line}\n" for line in lines))
                proc.stdin.flush()
                continue
            counted, frame = rest.split()
            judge.expect(*counted.split(",") if counted != "-" else ())
            send(link, bytes.fromhex(frame))
            sent += 1
            if sent % BURST == 0:
                time.sleep(0.002)
    raise Failed(f"{PACKETS} said nothing")
