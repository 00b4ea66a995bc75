# SPDX-License-Identifier: GPL-2.0
"""What the emulator says of its processors is understood; the words are those of qemu 10.0. `make check ONLY=self.slow` asks
a real one."""

import json
import socket
import tempfile
import threading
import unittest
from pathlib import Path

from tests.lab import processors

REGISTERS = """\r
CPU#0\r
RAX=0000000000000000 RBX=ffff888013f8bf00 RCX=0000000000000003 RDX=0000000000000018\r
RIP=ffffffff81000158 RFL=00000246 [---Z-P-] CPL=0 II=0 A20=1 SMM=0 HLT=0\r
ES =0000 0000000000000000 ffffffff 00c00000\r
\r
CPU#1\r
RAX=0000000000000000 RBX=0000000000000000 RCX=0000000000000000 RDX=0000000000000000\r
RIP=00007f2a81000158 RFL=00000246 [---Z-P-] CPL=3 II=0 A20=1 SMM=0 HLT=0\r
\r
CPU#2\r
EIP=0000fff0 EFL=00000002 [-------] CPL=0 II=0 A20=1 SMM=0 HLT=1\r
\r
CPU#3\r
RIP=ffffffff81000200 RFL=00000046 [---Z-P-] CPL=0 II=0 A20=1 SMM=0 HLT=0\r
"""
WORDS = {"info registers -a": REGISTERS, "info jit": "TB flush count      0\r\n"}
TABLE = ("ffffffff81000000 T _text\nffffffff81000100 t memset_orig\nffffffff81000108 D data\nffffffff81000200 T memcpy\n"
         "ffffffff81900000 T _etext\n")


class Emulator(threading.Thread):
    """Answers one caller in a folder, until he hangs up or so many questions are answered."""

    def __init__(self, folder, answers=1000):
        super().__init__(daemon=True)
        self.answers = answers
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.bind(f"{folder}/monitor")
        self.socket.listen()
        self.start()

    def run(self):
        caller, _ = self.socket.accept()
        with self.socket, caller, caller.makefile("rw", encoding="utf-8") as talk:
            def say(**words):
                talk.write(json.dumps(words) + "\r\n")
                talk.flush()

            say(QMP={"version": {}, "capabilities": ["oob"]})
            for line in talk:
                asked = json.loads(line)
                if not self.answers:
                    return
                self.answers -= 1
                if asked["execute"] == "qmp_capabilities":
                    say(**{"return": {}})
                    say(event="RTC_CHANGE", data={"offset": 0})
                else:
                    question = asked["arguments"]["command-line"]
                    say(**{"return": WORDS.get(question, f"{question}: no such thing\r\n")})


class Processors(unittest.TestCase):
    """By symbols, where there are any."""

    def setUp(self):
        place = tempfile.TemporaryDirectory()
        self.addCleanup(place.cleanup)
        self.place = Path(place.name)
        self.record = self.place / "registers.log"

    def symbols(self):
        table = self.place / "System.map"
        table.write_text(TABLE, encoding="ascii")
        return processors.Symbols(table)

    def look(self, **emulator):
        Emulator(self.place, **emulator)
        return processors.look(self.place, self.symbols(), self.record)

    def test_found(self):
        places = {0: "memset_orig+0x58", 1: "in a program", 2: "halted", 3: "memcpy+0x0 (interrupts off)"}
        self.assertEqual(self.look(), [f"processor {n}: {place}, {place}, {place}" for n, place in places.items()])
        recorded = self.record.read_text(encoding="utf-8")
        for said in ("RBX=ffff888013f8bf00", "info lapic 3", "TB flush count"):
            self.assertEqual(recorded.count(said), processors.LOOKS)

    def test_it_hangs_up(self):
        # At the greeting, at the first questions, at the last one: each look has one for all and one for each processor.
        for answers in (0, 1, 2, processors.LOOKS * (2 + 4)):
            self.assertIn("does not say", "".join(self.look(answers=answers)))
            (self.place / "monitor").unlink()

    def test_nobody_answers(self):
        self.assertIn("does not say", processors.look(self.place, self.symbols(), self.record)[0])

    def test_names(self):
        symbols = self.symbols()
        self.assertEqual([symbols.name(n) for n in (0xffffffff80ffffff, 0xffffffff81900001, 0xffffffff81000200)],
                         ["0xffffffff80ffffff", "0xffffffff81900001", "memcpy+0x0"])
        self.assertEqual(processors.Symbols().name(0xffffffff81000158), "0xffffffff81000158")


if __name__ == "__main__":
    unittest.main()
