# SPDX-License-Identifier: GPL-2.0
"""`planted`: does the suite notice a fault? Each of those in tests/planted.toml is planted in a copy of the tree."""

import os
import re
import shutil
import subprocess
import sys
import time
import tomllib
from dataclasses import dataclass

from tests.lab import config, say, tree
from tests.lab.shell import in_good_order

LIST = config.CHECKOUT / "tests" / "planted.toml"
TREE = config.BUILD / "planted" / "tree"
# A fault may make each test wait for what does not come.
LIMIT = 20 * 60


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
                               "mend tests/planted.toml")
        return text.replace(self.old, self.new)


def faults(text=None):
    """All of them, in order."""
    return [Fault(**f) for f in tomllib.loads(text or LIST.read_text(encoding="utf-8"))["fault"]]


def failures(output):
    """The tests that failed, by the lines of `check`."""
    return re.findall(r"^failed +[\d.]+ s +([\w.-]+)", output, re.M)


def noticed(fault):
    """Which tests notice it; an empty list when none does. A tree that cannot be built shows nothing."""
    tree.copy(TREE)
    path = TREE / fault.file
    path.write_text(fault.plant(path.read_text(encoding="utf-8")), encoding="utf-8")
    try:
        done = in_good_order([sys.executable, "-m", "tests.lab", "check", "--only", fault.notice], LIMIT, cwd=TREE,
                             env=os.environ | {"PYTHONDONTWRITEBYTECODE": "1"}, text=True, stdout=subprocess.PIPE,
                             stderr=subprocess.STDOUT)
    except subprocess.TimeoutExpired:
        return ["(the time limit)"]
    finally:
        shutil.copyfile(config.CHECKOUT / fault.file, path)
    if re.search("building the module failed|could not compile", done.stdout) or " passed, " not in done.stdout:
        raise say.LabError(f"planted fault {fault.name} cannot be judged:\n{done.stdout[-3000:]}")
    return failures(done.stdout)


def run(only):
    """Plants each that is asked for; 0 when all were noticed."""
    picks = [p.strip() for p in only.split(",") if p.strip()]
    chosen = [f for f in faults() if not picks or f.name in picks]
    if not chosen:
        raise say.LabError(f"no planted fault is called {only}")
    missed = []
    for fault in chosen:
        began = time.monotonic()
        who = noticed(fault)
        missed += [] if who else [fault.name]
        say.verdict("passed" if who else "failed", fault.name, time.monotonic() - began,
                    f"noticed by {', '.join(who[:4])}" if who else f"not noticed by {fault.notice}: {fault.about}")
    say.line(f"\n{len(chosen) - len(missed)} of {len(chosen)} faults were noticed")
    return 1 if missed else 0
