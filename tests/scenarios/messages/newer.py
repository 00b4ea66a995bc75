# SPDX-License-Identifier: GPL-2.0
"""The newer rdma-core, whose libibverbs has another interface to providers: Debian's packages of it, unpacked beside the
guest's own. The programs are the newer ones where it has them, and the guest's and ours with the newer library."""

import os

from tests.guest import flavour
from tests.guest.cases import cases
from tests.guest.fabric import loop, pair
from tests.guest.scenario import Skipped, add, command, require, scenario
from tests.scenarios.messages.perftest import measure
from tests.scenarios.messages.pingpong import once

HOME = "/srv/newer/usr"
LIBRARIES = f"{HOME}/lib/x86_64-linux-gnu"
ABI = 65
# One of each kind of what the provider does by itself.
CASES = ("send-sg", "immediate", "inline", "fence", "solicited", "notify", "unsignalled")


def use_newer():
    """From here on this scenario's programs are the newer ones, with the newer library."""
    if not flavour.current().is_ferroce:
        raise Skipped("the guest has no newer provider of rdma_rxe")
    if not os.path.isdir(HOME):
        raise Skipped(f"the archive had no libibverbs with the private ABI {ABI}")
    os.environ["LD_LIBRARY_PATH"] = LIBRARIES
    os.environ["PATH"] = f"{HOME}/bin:{os.environ['PATH']}"


@scenario("newer.devinfo", 60)
def devinfo(_report):
    """The newer ibv_devinfo shows the device, and what was loaded for it is the newer library and the provider for it."""
    use_newer()
    with loop() as end:
        shown = command(["env", "LD_DEBUG=files", "ibv_devinfo", "-v", "-d", end.dev]).stdout
        for loaded in (f"{LIBRARIES}/libibverbs.so.1", f"libferroce-rdmav{ABI}.so"):
            require(loaded in shown, f"{loaded} was not loaded")
        require(f"hca_id:\t{end.dev}" in shown and "PORT_ACTIVE" in shown, "ibv_devinfo shows no active device")


@scenario("newer.pingpong", 120)
def pingpong(report):
    """The newer ibv_rc_pingpong -c between two namespaces, polling and on events."""
    use_newer()
    with pair() as ends:
        for events in (False, True):
            for family in (4, 6):
                report.cell(path=f"ipv{family}", mode="events" if events else "polling",
                            usec=once(ends, family, 1024, events))


@scenario("newer.perftest", 120)
def perftest(report):
    """The guest's perftest with the newer library."""
    use_newer()
    with pair() as ends:
        for tool in ("ib_send_bw", "ib_write_lat", "ib_read_bw"):
            rows = measure(tool, ends, ["-s", "65537"])
            require([int(row[0]) for row in rows] == [65537], f"{tool} reported {rows}")
            report.note(f"{tool}: {' '.join(rows[0])}")


def case(what, local):
    """A scenario: a case of ours with the newer library."""
    def run(_report):
        use_newer()
        with loop(local) as end:
            what.run(end)

    return run


for _what in cases("verbs"):
    if _what.name in CASES:
        add(f"newer.{_what.name}", _what.seconds + 30, f"{_what.shows}; with the newer library", case(_what, False))
