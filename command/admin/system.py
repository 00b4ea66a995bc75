# SPDX-License-Identifier: GPL-2.0
"""What the words of the command share: reading files, running programs, and what the kernel says."""

import errno
import gzip
import json
import os
import re
import shutil
import subprocess

IB = "/sys/class/infiniband"
VERBS = "/sys/class/infiniband_verbs"
NET = "/sys/class/net"
KMSG = "/dev/kmsg"
ROCE_PORT = 4791
# Administrators' programs, which the PATH of others lacks.
os.environ["PATH"] = os.environ.get("PATH", "/usr/bin:/bin") + ":/usr/sbin:/sbin"


class Wrong(Exception):
    """What cannot be done, and why, in a sentence."""


def read(path):
    """The text of a small file; nothing where it cannot be read."""
    try:
        with open(path, encoding="utf-8", errors="replace") as f:
            return f.read().strip()
    except OSError:
        return ""


def contents(path):
    """The bytes of a file; none where it cannot be read."""
    try:
        with open(path, "rb") as f:
            return f.read()
    except OSError:
        return b""


def call(*argv, timeout=300):
    """Runs a program: exit status, output, errors. 127 where there is no such program."""
    try:
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                              errors="replace", timeout=timeout, check=False)
    except FileNotFoundError:
        return 127, "", f"{argv[0]} is not installed"
    except OSError as e:
        return 126, "", f"{argv[0]}: {e.strerror}"
    except subprocess.TimeoutExpired:
        return 124, "", f"{argv[0]} did not end in {timeout} s"
    return done.returncode, done.stdout.strip(), done.stderr.strip()


def must(*argv):
    """The output of a program that must succeed."""
    status, out, err = call(*argv)
    if status:
        raise Wrong(f"{' '.join(argv)}: {err or out or f'exit {status}'}")
    return out


def as_json(*argv):
    """What a program prints as JSON; nothing where it fails."""
    _, out, _ = call(*argv)
    try:
        return json.loads(out)
    except ValueError:
        return []


def number(text, otherwise=0):
    """The first number in a text."""
    found = re.search(r"-?\d+", text)
    return int(found.group()) if found else otherwise


def listing(path):
    """The names in a folder; none where there is no such folder."""
    try:
        return sorted(os.listdir(path))
    except OSError:
        return []


def need_root(what):
    """Refuses who is not root, before half of it is done."""
    if os.geteuid():
        raise Wrong(f"{what} needs root: sudo ferroce ...")


def kernel_log():
    """The kernel's log from now on; None where it may not be read, or is another file, as containers have it."""
    try:
        fd = os.open(KMSG, os.O_RDONLY | os.O_NONBLOCK)
        os.lseek(fd, 0, os.SEEK_END)
    except OSError:
        return None
    return fd


def lines_of(log):
    """The lines of the kernel's log that have come."""
    while log is not None:
        try:
            text = os.read(log, 8192).decode(errors="replace")
        except OSError as e:
            # It went over the oldest lines.
            if e.errno == errno.EPIPE:
                continue
            return
        # No end of the log, but of a file in its place.
        if not text:
            return
        yield text.partition(";")[2].split("\n")[0]


def last_sentence(log):
    """What ferroce has said there last, for `rdma` prints an errno alone."""
    said = [line for line in lines_of(log) if line.startswith("ferroce:")]
    return said[-1].removeprefix("ferroce: ") if said else ""


def reasons(log):
    """Why the kernel has refused a module."""
    return [line for line in lines_of(log) if re.search("Lockdown|PKCS#7|ferroce|[Mm]odule", line)][-2:]


def install(packages):
    """How packages are installed here; their names are Debian's."""
    return f"apt install {packages}" if shutil.which("apt") else f"install {packages} (Debian's names)"


def module_loaded():
    """Whether the module is in the kernel now."""
    return os.path.isdir("/sys/module/ferroce")


def kernel_config():
    """The configuration of the running kernel."""
    release = os.uname().release
    for path in (f"/boot/config-{release}", f"/lib/modules/{release}/config", f"/lib/modules/{release}/build/.config"):
        if text := read(path):
            return text
    if packed := contents("/proc/config.gz"):
        return gzip.decompress(packed).decode(errors="replace")
    return ""
