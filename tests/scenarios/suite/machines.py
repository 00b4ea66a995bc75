# SPDX-License-Identifier: GPL-2.0
"""Scenarios that run once more where things go another way: on one processor nothing can be handed to another one,
with the kernel's mitigations each call through a pointer and each entry is another one, and sid has another rdma-core."""

from tests.guest.scenario import add_again

ON_ANOTHER = {
    "one-processor": (
        "link.reload", "pingpong.loop-local", "pingpong.veth-ipv4", "verbs.notify.local", "verbs.notify.wire",
        "verbs.order.wire", "errors.flushes.wire", "races.shared-queues.local", "races.shared-queues.wire",
        "fault.loss-10", "losses.requests", "verbs.killed-programs"),
    "mitigated": (
        "link.reload", "pingpong.loop-local", "pingpong.veth-ipv6", "verbs.fence.wire", "races.shared-queues.wire",
        "interop.pingpong-to-rxe", "hostile.opcodes-ipv4"),
    "fresh-sid": ("packages.install",),
}

for _machine, _names in ON_ANOTHER.items():
    for _name in _names:
        add_again(_name, _machine)
