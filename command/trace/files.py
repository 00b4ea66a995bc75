# SPDX-License-Identifier: GPL-2.0
"""What is read and written, with a word where that cannot be."""

import sys

from .capture import NotReadable


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
            sys.stdout.write(drawn)
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
