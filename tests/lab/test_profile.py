# SPDX-License-Identifier: GPL-2.0
"""What `make bench PROFILE=` makes of what the emulator says."""

import contextlib
import io
import threading
import unittest
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest import mock

from tests.lab import profile

SYMBOLS = """ffffffff81000000 T crc32_le
ffffffff81000100 T native_queued_spin_lock_slowpath
ffffffff81000200 T udp_rcv
ffffffffc0000000 t ferroce_tx_alloc\t[ferroce]
ffffffffc0000100 d data\t[ferroce]
"""
MAPS = "00400000-00401000 r-xp 00000000 00:01 1   /srv/lab/ops\n7f0000000000-7f0000001000 r-xp 00000000 00:01 2   /lib/libc.so.6\n"
REGISTERS = """
CPU#0
RAX=0 RBX=0
RSP=ffff888000000100 R8 =0
RIP=ffffffff81000104 RFL=00000246 [---Z-P-] CPL=0 II=0 A20=1 SMM=0 HLT=0

CPU#1
RSP=ffff888000000200 R8 =0
RIP=ffffffff81000208 RFL=00000246 [---Z-P-] CPL=0 II=0 A20=1 SMM=0 HLT=1
"""


def trace(address):
    """A line as qemu writes it for an instruction."""
    return f"Trace 0: 0x7f00 [{0:08x}/{address:016x}/00000000/ff000001] name\n"


class Instructions(unittest.TestCase):
    """Each instruction of some whole operations is counted."""

    def look(self, text):
        """What `look` counts when the emulator writes this."""
        with TemporaryDirectory() as folder:
            guest = mock.Mock(work=Path(folder))

            @contextlib.contextmanager
            def monitor(_folder):
                def ask(line):
                    if line == "cont":
                        writer.start()
                yield ask

            def write():
                with open(Path(folder) / "instructions", "w", encoding="ascii") as out:
                    out.write(text)

            writer = threading.Thread(target=write)
            with mock.patch.multiple(profile, INSTRUCTIONS=6, BATCHES=2), \
                    mock.patch.object(profile.processors, "monitor", monitor):
                found = profile.look(guest, 0x400000, batch=4)
            writer.join()
            return found

    def test_whole_batches_alone_count(self):
        batch = trace(0x400000) + trace(0x400004) + trace(0xffffffff81000000)
        found = self.look(trace(0x400008) * 3 + batch * 2 + "Stopped execution\n" + batch + trace(0x400000))
        self.assertEqual(found.operations, 8)
        self.assertEqual({int(at, 16): count for at, count in found.at.items()},
                         {0x400000: 2, 0x400004: 2, 0xffffffff81000000: 2})

    def test_spent_by_function_and_area(self):
        found = profile.Watched(2, Counter({b"ffffffff81000000": 4, b"ffffffff81000004": 2, b"ffffffffc0000010": 8, b"0000000000400010": 10}))
        functions, areas = profile.spent(found, profile.Names(SYMBOLS, MAPS))
        self.assertEqual(functions, {("crc32_le", ""): 3, ("ferroce_tx_alloc", "ferroce"): 4, ("ops", profile.PROGRAM): 5})
        self.assertEqual(areas, {"CRC": 3, "driver": 4, profile.PROGRAM: 5})

    def test_what_is_no_function_has_no_name(self):
        names = profile.Names(SYMBOLS, MAPS)
        for address in (0xffffffffffffffff, 0xffff888000000100):
            self.assertEqual(names.name(address), (f"{address:#x}", ""))

    def test_the_tables_have_both_drivers(self):
        results = {"ferroce": ({("crc32_le", ""): 3}, {"CRC": 3}), "rxe": ({("udp_rcv", ""): 7}, {"network stack": 7})}
        with contextlib.redirect_stdout(io.StringIO()) as out:
            profile.show("veth: SEND 64 B", results)
        said = " ".join(out.getvalue().split())
        self.assertIn("network stack 0 7", said)
        self.assertIn("all 3 7", said)


class Samples(unittest.TestCase):
    """Processors are looked at while a tool runs."""

    def test_each_processor_is_somewhere(self):
        with mock.patch.object(profile.threading, "Thread"):
            sampler = profile.Sampler(mock.Mock(), profile.Names(SYMBOLS, ""))

        def ask(line):
            if line.startswith("x /"):
                self.assertIn("0xffff888000000100", line)
                return "ffff888000000100: 0xffffffffffffffff 0xffffffff81000204 0x0000000000000001 0xffffffffc0000008\n"
            sampler.ended.set()
            return REGISTERS

        monitor = mock.MagicMock()
        monitor.return_value.__enter__.return_value = ask
        with mock.patch.object(profile.processors, "monitor", monitor), mock.patch.object(profile, "PAUSE", 0):
            sampler._run()
        found = sampler.end()
        waits = (f"{profile.SPINS} < ferroce_tx_alloc", "")
        self.assertEqual(found, {"0": {waits: 100}, "1": {(profile.HALTED, profile.HALTED): 100}})
        self.assertEqual(profile.area(*waits), profile.WANTED_LOCK)
        with contextlib.redirect_stdout(io.StringIO()) as out:
            profile.show_samples("veth: ib_write_bw 64 B", {"ferroce": found})
        said = " ".join(out.getvalue().split())
        self.assertIn("waiting for a lock 100.0 0.0", said)
        self.assertIn("halted 0.0 100.0", said)

    def test_who_waits_for_a_lock_may_be_unknown(self):
        with contextlib.redirect_stdout(io.StringIO()) as out:
            profile.show_samples("a row", {"ferroce": {"0": {(profile.SPINS, ""): 100}}})
        self.assertIn(f"{profile.SPINS} 100.0", " ".join(out.getvalue().split()))
