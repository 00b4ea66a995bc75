# SPDX-License-Identifier: GPL-2.0
"""What can be seen of a device from outside: its objects (`rdma resource`), its counters (`rdma statistic`, sysfs), and
who it is. What is shown is held against what a program has just done."""

import json
import os
import re
import socket
import struct
import subprocess
import time
from contextlib import contextmanager

from tests.guest import flavour
from tests.guest.cases import Talker
from tests.guest.fabric import IB, counters, loop, pair, read, wait_until, write
from tests.guest.scenario import PATIENCE, command, require, say, scenario
from tests.guest.slow_disk import PATH, SLOW, slow_disk
from tests.guest.umad import CLASS_PORT_INFO, PORT_COUNTERS, PORT_COUNTERS_EXTENDED, performance_agent
from tests.scenarios.messages.pingpong import talk

# What the program has: see observed.c.
RECEIVES, SENDS, REGION = 3, 5, 3 * 4096


def rdma(*argv):
    """What iproute2's rdma shows, as data, with the driver's own attributes."""
    return json.loads(command(["rdma", "-j", "-dd", *argv]).stdout or "[]")


def driver(row):
    """The driver's attributes of an object. Numbers are shown as such or as text."""
    found = {key.removeprefix("drv_"): value for key, value in row.items() if key.startswith("drv_")}
    return {key: int(value, 0) if re.fullmatch(r"(0x[0-9a-f]+|\d+)", str(value)) else value
            for key, value in ((key, str(value)) for key, value in found.items())}


class Observed(Talker):
    """The program that does what it is asked to."""

    def __init__(self, end):
        super().__init__(end, "observed")
        try:
            said = self.line()
            require(said, "the program has ended")
            self.a, self.b, self.beside_a, self.beside_b = map(int, said.split())
            self.wait()
        except BaseException:
            self.__exit__()
            raise

    def wait(self):
        said = self.line()
        require(said == "done", said or "the program has ended")

    def do(self, what):
        self.tell(what)
        self.wait()

    def shown(self, kind, *name):
        """Its objects of a kind, as rdma shows them."""
        return [row for row in rdma("resource", "show", kind, *name) if row.get("pid") == self.proc.pid]

    def qp(self, number):
        """What the driver says of a queue pair."""
        found = [driver(row) for row in self.shown("qp") if row["lqpn"] == number]
        require(len(found) == 1, f"queue pair {number} is shown {len(found)} times")
        return found[0]


@contextmanager
def observed(end):
    """The program, to its end."""
    with Observed(end) as program:
        yield program
        program.tell("end")
        said = program.line()
        require(program.proc.wait(timeout=60 * PATIENCE) == 0 and said == "passed", said or "the program has ended")


def want(row, **values):
    """Each of these is shown so."""
    wrong = {key: row.get(key) for key, value in values.items() if row.get(key) != value}
    require(not wrong, f"shown as {wrong}, and not as {({key: values[key] for key in wrong})}, in {row}")


