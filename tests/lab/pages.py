# SPDX-License-Identifier: GPL-2.0
"""The page of `ferroce trace` in a real browser, inside the root. host.page runs it. A script that is added to the page does
what a reader would, and leaves what is to be seen after each step in the place of the page."""

import html
import json
import os
import re
import subprocess
import tempfile
import unittest
from pathlib import Path

from command.trace import page
from command.trace.data import data
from command.trace.trace import load
from command.trace.view import rows as rows_of
from tests.judges import wire_decode
from tests.lab.frames import BEGIN, US, answer, conversation, ethernet, every_opcode, pcap, request
from tests.lab.test_trace_events import ladder, recorded
from tests.lab.test_trace_exports import lossy

# Inside the root, by the name of the folder where setup has unpacked it.
PLACE = os.environ.get("FERROCE_BROWSER", "")
# It has no sandbox, for root has none: it opens pages that we have made. It looks up no name and asks for no news. What goes
# wrong in a page, it says.
BROWSER = (f"{PLACE}/usr/lib/chromium/chromium-headless-shell", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
           "--disable-background-networking", "--host-resolver-rules=MAP * ~NOTFOUND", "--window-size=1400,900",
           "--enable-logging=stderr", "--virtual-time-budget=1000000", "--dump-dom")
LIBRARIES = f"{PLACE}/usr/lib/x86_64-linux-gnu"
ENVIRONMENT = os.environ | {"LD_LIBRARY_PATH": f"{LIBRARIES}:{LIBRARIES}/pulseaudio", "FONTCONFIG_PATH": f"{PLACE}/etc/fonts",
                            "XDG_DATA_HOME": f"{PLACE}/usr/share"}
# Seconds that a page may take; nothing is judged by how long it took.
PATIENCE = 240
READER = """<script>
(async () => {
  const find = (selector) => document.querySelector(selector);
  const all = (selector, of) => [...document.querySelectorAll(selector)].map(of);
  const seen = () => ({
    // Each row that can be seen: which one, its text, whether it is an event, and where it is.
    rows: all(".row", (g) => { const at = g.querySelector(".back").getBoundingClientRect();
      return [g.dataset.sel, g.querySelector(".label, .does").textContent, g.classList.contains("mark"), at.width && at.height ? at.y + scrollY : null];
    }).filter((row) => row[3] !== null),
    arrows: all(".row path", (p) => p.getBoundingClientRect().width > 100).filter(Boolean).length,
    panel: find("#panel").hidden ? null : Object.fromEntries(all("#headers table", (t) =>
      [t.caption.textContent, Object.fromEntries([...t.rows].map((r) => [...r.cells].map((c) => c.textContent)))])),
    hash: location.hash, qp: find("#qp").value, tools: !find("#tools").hidden, chosen: all(".chosen", (g) => g.dataset.sel),
    folded: all("[data-folded]", (g) => g.dataset.sel), images: all("img", () => 1).length, notes: find(".notes").textContent,
    title: document.title,
  });
  const acts = {
    hash: (to) => { location.hash = to; },
    focus: (selector) => find(selector).focus(),
    key: (key) => document.activeElement.dispatchEvent(new KeyboardEvent("keydown", {key, bubbles: true})),
    choose: (value) => { find("#qp").value = value; find("#qp").dispatchEvent(new Event("change")); },
    add: (text) => document.body.insertAdjacentHTML("beforeend", text),
    // On what lies there: nothing else may cover it.
    click: (selector) => { find(selector).scrollIntoView({block: "center"}); const at = find(selector).getBoundingClientRect();
      const there = document.elementFromPoint(at.x + Math.min(at.width, 600) / 2, at.y + at.height / 2);
      if (!there.closest(selector)) throw new Error(`${selector} is covered`);
      there.dispatchEvent(new MouseEvent("click", {bubbles: true, cancelable: true})); },
  };
  const told = [seen()];
  for (const [act, what] of STEPS) {
    acts[act](what);
    await new Promise((done) => setTimeout(done, 50));
    told.push(seen());
  }
  const pre = document.createElement("pre");
  pre.id = "told";
  pre.textContent = JSON.stringify(told);
  document.body.replaceChildren(pre);
})();
</script>
"""
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


