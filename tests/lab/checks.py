# SPDX-License-Identifier: GPL-2.0
"""What the kernel with all checks has: a module with bugs on purpose, unit tests, reports."""

import fnmatch
import re
import subprocess

from tests.lab import config, say
from tests.lab.rules import strip
from tests.lab.shell import chroot_command

PLANTED = "tests/scenarios/debug/planted_c"
# Asked after all else, and after them whether the checks still find anything.
LOCKDEP, LEAKS = "debug.lockdep", "debug.leaks"
FINDS = "debug.finds."
# For kmemleak. Slab caches in debug mode keep no sheaves (per-CPU arrays of free objects): what is left in these of pointers
# to objects that have long been taken is a reference to kmemleak, and hides dozens of leaks of a size.
NO_SHEAVES = "slab_debug=F,kmalloc-*,skbuff*,*dst_cache"


def kunit_tests():
    """The names of the tests that the sources have for KUnit, by suite."""
    found = {}
    for path in sorted((config.CHECKOUT / "rust").rglob("*.rs")):
        text = strip(path.read_text(encoding="utf-8"))
        # A suite is a module within a file: it ends with the first brace that is not indented.
        for match in re.finditer(r"kunit_tests\(\s*(\w+)\s*\).*?^mod \w+ \{$(.*?)^\}$", text, re.S | re.M):
            found[match.group(1)] = re.findall(r"#\[test\]\s+fn (\w+)\(", match.group(2))
    return found


def in_order(names):
    """Those in the order in which a guest runs them: reports of planted bugs switch lockdep off. The checks are asked behind
    whatever ran under them."""
    finds = [n for n in names if n.startswith(FINDS)]
    asked = [n for n in names if n in (LOCKDEP, LEAKS)]
    first = [n for n in names if n not in (*finds, *asked)]
    return first + ([LOCKDEP, LEAKS] if first else asked) + finds


def is_one_of(name, patterns):
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def reason(name, left_out):
    """Why such a table leaves a scenario out, or None."""
    return next((why for pattern, why in left_out if fnmatch.fnmatchcase(name, pattern)), None)


def reader(kernel, on_result):
    """Who takes results of this kernel: in what it says the names of functions are made readable, and it is kept."""
    def take(result):
        if result.status == "failed":
            result.detail = readable(kernel, result.detail)
        on_result(result)
        keep_words(kernel, result)

    return take


def keep_words(kernel, result):
    """Keeps what the kernel has said of a test that failed, and says where."""
    if result.status == "failed" and result.log:
        path = config.BUILD / "debug" / f"{result.name}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(readable(kernel, "\n".join(result.log)), encoding="utf-8")
        say.line(f"    the kernel's words: {path}")


def readable(kernel, text):
    """The same text with the names of Rust functions as they are in the source."""
    done = subprocess.run(chroot_command(kernel.path.resolve(), ["c++filt", "-s", "rust"]), input=text,
                          stdout=subprocess.PIPE, text=True, errors="replace")
    return done.stdout if done.returncode == 0 else text
