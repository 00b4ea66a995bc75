# SPDX-License-Identifier: GPL-2.0
"""Calls of libibverbs and librdmacm, by uprobes on the libraries as they are: a program need not be built for it. Data path
calls are inline functions of their headers, and no symbols: these the provider's own probes show (USDT)."""

import glob
import os
from contextlib import suppress

from . import elf

# Where libraries are, besides the folders of an architecture.
FOLDERS = ("/usr/lib/*-linux-gnu", "/usr/lib64", "/usr/lib", "/usr/local/lib")
# Objects are made and unmade by these; a function that returns a pointer has failed if that is NULL.
POINTERS = {"ibv_get_device_list", "ibv_open_device", "ibv_alloc_pd", "ibv_reg_mr", "ibv_reg_mr_iova", "ibv_reg_mr_iova2",
            "ibv_create_comp_channel", "ibv_create_cq", "ibv_create_qp", "ibv_create_srq", "ibv_create_ah",
            "rdma_create_event_channel"}
LIBRARIES = {
    "libibverbs.so.1": (*sorted(name for name in POINTERS if name.startswith("ibv_")), "ibv_close_device", "ibv_dealloc_pd",
                        "ibv_dereg_mr", "ibv_destroy_cq", "ibv_modify_qp", "ibv_query_qp", "ibv_destroy_qp", "ibv_destroy_srq",
                        "ibv_destroy_ah", "ibv_attach_mcast", "ibv_detach_mcast", "ibv_get_cq_event", "ibv_get_async_event",
                        # From the provider back to libibverbs, which makes the system call.
                        "ibv_cmd_create_qp", "ibv_cmd_create_qp_ex2", "ibv_cmd_modify_qp", "ibv_cmd_reg_mr", "ibv_cmd_create_cq",
                        "ibv_cmd_create_cq_ex", "execute_ioctl"),
    "librdmacm.so.1": ("rdma_create_event_channel", "rdma_create_id", "rdma_bind_addr", "rdma_resolve_addr", "rdma_resolve_route",
                       "rdma_listen", "rdma_connect", "rdma_accept", "rdma_reject", "rdma_disconnect", "rdma_create_qp",
                       "rdma_destroy_qp", "rdma_destroy_id", "rdma_get_cm_event", "rdma_join_multicast", "rdma_leave_multicast"),
}

# The probes of the provider: their arguments in order, and how these are printed.
PROVIDER = "ferroce"
ARGUMENTS = {
    "post_send": ("qpn:x", "wr_id:x", "opcode:u", "index:u"), "post_recv": ("qpn:x", "wr_id:x", "index:u"),
    "post_srq_recv": ("srq:u", "wr_id:x", "index:u"), "doorbell": ("qpn:x", "queue:u"),
    "polled": ("qpn:x", "wr_id:x", "status:u", "cq:u"), "arm": ("cq:u", "solicited:u"),
}


def library(name: str) -> str | None:
    """The path of a library."""
    return next((os.path.realpath(path) for folder in FOLDERS for path in glob.glob(f"{folder}/{name}")), None)


def providers(names: str = "/etc/libibverbs.d") -> list[str]:
    """The provider's files, one for each private ABI: in the folder of libibverbs, or where it was told to look."""
    places = [f"{folder}/libibverbs/libferroce" for folder in FOLDERS]
    for path in glob.glob(f"{names}/*.driver"):
        with suppress(OSError), open(path, encoding="utf-8", errors="replace") as f:
            places += [words[1] for words in map(str.split, f) if len(words) == 2 and words[0] == "driver" and words[1][0] == "/"]
    return sorted({os.path.realpath(path) for place in places for path in glob.glob(f"{place}-rdmav*.so")
                   if place.endswith("/libferroce")})


def of_provider(group: str, path: str) -> list[str]:
    """The lines for a provider's probes: those of one name are one event."""
    made = []
    with open(path, "rb") as f:
        found = [one for one in elf.probes(f.read()) if one.provider == PROVIDER and one.name in ARGUMENTS]
    for one in found:
        named = [argument.split(":") for argument in ARGUMENTS[one.name]]
        places = [elf.fetch(where, kind) for (_, kind), where in zip(named, one.arguments)]
        if None not in places:
            words = " ".join(f"{name}={place}" for (name, _), place in zip(named, places))
            made.append(f"p:{group}/ferroce_user_{one.name} {path}:{one.offset:#x} {words}")
    return made


def probes(group: str) -> list[str]:
    """The lines for `uprobe_events`: entry and return of each function, and the provider's own."""
    made = [line for path in providers() for line in of_provider(group, path)]
    for name, wanted in LIBRARIES.items():
        path = library(name)
        if path:
            with open(path, "rb") as f:
                known = elf.functions(f.read())
            for function in (one for one in wanted if one in known):
                made += [f"p:{group}/ferroce_call__{function} {path}:{known[function]:#x}",
                         f"r:{group}/ferroce_return__{function} {path}:{known[function]:#x} ret=$retval"]
    return made


class Calls:
    """The probes of one recording, in a buffer of tracefs."""

    def __init__(self, tracefs: str, buffer: str):
        self.tracefs, self.buffer = tracefs, buffer
        self.group = f"ferroce_calls_{os.getpid()}"
        self.made: list[str] = []

    def begin(self) -> str:
        """Sets them. Returns what is to be said where that cannot be."""
        path = f"{self.tracefs}/uprobe_events"
        if not os.path.exists(path):
            return "calls of libibverbs and librdmacm are not recorded: this kernel has no uprobes (CONFIG_UPROBE_EVENTS)"
        for line in probes(self.group):
            name = line.split()[0][2:]
            # Before it is there: a signal may end this anywhere.
            self.made.append(name)
            if not append(path, line):
                self.made.remove(name)
        if not self.made:
            return "calls of libibverbs and librdmacm are not recorded: no probe could be set"
        put(f"{self.buffer}/events/{self.group}/enable", "1")
        return ""

    def stop(self) -> None:
        """Records no more."""
        put(f"{self.buffer}/events/{self.group}/enable", "0")

    def end(self) -> None:
        """Takes them away. The kernel clears the buffers in which they were on: read first."""
        self.stop()
        for name in dict.fromkeys(self.made):
            append(f"{self.tracefs}/uprobe_events", f"-:{name}")
        self.made = []


def append(path: str, line: str) -> bool:
    """Adds a line to a file of tracefs in which nothing can be sought, as open() would; whether it was taken."""
    with suppress(OSError):
        file = os.open(path, os.O_WRONLY | os.O_APPEND)
        try:
            os.write(file, f"{line}\n".encode())
            return True
        finally:
            os.close(file)
    return False


def put(path: str, text: str) -> None:
    """Writes a file of tracefs that need not be there."""
    with suppress(OSError), open(path, "w", encoding="ascii") as f:
        f.write(text)
