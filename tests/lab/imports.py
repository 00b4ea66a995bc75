# SPDX-License-Identifier: GPL-2.0
"""Which file of a crate imports which, and the circles among them.

An edge is a path (`super::x`, `self::x`, `crate::room::x`, or a name that begins with a child module in a `use`) that
leads to an item of another file. `mod x;` is none, and neither is a `pub use` that only passes a name on: an import of
the name is taken to import the file that has it. Test modules and crate roots do not count.
"""

import re
from graphlib import CycleError, TopologicalSorter

PROVIDER = "userspace-provider/src"
PATH = re.compile(r"(?<![\w:$])(?:crate|self|super)(?:\s*::\s*\w+)+")


def counts(relative):
    """Whether a file can be part of a circle: not a test, nor the root of a crate."""
    parts = relative.split("/")
    if "tests" in parts or re.search(r"/(?:tests|\w+_test)\.rs$", relative):
        return False
    if relative.startswith(PROVIDER + "/"):
        return relative != PROVIDER + "/lib.rs"
    return parts[0] == "rust" and relative != "rust/ferroce_main.rs"


def module(relative):
    """The path of the module that a file is, as a tuple of names below the crate."""
    parts = relative.removesuffix(".rs").split("/")
    parts = parts[2:] if relative.startswith(PROVIDER) else parts[1:]
    return tuple(parts[:-1] if parts[-1] == "mod" else parts)


def block_end(code, at):
    """Where the item that begins here ends: behind its block, or behind its semicolon."""
    depth = 0
    for n in range(at, len(code)):
        if code[n] in "([{":
            depth += 1
        elif code[n] in ")]}":
            depth -= 1
            if depth == 0 and code[n] == "}":
                return n + 1
        elif code[n] == ";" and depth == 0:
            return n + 1
    return len(code)


def untested(code):
    """Code without the items that are compiled for tests alone; nothing of a file that is."""
    if re.search(r"^\s*#!\[cfg\((?:(?:all|any)\()?test\b", code, re.M):
        return ""
    test = re.compile(r"#\[cfg\((?:(?:all|any)\()?test\b[^\n]*\]")
    while found := test.search(code):
        start = found.end()
        # Other attributes of the same item.
        while other := re.compile(r"\s*#\[").match(code, start):
            depth, start = 1, other.end()
            while depth and start < len(code):
                depth += {"[": 1, "]": -1}.get(code[start], 0)
                start += 1
        code = code[:found.start()] + code[block_end(code, start):]
    return code


def expand(tree):
    """The paths of a `use` tree, as (tuple of names, the name it is known by here)."""
    tree = tree.strip()
    brace = tree.find("{")
    if brace < 0:
        path, _, known = re.sub(r"\s+", " ", tree).partition(" as ")
        names = tuple(part.strip() for part in path.split("::") if part.strip())
        if len(names) > 1 and names[-1] == "self":
            names = names[:-1]
        return [(names, known.strip() or (names[-1] if names else ""))]
    head = tuple(part.strip() for part in tree[:brace].split("::") if part.strip())
    parts, depth, last = [], 0, brace + 1
    for n in range(brace + 1, tree.rindex("}")):
        depth += {"{": 1, "}": -1}.get(tree[n], 0)
        if tree[n] == "," and not depth:
            parts.append(tree[last:n])
            last = n + 1
    parts.append(tree[last:tree.rindex("}")])
    found = []
    for part in filter(str.strip, parts):
        for names, known in expand(part):
            if names == ("self",):
                names, known = (), known if known != "self" else head[-1]
            found.append((head + names, known))
    return found


class File:
    """One file: the paths it uses, and the names it passes on."""

    def __init__(self, relative, code):
        self.module = module(relative)
        code = untested(code)
        # Visibility is no import.
        code = re.sub(r"\bpub\s*\(\s*in\s[^)]*\)", "pub(crate)", code)
        self.children = set(re.findall(r"\bmod\s+(\w+)\s*;", code))
        self.passes_on, self.paths = {}, []
        pattern = re.compile(r"\b(pub(?:\s*\([^)]*\))?\s+)?use\s+([^;]+);")
        rest = pattern.sub(" ", code)
        for public, tree in pattern.findall(code):
            for names, known in expand(tree):
                path = self.absolute(names, True)
                if path is None:
                    continue
                if public:
                    self.passes_on[known] = path
                    if known == "*" or not re.search(rf"\b{known}\b", rest):
                        continue
                self.paths.append(path)
        for found in PATH.findall(rest):
            path = self.absolute(tuple(re.split(r"\s*::\s*", found)), False)
            if path is not None:
                self.paths.append(path)

    def absolute(self, names, in_use):
        """The path below the crate; None for one that leads out of it."""
        base, names = list(self.module), list(names)
        if not names:
            return None
        if names[0] == "crate":
            return tuple(names[1:])
        if names[0] == "self":
            return tuple(base + names[1:])
        if names[0] == "super":
            while names and names[0] == "super":
                names.pop(0)
                if base:
                    base.pop()
            return tuple(base + names)
        return tuple(base + names) if in_use and names[0] in self.children else None


def edges(files):
    """Which files of its crate each file imports from."""
    parsed = {relative: File(relative, code) for relative, code in files.items() if counts(relative)}
    # The provider and the module are two crates.
    by_module = {(relative.startswith(PROVIDER), file.module): relative for relative, file in parsed.items()}

    def resolve(crate, path, hops=8):
        """The file that has what a path names: that of its longest prefix, or the one which that passes it on from."""
        for end in range(len(path), 0, -1):
            relative = by_module.get((crate, path[:end]))
            if not relative:
                continue
            passed = parsed[relative].passes_on.get(path[end]) if end < len(path) else None
            if passed and hops:
                return resolve(crate, passed, hops - 1) or relative
            return relative
        return None

    found = {relative: set() for relative in parsed}
    for relative, file in parsed.items():
        for path in file.paths:
            target = resolve(relative.startswith(PROVIDER), path)
            if target and target != relative:
                found[relative].add(target)
    return found


def check_circles(files):
    """No two files import each other, over others or not. One line, for one of the circles."""
    try:
        TopologicalSorter(edges(files)).prepare()
    except CycleError as e:
        # Each is imported by the next.
        circle = e.args[1][::-1]
        return [f"{circle[0]}:1: files import each other in a circle: {' -> '.join(circle)}"]
    return []
