# SPDX-License-Identifier: GPL-2.0
"""Whoever builds for a kernel of their own is told in one line what is missing."""

import os
import subprocess
import tempfile
import unittest
from pathlib import Path

from tests.lab import config

RUSTC = "rustc 1.85.1 (4eb161250 2025-03-15)"


class Preflight(unittest.TestCase):
    """Every way a kernel tree can be unfit."""

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.here = Path(self.folder.name)
        self.kdir = self.here / "linux"
        for name in ("Makefile", "Module.symvers", "include/generated/autoconf.h", "scripts/mod/modpost",
                     *[f"rust/lib{n}.rmeta" for n in ("core", "kernel", "bindings", "ffi")]):
            path = self.kdir / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
        self.configure()
        self.bin = self.here / "bin"
        self.bin.mkdir()
        self.tool("rustc", f"echo '{RUSTC} (built from a source tarball)'")
        for name in ("bindgen", "gcc", "make"):
            self.tool(name, "exit 0")
        for name in ("sh", "sed", "cat", "find", "rm", "cksum", "mkdir", "dirname"):
            for folder in ("/usr/bin", "/bin"):
                if os.path.exists(f"{folder}/{name}"):
                    (self.bin / name).symlink_to(f"{folder}/{name}")
                    break
        (self.here / "rust").mkdir()
        (self.here / "rust/Kbuild").touch()

    def tool(self, name, body):
        path = self.bin / name
        path.write_text(f"#!/bin/sh\n{body}\n", encoding="utf-8")
        path.chmod(0o755)

    def configure(self, **change):
        values = {"CONFIG_RUST": "y", "CONFIG_MODULES": "y", "CONFIG_INFINIBAND": "m",
                  "CONFIG_RUSTC_VERSION_TEXT": f'"{RUSTC} (built from a source tarball)"', **change}
        text = "".join(f"{k}={v}\n" if v else f"# {k} is not set\n" for k, v in values.items())
        (self.kdir / ".config").write_text(text, encoding="utf-8")

    def run_it(self, word="preflight-kernel", **env):
        return subprocess.run(["sh", str(config.CHECKOUT / "tests/lab/native.sh"), word], cwd=self.here,
                              env={"PATH": str(self.bin), "KDIR": str(self.kdir), **env}, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True)

    def refused(self, *words, **kw):
        done = self.run_it(**kw)
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertEqual(len(done.stdout.strip().splitlines()), 1, done.stdout)
        for word in words:
            self.assertIn(word, done.stdout)

    def test_fit(self):
        done = self.run_it()
        self.assertEqual((done.returncode, done.stdout), (0, ""))

    def test_another_distribution_of_the_same_compiler(self):
        self.configure(CONFIG_RUSTC_VERSION_TEXT=f'"{RUSTC}"')
        self.assertEqual(self.run_it().returncode, 0)

    def test_no_rust(self):
        self.configure(CONFIG_RUST=None)
        self.refused("CONFIG_RUST")

    def test_no_rdma(self):
        self.configure(CONFIG_INFINIBAND=None)
        self.refused("CONFIG_INFINIBAND")

    def test_other_compiler(self):
        self.tool("rustc", "echo 'rustc 1.97.1 (abc 2026-01-01)'")
        self.refused("1.85.1", "1.97.1", "RUSTC=")

    def test_no_metadata(self):
        (self.kdir / "rust/libkernel.rmeta").unlink()
        self.refused("libkernel.rmeta", "make prepare modules_prepare")

    def test_missing_tool(self):
        (self.bin / "bindgen").unlink()
        self.refused("bindgen", "apt-get install")

    def test_no_tree(self):
        self.refused("no folder", KDIR=str(self.here / "nowhere"))

    def test_not_configured(self):
        (self.kdir / ".config").unlink()
        self.refused(".config")

    def test_not_prepared(self):
        (self.kdir / "scripts/mod/modpost").unlink()
        self.refused("not prepared")

    def test_install_without_a_kernel(self):
        self.refused("KDIR=", word="preflight-install", KDIR="")
        self.refused("KERNELRELEASE=", word="preflight-install")


class Install(unittest.TestCase):
    """Everything arrives where it is looked for."""

    def test_staging(self):
        with tempfile.TemporaryDirectory() as folder:
            here = Path(folder)
            for name in ("ferroce.ko", "libferroce.so"):
                (here / name).write_text(name, encoding="utf-8")
            done = subprocess.run(
                ["sh", "tests/lab/native.sh", "install"], cwd=config.CHECKOUT, stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT, text=True,
                env={**os.environ, "MODULE": str(here / "ferroce.ko"), "PROVIDER": str(here / "libferroce.so"),
                     "KERNELRELEASE": "7.2.12-test", "DESTDIR": str(here / "d"), "PROVIDERDIR": "/usr/lib/p"})
            self.assertEqual(done.returncode, 0, done.stdout)
            found = sorted(str(p.relative_to(here / "d")) for p in (here / "d").rglob("*") if p.is_file())
            # All parts of the command, so that a new one is not forgotten.
            parts = [str(p.relative_to(config.CHECKOUT / "command")) for p in (config.CHECKOUT / "command/trace").iterdir() if p.is_file()]
            self.assertEqual(found, sorted([
                "etc/libibverbs.d/ferroce.driver", "lib/modules/7.2.12-test/updates/ferroce.ko",
                "usr/bin/ferroce", "usr/lib/p/libferroce-rdmav34.so", "usr/lib/p/libferroce-rdmav65.so",
                "usr/lib/systemd/system/ferroce@.service", "usr/lib/udev/rules.d/76-ferroce.rules",
                "usr/share/man/man7/ferroce.7", "usr/share/man/man8/ferroce.8",
                *(f"usr/share/ferroce/{part}" for part in parts)]))
            self.assertEqual((here / "d/etc/libibverbs.d/ferroce.driver").read_text(encoding="utf-8"),
                             "driver /usr/lib/p/libferroce\n", "the driver file names the provider")


if __name__ == "__main__":
    unittest.main()
