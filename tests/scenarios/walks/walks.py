# SPDX-License-Identifier: GPL-2.0
"""The walks (Documentation/walks): the run that each of them shows comes out so again."""

import os
import re
import tempfile
from contextlib import contextmanager

from tests.guest import netlink, prompt
from tests.guest.fabric import unplug
from tests.guest.scenario import Failed, command, require, say, scenario
from tests.guest.shown import CLONE, compare, document

FOLDER = "Documentation/walks"
# A packet more is no fault of a walk: a busy machine answers late, and the requester asks again.
TIMES = 4


def runs(text):
    """The commands of a walk for `make um`, each with the output that is shown behind it."""
    return re.findall(r"^    make um CMD='([^'\n]*)'$.*?^```\n(.*?)^```$", text, re.M | re.S)


def run(line, words, timeout=60):
    """What a command prints in the guest of `make um`, made anew: two namespaces, a device in each."""
    ends = prompt.two()
    try:
        path = f"{words}:{os.environ['PATH']}"
        return command(["sh", "-c", line], timeout=timeout, cwd=CLONE, env={**os.environ, "PATH": path, "HOME": "/root"}).stdout
    finally:
        for end in ends:
            unplug(end.dev, end.netns)
        for end in ends:
            netlink.delete_netns(end.netns)
        command(["modprobe", "-r", "rdma_ucm"], ok=None)


def again(name, line, shown, words):
    """Runs a command until it comes out as it is shown."""
    for left in reversed(range(TIMES)):
        try:
            compare(name, shown, run(line, words))
            return
        except Failed as e:
            if not left:
                raise
            say(f"{e}; once more")


@contextmanager
def shell_words():
    """A folder with the words of `make um`, such as left and right, for `run`."""
    with tempfile.TemporaryDirectory() as words:
        for name, text in prompt.WORDS.items():
            with open(f"{words}/{name}", "w", encoding="ascii", opener=lambda p, f: os.open(p, f, 0o755)) as f:
                f.write(f"#!/bin/sh\n{text}\n")
        yield words


@scenario("walks.runs", 240, rxe="the walks are about ferroce")
def walks(_report):
    """The run of each walk: the ladder or the output that the document shows."""
    with shell_words() as words:
        for name in sorted(os.listdir(f"{CLONE}/{FOLDER}")):
            if name.endswith(".md") and name != "README.md":
                found = runs(document(f"{FOLDER}/{name}"))
                require(found, f"{name} shows no run")
                for line, shown in found:
                    again(name, line, shown, words)
        # What `make trace` runs: one program that plays both sides, and one with two ends.
        for name in ("rnr", "cm"):
            said = run(f"sh tests/examples/trace.sh {name}", words)
            with open(f"{CLONE}/build/trace/{name}.html", encoding="utf-8") as f:
                require("<svg" in f.read() and " 0 packets" not in said, f"make trace EXAMPLE={name} draws nothing: {said}")
