# SPDX-License-Identifier: GPL-2.0
"""The page of `ferroce trace` in a real browser, inside the root. host.page runs it. Pictures for people are left in build/page."""

import re
import tempfile
import unittest
from pathlib import Path
from urllib.parse import urlsplit

from command.trace import page
from command.trace.data import data
from command.trace.trace import load
from command.trace.view import rows as rows_of
from tests.judges import wire_decode
from tests.lab import config
from tests.lab.browser import Browser
from tests.lab.frames import BEGIN, US, answer, conversation, ethernet, every_opcode, pcap, request
from tests.lab.test_trace_events import ladder, recorded
from tests.lab.test_trace_exports import lossy

PICTURES = config.BUILD / "page"
# Of each row in their order: which one, its text, and where it is, if it can be seen.
ROWS = """[...document.querySelectorAll(".row")].map((g) => {
  const at = g.querySelector(".back").getBoundingClientRect();
  return {sel: g.dataset.sel, text: g.querySelector(".label, .does").textContent, event: g.classList.contains("mark"),
          y: at.width && at.height ? at.y + scrollY : null};
})"""
# What the panel has: the caption of each table, and its lines.
PANEL = """document.getElementById("panel").hidden ? null : [...document.querySelectorAll("#headers table")].map((t) =>
  [t.caption.textContent, [...t.rows].map((r) => [...r.cells].map((c) => c.textContent))])"""
MANY = 5000


def messages(count):
    """A capture of messages, each of nine packets and their acknowledgement."""
    frames = []
    for psn in range(9 * count):
        place = psn % 9
        opcode = 0 if not place else 2 if place == 8 else 1
        frames.append((BEGIN + psn * 2 * US, ethernet(request(psn, opcode, bytes(16)))))
        if place == 8:
            frames.append((BEGIN + (psn * 2 + 1) * US, ethernet(answer(psn))))
    return pcap(frames)


