# SPDX-License-Identifier: GPL-2.0
"""Everything is taken away under running traffic, in every order; nothing hangs, nothing is left.

There are seven acts: a process destroys its objects, closes its command file, or is killed; a link, a net device, a
network namespace is deleted; the module is unloaded. `teardown.pairs` does each alone and all ordered pairs of them;
`teardown.orders` does all seven, in orders drawn from a seed, as many as FERROCE_ROUNDS says, and `teardown.some-orders` a
few. FERROCE_SEED names the orders; a round that fails says its own seed.
"""

import ctypes
import errno
import itertools
import os
import random
import signal
import threading
import time
from collections import Counter

from tests.guest import flavour
from tests.guest.fabric import devices, read, wait_until
from tests.guest.scenario import PATIENCE, SEED, SHORT, Failed, add, command, require, say
from tests.judges import kernel, leaks
from tests.scenarios.link.link_life import loaded, unload
from tests.scenarios.teardown.traffic import DEVICES, Site, Traffic

ACTS = ("destroy", "close", "kill", "delete the link", "delete the net device", "delete the namespace",
        "unload the module")
# Rounds of `teardown.orders`: enough for each ordered triple of acts, and to see what a round leaves behind.
ROUNDS = int(os.environ.get("FERROCE_ROUNDS", "20" if SHORT else "60"))
FEW_ROUNDS = 12
# Seconds for one act while processes hold the device open, stopped ones among them. It needs a fraction of one.
ACT_LIMIT = 20

SIZES = (1, 4097, 65536, 1 << 18)
DELETE_MODULE = 176
libc = ctypes.CDLL(None, use_errno=True)


class Refused(Exception):
    """An act that came too late, for what it takes away is gone already."""


# What the kernel says of an act that comes too late: no device of this number; no netdev, or no namespace that it could
# be in; no module, or one that is in use.
LATE = {"delete the link": {errno.EINVAL}, "delete the net device": {errno.ENODEV, errno.EBADF},
        "unload the module": {errno.ENOENT, errno.EWOULDBLOCK}}


def delete_module():
    """What `modprobe -r` does, without the time that a program takes to start."""
    if libc.syscall(DELETE_MODULE, flavour.current().module.encode(), os.O_NONBLOCK):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


class Act(threading.Thread):
    """One act, which runs beside the others; it may be refused, but it must end."""

    def __init__(self, name, act):
        super().__init__(daemon=True)
        self.what = name
        self.act = act
        self.refused = self.broken = None
        self.seconds = 0.0

    def run(self):
        began = time.monotonic()
        try:
            self.act()
        except Refused as e:
            self.refused = str(e)
        except Exception as e:  # pylint: disable=broad-except
            if isinstance(e, OSError) and e.errno in LATE.get(self.what, ()):
                self.refused = str(e)
            else:
                self.broken = f"{type(e).__name__}: {e}"
        self.seconds = time.monotonic() - began

    def finish(self):
        self.join(ACT_LIMIT * PATIENCE)
        if self.is_alive():
            stack = read(f"/proc/self/task/{self.native_id}/stack") or "?"
            raise Failed(f"{self.what} hangs: {stack}")
        require(not self.broken, f"{self.what}: {self.broken}")


def signal_to(traffic, pid, number):
    def act():
        if pid in traffic.ended:
            raise Refused("it has ended")
        traffic.signal(pid, number)

    return act


def removals(site, traffic, rng):
    """The seven acts of one round, each with a victim."""
    # Three of the four processes do something themselves if the order has it; the others look on.
    victims = rng.sample(traffic.pids(), 3)
    number = {"destroy": signal.SIGUSR1, "close": signal.SIGUSR2, "kill": signal.SIGKILL}
    acts = {name: signal_to(traffic, pid, number[name]) for name, pid in zip(number, victims)}
    side = rng.randrange(2)
    acts["delete the link"] = lambda: site.delete_link(side)
    acts["delete the net device"] = lambda: site.delete_netdev(1 - side)
    acts["delete the namespace"] = lambda: site.delete_space(side)
    acts["unload the module"] = delete_module
    return acts, dict(zip(number, victims)), side


def one_round(traffic, order, rng):
    """Builds, runs traffic, takes away what `order` says, and then the rest. Returns the acts, and whether both devices have
    outlived them."""
    began = time.monotonic()
    site = Site()
    try:
        one, two = site.places()
        size = rng.choice(SIZES)
        # By packets, and the other way round or by the local path of one device.
        traffic.start([(one, two, size), (two, rng.choice((one, two)), rng.choice(SIZES))])
        built = time.monotonic()
        what, victims, side = removals(site, traffic, rng)
        # A process that is stopped holds everything open and does nothing: nothing may wait for it.
        busy = [pid for name, pid in victims.items() if name in order]
        stopped = [pid for pid in traffic.pids() if pid not in busy and rng.random() < 0.5]
        for pid in stopped:
            traffic.signal(pid, signal.SIGSTOP)
        pauses = [rng.choice((0, 0, 0.002, 0.02, 0.1)) for _ in order]
        acts = []
        for name, pause in zip(order, pauses):
            acts.append(Act(name, what[name]))
            acts[-1].start()
            time.sleep(pause)
        for act in acts:
            act.finish()
        # Only if it was gone, or going, may the kernel have refused to delete it.
        if "delete the link" in order:
            wait_until("the link whose device is deleted goes", lambda: DEVICES[side] not in devices(), 20)
        acted = time.monotonic()
        # Those that are left post and poll on rings whose queues are gone, those that were stopped too.
        for pid in stopped:
            traffic.signal(pid, signal.SIGCONT)
        time.sleep(0.02)
        traffic.kill_all()
        survived = set(devices()) == set(DEVICES)
        if survived:
            wait_until("nothing of the programs is left", lambda: not leaks.resources(), 10)
    finally:
        site.take_down()
    wait_until("the module is free", lambda: not kernel.refcount(), 20)
    say(f"{size} bytes, {len(stopped)} stopped, built in {built - began:.2f} s, taken away in {acted - built:.2f} s: "
        + ", ".join(f"{act.what}{' (late)' if act.refused else ''} +{pause}" for act, pause in zip(acts, pauses)))
    return acts, survived


