# SPDX-License-Identifier: GPL-2.0
"""The one table of RoCEv2: opcodes, the headers behind the BTH, syndromes, delays. The command and the tests read it."""

# Opcodes (IBTA table 38; ATOMIC WRITE and FLUSH by its annex A19): name, and the headers behind the BTH.
OPCODES = {
    0x00: ("SEND First", ""), 0x01: ("SEND Middle", ""), 0x02: ("SEND Last", ""),
    0x03: ("SEND Last with Immediate", "I"), 0x04: ("SEND Only", ""), 0x05: ("SEND Only with Immediate", "I"),
    0x06: ("WRITE First", "R"), 0x07: ("WRITE Middle", ""), 0x08: ("WRITE Last", ""),
    0x09: ("WRITE Last with Immediate", "I"), 0x0a: ("WRITE Only", "R"), 0x0b: ("WRITE Only with Immediate", "RI"),
    0x0c: ("READ Request", "R"), 0x0d: ("READ Response First", "A"), 0x0e: ("READ Response Middle", ""),
    0x0f: ("READ Response Last", "A"), 0x10: ("READ Response Only", "A"), 0x11: ("Acknowledge", "A"),
    0x12: ("Atomic Acknowledge", "AO"), 0x13: ("CMP_AND_SWP", "W"), 0x14: ("FETCH_AND_ADD", "W"),
    0x16: ("SEND Last with Invalidate", "K"), 0x17: ("SEND Only with Invalidate", "K"), 0x1c: ("FLUSH", "FR"),
    0x1d: ("ATOMIC WRITE", "R"),
    0x64: ("UD SEND Only", "D"), 0x65: ("UD SEND Only with Immediate", "DI"),
    0x81: ("CNP", "N"),
    # The manufacturer's: a ferroce tells another which packets behind a gap it keeps.
    0xc0: ("Missing", "A"),
}
UC, XRC = 0x20, 0xa0
# Those of UC are those of RC up to WRITE; those of XRC are those of RC, and requests name the shared receive queue.
OPCODES |= {UC | opcode: (f"UC {name}", headers) for opcode, (name, headers) in OPCODES.items() if opcode <= 0x0b}
OPCODES |= {XRC | opcode: (f"XRC {name}", headers if 0x0d <= opcode <= 0x12 else "X" + headers)
            for opcode, (name, headers) in OPCODES.items() if opcode < UC}
# Length, and the fields with where they begin and end.
HEADERS = {"R": (16, {"va": (0, 8), "rkey": (8, 12), "dmalen": (12, 16)}),
           "I": (4, {"imm": (0, 4)}),
           "A": (4, {"syndrome": (0, 1), "msn": (1, 4)}),
           "K": (4, {"invalidated": (0, 4)}),
           "W": (28, {"va": (0, 8), "rkey": (8, 12), "swap": (12, 20), "compare": (20, 28)}),
           "O": (8, {"original": (0, 8)}),
           "D": (8, {"qkey": (0, 4), "sqpn": (5, 8)}),
           "X": (4, {"srqn": (1, 4)}),
           "F": (4, {"selectivity": (3, 4)}),
           "N": (16, {})}
# The names of IBTA.
HEADER_NAMES = {"R": "RETH", "I": "ImmDt", "A": "AETH", "K": "IETH", "W": "AtomicETH", "O": "AtomicAckETH", "D": "DETH",
                "X": "XRCETH", "F": "FETH", "N": "reserved"}
# What lets its owner reach memory or a queue pair.
KEYS = ("rkey", "qkey", "invalidated")

# What the module's trace events call them, behind the service.
TRACE_NAMES = {
    "SEND_FIRST": 0x00, "SEND_MIDDLE": 0x01, "SEND_LAST": 0x02, "SEND_LAST_IMM": 0x03, "SEND_ONLY": 0x04, "SEND_ONLY_IMM": 0x05,
    "WRITE_FIRST": 0x06, "WRITE_MIDDLE": 0x07, "WRITE_LAST": 0x08, "WRITE_LAST_IMM": 0x09, "WRITE_ONLY": 0x0a,
    "WRITE_ONLY_IMM": 0x0b, "READ_REQUEST": 0x0c, "READ_RESPONSE_FIRST": 0x0d, "READ_RESPONSE_MIDDLE": 0x0e,
    "READ_RESPONSE_LAST": 0x0f, "READ_RESPONSE_ONLY": 0x10, "ACKNOWLEDGE": 0x11, "ATOMIC_ACKNOWLEDGE": 0x12,
    "COMPARE_SWAP": 0x13, "FETCH_ADD": 0x14, "SEND_LAST_INVALIDATE": 0x16, "SEND_ONLY_INVALIDATE": 0x17, "FLUSH": 0x1c,
    "ATOMIC_WRITE": 0x1d, "NOTIFICATION": 0x81, "MISSING": 0xc0}

