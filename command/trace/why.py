# SPDX-License-Identifier: GPL-2.0
"""`ferroce trace why`: why a request failed, waited or was repeated, by the module's events."""

import argparse
import errno
from collections import Counter
from collections.abc import Iterator

from .capture import NotReadable
from .events import Event, Events, parse
from .files import contents, write
from .findings import many
from .opcodes import duration

# Access flags of regions.
RIGHTS = {"WRITE": (2, "IBV_ACCESS_REMOTE_WRITE"), "READ": (4, "IBV_ACCESS_REMOTE_READ"),
          "COMPARE": (8, "IBV_ACCESS_REMOTE_ATOMIC"), "FETCH": (8, "IBV_ACCESS_REMOTE_ATOMIC")}
# Where the R_Key is in the headers of a request: behind the BTH and a virtual address.
RKEY = slice(2 * 20, 2 * 24)
# What keeps a packet out, and what is to be done.
DROPS = {
    "drop_icrc": "its ICRC is wrong: something on the way has damaged or rewritten it",
    "drop_ip_header": "it is a fragment, or its IP header has options or is cut off",
    "drop_malformed": "it is no valid packet of RoCE v2",
    "drop_opcode": "the queue pair is of another type than the packet (both ends must be RC, UC or UD), or its opcode is unknown",
    "drop_unknown_qp": "there is no such queue pair: it is destroyed, or the numbers were exchanged wrongly",
    "drop_group": "no queue pair is attached to the group: ibv_attach_mcast, or rdma_join_multicast",
    "drop_address": "its addresses are not those of the connection, or of UD not the device's: compare the GIDs of both ends",
    "drop_interface": "it came by another netdev than that of the device",
    "drop_pkey": "its partition key is not the default one",
    "drop_qkey": "its Q_Key is not that of the queue pair",
    "drop_mad": "a management datagram of a wrong length",
    "drop_state": "the queue pair is in a state that takes no packets",
    "drop_no_memory": "there was no memory for it",
}
GONE = {"DEREGISTER": "deregistered", "INVALIDATE": "invalidated"}
DONE = ("SUCCESS", "WR_FLUSH_ERR")
# An event, and what it comes from.
Reason = tuple[Event, str]
# A cause may be noticed so long, in microseconds, after what it causes.
NEAR = 100_000.0


class Story:
    """A run, with what the rules ask of it."""

    def __init__(self, events: Events):
        self.events = events
        self.peers: dict[str, str] = {}
        for event in events.named("tx", "handed"):
            to = event["dqpn"] or event["to"]
            if event.qpn and to:
                self.peers[event.qpn] = to
        self.types = {event.qpn: event["type"] for event in events.named("qp")}

    def state(self, qpn: str, at: float) -> tuple[str, float, str]:
        """State of a queue pair at a time, since when, and why; empty where nothing is known."""
        last = ("", 0.0, "")
        for event in self.events.named("qp_state", qpn=qpn):
            if event.at <= at:
                last = (event["to"], event.at, event["why"])
        return last

    def recovered(self, qpn: str, what: str, until: float, since: float = 0.0) -> int:
        """How often a requester has met something."""
        return sum(event.number("count") for event in self.events.named("recover", qpn=qpn, what=what)
                   if since <= event.at <= until)

    def dropped(self, dqpn: str, until: float, since: float = 0.0) -> Counter[str]:
        """Packets for a queue pair that were dropped, by their reason."""
        return Counter(event["reason"] for event in self.events.named("drop", dqpn=dqpn) if since <= event.at <= until)

    def is_here(self, qpn: str) -> bool:
        """Whether a queue pair is on this machine, as far as was recorded."""
        return qpn in self.types or any(event.qpn == qpn for event in self.events.named("rx", "request", "qp_state"))

    def taken(self, done: Event) -> Event | None:
        """The WQE of a completion of a send queue."""
        if done["opcode"].startswith("RECV"):
            return None
        found = None
        for event in self.events.named("taken", qpn=done.qpn, wr_id=done["wr_id"]):
            if event.at <= done.at:
                found = event
        return found

    def begun(self, done: Event) -> float:
        """When the WQE of a completion was taken; 0 where that is not known."""
        taken = self.taken(done)
        return taken.at if taken else 0.0

    def last(self, at: float, name: str, **wanted: str) -> Event | None:
        """The last such event up to a little behind this time."""
        found = None
        for event in self.events.named(name, **wanted):
            if event.at <= at + NEAR:
                found = event
        return found

    def whose(self, done: Event) -> str:
        """A request in words."""
        taken = self.taken(done)
        # Of one that could not be read nothing else is known.
        what = f"{taken['opcode']}, {taken['len']} B" if taken and taken["status"] in ("", "SUCCESS") else done["opcode"]
        return f"wr {done.number('wr_id')} of QP {done.qpn} ({what}) ended with {done['status']}"


