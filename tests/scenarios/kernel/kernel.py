# SPDX-License-Identifier: GPL-2.0
"""A user in the kernel that is ours: the cases of `ferroce_kuser`, which posts and polls in every context."""

from tests.guest.fabric import WAYS, counters, each_way, loop, pair
from tests.guest.programs import program
from tests.guest.scenario import PATIENCE, add, command, last_line, require
from tests.judges import kernel

NAME = "ferroce_kuser"
MODULE = program(f"{NAME}.ko")

# What the cases of each group are about. A scenario runs those of a group, one after the other.
GROUPS = {
    "posting": "every context posts RC, UC and UD with interrupts disabled, every way takes the completions",
    "polling": "completion queues armed by hand, moderated, and freed while they are polled",
    "queues": "queues full, drained, destroyed with work in them, and requests that they refuse",
    "operations": "RDMA WRITE, RDMA READ and atomic operations from tasks and interrupts, checked at both ends",
    "registration": "fast registration: lists of pages and pieces, keys, invalidation from both ends",
    "misuse": "fast registration used wrongly: statuses, the queue pair afterwards, and nothing written",
}
RXE = "rdma_rxe calls completion handlers under a lock of its own, so that they cannot poll"
# Messages that the cases of a group move at least; between two devices each is a packet or more.
FEWEST = {"posting": 1000, "polling": 500}


def run_cases(group, ends):
    """Loads the module, which runs its cases of a group, and unloads it."""
    log = kernel.Log()
    command(["modprobe", "ib_core"])
    argv = ["insmod", MODULE, f"patience={20 * PATIENCE}", f"group={group}", f"device={ends[0].dev},{ends[1].dev}",
            f"gid={ends[0].gid()},{ends[1].gid()}"]
    done = command(argv, ok=None, timeout=100)
    said = [line for line in log.new() if line.startswith(f"{NAME}: ")] or [last_line(done.stdout)]
    require(done.returncode == 0, said[-1])
    command(["rmmod", NAME])


def run_group(report, name, ends, local):
    """The cases of a group on one device, or between two."""
    sent = counters(ends[0].dev)["sent_pkts"]
    if name == "polling":
        for end in set(ends):
            command(["rdma", "dev", "set", end.dev, "adaptive-moderation", "on"])
    run_cases(name, ends)
    sent = counters(ends[0].dev)["sent_pkts"] - sent
    report.note(f"{sent} packets")
    if local:
        require(not sent, f"{sent} packets on the local path")
    else:
        require(sent >= FEWEST.get(name, 10), f"only {sent} packets")


def on_one(report, name):
    with loop() as end:
        each_way(report, end, list(WAYS),
                 lambda way: run_group(report, name, (end, end), way == "local"))


def on_two(report, name):
    with pair() as ends:
        run_group(report, name, ends, False)


for _name, _shows in GROUPS.items():
    add(f"kernel.{_name}", 120, f"{_shows}; by the local path and by packets to itself", on_one, _name, rxe=RXE)
    add(f"kernel.{_name}.veth", 60, f"{_shows}; between two devices", on_two, _name, rxe=RXE)
