# SPDX-License-Identifier: GPL-2.0
"""The words the laboratory understands."""

import argparse
import os
import shlex
import signal
import subprocess
import sys

from tests.lab import boot, build, config, say, setup
from tests.lab.say import LabError
from tests.lab.shell import chroot_command


# The fast guest, and the one with all checks.
GUESTS = ("um", "um-debug")


def parser():
    """The command line."""
    top = argparse.ArgumentParser(prog="python3 -m tests.lab", description="Sets up, builds, boots, shows, checks.")
    sub = top.add_subparsers(dest="word", required=True)
    one = sub.add_parser("setup", help="make what the other words need")
    one.add_argument("--refresh", action="store_true", help="make the root anew, with the newest kernel")
    sub.add_parser("modules", help="build the module for the kernel of the root")
    one = sub.add_parser("provider", help="build the provider in the root")
    one.add_argument("--copy", help="also copy it there")
    sub.add_parser("deb", help="build the Debian packages")
    sub.add_parser("demo", help="show that it works")
    one = sub.add_parser("check", help="run every test")
    one.add_argument("--only", default="", help="names, or beginnings of names, separated by commas")
    one.add_argument("--list", action="store_true", help="list the tests and run none")
    one.add_argument("--all-kernels", action="store_true", help="a few tests on every kernel there is")
    one.add_argument("--guest", choices=("stock", *GUESTS), default="", help="scenarios alone, in this guest")
    sub.add_parser("check-fast", help="run what needs no guest, for each change")
    sub.add_parser("check-long", help="run what a whole run of check leaves out for its length")
    one = sub.add_parser("translated", help="say that translations say what their originals say now")
    one.add_argument("files", nargs="+", help="the translations, such as Documentation/walks/zh/rnr.md")
    one = sub.add_parser("mutants", help="see whether the host tests notice mutants of the pure code")
    one.add_argument("--of", type=int, default=50, help="try one of so many, drawn by chance")
    one.add_argument("--files", default="", help="of these files alone: a pattern")
    one = sub.add_parser("planted", help="see whether the tests notice planted faults")
    one.add_argument("--only", default="", help="names, separated by commas")
    one = sub.add_parser("bench", help="measure against the kernel's own rdma_rxe")
    one.add_argument("--quick", action="store_true", help="one round, fewer rows")
    one.add_argument("--count", action="store_true", help="count instructions alone")
    one.add_argument("--profile", metavar="ROW", help="show what the instructions of an operation are spent on")
    one.add_argument("--against", metavar="REVISION", help="count them with the module and provider of a commit too")
    one.add_argument("--guest", choices=("stock", "um"), default="stock", help="measure in this guest")
    one.add_argument("--charts", action="store_true", help="draw how figures change with size and number of QPs")
    sub.add_parser("setup-debug", help="make the debug kernel")
    one = sub.add_parser("check-debug", help="run scenarios on the debug kernel")
    one.add_argument("--only", default="", help="names, or beginnings of names, separated by commas")
    one = sub.add_parser("shell", help="a shell in the root, for a look around")
    one.add_argument("command", nargs=argparse.REMAINDER)
    for name in GUESTS:
        one = sub.add_parser(name, help="a prompt, or a command, in the fast guest")
        one.add_argument("--dir", default=".", help="the folder that the guest sees at /work")
        one.add_argument("--limit", type=int, default=3600, help="seconds for a command")
        one.add_argument("command", nargs=argparse.REMAINDER)
    one = sub.add_parser("prompt", help="a prompt in a guest with two devices")
    one.add_argument("--dir", default=".", help="the folder that the guest sees at /work")
    one = sub.add_parser("run", help="run a command in a guest with two devices, with its output and exit status")
    one.add_argument("--dir", default=".", help="the folder that the guest sees at /work")
    one.add_argument("--limit", type=int, default=3600, help="seconds")
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
    for number in ENDING:
        signal.signal(number, end)
    try:
        return word(args)
    except LabError as e:
        print(f"ferroce: {e}", file=sys.stderr)
        return 2


ENDING = (signal.SIGTERM, signal.SIGINT)


def end(number, _frame):
    """Ends the laboratory with its guests and its sum, which hang on the exception. Once is enough: who ends a whole
    group of processes tells make, and make tells us again."""
    for one in ENDING:
        signal.signal(one, signal.SIG_IGN)
    sys.exit(128 + number)


