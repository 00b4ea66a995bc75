# SPDX-License-Identifier: GPL-2.0
"""`ferroce trace why`: why a request failed, waited or was repeated, by the module's events."""

import argparse
import errno
import os
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator

from .capture import NotReadable
from .events import Event, Events, parse
from .files import contents, write
from .opcodes import duration
from .sentences import SENTENCES, language, say

# Access flags of regions.
RIGHTS = {"WRITE": (2, "IBV_ACCESS_REMOTE_WRITE"), "READ": (4, "IBV_ACCESS_REMOTE_READ"),
          "COMPARE": (8, "IBV_ACCESS_REMOTE_ATOMIC"), "FETCH": (8, "IBV_ACCESS_REMOTE_ATOMIC")}
# Where the R_Key is in the headers of a request: behind the BTH and a virtual address.
RKEY = slice(2 * 20, 2 * 24)
# What may have happened to a key, and what is said of it.
GONE = {"DEREGISTER": "deregistered", "INVALIDATE": "invalidated"}
DONE = ("SUCCESS", "WR_FLUSH_ERR")
# An event, and what it comes from.
Reason = tuple[Event, str]
# A cause may be noticed so long, in microseconds, after what it causes.
NEAR = 100_000.0


class Story:
    """A run, with what the rules ask of it, and the language to tell it in."""

    def __init__(self, events: Events, lang: str):
        self.events = events
        self.lang = lang
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

    def aim(self, done: Event) -> str:
        """The peer of a request, also of one that was dropped before anything was handed over: then it is the only one for
        which packets were dropped meanwhile."""
        since = self.begun(done)
        known = self.peers.get(done.qpn, "")
        others = {event["dqpn"] for event in self.events.named("drop") if since <= event.at <= done.at} - set(self.peers.values())
        return known or (others.pop() if len(others) == 1 else "")

    def outcomes(self, qpn: str, until: float, since: float) -> Counter[str]:
        """What became of requests at their responder."""
        return Counter(event["outcome"] for event in self.events.named("request", qpn=qpn) if since <= event.at <= until)

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

    def say(self, name: str, /, **values: object) -> str:
        """A sentence of the catalogue, or a part of one."""
        return say(self.lang, name, **values)

    def peer(self, done: Event) -> str:
        """The queue pair at the other end, in words."""
        return self.named(self.peers.get(done.qpn, ""))

    def named(self, qpn: str) -> str:
        """A queue pair at the other end, in words, which need not be known."""
        return self.say("qp", qpn=qpn) if qpn else self.say("qp_of_peer")

    def ended(self, done: Event) -> str:
        """A request in words."""
        taken = self.taken(done)
        # Of one that could not be read nothing else is known.
        what = f"{taken['opcode']}, {taken['len']} B" if taken and taken["status"] in ("", "SUCCESS") else done["opcode"]
        return self.say("ended", wr=done.number("wr_id"), qpn=done.qpn, what=what, status=done["status"])

    def drops(self, drops: Counter[str]) -> str:
        """Drops in words."""
        return self.say("and").join(
            self.say("drop", count=count, reason=reason, meaning=self.say(reason) if reason in SENTENCES else reason)
            for reason, count in drops.most_common())


def no_receive(story: Story, done: Event) -> str:
    """RNR_RETRY_EXC_ERR."""
    qpn, peer = story.peers.get(done.qpn, ""), story.peer(done)
    since = story.begun(done)
    naks = story.recovered(done.qpn, "RNR_NAK", done.at, since)
    empty = sum(since <= event.at <= done.at for event in story.events.named("request", qpn=qpn, outcome="NO_RECEIVE"))
    had = sum(event.at <= done.at for event in story.events.named("complete", qpn=qpn)
              if event["opcode"].startswith("RECV"))
    return story.say("no_receive", peer=story.say("had_receives", peer=peer, had=had) if had else peer, times=max(naks, empty))


def no_answer(story: Story, done: Event) -> str:
    """RETRY_EXC_ERR."""
    begun = story.begun(done)
    tries = story.recovered(done.qpn, "TIMEOUT", done.at, begun)
    where = where_lost(story, done, begun)
    return story.say("no_answer", tries=tries, where=where) if tries else story.say("asked_again_and_again", where=where)


