# SPDX-License-Identifier: GPL-2.0
"""The guest's part of `make bench`: both drivers side by side in one boot, measured in turns.

Usage: python3 -m tests.bench.guest RESULTS_DIR. RESULTS_DIR/plan.json has `rounds` and `times`, or `counting` in a guest
whose clock counts instructions (with `watch`, one operation for the host to look at), or `charts`; the figures go to RESULTS_DIR/events.jsonl as they come.
"""

import json
import os
import re
import subprocess
import sys
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import replace

from tests.bench import charts, plan
from tests.guest.agent import Events
from tests.guest.fabric import counters, join, linked, no_dad, read, two_ends, wait_until
from tests.guest.flavour import FERROCE, RXE
from tests.guest.programs import busy, on_cpu, run_both
from tests.guest.rdma_cm import connections, talk
from tests.guest.scenario import Failed, command, require, say
from tests.judges import kernel
from tests.scenarios.messages.perftest import PORT, converse
from tests.scenarios.ulp import nvme
from tests.scenarios.ulp.storage import two_links

FLAVOURS = {"ferroce": FERROCE, "rxe": RXE}
OPS = "/srv/lab/ops"
ATTEMPTS = 3


def ends_of(driver, stack):
    """Two devices of one driver in two namespaces of their own with veth between them. Both drivers are there at once:
    each has the RoCE port in its own namespaces."""
    both = [FLAVOURS[driver]] * 2
    ends = two_ends(*([f"{flavour.prefix}{kind}{n}" for n, flavour in enumerate(both)] for kind in "nv"), both)
    no_dad()
    for end in ends:
        stack.callback(command, ["ip", "netns", "del", end.netns], ok=None)
    join(*ends)
    return stack.enter_context(linked(ends, both))


@contextmanager
def both_drivers(events):
    """The two devices of each driver, by its name."""
    with ExitStack() as stack:
        ends = {driver: ends_of(driver, stack) for driver in plan.DRIVERS}
        events.put(event="up", release=os.uname().release, cpu=cpu_model())
        yield ends


def cpu_model():
    return next((line.partition(":")[2].strip() for line in (read("/proc/cpuinfo") or "").splitlines()
                 if line.startswith("model name")), "unknown")


def grown(before, after):
    return {name: after[name] - before[name] for name in after if after[name] != before.get(name, 0)}


def figures(row, found):
    require(len(found) == 1, f"{row.key}: {len(found)} result lines")
    field = [float(x) for x in found[0]]
    if row.kind == "latency":
        return {"value": field[4], "tail": field[8]}
    # The last column is in millions of messages a second.
    return {"value": field[4] * 1e6 if row.kind == "rate" else field[3]}


def measure(row, driver, ends):
    """One run of one row. perftest finds out anew each time how fast its clock runs, and on a busy machine it may find
    nothing, or nonsense: then it is asked again."""
    for _ in range(ATTEMPTS):
        result = run_once(row, driver, ends)
        if 0 < result["value"] < float("inf"):
            return result
    raise Failed(f"{row.key} on {driver}: perftest could not tell the time in {ATTEMPTS} attempts")


def places(place, ends):
    """Where a server and its client run: on one device, or at both ends."""
    return (ends[0], ends[0]) if place == "local" else ends


def run_once(row, driver, ends):
    if row.kind == "connections":
        return connect(row, ends)
    if row.kind == "disk":
        return read_disk(row, driver)
    server, client = places(row.place, ends)
    used = [server] if server is client else [server, client]
    before = [counters(end.dev) for end in used]
    both = [row.argv(end.dev, end.gid(), PORT) for end in (server, client)]
    if row.way == "pinned":
        # So that the two ends never share a processor.
        both = map(on_cpu, (0, 1), both)
    with busy() if row.way == "busy" else nullcontext():
        found = converse(f"{row.key} on {driver}", *both, (server, client), 60)
    result = figures(row, found)
    result["counters"] = [grown(b, counters(end.dev)) for b, end in zip(before, used)]
    return result


def connect(row, ends):
    """Connections made at once by librdmacm, with all their queue pairs' changes of state: so many a second."""
    argv = row.argv(None, None, None)
    out = talk(argv, [*argv, "-s", ends[0].ip4], ends)[1]
    # The second part of the output leaves the queue pairs out.
    took = re.search(r"qp_conn.*?full connect +\d+ +(\d+)", out, re.S)
    require(took, f"{row.key}: {out[-400:]}")
    return {"value": row.iters * 1e6 / float(took[1]), "counters": []}


def read_disk(row, driver):
    """Requests a second of a disk behind NVMe over Fabrics, between two devices that are made for it: host and target know the
    first namespace alone."""
    with two_links(replace(FLAVOURS[driver], prefix="nv")) as ends, nvme.target(ends[1].ip4), nvme.connected(*ends) as host:
        out = command([*row.argv(host.disk, None, None), "--output-format=json"], timeout=60).stdout
    return {"value": json.loads(out[out.index("{"):])["jobs"][0]["read"]["iops"], "counters": []}


def rounds(events, wanted, times):
    """All rounds. A row that fails is told, and left out from then on."""
    todo = plan.rows(times)
    broken = set()
    with connections(), both_drivers(events) as ends:
        for turn in range(wanted):
            order = plan.DRIVERS if turn % 2 == 0 else plan.DRIVERS[::-1]
            for row in todo:
                for driver in order:
                    if (row.key, driver) in broken:
                        continue
                    try:
                        events.put(event="figure", round=turn, row=row.key, driver=driver,
                                   **measure(row, driver, ends[driver]))
                    except Failed as e:
                        broken.add((row.key, driver))
                        events.put(event="broken", row=row.key, driver=driver, detail=str(e))


