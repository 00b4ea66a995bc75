# SPDX-License-Identifier: GPL-2.0
"""What `make bench` measures: one row for each figure, the same command lines for both drivers."""

from dataclasses import dataclass, replace

# In the order of the first round; the next round begins with the other one.
DRIVERS = ("ferroce", "rxe")
PLACES = {"local": "one device", "veth": "veth"}
# How the programs are run: first as users run them, and last what only says how fast the code is.
WAYS = {
    "plain": "as users run the tools, on any CPU, with perftest's own depths",
    "busy": "the same while on each CPU another process spins",
    "pinned": "each end on a CPU of its own, the depths given",
}
ROUNDS = 3

# What ferroce is to reach against rdma_rxe, as ratios in which more is better: on one device, and over veth.
WANTED = {
    ("latency", "send"): (10, 4), ("latency", "write"): (10, 4), ("latency", "read"): (8, 2.5),
    ("rate", "send"): (10, 5), ("rate", "write"): (12, 6), ("rate", "atomic"): (10, 4),
    ("bandwidth", "send"): (4, 4), ("bandwidth", "write"): (4, 4), ("bandwidth", "read"): (4, 4),
    ("connections", "cmtime"): (1, 1),
}
# Beside other work: this part of the ratio that the same row has without it.
BUSY_TARGET = 2 / 3
UNIT = {"latency": "us", "rate": "msg/s", "bandwidth": "MiB/s", "connections": "/s", "disk": "IO/s"}
CONNECTIONS = 1000
# What takes its time whatever the machine's speed: its rows are not repeated more often where nothing is emulated.
FIXED = ("connections", "disk")
# Seconds of a row of fio, and how many requests it has under way.
DISK_SECONDS = 3
DEPTHS = (1, 32)


@dataclass(frozen=True)
class Row:
    """One program with its options, run in one place. `iters` is for each QP, or the depth of fio."""

    place: str
    kind: str
    tool: str
    size: int
    iters: int
    # One of WAYS.
    way: str = "plain"
    # 0 is the port's own.
    mtu: int = 0
    qps: int = 1
    # Of the tool, beside those that follow from the rest, such as the type of the queue pairs.
    options: tuple = ()
    # Receives posted to each QP; 0 is as many as may be sent at once. With fewer, RNR NAKs stop the
    # sender.
    receives: int = 0

    @property
    def name(self):
        """What is run and where, in short; unique among those that run in the same way."""
        if self.kind == "connections":
            return f"{PLACES[self.place]}: {self.tool} -c {self.iters}"
        if self.kind == "disk":
            return f"{PLACES[self.place]}: NVMe, {self.tool} {self.size >> 10} KiB, depth {self.iters}"
        size = f"{self.size >> 20} MiB" if self.size >= 1 << 20 else \
            f"{self.size >> 10} KiB" if self.size >= 1 << 10 else f"{self.size} B"
        return f"{PLACES[self.place]}: " + " ".join((self.tool, *self.options, size)) \
            + (f" x{self.qps} QPs" if self.qps > 1 else "") + (f" MTU {self.mtu}" if self.mtu else "") \
            + (f", {self.receives} receives" if self.receives else "")

    @property
    def key(self):
        """Names the row among those of all ways."""
        return f"{self.way}: {self.name}"

    @property
    def idle(self):
        return replace(self, way="plain")

    def target(self, idle_ratio):
        """The least ratio, or None; `idle_ratio` is that of the same row without other work, if it has any."""
        if self.way == "busy":
            return idle_ratio and BUSY_TARGET * idle_ratio
        if self.kind == "disk":
            return None
        operation = self.tool.split("_")[1] if "_" in self.tool else self.tool
        return float(WANTED[self.kind, operation][list(PLACES).index(self.place)])

    def argv(self, dev, gid, port):
        """The command line of either end; the client's has the server's address behind it."""
        if self.kind == "connections":
            return [self.tool, "-c", str(self.iters)]
        if self.kind == "disk":
            return ["fio", "--direct=1", "--thread", "--ioengine=libaio", "--time_based", f"--runtime={DISK_SECONDS}",
                    f"--iodepth={self.iters}", f"--bs={self.size}", f"--name={self.tool}", f"--rw={self.tool}",
                    f"--filename={dev}"]
        argv = [self.tool, "-d", dev, "-x", str(gid), "-F", "-n", str(self.iters), "-p", str(port), *self.options]
        if "atomic" not in self.tool:
            argv += ["-s", str(self.size)]
        if self.qps > 1:
            argv += ["-q", str(self.qps)]
        if self.mtu:
            argv += ["-m", str(self.mtu)]
        return argv + (self.depths() if self.way == "pinned" else [])

    def depths(self):
        """What perftest would choose by itself, and by the device in part."""
        argv = []
        if "read" in self.tool or "atomic" in self.tool:
            # Left alone it asks for whatever the device offers, which differs.
            argv += ["-o", "16"]
        elif self.tool.endswith("_lat"):
            argv += ["-I", str(self.size)]
        if self.tool.endswith("_bw"):
            depth = min(128, self.iters)
            argv += ["-t", str(depth)]
            if "send" in self.tool:
                argv += ["-r", str(self.receives or depth)]
        return argv


