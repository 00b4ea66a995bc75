# SPDX-License-Identifier: GPL-2.0
"""The fuzz targets of tests/fuzz, by LLVM's libFuzzer and the root's own stable compiler.

`python3 -m tests.lab.fuzz TARGET RUNS` fuzzes longer, with a seed of its own, and then keeps the smallest set of inputs
that reaches as much: tests/fuzz/corpus/TARGET.txt.
"""

import re
import secrets
import shutil
import sys

from tests.lab import config
from tests.lab.say import Bad

# Edges that each target reaches with what is kept of it alone: one that returns at once reaches a handful.
FLOORS = {"packet": 60, "responder": 1000, "requester": 350, "unreliable": 680, "wqe": 270}
TARGETS = tuple(FLOORS)
# With a fresh seed each time: what one that stays the same finds, it has found.
RUNS = {"packet": 40_000, "responder": 100_000, "requester": 100_000, "unreliable": 40_000, "wqe": 40_000}
MAX_LEN = 256
CORPUS = config.CHECKOUT / "tests/fuzz/corpus"
WORK = config.BUILD / "fuzz"
TRIPLE = "x86_64-unknown-linux-gnu"
# What cargo-fuzz gives the compiler, without the sanitizers, which need a nightly one: there is no unsafe code here, and
# overflows are checked by Rust itself. A target of its own keeps it from what runs while building.
COVERAGE = ("-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 "
            "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table "
            "-Cllvm-args=-sanitizer-coverage-trace-compares")
PACKAGE = "ferroce-fuzz"
BUILD = ["cargo", "build", "-q", "--locked", "--offline", "-p", PACKAGE, "--features", "fuzz", "--profile", "fuzz",
         "--bin", "fuzz", "--target", TRIPLE]
ENVIRONMENT = {"RUSTFLAGS": COVERAGE, "CXX": "clang++", "CARGO_TARGET_DIR": "/ferroce/build/cargo-fuzz"}
HEAD = "# SPDX-License-Identifier: GPL-2.0\n# Inputs of the target, as hexadecimal digits, one a line.\n"


def fresh_seed():
    """A seed that nobody has seen, below 2^31 and not 0, which libFuzzer takes for none."""
    return secrets.randbelow(2 ** 31 - 1) + 1


def unpack(target):
    """The folder of the target's inputs, made anew."""
    folder = WORK / target
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "corpus").mkdir(parents=True)
    for number, line in enumerate((CORPUS / f"{target}.txt").read_text(encoding="ascii").splitlines()):
        if not line.startswith("#"):
            (folder / "corpus" / f"{number:03}").write_bytes(bytes.fromhex(line))
    return folder


def pack(target, folder):
    """Keeps the inputs of a folder, shortest first."""
    inputs = sorted((path.read_bytes() for path in folder.iterdir()), key=lambda data: (len(data), data))
    (CORPUS / f"{target}.txt").write_text(HEAD + "".join(data.hex() + "\n" for data in inputs), encoding="ascii")
    return len(inputs)


def command(target, *options):
    """libFuzzer with options; what fails is left in the target's folder."""
    program = f"/ferroce/build/cargo-fuzz/{TRIPLE}/fuzz/fuzz"
    return ["env", f"FERROCE_FUZZ={target}", program, f"-max_len={MAX_LEN}", f"-artifact_prefix=/ferroce/build/fuzz/{target}/", *options]


def coverage(text):
    """How many edges were reached, by libFuzzer's last word about it."""
    found = re.findall(r"cov: (\d+)", text)
    return int(found[-1]) if found else 0


def check(in_root, target, seed, runs):
    """Builds the target and runs it: first what is kept of it, then what the seed makes of that. `in_root` runs or fails."""
    in_root(BUILD, ENVIRONMENT)
    unpack(target)
    reached = coverage(in_root(command(target, f"-seed={seed}", f"-runs={runs}", f"/ferroce/build/fuzz/{target}/corpus"), {}))
    if reached < FLOORS[target]:
        raise Bad(f"{reached} edges reached, where {FLOORS[target]} are the least: fix the target, or say the new "
                  "number in FLOORS of tests/lab/fuzz.py")
    return f"{runs} runs, {reached} edges reached of at least {FLOORS[target]}, seed {seed}"


def longer(root, target, runs):
    """Fuzzes longer and keeps the smallest corpus that reaches as much."""
    from tests.lab.build import run_in_root
    run_in_root(root, BUILD, "building the fuzz targets", env=ENVIRONMENT)
    folder = unpack(target)
    seed = fresh_seed()
    here = f"/ferroce/build/fuzz/{target}"
    print(f"{target}: seed {seed}", flush=True)
    run_in_root(root, command(target, f"-seed={seed}", f"-runs={runs}", f"{here}/corpus"), "fuzzing")
    (folder / "least").mkdir()
    # An input for each edge, not for how often it is reached: from those the runs of a check reach as much.
    run_in_root(root, command(target, "-set_cover_merge=1", "-use_counters=0", f"{here}/least", f"{here}/corpus"), "merging")
    print(f"{target}: {pack(target, folder / 'least')} inputs kept", flush=True)


def main(argv):
    """TARGET RUNS."""
    from tests.lab import setup
    root = setup.setup()
    with setup.in_use(root):
        longer(root, argv[0], int(argv[1]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
