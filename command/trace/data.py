# SPDX-License-Identifier: GPL-2.0
"""A capture as data: what --as json prints, and what the page holds."""

from dataclasses import asdict

from . import opcodes
from .findings import findings
from .half import Message
from .marks import Mark
from .merge import Sent, place_name
from .talk import Sums, Talk, sums
from .trace import Trace
from .view import MASKED, label, remark

# What is shown of a packet as it is.
PLAIN = ("frame", "piece", "pieces", "src", "dst", "sport", "traffic_class", "hops", "opcode", "name", "se", "migreq", "pad",
         "tver", "pkey", "fecn", "becn", "dqpn", "ackreq", "psn", "length", "icrc", "cut")


def data(trace: Trace, keys: bool) -> dict:
    """All of it."""
    return {"files": trace.files, "frames": trace.frames, "packets": trace.packets, "begin": trace.begin / 1e9,
            "handed": trace.handed, "events": trace.events, "notes": trace.notes, "conversations": [of_talk(talk, trace, keys) for talk in trace.talks]}


def of_talk(talk: Talk, trace: Trace, keys: bool) -> dict:
    """A conversation."""
    begin = trace.begin
    left, right = talk.pair.left, talk.pair.right
    return {
        "left": {"address": left.address, "qpn": left.qpn}, "right": {"address": right.address, "qpn": right.qpn}, "service": talk.pair.service, "known": talk.pair.how, "mtu": talk.mtu,
        "requests": {"left": of_sums(sums(talk, True)), "right": of_sums(sums(talk, False))},
        "findings": findings(talk),
        "messages": [of_message(message, end, begin) for side, end in zip(talk.sides or (), ("left", "right"))
                     for message in side.messages],
        "rows": [of_mark(one, trace, keys) if isinstance(one, Mark) else of_packet(one, trace, keys) for one in talk.items()]}


def of_sums(total: Sums) -> dict:
    """The figures of one direction."""
    return asdict(total) | {"round_trip": None if total.round_trip is None else micro(total.round_trip)}


def of_message(message: Message, by: str, begin: int) -> dict:
    """A message; times are in microseconds."""
    answer = message.answer
    return {"by": by, "operation": message.operation, "first_psn": message.first, "last_psn": message.last,
            "length": message.length, "packets": message.packets, "whole": message.whole, "retransmitted": message.repeated,
            "begun": micro(message.begun - begin), "done": micro(answer.at - begin) if answer else None}


def micro(nanoseconds: float) -> float:
    """Microseconds."""
    return nanoseconds / 1000


def of_mark(mark: Mark, trace: Trace, keys: bool) -> dict:
    """A mark with the fields of its event."""
    fields = {name: MASKED if name == "key" and not keys else value for name, value in mark.event.fields.items()
              if name != "head" or keys}
    return {"kind": mark.kind, "number": mark.number, "time": micro(mark.at - trace.begin),
            "at": "right" if mark.rightward else "left", "label": mark.label, "remark": mark.remark, "why": mark.why,
            "depth": mark.depth, "bad": mark.bad, "event": mark.event.name, "fields": fields,
            "task": f"{mark.event.task}-{mark.event.thread}"}


def of_packet(one: Sent, trace: Trace, keys: bool) -> dict:
    """A packet with all its headers."""
    packet = one.packet
    shown = {name: MASKED if name in opcodes.KEYS and not keys else value for name, value in packet.fields.items()}
    mad = packet.mad and {name: MASKED if name in opcodes.KEYS and not keys and value else value
                          for name, value in packet.mad.items()}
    return {
        "kind": "packet", "number": one.number, "time": micro(one.at - trace.begin), "to": "right" if one.rightward else "left", "label": label(one),
        "remark": remark(one), "told": one.told, "way": None if one.way is None else micro(one.way), "handed": packet.handed,
        "span": packet.span, "again": one.again, "cause": one.cause, "fate": one.fate,
        "seen": {place_name(place, trace.names): micro(at - trace.begin) for place, at in one.seen.items()},
        "vlans": list(packet.vlans),
        **{name: getattr(packet, name) for name in PLAIN}, "headers": headers(packet.opcode, shown), "mad": mad}


def headers(opcode: int, fields: dict) -> list:
    """The extension headers: the name of each with its fields, as far as they were captured."""
    made = []
    for letter in opcodes.OPCODES.get(opcode, ("", ""))[1]:
        own = {name: fields[name] for name in opcodes.HEADERS[letter][1] if name in fields}
        if "syndrome" in own:
            own["meaning"] = opcodes.syndrome_text(own["syndrome"])
        made.append([opcodes.HEADER_NAMES[letter], own])
    return made
