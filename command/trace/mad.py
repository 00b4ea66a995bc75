# SPDX-License-Identifier: GPL-2.0
"""Management datagrams to queue pair 1: what the connection manager says (IBTA 12.6, 12.11)."""

import ipaddress
from collections.abc import Callable

HEADER = 24
CM_CLASS = 0x07
CLASSES = {0x01: "SMP", 0x81: "SMP", 0x03: "SA", 0x04: "performance", CM_CLASS: "CM"}

# Where the fields of each message are, behind the header of the MAD: first bit, and how many.
Layout = dict[str, tuple[int, int]]
COMM = {"local_id": (0, 32), "remote_id": (32, 32)}
REQ: Layout = {
    "local_id": (0, 32), "service_id": (64, 64), "qkey": (224, 32), "qpn": (256, 24), "responder_resources": (280, 8),
    "initiator_depth": (312, 8), "remote_timeout": (344, 5), "transport": (349, 2), "psn": (352, 24),
    "local_timeout": (376, 5), "retry_count": (381, 3), "pkey": (384, 16), "path_mtu": (400, 4), "rnr_retry": (405, 3),
    "max_cm_retries": (408, 4), "srq": (412, 1), "ack_timeout": (760, 5)}
REP: Layout = COMM | {
    "qkey": (64, 32), "qpn": (96, 24), "psn": (160, 24), "responder_resources": (192, 8), "initiator_depth": (200, 8),
    "target_ack_delay": (208, 5), "rnr_retry": (216, 3), "srq": (219, 1)}
# By the attribute: name, fields, where the private data begin, their length.
MESSAGES: dict[int, tuple[str, Layout, int, int]] = {
    0x10: ("REQ", REQ, 140, 92),
    0x11: ("MRA", COMM | {"message": (64, 2), "service_timeout": (72, 5)}, 10, 222),
    0x12: ("REJ", COMM | {"message": (64, 2), "reason": (80, 16)}, 84, 148),
    0x13: ("REP", REP, 36, 196),
    0x14: ("RTU", COMM, 8, 224),
    0x15: ("DREQ", COMM | {"qpn": (64, 24)}, 12, 220),
    0x16: ("DREP", COMM, 8, 224),
    0x17: ("SIDR_REQ", {"local_id": (0, 32), "pkey": (32, 16), "service_id": (64, 64)}, 16, 216),
    0x18: ("SIDR_REP", {"local_id": (0, 32), "status": (32, 8), "qpn": (64, 24), "service_id": (96, 64),
                        "qkey": (160, 32)}, 96, 136),
    0x19: ("LAP", COMM | {"qpn": (96, 24)}, 64, 168),
    0x1a: ("APR", COMM | {"status": (72, 8)}, 84, 148),
}
REASONS = {1: "no queue pair", 2: "no EEC", 3: "no resources", 4: "timeout", 5: "unsupported request",
           6: "invalid communication ID", 7: "invalid communication instance", 8: "invalid service ID",
           9: "invalid transport type", 10: "stale connection", 12: "primary GID refused", 13: "primary LID refused",
           14: "invalid primary SL", 15: "invalid primary traffic class", 16: "invalid primary hop limit",
           17: "invalid primary packet rate", 24: "port and CM redirection", 25: "port redirection",
           26: "path MTU refused", 27: "insufficient responder resources", 28: "refused by the consumer",
           29: "RNR retry count refused", 30: "duplicate local communication ID", 31: "invalid class version",
           32: "invalid flow label", 33: "invalid alternate flow label"}
SERVICES = {0: "RC", 1: "UC", 2: "RD", 3: "XRC"}
REJECTED = ("REQ", "REP", "no message", "no message")
# Service IDs of rdma_cm (IBTA A11): its port space and port, and a header in front of the private data of a REQ.
PORT_SPACES, IP_HEADER = {0x0106: "TCP", 0x0111: "UDP", 0x013f: "IB", 0x0002: "IPoIB"}, 36


def bits(data: bytes, first: int, count: int) -> int | None:
    """A field; None where it was not captured."""
    if (first + count + 7) // 8 > len(data):
        return None
    part = int.from_bytes(data[first // 8:(first + count + 7) // 8], "big")
    return part >> (-(first + count) % 8) & (1 << count) - 1


def decode(payload: bytes) -> dict | None:
    """The fields of a MAD as far as they were captured; None if not even its class was."""
    if len(payload) < HEADER:
        return None
    kind, attribute = payload[1], int.from_bytes(payload[16:18], "big")
    found: dict = {"class": kind, "attribute": attribute, "transaction": int.from_bytes(payload[8:16], "big")}
    name, layout, private, size = MESSAGES.get(attribute, ("", {}, 0, 0)) if kind == CM_CLASS else ("", {}, 0, 0)
    found["name"] = name or f"{CLASSES.get(kind, f'class {kind:#04x}')} attribute {attribute:#06x}"
    body = payload[HEADER:]
    for field, (first, count) in layout.items():
        value = bits(body, first, count)
        if value is not None:
            found[field] = value
    if name:
        data = body[private:private + size]
        # Its length is not on the wire: zeroes fill it up.
        found["private_data"] = len(data.rstrip(b"\0"))
        if name == "REQ":
            found |= of_rdma_cm(found, data)
            found["transport"] = SERVICES.get(found.get("transport", -1), "?")
        found |= words(name, found)
    return found


def of_rdma_cm(found: dict, data: bytes) -> dict:
    """Addresses and ports, where the request is one of rdma_cm."""
    service = found.get("service_id", 0)
    space = PORT_SPACES.get(service >> 16 & 0xffff)
    if service >> 32 or not space or len(data) < IP_HEADER:
        return {}
    version = data[1] >> 4
    if version == 4:
        addresses = [str(ipaddress.IPv4Address(data[at + 12:at + 16])) for at in (4, 20)]
    elif version == 6:
        addresses = [str(ipaddress.IPv6Address(data[at:at + 16])) for at in (4, 20)]
    else:
        return {}
    return {"port_space": space, "port": service & 0xffff, "source": addresses[0], "destination": addresses[1],
            "private_data": max(found["private_data"] - IP_HEADER, 0)}


def words(name: str, found: dict) -> dict:
    """What numbers mean."""
    if name == "REJ" and "reason" in found:
        return {"why": REASONS.get(found["reason"], f"reason {found['reason']}"),
                "rejected": REJECTED[found.get("message", 2)]}
    return {}


def text(found: dict, masked: Callable[[str, int], str]) -> str:
    """A MAD in a line; `masked` writes the value of a field that may be a key."""
    parts = [f"{'CM ' if found['class'] == CM_CLASS else ''}{found['name']}"]
    for field, form in (("transport", "{}"), ("qpn", "QP {:#x}"), ("psn", "PSN {}"), ("status", "status {}"),
                        ("retry_count", "retries {}"), ("rnr_retry", "RNR retries {}"), ("port", "port {}")):
        if field in found:
            parts.append(form.format(found[field]))
    if "qkey" in found and found["qkey"]:
        parts.append(f"Q_Key {masked('qkey', found['qkey'])}")
    if "why" in found:
        parts.append(f"of the {found['rejected']}: {found['why']}")
    if found.get("private_data"):
        parts.append(f"private data {found['private_data']} B")
    return ", ".join(parts)
