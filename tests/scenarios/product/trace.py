# SPDX-License-Identifier: GPL-2.0
"""`ferroce trace` of runs: what it says is what the devices have counted. Of packets that are lost tests/lab/test_trace_talks.py
has more, and trace.events what the kernel tells of them."""

import json
import os
import signal
import subprocess
import tempfile
from collections import Counter

from tests.guest.fabric import IB, counters, loop, pair, read, wait_until
from tests.guest.programs import program
from tests.guest.scenario import PATIENCE, command, require, scenario
from tests.scenarios.walks.walks import run, shell_words

INSTANCES = "/sys/kernel/tracing/instances"
OUT = "/tmp/trace.json"


def held():
    """What the command has left in OUT."""
    with open(OUT, encoding="utf-8") as f:
        return json.load(f)


def rows(drawn):
    return [row for talk in drawn["conversations"] for row in talk["rows"] if row["kind"] == "packet"]


def marks(drawn, event):
    return [row for talk in drawn["conversations"] for row in talk["rows"] if row.get("event") == event]


PORT = 18577


def ping_pong(ends, *options):
    """The shell's words for both ends of a ping-pong."""
    a, b = (f"ip netns exec {end.netns}" if end.netns else "" for end in ends)
    words = "ibv_rc_pingpong -m 1024 -s 3000 -n 5 -p {port} -d {end.dev} -g {gid} {more} {to} >/dev/null"
    client, server = (words.format(port=PORT, end=end, gid=end.gid(), to=to, more=" ".join(options))
                      for end, to in zip(ends, (ends[1].ip4, "")))
    return f"""
{b} {server} &
until {b} ss -ltn | grep -q :{PORT}; do kill -0 $!; sleep 0.05; done
{a} {client}
wait $!
"""


def recorded(ends, *options):
    """What `ferroce trace` of a ping-pong draws, with its long options and that's short ones, and how many packets were sent."""
    devices = {end.dev for end in ends}
    before = sum(counters(dev)["sent_pkts"] for dev in devices)
    own = [option for option in options if option.startswith("--")]
    command(["ferroce", "trace", *own, "-o", OUT, "--", "sh", "-ec", ping_pong(ends, *(one for one in options if one not in own))])
    drawn = held()
    return drawn, sum(counters(dev)["sent_pkts"] for dev in devices) - before


@scenario("trace.command", 60, rxe="rdma_rxe counts its packets by other names")
def in_one_command(report):
    """`ferroce trace -- PROGRAM` captures in every namespace while it runs; --wire makes packets of the local path, and turns it
    on again."""
    with pair() as ends:
        drawn, sent = recorded(ends)
        require(sent and drawn["packets"] == sent, f"{drawn['packets']} packets are drawn, the devices have sent {sent}")
        require(len(drawn["conversations"]) == 1, f"{len(drawn['conversations'])} conversations")
        # Each was seen when it was made, by both captures, and when it arrived.
        wrong = [row for row in rows(drawn) if row["fate"] or row["icrc"] != "good" or len(row["seen"]) != 4]
        require(not wrong, f"something is wrong with {wrong[:1]}")
    with loop() as end:
        before = counters(end.dev)["local_segments"]
        drawn, sent = recorded((end, end))
        handed = [row for row in rows(drawn) if row["handed"] and row["name"] != "Acknowledge"]
        segments = counters(end.dev)["local_segments"] - before
        require(sent == drawn["packets"] == 0 and segments and len(handed) == segments,
                f"{len(handed)} segments are drawn, the device has handed {segments} over")
        drawn, sent = recorded((end, end), "--wire")
        require(sent and drawn["packets"] == sent, f"{drawn['packets']} packets are drawn, the device has sent {sent}")
        require(read(f"{IB}/{end.dev}/local_path") == "1", "the local path is off")
    said = command(["ferroce", "trace", "--", "false"], ok=(1,)).stdout
    require("status 1, and no packet" in said, said)
    said = command(["ferroce", "trace", "--", "sh", "-c", "kill -TERM $$"], ok=(1,)).stdout
    require("status 143" in said, said)
    ended_in_the_middle()


