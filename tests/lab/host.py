# SPDX-License-Identifier: GPL-2.0
"""The tests that are no scenarios: the crates, lint, the house rules, the module's build, the laboratory itself."""

import os
import re
import shlex
import shutil
import time
import tomllib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Callable

from command.trace import calls, elf
from tests.lab import (aarch64, build, config, deb, dkms, documents, fuzz, product, reboot, rules, say, setup,
                       translations)
from tests.lab.locks import TESTING, lock
from tests.lab.say import Bad, LabError
from tests.lab.shell import captured, chroot_command
from tests.lab.suite import PRINTED, Result

CHECKOUT = config.CHECKOUT


@dataclass(frozen=True)
class Test:
    name: str
    about: str
    run: Callable
    # Which of the two that run beside each other in `make check-fast` has it: cargo's own lock lets one build at a time.
    lane: str = ""


def in_root(root, command, env=None, limit=900):
    """Output of a command in the root; failing means a failed test."""
    done = captured(chroot_command(root.path.resolve(), command, cwd="/ferroce", env=env), limit)
    if done.returncode:
        raise Bad(first_error(done.stdout) or f"exit {done.returncode}", done.stdout)
    return done.stdout


def first_error(text):
    """The line of a compiler's or test program's output that says most."""
    panic = re.search(r"^thread '(.+?)'.* panicked at \S+:\n(.+)$", text, re.M)
    if panic:
        return f"{panic.group(1)}: {panic.group(2)}"
    for pattern in (r"^(?:error|warning)(?:\[\w+\])?: .*$", r"^test .* \.\.\. FAILED$", r"^Diff in .*$", r"^FAIL.*$"):
        found = re.search(pattern, text, re.M)
        if found:
            return found.group(0)
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else ""


def packages():
    """Package names of the workspace's members that have tests: all but the targets of libFuzzer."""
    with open(CHECKOUT / "Cargo.toml", "rb") as f:
        members = tomllib.load(f)["workspace"]["members"]
    found = []
    for member in members:
        for path in sorted(CHECKOUT.glob(f"{member}/Cargo.toml")):
            with open(path, "rb") as f:
                found.append(tomllib.load(f)["package"]["name"])
    return [name for name in found if name != fuzz.PACKAGE]


def cargo_test(package, root, env=None):
    """All tests of one crate. A fresh number goes with each run, for those that do something else each time."""
    fresh = os.environ.get("FERROCE_FRESH") or str(fuzz.fresh_seed())
    if package in ("ferroce-host-tests", "ferroce-hostile"):
        say.step(f"FERROCE_FRESH={fresh} makes the same random runs again")
    out = in_root(root, ["cargo", "test", "-q", "--locked", "--offline", "-p", package],
                  env={"FERROCE_FRESH": fresh, **(env or {})}, limit=1500)
    ran = sum(int(n) for n in re.findall(r"(\d+) passed", out))
    ignored = sum(int(n) for n in re.findall(r"(\d+) ignored", out))
    if not ran:
        raise Bad("the crate has no test", out)
    return f"{ran} tests" + (f", {ignored} ignored" if ignored else "")


def provider_test(root):
    """The provider's tests, with the sources of rdma-core that the archive had; says where it had others."""
    notes, missing = setup.rdma_core_notes()
    env = {"FERROCE_ALLOW_MISSING_SOURCES": "1"} if missing else None
    return "; ".join([cargo_test("ferroce-provider", root, env), *notes])


def fuzzing(target, runs, root):
    """A fixed number of runs of libFuzzer, with a fresh seed."""
    seed = int(os.environ.get("FERROCE_FRESH") or fuzz.fresh_seed())
    say.step(f"FERROCE_FRESH={seed} makes the same random runs again")
    return fuzz.check(partial(in_root, root, limit=1500), target, seed, runs)


def clippy(root):
    """Clippy of the host crates, warnings denied."""
    in_root(root, ["cargo", "clippy", "-q", "--workspace", "--all-targets", "--locked", "--offline", "--", "-D",
                   "warnings"])


