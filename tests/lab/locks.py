# SPDX-License-Identifier: GPL-2.0
"""Locks between runs of the laboratory: on what they share in the cache, and on what is built in one checkout."""

import fcntl
from contextlib import contextmanager

from tests.lab.say import step

SETTING_UP = "another set-up is at work"
BUILDING = "another build in this checkout is at work"
TESTING = "another run of the tests on the host in this checkout is at work"


@contextmanager
def lock(path, who, shared=False):
    """Holds a lock on a file; says so when it must wait, and for whom, which may be a function of what the file says."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "a+", encoding="utf-8") as f:
        how = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
        try:
            fcntl.flock(f, how | fcntl.LOCK_NB)
        except BlockingIOError:
            f.seek(0)
            step(f"{who(f.read().strip()) if callable(who) else who}; waiting for it")
            fcntl.flock(f, how)
        yield f
