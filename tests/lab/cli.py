# SPDX-License-Identifier: GPL-2.0
"""The words the laboratory understands."""

import argparse
import os
import signal
import subprocess
import sys

from tests.lab import boot, build, config, say, setup
from tests.lab.say import LabError


def parser():
    """The command line."""
    top = argparse.ArgumentParser(prog="python3 -m tests.lab", description="Sets up, builds, boots, shows, checks.")
    sub = top.add_subparsers(dest="word", required=True)
    one = sub.add_parser("setup", help="make what the other words need")
    one.add_argument("--refresh", action="store_true", help="make the root anew, with the newest kernel")
    sub.add_parser("modules", help="build the module for the kernel of the root")
    one = sub.add_parser("provider", help="build the provider in the root")
    one.add_argument("--copy", help="also copy it there")
    sub.add_parser("demo", help="show that it works")
    one = sub.add_parser("check", help="run every test")
    one.add_argument("--only", default="", help="names, or beginnings of names, separated by commas")
    one.add_argument("--list", action="store_true", help="list the tests and run none")
    one = sub.add_parser("bench", help="measure against the kernel's own rdma_rxe")
    one.add_argument("--quick", action="store_true", help="one round, fewer rows")
    sub.add_parser("setup-debug", help="make the debug kernel")
    one = sub.add_parser("check-debug", help="run scenarios on the debug kernel")
    one.add_argument("--only", default="", help="names, or beginnings of names, separated by commas")
    one = sub.add_parser("shell", help="a shell in the root, for a look around")
    one.add_argument("command", nargs=argparse.REMAINDER)
    one = sub.add_parser("guest", help="run a command in a guest with everything installed")
    one.add_argument("command", nargs=argparse.REMAINDER)
    return top


def with_module():
    """rdma_rxe in ferroce's place judges the scenarios themselves; it needs nothing of ours."""
    return os.environ.get("FERROCE_LINK_TYPE", "ferroce") == "ferroce"


def main(argv):
    """Does one word; 0 is success, 1 a failed test, 2 something missing."""
    args = parser().parse_args(argv)
    # Ending the laboratory ends its guests too: their cleaning up hangs on the exception.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        return word(args)
    except LabError as e:
        print(f"ferroce: {e}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


def word(args):
    """Carries one word out."""
    if args.word == "check" and args.list:
        from tests.lab import check
        check.list_all()
        return 0
    root = setup.setup(getattr(args, "refresh", False))
    with setup.in_use(root):
        if args.word == "setup":
            say.step(f"ready: kernel {root.release}, root {root.path}")
        elif args.word == "modules":
            build.module(root, quiet=False)
        elif args.word == "provider":
            made = build.provider(root, quiet=False)
            if args.copy:
                build.export(made, args.copy)
        elif args.word == "demo":
            from tests.lab import demo
            return demo.run(root, with_module())
        elif args.word == "check":
            from tests.lab import check
            return check.run(root, args.only, with_module())
        elif args.word == "bench":
            from tests.lab import bench
            return bench.run(root, args.quick)
        elif args.word == "setup-debug":
            from tests.lab import debug
            made = debug.make(root)
            say.step(f"ready: debug kernel {made.release} in {made.folder}")
        elif args.word == "check-debug":
            from tests.lab import debug
            return debug.run(root, args.only)
        elif args.word == "shell":
            return subprocess.call(build.chroot_command(root.path.resolve(), [a for a in args.command if a != "--"] or ["bash"], cwd="/ferroce"))
        elif args.word == "guest":
            return guest(root, args.command)
    return 0


def guest(root, command):
    """One command in a guest, its output shown; the log stays in build/vm."""
    lines = build.guest_setup(root, with_module())
    work = boot.fresh_work("guest")
    from tests.lab.suite import environment
    vm = boot.Guest(root, work, "sh -c " + build.shlex.quote(" ".join(command) or "rdma link"), boot.kvm_works(root),
                    lines, environment())
    vm.start()
    try:
        vm.proc.wait(timeout=600)
    except subprocess.TimeoutExpired:
        say.line("the guest was ended after 600 s")
    finally:
        vm.stop()
    say.line(vm.output.read_text(encoding="utf-8", errors="replace"))
    say.line(f"console: {vm.console}")
    return 0
