#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Makes roce.txt: RoCEv2 packets with their ICRC, as scapy builds them.

Usage: make_vectors.py > roce.txt        (needs python3-scapy, 2.6.1 was used)

A line is a packet: "v4" or "v6", what was asked of scapy as key=value, and the bytes from the IP
header to the ICRC. Each ICRC is computed twice, by scapy on its fields and here on the bytes, and
the script fails if the two differ.
"""

import struct
import sys
import zlib

from scapy.contrib.roce import AETH, BTH, CNPPadding
from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import IPv6
from scapy.packet import Raw

# Opcode number: extended headers in order, and a payload length that the opcode may have.
OPCODES = {
    0x00: ("", 256), 0x01: ("", 512), 0x02: ("", 3), 0x03: ("i", 2), 0x04: ("", 1), 0x05: ("i", 6),
    0x06: ("r", 256), 0x07: ("", 256), 0x08: ("", 7), 0x09: ("i", 4), 0x0a: ("r", 5), 0x0b: ("ri", 9),
    0x0c: ("r", 0), 0x0d: ("a", 256), 0x0e: ("", 256), 0x0f: ("a", 1), 0x10: ("a", 11), 0x11: ("a", 0),
    0x81: ("n", 0),
}
SEND_FIRST, SEND_ONLY, WRITE_FIRST, WRITE_ONLY_IMM = 0x00, 0x04, 0x06, 0x0b
READ_REQUEST, READ_RESPONSE_MIDDLE, ACK, CNP = 0x0c, 0x0e, 0x11, 0x81

# What a receiver must find in the packet again.
DEFAULTS = {
    "opcode": SEND_ONLY, "solicited": 0, "migreq": 1, "pkey": 0xffff, "dqpn": 0x000012, "ackreq": 0, "psn": 0x000345,
    "va": 0x00007f0123456789, "rkey": 0xa1b2c3d4, "length": 70000, "syndrome": 0x1f, "msn": 0x00000a, "imm": 0x11223344,
    "payload": 0,
}
# What is below or outside of the transport, or varies on the way.
LOWER = {"tos": 0, "ttl": 64, "flow": 0, "id": 0, "sport": 0xc0de, "chksum": 0, "fecn": 0, "becn": 0, "resv6": 0, "resv7": 0}


def pattern(length):
    return bytes((i * 167 + i // 256 * 31 + 13) & 0xff for i in range(length))


def masked_crc(version, packet):
    """The ICRC from the bytes alone: annex A17.3.3 of the InfiniBand specification."""
    data = bytearray(packet[:-4])
    if version == "v4":
        ones, udp = [1, 8, 10, 11], 20
    else:
        data[0] |= 0x0f
        ones, udp = [1, 2, 3, 7], 40
    for at in ones + [udp + 6, udp + 7, udp + 8 + 4]:
        data[at] = 0xff
    return struct.pack("<I", zlib.crc32(b"\xff" * 8 + bytes(data)))


def build(version, **asked):
    f = {**DEFAULTS, **LOWER, **asked}
    headers = OPCODES[f["opcode"]][0]
    pad = -f["payload"] % 4
    body = BTH(opcode=f["opcode"], solicited=f["solicited"], migreq=f["migreq"], padcount=pad, pkey=f["pkey"],
               fecn=f["fecn"], becn=f["becn"], resv6=f["resv6"], dqpn=f["dqpn"], ackreq=f["ackreq"], resv7=f["resv7"],
               psn=f["psn"])
    if "r" in headers:
        body /= Raw(struct.pack(">QII", f["va"], f["rkey"], f["length"]))
    if "a" in headers:
        body /= AETH(syndrome=f["syndrome"], msn=f["msn"])
    if "n" in headers:
        body /= CNPPadding()
    if "i" in headers:
        body /= Raw(struct.pack(">I", f["imm"]))
    body /= Raw(pattern(f["payload"]) + bytes(pad))
    if version == "v4":
        ip = IP(src="192.0.2.1", dst="198.51.100.2", tos=f["tos"], ttl=f["ttl"], id=f["id"], flags="DF")
    else:
        ip = IPv6(src="2001:db8::1", dst="2001:db8:ffff::2", tc=f["tos"], hlim=f["ttl"], fl=f["flow"])
    packet = bytes(ip / UDP(sport=f["sport"], dport=4791, chksum=f["chksum"]) / body)

    ours = masked_crc(version, packet)
    if packet[-4:] != ours:
        sys.exit(f"{version} {f}: scapy says {packet[-4:].hex()}, the bytes say {ours.hex()}")

    hidden = {"va", "rkey", "length"} if "r" not in headers else set()
    hidden |= {"syndrome", "msn"} if "a" not in headers else set()
    hidden |= {"imm"} if "i" not in headers else set()
    hidden |= {"flow"} if version == "v4" else {"id"}
    fields = " ".join(f"{key}={value:#x}" for key, value in f.items() if key not in hidden)
    print(version, fields, packet.hex())


def main():
    print("# SPDX-License-Identifier: GPL-2.0")
    print("# Made by make_vectors.py; do not edit.")
    for version in ("v4", "v6"):
        for opcode, (_, payload) in OPCODES.items():
            build(version, opcode=opcode, payload=payload, becn=int(opcode == CNP))
        for payload in range(9):
            build(version, payload=payload, psn=payload)
        build(version, opcode=SEND_FIRST, payload=1024)
        build(version, opcode=READ_RESPONSE_MIDDLE, payload=4096, psn=0xffffff)
        build(version, payload=4095, ackreq=1)
        # Each flag and the ends of each field.
        build(version, solicited=1, ackreq=1, payload=8)
        build(version, migreq=0, pkey=0x7fff, dqpn=0xffffff, psn=0xffffff)
        build(version, pkey=0x8001, dqpn=1, psn=0, sport=0xffff)
        build(version, opcode=WRITE_ONLY_IMM, payload=4, va=2**64 - 1, rkey=2**32 - 1, length=2**32 - 1, imm=0)
        build(version, opcode=READ_REQUEST, va=0, rkey=0, length=0)
        for syndrome in (0x00, 0x20, 0x2e, 0x3f, 0x60, 0x61, 0x62, 0x63, 0x64, 0x65, 0x40, 0x9f):
            build(version, opcode=ACK, syndrome=syndrome, msn=0xffffff - syndrome)
        # What may change on the way does not matter; a reserved bit that may not, does.
        build(version, payload=2)
        build(version, payload=2, tos=0xff, ttl=1, flow=0xfffff)
        build(version, payload=2, tos=0x6a, ttl=255, flow=0xabcde, chksum=0x1234, fecn=1, becn=1, resv6=0x3f)
        build(version, payload=2, becn=1)
        build(version, payload=2, resv7=0x7f)
    build("v4", payload=2, id=0xbeef)


main()