def where_lost(story: Story, done: Event, begun: float) -> str:
    """What became of requests that have no answer."""
    qpn = story.aim(done)
    peer = story.named(qpn)
    state, since, why = story.state(qpn, done.at)
    deaf = state not in ("", "RTR", "RTS", "SQD")
    if drops := story.dropped(qpn, done.at, begun):
        if deaf:
            return story.say("requests_dropped_in_state", drops=story.drops(drops), peer=peer, state=state,
                             ago=ago(done, since), why=why.lower())
        return story.say("requests_dropped", drops=story.drops(drops))
    if back := story.dropped(done.qpn, done.at, begun):
        return story.say("answers_dropped", drops=story.drops(back))
    if deaf:
        return story.say("takes_no_requests", peer=peer, state=state, why=why.lower())
    came = story.outcomes(qpn, done.at, begun)
    if came and "EXECUTED" not in came:
        told = ", ".join(f"{count} {what.lower().replace('_', ' ')}" for what, count in came.most_common())
        return story.say("none_executed", peer=peer, told=told)
    if story.is_here(qpn):
        return story.say("lost_on_the_way", peer=peer)
    return story.say("not_here", peer=peer)


def no_right(story: Story, done: Event) -> str:
    """REM_ACCESS_ERR."""
    taken, request = story.taken(done), None
    for event in story.events.named("tx", qpn=done.qpn, slot=taken["slot"]) if taken else ():
        if (taken and taken.at <= event.at <= done.at and any(word in event["opcode"] for word in RIGHTS)
                and len(event["head"]) >= RKEY.stop):
            request = event
    if not request:
        return story.say("no_right", peer=story.peer(done))
    rkey = int(request["head"][RKEY], 16)
    known = [event for event in story.events.named("key", done="1") if event.number("key") == rkey and event.at <= done.at]
    if not known:
        return story.say("unknown_key", rkey=rkey)
    last = known[-1]
    if last["what"] in GONE:
        return story.say(GONE[last["what"]], rkey=rkey, ago=ago(done, last.at))
    for word, (bit, flag) in RIGHTS.items():
        if word in request["opcode"] and not last.number("access") & bit:
            return story.say("access_flag_missing", rkey=rkey, flag=flag)
    is_atomic = "COMPARE" in request["opcode"] or "FETCH" in request["opcode"]
    return story.say("outside_of_region_or_not_aligned" if is_atomic else "outside_of_region", rkey=rkey, size=last["len"],
                     peer=story.peer(done))


def invalid_at_peer(story: Story, done: Event) -> str:
    """REM_INV_REQ_ERR."""
    short = story.last(done.at, "complete", qpn=story.peers.get(done.qpn, ""), status="LOC_LEN_ERR")
    if short:
        return story.say("longer_than_receive", wr=short.number("wr_id"), peer=story.peer(done))
    return story.say("not_permitted", peer=story.peer(done))


def failed_at_peer(story: Story, done: Event) -> str:
    """REM_OP_ERR."""
    qpn = story.peers.get(done.qpn, "")
    malformed = story.last(done.at, "complete", qpn=qpn, status="LOC_QP_OP_ERR")
    if malformed and malformed["opcode"].startswith("RECV"):
        return story.say("malformed_receive_of_peer", wr=malformed.number("wr_id"), peer=story.peer(done))
    bad = story.last(done.at, "complete", qpn=qpn, status="LOC_PROT_ERR")
    return story.say("bad_receive", wr=bad.number("wr_id"), peer=story.peer(done)) if bad else story.say("peer_failed")


def too_long(story: Story, done: Event) -> str:
    """LOC_LEN_ERR."""
    return story.say("receive_too_short" if done["opcode"].startswith("RECV") else "too_long")


def bad_memory(story: Story, done: Event) -> str:
    """LOC_PROT_ERR."""
    return story.say("bad_memory", what=story.say("receive" if done["opcode"].startswith("RECV") else "request"))


def bad_use(story: Story, done: Event) -> str:
    """LOC_QP_OP_ERR."""
    if done["opcode"].startswith("RECV"):
        return story.say("malformed_receive")
    return story.say("bad_address_handle" if story.types.get(done.qpn) == "UD" else "qp_cannot")


