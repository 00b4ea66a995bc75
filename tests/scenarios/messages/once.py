# SPDX-License-Identifier: GPL-2.0
"""On a link that loses nothing, nothing is sent twice.

perftest's programs for bandwidth run as users type them, with their own depths and on whatever CPU
the scheduler gives them, so that queue pairs move between CPUs while they send.
"""

from contextlib import ExitStack, contextmanager
from itertools import product

from tests.guest import flavour
from tests.guest.fabric import both_ends, grown, setting, totals, tx_dropped, unsteered
from tests.guest.programs import busy
from tests.guest.scenario import add, require, scenario, shortened
from tests.scenarios.messages.perftest import PLACES, PORT, converse, judge

TOOLS = ("ib_send_bw", "ib_write_bw", "ib_read_bw", "ib_atomic_bw")
# perftest's own depth of a send queue. With fewer iterations than that it takes a smaller one.
DEPTH = 128
# Iterations with one queue pair, by the size of a message; of many each has its part of them.
SMALL = shortened(10000, 1000)
ITERS = {8: SMALL, 64: SMALL, 4096: shortened(2000, 400), 65536: shortened(256, DEPTH)}
QPS = (1, 16)

# What must not grow: what a requester sends again, and what a responder sees of that.
AGAIN = ("ack_timeout", "retransmitted_pkts", "tail_probes", "duplicate_request")
# Without a loss these would be packets out of their order.
DISORDER = ("out_of_sequence", "kept_requests", "seq_nak_rcvd", "out_of_sequence_response")
# The packets that time alone may send twice, and what they are to the peer.
PROBES = ("tail_probes", "duplicate_request")
# No receive was there: the same messages are sent once more.
MISSING = ("rnr_nak_sent", "rnr_nak_rcvd")


@contextmanager
def lossless(where, local, steering=True):
    """Two ends, and nothing is lost between them: a CPU queues 1000 packets at most of those that a
    veth hands to the other end, and 16 queue pairs with READs of 64 KiB have more on their way.

    Without `steering` a tail probe is a fault of the driver's: see `unsteered`."""
    with ExitStack() as done:
        done.enter_context(setting("/proc/sys/net/core/netdev_max_backlog", "100000"))
        ends = done.enter_context(both_ends(where, local))
        if flavour.current().is_ferroce and not steering:
            done.enter_context(unsteered(ends))
        yield ends


def counted(ends):
    """The counters of both ends together, and what the netdevs between them dropped."""
    return totals(ends) | {"dropped": sum(tx_dropped(end) for end in set(ends))}


def require_still(what, grew, names):
    again = ", ".join(f"{name} {grew[name]}" for name in names if grew[name])
    require(not again, f"{what}: nothing was lost, yet {again}")


def require_once(what, grew, probes):
    """Nothing was sent twice but tail probes, so many at most: a peer that is silent for longer than
    it ever was, while it serves others, is asked once whether it is there."""
    require_still(what, grew, [name for name in AGAIN + DISORDER + MISSING if name not in PROBES])
    asked, again = (grew[name] for name in PROBES)
    require(again <= asked <= probes, f"{what}: {asked} tail probes, of {probes} at most, and {again} duplicates")


