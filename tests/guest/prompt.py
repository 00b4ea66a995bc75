# SPDX-License-Identifier: GPL-2.0
"""The guest of `make shell` and `make run`: two network namespaces joined by veth, a device in each, and a command or a
prompt beside them.

Usage: python3 -m tests.guest.prompt RESULTS_DIR. RESULTS_DIR/wanted.json says what; the exit status goes to
RESULTS_DIR/status. RESULTS_DIR/begun is there when it has come so far.
"""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress

from tests.guest.fabric import add_links, batch, join, no_dad, two_ends, wait_until
from tests.judges import leaks

# What the guest has beside the programs of the root: `left` and `right` run a command in a namespace, `listening` waits
# until a server there takes connections.
WORDS = {name: f'exec ip netns exec {name} "$@"' for name in ("left", "right")} | {
    "listening": 'until ss -Hltn "sport = :$1" | grep -q .; do sleep 0.1; done'}
WORK = "/work"
BEGUN = "begun"
# What kmemleak found, where the kernel has it.
LOST = "lost"
# The console behind the host's terminal, where wanted.json names no other.
CONSOLE = "/dev/hvc0"
PROMPT = "ferroce:\\w# "


def two():
    ends = two_ends(("left", "right"), ("eth0", "eth0"))
    no_dad()
    batch(["link set lo up"])
    join(*ends)
    add_links(ends)
    return ends


def message(ends, folder):
    left, right = ends
    return f"""
Two network namespaces, joined by veth, with an RDMA device in each:
    left   {left.dev}  {left.ip4}  {left.ip6}  (GID index {left.gid()} for IPv4)
    right  {right.dev}  {right.ip4}  {right.ip6}  (GID index {right.gid()} for IPv4)
left COMMAND and right COMMAND run something there; listening PORT waits until a server does. To begin with:
    left ferroce show
    right ibv_rc_pingpong -d {right.dev} -g {right.gid()} &
    right listening 18515; left ibv_rc_pingpong -d {left.dev} -g {left.gid()} {right.ip4}
    right ib_send_lat -d {right.dev} &
    right listening 18515; left ib_send_lat -d {left.dev} {right.ip4}
{WORK} is {folder}. exit ends the guest.
"""


def environment(wanted):
    return {"HOME": "/root", "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "LC_ALL": "C.UTF-8", "TERM": wanted.get("term") or "dumb"}


def run(wanted):
    """The command, with its output on ours. What it has left in the background, such as a tcpdump, ends with it."""
    with subprocess.Popen(["sh", "-c", wanted["command"]], cwd=WORK, env=environment(wanted), stdin=subprocess.DEVNULL,
                          start_new_session=True) as command:
        status = command.wait()
        with suppress(ProcessLookupError):
            os.killpg(command.pid, signal.SIGTERM)
            time.sleep(0.2)
            os.killpg(command.pid, signal.SIGKILL)
    return status


def shell(wanted, text):
    """A prompt on the console; what this process prints itself is in the log."""
    console = wanted["console"]
    wait_until("the console is there", lambda: os.path.exists(console))
    with open(console, "r+b", buffering=0) as tty:
        subprocess.call(["stty", "sane", "rows", str(wanted["rows"]), "cols", str(wanted["columns"])], stdin=tty)
        tty.write(text.replace("\n", "\r\n").encode())
        return subprocess.call(["setsid", "--ctty", "--wait", "bash", "--norc", "-i"], cwd=WORK,
                               stdin=tty, stdout=tty, stderr=tty, env=environment(wanted) | {"PS1": PROMPT})


def main():
    where = sys.argv[1]
    with open(f"{where}/{BEGUN}", "w", encoding="ascii"):
        pass
    with open(f"{where}/wanted.json", encoding="utf-8") as f:
        wanted = json.load(f)
    # What making the ends says is not the command's output.
    kept = os.dup(1)
    with open("/tmp/ends.log", "wb") as log:
        os.dup2(log.fileno(), 1)
        try:
            ends = two()
            text = message(ends, wanted["folder"])
        except BaseException:
            sys.stdout.flush()
            with open("/tmp/ends.log", "rb") as f:
                os.write(2, f.read())
            raise
        sys.stdout.flush()
    os.dup2(kept, 1)
    status = shell(wanted, text) if wanted["command"] is None else run(wanted)
    if os.path.exists(leaks.KMEMLEAK):
        with open(f"{where}/{LOST}", "w", encoding="utf-8") as f:
            f.writelines(o for o in leaks.scan() if not leaks.is_of_ib_core(o))
    with open(f"{where}/status", "w", encoding="ascii") as f:
        f.write(str(status if status >= 0 else 128 - status))


if __name__ == "__main__":
    main()
