# SPDX-License-Identifier: GPL-2.0
"""`ferroce trace show`: reads, draws, writes."""

import argparse
import json

from . import commented, mermaid, page, perfetto, text
from .data import data
from .files import contents, write
from .trace import Trace, load, only
from .view import mask


# By what --as says.
FORMS = {
    "text": lambda trace, args: text.draw(trace, not args.all),
    "html": lambda trace, args: page.draw(trace, args.keys),
    "mermaid": lambda trace, args: mermaid.draw(trace, not args.all),
    "perfetto": lambda trace, args: json.dumps(perfetto.timeline(trace), separators=(",", ":")) + "\n",
    "pcapng": lambda trace, args: commented.draw(trace),
    "json": lambda trace, args: json.dumps(data(trace, args.keys), indent=1) + "\n",
}


def read(args: argparse.Namespace) -> Trace:
    """The captures that are named."""
    trace = load([(path, contents(path)) for path in args.files])
    if args.qp is not None:
        only(trace, args.qp)
    if args.note:
        trace.notes.insert(0, args.note)
    if not args.keys:
        mask(trace)
    return trace


def run(args: argparse.Namespace) -> int:
    """Draws what is asked for; raises NotReadable where that cannot be."""
    write(FORMS[args.form](read(args), args), args.output)
    return 0
