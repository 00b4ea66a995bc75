# SPDX-License-Identifier: GPL-2.0
"""Runs guest scenarios: boots, watches, judges what a dead guest cannot report itself, and boots again for the rest."""

import json
import os
import re
import time
from dataclasses import dataclass, field

from tests.guest.scenario import REGISTRY
from tests.judges.kernel import complaints
from tests.lab import boot, config, say
from tests.lab.say import LabError
from tests.lab.shell import captured, chroot_command

MAX_BOOTS = 5
# Lines that are kept of what a test that failed has printed.
PRINTED = 40
# Seconds that the agent has between two scenarios.
BETWEEN = 60
# The kernel patches its own code by way of a breakpoint, which every processor takes and goes on from. An emulated
# second processor sometimes takes the breakpoint when the kernel has long replaced it and forgotten it (seen while
# booting, and at its clock): that is qemu's fault and nobody else's. It shows by what is there now: text of the kernel
# or of a module that has a name, and no breakpoint before the instruction that would have been next. Code that was
# freed is full of breakpoints, and belongs to no symbol: who runs into it was not stopped in time.
BREAKPOINT = re.compile(r"Oops: int3:")
LIVE_TEXT = re.compile(r"RIP: 0010:[\w.$]+\+0x[0-9a-f]+/0x[0-9a-f]+(?: \[\w+\])?$")
REPLACED = re.compile(r"Code: (?:[0-9a-f]{2} )*(?!cc)[0-9a-f]{2} <[0-9a-f]{2}>")
MOST_REPEATED = 3


@dataclass
class Result:
    name: str
    status: str
    detail: str = ""
    seconds: float | None = None
    skips: list = field(default_factory=list)
    notes: list = field(default_factory=list)
    # What the kernel has said of it, and the end of what a test that failed has printed itself.
    log: list = field(default_factory=list)
    printed: list = field(default_factory=list)


class Follower:
    def __init__(self, path):
        self.path, self.offset = path, 0

    def more(self):
        try:
            with open(self.path, "rb") as f:
                f.seek(self.offset)
                data = f.read()
        except OSError:
            return b""
        self.offset += len(data)
        return data


class Reader(Follower):
    """Follows the events file of a guest."""

    half = b""

    def new(self):
        """The events of whole lines written since the last call."""
        whole, end, self.half = (self.half + self.more()).rpartition(b"\n")
        events = []
        for line in (whole + end).splitlines():
            try:
                events.append(json.loads(line))
            except ValueError:
                pass
        return events


def environment():
    """What the guest's side must know of the caller's."""
    names = ("FERROCE_PATIENCE", "FERROCE_SEED", "FERROCE_SHORT", "FERROCE_ROUNDS")
    return {"FERROCE_LINK_TYPE": os.environ.get("FERROCE_LINK_TYPE", "ferroce")} | {k: os.environ[k] for k in names if k in os.environ}


# Who judges what a scenario leaves, by the end of its name: a description of its captures.
JUDGES = {".json": "wire_compare", ".flow.json": "flow", ".kinds.json": "wire_kinds"}


def judge_capture(root, result, where):
    """Judges the packets that a scenario captured, with the root's tshark and scapy, on the host: emulated they would
    take minutes. A scenario that says that it leaves something must have left it."""
    leaves = REGISTRY[result.name].leaves if result.name in REGISTRY else ""
    if result.status != "passed" or not leaves:
        return
    path = where / (result.name + leaves)
    if path.exists():
        judge_file(root, result, JUDGES[leaves], path)
    else:
        result.status, result.detail = "failed", f"it left no {path.name} to be judged"


def judge_file(root, result, judge, path):
    """Runs a judge in the root; its output becomes the notes, and its exit status the verdict."""
    inside = "/ferroce/" + str(path.relative_to(config.CHECKOUT))
    try:
        done = captured(chroot_command(root.path.resolve(), ["python3", "-m", "tests.judges", judge, inside], cwd="/ferroce"), 300)
    except LabError as e:
        result.status, result.detail = "failed", f"{judge}: {e}"
        return
    result.notes = [line for line in done.stdout.splitlines() if not line.startswith("+")]
    if done.returncode:
        result.status = "failed"
        result.detail = result.notes[-1] if result.notes else f"exit {done.returncode}"
        result.printed = result.notes[-PRINTED:]


# The name of the result about a guest that has run all its scenarios and does not end as it should.
POWER_OFF = "guest.power-off"


