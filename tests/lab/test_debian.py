# SPDX-License-Identifier: GPL-2.0
"""Choosing a kernel, a mirror and sources from what an archive says, and waiting for its lock."""

import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

from tests.lab import check, config, debian, host, kernels, setup
from tests.lab.say import LabError


def index(*packages):
    """A package index of (name, version) pairs."""
    return "\n\n".join(f"Package: {name}\nVersion: {version}\nDescription: words\n more: words"
                       for name, version in packages)


def kernel(release, version, image="linux-binary", modules=True, source=True, kbuild=True):
    """The packages of one kernel."""
    base = release.removesuffix("-amd64")
    found = [(f"linux-headers-{release}", version), (f"linux-headers-{base}-common", version),
             (f"{image}-{release}", version)]
    if kbuild:
        found.append((f"linux-kbuild-{base}", version))
    if modules:
        found.append((f"linux-modules-{release}", version))
    if source:
        found.append(("linux-source-" + ".".join(release.split("+")[0].split(".")[:2]), version))
    return found


OLD = kernel("7.2.9+deb13-amd64", "7.2.9-1~bpo13+1")
GOOD = kernel("7.2.12+deb13-amd64", "7.2.12-1~bpo13+1")


class Kernels(unittest.TestCase):
    """The newest kernel that is complete."""

    def test_newest(self):
        found = debian.complete_kernels(index(*OLD, *GOOD))
        self.assertEqual([k.release for k in found], ["7.2.12+deb13-amd64", "7.2.9+deb13-amd64"])
        self.assertEqual(found[0].image, "linux-binary-7.2.12+deb13-amd64")
        self.assertEqual(found[0].source, "linux-source-7.2")

    def test_one_still_arriving_is_left_out(self):
        arriving = [p for p in kernel("7.3.4+deb13-amd64", "7.3.4-1~bpo13+1") if "binary" not in p[0]]
        for part in (arriving, kernel("7.3.4+deb13-amd64", "7.3.4-1", modules=False),
                     kernel("7.3.4+deb13-amd64", "7.3.4-1", source=False),
                     kernel("7.3.4+deb13-amd64", "7.3.4-1", kbuild=False)):
            self.assertEqual(debian.complete_kernels(index(*part, *GOOD))[0].release, "7.2.12+deb13-amd64")

    def test_source_of_another_version_is_none(self):
        torn = [(n, "7.3.3-1" if "source" in n else v) for n, v in kernel("7.3.4+deb13-amd64", "7.3.4-1")]
        self.assertEqual(debian.complete_kernels(index(*torn)), [])

    def test_series(self):
        found = kernels.series(index(*OLD, *GOOD, *kernel("7.10.1+deb13-amd64", "7.10.1-1"), *kernel("6.1.1+deb13-amd64", "1")))
        self.assertEqual(found, ["7.2", "7.10"])

    def test_some_tests_for_every_kernel(self):
        self.assertEqual(check.meaningless(kernels.SHORT, check.names()), [])

    def test_roots_apart(self):
        named = {}
        for wanted in ("", "7.2", "sid"):
            with mock.patch.dict("os.environ", {"FERROCE_KERNEL": wanted}):
                named[config.recipe()] = config.debian().suite
        self.assertEqual(list(named.values()), ["trixie", "trixie", "sid"])

    def test_older_layout_has_the_modules_in_the_image(self):
        found = debian.complete_kernels(index(*kernel("7.2.1+deb13-amd64", "7.2.1-1", "linux-image", modules=False)))
        self.assertEqual((found[0].image, found[0].modules), ("linux-image-7.2.1+deb13-amd64", None))

    def test_too_old_and_other_flavours(self):
        self.assertEqual(debian.complete_kernels(index(*kernel("6.12.3+deb13-amd64", "6.12.3-1"))), [])
        cloud = [(n.replace("-amd64", "-cloud-amd64"), v) for n, v in GOOD]
        self.assertEqual(debian.complete_kernels(index(*cloud)), [])

    def test_numbers_sort_as_numbers(self):
        ten = kernel("7.10.1+deb13-amd64", "7.10.1-1")
        self.assertEqual(debian.complete_kernels(index(*ten, *GOOD))[0].release, "7.10.1+deb13-amd64")


class Mirrors(unittest.TestCase):
    """The host's own mirror, out of apt's targets."""

    def test_first_of_the_archive_proper(self):
        text = ("http://other.example/apt/|nodistro|main\nhttp://mirror.example/debian-security/|bookworm-security|main\n"
                "http://mirror.example/debian/|bookworm|main\n")
        self.assertEqual(debian.pick_mirror(text), "http://mirror.example/debian")

    def test_none(self):
        self.assertIsNone(debian.pick_mirror("http://other.example/apt/|nodistro|main\n"))


class Versions(unittest.TestCase):
    """The compiler a kernel names."""

    def test_rustc(self):
        self.assertEqual(setup.rustc_version("CONFIG_RUST=y\nCONFIG_RUSTC_VERSION=108501\n"), "1.85.1")
        self.assertEqual(setup.rustc_version("CONFIG_RUSTC_VERSION=109701\n"), "1.97.1")


