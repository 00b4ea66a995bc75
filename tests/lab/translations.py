# SPDX-License-Identifier: GPL-2.0
"""A translated document says what its original says now, with the same headings, code and symbols.

The second line of a translation names its original and has a digest of the text that was translated. When the original
changes, the check fails until a translator has looked and has said so: `python3 -m tests.lab translated FILE...`."""

import hashlib
import re
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


def digest(text):
    return hashlib.sha256(text.encode("utf-8")).hexdigest()[:12]


def read():
    return {str(path.relative_to(config.CHECKOUT)): path.read_text(encoding="utf-8")
            for path in rules.sources() if path.suffix == ".md"}


def originals(texts):
    """Each translation with its original, by their paths."""
    found = {path: OF.match(text) for path, text in texts.items()}
    return {path: normpath(join(dirname(path), head[2])) for path, head in found.items() if head}


def common(text):
    """What two languages have in common, by what it is called."""
    prose, code, words, before = dict(documents.prose(text)), [], [], ""
    for number, line in enumerate(text.splitlines(), 1):
        # What is indented behind a line of prose goes on with a list.
        is_code = number not in prose or line.startswith("    ") and before in ("", "code")
        (code if is_code else words).append(line)
        before = "code" if is_code else line.strip()
    spans = re.findall(r"`([^`]+)`", "\n".join(words))
    return {"headings": [line.split(" ")[0] for line in words if re.match("#+ ", line)], "code": code,
            "`code`": sorted({re.sub(r"\s+", " ", span) for span in spans})}


def differences(original, translation):
    for what, there in common(original).items():
        here = common(translation.partition(OWN)[0])[what]
        if here != there:
            odd = [one for one in there if one not in here] + [one for one in here if one not in there]
            yield f"its {what} {'differ at ' + repr(odd[0]) if odd else 'are in another order'}"


def check(texts):
    """What is behind, or missing, and what to do about it; `texts` has the documents by their paths."""
    of = originals(texts)
    found = [f"{path} has no translation: write {join(place, basename(path))}" for folder, place in WHOLE.items()
             for path in sorted(texts) if dirname(path) == folder and of.get(join(place, basename(path))) != path]
    found += [f"{path}: its second line is not `<!-- Of ORIGINAL at DIGEST -->`" for path in sorted(texts)
              if TRANSLATED.search(path) and path not in of]
    for path, original in sorted(of.items()):
        if original not in texts:
            found.append(f"{path}: {original}, of which it is the translation, is not there")
            continue
        if OF.match(texts[path])[3] != digest(texts[original]):
            found.append(f"{path} is behind: {original} has changed since it was translated. See what changed "
                         f"(git log -p {original}), translate that, then: python3 -m tests.lab translated {path}")
        found += [f"{path}: {what}" for what in differences(texts[original], texts[path])]
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
