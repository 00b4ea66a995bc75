# SPDX-License-Identifier: GPL-2.0
"""`make shell` and `make run`: a guest with RDMA, with a folder of the host in it."""

import contextlib
import json
import os
import select
import shlex
import shutil
import signal
import socket
import sys
import tempfile
import termios
import time
import tty
from functools import partial
from pathlib import Path

from tests.guest.prompt import BEGUN, CONSOLE, WORDS, WORK
from tests.lab import boot, build, say
from tests.lab.say import LabError
from tests.lab.suite import MOST_REPEATED, Follower, emulation_failed, environment

STATUS = "status"
# A folder of the host's, where sockets may have short names.
SOCKETS = "/tmp"


def root_lines(install):
    """Shell lines that finish the guest's root: the words for the two namespaces, and what installs the rest."""
    # qemu empties the file of the command's output when it opens it: nothing else may go there before.
    lines = ["exec 3>&1 >&2", f"mkdir -p $M{WORK}"]
    for name, text in WORDS.items():
        lines.append(f"printf '#!/bin/sh\\n%s\\n' {shlex.quote(text)} >$M/usr/local/bin/{name}")
        lines.append(f"chmod 755 $M/usr/local/bin/{name}")
    return lines + install + ["exec >&3 3>&-"]


DIED = 125


def status_of(vm):
    """The exit status that the guest left; DIED where it left none."""
    try:
        return int((vm.results / STATUS).read_text(encoding="ascii"))
    except (OSError, ValueError):
        say.quote(vm.output_tail(10) + vm.console_tail(10))
        say.line(f"the guest died before it had ended; its console is in {vm.console}")
        return DIED


def stock(root, with_module, folder, command, extra_qemu=""):
    install = build.install_lines(root) if with_module else []
    return guest(root, install, folder, command, partial(boot.Guest, kvm=boot.kvm_works(root), more=extra_qemu))


def guest(root, install, folder, command, kind, console=CONSOLE):
    """A guest that is to run a command, or a prompt where there is none, with a folder of the host at /work."""
    folder = Path(folder).resolve()
    if not folder.is_dir():
        raise LabError(f"{folder} is no folder: DIR= names the one that the guest sees")
    work = boot.fresh_work("shell" if command is None else "run")
    size = shutil.get_terminal_size()
    wanted = {"command": command, "folder": str(folder), "term": os.environ.get("TERM", "dumb"), "rows": size.lines,
              "columns": size.columns, "console": console}
    vm = kind(root, work, "python3 -m tests.guest.prompt /srv/results", extra=root_lines(install), env=environment(),
              folders={WORK: folder})
    (vm.results / "wanted.json").write_text(json.dumps(wanted), encoding="utf-8")
    return vm


def attended(make, attend):
    """The exit status of a guest that `make` makes and `attend` starts and sees to its end, or what that returns where it
    ended it early. Another one is booted where the emulator failed before the guest had begun: see suite.py."""
    for _ in range(MOST_REPEATED + 1):
        vm = make()
        early = attend(vm)
        if early is not None:
            return early
        begun = vm.kvm or (vm.results / BEGUN).exists()
        fault = "" if begun else emulation_failed(vm.console_tail(2000))
        if not fault:
            break
        say.step(f"the emulated machine failed while it booted ({fault}, in {vm.console}); boot another")
    return status_of(vm)


def run(make, limit):
    """Runs a command in the guest that `make` makes and passes on its output and its exit status."""
    deadline = time.monotonic() + limit

    def attend(vm):
        say.step(f"boot ({vm.how})")
        follower = Follower(vm.output)

        def pass_on():
            sys.stdout.buffer.write(follower.more())
            sys.stdout.buffer.flush()

        vm.start()
        try:
            while vm.alive():
                pass_on()
                if time.monotonic() > deadline:
                    say.line(f"the guest was ended after {limit} s")
                    return 124
                time.sleep(0.1)
        finally:
            vm.stop()
        pass_on()
        return None

    return attended(make, attend)


def shell(root, with_module, folder):
    # Who closes the terminal's window ends the guest: reading says so, too, and leaves time to end it.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    # The name of a socket is short; that of a checkout need not be.
    place = tempfile.mkdtemp(prefix="ferroce-", dir=SOCKETS)
    path = f"{place}/console"

    def make():
        return stock(root, with_module, folder, None,
                     f"-chardev socket,id=prompt,path={shlex.quote(path)},server=on,wait=off "
                     "-device virtio-serial-pci,id=prompts -device virtconsole,bus=prompts.0,chardev=prompt")

    def attend(vm):
        say.step(f"boot ({vm.how})")
        vm.start()
        try:
            relay(vm, path)
        finally:
            vm.stop()

    try:
        # What a person's last command came to is no verdict.
        return DIED if attended(make, attend) == DIED else 0
    finally:
        shutil.rmtree(place, ignore_errors=True)


@contextlib.contextmanager
def as_it_was(keys):
    """Leaves the terminal as it was found, if this is one; gives whether it is."""
    before = termios.tcgetattr(keys) if os.isatty(keys) else None
    try:
        yield before is not None
    finally:
        if before:
            with contextlib.suppress(termios.error):
                termios.tcsetattr(keys, termios.TCSADRAIN, before)


def connect(vm, path):
    """The guest's console, when qemu has made it; nothing when the guest dies before."""
    while vm.alive():
        console = socket.socket(socket.AF_UNIX)
        try:
            console.connect(path)
            return console
        except OSError:
            console.close()
            time.sleep(0.1)
    return None


def relay(vm, path):
    """Joins the terminal and the guest's console, until the guest ends."""
    console = connect(vm, path)
    if console is None:
        return
    keys, screen = sys.stdin.fileno(), sys.stdout.fileno()
    sources = [console, keys]
    # The guest may go, or the terminal.
    with console, as_it_was(keys) as is_terminal, contextlib.suppress(OSError):
        if is_terminal:
            tty.setraw(keys)
        while vm.alive():
            for source in select.select(sources, [], [], 0.2)[0]:
                data = os.read(source if source is keys else source.fileno(), 65536)
                if source is console:
                    if not data:
                        return
                    write_all(screen, data)
                elif data:
                    console.sendall(data)
                elif is_terminal:
                    # Nobody is at the terminal any more.
                    return
                else:
                    # The end of a file that is read in place of a terminal.
                    sources.remove(keys)
                    console.sendall(b"\x04")


def write_all(fd, data):
    while data:
        data = data[os.write(fd, data):]