READ_REQUEST, ACKNOWLEDGE, FLUSH, ATOMIC_WRITE, CNP = 0x0c, 0x11, 0x1c, 0x1d, 0x81
ATOMICS = (0x13, 0x14)
RESPONSES = range(0x0d, 0x13)
SERVICES = {0x00: "RC", 0x20: "UC", 0x40: "RD", 0x60: "UD", 0x80: "CNP", 0xa0: "XRC", 0xc0: "MISSING"}
# Places of a packet in its message, by the opcode without the service.
ONLY = {0x04, 0x05, 0x0a, 0x0b, 0x0c, 0x10, 0x11, 0x12, 0x13, 0x14, 0x17, 0x1c, 0x1d}
FIRST, MIDDLE, LAST = {0x00, 0x06, 0x0d}, {0x01, 0x07, 0x0e}, {0x02, 0x03, 0x08, 0x09, 0x0f, 0x16}

# AETH: the upper bits of the syndrome, and the codes of NAKs (IBTA 9.7.5.2).
ACK, RNR_NAK, NAK = 0, 1, 3
NAKS = {0: "sequence error", 1: "invalid request", 2: "remote access error", 3: "remote operational error",
        4: "invalid RD request"}
SEQUENCE = 0
# Microseconds of each code of the RNR timer (IBTA table 45).
RNR_TIMERS = (655360, 10, 20, 30, 40, 60, 80, 120, 160, 240, 320, 480, 640, 960, 1280, 1920, 2560, 3840, 5120, 7680, 10240,
              15360, 20480, 30720, 40960, 61440, 81920, 122880, 163840, 245760, 327680, 491520)


def name_of(opcode: int) -> str:
    """What IBTA calls an opcode, or its number."""
    return OPCODES[opcode][0] if opcode in OPCODES else f"{SERVICES.get(opcode & 0xe0, 'opcode')} {opcode:#04x}"


def of_trace(name: str) -> int:
    """The opcode that a trace event names, such as RC_SEND_ONLY; one that has no name is a number."""
    service, _, rest = name.partition("_")
    base = next((number for number, known in SERVICES.items() if known == service), 0)
    return base | TRACE_NAMES[rest] if rest in TRACE_NAMES else int(name, 0) if name.startswith("0x") else 0xff


def operation(opcode: int) -> str:
    """The operation that a packet is part of: its name without the place of the packet."""
    words = name_of(opcode).split()
    kept = [word for word in words if word not in ("First", "Middle", "Last", "Only", "Request", "Response")]
    return " ".join(kept)


def syndrome_kind(syndrome: int) -> int:
    """ACK, RNR_NAK or NAK; 2 is reserved."""
    return syndrome >> 5 & 3


def syndrome_text(syndrome: int) -> str:
    """What an AETH says."""
    kind, code = syndrome_kind(syndrome), syndrome & 0x1f
    if kind == ACK:
        return "ACK"
    if kind == RNR_NAK:
        return f"RNR NAK, wait {duration(RNR_TIMERS[code] * 1000)}"
    if kind == NAK:
        return f"NAK {NAKS.get(code, f'code {code}')}"
    return f"reserved syndrome {syndrome:#04x}"


def duration(nanoseconds: float) -> str:
    """A time as people write it: three digits and a unit."""
    for unit, size in (("s", 1e9), ("ms", 1e6), ("us", 1e3)):
        if abs(nanoseconds) >= size:
            value = nanoseconds / size
            return f"{value:.0f} {unit}" if abs(value) >= 99.5 else f"{value:.3g} {unit}"
    return f"{nanoseconds:.0f} ns"
