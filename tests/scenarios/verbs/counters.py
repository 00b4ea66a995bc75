# SPDX-License-Identifier: GPL-2.0
"""Each counter of a device (Documentation/counters.md) is provoked by its own act, by name, and no
other counter moves with it but those that must."""

import socket
import struct
import time
from contextlib import closing
from dataclasses import dataclass
from typing import Callable

from tests.guest import roce
from tests.guest.cases import cases
from tests.guest.fabric import acquaint, counters, loop, mac, pair, set_local_path, show_packets, wait_until
from tests.guest.netlink import in_netns
from tests.guest.peer import exchange
from tests.guest.relay import SOL_PACKET, Losses, Relay
from tests.guest.scenario import command, require, scenario
from tests.scenarios.losses.fault import controlled
from tests.scenarios.losses.losses import refuse
from tests.scenarios.paths.isolation import ethernet, sender, victim

# Those whose act is a scenario of its own, which asks for them by name.
ELSEWHERE = {
    "sq_offloaded": "verbs.stream", "sq_offload_ended": "verbs.stream-busy-cpus",
    "sq_polled": "verbs.stream-on-one-cpu", "rx_steered": "paths.steering",
    "drop_no_memory": "debug.scarce.receiving",
}
SENT, RECEIVED = {"sent_pkts", "sent_bytes"}, {"rcvd_pkts", "rcvd_bytes"}
QKEY, RECEIVE = 0x2468ace0, 1024
GROUP = "239.1.0.99"
MESSAGE = bytes(range(64))


class Stage:
    """A victim, and a wire to it on which its peer's packets can be put."""

    def __init__(self, ends, target):
        self.ends, self.target = ends, target
        self.wire = sender(ends[1].netns, ends[1].netdev)

    def frame(self, made, destination=None):
        return ethernet(mac(self.ends[1]), destination or mac(self.ends[0]), made)

    def packet(self, ahead=0, payload=MESSAGE, opcode=roce.SEND_ONLY, source=None, qpn=None, answer=False, **more):
        """What the peer would send next, so many PSNs ahead, or as an answer to the first request."""
        target = self.target
        psn = (target.send_psn if answer else target.psn) + ahead & 0xffffff
        return roce.packet(source or target.peer, target.us, target.qpn if qpn is None else qpn, psn, payload, opcode, **more)

    def send(self, *packets, destination=None):
        for one in packets:
            self.wire.send(self.frame(one, destination))


def answer(syndrome, ahead=0, opcode=roce.ACKNOWLEDGE, payload=b""):
    """An act: an answer to what was posted."""
    return lambda stage: stage.send(stage.packet(ahead, payload, opcode, answer=True, extension=roce.aeth(syndrome)))


def sends(**what):
    """An act: one packet."""
    return lambda stage: stage.send(stage.packet(**what))


def post(what):
    """What comes before an act: a request, whose packet has left."""
    def act(stage):
        before = counters(stage.ends[0].dev)["sent_pkts"]
        stage.target.ask(f"post 0 {what}")
        wait_until("the request leaves", lambda: counters(stage.ends[0].dev)["sent_pkts"] > before)

    return act


def good_first(stage):
    """What comes before an act: a message."""
    before = counters(stage.ends[0].dev)["sent_pkts"]
    stage.send(stage.packet())
    wait_until("it is acknowledged", lambda: counters(stage.ends[0].dev)["sent_pkts"] > before)


def damaged(stage):
    """A packet whose last byte is another."""
    good = stage.packet()
    stage.send(good[:-1] + bytes((good[-1] ^ 1,)))


def too_short(stage):
    """A datagram that has no room for a BTH."""
    target = stage.target
    stage.send(roce.ip_header(target.peer, target.us, 16) + struct.pack("!HHHH", 0xc123, roce.PORT, 16, 0) + bytes(8))


def marked(stage):
    """A packet with data that has a mark of congestion, and asks for no acknowledgement."""
    frame = bytearray(stage.frame(stage.packet(asks=False)))
    frame[15] |= roce.ECT_0
    stage.wire.send(roce.marked(bytes(frame)))


def by_lo(stage):
    """A perfect packet from a process of the victim's host."""
    def make():
        return socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)

    with closing(in_netns(stage.ends[0].netns, make)) as raw:
        raw.sendto(stage.packet(), (stage.target.us, 0))