@scenario("observe.resources", 90, rxe="rdma_rxe tells no details, and counts no queue pairs")
def resources(_report):
    """`rdma resource show -dd` tells of queue pairs, queues and regions what their program has just done with them."""
    with loop(True) as end, observed(end) as it:
        want(it.qp(it.a), sq_size=64, sq_pending=0, rq_size=64, rq_left=0, path="local", path_mtu=1024, timeout=15,
             retry_cnt=6, rnr_retry=7, max_rd_atomic=4)
        it.do("stick")
        wait_until("two SENDs wait", lambda: it.qp(it.a)["sq_pending"] == SENDS - RECEIVES)
        want(it.qp(it.b), rq_left=0, sq_pending=0)
        waiting = sorted(driver(row)["waiting"] for row in it.shown("cq"))
        require(waiting == [0, 0, RECEIVES, RECEIVES], f"completions that wait: {waiting}")
        it.do("unstick")
        want(it.qp(it.a), sq_pending=0)
        want(it.qp(it.b), rq_left=2)
        require({driver(row)["waiting"] for row in it.shown("cq")} == {0}, "completions wait that were polled")
        it.do("make")
        (srq,) = it.shown("srq")
        want(driver(srq), size=16, max_sge=2, left=6, limit=4)
        (cq,) = (driver(row) for row in it.shown("cq") if driver(row)["timestamps"])
        want(cq, waiting=0, armed="solicited", overrun=0, moderation_count=8, moderation_period_us=1000)
        regions = {int(row["mrlen"]): driver(row) for row in it.shown("mr")}
        want(regions[REGION], access=0x11, addresses="virtual", windows=1)
        want(regions[REGION + 1], access=0x21, addresses="offsets", windows=0)
        require(all(row["pieces"] >= 1 for row in regions.values()), f"regions without memory: {regions}")
        require(it.shown("pd") and it.shown("ctx"), "its protection domain or its context is not shown")
        everything = json.dumps([it.shown(kind) for kind in ("qp", "cq", "mr", "srq", "pd", "ctx")])
        maps = read(f"/proc/{it.proc.pid}/maps") or ""
        secrets = {int(part, 16) for line in maps.splitlines() for part in line.split()[0].split("-")}
        numbers = {int(word, 0) for word in re.findall(r"\b(?:0x[0-9a-f]+|\d+)\b", everything)}
        require(not secrets & numbers, "an address of the process is shown")


@scenario("observe.pinning", 60, rxe="rdma_rxe tells no details, and counts no queue pairs")
def pinning(_report):
    """A region is shown while its process registers it again, and waits for the disk behind the new memory."""
    with loop(True) as end, slow_disk() as disk, observed(end) as it:
        it.do(f"again {PATH} {SLOW.start}")
        wait_until("the memory is read", disk.asked.is_set)
        # Its own process: what waits for a lock in the kernel cannot be killed.
        with subprocess.Popen(["rdma", "-dd", "resource", "show", "mr"], stdout=subprocess.PIPE, text=True) as asking:
            try:
                wait_until("the regions are shown", lambda: asking.poll() is not None)
            finally:
                disk.let.set()
            shown = asking.stdout.read()
        say(shown.strip())
        require(f"mrlen {5 * 4096} " in shown, "the region is not shown as it was")
        it.do("finish")


def statistic(*argv, ok=(0,)):
    return command(["rdma", "statistic", "qp", *argv], ok=ok)


def sets(end):
    """The counters that are bound, by number: the queue pairs of each, and its values."""
    found = {}
    for row in rdma("statistic", "qp", "show", "link", f"{end.dev}/1"):
        values = {key: value for key, value in row.items() if isinstance(value, int)}
        found[row["cntn"]] = (set(map(int, re.findall(r"\d+", json.dumps(row.get("lqpn", []))))), values)
    return found


def first_sent(values):
    """Packets that were sent for the first time."""
    return values["sent_pkts"] - values["retransmitted_pkts"] - values["tail_probes"]


def all_came(end):
    """On one device what was sent was received: in each count nothing is missing and nothing counts twice."""
    now = counters(end.dev)
    return now["sent_pkts"] == now["rcvd_pkts"] and now["sent_bytes"] == now["rcvd_bytes"]


def settle(end):
    """Waits until nothing is on the way: an acknowledgement that came late has been asked for again, and that is answered,
    too. ib_core gives out what it read last for some milliseconds."""
    time.sleep(0.02)
    wait_until("all is counted", lambda: all_came(end))


def received(values):
    """Packets that were received for the first time."""
    return values["rcvd_pkts"] - values["duplicate_request"]


