# SPDX-License-Identifier: GPL-2.0
"""What cargo makes of crates that are not ours, kept in the cache: a clean checkout begins with it, for they take longer
to build than our own.

Cargo builds again what has changed since by the time of its files, which a copy keeps; what it makes of our crates is
never kept. Everything is built at one place, /ferroce, wherever the checkout is.
"""

import os
import re
import shutil
import tomllib

from tests.lab import config, fuzz
from tests.lab.locks import SETTING_UP, lock

# Folders of the checkout's build that cargo builds in, and those in each of their profiles that have crates.
TARGETS = ("cargo-lab", "cargo-fuzz")
PARTS = (".fingerprint", "deps", "build")
HASH = re.compile(r"-([0-9a-f]{16})(?:\..*)?$")


def place():
    """Where they are kept: by the compiler, by what is asked of it, and by the crates."""
    parts = [config.recipe(), fuzz.ENVIRONMENT]
    parts += [(config.CHECKOUT / name).read_text(encoding="utf-8") for name in ("Cargo.lock", "Cargo.toml")]
    return config.cache() / f"crates-{config.digest(parts)}"


def others():
    """The names of the crates that are not ours: who has a source in the lock file."""
    with open(config.CHECKOUT / "Cargo.lock", "rb") as f:
        return {package["name"] for package in tomllib.load(f)["package"] if "source" in package}


def turn():
    return lock(config.cache() / "crates.lock", SETTING_UP)


def seed():
    """Puts what is kept where this checkout will build, unless it has built."""
    with turn():
        for name in TARGETS:
            kept, target = place() / name, config.BUILD / name
            if kept.exists() and not target.exists():
                half = config.BUILD / f"{name}.new"
                shutil.rmtree(half, ignore_errors=True)
                shutil.copytree(kept, half)
                half.rename(target)


def keep():
    """Keeps what this checkout has built of them, if nothing is kept, and nothing else but it."""
    with turn():
        if place().exists():
            return
        for old in (*config.cache().glob("crates-*"), *config.cache().glob("new-crates-*")):
            shutil.rmtree(old)
        new = config.cache() / f"new-crates-{os.getpid()}"
        for name in TARGETS:
            copy(config.BUILD / name, new / name, others())
        new.rename(place())


def copy(target, kept, names):
    """Copies of a folder that cargo has built in what belongs to the crates of these names."""
    for marks in target.glob("**/.fingerprint"):
        profile = marks.parent
        theirs = {mark.name[-16:] for mark in marks.iterdir() if mark.name[:-17] in names}
        for entry in (entry for part in PARTS for entry in (profile / part).iterdir()):
            found = HASH.search(entry.name)
            if found and found[1] in theirs:
                there = kept / entry.relative_to(target)
                there.parent.mkdir(parents=True, exist_ok=True)
                if entry.is_dir():
                    shutil.copytree(entry, there)
                else:
                    shutil.copy2(entry, there)
    # Without it cargo asks the compiler for its version anew, and then takes nothing for built.
    if (target / ".rustc_info.json").exists():
        shutil.copy2(target / ".rustc_info.json", kept)
