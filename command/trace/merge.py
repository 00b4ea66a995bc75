# SPDX-License-Identifier: GPL-2.0
"""From packets to transmissions: one that was captured in several places is one, and shows where others were lost."""

from collections import defaultdict
from dataclasses import dataclass, field
from statistics import median

from .packet import Packet

Key = tuple
Seen = dict[Key, dict[tuple, list[Packet]]]
# Where the module's events see a packet, beside the places of captures.
SENT, ARRIVED = (-1, 0, True), (-1, 0, False)


@dataclass
class Sent:
    """A packet that was sent once, with what became of it."""

    packet: Packet
    # In nanoseconds, by the clock of the first place.
    at: int
    # Where it was captured, and when.
    seen: dict[tuple, int] = field(default_factory=dict)
    number: int = 0
    # From the left end of its conversation to the right one.
    rightward: bool = True
    # Times that it had been sent before, and why again.
    again: int = 0
    cause: str = ""
    # Such as lost; nothing where it arrived or nobody knows.
    fate: str = ""
    remarks: list[str] = field(default_factory=list)
    # The place that it passed last when it was lost between two.
    vanished: bool = False
    # What the module says of it.
    told: dict[str, str] = field(default_factory=dict)
    # The frames that have it: interface and number.
    frames: list[tuple[int, int]] = field(default_factory=list)

    @property
    def way(self) -> int | None:
        """Nanoseconds from one end to the other, where the module has seen both."""
        return self.seen[ARRIVED] - self.seen[SENT] if SENT in self.seen and ARRIVED in self.seen else None


def key_of(packet: Packet) -> Key:
    """What the same packet has in common wherever it is seen, and with its repetitions."""
    return packet.src, packet.dst, packet.dqpn, packet.opcode, packet.psn, tuple(packet.fields.values())


class Clocks:
    """How far the clock of each place is ahead of that of the first one, and in which order packets pass the places."""

    def __init__(self, seen: Seen, places: list[tuple], agree: bool):
        self.first = places[0]
        self.ahead: dict[tuple, int] = {self.first: 0}
        self.spread: dict[tuple, int] = {}
        # Differences to the first place, by place and by direction.
        differences: dict[tuple, dict[tuple, list[int]]] = defaultdict(lambda: defaultdict(list))
        for key, by_place in seen.items():
            here = by_place.get(self.first, [])
            for place, there in by_place.items():
                if place != self.first and len(here) == len(there) == 1:
                    differences[place][key[:2]].append(there[0].at - here[0].at)
        self.later: dict[tuple, dict[tuple, float]] = {self.first: {}}
        for place in places[1:]:
            by_direction = differences[place]
            self.ahead[place] = 0 if agree else self.estimate(place, by_direction)
            self.later[place] = {way: median(found) - self.ahead[place] for way, found in by_direction.items()}

    def estimate(self, place: tuple, by_direction: dict[tuple, list[int]]) -> int:
        """Half the difference between the fastest packets there and back; none where one clock may have told all times."""
        for way, there in by_direction.items():
            back = by_direction.get(way[::-1])
            if not back:
                # A second between two places is no way of a packet.
                if abs(median(there)) > 10**9:
                    self.spread[place] = max(there) - min(there)
                    return min(there)
            elif way[0] < way[1]:
                # What passes the first place first in one direction passes it last in the other.
                low, high = (max(back), min(there)) if max(back) <= min(there) else (max(there), min(back))
                if low <= high and not low <= 0 <= high:
                    self.spread[place] = (high - low) // 2
                    return (low + high) // 2
        return 0

    def time(self, packet: Packet) -> int:
        """When, by the first clock."""
        return packet.at - self.ahead[packet.place]

    def nearest(self, way: tuple, places: list[tuple]) -> list[tuple]:
        """The places in the order in which packets of this direction pass them."""
        return sorted(places, key=lambda place: (place == ARRIVED, place != SENT, self.later[place].get(way, 0)))


