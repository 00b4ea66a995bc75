# SPDX-License-Identifier: GPL-2.0
"""Choosing a kernel and sources from what an archive says."""

import unittest

from tests.lab import check, debian, kernels


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


GOOD = kernel("7.2.12+deb13-amd64", "7.2.12-1~bpo13+1")


class Kernels(unittest.TestCase):
    """The newest kernel that is complete."""

    def test_one_still_arriving_is_left_out(self):
        arriving = [p for p in kernel("7.3.4+deb13-amd64", "7.3.4-1~bpo13+1") if "binary" not in p[0]]
        for part in (arriving, kernel("7.3.4+deb13-amd64", "7.3.4-1", modules=False),
                     kernel("7.3.4+deb13-amd64", "7.3.4-1", source=False),
                     kernel("7.3.4+deb13-amd64", "7.3.4-1", kbuild=False)):
            self.assertEqual(debian.complete_kernels(index(*part, *GOOD))[0].release, "7.2.12+deb13-amd64")

    def test_source_of_another_version_is_none(self):
        torn = [(n, "7.3.3-1" if "source" in n else v) for n, v in kernel("7.3.4+deb13-amd64", "7.3.4-1")]
        self.assertEqual(debian.complete_kernels(index(*torn)), [])

    def test_some_tests_for_every_kernel(self):
        self.assertEqual(check.meaningless(kernels.SHORT, check.names()), [])

    def test_older_layout_has_the_modules_in_the_image(self):
        found = debian.complete_kernels(index(*kernel("7.2.1+deb13-amd64", "7.2.1-1", "linux-image", modules=False)))
        self.assertEqual((found[0].image, found[0].modules), ("linux-image-7.2.1+deb13-amd64", None))