def rest(command):
    """What is behind a word, without the dashes that may part the two."""
    return command[1:] if command[:1] == ["--"] else command


def word(args):
    """Carries one word out."""
    if args.word == "translated":
        # It needs nothing that is set up.
        from tests.lab import translations
        return translations.translated(args.files)
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
        elif args.word == "deb":
            from tests.lab import deb
            deb.show(deb.make(root))
        elif args.word == "demo":
            from tests.lab import demo
            return demo.run(root, with_module())
        elif args.word == "check":
            from tests.lab import check
            if args.all_kernels:
                from tests.lab import kernels
                return kernels.run(root, args.only)
            return check.list_all(root) if args.list else check.run(root, args.only, with_module(), args.guest)
        elif args.word == "check-long":
            from tests.lab import check
            return check.run(root, ",".join(pattern for pattern, _ in check.LONG), with_module())
        elif args.word == "check-fast":
            from tests.lab import host
            return host.fast(root)
        elif args.word == "mutants":
            from tests.lab import mutants
            return mutants.run(root, args.of, args.files)
        elif args.word == "planted":
            from tests.lab import planted
            return planted.run(args.only)
        elif args.word == "bench":
            from tests.lab import bench
            if args.charts:
                return bench.draw(root, args.guest == "um")
            if args.guest == "um":
                if args.against or args.count or args.profile:
                    raise LabError("the fast guest counts no instructions: leave GUEST=um away")
                return bench.run_native(root, args.quick)
            if args.profile:
                return bench.spent(root, args.profile)
            if args.against:
                return bench.compare(root, args.against)
            return bench.run(root, args.quick, args.count)
        elif args.word == "setup-debug":
            from tests.lab import debug, made
            kernel = made.make(root, debug.KIND)
            say.step(f"ready: debug kernel {kernel.release} in {kernel.folder}")
        elif args.word == "check-debug":
            from tests.lab import debug
            return debug.run(root, args.only)
        elif args.word == "shell":
            argv = rest(args.command) or ["bash"]
            status = subprocess.call(chroot_command(root.path.resolve(), argv, cwd="/ferroce"))
            return status if status >= 0 else 128 - status
        elif args.word in GUESTS:
            from tests.lab import um
            command = " ".join(rest(args.command))
            return um.attended(root, um.KINDS[args.word], with_module(), args.dir, command if command.strip() else None,
                               args.limit)
        elif args.word == "prompt":
            from tests.lab import prompt
            return prompt.shell(root, with_module(), args.dir)
        elif args.word == "run":
            from tests.lab import prompt
            command = " ".join(rest(args.command))
            if not command.strip():
                raise LabError("run needs a command: make run CMD='left ferroce show'")
            return prompt.run(lambda: prompt.stock(root, with_module(), args.dir, command), args.limit)
        elif args.word == "guest":
            return guest(root, args.command)
    return 0


GUEST_LIMIT = 600


def guest(root, command):
    """One command in a guest, its output shown and its exit status returned; the log stays in build/vm."""
    lines = build.guest_setup(root, with_module())
    work = boot.fresh_work("guest")
    from tests.lab.suite import environment
    # By a file: the kernel's command line, by which virtme-ng would pass it on, has room for 2048 bytes.
    vm = boot.Guest(root, work, "sh -c " + shlex.quote(in_guest(f"sh /srv/results/{COMMAND}")), boot.kvm_works(root),
                    lines, environment())
    (vm.results / COMMAND).write_text((" ".join(rest(command)) or "rdma link") + "\n", encoding="utf-8")
    vm.start()
    late = False
    try:
        vm.proc.wait(timeout=GUEST_LIMIT)
    except subprocess.TimeoutExpired:
        late = True
    finally:
        vm.stop()
    say.line(vm.output.read_text(encoding="utf-8", errors="replace"))
    say.line(f"console: {vm.console}")
    if late:
        say.line(f"the guest was ended after {GUEST_LIMIT} s")
        return 124
    status = exit_status(vm.results / STATUS)
    if status is None:
        say.line("the guest died before the command had ended")
        return 125
    return status


COMMAND, STATUS = "command.sh", "status"


def in_guest(command, where="/srv/results"):
    """The shell line that runs a command and leaves its exit status where the host finds it."""
    return f"sh -c {shlex.quote(command)}; echo $? >{where}/{STATUS}"


def exit_status(path):
    """What `in_guest` has left; None when it has not come so far."""
    try:
        return int(path.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None
