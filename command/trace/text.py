# SPDX-License-Identifier: GPL-2.0
"""A ladder as text."""

from .findings import findings, summaries
from .talk import Talk
from .trace import Trace
from .view import Row, rows

ARROW = 22


def draw(trace: Trace, fold: bool = True) -> str:
    """The whole picture: a summary, and a ladder for each conversation."""
    lines = [trace.headline(), *(f"note: {note}" for note in trace.notes)]
    for talk in trace.talks:
        lines += ["", *head(talk)]
    for number, talk in enumerate(trace.talks, 1):
        lines += ["", f"{number}. {title(talk)}", *ladder(talk, trace.begin, fold)]
    return "\n".join(lines) + "\n"


def title(talk: Talk) -> str:
    """The two ends."""
    return f"{talk.pair.left} <-> {talk.pair.right}, {talk.pair.service}"


def head(talk: Talk) -> list[str]:
    """What is to be known of a conversation before its packets."""
    mtu = f", path MTU {talk.mtu}" if talk.mtu else ""
    lines = [f"{title(talk)}{mtu} (queue pairs known: {talk.pair.how})"]
    lines += [f"  {'->' if left else '<-'} {said}" for left, said in summaries(talk)]
    return lines + [f"  * {said}" for said in findings(talk)]


def arrow(row: Row) -> str:
    """An arrow that arrives, or does not."""
    if row.first.rightward:
        if row.lost:
            return "-" * (ARROW // 2) + "x"
        return "-" * (ARROW - 2) + (">|" if row.dropped else "->")
    if row.lost:
        return " " * (ARROW // 2) + "x" + "-" * (ARROW - ARROW // 2 - 1)
    return ("|<" if row.dropped else "<-") + "-" * (ARROW - 2)


def ladder(talk: Talk, begin: int, fold: bool) -> list[str]:
    """A line for each row."""
    drawn = rows(talk, fold)
    width = max(max(len(row.label) for row in drawn), len(str(talk.pair.left)))
    lines = [f"{'time us':>12}  {str(talk.pair.left):<{width}}  {' ' * ARROW}  {talk.pair.right}"]
    for row in drawn:
        line = f"{(row.first.at - begin) / 1000:12.1f}  {row.label:<{width}}  {arrow(row):<{ARROW}}  {row.remark}"
        lines.append(line.rstrip())
    return lines
