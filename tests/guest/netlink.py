# SPDX-License-Identifier: GPL-2.0
"""What `ip` and `rdma` say to the kernel, said from here: starting programs is the slow part of an emulated guest."""

import ctypes
import ipaddress
import os
import socket
import struct
from contextlib import nullcontext

REQUEST, ACK, REPLACE, EXCL, DUMP, CREATE = 0x1, 0x4, 0x100, 0x200, 0x300, 0x400
NLMSG_ERROR = 2
ROUTE, RDMA = 0, 20
RTM_NEWLINK, RTM_DELLINK, RTM_GETLINK, RTM_NEWADDR, RTM_NEWNEIGH = 16, 17, 18, 20, 28
# Client NLDEV of RDMA netlink.
NLDEV_GET, NLDEV_NEWLINK, NLDEV_DELLINK = (5 << 10) | 1, (5 << 10) | 3, (5 << 10) | 4
IFF_UP, IFA_F_NODAD = 1, 2
IFLA_ADDRESS, IFLA_IFNAME, IFLA_MTU, IFLA_OPERSTATE, IFLA_LINKINFO, IFLA_NET_NS_FD = 1, 3, 4, 16, 18, 28
IF_OPER_UP = 6
# What a neighbour is known as: one that the kernel will ask for itself when it is used, or for good.
NUD_STALE, NUD_PERMANENT = 0x4, 0x80
# Of <sys/mount.h>.
MS_BIND, MS_REC, MS_SHARED, MNT_DETACH = 0x1000, 0x4000, 0x100000, 2
# Where `ip netns` keeps namespaces by name.
NAMED = "/run/netns"
LIBC = ctypes.CDLL(None, use_errno=True)


def attribute(kind, value):
    """One attribute; text gets its terminating zero, a number 32 bits."""
    if isinstance(value, str):
        value = value.encode() + b"\0"
    elif isinstance(value, int):
        value = struct.pack("=I", value)
    return struct.pack("=HH", 4 + len(value), kind) + value + bytes(-len(value) % 4)


def request(family, kind, flags, body, around=nullcontext()):
    """Sends one message in the network namespace of this thread and waits for its acknowledgement. The kernel does what
    it asks for while it is sent: that, and nothing else, happens in the context `around`."""
    message = struct.pack("=IHHII", 16 + len(body), kind, REQUEST | ACK | flags, 1, 0) + body
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, family) as s:
        with around:
            s.send(message)
        answer = s.recv(65536)
    kind, = struct.unpack_from("=H", answer, 4)
    error, = struct.unpack_from("=i", answer, 16)
    if kind != NLMSG_ERROR or error:
        raise OSError(-error, os.strerror(-error))


def here():
    """The network namespace of this thread as an open file."""
    return os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)


def elsewhere(enter, act):
    """Calls `act` with this thread in the network namespace that `enter` takes it to. Sockets made there stay there."""
    before = here()
    try:
        enter()
        try:
            return act()
        finally:
            os.setns(before, os.CLONE_NEWNET)
    finally:
        os.close(before)


def in_netns(netns, act):
    """Calls `act` with this thread in a network namespace: a `NetNs`, the name of one, or where it is for None."""
    if not netns:
        return act()
    fd = os.dup(netns.fd) if isinstance(netns, NetNs) else os.open(f"{NAMED}/{netns}", os.O_RDONLY | os.O_CLOEXEC)
    try:
        return elsewhere(lambda: os.setns(fd, os.CLONE_NEWNET), act)
    finally:
        os.close(fd)


class NetNs:
    """A network namespace without a name: it lives as long as this holds it, and what others have in it."""

    def __init__(self):
        self.fd = elsewhere(lambda: os.unshare(os.CLONE_NEWNET), here)

    def run(self, act):
        """Calls `act` with this thread in the namespace, which it keeps alive meanwhile."""
        return in_netns(self, act)

    def delete(self):
        """Lets it go; a second time does nothing."""
        fd, self.fd = self.fd, -1
        if fd >= 0:
            os.close(fd)


def mount(source, target, flags):
    if LIBC.mount(source.encode(), target.encode(), b"none", ctypes.c_ulong(flags), None):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), target)


def add_netns(name):
    os.makedirs(NAMED, exist_ok=True)
    try:
        mount("", NAMED, MS_SHARED | MS_REC)
    except OSError:
        # The first one: what is not shared would keep a namespace alive in each mount namespace that was made before it
        # was deleted.
        mount(NAMED, NAMED, MS_BIND | MS_REC)
        mount("", NAMED, MS_SHARED | MS_REC)
    path = f"{NAMED}/{name}"
    os.close(os.open(path, os.O_RDONLY | os.O_CREAT | os.O_EXCL, 0))
    elsewhere(lambda: os.unshare(os.CLONE_NEWNET), lambda: mount("/proc/thread-self/ns/net", path, MS_BIND))