def with_drops(drops: Counter[str]) -> str:
    """Drops in words."""
    return "; ".join(f"{count} by {reason}: {DROPS.get(reason, reason)}" for reason, count in drops.most_common())


def no_receive(story: Story, done: Event) -> str:
    """RNR_RETRY_EXC_ERR."""
    peer = story.peers.get(done.qpn, "")
    since = story.begun(done)
    naks = story.recovered(done.qpn, "RNR_NAK", done.at, since)
    empty = sum(since <= event.at <= done.at for event in story.events.named("request", qpn=peer, outcome="NO_RECEIVE"))
    had = sum(event.at <= done.at for event in story.events.named("complete", qpn=peer)
              if event["opcode"].startswith("RECV"))
    seen = f", which has completed {many(had, 'receive')} before," if had else ""
    return (f"QP {peer or 'of the peer'}{seen} had no receive {many(max(naks, empty), 'time')}. Post receives before the peer "
            "sends, or set rnr_retry to 7, which is without end")


def no_answer(story: Story, done: Event) -> str:
    """RETRY_EXC_ERR."""
    peer = story.peers.get(done.qpn, "")
    begun = story.begun(done)
    tries = story.recovered(done.qpn, "TIMEOUT", done.at, begun)
    said = f"no answer, {many(tries, 'ACK timeout')} long. " if tries else "it was asked for again and again. "
    drops = story.dropped(peer, done.at, begun)
    state, since, why = story.state(peer, done.at)
    if drops:
        said += f"Its packets came, and were dropped: {with_drops(drops)}"
        if state and state not in ("RTR", "RTS", "SQD"):
            said += f". QP {peer} is in {state} since {duration(int((done.at - since) * 1000))} before ({why.lower()})"
        return said
    back = story.dropped(done.qpn, done.at, begun)
    if back:
        return f"{said}The answers came, and were dropped: {with_drops(back)}"
    if state and state not in ("RTR", "RTS", "SQD"):
        return f"{said}QP {peer} is in {state}, and takes no requests: {why.lower()}"
    if story.is_here(peer):
        return f"{said}QP {peer} is here and has dropped nothing: packets, or its answers, were lost on the way"
    return (f"{said}QP {peer or 'of the peer'} is not on this machine, or nothing has reached it: record there as well. "
            "`ferroce try PEER` says whether a leg is missing")


def no_right(story: Story, done: Event) -> str:
    """REM_ACCESS_ERR."""
    peer = story.peers.get(done.qpn, "")
    taken, request = story.taken(done), None
    for event in story.events.named("tx", qpn=done.qpn, slot=taken["slot"]) if taken else ():
        if (taken and taken.at <= event.at <= done.at and any(word in event["opcode"] for word in RIGHTS)
                and len(event["head"]) >= RKEY.stop):
            request = event
    if not request:
        return (f"QP {peer or 'of the peer'} has refused it: the R_Key is not that of a region of its domain, the range is "
                "outside, or the region lacks the right")
    rkey = int(request["head"][RKEY], 16)
    known = [event for event in story.events.named("key", done="1") if event.number("key") == rkey and event.at <= done.at]
    if not known:
        return (f"the R_Key {rkey:#x} is that of no region or window which was made while this was recorded: was it sent "
                "whole, and in the order of the host?")
    last = known[-1]
    if last["what"] in GONE:
        return f"the R_Key {rkey:#x} was {GONE[last['what']]} {duration(int((done.at - last.at) * 1000))} before"
    for word, (bit, flag) in RIGHTS.items():
        if word in request["opcode"] and not last.number("access") & bit:
            return f"the region of R_Key {rkey:#x} was registered without {flag}"
    return (f"the R_Key {rkey:#x} was given to {last['len']} bytes: the range begins or ends outside, the region is of another "
            f"protection domain than QP {peer}, or the key was a window's that is gone")


def invalid_at_peer(story: Story, done: Event) -> str:
    """REM_INV_REQ_ERR."""
    peer = story.peers.get(done.qpn, "")
    short = story.last(done.at, "complete", qpn=peer, status="LOC_LEN_ERR")
    if short:
        return f"the message was longer than the receive that it took, wr {short.number('wr_id')} of QP {peer}"
    return (f"QP {peer or 'of the peer'} does not permit it: its qp_access_flags lack the right, its max_dest_rd_atomic is less "
            "than our max_rd_atomic, or the message is malformed")


