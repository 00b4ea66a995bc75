# SPDX-License-Identifier: GPL-2.0
"""`ferroce try`: messages of this machine to itself; those to a peer are in peer.py."""

import re
import shutil
import socket
import subprocess
import tempfile
import time
from contextlib import contextmanager

from .add import add
from .link import links
from .peer import listen, reach
from .report import Report
from .system import Wrong, call, install, must, need_root


@contextmanager
def a_link():
    """A link that can carry a message: one that is there, else one on a dummy netdev, which goes again."""
    ready = [link for link in links() if link.netdev and link.state == "ACTIVE" and link.best_gid()]
    if ready:
        yield ready[0]
        return
    need_root("without a link that is ACTIVE, making one for the trial")
    netdev = "ferroce-try"
    must("ip", "link", "add", netdev, "mtu", "4500", "type", "dummy")
    try:
        # An address for documentation (RFC 5737), which nobody has.
        must("ip", "addr", "add", "192.0.2.91/32", "dev", netdev)
        must("ip", "link", "set", netdev, "up")
        yield add(netdev)
    finally:
        # The link goes with its netdev.
        call("ip", "link", "del", netdev)


def free_port():
    """A TCP port that nobody listens on now."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def pingpong(link, program, size, iters):
    """One of the stock programs against itself with checked data; microseconds per round trip."""
    index, _ = link.best_gid()
    argv = [program, "-d", link.name, "-g", str(index), "-p", str(free_port()), "-s", str(size), "-n", str(iters), "-c"]
    with tempfile.TemporaryFile("w+") as out:
        server = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT)
        try:
            # Until the server listens the client is refused; a server that cannot ends.
            while True:
                status, text, err = call(*argv, "127.0.0.1")
                if not status or "Couldn't connect" not in err or server.poll() is not None:
                    break
                time.sleep(0.1)
            if not status:
                server.wait(timeout=300)
        finally:
            server.kill()
            server.wait()
        out.seek(0)
        theirs = out.read().strip()
    if status or server.returncode:
        raise Wrong(f"{program} failed: {(err or theirs or text or f'exit {status}').splitlines()[-1]}")
    if "invalid data" in text + theirs:
        raise Wrong(f"{program}: the data arrived damaged")
    return float(re.search(r"([0-9.]+) usec/iter", text).group(1))


def attempt(args):
    """Sends messages: from this machine to itself, to a peer, or to each peer that asks."""
    report = Report()
    if args.listen:
        return listen(args.peer)
    if args.peer:
        reach(report, args.peer)
    else:
        to_itself(report, args.json)
    report.show(args.json)
    missing, unknown = report.count("problem"), report.count("unknown")
    if not args.json:
        print("something is missing" if missing else "it cannot be told from here" if unknown else "it works")
    return 1 if missing else 3 if unknown else 0


def to_itself(report, quiet):
    """Messages of this machine to itself."""
    if not shutil.which("ibv_rc_pingpong"):
        raise Wrong("ibv_rc_pingpong is not installed: " + install("ibverbs-utils"))
    with a_link() as link:
        index, address = link.best_gid()
        if not quiet:
            print(f"{link.name} on {link.netdev}, GID {index} ({address}), IB MTU {link.ib_mtu()}")
        before = link.counters()
        for program, size, what in (("ibv_rc_pingpong", 4096, "RC"), ("ibv_uc_pingpong", 4096, "UC"),
                                    ("ibv_ud_pingpong", 1024, "UD")):
            usec = pingpong(link, program, size, 200)
            report.ok(what, f"200 round trips of {size} B, data checked: {usec:.1f} us each")
        after = link.counters()
        grown = {n: v - before.get(n, 0) for n, v in after.items() if v > before.get(n, 0)}
        report.ok("counters that grew", ", ".join(f"{n} {v}" for n, v in grown.items())
                  or "none, for messages of a device to itself need no packets")
