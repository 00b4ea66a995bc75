# SPDX-License-Identifier: GPL-2.0
"""Scenarios that go wrong on purpose, to see that the suite sees it. They run only when asked for by name; all but
the first and the last must fail: `make check ONLY=self` shows 2 passed, 6 failed."""

import os
import time

from tests.guest.fabric import batch, write
from tests.guest.scenario import add, scenario

PREFIX = "self."


@scenario("self.good", 20)
def good(_report):
    """Does nothing and must pass."""


@scenario("self.warning", 20)
def warning(_report):
    """The kernel's log has a warning."""
    write("/dev/kmsg", "<4>WARNING: CPU: 0 PID: 1 at nowhere\n")


@scenario("self.left-over", 20)
def left_over(_report):
    """A network namespace is left behind."""
    batch(["netns add forgotten"])


@scenario("self.slow", 5)
def slow(_report):
    """Outlives its time limit."""
    time.sleep(1000)


add("self.no-capture", 20, "promises a capture and leaves none", good, leaves=".pcap")


@scenario("self.dies", 20)
def dies(_report):
    """The scenario's process is gone without a verdict."""
    os._exit(3)


@scenario("self.crash", 30)
def crash(_report):
    """The guest's kernel dies."""
    write("/proc/sysrq-trigger", "c")
    time.sleep(20)


@scenario("self.after-the-crash", 20)
def after(_report):
    """Must pass in the guest booted after the crash."""
