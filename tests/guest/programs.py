# SPDX-License-Identifier: GPL-2.0
"""Runs a server and a client program against each other, each in its own network namespace."""

import os
import subprocess
import tempfile
import time
from contextlib import ExitStack, contextmanager

from tests.guest.fabric import read, wait_until
from tests.guest.netlink import in_netns
from tests.guest.scenario import PATIENCE, Failed, last_line, say, say_command


def program(name):
    """Where a program of ours is: in the guest it lies beside the tests' folder."""
    return os.path.normpath(os.path.join(os.path.dirname(__file__), "..", "..", name))


def spawn(argv, netns, out, err=subprocess.STDOUT, env=None, stdin=subprocess.DEVNULL, **kw):
    """Starts a program with its output in a file, and with more in its environment. Its /sys is that of the first network
    namespace."""
    say_command(argv, netns)
    return in_netns(netns, lambda: subprocess.Popen(list(map(str, argv)), stdin=stdin, stdout=out, stderr=err,
                                                    env={**os.environ, **(env or {})}, **kw))


@contextmanager
def running(argv, netns=None, out=None, **kw):
    """A program that is killed at the end, if it has not ended by then. Its output is in the scenario's log, or elsewhere."""
    proc = spawn(argv, netns, out, **kw)
    try:
        yield proc
    finally:
        proc.kill()
        proc.wait()


@contextmanager
def both_running(server, client, ends, port, out=None):
    """A server and its client, which do not end by themselves. Yields their processes."""
    with running(server, ends[0].netns, out) as one:
        wait_until("the server listens", lambda: listens(one.pid, port))
        with running(client, ends[1].netns, out) as two:
            yield one, two


def on_cpu(cpu, argv):
    return ["taskset", "-c", str(cpu), *argv]


@contextmanager
def busy():
    """Other work for the machine: on each CPU a process spins, at normal priority. Yields them."""
    with ExitStack() as stack:
        yield [stack.enter_context(running(on_cpu(cpu, ("sh", "-c", "while :; do :; done")))) for cpu in range(os.cpu_count())]


def listens(pid, port):
    """Whether something in the network namespace of a process listens on a TCP port."""
    for table in ("tcp", "tcp6"):
        for line in (read(f"/proc/{pid}/net/{table}") or "").splitlines()[1:]:
            field = line.split()
            if field[3] == "0A" and int(field[1].rsplit(":", 1)[1], 16) == port:
                return True
    return False


def listens_at(name):
    """Whether something listens on the socket of this machine of that name."""
    # The flag of one that listens is __SO_ACCEPTCON.
    return any(int(field[3], 16) & 0x10000 and field[-1] == name
               for field in map(str.split, (read("/proc/net/unix") or "").splitlines()[1:]))


class Output:
    """What a program prints. A warning must not end up in the middle of a line of results, so they are kept apart."""

    def __init__(self):
        self.out, self.err = tempfile.TemporaryFile("w+"), tempfile.TemporaryFile("w+")

    def text(self):
        """Everything up to now: the results, and then the warnings."""
        results = tail(self.out)
        return results + ("\n" if results and not results.endswith("\n") else "") + tail(self.err)

    def close(self):
        self.out.close()
        self.err.close()


def run_both(server, client, ends, port, limit=60, ready=None, env=None):
    """Runs both programs to their end; returns their outputs. Any non-zero exit is a failure. The client is started when
    the server listens on the TCP port, or when `ready` says so of its process id."""
    limit *= PATIENCE
    end = time.monotonic() + limit
    name = os.path.basename(server[0])
    s_out, c_out = Output(), Output()
    s = c = None
    try:
        s = spawn(server, ends[0].netns, s_out.out, s_out.err, env)
        while not (ready(s.pid) if ready else listens(s.pid, port)):
            if s.poll() is not None or time.monotonic() > end:
                raise Failed(f"{name} does not listen: {s_out.text()}")
            time.sleep(0.02)
        c = spawn(client, ends[1].netns, c_out.out, c_out.err, env)
        sides = ((c, c_out, "client"), (s, s_out, "server"))
        while True:
            running = [proc for proc, _, _ in sides if proc.poll() is None]
            if any(proc.poll() for proc, _, _ in sides):
                # The other would wait for ever, or learns of it and fails too: then both say why.
                time.sleep(0.2)
                raise Failed("; ".join(f"{who} of {name}: exit {proc.returncode}: {last_line(out.text())}"
                                       for proc, out, who in sides if proc.poll()))
            if not running:
                return s_out.text(), c_out.text()
            if time.monotonic() > end:
                raise Failed(f"{name} did not end in {limit} s: "
                             f"client: {last_line(c_out.text())}; server: {last_line(s_out.text())}")
            time.sleep(0.01)
    finally:
        for proc in filter(None, (c, s)):
            proc.kill()
            proc.wait()
        for who, out in (("server", s_out), ("client", c_out)):
            say("ended")
            print(f"[{who}]\n{out.text()}", end="", flush=True)
            out.close()


def tail(out):
    out.seek(0)
    return out.read()
