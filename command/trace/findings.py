# SPDX-License-Identifier: GPL-2.0
"""What a capture says in sentences: what was lost, repeated, refused or left open, and what that may come from."""

from collections.abc import Iterator
from statistics import median

from . import opcodes
from .half import AFTER_NAK, AFTER_REPORT, AFTER_RNR, IMPLIED, MASK, TIMEOUT, Half, Run
from .merge import SENT
from .opcodes import duration
from .pairing import End
from .talk import Sums, Talk, damaged, sums


def many(count: int, what: str) -> str:
    """A number and its noun."""
    return f"{count} {what}{'' if count == 1 else 's'}"


def were(count: int, what: str = "packet") -> str:
    """A number, its noun and a verb."""
    return f"{many(count, what)} {'was' if count == 1 else 'were'}"


def findings(talk: Talk) -> list[str]:
    """All of a conversation."""
    said: list[str] = []
    if talk.sides:
        for left in (True, False):
            asking, answering = (talk.pair.left, talk.pair.right) if left else (talk.pair.right, talk.pair.left)
            side = talk.sides[0 if left else 1]
            said += of_requests(sums(talk, left), side.half, asking, answering)
    said += of_capture(talk)
    return said


def of_requests(total: Sums, half: Half, asking: End, answering: End) -> Iterator[str]:
    """What became of the requests of one end."""
    by_cause: dict[str, list[Run]] = {}
    for run in half.runs:
        by_cause.setdefault(run.cause, []).append(run)
    if AFTER_NAK in by_cause:
        where = (f"{were(total.lost)} lost on the way to {answering.address}" if total.lost
                 else "packets were lost before they came here")
        yield (f"{were(total.causes.get(AFTER_NAK, 0))} retransmitted by {asking} after "
               f"{many(total.sequence_naks, 'sequence NAK')}: {where}, or came out of order")
    if AFTER_REPORT in by_cause:
        yield (f"{were(total.causes.get(AFTER_REPORT, 0))} retransmitted by {asking} after "
               f"{many(total.reports, 'report')} of missing packets: lost on the way to {answering.address}, or out of order")
    if TIMEOUT in by_cause:
        yield from of_timeouts(by_cause[TIMEOUT], total, half, asking)
    if IMPLIED in by_cause:
        yield (f"{were(total.causes.get(IMPLIED, 0), 'request')} sent again by {asking} because READ responses were lost on "
               f"the way from {answering.address}")
    if total.rnr_naks:
        yield from of_rnr(by_cause.get(AFTER_RNR, []), total, asking, answering)
    if half.fatal:
        yield (f"{answering} has refused PSN {half.fatal.packet.psn}: "
               f"{opcodes.NAKS.get(half.fatal.packet.code, 'NAK')}; the request fails, and the queue pair goes to ERR")
    if total.duplicates:
        yield f"{were(total.duplicates)} seen twice within less than a round trip: the network doubles packets"
    if total.late:
        yield f"{were(total.late)} late: the network changes their order, and the responder drops what comes behind a gap"
    if total.never_seen > 0:
        yield f"{asking} has used {many(total.never_seen, 'PSN')} of which no packet was seen: lost before this place, or not captured"
    yield from of_the_end(half, asking)


def of_timeouts(runs: list[Run], total: Sums, half: Half, asking: End) -> Iterator[str]:
    """What was sent again by itself."""
    waits = [run.waited for run in runs]
    low, high = duration(min(waits)), duration(max(waits))
    spread = f"~{duration(median(waits))}" + (f" ({low} to {high})" if low != high else "")
    yield (f"{were(total.causes.get(TIMEOUT, 0))} retransmitted by {asking} after a timeout of {spread}, "
           f"{many(len(runs), 'time')}: the packet or its ACK was lost, or the peer is slow")
    if half.needless:
        yield (f"{were(half.needless)} sent again by {asking} though the answer had passed here: it was lost behind this "
               "place, or came too late")


def of_rnr(runs: list[Run], total: Sums, asking: End, answering: End) -> Iterator[str]:
    """A receiver that was not ready."""
    asked = f"it asked for {duration(median(run.asked for run in runs))}, and {asking.address} waited " \
            f"{duration(median(run.waited for run in runs))}" if runs else f"{asking.address} has sent nothing again"
    yield f"{many(total.rnr_naks, 'RNR NAK')} from {answering}: no receive was posted in time; {asked}"


def of_the_end(half: Half, asking: End) -> Iterator[str]:
    """Requests that have no answer, but for those that cannot have one."""
    open_slots = [half.slots[seq] for seq in half.waiting if not half.fatal or seq < half.fatal_at]
    if not open_slots:
        return
    worst = max(open_slots, key=lambda slot: len(slot.sends))
    if len(worst.sends) > 2:
        time = duration(worst.sends[-1].at - worst.sends[0].at)
        yield (f"PSN {worst.first & MASK} left {asking} {len(worst.sends)} times in {time} and was never answered: the peer is "
               "gone, or the packets or the answers do not pass")
    else:
        yield (f"{many(len(open_slots), 'packet')} of {asking} (PSN {open_slots[0].first & MASK} to "
               f"{open_slots[-1].end - 1 & MASK}) had no answer when the capture ended")


def of_capture(talk: Talk) -> Iterator[str]:
    """What concerns the packets themselves."""
    ways = {one.rightward for one in talk.sent}
    if len(ways) == 1 and talk.pair.service in ("RC", "XRC"):
        end = talk.pair.left if ways == {False} else talk.pair.right
        yield f"no packet of {end.address} was captured: what it answered cannot be seen"
    vanished = talk.count(lambda one: one.vanished)
    if vanished and any(SENT in one.seen for one in talk.sent):
        yield f"{were(vanished)} sent and did not arrive: lost on the way"
    elif vanished:
        yield f"{were(vanished)} seen at one place of the capture and not at the next: lost between them"
    marks = talk.count(lambda one: one.packet.traffic_class & 3 == 3)
    notices = talk.count(lambda one: one.packet.service == "CNP")
    if marks or notices:
        yield f"{were(marks)} marked CE by a switch, and {many(notices, 'CNP')} came: there is congestion"
    bad = damaged(talk)
    if bad:
        yield f"{many(bad, 'packet')} with a wrong ICRC: damaged, or captured before the adapter has computed it"
    for one in talk.sent:
        if one.packet.mad and one.packet.mad.get("name") == "REJ":
            yield f"{one.packet.src} has refused a connection: {one.packet.mad.get('why', 'no reason was captured')}"


def summaries(talk: Talk) -> list[tuple[bool, str]]:
    """The figures of each direction in which there are packets; the first says whether it is that of the left end."""
    both = [(left, sums(talk, left)) for left in (True, False)]
    return [(left, summary(total)) for left, total in both if total.packets]


def summary(total: Sums) -> str:
    """The figures of one direction in a line."""
    parts = [many(total.messages, "message"), f"{total.length} B", many(total.packets, "packet"),
             f"{total.retransmitted} retransmitted"]
    if total.lost:
        parts.append(f"{total.lost} lost")
    parts.append(many(total.rnr_naks, "RNR NAK"))
    if total.round_trip is not None:
        parts.append(f"round trip {duration(total.round_trip)} (median)")
    if total.per_ack and total.per_ack >= 2:
        parts.append(f"one answer for {total.per_ack:.1f} packets (at most {total.most_per_ack})")
    return ", ".join(parts)
