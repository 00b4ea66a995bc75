# SPDX-License-Identifier: GPL-2.0
"""A build for a kernel of your own says in one line what is missing."""

import os
import re
import shutil
import tempfile
import unittest
from pathlib import Path

from tests.lab import config
from tests.lab.shell import captured

RUSTC = "rustc 1.85.1 (4eb161250 2025-03-15)"


def program(folder, name, body="exit 0"):
    """A program of the machine's: a shell script in a folder of its path."""
    path = folder / name
    path.unlink(missing_ok=True)
    path.write_text(f"#!/bin/sh\n{body}\n", encoding="utf-8")
    path.chmod(0o755)


class Preflight(unittest.TestCase):
    """Every way a kernel tree can be unfit."""

    def setUp(self):
        self.here = Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.kdir, self.bin = self.here / "linux", self.here / "bin"
        for name in ("rust/Kbuild", *(f"linux/{name}" for name in (
                "Makefile", "Module.symvers", "include/generated/autoconf.h", "scripts/mod/modpost",
                *[f"rust/lib{n}.rmeta" for n in ("core", "kernel", "bindings", "ffi")]))):
            path = self.here / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
        self.configure()
        self.bin.mkdir()
        program(self.bin, "rustc", f"echo '{RUSTC} (built from a source tarball)'")
        for name in ("bindgen", "gcc", "make"):
            program(self.bin, name)
        for name in ("sh", "sed", "cat", "find", "rm", "cksum", "mkdir", "dirname"):
            (self.bin / name).symlink_to(shutil.which(name))

    def configure(self, **change):
        values = {"CONFIG_RUST": "y", "CONFIG_MODULES": "y", "CONFIG_INFINIBAND": "m",
                  "CONFIG_RUSTC_VERSION_TEXT": f'"{RUSTC} (built from a source tarball)"', **change}
        text = "".join(f"{k}={v}\n" if v else f"# {k} is not set\n" for k, v in values.items())
        (self.kdir / ".config").write_text(text, encoding="utf-8")

    def said(self, word="preflight-kernel", **env):
        done = captured(["sh", str(config.CHECKOUT / "tests/lab/native.sh"), word], cwd=self.here,
                        env={"PATH": str(self.bin), "KDIR": str(self.kdir), **env})
        return done.returncode, done.stdout

    def refused(self, answer, *words):
        """In one line, which has these words."""
        self.assertEqual((answer[0], len(answer[1].strip().splitlines())), (1, 1), answer)
        for word in words:
            self.assertIn(word, answer[1])

    def test_fit(self):
        self.assertEqual(self.said(), (0, ""))
        # Another distribution of the same compiler.
        self.configure(CONFIG_RUSTC_VERSION_TEXT=f'"{RUSTC}"')
        self.assertEqual(self.said(), (0, ""))

    def test_unfit(self):
        def without(name):
            return lambda: (self.here / name).unlink()

        for change, *words in (
                (lambda: self.configure(CONFIG_RUST=None), "CONFIG_RUST"),
                (lambda: self.configure(CONFIG_INFINIBAND=None), "CONFIG_INFINIBAND"),
                (lambda: program(self.bin, "rustc", "echo 'rustc 1.97.1 (abc 2026-01-01)'"), "1.85.1", "1.97.1", "RUSTC="),
                (without("linux/rust/libkernel.rmeta"), "libkernel.rmeta", "make prepare modules_prepare"),
                (without("bin/bindgen"), "bindgen", "apt-get install"), (without("linux/.config"), ".config"),
                (without("linux/Makefile"), "no Makefile"), (without("linux/Module.symvers"), "no Module.symvers"),
                (without("linux/scripts/mod/modpost"), "not prepared"), (without("rust/Kbuild"), "not a whole checkout")):
            with self.subTest(words):
                self.setUp()
                change()
                self.refused(self.said(), *words)
        self.refused(self.said(KDIR=str(self.here / "nowhere")), "no folder")
        self.refused(self.said("preflight-install", KDIR=""), "KDIR=")
        self.refused(self.said("preflight-install"), "KERNELRELEASE=")


class Abis(unittest.TestCase):
    """The provider is installed under the names of all private ABIs that it serves, by hand and by the package."""

    def test_the_same_everywhere(self):
        def found(path, pattern):
            return re.search(pattern, (config.CHECKOUT / path).read_text(encoding="utf-8"), re.S).group(1)

        served = set(re.findall(r"=> (\d+),", found("userspace-provider/src/abi.rs", r"fn number\(self\)(.*?)\n    }\n")))
        self.assertIn("65", served)
        self.assertEqual(set(found("tests/lab/native.sh", r'\nABIS="([\d ]+)"').split()), served)
        rules = (config.CHECKOUT / "debian/rules").read_text(encoding="utf-8")
        named = set(re.findall(r"rdmav(\d+)\.so", rules)) | set(found("debian/rules", r"for abi in ([\d ]+);").split())
        self.assertEqual(named, served)


