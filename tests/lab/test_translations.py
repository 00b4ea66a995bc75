# SPDX-License-Identifier: GPL-2.0
"""A translation that is behind is found, with what to do; one that is not is left in peace."""

import io
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

from tests.lab import config, rules, translations
from tests.lab.say import LabError

SPDX = "<!-- SPDX-License-Identifier: GPL-2.0 -->\n"
ENGLISH = SPDX + """# A walk

[中文](zh/a.md)

What `ibv_x` and `ferroce:a.rs#f` do: [others](b.md#the-end), [verbs](../verbs.md#top), [far](https://a.b/c).

## The run

- one thing,
- and another
      of `two` lines

    make um CMD='x'

```
the run
    as it was
```

| a | b |
|---|---|
| 1 | 2 |
"""
CHINESE = """# 走读

[English](../a.md)

`ferroce:a.rs#f` 和 `ibv_x` 做什么：[far](https://a.b/c)、[verbs](../../verbs.md#top)、[其他](b.md#末尾)。

## 运行

- 一，
- `two`

    make um CMD='x'

```
the run
    as it was
```

| 甲 | 乙 |
|---|---|
| 1 | 2 |

"""
OTHER, OTHER_CHINESE = SPDX + "# B\n[中文](zh/b.md)\n## The end\n", "# 乙\n[English](../b.md)\n## 末尾\n"
A, B = "Documentation/walks/a.md", "Documentation/walks/b.md"
A_ZH, B_ZH = "Documentation/walks/zh/a.md", "Documentation/walks/zh/b.md"


def of(name, english, text):
    """A translation as it is when its translator has looked."""
    return f"{SPDX}<!-- Of ../{name} at {translations.digest(english)} -->\n{text}"


def tree(**changes):
    """The documents, with other texts by the names above; None is a document that is not there."""
    texts = {A: ENGLISH, B: OTHER, A_ZH: of("a.md", ENGLISH, CHINESE), B_ZH: of("b.md", OTHER, OTHER_CHINESE),
             "Documentation/verbs.md": SPDX + "# Top\n"}
    texts |= {globals()[name]: text for name, text in changes.items()}
    return {path: text for path, text in texts.items() if text is not None}


class Translations(unittest.TestCase):
    def found(self, number, *words, **changes):
        """So many differences, the first of which says this."""
        said = translations.check(tree(**changes))
        self.assertEqual(len(said), number, said)
        for word in words:
            self.assertIn(word, said[0])

    def chinese(self, before, after, *words, number=1):
        """What is found when the translation has one thing in place of another."""
        self.assertIn(before, CHINESE)
        self.found(number, A_ZH, *words, A_ZH=of("a.md", ENGLISH, CHINESE.replace(before, after, 1)))

    def test_none(self):
        self.found(0)
        # Words, and what the translation alone has at its end.
        self.found(0, A_ZH=of("a.md", ENGLISH, CHINESE.replace("做什么", "有何用") + translations.OWN + "\n## 术语\n| `x` |\n"))
        # To the original of a document that has a translation.
        self.found(0, A_ZH=of("a.md", ENGLISH, CHINESE.replace("b.md#末尾", "../b.md#the-end")))

    def test_behind(self):
        changed = ENGLISH.replace("What", "All that")
        self.found(1, f"{A_ZH} is behind", f"git log -p {A}", f"python3 -m tests.lab translated {A_ZH}", A=changed)
        self.found(0, A=changed, A_ZH=of("a.md", changed, CHINESE))
        # A run that came out otherwise was changed in the original alone.
        changed = ENGLISH.replace("as it was", "as it is")
        self.found(2, "is behind", A=changed)
        self.found(1, "code differs from line 18", "as it is", A=changed, A_ZH=of("a.md", changed, CHINESE))

    def test_missing(self):
        self.found(1, f"{A} has no translation", f"write {A_ZH}", A_ZH=None)
        self.found(1, f"{A_ZH}: {A}", "is not there", A=None)
        for head in ("", "<!-- Of ../a.md -->\n", "\n" + of("a.md", ENGLISH, "").removeprefix(SPDX)):
            self.found(2, A, "no translation", A_ZH=SPDX + head + CHINESE)
            self.assertIn("its second line is not", translations.check(tree(A_ZH=SPDX + head + CHINESE))[1])
        # One of another document is none.
        self.assertIn(f"{A} has no translation: write {A_ZH}", translations.check(tree(A_ZH=of("b.md", OTHER, CHINESE))))

    def test_headings(self):
        self.chinese("## 运行", "### 运行", "heading 2", "### with 2 items")
        self.chinese("## 运行\n", "", "heading 1")
        self.chinese("| 甲", "## 多\n| 甲", "heading 2")
        self.chinese("- 一，\n", "", "heading 2 is ## with 1 items")
        self.chinese("| 1 | 2 |\n", "", "2 rows")

    def test_code(self):
        for before, after in (("the run", "运行"), ("    as it", "   as it"), ("CMD='x'", "CMD='y'"), ("```\nthe", "```c\nthe"),
                              ("the run\n", ""), ("    make um CMD='x'\n\n", ""), ("| 甲", "```\nmore\n```\n\n| 甲")):
            self.chinese(before, after, "code differs from line")

    def test_symbols(self):
        self.chinese("a.rs#f", "a.rs#g", "ferroce:a.rs#f", number=2)
        self.chinese("`ibv_x`", "ibv_x", "ibv_x")
        self.chinese("- 一", "- `one`", "`code` that", "has not: one")

    def test_links(self):
        self.chinese("、[verbs](../../verbs.md#top)", "", "links to", "Documentation/verbs.md#top")
        self.chinese("#top", "", "links to", "Documentation/verbs.md#top", number=2)
        # A heading that is another one in the translation.
        self.chinese("b.md#末尾", "b.md#乙", number=2)
        self.chinese("https://a.b/c", "https://a.b/d", number=2)
        self.chinese("- 一", "- [一](b.md)", "has not", B)

    def test_each_leads_to_the_other(self):
        here = ENGLISH.replace("zh/a.md", "a.md")
        self.found(1, f"{A}: no link to {A_ZH}", A=here, A_ZH=of("a.md", here, CHINESE))
        self.chinese("../a.md", "a.md", f"no link to {A}")

    def test_a_translator_has_looked(self):
        changed = ENGLISH.replace("What", "All that")
        with tempfile.TemporaryDirectory() as folder, mock.patch.object(sys, "stdout", io.StringIO()) as said, \
                mock.patch.object(config, "CHECKOUT", Path(folder)), mock.patch.object(rules, "CHECKOUT", Path(folder)):
            for path, text in tree(A=changed).items():
                (Path(folder) / path).parent.mkdir(parents=True, exist_ok=True)
                (Path(folder) / path).write_text(text, encoding="utf-8")
            self.assertEqual(len(translations.check(translations.read())), 1)
            self.assertEqual(translations.translated([f"{folder}/{A_ZH}"]), 0)
            self.assertEqual(translations.check(translations.read()), [])
            self.assertEqual((Path(folder) / A_ZH).read_text(encoding="utf-8"), of("a.md", changed, CHINESE))
            # It does not hide what else is wrong.
            (Path(folder) / A).write_text(changed.replace("the run", "a run"), encoding="utf-8")
            self.assertEqual(translations.translated([f"{folder}/{A_ZH}"]), 1)
            self.assertIn("code differs", said.getvalue())
            for none in (f"{folder}/{A}", "/nowhere.md"):
                with self.assertRaises(LabError):
                    translations.translated([none])
