# SPDX-License-Identifier: GPL-2.0
"""Two devices on netdevs that take IP packets as they are: tun devices with a wire between them that is a program, or
tunnels over veth."""

import fcntl
import os
import struct
from contextlib import contextmanager
from dataclasses import replace

from tests.guest import netlink
from tests.guest.fabric import (WIRE_MTU, acquaint, batch, counters_if_it_fails, join, no_dad, plug, setting, two_ends,
                                unplug, wait_active)
from tests.guest.netlink import in_netns
from tests.guest.relay import Wire
from tests.guest.scenario import Skipped, command

TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454ca, 0x0001, 0x1000
SPACES = ("fa", "fb")

# Kinds of netdevs: the module, the families that they carry, and how one is made between two addresses.
TUNNELS = {
    "ipip": ("ipip", (4,), "type ipip local {here} remote {there}"),
    "sit": ("sit", (6,), "type sit local {here} remote {there}"),
    "gre": ("ip_gre", (4, 6), "type gre local {here} remote {there}"),
}


def open_tun(netns, name):
    """Makes a tun device, which lives as long as the file is open."""
    def made():
        file = open(os.open("/dev/net/tun", os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK), "r+b", buffering=0)
        fcntl.ioctl(file, TUNSETIFF, struct.pack("16sH22x", name.encode(), IFF_TUN | IFF_NO_PI))
        return file

    return in_netns(netns, made)


class TunWire(Wire):
    """A wire between two tun devices."""

    packets = 0

    def carry(self, source, other):
        os.write(other.fileno(), os.read(source.fileno(), 65536))
        self.packets += 1


@contextmanager
def tun_pair():
    """Two devices on tun devices in two network namespaces, and the wire between them."""
    one, two = two_ends(SPACES, ("tun0", "tun0"))
    no_dad()
    command(["modprobe", "tun"], ok=None)
    if not os.path.exists("/dev/net/tun"):
        raise Skipped("this kernel has no tun devices")
    made = []
    try:
        for end in (one, two):
            netlink.add_netns(end.netns)
            made.append(open_tun(end.netns, end.netdev))
            # A full queue drops packets, however long the program that empties it may need.
            batch([f"link set {end.netdev} mtu {WIRE_MTU} txqueuelen 20000"], netns=end.netns)
        with TunWire(*made) as wire:
            with plugged(one, two):
                yield (one, two), wire
    finally:
        gone(one, two)


@contextmanager
def tunnel_pair(kind):
    """Two devices on the ends of a tunnel between two network namespaces; a kind of TUNNELS."""
    module, _, how = TUNNELS[kind]
    # Without a netdev of the module's own in each namespace.
    with setting("/proc/sys/net/core/fb_tunnels_only_for_init_net", "2"):
        command(["modprobe", module], ok=None)
    # The programs talk beside the tunnel, which may not carry their family.
    one, two = (replace(end, tcp="10.66.0.1") for end in two_ends(SPACES, ("t0", "t0")))
    below = [replace(end, netdev="v" + end.netns[1], ip4=end.ip4.replace("77", "66"), ip6=end.ip6.replace("77", "66"))
             for end in (one, two)]
    no_dad()
    try:
        join(*below, WIRE_MTU)
        acquaint(*below)
        for end, here, there in zip((one, two), below, reversed(below)):
            what = how.format(here=here.ip4, there=there.ip4)
            if command(["ip", "link", "add", end.netdev, *what.split()], netns=end.netns, ok=None).returncode:
                raise Skipped(f"this kernel has no tunnels of type {kind}")
        with plugged(one, two):
            yield one, two
    finally:
        gone(one, two)


@contextmanager
def plugged(*ends):
    """Addresses on the netdevs, and a link on each."""
    for end in ends:
        # A tunnel has no carrier to wait for: its state stays unknown.
        netlink.configure(end.netns, end.netdev, f"{end.ip4}/24", f"{end.ip6}/64")
    try:
        for end in ends:
            plug(end.dev, end.netdev, end.netns)
        for end in ends:
            wait_active(end.dev)
        with counters_if_it_fails():
            yield
    finally:
        for end in ends:
            unplug(end.dev, end.netns)


def gone(*ends):
    for end in ends:
        if os.path.exists(f"{netlink.NAMED}/{end.netns}"):
            netlink.delete_netns(end.netns)
