# SPDX-License-Identifier: GPL-2.0
"""Runs scenarios inside the guest, one after another, and writes down each verdict before the next begins.

Usage: python3 -m tests.guest.agent RESULTS_DIR. RESULTS_DIR/todo.json has their names; results go to
RESULTS_DIR/events.jsonl, one JSON object a line, synced to the host, so that nothing is lost when the guest dies.
"""

import json
import os
import re
import select
import signal
import sys
import time
import traceback

from tests.guest import flavour
from tests.guest.fabric import write
from tests.guest.scenario import PATIENCE, Failed, Report, Skipped, load_all
from tests.judges import kernel

# A module that loses its way must not take the machine with it; what it did is judged from the log.
SETTINGS = {
    "kernel/hung_task_timeout_secs": str(30 * PATIENCE),
    "kernel/panic_on_oops": "1",
    "kernel/printk": "7 4 1 7",
    "net/core/netdev_unregister_timeout_secs": str(10 * PATIENCE),
    "kernel/printk_devkmsg": "on",
}


class Events:
    """The stream of results the host reads while the guest runs."""

    def __init__(self, path):
        self.fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def put(self, **event):
        os.write(self.fd, (json.dumps(event) + "\n").encode())
        os.fsync(self.fd)


def child(scenario, log, pipe):
    """The scenario's own process: runs it and sends the verdict through the pipe. Never returns."""
    os.setsid()
    fd = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    os.dup2(fd, 1)
    os.dup2(fd, 2)
    null = os.open("/dev/null", os.O_RDONLY)
    os.dup2(null, 0)
    sys.stdout = os.fdopen(1, "w", buffering=1, closefd=False)
    sys.stderr = os.fdopen(2, "w", buffering=1, closefd=False)
    pipe = os.fdopen(pipe, "w", buffering=1)
    report = Report()
    status, detail = "passed", ""
    try:
        if scenario.rxe and not flavour.current().is_ferroce:
            raise Skipped(scenario.rxe)
        scenario.run(report)
    except Skipped as e:
        status, detail = "skipped", str(e)
    except Failed as e:
        traceback.print_exc()
        status, detail = "failed", str(e)
    except BaseException as e:
        traceback.print_exc()
        status, detail = "failed", f"{type(e).__name__}: {e}"
    print(json.dumps({"status": status, "detail": detail, **report.data()}), file=pipe)
    pipe.close()
    sys.stdout.flush()
    os._exit(0)


def kill_session(pid):
    """Kills each process of a scenario's session. One that has left it is found by what it holds."""
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) > 1:
            try:
                if os.getsid(int(name)) == pid:
                    os.kill(int(name), signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                pass


def supervise(scenario, log):
    """Runs one scenario in a process of its own within its time limit."""
    r, w = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(r)
        child(scenario, log, w)
    os.close(w)
    end = time.monotonic() + scenario.limit
    text, done = b"", False
    while not done and time.monotonic() < end:
        if select.select([r], [], [], min(1.0, max(0.0, end - time.monotonic())))[0]:
            chunk = os.read(r, 65536)
            text += chunk
            done = not chunk
    os.close(r)
    if not done:
        kill_session(pid)
        result = {"status": "failed", "detail": f"over its time limit of {scenario.limit} s"}
    elif text.endswith(b"\n"):
        result = json.loads(text)
    else:
        result = {"status": "failed", "detail": "the scenario's process died"}
    # A process stuck in the kernel cannot be waited for; it shows as something left over.
    give_up = time.monotonic() + 10 * PATIENCE
    while os.waitpid(pid, os.WNOHANG)[0] == 0:
        if time.monotonic() > give_up:
            result["status"] = "failed"
            result["detail"] += "; its process cannot be killed: " + (kernel.read(f"/proc/{pid}/wchan") or "?")
            break
        time.sleep(0.02)
    kill_session(pid)
    return result


def judge(result, log_lines, left, provokes=""):
    wrong = kernel.complaints(log_lines)
    if provokes:
        if result["status"] == "passed" and not any(re.search(provokes, line) for line in wrong):
            result["status"] = "failed"
            result["detail"] = f"the kernel has not reported {provokes!r}"
            result["log"] = log_lines
    elif wrong:
        result["status"] = "failed"
        result["detail"] = "; ".join(filter(None, [result["detail"], f"kernel: {wrong[0].strip()}"]))
        result["log"] = log_lines
    if left:
        result["status"] = "failed"
        result["detail"] = "; ".join(filter(None, [result["detail"], "left behind: " + ", ".join(left)]))
    return result


def main():
    """Runs what it is to; leaves with an event `dirty` when the guest is no longer fit for more."""
    where = sys.argv[1]
    for name, value in SETTINGS.items():
        try:
            write(f"/proc/sys/{name}", value)
        except OSError:
            pass
    events = Events(f"{where}/events.jsonl")
    registry = load_all()
    _held = kernel.hold_encapsulation()
    log = kernel.Log()
    baseline = kernel.Baseline()
    events.put(event="up", release=os.uname().release, uptime=float(kernel.read("/proc/uptime").split()[0]))
    before, spoilt = "", False

    def between():
        """What the kernel says when no scenario runs. One that has been damaged on purpose may say anything."""
        lines = log.new()
        if kernel.complaints(lines) and not spoilt:
            events.put(event="between", before=before, lines=lines)

    with open(f"{where}/todo.json", encoding="utf-8") as f:
        names = json.load(f)
    for name in names:
        scenario = registry.get(name)
        if not scenario:
            events.put(event="end", name=name, status="failed", detail="the guest has no such scenario")
            continue
        between()
        events.put(event="start", name=name, limit=scenario.limit)
        kernel.note(f"begin {name}")
        began = time.monotonic()
        result = supervise(scenario, f"{where}/{name}.log")
        left = baseline.left_over(5.0 if result["status"] == "passed" else 1.0)
        lines = log.new()
        for allowed in result.pop("allows", ()):
            lines = kernel.without_reports(lines, allowed)
        result = judge(result, lines, left, scenario.provokes)
        result["seconds"] = round(time.monotonic() - began, 1)
        kernel.note(f"end {name}: {result['status']}")
        events.put(event="end", name=name, **result)
        before, spoilt = name, spoilt or bool(scenario.provokes)
        if left:
            baseline.clean()
            if baseline.left_over(3.0):
                between()
                events.put(event="dirty", left=baseline.left_over(0))
                return
    # From this mark on the console is all that is heard of the kernel.
    kernel.note("done")
    between()
    events.put(event="done", spoilt=spoilt)


if __name__ == "__main__":
    main()
