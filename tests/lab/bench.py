# SPDX-License-Identifier: GPL-2.0
"""`make bench`: ferroce against the kernel's own rdma_rxe in one boot; a table here, JSON in build/bench."""

import json
import shlex
import time
import tomllib
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Callable

from tests.bench import charts, plan, summary
from tests.guest.scenario import PATIENCE
from tests.lab import boot, build, config, made, profile, say, um
from tests.lab.suite import Reader

OUT = config.BUILD / "bench"
# The ratios to rdma_rxe that were reached, by how they were measured. Each run leaves its own beside bench.json, to be copied
# here when they are better.
REACHED = config.CHECKOUT / "tests/bench/reached.toml"
# No figure for so long means that the guest hangs.
SILENCE = 60 * PATIENCE
LIMIT = 45 * 60
# Whose copies from and to a program cost what they do on machines that people have.
MACHINE = boot.Machine(smap=True)


def counter(root):
    """build/lab/ops, which counts instructions."""
    build.LAB.mkdir(parents=True, exist_ok=True)
    build.run_in_root(root, "cc -std=gnu11 -O2 -Wall -Wextra -Wno-missing-field-initializers -Wno-unused-parameter "
                      f"-Werror -I {build.LIBRARY} -o build/lab/ops tests/bench/ops.c {build.LIBRARY}/*.c -libverbs", "building the program ops")
    return build.LAB / "ops"


def run(root, count):
    """Measures and shows; 0 when every row has its figures and the kernel has nothing to complain of. A target that
    is missed is shown, and is no failure: the figures are the result. `count`: instructions alone."""
    began = time.monotonic()
    bed = stock(root)
    turns = {"rounds": 0 if count else plan.ROUNDS}
    events, faults = boot_and_measure(bed, turns) if turns["rounds"] else ([], [])
    more, others = boot_and_measure(bed, {"rounds": 0, "counting": True})
    return tell(bed, events + more, turns, faults + others, began)


def told(faults):
    """Says what went wrong; the exit status."""
    for fault in faults:
        say.line(f"failed: {fault}")
    return 1 if faults else 0


def spent(root, row):
    """Shows what the instructions of one operation are spent on, if `row` is one of the instruction table, such as
    `veth: SEND 64 B`; or where the processors are while a tool runs, if it is one of the others."""
    if row in {one.name for one in plan.rows()}:
        return sampled(root, row)
    place, _, operation = row.partition(": ")
    place = next((short for short, words in plan.PLACES.items() if words == place), None)
    if not place:
        raise say.LabError(f"{row}: a row of the instruction table begins with one of: "
                           f"{', '.join(f'{words}: ' for words in plan.PLACES.values())}")
    results = {}

    def watched(guest, event):
        if event["event"] == "watch":
            results[event["driver"]] = profile.watch(guest, event)

    wanted = {"rounds": 0, "counting": True, "watch": [place, operation]}
    _, faults = boot_and_measure(stock(root), wanted, watched)
    if len(results) == len(plan.DRIVERS):
        profile.show(f"Instructions of one operation, {row}", results)
    return told(faults)


def sampled(root, row):
    """Shows where the processors are while the tool of a row runs."""
    results, samplers = {}, {}

    def watched(guest, event):
        driver = event.get("driver")
        if event["event"] == "watch":
            say.step(f"look at {driver}")
            samplers[driver] = profile.Sampler(guest, profile.names_of(guest, driver))
        elif event["event"] == "watched":
            results[driver] = samplers[driver].end()

    _, faults = boot_and_measure(stock(root), {"rounds": 0, "watch": [row]}, watched)
    for driver, found in results.items():
        profile.show(f"{driver}, {row}: where each processor was, in percent", found)
    return told(faults)


@dataclass(frozen=True)
class Bed:
    """Where it is measured: the kernel's release, how instructions are carried out, what makes a guest in a folder."""

    release: str
    how: str
    guest: Callable


def stock(root):
    lines, kvm = [*build.install_lines(root), *bench_lines(root)], boot.kvm_works(root)
    return Bed(root.release, f"{'KVM' if kvm else 'emulated'}, {boot.emulator(boot.qemu(kvm))}",
               lambda work, wanted: boot.Guest(root, work, AGENT, kvm, lines, counting=wanted.get("counting", False),
                                               machine=MACHINE))


@contextmanager
def fast(root, what):
    """The fast guest, where nothing is emulated."""
    kernel = made.make(root, um.PLAIN)
    lines = [*build.native_install(kernel.release, build.provider(root), made.modules(kernel)[0]), *bench_lines(root)]
    with um.alone(what) as held:
        yield Bed(kernel.release, NATIVE, lambda work, _wanted: um.Guest(kernel, work, AGENT, True, lines, lock=held))


def run_native(root):
    """The same in the fast guest; it cannot count instructions."""
    began = time.monotonic()
    turns = {"rounds": plan.ROUNDS, "times": plan.NATIVE_TIMES}
    with fast(root, "make bench GUEST=um") as bed:
        events, faults = boot_and_measure(bed, turns)
    return tell(bed, events, turns, faults, began)


