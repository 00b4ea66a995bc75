# SPDX-License-Identifier: GPL-2.0
"""Where a guest's processors stand: what is left to ask when the guest itself says nothing more.

One that is at the same instruction in every look, with interrupts enabled, while the kernel has no stall to report,
is one that qemu does not let go on (seen once, in the kernel's memset() for 40 minutes); one in the slow path of a lock
is the driver's business.
"""

import bisect
import json
import os
import re
import socket
import time
from contextlib import contextmanager
from operator import itemgetter

LOOKS, PAUSE = 3, 0.5
# Seconds that the emulator has for an answer.
PATIENT = 30
STATE = re.compile(r"^CPU#(\d+)$.*?^[RE]IP=([0-9a-f]+) [RE]FL=([0-9a-f]+) [^\n]* CPL=(\d) [^\n]*HLT=(\d)", re.M | re.S)
INTERRUPTS = 1 << 9
# What qemu is given to answer in the guest's folder. The path of a socket has to be short: it is seen from where qemu
# starts, which is the folder mnt/b below.
OPTIONS = ["-qmp", "unix:../../monitor,server=on,wait=off"]


@contextmanager
def monitor(folder):
    """A function that asks the emulator in this folder as one would at its monitor."""
    # Short, however long the folder's own path is.
    short = os.open(folder, os.O_PATH | os.O_DIRECTORY)
    try:
        with socket.socket(socket.AF_UNIX) as wire:
            wire.settimeout(PATIENT)
            wire.connect(f"/proc/self/fd/{short}/monitor")
            with wire.makefile("rw", encoding="utf-8") as talk:
                talk.readline()

                def execute(command, **arguments):
                    talk.write(json.dumps({"execute": command, "arguments": arguments}) + "\n")
                    talk.flush()
                    for line in talk:
                        answer = json.loads(line)
                        if "return" in answer or "error" in answer:
                            return answer.get("return") or str(answer.get("error", ""))
                    raise OSError("the emulator has hung up")

                execute("qmp_capabilities")
                # A monitor's lines are for a terminal.
                yield lambda line: execute("human-monitor-command", **{"command-line": line}).replace("\r", "")
    finally:
        os.close(short)


class Symbols:
    """The kernel's functions by address, from a System.map or /proc/kallsyms; with none, addresses stay what they are."""

    # Bytes that the last function may have. No function is known to end: what is far behind the last one is none, such as a
    # -1 on a stack.
    LAST = 4096

    def __init__(self, text=""):
        self.functions = []
        for line in text.splitlines():
            address, kind, name, *module = line.split()
            if kind in "tTwW":
                self.functions.append((int(address, 16), name, module[0].strip("[]") if module else ""))
        self.functions.sort(key=itemgetter(0))
        self.starts = [start for start, _, _ in self.functions]

    def find(self, address):
        """Where a function begins, its name and its module; of several names at one address the first one. Else nothing."""
        at = bisect.bisect_right(self.starts, address) - 1
        if at < 0 or address > self.starts[-1] + self.LAST:
            return None
        return self.functions[bisect.bisect_left(self.starts, self.starts[at])]

    def name(self, address):
        """As the kernel's own reports have it."""
        found = self.find(address)
        return f"{found[1]}+{address - found[0]:#x}" if found else f"{address:#x}"


def states(registers, symbols):
    """Where each processor is, by its number, in what `info registers -a` says."""
    found = {}
    for number, address, flags, ring, halted in STATE.findall(registers):
        if halted == "1":
            where = "halted"
        elif ring != "0":
            where = "in a program"
        else:
            where = symbols.name(int(address, 16)) + ("" if int(flags, 16) & INTERRUPTS else " (interrupts off)")
        found[int(number)] = where
    return found


def look(folder, symbols, record):
    """A line about each processor, from a few looks; all that the emulator says goes to the file `record` as well."""
    seen = {}
    try:
        with monitor(folder) as ask, open(record, "a", encoding="utf-8") as out:
            for turn in range(LOOKS):
                time.sleep(PAUSE if turn else 0)
                registers = ask("info registers -a")
                now = states(registers, symbols)
                for number, where in now.items():
                    seen.setdefault(number, []).append(where)
                # What each waits for, and whether code is still made for them.
                out.writelines([registers, *(ask(f"info lapic {number}") for number in now), ask("info jit")])
    except (OSError, ValueError) as e:
        return [f"the emulator does not say where its processors are: {e}"]
    return [f"processor {number}: {', '.join(places)}" for number, places in sorted(seen.items())]
