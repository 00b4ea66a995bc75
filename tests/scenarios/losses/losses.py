# SPDX-License-Identifier: GPL-2.0
"""Losses that must not cost an ACK timeout: what is repeated is lost again, nothing follows what is lost, or the sender's
own queue refuses a packet. The ACK timeout is 17 s here, and is counted: how long anything takes is not looked at."""

from contextlib import nullcontext

from tests.guest import flavour
from tests.guest.cases import run_program
from tests.guest.fabric import acquaint, grown, show_packets, totals
from tests.guest.peer import exchange
from tests.guest.relay import Losses, Relay
from tests.guest.scenario import Failed, add, command, require, scenario
from tests.scenarios.interop.interop import rxe_loaded
from tests.scenarios.losses.fault import controlled
from tests.scenarios.verbs import errors

# Only the client asks, for messages in one piece; the exponent of the ACK timeout.
ASKING = ("-1", "-e", 1, "-t", 22)


# What is lost: operation, size, which packets and how often. See `Losses`.
REQUESTS = {
    "a packet and its repetition": ("w", "8M", {("request", 3): 2}),
    "a packet, and twice a later one": ("s", "8M", {("request", 2): 1, ("request", 5): 2}),
    "the first of more than one invocation executes": ("w", "100M", {("request", 1): 1}),
    "the last packet": ("s", "4M", {("request", 3): 1}),
    "the last two packets": ("w", "4M", {("request", 2): 1, ("request", 3): 1}),
    "the only packet": ("s", "1", {("request", 0): 1}),
    "the acknowledgement": ("w", "4M", {("ack", 3): 1}),
    "a packet, and the NAK": ("w", "8M", {("request", 3): 1, ("nak", 3): 1}),
}
RESPONSES = {
    "a response and its repetition": ("r", "8M", {("response", 3): 2}),
    "the last response": ("r", "4M", {("response", 3): 1}),
    "the only response": ("r", "1", {("response", 0): 1}),
    "the request": ("r", "4M", {("request", 0): 1}),
}


def lose(_report, cases, drivers=None):
    """Each of the losses, on a connection of its own; `drivers` are those of the two, if not ferroce twice."""
    wrong = []
    with rxe_loaded() if drivers else nullcontext(), controlled(bridged=True, drivers=drivers) as ends:
        acquaint(*ends)
        # rdma_rxe has other counters.
        counting = ends[1:] if drivers else ends
        with Relay(ends) as relay:
            for what, (op, size, lost) in cases.items():
                relay.loses = Losses(lost)
                before = totals(counting)
                # A message of one packet goes first: the connection gets to know the round trip.
                exchange(ends, 4, *ASKING, "-o", op, "-s", f"1,{size}")
                relay.loses.require_all()
                now = grown(before, totals(counting))
                if now["ack_timeout"]:
                    wrong.append(what)
    require(not wrong, f"lost, and found by an ACK timeout only: {'; '.join(wrong)}")


add("losses.requests", 120, "requests lost in ways that no NAK tells of: no ACK timeout", lose, REQUESTS,
    rxe="rdma_rxe knows ACK timeouts only")
add("losses.rxe-requests", 120, "the same to rdma_rxe, which says once which packet it misses: no ACK timeout", lose, REQUESTS,
    (flavour.RXE, flavour.FERROCE), rxe="rdma_rxe knows ACK timeouts only")
add("losses.responses", 90, "READ responses and a READ request lost: no ACK timeout", lose, RESPONSES,
    rxe="rdma_rxe knows ACK timeouts only")


def refuse(end, every):
    """Each so many packets of RoCE are refused where the stack hands them to the netdev, and the sender learns of it."""
    command(["tc", "qdisc", "add", "dev", end.netdev, "clsact"], netns=end.netns)
    command(["tc", "filter", "add", "dev", end.netdev, "egress", "protocol", "ip", "u32", "match", "ip", "protocol", "17",
             "0xff", "match", "ip", "dport", "4791", "0xffff", "action", "pass", "random", "determ", "drop", str(every)],
            netns=end.netns)


def refused(_report, who, single):
    """The netdev of the client (1) or of the server (0) refuses every third packet or batch."""
    with controlled() as ends:
        acquaint(*ends)
        if single:
            show_packets(ends)
        refuse(ends[who], 3)
        before = totals(ends)
        try:
            # Neither may a retry be spent: there is none.
            exchange(ends, 4, *ASKING, "-r", 0, "-o", "swr", "-s", "1,M+1,12M", "-n", 2)
        except Failed as e:
            raise Failed(f"{e}; {grown(before, totals(ends))['send_lost']} packets were refused") from None
        now = grown(before, totals(ends))
        require(now["send_lost"] >= 3, "hardly a packet was refused")
        require(not now["ack_timeout"], f"{now['ack_timeout']} ACK timeouts")


for _name, _who in (("client", 1), ("server", 0)):
    for _kind, _single in (("packets", True), ("batches", False)):
        add(f"losses.refused-{_kind}-{_name}", 60,
            f"the {_name}'s own netdev refuses every third of its {_kind}: no ACK timeout, no retry spent",
            refused, _who, _single, rxe="rdma_rxe gives a queue pair up when a packet is refused")


@scenario("losses.refused-naks", 120, rxe="rdma_rxe gives a queue pair up when a packet is refused")
def refused_naks(report):
    """Each end's netdev refuses every second packet: a requester still learns why its request was refused, for the NAK that
    ends a connection waits for the netdev as any response does."""
    with controlled() as ends:
        acquaint(*ends)
        for end in ends:
            refuse(end, 2)
        before = totals(ends)
        errors.judge(report, run_program("table-remote-access", *ends, seconds=90))
        now = grown(before, totals(ends))
        require(now["send_retried"] >= 100, "hardly a packet was refused")
