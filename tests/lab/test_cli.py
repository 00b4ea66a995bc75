# SPDX-License-Identifier: GPL-2.0
"""The command line."""

import importlib
import pkgutil
import unittest

from tests import bench, lab
from tests.lab import cli


class Words(unittest.TestCase):
    """What is imported only when its word is said must not wait until then to show that it is broken."""

    def test_every_module_can_be_imported(self):
        for package in (lab, bench):
            for module in pkgutil.iter_modules(package.__path__):
                if module.name != "__main__":
                    importlib.import_module(f"{package.__name__}.{module.name}")

    def test_unknown_words_are_refused(self):
        with self.assertRaises(SystemExit):
            cli.parser().parse_args(["bensh"])


if __name__ == "__main__":
    unittest.main()