def to_group(stage):
    """A datagram to a group that only a socket of the host is in."""
    end = stage.ends[0]

    def join():
        made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        made.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP,
                        socket.inet_aton(GROUP) + socket.inet_aton(end.ip4))
        return made

    with closing(in_netns(end.netns, join)):
        made = roce.packet(stage.target.peer, GROUP, 0xffffff, 1, MESSAGE, 0x64, roce.deth(QKEY, 7))
        stage.send(made, destination="01:00:5e:01:00:63")
        wait_until("it is counted", lambda: counters(end.dev)["drop_group"])


def in_pieces(stage):
    """A long datagram whose sender has its end in pages of their own, as virtio's header lets it say."""
    vnet = 15
    stage.wire.setsockopt(SOL_PACKET, vnet, 1)
    try:
        made = stage.packet(payload=bytes(4096), opcode=0x64, extension=roce.deth(QKEY, 7))
        stage.wire.send(struct.pack("=BBHHHH", 0, 0, 64, 0, 0, 0) + stage.frame(made))
    finally:
        stage.wire.setsockopt(SOL_PACKET, vnet, 0)


def refused_by_netdev(stage):
    """A SEND that the netdev refuses again and again."""
    refuse(stage.ends[0], 1)
    stage.target.ask("post 0 send 64")
    wait_until("it is tried again", lambda: counters(stage.ends[0].dev)["send_retried"] > 1)
    command(["tc", "qdisc", "del", "dev", stage.ends[0].netdev, "clsact"], netns=stage.ends[0].netns)


@dataclass(frozen=True)
class Row:
    """Of one counter, or of several that one act moves: the queue pair, what is done to it, and what else must or may move."""

    names: tuple
    kind: str
    act: Callable
    first: Callable | None = None
    must: frozenset = frozenset()
    may: frozenset = frozenset()


def row(names, kind, act, first=None, must=(), may=()):
    """One of them, with names in one string."""
    return Row(tuple(names.split()), kind, act, first, frozenset(must), frozenset(may))


DATAGRAM = {"opcode": 0x64, "extension": roce.deth(QKEY, 7)}
WRITE = {"extension": roce.reth(0x1000, 0x77, 64)}
ROWS = (
    row("drop_icrc", "rts", damaged),
    row("drop_malformed", "rts", too_short),
    row("drop_opcode", "rts", sends(opcode=0x82)),
    row("drop_unknown_qp", "rts", sends(qpn=0x5a5a5a)),
    row("drop_address", "rts", sends(source="10.77.0.66")),
    row("drop_interface", "rts", by_lo),
    row("drop_pkey", "rts", sends(pkey=0x8001)),
    row("drop_state", "init", sends()),
    row("drop_ip_header", "rts", lambda stage: stage.send(roce.with_options(stage.packet()))),
    row("drop_mad", "ud", sends(qpn=1, opcode=0x64, extension=roce.deth(0x80010000, 1))),
    row("drop_qkey", "ud", sends(opcode=0x64, extension=roce.deth(QKEY + 1, 7))),
    row("drop_group", "ud", to_group),
    row("rcvd_pkts rcvd_bytes sent_pkts sent_bytes", "rts", sends()),
    row("duplicate_request", "rts", sends(), first=good_first, must=RECEIVED | SENT),
    row("out_of_sequence", "rts", sends(ahead=1), must=RECEIVED | SENT),
    row("kept_requests missing_sent", "rts", sends(ahead=1, keeps=True), must=RECEIVED | SENT),
    row("missing_rcvd", "rts", answer(0x60, opcode=0xc0, payload=struct.pack("<Q", 2)), first=post("send 64"), must=RECEIVED),
    row("np_ecn_marked_roce_packets np_cnp_sent", "rts", marked, must=RECEIVED | SENT),
    row("rp_cnp_handled", "rts", sends(payload=b"", opcode=roce.CNP, extension=bytes(16)), must=RECEIVED),
    row("rp_cnp_ignored", "uc", sends(payload=b"", opcode=roce.CNP, extension=bytes(16)), must=RECEIVED),
    row("ignored_request", "rts", sends(ahead=5000), must=RECEIVED, may=SENT),
    row("refused_request", "rts-no-rights", sends(opcode=10, **WRITE), must=RECEIVED | SENT),
    row("rnr_nak_sent", "rts-no-receives", sends(), must=RECEIVED | SENT),
    row("lost_no_receive", "uc-no-receives", sends(opcode=0x24), must=RECEIVED),
    row("lost_too_long", "ud", sends(payload=bytes(RECEIVE), **DATAGRAM), must=RECEIVED),
    row("rx_linearized", "ud", in_pieces, must=RECEIVED | {"lost_too_long"}),
    row("lost_denied", "uc-no-rights", sends(opcode=0x2a, **WRITE), must=RECEIVED),
    row("lost_invalid", "uc", sends(opcode=0x21, payload=bytes(256)), must=RECEIVED),
    row("stale_response", "rts", answer(0, ahead=7), must=RECEIVED),
    row("bad_response", "rts", answer(0, opcode=16, payload=bytes(32)), first=post("read 64"), must=RECEIVED),
    row("out_of_sequence_response", "rts", answer(0, ahead=2, opcode=15, payload=bytes(88)), first=post("read 600"),
        must=RECEIVED, may=SENT | {"retransmitted_pkts"}),
    # It is sent again 655 ms later.
    row("rnr_nak_rcvd", "rts", answer(0x20), first=post("send 64"), must=RECEIVED, may=SENT | {"retransmitted_pkts"}),
    row("seq_nak_rcvd retransmitted_pkts", "rts", answer(0x60), first=post("send 64"), must=RECEIVED | SENT),
    row("fatal_nak_rcvd", "rts", answer(0x61), first=post("send 64"), must=RECEIVED),
    # With the netdev open again it leaves.
    row("send_lost send_retried", "rts", refused_by_netdev, may=SENT | {"retransmitted_pkts"}),
)