class Install(unittest.TestCase):
    """Everything arrives where it is looked for, and goes again."""

    PROVIDER = ["etc/libibverbs.d/ferroce.driver",
                *[f"usr/lib/p/libferroce-rdmav{abi}.so" for abi in (34, 57, 59, 64, 65)],
                "usr/lib/udev/rules.d/76-ferroce.rules"]

    def setUp(self):
        self.here = Path(self.enterContext(tempfile.TemporaryDirectory()))
        for name in ("ferroce.ko", "libferroce.so"):
            (self.here / name).write_text(name, encoding="utf-8")

    def native(self, word, **env):
        return captured(["sh", "tests/lab/native.sh", word], cwd=config.CHECKOUT,
                        env={**os.environ, "PROVIDER": str(self.here / "libferroce.so"), "DESTDIR": str(self.here / "d"),
                             "PROVIDERDIR": "/usr/lib/p", **env})

    def found(self):
        return sorted(str(p.relative_to(self.here / "d")) for p in (self.here / "d").rglob("*") if p.is_file())

    def test_staging(self):
        # All parts of the command, so that a new one is not forgotten.
        parts = [str(p.relative_to(config.CHECKOUT / "command")) for p in (config.CHECKOUT / "command").glob("*/*")
                 if p.is_file()]
        kernel = {"MODULE": str(self.here / "ferroce.ko"), "KERNELRELEASE": "7.2.12-test"}
        done = self.native("install", **kernel)
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertEqual(self.found(), sorted([
            *self.PROVIDER, "lib/modules/7.2.12-test/updates/ferroce.ko", "usr/bin/ferroce",
            "usr/lib/systemd/system/ferroce@.service",
            "usr/share/man/man7/ferroce.7", "usr/share/man/man8/ferroce.8",
            *(f"usr/share/ferroce/{part}" for part in parts)]))
        self.assertEqual((self.here / "d/etc/libibverbs.d/ferroce.driver").read_text(encoding="utf-8"),
                         "driver /usr/lib/p/libferroce\n", "the driver file names the provider")
        done = self.native("uninstall")
        self.assertIn("7.2.12-test/updates/ferroce.ko stays", done.stdout)
        self.assertEqual(self.native("uninstall", **kernel).returncode, 0)
        self.assertEqual(self.found(), [])

    def test_the_provider_alone(self):
        done = self.native("install-provider")
        self.assertEqual((done.returncode, self.found()), (0, self.PROVIDER), done.stdout)
        self.assertEqual(self.native("uninstall").returncode, 0)
        self.assertEqual(self.found(), [])

    def test_packages_are_not_uninstalled(self):
        (self.here / "d/var/lib/dpkg").mkdir(parents=True)
        (self.here / "d/var/lib/dpkg/status").write_text(
            "Package: ferroce\nStatus: install ok installed\nMaintainer: x <x@example.org>\nArchitecture: all\n"
            "Version: 1\nDescription: x\n", encoding="utf-8")
        done = self.native("uninstall")
        self.assertEqual(done.returncode, 1)
        self.assertIn("apt remove", done.stdout)

    def test_the_folder_is_the_librarys_own(self):
        """As it is compiled into the libibverbs that the loader knows, whatever the distribution."""
        tools, library = self.here / "bin", self.here / "libibverbs.so.1"
        tools.mkdir()
        for name, body in (("uname", "echo x86_64"), ("gcc", "exit 1"), (
                "ldconfig", f"echo '\tlibibverbs.so.1 (libc6) => /lib/other'; "
                            f"echo '\tlibibverbs.so.1 (libc6,x86-64) => {library}'")):
            program(tools, name, body)
        library.write_bytes(b"\x7fELF\0/etc/libibverbs.d\0hv\xf8\xff/usr/lib64/libibverbs/lib%s-rdmav59.so\0more\0")
        path = f"{tools}:{os.environ['PATH']}"
        done = self.native("install-provider", PROVIDERDIR="", PATH=path)
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertIn("usr/lib64/libibverbs/libferroce-rdmav65.so", self.found())
        program(tools, "ldconfig")
        done = self.native("install-provider", PROVIDERDIR="", PATH=path)
        self.assertEqual((done.returncode, "PROVIDERDIR=" in done.stdout), (1, True), done.stdout)
