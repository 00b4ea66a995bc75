# SPDX-License-Identifier: GPL-2.0
"""Networks that lose, repeat, shuffle and damage packets, or go away: right data or an error, and never a hang."""

import re
import time
from contextlib import contextmanager
from dataclasses import replace

from tests.guest import flavour
from tests.guest.fabric import (
    acquaint, batch, counters as device_counters, pair, port_state, read, tx_dropped, wait_active, wait_until)
from tests.guest.netlink import in_netns
from tests.guest.peer import ERROR_COMPLETION, PEER_GONE, Conversation, exchange
from tests.guest.scenario import PATIENCE, add, command, last_line, require, scenario
from tests.scenarios.interop.interop import rxe_loaded
from tests.scenarios.messages import pingpong

RETRIES_USED_UP = "transport retry counter exceeded"
# The seeds make every run meet the same fate, as far as the order of the packets is the same.
DISORDERS = {
    "loss-1": "loss 1% seed 11",
    "loss-10": "loss 10% seed 12",
    "reorder": "delay 2ms reorder 60% 25% seed 13",
    "duplicate": "duplicate 20% seed 14",
    "corrupt": "corrupt 5% seed 15",
    # Long enough for a slow machine to send more than four packets meanwhile.
    "short-queue": f"delay {PATIENCE}ms limit 4",
    "queue-of-one": "delay 1ms limit 1",
}
# What must have happened: at the queue, or in the counters of one of the devices.
HAPPENED = {"reorder": ("out_of_sequence", "kept_requests", "out_of_sequence_response"), "duplicate": ("duplicate_request",),
            "corrupt": ("drop_icrc",)}
# Packets of the usual MTU that a batch of 64 KiB has at most.
BATCH = 64
# Chance may spare a hundred packets, but not these many times a hundred.
ATTEMPTS = 12

# ibv_rc_pingpong's client leaves when it has all it wants. If its last acknowledgement is lost then nobody is there to
# repeat it, and the server rightly fails: pingpong proves nothing where packets are lost. verbs_peer ends together.
LOSSLESS = {"reorder", "duplicate"}


@contextmanager
def controlled(**how):
    """A pair whose programs find each other over a TCP wire of its own, which no fault touches."""
    with pair(**how) as ends:
        batch(["link add ca netns fa type veth peer name cb netns fb"])
        made = []
        for number, (end, netdev) in enumerate(zip(ends, ("ca", "cb")), 1):
            batch([f"addr add 10.88.0.{number}/24 dev {netdev}", f"link set {netdev} up"], netns=end.netns)
            made.append(replace(end, tcp=f"10.88.0.{number}"))
        yield made


def disturb(ends, what):
    """Puts a netem queue in front of the wire of each end."""
    for end in ends:
        command(["tc", "qdisc", "replace", "dev", end.netdev, "root", "netem", *what.split()], netns=end.netns)


def calm(ends):
    for end in ends:
        command(["tc", "qdisc", "del", "dev", end.netdev, "root"], netns=end.netns)


def dropped(end):
    """What the queue has dropped."""
    queue = command(["tc", "-s", "qdisc", "show", "dev", end.netdev], netns=end.netns).stdout
    return int(re.search(r"dropped (\d+)", queue).group(1))


def counters(end):
    """What the device has counted, but for zeroes."""
    return ", ".join(f"{name} {value}" for name, value in device_counters(end.dev).items() if value)


def has_happened(ends, name, lost):
    """Whether a disorder was one: a queue that has dropped nothing has shown nothing."""
    if name not in HAPPENED:
        return all(lost)
    if not flavour.current().is_ferroce:
        # Its counters are others.
        return True
    return any(device_counters(end.dev).get(counter, 0) for end in ends for counter in HAPPENED[name])