def rust_files():
    return [str(p.relative_to(CHECKOUT)) for p in rules.sources() if p.suffix == ".rs"]


def rustfmt(root):
    files = rust_files()
    # Each file is named, so that none is missed for want of a parent that declares it.
    in_root(root, ["rustfmt", "--check", "--edition", "2021", "--config-path", "/ferroce/.rustfmt.toml", *files])
    return f"{len(files)} files"


def house_rules(_root):
    """See tests/lab/rules.py."""
    # Late: it imports this module.
    from tests.lab import check
    known = check.names()
    found = rules.violations(lambda only: check.meaningless(only, known))
    if found:
        raise Bad(f"{len(found)} violations, the first: {found[0]}", "\n".join(found))


def references(root):
    """The symbols that documents name, in this tree, in the kernel's source and in rdma-core's."""
    where, found, total = documents.trees(root), [], {}
    for path in rules.sources():
        if path.suffix == ".md":
            bad, counted = documents.check_references(str(path.relative_to(CHECKOUT)), path.read_text(encoding="utf-8"), where)
            found += bad
            total = {tree: total.get(tree, 0) + n for tree, n in counted.items()}
    if found:
        raise Bad(f"{len(found)} references lead nowhere, the first: {found[0]}", "\n".join(found))
    notes = [f"{n} of {tree}" if where[tree] else f"those of {tree} skipped: the sources they are of are not here"
             for tree, n in total.items()]
    return "references: " + ", ".join(notes)


def translated(_root):
    """Translated documents, beside what they are translated from."""
    texts = translations.read()
    found = translations.check(texts)
    if found:
        raise Bad(f"{len(found)} differences, the first: {found[0]}", "\n".join(found))
    return f"{len(translations.originals(texts))} documents"


def unit_tests(root):
    out = in_root(root, ["python3", "-m", "unittest", "discover", "-s", "tests/lab", "-t", ".", "-p", "test_*.py"])
    return first_match(r"Ran (\d+) tests", out)


def pages(root):
    """What `ferroce trace` draws, in a browser that has no network at all."""
    out = in_root(root, ["unshare", "--net", "python3", "-m", "unittest", "-v", "tests.lab.pages"],
                  env={"FERROCE_BROWSER": f"/cache/{config.browser().name}"})
    return first_match(r"Ran (\d+) tests", out)


def first_match(pattern, text):
    """Group 1 of the first match, or nothing."""
    found = re.search(pattern, text)
    return found.group(1) + " tests" if found else ""


NOP = 0x90
# Bytes of the stack that one function may take: what the kernel warns about in C.
FRAME = 2048


def large_frames(assembly):
    """What takes more than that: bytes and function, the largest first."""
    found, function = [], ""
    for line in assembly.splitlines():
        if begins := re.match(r"[0-9a-f]+ <(.*)>:$", line):
            function = begins[1]
        # Eight digits at most: more are a negative number.
        elif (frame := re.search(r"\bsub +\$(0x[0-9a-f]{1,8}),%rsp", line)) and int(frame[1], 16) > FRAME:
            found.append((int(frame[1], 16), function))
    return sorted(found, reverse=True)


def module_build(root):
    """The module builds for the kernel of the root, and says of itself what it should."""
    path = build.module(root)
    info = captured(["modinfo", str(path)]).stdout
    for want in (r"^alias:\s+rdma-link-ferroce$", r"^version:\s+" + re.escape(rules.version()) + "$", r"^license:\s+GPL", r"^depends:.*ib_core", r"^vermagic:\s+"
                 + re.escape(root.release)):
        if not re.search(want, info, re.M):
            raise Bad(f"modinfo does not say {want!r}", info)
    large = large_frames(in_root(root, ["objdump", "-d", "--no-show-raw-insn", "rust/ferroce.ko"]))
    if large:
        raise Bad(f"a kernel stack has 16 KiB, and {large[0][1]} takes {large[0][0]} bytes of it", "\n".join(map(str, large)))


