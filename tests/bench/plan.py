# SPDX-License-Identifier: GPL-2.0
"""What `make bench` measures: one row for each figure, the same command lines for both drivers."""

from dataclasses import dataclass

# In the order of the first round; the next round begins with the other one.
DRIVERS = ("ferroce", "rxe")
PLACES = {"local": "one device, to itself", "veth": "two namespaces over veth"}
ROUNDS = 3

# The least that ferroce should reach against rdma_rxe, as a ratio in which more is better.
TARGET = {
    ("local", "bandwidth"): 4.0, ("local", "rate"): 4.0, ("local", "latency"): 2.0,
    ("veth", "bandwidth"): 1.0, ("veth", "rate"): 1.0, ("veth", "latency"): 1.0,
}
UNIT = {"latency": "us", "rate": "msg/s", "bandwidth": "MiB/s"}


@dataclass(frozen=True)
class Row:
    """One perftest program with its options, run in one place. `iters` is for each QP."""

    place: str
    kind: str
    tool: str
    size: int
    iters: int
    mtu: int = 4096
    qps: int = 1
    quick: bool = True
    # Of the tool, beside those that follow from the rest, such as the type of the queue pairs.
    options: tuple = ()
    # Each end on a processor of its own, whatever the scheduler thinks of it. A worker may help an end that is not.
    pinned: bool = True
    # Receives posted to each QP; 0 is as many as may be sent at once. With fewer, RNR NAKs stop the sender.
    receives: int = 0

    @property
    def name(self):
        """Unique, and short enough for a table."""
        size = f"{self.size >> 20} MiB" if self.size >= 1 << 20 else \
            f"{self.size >> 10} KiB" if self.size >= 1 << 10 else f"{self.size} B"
        return " ".join((self.tool, *self.options, size)) + (f" x{self.qps} QPs" if self.qps > 1 else "") \
            + (f" MTU {self.mtu}" if self.mtu != 4096 else "") + ("" if self.pinned else ", not pinned") \
            + (f", {self.receives} receives" if self.receives else "")

    @property
    def key(self):
        """Names the row among those of all places."""
        return f"{self.place}: {self.name}"

    @property
    def target(self):
        """The least ratio."""
        return TARGET[self.place, self.kind]

    def argv(self, dev, gid, port):
        """The command line of either end; the client's has the server's address behind it."""
        argv = [self.tool, "-d", dev, "-x", str(gid), "-F", "-n", str(self.iters), "-m", str(self.mtu), "-p", str(port),
                *self.options]
        if "read" in self.tool or "atomic" in self.tool:
            # Left alone it asks for whatever the device offers, which differs.
            argv += ["-o", "16"]
        elif self.tool.endswith("_lat"):
            argv += ["-I", str(self.size)]
        if "atomic" not in self.tool:
            argv += ["-s", str(self.size)]
        if self.tool.endswith("_bw"):
            depth = min(128, self.iters)
            argv += ["-t", str(depth), "-q", str(self.qps)]
            if "send" in self.tool:
                argv += ["-r", str(self.receives or depth)]
        return argv


def rows(quick=False):
    """The rows; `quick` leaves out those that say least."""
    found = []
    for place in PLACES:
        for tool in ("ib_send_lat", "ib_write_lat", "ib_read_lat"):
            found.append(Row(place, "latency", tool, 64, 4000))
        found.append(Row(place, "rate", "ib_write_bw", 64, 10000))
        found.append(Row(place, "rate", "ib_write_bw", 64, 800, qps=16))
        if place == "local":
            for qps, iters in ((1, 10000), (16, 800)):
                found.append(Row(place, "rate", "ib_write_bw", 64, iters, qps=qps, quick=False, pinned=False))
        found.append(Row(place, "rate", "ib_send_bw", 4096, 100, qps=16, receives=4))
        # Without packets the same bytes take a fraction of the time, which must not become too short to measure.
        times = 2 if place == "local" else 1
        for tool in ("ib_write_bw", "ib_read_bw", "ib_send_bw"):
            found.append(Row(place, "bandwidth", tool, 64 << 10, 480 * times, quick=False))
            found.append(Row(place, "bandwidth", tool, 1 << 20, 40 * times))
        for tool in ("ib_write_bw", "ib_read_bw"):
            found.append(Row(place, "bandwidth", tool, 1 << 20, 24 * times, mtu=1024, quick=False))
        # A stream of an unreliable type has no end where something is lost, a ping-pong loses nothing.
        for options in (("-c", "UC"), ("-c", "UD"), ("--use-srq",)):
            found.append(Row(place, "latency", "ib_send_lat", 64, 4000, quick=False, options=options))
        found.append(Row(place, "latency", "ib_atomic_lat", 8, 4000, quick=False, options=("-A", "FETCH_AND_ADD")))
        found.append(Row(place, "rate", "ib_send_bw", 64, 800, qps=16, quick=False, options=("--use-srq",)))
        found.append(Row(place, "rate", "ib_atomic_bw", 8, 4000, quick=False, options=("-A", "FETCH_AND_ADD")))
    return [row for row in found if row.quick or not quick]
