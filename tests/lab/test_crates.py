# SPDX-License-Identifier: GPL-2.0
"""What is kept of cargo's builds is theirs alone, and a checkout that has built is left alone."""

import os
import tempfile
import unittest
from contextlib import ExitStack
from pathlib import Path
from unittest import mock

from tests.lab import config, crates

OURS, THEIRS = "0123456789abcdef", "fedcba9876543210"


class Kept(unittest.TestCase):
    """In a checkout and a cache of its own, with one crate of ours and one of others."""

    def setUp(self):
        self.stack = ExitStack()
        self.addCleanup(self.stack.close)
        where = Path(self.stack.enter_context(tempfile.TemporaryDirectory()))
        self.build = where / "build"
        self.stack.enter_context(mock.patch.object(config, "BUILD", self.build))
        self.stack.enter_context(mock.patch.object(config, "cache", lambda: where / "cache"))
        self.stack.enter_context(mock.patch.object(crates, "others", lambda: {"two-words"}))

    def make(self, target, *names):
        for name in names:
            path = self.build / target / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(name, encoding="utf-8")
            os.utime(path, ns=(0, 1_234_567_891_234_567_891))

    def have(self, target):
        folder = self.build / target
        return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}

    def test_theirs_are_kept_with_their_times_and_ours_are_not(self):
        theirs = {f"debug/.fingerprint/two-words-{THEIRS}/lib", f"debug/deps/libtwo_words-{THEIRS}.rlib",
                  f"debug/deps/two_words-{THEIRS}.d", f"debug/build/two-words-{THEIRS}/out/x", ".rustc_info.json"}
        self.make("cargo-lab", *theirs, f"debug/.fingerprint/two-{OURS}/lib", f"debug/deps/libtwo-{OURS}.rlib",
                  f"debug/deps/two-{OURS}", "debug/libtwo.so", f"debug/incremental/two_words-{THEIRS}/x")
        self.make("cargo-fuzz", f"t/fuzz/.fingerprint/two-words-{THEIRS}/lib", f"t/fuzz/deps/two_words-{THEIRS}.d",
                  f"t/fuzz/build/two-words-{THEIRS}/x")
        crates.keep()
        os.rename(self.build, f"{self.build}.before")
        self.build.mkdir()
        crates.seed()
        self.assertEqual(self.have("cargo-lab"), theirs)
        self.assertEqual(len(self.have("cargo-fuzz")), 3)
        for name in theirs:
            self.assertEqual((self.build / "cargo-lab" / name).stat().st_mtime_ns, 1_234_567_891_234_567_891)

    def test_what_is_kept_stays_until_it_is_of_others(self):
        self.make("cargo-lab", f"debug/.fingerprint/two-words-{THEIRS}/lib", "debug/deps/x", "debug/build/x")
        crates.keep()
        first = crates.place()
        self.make("cargo-lab", f"debug/.fingerprint/two-words-{OURS}/lib")
        crates.keep()
        self.assertEqual(len(list((first / "cargo-lab/debug/.fingerprint").iterdir())), 1)
        with mock.patch.object(config, "recipe", lambda: "another"):
            crates.keep()
            self.assertEqual(len(list((crates.place() / "cargo-lab/debug/.fingerprint").iterdir())), 2)
        self.assertFalse(first.exists())

    def test_who_has_built_keeps_that(self):
        self.make("cargo-lab", f"debug/.fingerprint/two-words-{THEIRS}/lib", "debug/deps/x", "debug/build/x")
        crates.keep()
        (self.build / f"cargo-lab/debug/.fingerprint/two-words-{THEIRS}/lib").unlink()
        crates.seed()
        self.assertNotIn(f"debug/.fingerprint/two-words-{THEIRS}/lib", self.have("cargo-lab"))


if __name__ == "__main__":
    unittest.main()
