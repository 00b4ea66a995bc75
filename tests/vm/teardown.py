# SPDX-License-Identifier: GPL-2.0
"""Everything is taken away under running traffic, in an order drawn from a seed; nothing hangs, nothing is left.

The seed is in the scenario's notes and log; FERROCE_SEED names another first one.
"""

import os
import random
import re
import signal
import subprocess
import time

from tests.vm import flavour, kernel
from tests.vm.fabric import devices, pair, read, wait_until
from tests.vm.link_life import unload
from tests.vm.peer import FAILED, Conversation
from tests.vm.scenario import PATIENCE, Failed, Skipped, add, require, say

ROUNDS = 8
SCENARIOS = 3


def start(argv):
    """A step of the demolition, which runs beside the others; it may be refused, but it must end."""
    say("+ " + " ".join(argv))
    return argv, subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def finish(steps):
    """Waits for every step."""
    for argv, proc in steps:
        try:
            proc.wait(timeout=30 * PATIENCE)
        except subprocess.TimeoutExpired:
            wchan = read(f"/proc/{proc.pid}/stack") or "?"
            proc.kill()
            raise Failed(f"{' '.join(argv)} hangs: {wchan}") from None


def resources():
    """Objects in use on any device, as `rdma res` counts them, without those that ib_core has for itself."""
    shown = subprocess.run(["rdma", "res"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True,
                           timeout=30 * PATIENCE, check=False).stdout
    return {kind: int(n) for kind, n in re.findall(r"\b(qp|cq|mr|pd|ctx) (\d+)", shown) if int(n)}


def demolition(ends, talk):
    """What can be taken away, by name: a command, or a signal to a side."""
    one, two = ends
    return {
        "kill the server": (talk.server, signal.SIGKILL),
        "kill the client": (talk.client, signal.SIGKILL),
        "destroy at the server": (talk.server, signal.SIGUSR1),
        "destroy at the client": (talk.client, signal.SIGUSR1),
        "end well": (talk.client, signal.SIGTERM),
        "delete the link of the server": ["ip", "netns", "exec", one.netns, "rdma", "link", "delete", one.dev],
        "delete the link of the client": ["ip", "netns", "exec", two.netns, "rdma", "link", "delete", two.dev],
        "delete the wire": ["ip", "-n", one.netns, "link", "del", one.netdev],
        "delete the namespace of the server": ["ip", "netns", "del", one.netns],
        "delete the namespace of the client": ["ip", "netns", "del", two.netns],
        "unload the module": ["modprobe", "-r", flavour.current().module],
    }


def one_round(rng):
    """Builds, runs traffic, takes four things away in a drawn order, and then the rest."""
    with pair() as ends:
        # Both programs on one device: the local path.
        local = rng.random() < 0.3
        sides = (ends[0], ends[0]) if local else ends
        size = rng.choice(("1", "M+1", "65536", "1048576", "1,M+1,65536"))
        # Half of the time a side goes on when the other has left, until its retries are used up.
        alone = rng.choice(((), ("-a",)))
        with Conversation(sides, "-s", size, "-o", rng.choice(("sSwWrb", "w", "r", "s")), *alone) as talk:
            what = demolition(ends, talk)
            order = rng.sample(sorted(what), 4)
            pauses = [rng.choice((0, 0, 0.01, 0.1)) for _ in order]
            say(f"{'local, ' if local else ''}{size} bytes: {list(zip(order, pauses))}")
            steps = []
            for name, pause in zip(order, pauses):
                act = what[name]
                if isinstance(act, list):
                    steps.append(start(act))
                elif act[0].poll() is None:
                    say(name)
                    act[0].send_signal(act[1])
                time.sleep(pause)
            finish(steps)
            # Those that still run have lost nothing yet, or only their peer or device.
            for proc in (talk.client, talk.server):
                proc.kill()
                talk.wait(proc)
            require(FAILED not in (talk.client.returncode, talk.server.returncode), talk.words())
        wait_until("nothing of the programs is left", lambda: not resources(), 10)


def rounds(first):
    """A scenario: some rounds, each with a seed of its own, so that one of them can be run alone."""
    def run(report):
        if not flavour.current().is_ferroce:
            raise Skipped("rdma_rxe waits for programs for ever")
        base = int(os.environ.get("FERROCE_SEED", "1000"))
        for seed in range(base + first, base + first + ROUNDS):
            say(f"seed {seed}")
            try:
                one_round(random.Random(seed))
            except Failed as e:
                raise Failed(f"seed {seed}: {e}") from None
            wait_until("the devices go", lambda: not devices(), 20)
            wait_until("the module is free", lambda: not kernel.refcount(), 20)
            require(not kernel.udp_sockets(), f"seed {seed}: a UDP socket is left")
        report.note(f"{ROUNDS} rounds, seeds {base + first} to {base + first + ROUNDS - 1}")
        if kernel.refcount() is not None:
            unload()

    return run


for _number in range(SCENARIOS):
    add(f"teardown.{_number}", 90, f"{ROUNDS} rounds of demolition under traffic in an order drawn from a seed",
        rounds(_number * ROUNDS))
