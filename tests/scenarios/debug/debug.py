# SPDX-License-Identifier: GPL-2.0
"""What only a debug kernel can be asked: the module's own unit tests, what leaked, and whether its checks still stand."""

import errno
import glob
import json
import os
import re
from contextlib import closing, contextmanager, nullcontext

from tests.guest import flavour, netlink
from tests.guest.cases import cases
from tests.guest.fabric import acquaint, counters, loop, read, wait_until, write
from tests.guest.peer import exchange
from tests.guest.scenario import CHECKS, SEED, Failed, add, command, last_line, require, say, scenario
from tests.judges import kernel, leaks
from tests.scenarios.losses.fault import controlled
from tests.scenarios.messages.pingpong import talk
from tests.scenarios.paths.isolation import victim
from tests.scenarios.verbs.counters import Stage, in_pieces

KUNIT = "/sys/kernel/debug/kunit"
# Where the host puts what the guest needs: the programs, and the tests that the sources contain.
HERE = os.path.join(os.path.dirname(__file__), "..", "..", "..")
EXPECTED = os.path.join(HERE, "kunit.json")
PLANTED = os.path.join(HERE, "ferroce_planted.ko")


def ktap(text):
    """The verdicts in the KTAP of one suite: test -> "ok", "not ok" or "skipped"; and the plan."""
    found, plan = {}, None
    for line in text.splitlines():
        if match := re.match(r"\s+1\.\.(\d+)$", line):
            plan = int(match.group(1))
        elif match := re.match(r"\s+(ok|not ok) \d+ (\S+)(.*)$", line):
            word, name, rest = match.groups()
            found[name] = "skipped" if word == "ok" and "# SKIP" in rest else word
    return found, plan


def judge_kunit(expected, suites):
    """What is wrong with these outputs of suites, if anything, given the names of the tests in the sources."""
    wrong = [f"{suite} is not in the kernel" for suite in expected if suite not in suites]
    wrong += [f"{suite} is not in the sources" for suite in suites if suite not in expected]
    for suite in expected:
        found, plan = ktap(suites.get(suite, ""))
        if suite in suites and plan != len(expected[suite]):
            wrong.append(f"{suite} has {plan} tests, the sources have {len(expected[suite])}")
        wrong += [f"{suite}.{test}: {found.get(test, 'did not run')}" for test in expected[suite]
                  if suite in suites and found.get(test) != "ok"]
    return wrong


@scenario("debug.kunit", 120, machine=CHECKS)
def kunit(report):
    """The unit tests of the pure code, as they are on the host, run in the kernel: every one that the sources have."""
    module = flavour.current().module
    command(["modprobe", module])
    with open(EXPECTED, encoding="utf-8") as f:
        expected = json.load(f)
    suites = {}
    for folder in sorted(glob.glob(f"{KUNIT}/{module}_*")):
        write(f"{folder}/run", 1)
        suites[os.path.basename(folder)] = output = read(f"{folder}/results") or ""
        print(output)
    wrong = judge_kunit(expected, suites)
    report.note(f"{sum(map(len, expected.values()))} tests in {len(suites)} suites")
    require(not wrong, "; ".join(wrong))


# The kinds of failure that fail-nth knows, each with its switches: none of them is to leave anything out.
FAULTS = {"failslab": {"ignore-gfp-wait": "N"},
          "fail_page_alloc": {"ignore-gfp-wait": "N", "ignore-gfp-highmem": "N", "min-order": "0"},
          "fail_usercopy": {}}


def prepare_faults(report):
    """Lets memory be refused to a thread that asks for it, with no other words in the log than these."""
    report.allow("vmalloc was refused memory", "kmemleak was refused memory", "a page fault was refused memory")
    for kind, switches in FAULTS.items():
        for name, value in (switches | {"verbose": "0"}).items():
            write(f"/sys/kernel/debug/{kind}/{name}", value)


class Failing:
    """The nth chance to fail of what this thread asks the kernel fails. `came`: whether it had that many."""

    def __init__(self, nth):
        self.nth = nth
        self.came = False

    def __enter__(self):
        self.control = os.open("/proc/thread-self/fail-nth", os.O_RDWR | os.O_CLOEXEC)
        os.pwrite(self.control, str(self.nth).encode(), 0)

    def __exit__(self, *_):
        # What is copied here counts, too: if that was the chance then there were fewer before.
        try:
            self.came = os.pread(self.control, 16, 0).strip() == b"0"
            os.pwrite(self.control, b"0", 0)
        except OSError as e:
            if e.errno != errno.EFAULT:
                raise
            self.came = False
        finally:
            os.close(self.control)


