# SPDX-License-Identifier: GPL-2.0
"""What `make bench` makes of its figures."""

import tomllib
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


class Reached(unittest.TestCase):
    """Ratios that were reached once."""

    def test_the_page_has_what_was_reached_and_what_is_wanted(self):
        row = plan.rows()[0]
        events = [figure(row, "ferroce", 0, 10.0), figure(row, "rxe", 0, 80.0)]
        events += [{"event": "instructions", "place": "veth", "row": "SEND", "driver": driver, "value": value}
                   for driver, value in (("ferroce", 100), ("rxe", 250))]
        result = summary.summarize(events) | {"how": "emulated, qemu 10", "rounds": 1}
        page = summary.page(result, {summary.bed(result, "emulated"): {row.key: 9.8}}, "a machine")
        line = next(line for line in page if line.startswith(f"| {row.name} |"))
        self.assertEqual(line.split(" | ")[3:], ["8.00 (8.00 to 8.00)", "9.80", f"{row.target(None):.3g} |"])
        self.assertEqual(page[-1], "| veth: SEND | 100.0 | 250.0 | 2.50x |")

    def test_a_loss_is_told_and_the_record_goes_on(self):
        row = plan.rows()[0]
        result = {"rows": [{"key": row.key, "ratio": {"median": 7.9, "most": 8.5}}, {"key": "failed"}],
                  "instructions": [{"place": "veth", "name": "SEND", "ratio": 3.0}, {"place": "veth", "name": "READ"}]}
        now = summary.reached(result, "emulated, qemu 10")
        self.assertEqual(now, {"emulated": {row.key: 7.9}, "instructions": {"veth: SEND": 3.0}})
        self.assertEqual(summary.lost({"emulated": {row.key: 9.8}, "instructions": {"veth: SEND": 3.05}}, now), [])
        told = summary.lost({"emulated": {row.key: 10.0}, "instructions": {"veth: SEND": 3.3}}, now)
        self.assertEqual([line.split(" (")[0] for line in told], [row.key, "veth: SEND"])
        # A host that is faster has a record of its own.
        result["rows"].append({"key": summary.REFERENCE, "rxe": {"median": 51.6}})
        self.assertEqual(list(summary.reached(result, "emulated, qemu 10")),
                         ["emulated, 45 to 64 us of rdma_rxe's latency", "instructions"])
        result["rows"].pop()
        best = summary.reached(result, "emulated, qemu 10", "most")
        self.assertEqual(best["emulated"], {row.key: 8.5})
        # What another bed has reached is no measure, and is kept.
        self.assertEqual(summary.lost({"native": {row.key: 99.0}}, now), [])
        self.assertEqual(summary.merged({"native": {row.key: 99.0}, "emulated": {"old": 1.0}}, now),
                         now | {"native": {row.key: 99.0}, "emulated": {"old": 1.0, row.key: 7.9}})
        self.assertEqual(tomllib.loads(summary.as_toml(now)), now)