def probes(root):
    """The provider's probes, in a file that was stripped as Debian's packages are: each a NOP, with all arguments that a tracer
    is told of."""
    path = build.provider(root)
    stripped = path.with_suffix(".stripped")
    in_root(root, ["strip", "--remove-section=.comment", "--remove-section=.note", "--strip-unneeded", "-o",
                   f"/ferroce/{stripped.relative_to(CHECKOUT)}", f"/ferroce/{path.relative_to(CHECKOUT)}"])
    data = stripped.read_bytes()
    found = [one for one in elf.probes(data) if one.provider == calls.PROVIDER]
    told = in_root(root, ["readelf", "-n", f"/ferroce/{stripped.relative_to(CHECKOUT)}"])
    if re.findall(r"Name: (\w+)\n.*\n +Arguments: (.*)", told) != [(one.name, " ".join(one.arguments)) for one in found]:
        raise Bad("readelf finds other probes", told)
    if missing := calls.ARGUMENTS.keys() ^ {one.name for one in found}:
        raise Bad(f"probes that are not there, or that nobody knows: {', '.join(sorted(missing))}")
    for one in found:
        if len(one.arguments) != len(calls.ARGUMENTS[one.name]) or not all(elf.fetch(where, "u") for where in one.arguments):
            raise Bad(f"the arguments of {one.name} are {' '.join(one.arguments)}")
        if data[one.offset] != NOP:
            raise Bad(f"there is no NOP at {one.name}, {one.offset:#x} in the file")
    return f"{len(calls.ARGUMENTS)} probes in {len(found)} places"


def module_clippy(root):
    """Clippy of the module with the kernel's lints, in a copy: its code must not be what is loaded."""
    copy = config.BUILD / "clippy"
    shutil.rmtree(copy, ignore_errors=True)
    source = build.module_copy(copy, root.release)
    command = (f"make -j{os.cpu_count() or 2} ARCH=x86 CC={root.cc} KERNELRELEASE={root.release} -C {root.kdir} "
               f"M=/ferroce/{source.relative_to(CHECKOUT)} CLIPPY=1 modules 2>&1")
    out = in_root(root, f"sh -c {shlex.quote(command)}")
    warnings = re.findall(r"^(?:warning|error).*$", out, re.M)
    if warnings:
        raise Bad(f"{len(warnings)} findings, the first: {warnings[0]}", out)


def debian_packages(root):
    """The packages are the same bytes each time, and lintian finds nothing."""
    deb.make(root)
    first = {path.name: path.read_bytes() for path in deb.files()}
    found = deb.lint(root)
    deb.make(root)
    second = {path.name: path.read_bytes() for path in deb.files()}
    if found:
        raise Bad(f"lintian finds {len(found)} things, the first: {found[0]}", "\n".join(found))
    differ = sorted(name for name in first.keys() | second.keys() if first.get(name) != second.get(name))
    if differ:
        raise Bad(f"another build made other bytes of {', '.join(differ)}")
    return f"{len(first)} packages, built twice"


def dkms_package(root, *how):
    """The package for DKMS: see tests/lab/dkms.py."""
    text, wrong = dkms.check(root, *how)
    if wrong:
        raise Bad("; ".join(wrong), text)
    return re.search(r"^status: (.*)$", text, re.M).group(1)


def dkms_from_source(root):
    return dkms_package(root, dkms.FROM_SOURCE, dkms.SAID_FROM_SOURCE, "6g")


def aarch64_build(root):
    """Module, provider and programs build for aarch64, and are what they should be."""
    cross = aarch64.make(root)
    made = [aarch64.module(cross), aarch64.provider(cross), *aarch64.programs(cross)]
    strange = [path.name for path in made if not aarch64.is_for_it(path)]
    if strange:
        raise Bad(f"not for aarch64: {', '.join(strange)}")
    info = captured(["modinfo", str(made[0])]).stdout
    if not re.search(rf"^vermagic:\s+{re.escape(cross.release)} .*aarch64$", info, re.M):
        raise Bad(f"the module is not for {cross.release}", info)
    return f"{cross.release}, {len(made)} files"


