# SPDX-License-Identifier: GPL-2.0
"""A ladder as a sequence diagram of mermaid, for Markdown."""

from .findings import findings
from .talk import Talk
from .trace import Trace
from .view import Row, rows


def draw(trace: Trace, fold: bool = True) -> str:
    """A diagram for each conversation, in a block of its own where there are several."""
    blocks = [diagram(talk, trace.begin, fold) for talk in trace.talks]
    if len(blocks) == 1:
        return blocks[0]
    return "\n".join(f"```mermaid\n{block}```\n" for block in blocks)


def plain(text: str) -> str:
    """Text that mermaid takes for nothing else: a semicolon ends a statement, and # begins an entity."""
    return text.replace("#", "no. ").replace(";", ",")


def diagram(talk: Talk, begin: int, fold: bool) -> str:
    """One conversation."""
    lines = ["sequenceDiagram", f"    participant A as {plain(str(talk.pair.left))}",
             f"    participant B as {plain(str(talk.pair.right))}"]
    for row in rows(talk, fold):
        lines += of_row(row, begin)
    said = "<br/>".join(plain(sentence) for sentence in findings(talk))
    if said:
        lines.append(f"    Note over A,B: {said}")
    return "\n".join(lines) + "\n"


def of_row(row: Row, begin: int) -> list[str]:
    """An arrow, and a note where there is something to say; a note for a mark."""
    when = f"{(row.first.at - begin) / 1000:.1f} us"
    if row.mark:
        side = "right of B" if row.mark.rightward else "left of A"
        return [f"    Note {side}: {when} {plain('<br/>'.join(filter(None, (row.mark.label, row.remark, row.mark.why))))}"]
    start, end = "AB" if row.first.rightward else "BA"
    head = "-x" if row.lost or row.dropped else "->>"
    lines = [f"    {start}{head}{end}: {when} {plain(row.label)}"]
    if row.remark:
        lines.append(f"    Note {'right' if end == 'B' else 'left'} of {end}: {plain(row.remark)}")
    return lines
