# SPDX-License-Identifier: GPL-2.0
"""`python3 -m tests.judges NAME FILE` has a judge look at what a scenario left, where tshark and scapy are; its last line says
what is wrong, if anything."""

import importlib
import sys

from tests.guest.scenario import Failed

if __name__ == "__main__":
    try:
        importlib.import_module(f"tests.judges.{sys.argv[1]}").judge_file(sys.argv[2])
    except Failed as e:
        print(e)
        sys.exit(1)