def tests(runs=None):
    """Every host test, quick ones first; a fuzzer makes so many runs, or as many as each needs."""
    found = [
        Test("host.rules", "house rules: unsafe, SPDX, rooms, width, limits on time, one version, commands, links",
             house_rules, lane="python"),
        Test("host.lab", "the laboratory's own unit tests", unit_tests, lane="python"),
        Test("host.page", "the page of ferroce trace in a browser: rows, filters, headers, without a script", pages, lane="python"),
        Test("host.walks", "the symbols that documents name are there: here, in the kernel, in rdma-core", references,
             lane="python"),
        Test("host.translations", "translated documents: none is behind or missing, code, symbols and links are the original's",
             translated, lane="python"),
        Test("host.rustfmt", "rustfmt of every Rust file", rustfmt, lane="python"),
        Test("host.clippy", "clippy of the host crates, warnings denied", clippy, lane="cargo"),
    ]
    for package in packages():
        run_it = provider_test if package == "ferroce-provider" else partial(cargo_test, package)
        found.append(Test(f"host.{package}", f"cargo test of {package}", run_it, lane="cargo"))
    found += [Test(f"fuzz.{target}", f"libFuzzer with the target {target}", partial(fuzzing, target, runs or fuzz.RUNS[target]), lane="cargo")
              for target in fuzz.TARGETS]
    found += [
        Test("module.build", "the module builds for the stock kernel and says what it is", module_build),
        Test("module.clippy", "clippy of the module with the kernel's lints", module_clippy),
        Test("host.probes", "the provider's probes: in a stripped file, each a NOP with its arguments", probes),
        Test("host.deb", "the packages: reproducible, lintian", debian_packages),
        Test("host.dkms", "the package for DKMS: installed, built, a kernel without Rust left out, removed", dkms_package),
        Test("host.dkms-source", "the package for DKMS: built from the kernel's source package", dkms_from_source),
        Test("aarch64.build", "module, provider and programs for aarch64, the provider's layouts asserted",
             aarch64_build),
        Test("product.run", "make run: a command in a guest, its output, files and exit status", product.run),
        Test("product.shell", "make shell: a prompt in a guest, on a terminal", product.shell),
        Test("product.boot", "ferroce add --keep on a machine of systemd's: netdevs made anew, a reboot, lockdown",
             reboot.run),
    ]
    return found


def run(test, root):
    """Runs one test, and no other beside it."""
    with lock(config.BUILD / "host.lock", TESTING):
        return judge(test, root)


def judge(test, root):
    """Runs one test; its output is kept in build/host when it fails, and its end is shown."""
    began, printed = time.monotonic(), []
    try:
        detail = test.run(root) or ""
        status = "passed"
    except LabError as e:
        status, detail = "failed", str(e)
        if e.text:
            detail += f" (all of it: {keep(test, e.text)})"
            printed = e.text.rstrip().splitlines()[-PRINTED:]
    return Result(test.name, status, detail, round(time.monotonic() - began, 1), printed=printed)


# Runs of each fuzzer in `make check-fast`.
FAST_RUNS = 3_000


def fast(root):
    """What needs no guest, for each change: two tests beside each other, their times, the sum; 0 when none failed."""
    # Late: it imports this module.
    from tests.lab import check
    chosen = [test for test in tests(FAST_RUNS) if test.lane]
    # The scenarios, whose names some ask for, are made from the list of cases.
    build.c_programs(root)

    def lane(name):
        for test in chosen:
            if test.lane == name:
                total.add(judge(test, root))

    with lock(config.BUILD / "host.lock", TESTING), check.Sum([test.name for test in chosen]) as total:
        with ThreadPoolExecutor() as pool:
            for done in [pool.submit(lane, name) for name in sorted({test.lane for test in chosen})]:
                done.result()
        say.step("done")
    return total.status


def keep(test, text):
    """Shows the end of what a failed test has printed; where all of it is."""
    path = config.BUILD / "host" / f"{test.name}.log"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    say.quote(text.rstrip().splitlines()[-PRINTED:])
    return path.relative_to(CHECKOUT)
