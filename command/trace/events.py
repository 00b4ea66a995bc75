# SPDX-License-Identifier: GPL-2.0
"""The trace events of the module (Documentation/tracing.md, Events): recorded by tracefs, and read as text, be it of trace or
trace_pipe, of `trace-cmd report` or of `perf script`."""

import heapq
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from .calls import Calls
from .capture import NotReadable

TRACEFS = "/sys/kernel/tracing"
# Kilobytes for each CPU, some hundred thousand events, and for all of them.
ROOM, ALL_ROOM = 16384, 262144
LINE = re.compile(r"^ *(\S.*?)[- ] *(\d+) +\[\d+\].*? (\d+\.\d+): (?:\w+:)?(?:ferroce_(\w+)|(cm_id_attach)): *(.*)$")
# What a recording says of itself.
REMARK = re.compile(r"# note: (.*)")
# How far the clock of captures is ahead of that of the events, as `recorded` writes it.
AHEAD = re.compile(r"# the clock of captures is (\d+) ns ahead")
# What is lost is said in the stream, or by the figures in the first lines.
LOST = re.compile(r"LOST (\d+) EVENTS")
WRITTEN = re.compile(r"entries-in-buffer/entries-written: (\d+)/(\d+)")


@dataclass(frozen=True)
class Event:
    """One of them. Times are microseconds."""

    at: float
    name: str
    fields: dict[str, str]
    # The thread that was running, which an interrupt may have borrowed.
    task: str = ""
    thread: int = 0

    def number(self, name: str) -> int:
        """A field that is a number; raises NotReadable where it is none."""
        try:
            return int(self.fields[name], 0)
        except (KeyError, ValueError):
            raise self.damaged(name) from None

    def damaged(self, name: str) -> NotReadable:
        """Of a line that was cut off, or of an event of another version of the module."""
        return NotReadable(f"the event {self.name} at {self.at / 1e6:.6f} has no {name} that can be read: its line is damaged, "
                           "or of another version of the module")

    def __getitem__(self, name: str) -> str:
        return self.fields.get(name, "")

    @property
    def qpn(self) -> str:
        """The QP, as it is printed."""
        return self["qpn"]


@dataclass
class Events:
    """Those of a run, in their order."""

    all: list[Event] = field(default_factory=list)
    # How many did not fit.
    lost: int = 0
    # Nanoseconds from the clock of the events to that of captures; None where nobody has written it down.
    ahead: int | None = None
    notes: list[str] = field(default_factory=list)
    # By their kind, and by this and their queue pair, of so many.
    kinds: dict[tuple[str, str | None], list[Event]] = field(default_factory=dict)
    sorted_out: int = -1

    def add(self, other: "Events") -> None:
        """Those of another file of the same machine."""
        self.all = sorted([*self.all, *other.all], key=lambda event: event.at)
        self.lost += other.lost
        self.notes += other.notes
        self.ahead = other.ahead if self.ahead is None else self.ahead

    def named(self, *names: str, **wanted: str) -> Iterator[Event]:
        """Those of these kinds whose fields are so."""
        if self.sorted_out != len(self.all):
            self.kinds, self.sorted_out = {}, len(self.all)
            for event in self.all:
                for key in ((event.name, None), (event.name, event.qpn)):
                    self.kinds.setdefault(key, []).append(event)
        # What is asked of one queue pair is asked of each, of which there may be thousands.
        qpn = wanted.pop("qpn", None)
        kinds = [self.kinds[name, qpn] for name in names if (name, qpn) in self.kinds]
        found = kinds[0] if len(kinds) == 1 else heapq.merge(*kinds, key=lambda event: event.at)
        return (event for event in found if all(event[key] == value for key, value in wanted.items()))


def parse(text: str) -> Events:
    """Reads them; other lines are passed over."""
    events = Events()
    for line in text.splitlines():
        if found := LINE.search(line):
            task, thread, at, own, of_kernel, rest = found.groups()
            name = own or of_kernel
            words = dict(word.split("=", 1) for word in rest.split() if "=" in word)
            kind, _, function = name.partition("__")
            if function:
                name = {"call": "call", "return": "call_done"}.get(kind, name)
                words = {"op": function, "dev": ""} | words
            events.all.append(Event(float(at) * 1e6, name, words, task, int(thread)))
        elif found := REMARK.search(line):
            events.notes.append(found.group(1))
        elif found := LOST.search(line):
            events.lost += int(found.group(1))
        elif found := WRITTEN.search(line):
            events.lost += int(found.group(2)) - int(found.group(1))
        elif found := AHEAD.search(line):
            events.ahead = int(found.group(1))
    events.all.sort(key=lambda event: event.at)
    return events


def holds(data: bytes) -> bool:
    """Whether a file is such a text, and no capture."""
    head = data[:65536].decode(errors="replace")
    return any(LINE.search(line) for line in head.splitlines())


def write(path: str, text: str) -> None:
    """Writes a file of tracefs."""
    with open(path, "w", encoding="ascii") as f:
        f.write(text)


def can_record() -> bool:
    """Whether the module is there with its events, and this process may record them."""
    return os.access(f"{TRACEFS}/events/ferroce/enable", os.W_OK)


@contextmanager
def recorded(into: list[str]):
    """Records in a buffer of its own, which nobody else sees; at the end the text is in the list."""
    buffer = f"{TRACEFS}/instances/ferroce-{os.getpid()}"
    calls = Calls(TRACEFS, buffer)
    # A signal may end it anywhere, also before mkdir() has returned.
    try:
        os.mkdir(buffer)
        write(f"{buffer}/trace_clock", "mono")
        with suppress(OSError):
            write(f"{buffer}/buffer_size_kb", str(min(ROOM, ALL_ROOM // (os.cpu_count() or 1))))
        write(f"{buffer}/events/ferroce/enable", "1")
        # It tells whether it was the kernel that did not bind an address. Not each kernel has the connection manager loaded.
        with suppress(OSError):
            write(f"{buffer}/events/rdma_cma/cm_id_attach/enable", "1")
        said = calls.begin()
        yield
        calls.stop()
        # The program may have unloaded the module.
        with suppress(OSError):
            write(f"{buffer}/events/ferroce/enable", "0")
        with suppress(OSError), open(f"{buffer}/trace", encoding="utf-8", errors="replace") as f:
            ahead = time.clock_gettime_ns(time.CLOCK_REALTIME) - time.clock_gettime_ns(time.CLOCK_MONOTONIC)
            note = f"# note: {said}\n" if said else ""
            into.append(f"# the clock of captures is {ahead} ns ahead\n{note}{f.read()}")
    finally:
        calls.end()
        with suppress(OSError):
            write(f"{buffer}/events/ferroce/enable", "0")
        with suppress(OSError):
            os.rmdir(buffer)