def messages_for(size, qps):
    return max(DEPTH, ITERS[size] // qps)


def run_as_typed(report, tool, ends, size, qps=1, receives="enough"):
    """One run, with no more options than name the device, the work and its end.

    perftest posts 512 receives, and then another for each that it has polled: a sender whose peer
    does not run for a moment finds none. So `enough` posts one for each message, `few` leaves it
    alone. Returns what was run, and by how much the counters grew.
    """
    iters, fixed = messages_for(size, qps), "atomic" in tool
    options = [] if fixed else ["-s", str(size)]
    if qps > 1:
        options += ["-q", str(qps)]
    if "send" in tool and receives == "enough":
        options += ["-r", str(iters)]
    options += ["-n", str(iters)]
    what = " ".join((tool, *options))
    # Two seconds until packets are sent again: for that a queue must stand. A slow one does not.
    sides = [[tool, "-d", end.dev, "-x", str(end.gid()), "-F", "-p", str(PORT), "-u", "19", *options]
             for end in ends]
    before = counted(ends)
    found = converse(what, *sides, ends, 60)
    grew = grown(before, counted(ends))
    require([int(row[0]) for row in found] == [size], f"{what} reported {found}")
    require(grew["dropped"] == 0, f"{what}: a link that loses nothing dropped {grew['dropped']} packets")
    if flavour.current().is_ferroce:
        judge(what, tool, size, iters * qps, ends[0] is ends[1], grew)
    report.note(f"{what}: {' '.join(found[0])}")
    return what, grew


def once(report, where, local):
    """Each tool with all sizes, by one queue pair and by many."""
    with lossless(where, local, steering=False) as ends:
        for tool, size, qps in product(TOOLS, (8, 64, 4096, 65536), QPS):
            if ("atomic" in tool) == (size == 8):
                what, grew = run_as_typed(report, tool, ends, size, qps)
                if flavour.current().is_ferroce:
                    # Each queue pair has to learn once how long the others take.
                    require_once(what, grew, 0 if ends[0] is ends[1] else qps)


def require_only_probes(report, what, grew):
    """Nothing was sent twice but tail probes, and nothing came out of its order."""
    probes, again = grew["tail_probes"], grew["duplicate_request"]
    report.note(f"{probes} tail probes")
    require_still(what, grew, ("ack_timeout", "retransmitted_pkts") + DISORDER + MISSING)
    require(again <= probes, f"{what}: {again} duplicates for {probes} tail probes")


@scenario("once.steered", 120, rxe="rdma_rxe does not steer")
def steered(report):
    """perftest over veth with long messages, which another CPU executes: they keep their order, and nothing but tail probes
    is sent twice."""
    with lossless("pair", None) as ends:
        for tool, size, qps in product(TOOLS[:3], (4096, 65536), QPS):
            what, grew = run_as_typed(report, tool, ends, size, qps)
            require_only_probes(report, what, grew)
            require(size < 65536 or grew["rx_steered"], f"{what}: no batch was executed on another CPU")


def few_receives(report, where, local):
    """SENDs to as many receives as perftest posts by itself. Where one is missing, the
    sender begins again with that message: at most all that it may have in flight."""
    with lossless(where, local, steering=False) as ends:
        for size in (64, 4096):
            what, grew = run_as_typed(report, "ib_send_bw", ends, size, receives="few")
            if not flavour.current().is_ferroce:
                continue
            naks, again = grew["rnr_nak_rcvd"], grew["retransmitted_pkts"]
            report.note(f"{naks} RNR NAKs, {again} packets again")
            require_still(what, grew, ("ack_timeout", "tail_probes", "duplicate_request"))
            require(again <= naks * DEPTH, f"{what}: {again} packets again for {naks} RNR NAKs")


def beside_others(report, where, local):
    """The same while each CPU has other work, so that workers come late and queue pairs
    move more often. A peer may be too late for a tail probe then, which is a duplicate to it;
    nothing else is sent twice."""
    with lossless(where, local) as ends, busy():
        for tool, size, qps in (("ib_send_bw", 64, 1), ("ib_send_bw", 64, 16), ("ib_send_bw", 4096, 1),
                                ("ib_write_bw", 64, 1), ("ib_read_bw", 4096, 1)):
            what, grew = run_as_typed(report, tool, ends, size, qps)
            if not flavour.current().is_ferroce:
                continue
            require_only_probes(report, what, grew)


for _path, _where, _local in PLACES:
    add(f"once.streams.{_path}", 240,
        f"perftest over {_path}, as users type it: nothing is sent twice", once, _where, _local)
    add(f"once.few-receives.{_path}", 120,
        f"ib_send_bw over {_path}: no more is sent again than RNR NAKs ask for",
        few_receives, _where, _local)
    add(f"once.busy.{_path}", 120,
        f"perftest over {_path} beside other work: nothing but tail probes is sent twice",
        beside_others, _where, _local)
