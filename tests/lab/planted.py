# SPDX-License-Identifier: GPL-2.0
"""`planted`: does the suite notice a fault? Each of those in tests/planted.toml is planted in a copy of the tree, and the
tests that shall notice it run in the cheapest tier that has any of them: host, fast guest, stock guest."""

import os
import re
import shutil
import subprocess
import sys
import time
import tomllib
from collections import Counter
from dataclasses import dataclass

from tests.guest.scenario import load_all
from tests.lab import check, config, say, um
from tests.lab.shell import end_in_good_order

LIST = config.CHECKOUT / "tests" / "planted.toml"
# The copy of the tree, which keeps what was built in it.
PLACE = config.BUILD / "planted"
# A fault may make each test wait for what does not come. The fast guest needs less patience: see PATIENCE of the scenarios.
LIMIT = 20 * 60
PATIENCE = {"FERROCE_PATIENCE": "2"}


@dataclass(frozen=True)
class Fault:
    """One replacement, and the tests of which one must fail then."""

    name: str
    file: str
    old: str
    new: str
    notice: str

    def plant(self, text):
        """The text of the file with the fault in it. What is replaced must be there once."""
        if text.count(self.old) != 1:
            raise say.LabError(f"planted fault {self.name}: {self.file} has {text.count(self.old)} times {self.old!r}; "
                               "correct tests/planted.toml")
        return text.replace(self.old, self.new)


def faults():
    return [Fault(name, **f) for name, f in tomllib.loads(LIST.read_text(encoding="utf-8")).items()]


def failures(output):
    """The tests that failed, by the lines of `check`: one that took its guest with it has no time there. One that did not
    run shows nothing."""
    return re.findall(r"^failed +(?:[\d.]+ s +)?([\w.-]+)(?!.*: not run)", output, re.M)


# Where tests run, the cheapest first.
HOST, FAST, STOCK = "host", um.PLAIN.name, "stock"


def tiers(fault):
    """The tests that shall notice it, by the tier that each belongs to, the cheapest first."""
    registry, by = load_all(), {HOST: [], FAST: [], STOCK: []}
    for name in check.pick_tests(fault.notice, check.names()):
        if name not in registry:
            by[HOST].append(name)
        elif um.place(registry[name], FAST) == FAST and not um.left_out(name, FAST, FAST):
            by[FAST].append(name)
        else:
            by[STOCK].append(name)
    return [(tier, names) for tier, names in by.items() if names]


def copy_tree(target):
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


def trial(fault, tier, names):
    """Runs `check` on a copy of the tree that has the fault, with the tests of one tier, until one of them fails. Returns
    those that have noticed it."""
    copy_tree(PLACE)
    path, output = PLACE / fault.file, ""
    path.write_text(fault.plant(path.read_text(encoding="utf-8")), encoding="utf-8")
    argv = ["timeout", str(LIMIT), sys.executable, "-u", "-m", "tests.lab", "check", "--only", ",".join(names),
            *(["--guest", tier] if tier == FAST else [])]
    env = os.environ | {"PYTHONDONTWRITEBYTECODE": "1"} | (PATIENCE if tier == FAST else {})
    with subprocess.Popen(argv, cwd=PLACE, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, errors="replace", env=env) as proc:
        for line in proc.stdout:
            output += line
            if failures(line):
                end_in_good_order(proc)
                break
    return noticed(fault, output)


def noticed(fault, output):
    """Which tests notice it, the first of them where the rest has not run; an empty list when none does. A tree that
    cannot be built shows nothing, nor does a guest that does not boot, nor a run that does not come to its sum."""
    who = failures(output)
    if re.search("building the module failed|could not compile|the guest did not boot|the run was ended", output) \
            or not who and " passed, " not in output:
        raise say.LabError(f"planted fault {fault.name} cannot be judged:\n{output[-3000:]}")
    return who


def find(fault):
    """The tier and the tests that notice a fault: the cheapest tier is tried first, and the next where it has missed it."""
    for tier, names in tiers(fault):
        if who := trial(fault, tier, names):
            return tier, who
    return None, []


def run(only):
    """Plants each that is asked for; 0 when all were noticed."""
    picks = [p.strip() for p in only.split(",") if p.strip()]
    chosen = [f for f in faults() if not picks or f.name in picks]
    if not chosen:
        raise say.LabError(f"no planted fault is called {only}")
    by = Counter()
    for fault in chosen:
        began = time.monotonic()
        try:
            tier, who = find(fault)
        except say.LabError as e:
            # The others are still worth their time.
            say.line(str(e))
            tier, who = None, []
        by[tier] += 1
        say.verdict("passed" if who else "failed", fault.name, time.monotonic() - began,
                    f"noticed in {tier} by {', '.join(who[:4])}" if who else f"not noticed by {fault.notice}")
    missed = by.pop(None, 0)
    say.line(f"\n{len(chosen) - missed} of {len(chosen)} faults were noticed: "
             + ", ".join(f"{count} in {tier}" for tier, count in by.items()))
    return int(missed > 0)
