# SPDX-License-Identifier: GPL-2.0
"""A translated document says what its original says now, has the same code, and leads to the same places.

The second line of a translation names its original and has a digest of the text that was translated. When the original
changes, the check fails until a translator has looked and has said so: `python3 -m tests.lab translated FILE...`."""

import hashlib
import re
from collections import Counter
from dataclasses import dataclass
from itertools import zip_longest
from posixpath import basename, dirname, join, normpath, relpath

from tests.lab import config, documents, rules, say
from tests.lab.say import LabError

# `<!-- Of ../rnr.md at 0123456789ab -->`, below the licence.
OF = re.compile(r"\A(.*\n<!-- Of (\S+) at )([0-9a-f]{12})(?= -->\n)")
# Behind this line is what the original does not have, such as a list of terms.
OWN = "<!-- Its own from here -->"
# A document that is a translation by its name.
TRANSLATED = re.compile(r"(?:^|/)zh/|\.zh\.md$")
# Folders of which each document is translated, with the folder of the translations.
WHOLE = {"Documentation/walks": "Documentation/walks/zh"}


@dataclass
class Section:
    """What two languages have in common."""

    level: str
    items: int = 0
    rows: int = 0

    def __str__(self):
        return f"{self.level or 'the beginning'} with {self.items} items of lists and {self.rows} rows of tables"


def digest(text):
    return hashlib.sha256(text.encode("utf-8")).hexdigest()[:12]


def read():
    return {str(path.relative_to(config.CHECKOUT)): path.read_text(encoding="utf-8")
            for path in rules.sources() if path.suffix == ".md"}


def originals(texts):
    """Each translation with its original, by their paths."""
    found = {path: OF.match(text) for path, text in texts.items()}
    return {path: normpath(join(dirname(path), head[2])) for path, head in found.items() if head}


def code(text):
    """The lines of a document's code blocks with their numbers: fences, what they enclose, what is indented."""
    plain, before = dict(documents.prose(text)), ""
    for number, line in enumerate(text.splitlines(), 1):
        inside = number not in plain
        # Such a line behind one of prose goes on with a list.
        if line.startswith("    ") and before in ("", "code"):
            inside = True
        if inside:
            yield number, line
        before = "code" if inside else line.strip()


def without_code(text):
    """The other lines, with empty ones in place of code."""
    lines = text.splitlines()
    for number, _ in code(text):
        lines[number - 1] = ""
    return lines


def sections(text):
    """The level of each heading, and how many items of lists and rows of tables are below it."""
    found = [Section("")]
    for line in without_code(text):
        if heading := re.match(r"(#+) ", line):
            found.append(Section(heading[1]))
        elif re.match(r" *(?:[-*]|\d+\.) ", line):
            found[-1].items += 1
        elif line.startswith("|"):
            found[-1].rows += 1
    return found


def spans(text):
    """What a document has in the type of code: symbols, names, commands."""
    return {re.sub(r"\s+", " ", span) for span in re.findall(r"`([^`]+)`", "\n".join(without_code(text)))}


def target(path, link, texts, of):
    """Where a link leads, by its path in the tree: a translation is its original, a heading of it the same one there."""
    if re.match(r"\w+:", link):
        return link
    name, _, anchor = link.partition("#")
    there = normpath(join(dirname(path), name)) if name else path
    if there in of and of[there] in texts:
        same = dict(zip(documents.anchors(texts[there]), documents.anchors(texts[of[there]])))
        there, anchor = of[there], same.get(anchor, anchor)
    return f"{there}#{anchor}" if anchor else there


def names(things):
    """Some of them, for a message."""
    shown = sorted(things)
    return ", ".join(shown[:4]) + (f" and {len(shown) - 4} more" if len(shown) > 4 else "")


def differences(path, texts, of):
    """In what a translation is not its original, whatever their words."""
    original = of[path]
    whole, mine = texts[original], texts[path].partition(OWN)[0]
    for at, (a, b) in enumerate(zip_longest(sections(whole), sections(mine))):
        if a != b:
            yield f"heading {at} is {b or 'missing'}, in {original} {a or 'there is none'}"
            break
    for (_, a), (number, b) in zip_longest(code(whole), code(mine), fillvalue=("end", "no more code")):
        if a != b:
            yield f"its code differs from line {number} on: {b!r}, in {original} {a!r}"
            break
    for what, a, b in (("`code`", Counter(spans(whole)), Counter(spans(mine))),
                       ("links to", Counter(target(original, link, texts, of) for _, link in documents.links(whole)),
                        Counter(target(path, link, texts, of) for _, link in documents.links(mine)))):
        if a - b:
            yield f"{what} that {original} has and it has not: {names(a - b)}"
        if b - a:
            yield f"{what} that {original} has not: {names(b - a)}"


def leads(path, there, texts):
    """Whether a document has a link to another."""
    return there in (normpath(join(dirname(path), link)) for _, link in documents.links(texts[path]))


def check(texts):
    """What is behind, or missing, and what to do about it; `texts` has the documents by their paths."""
    of = originals(texts)
    found = [f"{path} has no translation: write {join(place, basename(path))}" for folder, place in WHOLE.items()
             for path in sorted(texts) if dirname(path) == folder and of.get(join(place, basename(path))) != path]
    for path in sorted(texts):
        original = of.get(path)
        if not original:
            if TRANSLATED.search(path):
                found.append(f"{path}: its second line is not `<!-- Of ORIGINAL at DIGEST -->`")
            continue
        if original not in texts:
            found.append(f"{path}: {original}, of which it is the translation, is not there")
            continue
        if OF.match(texts[path])[3] != digest(texts[original]):
            found.append(f"{path} is behind: {original} has changed since it was translated. See what changed "
                         f"(git log -p {original}), translate that, then: python3 -m tests.lab translated {path}")
        found += [f"{path}: {what}" for what in differences(path, texts, of)]
        found += [f"{a}: no link to {b}, the same in another language"
                  for a, b in ((path, original), (original, path)) if not leads(a, b, texts)]
    return found


def translated(files):
    """A translator has looked: the translations say what their originals say now. Returns 1 if more is wrong with them."""
    texts, paths = read(), []
    for file in files:
        path = relpath(file, config.CHECKOUT)
        original = originals(texts).get(path)
        if original not in texts:
            raise LabError(f"{path} names no original of the tree in its second line: <!-- Of ../NAME.md at 000000000000 -->")
        texts[path] = OF.sub(lambda head, now=digest(texts[original]): head[1] + now, texts[path])
        (config.CHECKOUT / path).write_text(texts[path], encoding="utf-8")
        say.step(f"{path} is that of {original} as it is now")
        paths.append(path)
    left = [what for what in check(texts) if what.startswith(tuple(paths))]
    for what in left:
        say.line(what)
    return 1 if left else 0