def distribution(row, ends):
    """Each latency that the client has seen, in microseconds. perftest prints them when it is asked for them unsorted."""
    server, client = (row.argv(end.dev, end.gid(), PORT) for end in ends)
    out = run_both(server, [*client, ends[0].tcp], ends, PORT, 60)[1]
    found = [float(value) for value in re.findall(r"^\d+, (\d+\.\d+)$", out, re.M)]
    require(len(found) > row.iters // 2, f"{row.key}: {len(found)} samples: {out[-400:]}")
    return found


def tcp(ends, size, often):
    """MiB/s of a TCP connection, by the program of librdmacm that compares its own sockets with it."""
    argv = ["rstream", "-T", "s", "-S", str(size), "-C", str(often), "-I", "1", "-p", str(PORT)]
    out = run_both([*argv, "-b", ends[0].ip4], [*argv, "-s", ends[0].ip4], ends, PORT, 60)[1]
    # Its last column, for the one of gigabits is 0.00 where messages are small.
    took = re.search(r"(\d+\.\d+)\s*$", out)
    require(took and float(took[1]), f"rstream: {out[-400:]}")
    return size / float(took[1]) * 1e6 / (1 << 20)


def draw(events, times):
    """The points of all charts. What fails is told, and leaves a gap."""
    with both_drivers(events) as ends:
        def point(chart, line, get):
            try:
                events.put(event="point", chart=chart.name, line=line, points=[p for p in get() if p[1] > 0])
            except Failed as e:
                events.put(event="broken", row=f"{chart.name}", driver=line, detail=str(e))

        for chart in charts.plans(times):
            for x, row in chart.rows.items():
                for driver, pair in ends.items():
                    where = places(row.place, pair)
                    if row.kind == "distribution":
                        point(chart, charts.DRIVERS[driver], lambda: charts.parts_of(distribution(row, where)))
                    else:
                        point(chart, charts.DRIVERS[driver], lambda: [(x, measure(row, driver, pair)["value"])])
                if chart.tcp:
                    point(chart, charts.TCP, lambda: [(x, tcp(where, x, row.iters))])


def instructions(events):
    """What one operation costs: see ops.c. Both ends are in one process, which may use devices of any namespace."""
    with both_drivers(events) as ends:
        for place in plan.PLACES:
            for driver in plan.DRIVERS:
                one, two = places(place, ends[driver])
                try:
                    out = command([OPS, one.dev, str(one.gid()), two.dev, str(two.gid())], timeout=120).stdout
                except Failed as e:
                    events.put(event="broken", row=f"{place}: instructions", driver=driver, detail=str(e))
                    continue
                for name, value in (line.rsplit(": ", 1) for line in out.splitlines()):
                    if name == "note":
                        events.put(event="note", text=f"{place}, {driver}: {value}")
                    else:
                        events.put(event="instructions", place=place, row=name, driver=driver, value=int(value))


# How often the messages of a row are sent while the host looks: most of the time is theirs then, and not the start's.
TIMES_WATCHED = 30


def write_symbols(where, driver):
    """For the host: which function is where."""
    with open(f"{where}/{driver}.symbols", "w", encoding="utf-8") as out:
        out.write(read("/proc/kallsyms"))


def watched_row(events, where, name):
    """Runs the tool of one row with each driver while the host looks at the processors."""
    row = next(row for row in plan.rows(times=TIMES_WATCHED) if row.name == name)
    with connections(), both_drivers(events) as ends:
        for driver in plan.DRIVERS:
            write_symbols(where, driver)
            events.put(event="watch", driver=driver)
            measure(row, driver, ends[driver])
            events.put(event="watched", driver=driver)


def watched(events, where, place, row):
    """Repeats one operation of ops.c with each driver until the host has said by a file that it has looked."""
    with both_drivers(events) as ends:
        for driver in plan.DRIVERS:
            one, two = places(place, ends[driver])
            argv = [OPS, one.dev, str(one.gid()), two.dev, str(two.gid()), row]
            with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as ops:
                try:
                    mark, batch = ops.stdout.readline().split()
                    write_symbols(where, driver)
                    with open(f"{where}/{driver}.maps", "w", encoding="utf-8") as out:
                        out.write(read(f"/proc/{ops.pid}/maps"))
                    events.put(event="watch", driver=driver, mark=mark, batch=int(batch))
                    wait_until("the host has looked", lambda: os.path.exists(f"{where}/{driver}.seen"), 300)
                finally:
                    ops.kill()


def main():
    """Runs the plan; what the kernel complains of is passed on with the end."""
    where = sys.argv[1]
    with open(f"{where}/plan.json", encoding="utf-8") as f:
        wanted = json.load(f)
    events = Events(f"{where}/events.jsonl")
    log = kernel.Log()
    failure = ""
    try:
        if wanted.get("watch"):
            (watched if wanted.get("counting") else watched_row)(events, where, *wanted["watch"])
        elif wanted.get("counting"):
            instructions(events)
        elif wanted.get("charts"):
            draw(events, wanted.get("times", 1))
        else:
            rounds(events, wanted["rounds"], wanted.get("times", 1))
    except Failed as e:
        failure = str(e)
    say(f"ended {failure}")
    events.put(event="done", failure=failure, complaints=kernel.complaints(log.new()))


if __name__ == "__main__":
    main()
