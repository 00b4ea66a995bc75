# SPDX-License-Identifier: GPL-2.0
"""What `make bench CHARTS=1` draws: how figures change with the size of a message and with the number of QPs, and how latency is
distributed; ferroce, rdma_rxe and TCP in one chart each."""

from dataclasses import dataclass, field

from tests.bench import plan, svg
from tests.bench.plan import Row

DRIVERS = {"ferroce": "ferroce", "rxe": "rdma_rxe"}
TCP = "TCP (rstream)"
SIZES = tuple(2 << (2 * n) for n in range(11)) + (8 << 20,)
QPS = (1, 4, 16, 64, 256)
# Of each size so many bytes, in messages not fewer and not more than these.
BYTES, FEWEST, MOST = 8 << 20, 5, 2000
MESSAGES = 3200
SAMPLES = 5000
# So many times as often where nothing is emulated.
NATIVE_TIMES = 5
# Where the distribution of latency is drawn: parts of all messages that were not slower.
PARTS = (0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.995, 0.999)


@dataclass
class Chart:
    """One picture: the points of its lines are rows, by what is on the x axis."""

    name: str
    title: str
    x: svg.Axis
    y: svg.Axis
    rows: dict
    # Whether TCP is measured at the same places: it has sizes, and no queue pairs.
    tcp: bool = False
    lines: dict = field(default_factory=dict)

    def add(self, line, x, y):
        self.lines.setdefault(line, []).append((x, y))

    def draw(self, about):
        return svg.chart(self.title, about, self.x, self.y, self.lines)


def how_often(size):
    return max(FEWEST, min(MOST, BYTES // size))


def plans(times=1):
    """All charts, without points. Each row does `times` as much."""
    found = []
    for place, words in plan.PLACES.items():
        found.append(Chart(
            f"bandwidth-{place}", f"WRITE by size, {words}", svg.Axis("size of a message in bytes", 2), svg.Axis("MiB/s", 10),
            {size: Row(place, "bandwidth", "ib_write_bw", size, how_often(size) * times, "chart") for size in SIZES}, tcp=True))
        found.append(Chart(
            f"rate-{place}", f"WRITE of 64 B by number of QPs, {words}", svg.Axis("QPs", 2), svg.Axis("messages/s", 10),
            {qps: Row(place, "rate", "ib_write_bw", 64, MESSAGES * times // qps, "chart", qps=qps) for qps in QPS}))
        found.append(Chart(
            f"latency-{place}", f"SEND of 64 B, half of the round trip, {words}", svg.Axis("part of all that took no longer, in %"),
            svg.Axis("us", 10), {0: Row(place, "distribution", "ib_send_lat", 64, SAMPLES, "chart", options=("-U",))}))
    return found


def parts_of(samples):
    """The points of a distribution: percent, value."""
    ordered = sorted(samples)
    return [(100 * part, ordered[min(len(ordered) - 1, int(part * len(ordered)))]) for part in PARTS]


def collect(events):
    """The charts with the points that a guest has measured."""
    found = {chart.name: chart for chart in plans()}
    for event in events:
        if event["event"] == "point":
            for x, y in event["points"]:
                found[event["chart"]].add(event["line"], x, y)
    return [chart for chart in found.values() if chart.lines]
