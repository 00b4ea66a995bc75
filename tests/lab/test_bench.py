# SPDX-License-Identifier: GPL-2.0
"""What `make bench` makes of its figures."""

import unittest

from tests.bench import plan, summary


def figure(row, driver, turn, value, **more):
    """An event as the guest writes it."""
    return {"event": "figure", "row": row.key, "driver": driver, "round": turn, "value": value, "counters": [], **more}


class Summary(unittest.TestCase):
    """Medians, spreads and ratios."""

    def setUp(self):
        self.latency = next(r for r in plan.rows() if r.kind == "latency" and r.place == "local")
        self.rate = next(r for r in plan.rows() if r.kind == "rate" and r.place == "veth")

    def row(self, row, events):
        return next(r for r in summary.summarize(events)["rows"] if r["key"] == row.key)

    def test_more_is_better_whatever_is_measured(self):
        events = [figure(self.rate, "ferroce", 0, 300.0), figure(self.rate, "rxe", 0, 100.0),
                  figure(self.latency, "ferroce", 0, 10.0, tail=20.0), figure(self.latency, "rxe", 0, 120.0, tail=10.0)]
        self.assertEqual(self.row(self.rate, events)["ratio"]["median"], 3.0)
        slow = self.row(self.latency, events)
        self.assertEqual((slow["ratio"]["median"], slow["tail_ratio"]["median"]), (12.0, 0.5))
        self.assertTrue(slow["met"])

    def test_rounds_are_compared_with_themselves(self):
        # The machine slows down fourfold from round to round; ferroce is always twice as fast.
        events = [figure(self.rate, driver, turn, value * speed) for turn, speed in enumerate((16.0, 4.0, 1.0))
                  for driver, value in (("ferroce", 20.0), ("rxe", 10.0))]
        one = self.row(self.rate, events)
        self.assertEqual(one["ratio"], {"median": 2.0, "least": 2.0, "most": 2.0})
        self.assertEqual((one["ferroce"]["median"], one["ferroce"]["spread"]), (80.0, 3.75))

    def test_beside_other_work_the_idle_ratio_counts(self):
        busy = plan.busy()[0]
        idle = [figure(busy.idle, "ferroce", 0, 900.0), figure(busy.idle, "rxe", 0, 100.0)]
        for ours, met in ((61.0, True), (59.0, False)):
            one = self.row(busy, idle + [figure(busy, "ferroce", 0, ours), figure(busy, "rxe", 0, 10.0)])
            self.assertEqual((one["target"], one["met"]), (6.0, met))
        # Without that there is nothing to hold it against.
        one = self.row(busy, [figure(busy, "ferroce", 0, 59.0), figure(busy, "rxe", 0, 10.0)])
        self.assertNotIn("met", one)
        cells, head = summary.table([one])
        self.assertEqual((len(cells[0]), cells[0][-2:]), (len(head), ["", ""]))
