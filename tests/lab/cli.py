# SPDX-License-Identifier: GPL-2.0
"""The words the laboratory understands."""

import argparse
import os
import signal
import subprocess
import sys

from tests.lab import bench, build, check, config, deb, host, kernels, mutants, planted, prompt, say, setup, translations, um
from tests.lab.say import LabError
from tests.lab.shell import chroot_command


def parser():
    """The command line. Each word says what it does, which is a function of the root and the arguments."""
    top = argparse.ArgumentParser(prog="python3 -m tests.lab", description="Sets up, builds, boots, shows, checks.")
    words = top.add_subparsers(dest="word", required=True)

    def word(name, about, work, *options, **defaults):
        one = words.add_parser(name, help=about)
        one.set_defaults(work=work, **defaults)
        for option in options:
            one.add_argument(option[0], **option[1])

    only = ("--only", {"default": "", "help": "names, or beginnings of names, separated by commas"})
    command = ("command", {"nargs": argparse.REMAINDER})
    shown = ("--dir", {"default": ".", "help": "the folder that the guest sees at /work"})
    limit = ("--limit", {"type": int, "default": 3600, "help": "seconds for a command"})

    def flag(name, about):
        return name, {"action": "store_true", "help": about}

    word("setup", "make what the other words need",
         lambda root, args: say.step(f"ready: kernel {root.release}, root {root.path}"),
         flag("--refresh", "make the root anew, with the newest kernel"))
    word("modules", "build the module for the kernel of the root", modules)
    word("provider", "build the provider in the root", provider, ("--copy", {"help": "also copy it there"}))
    word("deb", "build the Debian packages", lambda root, args: deb.show(deb.make(root)))
    word("check", "run every test", checked, only, flag("--list", "list the tests and run none"),
         flag("--all-kernels", "a few tests on every kernel there is"),
         ("--guest", {"choices": ("stock", *um.KINDS), "default": "", "help": "scenarios alone, in this guest"}))
    word("check-fast", "run what needs no guest, for each change", lambda root, args: host.fast(root))
    word("check-long", "run what a whole run of check leaves out for its length",
         lambda root, args: check.run(root, ",".join(pattern for pattern, _ in check.LONG), with_module()))
    # It needs nothing that is set up.
    word("translated", "say that translations say what their originals say now",
         lambda root, args: translations.translated(args.files),
         ("files", {"nargs": "+", "help": "the translations, such as Documentation/walks/zh/rnr.md"}), rootless=True)
    word("mutants", "see whether the host tests notice mutants of the pure code",
         lambda root, args: mutants.run(root, args.of, args.files),
         ("--of", {"type": int, "default": 50, "help": "try one of so many, drawn by chance"}),
         ("--files", {"default": "", "help": "of these files alone: a pattern"}))
    word("planted", "see whether the tests notice planted faults", lambda root, args: planted.run(args.only),
         ("--only", {"default": "", "help": "names, separated by commas"}))
    word("bench", "measure against the kernel's own rdma_rxe", benched, flag("--count", "count instructions alone"),
         ("--profile", {"metavar": "ROW", "help": "show what the instructions of an operation are spent on"}),
         ("--guest", {"choices": ("stock", "um"), "default": "stock", "help": "measure in this guest"}),
         flag("--charts", "draw how figures change with size and number of QPs"))
    word("shell", "a shell in the root, for a look around", shell, command)
    for name, kind in um.KINDS.items():
        word(name, "a prompt, or a command, in the fast guest", in_fast_guest, shown, limit, command, kind=kind)
    word("prompt", "a prompt in a guest with two devices", lambda root, args: prompt.shell(root, with_module(), args.dir), shown)
    word("run", "run a command in a guest with two devices, with its output and exit status", in_prompt, shown, limit, command)
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
        return carry_out(args)
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


def carry_out(args):
    if getattr(args, "rootless", False):
        return args.work(None, args)
    root = setup.setup(getattr(args, "refresh", False))
    with setup.in_use(root):
        return args.work(root, args) or 0


def modules(root, _args):
    build.module(root, quiet=False)


def provider(root, args):
    made_one = build.provider(root, quiet=False)
    if args.copy:
        build.copy(made_one, config.CHECKOUT / args.copy)


def checked(root, args):
    if args.all_kernels:
        return kernels.run(root, args.only)
    return check.list_all(root) if args.list else check.run(root, args.only, with_module(), args.guest)


def benched(root, args):
    native = args.guest == "um"
    if args.charts:
        return bench.draw(root, native)
    if native:
        if args.count or args.profile:
            raise LabError("the fast guest counts no instructions: leave GUEST=um away")
        return bench.run_native(root)
    if args.profile:
        return bench.spent(root, args.profile)
    return bench.run(root, args.count)


def shell(root, args):
    status = subprocess.call(chroot_command(root.path.resolve(), rest(args.command) or ["bash"], cwd="/ferroce"))
    return status if status >= 0 else 128 - status


def in_fast_guest(root, args):
    command = " ".join(rest(args.command))
    return um.attended(root, args.kind, with_module(), args.dir, command if command.strip() else None, args.limit)


def in_prompt(root, args):
    command = " ".join(rest(args.command))
    if not command.strip():
        raise LabError("run needs a command: make run CMD='left ferroce show'")
    return prompt.run(lambda: prompt.stock(root, with_module(), args.dir, command), args.limit)
