# SPDX-License-Identifier: GPL-2.0
"""Who talks to whom: a packet names the queue pair that it goes to, and not the one that it comes from."""

from collections import Counter, defaultdict
from dataclasses import dataclass

from . import opcodes
from .merge import Sent

# Where a packet goes: source, destination, queue pair, service.
Flow = tuple[str, str, int, str]


@dataclass(frozen=True)
class End:
    """A queue pair, whose number need not be known."""

    address: str
    qpn: int | None
    # A program that has no queue pair stands in place of one.
    process: str = ""

    def __str__(self) -> str:
        if self.qpn is None and self.address in ("", self.process):
            return self.address or "nobody"
        return f"{self.address} QP {'unknown' if self.qpn is None else f'{self.qpn:#x}'}"


@dataclass(frozen=True)
class Pair:
    """Two ends, and how that is known."""

    left: End
    right: End
    service: str
    how: str


BY_EVENTS = "by the module's events"
BY_CM, BY_ACKS, BY_GUESS = "by the connection manager", "by acknowledgements", "a guess: no other is left"
BY_DETH, ONE_WAY = "by the DETH", "one direction only"


def flow_of(one: Sent) -> Flow:
    """The flow of a packet of a connection."""
    packet = one.packet
    return packet.src, packet.dst, packet.dqpn, packet.service


def by_cm(sent: list[Sent]) -> dict[tuple[str, str, int], int]:
    """For each queue pair that the connection manager has made the peer of another: (its address, the peer's, the peer's
    number) to its own number."""
    asked: dict[tuple, tuple[str, str, int]] = {}
    found: dict[tuple[str, str, int], int] = {}
    for one in sent:
        mad, packet = one.packet.mad, one.packet
        if not mad or "qpn" not in mad:
            continue
        if mad["name"] == "REQ":
            asked[packet.src, mad["local_id"]] = packet.src, packet.dst, mad["qpn"]
        elif mad["name"] == "REP" and (packet.dst, mad["remote_id"]) in asked:
            left, right, qpn = asked[packet.dst, mad["remote_id"]]
            found[left, right, mad["qpn"]] = qpn
            found[right, left, qpn] = mad["qpn"]
    return found


def by_acks(sent: list[Sent], flows: set[Flow]) -> dict[Flow, Flow]:
    """Flows and those that answer them, by the PSNs of requests and responses."""
    requests: dict[tuple, set[Flow]] = defaultdict(set)
    for one in sent:
        packet = one.packet
        if packet.reliable and not packet.is_response and packet.opcode in opcodes.OPCODES:
            requests[packet.src, packet.dst, packet.service, packet.psn].add(flow_of(one))
    hits: Counter = Counter()
    for one in sent:
        packet = one.packet
        if packet.is_response:
            for asking in requests.get((packet.dst, packet.src, packet.service, packet.psn), ()):
                hits[asking, flow_of(one)] += 1
    both: Counter = Counter()
    for (asking, answering), count in hits.items():
        both[frozenset((asking, answering))] += count
    found: dict[Flow, Flow] = {}
    for pair, _ in both.most_common():
        one, other = (*pair, *pair)[:2]
        if one not in found and other not in found and {one, other} <= flows:
            found[one], found[other] = other, one
    return found


def pair_up(sent: list[Sent], told: dict[tuple[str, str, int], int]) -> dict[Flow, Pair]:
    """The pair of each flow of a connected service; the left end is the one that has sent the first packet. `told` is what
    events say, as `by_cm` has it."""
    flows = dict.fromkeys(flow_of(one) for one in sent if one.packet.service in ("RC", "UC", "XRC", "RD", "?"))
    connected, answered = by_cm(sent), by_acks(sent, set(flows))
    pairs: dict[Flow, Pair] = {}
    for flow in flows:
        if flow in pairs:
            continue
        src, dst, qpn, service = flow
        own, how = told.get((src, dst, qpn)), BY_EVENTS
        if own is None:
            own, how = connected.get((src, dst, qpn)), BY_CM
        if own is None and flow in answered:
            own, how = answered[flow][2], BY_ACKS
        if own is None:
            own, how = the_only_one(flow, flows, pairs, answered, connected)
        pair = Pair(End(src, own), End(dst, qpn), service, how)
        pairs[flow] = pair
        if own is not None:
            pairs.setdefault((dst, src, own, service), pair)
    return pairs


def the_only_one(flow: Flow, flows: dict, pairs: dict, answered: dict, connected: dict) -> tuple[int | None, str]:
    """The queue pair of the one flow in the other direction, if neither has another to go with."""
    src, dst, _, service = flow

    def free(a: str, b: str) -> list[Flow]:
        return [other for other in flows if other[:2] == (a, b) and other[3] == service and other not in answered
                and other not in pairs and other[:3] not in connected]

    back, mine = free(dst, src), free(src, dst)
    if len(back) == 1 and len(mine) == 1 and back != mine:
        return back[0][2], BY_GUESS
    return None, ONE_WAY