@scenario("debug.scarce.verbs", 200, machine=CHECKS)
def scarce_verbs(report):
    """Each step of a program's life with each of its allocations refused: it fails cleanly or works, nothing leaks."""
    prepare_faults(report)
    with loop(False) as end:
        for line in cases("scarce")[0].run(end).splitlines()[:-1]:
            report.note(line)
        talk((end, end), 4, 1024, iters=3)


# Of the chances beyond so many, which are ib_core's thousand files of a port, only every 97th, and of the last 97 the others.
EACH, STRIDE = 256, 97
# Of the others one in so many, drawn by chance: each run has other ones.
EVERY = 8


def scarcely(report, what, act, happened, undo):
    """Does `act` with an early chance failing, then with a later one, until it has fewer; then it is done. Returns how often
    it was refused. An answer may be lost though it was done: what is there decides."""
    strides = [EVERY, STRIDE, EVERY]
    nth, tried, refused = SEED % EVERY + 1 - EVERY, 0, 0
    while strides:
        nth, tried = nth + strides[0], tried + 1
        failing = Failing(nth)
        try:
            act(failing)
        except OSError as e:
            say(f"{what}, chance {nth}: {e}")
        if not happened():
            require(failing.came, f"{what} was refused though nothing failed")
            refused += 1
        elif failing.came or strides[0] == STRIDE:
            undo()
        if failing.came:
            if len(strides) == 3 and nth >= EACH:
                strides.pop(0)
        elif strides[0] == STRIDE:
            # Beyond the end: those that were left out before it; then it is done.
            nth -= strides.pop(0)
        else:
            strides.clear()
    report.note(f"{what}: {nth} chances, {refused} of {tried} times refused")
    return refused


@scenario("debug.scarce.links", 300, machine=CHECKS)
def scarce_links(report):
    """A link is added and deleted with allocations on the way refused, others in each run: it is there whole or not at all."""
    say(f"FERROCE_SEED={SEED}")
    prepare_faults(report)
    command(["modprobe", flavour.current().module])
    netns = netlink.NetNs()

    def there():
        return "fn0" in netlink.rdma_devices()

    def gone():
        return not there()

    def add_link(around=nullcontext()):
        netlink.rdma_link_add(netns, "fn0", "ferroce", "n0", around)

    def delete_link(around=nullcontext()):
        netlink.rdma_link_delete(netlink.rdma_devices()["fn0"], around)

    def take_back():
        delete_link()
        wait_until("the device goes", gone)

    try:
        netns.run(lambda: command(["ip", "link", "add", "n0", "type", "dummy"]))
        netns.run(lambda: command(["ip", "link", "set", "n0", "up"]))
        refused = scarcely(report, "adding a link", add_link, there, take_back)
        require(EVERY * refused > 20, f"only {refused} of the additions were refused")
        scarcely(report, "deleting a link", delete_link, gone, add_link)
    finally:
        netns.run(lambda: command(["ip", "link", "del", "n0"], ok=None))
        netns.delete()
    wait_until("the device goes", gone, 20)


@contextmanager
def failing(percent):
    """So many of a hundred allocations fail, of anybody, that may not wait: not those of system calls."""
    switches = {"probability": percent, "times": -1, "interval": 1, "task-filter": "N", "ignore-gfp-wait": "Y", "verbose": 0}

    def write_all(kind, **values):
        for name, value in values.items():
            write(f"/sys/kernel/debug/{kind}/{name}", value)

    kinds = ("failslab", "fail_page_alloc")
    try:
        for kind in kinds:
            write_all(kind, **(switches | ({"min-order": 0} if kind == "fail_page_alloc" else {})))
        yield
    finally:
        for kind in kinds:
            write_all(kind, probability=0, times=0)