def ended_in_the_middle():
    """`ferroce trace` ended by SIGTERM puts everything back, and what an earlier run has left in a folder is not taken for its
    own."""
    with loop() as end, tempfile.TemporaryDirectory() as folder:
        for name in ("old", "@here"):
            with open(f"{folder}/{name}.pcap", "wb"):
                pass
        path = f"{IB}/{end.dev}/local_path"
        run = subprocess.Popen(["ferroce", "trace", "--wire", "--keep", folder, "--", "sleep", "60"])
        buffer = f"{INSTANCES}/ferroce-{run.pid}"
        wait_until("it records", lambda: read(path) == "0" and os.path.exists(buffer))
        run.terminate()
        status = run.wait(timeout=60 * PATIENCE)
        require(status == 128 + signal.SIGTERM, f"it ends with {status}")
        require(read(path) == "1", "the local path stays off")
        require(not os.path.exists(buffer), "the buffer of tracefs stays")
        require("old.pcap" not in os.listdir(folder), "a capture of an earlier run stays")


# From the call of a program to the queue pair, each within the one before it.
CHAIN = ("ibv_create_qp() begins", "ibv_cmd_create_qp() begins", "execute_ioctl() begins", "create_qp fe0 begins", "QP 0x")


def data_path(drawn, messages, ahead=0):
    """Each WQE was posted once, each CQE polled once, and neither out of its order; returns how often each probe was hit. So many
    CQEs may be left at the end, of a program that has sent ahead."""
    def seen(event, *names):
        """When each was, by these fields."""
        found = {}
        for row in marks(drawn, event):
            found.setdefault(tuple(int(row["fields"][name], 0) for name in names), []).append(row["time"])
        return found

    def unpaired(first, second):
        """How many of these have none of those behind them; each of those must have one before it."""
        left = 0
        for key in first.keys() | second.keys():
            before = first.get(key, [])
            for at in second.get(key, []):
                require(before and before[0] <= at, f"{key} at {at} has nothing before it: {before}")
                before.remove(max(one for one in before if one <= at))
            left += len(before)
        return left

    fields = ("qpn", "wr_id", "index")
    posted, flushed = seen("user_post_send", *fields), sum(row["fields"]["status"] == "WR_FLUSH_ERR" for row in marks(drawn, "complete"))
    left = unpaired(posted, seen("taken", *fields))
    require(posted and left <= flushed, f"{left} were posted and not taken, and {flushed} flushed")
    left = unpaired(seen("complete", "qpn", "wr_id"), seen("user_polled", "qpn", "wr_id"))
    require(left <= ahead, f"{left} completions were not polled")
    received = sum(row["fields"]["opcode"].startswith("RECV") for row in marks(drawn, "complete"))
    receives = sum(int(words[0]) if words[0] != "receive" else 1 for row in marks(drawn, "user_post_recv")
                   if (words := row["label"].split()))
    require(receives >= received, f"{received} receives were completed, and {receives} posted")
    good = sum(row["fields"]["status"] == "SUCCESS" for row in marks(drawn, "complete"))
    told = sum(row["fields"]["status"] == "0" for row in marks(drawn, "user_polled"))
    require(good - left == told >= messages, f"{good} completions were good, of which {left} are left, and {told} were polled")
    require(any("in " in row["remark"] and "doorbell +" in row["remark"] for row in marks(drawn, "complete")), "no way begins at its post")
    return Counter(row["event"].removeprefix("user_") for talk in drawn["conversations"] for row in talk["rows"]
                   if row["kind"] != "packet" and row["event"].startswith("user_"))


def missed_event(end):
    """What is said of a queue that was armed too late, and of nothing else that the example does; all that it did."""
    told = command(["ferroce", "trace", "-o", OUT, "--", program("example_events"), end.dev, str(end.gid())]).stdout
    said = [line for line in told.splitlines() if line.startswith("- ")]
    require(len(said) == 1 and "before its CQ was armed, and polled " in said[0], f"of a queue that was armed too late: {said}")
    return held()