CAUSES: dict[str, Callable[[Story, Event], str]] = {
    "RNR_RETRY_EXC_ERR": no_receive, "RETRY_EXC_ERR": no_answer, "REM_ACCESS_ERR": no_right,
    "REM_INV_REQ_ERR": invalid_at_peer, "REM_OP_ERR": failed_at_peer, "LOC_LEN_ERR": too_long, "LOC_PROT_ERR": bad_memory,
    "LOC_QP_OP_ERR": bad_use,
    "MW_BIND_ERR": lambda story, _: story.say("cannot_bind"),
    "BAD_RESP_ERR": lambda story, _: story.say("bad_response"),
    "LOC_ACCESS_ERR": lambda story, _: story.say("immediate_without_right"),
}


def ago(done: Event, before: float) -> str:
    """How long before a completion it was."""
    return duration(int((done.at - before) * 1000))


def failures(story: Story) -> Iterator[Reason]:
    """Requests that failed by themselves."""
    for done in story.events.named("complete"):
        if done["status"] not in DONE:
            cause = CAUSES.get(done["status"])
            ended = story.ended(done)
            yield done, story.say("because", ended=ended, cause=cause(story, done)) if cause else ended


def flushes(story: Story) -> Iterator[Reason]:
    """Requests that failed with their queue pair."""
    for qpn, count in Counter(event.qpn for event in story.events.named("complete", status="WR_FLUSH_ERR")).items():
        first = next(story.events.named("complete", qpn=qpn, status="WR_FLUSH_ERR"))
        failed = next((event for event in story.events.named("complete", qpn=qpn) if event["status"] not in DONE), None)
        why = story.say("one_failed_before", wr=failed.number("wr_id")) if failed else why_in_error(story, qpn)
        yield first, story.say("flushed", count=count, qpn=qpn, why=why)


def why_in_error(story: Story, qpn: str) -> str:
    """Why a queue pair went to ERR of which no request failed."""
    refused = [event for event in story.events.named("request", qpn=qpn)
               if event["outcome"] in ("INVALID_REQUEST", "ACCESS_ERROR", "LOCAL_ERROR")]
    if refused:
        return story.say("has_refused", outcome=refused[-1]["outcome"].lower().replace("_", " "))
    entered = [event for event in story.events.named("qp_state", qpn=qpn) if event["to"] in ("ERR", "SQE")]
    if entered and entered[-1]["why"] == "USER":
        return story.say("moved_by_user")
    made = next(story.events.named("qp", qpn=qpn), None)
    if made and any(event["dev"] == made["dev"] and event["cq"] in (made["send_cq"], made["recv_cq"])
                    for event in story.events.named("cq_event", what="OVERRUN")):
        return story.say("cq_full")
    return story.say("in_err")


def repairs(story: Story) -> Iterator[Reason]:
    """What was repeated or waited for, and went well in the end."""
    failed = {event.qpn for event in story.events.named("complete") if event["status"] in ("RETRY_EXC_ERR", "RNR_RETRY_EXC_ERR")}
    for qpn in dict.fromkeys(event.qpn for event in story.events.named("recover")):
        if qpn in failed:
            continue
        end = story.events.all[-1].at
        first = next(story.events.named("recover", qpn=qpn))
        peer = story.peers.get(qpn, "")
        lost = story.dropped(peer, end) + story.dropped(qpn, end)
        where = story.say("where_dropped", drops=story.drops(lost)) if lost else story.say("on_the_way")
        if naks := story.recovered(qpn, "RNR_NAK", end):
            yield first, story.say("waited_for_receives", qpn=qpn, peer=story.peer(first), naks=naks)
        if waits := story.recovered(qpn, "TIMEOUT", end):
            yield first, story.say("waited_for_ack", qpn=qpn, waits=waits, where=where)
        naks = sum(story.recovered(qpn, what, end) for what in ("SEQUENCE_NAK", "IMPLIED_NAK"))
        probes = story.recovered(qpn, "TAIL_PROBE", end)
        if naks or probes:
            again = story.recovered(qpn, "RETRANSMITTED", end)
            yield first, story.say("sent_again", qpn=qpn, again=again, naks=naks, probes=probes, where=where)
        if slower := story.recovered(qpn, "SLOWDOWN", end):
            yield first, story.say("slowed_down", qpn=qpn, times=slower, peer=story.peer(first))


