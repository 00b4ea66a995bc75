# SPDX-License-Identifier: GPL-2.0
"""On a link that loses nothing, nothing is sent twice: perftest's programs for bandwidth as users type them, with their
own depths and on whatever CPU the scheduler gives them, so that queue pairs move between CPUs while they send."""

from tests.guest import flavour
from tests.guest.fabric import both_ends, counters, tx_dropped
from tests.guest.programs import busy
from tests.guest.scenario import add, require, shortened
from tests.scenarios.messages.perftest import PORT, converse

TOOLS = ("ib_send_bw", "ib_write_bw", "ib_read_bw", "ib_atomic_bw")
PLACES = (("loop-local", "loop", True), ("veth", "pair", None))
MTU = 4096
# perftest's own depth of a send queue. With fewer iterations than that it takes a smaller one.
DEPTH = 128
# Iterations with one queue pair, by the size of a message; of many queue pairs each has its part of them.
ITERS = {8: shortened(5000, 1000), 64: shortened(5000, 1000), 4096: shortened(2000, 400), 65536: shortened(256, DEPTH)}
QPS = (1, 16)

# What must not grow: what a requester sends again, and what a responder sees of that.
AGAIN = ("ack_timeout", "retransmitted_pkts", "tail_probes", "duplicate_request")
# Without a loss these would be packets out of their order.
DISORDER = ("out_of_sequence", "seq_nak_rcvd", "out_of_sequence_response")
# No receive was there: the same messages are sent once more.
MISSING = ("rnr_nak_sent", "rnr_nak_rcvd")


def counted(ends):
    """The counters of both ends together, and what the netdevs between them dropped."""
    found = {"dropped": sum(tx_dropped(end) for end in set(ends))}
    for dev in {end.dev for end in ends}:
        for name, value in counters(dev).items():
            found[name] = found.get(name, 0) + value
    return found


def those_that_grew(grew, names):
    """Counters that grew, as text; empty if none did."""
    return ", ".join(f"{name} {grew[name]}" for name in names if grew[name])


def messages_for(size, qps):
    """For each queue pair."""
    return max(DEPTH, ITERS[size] // qps)


def run_as_typed(tool, ends, size, qps=1, receives=None):
    """One run with no more options than name the device, the work and its end. Returns what was run, by how much the
    counters grew, and perftest's figures. `receives` is how many are posted at first, if not perftest's own 512."""
    iters, fixed = messages_for(size, qps), "atomic" in tool
    options = ([] if fixed else ["-s", str(size)]) + (["-q", str(qps)] if qps > 1 else []) \
        + (["-r", str(receives)] if receives else []) + ["-n", str(iters)]
    what = " ".join((tool, *options))
    # Two seconds before it is sent again: for that a queue must have stopped. One that is slow has not.
    sides = [[tool, "-d", end.dev, "-x", str(end.gid()), "-F", "-p", str(PORT), "-u", "19", *options] for end in ends]
    before = counted(ends)
    found = converse(what, *sides, ends, 60)
    grew = {name: value - before[name] for name, value in counted(ends).items()}
    require([int(row[0]) for row in found] == [size], f"{what} reported {found}")
    require(grew["dropped"] == 0, f"{what}: the link is to lose nothing, and dropped {grew['dropped']} packets")
    if flavour.current().is_ferroce:
        within = ends[0] is ends[1]
        require_went(what, grew, within, iters * qps * (1 if within else -(-size // MTU)))
    return what, grew, " ".join(found[0])


def require_went(what, grew, within, least):
    """The messages went the way that is meant: within one device, or by packets between two."""
    way, other = ("local_segments", "sent_pkts") if within else ("sent_pkts", "local_segments")
    require(grew[way] >= least, f"{what}: {way} grew by {grew[way]}, not by {least}")
    require(grew[other] == 0, f"{what}: {other} grew by {grew[other]}")


def runs(tool):
    """Size of the messages, number of queue pairs, and receives: for SENDs as many as messages. perftest posts 512 and
    then another for each that it has polled, so a sender whose peer is not running for a moment would find none."""
    for size in (8,) if "atomic" in tool else (64, 4096, 65536):
        for qps in QPS:
            yield size, qps, messages_for(size, qps) if "send" in tool else None


def once(tool, where, local):
    """A scenario: one tool with all sizes, by one queue pair and by many."""
    def run(report):
        with both_ends(where, local) as ends:
            for size, qps, receives in runs(tool):
                what, grew, figures = run_as_typed(tool, ends, size, qps, receives)
                report.note(f"{what}: {figures}")
                if flavour.current().is_ferroce:
                    again = those_that_grew(grew, AGAIN + DISORDER + MISSING)
                    require(not again, f"{what}: nothing was lost, yet {again}")

    return run


def few_receives(where, local):
    """A scenario: SENDs to as many receives as perftest posts by itself. Where one is missing the sender begins again with
    that message, at most all that it may have in flight."""
    def run(report):
        with both_ends(where, local) as ends:
            for size in (64, 4096):
                what, grew, figures = run_as_typed("ib_send_bw", ends, size)
                report.note(f"{what}: {figures}")
                if not flavour.current().is_ferroce:
                    continue
                naks = grew["rnr_nak_rcvd"]
                report.note(f"{naks} RNR NAKs, {grew['retransmitted_pkts']} packets again")
                again = those_that_grew(grew, ("ack_timeout", "tail_probes", "duplicate_request"))
                require(not again, f"{what}: nothing was lost, yet {again}")
                require(grew["retransmitted_pkts"] <= naks * DEPTH,
                        f"{what}: {grew['retransmitted_pkts']} packets again for {naks} RNR NAKs")

    return run


def beside_others(where, local):
    """A scenario: the same while each CPU has other work, so that workers come late and queue pairs move more often. A peer
    may be too late for a tail probe then, which is a duplicate to it; nothing else is sent twice."""
    def run(report):
        with both_ends(where, local) as ends, busy():
            for tool, size in (("ib_send_bw", 64), ("ib_write_bw", 64), ("ib_send_bw", 4096), ("ib_read_bw", 4096)):
                for qps in QPS:
                    what, grew, figures = run_as_typed(tool, ends, size, qps, messages_for(size, qps) if "send" in tool else None)
                    report.note(f"{what}: {figures}")
                    if not flavour.current().is_ferroce:
                        continue
                    probes, duplicates = grew["tail_probes"], grew["duplicate_request"]
                    report.note(f"{probes} tail probes")
                    again = those_that_grew(grew, ("ack_timeout", "retransmitted_pkts", *DISORDER, *MISSING))
                    require(not again, f"{what}: nothing was lost, yet {again}")
                    require(duplicates <= probes, f"{what}: {duplicates} duplicates for {probes} tail probes")

    return run


for _path, _where, _local in PLACES:
    for _tool in TOOLS:
        add(f"once.{_tool}.{_path}", 120, f"{_tool} over {_path}, as users type it: nothing is sent twice",
            once(_tool, _where, _local))
    add(f"once.few-receives.{_path}", 120, f"ib_send_bw over {_path}: no more is sent again than RNR NAKs ask for",
        few_receives(_where, _local))
    add(f"once.busy.{_path}", 120, f"perftest over {_path} while each CPU has other work: nothing but tail probes is sent twice",
        beside_others(_where, _local))
