# SPDX-License-Identifier: GPL-2.0
"""What the documents point at is there: files, headings, symbols of this tree, of the kernel and of rdma-core; and their table
of `vendor_err` is that of the code."""

import re
from pathlib import Path

from tests.lab import config

# `ferroce:rust/link.rs#Links`: a tree, a file in it, and a symbol that the file defines.
REFERENCE = re.compile(r"\b(ferroce|linux|rdma-core):([\w./+-]+\.\w+)#(\w+(?:::\w+)*)")
# What looks like the beginning of one, so that a misspelt one is not passed over.
MEANT = re.compile(r"`(?:ferroce|linux|rdma-core):[^`]*`")
LINK = re.compile(r"(?<!!)!?\[[^\]]*\]\(([^)\s]+)\)")
# Documents that name Rust code by its path: a file, an item, or a member of a type. `a::{b, c}` names two.
MAPS = ("Documentation/architecture.md", "Documentation/glossary.md")
NAME = re.compile(r"`(\w+(?:::\w+)*::(?:\w+|\{[\w:, ]+\}))`")
VALUES = "Documentation/verbs.md"
CODE = "rust/core/completion.rs"


def prose(text):
    """The lines of a document with their numbers, without code blocks."""
    fenced = False
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("```"):
            fenced = not fenced
        elif not fenced:
            yield number, line


def anchors(text):
    """How the headings of a document are linked to, as GitHub has it, in their order."""
    found = []
    for _, line in prose(text):
        heading = re.match(r"#+ (.*)", line)
        if heading:
            plain = re.sub(r"[^\w\- ]", "", re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading[1]).lower())
            found.append(plain.strip().replace(" ", "-"))
    return found


def links(text):
    # A link may be broken after its text, so they are looked for in whole paragraphs.
    lines = dict(prose(text))
    whole = "\n".join(lines.get(number, "") for number in range(1, len(text.splitlines()) + 1))
    for match in LINK.finditer(whole):
        yield whole.count("\n", 0, match.end()) + 1, match[1]


def check_links(relative, text):
    """Each relative link of a document leads to a file of the tree, and to a heading that it has."""
    here, found = (config.CHECKOUT / relative).parent, []
    for number, target in links(text):
        if re.match(r"\w+:", target):
            continue
        name, _, anchor = target.partition("#")
        path = (here / name) if name else config.CHECKOUT / relative
        if not path.exists():
            found.append(f"{relative}:{number}: no file {target}")
        elif anchor and path.suffix == ".md" and anchor not in anchors(path.read_text(encoding="utf-8")):
            found.append(f"{relative}:{number}: no heading #{anchor} in {name or relative}")
    return found


def defines(suffix, text, symbol):
    """Whether a source defines a symbol. `Type::method` must have both."""
    *outer, name = map(re.escape, symbol.split("::"))
    if suffix == ".rs":
        item = r"\b(?:fn|struct|enum|union|trait|const|static|type|mod|macro_rules!)\s+{}\b"
        kinds = [item, r"(?m)^\s+{}(?:,|\(|\s*\{{|\s*=)"]
        return all(re.search(item.format(part), text) for part in outer) and any(
            re.search(kind.format(name), text) for kind in (kinds if outer else kinds[:1]))
    if suffix == ".py":
        return bool(re.search(rf"(?m)^\s*(?:def|class)\s+{name}\b|^{name}\s*[:=]", text))
    return any(re.search(kind, text, re.M) for kind in (
        # A function: its name, on a line that begins with it or its type, then arguments, then a body.
        rf"^(?:[A-Za-z_][\w \t*]*[ \t*]|[A-Za-z_][\w \t*]*\n)?{name}\s*\([^;{{}}]*\)\s*\{{",
        rf"^\s*#\s*define\s+{name}\b", rf"\b(?:struct|enum|union)\s+{name}\s*\{{",
        # What a macro makes of a name.
        rf"^[A-Za-z_]\w*\(\s*{name}\s*[,)]", rf"^\s+{name}\s*(?:=[^,\n]*)?,",
        # A table of operations.
        rf"^[A-Za-z_][\w \t*]*[ \t*]{name}(?:\[\])?\s*=\s*\{{"))