def endure(report, ends, name, *plan, times=ATTEMPTS):
    """Every operation, until the disorder has been one, so often at most; all of it must succeed, in a time that is no hang."""
    # A queue of one packet lets about one packet through per acknowledgement timeout.
    usual = ("-s", "1,M+1,4M" if name == "queue-of-one" else "1,M+1,16384")
    for left in reversed(range(times)):
        began = time.monotonic()
        # Of an option that is given twice the later one counts.
        done = last_line(exchange(ends, 4, *usual, *plan, limit=40)[0])
        lost = [dropped(end) for end in ends]
        report.note(f"{ends[1].dev} asks {ends[0].dev}: {done} in {time.monotonic() - began:.1f} s; packets dropped: {lost}")
        if has_happened(ends, name, lost):
            break
        require(left or times == 1, f"there was no {name}; the queues have dropped {lost}")
    for end in ends:
        report.note(f"{end.dev}: {counters(end)}")


def disorder(report, name, what):
    """Every operation, and pingpong where it can, which must all succeed."""
    with controlled() as ends:
        acquaint(*ends)
        disturb(ends, what)
        if name in LOSSLESS:
            pingpong.talk(ends, 4, 1024, size=8192, iters=10)
        endure(report, ends, name)


# What rdma_rxe of Linux 7.3 cannot be asked to send or to read through such a network in messages of several packets:
# - An acknowledgement of a message's last packet that arrives while rdma_rxe sends that message again, as every
#   responder sends it for a duplicate (rdma_rxe too), advances its comp.psn without completing the message. If the last
#   packet is then lost its retransmission timer stays off, and the message never ends (rxe_comp.c, COMPST_UPDATE_COMP and
#   COMPST_EXIT). Seen with `corrupt`.
# - The response to the first of two repetitions of a READ, arriving after the second was sent, ends the queue pair in
#   check_ack(), with a warning in the kernel log. Seen with `reorder`, and so between two rdma_rxe.
# As the responder it has to serve everything.
RXE_ASKS = ["-s", "0,1,M"]
RXE_ASKS_ALL = {"duplicate"}


def disorder_rxe(report, name, what):
    """The same between ferroce and rdma_rxe. Either asks what it can of the other, first ferroce."""
    with rxe_loaded(), controlled(drivers=(flavour.RXE, flavour.FERROCE)) as ends:
        acquaint(*ends)
        disturb(ends, what)
        # On a busy machine rdma_rxe takes a second to answer, and real losses take half of the retries.
        endure(report, ends, name, "-1", "-t", 17, times=1)
        endure(report, ends[::-1], name, "-1", *(() if name in RXE_ASKS_ALL else RXE_ASKS))


for _name, _what in DISORDERS.items():
    add(f"fault.{_name}", 60, f"every operation through netem {_what}: all of it succeeds",
        disorder, _name, _what)
    # rdma_rxe gives a queue pair up when its own queue refuses a packet (any non-zero return of ip_local_out).
    if "limit" not in _what:
        add(f"fault.rxe-{_name}", 60, f"every operation between ferroce and rdma_rxe through netem {_what}: all succeeds",
            disorder_rxe, _name, _what)


def judge_error(talk, status):
    """The side that asked has an error completion of the right kind; the other learns that it left, or has one too."""
    words = talk.words_of_error()
    require(words, f"no error completion: {status}: {talk.words()}")
    require(set(status) <= {ERROR_COMPLETION, PEER_GONE}, f"ended with {status}: {talk.words()}")
    for text in words:
        require(RETRIES_USED_UP in text, f"an error of another kind: {text}")


@scenario("fault.blackout", 60)
def blackout(report):
    """From one moment on no packet arrives: an error completion in bounded time; afterwards new traffic runs."""
    with controlled() as ends:
        for _ in range(2):
            with Conversation(ends, "-s", "1,M+1,65536") as talk:
                began = time.monotonic()
                disturb(ends, "loss 100%")
                judge_error(talk, talk.ends_within())
                report.note(f"{talk.words()}: {time.monotonic() - began:.1f} s")
            calm(ends)
        exchange(ends, 4)


# One retry takes 2 s at most here, all of them 17 s: a flap ends long before, however slow the machine is.
PATIENT = ("-t", 18, "-s", "1,M+1,65536")


