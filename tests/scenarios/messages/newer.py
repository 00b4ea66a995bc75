# SPDX-License-Identifier: GPL-2.0
"""The newer rdma-core, whose libibverbs has another interface to providers: Debian's packages of it, unpacked beside the
guest's own. The programs are the newer ones where it has them, and the guest's and ours with the newer library."""

import glob
import os

from tests.guest import flavour
from tests.guest.cases import cases
from tests.guest.fabric import loop, pair, set_local_path
from tests.guest.scenario import Skipped, command, require, scenario
from tests.scenarios.messages.perftest import measure
from tests.scenarios.messages.pingpong import talk
from tests.scenarios.messages.pyverbs import UNSERVED, Release

HOME = "/srv/newer/usr"
LIBRARIES = f"{HOME}/lib/x86_64-linux-gnu"
ABI = 65
# One of each kind of what the provider does by itself.
CASES = ("send-sg", "order", "inline", "fence", "solicited", "notify", "unsignalled")


def use_newer():
    """From here on this scenario's programs are the newer ones, with the newer library."""
    if not flavour.current().is_ferroce:
        raise Skipped("the guest has no newer provider of rdma_rxe")
    if not os.path.isdir(HOME):
        raise Skipped(f"the archive had no libibverbs with the private ABI {ABI}")
    os.environ["LD_LIBRARY_PATH"] = LIBRARIES
    os.environ["PATH"] = f"{HOME}/bin:{os.environ['PATH']}"


@scenario("newer.programs", 120)
def programs(_report):
    """The newer ibv_devinfo and ibv_rc_pingpong, the guest's perftest and cases of ours, with the newer library."""
    use_newer()
    with loop() as end:
        shown = command(["env", "LD_DEBUG=files", "ibv_devinfo", "-v", "-d", end.dev]).stdout
        for loaded in (f"{LIBRARIES}/libibverbs.so.1", f"libferroce-rdmav{ABI}.so"):
            require(loaded in shown, f"{loaded} was not loaded")
        require(f"hca_id:\t{end.dev}" in shown and "PORT_ACTIVE" in shown, "ibv_devinfo shows no active device")
        for local in (True, False):
            set_local_path(end.dev, local)
            for what in cases("verbs"):
                if what.name in CASES:
                    what.run(end)
    with pair() as ends:
        for options in ([], ["-e"]):
            talk(ends, 4, 1024, *options)
        for tool in ("ib_send_bw", "ib_write_lat", "ib_read_bw"):
            rows = measure(tool, ends, ["-s", "65537"])
            require([int(row[0]) for row in rows] == [65537], f"{tool} reported {rows}")


RELEASE = "65.0"
# What tests of that release need beside what those of the guest's own do.
NEWER_UNSERVED = (
    ("the domains and bounce buffers of a confidential guest",
     ("test_buf.*_cc_pd*", "test_buf.BufAPITest.test_buf_export_dmabuf_fd_on_bounce_device",
      "test_buf.BufAPITest.test_plain_mr_rejected_on_bounce_device")),
    ("DMA handles", ("test_dmah.DMAHandleTest.test_dmah_with_mrex", "test_dmah.DMAHandleTest.test_dmah_persistent_memory",
                     "test_dmah.DmaHandleTrafficTest.*")),
    ("on-demand paging", ("test_dmah.DMAHandleTest.test_dmah_mrex_odp_bad_flow",)),
    ("the speed of a port by its own verb", ("test_device.DeviceTest.test_query_port_speed",)),
    ("the clock of a network card", ("test_phc_timestamp.*",)),
    ("raw packets", ("test_qp.QPTest.test_raw_qp_rate_limit_modify",)),
)
# Those that need RC, UC, UD, shared queues, windows, rdma_cm and what else there is.
NEWER_GENERIC = 134


@scenario("newer.pyverbs", 240)
def newer_pyverbs(report):
    """All tests of the newer pyverbs, with the newer library, by the lists of what is not served."""
    use_newer()
    python = glob.glob(f"{HOME}/bin/python3.*")
    # The lists are of one release: what the archive has by now may be another.
    if not python or not os.path.isdir("/srv/newer/tests") or not glob.glob(f"{LIBRARIES}/libibverbs.so.1.*.{RELEASE}"):
        raise Skipped(f"the archive has no rdma-core {RELEASE} with its pyverbs and its tests")
    release = Release("/srv/newer/tests", python[0], {"PYTHONHOME": HOME, "PYTHONPATH": f"{HOME}/lib/python3/dist-packages"},
                      UNSERVED + NEWER_UNSERVED)
    require(not (stale := release.stale()), f"these lines of the lists mean no test: {stale}")
    good = release.judge(release.files(), report)
    require(good >= NEWER_GENERIC, f"only {good} tests were ok")
