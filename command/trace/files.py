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


def write(drawn: str, output: str | None) -> None:
    """Puts it there, or on standard output."""
    if not output:
        sys.stdout.write(drawn)
        return
    try:
        with open(output, "w", encoding="utf-8") as f:
            f.write(drawn)
    except OSError as e:
        raise NotReadable(f"{output}: {e.strerror}") from None
