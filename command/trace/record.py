# SPDX-License-Identifier: GPL-2.0
"""`ferroce trace -- CMD`: captures in all network namespaces while a program runs, records the module's events, and draws."""

import argparse
import fcntl
import glob
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, contextmanager, suppress

from . import show, why
from .capture import NotReadable
from .events import can_record, parse, recorded

# Seconds for tcpdump to begin, and to end.
BEGIN, END = 10, 10
# What is on its way when the program ends: acknowledgements, and what tcpdump has not written yet.
REST = 0.5
# The module's events, beside the captures, and the capture of the own namespace.
EVENTS, HERE = "events.txt", "@here"
LOCK = "/run/ferroce-trace.lock"
LOCAL_PATH = "/sys/class/infiniband/*/local_path"
BY_SUFFIX = {".html": "html", ".htm": "html", ".json": "json", ".md": "mermaid", ".mmd": "mermaid",
             ".pcapng": "pcapng", ".perfetto": "perfetto"}


def namespaces() -> list[str]:
    """This network namespace, as "", and the named ones."""
    own, found = os.stat("/proc/self/ns/net").st_ino, [""]
    known = {own}
    for path in sorted(glob.glob("/run/netns/*")):
        with suppress(OSError):
            inode = os.stat(path).st_ino
            if inode not in known:
                known.add(inode)
                found.append(os.path.basename(path))
    return found


