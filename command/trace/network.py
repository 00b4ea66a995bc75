# SPDX-License-Identifier: GPL-2.0
"""From a captured frame to the UDP datagram in it: link layers, VLANs, IPv4 and IPv6 with all that they may carry."""

import ipaddress
from collections import Counter
from dataclasses import dataclass

from .capture import Frame

PORT = 4791
ETH_IPV4, ETH_IPV6, ETH_ROCE_V1 = 0x0800, 0x86dd, 0x8915
VLANS = (0x8100, 0x88a8, 0x9100)
UDP = 17
# IPv6 extension headers whose length is in units of 8 bytes; those of a fragment and of AH are apart.
EXTENSIONS, FRAGMENT, AH = (0, 43, 60, 135, 139, 140), 44, 51
# Link types (https://www.tcpdump.org/linktypes.html).
NULL, ETHERNET, LOOP, COOKED, COOKED_2, INFINIBAND = 0, 1, 108, 113, 276, 247
RAW = (12, 14, 101, 228, 229)
OUTGOING = 4


@dataclass
class Datagram:
    """A UDP datagram to the port of RoCE. `payload` is what was captured of `length` bytes; `header` has the IP
    header and that of UDP as they were, or nothing where they cannot be used for an ICRC."""

    src: str
    dst: str
    sport: int
    payload: bytes
    length: int
    header: bytes
    vlans: tuple[int, ...]
    traffic_class: int
    hops: int
    # The netdev of a cooked capture, and whether the packet was on its way out.
    place: tuple[int, bool] = (0, False)


class Skip(Exception):
    """Why a frame is not shown; nothing where that is of no interest."""


def word(data: bytes, at: int, size: int = 2) -> int:
    """A number in network byte order, which must be there."""
    if at + size > len(data):
        raise Skip("are cut off before the BTH")
    return int.from_bytes(data[at:at + size], "big")


def network_layer(frame: Frame) -> tuple[int, int, tuple[int, ...], tuple[int, bool]]:
    """The ethertype of a frame, where its network header begins, its VLANs, its place."""
    data, link, place = frame.data, frame.link, (0, False)
    if link == ETHERNET:
        kind, at = word(data, 12), 14
    elif link == COOKED:
        kind, at, place = word(data, 14), 16, (0, word(data, 0) == OUTGOING)
    elif link == COOKED_2:
        kind, at, place = word(data, 0), 20, (word(data, 4, 4), word(data, 10, 1) == OUTGOING)
    elif link in RAW or link in (NULL, LOOP):
        at = 0 if link in RAW else 4
        kind = {4: ETH_IPV4, 6: ETH_IPV6}.get(word(data, at, 1) >> 4, 0)
    elif link == INFINIBAND:
        raise Skip("have the link type InfiniBand, which is not RoCE v2")
    else:
        raise Skip(f"have the link type {link}, which is not known here")
    vlans: list[int] = []
    while kind in VLANS and len(vlans) < 8:
        vlans.append(word(data, at) & 0xfff)
        kind, at = word(data, at + 2), at + 4
    return kind, at, tuple(vlans), place


def datagram(frame: Frame) -> Datagram | None:
    """The RoCE datagram of a frame; None if it has none. Raises Skip if it may have one that cannot be shown."""
    kind, at, vlans, place = network_layer(frame)
    data = frame.data
    if kind == ETH_ROCE_V1:
        raise Skip("are RoCE v1 (ethertype 0x8915), which is not shown")
    if kind == ETH_IPV4:
        found = ipv4(data, at)
    elif kind == ETH_IPV6:
        found = ipv6(data, at)
    else:
        return None
    if found is None:
        return None
    src, dst, traffic_class, hops, udp, plain = found
    sport, dport, length = word(data, udp), word(data, udp + 2), word(data, udp + 4)
    if dport != PORT:
        return None
    payload = data[udp + 8:]
    # A batch may be longer than the field of its length.
    claimed = length - 8 if length >= 8 else max(frame.length - udp - 8, 0)
    header = data[at:udp + 8] if plain else b""
    return Datagram(src, dst, sport, payload[:claimed], claimed, header, vlans, traffic_class, hops, place)


Found = tuple[str, str, int, int, int, bool]


def ipv4(data: bytes, at: int) -> Found | None:
    """Addresses, traffic class, TTL, where UDP begins, whether the header is plain; None if it is not UDP."""
    size = 4 * (word(data, at, 1) & 15)
    if size < 20 or word(data, at + 9, 1) != UDP:
        return None
    fragment = word(data, at + 6)
    if fragment & 0x1fff:
        raise Skip("are later IP fragments, which are not shown")
    src, dst = (str(ipaddress.IPv4Address(word(data, at + offset, 4))) for offset in (12, 16))
    return src, dst, data[at + 1], data[at + 8], at + size, not fragment & 0x2000


def ipv6(data: bytes, at: int) -> Found | None:
    """The same of IPv6, behind its extension headers."""
    first, kind, hops = word(data, at, 4), word(data, at + 6, 1), word(data, at + 7, 1)
    src, dst = (str(ipaddress.IPv6Address(word(data, at + offset, 16))) for offset in (8, 24))
    behind, plain = at + 40, True
    while kind in EXTENSIONS or kind in (FRAGMENT, AH):
        plain = False
        length = {FRAGMENT: 8, AH: 4 * (word(data, behind + 1, 1) + 2)}.get(kind, 8 * (word(data, behind + 1, 1) + 1))
        if kind == FRAGMENT and word(data, behind + 2) >> 3:
            raise Skip("are later IP fragments, which are not shown")
        kind, behind = word(data, behind, 1), behind + length
    if kind != UDP:
        return None
    return src, dst, first >> 20 & 0xff, hops, behind, plain


class Skipped:
    """Counts the frames that cannot be shown, by the reason."""

    def __init__(self) -> None:
        self.reasons: Counter = Counter()

    def datagram(self, frame: Frame) -> Datagram | None:
        """As the function, without an exception."""
        try:
            return datagram(frame)
        except Skip as e:
            self.reasons[str(e)] += 1
            return None

    def notes(self) -> list[str]:
        """A sentence for each reason."""
        return [f"{count} frames {reason}" for reason, count in self.reasons.most_common()]
