# SPDX-License-Identifier: GPL-2.0
"""Runs a server and a client program against each other, each in its own network namespace."""

import os
import subprocess
import tempfile
import time

from tests.vm.fabric import read
from tests.vm.scenario import PATIENCE, Failed, last_line, say


def spawn(argv, netns, out):
    """Starts a program with its output in a file."""
    if netns:
        argv = ["ip", "netns", "exec", netns, *argv]
    say("+ " + " ".join(map(str, argv)))
    return subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT)


def listens(pid, port):
    """Whether something in the network namespace of a process listens on a TCP port."""
    for table in ("tcp", "tcp6"):
        for line in (read(f"/proc/{pid}/net/{table}") or "").splitlines()[1:]:
            field = line.split()
            if field[3] == "0A" and int(field[1].rsplit(":", 1)[1], 16) == port:
                return True
    return False


def talk(server, client, ends, port, limit=60):
    """Runs both programs to their end; returns their outputs. Any non-zero exit is a failure."""
    limit *= PATIENCE
    end = time.monotonic() + limit
    with tempfile.TemporaryFile("w+") as s_out, tempfile.TemporaryFile("w+") as c_out:
        s = spawn(server, ends[0].netns, s_out)
        c = None
        try:
            while not listens(s.pid, port):
                if s.poll() is not None or time.monotonic() > end:
                    raise Failed(f"{os.path.basename(server[0])} does not listen: {tail(s_out)}")
                time.sleep(0.02)
            c = spawn(client, ends[1].netns, c_out)
            # Whoever fails first is the interesting one; the other would wait for ever.
            while c.poll() is None or s.poll() is None:
                for proc, out, who in ((c, c_out, "client"), (s, s_out, "server")):
                    if proc.poll() not in (None, 0):
                        time.sleep(0.2)
                        raise Failed(f"{who} of {os.path.basename(server[0])}: exit {proc.returncode}: "
                                     f"{last_line(tail(out))}")
                if time.monotonic() > end:
                    raise Failed(f"{os.path.basename(server[0])} did not end in {limit} s: "
                                 f"client: {last_line(tail(c_out))}; server: {last_line(tail(s_out))}")
                time.sleep(0.01)
            for proc, out, who in ((c, c_out, "client"), (s, s_out, "server")):
                if proc.returncode:
                    raise Failed(f"{who} of {os.path.basename(server[0])}: exit {proc.returncode}: "
                                 f"{last_line(tail(out))}")
            return tail(s_out), tail(c_out)
        finally:
            for proc in (c, s):
                if proc and proc.poll() is None:
                    proc.kill()
                if proc:
                    proc.wait()
            for who, out in (("server", s_out), ("client", c_out)):
                say("ended")
                print(f"[{who}]\n{tail(out)}", end="", flush=True)


def tail(out):
    """Everything a program has printed up to now."""
    out.seek(0)
    return out.read()
