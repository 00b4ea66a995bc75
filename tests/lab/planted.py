# SPDX-License-Identifier: GPL-2.0
"""`planted`: does the suite notice a fault? Each of those in tests/planted.toml is planted in a copy of the tree, and the
tests that shall notice it run in the cheapest tier that has any of them: host, fast guest, stock guest."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from contextlib import suppress
from dataclasses import dataclass

from tests.guest.scenario import load_all
from tests.lab import check, config, say, um
from tests.lab.shell import end_in_good_order

LIST = config.CHECKOUT / "tests" / "planted.toml"
# Copies of the tree, one for each of those that are tried beside each other: a build has work for one processor mostly.
PLACE = config.BUILD / "planted"
AT_ONCE = 2
# A fault may make each test wait for what does not come. The fast guest needs less patience: see PATIENCE of the scenarios.
LIMIT = 20 * 60
PATIENCE = {"FERROCE_PATIENCE": "2"}


@dataclass(frozen=True)
class Fault:
    """One replacement, and the tests of which one must fail then."""

    name: str
    about: str
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
    return [Fault(**f) for f in tomllib.loads(LIST.read_text(encoding="utf-8"))["fault"]]


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


class Trial:
    """`check` at work on a copy of the tree that has a fault, with the tests of one tier."""

    def __init__(self, fault, place, tier, names):
        self.fault, self.place, self.tier = fault, place, tier
        self.began = time.monotonic()
        path = place / fault.file
        copy_tree(place)
        path.write_text(fault.plant(path.read_text(encoding="utf-8")), encoding="utf-8")
        self.out = tempfile.TemporaryFile("w+")
        self.proc = subprocess.Popen(
            [sys.executable, "-u", "-m", "tests.lab", "check", "--only", ",".join(names),
             *(["--guest", tier] if tier == FAST else [])], cwd=place, stdin=subprocess.DEVNULL,
            stdout=self.out, stderr=subprocess.STDOUT,
            env=os.environ | {"PYTHONDONTWRITEBYTECODE": "1"} | (PATIENCE if tier == FAST else {}))

    def output(self):
        return os.pread(self.out.fileno(), 1 << 24, 0).decode(errors="replace")

    def is_over(self):
        """Whether a test has failed, or it has come to its end or to its limit."""
        return self.proc.poll() is not None or bool(failures(self.output())) or time.monotonic() > self.began + LIMIT

    def end(self):
        """Ends it, and waits for its guests; the tree is as it was. Returns the tests that have noticed the fault."""
        late = self.proc.poll() is None
        try:
            return noticed(self.fault, self.output(), late)
        finally:
            end_in_good_order(self.proc)
            shutil.copyfile(config.CHECKOUT / self.fault.file, self.place / self.fault.file)
            self.out.close()


def noticed(fault, output, late):
    """Which tests notice it, the first of them where the rest has not run; an empty list when none does. A tree that
    cannot be built shows nothing, nor does a guest that does not boot."""
    who = failures(output)
    cannot = f"planted fault {fault.name} cannot be judged"
    if re.search("building the module failed|could not compile|the guest did not boot", output):
        raise say.LabError(f"{cannot}:\n{output[-3000:]}")
    if late and not who:
        raise say.LabError(f"{cannot}: its tests did not end in {LIMIT} s")
    if not late and " passed, " not in output:
        raise say.LabError(f"{cannot}:\n{output[-3000:]}")
    return who


def trials(chosen):
    """Tries each, some beside each other, and in the next tier what the tests of one have missed. Gives each fault with
    the tier and the tests that notice it, which are none where none does, and its seconds."""
    free, running = [PLACE / str(number) for number in range(AT_ONCE)], []
    waiting = [(fault, tiers(fault), 0) for fault in chosen]
    try:
        while waiting or running:
            while waiting and free:
                fault, left, took = waiting.pop(0)
                running.append((Trial(fault, free.pop(), *left[0]), left[1:], took))
            time.sleep(0.2)
            for one in [one for one in running if one[0].is_over()]:
                running.remove(one)
                trial, left, took = one
                who = []
                try:
                    who = trial.end()
                except say.LabError as e:
                    # The others are still worth their time.
                    say.line(str(e))
                    left = []
                free.append(trial.place)
                took += time.monotonic() - trial.began
                if not who and left:
                    waiting.insert(0, (trial.fault, left, took))
                else:
                    yield trial.fault, trial.tier, who, took
    finally:
        for trial, _left, _took in running:
            with suppress(say.LabError):
                trial.end()


def run(only):
    """Plants each that is asked for; 0 when all were noticed."""
    picks = [p.strip() for p in only.split(",") if p.strip()]
    chosen = [f for f in faults() if not picks or f.name in picks]
    if not chosen:
        raise say.LabError(f"no planted fault is called {only}")
    by, missed = {}, 0
    for fault, tier, who, took in trials(chosen):
        missed += not who
        if who:
            by[tier] = by.get(tier, 0) + 1
        say.verdict("passed" if who else "failed", fault.name, took,
                    f"noticed in {tier} by {', '.join(who[:4])}" if who else f"not noticed by {fault.notice}: {fault.about}")
    say.line(f"\n{len(chosen) - missed} of {len(chosen)} faults were noticed: "
             + ", ".join(f"{count} in {tier}" for tier, count in by.items()))
    return int(missed > 0)
