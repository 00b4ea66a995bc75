# SPDX-License-Identifier: GPL-2.0
"""What the module has done at an end of a conversation, beside the packets: calls, requests, completions, states, losses."""

import errno
from collections import defaultdict
from dataclasses import dataclass, field

from . import opcodes
from .calls import POINTERS
from .events import Event, Events

# Kinds of marks, by which a reader chooses.
CALL, QUEUE, STATE, LOSS = "call", "queue", "state", "loss"
# Verbs that ib_core calls for itself, and that say nothing about a program.
INNER = ("get_link_layer", "get_dev_fw_str", "get_port_immutable", "get_netdev", "mmap_free", "query_port", "query_gid")
# Who serves a doorbell.
SERVERS = {"INLINE": "the caller sends", "INVITES": "the caller sends, and asks for help", "NEAR": "a worker on this CPU sends",
           "FAR": "a worker on another CPU sends", "TIMER": "a timer sends", "MOVING": "it is being moved to another CPU",
           "OTHER": "somebody sends already"}
MET = {"TIMEOUT": "ACK timeout", "RNR_NAK": "RNR NAK: it waits for a receive", "SEQUENCE_NAK": "sequence NAK",
       "IMPLIED_NAK": "a READ response is missing", "FATAL_NAK": "fatal NAK", "TAIL_PROBE": "no answer: tail probe",
       "SLOWDOWN": "the network marks packets: the window shrinks", "RETRANSMITTED": "packets go out again", "BAD_RESPONSE": "bad response",
       "DUPLICATE_RESPONSE": "a response came again", "UNEXPECTED_RESPONSE": "a response that nobody asked for",
       "OUT_OF_SEQUENCE_RESPONSE": "a response out of sequence"}
# What the provider's probes have as numbers of libibverbs.
REQUESTS = {0: "WRITE", 1: "WRITE_IMM", 2: "SEND", 3: "SEND_IMM", 4: "READ", 5: "COMPARE_SWAP", 6: "FETCH_ADD", 7: "LOCAL_INV",
            8: "BIND_MW", 9: "SEND_INV", 14: "FLUSH", 15: "ATOMIC_WRITE"}
STATUSES = ("SUCCESS", "LOC_LEN_ERR", "LOC_QP_OP_ERR", "LOC_EEC_OP_ERR", "LOC_PROT_ERR", "WR_FLUSH_ERR", "MW_BIND_ERR",
            "BAD_RESP_ERR", "LOC_ACCESS_ERR", "REM_INV_REQ_ERR", "REM_ACCESS_ERR", "REM_OP_ERR", "RETRY_EXC_ERR",
            "RNR_RETRY_EXC_ERR")
CQ_NEWS = {"RAISED": "event raised", "HELD_BACK": "event held back", "DELIVERED": "event delivered", "OVERRUN": "overrun: it is full"}


@dataclass
class Mark:
    """An event at an end; times are nanoseconds by the clock of the packets."""

    at: int
    event: Event
    kind: str
    label: str
    rightward: bool = False
    # Such as the legs of what is completed here.
    remark: str = ""
    # Why, in a sentence.
    why: str = ""
    # How many calls it is within.
    depth: int = 0
    # How long a call, or the way of a WQE that is completed here, has taken.
    took: int | None = None
    bad: bool = False
    number: int = 0
    # Of so many events, which are alike.
    count: int = 1


@dataclass
class Work:
    """A WQE on its way: when it came to each step."""

    wr_id: str
    slot: str
    steps: dict[str, float] = field(default_factory=dict)
    psn: str = ""


# The steps of a WQE, each with what it has reached then.
STEPS = {"posted": "", "doorbell": "doorbell", "taken": "taken", "first": "first packet", "last": "last packet", "arrived": "there",
         "answered": "answered", "back": "answer here", "done": "completed"}


