# SPDX-License-Identifier: GPL-2.0
"""What `make bench` makes of its figures."""

import contextlib
import io
import json
import tempfile
import tomllib
import unittest
from pathlib import Path
from unittest import mock
from xml.etree import ElementTree

from tests.bench import charts, plan, summary, svg
from tests.lab import bench, boot, config, debug


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

    def test_a_round_without_its_counterpart_does_not_count(self):
        events = [figure(self.rate, "ferroce", 0, 30.0), figure(self.rate, "rxe", 1, 10.0)]
        self.assertNotIn("ratio", self.row(self.rate, events))

    def test_instructions_are_compared(self):
        events = [{"event": "instructions", "place": "veth", "row": "SEND 64 B", "driver": driver, "value": value}
                  for driver, value in (("ferroce", 100), ("rxe", 250))]
        rows = summary.summarize(events)["instructions"]
        self.assertEqual(rows, [{"place": "veth", "name": "SEND 64 B", "ferroce": 100, "rxe": 250, "ratio": 2.5}])
        cells, head = summary.instruction_table(rows)
        self.assertEqual((len(cells[0]), cells[0][-1]), (len(head), "2.50x"))

    def test_a_target_is_missed(self):
        events = [figure(self.rate, "ferroce", 0, 99.0), figure(self.rate, "rxe", 0, 100.0)]
        one = self.row(self.rate, events)
        self.assertFalse(one["met"])
        cells, head = summary.table([one])
        self.assertEqual((len(cells[0]), cells[0][-1]), (len(head), "missed"))

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
                         ["emulated, 32 to 64 us of rdma_rxe's latency", "instructions"])
        result["rows"].pop()
        best = summary.reached(result, "emulated, qemu 10", "most")
        self.assertEqual(best["emulated"], {row.key: 8.5})
        # What another bed has reached is no measure, and is kept.
        self.assertEqual(summary.lost({"native": {row.key: 99.0}}, now), [])
        self.assertEqual(summary.merged({"native": {row.key: 99.0}, "emulated": {"old": 1.0}}, now),
                         now | {"native": {row.key: 99.0}, "emulated": {"old": 1.0, row.key: 7.9}})
        self.assertEqual(tomllib.loads(summary.as_toml(now)), now)


class Charts(unittest.TestCase):
    def test_every_point_is_asked_for_and_drawn(self):
        found = charts.plans()
        self.assertEqual(len({chart.name for chart in found}), len(found))
        for chart in found:
            names = [row.key for row in chart.rows.values()]
            self.assertEqual(len(set(names)), len(names))
            self.assertTrue(all(row.iters > 0 for row in chart.rows.values()))
        by_size = next(chart for chart in found if chart.tcp)
        points = [[size, size / 3 + 1] for size in charts.SIZES]
        events = [{"event": "point", "chart": by_size.name, "line": line, "points": [point]}
                  for line in ("ferroce", charts.TCP) for point in points]
        drawn = charts.collect(events)
        self.assertEqual([chart.name for chart in drawn], [by_size.name])
        root = ElementTree.fromstring(drawn[0].draw("2026-01-01; <a> machine"))
        inside = root.iter("{http://www.w3.org/2000/svg}circle")
        at = [(float(c.get("cx")), float(c.get("cy"))) for c in inside]
        self.assertEqual(len(at), 2 * len(points))
        self.assertTrue(all(svg.LEFT <= x <= svg.WIDTH - svg.RIGHT and svg.TOP <= y <= svg.HEIGHT - svg.BOTTOM for x, y in at), at)
        # Larger is to the right, and more is above.
        self.assertEqual(at[:len(points)], sorted(at[:len(points)], key=lambda p: (p[0], -p[1])))

    def test_a_distribution_rises(self):
        points = charts.parts_of([float(n) for n in range(1000, 0, -1)])
        self.assertEqual(points, sorted(points))
        self.assertEqual((points[3], points[-1]), ((50.0, 501.0), (99.9, 1000.0)))


class Readme(unittest.TestCase):
    def test_is_in_the_form_that_is_printed(self):
        text = (config.CHECKOUT / "README.md").read_text(encoding="utf-8").splitlines()
        printed = summary.readme([])
        self.assertEqual(len(printed), 2 + 6)
        start = text.index(printed[0])
        names = [[line.split("|")[1] for line in lines] for lines in (printed, text[start:start + len(printed)])]
        self.assertEqual(*names)

    def test_has_the_figures(self):
        row = plan.readme()[0]
        events = [figure(row, "ferroce", 0, 380000.0), figure(row, "rxe", 0, 38000.0)]
        line = summary.readme(summary.summarize(events)["rows"])[2]
        self.assertEqual(line, "| one device, `ib_write_bw -s 64` | 380,000 msg/s | 38,000 msg/s | 10.0 |")


class Machine(unittest.TestCase):
    """The machine that the figures are of: always the same when it is emulated, and named."""

    def test_the_model_is_fixed(self):
        self.assertIn(",enforce", boot.CPU)
        with tempfile.TemporaryDirectory() as place, \
                mock.patch.object(boot, "vng_program", lambda: "vng"):
            root = mock.Mock(path=Path("/"), release="7.3.4", root=mock.Mock(), image=Path("/bzImage"), folder=Path("/"))
            for kind in (boot.Guest, debug.DebugGuest):
                self.assertIn(boot.CPU, kind(root, place, "true", False).script)
                self.assertNotIn(boot.CPU, kind(root, place, "true", True).script)
            measured = boot.Guest(root, place, "true", False, machine=bench.MACHINE).script
            self.assertIn(boot.CPU + boot.SMAP, measured)
            self.assertNotIn(boot.SMAP, boot.Guest(root, place, "true", False).script)

    def test_it_is_named(self):
        events = [{"event": "up", "release": "7.3.4", "cpu": "Westmere"}] * 2 + \
            [{"event": "note", "text": "local, rxe: no huge page"}]
        result = summary.summarize(events) | {"kernel": "7.3.4", "how": "emulated, QEMU 10", "rounds": 1,
                                              "faults": [], "seconds": 1}
        with tempfile.TemporaryDirectory() as place, mock.patch.object(bench, "OUT", Path(place)), \
                contextlib.redirect_stdout(io.StringIO()) as out:
            bench.show(result)
            kept = json.loads((Path(place) / "bench.json").read_text(encoding="utf-8"))
        for word in ("emulated, QEMU 10; processor Westmere", "note: local, rxe: no huge page"):
            self.assertIn(word, out.getvalue())
        self.assertEqual((kept["cpus"], kept["how"]), (["Westmere"], "emulated, QEMU 10"))
