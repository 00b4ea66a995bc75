# SPDX-License-Identifier: GPL-2.0
"""Where the functions of a shared object are in its file, as an uprobe wants to know it."""

import struct
from collections.abc import Iterator

LOAD, SYMBOLS, VERSIONS = 1, 11, 0x6fffffff
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


def functions(data: bytes) -> dict[str, int]:
    """The offset of each exported function, of several versions the one that programs are linked with today."""
    if data[:6] != b"\x7fELF\2\1":
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
            where = next((address - begin + at for begin, at, size in parts if begin <= address < begin + size), None)
            if where is not None:
                end = data.index(b"\0", names + name)
                found[data[names + name:end].decode(errors="replace")] = where
    return found
