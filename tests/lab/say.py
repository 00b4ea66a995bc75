# SPDX-License-Identifier: GPL-2.0
"""Words to the person at the terminal: progress, verdicts, and one clear line when something is missing."""

import sys
import time

START = time.monotonic()
TTY = sys.stdout.isatty()
COLOURS = {"passed": "32", "failed": "31", "skipped": "33", "step": "1"}


class LabError(Exception):
    """What is missing or wrong, and what to do about it, in one line."""

    text = ""


class Bad(LabError):
    """What is wrong with what is tested; `text` is what it has printed."""

    def __init__(self, why, text=""):
        super().__init__(why)
        self.text = text


def colour(kind, text):
    return f"\033[{COLOURS[kind]}m{text}\033[0m" if TTY else text


def step(text):
    minutes, seconds = divmod(int(time.monotonic() - START), 60)
    print(f"[{minutes:2}:{seconds:02}] {text}", flush=True)


def line(text=""):
    print(text, flush=True)


def quote(lines):
    """What something else has printed."""
    for text in lines:
        line("    | " + text)


def verdict(status, name, seconds=None, detail=""):
    took = f"{seconds:6.1f} s" if seconds is not None else " " * 8
    text = f"{colour(status, status):<7} {took}  {name}"
    if detail:
        text += f": {detail}"
    line(text)


def table(rows, head):
    """Prints rows of text under a head, columns aligned."""
    cells = [list(map(str, head))] + [list(map(str, row)) for row in rows]
    widths = [max(len(row[i]) for row in cells) for i in range(len(head))]
    for n, row in enumerate(cells):
        line("  " + "  ".join(c.rjust(w) if i else c.ljust(w) for i, (c, w) in enumerate(zip(row, widths))).rstrip())
        if n == 0:
            line("  " + "  ".join("-" * w for w in widths))
