# SPDX-License-Identifier: GPL-2.0
"""`ferroce trace show`: reads, draws, writes."""

import argparse
import json
import sys

from . import mermaid, page, text
from .capture import NotReadable
from .data import data
from .trace import Trace, load, only


# By what --as says.
FORMS = {
    "text": lambda trace, args: text.draw(trace, not args.all),
    "html": lambda trace, args: page.draw(trace, args.keys),
    "mermaid": lambda trace, args: mermaid.draw(trace, not args.all),
    "json": lambda trace, args: json.dumps(data(trace, args.keys), indent=1) + "\n",
}


def contents(path: str) -> bytes:
    """The bytes of a file; - is standard input."""
    try:
        if path == "-":
            return sys.stdin.buffer.read()
        with open(path, "rb") as f:
            return f.read()
    except OSError as e:
        raise NotReadable(f"{path}: {e.strerror}") from None


def read(args: argparse.Namespace) -> Trace:
    """The captures that are named."""
    trace = load([(path, contents(path)) for path in args.files])
    if args.qp is not None:
        only(trace, args.qp)
    return trace


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


def run(args: argparse.Namespace) -> int:
    """Draws what is asked for; raises NotReadable where that cannot be."""
    write(FORMS[args.form](read(args), args), args.output)
    return 0
