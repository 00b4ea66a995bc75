# SPDX-License-Identifier: GPL-2.0
"""What the packages are made of, and what a build by DKMS says where it cannot be."""

import os
import tarfile
import tempfile
import unittest
from pathlib import Path

from tests.lab import config
from tests.lab.shell import captured
from tests.lab.test_native import program

RELEASE = "7.3.4+deb13-amd64"


class Dkms(unittest.TestCase):
    """A kernel that the module cannot be built for is refused in a sentence."""

    def setUp(self):
        self.here = Path(self.enterContext(tempfile.TemporaryDirectory()))
        (self.here / "headers").mkdir()
        (self.here / "bin").mkdir()
        for name in ("make", "rustc", "bindgen", "bc", "bison", "flex", "pahole"):
            program(self.here / "bin", name)
        self.make('*kernelversion*) exec sed -n "s/^VERSION = //p" kernel/Makefile ;;')
        self.configure("CONFIG_RUST=y")

    def make(self, cases):
        """What make does, by its words."""
        program(self.here / "bin", "make", f'case "$*" in {cases} esac')

    def configure(self, *lines, cc="sh (of this machine)"):
        """The kernel's configuration, with these lines of its own."""
        (self.here / "headers/.config").write_text("\n".join([f'CONFIG_CC_VERSION_TEXT="{cc} 1"', *lines, ""]), encoding="utf-8")

    def source(self, version):
        """An archive with a Makefile that says which Linux it is."""
        tree = self.here / "tree"
        tree.mkdir()
        (tree / "Makefile").write_text(f"VERSION = {version}\n", encoding="utf-8")
        with tarfile.open(self.here / "linux-source-7.3.tar.xz", "w:xz") as f:
            f.add(tree, "linux-source-7.3")

    def prepared(self, *change):
        """The source of the right version, whose configuration comes out with these lines instead."""
        self.source("7.3.4")
        (self.here / "headers/Module.symvers").touch()
        script = " ".join(f"-e '{line}'" for line in change)
        self.make(f"*kernelversion*) echo 7.3.4 ;; *olddefconfig*) sed -i {script or '-e p'} kernel/.config ;; "
                  "*modules_prepare*) exit 2 ;;")

    def refused(self):
        work = self.here / "work"
        work.mkdir()
        done = captured(["sh", config.CHECKOUT / "debian/dkms-build", RELEASE, self.here / "headers"], cwd=work,
                        env=dict(os.environ, SOURCES=str(self.here), REASONS=str(self.here / "reasons"),
                                 PATH=f"{self.here / 'bin'}:{os.environ['PATH']}"))
        self.assertEqual(done.returncode, 77, done.stdout)
        self.assertFalse(list(work.iterdir()), "something was left behind")
        last = done.stdout.strip().splitlines()[-1]
        self.assertTrue(last.startswith("ferroce: "), done.stdout)
        kept = (self.here / "reasons" / RELEASE).read_text(encoding="utf-8")
        self.assertEqual(f"ferroce: {kept}", f"{last}\n", "the reason is not the one that was said")
        return last

    def another_option(self):
        self.prepared("s/^CONFIG_RUST=y/&\\n# CONFIG_RUST_DEBUG is not set/")

    def another_rustc(self):
        self.configure("CONFIG_RUST=y", 'CONFIG_RUSTC_VERSION_TEXT="rustc 1.85.1 (4eb161250 2025-03-15) (built from a"')
        self.prepared("s/1.85.1/1.97.1/")

    def other_point_releases(self):
        """Of the tools: it goes on to what the kernel's own build says."""
        lines = ["GCC_VERSION=140200", "AS_VERSION=24400", "LD_VERSION=24400", "PAHOLE_VERSION=130",
                 'BINDGEN_VERSION_TEXT="bindgen 0.71.1"', "RUSTC_LLVM_VERSION=190107"]
        self.configure("CONFIG_RUST=y", *[f"CONFIG_{line}" for line in lines],
                       'CONFIG_RUSTC_VERSION_TEXT="rustc 1.85.1 (4eb161250 2025-03-15) (built from x)"')
        self.prepared(*[f"s/^CONFIG_{line}/CONFIG_{line.split('=')[0]}=1/" for line in lines], "s/of this machine/of today/",
                      "s/built from x/built from y/", "1i# Compiler: another")

    def fails_without_a_word(self):
        """Whatever it is, the kernel is left out, and where to look is said."""
        self.make("*kernelversion*) exit 2 ;;")
        self.source("7.3.4")

    def test_refusals(self):
        for change, *words in (
                (lambda: (self.here / "headers/.config").unlink(), f"apt-get install linux-headers-{RELEASE}"),
                (lambda: self.configure("# CONFIG_RUST is not set"), "built without CONFIG_RUST"),
                (lambda: None, "apt-get install linux-source-7.3"),
                (lambda: self.source("7.3.9"), "is of Linux 7.3.9, and the kernel 7.3.4+deb13-amd64 of 7.3.4"),
                (lambda: self.configure("CONFIG_RUST=y", cc="gcc-99 (Debian)"), "gcc-99 is not installed"),
                (self.another_option, "another configuration than it was built with", "CONFIG_RUST_DEBUG"),
                (self.another_rustc, "have other versions: CONFIG_RUSTC_VERSION_TEXT"),
                (self.other_point_releases, "cannot be prepared"), (self.fails_without_a_word, "make.log")):
            with self.subTest(words):
                self.setUp()
                change()
                said = self.refused()
                for word in words:
                    self.assertIn(word, said)


class Hook(unittest.TestCase):
    """What the hook of kernel packages says of a new kernel."""

    def setUp(self):
        self.here = Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.put(f"lib/modules/{RELEASE}/modules.order")
        self.put(f"boot/config-{RELEASE}", "CONFIG_RUST=y\n")

    def put(self, name, text=""):
        path = self.here / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def said(self, release=RELEASE):
        done = captured([config.CHECKOUT / "command/zz-ferroce", release],
                        env={"DPKG_ROOT": str(self.here), "PATH": os.environ["PATH"]})
        self.assertEqual(done.returncode, 0, done.stdout)
        return done.stdout

    def test_a_module(self):
        for name in ("updates/ferroce.ko", "updates/dkms/ferroce.ko.xz"):
            self.put(f"lib/modules/{RELEASE}/{name}")
            self.assertEqual(self.said(), "")
            (self.here / f"lib/modules/{RELEASE}/{name}").unlink()

    def test_reasons(self):
        self.assertIn("nor is ferroce-dkms", self.said())
        self.put("usr/src/ferroce-0.1.0/dkms.conf", 'BUILD_EXCLUSIVE_KERNEL="^7\\.[23]\\."\n')
        self.assertIn(f"apt install linux-headers-{RELEASE}", self.said())
        self.put(f"lib/modules/{RELEASE}/build/include/x")
        self.assertIn("does not know it", self.said())
        self.put(f"var/lib/ferroce-dkms/{RELEASE}", "gcc-14 is not installed\n")
        self.assertIn(f"the kernel {RELEASE} has no module ferroce: gcc-14 is not installed", self.said())
        self.put(f"boot/config-{RELEASE}", "# CONFIG_RUST is not set\n")
        self.assertRegex(self.said(), "built without CONFIG_RUST; .*trixie-backports")
        self.assertEqual(self.said("").count("ferroce"), 0)