class RdmaCore(unittest.TestCase):
    """Which sources the provider's layouts are compared with once the archive goes on."""

    def test_itself(self):
        offered = ["56.1-1", "65.0-1", "65.0-2", "66.0-1"]
        self.assertEqual(setup.pick_rdma_core("65.0", offered), "65.0-2")
        self.assertEqual(setup.replaced_rdma_core("65.0", "65.0-2", 65), "")

    def test_what_has_come_after_it(self):
        self.assertEqual(setup.pick_rdma_core("65.0", ["56.1-1", "66.0-1"]), "66.0-1")
        self.assertEqual(setup.pick_rdma_core("56.1", ["56.2-1", "66.0-1"]), "56.2-1")
        said = setup.replaced_rdma_core("65.0", "66.0-1", 65)
        self.assertIn("no rdma-core 65.0 any more, and now has 66.0-1", said)
        self.assertIn("compared with that", said)

    def test_another_interface_is_nothing_to_compare_with(self):
        self.assertIn("private ABI is 66 and not 65", setup.replaced_rdma_core("65.0", "66.0-1", 66))

    def test_none_at_all(self):
        with self.assertRaises(LabError):
            setup.pick_rdma_core("65.0", [])

    def test_every_version_has_its_interface(self):
        self.assertEqual(set(config.PRIVATE_ABI), set(config.RDMA_CORE))

    def fetched(self, abi):
        """What a set-up says of 65.0 when the archive has 66.0, with that private ABI; and the provider's test's words,
        and its environment."""
        def run(argv, *_):
            if "showsrc" in argv:
                return "Version: 56.1-1\nVersion: 66.0-1\n"
            return f"'http://mirror.example/{argv[-1]}' x.orig.tar.gz 1 SHA256:12\n" if "--print-uris" in argv else ""

        def in_root(_root, _command, what, _log):
            if "66.0" in what:
                (config.cache() / "new-rdma-core-65.0/CMakeLists.txt").write_text(
                    f'set(IBVERBS_PABI_VERSION "{abi}")\n', encoding="utf-8")

        with tempfile.TemporaryDirectory() as place, mock.patch.object(config, "cache", lambda: Path(place)), \
                mock.patch.object(setup, "in_root", in_root), mock.patch.object(setup, "run", run), \
                mock.patch.object(setup, "chroot_command", lambda _root, argv, **_: argv), \
                mock.patch.object(setup, "step") as said, \
                mock.patch.object(host, "in_root", return_value="3 passed") as tested:
            (Path(place) / "rdma-core-56.1").mkdir()
            (Path(place) / "rdma-core-56.1/.complete").touch()
            setup.rdma_core_sources(mock.Mock(path=Path("/")))
            words = host.provider_test(None)
            # Made once, and not asked for at each start.
            said.reset_mock()
            setup.rdma_core_sources(mock.Mock(path=Path("/")))
            said.assert_not_called()
            return words, tested.call_args.kwargs["env"]

    def test_set_up_takes_what_there_is(self):
        words, env = self.fetched(65)
        self.assertIn("3 tests; the archive has no rdma-core 65.0 any more, and now has 66.0-1", words)
        self.assertNotIn("FERROCE_ALLOW_MISSING_SOURCES", env)

    def test_set_up_takes_no_other_interface(self):
        words, env = self.fetched(66)
        self.assertIn("private ABI is 66 and not 65", words)
        self.assertEqual(env["FERROCE_ALLOW_MISSING_SOURCES"], "1")


class Lock(unittest.TestCase):
    """Another apt on the same machine."""

    def setUp(self):
        place = tempfile.TemporaryDirectory()
        self.addCleanup(place.cleanup)
        self.path = f"{place.name}/lock"
        Path(self.path).touch()

    def holder(self):
        """A process that holds the lock until it is told to end."""
        code = ("import fcntl, sys; f = open(sys.argv[1], 'r+'); fcntl.lockf(f, fcntl.LOCK_EX)\n"
                "print('held', flush=True); sys.stdin.read()")
        holder = subprocess.Popen([sys.executable, "-c", code, self.path], stdin=subprocess.PIPE,
                                  stdout=subprocess.PIPE, text=True)
        self.addCleanup(holder.communicate)
        self.assertEqual(holder.stdout.readline(), "held\n")
        return holder

    def test_waits_and_says_so(self):
        holder = self.holder()
        with mock.patch.object(debian, "step") as said, \
                mock.patch.object(debian.time, "sleep", lambda _: holder.communicate()):
            debian.wait_for_apt((self.path,))
        self.assertEqual(said.call_count, 1)
        self.assertIn(self.path, said.call_args.args[0])

    def test_not_for_ever(self):
        self.holder()
        with mock.patch.object(debian, "step"), self.assertRaisesRegex(LabError, "held by another program"):
            debian.wait_for_apt((self.path,), patience=0, pause=0)

    def test_nobody_there(self):
        with mock.patch.object(debian, "step") as said:
            debian.wait_for_apt((self.path, self.path + ".none"))
        said.assert_not_called()