def trees(root):
    """Where the sources are that a reference may name, by its word; None for those that are not here. Of rdma-core it is the
    newest that is unpacked, of the kernel the one that documents are about: not one that FERROCE_KERNEL asks for."""
    linux = root.path / root.kdir.lstrip("/")
    unpacked = [config.cache() / f"rdma-core-{version}" for version in reversed(config.RDMA_CORE)]
    is_meant = not config.wanted_kernel() and (linux / "drivers/infiniband/core").is_dir()
    return {"ferroce": config.CHECKOUT, "linux": linux if is_meant else None,
            "rdma-core": next((folder for folder in unpacked if (folder / "librdmacm").is_dir()), None)}


def check_references(relative, text, where):
    """Each reference names a file that defines the symbol. Returns the breaches, and how many were found by tree."""
    found, counted = [], dict.fromkeys(where, 0)
    for number, line in enumerate(text.splitlines(), 1):
        found += [f"{relative}:{number}: {meant} is no reference"
                  for meant in MEANT.findall(line) if not REFERENCE.fullmatch(meant.strip("`"))]
        for tree, path, symbol in REFERENCE.findall(line):
            folder = where[tree]
            if not folder:
                continue
            counted[tree] += 1
            file = folder / path
            if not file.is_file():
                found.append(f"{relative}:{number}: no {path} in {tree}")
            elif not defines(file.suffix, file.read_text(encoding="utf-8", errors="replace"), symbol):
                found.append(f"{relative}:{number}: {tree}'s {path} does not define {symbol}")
    return found, counted


def modules(sources):
    """The sources in Rust by the names of their modules."""
    named = {}
    for path, code in sources.items():
        parts = Path(path).with_suffix("").parts
        named["::".join(part for part in parts[1:] if part != "mod")] = code
    return named


def has_item(parts, named):
    """Whether there is such a file, item or member. A folder may pass on what its files define."""
    if any(f"::{name}".endswith("::" + "::".join(parts)) for name in named):
        return True
    *place, item = parts
    if place and place[-1][0].isupper():
        # A member of a type, which may have its methods in several files, or be made by a macro.
        member = rf"\bfn {item}\b|\b{item}\b\s*[:,({{=]"
        return has_item(place, named) and any(
            place[-1] in code and item in code and re.search(member, code) for code in named.values())
    inside = "::".join(place)
    return any(item in code and defines(".rs", code, item) for name, code in named.items()
               if not place or f"::{inside}::" in f"::{name}::")


def check_names(relative, text, sources):
    """What a document calls by a path of Rust is there. `sources` has the code of both crates."""
    named, found = modules(sources), []
    for number, line in prose(text):
        for name in NAME.findall(line):
            front, brace, inside = name.partition("{")
            for one in [front + part.strip() for part in inside.rstrip("}").split(",")] if brace else [name]:
                if not has_item(one.split("::"), named):
                    found.append(f"{relative}:{number}: no {one} in the sources")
    return found


def check_values(table, code):
    """The values of `vendor_err` in a document are those of the code, and the statuses beside them are statuses."""
    inside = re.search(r"pub mod vendor \{(.*?)\n\}", code, re.S)[1]
    have = {int(value, 0) for value in re.findall(r"pub const \w+: u32 = (\w+);", inside)} | {0}
    statuses = {re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).upper()
                for name in re.findall(r"^    (\w+) = \d+,", code, re.M)}
    rows = re.findall(r"^\| (\d+|0x[0-9a-f]+ \+ syndrome) \| ([^|]*) \|", table, re.M)
    said = [int(value.split()[0], 0) for value, _ in rows]
    found = [f"{VALUES}: vendor_err {value} is not what {CODE} has" for value in sorted(set(said) ^ have)]
    found += [f"{VALUES}: the same of vendor_err {value} stands there twice" for value, names in sorted(set(rows))
              if rows.count((value, names)) > 1]
    found += [f"{VALUES}: vendor_err {value}: {name} is no status" for value, names in rows
              for name in re.findall(r"`(\w+)`", names) if name not in statuses]
    return found