@scenario("trace.calls", 300, rxe="the events are ferroce's")
def calls(_report):
    """Calls of the stock libraries, down to the system call, and the driver's verb are one nest, and the provider's probes show each post, doorbell, arming and poll; a kernel without uprobes is said to be one."""
    uprobes = "/sys/kernel/tracing/uprobe_events"
    with loop() as end:
        command(["ferroce", "trace", "-o", OUT, "--", program("example_rnr"), end.dev, str(end.gid())])
        drawn = held()
        if os.path.exists(uprobes):
            # By the other interfaces, ibv_wr_* and ibv_start_poll; and by events.
            extended, _ = recorded((end, end), "-N", "-t")
            events = missed_event(end)
    if not os.path.exists(uprobes):
        require(any("this kernel has no uprobes" in note for note in drawn["notes"]), f"nothing is said of that: {drawn['notes']}")
        return
    require(read(uprobes) == "", "probes are left behind")
    chain = [word.replace("fe0", end.dev) for word in CHAIN]
    done = [row for talk in drawn["conversations"] for row in talk["rows"] if row["kind"] != "packet"]
    begins = [number for number, row in enumerate(done) if row["label"] == chain[0]]
    require(len(begins) >= 2, f"{len(begins)} calls of ibv_create_qp; {drawn['notes']}")
    for begin in begins:
        nest = [row for row in done[begin:] if row["task"] == done[begin]["task"]]
        at = 0
        for depth, word in enumerate(chain):
            at = next((n for n in range(at, len(nest)) if nest[n]["label"].startswith(word)), None)
            require(at is not None and nest[at]["depth"] == depth, f"{word} is not where it should be: "
                    f"{[(row['depth'], row['label']) for row in nest[:12]]}")
    names = {row["label"].split("(")[0] for row in done if row["event"] in ("call", "call_done")}
    wanted = {"ibv_open_device", "ibv_alloc_pd", "ibv_create_cq", "ibv_modify_qp", "ibv_destroy_qp", "ibv_close_device"}
    require(names >= wanted, f"calls that are not seen: {wanted - names}")
    for run_of, *counts in ((drawn, 200, 6), (extended, 20), (events, 6)):
        hit = data_path(run_of, *counts)
        require(hit["post_send"] and hit["post_recv"] and hit["doorbell"] and hit["polled"], f"probes that are not hit: {hit}")
        require(hit["arm"] or run_of is not events, "nobody has armed a queue")


def tshark(path, *words):
    """What tshark prints of a capture, without what it says of being run by root."""
    said = command(["tshark", "-n", "-r", path, *words]).stdout.splitlines()
    return [line for line in said if not line.startswith("Running as user")]


PCAPS = "/tmp/trace-pcaps"


@scenario("trace.pcaps", 480, rxe="the captures are made with ferroce")
def pcaps(_report):
    """What `make pcaps` leaves: tshark finds in each capture what it is about, and a comment on each packet."""
    with shell_words() as words:
        run(f"sh tests/examples/pcaps.sh {PCAPS}", words, 400)
    with open(f"{PCAPS}/list.txt", encoding="utf-8") as f:
        made = [line.rstrip("\n").split("\t") for line in f]
    require(len(made) == 21, f"{len(made)} captures")
    for name, about, wanted in made:
        path = f"{PCAPS}/{name}.pcapng"
        # Both in one go, for tshark takes its time to start: those that it is about, and those without a comment.
        found = [line.split("\t") for line in tshark(path, "-Y", f"({wanted}) || !frame.comment", "-T", "fields",
                                                     "-e", "frame.number", "-e", "frame.comment")]
        bare = [number for number, comment in found if not comment]
        require(not bare, f"{name}: packets without a comment: {bare[:5]}")
        require(found, f"{name}: no packet is {wanted}")
        require(about in command(["capinfos", path]).stdout, f"{name} does not say what it is about")
        require(os.path.getsize(path) < 128 << 10, f"{name} is large")
