# SPDX-License-Identifier: GPL-2.0
"""What may be skipped on which kernel. A skip that is not listed fails, for it may hide that a package or a module has
another name by now; one that is listed and does not happen in a whole run fails too, for the list must stay true."""

import re
from dataclasses import dataclass, replace

from tests.lab.suite import Result


@dataclass(frozen=True)
class Skip:
    """One line: names of scenarios, the reason, and whether every whole run has it."""

    name: str
    why: str
    always: bool = True

    def allows(self, name, why):
        return bool(re.fullmatch(self.name, name) and re.search(self.why, why))


# Of any kernel. Which tests pyverbs skips is compared there, name by name.
ANYWHERE = (
    Skip(r"pyverbs\..*|newer\.pyverbs", "^need ", False),
    Skip(r"verbs\.stream.*", "packets were lost on the way", False),
    Skip(r"memory\.huge-pages", "^the kernel has no two huge pages", False),
    Skip(r"newer\..*", "^the archive had no libibverbs|^the archive has no rdma-core", False),
)
ALLOWED = {
    # With the fast guest, and what that cannot run where the user wants it there.
    "stock": (
        Skip(r".*", "^left out: ", False),
        Skip(r"observe\.pinning|ulp\..*", "a kernel without nbd", False),
    ),
    "debug": (
        Skip(r"verbs\.stream-in-bursts\.delayed|paths\.firewall", "this kernel has no nftables"),
        Skip(r"paths\.(virtio-net|e1000)", "this machine has not two cards"),
        Skip(r"paths\.tunnel-.*", "this kernel has no tunnels of type"),
        Skip(r"paths\.vrf", "this kernel has no VRF"),
        Skip(r"limits\.rdma-cgroup", "cgroups have no rdma controller"),
        Skip(r"link\.parent", "this machine has none"),
        Skip(r"link\.unsuitable-netdev", "this kernel has no netdev of such a type", False),
        Skip(r"ulp\..*", "a kernel without nbd", False),
        # Left out by its own list, with the reason.
        Skip(r".*", "^left out on the debug kernel: ", False),
    ),
}


def skipped(results):
    """Each skip, whole or in part: the name and the reason."""
    for result in results:
        if result.status == "skipped":
            yield result.name, result.detail
        for _, why in result.skips:
            yield result.name, why


def judge(results, kernel, whole):
    """The results by the list: what is skipped and not listed fails, in a whole run also what is listed and not skipped."""
    allowed = ANYWHERE + ALLOWED[kernel]
    judged, found = [], list(skipped(results))
    for result in results:
        wrong = [why for name, why in skipped([result]) if not any(line.allows(name, why) for line in allowed)]
        if wrong and result.status != "failed":
            result = replace(result, status="failed",
                             detail=f"skipped, which tests/lab/skips.py does not allow on this kernel: {wrong[0]}")
        judged.append(result)
    if whole:
        judged += [Result(f"skips.{line.name}", "failed",
                          f"tests/lab/skips.py has it skipped on this kernel for \"{line.why}\", and it was not")
                   for line in allowed if line.always and not any(line.allows(*one) for one in found)]
    return judged
