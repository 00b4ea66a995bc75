# SPDX-License-Identifier: GPL-2.0
"""Scenarios that run once more where things go another way: on one processor nothing can be handed to another one, and
with the kernel's mitigations, which that machine has too, each call through a pointer and each entry is another one; on
eight there is more than one other CPU to choose; sid has another rdma-core, and aarch64 other structures, atomic instructions
and barriers."""

import os
import re

from tests.guest.programs import program
from tests.guest.scenario import add_again, command, require, scenario

ON_ANOTHER = {
    "one-processor": ("races.shared-queues",),
    "eight-processors": ("cpus.hotplug.loop-local", "cpus.hotplug.veth", "once.steered", "perftest.tools.veth", "paths.steering",
                         "races.shared-queues", "verbs.stream"),
    "fresh-sid": ("packages.install",),
    "aarch64": (
        "link.autoload", "link.mtu", "pingpong.loop-local", "pingpong.loop-wire",
        "pingpong.veth-ipv4", "pingpong.veth-ipv6", "pingpong.services.loop-local", "pingpong.services.veth-ipv4",
        "queues.cq-fields", "paths.small-mtu", "cm.rping-veth-ipv4", "cm.rping-veth-ipv6",
        "verbs.notify", "verbs.order", "verbs.inline", "verbs.fence", "verbs.atomic-values", "verbs.atomic-crowd",
        "races.shared-queues"),
}

for _machine, _names in ON_ANOTHER.items():
    for _name in _names:
        add_again(_name, _machine)


@scenario("aarch64.provider", 60, machine="aarch64")
def provider(report):
    """The provider's unit tests on aarch64; its layouts are compared with C's there, for both private ABIs."""
    tests = program("provider_tests")
    done = command([tests, "--include-ignored", "--skip", "those_of_rdma_core", "--test-threads", "2"], timeout=120,
                   env={**os.environ, "FERROCE_LAYOUTS": os.path.dirname(tests)})
    require(re.search(r"^test .*those_of_programs_made_elsewhere \.\.\. ok$", done.stdout, re.M),
            "the layouts were not compared")
    report.note(re.search(r"^test result: .*$", done.stdout, re.M).group(0))