def orders(report, all_orders, seed, slopes=not SHORT):
    """Runs rounds in these orders; measures what is left, before, on the way and after."""
    # What goes round in one machine must not be lost: it would be for want of a processor alone.
    command(["sysctl", "-q", "-w", "net.core.netdev_max_backlog=20000"])
    acts, surviving, samples = [], 0, []

    def sample(rounds):
        if loaded():
            unload()
        samples.append((rounds, leaks.Stock()))

    with Traffic() as traffic:
        # The first rounds fill caches that stay; the others are measured in four parts, where slopes are judged.
        warm, parts = min(8, len(all_orders) // 4), 4 if slopes else 1
        marks = {warm + (len(all_orders) - warm) * part // parts for part in range(parts)}
        for number, order in enumerate(all_orders):
            if number in marks:
                sample(number)
            try:
                done, survived = one_round(traffic, order, random.Random(seed + number))
            except Failed as e:
                raise Failed(f"round {number}, seed {seed + number}, {', '.join(order)}: {e}") from None
            acts += done
            surviving += survived
        sample(len(all_orders))
    done = Counter(act.what for act in acts if not act.refused)
    report.note(f"{len(all_orders)} rounds; " + ", ".join(f"{name} {done[name]}" for name in ACTS) +
                f"; {len(acts) - done.total()} acts came too late; the slowest took {max(act.seconds for act in acts):.2f} s; "
                f"{surviving} rounds left both devices, with `rdma res` empty")
    # An act that never comes to anything would be no test.
    for name in ACTS:
        require(done[name], f"not once was there something to {name}")
    # A kernel full of checks holds back what was freed; it has kmemleak instead.
    for line in leaks.judge(samples, slopes):
        report.note(line)


def closed(_report):
    """Closing the command file gives everything back at once, although the files of events stay open."""
    with Traffic() as traffic:
        site = Site()
        try:
            one, two = site.places()
            traffic.start([(one, two, 4097), (one, one, 65536)])
            require(leaks.resources(), "rdma res shows nothing of running programs")
            for pid in traffic.pids():
                traffic.signal(pid, signal.SIGUSR2)
            traffic.until("they have closed", lambda: traffic.closed >= set(traffic.pids()))
            wait_until("nothing of the programs is left", lambda: not leaks.resources(), 10)
            wait_until("no memory is pinned any more", lambda: not leaks.pinned(), 10)
            require(len(traffic.alive()) == 4, f"they have ended: {traffic.ended}")
            # Their files of events are still open.
            unload()
            traffic.kill_all()
        finally:
            site.take_down()


def pairs(report):
    all_pairs = list(itertools.permutations(ACTS, 2))
    orders(report, [(act,) for act in ACTS] + (all_pairs[::4] if SHORT else all_pairs), SEED)


def few(report):
    rng = random.Random(SEED)
    orders(report, [tuple(rng.sample(ACTS, len(ACTS))) for _ in range(FEW_ROUNDS)], SEED, slopes=False)


def drawn(report):
    """All seven, in drawn orders."""
    rng = random.Random(SEED)
    triples, every = set(), len(list(itertools.permutations(ACTS, 3)))
    # Of so many rounds hardly ever one of the triples is missing; then others are drawn.
    while len(triples) < (every if ROUNDS >= 60 else 1):
        all_orders = [tuple(rng.sample(ACTS, len(ACTS))) for _ in range(ROUNDS)]
        triples = {triple for order in all_orders for triple in itertools.combinations(order, 3)}
    report.note(f"{len(triples)} of {every} ordered triples of acts are among them")
    orders(report, all_orders, SEED)


add("teardown.closed", 60, "closing the command file frees all, while the files of events are open", closed)
for _name, _limit, _about, _run in (
        ("pairs", 200, "each of seven acts that take something away alone, and all 42 ordered pairs, under traffic", pairs),
        ("some-orders", 120, f"{FEW_ROUNDS} rounds of all seven acts in orders drawn from a seed, under traffic", few),
        ("orders", 60 + 4 * ROUNDS, f"{ROUNDS} rounds of all seven acts in orders drawn from a seed, under traffic", drawn)):
    add(f"teardown.{_name}", _limit, _about, _run, rxe="rdma_rxe waits for programs for ever")
