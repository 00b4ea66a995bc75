# SPDX-License-Identifier: GPL-2.0
"""A translation that is behind is found, with what to do; one that is not is left in peace."""

import unittest

from tests.lab import translations

SPDX = "<!-- SPDX-License-Identifier: GPL-2.0 -->\n"
ENGLISH = SPDX + """# A walk

What `ibv_x` and `ferroce:a.rs#f` do.

## The run

- one thing, and another
      of `two` lines

    make um CMD='x'

```
the run
```
"""
CHINESE = """# 走读

`ferroce:a.rs#f` 和 `ibv_x` 做什么。

## 运行

- 一，`two`

    make um CMD='x'

```
the run
```
"""
PATH, PATH_ZH = "Documentation/walks/a.md", "Documentation/walks/zh/a.md"


class Translations(unittest.TestCase):
    def found(self, chinese, *words, of=ENGLISH, english=ENGLISH):
        """What is wrong with a translation of a text, of which the tree has another by now; the first says these words."""
        head = f"{SPDX}<!-- Of ../a.md at {translations.digest(of)} -->\n"
        found = translations.check({PATH: english, PATH_ZH: head + chinese})
        self.assertEqual(bool(found), bool(words), found)
        for word in words:
            self.assertIn(word, found[0])

    def test_none(self):
        self.found(CHINESE)
        self.found(CHINESE.replace("做什么", "有何用") + translations.OWN + "\n## 术语\n`x`\n")

    def test_behind(self):
        changed = ENGLISH.replace("What", "All that")
        self.found(CHINESE, f"{PATH_ZH} is behind", f"python3 -m tests.lab translated {PATH_ZH}", english=changed)
        self.found(CHINESE, of=changed, english=changed)

    def test_differences(self):
        for before, after, what in (("## 运行", "### 运行", "headings"), ("## 运行\n", "", "headings"), ("the run", "运行", "its code"),
                                    ("CMD='x'", "CMD='y'", "its code"), ("    make um CMD='x'\n", "", "its code"),
                                    ("a.rs#f", "a.rs#g", "a.rs#"), ("`ibv_x`", "ibv_x", "ibv_x"), ("`two`", "`one`", "two")):
            self.assertIn(before, CHINESE)
            self.found(CHINESE.replace(before, after, 1), PATH_ZH, what)

    def test_missing(self):
        self.assertIn(f"write {PATH_ZH}", translations.check({PATH: ENGLISH})[0])
        self.assertIn("second line", translations.check({PATH: ENGLISH, PATH_ZH: SPDX + CHINESE})[1])