class Pages(unittest.TestCase):
    """Each test loads pages of its own into the one browser."""

    @classmethod
    def setUpClass(cls):
        PICTURES.mkdir(parents=True, exist_ok=True)
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        cls.browser = Browser()
        cls.addClassCleanup(cls.browser.close)

    def tearDown(self):
        self.browser.scripts(True)

    def draw(self, trace, keys=False):
        """Makes a page of it. Returns its address."""
        path = Path(self.folder.name) / f"{self.id()}.html"
        path.write_text(page.draw(trace, keys), encoding="utf-8")
        return path.as_uri()

    def open(self, url):
        """Loads a page, which asks for itself alone and has no fault."""
        self.browser.open(url)
        self.assertEqual(self.browser.asked, [urlsplit(url)._replace(fragment="").geturl()])
        self.assertEqual(self.browser.wrong, [])

    def shown(self):
        """The rows that can be seen: they stand below one another."""
        seen = [row for row in self.browser.ask(ROWS) if row["y"] is not None]
        for talk in {row["sel"].split("-")[0] for row in seen}:
            places = [row["y"] for row in seen if row["sel"].split("-")[0] == talk]
            self.assertTrue(all(b - a == page.ROW for a, b in zip(places, places[1:])), "rows lie upon each other")
        return seen

    def panel(self):
        """The tables of what is selected, by their captions."""
        held = self.browser.ask(PANEL)
        return None if held is None else {caption: dict(lines) for caption, lines in held}

    def test_rows(self):
        """Rows are those of --as json, with a script and without."""
        for name, trace in (("conversation", load([("x.pcap", conversation())])), ("lossy", lossy()), ("local", ladder(recorded("local")))):
            url = self.draw(trace)
            wanted = [(f"{n}-{row['number']}", row["label"], row["kind"] != "packet") for n, talk in enumerate(data(trace, False)["conversations"])
                      for row in talk["rows"]]
            self.assertTrue(wanted)
            for scripted in (True, False):
                self.browser.scripts(scripted)
                self.open(url)
                # What is at the right of a mark at the right stands behind its label.
                drawn = [(row["sel"], row["text"].split("; ")[0] if row["event"] else row["text"], row["event"]) for row in self.shown()]
                self.assertEqual(drawn, [(sel, label.split("; ")[0] if event else label, event) for sel, label, event in wanted])
                self.assertEqual(self.browser.ask("document.getElementById('tools').hidden"), not scripted)
                arrows = self.browser.ask("[...document.querySelectorAll('.row path')].filter((p) => p.getBoundingClientRect().width > 100).length")
                self.assertEqual(arrows, sum(not event for _, _, event in wanted))
            self.browser.picture(PICTURES / f"{name}.png")

    def test_queue_pair(self):
        """What the fragment or the reader chooses leaves the conversations of that queue pair alone."""
        trace = load([("x.pcap", conversation())])
        url, talks = self.draw(trace), trace.talks
        numbers = sorted({qpn for talk in talks for qpn in talk.qpns})
        self.assertGreater(len(numbers), 3)
        for qpn in numbers:
            wanted = {str(n) for n, talk in enumerate(talks) if qpn in talk.qpns}
            self.assertLess(len(wanted), len(talks))
            self.open(f"{url}#qp={qpn:#x}")
            self.assertEqual({row["sel"].split("-")[0] for row in self.shown()}, wanted, f"{qpn:#x}")
            self.assertEqual(self.browser.ask("document.getElementById('qp').value"), f"{qpn:#x}")
            self.open(url)
            self.browser.ask(f"(() => {{ const q = document.getElementById('qp'); q.value = '{qpn:#x}'; q.dispatchEvent(new Event('change')); }})()")
            self.assertEqual({row["sel"].split("-")[0] for row in self.shown()}, wanted, f"{qpn:#x}")
            self.assertEqual(self.browser.ask("location.hash"), f"#qp={qpn:#x}")
        self.browser.picture(PICTURES / "queue-pair.png")

    def test_headers(self):
        """The panel of a packet has its fields. That they are those that tshark finds is shown in test_trace_pictures.py."""
        for contents in (conversation(), pcap([(BEGIN + n * US, ethernet(packet)) for n, packet in enumerate(every_opcode())])):
            trace = load([("x.pcap", contents)])
            self.open(self.draw(trace, True))
            for n, talk in enumerate(data(trace, True)["conversations"]):
                for row in talk["rows"]:
                    self.browser.ask(f"location.hash = 'sel={n}-{row['number']}'")
                    self.browser.call("Runtime.evaluate", expression="new Promise((done) => setTimeout(done))", awaitPromise=True)
                    tables = self.panel()
                    for name, fields in (("BTH", {name: row[name] for name in wire_decode.BTH}), *row["headers"]):
                        shown = {field: int(tables[name][field].split()[0], 0) if isinstance(value, int) else tables[name][field]
                                 for field, value in fields.items()}
                        self.assertEqual(shown, fields, f"{row['name']}: {name}")
                    self.assertEqual((tables["network"]["from"], tables[row["name"]]["ICRC"]), (row["src"], row["icrc"]))
                    self.assertEqual(self.browser.ask("document.querySelector('.chosen').dataset.sel"), f"{n}-{row['number']}")

    def test_selecting(self):
        """A click shows a row and says so in the address; that address shows it again; keys do the same."""
        for trace in (load([("x.pcap", conversation())]), lossy()):
            url = self.draw(trace)
            self.open(url)
            self.assertIsNone(self.panel())
            rows = [(f"{n}-{row['number']}", row) for n, talk in enumerate(data(trace, False)["conversations"]) for row in talk["rows"]]
            sel, row = rows[len(rows) // 2]
            self.browser.click(f'[data-sel="{sel}"]')
            self.assertEqual(self.browser.ask("location.hash"), f"#sel={sel}")
            self.browser.picture(PICTURES / "selected.png")
            held = self.panel()
            self.assertIn(row["name"] if row["kind"] == "packet" else row["label"], held)
            self.open(f"{url}#sel={sel}")
            self.assertEqual(self.panel(), held)
            self.browser.press("Escape")
            self.assertIsNone(self.panel())
            self.browser.ask(f"document.querySelector('[data-sel=\"{sel}\"]').focus()")
            self.browser.press("Enter")
            self.assertEqual(self.panel(), held)
            self.browser.click("#close")
            self.assertIsNone(self.panel())

    def test_leaving_out(self):
        """Packets that are alike fold and unfold; what is only lost, again, refused or failed; kinds of events."""
        trace = load([("x.pcap", messages(1))])
        url, (talk,) = self.draw(trace), trace.talks
        self.open(f"{url}#fold=1")
        self.assertEqual([row["text"] for row in self.shown()], [row.label for row in rows_of(talk, True)])
        self.assertEqual(len(self.shown()), 4)
        folded = self.browser.ask("[...document.querySelectorAll('[data-folded]')].map((g) => g.dataset.sel)")
        self.browser.click(f'[data-sel="{folded[0]}"] .label')
        self.assertEqual(len(self.shown()), 10)
        trace = lossy()
        url, rows = self.draw(trace), data(trace, False)["conversations"][0]["rows"]
        self.open(f"{url}#odd=1")
        odd = {row["number"] for row in rows if row.get("again") or row.get("fate") or row.get("bad") or "NAK" in row["label"]}
        self.assertEqual({int(row["sel"].split("-")[1]) for row in self.shown()}, odd)
        self.assertTrue(0 < len(odd) < len(rows) / 2)
        self.browser.picture(PICTURES / "odd.png")
        for kind in page.KINDS:
            self.open(url)
            self.browser.click(f'.kind[value="{kind}"]')
            left = {row["number"] for row in rows if row["kind"] != kind}
            self.assertEqual({int(row["sel"].split("-")[1]) for row in self.shown()}, left, kind)
            self.assertEqual(self.browser.ask("location.hash"), f"#without={kind}")

    def test_many(self):
        """A page of 5,000 packets loads, and is filtered."""
        trace = load([("x.pcap", messages(MANY // 10))])
        self.assertEqual(trace.packets, MANY)
        url = self.draw(trace)
        self.open(f"{url}#sel=0-{MANY - 1}")
        self.assertEqual(len(self.shown()), MANY)
        self.assertIn("AETH", self.panel())
        self.open(f"{url}#fold=1")
        self.assertEqual(len(self.shown()), len(rows_of(trace.talks[0], True)))

    def test_names_of_others(self):
        """Nothing that a capture or a file is called is taken for a part of the page, nor run by it."""
        name = '<img src="x" onerror="document.title=1">.pcap'
        trace = load([(name, conversation())])
        trace.notes.append(f"</script></li>{name}")
        url = self.draw(trace)
        self.open(url)
        self.assertEqual(self.browser.ask("document.querySelectorAll('img').length"), 0)
        self.assertIn(name, self.browser.ask("document.querySelector('.notes').textContent"))
        self.assertIn(name, self.browser.ask("document.title"))
        # And if it were, its policy would keep it from asking anybody.
        self.browser.ask("document.body.insertAdjacentHTML('beforeend', '<img id=\"bad\" src=\"http://192.0.2.1/x\">')")
        self.browser.call("Runtime.evaluate", expression="new Promise((done) => setTimeout(done, 50))", awaitPromise=True)
        self.assertTrue(any(re.search("Content Security Policy", said) for said in self.browser.wrong), self.browser.wrong)
