# SPDX-License-Identifier: GPL-2.0
"""The same messages and the same mistakes, asked by ferroce of rdma_rxe, by rdma_rxe of ferroce, and by rdma_rxe of
itself, captured on the wire. The guest only captures; `tests.judges.wire_compare` judges outside, where nothing is emulated.
"""

import json

from tests.guest import flavour
from tests.guest.peer import exchange
from tests.guest.scenario import add, command
from tests.scenarios.interop.interop import two_drivers
from tests.scenarios.packets.packets import captured

RESULTS = "/srv/results"
MTU = 1024
# Who asks, who serves.
PARTS = (("ferroce", "rxe"), ("rxe", "ferroce"), ("rxe", "rxe"))
# See mistakes[] in peer_c/mistakes.c; each has a lane of its own, the first lane 1.
MISTAKES = "nglkKeEqQ"
# Nothing is lost but what is dropped on purpose, and that is told by a NAK: nobody may repeat anything because he has
# waited, so there is no ACK timeout, and with it no tail probe either.
# 80 packets are more than either driver sends without asking for an acknowledgement.
PLAN = ("-m", MTU, "-1", "-v", "-e", 1, "-o", "sSwWrzZ", "-s", "0,1,2,3,M-1,M,M+1,3M+5,80M",
        "-x", MISTAKES, "-q", 1 + len(MISTAKES), "-R", 24, "-t", 0)

# A lane of RC, one of UC and one of UD, and what each of them serves; atomic operations on the first.
TYPES = "rud"
KINDS = ("-m", MTU, "-1", "-v", "-e", 1, "-T", TYPES, "-o", "sSzwWyZacCA", "-s", "0,1,M-1,M,M+1,3M+5", "-R", 24, "-t", 0)

# The first sequence number of the client's lane 0, and the distance to the next lane's: see make_lane() in peer_c.
FIRST_PSN, LANE_PSNS = 0xffffc0, 0x1000


def lose_second_packet(end, family):
    """Drops, on its way into this end, the first copy of the second packet of the message that mistake `g` sends."""
    psn = (FIRST_PSN + LANE_PSNS * (1 + MISTAKES.index("g")) + 1) & 0xffffff
    header, protocol = (20, "ip") if family == 4 else (40, "ipv6")
    command(["tc", "qdisc", "add", "dev", end.netdev, "clsact"], netns=end.netns)
    # Of the packets that match every second one passes. The PSN is in the third word of the BTH, behind the UDP header.
    command(["tc", "filter", "add", "dev", end.netdev, "ingress", "protocol", protocol, "u32",
                    "match", "u32", hex(psn), "0x00ffffff", "at", str(header + 8 + 8),
                    "action", "gact", "drop", "random", "determ", "ok", "2"], netns=end.netns)


def pass_all(end):
    command(["tc", "qdisc", "del", "dev", end.netdev, "clsact"], netns=end.netns)


def fields(ends, family, path):
    """Captures the whole plan at the server's netdev; returns what the two programs have printed."""
    with captured(ends, path):
        lose_second_packet(ends[0], family)
        said = exchange(ends, family, *PLAN)
        pass_all(ends[0])
    return said


def kinds(ends, family, path):
    """The same of the other services and the atomic operations."""
    with captured(ends, path):
        said = exchange(ends, family, *KINDS)
    return said


def captures(_report, what, capture, leaves, types):
    """Each part over both families."""
    drivers = {"ferroce": flavour.FERROCE, "rxe": flavour.RXE}
    parts = []
    for asks, serves in PARTS:
        with two_drivers((drivers[serves], drivers[asks])) as ends:
            for family in (4, 6):
                name = f"{what}-{asks}-asks-{serves}-ipv{family}.pcap"
                server, client = capture(ends, family, f"/tmp/{name}")
                command(["cp", f"/tmp/{name}", f"{RESULTS}/{name}"])
                parts.append({"asks": asks, "serves": serves, "family": family, "mtu": MTU, "capture": name,
                              "client": client, "server": server,
                              "client_ip": ends[1].address(family), "types": types})
    with open(f"{RESULTS}/{what}{leaves}", "w", encoding="utf-8") as f:
        json.dump(parts, f)


for _what, _about, _capture, _leaves, _types in (
        ("packets.fields", "every field of every packet, by tshark and scapy; ferroce's against rdma_rxe's", fields, ".json", ""),
        ("packets.kinds", "the same of packets of UC, of UD and of the atomic operations", kinds, ".kinds.json", TYPES)):
    add(_what, 180, _about, captures, _what, _capture, _leaves, _types, leaves=_leaves)
