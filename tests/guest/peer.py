# SPDX-License-Identifier: GPL-2.0
"""Two processes of the C program `verbs_peer` that move checked data between two devices."""

import signal
import subprocess
import tempfile
import time

from tests.guest.programs import listens, program, run_both, spawn, tail
from tests.guest.scenario import PATIENCE, Failed, last_line, say

PROGRAM = program("verbs_peer")
PORT = 18800

# How the program ends; see peer_c/peer.h. After SIGKILL Python says -9.
ENDED, FAILED, ERROR_COMPLETION, PEER_GONE, DEVICE_GONE, TORN_DOWN = 0, 1, 3, 4, 5, 6


def argv(end, family, *options):
    return [PROGRAM, "-d", end.dev, "-g", str(end.gid(family)), "-p", str(PORT), *map(str, options)]


def exchange(ends, family, *options, limit=60):
    """Runs a finite plan to its good end."""
    return run_both(argv(ends[0], family, *options), argv(ends[1], family, *options) + [ends[0].tcp], ends, PORT, limit)


class Conversation:
    """Endless traffic between two ends: `server` and `client` are its processes. Use it in a `with`."""

    def __init__(self, ends, *options, family=4):
        self.ends = ends
        server, client = (argv(end, family, "-n", 0, *options) for end in ends)
        self.lines = [server, client + [ends[0].tcp]]
        self.outs = [tempfile.TemporaryFile("w+") for _ in ends]
        self.server = self.client = None

    def __enter__(self):
        try:
            self.server = spawn(self.lines[0], self.ends[0].netns, self.outs[0])
            self._until("the server listens", lambda: listens(self.server.pid, PORT))
            self.client = spawn(self.lines[1], self.ends[1].netns, self.outs[1])
            self._until("traffic runs", lambda: all("running" in tail(out) for out in self.outs))
        except BaseException:
            self.__exit__()
            raise
        return self

    def _until(self, what, test):
        end = time.monotonic() + 20 * PATIENCE
        while not test():
            if time.monotonic() > end or any(p and p.poll() is not None for p in (self.server, self.client)):
                raise Failed(f"{what}: not so: {self.words()}")
            time.sleep(0.02)

    def words(self):
        return "; ".join(f"{who}: {last_line(tail(out))}" for who, out in zip(("server", "client"), self.outs))

    def alive(self):
        return self.server.poll() is None and self.client.poll() is None

    def wait(self, proc):
        """The exit status of a side that must end by itself."""
        try:
            return proc.wait(timeout=30 * PATIENCE)
        except subprocess.TimeoutExpired:
            raise Failed(f"a side hangs: {self.words()}") from None

    def ends_within(self):
        """The exit statuses of both, which must end by themselves."""
        return self.wait(self.server), self.wait(self.client)

    def finish(self):
        """Asks for a good end, after at least one more round with all its checks."""
        self.client.send_signal(signal.SIGTERM)
        status = self.ends_within()
        if status != (0, 0):
            raise Failed(f"traffic ended with {status}: {self.words()}")

    def words_of_error(self):
        """What an error completion was about: the text of those sides that had one."""
        return [last_line(tail(out)) for proc, out in zip((self.server, self.client), self.outs)
                if proc.returncode == ERROR_COMPLETION]

    def __exit__(self, *_):
        for proc in (self.client, self.server):
            if proc and proc.poll() is None:
                proc.kill()
        stuck = []
        for proc in (self.client, self.server):
            try:
                if proc:
                    proc.wait(timeout=20 * PATIENCE)
            except subprocess.TimeoutExpired:
                stuck.append(proc.pid)
        say(f"ended: {self.words()}")
        for out in self.outs:
            out.close()
        if stuck:
            raise Failed(f"processes {stuck} cannot be killed")
