# SPDX-License-Identifier: GPL-2.0
"""What a guest scenario is: a named function with a time limit, and the ways it can end."""

import importlib
import os
import random
import subprocess
import time
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Callable

from tests.guest.netlink import in_netns


class Failed(Exception):
    """The thing under test did something wrong."""


class Skipped(Exception):
    """The scenario cannot say anything here; the text says why."""


@dataclass(frozen=True)
class Scenario:
    """One line of the report. `run` takes the `Report` it fills in. What the kernel must say, where a scenario makes it
    complain on purpose, is in `provokes`. `leaves` is how the name of the file ends that it leaves to be judged outside:
    see JUDGES in tests/lab/suite.py. `machine` names another one than the usual: see MACHINES in tests/lab/boot.py, or
    CHECKS. `rxe` is why it is skipped where rdma_rxe is the driver under test."""

    name: str
    limit: int
    about: str
    run: Callable
    provokes: str = ""
    leaves: str = ""
    machine: str = ""
    rxe: str = ""


REGISTRY: dict[str, Scenario] = {}
# The machine of those that need a kernel with all checks.
CHECKS = "checks"


# The limits in the scenarios are for an idle machine of two cores; one that does other things as well needs longer,
# and waiting longer costs something only where something is wrong.
# A kernel full of checks is slower still: what starts it says by how much.
PATIENCE = int(os.environ.get("FERROCE_PATIENCE", "4"))
# Fewer rounds of the same, for that kernel.
SHORT = os.environ.get("FERROCE_SHORT") == "1"


# What random scenarios begin with: each run with another number, and every guest of a run, and the programs, with the same.
SEED = int(os.environ.setdefault("FERROCE_SEED", str(random.randrange(1 << 31))))


@contextmanager
def seeded():
    """For what is drawn from SEED: a failure says how to see it again."""
    say(f"FERROCE_SEED={SEED}")
    try:
        yield
    except Failed as e:
        raise Failed(f"{e}; again with FERROCE_SEED={SEED}") from e


def shortened(full, short):
    """How much of the same to do, or which values to try: `short` on a kernel full of checks, where what counts is that
    each path is walked. What cannot be made short so is in LEFT_OUT of tests/lab/um.py."""
    return short if SHORT else full


def add(name, limit, about, run, *args, provokes="", leaves="", machine="", rxe=""):
    """Registers a scenario under a name that is unique in the suite: `run` takes the report, and `args` behind it."""
    limit *= PATIENCE
    if name in REGISTRY:
        raise ValueError(f"two scenarios are called {name}")
    REGISTRY[name] = Scenario(name, limit, about, lambda report: run(report, *args), provokes, leaves, machine, rxe)


def add_again(name, machine):
    """Registers a scenario once more, to be run on another machine."""
    REGISTRY[f"{machine}.{name}"] = replace(REGISTRY[name], name=f"{machine}.{name}", machine=machine)


def scenario(name, limit=60, machine="", rxe=""):
    """Registers the decorated function; the first line of its docstring is what it shows."""

    def wrap(run):
        add(name, limit, (run.__doc__ or "").strip().splitlines()[0], run, machine=machine, rxe=rxe)
        return run

    return wrap


class Report:
    """What a scenario hands back beside its verdict: skips with reasons, notes."""

    def __init__(self):
        self.skips = []
        self.notes = []
        self.allows = []

    def allow(self, *names):
        """What the kernel says that is no complaint here, for the scenario has caused it: names in `kernel.REPORTS`."""
        self.allows += names

    def cell(self, **values):
        """One row of figures."""
        self.note(", ".join(f"{name} {value}" for name, value in values.items()))

    def skip(self, what, why):
        self.skips.append([what, why])

    def note(self, text):
        self.notes.append(text)

    def data(self):
        return {"skips": self.skips, "notes": self.notes, "allows": self.allows}


# Those that register scenarios.
MODULES = (
    "link.link_life", "messages.pingpong", "verbs.verbs", "verbs.stock", "verbs.limits", "verbs.crowds", "verbs.groups", "verbs.errors", "verbs.observe", "verbs.counters",
    "paths.paths", "paths.cpus", "paths.tunnels", "paths.bottleneck", "messages.examples", "messages.perftest", "messages.pyverbs", "messages.newer",
    "interop.interop", "cm.cm",
    "cm.applications", "cm.namespaces", "teardown.in_flight", "teardown.teardown", "ulp.nvme", "ulp.nfs", "ulp.scsi",
    "packets.wire", "losses.fault", "kernel.kernel", "losses.losses", "packets.batches", "paths.isolation", "packets.headers",
    "fairness.fairness", "hostile.hostile", "product.command", "product.doctor", "product.packages", "product.trace",
    "product.events", "product.causes", "walks.walks", "debug.debug", "suite.machines")


def load_all():
    """Imports every module that registers scenarios, in the order in which they are to run."""
    # Late imports: these modules import this one.
    for name in MODULES:
        importlib.import_module(f"tests.scenarios.{name}")
    return REGISTRY


def say(text):
    print(f"[{time.monotonic():9.2f}] {text}", flush=True)


def command(argv, timeout=60, ok=(0,), netns=None, **kw):
    """Runs a program to its end and returns its whole output; another exit status is a failure. In a network namespace
    it has that one's netdevs and sockets, and the /sys of the first one."""
    say_command(argv, netns)
    try:
        done = in_netns(netns, lambda: subprocess.run(
            argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            timeout=timeout * PATIENCE, text=True, errors="replace", **kw))
    except subprocess.TimeoutExpired as late:
        out = late.stdout or b""
        print(out.decode(errors="replace") if isinstance(out, bytes) else out, flush=True)
        raise Failed(f"{os.path.basename(argv[0])} did not end in {timeout * PATIENCE} s") from None
    print(done.stdout, end="", flush=True)
    if ok is not None and done.returncode not in ok:
        raise Failed(f"{' '.join(map(str, argv))}: exit {done.returncode}: {last_line(done.stdout)}")
    return done


def say_command(argv, netns):
    say(f"+ {netns + ': ' if netns else ''}{' '.join(map(str, argv))}")


def last_line(text):
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "(no output)"


def require(truth, text):
    if not truth:
        raise Failed(text)