def failed_at_peer(story: Story, done: Event) -> str:
    """REM_OP_ERR."""
    peer = story.peers.get(done.qpn, "")
    bad = story.last(done.at, "complete", qpn=peer, status="LOC_PROT_ERR")
    if bad:
        return (f"the receive that it took, wr {bad.number('wr_id')} of QP {peer}, names memory that is not accessible there: "
                "the fault is in the peer's ibv_post_recv")
    return "the peer could not do it, through no fault of ours"


def too_long(_: Story, done: Event) -> str:
    """LOC_LEN_ERR."""
    if done["opcode"].startswith("RECV"):
        return "the peer's message is longer than this receive; the peer's request ends with REM_INV_REQ_ERR"
    return "the message is longer than the queue pair sends (a packet for UD, 2 GiB for others), or an atomic one has not 8 bytes"


def bad_memory(_: Story, done: Event) -> str:
    """LOC_PROT_ERR."""
    which = "receive" if done["opcode"].startswith("RECV") else "request"
    return (f"a scatter/gather entry of the {which} names memory that its lkey does not cover: a wrong lkey, a range beyond the "
            "region, a region that is deregistered or of another domain, or one without IBV_ACCESS_LOCAL_WRITE that is written")


def bad_use(story: Story, done: Event) -> str:
    """LOC_QP_OP_ERR."""
    if story.types.get(done.qpn) == "UD":
        return ("its address handle is destroyed, or of another domain (it must live until the request has completed), or the "
                "request is malformed")
    return "the queue pair cannot do this: an RDMA READ or atomic operation with max_rd_atomic 0, or a malformed request"


CAUSES = {
    "RNR_RETRY_EXC_ERR": no_receive, "RETRY_EXC_ERR": no_answer, "REM_ACCESS_ERR": no_right,
    "REM_INV_REQ_ERR": invalid_at_peer, "REM_OP_ERR": failed_at_peer, "LOC_LEN_ERR": too_long, "LOC_PROT_ERR": bad_memory,
    "LOC_QP_OP_ERR": bad_use,
    "MW_BIND_ERR": lambda *_: "the region of the window lacks IBV_ACCESS_MW_BIND, is too short or of another domain, or the key "
                              "to be invalidated is not valid",
    "BAD_RESP_ERR": lambda *_: "the peer's response does not fit the request: the peer, or something on the way, is broken",
    "LOC_ACCESS_ERR": lambda *_: "a WRITE with immediate data took this receive, and has no right to write where it wants",
}


def failures(story: Story) -> Iterator[Reason]:
    """Requests that failed by themselves."""
    for done in story.events.named("complete"):
        if done["status"] not in DONE:
            cause = CAUSES.get(done["status"])
            yield done, story.whose(done) + (f": {cause(story, done)}" if cause else "")


def flushes(story: Story) -> Iterator[Reason]:
    """Requests that failed with their queue pair."""
    for qpn, count in Counter(event.qpn for event in story.events.named("complete", status="WR_FLUSH_ERR")).items():
        first = next(story.events.named("complete", qpn=qpn, status="WR_FLUSH_ERR"))
        failed = next((event for event in story.events.named("complete", qpn=qpn) if event["status"] not in DONE), None)
        verb = "was" if count == 1 else "were"
        yield first, (f"{many(count, 'request')} of QP {qpn} {verb} flushed: "
                         + (f"wr {failed.number('wr_id')} failed before" if failed else why_in_error(story, qpn)))


def why_in_error(story: Story, qpn: str) -> str:
    """Why a queue pair went to ERR of which no request failed."""
    refused = [event for event in story.events.named("request", qpn=qpn)
               if event["outcome"] in ("INVALID_REQUEST", "ACCESS_ERROR", "LOCAL_ERROR")]
    if refused:
        return f"it has refused a request of its peer ({refused[-1]['outcome'].lower().replace('_', ' ')}), which ends both"
    entered = [event for event in story.events.named("qp_state", qpn=qpn) if event["to"] in ("ERR", "SQE")]
    if entered and entered[-1]["why"] == "USER":
        return "its program, the connection manager, or the end of the link moved it to ERR"
    made = next(story.events.named("qp", qpn=qpn), None)
    if made and any(event["dev"] == made["dev"] and event["cq"] in (made["send_cq"], made["recv_cq"])
                    for event in story.events.named("cq_event", what="OVERRUN")):
        return "its CQ was full: make it as large as all queues that complete there, and poll it in time"
    return "it is in ERR"