@scenario("observe.counters-of-queue-pairs", 120, rxe="rdma_rxe tells no details, and counts no queue pairs")
def counters_of_queue_pairs(_report):
    """`rdma statistic qp`: queue pairs are counted apart, one or several together, and the sums of the port stay right."""
    with loop(False) as end:
        link = f"{end.dev}/1"
        with observed(end) as it:
            it.do("send p 3 1000")
            statistic("bind", "link", link, "lqpn", str(it.a))
            ((number, (bound, values)),) = sets(end).items()
            require(bound == {it.a} and not any(values[name] for name in ("sent_pkts", "rcvd_pkts")),
                    f"counter {number} of {bound} begins with {values}")
            it.do("send p 10 1000")
            settle(end)
            apart = sets(end)[number][1]
            require(first_sent(apart) == 10 and apart["rcvd_pkts"] >= 1, f"10 SENDs of a packet: {apart}")
            it.do("send n 7 1000")
            require(sets(end)[number][1] == apart, "another queue pair counts there too")
            require(statistic("bind", "link", link, "lqpn", str(it.a), ok=None).returncode, "it was bound twice")
            require(statistic("bind", "link", link, "lqpn", "77", ok=None).returncode, "a queue pair of no number was bound")
            statistic("bind", "link", link, "lqpn", str(it.beside_b), "cntn", str(number))
            it.do("send n 5 1000")
            settle(end)
            bound, values = sets(end)[number]
            require(bound == {it.a, it.beside_b}, f"bound are {bound}")
            require(received(values) == received(apart) + 5 and first_sent(values) > 10, f"5 more SENDs: {values}")
            total = counters(end.dev)
            require(total["sent_pkts"] >= 25, f"the port has sent {total['sent_pkts']}")
            for qp in (it.a, it.beside_b):
                statistic("unbind", "link", link, "cntn", str(number), "lqpn", str(qp))
            require(not sets(end), "a counter without queue pairs is left")
            after = counters(end.dev)
            require(all(after[name] >= total[name] for name in total), f"{total} shrank to {after}")
            it.do("send p 2 1000")
            # ib_core gives out what it read last for some milliseconds.
            wait_until("it is counted with the others again",
                       lambda: counters(end.dev)["sent_pkts"] >= after["sent_pkts"] + 2)
            statistic("bind", "link", link, "lqpn", str(it.b))
            it.do("send p 2 1000")
            settle(end)
        require(not sets(end) and all_came(end), "what was bound when its program ended is left, or lost")
        total = counters(end.dev)["sent_pkts"]
        statistic("set", "link", link, "auto", "type", "on")
        try:
            with observed(end) as it:
                ((_, (bound, values)),) = sets(end).items()
                require(bound == {it.a, it.b, it.beside_a, it.beside_b}, f"bound by their type are {bound}")
                it.do("send p 4 3000")
                settle(end)
                ((_, (_, values)),) = sets(end).items()
                require(first_sent(values) >= 12, f"4 SENDs of 3 packets: {values}")
                wait_until("the port counts no others",
                           lambda: counters(end.dev)["sent_pkts"] - total == values["sent_pkts"])
        finally:
            statistic("set", "link", link, "auto", "off")


def port(end):
    """What is in sysfs of every RDMA port."""
    folder = f"{IB}/{end.dev}/ports/1/counters"
    return {name: int(read(f"{folder}/{name}")) for name in os.listdir(folder)}