def drops(story: Story) -> Iterator[Reason]:
    """Packets for which nobody was there, or of a queue pair that sends no more."""
    told = set(story.peers) | set(story.peers.values())
    told |= {story.aim(done) for done in story.events.named("complete", status="RETRY_EXC_ERR")}
    for event in story.events.named("drop"):
        if event["dqpn"] not in told:
            told.add(event["dqpn"])
            dropped = story.dropped(event["dqpn"], story.events.all[-1].at)
            yield event, story.say("packets_dropped", qpn=event["dqpn"], drops=story.drops(dropped))


def verbs(story: Story) -> Iterator[Reason]:
    """Verbs that failed."""
    seen = set()
    for event in story.events.named("verb_done"):
        ret = event.number("ret")
        if -4096 < ret < 0 and (event["op"], ret) not in seen:
            seen.add((event["op"], ret))
            yield event, story.say("verb_failed", verb=event["op"], error=errno.errorcode.get(-ret, str(-ret)))


def missed(story: Story) -> Iterator[Reason]:
    """Completions that were there when their queue was armed, and not looked for then. The provider's probes tell of it."""
    added: dict[tuple[str, str], list[float]] = defaultdict(list)
    armed: dict[tuple[int, str], float] = {}
    for event in story.events.named("complete", "user_arm", "user_polled"):
        if event.name == "complete":
            added[event.qpn, event["wr_id"]].append(event.at)
            continue
        queue = event.thread, event["cq"]
        if event.name == "user_arm":
            armed[queue] = event.at
            continue
        since, own = armed.pop(queue, None), added[event.qpn, event["wr_id"]]
        at = own.pop(0) if own else None
        if since is not None and at is not None and at < since and event.at - since > NEAR:
            yield event, story.say("missed", wr=event.number("wr_id"), qpn=event.qpn, before=duration((since - at) * 1000),
                                   after=duration((event.at - since) * 1000))


def binds(story: Story) -> Iterator[Reason]:
    """Addresses that were not bound: by the kernel, or by librdmacm, which both say ENODEV. The kernel's event tells which.
    Where libibverbs lists no device at all, librdmacm does not come so far."""
    begun: set[int] = set()
    attached: dict[int, Event] = {}
    for event in story.events.named("call", "call_done", "cm_id_attach"):
        if event.name == "cm_id_attach":
            attached[event.thread] = event
        elif event["op"] == "rdma_create_event_channel" and event.name == "call_done" and not event.number("ret"):
            yield event, story.say("none_listed")
        elif event["op"] != "rdma_bind_addr":
            continue
        elif event.name == "call":
            begun.add(event.thread)
            attached.pop(event.thread, None)
        elif event.number("ret") & 0x80000000 and event.thread in begun:
            bound = attached.get(event.thread)
            yield event, story.say("bound_not_listed", device=bound["device"]) if bound else story.say("not_bound")


RULES = (failures, flushes, repairs, drops, verbs, missed, binds)


def explained(events: Events, lang: str = "en") -> list[Reason]:
    """All that is to be said, each beside its event, in the order in which it happened."""
    story = Story(events, lang)
    found = sorted((one for rule in RULES for one in rule(story)), key=lambda one: one[0].at)
    return [(event, story.say("perhaps", said=said) if events.lost else said) for event, said in found]


def losses(events: Events, lang: str = "en") -> list[str]:
    """What is to be said of events that are not there."""
    return [say(lang, "events_lost", lost=events.lost)] if events.lost else []


def reasons(events: Events, lang: str = "en") -> list[str]:
    """The sentences alone."""
    return [said for _, said in explained(events, lang)] + losses(events, lang)


def draw(events: Events, lang: str = "en") -> str:
    """The text of it."""
    if not events.all:
        return say(lang, "nothing_recorded") + "\n"
    found = reasons(events, lang)
    return "".join(f"- {one}\n" for one in found) or say(lang, "nothing_happened") + "\n"


def run(args: argparse.Namespace) -> int:
    """Says why, by recorded events; raises NotReadable where there are none."""
    events = Events()
    for path in args.files:
        events.add(parse(contents(path).decode(errors="replace")))
    if not events.all:
        raise NotReadable(f"{', '.join(args.files)}: no event of ferroce; see `ferroce trace -- PROGRAM`")
    write(draw(events, args.lang or language(os.environ)), args.output)
    return 0