def repairs(story: Story) -> Iterator[Reason]:
    """What was repeated or waited for, and went well in the end."""
    failed = {event.qpn for event in story.events.named("complete") if event["status"] in ("RETRY_EXC_ERR", "RNR_RETRY_EXC_ERR")}
    for qpn in dict.fromkeys(event.qpn for event in story.events.named("recover")):
        if qpn in failed:
            continue
        end = story.events.all[-1].at
        first = next(story.events.named("recover", qpn=qpn))
        peer = story.peers.get(qpn, "")
        lost = with_drops(story.dropped(peer, end) + story.dropped(qpn, end))
        where = f" ({lost})" if lost else " on the way"
        if naks := story.recovered(qpn, "RNR_NAK", end):
            yield first, (f"QP {qpn} has waited for receives of QP {peer} {many(naks, 'time')}: a message came before its "
                          "receive was posted")
        if waits := story.recovered(qpn, "TIMEOUT", end):
            yield first, (f"QP {qpn} has waited for its ACK timeout {many(waits, 'time')}: packets or answers were lost"
                          f"{where}, or the peer is slow")
        losses = sum(story.recovered(qpn, what, end) for what in ("SEQUENCE_NAK", "IMPLIED_NAK"))
        probes = story.recovered(qpn, "TAIL_PROBE", end)
        if losses or probes:
            again = story.recovered(qpn, "RETRANSMITTED", end)
            yield first, (f"QP {qpn} has sent {many(again, 'packet')} again, after {many(losses, 'NAK')} and "
                          f"{many(probes, 'probe')}: packets or answers were lost or late{where}")
        if slower := story.recovered(qpn, "SLOWDOWN", end):
            yield first, (f"QP {qpn} has made its window smaller {many(slower, 'time')}: the network marks its packets in place "
                          f"of dropping them, for they wait in a queue on the way to QP {peer or 'of the peer'}, or back")


def drops(story: Story) -> Iterator[Reason]:
    """Packets for which nobody was there, or of a queue pair that sends no more."""
    told = set(story.peers) | set(story.peers.values())
    for event in story.events.named("drop"):
        if event["dqpn"] not in told:
            told.add(event["dqpn"])
            yield event, (f"packets for QP {event['dqpn']} were dropped: "
                             f"{with_drops(story.dropped(event['dqpn'], story.events.all[-1].at))}")


def verbs(story: Story) -> Iterator[Reason]:
    """Verbs that failed."""
    seen = set()
    for event in story.events.named("verb_done"):
        ret = event.number("ret")
        if -4096 < ret < 0 and (event["op"], ret) not in seen:
            seen.add((event["op"], ret))
            name = errno.errorcode.get(-ret, str(-ret))
            yield event, (f"{event['op']} failed with {name}: libibverbs' log, or dynamic debug of the module, says which "
                             "attribute (Documentation/debugging.md)")


RULES = (failures, flushes, repairs, drops, verbs)


def explained(events: Events) -> list[Reason]:
    """All that is to be said, each beside its event, in the order in which it happened."""
    story = Story(events)
    found = sorted((one for rule in RULES for one in rule(story)), key=lambda one: one[0].at)
    perhaps = "perhaps: " if events.lost else ""
    return [(event, f"{perhaps}{said}") for event, said in found]


def losses(events: Events) -> list[str]:
    """What is to be said of events that are not there."""
    return [f"{many(events.lost, 'event')} had no room in the buffer: what is said may be wrong"] if events.lost else []


def reasons(events: Events) -> list[str]:
    """The sentences alone."""
    return [said for _, said in explained(events)] + losses(events)


def draw(events: Events) -> str:
    """The text of it."""
    if not events.all:
        return "no event of the module was recorded\n"
    found = reasons(events)
    return "".join(f"- {one}\n" for one in found) if found else "nothing failed, waited or was repeated\n"


def run(args: argparse.Namespace) -> int:
    """Says why, by recorded events; raises NotReadable where there are none."""
    events = Events()
    for path in args.files:
        events.add(parse(contents(path).decode(errors="replace")))
    if not events.all:
        raise NotReadable(f"{', '.join(args.files)}: no event of ferroce; see `ferroce trace -- PROGRAM`")
    write(draw(events), args.output)
    return 0