def place_name(place: tuple, names: dict[int, str]) -> str:
    """What people call a place: the interface of a capture, and the netdev where a cooked one has several."""
    if place in (SENT, ARRIVED):
        return "the module, sent" if place == SENT else "the module, arrived"
    interface, netdev, outgoing = place
    return names.get(interface, f"interface {interface}") + f", netdev {netdev}" * bool(netdev) + " (out)" * outgoing


def merge(packets: list[Packet], names: dict[int, str], agree: bool = False) -> tuple[list[Sent], list[str]]:
    """All transmissions in order of time, and what is to be said of the places, whose clocks may be known to agree."""
    places = list(dict.fromkeys(packet.place for packet in packets))
    if len(places) <= 1:
        return [first_seen(packet, packet.at) for packet in sorted(packets, key=lambda p: p.at)], []
    seen: Seen = defaultdict(lambda: defaultdict(list))
    for packet in sorted(packets, key=lambda p: p.at):
        seen[key_of(packet)][packet.place].append(packet)
    clocks = Clocks(seen, places, agree)
    sent: list[Sent] = []
    for key, by_place in seen.items():
        sent += transmissions(by_place, clocks, key[:2])
    sent.sort(key=lambda one: (one.at, one.packet.frame, one.packet.piece))
    if all(len(one.seen) == 1 for one in sent):
        return sent, []
    mark_vanished(sent, clocks)
    twice = sum(len(one.seen.keys() - {SENT, ARRIVED}) > 1 for one in sent)
    notes = [f"{twice} packets were captured in several places; each is shown once"] if twice else []
    return sent, notes + clock_notes(clocks, names)


def first_seen(packet: Packet, at: int) -> Sent:
    """A transmission that no other place has seen yet."""
    return Sent(packet, at, {packet.place: at}, told=dict(packet.told), frames=frames_of(packet))


def frames_of(packet: Packet) -> list[tuple[int, int]]:
    """The captured frame of a packet, if there is one."""
    return [(packet.place[0], packet.frame)] if packet.captured else []


def clock_notes(clocks: Clocks, names: dict[int, str]) -> list[str]:
    """Where clocks had to be adjusted."""
    first = place_name(clocks.first, names)
    return [f"the clock of {place_name(place, names)} is {clocks.ahead[place] / 1e6:+.3f} ms from that of {first} "
            f"(+-{spread / 1e6:.3f} ms); times are by the latter" for place, spread in clocks.spread.items()]


def transmissions(by_place: dict[tuple, list[Packet]], clocks: Clocks, way: tuple) -> list[Sent]:
    """What was seen of one packet and its repetitions, told apart: each is first seen at the place nearest to the sender."""
    made: list[Sent] = []
    for place in clocks.nearest(way, list(by_place)):
        free = [one for one in made if place not in one.seen]
        for packet in by_place[place]:
            at = clocks.time(packet)
            # A clock may be off by as much as is not known of it.
            slack = clocks.spread.get(place, 0) + 1000
            before = [one for one in free if one.at <= at + slack]
            if before:
                one = before[-1]
                one.seen[place] = at
                one.told |= packet.told
                one.frames += frames_of(packet)
                if packet.captured and not one.packet.captured:
                    # A capture has more of it than the events.
                    one.packet = packet
                free.remove(one)
            else:
                made.append(first_seen(packet, at))
        made.sort(key=lambda one: one.at)
    return made


def mark_vanished(sent: list[Sent], clocks: Clocks) -> None:
    """Marks what was seen near the sender, and not at the last place that has seen others of the same queue pair, while that
    was captured."""
    spans: dict[tuple, list[int]] = {}
    passed: dict[tuple, set[tuple]] = defaultdict(set)
    for one in sent:
        for place in one.seen:
            spans.setdefault(place, [one.at, one.at])[1] = one.at
            passed[one.packet.src, one.packet.dst, one.packet.dqpn].add(place)
    for one in sent:
        way = one.packet.src, one.packet.dst
        last = clocks.nearest(way, list(passed[*way, one.packet.dqpn]))[-1]
        if last not in one.seen and spans[last][0] <= one.at <= spans[last][1]:
            one.vanished, one.fate = True, "lost"
