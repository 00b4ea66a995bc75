# SPDX-License-Identifier: GPL-2.0
"""A user in the kernel that is ours: the cases of `ferroce_kuser`, which posts and polls in every context."""

import os
from contextlib import contextmanager

from tests.guest import flavour
from tests.guest.fabric import WAYS, counters, each_way, link_del, loop, pair, wait_until
from tests.guest.fabric import devices as rdma_devices
from tests.guest.programs import program
from tests.guest.scenario import PATIENCE, Failed, add, command, require, scenario

MODULE = program("ferroce_kuser.ko")
PARAMETERS = "/sys/module/ferroce_kuser/parameters"

# What the cases of each group are about. A scenario runs those of a group, one after the other.
GROUPS = {
    "posting": "every context posts with interrupts disabled: RC",
    "unreliable": "every context posts with interrupts disabled: UC, UD, address handles",
    "polling": "every way to take completions: ib_core's, by hand, armed and moderated",
    "queues": "queues full, drained, destroyed with work in them, in every state",
    "operations": "RDMA WRITE, RDMA READ and atomic operations from tasks and interrupts, checked at both ends",
    "registration": "fast registration: lists of pages and pieces, keys, invalidation from both ends",
    "misuse": "fast registration used wrongly: statuses, the queue pair afterwards, and nothing written",
    "shared": "shared receive queues: from every context, full, at the end of one user",
}
# What rdma_rxe cannot do, or does otherwise.
RXE_CANNOT = {
    **dict.fromkeys(("adaptive-moderation", "gap-lists"), "rdma_rxe cannot do it"),
    "alone": "a thread sends",
    "freed-while-polled": "it lets ib_core use what was freed",
    "half-lists": "it takes a page less, as ib_sg_to_pages() does",
    "addresses": "it wants an address that lies in its page as the memory does",
    "register-wrong": "it takes any rights and any range",
    "atomic-wrong": "it refuses an address that is no word's when that is posted",
    "register-unreliable": "it refuses it when it is posted",
    "peer-invalidates-wrong": "it acknowledges the SEND before it looks at the key",
    "wrong-lists": "it takes pages smaller than the kernel's",
    "shared-last-one": "it has the event twice",
    **dict.fromkeys(("register-twice", "invalidate-wrong", "stale-local-key"), "the request that failed is flushed"),
}
# Messages that the cases of a group move at least; between two devices each is a packet or more.
FEWEST = {"posting": 1000, "polling": 500, "unreliable": 100}


@contextmanager
def loaded():
    """The module, gone again afterwards."""
    command(["modprobe", "ib_core"])
    command(["insmod", MODULE, f"patience={20 * PATIENCE}"])
    try:
        yield
    finally:
        command(["rmmod", "ferroce_kuser"])
        require(not os.path.exists(PARAMETERS), "the module stays")


def lines_of(parameter):
    """What the module says: of the last case its notes and its verdict (`said`), or its `cases`, each with its group."""
    with open(f"{PARAMETERS}/{parameter}", encoding="utf-8") as f:
        return f.read().splitlines()


def ask(case, ends, lossy):
    """Has the module run a case."""
    places = " ".join(f"{end.dev} {end.gid()}" for end in ends)
    with open(f"{PARAMETERS}/run", "w", encoding="ascii") as f:
        f.write(f"{case} {places} {'lossy' if lossy else 'exact'}")


def run_case(report, case, ends, lossy):
    """One case; its verdict is the last line it says."""
    if not flavour.current().is_ferroce and case in RXE_CANNOT:
        report.skip(case, RXE_CANNOT[case])
        return
    ask(case, ends, lossy)
    lines = lines_of("said")
    print(f"{case}: " + "; ".join(lines), flush=True)
    verdict = lines[-1] if lines else "said nothing"
    failed = next((line for line in lines if line.startswith("failed")), None)
    if failed or verdict != "passed":
        raise Failed(f"{case}: {failed or verdict}")
    report.note(f"{case}: " + "; ".join(lines[:-1]))


def group(name, veth):
    """A scenario: the cases of a group on one device, by each way, or between two."""
    def on(report, ends, local):
        sent = counters(ends[0].dev)["sent_pkts"]
        for end in set(ends):
            if name == "polling" and flavour.current().is_ferroce:
                command(["rdma", "dev", "set", end.dev, "adaptive-moderation", "on"])
        cases = [line.split()[1] for line in lines_of("cases") if line.split()[0] == name]
        require(cases, "it has no cases")
        for case in cases:
            run_case(report, case, ends, not local)
        sent = counters(ends[0].dev)["sent_pkts"] - sent
        report.note(f"{sent} packets")
        if local:
            require(not sent, f"{sent} packets on the local path")
        else:
            require(sent >= FEWEST.get(name, 10), f"only {sent} packets")

    def run(report):
        if veth:
            with pair() as ends, loaded():
                on(report, ends, False)
        else:
            with loop() as end, loaded():
                each_way(report, end, list(WAYS),
                         lambda way: on(report, (end, end), way == "local" and flavour.current().is_ferroce))

    return run


for _name, _shows in GROUPS.items():
    add(f"kernel.{_name}", 120, f"{_shows}; by the local path and by packets to itself", group(_name, False))
    add(f"kernel.{_name}.veth", 60, f"{_shows}; between two devices", group(_name, True))


def stand(ends):
    """Has the module begin traffic that does not end."""
    ask("stand", ends, False)
    lines = lines_of("said")
    require(lines == ["stands"], f"it does not stand: {lines}")


def goes(act):
    """A scenario: traffic of the module stands, and `act` takes something away."""
    def run(report):
        with pair() as ends, loaded():
            before = counters(ends[0].dev)["sent_pkts"]
            stand(ends)
            require(counters(ends[0].dev)["sent_pkts"] > before + 100, "nothing moves")
            act(ends)
            lines = lines_of("said")
            report.note("; ".join(lines))
            require(lines[-1] == "passed", "; ".join(lines))

    return run


def delete_link(ends):
    """The link of one end; the module is told and lets go of it."""
    link_del(ends[1].dev, netns=ends[1].netns)
    wait_until("the device goes", lambda: ends[1].dev not in rdma_devices())


def delete_netdev(ends):
    """The netdev below, which takes both devices with it."""
    command(["ip", "link", "del", ends[0].netdev], netns=ends[0].netns)
    wait_until("the devices go", lambda: not [end for end in ends if end.dev in rdma_devices()])


add("kernel.goes.link", 60, "a link is deleted under traffic of a user in the kernel", goes(delete_link))
add("kernel.goes.netdev", 60, "a netdev goes under traffic of a user in the kernel", goes(delete_netdev))


@scenario("kernel.goes.module", 60)
def goes_module(report):
    """The user in the kernel is unloaded under its traffic."""
    with pair() as ends:
        with loaded():
            stand(ends)
        report.note(f"{counters(ends[0].dev)['sent_pkts']} packets")
