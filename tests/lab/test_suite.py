# SPDX-License-Identifier: GPL-2.0
"""How guests, their kernels' words and the whole run are judged."""

import contextlib
import errno
import io
import json
import sys
import tempfile
import threading
import unittest
from pathlib import Path
from unittest import mock

from tests.guest import agent
from tests.guest.scenario import Scenario
from tests.judges import kernel
from tests.lab import boot, check, config, suite

PANIC = "[    2.483695] Kernel panic - not syncing: Fatal exception in interrupt"
# What every guest says while it boots.
BOOT = ['[    0.442100] PCI: Using host bridge windows from ACPI; if necessary, use "pci=nocrs" and report a bug',
        "[    0.000000] Command line: console=ttyS0 rcupdate.rcu_cpu_stall_timeout=180 clocksource=tsc"]


def breakpoint_at(where, code):
    """The report of a breakpoint that the kernel does not know of, as 7.3 printed it."""
    return [
        "[    3.349850] Oops: int3: 0000 [#1] SMP NOPTI",
        "[    3.350423] CPU: 0 UID: 0 PID: 0 Comm: swapper/0 Not tainted 7.3.4+deb13-amd64 #1 PREEMPT(lazy)",
        f"[    3.353687] RIP: 0010:{where}",
        f"[    3.354271] Code: {code}",
        "[    3.355181] RSP: 0018:ffffffffb0e03cf0 EFLAGS: 00000006",
        "[    3.376456] Call Trace:", "[    3.376500]  <TASK>", "[    3.376600]  psi_task_switch+0x65/0x390", PANIC]


REPLACED = "90 90 f3 0f 1e fa 41 54 55 53 66 <90> e8 f2 00 00 00"
FORGOTTEN = breakpoint_at("sched_clock_cpu+0x9/0x1f0", REPLACED)
FREED = breakpoint_at("0xffffffffc0a51231", "cc cc cc cc cc cc cc <cc> cc cc cc")


class Emulation(unittest.TestCase):
    """A guest runs again only for what qemu alone can have done."""

    def test_a_forgotten_breakpoint_is_the_emulator_s(self):
        self.assertEqual(suite.emulation_failed([*BOOT, *FORGOTTEN]), "int3 at sched_clock_cpu+0x9/0x1f0")

    def test_freed_text_is_not(self):
        self.assertFalse(suite.emulation_failed([*BOOT, *FREED]))
        for where, code in (("0xffffffffc0a51231", REPLACED),
                            ("drain+0x9/0x1f0 [ferroce]", "cc cc cc cc cc <cc> cc"),
                            ("sched_clock_cpu+0x9/0x1f0", "c3 cc cc cc cc <cc> cc"),
                            ("sched_clock_cpu+0x9/0x1f0", "Unable to access opcode bytes at 0xffffffffc0a51207.")):
            self.assertFalse(suite.emulation_failed([*BOOT, *breakpoint_at(where, code)]), where + code)

    def test_nothing_else_is(self):
        for line in ("[ 9.0] Oops: invalid opcode: 0000 [#1] SMP", "[ 9.0] BUG: KASAN: use-after-free in x",
                     "[ 9.0] BUG: unable to handle page fault for address: 0", "[ 9.0] WARNING: CPU: 0 PID: 1 at x"):
            self.assertFalse(suite.emulation_failed([line, PANIC]))
            # What came first counts.
            self.assertFalse(suite.emulation_failed([line, *FORGOTTEN]))
        self.assertFalse(suite.emulation_failed([*BOOT, PANIC]))
        self.assertFalse(suite.emulation_failed([]))


# What the agent says.
UP, DONE = {"event": "up"}, {"event": "done", "spoilt": False}
END = "[  9.0] lab: done"


def begin(name):
    return {"event": "start", "name": name, "limit": 60}


def passed(name):
    return {"event": "end", "name": name, "status": "passed"}


class Guests(unittest.TestCase):
    """Guests that only say what happens to them."""

    def setUp(self):
        self.place = Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.again = []
        self.enterContext(mock.patch.object(boot, "fresh_work", lambda _label: tempfile.mkdtemp(dir=self.place)))
        self.enterContext(mock.patch.object(sys, "stdout", io.StringIO()))

    def run_boots(self, names, *boots, limit=60, still_there=False):
        """The results of names that run through guests, each given as its events and its console."""
        todo = list(boots)

        class Fake(boot.Guest):
            WHAT, BOOT_LIMIT, GRACE = "guest of the test", 0, 0

            def _script(self, agent, extra, env):
                return ""

            def start(self):
                events, console = todo.pop(0)
                (self.results / "events.jsonl").write_text("".join(json.dumps(e) + "\n" for e in events),
                                                           encoding="utf-8")
                self.console.write_text("\n".join([*BOOT, *console]), encoding="utf-8")

            def alive(self):
                return still_there

        results = []
        root = mock.Mock(release="7.3.4")
        suite.run(root, names, [], False, results.append, limit, self.again, threading.Event(), guest_class=Fake)
        self.assertEqual(todo, [])
        return {r.name: (r.status, r.detail) for r in results}


