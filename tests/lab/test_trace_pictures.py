# SPDX-License-Identifier: GPL-2.0
"""`ferroce trace show`: text, page, mermaid and JSON of a capture, the command itself, and what tshark says of the same."""

import contextlib
import io
import json
import random
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from command.trace import mermaid, page, text
from command.trace.capture import NotReadable
from command.trace.data import data
from command.trace.trace import load, only
from tests.judges import wire_decode
from tests.lab import config
from tests.lab.frames import A, B, BEGIN, QKEY, RKEY, US, cm, conversation, ethernet, every_opcode, pcap, request, tshark
from tests.lab.test_command import ferroce


class Pictures(unittest.TestCase):
    """Text, page, mermaid and JSON of one capture say the same."""

    def setUp(self):
        self.trace = load([("<x>.pcap", conversation())])
        self.data = data(self.trace, False)
        self.rows = [row for talk in self.data["conversations"] for row in talk["rows"]]

    def test_text(self):
        drawn = text.draw(self.trace, False)
        for row in self.rows:
            self.assertIn(f"{row['time']:12.1f}  {row['label']}", drawn)
        for finding in (said for talk in self.data["conversations"] for said in talk["findings"]):
            self.assertIn(f"  * {finding}", drawn)
        self.assertEqual(sum("-x" in line for line in drawn.splitlines()), 1)

    def test_folding(self):
        packets = [(n, request(n, 0 if not n else 1, bytes(256))) for n in range(20)]
        drawn = text.draw(load([("x", pcap([(BEGIN + at * US, ethernet(packet)) for at, packet in packets]))]))
        self.assertIn("19 x SEND Middle PSN 1 to 19, 256 B each (ack)", drawn)

    def test_page(self):
        """What there is beside what a browser shows, which is in pages.py: nothing is of another place, and each name is there."""
        source = page.draw(self.trace, False)
        self.assertNotIn("<x>", source)
        self.assertEqual(source.count("Content-Security-Policy"), 1)
        self.assertIn(f'<meta http-equiv="Content-Security-Policy" content="{page.POLICY}">', source)
        # No script, style, image or link, and no address but the name space of SVG.
        self.assertIsNone(re.search(r"<(?:img|link|iframe|object)\b|\s(?:src|href)=", source))
        self.assertEqual(set(re.findall(r"https?://[^\"' ]+", source)), {page.NS})
        ids = re.findall(r'\sid="?([\w-]+)', source)
        self.assertEqual(len(ids), len(set(ids)))
        for name in re.findall(r'(?:find|getElementById)\("(\w+)"\)', source):
            self.assertIn(name, ids)

    def test_mermaid(self):
        drawn = mermaid.draw(self.trace, False)
        self.assertEqual(len(re.findall(r"^ +(?:A|B)-[->x]+(?:A|B): ", drawn, re.M)), len(self.rows))
        self.assertEqual(drawn.count("```mermaid"), len(self.data["conversations"]))
        self.assertNotIn(";", drawn)

    def test_keys(self):
        """A page can be shown to others: it has no key, unless that is asked for."""
        for key in (RKEY, QKEY):
            for drawn in (page.draw(self.trace, False), json.dumps(self.data), text.draw(self.trace), mermaid.draw(self.trace)):
                self.assertNotIn(str(key), drawn)
                self.assertNotIn(f"{key:x}", drawn)
            self.assertIn(str(key), page.draw(self.trace, True))

    def test_only(self):
        only(self.trace, 0x66)
        self.assertEqual([talk.pair.service for talk in self.trace.talks], ["UD"])
        with self.assertRaisesRegex(NotReadable, "0x5 .*there are 0x66, 0x77"):
            only(self.trace, 5)


