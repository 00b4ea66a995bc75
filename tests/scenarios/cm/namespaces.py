# SPDX-License-Identifier: GPL-2.0
"""Connections in several network namespaces at once, and with RDMA devices that each belong to one."""

import os
import signal
import tempfile
import time
from contextlib import ExitStack, contextmanager

from tests.guest import flavour
from tests.guest.fabric import (
    IB, batch, gid_of, join, link_add, link_del, no_dad, pair, two_ends, wait_active, wait_until, wire)
from tests.guest.programs import listens as listens_on_tcp
from tests.guest.programs import running, tail
from tests.guest.rdma_cm import connections, listens
from tests.guest.scenario import PATIENCE, command, last_line, require, scenario
from tests.scenarios.cm.cm import PINGS
from tests.scenarios.messages.pingpong import PORT


def rping(side, address):
    return ["rping", side, "-a", address, "-v", "-V", "-C", str(PINGS), "-S", "1000"]


def with_sysfs(netns, *argv):
    """A command with the /sys of a network namespace, where alone the devices are that belong to it."""
    return ["ip", "netns", "exec", netns, *argv]


def ended_well(proc, out):
    require(proc.wait(timeout=60 * PATIENCE) == 0, f"rping: {last_line(tail(out))}")


def judge(proc, out):
    ended_well(proc, out)
    seen = tail(out).count("ping data: rdma-ping")
    require(seen == PINGS, f"{seen} pings of {PINGS}: {tail(out)[-300:]}")


@scenario("cm.namespaces", 120)
def several(_report):
    """rping three times at once: in two namespaces to each other both ways, and in the first one, where the address and
    the port are the same as in another."""
    with connections(), pair() as ends, wire() as (netdev, _), ExitStack() as stack:
        one = flavour.current().prefix + "2"
        link_add(one, netdev)
        stack.callback(link_del, one)
        wait_active(one)
        # The address of the last is that of the first, too.
        talks = [(ends[0].ip4, ends[0].netns, ends[1].netns), (ends[1].ip4, ends[1].netns, ends[0].netns),
                 (ends[0].ip4, None, None)]

        def start(side, address, netns):
            out = stack.enter_context(tempfile.TemporaryFile("w+"))
            return stack.enter_context(running(rping(side, address), netns, out)), out

        servers = [start("-s", address, netns) for address, netns, _ in talks]
        for server, _ in servers:
            wait_until("the server listens", lambda server=server: listens(server.pid), 20)
        for client in [start("-c", address, netns) for address, _, netns in talks]:
            judge(*client)
        for server in servers:
            ended_well(*server)


@contextmanager
def exclusive():
    """Each device belongs to one network namespace. The kernel changes that only while there is no other one, and one
    that has gone is taken down behind the scenes."""
    def become(mode):
        done = command(["rdma", "system", "set", "netns", mode], ok=None)
        require(done.returncode == 0 or "busy" in done.stdout.lower(), f"rdma system set netns {mode}: {done.stdout}")
        return done.returncode == 0

    wait_until("the machine has one network namespace", lambda: become("exclusive"), 20)
    try:
        yield
    finally:
        wait_until("the machine has one network namespace again", lambda: become("shared"), 20)


@contextmanager
def owned():
    """Two devices, each in a namespace of its own that alone sees it, joined by veth."""
    ends = two_ends(("ea", "eb"), ("va", "vb"))
    no_dad()
    try:
        join(*ends)
        for end in ends:
            link_add(end.dev, end.netdev, netns=end.netns)
            gids = with_sysfs(end.netns, "sh", "-c", f"cat {IB}/{end.dev}/ports/1/gids/*")
            wait_until(f"{end.dev} is ACTIVE", lambda: "state ACTIVE" in links(end.netns))
            wait_until(f"{end.dev} has a GID", lambda: gid_of(end.ip4) in command(gids).stdout)
        yield ends
    finally:
        for end in ends:
            if end.dev in links(end.netns):
                link_del(end.dev, netns=end.netns)
        batch([f"netns del {end.netns}" for end in ends])


def links(netns):
    return command(["rdma", "link"], netns=netns, ok=None).stdout


@scenario("cm.exclusive", 120)
def each_its_own(_report):
    """Exclusive mode: each namespace sees its own device and no other, and rping goes from one to the other. A program
    that polls notices that its device is moved."""
    with connections(), exclusive(), owned() as ends:
        for end in ends:
            for where in ("ea", "eb", None):
                require((end.dev in links(where)) == (where == end.netns), f"{end.dev} seen from {where}: {links(where)}")
        server, client = ends
        with tempfile.TemporaryFile("w+") as s_out, tempfile.TemporaryFile("w+") as c_out, \
                running(with_sysfs(server.netns, *rping("-s", server.ip4)), out=s_out) as listener:
            wait_until("the server listens", lambda: listens(listener.pid, server.netns), 20)
            with running(with_sysfs(client.netns, *rping("-c", server.ip4)), out=c_out) as asker:
                judge(asker, c_out)
                ended_well(listener, s_out)
        with both_pinging(ends) as (proc, other):
            # Nothing comes any more, so it does nothing but poll.
            os.kill(other.pid, signal.SIGSTOP)
            time.sleep(0.1)
            move(server.dev, server.netns, client.netns)
            wait_until("it notices that the device is moved", lambda: proc.poll() is not None)
            move(server.dev, client.netns, server.netns)


@contextmanager
def both_pinging(ends):
    """Endless traffic of two programs that poll. Yields them."""
    with ExitStack() as stack:
        procs = []
        for end, peer in zip(ends, ([], [ends[0].ip4])):
            gids = f"cd {IB}/{end.dev}/ports/1/gids && grep -l {gid_of(end.ip4)} *"
            gid = command(with_sysfs(end.netns, "sh", "-c", gids)).stdout.split()[0]
            procs.append(stack.enter_context(running(with_sysfs(
                end.netns, "ibv_rc_pingpong", "-d", end.dev, "-g", gid, "-p", PORT, "-n", 1 << 30, *peer))))
            wait_until("the server listens", lambda: listens_on_tcp(procs[0].pid, PORT) or len(procs) == 2)
        shown = ["rdma", "res", "show", "qp"]
        wait_until("they are connected", lambda: "type RC state RTS" in command(shown, netns=ends[0].netns).stdout)
        yield procs


def move(dev, old, new):
    command(["rdma", "dev", "set", dev, "netns", new], netns=old)
    wait_until(f"{dev} has been moved", lambda: dev in links(new))