class Boots(Guests):
    """Every way in which a guest can end."""

    RAN = [UP, begin("a"), passed("a")]

    def test_its_end(self):
        warning = "[ 9.9] WARNING: CPU: 0 PID: 1 at drivers/infiniband/core/device.c:1 x+0x1/0x2"
        between = {"event": "between", "before": "a", "lines": ["WARNING: late"]}
        # What comes behind the scenario, the console, and what fails then with these words, if anything does.
        for events, console, *fails in (
                ([DONE], [END, "reboot: Power down"]),
                # What was said before the mark was judged by the agent.
                ([DONE], ["WARNING: allowed", END]),
                # A kernel damaged on purpose may say anything.
                ([DONE | {"spoilt": True}], [END, PANIC]),
                ([DONE], [END, PANIC], suite.POWER_OFF, PANIC[-20:]), ([DONE], [END, warning], suite.POWER_OFF, warning[-20:]),
                ([], [PANIC], suite.POWER_OFF, PANIC[-20:]),
                ([between, DONE], [END], "guest.after.a", "kernel: WARNING: late")):
            with self.subTest(console=console, fails=fails):
                found = self.run_boots(["a"], ([*self.RAN, *events], console))
                self.assertEqual(found.pop("a"), ("passed", ""))
                self.assertEqual([(name, status) for name, (status, _) in found.items()], [(name, "failed") for name in fails[:1]])
                self.assertTrue(all(fails[1] in detail for _, detail in found.values()), found)

    def test_the_emulator_s_fault_is_counted(self):
        # What an earlier scenario was allowed does not hide it.
        allowed = [*Reports.OOM, "[ 5.0] lab: end a: passed", "[ 5.1] lab: begin b", *FORGOTTEN]
        for names, events, console in (("b", [UP, begin("b")], FORGOTTEN), ("ab", [*self.RAN, begin("b")], allowed)):
            self.again.clear()
            found = self.run_boots([*names], (events, console), ([UP, begin("b"), passed("b"), DONE], [END]))
            self.assertEqual(found, dict.fromkeys(names, ("passed", "")))
            self.assertEqual([(one["during"], one["report"]) for one in self.again], [("b", "int3 at sched_clock_cpu+0x9/0x1f0")])

    def test_time_runs_out(self):
        found = self.run_boots(["a", "b"], ([UP, begin("a")], []), limit=-1, still_there=True)
        self.assertEqual({name: status for name, (status, _) in found.items()}, {"a": "failed", "b": "failed"})

    def test_what_a_dead_guest_had_is_for_the_next(self):
        found = self.run_boots(["a", "b"], ([UP, begin("a")], [PANIC]), ([UP, begin("b"), passed("b"), DONE], [END]))
        self.assertEqual({name: status for name, (status, _) in found.items()}, {"a": "failed", "b": "passed"})
        todo = [json.loads(path.read_text()) for path in self.place.glob("*/results/todo.json")]
        self.assertCountEqual(todo, [["a", "b"], ["b"]])

    def test_a_promised_capture_must_be_there(self):
        promise = {"a": Scenario("a", 1, "", None, leaves=".json"), "b": Scenario("b", 1, "", None)}
        with mock.patch.object(suite, "REGISTRY", promise):
            found = self.run_boots(["a", "b"], ([UP, passed("a"), passed("b"), DONE], [END]))
        self.assertEqual(found["a"], ("failed", "it left no a.json to be judged"))
        self.assertEqual(found["b"][0], "passed")


class Total(unittest.TestCase):
    """The sum comes whatever happens."""

    def setUp(self):
        place = self.enterContext(tempfile.TemporaryDirectory())
        self.enterContext(mock.patch.object(config, "BUILD", Path(place)))
        self.enterContext(mock.patch.object(sys, "stdout", io.StringIO()))

    def told(self):
        """What is in check.json, and on the terminal."""
        kept = json.loads((config.BUILD / "check.json").read_text(encoding="utf-8"))
        return {r["name"]: r["status"] for r in kept["results"]}, kept["booted_again"], sys.stdout.getvalue()

    def test_when_it_is_ended(self):
        with self.assertRaises(SystemExit), check.Sum(["a", "b"]) as total:
            total.add(suite.Result("a", "passed"))
            total.again.append({"during": "a", "report": "int3 at x", "console": "/c"})
            sys.exit(143)
        results, again, text = self.told()
        self.assertEqual(results, {"a": "passed", "b": "failed"})
        self.assertEqual(len(again), 1)
        self.assertIn("booted again 1 times", text)
        self.assertIn("1 passed, 1 failed, 0 skipped", text)


