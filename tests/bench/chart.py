# SPDX-License-Identifier: GPL-2.0
"""Bars of ratios as SVG, drawn by hand: a chart is no reason to need a library."""

from html import escape
from math import log2

LEFT, RIGHT, TOP, STEP, BAR = 310, 70, 64, 24, 14
WIDTH = 920
GOOD, BAD, INK, FAINT = "#2a7f62", "#c0563b", "#222222", "#cccccc"


def scale(values):
    """A function from ratios to x, logarithmic, and the powers of two it spans; 1x is always in sight."""
    low = min(0, *(int(log2(v) // 1) for v in values)) if values else 0
    high = max(1, *(int(-(-log2(v) // 1)) for v in values)) if values else 1
    room = WIDTH - LEFT - RIGHT

    def x(value):
        return LEFT + room * (log2(value) - low) / (high - low)

    return x, [2.0 ** n for n in range(low, high + 1)]


def tick(value):
    """`4x`, `1/2x`."""
    return f"{value:.0f}x" if value >= 1 else f"1/{1 / value:.0f}x"


def ratios(title, below, rows):
    """One bar for each row that has a ratio and a target, from 1x to its median, a thin line from
    the least to the most, and a mark at the target. Returns the text of the SVG."""
    rows = [row for row in rows if "met" in row]
    x, ticks = scale([v for row in rows for v in (*row["ratio"].values(), row["target"])])
    height = TOP + STEP * len(rows) + 34
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}" '
           'font-family="sans-serif" font-size="12">',
           f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
           f'<text x="12" y="24" font-size="16" fill="{INK}">{escape(title)}</text>',
           f'<text x="12" y="44" fill="#666666">{escape(below)}</text>']
    foot = TOP + STEP * len(rows)
    for value in ticks:
        out.append(f'<line x1="{x(value):.1f}" x2="{x(value):.1f}" y1="{TOP - 4}" y2="{foot}" '
                   f'stroke="{INK if value == 1 else FAINT}"/>')
        out.append(f'<text x="{x(value):.1f}" y="{foot + 16}" text-anchor="middle" fill="#666666">{tick(value)}</text>')
    for n, row in enumerate(rows):
        y = TOP + STEP * n
        ratio = row["ratio"]
        a, b = sorted((x(1), x(ratio["median"])))
        mid = y + BAR / 2
        out += [f'<text x="{LEFT - 10}" y="{y + 11}" text-anchor="end" fill="{INK}">{escape(row["name"])}</text>',
                f'<rect x="{a:.1f}" y="{y}" width="{max(b - a, 1):.1f}" height="{BAR}" '
                f'fill="{GOOD if row["met"] else BAD}"/>',
                f'<line x1="{x(ratio["least"]):.1f}" x2="{x(ratio["most"]):.1f}" y1="{mid}" y2="{mid}" '
                f'stroke="{INK}"/>',
                f'<line x1="{x(row["target"]):.1f}" x2="{x(row["target"]):.1f}" y1="{y - 3}" y2="{y + BAR + 3}" '
                f'stroke="{INK}" stroke-width="2" stroke-dasharray="2 2"/>',
                f'<text x="{max(x(ratio["most"]), b) + 6:.1f}" y="{y + 11}" fill="{INK}">'
                f'{ratio["median"]:.2f}x</text>']
    out.append("</svg>")
    return "\n".join(out) + "\n"