def legs(work: Work) -> str:
    """How long each step has taken, in words."""
    known = [(step, work.steps[step]) for step in STEPS if step in work.steps]
    # What is answered before its last packet came is answered for an earlier one.
    told, last = [], known[0][1]
    for step, at in known[1:]:
        if at >= last and not (step == "last" and at == work.steps.get("first")):
            told.append(f"{STEPS[step]} +{(at - last):.0f}")
            last = at
    return f"in {opcodes.duration((last - known[0][1]) * 1000)}: {', '.join(told)} us"


class Steps:
    """Follows each WQE from where it was posted, or from its doorbell, to its completion."""

    def __init__(self) -> None:
        self.posted: dict[tuple[str, int], float] = {}
        self.rung: dict[str, float] = {}
        self.works: dict[str, list[Work]] = defaultdict(list)
        self.arrived: dict[tuple[str, str], float] = {}
        self.answered: dict[str, float] = {}
        self.back: dict[str, float] = {}

    def see(self, event: Event) -> None:
        """An event, in their order."""
        qpn, works = event.qpn, self.works[event.qpn]
        if event.name == "user_post_send":
            self.posted[qpn, event.number("index")] = event.at
        elif event.name == "doorbell" and event["producer"] != event["taken"]:
            self.rung.setdefault(qpn, event.at)
        elif event.name == "taken":
            work = Work(event["wr_id"], event["slot"], {"taken": event.at})
            posted = self.posted.pop((qpn, event.number("index")), None)
            if posted is not None:
                work.steps["posted"] = posted
            if qpn in self.rung:
                work.steps["doorbell"] = self.rung.pop(qpn)
            works.append(work)
        elif event.name in ("tx", "handed"):
            self.sent(event, works)
        elif event.name == "rx":
            self.arrived[event["dqpn"], event["psn"]] = event.at
        elif event.name == "ack":
            self.back[qpn] = event.at

    def sent(self, event: Event, works: list[Work]) -> None:
        """A packet leaves, or something is handed over."""
        to = event["dqpn"] or event["to"]
        slot = event["slot"]
        if event.name == "handed":
            self.arrived[to, event["psn"]] = event.at
            slot = "-1" if event["opcode"] == "RC_ACKNOWLEDGE" else works[-1].slot if works else "-1"
        if slot == "-1":
            self.answered[to] = event.at
            return
        work = next((one for one in reversed(works) if one.slot == slot), None)
        if work:
            work.steps.setdefault("first", event.at)
            work.steps["last"], work.psn = event.at, event["psn"]

    def done(self, event: Event, peer: str) -> Work | None:
        """The WQE that a completion of a send queue is of, and all that was not signaled before it."""
        works = self.works[event.qpn]
        place = next((n for n, one in enumerate(works) if one.wr_id == event["wr_id"]), None)
        if event["opcode"].startswith("RECV") or place is None:
            return None
        work = works[place]
        del works[:place + 1]
        work.steps["done"] = event.at
        begun = work.steps["taken"]
        for step, at in (("arrived", self.arrived.get((peer, work.psn), 0)), ("answered", self.answered.get(event.qpn, 0)),
                         ("back", self.back.get(event.qpn, 0))):
            if at >= begun:
                work.steps[step] = at
        return work


