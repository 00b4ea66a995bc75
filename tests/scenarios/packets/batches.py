# SPDX-License-Identifier: GPL-2.0
"""Batches that are taken apart behind the headers of a tunnel, and what their receiver makes of them."""

import json
import os
import signal
import socket
import struct
from contextlib import ExitStack
from dataclasses import replace

from tests.guest import flavour, netlink, roce
from tests.guest.fabric import (
    WIRE_MTU, batch, counters, grown, link_add, link_del, linked, mac, pair, totals, tx_packets, wait_until)
from tests.guest.peer import Conversation, exchange
from tests.guest.scenario import Skipped, command, require, scenario
from tests.scenarios.losses.fault import controlled
from tests.scenarios.messages.perftest import measure
from tests.scenarios.paths.paths import left_by

# WRITE, SEND and READ of many packets, more than fit into a batch among them. The ACK timeout is out of reach, however slow
# the machine is: whatever is sent again was lost or damaged.
MESSAGES = ("-1", "-e", 1, "-o", "wsr", "-m", 1024, "-s", "8M,65536,200000", "-t", 22)
# What counts when a batch was not taken apart into the packets it was made of.
DAMAGED = ("drop_icrc", "drop_malformed", "out_of_sequence", "out_of_sequence_response", "retransmitted_pkts")


# Two options with 124 and 120 bytes of data: together the 252 bytes that Geneve has room for.
OPTIONS = ",".join(f"0102:{kind:02x}:{'5a' * size}" for kind, size in ((1, 124), (2, 120)))


def tunnel(number, end, other):
    """A Geneve device whose packets get all these options. It has a link, and the netdev below has none."""
    link_del(end.dev, netns=end.netns)
    batch(["link add gv type geneve external", f"link set gv mtu {WIRE_MTU} up",
           f"addr add 10.99.0.{number}/24 dev gv", f"addr add fd99::{number}/64 dev gv nodad"], netns=end.netns)
    command(["tc", "qdisc", "add", "dev", "gv", "clsact"], netns=end.netns)
    command(["tc", "filter", "add", "dev", "gv", "egress", "matchall", "action", "tunnel_key", "set", "id", "7",
             "src_ip", end.ip6, "dst_ip", other.ip6, "dst_port", "6081", "geneve_opts", OPTIONS], netns=end.netns)
    # Batches are taken apart with all headers in front of them, and not by the receiver without.
    command(["ethtool", "-K", end.netdev, "tx-gso-list", "off"], netns=end.netns)
    return replace(end, dev=f"{flavour.current().prefix}g{number}", netdev="gv", ip4=f"10.99.0.{number}",
                   ip6=f"fd99::{number}")


@scenario("batches.geneve-options", 90, rxe="rdma_rxe makes no batches")
def geneve(report):
    """Over Geneve over IPv6 with all the options it has room for: 336 bytes of headers go in front of each packet."""
    command(["modprobe", "-a", "geneve", "act_tunnel_key", "cls_matchall", "sch_ingress"], ok=None)
    # The programs' own TCP keeps out of the tunnel: the kernel's geneve warns of truesize when TCP merges such packets.
    with controlled(mtu=WIRE_MTU + 400) as ends:
        tunnels = [tunnel(number, end, other) for number, (end, other) in enumerate((ends, ends[::-1]), 1)]
        with linked(tunnels):
            for family in (4, 6):
                below, then, before = tx_packets(ends[1]), left_by(tunnels[1]), totals(tunnels)
                exchange(tunnels, family, *MESSAGES)
                below = tx_packets(ends[1]) - below
                pieces, packets = (now - old for now, old in zip(left_by(tunnels[1]), then))
                report.note(f"IPv{family}: {packets} packets in {pieces} pieces, {below} below")
                require(pieces < packets / 2 <= below / 2, f"{packets} packets: {pieces} pieces for the tunnel, {below} below it")
                wrong = {name: n for name, n in grown(before, totals(tunnels)).items() if n and name in DAMAGED}
                require(not wrong, f"packets were lost or damaged: {wrong}")


# READs that are posted as one list, and lists.
LIST, LISTS = 16, 20