def delete_netns(name):
    path = f"{NAMED}/{name}"
    if LIBC.umount2(path.encode(), MNT_DETACH):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), path)
    os.unlink(path)


def ifinfo(flags=0):
    """`struct ifinfomsg` with those flags set."""
    return struct.pack("=BxHiII", 0, 0, 0, flags, flags)


def veth(a, b, mtu):
    """A veth pair: each of (name, network namespace) is one end."""
    fds = [in_netns(netns, here) for _, netns in (a, b)]
    try:
        one, two = (attribute(IFLA_IFNAME, name) + attribute(IFLA_MTU, mtu) + attribute(IFLA_NET_NS_FD, fd)
                    for (name, _), fd in zip((a, b), fds))
        # VETH_INFO_PEER in IFLA_INFO_DATA.
        kind = attribute(1, "veth") + attribute(2, attribute(1, ifinfo() + two))
        request(ROUTE, RTM_NEWLINK, CREATE | EXCL, ifinfo() + one + attribute(IFLA_LINKINFO, kind))
    finally:
        for fd in fds:
            os.close(fd)


def configure(netns, netdev, *addresses):
    """Sets a netdev and the loopback beside it up, and gives it addresses, with prefix lengths."""
    def act():
        for name in ("lo", netdev):
            request(ROUTE, RTM_NEWLINK, 0, ifinfo(flags=IFF_UP) + attribute(IFLA_IFNAME, name))
        index = socket.if_nametoindex(netdev)
        for address in map(ipaddress.ip_interface, addresses):
            family = socket.AF_INET if address.version == 4 else socket.AF_INET6
            # IFA_ADDRESS and IFA_LOCAL.
            body = (struct.pack("=BBBBI", family, address.network.prefixlen, IFA_F_NODAD, 0, index)
                    + attribute(1, address.packed) + attribute(2, address.packed))
            request(ROUTE, RTM_NEWADDR, CREATE | EXCL, body)

    in_netns(netns, act)


def add_neighbour(netns, netdev, address, mac, state):
    address = ipaddress.ip_address(address)
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6

    def act():
        body = struct.pack("=BxxxiHBB", family, socket.if_nametoindex(netdev), state, 0, 0)
        # NDA_DST and NDA_LLADDR.
        request(ROUTE, RTM_NEWNEIGH, CREATE | REPLACE, body + attribute(1, address.packed)
                + attribute(2, bytes.fromhex(mac.replace(":", ""))))

    in_netns(netns, act)


def is_up(netns, netdev):
    """Whether the kernel has found that a netdev has a carrier. Then it tells others, before it does what else is asked."""
    return link(netns, netdev).get(IFLA_OPERSTATE, b"\0")[0] == IF_OPER_UP


def mac(netns, netdev):
    return link(netns, netdev)[IFLA_ADDRESS].hex(":")


def link(netns, netdev):
    """The attributes of a netdev; none where there is no such one."""
    body = ifinfo() + attribute(IFLA_IFNAME, netdev)

    def ask():
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, ROUTE) as s:
            s.send(struct.pack("=IHHII", 16 + len(body), RTM_GETLINK, REQUEST, 1, 0) + body)
            answer = s.recv(65536)
        kind, = struct.unpack_from("=H", answer, 4)
        return attributes(answer[16 + len(ifinfo()):]) if kind == RTM_NEWLINK else {}

    return in_netns(netns, ask)


def delete_netdev(netns, netdev):
    in_netns(netns, lambda: request(ROUTE, RTM_DELLINK, 0, ifinfo() + attribute(IFLA_IFNAME, netdev)))


def rdma_link_add(netns, name, kind, netdev, around=nullcontext()):
    body = attribute(2, name) + attribute(65, kind) + attribute(51, netdev)
    in_netns(netns, lambda: request(RDMA, NLDEV_NEWLINK, 0, body, around))


def rdma_link_delete(index, around=nullcontext()):
    """`rdma link delete` of the device with this number, from any namespace."""
    request(RDMA, NLDEV_DELLINK, 0, attribute(1, index), around)


def rdma_devices():
    found = {}
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, RDMA) as s:
        s.send(struct.pack("=IHHII", 16, NLDEV_GET, REQUEST | DUMP, 1, 0))
        while True:
            data = s.recv(65536)
            while data:
                length, kind = struct.unpack_from("=IH", data)
                # NLMSG_DONE, or an error: the end in either case.
                if kind != NLDEV_GET:
                    return found
                values = attributes(data[16:length])
                found[values[2].rstrip(b"\0").decode()], = struct.unpack("=I", values[1])
                data = data[(length + 3) & ~3:]


def attributes(body):
    found = {}
    while len(body) >= 4:
        length, kind = struct.unpack_from("=HH", body)
        found[kind & 0x3fff] = body[4:length]
        body = body[(length + 3) & ~3:]
    return found