def draw(root, native):
    """Measures once what charts show, and writes them as SVG; 0 when every point is there. `native`: in the fast guest."""
    began = time.monotonic()
    wanted = {"charts": True, "rounds": 1} | ({"times": charts.NATIVE_TIMES} if native else {})
    with fast(root, "make bench CHARTS=1 GUEST=um") if native else nullcontext(stock(root)) as bed:
        events, faults = boot_and_measure(bed, wanted)
    about = summary.machine({"kernel": bed.release, "how": bed.how, "cpus": summary.cpus(events)})
    OUT.mkdir(parents=True, exist_ok=True)
    for chart in charts.collect(events):
        path = OUT / f"{chart.name}.svg"
        path.write_text(chart.draw(f"{time.strftime('%Y-%m-%d')}; {about}"), encoding="utf-8")
        say.line(str(path))
    say.line(f"{time.monotonic() - began:.0f} s with the boot")
    return told(faults)


AGENT = "python3 -m tests.bench.guest /srv/results"
NATIVE = "native, User Mode Linux: a system call takes 10 us, the CRC of packets is a table's"


def bench_lines(root):
    """The shell lines that put the benchmark itself into the guest's root."""
    q = shlex.quote
    return [f"cp {q(str(counter(root)))} $M/srv/lab/",
            f"cp -r {q(str(config.CHECKOUT / 'tests/bench'))} $M/srv/lab/tests/"]


def tell(bed, events, turns, faults, began):
    result = summary.summarize(events)
    record = REACHED.read_text(encoding="utf-8")
    before = tomllib.loads(record)
    faults = faults + summary.lost(before, summary.reached(result, bed.how, "most"))
    OUT.mkdir(parents=True, exist_ok=True)
    kept = summary.as_toml(summary.merged(before, summary.reached(result, bed.how)))
    head = record.split("\n[")[0].rstrip()
    (OUT / REACHED.name).write_text(f"{head}\n{kept}", encoding="utf-8")
    result |= {"kernel": bed.release, "how": bed.how, "rounds": turns["rounds"], "faults": faults,
               "seconds": round(time.monotonic() - began)}
    show(result)
    if turns["rounds"] and result["instructions"]:
        about = f"{time.strftime('%Y-%m-%d')}; {summary.machine(result)}"
        (OUT / "performance.md").write_text("\n".join(summary.page(result, before, about)) + "\n", encoding="utf-8")
    return 1 if faults else 0


def boot_and_measure(bed, wanted, on_event=lambda guest, event: None):
    """One boot of a guest, which does what is wanted; its events, and what went wrong."""
    work = boot.fresh_work("bench")
    guest = bed.guest(work, wanted)
    (guest.results / "plan.json").write_text(json.dumps(wanted), encoding="utf-8")
    how = "counting instructions" if wanted.get("counting") else guest.how
    say.step(f"boot the {guest.WHAT} {guest.root.release} ({how}), log in {work}")
    guest.start()
    try:
        events, why = watch(guest, wanted, on_event)
    finally:
        guest.stop()
    faults = [why] if why else []
    for event in events:
        if event["event"] == "broken":
            faults.append(f"{event['row']} on {event['driver']}: {event['detail']}")
        elif event["event"] == "done":
            faults += [event["failure"]] if event["failure"] else []
            faults += [f"kernel: {line.strip()}" for line in event["complaints"]]
    if why:
        say.quote(guest.console_tail() + guest.output_tail())
    return events, faults


def watch(guest, wanted, on_event):
    """Follows the guest to its end; returns its events, and what went wrong if it did not end by itself."""
    reader = Reader(guest.results / "events.jsonl")
    events, up, turn = [], False, -1
    deadline, since = guest.began + LIMIT, guest.began
    while True:
        alive = guest.alive()
        for event in reader.new():
            events.append(event)
            on_event(guest, event)
            since = time.monotonic()
            up = up or event["event"] == "up"
            if event["event"] == "done":
                return events, None
            if event["event"] == "point" and event["chart"] != turn:
                turn = event["chart"]
                say.step(turn)
            if event["event"] == "figure" and event["round"] != turn:
                turn = event["round"]
                say.step(f"round {turn + 1} of {wanted['rounds']}")
        now = time.monotonic()
        if not alive:
            return events, "the guest died" if up else "the guest did not boot"
        if now > deadline or now - since > (SILENCE if up else guest.BOOT_LIMIT):
            return events, "the guest hangs"
        time.sleep(0.2)


def show(result):
    say.line(f"\n{summary.machine(result)}")
    timed = result["rounds"] > 0
    for way, words in plan.WAYS.items() if timed else ():
        say.line(f"\nferroce and rdma_rxe, {words} (medians of {result['rounds']}, MTU 4096 if not said):")
        say.table(*summary.table([row for row in result["rows"] if row["way"] == way]))
    if result["instructions"]:
        say.line("\nInstructions of one operation, everybody's together, on one processor that is given away when there is "
                 "nothing to do:")
        say.table(*summary.instruction_table(result["instructions"]))
    if timed:
        rated = [row for row in result["rows"] if "met" in row]
        say.line(f"\n{sum(row['met'] for row in rated)} of {len(result['rows'])} rows reach what is wanted; a ratio "
                 "above 1 is ferroce's. Only ratios mean something elsewhere.")
    for note in result["notes"]:
        say.line(f"note: {note}")
    for fault in result["faults"]:
        say.line(f"failed: {fault}")
    if timed:
        say.line(f"\nThe tables of Documentation/performance.md: {OUT}/performance.md")
    OUT.mkdir(parents=True, exist_ok=True)
    (OUT / "bench.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    say.line(f"{OUT}/bench.json; {result['seconds']} s with the boot")
