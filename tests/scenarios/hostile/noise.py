# SPDX-License-Identifier: GPL-2.0
"""Packets for which nobody needs a model, from the attacker's netdev: noise against queue pairs that are in use, and
management datagrams for queue pair 1."""

import random
import struct
import time
from collections import Counter

from tests.guest import roce
from tests.guest.scenario import SEED, require
from tests.guest.umad import GET, MAD_LEN, PERFORMANCE, PORT_COUNTERS, QP1_QKEY
from tests.scenarios.hostile.generator import BURST, Judge, hear, send

UD_SEND, UD_SEND_IMM = 0x64, 0x65
# Bytes of the extended headers of RC's opcodes, and those that have no payload.
EXTENSIONS = {3: 4, 5: 4, 6: 16, 9: 4, 10: 16, 11: 20, 12: 16, 13: 4, 15: 4, 16: 4, 17: 4, 18: 12, 19: 28}
BARE = (12, 17, 18, 19)
WAYS = ("damaged", "from strangers", "cut short", "of opcodes not served")


def noise(draw, way, places, qpn):
    """A packet of IPv4 by a stranger who does not know where the PSNs of a connection are. `places` are the addresses of the
    peer, a stranger and the victim."""
    peer, stranger, victim = places
    opcode = draw.randrange(0x14)
    if way == "of opcodes not served":
        opcode = draw.choice([opcode for opcode in range(0x20, 0x100) if opcode not in (roce.CNP, roce.MISSING)])
    payload = draw.randbytes(0 if opcode in BARE else draw.randrange(300))
    source = stranger if way == "from strangers" else peer
    made = roce.packet(source, victim, qpn, draw.randrange(1 << 24), payload, opcode, draw.randbytes(EXTENSIONS.get(opcode, 0)))
    if way == "damaged":
        icrc = int.from_bytes(made[-4:], "big") ^ (draw.getrandbits(32) | 1)
        return made[:-4] + icrc.to_bytes(4, "big")
    if way == "cut short":
        # In the UDP header, which stays, or it would not come to the driver.
        at = 24
        length = int.from_bytes(made[at:at + 2], "big")
        length -= draw.randrange(1, min(30, length - 8) + 1)
        return made[:at] + length.to_bytes(2, "big") + made[at + 2:]
    return made


def flood(link, frame, places, qpn, count):
    """Makes noise at a queue pair; what was sent. Each packet is sent some times, for to make one takes longer."""
    draw, sent, frames = random.Random(SEED), Counter(), []
    for _ in range(count // 20):
        way = draw.choice(WAYS)
        frames.append((way, frame(noise(draw, way, places, qpn))))
    for n in range(count):
        way, made = draw.choice(frames)
        send(link, made)
        sent[way] += 1
        if n % BURST == 0:
            time.sleep(0.002)
    return f"{count} packets sent: " + ", ".join(f"{n} {way}" for way, n in sent.items())


GET_RESPONSE, UNSUPPORTED = 0x81, 3 << 2
FILL = b"\x2a"
# The queue pair that we say to be: answers come to it.
SOURCE = 0x7654


def question(number, attribute, transaction):
    """A Get of a class; the upper half of its number names the agent that gets a response, and none has that."""
    mad = bytearray(struct.pack(">BBBBIQHHI", 1, number, 1, GET, 0, transaction | 0xf << 60, attribute, 0, 0).ljust(MAD_LEN, b"\0"))
    # The port.
    mad[65] = 1
    return mad


class Mads:
    """Management datagrams to queue pair 1: each is counted, and answered as the standard says or not at all."""

    def __init__(self, end, us, link, frame):
        self.victim, self.us, self.link, self.frame = end, us, link, frame
        self.draw, self.judge, self.sent = random.Random(SEED), Judge(end.dev), 0

    def send(self, payload, counted="rcvd_pkts", opcode=UD_SEND, qkey=QP1_QKEY):
        """Sends one, which is to be counted so."""
        extension = roce.deth(qkey, SOURCE) + bytes(4 if opcode == UD_SEND_IMM else 0)
        psn = self.draw.randrange(1 << 24)
        send(self.link, self.frame(roce.packet(self.us, self.victim.ip4, 1, psn, payload, opcode, extension, asks=False)))
        self.judge.expect(counted)
        self.sent += 1

    def answers(self, count):
        """Waits until all is counted; what the victim sends."""
        self.judge.settle()
        heard = hear(self.link, count, self.judged, limit=20)
        require(len(heard) == count, f"{len(heard)} answers, not {count}")
        return heard

    def judged(self, frame):
        """The datagram in a frame of the victim, which must be to us and have everything that belongs to it."""
        packet = roce.parse(frame)
        if not packet or packet.source != self.victim.ip4:
            return []
        ip, udp, ib = frame[14:34], frame[34:42], frame[42:-4]
        head = bytes([UD_SEND, ib[1] & 0xc0]) + b"\xff\xff" + ib[4:5] + SOURCE.to_bytes(3, "big")
        is_sound = ib.startswith(head) and ib[12:20] == roce.deth(QP1_QKEY, 1) and len(ib) == 20 + MAD_LEN
        require(is_sound and packet.destination == self.us and roce.icrc(ip, udp, ib) == frame[-4:],
                f"the victim sent {frame.hex()}")
        return [ib[20:]]

    def run(self):
        """Every length but the right one, every opcode but the right ones, and wrong Q_Keys, of what were answered else."""
        good = question(PERFORMANCE, PORT_COUNTERS, 0x1234)
        whole = good.ljust(4096, FILL)
        for n, length in enumerate((*range(MAD_LEN), *range(MAD_LEN + 1, MAD_LEN + 45), 512, 1024, 4095, 4096)):
            self.send(whole[:length], "drop_mad", UD_SEND + n % 2)
            if n % 100 == 99:
                self.answers(0)
        for opcode in set(range(256)) - {UD_SEND, UD_SEND_IMM}:
            self.send(good, "drop_opcode", opcode)
        for bit in range(32):
            self.send(good, "drop_qkey", qkey=QP1_QKEY ^ 1 << bit)
        self.answers(0)
        # What is none by its content; and of a class without a user.
        self.send(FILL * MAD_LEN)
        for number, status in ((PERFORMANCE, 0), (9, UNSUPPORTED)):
            asked = question(number, PORT_COUNTERS, 0x1234 + number)
            self.send(asked)
            (answer,) = self.answers(1)
            require(answer[3:6] == bytes([GET_RESPONSE, 0, status]) and answer[8:18] == asked[8:18], f"answered: {answer[:64].hex()}")