class Marks:
    """All marks of a run, by the queue pair that they belong to; those of none are by their process."""

    def __init__(self, events: Events, ahead: int):
        self.ahead = ahead
        self.steps = Steps()
        self.by_qp: dict[int, list[Mark]] = defaultdict(list)
        self.by_process: dict[tuple[str, int], list[Mark]] = defaultdict(list)
        self.made = {event.qpn: event for event in events.named("qp")}
        # Of threads: who made which queue pairs, and calls that have not returned.
        self.owners = {event.qpn: event.thread for event in events.named("qp")}
        self.open: dict[int, list[Mark]] = defaultdict(list)
        self.within: dict[int, dict[int, set[int]]] = defaultdict(dict)
        self.completed: dict[tuple[str, str], str] = {}
        # By the thread that polls and the number that its process has for a CQ: the queue pair whose completion was the last.
        self.polled: dict[tuple[int, str], str] = {}
        # When a CQE was added that the program has not seen.
        self.unseen: dict[tuple[str, str], list[float]] = defaultdict(list)
        # Which mark an event has become.
        self.marked: dict[int, Mark] = {}
        self.peers = {event.qpn: event["dqpn"] or event["to"] for event in events.named("tx", "handed")}
        self.management = ({event.qpn for event in events.named("tx", dqpn="0x1")}
                           | {event.qpn for event in events.named("qp", type="GSI")})
        for event in events.all:
            self.steps.see(event)
            self.take(event)

    def take(self, event: Event) -> None:
        """Makes the mark of an event, if it is to be seen."""
        if event.name in ("verb", "verb_done", "call", "call_done"):
            self.call(event)
            return
        maker = getattr(self, f"of_{event.name}", None)
        mark = maker(event) if maker else None
        if mark:
            self.marked[id(event)] = mark
        qpn = event.qpn or self.of_cq(event)
        if mark and not (qpn in self.management and not mark.bad):
            self.place(mark, qpn)

    def place(self, mark: Mark, qpn: str) -> None:
        """Puts it where it belongs."""
        event = mark.event
        calls = self.open[event.thread]
        if not qpn:
            mark.depth = len(calls)
            self.by_process[event.task, event.thread].append(mark)
            return
        try:
            number = int(qpn, 0)
        except ValueError:
            raise event.damaged("qpn") from None
        if self.owners.get(qpn) == event.thread and calls:
            mark.depth = len(calls)
            for call in calls:
                self.within[event.thread].setdefault(id(call), set()).add(number)
        self.by_qp[number].append(mark)

    def of_cq(self, event: Event) -> str:
        """The queue pair that an event of a CQ is about: the one that has completed there last."""
        if event.name == "async_event":
            return event["id"] if event["object"] == "QP" else ""
        if event.name == "user_arm":
            return self.polled.get((event.thread, event["cq"]), "")
        return self.completed.get((event["dev"], event["cq"]), "") if event.name == "cq_event" else ""

    def call(self, event: Event) -> None:
        """A call begins or ends; one within which nothing is seen is one mark."""
        op, calls = event["op"], self.open[event.thread]
        if op in INNER and event["ret"] in ("", "0"):
            return
        kind = "" if event.name.startswith("verb") else "()"
        if event.name in ("verb", "call"):
            device = f" {event['dev']}" if event["dev"] else ""
            mark = Mark(self.time(event), event, CALL, f"{op}{kind or device} begins", depth=len(calls))
            calls.append(mark)
            self.by_process[event.task, event.thread].append(mark)
            return
        place = next((n for n in reversed(range(len(calls))) if calls[n].event["op"] == op), None)
        if place is None:
            return
        begun = calls[place]
        # One whose return nobody has seen ends with the one around it.
        del calls[place:]
        begun.took = round((event.at - begun.event.at) * 1000)
        said, bad = outcome(event)
        # The text of an event has microseconds.
        said += f", {opcodes.duration(begun.took) if begun.took else '<1 us'}"
        qpns = self.within[event.thread].pop(id(begun), set())
        # Its name may not have been known when the call began.
        own = self.by_process[begun.event.task, event.thread]
        if len(qpns) == 1:
            # What is about one queue pair stands beside it.
            # It is one of the last.
            del own[next(n for n in reversed(range(len(own))) if own[n] is begun)]
            own = self.by_qp[next(iter(qpns))]
            own.append(begun)
        inside = bool(qpns) or own[-1] is not begun
        if inside:
            self.marked[id(event)] = Mark(self.time(event), event, CALL, f"{op} returns {said}", depth=begun.depth, bad=bad)
            own.append(self.marked[id(event)])
        else:
            self.marked[id(event)] = begun
            begun.label, begun.bad = f"{begun.label.removesuffix(' begins')}: {said}", bad
            begun.event = replace_fields(begun.event, event)

    def time(self, event: Event) -> int:
        """When, by the clock of the packets."""
        return round(event.at * 1000) + self.ahead

    def mark(self, event: Event, kind: str, label: str, bad: bool = False, remark: str = "") -> Mark:
        """A mark of an event."""
        return Mark(self.time(event), event, kind, label, bad=bad, remark=remark)

    # ---- one function for each event that is shown

    def of_qp_state(self, event: Event) -> Mark:
        """A state."""
        cause = event["why"].lower().replace("_", " ")
        return self.mark(event, STATE, f"{event['from']} -> {event['to']} ({cause})", event["to"] in ("ERR", "SQE"))

    def of_qp(self, event: Event) -> Mark:
        """A queue pair is there."""
        return self.mark(event, STATE, f"QP {event.qpn}, {event['type']}: {event['max_send_wr']} send, {event['max_recv_wr']} "
                         f"receive WQEs; CQs {event['send_cq']}, {event['recv_cq']}")

    def of_doorbell(self, event: Event) -> Mark | None:
        """A doorbell, unless it finds nothing."""
        count = event.number("producer") - event.number("taken") & 0xffffffff
        return self.mark(event, QUEUE, f"doorbell for {count} WQE{'s' * (count != 1)}: {SERVERS.get(event['by'], event['by'])}"
                         ) if count else None

    def of_taken(self, event: Event) -> Mark:
        """A WQE."""
        flags = "".join(f", {flag}" for flag in ("signaled", "fence", "solicited") if event[flag] == "1")
        good = event["status"] in ("", "SUCCESS")
        return self.mark(event, QUEUE, f"WQE {event['index']}: wr {event.number('wr_id')} {event['opcode']} {event['len']} B{flags}"
                         + ("" if good else f": {event['status']}"), not good)

    def of_complete(self, event: Event) -> Mark:
        """A CQE, with the way of its WQE."""
        work = self.steps.done(event, self.peers.get(event.qpn, ""))
        self.unseen[event.qpn, event["wr_id"]].append(event.at)
        made = self.made.get(event.qpn)
        if made:
            self.completed[made["dev"], event["cq"]] = event.qpn
        error = "" if event["vendor_err"] in ("", "0x0") else f", vendor_err {event['vendor_err']}"
        mark = self.mark(event, QUEUE, f"CQE: wr {event.number('wr_id')} {event['opcode']} {event['status']}, {event['byte_len']} B"
                         f"{error}", event["status"] != "SUCCESS", legs(work) if work else "")
        if work:
            mark.took = round((event.at - min(work.steps.values())) * 1000)
        return mark

    def of_recover(self, event: Event) -> Mark:
        """A loss, or what is done about it."""
        count = f" ({event['count']})" if event["count"] not in ("", "1") else ""
        left = f"from PSN {event['una']}; {event['retries']} retries and {event['rnr_retries']} RNR retries left"
        return self.mark(event, LOSS, f"{MET.get(event['what'], event['what'])}{count}", True, left if event["retries"] else "")

    def of_unsent(self, event: Event) -> Mark:
        """The stack has refused packets."""
        return self.mark(event, LOSS, f"not sent from PSN {event['psn']}: {event['what'].lower()}", True)

    def of_cq_event(self, event: Event) -> Mark:
        """Of a CQ."""
        return self.mark(event, QUEUE, f"CQ {event['cq']}: {CQ_NEWS.get(event['what'], event['what'])}", event["what"] == "OVERRUN")

    def of_async_event(self, event: Event) -> Mark:
        """Of anything."""
        return self.mark(event, STATE, f"asynchronous event of {event['object']}: {event['event']}", True)

    def of_key(self, event: Event) -> Mark:
        """A key, whose value is nobody's business."""
        done = "" if event["done"] == "1" else ", which fails"
        return self.mark(event, CALL, f"key: {event['what'].lower()}, {event['len']} B, access {event['access']}, "
                         f"{event['pieces']} piece{'s' * (event['pieces'] != '1')}{done}", event["done"] != "1")

    def of_user_post_send(self, event: Event) -> Mark:
        """A program posts a request."""
        opcode = event.number("opcode")
        return self.mark(event, QUEUE, f"{REQUESTS.get(opcode, f'opcode {opcode}')} posted: wr {event.number('wr_id')}, WQE {event['index']}")

    def of_user_post_recv(self, event: Event) -> Mark | None:
        """A receive. Programs begin with hundreds: those that are posted one behind the other are one mark."""
        own, what = self.by_qp[int(event.qpn, 0)], f"wr {event.number('wr_id')}, WQE {event['index']}"
        if own and own[-1].event.name == event.name and own[-1].event.thread == event.thread:
            own[-1].count += 1
            own[-1].label = f"{own[-1].count} receives posted, the last one {what}"
            return None
        return self.mark(event, QUEUE, f"receive posted: {what}")

    def of_user_post_srq_recv(self, event: Event) -> Mark:
        """A receive for the next message that needs one."""
        return self.mark(event, QUEUE, f"receive of SRQ {event['srq']} posted: wr {event.number('wr_id')}, WQE {event['index']}")

    def of_user_doorbell(self, event: Event) -> Mark:
        """A program wakes the module. Without that somebody is at work for the queue already."""
        return self.mark(event, QUEUE, f"doorbell of the {'receive' if event['queue'] == '1' else 'send'} queue")

    def of_user_polled(self, event: Event) -> Mark:
        """A program gets a CQE."""
        status = event.number("status")
        self.polled[event.thread, event["cq"]] = event.qpn
        added = self.unseen.get((event.qpn, event["wr_id"]))
        waited = f"{opcodes.duration(round((event.at - added.pop(0)) * 1000))} after its CQE" if added else ""
        return self.mark(event, QUEUE, f"polled: wr {event.number('wr_id')} "
                         f"{STATUSES[status] if status < len(STATUSES) else f'status {status}'}", status != 0, waited)

    def of_user_arm(self, event: Event) -> Mark:
        """A program asks for an event."""
        return self.mark(event, QUEUE, f"CQ armed for the next {'solicited ' * (event['solicited'] != '0')}completion")

    def of_timer(self, event: Event) -> Mark | None:
        """A timer that was due."""
        return self.mark(event, LOSS, "timer") if event["due"] == "1" else None

    def of_offload(self, event: Event) -> Mark:
        """Who sends from now on."""
        return self.mark(event, QUEUE, f"sender: {event['from'].lower()} -> {event['to'].lower()} ({event['why'].lower()})")

    def of_drop(self, event: Event) -> Mark | None:
        """A packet that is none, or for nobody: others are seen at their arrow."""
        return None if len(event["head"]) >= 24 else self.mark(event, LOSS, f"dropped: {event['reason']}", True)


def outcome(event: Event) -> tuple[str, bool]:
    """What a call has returned, and whether it has failed."""
    ret, op = event.number("ret"), event["op"]
    if op in POINTERS:
        return ("done", False) if ret else ("NULL", True)
    # A register has 64 bits, and an int of C 32.
    ret = (ret & 0xffffffff ^ 0x80000000) - 0x80000000
    if op.startswith("ibv_") and ret > 0:
        return errno.errorcode.get(ret, str(ret)), True
    bad = -4096 < ret < 0
    return str(ret) if op.startswith(("rdma_", "ibv_")) or not bad else errno.errorcode.get(-ret, str(ret)), bad


def replace_fields(event: Event, done: Event) -> Event:
    """A call with what it has returned."""
    return Event(event.at, event.name, event.fields | {"ret": done["ret"]}, event.task, event.thread)
