# SPDX-License-Identifier: GPL-2.0
"""What a document shows of a run, compared with a run: of numbers that are others each time only what they are to each other."""

import os
import re

from tests.guest.scenario import require

# The part of a clone that documents, examples and walks are in; in the guest it lies beside the tests' folder.
CLONE = os.path.normpath(os.path.join(os.path.dirname(__file__), "..", "..", "clone"))
NAMES = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
# PSNs of one connection lie closer together than this, those of two do not but by a rare chance.
NEAR = 500


def document(name):
    with open(f"{CLONE}/{name}", encoding="utf-8") as f:
        return f.read()


def prompts(text):
    """What a document shows behind each command line `$ ./NAME ...` of its code blocks, by name and first argument."""
    found = {}
    for block in re.findall(r"^```\n(.*?)^```$", text, re.M | re.S):
        for part in re.split(r"^\$ \./", block, flags=re.M)[1:]:
            line, _, shown = part.partition("\n")
            found[tuple(line.split())] = shown.rstrip("\n")
    return found


def normal(text):
    """The same text without times, and with letters for queue pairs and PSNs that count from the first one near."""
    known, bases = {}, []

    def letter(match):
        return known.setdefault(match[0], NAMES[len(known) % len(NAMES)])

    def relative(match):
        psn = int(match[1])
        base = next((b for b in bases if abs(psn - b) < NEAR), None)
        if base is None:
            bases.append(base := psn)
        return f"PSN {NAMES[bases.index(base)]}{psn - base:+}"

    text = re.sub(r"(?m)^ +\d+\.\d  ", "T  ", text)
    text = re.sub(r"\b(?:\d+(?:\.\d+)?|~T) ?(?:us|ms|s)\b", "T", text)
    text = re.sub(r"~T \(T to T\)", "T", text.replace("~T", "T")).replace("T (T to T)", "T")
    text = re.sub(r"(?<!vendor_err )0x(?!1\b)[0-9a-f]{2,}\b", letter, text)
    text = re.sub(r"PSN (\d+)", relative, text)
    # Columns are as wide as their numbers.
    return [re.sub(r"-{3,}", "--", re.sub(r"  +", "  ", line.rstrip())) for line in text.strip("\n").splitlines()]


def compare(what, shown, came):
    want, have = normal(shown), normal(came)
    for number, (a, b) in enumerate(zip(want, have), 1):
        require(a == b, f"{what}, line {number}: shown {a!r}, came {b!r}")
    require(len(want) == len(have), f"{what}: {len(want)} lines shown, {len(have)} came: {(have + want)[-1]!r}")