def judge(stage, what):
    """One act: its counters move, those that go with them too, and no other."""
    dev = stage.ends[0].dev
    stage.target.make(what.kind)
    if what.first:
        what.first(stage)
    before, grown = counters(dev), {}

    def moved():
        nonlocal grown
        grown = {name: n - before[name] for name, n in counters(dev).items() if n != before[name]}
        return set(what.names) | what.must <= set(grown)

    try:
        what.act(stage)
        wait_until(f"{what.names} move", moved)
        # What else moves with it does so at once; the kernel reads counters each 10 ms.
        time.sleep(0.03)
        moved()
    finally:
        print(f"{what.names}: {grown}", flush=True)
    wrong = set(grown) - set(what.names) - what.must - what.may
    require(not wrong, f"{what.names}: {sorted(wrong)} moved too: {grown}")
    # One packet is counted once.
    many = {name: n for name, n in grown.items() if n != 1 and not name.endswith("_bytes")}
    require(not many or what.act is refused_by_netdev, f"{what.names} counted {many} for one packet")


def injected():
    """Counters that a packet of the peer moves, or its absence."""
    with pair() as ends:
        acquaint(*ends)
        show_packets(ends)
        with victim(ends, 4) as target:
            stage = Stage(ends, target)
            with closing(stage.wire):
                for what in ROWS:
                    judge(stage, what)
    return {name for what in ROWS for name in what.names}


def lost():
    """The counter of what is found by waiting for two round trips: the only packet of a message is lost."""
    with controlled(bridged=True) as ends:
        acquaint(*ends)
        with Relay(ends) as relay:
            relay.loses = Losses({("request", 0): 1})
            before = counters(ends[1].dev)
            exchange(ends, 4, "-1", "-e", 1, "-t", 22, "-o", "s", "-s", "1,1")
            relay.loses.require_all()
            grown = {name for name, n in counters(ends[1].dev).items() if n != before[name]}
    require("tail_probes" in grown and not grown & {"ack_timeout", "retransmitted_pkts"}, f"{grown} moved")
    return {"tail_probes"}


def within():
    """Those of the local path, and of a peer that never answers; and the names of all counters."""
    with loop(True) as end:
        exchange((end, end), 4, "-s", "1,M+1")
        names = {"local_segments", "local_bytes"}
        before = counters(end.dev)
        moved = {name for name, n in before.items() if n}
        # Nothing is dropped either: one queue pair is in RTS before the other one is in RTR, and has nothing to send.
        strange = {name for name in moved if name in SENT | RECEIVED or name.startswith("drop_")}
        require(names <= moved and not strange, f"{moved} moved by the local path")
        set_local_path(end.dev, False)
        next(case for case in cases("verbs") if case.name == "change-timeout").run(end)
        moved = {name for name, n in counters(end.dev).items() if n != before[name]}
        require("ack_timeout" in moved and not moved & {"seq_nak_rcvd", "rnr_nak_rcvd", "fatal_nak_rcvd"}, f"{moved} moved")
    return names | {"ack_timeout"}, set(before)


@scenario("counters.each", 120, rxe="rdma_rxe has other counters")
def each(_report):
    """Each counter is provoked by its own act, by name; none moves that need not, and none is without an act."""
    names, every = within()
    names |= injected() | lost()
    require(names | set(ELSEWHERE) == every and not names & set(ELSEWHERE),
            f"of the device's counters {sorted(every ^ (names | set(ELSEWHERE)))} have no act, or are none")