@scenario("debug.scarce.receiving", 300, machine=CHECKS)
def scarce_receiving(report):
    """Memory is refused where packets are received and answered: what came in pieces is counted as dropped for want of
    memory; streams end with the right data, or with an error; and afterwards all works."""
    report.allow("vmalloc was refused memory", "kmemleak was refused memory", "a page fault was refused memory")
    with controlled() as ends:
        acquaint(*ends)
        with victim(ends, 4) as target:
            stage = Stage(ends, target)
            with closing(stage.wire):
                target.make("ud")

                def one_is_taken():
                    before = counters(ends[0].dev)["rx_linearized"]
                    in_pieces(stage)
                    wait_until("one is taken", lambda: counters(ends[0].dev)["rx_linearized"] > before)

                # From then on the kernel knows its way to us, which takes memory, too.
                one_is_taken()
                before = counters(ends[0].dev)["drop_no_memory"]
                with failing(100):
                    # The sender's own copy may be refused before it comes to us.
                    wait_until("a packet is dropped for want of memory",
                               lambda: in_pieces(stage) or counters(ends[0].dev)["drop_no_memory"] > before)
                one_is_taken()
        for percent in (1, 10):
            try:
                with failing(percent):
                    exchange(ends, 4, "-t", 14, "-s", "1,M+1,65536", "-n", 4)
                report.note(f"{percent} %: all data arrived")
            except Failed as e:
                require(re.search(r"exit (3|4)\b", str(e)), f"with {percent} % refused: {e}")
                report.note(f"{percent} %: {e}")
            for end in ends:
                report.note(f"{end.dev}: {({name: n for name, n in counters(end.dev).items() if n})}")
        exchange(ends, 4)


@scenario("debug.lockdep", 60, machine=CHECKS)
def lockdep(report):
    """Lockdep switches itself off at its first report and when it runs out of room: it must still be on."""
    stats = read("/proc/lockdep_stats") or ""
    found = re.search(r"debug_locks:\s*(\d)", stats)
    require(found, "this kernel has no lockdep")
    report.note(stats)
    require(found.group(1) == "1", "lockdep is switched off")


@scenario("debug.leaks", 180, machine=CHECKS)
def nothing_lost(report):
    """Nothing allocated by the module, or for it, is out of reach, neither while it is loaded nor afterwards."""
    module = flavour.current().module
    with loop():
        pass
    judge(report, "while the module is loaded", leaks.scan())
    if os.path.isdir(f"/sys/module/{module}"):
        command(["modprobe", "-r", module])
    require(not kernel.refcount(), "the module stays")
    judge(report, "after unloading", leaks.scan())


def judge(report, when, listed):
    """Fails with the first object and its allocation's stack in one line; the log has them all."""
    print(f"{len(listed)} leaks {when}\n{''.join(listed)}")
    found = [o for o in listed if not leaks.is_of_ib_core(o)]
    if listed and not found:
        report.allow("kmemleak found something")
        report.note(f"{len(listed)} objects that ib_core itself has lost, {when}")
    if found:
        first = " | ".join(line.strip() for line in found[0].splitlines()[:14])
        raise Failed(f"{len(found)} leaks {when}: {first}")


# The bugs of ferroce_planted.c with what the kernel says of each, in running order: a report of KASAN switches lockdep
# off, and so does lockdep's own.
PLANTS = (
    ("sleep-in-atomic", "BUG: sleeping function called from invalid context"),
    ("rcu-unprotected", "WARNING: suspicious RCU usage"),
    ("list-corruption", "list_del corruption"),
    ("timer-freed", "ODEBUG: free active .* object type: hrtimer"),
    ("leak", "kmemleak: .* new suspected memory leaks"),
    ("lock-order", "WARNING: possible circular locking dependency"),
    ("use-after-free", "BUG: KASAN: slab-use-after-free"),
    ("vmalloc-out-of-bounds", "BUG: KASAN: vmalloc-out-of-bounds"),
)


def plant(_report, bug):
    """A module with that bug is loaded, which the kernel reports."""
    done = command(["insmod", PLANTED, f"bug={bug}"], ok=None)
    require("canceled" in last_line(done.stdout).lower(), f"the bug was not planted: {last_line(done.stdout)}")
    if bug == "leak":
        # The module is gone, and its names with it.
        found = [o for o in leaks.scan() if 'comm "insmod"' in o]
        require(len(found) >= 8, f"kmemleak found {len(found)} of 16 objects")
        leaks.write("clear")


for _bug, _says in PLANTS:
    add(f"debug.finds.{_bug}", 120 if _bug == "leak" else 30, f"the debug kernel reports a planted bug: {_bug}",
        plant, _bug, provokes=_says, machine=CHECKS)