def selections(told):
    return [sel for sel, *_ in told["rows"]]


class Pages(unittest.TestCase):
    def read(self, trace, *steps, fragment="", keys=False, script=True):
        """What is to be seen of a page at the beginning, and after each step; and what the browser says went wrong in it."""
        source = page.draw(trace, keys)
        if not script:
            source = source.replace(page.part("page.js"), "")
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "page.html"
            path.write_text(source.replace("</body>", READER.replace("STEPS", json.dumps(steps)) + "</body>"), encoding="utf-8")
            done = subprocess.run([*BROWSER, f"--user-data-dir={folder}/profile", f"{path.as_uri()}#{fragment}"], env=ENVIRONMENT,
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=PATIENCE)
        wrong = [line for line in done.stderr.splitlines() if ":CONSOLE" in line]
        found = re.search('<pre id="told">(.*?)</pre>', done.stdout, re.S)
        self.assertTrue(found, wrong or done.stdout[:2000])
        told = json.loads(html.unescape(found[1]))
        for one in told:
            for talk in {sel.split("-")[0] for sel in selections(one)}:
                places = [y for sel, *_, y in one["rows"] if sel.split("-")[0] == talk]
                self.assertTrue(all(b - a == page.ROW for a, b in zip(places, places[1:])), "rows lie upon each other")
        return told, wrong

    def told(self, trace, *steps, **how):
        """The same of a page in which nothing goes wrong. It asks nobody for anything, which its policy would tell."""
        told, wrong = self.read(trace, *steps, **how)
        self.assertEqual(wrong, [])
        return told

    def test_rows(self):
        """Rows are those of --as json, with a script and without."""
        for trace in (load([("x.pcap", conversation())]), lossy(), ladder(recorded("local"))):
            rows = [(f"{n}-{row['number']}", row["label"], row["kind"] != "packet") for n, talk in enumerate(data(trace, False)["conversations"])
                    for row in talk["rows"]]
            self.assertTrue(rows)
            for script in (True, False):
                one, = self.told(trace, script=script)
                # What is at the right of a mark at the right stands behind its label.
                self.assertEqual([(sel, text.split("; ")[0] if event else text, event) for sel, text, event, _ in one["rows"]],
                                 [(sel, label.split("; ")[0] if event else label, event) for sel, label, event in rows])
                self.assertEqual((one["arrows"], one["tools"]), (sum(not event for _, _, event in rows), script))

    def test_queue_pair(self):
        """What the fragment or the reader chooses leaves the conversations of that queue pair alone."""
        trace = load([("x.pcap", conversation())])
        numbers = sorted({qpn for talk in trace.talks for qpn in talk.qpns})
        self.assertGreater(len(numbers), 3)
        told = self.told(trace, *([act, what] for qpn in numbers for act, what in (("hash", f"qp={qpn:#x}"), ("hash", ""), ("choose", f"{qpn:#x}"))))
        for qpn, by_hash, by_choice in zip(numbers, told[1::3], told[3::3]):
            wanted = {str(n) for n, talk in enumerate(trace.talks) if qpn in talk.qpns}
            self.assertLess(len(wanted), len(trace.talks))
            for one in (by_hash, by_choice):
                self.assertEqual({sel.split("-")[0] for sel in selections(one)}, wanted, f"{qpn:#x}")
                self.assertEqual((one["qp"], one["hash"]), (f"{qpn:#x}", f"#qp={qpn:#x}"))

    def test_headers(self):
        """The panel of a packet has its fields. That they are those that tshark finds is shown in test_trace_pictures.py."""
        for contents in (conversation(), pcap([(BEGIN + n * US, ethernet(packet)) for n, packet in enumerate(every_opcode())])):
            trace = load([("x.pcap", contents)])
            rows = [(f"{n}-{row['number']}", row) for n, talk in enumerate(data(trace, True)["conversations"]) for row in talk["rows"]]
            told = self.told(trace, *(["hash", f"sel={sel}"] for sel, _ in rows), keys=True)
            for (sel, row), one in zip(rows, told[1:], strict=True):
                tables = one["panel"]
                for name, fields in (("BTH", {name: row[name] for name in wire_decode.BTH}), *row["headers"]):
                    shown = {field: int(tables[name][field].split()[0], 0) if isinstance(value, int) else tables[name][field]
                             for field, value in fields.items()}
                    self.assertEqual(shown, fields, f"{row['name']}: {name}")
                self.assertEqual((tables["network"]["from"], tables[row["name"]]["ICRC"]), (row["src"], row["icrc"]))
                self.assertEqual(one["chosen"], [sel])

    def test_selecting(self):
        """A click shows a row and says so in the address; that address shows it again; keys do the same."""
        for trace in (load([("x.pcap", conversation())]), lossy()):
            rows = [(f"{n}-{row['number']}", row) for n, talk in enumerate(data(trace, False)["conversations"]) for row in talk["rows"]]
            sel, row = rows[len(rows) // 2]
            at = f'[data-sel="{sel}"]'
            begin, clicked, left, _, entered, closed = self.told(
                trace, ["click", at], ["key", "Escape"], ["focus", at], ["key", "Enter"], ["click", "#close"])
            held = clicked["panel"]
            self.assertIn(row["name"] if row["kind"] == "packet" else row["label"], held)
            self.assertEqual((clicked["hash"], entered["panel"]), (f"#sel={sel}", held))
            self.assertEqual([one["panel"] for one in (begin, left, closed)], [None] * 3)
            self.assertEqual(self.told(trace, fragment=f"sel={sel}")[0]["panel"], held)

    def test_leaving_out(self):
        """Packets that are alike fold and unfold; what is only lost, again, refused or failed; kinds of events."""
        trace = load([("x.pcap", messages(1))])
        folded = [row.label for row in rows_of(trace.talks[0], True)]
        first = self.told(trace, fragment="fold=1")[0]
        self.assertEqual(([text for _, text, *_ in first["rows"]], len(folded)), (folded, 4))
        unfolded = self.told(trace, ["click", f'[data-sel="{first["folded"][0]}"] .label'], fragment="fold=1")[1]
        self.assertEqual(len(unfolded["rows"]), 10)
        trace = lossy()
        rows = data(trace, False)["conversations"][0]["rows"]
        odd = [f"0-{row['number']}" for row in rows if row.get("again") or row.get("fate") or row.get("bad") or "NAK" in row["label"]]
        self.assertEqual(selections(self.told(trace, fragment="odd=1")[0]), odd)
        self.assertTrue(0 < len(odd) < len(rows) / 2)
        told = self.told(trace, *(["click", f'.kind[value="{kind}"]'] for kind in page.KINDS for _ in range(2)))
        for kind, one in zip(page.KINDS, told[1::2]):
            self.assertEqual(selections(one), [f"0-{row['number']}" for row in rows if row["kind"] != kind], kind)
            self.assertEqual(one["hash"], f"#without={kind}")

    def test_many(self):
        """A page of 5,000 packets loads, and is filtered."""
        trace = load([("x.pcap", messages(MANY // 10))])
        whole, folded = self.told(trace, ["hash", "fold=1"], fragment=f"sel=0-{MANY - 1}")
        self.assertEqual((trace.packets, len(whole["rows"]), len(folded["rows"])), (MANY, MANY, len(rows_of(trace.talks[0], True))))
        self.assertIn("AETH", whole["panel"])

    def test_names_of_others(self):
        """Nothing that a capture or a file is called is taken for a part of the page, nor run by it."""
        name = '<img src="x" onerror="document.title=1">.pcap'
        trace = load([(name, conversation())])
        trace.notes.append(f"</script></li>{name}")
        # And if it were, its policy would keep it from asking anybody.
        (one, _), wrong = self.read(trace, ["add", '<img src="http://192.0.2.1/x">'])
        self.assertEqual(one["images"], 0)
        self.assertIn(name, one["notes"])
        self.assertIn(name, one["title"])
        self.assertTrue(any("Content Security Policy" in said for said in wrong), wrong)
