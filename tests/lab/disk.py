# SPDX-License-Identifier: GPL-2.0
"""Roots as disks of read-only file systems: a guest that asks the host by 9p for each file that it opens takes twice as
long to start a program."""

import shlex
from pathlib import Path

from tests.lab import config
from tests.lab.say import step
from tests.lab.shell import run

# Left out: sources and fetched packages, at which no guest looks, and the places of other file systems.
LEFT_OUT = "^(usr/src/.*|var/cache/apt/.*[.](deb|bin)|(cache|ferroce|dev|proc|run|sys|tmp)/.*)$"


def of(path):
    """The disk of the root that is at this place: beside it."""
    return Path(f"{path.resolve()}.erofs")


def make(root):
    """Makes the disk of a root if it is not there, or is older than the root. Who calls holds the root's lock."""
    final = of(root.path)
    if final.exists() and final.stat().st_mtime > (root.path / config.Root.STAMP).stat().st_mtime:
        return
    new = Path(f"{final}.new")
    step(f"make a disk of {root.path.name}")
    # It would not begin with an empty file.
    new.unlink(missing_ok=True)
    run(["mkfs.erofs", "--quiet", f"--exclude-regex={LEFT_OUT}", new, root.path.resolve()],
        f"making a disk of {root.path}", config.cache() / "setup.log")
    new.rename(final)


def of_changes(upper, image):
    """A shell line that makes a disk of an overlay's upper folder; upon the lower one's it is what the overlay is."""
    return f"mkfs.erofs --quiet {shlex.quote(image)} {shlex.quote(upper)}"


def options(*images):
    """Words for qemu that give it these as /dev/vda, /dev/vdb and so on."""
    return [word for n, image in enumerate(images) for word in (
        "-drive", f"if=none,id=disk{n},format=raw,readonly=on,file={image}", "-device", f"virtio-blk-pci,drive=disk{n}")]
