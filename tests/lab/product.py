# SPDX-License-Identifier: GPL-2.0
"""`make shell` and `make run` as a person has them, from a project of their own."""

import fcntl
import os
import pty
import re
import select
import shutil
import struct
import subprocess
import tempfile
import termios
import time
from contextlib import contextmanager
from pathlib import Path

from tests.guest.scenario import PATIENCE
from tests.lab import config
from tests.lab.say import Bad
from tests.lab.shell import kill_group

LIMIT = 150 * PATIENCE
# What a terminal makes of colours and the like.
ESCAPES = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]|\x1b\][^\x07]*\x07|\r")
PINGPONG = ("right ibv_rc_pingpong -d {two} -g 1 -c >right.txt &\nright listening 18515\n"
            "left ibv_rc_pingpong -d {one} -g 1 -c 10.77.0.2\nwait $!")


def devices():
    prefix = "rx" if os.environ.get("FERROCE_LINK_TYPE") == "rxe" else "fe"
    return {"one": prefix + "0", "two": prefix + "1"}


@contextmanager
def project():
    """A folder of somebody's, with a program in it."""
    folder = Path(tempfile.mkdtemp(prefix="ferroce-project-"))
    try:
        # What it leaves in the background does not keep the guest.
        text = "set -e\nname=$1\nsleep 100000 &\n" + PINGPONG.format(**devices()) + '\necho "$name: two ends talked"\nexit 7\n'
        (folder / "test.sh").write_text(text, encoding="utf-8")
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def run(_root):
    """`make run`: output, files and the exit status come back; quotes arrive as they were typed."""
    with project() as folder:
        argv = ["make", "--no-print-directory", "run", f"DIR={folder}",
                "CMD=sh test.sh \"it's \\$HOME\" && echo not reached"]
        with subprocess.Popen(argv, cwd=config.CHECKOUT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, errors="replace", start_new_session=True) as proc:
            try:
                text, _ = proc.communicate(timeout=LIMIT)
            except subprocess.TimeoutExpired:
                kill_group(proc)
                raise Bad(f"not done in {LIMIT} s", proc.communicate()[0]) from None
        for want in (r"^it's \$HOME: two ends talked$", r"^1000 iters in .* usec/iter$", r"\[.*run\] Error 7$"):
            if not re.search(want, text, re.M):
                raise Bad(f"the output does not say {want!r}", text)
        if "not reached" in text:
            raise Bad("the command went on behind what failed", text)
        if proc.returncode != 2:
            raise Bad(f"make exits with {proc.returncode}, not 2", text)
        if "1000 iters in" not in (folder / "right.txt").read_text(encoding="utf-8"):
            raise Bad("the file that the command wrote is not here", text)
        return re.search(r"^1000 iters in .*$", text, re.M).group()


class Screen:
    """A terminal with a program in it, and a person who reads and types."""

    def __init__(self, argv):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.chdir(config.CHECKOUT)
            os.execvp(argv[0], argv)
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        self.raw = b""
        self.read = 0

    @property
    def text(self):
        """What can be read, without colours."""
        return ESCAPES.sub("", self.raw.decode(errors="replace"))

    def more(self):
        """Waits a little for more; false when the program has gone."""
        if select.select([self.fd], [], [], 0.5)[0]:
            try:
                data = os.read(self.fd, 65536)
            except OSError:
                return False
            self.raw += data
            return bool(data)
        return True

    def until(self, pattern):
        """What there is to read up to a pattern, from where the last call stopped."""
        end = time.monotonic() + LIMIT
        while True:
            found = re.compile(pattern, re.M).search(self.text, self.read)
            if found:
                part, self.read = self.text[self.read:found.end()], found.end()
                return part
            if time.monotonic() > end or not self.more():
                raise Bad(f"{pattern!r} does not come", self.text)

    def type(self, keys):
        os.write(self.fd, keys.encode())

    def leave(self):
        """The exit status of the program, which is ending."""
        end = time.monotonic() + LIMIT
        while self.more():
            if time.monotonic() > end:
                raise Bad("it does not end", self.text)
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])

    def close(self):
        """Ends what is still there: the terminal's end is a hang-up for its processes."""
        os.close(self.fd)


ROWS, COLUMNS = 33, 150
PROMPT = r"^ferroce:/work# $"


def shell(_root):
    """`make shell`: a message, a prompt on a terminal that behaves like one, and what the message names works."""
    with project() as folder:
        screen = Screen(["make", "--no-print-directory", "shell", f"DIR={folder}"])
        try:
            hello = screen.until(PROMPT)
            advice = re.search(r"^ +(right ibv_rc_pingpong .*)\n +(right listening .*)$", hello, re.M)
            if not advice or str(folder) not in hello:
                raise Bad("the message above the prompt does not say what to type", hello)
            screen.type("stty size; ls; date >made-there\r")
            listed = screen.until(PROMPT)
            if f"{ROWS} {COLUMNS}" not in listed or "test.sh" not in listed:
                raise Bad("no terminal of that size, or not the folder of the host", listed)
            if not (folder / "made-there").exists():
                raise Bad("what the guest writes is not on the host", listed)
            # Ended by the key that does so on a terminal.
            screen.type("echo begun; sleep 100000; echo not reached\r")
            screen.until("^begun$")
            screen.type("\x03")
            # Behind the `^C` of the terminal, where the shell had not begun the program yet.
            screen.until(PROMPT.removeprefix("^"))
            screen.type(advice.group(1) + "\r" + advice.group(2) + "\r")
            talked = screen.until(r"^1000 iters in .* usec/iter$[\s\S]*^1000 iters in .* usec/iter$")
            screen.type("exit\r")
            status = screen.leave()
            if status:
                raise Bad(f"make exits with {status}", screen.text)
            if re.search("^not reached", screen.text, re.M):
                raise Bad("the key that ends a program did not", screen.text)
            return talked.strip().splitlines()[-1]
        finally:
            screen.close()
