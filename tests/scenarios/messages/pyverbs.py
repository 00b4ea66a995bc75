# SPDX-License-Identifier: GPL-2.0
"""rdma-core's own tests through pyverbs: every file of 56.1 that needs no more than what is there."""

import fnmatch
import os
import re

from tests.guest.fabric import loop
from tests.guest.scenario import Failed, add, command, last_line, require

HOME = "/srv/pyverbs/tests"
FILES = ("test_addr", "test_atomic", "test_cq", "test_cq_events", "test_cqex", "test_device", "test_fork", "test_mr",
         "test_pd", "test_qp", "test_qpex", "test_relaxed_ordering", "test_parent_domain", "test_srq")

# Tests that need what is not part of the work yet, each group with its reason. Everything else in FILES runs; a test
# that finds a capability missing may skip itself, and its reason is reported.
LEFT_OUT = (
    ("test_qpex.*.test_qp_ex_xrc_*", "XRC queue pairs"),
    ("test_atomic.AtomicTest.test_xrc_*", "XRC queue pairs"),
    ("test_device.DMTest.*", "device memory"),
    ("test_device.SharedDMTest.*", "device memory"),
    ("test_mr.DeviceMemory*", "device memory"),
    ("test_mr.DmaBuf*", "DMA buffers of a graphics card"),
    ("test_qp.QPTest.test_*_raw_qp*", "raw packet queue pairs"),
)


def tests_of(file):
    """Every test of a file as `file.Class.test`, from its source."""
    found, cls = [], None
    with open(f"{HOME}/{file}.py", encoding="utf-8") as f:
        for line in f:
            match = re.match(r"class (\w+)", line)
            if match:
                cls = match.group(1)
            match = re.match(r"    def (test_\w+)\(", line)
            if match:
                found.append(f"{file}.{cls}.{match.group(1)}")
    return found


def why_left_out(test):
    """The reason a test is left out, or None."""
    for pattern, reason in LEFT_OUT:
        if fnmatch.fnmatchcase(test, pattern):
            return reason
    return None


def results(text):
    """Verdicts in unittest's verbose output: test -> word, with the reason of a skip behind it."""
    found, current = {}, None
    for line in text.splitlines():
        match = re.match(r"test_\w+ \((?:tests\.)?([\w.]+)\)", line)
        if match:
            current = match.group(1)
        match = re.search(r"(?:\.\.\. |^)(ok|FAIL|ERROR|skipped .*)$", line)
        if match and current:
            found[current] = match.group(1)
            current = None
    return found


def run_file(file):
    """A scenario: the selected tests of one file."""
    def run(report):
        chosen = []
        for test in tests_of(file):
            reason = why_left_out(test)
            if reason:
                report.skip(test, f"left out, needs {reason}")
            else:
                chosen.append(test)
        require(chosen, f"{file} has no test left")
        with loop() as end:
            argv = ["python3", "run_tests.py", "--dev", end.dev, "--gid", str(end.gid()), "--port", "1", "-v"]
            for test in chosen:
                argv += ["-k", f"*.{test}"]
            done = command(argv, ok=None, timeout=200, cwd=HOME,
                           env=dict(os.environ, PYTHONDONTWRITEBYTECODE="1", PYTHONFAULTHANDLER="1"))
        found = results(done.stdout)
        good = 0
        bad = []
        for test in chosen:
            word = found.get(test, "no verdict")
            if word == "ok":
                good += 1
            elif word.startswith("skipped"):
                report.skip(test, word.removeprefix("skipped").strip(" '\""))
            else:
                bad.append(f"{test}: {word}")
        report.note(f"{good} of {len(chosen)} ok")
        if bad:
            raise Failed("; ".join(bad))
        require(done.returncode == 0, f"the tests were ok, but the program ended with {done.returncode}: "
                                      f"{last_line(done.stdout)}")
        require(good, "every test skipped itself: " + "; ".join(f"{t}: {w}" for t, w in found.items()))

    return run


for _file in FILES:
    add(f"pyverbs.{_file}", 240, f"rdma-core's {_file}.py", run_file(_file))
