# SPDX-License-Identifier: GPL-2.0
"""Two senders share a queue in user space that marks packets where it gets long, and drops those that it has no room for."""

import select
import tempfile
from contextlib import contextmanager

from tests.guest import roce
from tests.guest.fabric import acquaint, counters, grown, wait_until
from tests.guest.programs import both_running, on_cpu, tail
from tests.guest.relay import Relay, receive
from tests.guest.scenario import Failed, require, scenario, shortened
from tests.scenarios.losses.fault import controlled
from tests.scenarios.messages.perftest import PORT
from tests.scenarios.paths.paths import taking_part

MTU, MESSAGE = 1024, 65536
# Packets: what the queue has room for, and from where on it marks.
LIMIT, THRESHOLD = 200, 20
# Both have begun when each has sent so many packets; then so many are counted, until each has had the processor often.
BEGUN, SHARED = 500, shortened(30000, 2000)


class Bottleneck(Relay):
    """Hands packets to the first end one by one, when nothing comes any more: what the second sends meanwhile waits."""

    def __init__(self, ends, marks):
        super().__init__(ends)
        self.marks = marks
        self.queue = []
        self.dropped = self.marked = self.longest = 0
        # Packets that went through, by the queue pair that they are for: all, and those since both had begun.
        self.carried, self.shared, self.classes = {}, {}, set()
        for one in self.sockets:
            one.setblocking(False)

    def _run(self):
        near, far = self.sockets
        while True:
            ready = select.select([*self.sockets, self.stop], [], [], 0 if self.queue else None)[0]
            if self.stop in ready:
                return
            for source in ready:
                try:
                    while True:
                        frame = receive(source)
                        if source is far:
                            self._take(frame)
                        else:
                            self._pass(far, frame)
                except BlockingIOError:
                    pass
            if self.queue:
                self._serve(near)

    def _pass(self, to, frame):
        packet = roce.parse(frame)
        if packet and packet.opcode != roce.CNP:
            self.classes.add(packet.traffic_class)
        to.send(frame)

    def _take(self, frame):
        """A frame joins the queue. What is no RoCE has a queue of its own."""
        if not roce.parse(frame):
            self.sockets[0].send(frame)
            return
        if len(self.queue) >= LIMIT:
            self.dropped += 1
            return
        if self.marks and len(self.queue) >= THRESHOLD:
            self.marked += 1
            frame = roce.marked(frame)
        self.queue.append(frame)
        if self.shared:
            self.longest = max(self.longest, len(self.queue))

    def _serve(self, near):
        frame = self.queue.pop(0)
        packet = roce.parse(frame)
        self.carried[packet.qpn] = self.carried.get(packet.qpn, 0) + 1
        busy = {qpn for qpn, n in self.carried.items() if n > BEGUN}
        if len(busy) > 1:
            self.shared[packet.qpn] = self.shared.get(packet.qpn, 0) + 1
        self._pass(near, frame)


@contextmanager
def stream(ends, port):
    """A sender of WRITEs without end, from the second end to the first."""
    server, client = (["ib_write_bw", "-d", end.dev, "-x", end.gid(), "-F", "-p", port, "-m", MTU, "-s", MESSAGE, "-u", 18,
                       "--run_infinitely"] for end in ends)
    # On one CPU the senders have the same part of it.
    with tempfile.TemporaryFile("w+") as out, both_running(server, on_cpu(0, [*client, ends[0].tcp]), ends, port, out) as procs:
        yield lambda: require(all(proc.poll() is None for proc in procs), f"a program has ended: {tail(out)}")


def share(ends, marks):
    """Two senders at once, until enough packets are counted; the queue, and how much each counter has grown."""
    before = [counters(end.dev) for end in ends]
    with Bottleneck(ends, marks) as queue, stream(ends, PORT) as one, stream(ends, PORT + 1) as two:
        def enough():
            one()
            two()
            return sum(queue.shared.values()) >= SHARED

        try:
            wait_until("packets pass the queue", enough, 60)
        except Failed as e:
            raise Failed(f"{e}: {queue.carried}, {queue.dropped} dropped") from None
    return queue, [grown(was, counters(end.dev)) for end, was in zip(ends, before)]


@scenario("paths.bottleneck", 120, rxe="rdma_rxe has other counters")
def bottleneck(report):
    """Two senders share a queue that marks packets: neither loses one, both get their part, and the queue stays short.
    Without notifications the same queue overflows."""
    with controlled(bridged=True) as ends:
        acquaint(*ends)
        queue, (_, sender) = share(ends, marks=False)
        report.note(f"without marks: {queue.dropped} dropped, at most {queue.longest} in the queue, {queue.shared}")
        require(queue.dropped and sender["retransmitted_pkts"], "nothing was lost: the queue was no bottleneck")
        require({one & 3 for one in queue.classes} == {0}, f"traffic classes {queue.classes} without ECN")
        with taking_part(ends):
            queue, (receiver, sender) = share(ends, marks=True)
        report.note(f"with marks: {queue.marked} marked, {queue.dropped} dropped, at most {queue.longest} in the queue, "
                    f"{queue.shared}; {receiver['np_cnp_sent']} notifications sent, {sender['rp_cnp_handled']} came, "
                    f"{receiver['np_ecn_marked_roce_packets']} marked packets came")
        require(not queue.dropped and not sender["retransmitted_pkts"],
                f"{queue.dropped} dropped, {sender['retransmitted_pkts']} sent again")
        require({one & 3 for one in queue.classes} == {roce.ECT_0, roce.CE}, f"traffic classes {queue.classes} with ECN")
        least, most = sorted(queue.shared.values())
        require(2 * least >= most, f"they do not share it fairly: {queue.shared}")
        require(queue.longest < LIMIT // 2, f"{queue.longest} packets in the queue")
        require(0 < receiver["np_cnp_sent"] <= receiver["np_ecn_marked_roce_packets"] <= queue.marked,
                f"{receiver['np_cnp_sent']} notifications for {queue.marked} marks")
        require(0 < sender["rp_cnp_handled"] <= receiver["np_cnp_sent"], f"{sender['rp_cnp_handled']} notifications came")
