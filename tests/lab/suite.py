# SPDX-License-Identifier: GPL-2.0
"""Runs guest scenarios: boots, watches, judges what a dead guest cannot report itself, and boots again for the rest."""

import json
import os
import re
import subprocess
import time
from dataclasses import dataclass, field

from tests.lab import boot, config, say
from tests.lab.shell import chroot_command
from tests.vm.kernel import complaints

MAX_BOOTS = 5
# The kernel patches its own code by way of a breakpoint, which every processor takes and goes on from. An emulated
# second processor sometimes runs half of the old instruction and half of the new one, or takes the breakpoint when the
# kernel has forgotten it (seen while booting, and at its clock): that is qemu's fault and nobody else's. Nothing in a
# module ends so: a failed assertion is another trap.
EMULATION_FAILED = re.compile(r"Oops: int3:")
MOST_REPEATED = 3


@dataclass
class Result:
    """The verdict on one test."""

    name: str
    status: str
    detail: str = ""
    seconds: float | None = None
    cells: list = field(default_factory=list)
    skips: list = field(default_factory=list)
    notes: list = field(default_factory=list)
    log: list = field(default_factory=list)


class Reader:
    """Follows the events file of a guest."""

    def __init__(self, path):
        self.path = path
        self.offset = 0

    def new(self):
        """Whole lines written since the last call."""
        try:
            with open(self.path, "rb") as f:
                f.seek(self.offset)
                data = f.read()
        except FileNotFoundError:
            return []
        whole = data[: data.rfind(b"\n") + 1]
        self.offset += len(whole)
        events = []
        for line in whole.splitlines():
            try:
                events.append(json.loads(line))
            except ValueError:
                pass
        return events


def environment():
    """What the guest's side must know of the caller's."""
    told = {"FERROCE_LINK_TYPE": os.environ.get("FERROCE_LINK_TYPE", "ferroce"),
            "FERROCE_SEED": os.environ.get("FERROCE_SEED", "1000")}
    return told | {k: os.environ[k] for k in ("FERROCE_PATIENCE", "FERROCE_SHORT", "FERROCE_DEBUG", "FERROCE_ROUNDS") if k in os.environ}


def judge_capture(root, result, where):
    """Judges the packets a scenario captured, with the root's tshark and scapy, on the host: emulated they would
    take minutes. What it left says who judges: one capture, or a description of several."""
    if result.status != "passed" or not where:
        return
    for suffix, judge in ((".pcap", "tests.vm.packets"), (".json", "tests.vm.wire_compare")):
        if (where / (result.name + suffix)).exists():
            judge_file(root, result, judge, where / (result.name + suffix))


def judge_file(root, result, judge, path):
    """Runs a judge in the root; its output becomes the notes, and its exit status the verdict."""
    inside = "/ferroce/" + str(path.relative_to(config.CHECKOUT))
    done = subprocess.run(chroot_command(root.path.resolve(), ["python3", "-m", judge, inside],
                                         cwd="/ferroce"), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, timeout=300)
    result.notes = [line for line in done.stdout.splitlines() if not line.startswith("+")]
    if done.returncode:
        result.status = "failed"
        result.detail = result.notes[-1] if result.notes else f"exit {done.returncode}"


def run(root, names, extra, kvm, on_result, limit, on_start=None, on_cell=None, label="check",
        guest_class=boot.Guest):
    """Runs the named scenarios, in order, within `limit` seconds; every name gets a result."""
    todo = list(names)
    results = []
    repeated = 0
    deadline = time.monotonic() + limit

    def finish(result, where=None):
        judge_capture(root, result, where)
        results.append(result)
        on_result(result)

    for turn in range(MAX_BOOTS + MOST_REPEATED):
        if not todo:
            break
        work = boot.fresh_work(label)
        guest = guest_class(root, work, "python3 -m tests.vm.agent /srv/results", kvm, extra, environment())
        (guest.results / "todo.json").write_text(json.dumps(todo), encoding="utf-8")
        say.step(f"boot the {guest.WHAT} {root.release} ({'KVM' if kvm else 'emulated, no KVM'}), log in {work}"
                 + (f", again for {len(todo)} more" if turn else ""))
        guest.start()
        try:
            why = watch(guest, todo, finish, deadline, on_start, on_cell)
        finally:
            guest.stop()
        if why is None:
            continue
        running, text = why
        if not kvm and repeated < MOST_REPEATED and emulation_failed(guest.console_tail(2000)):
            repeated += 1
            say.line("    the emulated machine failed while the kernel patched its code; once more"
                     + (f" from {running} on" if running else ""))
            continue
        if running is None:
            # Nothing ran: another boot will not do better.
            last = guest.console_tail() + guest.output_tail()
            for line in last:
                say.line("    | " + line)
            if last:
                text += f": {last[-1].strip()}"
            for name in todo:
                finish(Result(name, "failed", text))
            return results
        todo.remove(running)
        say.line("    the guest's last words:")
        # A report of a kernel full of checks is long, and its first line says more than the end of the trace.
        whole = guest.console_tail(2000)
        began = max((n for n, line in enumerate(whole) if f"lab: begin {running}" in line), default=0)
        first = complaints(whole[began:])
        if first:
            text += ": " + first[0].strip()
        for line in whole[-60:]:
            say.line("    | " + line)
        finish(Result(running, "failed", text, log=whole[began:]))
        if time.monotonic() > deadline:
            break
    for name in todo:
        finish(Result(name, "failed", "not run: the guests before it died, or time ran out"))
    return results


def emulation_failed(console):
    """Whether the first report on a console is one that only the emulator can have caused."""
    reports = [line for line in console if EMULATION_FAILED.search(line) or complaints([line])]
    return bool(reports) and bool(EMULATION_FAILED.search(reports[0]))


def watch(guest, todo, finish, deadline, on_start, on_cell):
    """Follows one guest to its end. None: it ended well. Else the scenario that ran (or None) and what happened."""
    reader = Reader(guest.results / "events.jsonl")
    running, since, limit, up = None, guest.began, guest.BOOT_LIMIT, False
    ended = False
    while True:
        alive = guest.alive()
        for event in reader.new():
            kind = event.pop("event", None)
            if kind == "up":
                up = True
                since, limit = time.monotonic(), 60
            elif kind == "start":
                running, since, limit = event["name"], time.monotonic(), event["limit"] + guest.GRACE
                if on_start:
                    on_start(running)
            elif kind == "cell":
                if on_cell:
                    on_cell(event["name"], event["cell"])
            elif kind == "end":
                name = event["name"]
                if name in todo:
                    todo.remove(name)
                    finish(Result(**{k: v for k, v in event.items() if k in Result.__dataclass_fields__}),
                           guest.results)
                running, since, limit = None, time.monotonic(), 60
            elif kind in ("done", "dirty"):
                ended = True
                since, limit = time.monotonic(), 20
        if ended and (not alive or time.monotonic() - since > limit):
            return None
        if not alive:
            if running:
                return running, "the guest died"
            if up and todo:
                return todo[0], "the guest died before it began"
            return None if up else (None, "the guest did not boot")
        if time.monotonic() > deadline:
            return running or todo[0], "the time for all scenarios is used up"
        if time.monotonic() - since > limit and not ended:
            if not up:
                return None, f"the guest did not boot within {guest.BOOT_LIMIT} s"
            return running or todo[0], "the guest hangs"
        time.sleep(0.1)
