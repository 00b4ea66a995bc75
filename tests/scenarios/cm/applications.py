# SPDX-License-Identifier: GPL-2.0
"""Applications with communication layers of their own, unchanged from Debian: UCX, and libfabric on librdmacm."""

import re

from tests.guest.fabric import pair
from tests.guest.programs import run_both
from tests.guest.rdma_cm import connections
from tests.guest.scenario import add, require, scenario, shortened
from tests.scenarios.cm.cm import packets_come

UCX_PORT, FABRIC_PORT = 13337, 47592
ITERATIONS = shortened(100, 10)
# Tests of ucx_perftest, and bytes of a message: small, in one packet, and large, where the receiver reads.
UCX_TESTS = {"tag": (("tag_lat", 8), ("tag_bw", 200000)), "put": (("ucp_put_lat", 1000), ("ucp_put_bw", 100000)),
             "get": (("ucp_get", 1000), ("ucp_get", 100000)), "atomic": (("ucp_fadd", 8), ("ucp_cswap", 8))}
# Of its own accord UCX fences puts and atomics by a flush at the peer, which its transport rc_v has with mlx5 alone: it
# says so as an error and goes on. This one fences by the order of the queue pair, which is enough with one of them.
FENCED = {"put": ("UCX_FENCE_MODE=weak",), "atomic": ("UCX_FENCE_MODE=weak",)}


def ucx(_report, tls, family, tests, settings=()):
    """Tests of ucx_perftest over one of UCX's transports."""
    with pair() as ends:
        for name, size in tests:
            sides = []
            for end in ends:
                sides.append(["env", f"UCX_TLS={tls}", f"UCX_NET_DEVICES={end.dev}:1", f"UCX_IB_GID_INDEX={end.gid(family)}",
                              *settings, "ucx_perftest"])
            # Without -P 0 it asks MPI for its peer, unless a terminal is there.
            test = ["-P", "0", "-t", name, "-s", str(size), "-n", str(ITERATIONS), "-w", "2", "-f"]
            with packets_come(ends, ITERATIONS // 2):
                outs = run_both(sides[0] + test, sides[1] + [ends[0].tcp] + test, ends, UCX_PORT, 60)
            for out in outs:
                require("ERROR" not in out, f"{name}: {out[-300:]}")
            require(re.search(rf"(?m)^\s*(Final:)?\s*{ITERATIONS}\b", outs[1]), f"{name}: {outs[1][-300:]}")


# Put and get over UD are software of UCX.
for _name, _tls, _family, _tests in (
        *((f"rc-{_name}", "rc_v", 4, _tests) for _name, _tests in UCX_TESTS.items()), ("ud-tag", "ud_v", 4, UCX_TESTS["tag"]),
        ("ud-ipv6", "ud_v", 6, UCX_TESTS["tag"][:1]), ("ud-put-get", "ud_v", 4, UCX_TESTS["put"][:1] + UCX_TESTS["get"][:1])):
    add(f"ucx.{_name}", 150, f"ucx_perftest, UCX_TLS={_tls}, IPv{_family}: {', '.join(f'{name} of {size} B' for name, size in _tests)}",
        ucx, _tls, _family, _tests, FENCED.get(_name.removeprefix("rc-"), ()),
        rxe="rdma_rxe's completions do not tell the IP version where UCX looks for it, and UCX drops all datagrams")


@scenario("cm.libfabric", 120)
def libfabric(_report):
    """fi_pingpong of libfabric, whose provider for verbs connects by librdmacm: connections, and datagrams of its own on them."""
    with connections(), pair() as ends:
        for provider, kind in (("verbs", "msg"), ("verbs;ofi_rxm", "rdm")):
            side = ["fi_pingpong", "-p", provider, "-e", kind, "-c", "-I", str(ITERATIONS), "-S", "2000"]
            with packets_come(ends, ITERATIONS):
                outs = run_both([*side, "-d", ends[0].dev], [*side, "-d", ends[1].dev, ends[0].tcp], ends, FABRIC_PORT, 60)
            require(re.search(rf"(?m)^1\.9k\s+{ITERATIONS}\s+={ITERATIONS}\b", outs[1]), f"{provider}: {outs[1][-300:]}")