@scenario("observe.port-counters", 60, rxe="rdma_rxe tells no details, and counts no queue pairs")
def port_counters(_report):
    """`counters/` of the port in sysfs, as every RDMA port has them, say the same as `hw_counters/`; by the local path, too."""
    with loop(False) as end, observed(end) as it:
        def agree():
            now, ours = port(end), counters(end.dev)
            return all(now[f"port_{way}_packets"] == ours[f"{our_way}_pkts"] and
                       now[f"port_{way}_data"] == ours[f"{our_way}_bytes"] // 4
                       for way, our_way in (("xmit", "sent"), ("rcv", "rcvd")))

        require({"port_rcv_errors", "port_xmit_discards", "symbol_error"} <= set(port(end)), f"only {sorted(port(end))}")
        it.do("send p 20 3000")
        wait_until("both say the same", agree)
        require(port(end)["port_xmit_packets"] >= 60, f"60 packets and their answers: {port(end)}")
        statistic("bind", "link", f"{end.dev}/1", "lqpn", str(it.a))
        it.do("send p 20 3000")
        wait_until("both say the same, with a queue pair counted apart", agree)
        require(port(end)["port_xmit_packets"] >= 120, f"120 packets and their answers: {port(end)}")
        statistic("unbind", "link", f"{end.dev}/1", "cntn", str(next(iter(sets(end)))), "lqpn", str(it.a))
        wait_until("both say the same afterwards", agree)
        require(not port(end)["port_rcv_errors"], "errors without a cause")
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
            s.sendto(b"short", (end.ip4, 4791))
        wait_until("what is no packet is an error", lambda: port(end)["port_rcv_errors"] == 1)
    with loop(True) as end, observed(end) as it:
        before = port(end)
        it.do("send p 20 3000")
        # What a device sends to itself without packets is both sent and received.
        least = {"port_xmit_data": 20 * 3000 // 4, "port_rcv_data": 20 * 3000 // 4, "port_xmit_packets": 20, "port_rcv_packets": 20}
        wait_until("messages without packets are counted",
                   lambda: all(port(end)[name] - before[name] >= n for name, n in least.items()))


@scenario("observe.performance-mads", 120)
def performance_mads(_report):
    """libibumad asks the other device for the counters of its port: it answers what sysfs says. By IPv6 alone, for ib_mad
    takes the routing header of every answer for one of IPv6 when it looks for the question (`rcv_has_same_gid`)."""
    names = ("port_xmit_data", "port_rcv_data", "port_xmit_packets", "port_rcv_packets")
    with pair() as ends:
        talk(ends, 6, 1024, iters=20)
        here, there = ends

        def shown():
            return [int(read(f"{IB}/{there.dev}/ports/1/counters/{name}")) for name in names]

        with performance_agent(here.dev, here.gid(6)) as agent:
            status, info = agent.get(there.ip6, CLASS_PORT_INFO)
            require((status, info[0], info[1]) == (0, 1, 1), f"ClassPortInfo: status {status:#x}, {info[:8].hex()}")
            # The datagrams are counted, too: what is answered lies between what sysfs says before and after.
            for attribute, layout, offset in ((PORT_COUNTERS, ">IIII", 24), (PORT_COUNTERS_EXTENDED, ">QQQQ", 8)):
                before = shown()
                status, text = agent.get(there.ip6, attribute)
                after = shown()
                values = struct.unpack_from(layout, text, offset)
                require(status == 0 and text[1] == 1, f"attribute {attribute:#x}: status {status:#x}, port {text[1]}")
                require(all(b <= value <= a for b, value, a in zip(before, values, after)),
                        f"attribute {attribute:#x} is {values}; sysfs says {before}, then {after}")
                require(after[2] > before[2] >= 20 and after[3] > before[3], f"packets: {before}, {after}")
            # IBTA 13.4.7: an invalid field; an attribute that is not there.
            for port, attribute, want in ((2, PORT_COUNTERS, 7 << 2), (1, 0x0013, 3 << 2)):
                status, _ = agent.get(there.ip6, attribute, port)
                require(status == want, f"attribute {attribute:#x} of port {port}: status {status:#x}")


@scenario("observe.identity", 30)
def identity(_report):
    """The description of the node can be written, and the version of the firmware is the module's wherever it is shown."""
    with loop() as end:
        path = f"{IB}/{end.dev}/node_desc"
        before = read(path)
        if flavour.current().is_ferroce:
            host = os.uname().nodename
            require(before == ("ferroce" if host == "(none)" else f"ferroce {host}"), f"the host is {host}, the node {before}")
        for words in ("rack 7, left", "x" * 64, before):
            write(path, words + ("\n" if len(words) < 64 else ""))
            with open(path, encoding="utf-8") as f:
                require(f.read() == words + "\n", "it does not keep what was written")
        version = read(f"{IB}/{end.dev}/fw_ver")
        (device,) = rdma("dev", "show", end.dev)
        said = re.search(r"fw_ver:\s*(\S+)", command(["ibv_devinfo", "-d", end.dev]).stdout)[1]
        if flavour.current().is_ferroce:
            require(re.fullmatch(r"\d+\.\d+\.\d+", version) and version == device["fw"] == said,
                    f"it is {version}, {device['fw']}, {said}")