def run(root, names, extra, kvm, on_result, limit, again, ended, label="check", guest_class=boot.Guest):
    """Runs scenarios within `limit` seconds, unless the whole run has `ended`; each gets a result, which `on_result` takes
    at once. A fault of the emulator's, for which a guest was booted again, goes to the list `again`."""
    todo = list(names)
    deadline = time.monotonic() + limit

    def finish(result, where=None):
        judge_capture(root, result, where)
        if where and result.status == "failed":
            result.printed = result.printed or boot.tail_of(where / f"{result.name}.log", PRINTED)
        on_result(result)

    for turn in range(MAX_BOOTS + MOST_REPEATED):
        if not todo or ended.is_set():
            break
        work = boot.fresh_work(label)
        guest = guest_class(root, work, "python3 -m tests.guest.agent /srv/results", kvm, extra, environment())
        (guest.results / "todo.json").write_text(json.dumps(todo), encoding="utf-8")
        say.step(f"boot the {guest.WHAT} {root.release} ({guest.how}), log in {work}"
                 + (f", again for {len(todo)} more" if turn else ""))
        guest.start()
        try:
            why = watch(guest, ended, todo, finish, deadline)
        finally:
            guest.stop()
        if why is None:
            # One that was left dirty has not run all.
            continue
        running, text = why
        whole = guest.console_tail(2000)
        # What was said before, the agent has judged.
        report = since(whole, "done" if running == POWER_OFF else f"begin {running}")
        if not kvm and len(again) < MOST_REPEATED:
            fault = emulation_failed(report)
            if fault:
                again.append({"during": running or "boot", "report": fault, "console": str(guest.console)})
                say.line(f"    the emulated machine failed at {again[-1]['during']}, while the kernel patched its code: "
                         f"{fault}; what is left runs in another")
                continue
        if running is None:
            # Nothing ran: another boot will not do better.
            last = guest.console_tail() + guest.output_tail()
            say.quote(last)
            if last:
                text += f": {last[-1].strip()}"
            for name in todo:
                finish(Result(name, "failed", text))
            return
        if running in todo:
            todo.remove(running)
        say.line("    the guest's last words:")
        # A report of a kernel full of checks is long; what it found and where says more than the end of the trace.
        first = complaints(report)
        if first:
            text += ": " + first[0].strip()
            for mark in ("RIP: ", "Code: "):
                text += next((", " + mark + line.split(mark)[1].strip() for line in report if mark in line), "")
        say.quote(whole[-60:])
        finish(Result(running, "failed", text, log=report), guest.results)
        if time.monotonic() > deadline:
            break
    if not ended.is_set():
        for name in todo:
            finish(Result(name, "failed", "not run: the guests before it died, or time ran out"))


def emulation_failed(console):
    """What the first report on a console says, where only the emulator can have caused it; else nothing."""
    first = next((n for n, line in enumerate(console) if complaints([line])), None)
    if first is None or not BREAKPOINT.search(console[first]):
        return ""
    report = console[first:]
    where = next((line for line in report if "RIP: " in line), "")
    code = next((line for line in report if "Code: " in line), "")
    if not LIVE_TEXT.search(where) or not REPLACED.search(code):
        return ""
    return f"int3 at {where.split('RIP: 0010:')[1].strip()}"


def since(console, mark):
    """The lines of a console from a mark of the agent's on; all of them where it is not there."""
    return console[max((n for n, line in enumerate(console) if line.endswith(f"lab: {mark}")), default=0):]


class Phase:
    """Something that a guest is at, with the seconds that it has for that, and those that it is waited for beyond."""

    def __init__(self, limit, grace=0):
        self.began = time.monotonic()
        self.limit = limit
        self.grace = grace

    def late(self):
        return time.monotonic() - self.began > self.limit + self.grace


def watch(guest, over, todo, finish, deadline):
    """Follows one guest, which runs what is in `todo`, to its end. None: it ended well, or was ended because all is over.
    Else the scenario that ran (or None) and what happened."""
    reader = Reader(guest.results / "events.jsonl")
    running, phase, up = None, Phase(guest.BOOT_LIMIT), False
    ended = judged = False
    while True:
        alive = guest.alive()
        for event in reader.new():
            kind = event.pop("event", None)
            if kind == "up":
                up = True
                phase = Phase(BETWEEN)
            elif kind == "start":
                running = event["name"]
                phase = Phase(event["limit"], guest.GRACE)
            elif kind == "end":
                name = event["name"]
                if name in todo:
                    todo.remove(name)
                    finish(Result(**{k: v for k, v in event.items() if k in Result.__dataclass_fields__}),
                           guest.results)
                running, phase = None, Phase(BETWEEN)
            elif kind == "between":
                before = event["before"]
                finish(Result(f"guest.after.{before}" if before else "guest.before", "failed",
                              f"kernel: {complaints(event['lines'])[0].strip()}", log=event["lines"]))
            elif kind in ("done", "dirty"):
                # One that is dirty is ended because nobody knows what it will do.
                ended, judged = True, kind == "done" and not event["spoilt"]
                phase = Phase(2 * guest.GRACE if judged else 20)
        late = phase.late()
        if ended and (not alive or late):
            if judged and late and alive:
                return POWER_OFF, f"the guest did not power off within {phase.limit} s"
            said = judged and complaints(since(guest.console_tail(2000), "done"))
            return (POWER_OFF, "after the last scenario") if said else None
        if not alive:
            if running:
                return running, "the guest died"
            if up:
                return (todo[0], "the guest died before it began") if todo else (POWER_OFF, "the guest died")
            return None, "the guest did not boot"
        if over.is_set():
            return None
        if time.monotonic() > deadline and not ended:
            return running or (todo or [POWER_OFF])[0], "the time for all scenarios is used up"
        if late and not ended:
            guest.ask()
            if not up:
                return None, f"the guest did not boot within {guest.BOOT_LIMIT} s"
            return running or (todo or [POWER_OFF])[0], "the guest hangs"
        time.sleep(0.1)
