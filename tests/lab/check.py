# SPDX-License-Identifier: GPL-2.0
"""`make check`: host tests first, for they are quick, then the guest's scenarios; one line each and a sum."""

import json

from tests.lab import boot, build, config, host, say, suite
from tests.lab.suite import Result
from tests.vm.scenario import load_all
from tests.vm.selftest import PREFIX

# Seconds for all guest scenarios together; the whole of CI has an hour.
GUEST_LIMIT = 45 * 60


def names():
    """Every test by name, in running order."""
    return [t.name for t in host.tests()] + list(load_all())


def wanted(name, only):
    """Whether a name is asked for: exactly, or by its beginning."""
    picks = [p.strip() for p in only.split(",") if p.strip()]
    if not picks:
        return not name.startswith(PREFIX)
    return any(name == p or name.startswith(p if p.endswith(".") else p + ".") or
                            (p.endswith("*") and name.startswith(p[:-1])) for p in picks)


def list_all():
    """Lists the tests with a line about each."""
    for test in host.tests():
        say.line(f"{test.name:34} {test.about}")
    for scenario in load_all().values():
        say.line(f"{scenario.name:34} {scenario.about}")


def show(result):
    """One line for a result, and the reasons of what it left out."""
    say.verdict(result.status, result.name, result.seconds, result.detail)


def run(root, only, with_module):
    """Runs what is asked for; 0 when nothing failed."""
    picked = [n for n in names() if wanted(n, only)]
    if not picked:
        raise say.LabError(f"no test is called {only}; make check ONLY=name takes a name or its beginning, and "
                           "python3 -m tests.lab check --list lists them")
    results = []
    for test in host.tests():
        if test.name in picked:
            result = host.run(test, root)
            results.append(result)
            show(result)
    scenarios = [n for n in load_all() if n in picked]
    if scenarios:
        try:
            lines = build.guest_setup(root, with_module)
            kvm = boot.kvm_works(root)
            results += suite.run(root, scenarios, lines, kvm, show, GUEST_LIMIT)
        except say.LabError as e:
            for name in scenarios:
                results.append(Result(name, "failed", str(e)))
            say.line(f"ferroce: {e}")
    return finish(results)


def finish(results):
    """The reasons of what was left out, the sum, the exit status; everything goes to build/check.json too."""
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
    failed = [r for r in results if r.status == "failed"]
    if failed:
        say.line("\nfailed:")
        details = {}
        for r in failed:
            details.setdefault(r.detail, []).append(r.name)
        # One cause may fail a hundred tests: it is said once, at the end, where it is read.
        for detail, who in details.items():
            say.line(f"  {', '.join(who[:6])}{f' and {len(who) - 6} more' if len(who) > 6 else ''}: {detail}")
    config.BUILD.mkdir(exist_ok=True)
    (config.BUILD / "check.json").write_text(json.dumps([r.__dict__ for r in results], indent=1), encoding="utf-8")
    passed = len(results) - len(skipped) - len(failed)
    say.line(f"\n{passed} passed, {len(failed)} failed, {len(skipped)} skipped")
    return 1 if failed else 0
