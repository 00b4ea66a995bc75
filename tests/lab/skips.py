# SPDX-License-Identifier: GPL-2.0
"""What may be skipped: patterns of names and of reasons. A skip that is not listed fails, for it may hide that a package or
a module has another name by now."""

import re
from dataclasses import replace

# Which tests pyverbs skips is compared there, name by name.
ALLOWED = (
    (r"pyverbs\..*|newer\.pyverbs", "^need "),
    (r"verbs\.stream.*", "packets were lost on the way"),
    (r"newer\..*", "^the archive had no libibverbs|^the archive has no rdma-core"),
    # With the fast guest, and what that cannot run where the user wants it there.
    (r".*", "^left out: "),
    (r"observe\.pinning|ulp\..*", "a kernel without nbd"),
)


def allowed(name, why):
    return any(re.fullmatch(names, name) and re.search(reason, why) for names, reason in ALLOWED)


def judge(result):
    """The result by the list: one with a skip, whole or in part, that is not listed has failed."""
    skipped = [result.detail] if result.status == "skipped" else []
    wrong = [why for why in (*skipped, *(why for _, why in result.skips)) if not allowed(result.name, why)]
    if not wrong or result.status == "failed":
        return result
    return replace(result, status="failed", detail=f"skipped, which tests/lab/skips.py does not allow: {wrong[0]}")
