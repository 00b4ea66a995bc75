# SPDX-License-Identifier: GPL-2.0
"""Where the functions and the probes of a shared object are in its file, as an uprobe wants to know it."""

import re
import struct
from collections.abc import Iterator
from typing import NamedTuple

LOAD, SYMBOLS, VERSIONS, NOTES = 1, 11, 0x6fffffff, 7
FUNCTION, HIDDEN = 2, 0x8000


def sections(data: bytes) -> list[tuple]:
    """Of each section: type, offset, size, and the section that it goes with."""
    begin, = struct.unpack_from("<Q", data, 40)
    size, count = struct.unpack_from("<HH", data, 58)
    found = []
    for at in range(begin, begin + size * count, size):
        _, kind, _, _, offset, length, link, _, _, _ = struct.unpack_from("<IIQQQQIIQQ", data, at)
        found.append((kind, offset, length, link))
    return found


def loaded(data: bytes) -> Iterator[tuple[int, int, int]]:
    """Of each part that is loaded: address, offset, size in the file."""
    begin, = struct.unpack_from("<Q", data, 32)
    size, count = struct.unpack_from("<HH", data, 54)
    for at in range(begin, begin + size * count, size):
        kind, _, offset, address, _, length = struct.unpack_from("<IIQQQQ", data, at)
        if kind == LOAD:
            yield address, offset, length


def is_one(data: bytes) -> bool:
    """Whether it is a shared object of 64 bits and the byte order of this machine's kind."""
    return data[:6] == b"\x7fELF\2\1"


def place(parts: list[tuple[int, int, int]], address: int) -> int | None:
    """Where in the file an address is."""
    return next((address - begin + at for begin, at, size in parts if begin <= address < begin + size), None)


def functions(data: bytes) -> dict[str, int]:
    """The offset of each exported function, of several versions the one that programs are linked with today."""
    if not is_one(data):
        return {}
    parts, all_sections = list(loaded(data)), sections(data)
    versions = next((offset for kind, offset, _, _ in all_sections if kind == VERSIONS), None)
    found = {}
    for kind, offset, length, link in all_sections:
        if kind != SYMBOLS:
            continue
        names = all_sections[link][1]
        for number in range(length // 24):
            name, info, _, section, address, _ = struct.unpack_from("<IBBHQQ", data, offset + 24 * number)
            hidden = versions is not None and struct.unpack_from("<H", data, versions + 2 * number)[0] & HIDDEN
            if info & 15 != FUNCTION or not section or hidden:
                continue
            where = place(parts, address)
            if where is not None:
                end = data.index(b"\0", names + name)
                found[data[names + name:end].decode(errors="replace")] = where
    return found


class Probe(NamedTuple):
    """One place of a USDT probe; there may be several of a name."""

    provider: str
    name: str
    offset: int
    # Where its arguments are then, such as 4@52(%rdi).
    arguments: list[str]


def notes(data: bytes) -> Iterator[tuple[str, int, bytes]]:
    """Of each note: its owner, its type, and what it holds."""
    for kind, offset, length, _ in sections(data):
        at, end = offset, offset + length
        while kind == NOTES and at + 12 <= end:
            name, held, which = struct.unpack_from("<III", data, at)
            body = at + 12 + (name + 3 & ~3)
            yield data[at + 12:at + 12 + name].rstrip(b"\0").decode(errors="replace"), which, data[body:body + held]
            at = body + (held + 3 & ~3)


def probes(data: bytes) -> list[Probe]:
    """The USDT probes, by their notes, which a file keeps when it is stripped."""
    if not is_one(data):
        return []
    parts, found = list(loaded(data)), []
    for owner, which, held in notes(data):
        if (owner, which) == ("stapsdt", 3) and len(held) > 24:
            where = place(parts, struct.unpack_from("<Q", held)[0])
            words = [word.decode(errors="replace") for word in held[24:].split(b"\0")]
            if where is not None and len(words) > 2:
                found.append(Probe(words[0], words[1], where, words[2].split()))
    return found


# A register or what stands behind one, of x86-64 and of aarch64.
WHERE = re.compile(r"-?(?P<size>[1248])@(?:(?P<offset>-?\d*)\(%(?P<base>\w+)\)|%(?P<register>\w+)"
                   r"|\[(?P<armbase>\w+)(?:, ?(?P<armoffset>-?\d+))?\]|(?P<armregister>[wx]\d+)|\$(?P<number>-?\d+))$")


def register(name: str) -> str:
    """What the kernel calls a register, of which a program may use a part: %eax is ax, %r12d is r12, w3 is x3."""
    if re.fullmatch(r"[wx]\d+", name):
        return f"x{name[1:]}"
    return re.sub(r"[bwd]$", "", name) if re.match(r"r\d", name) else re.sub(r"^[er](?=[a-z]{2}$)", "", name)


def fetch(argument: str, kind: str) -> str | None:
    """An argument as `uprobe_events` wants it, to be printed as `kind` says: u for a number, x for a hexadecimal one. None for
    one that cannot be written so."""
    found = WHERE.match(argument)
    if not found:
        return None
    how = f":{kind}{int(found['size']) * 8}"
    if found["number"]:
        return f"\\{found['number']}{how}"
    if base := found["base"] or found["armbase"]:
        return f"+{int(found['offset'] or found['armoffset'] or 0)}(%{register(base)}){how}".replace("+-", "-")
    return f"%{register(found['register'] or found['armregister'])}{how}"
