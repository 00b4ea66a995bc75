# SPDX-License-Identifier: GPL-2.0
"""Stock `ibv_rc_pingpong` and its siblings with data checking: at every IB MTU, polling and on events, over every path."""

import re

from tests.guest.fabric import both_ends
from tests.guest.programs import run_both
from tests.guest.scenario import add, require, shortened

PORT = 18515
MTUS = shortened((256, 512, 1024, 2048, 4096), (256, 4096))
ITERS = shortened(50, 5)

# Name of the path, where it runs, the local-path switch, IP family of the GIDs.
PATHS = (
    ("loop-local", "loop", True, 4),
    ("loop-wire", "loop", False, 4),
    ("veth-ipv4", "pair", None, 4),
    ("veth-ipv6", "pair", None, 6),
)


def talk(ends, family, mtu, *options, size=4096, iters=ITERS, kind="rc"):
    """One run; returns what both have printed."""
    def side(end):
        # A datagram is as long as the port carries.
        packets = [] if kind == "ud" else ["-m", str(mtu)]
        return [f"ibv_{kind}_pingpong", "-d", end.dev, "-g", str(end.gid(family)), "-p", str(PORT),
                *packets, "-s", str(size), "-n", str(iters), "-c", "-r", "100", *options]

    outs = run_both(side(ends[0]), side(ends[1]) + [ends[0].tcp], ends, PORT, 60)
    for out in outs:
        # The program reports damaged data in its output alone.
        require("invalid data" not in out, f"damaged data at MTU {mtu}, {size} bytes")
        require(f"{iters} iters in" in out, f"no result at MTU {mtu}, {size} bytes")
    return outs


def matrix(report, path, where, local, family):
    """One path at every MTU, polling and on events."""
    with both_ends(where, local) as ends:
        for mtu in MTUS:
            for mode, options in (("polling", []), ("events", ["-e"])):
                client = talk(ends, family, mtu, *options)[1]
                report.cell(path=path, mtu=mtu, mode=mode, usec=float(re.search(r"([0-9.]+) usec/iter", client)[1]))


# There is no answer to a datagram, or a message of UC, that is lost; on these paths none is.
SIZES = {"uc": shortened((1, 1024, 1025, 4097, 65536), (1, 4097)), "ud": shortened((1, 257, 1024), (257,))}


def services(_report, where, local, family):
    """UC and UD at the edges of packets, and 16 queue pairs that share their receives; each polling and on events."""
    with both_ends(where, local) as ends:
        for options in ([], ["-e"]):
            for kind, sizes in SIZES.items():
                for size in sizes:
                    talk(ends, family, 1024, *options, size=size, iters=20, kind=kind)
            talk(ends, family, 1024, "-q", "16", *options, kind="srq", iters=shortened(200, 20))


for _path, _where, _local, _family in PATHS:
    add(f"pingpong.{_path}", 180, f"ibv_rc_pingpong -c over {_path}, every MTU, polling and on events",
        matrix, _path, _where, _local, _family)
    # By packets to itself verbs.uc-*, ud-* and srq-* do the same; over IPv6 interop.services does.
    if _path in ("loop-local", "veth-ipv4"):
        add(f"pingpong.services.{_path}", 240, f"ibv_uc_pingpong, ibv_ud_pingpong and ibv_srq_pingpong -c over {_path}",
            services, _where, _local, _family)
