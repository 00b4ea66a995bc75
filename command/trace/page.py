# SPDX-License-Identifier: GPL-2.0
"""A ladder as a page of its own: SVG, which needs no script to be read, and a script that filters, folds and shows headers.
It asks nothing of a network, and its policy forbids it to."""

import html
import json
import os

from . import view
from .data import data
from .findings import findings, summaries
from .half import DROPPED, LOST
from .marks import CALL, LOSS, QUEUE, STATE, Mark
from .merge import Sent
from .talk import Talk
from .text import title
from .trace import Trace

POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'"
# Places in the picture.
ROW, TOP, LEFT, RIGHT = 26, 34, 110, 560
# A letter of a remark, and how far what is within a call stands back.
LETTER, STEP = 7.3, 12
# Kinds of marks that a reader may leave out.
KINDS = {CALL: "calls", QUEUE: "queues", STATE: "states", LOSS: "losses"}
NS = "http://www.w3.org/2000/svg"


def part(name: str) -> str:
    """A file beside this one, without its first line, which is the licence."""
    with open(os.path.join(os.path.dirname(__file__), name), encoding="utf-8") as f:
        return f.read().partition("\n")[2]


def text(value: object) -> str:
    """Text in HTML."""
    return html.escape(str(value), quote=True)


def draw(trace: Trace, keys: bool) -> str:
    """The page."""
    # Nothing in a script element may look like its end.
    held = json.dumps(readable(data(trace, keys)), separators=(",", ":")).replace("<", "\\u003c")
    sections = "\n".join(section(number, talk, trace.begin) for number, talk in enumerate(trace.talks))
    notes = "".join(f"<li>{text(note)}</li>" for note in trace.notes)
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{POLICY}">
<meta name="viewport" content="width=device-width">
<title>{text(', '.join(trace.files))}: ferroce trace</title>
<style>
{part('page.css')}</style>
</head>
<body>
<header>
<h1>{text(trace.headline())}</h1>
<ul class="notes">{notes}</ul>
<form id="tools" hidden>
<label>queue pair <select id="qp"><option value="">all</option>{choices(trace)}</select></label>
<label><input type="checkbox" id="fold"> fold packets that are alike</label>
<label><input type="checkbox" id="odd"> only what is lost, again, refused or failed</label>
{kinds(trace)}</form>
</header>
<main>
{sections}
</main>
<aside id="panel" hidden><button id="close" type="button" title="close">&times;</button><div id="headers"></div></aside>
<script type="application/json" id="data">{held}</script>
<script>
{part('page.js')}</script>
</body>
</html>
"""


def readable(value: object) -> object:
    """The same for scripts, whose numbers have 53 bits."""
    if isinstance(value, dict):
        return {name: readable(part) for name, part in value.items()}
    if isinstance(value, list):
        return [readable(part) for part in value]
    return f"{value:#x}" if isinstance(value, int) and value >> 53 else value


def kinds(trace: Trace) -> str:
    """Which events of the module to show."""
    if not any(talk.marks for talk in trace.talks):
        return ""
    return "".join(f'<label><input type="checkbox" class="kind" value="{kind}" checked> {name}</label>'
                   for kind, name in KINDS.items())


def choices(trace: Trace) -> str:
    """The queue pairs to choose from."""
    qpns = sorted({qpn for talk in trace.talks for qpn in talk.qpns})
    return "".join(f'<option value="{qpn:#x}">{qpn:#x}</option>' for qpn in qpns)


def section(number: int, talk: Talk, begin: int) -> str:
    """A conversation: what is to be said of it, and its picture."""
    lines = "".join(f"<p>{'&rarr;' if left else '&larr;'} {text(said)}</p>" for left, said in summaries(talk))
    said = "".join(f"<li>{text(sentence)}</li>" for sentence in findings(talk))
    qpns = " ".join(f"{qpn:#x}" for qpn in sorted(talk.qpns))
    mtu = f", path MTU {talk.mtu}" if talk.mtu else ""
    return (f'<details class="talk" data-talk="{number}" data-qps="{qpns}" open><summary>{text(title(talk))}{mtu}</summary>\n'
            f'<p class="how">queue pairs known: {text(talk.pair.how)}</p>{lines}<ul class="findings">{said}</ul>\n'
            f"{picture(number, talk, begin)}\n</details>")


def picture(number: int, talk: Talk, begin: int) -> str:
    """The SVG."""
    items = talk.items()
    height = TOP + ROW * len(items) + 10
    width = int(RIGHT + 100 + LETTER * max(len(beside(one)) for one in items))
    parts = [f'<svg xmlns="{NS}" width="{width}" height="{height}" viewBox="0 0 {width} {height}" role="img">',
             f'<text x="{LEFT}" y="16" class="end">{text(talk.pair.left)}</text>',
             f'<text x="{RIGHT}" y="16" class="end right">{text(talk.pair.right)}</text>',
             f'<text x="{LEFT - 12}" y="30" class="time">us</text>',
             *(f'<line class="life" x1="{x}" y1="22" x2="{x}" y2="{height}"/>' for x in (LEFT, RIGHT))]
    runs = run_numbers(talk)
    for place, one in enumerate(items):
        y = TOP + ROW * place
        parts.append(mark(number, one, y, begin) if isinstance(one, Mark) else row(number, one, y, begin, runs.get(place)))
    return "\n".join(parts) + "\n</svg>"


def beside(one: Sent | Mark) -> str:
    """What stands at the right of the picture."""
    if isinstance(one, Sent):
        return view.remark(one)
    said = one.why or one.remark
    return f"{'  ' * one.depth}{one.label}; {said}" if one.rightward else said


def run_numbers(talk: Talk) -> dict[int, tuple[int, str]]:
    """Of the packets that fold into one row: the number of that row, and its label at the first of them."""
    found = {}
    for number, one in enumerate(view.rows(talk, True)):
        if len(one.items) > 1:
            for sent in one.items:
                found[sent.number] = number, one.label if sent is one.first else ""
    return found


def frame(number: int, one: Sent | Mark, y: int, begin: int, classes: str, inside: str) -> str:
    """A row, with its time."""
    return (f'<g class="row {classes}" transform="translate(0,{y})" data-sel="{number}-{one.number}" tabindex="0">'
            f'<rect class="back" x="0" y="-2" width="100%" height="{ROW}"/>'
            f'<text class="time" x="{LEFT - 12}" y="15">{(one.at - begin) / 1000:.1f}</text>{inside}</g>')


def mark(number: int, one: Mark, y: int, begin: int) -> str:
    """What an end does: a point on its line, and words beside it."""
    x = (RIGHT if one.rightward else LEFT) + STEP * one.depth
    said = one.why or one.remark
    label = one.label + f"; {said}" if one.rightward and said else one.label
    there = "" if one.rightward else f'<text class="remark" x="{RIGHT + 14}" y="15">{text(said)}</text>'
    return frame(number, one, y, begin, f"mark {one.kind}{' bad' * one.bad}",
                 f'<circle cx="{x - STEP * one.depth}" cy="11" r="3.5"/><text class="does" x="{x + 12}" y="15">{text(label)}</text>{there}')


def row(number: int, one: Sent, y: int, begin: int, run: tuple[int, str] | None) -> str:
    """A packet: when, what, its arrow, and what is to be said of it."""
    kind = "lost" if one.fate == LOST else "dropped" if one.fate == DROPPED else "again" if one.again else ""
    if one.packet.is_nak or one.packet.is_rnr:
        kind = f"{kind} nak".strip()
    if one.packet.handed:
        kind = f"{kind} handed".strip()
    folds = f' data-run="{run[0]}"' + (f' data-folded="{text(run[1])}"' if run[1] else "") if run else ""
    drawn = frame(number, one, y, begin, kind,
                  f'<text class="label" x="{(LEFT + RIGHT) // 2}" y="8">{text(view.label(one))}</text>{line(one)}'
                  f'<text class="remark" x="{RIGHT + 14}" y="15">{text(view.remark(one))}</text>')
    return drawn.replace(' tabindex="0"', f'{folds} tabindex="0"', 1)


def line(one: Sent) -> str:
    """The arrow of a packet: it ends in the middle when it is lost, and in a bar when it is thrown away."""
    start, end = (LEFT, RIGHT) if one.rightward else (RIGHT, LEFT)
    step = 1 if one.rightward else -1
    if one.fate == LOST:
        middle = start + step * 300
        return (f'<path d="M{start} 14 L{middle} 17 M{middle - 5} 12 l10 10 m0 -10 l-10 10"/>')
    head = (f"M{end - step * 9} 13.5 L{end} 18 L{end - step * 9} 21.5" if one.fate != DROPPED
            else f"M{end - step * 9} 11 v13")
    return f'<path d="M{start} 14 L{end - step * (9 if one.fate == DROPPED else 0)} 18 {head}"/>'
