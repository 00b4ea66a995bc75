# SPDX-License-Identifier: GPL-2.0
"""What the packages are made of, and what a build by DKMS says where it cannot be."""

import os
import subprocess
import tarfile
import tempfile
import unittest
from pathlib import Path

from tests.lab import config, deb, dkms, fresh, rules, say

RELEASE = "7.3.4+deb13-amd64"


class Templates(unittest.TestCase):
    """The names of the kernel are filled in."""

    def test_every_template(self):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            for path in (config.CHECKOUT / "debian").glob("*.in"):
                (folder / path.name).write_bytes(path.read_bytes())
            deb.fill_in(folder, {"RELEASE": RELEASE, "SOURCE": "linux-source-7.3", "CC_PACKAGE": "gcc-14"})
            made = {path.name: path.read_text(encoding="utf-8") for path in folder.iterdir() if path.suffix != ".in"}
        self.assertEqual(set(made), {"control", f"ferroce-modules-{RELEASE}.postinst",
                                     f"ferroce-modules-{RELEASE}.postrm"})
        for text in made.values():
            self.assertNotRegex(text, r"@[A-Z_]+@")
            self.assertIn(RELEASE, text)

    def test_values(self):
        class Root:
            release, cc = RELEASE, "x86_64-linux-gnu-gcc-14"
        self.assertEqual(deb.values(Root), {"RELEASE": RELEASE, "SOURCE": "linux-source-7.3", "CC_PACKAGE": "gcc-14"})

    def test_all_sources_are_as_old_as_the_changelog(self):
        with tempfile.TemporaryDirectory() as name:
            deb.copy_sources(Path(name) / "x")
            times = {path.stat().st_mtime for path in (Path(name) / "x").rglob("*") if path.is_file()}
            count = sum(path.is_file() for path in (Path(name) / "x").rglob("*"))
        self.assertEqual(times, {deb.changed_at()})
        self.assertGreater(count, len(rules.sources()))


class Renumbered(unittest.TestCase):
    """What stands for the next version of a module."""

    def test_number_and_build(self):
        module = b"x" + deb.BUILD_ID + b"i" * 20 + b"version=0.1.0\0\0end"
        made = deb.renumbered(module, "0.1.0", "0.1.1")
        self.assertIn(b"version=0.1.1\0", made)
        self.assertEqual(len(made), len(module))
        self.assertNotIn(b"i" * 20, made)
        self.assertTrue(made.endswith(b"\0end"))

    def test_following(self):
        for old, new in (("0.1.0", "0.1.1"), ("0.1.9", "0.2.9"), ("1.9.9", "2.9.9")):
            self.assertEqual(deb.following(old), new)

    def test_refusals(self):
        for module in (b"version=0.1.0\0", deb.BUILD_ID + b"i" * 20 + b"version=0.2.0\0"):
            with self.assertRaises(say.LabError):
                deb.renumbered(module, "0.1.0", "0.1.1")


class Fresh(unittest.TestCase):
    """What a fresh Debian has in its archive."""

    def test_asked_for(self):
        control = ("Source: x\nBuild-Depends: gcc\n\n"
                   "Package: ferroce\nDepends: ${misc:Depends}, python3, linux-image-@RELEASE@, a (>= 3) | b,\n c,\n"
                   " ferroce-provider (= 1)\nRecommends: d\nSuggests: e\n\nPackage: ferroce-dkms\nDepends: bc\n")
        self.assertEqual(fresh.asked_for(control), ["a", "c", "d", "python3"])

    def test_ours(self):
        self.assertLessEqual({"libibverbs1", "ibverbs-utils", "rdma-core", "iproute2"}, set(fresh.asked_for()))


class InstalledByDkms(unittest.TestCase):
    """What is wrong with what DKMS prints."""

    class Root:
        """Its kernel."""

        release = RELEASE

    def test_all_well(self):
        said = ["ferroce-dkms: the kernel 6.12.0-without-rust that runs is built without CONFIG_RUST and cannot load Rust modules: x",
                f"status: ferroce/{rules.version()}, {RELEASE}, x86_64: installed",
                f"file: /lib/modules/{RELEASE}/updates/dkms/ferroce.ko.xz", f"version: {rules.version()}",
                "without Rust: exit 77"]
        self.assertEqual(dkms.missing("\n".join(said), self.Root), [])
        for n in range(len(said)):
            self.assertEqual(len(dkms.missing("\n".join(said[:n] + said[n + 1:]), self.Root)), 1)
        self.assertEqual(dkms.missing("\n".join([*said, "left: /etc/x"]), self.Root), ["left: /etc/x"])


class Dkms(unittest.TestCase):
    """A kernel that the module cannot be built for is refused in a sentence."""

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.here = Path(self.folder.name)
        (self.here / "headers").mkdir()
        self.configure()

    def configure(self, rust="CONFIG_RUST=y"):
        (self.here / "headers/.config").write_text(f'CONFIG_CC_VERSION_TEXT="sh (of this machine) 1"\n{rust}\n',
                                                   encoding="utf-8")

    def source(self, version):
        """An archive with a Makefile that says which Linux it is."""
        tree = self.here / "tree"
        tree.mkdir()
        (tree / "Makefile").write_text(f"kernelversion:\n\t@echo {version}\n", encoding="utf-8")
        with tarfile.open(self.here / "linux-source-7.3.tar.xz", "w:xz") as f:
            f.add(tree, "linux-source-7.3")

    def refused(self):
        """The sentence."""
        work = self.here / "work"
        work.mkdir(exist_ok=True)
        done = subprocess.run(["sh", config.CHECKOUT / "debian/dkms-build", RELEASE, self.here / "headers"], cwd=work,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              env=dict(os.environ, SOURCES=str(self.here)))
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertFalse(list(work.iterdir()), "something was left behind")
        last = done.stdout.strip().splitlines()[-1]
        self.assertTrue(last.startswith("ferroce: "), done.stdout)
        return last

    def test_no_headers(self):
        (self.here / "headers/.config").unlink()
        self.assertIn(f"apt-get install linux-headers-{RELEASE}", self.refused())

    def test_no_rust(self):
        self.configure("# CONFIG_RUST is not set")
        self.assertIn("built without CONFIG_RUST", self.refused())

    def test_no_source(self):
        self.assertIn("apt-get install linux-source-7.3", self.refused())

    def test_source_of_another_version(self):
        self.source("7.3.9")
        self.assertIn("is of Linux 7.3.9, and the kernel 7.3.4+deb13-amd64 of 7.3.4", self.refused())


if __name__ == "__main__":
    unittest.main()
