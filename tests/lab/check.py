# SPDX-License-Identifier: GPL-2.0
"""`make check`: the tests on the host, then the guest's scenarios; one line each and a sum."""

import fnmatch
import json
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial

from tests.guest import flavour
from tests.guest.scenario import SEED, load_all
from tests.judges.kernel import complaints
from tests.lab import aarch64, boot, build, checks, config, fresh, host, made, say, skips, suite, um
from tests.lab.suite import Result

# Seconds for everything, with the set-up: less than CI gives (see .ci/run), so that there is always a sum. The aim is
# less than an hour.
LIMIT = 80 * 60


def names():
    """Every test by name, in running order."""
    return [t.name for t in host.tests()] + list(load_all())


# What a whole run leaves to `make check-long`, for it is slow and seldom finds anything, and why: patterns of names.
LONG = (
    ("host.deb", "packages.* install what it builds a second time"),
    ("host.dkms", "it builds the module twice, as DKMS does; what becomes of a kernel is in host.lab, too"),
    *((f"stock.{group}", "each of these cases has a scenario of its own in the fast guest, with all checks")
      for group in ("verbs", "memory", "queues", "errors")),
    *((f"once.{name}.loop-local", f"the local path sends no packets: once.{name}.veth does")
      for name in ("streams", "few-receives")),
    ("cpus.hotplug.loop-local", "cpus.hotplug.veth has the same workers and timers, and batches for other CPUs besides"),
    ("pingpong.loop-wire", "pingpong.veth-* send packets, too, and to another device"),
    ("newer.pyverbs", "pyverbs.rounds runs nearly all of these, of the guest's own release"),
    ("eight-processors.*", "eight emulated processors share those of the host"),
    ("aarch64.*", "it needs another compiler, kernel and emulator"),
)
# What runs only by its name, and why.
BY_NAME = (
    ("host.dkms-source", "it fetches the source of the kernel, and prepares it in some minutes"),
    ("pyverbs.test_*", "pyverbs.rounds runs them all"),
    ("fresh-sid.packages.*", "packages.* show it with the release that the packages are built for"),
    ("debug.scarce.receiving", "the guest's first process may be refused memory, too, which ends the guest"),
)
# Both are left out of a whole run. Asked for they run.
ON_REQUEST = LONG + BY_NAME


def on_request(name):
    """Why a test runs only when it is asked for, or None."""
    return next((why for pattern, why in ON_REQUEST if fnmatch.fnmatchcase(name, pattern)), None)


def picks(only):
    """What is asked for, as it was written: names, their beginnings, patterns."""
    return [p.strip() for p in only.split(",") if p.strip()]


def means(pick, name):
    """Whether this means a test: by its name, by what stands in front of one of its points, or as a pattern of either."""
    return fnmatch.fnmatchcase(name, pick) or fnmatch.fnmatchcase(name, pick.removesuffix(".") + ".*")


def wanted(name, only):
    """Whether a name is asked for, or belongs to a whole run of this kernel where nothing is."""
    if not picks(only):
        return True
    return any(means(pick, name) for pick in picks(only))


def meaningless(only, known):
    return [pick for pick in picks(only) if not any(means(pick, name) for name in known)]


def pick_tests(only, known):
    """The tests that are asked for, in running order. A misspelt name is an error: the rest would be taken for all."""
    if bad := meaningless(only, known):
        raise say.LabError(f"no test is called {', '.join(bad)}; make check ONLY=name takes a name, its beginning up to a "
                           "point, or a pattern with *, and python3 -m tests.lab check --list lists them")
    return [name for name in known if wanted(name, only) and (picks(only) or not on_request(name))]


def list_all(root):
    """Lists the tests with a line about each. The C programs know their own cases."""
    build.c_programs(root)
    for name, about in [(t.name, t.about) for t in (*host.tests(), *load_all().values())]:
        why = on_request(name)
        where = "in check-long" if any(fnmatch.fnmatchcase(name, pattern) for pattern, _ in LONG) else "by name only"
        say.line(f"{name:34} {about}" + (f" ({where}: {why})" if why else ""))


