# SPDX-License-Identifier: GPL-2.0
"""Packets for which nobody needs a model, from the attacker's netdev: noise against queue pairs that are in use, and
management datagrams for queue pair 1."""

import random
import struct
import time
from collections import Counter

from tests.guest import roce
from tests.guest.scenario import SEED, require
from tests.guest.umad import CLASS_PORT_INFO, GET, MAD_LEN, PERFORMANCE, PORT_COUNTERS, QP1_QKEY
from tests.scenarios.hostile.generator import BURST, Judge, hear, send

UD_SEND, UD_SEND_IMM = 0x64, 0x65
# Bytes of the extended headers of RC's opcodes, and those that have no payload.
EXTENSIONS = {3: 4, 5: 4, 6: 16, 9: 4, 10: 16, 11: 20, 12: 16, 13: 4, 15: 4, 16: 4, 17: 4, 18: 12, 19: 28,
              UD_SEND: 8, UD_SEND_IMM: 12}
BARE = (12, 17, 18, 19)
WAYS = ("damaged", "from strangers", "cut short", "of opcodes not served")


def noise(draw, way, datagrams, places, qpn):
    """A packet of a stranger who does not know where the PSNs of a connection are, nor a Q_Key. `places` are the addresses
    of the peer, a stranger and the victim."""
    peer, stranger, victim = places
    if way != "of opcodes not served":
        opcode = draw.choice((UD_SEND, UD_SEND_IMM)) if datagrams else draw.randrange(0x14)
    elif datagrams:
        # Those of RC are not served there.
        opcode = draw.randrange(0x60)
    else:
        opcode = draw.choice([opcode for opcode in range(0x20, 0x100) if opcode not in (roce.CNP, roce.MISSING)])
    extension = draw.randbytes(EXTENSIONS.get(opcode, 0))
    payload = draw.randbytes(0 if opcode in BARE else draw.randrange(300))
    source = stranger if way == "from strangers" else peer
    made = roce.packet(source, victim, qpn, draw.randrange(1 << 24), payload, opcode, extension)
    if way == "damaged":
        icrc = int.from_bytes(made[-4:], "big") ^ (draw.getrandbits(32) | 1)
        return made[:-4] + icrc.to_bytes(4, "big")
    if way == "cut short":
        at = (40 if ":" in victim else 20) + 4
        length = int.from_bytes(made[at:at + 2], "big")
        # At least the UDP header stays, or it would not come to the driver.
        length -= draw.randrange(1, min(30, length - 8) + 1)
        return made[:at] + length.to_bytes(2, "big") + made[at + 2:]
    return made


def flood(link, frame, places, qpn, count, datagrams):
    """Makes noise at a queue pair; what was sent. Each packet is sent some times, for to make one takes longer."""
    draw, sent, frames = random.Random(SEED), Counter(), []
    for _ in range(count // 20):
        way = draw.choice(WAYS)
        frames.append((way, frame(noise(draw, way, datagrams, places, qpn))))
    for n in range(count):
        way, made = draw.choice(frames)
        send(link, made)
        sent[way] += 1
        if n % BURST == 0:
            time.sleep(0.002)
    return f"{count} packets sent: " + ", ".join(f"{n} {way}" for way, n in sent.items())


SET, GET_RESPONSE, CM = 2, 0x81, 7
FILL = b"\x2a"
# The queue pair that we say to be: answers come to it.
SOURCE = 0x7654
# So many datagrams at most are under way: ib_mad has 512 receives.
AT_ONCE = 64


def header(base, number, version, method, attribute, transaction):
    """The header of a datagram; the upper half of its number names the agent that gets a response, and none has that."""
    return struct.pack(">BBBBIQHHI", base, number, version, method, 0, transaction | 0xf << 60, attribute, 0, 0)


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

    def sizes(self):
        """Every length but the right one, every opcode but the right ones, and wrong Q_Keys."""
        # A question that is answered, were it whole.
        question = bytearray(header(1, PERFORMANCE, 1, GET, PORT_COUNTERS, 0x1234).ljust(MAD_LEN, b"\0"))
        question[65] = 1
        whole = question.ljust(4096, FILL)
        for n, length in enumerate((*range(MAD_LEN), *range(MAD_LEN + 1, MAD_LEN + 45), 512, 1024, 4095, 4096)):
            self.send(whole[:length], "drop_mad", UD_SEND + n % 2)
            if n % 100 == 99:
                self.answers(0)
        for opcode in range(256):
            if opcode not in (UD_SEND, UD_SEND_IMM):
                self.send(question, "drop_opcode", opcode)
        for bit in range(32):
            self.send(question, "drop_qkey", qkey=QP1_QKEY ^ 1 << bit)
        self.answers(0)
        # To see that it would have been answered; and what is none by its content.
        self.send(question)
        self.send(FILL * MAD_LEN)
        (answer,) = self.answers(1)
        require(answer[3] == GET_RESPONSE and answer[8:18] == question[8:18], f"answered: {answer[:64].hex()}")

    def classes(self):
        """Every class and method: a question that nobody knows is answered with the status that says so (IBTA 13.4.7),
        and all else with silence."""
        odd = (0, 2, 0x80, 0xff)
        kinds = [(1, number, 1, method) for number in range(256) for method in (0, GET, SET, 3, 0x7f, GET_RESPONSE)]
        kinds += [(1, number, 1, method) for number in (PERFORMANCE, CM) for method in range(256)]
        # Versions of the header, which nobody knows and none may answer, and of classes.
        kinds += [(version, number, 1, GET) for number in (PERFORMANCE, 9) for version in odd]
        kinds += [(1, number, version, GET) for number in (PERFORMANCE, 9) for version in odd]
        for begin in range(0, len(kinds), AT_ONCE):
            asked = {}
            for base, number, version, method in kinds[begin:begin + AT_ONCE]:
                mad = header(base, number, version, method, CLASS_PORT_INFO, self.draw.getrandbits(60)).ljust(MAD_LEN, FILL)
                self.send(mad)
                # Those of the subnet are for queue pair 0.
                if base == 1 and method in (GET, SET) and number not in (0x01, 0x81):
                    asked[mad[8:16]] = mad
            for answer in self.answers(len(asked)):
                want = asked.pop(answer[8:16], None)
                require(want, f"not asked: {answer[:64].hex()}")
                self.is_right(answer, want)

    def is_right(self, answer, want):
        """The answer is the question with a status, and of the class that the device knows what it has to say."""
        _, number, version, method = want[:4]
        status = 3 << 2
        if number == PERFORMANCE:
            status = 1 << 2 if version != 1 else 0 if method == GET else status
            # What ClassPortInfo says ends with the time to respond.
            require(not any(answer[84:]), f"an answer that goes on: {answer.hex()}")
            want = want[:64] + answer[64:]
        want = want[:3] + bytes([GET_RESPONSE, 0, status]) + want[6:]
        require(answer == want, f"{answer.hex()}, not {want.hex()}")
