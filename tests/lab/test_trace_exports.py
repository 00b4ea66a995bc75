# SPDX-License-Identifier: GPL-2.0
"""`ferroce trace show` for other programs: a timeline for Perfetto, a capture with comments for Wireshark."""

import json
import shutil
import subprocess
import tempfile
import unittest
from collections import Counter, defaultdict
from pathlib import Path

from command.trace import commented, perfetto
from command.trace.capture import NotReadable
from command.trace.data import data
from command.trace.events import parse
from command.trace.half import LOST
from command.trace.trace import load
from command.trace.view import label
from tests.lab.config import CHECKOUT
from tests.lab.frames import conversation, tshark
from tests.lab.test_trace_events import captured, ladder, recorded


def lossy():
    """The lossy run, with captures of both ends."""
    lost = [one.fate == LOST for one in ladder(recorded("lossy")).talks[0].sent]
    left, right = captured(parse(recorded("lossy")), lost)
    return load([("left.pcap", left), ("right.pcap", right), ("events.txt", recorded("lossy").encode())])


class Timeline(unittest.TestCase):
    """The JSON of Perfetto."""

    def judge(self, trace):
        """Whatever it holds is well formed. Returns its events by their phase."""
        made = json.loads(json.dumps(perfetto.timeline(trace)))
        by_phase = defaultdict(list)
        for event in made["traceEvents"]:
            by_phase[event["ph"]].append(event)
        tracks = {(event["pid"], event["tid"]) for event in by_phase["M"] if event["name"] == "thread_name"}
        self.assertEqual(len(tracks), 6 * len(trace.talks))
        for phase, events in by_phase.items():
            for event in events if phase != "M" else ():
                self.assertIn((event["pid"], event["tid"]), tracks)
                self.assertGreaterEqual(event["ts"], 0)
        self.assertTrue(all(event["dur"] > 0 for event in by_phase["X"]))
        slices = {(event["pid"], event["tid"], event["ts"]) for event in by_phase["X"]}
        for begin, end in (("s", "f"), ("b", "e")):
            # Each has one end, and not before it begins.
            begun = {event["id"]: event["ts"] for event in by_phase[begin]}
            ended = {event["id"]: event["ts"] for event in by_phase[end]}
            self.assertEqual((len(begun), begun.keys()), (len(by_phase[begin]), ended.keys()))
            self.assertTrue(all(begun[number] <= ended[number] for number in begun))
        for event in by_phase["s"] + by_phase["f"]:
            self.assertIn((event["pid"], event["tid"], event["ts"]), slices)
        return by_phase

    def test_of_events(self):
        trace = lossy()
        by_phase = self.judge(trace)
        talk, = trace.talks
        lost = sum(one.fate == LOST for one in talk.sent)
        self.assertEqual((len(by_phase["s"]), sum(event["name"].startswith("lost: ") for event in by_phase["X"])),
                         (len(talk.sent) - lost, lost))
        events = parse(recorded("lossy"))
        self.assertEqual(len(by_phase["b"]), sum(not event["opcode"].startswith("RECV") for event in events.named("complete")))
        calls = [event for event in by_phase["X"] if event["cat"] == "call"]
        self.assertEqual(len(calls), len(list(events.named("verb_done"))))

    def test_of_a_capture(self):
        trace = load([("x.pcap", conversation())])
        by_phase = self.judge(trace)
        self.assertEqual((len(by_phase["X"]) - len(by_phase["s"]), by_phase["i"]), (trace.packets, []))


class Commented(unittest.TestCase):
    """The capture of Wireshark."""

    def test_it_holds_what_was_captured(self):
        for trace in (lossy(), load([("x.pcap", conversation())])):
            again = load([("again", commented.draw(trace))])
            self.assertEqual(again.frames, len(trace.captured))
            self.assertEqual(again.packets, trace.packets)

            def drawn(one):
                # Of what the events alone know a capture has less: fates are others.
                return [(row["label"], row["src"], row["frame"] and row["icrc"]) for talk in data(one, False)["conversations"] for row in talk["rows"]
                        if row["kind"] == "packet"]

            self.assertEqual(drawn(again), drawn(trace))
        with self.assertRaisesRegex(NotReadable, "nothing was captured"):
            commented.draw(ladder(recorded("local")))

    @unittest.skipUnless(shutil.which("tshark"), "there is no tshark here")
    def test_tshark_reads_the_comments(self):
        trace = lossy()
        with tempfile.TemporaryDirectory() as place:
            path = Path(place) / "x.pcapng"
            path.write_bytes(commented.draw(trace))
            status, out, said = tshark(path, "-T", "fields", "-E", "separator=|", "-e", "infiniband.bth.psn", "-e", "frame.comment")
            told = subprocess.run(["capinfos", "-c", "-M", str(path)], stdout=subprocess.PIPE, text=True).stdout
        self.assertEqual(status, 0, said)
        lines = [line.split("|", 1) for line in out.splitlines()]
        wanted = Counter((one.packet.psn, label(one)) for one in trace.talks[0].sent for _ in one.frames)
        self.assertEqual(Counter((psn, said) for (psn, said) in wanted.elements()
                                 if any(int(line[0]) == psn and said in line[1] for line in lines)), wanted)
        self.assertEqual(len(lines), sum(wanted.values()))
        self.assertRegex(told, rf"Number of packets: +{len(lines)}\b")
        self.assertIn("CQE: wr 2 SEND SUCCESS, 2500 B; in ", out)


@unittest.skipUnless(shutil.which("tshark"), "there is no tshark here")
class Profile(unittest.TestCase):
    """The profile of Wireshark's in Documentation/wireshark."""

    FOLDER = CHECKOUT / "Documentation/wireshark"

    def setUp(self):
        self.home = Path(self.enterContext(tempfile.TemporaryDirectory()))
        shutil.copytree(self.FOLDER, self.home / ".config/wireshark/profiles/ferroce")
        self.path = self.home / "x.pcapng"
        self.path.write_bytes(commented.draw(lossy()))

    def test_columns(self):
        status, out, said = tshark(self.path, "-C", "ferroce", "-2", "-R", "infiniband.bth.opcode == 0x11", home=self.home)
        self.assertEqual((status, said), (0, []))
        self.assertRegex(out.splitlines()[0], r"Acknowledge.*ACK, PSN \d+: for 3 packets; completes SEND of 2500 B")

    def test_colours(self):
        rules = [line.split("@") for line in (self.FOLDER / "colorfilters").read_text(encoding="ascii").splitlines() if line[0] == "@"]
        self.assertGreater(len(rules), 6)
        shown = {}
        for _, name, wanted, *_ in rules:
            status, out, said = tshark(self.path, "-Y", wanted, home=self.home)
            self.assertEqual((status, said), (0, []), name)
            shown[name] = len(out.splitlines())
        # In a capture of a loss these are, and a refusal is not.
        self.assertTrue(shown["RoCE: NAK sequence error"] and shown["RoCE: lost, or sent again"] and shown["RoCE"], shown)
        self.assertEqual(shown["RoCE: NAK, the end of a connection"], 0)
