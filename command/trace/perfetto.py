# SPDX-License-Identifier: GPL-2.0
"""A trace for ui.perfetto.dev and chrome://tracing: a process for each conversation, with tracks for what either end does, for
its requests and for its packets, each of which is an arrow from where it was sent to where it arrived."""

from collections.abc import Iterator

from .half import LOST
from .marks import CALL, Mark
from .merge import Sent
from .talk import Talk
from .text import title
from .trace import Trace
from .view import label, remark

# The tracks of an end.
CALLS, WORK, PACKETS = range(3)
TRACKS = {CALLS: "calls and states", WORK: "queues", PACKETS: "packets"}
# A packet has no duration of its own; this one, in nanoseconds, can be seen.
MOMENT = 1000


def timeline(trace: Trace) -> dict:
    """All of it, in the JSON of Chrome's traces; times are microseconds."""
    events = [one for number, talk in enumerate(trace.talks, 1) for one in of_talk(number, talk, trace.begin)]
    return {"traceEvents": events, "displayTimeUnit": "ns", "otherData": {"trace": trace.headline(), "notes": trace.notes}}


def track(rightward: bool, what: int) -> int:
    """The number of a track of an end."""
    return len(TRACKS) * rightward + what + 1


def of_talk(number: int, talk: Talk, begin: int) -> Iterator[dict]:
    """A conversation."""
    yield {"ph": "M", "name": "process_name", "pid": number, "args": {"name": title(talk)}}
    for rightward, end in ((False, talk.pair.left), (True, talk.pair.right)):
        for what, name in TRACKS.items():
            yield {"ph": "M", "name": "thread_name", "pid": number, "tid": track(rightward, what), "args": {"name": f"{end}: {name}"}}
    for one in talk.items():
        made = of_mark(one) if isinstance(one, Mark) else of_packet(one, f"{number}.{one.number}")
        for event in made:
            yield event | {"pid": number, "ts": (event["ts"] - begin) / 1000}


def of_mark(mark: Mark) -> Iterator[dict]:
    """A call with its duration, a request from its doorbell to its completion, and moments."""
    where = {"tid": track(mark.rightward, CALLS if mark.kind == CALL or not mark.event.qpn else WORK), "cat": mark.kind}
    args = {name: said for name, said in (("remark", mark.remark), ("why", mark.why)) if said}
    if mark.kind == CALL and mark.took is not None:
        name = mark.label.removesuffix(" begins")
        yield where | {"ph": "X", "name": name, "ts": mark.at, "dur": (mark.took or MOMENT / 2) / 1000, "args": args}
    elif mark.took is not None:
        # Requests overlap.
        own = where | {"name": mark.label, "id": f"{mark.event.qpn}.{mark.number}"}
        yield own | {"ph": "b", "ts": mark.at - mark.took, "args": args}
        yield own | {"ph": "e", "ts": mark.at}
    elif not mark.label.startswith(f"{mark.event['op']} returns"):
        yield where | {"ph": "i", "s": "t", "name": mark.label, "ts": mark.at, "args": args}


def of_packet(one: Sent, number: str) -> Iterator[dict]:
    """A packet at either end, with an arrow between; one that is lost is at one end alone."""
    said = label(one)
    args = {"remark": remark(one)}
    gone = one.fate == LOST
    near = {"cat": "packet", "tid": track(not one.rightward, PACKETS), "ts": one.at}
    far = near | {"tid": track(one.rightward, PACKETS), "ts": max([one.at, *one.seen.values()])}
    yield near | {"ph": "X", "name": f"lost: {said}" if gone else said, "dur": MOMENT / 1000, "args": args}
    if not gone:
        yield far | {"ph": "X", "name": said, "dur": MOMENT / 1000, "args": args}
        flow = {"name": "packet", "id": number}
        yield near | flow | {"ph": "s"}
        yield far | flow | {"ph": "f", "bp": "e"}
