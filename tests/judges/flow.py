# SPDX-License-Identifier: GPL-2.0
"""Judges the capture of `headers.flow`: that the network headers of each packet say what its address vector asked for."""

import json
import os
from dataclasses import dataclass

from tests.guest.scenario import require
from tests.judges.wire_decode import decode

FIRST_PORT, GROUP = 0xc000, 0xffffff
# The kernel's own, which ib_core gives every handle and connection that leads to a single peer.
HOPS_OF_ROUTE = 64


@dataclass(frozen=True)
class Asked:
    """One address vector, and the numbers of the two queue pairs."""

    what: str
    family: int
    label: int
    traffic_class: int
    hops: int
    sender: int
    receiver: int

    def port(self):
        """The UDP source port by the rules of Linux (rdma_get_udp_sport), or None if it is the driver's choice."""
        label = self.label
        if not label:
            if self.what != "connection":
                return None
            label = self.sender * self.receiver
            label ^= label >> 20
            label ^= label >> 40
            label &= 0xfffff
        return FIRST_PORT | (label & 0x3fff) ^ (label >> 14)

    def want(self):
        """What must stand in the headers, by the names of wire_decode. The bits of ECN never leave."""
        hops = (self.hops or 1) if self.what == "group" else HOPS_OF_ROUTE
        named = {"ttl4": hops, "tos4": self.traffic_class & 0xfc}
        if self.family == 6:
            named = {"ttl6": hops, "tos6": self.traffic_class & 0xfc, "flow": self.label}
        return named if self.port() is None else named | {"sport": self.port()}


def asked_for(said):
    rows = [line.split()[1:] for line in said.splitlines() if line.startswith("asked ")]
    return [Asked(row[0], *map(int, row[1:])) for row in rows]


def owner(packet, asked):
    """What a packet belongs to: a datagram names its sender, a packet of a connection its receiver."""
    if "sqpn" in packet:
        what = "group" if packet["dqpn"] == GROUP else "peer"
        found = [one for one in asked if one.what == what and one.sender == packet["sqpn"]]
    else:
        found = [one for one in asked if one.what == "connection" and packet["dqpn"] in (one.sender, one.receiver)]
    require(len(found) == 1, f"{len(found)} address vectors for the packet {packet}")
    return found[0]


def judge(packets, asked):
    """Every packet, and that there is one of each datagram and two of each connection; returns lines for a person."""
    count = dict.fromkeys(asked, 0)
    ports = {}
    for packet in packets:
        one = owner(packet, asked)
        count[one] += 1
        for name, value in one.want().items():
            require(packet.get(name) == value, f"{one}: {name} is {packet.get(name)}, not {value}")
        require(ports.setdefault(one, packet["sport"]) == packet["sport"] >= FIRST_PORT,
                f"{one}: UDP source ports {ports[one]} and {packet['sport']}")
    for one, n in count.items():
        # A slow receiver is asked again.
        require(n >= 2 if one.what == "connection" else n == 1, f"{one}: {n} packets")
    return [f"IPv{one.family} {one.what:<10} label {one.label:#7x}, class {one.traffic_class:#04x}, hops {one.hops:3}: "
            f"port {ports[one]:#x}" for one in asked]


def judge_file(path):
    with open(path, encoding="utf-8") as f:
        told = json.load(f)
    asked = asked_for(told["said"])
    require(len(asked) == 30, f"{len(asked)} address vectors")
    print("\n".join(judge(decode(os.path.join(os.path.dirname(path), told["capture"])), asked)))
