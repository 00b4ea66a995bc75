# SPDX-License-Identifier: GPL-2.0
"""A ladder as text."""

from .findings import findings, summaries
from .opcodes import duration
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
    """An arrow that arrives, or does not; a double one where it goes by memory."""
    if row.first.packet.handed:
        return "=" * (ARROW - 1) + ">" if row.first.rightward else "<" + "=" * (ARROW - 1)
    if row.first.rightward:
        if row.lost:
            return "-" * (ARROW // 2) + "x"
        return "-" * (ARROW - 2) + (">|" if row.dropped else "->")
    if row.lost:
        return " " * (ARROW // 2) + "x" + "-" * (ARROW - ARROW // 2 - 1)
    return ("|<" if row.dropped else "<-") + "-" * (ARROW - 2)


def said_of(row: Row) -> str:
    """What is to be said of packets, and how long their way was."""
    way = row.first.way if len(row.items) == 1 and not row.first.packet.handed else None
    return "; ".join(filter(None, ("" if way is None else f"there in {duration(way)}", row.remark)))


def ladder(talk: Talk, begin: int, fold: bool) -> list[str]:
    """A line for each row. What the right end does stands at the right."""
    drawn = rows(talk, fold)
    width = max([len(row.label) for row in drawn if not (row.mark and row.mark.rightward)] + [len(str(talk.pair.left))])
    lines = [f"{'time us':>12}  {str(talk.pair.left):<{width}}  {' ' * ARROW}  {talk.pair.right}"]
    # Marks of both ends beside a wire that carries nothing.
    wire = f"{'|':<{ARROW - 1}}|" if talk.marks else " " * ARROW
    for row in drawn:
        when = f"{(row.first.at - begin) / 1000:12.1f}"
        if not row.mark:
            line = f"{when}  {row.label:<{width}}  {arrow(row):<{ARROW}}  {said_of(row)}"
        elif row.mark.rightward:
            line = f"{when}  {'':<{width}}  {wire}  {row.label}" + f"; {row.remark}" * bool(row.remark)
        else:
            line = f"{when}  {row.label:<{width}}  {wire}"
        lines.append(line.rstrip())
        if row.mark and row.remark and not row.mark.rightward:
            lines.append(f"{'':14}{'  ' * row.mark.depth}  {row.remark}")
        if row.mark and row.mark.why:
            lines.append(f"{'':12}  * {row.mark.why}")
    return lines
