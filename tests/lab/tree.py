# SPDX-License-Identifier: GPL-2.0
"""Copies of the checkout, to try in them what is not to be in it."""

import shutil
import subprocess

from tests.lab import config
from tests.lab.say import LabError


def copy(target):
    """Makes `target` a copy of the checkout's files, with their modes; what was built there stays, as new as its sources."""
    names = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=config.CHECKOUT,
                           check=True, stdout=subprocess.PIPE).stdout.decode().split("\0")
    for name in filter(None, names):
        source, place = config.CHECKOUT / name, target / name
        if not source.is_file():
            continue
        if not place.exists() or place.read_bytes() != source.read_bytes():
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, place)
        # It boots with scripts of its own.
        shutil.copymode(source, place)


def earlier(target, revision, paths):
    """Puts these files and folders of an earlier commit in the place of those that a copy has."""
    for path in paths:
        shutil.rmtree(target / path, ignore_errors=True)
    archive = subprocess.Popen(["git", "archive", revision, *paths], cwd=config.CHECKOUT, stdout=subprocess.PIPE)
    unpacked = subprocess.run(["tar", "-x", "-C", str(target)], stdin=archive.stdout)
    archive.stdout.close()
    if archive.wait() or unpacked.returncode:
        raise LabError(f"git has no {', '.join(paths)} of {revision}; name a commit that is in this clone")
