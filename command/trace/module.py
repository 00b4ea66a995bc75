# SPDX-License-Identifier: GPL-2.0
"""Packets by the module's events: what has left a queue pair, what has arrived at one or was dropped there, and what was
handed over in memory. Events name queue pairs on both sides, and captures name addresses."""

from collections.abc import Iterator
from dataclasses import replace

from . import opcodes
from .events import Event, Events
from .merge import ARRIVED, SENT
from .network import Datagram
from .packet import BTH, GSI, Packet, packet

GROUP = 0xffffff
# What a packet is known by in events and captures alike.
Known = tuple


def known(one: Packet) -> Known:
    """All of a packet but its addresses, which no event has."""
    return one.dqpn, one.opcode, one.psn, *one.fields.values()


def by_head(event: Event) -> Packet | None:
    """The packet of an event, without addresses; None if there is not even a BTH."""
    try:
        head = bytes.fromhex(event["head"])
    except ValueError:
        raise event.damaged("head") from None
    if len(head) < BTH:
        return None
    made = packet(Datagram("", "", 0, head, len(head), b"", (), 0, 0), head, len(head), 0)
    made.length = event.number("len") if event["len"] else 0
    return made


def by_hand(event: Event) -> Packet:
    """What was handed over in memory: there are no headers."""
    opcode, span = opcodes.of_trace(event["opcode"]), event.number("span")
    return Packet(0, 0, SENT, "", "", 0, (), 0, 0, opcode, se=0, migreq=0, pad=0, tver=0, pkey=0xffff, fecn=0, becn=0,
                  dqpn=event.number("to"), ackreq=0, psn=event.number("psn"), length=event.number("len"), icrc="not on the wire",
                  handed=True, span=span)


class Module:
    """The packets of a run as the module's events tell of them."""

    def __init__(self, events: Events, captured: list[Packet]):
        self.events = events
        self.devices = {event.number("qpn"): event["dev"] for event in events.named("qp")}
        self.ways: dict[Known, tuple[str, str]] = {}
        for one in captured:
            self.ways.setdefault(known(one), (one.src, one.dst))
        # Which queue pair sends to this one.
        self.peers = {event.number("to" if event.name == "handed" else "dqpn"): event.number("qpn")
                      for event in events.named("tx", "handed")}
        seen = [(event, one) for event in events.named("tx", "rx", "drop") if (one := by_head(event))]
        # Of management and groups many have the same number: there a capture knows better.
        seen = [(event, one) for event, one in seen if not captured or one.dqpn not in (GSI, GROUP)]
        self.ahead = events.ahead if events.ahead is not None else self.estimate(seen, captured)
        self.addresses: dict[int, str] = {}
        for event, one in seen:
            if known(one) in self.ways:
                src, dst = self.ways[known(one)]
                self.addresses[one.dqpn] = dst
                if event.name == "tx":
                    self.addresses[event.number("qpn")] = src
        self.packets = list(self.of_wire(seen)) + list(self.of_memory())
        self.explain()

    def estimate(self, seen: list[tuple[Event, Packet]], captured: list[Packet]) -> int:
        """How far the clock of captures is ahead: a packet is captured after it was made."""
        first: dict[Known, int] = {}
        for one in captured:
            first[known(one)] = min(one.at, first.get(known(one), one.at))
        made: dict[Known, float] = {}
        for event, one in seen:
            if event.name == "tx":
                made.setdefault(known(one), event.at)
        return min((first[key] - round(at * 1000) for key, at in made.items() if key in first), default=0)

    def time(self, event: Event) -> int:
        """When, by the clock of captures."""
        return round(event.at * 1000) + self.ahead

    def address(self, qpn: int | None) -> str:
        """Where a queue pair is: an address, or the name of its device."""
        return "another host" if qpn is None else self.addresses.get(qpn) or self.devices.get(qpn) or "this host"

    def of_wire(self, seen: list[tuple[Event, Packet]]) -> Iterator[Packet]:
        """What has left, and what has arrived, with the addresses that both ends agree upon."""
        senders = {known(one): event.number("qpn") for event, one in seen if event.name == "tx"}
        here = {event.number("qpn") for event in self.events.named("tx", "rx", "qp")}
        for event, one in seen:
            own = senders.get(known(one), self.peers.get(one.dqpn))
            there = one.dqpn if one.dqpn in here or one.dqpn in self.addresses else None
            one.src, one.dst = self.ways.get(known(one), (self.address(own), self.address(there)))
            one.at, one.place = self.time(event), SENT if event.name == "tx" else ARRIVED
            if event.name == "drop":
                one.told["reason"] = event["reason"]
            yield one

    def of_memory(self) -> Iterator[Packet]:
        """What was handed over: it is gone and there at once."""
        for event in self.events.named("handed"):
            one = by_hand(event)
            one.src, one.dst, one.at = self.address(event.number("qpn")), self.address(one.dqpn), self.time(event)
            yield one
            # They share what is found out of them.
            yield replace(one, place=ARRIVED)

    def explain(self) -> None:
        """What became of requests that have arrived, and what the acknowledgements say that have no header."""
        arrived = {}
        for one in self.packets:
            if one.place == ARRIVED:
                arrived.setdefault((one.dqpn, one.psn), []).append(one)
        for event in self.events.named("request", "ack"):
            at = self.time(event)
            before = [one for one in arrived.get((event.number("qpn"), event.number("psn")), ()) if one.at <= at]
            if not before:
                continue
            if event.name == "request":
                before[-1].told["outcome"] = event["outcome"]
            elif before[-1].handed:
                before[-1].fields |= {"syndrome": event.number("syndrome"), "msn": event.number("msn")}

    @property
    def pairs(self) -> dict[tuple[str, str, int], int]:
        """The queue pair that sends to another, as `pairing.by_cm` has it."""
        return {(one.src, one.dst, one.dqpn): self.peers[one.dqpn] for one in self.packets
                if one.dqpn in self.peers and one.dqpn not in (GSI, GROUP)}