@scenario("batches.answers", 60, rxe="rdma_rxe makes no batches")
def answers(report):
    """READs that come as a batch are answered by a batch, over IPv4 and IPv6: their receiver has taken them as one."""
    with pair() as ends:
        for family in (4, 6):
            answering = [replace(end, ip4=end.ip6) if family == 6 else end for end in ends]
            then = left_by(ends[0])
            measure("ib_read_bw", answering, ["-s", "64", "-l", str(LIST), "-t", str(LIST)], LIST * LISTS)
            pieces, packets = [now - old for now, old in zip(left_by(ends[0]), then)]
            report.note(f"IPv{family}: {packets} answers in {pieces} pieces")
            require(packets >= LIST * LISTS, f"{packets} answers to {LIST * LISTS} READs")
            require(pieces < packets / 4, f"{packets} answers were given to the netdev in {pieces} pieces")


# What a packet socket says of a batch (`struct virtio_net_hdr`): it lacks checksums, is UDP to be taken apart, and begins
# with so many bytes in one piece.
SOL_PACKET, PACKET_VNET_HDR, NEEDS_CSUM, GSO_UDP_L4 = 263, 15, 1, 5
# Bytes of each packet, and how many are for the queue pair: together enough for another CPU to execute them.
SEGMENT, OF_QP = 1400, 16


def queue_pairs(end):
    """The numbers of the connections of a device."""
    rows = json.loads(command(["rdma", "-j", "resource", "show", "qp", "link", f"{end.dev}/1"]).stdout or "[]")
    return [row["lqpn"] for row in rows if row["type"] == "RC"]


def send_batch(end, other, qpns):
    """Sends one batch of packets without an ICRC, one for each of these queue pairs."""
    bths = [struct.pack("!BBHII", roce.SEND_ONLY, 0, 0xffff, qpn, 0) for qpn in qpns]
    ib = b"".join(bth.ljust(SEGMENT, b"\0") for bth in bths)
    ip, udp = roce.ip_header(end.ip4, other.ip4, 8 + len(ib)), struct.pack("!HHHH", 0xc123, roce.PORT, 8 + len(ib), 0)
    ethernet = bytes.fromhex(mac(other).replace(":", "") + mac(end).replace(":", "")) + struct.pack("!H", roce.ETH_IPV4)
    frame = ethernet + ip + udp + ib
    gso = struct.pack("=BBHHHH", NEEDS_CSUM, GSO_UDP_L4, len(frame), SEGMENT, len(ethernet + ip), 6)

    def send():
        with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as s:
            s.setsockopt(SOL_PACKET, PACKET_VNET_HDR, 1)
            s.bind((end.netdev, 0))
            s.send(gso + frame)

    netlink.in_netns(end.netns, send)


@scenario("batches.of-two", 60, rxe="rdma_rxe does not steer")
def of_two(_report):
    """A batch for a queue pair, which another CPU executes, ends with a packet for nobody: none of it is left behind, and
    nothing holds the netdev."""
    if len(os.sched_getaffinity(0)) < 2:
        raise Skipped("there is one CPU")
    with pair() as ends, ExitStack() as done:
        for end in ends:
            batch(["link add d0 type dummy", "link set d0 up"], netns=end.netns)
            beside = f"{end.dev}9"
            link_add(beside, "d0", netns=end.netns)
            done.callback(link_del, beside, netns=end.netns)
        with Conversation(ends[::-1], "-s", 64) as talk:
            for side in (talk.client, talk.server):
                os.kill(side.pid, signal.SIGSTOP)
            qpn = queue_pairs(ends[1])[0]
            before = counters(ends[1].dev)

            def grown(name):
                return counters(ends[1].dev)[name] - before[name]

            send_batch(ends[0], ends[1], [qpn] * OF_QP + [0xabcdef])
            wait_until("the last packet is dropped", lambda: grown("drop_unknown_qp") == 1)
            require(grown("rx_steered") == 1, "the batch was not for another CPU")
            wait_until("the others are executed, too", lambda: grown("drop_icrc") == OF_QP)
        # It waits for its packets. The namespaces keep their sockets, which would end all that waits.
        command(["ip", "link", "del", ends[1].netdev], netns=ends[1].netns)
