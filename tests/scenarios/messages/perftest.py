# SPDX-License-Identifier: GPL-2.0
"""Stock perftest as users type it: each tool, service and option, judged by what the devices have
counted. It checks no data itself; `verbs.*` and pingpong do, by the same ways."""

import re

from tests.guest import flavour
from tests.guest.fabric import both_ends, grown, totals
from tests.guest.programs import run_both
from tests.guest.scenario import add, require, shortened

PORT = 18515
# Enough that both ends sleep, wrap their queues and wait for each other.
ITERS = shortened(100, 20)
PLACES = (("loop-local", "loop", True), ("veth", "pair", None))

# Tool, size of a message, and what it is asked for besides.
TOOLS = tuple((tool, size, "") for tool, size in (
    ("ib_send_lat", 1), ("ib_send_bw", 1 << 20), ("ib_write_lat", 4097), ("ib_write_bw", 1), ("ib_read_lat", 1),
    ("ib_read_bw", 4097)))
# Each option that users type once: services, receives of many queue pairs, sleeping on events, both
# directions, many queue pairs, receives that run out under the sender. It posts by ibv_post_send, and
# nothing inline, on a device that it does not know by its vendor.
OPTIONS = (
    ("ib_write_lat", 65536, "-c UC"), ("ib_send_bw", 1024, "-b -c UD"), ("ib_send_bw", 4096, "-q 16 --use-srq"),
    ("ib_atomic_lat", 8, "-A CMP_AND_SWAP"), ("ib_atomic_bw", 8, "-q 16 -b"), ("ib_read_bw", 4096, "-e -b"),
    ("ib_send_bw", 64, "-r 1"), ("ib_send_bw", 4096, "-r 4 -q 16 -b"),
)
# What says that a message was refused, or came to nothing.
ERRORS = ("refused_request", "fatal_nak_rcvd", "bad_response", "lost_too_long", "lost_denied", "lost_invalid", "drop_icrc",
          "drop_malformed", "drop_opcode", "drop_qkey")


def rows(text):
    """The result lines of a perftest program: bytes first, numbers after it."""
    found = []
    for line in text.splitlines():
        field = line.split()
        if len(field) >= 4 and re.fullmatch(r"\d+", field[0]) and re.fullmatch(r"\d+", field[1]):
            found.append(field)
    return found


def measure(tool, ends, options, iters=5):
    """One run. Returns the client's rows."""
    def side(end):
        argv = [tool, "-d", end.dev, "-x", str(end.gid()), "-F", "-n", str(iters), "-p", str(PORT), "-m", "4096",
                # A second: how soon a busy machine answers is no verdict.
                "-u", "18", *options]
        # A warning about few iterations for the depth is no help to anybody.
        return argv + (["-t", str(iters)] if tool.endswith("_bw") and "read" not in tool and "atomic" not in tool else [])

    return converse(tool, side(ends[0]), side(ends[1]), ends, 150)


def converse(what, server, client, ends, limit):
    """Runs a tool at both ends; the client's line gets the server's address. Returns the client's rows."""
    outs = run_both(server, [*client, ends[0].tcp], ends, PORT, limit)
    for out in outs:
        for bad in ("Completion with error", "Failed", "failed", "Unable"):
            require(bad not in out, f"{what}: {next((ln for ln in out.splitlines() if bad in ln), bad)}")
    return rows(outs[1])


def judge(what, tool, size, many, within, grew):
    """So many messages went the way that is meant, within one device or by packets, and none was refused."""
    way, pieces, other = ("local", "segments", "sent_pkts") if within else ("sent", "pkts", "local_segments")
    # What atomic operations carry is in no count of bytes: each is a piece, or asked for and answered.
    moved, least = (grew[f"{way}_{pieces}"], many) if "atomic" in tool else (grew[f"{way}_bytes"], many * size)
    require(moved >= least, f"{what} moved {moved} of {least}")
    wrong = {name: grew[name] for name in (*ERRORS, other) if grew[name]}
    require(not wrong, f"{what}: {wrong}")


def runs(report, table, where, local):
    """All of a table between the same two ends."""
    with both_ends(where, local) as ends:
        for tool, size, text in table:
            what = f"{tool} {text} of {size} bytes"
            before = totals(ends)
            found = measure(tool, ends, text.split() + ([] if "atomic" in tool else ["-s", str(size)]), iters=ITERS)
            grew = grown(before, totals(ends))
            require([int(row[0]) for row in found] == [size], f"{what} reported {found}")
            if flavour.current().is_ferroce:
                many = ITERS * (16 if "-q" in text.split() else 1) * (2 if "-b" in text.split() else 1)
                judge(what, tool, size, many, where == "loop", grew)
            report.note(f"{what}: {' '.join(found[0])}")


for _path, _where, _local in PLACES:
    add(f"perftest.tools.{_path}", 100, f"every tool of perftest over {_path}, 1 B to 1 MiB", runs, TOOLS, _where, _local)
    add(f"perftest.options.{_path}", 200, f"services, shared receives, atomics, events, both directions over {_path}",
        runs, OPTIONS, _where, _local)