class Command(unittest.TestCase):
    def setUp(self):
        self.place = Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.file = self.place / "x.pcap"
        self.file.write_bytes(conversation())

    def run_it(self, *words):
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            status = ferroce.main(["trace", "show", *map(str, words)])
        return status, out.getvalue(), err.getvalue()

    def test_forms(self):
        for form, begin in (("text", "x.pcap: "), ("html", "<!DOCTYPE html>"), ("mermaid", "```mermaid"), ("json", "{")):
            status, out, err = self.run_it(self.file, "--as", form)
            self.assertEqual((status, err), (0, ""))
            self.assertTrue(out.startswith(begin), out[:80])
            target = self.place / "out"
            self.assertEqual(self.run_it(self.file, "--as", form, "-o", target), (0, "", ""))
            self.assertEqual(target.read_text(encoding="utf-8"), out)

    def test_errors(self):
        script = self.place / "script"
        script.write_text("#!/bin/sh\n", encoding="utf-8")
        for words, why in (((script,), "no capture"), ((self.place / "none",), "No such file"), ((self.place,), "Is a directory"),
                           ((self.file, "--qp", "0x99"), "no queue pair 0x99"),
                           ((self.file, "-o", self.place / "no/such"), "No such file")):
            status, out, err = self.run_it(*words)
            self.assertEqual((status, out), (1, ""))
            self.assertRegex(err, f"^ferroce: .*{why}")

    def test_installed(self):
        """It finds its parts where they are installed, whatever the prefix, and leaves nothing there."""
        (self.place / "usr/bin").mkdir(parents=True)
        program = shutil.copy(config.CHECKOUT / "command/ferroce", self.place / "usr/bin/ferroce")
        argv = [sys.executable, program, "trace", "show", "-"]

        def run():
            return subprocess.run(argv, input=conversation(), stdout=subprocess.PIPE, stderr=subprocess.PIPE)

        missing = run()
        self.assertEqual(missing.returncode, 1)
        self.assertIn(b"is missing", missing.stderr)
        shared = self.place / "usr/share/ferroce"
        for part in ("admin", "trace"):
            shutil.copytree(config.CHECKOUT / "command" / part, shared / part, ignore=shutil.ignore_patterns("__pycache__"))
        done = run()
        self.assertEqual((done.returncode, done.stderr), (0, b""))
        self.assertTrue(done.stdout.startswith(b"-: 16 packets"))
        self.assertEqual(list(shared.rglob("__pycache__")), [])


@unittest.skipUnless(shutil.which("tshark"), "there is no tshark here")
class Wireshark(unittest.TestCase):
    """tshark sees the same in every field that both name."""

    # Our names of the fields, and its.
    CM = {"REQ": {"service_id": "serviceid", "qkey": "localqkey", "qpn": "localqpn", "responder_resources": "responderres",
                  "initiator_depth": "initdepth", "remote_timeout": "remoteresptout", "psn": "startpsn",
                  "local_timeout": "localresptout", "retry_count": "retrcount", "pkey": "pkey", "path_mtu": "pppmtu",
                  "rnr_retry": "rnrretrcount", "max_cm_retries": "maxcmretr", "srq": "srq", "ack_timeout": "prim_localacktout"},
          "REP": {"remote_id": "remotecommid", "qkey": "localqkey", "qpn": "localqpn", "psn": "startpsn",
                  "responder_resources": "respres", "initiator_depth": "initdepth", "target_ack_delay": "tgtackdelay",
                  "rnr_retry": "rnrretrcount", "srq": "srq"},
          "REJ": {"local_id": "localcommid", "remote_id": "remotecommid", "message": "msgrej", "reason": "reason"},
          "DREQ": {"local_id": "localcommid", "remote_id": "remotecommid"}}

    def setUp(self):
        self.path = Path(self.enterContext(tempfile.TemporaryDirectory())) / "x.pcap"

    def test_every_opcode(self):
        packets = [packet for packet in every_opcode() if packet[28] < 0x80]
        contents = pcap([(BEGIN + n * US, ethernet(packet)) for n, packet in enumerate(packets)])
        self.path.write_bytes(contents)
        theirs = wire_decode.by_tshark(str(self.path))
        mine = sorted((row for talk in data(load([("x", contents)]), True)["conversations"] for row in talk["rows"]),
                      key=lambda row: row["frame"])
        self.assertEqual(len(theirs), len(mine))
        for they, row in zip(theirs, mine):
            fields = {name: value for _, header in row["headers"] for name, value in header.items()}
            self.assertEqual({name: row[name] for name in wire_decode.BTH}, {name: they[name] for name in wire_decode.BTH})
            known = [name for name in fields if name in they]
            self.assertEqual({name: fields[name] for name in known}, {name: they[name] for name in known}, row["name"])
            self.assertEqual(row["icrc"], "good")
            self.assertEqual(they["src4"], row["src"])

    def test_connection_manager(self):
        """Messages of random bytes."""
        draw = random.Random(4791)
        for attribute, name in ((0x10, "REQ"), (0x12, "REJ"), (0x13, "REP"), (0x15, "DREQ")):
            for _ in range(3):
                self.path.write_bytes(pcap([(BEGIN, ethernet(cm(A, B, attribute, {0: draw.randbytes(232)})))]))
                fields = [word for field in self.CM[name].values() for word in ("-e", f"infiniband.cm.{name.lower()}.{field}")]
                status, out, said = tshark(self.path, "-T", "fields", *fields)
                self.assertEqual(status, 0, said)
                theirs = [wire_decode.number(value) for value in out.rstrip("\n").split("\t")]
                mad = data(load([("x", self.path.read_bytes())]), True)["conversations"][0]["rows"][0]["mad"]
                self.assertEqual(dict(zip(self.CM[name], theirs)), {field: mad[field] for field in self.CM[name]}, name)
