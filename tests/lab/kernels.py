# SPDX-License-Identifier: GPL-2.0
"""`make check ALL_KERNELS=1`: some of everything on every kernel that ferroce is for: the newest of each series of the
backports, and sid's, with all else of sid. Each has a root of its own, which is made when it is not there."""

import os
import sys

from tests.lab import config, debian, say, setup
from tests.lab.say import LabError
from tests.lab.shell import in_good_order

# A build, and of each kind of thing one: what differs from kernel to kernel is what the module calls and is called by.
SHORT = ("module.build,link.autoload,link.mtu,pingpong.loop-local,pingpong.veth-ipv4,pingpong.veth-ipv6,"
         "verbs.notify,queues.cq-resize,queues.srq-limit,errors.flushes,groups.veth,observe.*,interop.services,"
         "kernel.operations,kernel.registration,cm.rping-veth-ipv4,cm.udaddy,product.doctor-module,teardown.pairs")


def series(index):
    """The series of the complete kernels in a package index, the oldest first."""
    return sorted({".".join(map(str, debian.version_key(k.release)[:2]))
                   for k in debian.complete_kernels(index, config.STABLE.ending)}, key=debian.version_key)


def run(root, only):
    """Runs a few tests, or those that are asked for, on each; 0 when all passed everywhere."""
    if config.wanted_kernel():
        raise LabError("FERROCE_KERNEL asks for one kernel, ALL_KERNELS for all of them; leave one away")
    found = series(setup.package_index(root.path))
    if not found:
        raise LabError(f"the package lists of {root.path} have no kernel; make setup REFRESH=1 makes them anew")
    wanted = [*found, config.UNSTABLE.suite]
    results = {}
    for kernel in wanted:
        say.step(f"the kernel {kernel}")
        done = in_good_order([sys.executable, "-m", "tests.lab", "check", "--only", only or SHORT], cwd=config.CHECKOUT,
                             env=os.environ | {"FERROCE_KERNEL": kernel})
        results[kernel] = done.returncode
    say.line("")
    for kernel, status in results.items():
        say.verdict("failed" if status else "passed", f"kernel {kernel}", detail=f"exit {status}" if status else "")
    return 1 if any(results.values()) else 0