class Sum:
    """What is told at the end, however it comes: of every test that was picked, also of those that did not run."""

    def __init__(self, picked):
        self.picked = picked
        self.results = []
        # The emulator's faults for which guests were booted again.
        self.again = []
        self.status = 1
        self.lock = threading.Lock()

    def add(self, result):
        with self.lock:
            self.results.append(result)
            say.verdict(result.status, result.name, result.seconds, result.detail)

    def __enter__(self):
        say.step(f"guests draw from FERROCE_SEED={SEED}")
        return self

    def __exit__(self, kind, error, _trace):
        have = {r.name for r in self.results}
        if isinstance(error, say.LabError):
            why = str(error)
        else:
            why = f"not run: the run was ended by {kind.__name__} {error}" if kind else "not run"
        if flavour.current().is_ferroce:
            self.results = [skips.judge(one) for one in self.results]
        self.results += [Result(name, "failed", why) for name in self.picked if name not in have]
        self.status = finish(self.results, self.again)
        return isinstance(error, say.LabError)


@dataclass
class Plan:
    """What is to run: tests of the host, scenarios by machine or kind of fast guest; and results for what cannot."""

    host: list
    guests: dict
    left_out: list

    def everything(self):
        return [test.name for test in self.host] + [n for guest in self.guests.values() for n in guest]


def choose(only, guest=""):
    """Plans what is asked for, in the guest that is asked for: the tests of the host belong to none. Without one a whole
    run has each scenario in its tier; those that are named run on their machines, which for most is the one with the
    stock kernel."""
    registry, whole = load_all(), not picks(only) and not guest
    picked = pick_tests(only, list(registry) if guest else names())
    where, left_out = {}, []
    for name in picked:
        if name in registry:
            place = um.place(registry[name], guest, whole)
            if why := um.left_out(name, place, guest):
                left_out.append(Result(name, "skipped", f"left out: {why}"))
            else:
                where.setdefault(place, []).append(name)
    guests = {place: checks.in_order(where[place]) if place == um.DEBUG.name else where[place]
              for place in (*um.KINDS, *boot.MACHINES) if place in where}
    return Plan([test for test in host.tests() if test.name in picked], guests, left_out)


def behind(steps, work):
    """Does something whose programs come behind others by so many steps of niceness: what has the longest way does not wait
    for them."""
    thread = threading.get_native_id()
    before = os.getpriority(os.PRIO_PROCESS, thread)
    os.setpriority(os.PRIO_PROCESS, thread, before + steps)
    try:
        work()
    finally:
        os.setpriority(os.PRIO_PROCESS, thread, before)


def run(root, only, with_module, guest=""):
    """Runs what is asked for; 0 when nothing failed."""
    # The scenarios are made from the list of cases.
    build.c_programs(root)
    plan = choose(only, guest)
    if not plan.everything():
        raise say.LabError(f"nothing of {only} runs here: {plan.left_out[0].detail}")
    with Sum(plan.everything()) as total:
        total.results += plan.left_out
        # Before anything runs beside anything: what is built is built in one place. Of each module most is one crate, which
        # takes one processor; so does what the guests run.
        fast = {name: made.make(root, kind) for name, kind in um.KINDS.items() if name in plan.guests}
        machines = {name: boot.MACHINES[name] for name in plan.guests if name not in fast}
        is_usual = any(m.is_usual for m in machines.values())
        # But for the module with all checks, if its guest is the second one: that is built while the first one runs.
        later = fast.get(um.DEBUG.name) if len(fast) > 1 else None
        works = [partial(um.modules, kernel) for kernel in fast.values() if kernel is not later]
        if plan.guests:
            works.append(lambda: [build.programs(root), with_module and build.provider(root)])
        if is_usual and with_module:
            works.append(partial(build.module, root))
        with ThreadPoolExecutor() as pool:
            for built in [pool.submit(work) for work in works]:
                built.result()
        fast_lines = {name: um.setup_lines(kernel) for name, kernel in fast.items() if kernel is not later}
        usual = build.guest_setup(root, with_module) if is_usual else []
        kvm = boot.kvm_works(root)

        ended = threading.Event()

        def left():
            return LIMIT - (time.monotonic() - say.START)

        def on(name):
            machine, kind = machines[name], partial(boot.Guest, machine=machines[name])
            if machine.suite:
                stand = fresh.stand(root, machine.suite)
            elif machine.aarch64:
                stand, kind = aarch64.stand(root), aarch64.Guest
            else:
                stand = nullcontext((root, usual))
            with stand as (booted, lines):
                suite.run(booted, plan.guests[name], lines, kvm and not machine.aarch64, total.add, left(), total.again,
                          ended, guest_class=kind)

        def on_the_host():
            for test in plan.host:
                if ended.is_set():
                    return
                total.add(host.run(test, root))

        def on_machines():
            for name in machines:
                if not ended.is_set():
                    on(name)

        def in_fast_guests(pool):
            meanwhile = pool.submit(um.modules, later) if later else None
            for name, kernel in fast.items():
                if kernel is later:
                    meanwhile.result()
                    fast_lines[name] = um.setup_lines(kernel)
                um.run(kernel, plan.guests[name], fast_lines[name], total.add, left(), total.again, ended)

        # The fast guest, of which there is one at a time, has the longest way: what runs beside it comes behind it.
        beside = [partial(behind, 10, on_the_host), partial(behind, 5, on_machines)]
        with ThreadPoolExecutor() as pool:
            try:
                if picks(only) or boot.memory() < 3 * boot.MEMORY:
                    for work in beside:
                        work()
                    beside = []
                others = [pool.submit(work) for work in beside]
                in_fast_guests(pool)
                for other in others:
                    other.result()
            except BaseException:
                ended.set()
                raise
    return total.status


