# SPDX-License-Identifier: GPL-2.0
"""Stock perftest as users type it: each tool, service and option, judged by what the devices have counted. It checks no
data itself; `verbs.*` and pingpong do, by the same ways. Where a link loses nothing, nothing is sent twice (`once.*`): the
programs for bandwidth run with their own depths and on whatever CPU the scheduler gives them, so that queue pairs move
between CPUs while they send."""

import re
from contextlib import ExitStack, contextmanager
from itertools import product

from tests.guest import flavour
from tests.guest.fabric import both_ends, grown, setting, totals, tx_dropped, unsteered
from tests.guest.programs import busy, run_both
from tests.guest.scenario import add, require, scenario, shortened

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


def run(report, tool, ends, size, text, many, found):
    """One run, which `found` makes; by how much the counters grew."""
    what, before = f"{tool} {text} of {size} bytes", totals(ends)
    rows_of = found()
    grew = grown(before, totals(ends))
    require([int(row[0]) for row in rows_of] == [size], f"{what} reported {rows_of}")
    if flavour.current().is_ferroce:
        judge(what, tool, size, many, ends[0] is ends[1], grew)
    report.note(f"{what}: {' '.join(rows_of[0])}")
    return what, grew


def runs(report, table, where, local):
    """All of a table between the same two ends."""
    with both_ends(where, local) as ends:
        for tool, size, text in table:
            options = text.split()
            many = ITERS * (16 if "-q" in options else 1) * (2 if "-b" in options else 1)
            run(report, tool, ends, size, text, many, lambda: measure(
                tool, ends, options + ([] if "atomic" in tool else ["-s", str(size)]), iters=ITERS))


for _path, _where, _local in PLACES:
    add(f"perftest.tools.{_path}", 100, f"every tool of perftest over {_path}, 1 B to 1 MiB", runs, TOOLS, _where, _local)
    add(f"perftest.options.{_path}", 200, f"services, shared receives, atomics, events, both directions over {_path}",
        runs, OPTIONS, _where, _local)

STREAMS = ("ib_send_bw", "ib_write_bw", "ib_read_bw", "ib_atomic_bw")
# perftest's own depth of a send queue. With fewer iterations than that it takes a smaller one.
DEPTH = 128
# Iterations with one queue pair, by the size of a message; of many each has its part of them.
SMALL = shortened(10000, 1000)
SIZES = {8: SMALL, 64: SMALL, 4096: shortened(2000, 400), 65536: shortened(256, DEPTH)}
QPS = (1, 16)
# Without a loss these would be packets that are sent again, packets out of their order, and messages without a receive. The
# packets that time alone may send twice are tail probes, which are duplicates to the peer.
AGAIN = ("ack_timeout", "retransmitted_pkts", "out_of_sequence", "kept_requests", "seq_nak_rcvd", "out_of_sequence_response",
         "rnr_nak_sent", "rnr_nak_rcvd")


@contextmanager
def lossless(where, local, steering=True):
    """Two ends, and nothing is lost between them: a CPU queues 1000 packets at most of those that a veth hands to the other
    end, and 16 queue pairs with READs of 64 KiB have more on their way. Without `steering` a tail probe is a fault of the
    driver's: see `unsteered`."""
    with ExitStack() as done:
        done.enter_context(setting("/proc/sys/net/core/netdev_max_backlog", "100000"))
        ends = done.enter_context(both_ends(where, local))
        if flavour.current().is_ferroce and not steering:
            done.enter_context(unsteered(ends))
        yield ends


