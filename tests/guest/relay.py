# SPDX-License-Identifier: GPL-2.0
"""A wire in user space: every packet between two devices passes a rule, which may lose it, and is recorded."""

import os
import select
import socket
import struct
import threading

from tests.guest import roce
from tests.guest.fabric import batch, show_packets
from tests.guest.scenario import PATIENCE, require

ALL_PROTOCOLS = 3
SOL_PACKET, PACKET_AUXDATA, PACKET_IGNORE_OUTGOING, SO_RCVBUFFORCE = 263, 8, 23, 33
VLAN_VALID = 0x10


def packet_socket(netdev):
    """A socket for the frames that come in at a netdev of this namespace."""
    made = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ALL_PROTOCOLS))
    made.setsockopt(SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)
    made.setsockopt(SOL_PACKET, PACKET_AUXDATA, 1)
    made.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 16 << 20)
    made.bind((netdev, 0))
    return made


def receive(source):
    """A frame as it was on the wire: the stack takes VLAN tags out before it shows a frame to anybody."""
    frame, control, _, _ = source.recvmsg(65536, 256)
    for level, kind, data in control:
        if (level, kind) == (SOL_PACKET, PACKET_AUXDATA):
            status, tci, protocol = struct.unpack("=I12xHH", data[:20])
            if status & VLAN_VALID:
                frame = frame[:12] + struct.pack("!HH", protocol or roce.ETH_VLAN, tci) + frame[12:]
    return frame


class Losses:
    """A rule that loses certain packets: {(kind, place): times}. The place of a packet is how far its PSN is from that of
    the second request, for the first one has a message of its own."""

    def __init__(self, wanted):
        self.left = dict(wanted)
        self.first = None

    def __call__(self, packet):
        if self.first is None and packet.kind == "request":
            self.first = packet.psn + 1
        key = packet.kind, (packet.psn - (self.first or 0)) & 0xffffff
        if not self.left.get(key):
            return False
        self.left[key] -= 1
        return True

    def require_all(self):
        left = {key: n for key, n in self.left.items() if n}
        require(not left, f"packets that were to be lost never came: {left}")


class Wire:
    """Carries what comes from either of two files to the other. Use it in a `with`, which closes both."""

    def __init__(self, one, two):
        self.other = {one: two, two: one}
        self.stop, self.stopped = os.pipe()
        self.thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        os.close(self.stopped)
        self.thread.join(timeout=10 * PATIENCE)
        os.close(self.stop)
        for file in self.other:
            file.close()

    def _run(self):
        while True:
            ready = select.select([*self.other, self.stop], [], [])[0]
            if self.stop in ready:
                return
            for source in ready:
                try:
                    self.carry(source, self.other[source])
                except OSError:
                    # A netdev that is down loses packets.
                    pass


class Relay(Wire):
    """Takes the bridge's place between the two ends of `pair(bridged=True)`."""

    def __init__(self, ends):
        show_packets(ends)
        batch([f"link set b{end.netdev} nomaster" for end in ends])
        self.loses = lambda packet: False
        self.packets = []
        self.sockets = [packet_socket(f"b{end.netdev}") for end in ends]
        super().__init__(*self.sockets)

    def carry(self, source, other):
        frame = receive(source)
        packet = roce.parse(frame)
        if packet:
            self.packets.append(packet)
            if self.loses(packet):
                return
        other.send(frame)
