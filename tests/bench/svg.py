# SPDX-License-Identifier: GPL-2.0
"""Line charts as SVG files that need nothing else."""

import math
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 640, 400
LEFT, RIGHT, TOP, BOTTOM = 70, 20, 56, 48
# Told apart by people who see few colours, and by their dashes on paper.
STYLES = (("#0072b2", ""), ("#d55e00", "6 3"), ("#009e73", "2 3"), ("#cc79a7", "8 3 2 3"))


@dataclass(frozen=True)
class Axis:
    """What is measured, and the base of its logarithmic scale; without one it is linear."""

    words: str
    base: int = 0

    def place(self, value):
        return math.log(value, self.base) if self.base else value

    def ticks(self, least, most):
        """Values that are written at the axis: powers of the base, or 0 to 100 in tenths."""
        if not self.base:
            step = max(1, math.ceil((most - least) / 10))
            return [n for n in range(math.floor(least), math.ceil(most) + 1) if n % step == 0]
        low, high = math.floor(self.place(least) + 1e-9), math.ceil(self.place(most) - 1e-9)
        step = max(1, math.ceil((high - low) / 12))
        return [self.base ** n for n in range(low, high + step, step)]


def short(value):
    """A number as it is written at an axis."""
    for power, letter in ((20, "Mi"), (10, "Ki")):
        if value >= 1 << power and value % (1 << power) == 0:
            return f"{value >> power}{letter}"
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:g}{letter}"
    return f"{value:g}"


def chart(title, about, x, y, lines):
    """One chart; `lines` has the points of each line by its name, and `about` says where they come from."""
    points = [point for line in lines.values() for point in line]
    xs, ys = (axis.ticks(min(values), max(values)) for axis, values in zip((x, y), zip(*points)))

    def across(value):
        return LEFT + (x.place(value) - x.place(xs[0])) / ((x.place(xs[-1]) - x.place(xs[0])) or 1) * (WIDTH - LEFT - RIGHT)

    def up(value):
        return HEIGHT - BOTTOM - (y.place(value) - y.place(ys[0])) / ((y.place(ys[-1]) - y.place(ys[0])) or 1) * (HEIGHT - TOP - BOTTOM)

    out = ["<!-- SPDX-License-Identifier: GPL-2.0 -->",
           f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
           'font-family="sans-serif" font-size="11" role="img">',
           f"<title>{escape(title)}</title>", f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
           f'<text x="{LEFT}" y="18" font-size="14">{escape(title)}</text>',
           f'<text x="{LEFT}" y="32" fill="#666" font-size="9">{escape(about)}</text>']
    for value in xs:
        out.append(f'<path d="M{across(value):.1f} {TOP}V{HEIGHT - BOTTOM}" stroke="#ddd"/>'
                   f'<text x="{across(value):.1f}" y="{HEIGHT - BOTTOM + 14}" text-anchor="middle">{short(value)}</text>')
    for value in ys:
        out.append(f'<path d="M{LEFT} {up(value):.1f}H{WIDTH - RIGHT}" stroke="#ddd"/>'
                   f'<text x="{LEFT - 6}" y="{up(value) + 4:.1f}" text-anchor="end">{short(value)}</text>')
    out.append(f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 12}" text-anchor="middle">{escape(x.words)}</text>'
               f'<text x="{LEFT}" y="{TOP - 8}" text-anchor="end">{escape(y.words)}</text>')
    for number, (name, line) in enumerate(lines.items()):
        colour, dashes = STYLES[number % len(STYLES)]
        stroke = f'stroke="{colour}" stroke-width="2"' + (f' stroke-dasharray="{dashes}"' if dashes else "")
        path = "".join(f"{'L' if n else 'M'}{across(a):.1f} {up(b):.1f}" for n, (a, b) in enumerate(sorted(line)))
        out.append(f'<path d="{path}" fill="none" {stroke}/>')
        out += [f'<circle cx="{across(a):.1f}" cy="{up(b):.1f}" r="3" fill="{colour}"><title>{escape(name)}: {short(a)}: {b:,.4g} '
                f'{escape(y.words)}</title></circle>' for a, b in sorted(line)]
        at = LEFT + 90 + number * 130
        out.append(f'<path d="M{at} {TOP - 12}h24" {stroke}/><text x="{at + 30}" y="{TOP - 8}">{escape(name)}</text>')
    return "\n".join([*out, "</svg>"]) + "\n"
