# SPDX-License-Identifier: GPL-2.0
"""Links: a ferroce device and what the kernel says of it."""

import ipaddress
import os
import socket

from .keep import kept
from .system import IB, NET, VERBS, as_json, listing, number, read

# What a packet adds to its payload: IPv6, UDP, BTH, RETH, immediate data, ICRC.
MAX_HEADERS = 40 + 8 + 12 + 16 + 4 + 4


class Link:
    """A ferroce device and what the kernel says of it."""

    def __init__(self, name, netdev):
        self.name = name
        # Nothing where it is in another network namespace.
        self.netdev = netdev
        self.port = f"{IB}/{name}/ports/1"
        self.state = read(f"{self.port}/state").split(": ")[-1] or "gone"
        self.version = read(f"{IB}/{name}/fw_ver")
        self.netdev_mtu = number(read(f"{NET}/{netdev}/mtu")) if netdev else 0

    def ib_mtu(self):
        """The IB MTU of the port: the largest whose packets the netdev carries with all headers they may have."""
        return max((mtu for mtu in (512, 1024, 2048, 4096) if mtu + MAX_HEADERS <= self.netdev_mtu), default=256)

    def gids(self):
        """Index, address and type of each GID in use."""
        found = []
        for index in sorted(map(int, listing(f"{self.port}/gids"))):
            # An entry that is not in use has no type.
            kind = read(f"{self.port}/gid_attrs/types/{index}")
            if kind:
                found.append((index, address_of(read(f"{self.port}/gids/{index}")), kind))
        return found

    def best_gid(self):
        """Index and address of the GID to use with -g: IPv4 before IPv6 before a link-local one; None without any."""
        gids = [(index, address) for index, address, kind in self.gids() if kind == "RoCE v2"]
        return min(gids, key=lambda gid: (gid[1].startswith("fe80:"), ":" in gid[1], gid[0]), default=None)

    def counters(self):
        """The counters that are not zero. sysfs has them in the first network namespace alone."""
        shown = as_json("rdma", "-j", "statistic", "show", "link", f"{self.name}/1")
        values = {name: value for one in shown for name, value in one.items() if name not in ("ifname", "port")}
        return {name: value for name, value in sorted(values.items()) if isinstance(value, int) and value}

    def totals(self):
        """Packets sent and received."""
        shown = as_json("rdma", "-j", "statistic", "show", "link", f"{self.name}/1")
        return {name: value for one in shown for name, value in one.items() if name in ("sent_pkts", "rcvd_pkts")}

    def peers(self):
        """Addresses on its netdev that the kernel has looked for, and whether it found them: reachable, stale (found a
        while ago), failed."""
        shown = as_json("ip", "-j", "neigh", "show", "dev", self.netdev) if self.netdev else []
        found = {one["dst"]: " ".join(one.get("state", [])).lower() for one in shown}
        return {address: state for address, state in found.items() if state not in ("", "none", "noarp")}

    def uverbs(self):
        """The name of its character device, such as uverbs0."""
        return next((name for name in listing(VERBS) if read(f"{VERBS}/{name}/ibdev") == self.name), "")

    def data(self):
        """All of it, for --json."""
        best = self.best_gid()
        return {"device": self.name, "netdev": self.netdev, "state": self.state, "version": self.version,
                "kept": self.netdev in kept(), "netdev_mtu": self.netdev_mtu or None, "ib_mtu": self.ib_mtu() if self.netdev else None,
                "gid_index": best[0] if best else None,
                "gids": [{"index": i, "address": a, "type": t} for i, a, t in self.gids()], "peers": self.peers(),
                "counters": self.counters()}


def address_of(gid):
    """The IP address that a GID is, in its short form."""
    try:
        address = ipaddress.IPv6Address(gid)
    except ValueError:
        return gid
    return str(address.ipv4_mapped or address)


def netdevs_by_device():
    """The netdev of each RDMA device of which this network namespace knows it."""
    return {link["ifname"]: link.get("netdev", "") for link in as_json("rdma", "-j", "link", "show")}


def is_ferroce(device):
    """No other driver has this attribute."""
    return os.path.exists(f"{IB}/{device}/local_path")


def links():
    """Every ferroce link that this network namespace sees."""
    netdevs = netdevs_by_device()
    return [Link(name, netdevs.get(name, "")) for name in listing(IB) if is_ferroce(name)]


def in_this_namespace(netdev):
    """The name that a netdev of this process's network namespace goes by, of which an alternative one may be given, and its
    number; no number where there is none."""
    try:
        index = socket.if_nametoindex(netdev)
        return socket.if_indextoname(index), str(index)
    except OSError:
        return netdev, ""


def called(what):
    """The link of this name, and that of the netdev of this name."""
    found = links()
    netdev, _ = in_this_namespace(what)
    return [link for link in found if what == link.name or netdev and netdev == link.netdev]


def below(netdev):
    """The netdev that a link would be on, whose GIDs the addresses of a VLAN are."""
    while "DEVTYPE=vlan" in read(f"{NET}/{netdev}/uevent").split():
        lower = next((name for name in listing(f"{NET}/{netdev}") if name.startswith("lower_")), "")
        if not lower:
            break
        netdev = lower.removeprefix("lower_")
    return netdev


def master_of(netdev):
    """The bridge or bond that has taken a netdev; a VRF leaves it its addresses."""
    shown = next(iter(as_json("ip", "-j", "-d", "link", "show", "dev", netdev)), {})
    return "" if shown.get("linkinfo", {}).get("info_slave_kind") == "vrf" else shown.get("master", "")


def likely_netdev():
    """A netdev that a link could be on, an Ethernet that is up: that of the default route, else a card before what is
    made of software, such as a bridge of docker's. The ports of a bridge or bond are none."""
    up = [name for name in listing(NET) if name == below(name)
          and read(f"{NET}/{name}/type") == "1" and read(f"{NET}/{name}/operstate") == "up" and not master_of(name)]
    default = [below(route.get("dev", "")) for route in as_json("ip", "-j", "route", "show", "default")]
    return min(up, key=lambda name: (name not in default, not os.path.exists(f"{NET}/{name}/device")), default="")
