# SPDX-License-Identifier: GPL-2.0
"""The laboratory's command line; the Makefile is a thin layer on top of it."""

import os
import sys

from tests.lab import cli

if __name__ == "__main__":
    try:
        status = cli.main(sys.argv[1:])
    except BrokenPipeError:
        # Who reads has had enough, such as head. Nothing is left for the interpreter to complain of at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        status = 1
    sys.exit(status)