# Of how many failures the sum repeats what they have printed, and how many lines, of each and of all: of a CI's log often the
# last thirty lines are all that is kept.
SHOWN, LINES, IN_ALL = 5, 12, 24


def words(result, most):
    """Why a test failed: the kernel's lines from its first complaint on, or those that it printed last."""
    bad = next((n for n, line in enumerate(result.log) if complaints([line])), None)
    return result.printed[-most:] if bad is None else result.log[bad:bad + most]


def show(failed):
    """Why these failed. One cause may fail a hundred tests: it is said once. Those with words of their own come last, where
    they are read."""
    details = {}
    for r in failed:
        details.setdefault(r.detail, []).append(r)
    told = [group for group in details.values() if words(group[0], LINES)][:SHOWN]
    for group in sorted(details.values(), key=lambda group: group in told):
        who = [r.name for r in group]
        say.line(f"  {', '.join(who[:6])}{f' and {len(who) - 6} more' if len(who) > 6 else ''}: {group[0].detail}")
        if group in told:
            for line in words(group[0], min(LINES, IN_ALL // len(told))):
                say.line(f"    | {line}")


def finish(results, again):
    """What was left out, the sum, the exit status; everything goes to build/check.json too."""
    reasons = {}
    for r in results:
        for what, why in r.skips:
            reasons.setdefault(why, []).append(what)
    if reasons:
        say.line("\nleft out within tests that ran:")
        for why, what in sorted(reasons.items()):
            say.line(f"  {len(what):3} {why}: {', '.join(what[:6])}{' ...' if len(what) > 6 else ''}")
    skipped = [r for r in results if r.status == "skipped"]
    if skipped:
        say.line("\nskipped:")
        for r in skipped:
            say.line(f"  {r.name}: {r.detail}")
    if again:
        say.line(f"\nbooted again {len(again)} times, each for a fault of the emulator's:")
        for one in again:
            say.line(f"  during {one['during']}: {one['report']} ({one['console']})")
    failed = [r for r in results if r.status == "failed"]
    if failed:
        say.line("\nfailed:")
        show(failed)
    config.BUILD.mkdir(exist_ok=True)
    text = json.dumps({"results": [r.__dict__ for r in results], "booted_again": again}, indent=1)
    (config.BUILD / "check.json").write_text(text, encoding="utf-8")
    passed = len(results) - len(skipped) - len(failed)
    say.line(f"\n{passed} passed, {len(failed)} failed, {len(skipped)} skipped"
             + (f"; booted again {len(again)} times" if again else ""))
    return 1 if failed else 0