def stream(report, tool, ends, size, qps=1, receives="enough"):
    """One run, with no more options than name the device, the work and its end.

    perftest posts 512 receives, and then another for each that it has polled: a sender whose peer does not run for a moment
    finds none. So `enough` posts one for each message, `few` leaves it alone. Returns what was run, and by how much the
    counters grew."""
    iters = max(DEPTH, SIZES[size] // qps)
    options = [] if "atomic" in tool else ["-s", str(size)]
    options += ["-q", str(qps)] if qps > 1 else []
    options += ["-r", str(iters)] if "send" in tool and receives == "enough" else []
    options += ["-n", str(iters)]
    # Two seconds until packets are sent again: for that a queue must stand. A slow one does not.
    sides = [[tool, "-d", end.dev, "-x", str(end.gid()), "-F", "-p", str(PORT), "-u", "19", *options] for end in ends]
    before = sum(map(tx_dropped, set(ends)))
    what, grew = run(report, tool, ends, size, " ".join(options), iters * qps, lambda: converse(tool, *sides, ends, 60))
    dropped = sum(map(tx_dropped, set(ends))) - before
    require(dropped == 0, f"{what}: a link that loses nothing dropped {dropped} packets")
    return what, grew


def require_still(what, grew, names):
    again = ", ".join(f"{name} {grew[name]}" for name in names if grew[name])
    require(not again, f"{what}: nothing was lost, yet {again}")


def require_once(report, what, grew, most=None):
    """Nothing was sent twice but tail probes, so many at most: a peer that is silent for longer than it ever was, while it
    serves others, is asked once whether it is there."""
    if not flavour.current().is_ferroce:
        return
    probes, again = grew["tail_probes"], grew["duplicate_request"]
    report.note(f"{probes} tail probes")
    require_still(what, grew, AGAIN)
    require(again <= probes, f"{what}: {again} duplicates for {probes} tail probes")
    require(most is None or probes <= most, f"{what}: {probes} tail probes, of {most} at most")


def once(report, where, local):
    """Each tool with all sizes, by one queue pair and by many."""
    with lossless(where, local, steering=False) as ends:
        for tool, size, qps in product(STREAMS, SIZES, QPS):
            if ("atomic" in tool) == (size == 8):
                # Each queue pair has to learn once how long the others take.
                require_once(report, *stream(report, tool, ends, size, qps), 0 if ends[0] is ends[1] else qps)


@scenario("once.steered", 120, rxe="rdma_rxe does not steer")
def steered(report):
    """perftest over veth with long messages, which another CPU executes: they keep their order, and nothing but tail probes
    is sent twice."""
    with lossless("pair", None) as ends:
        for tool, size, qps in product(STREAMS[:3], (4096, 65536), QPS):
            what, grew = stream(report, tool, ends, size, qps)
            require_once(report, what, grew)
            require(size < 65536 or grew["rx_steered"], f"{what}: no batch was executed on another CPU")


def few_receives(report, where, local):
    """SENDs to as many receives as perftest posts by itself. Where one is missing, the sender begins again with that message:
    at most all that it may have in flight."""
    with lossless(where, local, steering=False) as ends:
        for size in (64, 4096):
            what, grew = stream(report, "ib_send_bw", ends, size, receives="few")
            if flavour.current().is_ferroce:
                naks, again = grew["rnr_nak_rcvd"], grew["retransmitted_pkts"]
                report.note(f"{naks} RNR NAKs, {again} packets again")
                require_still(what, grew, ("ack_timeout", "tail_probes", "duplicate_request"))
                require(again <= naks * DEPTH, f"{what}: {again} packets again for {naks} RNR NAKs")


def beside_others(report, where, local):
    """The same while each CPU has other work, so that workers come late and queue pairs move more often. A peer may be too
    late for a tail probe then, which is a duplicate to it; nothing else is sent twice."""
    with lossless(where, local) as ends, busy():
        for tool, size, qps in (("ib_send_bw", 64, 1), ("ib_send_bw", 64, 16), ("ib_send_bw", 4096, 1),
                                ("ib_write_bw", 64, 1), ("ib_read_bw", 4096, 1)):
            require_once(report, *stream(report, tool, ends, size, qps))


for _path, _where, _local in PLACES:
    for _name, _limit, _about, _run in (
            ("streams", 240, "nothing is sent twice", once),
            ("few-receives", 120, "no more is sent again than RNR NAKs ask for", few_receives),
            ("busy", 120, "beside other work nothing but tail probes is sent twice", beside_others)):
        add(f"once.{_name}.{_path}", _limit, f"perftest over {_path}, as users type it: {_about}", _run, _where, _local)