class Capture:
    """One tcpdump, on all netdevs of a namespace."""

    def __init__(self, namespace: str, path: str):
        self.path = path
        self.said = b""
        # It has ended by itself, and has not seen the rest.
        self.died = False
        there = ["ip", "netns", "exec", namespace] if namespace else []
        # In immediate mode nothing waits in a block of the ring when the capture ends.
        self.tcpdump = subprocess.Popen(
            [*there, "tcpdump", "-i", "any", "-n", "-B", "65536", "--immediate-mode", "-w", path, "udp port 4791"],
            stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True)

    def hear(self, wanted: bytes, seconds: float) -> bool:
        """Reads what it says until this is said."""
        end = time.monotonic() + seconds
        err = self.tcpdump.stderr
        assert err
        while wanted not in self.said:
            ready, _, _ = select.select([err], [], [], max(0.0, end - time.monotonic()))
            got = os.read(err.fileno(), 4096) if ready else b""
            if not got:
                return False
            self.said += got
        return True

    def begin(self) -> None:
        """Waits until it captures."""
        if not self.hear(b"listening on", BEGIN):
            said = self.said.decode(errors="replace").strip().splitlines()
            raise NotReadable(f"tcpdump does not begin: {said[-1] if said else 'it says nothing'}")

    def end(self) -> None:
        """Ends it, with all that it has seen in the file."""
        self.died = self.tcpdump.poll() is not None
        self.tcpdump.send_signal(signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            _, rest = self.tcpdump.communicate(timeout=END)
            self.said += rest or b""
        self.tcpdump.kill()
        self.tcpdump.wait()

    def missed(self) -> int:
        """Packets that the kernel had no room for."""
        for line in self.said.decode(errors="replace").splitlines():
            if "dropped by kernel" in line:
                return int(line.split()[0])
        return 0


@contextmanager
def by_the_wire():
    """Messages within one ferroce device become packets for this time. One such run at a time: it puts back what it found."""
    before, lock = {}, None
    try:
        try:
            lock = open(LOCK, "w", encoding="ascii")
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                print("ferroce: waiting for another run with --wire to end", file=sys.stderr)
                fcntl.flock(lock, fcntl.LOCK_EX)
            for path in glob.glob(LOCAL_PATH):
                with open(path, encoding="ascii") as f:
                    before[path] = f.read()
                with open(path, "w", encoding="ascii") as f:
                    f.write("0")
        except OSError as e:
            raise NotReadable(f"{e.filename}: {e.strerror}; --wire needs root") from None
        yield
    finally:
        for path, value in before.items():
            with suppress(OSError), open(path, "w", encoding="ascii") as f:
                f.write(value)
        if lock:
            lock.close()


def local_path_is_on() -> bool:
    """Whether a device here hands messages over in memory."""
    for path in glob.glob(LOCAL_PATH):
        with suppress(OSError), open(path, encoding="ascii") as f:
            if f.read().strip() not in ("0", "N"):
                return True
    return False


def run_program(words: list[str]) -> int:
    """Runs it to its end; its exit status, as a shell has it. Ctrl-C is for the program."""
    try:
        program = subprocess.Popen(words)
    except OSError as e:
        raise NotReadable(f"{words[0]}: {e.strerror}") from None
    while True:
        try:
            status = program.wait()
            return 128 - status if status < 0 else status
        except KeyboardInterrupt:
            pass
        except BaseException:
            program.terminate()
            raise


def ends(number: int, _: object) -> None:
    """A signal ends the run, with all that it has begun."""
    raise SystemExit(128 + number)


def capture(words: list[str], folder: str) -> tuple[int, list[Capture], str | None]:
    """Runs the program; its exit status, what was captured meanwhile, and the module's events."""
    captures: list[Capture] = []
    told: list[str] = []
    try:
        for namespace in namespaces():
            captures.append(Capture(namespace, os.path.join(folder, f"{namespace or HERE}.pcap")))
        for one in captures:
            one.begin()
        with ExitStack() as stack:
            if can_record():
                try:
                    stack.enter_context(recorded(told))
                except OSError as e:
                    print(f"ferroce: no events: {e.filename}: {e.strerror}", file=sys.stderr)
            status = run_program(words)
            time.sleep(REST)
        for text in told:
            with open(os.path.join(folder, EVENTS), "w", encoding="utf-8") as f:
                f.write(text)
    finally:
        # A second Ctrl-C must not leave some of them running.
        old = signal.signal(signal.SIGINT, signal.SIG_IGN)
        for one in captures:
            one.end()
        signal.signal(signal.SIGINT, old)
    return status, captures, told[0] if told else None


def form_of(args: argparse.Namespace) -> str:
    """The form that is asked for, or that the name of the output says."""
    return args.form or BY_SUFFIX.get(os.path.splitext(args.output or "")[1], "text")


def has_packets(path: str) -> bool:
    """Whether a capture holds more than its header."""
    return os.path.getsize(path) > 24


def clear(folder: str) -> None:
    """Makes the folder, or takes out what an earlier run has left there, which is not of this one."""
    old = [path for name in (EVENTS, "*.pcap") for path in glob.glob(os.path.join(glob.escape(folder), name))]
    if old and not os.path.exists(os.path.join(folder, f"{HERE}.pcap")):
        raise NotReadable(f"{folder} holds files of somebody else, such as {os.path.basename(old[-1])}: name another folder")
    try:
        os.makedirs(folder, exist_ok=True)
        for path in old:
            with suppress(FileNotFoundError):
                os.unlink(path)
    except OSError as e:
        raise NotReadable(f"{e.filename}: {e.strerror}") from None


def run(args: argparse.Namespace) -> int:
    """Runs the program, then draws. The exit status is the program's; raises NotReadable where there is nothing to draw."""
    words = args.words[1:] if args.words[:1] == ["--"] else args.words
    if not words:
        raise NotReadable("a program to run is missing: ferroce trace -- ibv_rc_pingpong ...")
    if not shutil.which("tcpdump"):
        raise NotReadable("tcpdump is needed: apt install tcpdump")
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, ends)
    with ExitStack() as stack:
        folder = args.keep or stack.enter_context(tempfile.TemporaryDirectory(prefix="ferroce-trace-"))
        clear(folder)
        local = not args.wire and local_path_is_on()
        if args.wire:
            stack.enter_context(by_the_wire())
        status, captures, text = capture(words, folder)
        full = [one for one in captures if os.path.exists(one.path) and has_packets(one.path)]
        events = parse(text) if text else None
        sys.stdout.flush()
        if not full and not (events and events.all):
            hint = ("; messages within one ferroce device go from memory to memory: --wire makes packets of them" if local
                    else "")
            raise NotReadable(f"{words[0]} ended with status {status}, and no packet of RoCE v2 was seen{hint}")
        args.files = [one.path for one in full] + [os.path.join(folder, EVENTS)] * bool(events and events.all)
        trace = show.read(args)
        for one in captures:
            if one.died:
                trace.notes.append(f"{os.path.basename(one.path)}: tcpdump has ended before the program: what follows is missing")
        for one in full:
            if missed := one.missed():
                trace.notes.append(f"{os.path.basename(one.path)}: {missed} packets were not captured, for want of room"
                                   + ": they look lost" * (not trace.events))
        args.form = form_of(args)
        show.write(show.FORMS[args.form](trace, args), args.output)
        if args.output:
            sys.stderr.write(why.draw(events) if events and events.all else "")
            print(f"{trace.headline()}\ndrawn in {args.output}", file=sys.stderr)
        if args.keep:
            print(f"captures and events are in {args.keep}", file=sys.stderr)
    return status