def progress(ends):
    """Waits until a message that had to wait has come, and others behind it: retries are counted from there on."""
    before = [device_counters(end.dev)["rcvd_pkts"] for end in ends]
    wait_until("the conversation goes on", lambda: all(device_counters(end.dev)["rcvd_pkts"] > count + 300
                                                       for end, count in zip(ends, before)), 30)


@scenario("fault.link-flap", 60)
def flap(_report):
    """Either netdev goes down and up again in the middle: the connection survives."""
    with controlled() as ends:
        with Conversation(ends, *PATIENT) as talk:
            for end in ends:
                batch([f"link set {end.netdev} down"], netns=end.netns)
                wait_until("the port is DOWN", lambda e=end: "DOWN" in port_state(e.dev))
                time.sleep(0.2)
                batch([f"link set {end.netdev} up"], netns=end.netns)
                wait_active(end.dev)
                progress(ends)
            talk.finish()


@scenario("fault.mtu", 60)
def mtu(report):
    """The netdev's MTU falls below a packet's size and rises again: the connection survives, and routing learns nothing
    from what was too long meanwhile, which it would remember for ten minutes."""
    with controlled() as ends:
        def left_to_ip():
            # A batch that was made before the change is; it must not go on.
            return sum(ip_counter("FragFails", end.netns) for end in ends)

        def refused():
            return sum(device_counters(end.dev)["send_lost"] for end in ends) - left_to_ip()

        def dropped():
            return sum(tx_dropped(end) for end in ends)

        with Conversation(ends, *PATIENT) as talk:
            # The last time the sender has too small an MTU of its own. Before that it may be the other end alone that
            # has something to send, which is dropped behind its back.
            for some in (ends[:1], ends[1:], ends):
                before = refused(), dropped()
                for size in (900, 4500):
                    for end in some:
                        batch([f"link set {end.netdev} mtu {size}"], netns=end.netns)
                    if size == 900:
                        wait_until("packets are too long",
                                   lambda b=before, s=some: refused() > b[0] or s != ends and dropped() > b[1], 20)
                progress(ends)
            talk.finish()
        for end, other in (ends, reversed(ends)):
            route = command(["ip", "route", "get", other.ip4], netns=end.netns).stdout
            report.note(f"{end.dev}: {counters(end)}")
            require("mtu 900" not in route, f"{left_to_ip()} packets were left to IP, which has learnt: {route}")
        report.note(f"{refused()} packets were refused, {left_to_ip()} left to IP")
        require(left_to_ip() < refused() + BATCH, f"{left_to_ip()} packets were left to IP, {refused()} refused")


@scenario("fault.ethernet-address", 60, rxe="it counts what arrives at the new address as duplicates, and hardly answers")
def ethernet_address(report):
    """The Ethernet address of either netdev changes while messages go: the connection goes on, to the new one."""
    with controlled() as ends:
        # Told by the kernel, as who takes an address over tells it. To find out for itself takes a neighbour up to a minute,
        # and by then the connection has ended.
        for end in ends:
            command(["sysctl", "-q", "-w", f"net.ipv4.conf.{end.netdev}.arp_notify=1"], netns=end.netns)
        for number, (end, other) in enumerate((ends, ends[::-1]), 1):
            with Conversation(ends, *PATIENT) as talk:
                address = f"02:00:00:00:07:0{number}"
                batch([f"link set {end.netdev} address {address}"], netns=end.netns)
                wait_until("the peer knows the new address", lambda a=address, e=end, o=other: a in command(
                    ["ip", "neigh", "show", e.ip4, "dev", o.netdev], netns=o.netns).stdout, 20)
                talk.finish()
        for end in ends:
            report.note(f"{end.dev}: {counters(end)}")


def ip_counter(name, netns):
    shown = in_netns(netns, lambda: read("/proc/thread-self/net/snmp"))
    return int(dict(zip(*(line.split() for line in shown.splitlines() if line.startswith("Ip:"))))[name])
