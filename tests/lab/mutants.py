# SPDX-License-Identifier: GPL-2.0
"""`mutants`: do the host tests notice a change of the pure code? cargo-mutants changes one function or operator at a time, in
a copy of the tree, and runs the tests of the crates that compile it. Those of tests/planted.toml are for the rest."""

import re
import secrets

from tests.lab import config, say
from tests.lab.build import run_in_root
from tests.lab.shell import chroot_command, in_good_order

# A release that builds with the root's compiler.
VERSION = "25.0.1"
PLACE = f"/cache/cargo-mutants-{VERSION}"
OUT = config.BUILD / "mutants"
# What the host compiles; cargo-mutants does not see the module's own files.
PACKAGES = "ferroce-core,ferroce-hostile,ferroce-host-tests"
# In the name of a mutant: what no test could see.
#   Debug and Display are for people; `forget` and the like are for the kernel's lints.
NOT_TRIED = (r"impl (Debug|Display) for",)


def install(root):
    if not (config.cache() / f"cargo-mutants-{VERSION}/bin/cargo-mutants").exists():
        run_in_root(root, ["cargo", "install", "-q", "--locked", "--version", VERSION, "--root", PLACE, "cargo-mutants"],
                    "installing cargo-mutants", env={"CARGO_TARGET_DIR": "/tmp/target"})


def command(shard, files):
    found = [f"{PLACE}/bin/cargo-mutants", "mutants", "--package", "ferroce-core", "--test-package", PACKAGES, "--shard", shard,
             "--output", "/ferroce/build/mutants", "--baseline", "run", "--no-times", "--colors", "never"]
    for pattern in NOT_TRIED:
        found += ["--exclude-re", pattern]
    return found + (["--file", files] if files else [])


def summary(text):
    """What the last line of cargo-mutants says: tried, missed, caught, unviable, timeouts."""
    last = re.findall(r"^(\d+) mutants? tested.*$", text, re.M)
    counts = {what: int(n) for n, what in re.findall(r"(\d+) (missed|caught|unviable|timeouts?)", text.splitlines()[-1])}
    return (int(last[-1]) if last else 0), counts


def run(root, of, files):
    """Tries one of so many; 0 when all that build were noticed. A test that never ends has noticed, too."""
    install(root)
    shard = f"{secrets.randbelow(of)}/{of}"
    say.step(f"the share {shard} of the mutants")
    OUT.mkdir(parents=True, exist_ok=True)
    environment = {"CARGO_NET_OFFLINE": "true", "CARGO_TARGET_DIR": "/tmp/target", "RUST_BACKTRACE": "0"}
    log = OUT / "log"
    with open(log, "w+", encoding="utf-8") as out:
        done = in_good_order(chroot_command(root.path.resolve(), command(shard, files), cwd="/ferroce", env=environment),
                             stdout=out, stderr=out)
        out.seek(0)
        text = out.read()
    tried, counts = summary(text)
    # 2: some were missed; 3: some never ended.
    if done.returncode not in (0, 2, 3) or not tried:
        raise say.LabError(f"cargo-mutants exited with {done.returncode} after {tried} mutants: see {log}")
    for line in re.findall(r"^MISSED +(.*)$", text, re.M):
        say.verdict("failed", "mutant", None, line)
    say.line(f"\n{tried} mutants tried: {', '.join(f'{n} {what}' for what, n in counts.items())}")
    return 1 if counts.get("missed") else 0
