# SPDX-License-Identifier: GPL-2.0
"""Trace events say what happened: their numbers are those of the counters, of the relay and of the programs."""

import os
import random
import re
import socket
import struct
import time
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass

from tests.guest import flavour
from tests.guest.fabric import acquaint, counters, grown, pair, wait_until, write
from tests.guest.netlink import in_netns
from tests.guest.peer import exchange
from tests.guest.programs import both_running
from tests.guest.relay import Relay
from tests.guest.scenario import SEED, command, require, scenario, seeded, shortened
from tests.scenarios.losses.fault import controlled
from tests.scenarios.messages.pingpong import PORT, talk

TRACEFS = "/sys/kernel/tracing"
# A buffer of our own, which no other scenario's events fill.
BUFFER = f"{TRACEFS}/instances/ferroce-test"
KIB_PER_CPU = 16384
# Of each hundred packets, in both directions. The ACK timeout is out of reach: tail probes find what no NAK tells of.
LOST = 5
PLAN = ("-m", 1024, "-e", 1, "-t", 22, "-o", "swrS", "-s", "1,M,3M+5")
# What a requester does about a loss, and the counter of it.
RECOVERED = {"RETRANSMITTED": "retransmitted_pkts", "TAIL_PROBE": "tail_probes", "TIMEOUT": "ack_timeout",
             "SEQUENCE_NAK": "seq_nak_rcvd", "RNR_NAK": "rnr_nak_rcvd"}
ENDED = {"DUPLICATE": "duplicate_request", "OUT_OF_SEQUENCE": "out_of_sequence", "KEPT": "kept_requests",
         "NO_RECEIVE": "rnr_nak_sent"}


class RandomLosses:
    """A rule of a relay: loses packets at random, and remembers which."""

    def __init__(self):
        self.draw = random.Random(SEED)
        self.lost = Counter()

    def __call__(self, packet):
        if not packet.qpn or self.draw.randrange(100) >= LOST:
            return False
        self.lost[packet.qpn, packet.psn] += 1
        return True


@dataclass(frozen=True)
class Event:
    """One line of a trace: who, what, and its fields as text."""

    task: int
    name: str
    field: dict

    def number(self, name):
        return int(self.field[name], 0)


def promised():
    """The fields of each event in the order of its text, by the kernel's own description of its format."""
    found = {}
    for name in os.listdir(f"{TRACEFS}/events/ferroce"):
        path = f"{TRACEFS}/events/ferroce/{name}/format"
        if os.path.exists(path):
            with open(path, encoding="utf-8") as f:
                text = re.search(r'^print fmt: "([^"]*)"', f.read(), re.M)[1]
            found[name] = [word.split("=")[0] for word in text.split()]
    return found


@contextmanager
def recording():
    """Yields what stops the recording and returns its events. All of ours are on, in a buffer of its own."""
    mounted = os.path.exists(f"{TRACEFS}/events")
    if not mounted:
        command(["mount", "-t", "tracefs", "nodev", TRACEFS])
    os.mkdir(BUFFER)
    try:
        write(f"{BUFFER}/buffer_size_kb", KIB_PER_CPU)
        write(f"{BUFFER}/trace_clock", "mono")
        write(f"{BUFFER}/events/ferroce/enable", "1")
        yield taken
    finally:
        if os.path.exists(f"{BUFFER}/events/ferroce"):
            write(f"{BUFFER}/events/ferroce/enable", "0")
        os.rmdir(BUFFER)
        if not mounted:
            command(["umount", TRACEFS])


def taken():
    """Stops the recording; its events, each as its format promises it."""
    write(f"{BUFFER}/tracing_on", "0")
    with open(f"{BUFFER}/trace", encoding="utf-8") as f:
        text = f.read()
    written = re.search(r"entries-in-buffer/entries-written: (\d+)/(\d+)", text)
    require(written[1] == written[2], f"of {written[2]} events the buffer has kept {written[1]}")
    fields, found = promised(), []
    for line in text.splitlines():
        if line.startswith("#") or not line:
            continue
        match = re.match(r".*-(\d+) +\[\d+\] \S+ +[\d.]+: (\w+): (.*)$", line)
        require(match, f"no event: {line}")
        field = dict(word.split("=", 1) for word in match[3].split())
        require(list(field) == fields[match[2]], f"not the fields {fields[match[2]]}: {line}")
        require(not [value for value in field.values() if value.startswith("(") or value.endswith("?")], f"no value: {line}")
        found.append(Event(int(match[1]), match[2].removeprefix("ferroce_"), field))
    require(len(found) == int(written[1]), f"{len(found)} of {written[1]} events were read")
    return found


def named(events, *names):
    return [event for event in events if event.name in names]


def qps_of(events, dev):
    return {event.field["qpn"] for event in named(events, "qp") if event.field["dev"] == dev}


def agree(events, dev, counted):
    """The events of a device are what it has counted. Returns how many were compared."""
    own = qps_of(events, dev)
    seen = Counter()
    for event in events:
        if event.field.get("qpn") not in own:
            continue
        if event.name == "recover":
            seen[RECOVERED.get(event.field["what"])] += event.number("count")
        elif event.name == "request":
            seen[ENDED.get(event.field["outcome"])] += 1
        else:
            seen[{"tx": "sent", "rx": "rcvd_pkts"}.get(event.name)] += 1
    wanted = {"sent": counted["sent_pkts"] + counted["send_lost"], "rcvd_pkts": counted["rcvd_pkts"]}
    wanted |= {name: counted[name] for name in (*RECOVERED.values(), *ENDED.values())}
    for name, value in wanted.items():
        require(seen[name] == value, f"{dev}: {seen[name]} events of {name}, and it has counted {value}")
    return sum(wanted.values())