class Agent(unittest.TestCase):
    """The guest's side, with a kernel that says what it is told to."""

    def events(self, todo, logs, provokes=""):
        """Runs the agent; `logs` is what the log has at each look."""
        logs = iter(logs)
        registry = {name: Scenario(name, 1, "", None, provokes) for name in todo}
        with tempfile.TemporaryDirectory() as place, contextlib.ExitStack() as stack:
            (Path(place) / "todo.json").write_text(json.dumps(todo), encoding="utf-8")
            for what in (mock.patch.object(agent, "SETTINGS", {}), mock.patch.object(sys, "argv", ["agent", place]),
                         mock.patch.object(agent, "load_all", lambda: registry),
                         mock.patch.object(agent, "supervise", lambda *_: {"status": "passed", "detail": ""}),
                         mock.patch.multiple(kernel, note=mock.DEFAULT, hold_encapsulation=mock.DEFAULT),
                         mock.patch.object(kernel, "Log", lambda: mock.Mock(new=lambda: next(logs, []))),
                         mock.patch.object(kernel, "Baseline", lambda: mock.Mock(left_over=lambda *_: []))):
                stack.enter_context(what)
            agent.main()
            return [json.loads(line) for line in (Path(place) / "events.jsonl").read_text().splitlines()]

    def test_lines_between_scenarios_are_judged(self):
        late = ["WARNING: late"]
        for at, before in ((0, ""), (2, "a"), (4, "b")):
            logs = [late if n == at else [] for n in range(5)]
            found = [e for e in self.events(["a", "b"], logs) if e["event"] == "between"]
            self.assertEqual(found, [{"event": "between", "before": before, "lines": late}])
        self.assertEqual(self.events(["a", "b"], [])[-1], {"event": "done", "spoilt": False})

    def test_not_after_damage_on_purpose(self):
        found = self.events(["a"], [[], ["WARNING: wanted"], ["WARNING: late"]], "wanted")
        self.assertEqual([e["event"] for e in found], ["up", "start", "end", "done"])
        self.assertTrue(found[-1]["spoilt"])


class Words(unittest.TestCase):
    """Complaints, and what is none."""

    # What a kernel with all checks says, beside what debug.finds.* provoke, and then any.
    COMPLAINTS = (
        "WARNING: possible recursive locking detected",
        "WARNING: inconsistent lock state",
        "[ BUG: Invalid wait context ]",
        "WARNING: held lock freed!",
        "BUG: scheduling while atomic: python3/12/0x00000002",
        "DEBUG_LOCKS_WARN_ON(1)",
        "INFO: task rdma:12 blocked for more than 60 seconds.",
        "watchdog: BUG: soft lockup - CPU#0 stuck for 26s! [rdma:12]",
        "rcu: INFO: rcu_preempt detected stalls on CPUs/tasks:",
        "rust_kernel: panicked at rust/verbs/qp.rs:1:1:",
        "unregister_netdevice: waiting for v0 to become free. Usage count = 2",
        "ref_tracker: netdev@0 has 1/1 users at: leaked reference.",
        "usercopy: Kernel memory overwrite attempt detected to SLUB object 'kmalloc-64' (offset 0, size 65)!",
        "INFO: trying to register non-static key.",
        "workqueue: drain [ferroce] hogged CPU for >10000us 4 times, consider switching to WQ_UNBOUND",
        "page_pool_release_retry() stalled pool shutdown: id 9, 1 inflight 60 sec",
        "verbs_cases[812]: segfault at 8 ip 00007f0a sp 00007ffe error 4 in libferroce.so[5c31,7f0a+9000]",
        "traps: verbs_cases[9] trap invalid opcode ip:7f0a sp:7ffe error:0 in libferroce.so[5c31,7f0a+9000]",
        kernel.LOST,
        # A word in them does not excuse them.
        "watchdog: BUG: soft lockup - CPU#0 stuck for 26s! [clocksource]",
        "WARNING: CPU: 0 PID: 1 at kernel/time/clocksource.c:1 clocksource_watchdog+0x1/0x2",
        "BUG: KASAN: use-after-free in mitigation_x+0x1/0x2", "Oops: general protection fault in Speculation",
        "WARNING: lab: begin x")

    def test_complaints(self):
        for line in self.COMPLAINTS:
            for shown in (line, f"[   12.345678] {line}"):
                self.assertTrue(kernel.complaints([shown]), shown)

    def test_an_overrun_is_in_the_log(self):
        answers = iter([OSError(errno.EPIPE, ""), b"6,1,1,-;hello\n", BlockingIOError()])

        def read(*_):
            found = next(answers)
            if isinstance(found, bytes):
                return found
            raise found

        with mock.patch.multiple(kernel.os, open=mock.DEFAULT, lseek=mock.DEFAULT, read=read):
            self.assertEqual(kernel.Log().new(), [kernel.LOST, "hello"])


class Reports(unittest.TestCase):
    """What a scenario may make the kernel say."""

    OOM = ["verbs_cases invoked oom-killer: gfp_mask=0x500cc2", "Call Trace:", " <TASK>",
           "Memory cgroup out of memory: Killed process 7 (verbs_cases)"]

    def left(self, *lines):
        return kernel.complaints(kernel.without_reports(list(lines), "out of memory in a cgroup"))

    def test_nothing_else_is(self):
        self.assertTrue(self.left(*self.OOM, "Call Trace:"))
        self.assertTrue(self.left(*self.OOM[:-1], "Out of memory: Killed process 7 (verbs_cases)"))
