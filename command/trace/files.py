# SPDX-License-Identifier: GPL-2.0
"""What is read and written, with a word where that cannot be."""

import sys

from .capture import NotReadable

# What a terminal may take for an order: the names of files, interfaces and programs are somebody else's.
ORDERS = {number: "?" for number in (*range(0x20), *range(0x7f, 0xa0)) if chr(number) not in "\n\t"}


def contents(path: str) -> bytes:
    """The bytes of a file; - is standard input."""
    try:
        if path == "-":
            return sys.stdin.buffer.read()
        with open(path, "rb") as f:
            return f.read()
    except OSError as e:
        raise NotReadable(f"{path}: {e.strerror}") from None


def write(drawn: str | bytes, output: str | None) -> None:
    """Puts it there, or on standard output."""
    if not output and isinstance(drawn, str):
        try:
            sys.stdout.write(drawn.translate(ORDERS))
        except UnicodeEncodeError:
            raise NotReadable(f"the output's encoding, {sys.stdout.encoding}, lacks characters: -o FILE writes UTF-8") from None
        return
    held = drawn.encode() if isinstance(drawn, str) else drawn
    if not output:
        sys.stdout.buffer.write(held)
        return
    try:
        with open(output, "wb") as f:
            f.write(held)
    except OSError as e:
        raise NotReadable(f"{output}: {e.strerror}") from None
