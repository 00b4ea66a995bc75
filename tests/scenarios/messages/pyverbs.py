# SPDX-License-Identifier: GPL-2.0
"""rdma-core's own tests through pyverbs: every test of every file but those of one maker's cards. What is not served must
skip itself, and is in a list here with the reason: a test that skips and is not in it fails, and so does one that is in it
and does not skip."""

import fnmatch
import os
import re
from contextlib import nullcontext
from dataclasses import dataclass, field

from tests.guest.fabric import loop, setting
from tests.guest.scenario import SHORT, Failed, add, command, last_line, require
from tests.judges import leaks
from tests.scenarios.link.link_life import loaded, unload

HUGE_PAGES = "/proc/sys/vm/nr_hugepages"
HAS_HUGE_PAGES = os.path.exists(HUGE_PAGES)
# Files of 56.1 that have a test of what is served; each is a scenario. The others are in the rounds.
FILES = ("test_addr", "test_atomic", "test_cq", "test_cq_events", "test_cqex", "test_device", "test_fork", "test_mr",
         "test_pd", "test_qp", "test_qpex", "test_rdmacm", "test_relaxed_ordering", "test_parent_domain", "test_shared_pd",
         "test_srq")

# Tests that must skip themselves, by what they need that is not there.
UNSERVED = (
    ("XRC queue pairs", ("test_atomic.*.test_xrc_*", "test_cqex.*.test_xrc_*", "test_qpex.*.test_qp_ex_xrc_*",
                         "test_relaxed_ordering.*.test_ro_xrc_*")),
    ("on-demand paging", ("test_odp.*",)),
    ("device memory", ("test_device.DMTest.*", "test_device.SharedDMTest.*", "test_mr.DeviceMemory*")),
    ("memory of a graphics card", ("test_mr.DmaBuf*", "test_cuda_dmabuf.*")),
    ("raw packets and flows, which a port that is a netdev has already",
     ("test_qp.*.test_create_raw_qp_*attr*", "test_qp.*.test_query_raw_qp", "test_flow.*")),
    ("receive-side scaling of raw packets", ("test_rss_traffic.*",)),
    ("tag matching", ("test_tag_matching.*",)),
    *(() if HAS_HUGE_PAGES else (("huge pages, which this kernel has not", ("test_parent_domain.*.test_huge_page_traffic",)),)),
)

# Tests of 56.1 that need RC, UC, UD, shared queues, windows, rdma_cm and what else there is.
GENERIC = 115 if HAS_HUGE_PAGES else 114
# One takes somewhat longer than all the files above. With ten of them a leak shows by its slope.
ROUNDS = int(os.environ.get("FERROCE_ROUNDS", "2"))


@dataclass(frozen=True)
class Release:
    """The tests of a release of rdma-core, and what they are run with."""

    home: str
    python: str = "python3"
    env: dict = field(default_factory=dict)
    unserved: tuple = UNSERVED

    def files(self):
        """Names of the files of tests, without those of one maker's cards."""
        return sorted(name[:-3] for name in os.listdir(self.home) if re.fullmatch(r"test_(?!mlx5|efa)\w+\.py", name))

    def tests_of(self, file):
        """Every test of a file as `file.Class.test`, from its source."""
        found, cls = [], None
        with open(f"{self.home}/{file}.py", encoding="utf-8") as f:
            for line in f:
                match = re.match(r"class (\w+)", line)
                if match:
                    cls = match.group(1)
                match = re.match(r"    def (test_\w+)\(", line)
                if match:
                    found.append(f"{file}.{cls}.{match.group(1)}")
        return found

    def run(self, files):
        """Runs these files in one process; the program's end, and the verdict of each test."""
        # Without huge pages some tests have nothing to do; not every kernel has them.
        huge = setting(HUGE_PAGES, "8") if HAS_HUGE_PAGES else nullcontext()
        with loop() as end, huge:
            argv = [self.python, "run_tests.py", "--dev", end.dev, "--gid", str(end.gid()), "--port", "1", "-v"]
            for file in files:
                argv += ["-k", f"*.{file}.*"]
            env = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "PYTHONFAULTHANDLER": "1", **self.env}
            done = command(argv, ok=None, timeout=200, cwd=self.home, env=env)
        return done, results(done.stdout)

    def judge(self, files, report=None):
        """Runs files, and compares what each test has come to with what it must. Returns how many were ok."""
        done, found = self.run(files)
        unserved = listed(self.unserved)
        good, bad, skipped = 0, [], {}
        tests = [test for file in files for test in self.tests_of(file)]
        bad += [f"{test}: not in the source" for test in found if test not in tests]
        for test in tests:
            word = found.get(test, "no verdict")
            if reason := unserved(test):
                if not word.startswith("skipped"):
                    bad.append(f"{test}: {word}, though it is listed as in need of {reason}")
                skipped[reason] = skipped.get(reason, 0) + 1
            elif word == "ok":
                good += 1
            else:
                bad.append(f"{test}: {word}")
        if report:
            for reason, count in skipped.items():
                report.skip(f"{count} tests", f"need {reason}")
            report.note(f"{good} ok of {len(tests)}")
        if bad:
            raise Failed("; ".join(bad))
        require(done.returncode == 0,
                f"the tests were as they should be, but the program ended with {done.returncode}: {last_line(done.stdout)}")
        return good

    def stale(self):
        tests = [test for file in self.files() for test in self.tests_of(file)]
        return [pattern for _, patterns in self.unserved for pattern in patterns
                if not fnmatch.filter(tests, pattern)]


GUEST = Release("/srv/pyverbs/tests")


def listed(lists):
    """The reason that a list has for a test, or None."""
    def reason_of(test):
        for reason, patterns in lists:
            if any(fnmatch.fnmatchcase(test, pattern) for pattern in patterns):
                return reason
        return None

    return reason_of


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


# The lists are of what ferroce serves.
RXE = "rdma_rxe serves less, and is compared with no list"


def run_file(report, file):
    require(GUEST.judge([file], report), "no test was ok")


for _file in FILES:
    add(f"pyverbs.{_file}", 240, f"rdma-core's {_file}.py", run_file, _file, rxe=RXE)


def rounds(report):
    """All files again and again; what is left of it is measured with the module unloaded."""
    require(not (stale := GUEST.stale()), f"these lines of the lists mean no test: {stale}")
    count = 1 if SHORT else max(2, ROUNDS)
    samples = []

    def sample(number):
        if loaded():
            unload()
        samples.append((number, leaks.Stock()))

    # The first rounds fill caches that stay; the others are measured in three parts.
    marks = {1 + (count - 1) * part // 3 for part in range(3)} if count > 1 else {0}
    for number in range(count):
        if number in marks:
            sample(number)
        good = GUEST.judge(GUEST.files(), None if number else report)
        require(good >= GENERIC, f"only {good} tests were ok")
    sample(count)
    for line in leaks.judge(samples, slopes=count >= 10):
        report.note(line)


add("pyverbs.rounds", 60 + 80 * ROUNDS, f"all of rdma-core's tests, {ROUNDS} times in one boot, with nothing left over", rounds,
    rxe=RXE)
