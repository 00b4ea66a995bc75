# SPDX-License-Identifier: GPL-2.0
"""The laboratory's command line; the Makefile is a thin layer on top of it."""

import sys

from tests.lab import cli

if __name__ == "__main__":
    sys.exit(cli.main(sys.argv[1:]))