def plain():
    found = []
    for place in PLACES:
        for tool in ("ib_send_lat", "ib_write_lat", "ib_read_lat"):
            found.append(Row(place, "latency", tool, 64, 4000))
        # A stream has found who sends for it after some ten milliseconds, which are not its rate.
        for tool in ("ib_send_bw", "ib_write_bw"):
            found.append(Row(place, "rate", tool, 64, 40000))
            found.append(Row(place, "rate", tool, 64, 4000, qps=16))
        # Without packets the same bytes take a fraction of the time, which must not become too
        # short to measure.
        for tool in ("ib_send_bw", "ib_write_bw", "ib_read_bw"):
            found.append(Row(place, "bandwidth", tool, 64 << 10, 4000 if place == "local" else 1000))
    found.append(Row("veth", "bandwidth", "ib_send_bw", 4096, 4000))
    found.append(Row("veth", "connections", "cmtime", 0, CONNECTIONS))
    found += [Row("veth", "disk", "randread", 4096, depth) for depth in DEPTHS]
    return found


def busy():
    wanted = (("local", "ib_write_bw", 64), ("veth", "ib_send_bw", 64), ("veth", "ib_send_bw", 4096))
    return [replace(row, way="busy") for row in plain() if row.qps == 1 and (row.place, row.tool, row.size) in wanted]


def pinned():
    """How fast it is when no scheduler is in between, and what kinds of queue pairs and operations the others leave out."""
    found = []
    for place in PLACES:
        found.append(Row(place, "latency", "ib_send_lat", 64, 4000, "pinned"))
        found.append(Row(place, "rate", "ib_write_bw", 64, 40000, "pinned"))
        found.append(Row(place, "rate", "ib_write_bw", 64, 4000, "pinned", qps=16))
        found.append(Row(place, "rate", "ib_send_bw", 4096, 100, "pinned", qps=16, receives=4))
        for tool in ("ib_write_bw", "ib_read_bw"):
            found.append(Row(place, "bandwidth", tool, 1 << 20, 200 if place == "local" else 100, "pinned"))
        # A stream of an unreliable type has no end where something is lost, a ping-pong loses
        # nothing.
        found.append(Row(place, "latency", "ib_send_lat", 64, 4000, "pinned", options=("-c", "UD")))
        found.append(Row(place, "rate", "ib_atomic_bw", 8, 4000, "pinned", options=("-A", "FETCH_AND_ADD")))
    found.append(Row("veth", "rate", "ib_send_bw", 64, 2000, "pinned", qps=16, options=("--use-srq",)))
    found.append(Row("veth", "bandwidth", "ib_write_bw", 1 << 20, 50, "pinned", mtu=1024))
    return found


# So many times as often where nothing is emulated.
NATIVE_TIMES = 25


def rows(times=1):
    """All rows. Each does `times` as much."""
    return [row if row.kind in FIXED else replace(row, iters=row.iters * times) for row in plain() + busy() + pinned()]
