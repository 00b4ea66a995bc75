# SPDX-License-Identifier: GPL-2.0
"""Runs other programs: quietly with the output kept for the case of failure, or inside the made root."""

import os
import shlex
import signal
import subprocess
import sys

from tests.lab import config
from tests.lab.say import LabError

PASSED_ON = ("http_proxy", "https_proxy", "ftp_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "TERM")


def captured(argv, limit=None, **kw):
    """A program that has run to its end, within so many seconds, with all that it has printed."""
    try:
        return subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              errors="replace", timeout=limit, **kw)
    except subprocess.TimeoutExpired:
        raise LabError(f"not done in {limit} s") from None


def run(argv, what, log=None, **kw):
    """Runs to the end with the output in a log; says in one line what failed and where the log is."""
    argv = [str(a) for a in argv]
    out = open(log, "a", encoding="utf-8") if log else subprocess.PIPE
    try:
        if log:
            print("+", shlex.join(argv), file=out, flush=True)
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, text=True,
                              errors="replace", **kw)
    except FileNotFoundError:
        raise LabError(f"{what}: the program {argv[0]} is not installed") from None
    finally:
        if log:
            out.close()
    if done.returncode:
        text = open(log, encoding="utf-8", errors="replace").read() if log else done.stdout
        tail = [ln for ln in text.splitlines() if ln.strip()][-15:]
        print("\n".join("    " + ln for ln in tail), file=sys.stderr)
        raise LabError(f"{what}: {argv[0]} exited with {done.returncode}" + (f"; the whole log is {log}" if log else ""))
    return done.stdout


def in_namespace(script):
    """A command that runs a shell script where its mounts are its own and vanish with it."""
    return ["unshare", "--mount", "--propagation", "private", "sh", "-e", "-c", script]


def overlay(lower, place, room="2g"):
    """Shell lines for a namespace of its own that make a root at $M to write in, upon this one, with its changes in $W/u.
    They vanish with the folder `place`, where it is mounted, and take so much room at most."""
    q = shlex.quote
    return [
        f"W={q(str(place))}; M=$W/m",
        f"mount -t tmpfs -o size={room} tmpfs $W",
        "mkdir $W/u $W/w $W/m",
        f"mount -t overlay overlay -o lowerdir={q(str(lower.resolve()))},upperdir=$W/u,workdir=$W/w $M",
    ]


def chroot_command(root, command, cwd="/", env=None, writable=False, binds=()):
    """A command that runs another inside the made root, with the checkout at /ferroce and the cache at /cache.

    The root itself is read-only unless it is being made, so that no build changes what later ones start from.
    `binds` are further (host path, path in the root) pairs.
    """
    root = str(root)
    q = shlex.quote
    lines = [f"mount --bind {q(root)} {q(root)}"]
    if not writable:
        lines.append(f"mount -o remount,bind,ro {q(root)}")
    lines += [
        f"mount -t proc proc {q(root)}/proc",
        f"mount --rbind /dev {q(root)}/dev",
        f"mount -t tmpfs tmpfs {q(root)}/tmp",
        f"mount --bind {q(str(config.CHECKOUT))} {q(root)}/ferroce",
        f"mount --bind {q(str(config.cache()))} {q(root)}/cache",
    ]
    if os.path.exists("/etc/resolv.conf"):
        lines.append(f"mount --bind /etc/resolv.conf {q(root)}/etc/resolv.conf")
    bundle = "/etc/ssl/certs/ca-certificates.crt"
    if os.path.exists(bundle) and os.path.exists(root + bundle):
        lines.append(f"mount --bind {bundle} {q(root)}{bundle}")
    for here, there in binds:
        lines.append(f"mount --bind {q(str(here))} {q(root)}{q(there)}")
    keep = {k: os.environ[k] for k in PASSED_ON if k in os.environ}
    keep |= {
        "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "LC_ALL": "C.UTF-8",
        "CARGO_HOME": "/cache/cargo", "FERROCE_CACHE": "/cache", "DEBIAN_FRONTEND": "noninteractive",
        "CARGO_TARGET_DIR": "/ferroce/build/cargo-lab", "PYTHONDONTWRITEBYTECODE": "1",
    }
    keep |= env or {}
    sets = " ".join(q(f"{k}={v}") for k, v in keep.items())
    inner = f"cd {q(cwd)} && exec {command if isinstance(command, str) else shlex.join(map(str, command))}"
    lines.append(f"exec env -i {sets} chroot {q(root)} sh -c {q(inner)}")
    return in_namespace("\n".join(lines))


def in_good_order(argv, **kw):
    """`subprocess.run`, but a program that is to end before its time is asked to: a laboratory has guests to end."""
    with subprocess.Popen(argv, stdin=subprocess.DEVNULL, **kw) as proc:
        try:
            out, _ = proc.communicate()
        except BaseException:
            end_in_good_order(proc)
            raise
        return subprocess.CompletedProcess(argv, proc.returncode, out)


def end_in_good_order(proc):
    """Asks a program to end, and waits for it, but not for ever."""
    proc.terminate()
    try:
        proc.communicate(timeout=60)
    except subprocess.TimeoutExpired:
        proc.kill()
        proc.wait()


def kill_group(proc):
    """Ends a program and everything it started in its own process group."""
    for sig in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(proc.pid, sig)
        except ProcessLookupError:
            break
        try:
            proc.wait(timeout=3)
        except subprocess.TimeoutExpired:
            continue
    proc.wait()