def packets(events, name):
    """How often each packet has left, or come."""
    return Counter((event.field["dqpn"], event.field["opcode"], event.field["psn"]) for event in named(events, name))


@scenario("trace.events", 120, rxe="rdma_rxe has no trace events")
def lossy(report):
    """Events of a lossy run: packets, losses, retransmissions and outcomes are as many as the counters and the relay say."""
    with seeded(), controlled(bridged=True) as ends:
        acquaint(*ends)
        with recording() as stop, Relay(ends) as relay:
            relay.loses = RandomLosses()
            before = [counters(end.dev) for end in ends]
            exchange(ends, 4, *PLAN, "-n", shortened(4, 1))
            events = stop()
            compared = sum(agree(events, end.dev, grown(old, counters(end.dev))) for end, old in zip(ends, before))
        lost = packets(events, "tx") - packets(events, "rx")
        wanted = relay.loses.lost
        drawn = Counter()
        for (dqpn, _, psn), times in lost.items():
            drawn[int(dqpn, 0), int(psn)] += times
        require(drawn == wanted, f"lost by the events alone: {drawn - wanted}; by the relay alone: {wanted - drawn}")
        require(wanted and not packets(events, "rx") - packets(events, "tx"), "nothing was lost, or packets came from nowhere")
        for name in ("doorbell", "taken", "ack", "complete", "recover", "timer"):
            require(named(events, name), f"no event {name}")
        report.note(f"{len(events)} events, {compared} of them compared with counters; {sum(wanted.values())} packets lost")


@scenario("trace.drops", 60, rxe="rdma_rxe has no trace events")
def drops(_report):
    """Events of packets that nobody wants: each reason as often as it is counted, and headers without what follows."""
    with pair() as ends:
        with recording() as stop:
            before = counters(ends[1].dev)
            # A SEND Only to a QP that is not there; an opcode that nobody has; what is no packet; and a READ Request to another one.
            follows = b"Payload!" * 2
            for packet in (bth(0x04, 0x123456, 7) + follows, bth(0xff, 0x654321, 8) + follows, b"short", bth(0x0c, 0x123457, 9) + follows):
                deliver(ends, packet)
            events = stop()

        def counted():
            return {name: n for name, n in grown(before, counters(ends[1].dev)).items() if name.startswith("drop_") and n}

        # ib_core shows values that are up to 10 ms old.
        wait_until("all are counted", lambda: sum(counted().values()) >= 4)
        seen, wanted = Counter(event.field["reason"] for event in named(events, "drop")), counted()
        require(seen == wanted and sum(seen.values()) == 4, f"events of drops {dict(seen)}, counted {wanted}")
        (gone,) = [event for event in named(events, "drop") if event.field["dqpn"] == "0x123456"]
        require(gone.field["psn"] == "7" and gone.field["head"] == bth(0x04, 0x123456, 7).hex() and gone.field["opcode"] == "RC_SEND_ONLY"
                and gone.field["reason"] == "drop_unknown_qp", f"not what was sent: {gone}")
        # A READ Request would have a RETH there, so that what stands in its place is shown.
        for event in named(events, "drop"):
            require((b"Payl".hex() in event.field["head"]) == (event.field["opcode"] == "RC_READ_REQUEST"), f"payload, or none: {event}")


def bth(opcode, qpn, psn):
    """A base transport header."""
    return struct.pack("!BBHII", opcode, 0x40, 0xffff, qpn, psn)


def deliver(ends, payload):
    """A datagram from the first end to the RoCE port of the second, which has it when this returns."""
    def send():
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
            s.sendto(payload, (ends[1].ip4, 4791))

    in_netns(ends[0].netns, send)


@scenario("trace.unload", 60, rxe="rdma_rxe has no trace events")
def unload(report):
    """The module is unloaded and loaded while its events are on: they end with it, and are there again with it."""
    module = flavour.current().module
    with pair() as ends, recording() as stop:
        talk(ends, 4, 1024, iters=3)
        report.note(f"{len(stop())} events before")
        write(f"{BUFFER}/tracing_on", "1")
    with recording():
        command(["modprobe", "-r", module])
        require(not os.path.exists(f"{BUFFER}/events/ferroce"), "the events have outlived the module")
        command(["modprobe", module])
        write(f"{BUFFER}/events/ferroce/enable", "1")
        with pair() as ends:
            talk(ends, 4, 1024, iters=3)
        require(len(named(taken(), "complete")) == 12, "not each completion has an event")


@scenario("trace.moved", 60, rxe="rdma_rxe has no trace events")
def moved(_report):
    """A process goes on on another CPU, and its datagrams leave there: they need no order, so no worker sends them."""
    cpus = os.sched_getaffinity(0)
    with pair() as ends, recording() as stop:
        server, client = (["ibv_ud_pingpong", "-d", end.dev, "-g", end.gid(4), "-p", PORT, "-n", 2000] for end in ends)
        with both_running(server, [*client, ends[0].tcp], ends, PORT) as (_, proc):
            while proc.poll() is None:
                for cpu in cpus:
                    os.sched_setaffinity(proc.pid, {cpu})
                    time.sleep(0.002)
        served = Counter(event.field["by"] for event in named(stop(), "doorbell"))
    require(served["INLINE"] > 2000 and not served["NEAR"], f"doorbells are served by {dict(served)}")
