# SPDX-License-Identifier: GPL-2.0
"""Choosing a kernel and sources from what an archive says."""

import unittest

from tests.lab import check, debian, kernels, setup
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

    def test_older_layout_has_the_modules_in_the_image(self):
        found = debian.complete_kernels(index(*kernel("7.2.1+deb13-amd64", "7.2.1-1", "linux-image", modules=False)))
        self.assertEqual((found[0].image, found[0].modules), ("linux-image-7.2.1+deb13-amd64", None))

    def test_too_old_and_other_flavours(self):
        self.assertEqual(debian.complete_kernels(index(*kernel("6.12.3+deb13-amd64", "6.12.3-1"))), [])
        cloud = [(n.replace("-amd64", "-cloud-amd64"), v) for n, v in GOOD]
        self.assertEqual(debian.complete_kernels(index(*cloud)), [])


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
