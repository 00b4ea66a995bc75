# SPDX-License-Identifier: GPL-2.0
"""What `ip` and `rdma` say to the kernel, said from here: starting programs is the slow part of an emulated guest."""

import os
import socket
import struct
from contextlib import nullcontext

REQUEST, ACK, EXCL, DUMP, CREATE = 0x1, 0x4, 0x200, 0x300, 0x400
NLMSG_ERROR = 2
ROUTE, RDMA = 0, 20
RTM_NEWLINK, RTM_DELLINK, RTM_NEWADDR = 16, 17, 20
# Client NLDEV of RDMA netlink.
NLDEV_GET, NLDEV_NEWLINK, NLDEV_DELLINK = (5 << 10) | 1, (5 << 10) | 3, (5 << 10) | 4
IFF_UP, IFA_F_NODAD = 1, 2
# The index that both ends of a wire get, each in its namespace.
INDEX = 100


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


def within(fd, act):
    """Calls `act` with this thread in the network namespace of an open file. Sockets made there stay there."""
    before = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.setns(fd, os.CLONE_NEWNET)
        try:
            return act()
        finally:
            os.setns(before, os.CLONE_NEWNET)
    finally:
        os.close(before)


def in_netns(name, act):
    """Calls `act` with this thread in a named network namespace, or where it is without a name."""
    if not name:
        return act()
    fd = os.open(f"/run/netns/{name}", os.O_RDONLY | os.O_CLOEXEC)
    try:
        return within(fd, act)
    finally:
        os.close(fd)


class NetNs:
    """A network namespace without a name: it lives as long as this holds it, and what others have in it."""

    def __init__(self):
        before = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        os.unshare(os.CLONE_NEWNET)
        self.fd = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        os.setns(before, os.CLONE_NEWNET)
        os.close(before)

    def run(self, act):
        """Calls `act` with this thread in the namespace, which it keeps alive meanwhile."""
        fd = os.dup(self.fd)
        try:
            return within(fd, act)
        finally:
            os.close(fd)

    def delete(self):
        """Lets it go; a second time does nothing."""
        fd, self.fd = self.fd, -1
        if fd >= 0:
            os.close(fd)


def ifinfo(index=0, flags=0):
    """`struct ifinfomsg` with those flags set."""
    return struct.pack("=BxHiII", 0, 0, index, flags, flags)


def veth(a, b, mtu):
    """A veth pair, up: each of (name, namespace, IPv4 address) is one end."""
    def end(name, netns):
        return attribute(3, name) + attribute(4, mtu) + attribute(28, netns.fd)

    peer = attribute(1, ifinfo(INDEX) + end(*b[:2]))
    kind = attribute(1, "veth") + attribute(2, peer)
    request(ROUTE, RTM_NEWLINK, CREATE | EXCL, ifinfo(INDEX) + end(*a[:2]) + attribute(18, kind))
    for name, netns, address in (a, b):
        packed = socket.inet_aton(address)
        body = struct.pack("=BBBBI", socket.AF_INET, 24, IFA_F_NODAD, 0, INDEX) + attribute(1, packed) + attribute(2, packed)

        def configure(body=body):
            for index in (1, INDEX):
                request(ROUTE, RTM_NEWLINK, 0, ifinfo(index, IFF_UP))
            request(ROUTE, RTM_NEWADDR, CREATE | EXCL, body)

        netns.run(configure)


def delete_netdev(netns):
    """`ip link del` of the wire in a namespace."""
    netns.run(lambda: request(ROUTE, RTM_DELLINK, 0, ifinfo(INDEX)))


def rdma_link_add(netns, name, kind, netdev, around=nullcontext()):
    """`rdma link add`."""
    body = attribute(2, name) + attribute(65, kind) + attribute(51, netdev)
    netns.run(lambda: request(RDMA, NLDEV_NEWLINK, 0, body, around))


def rdma_link_delete(index, around=nullcontext()):
    """`rdma link delete` of the device with this number, from any namespace."""
    request(RDMA, NLDEV_DELLINK, 0, attribute(1, index), around)


def rdma_devices():
    """The numbers of all RDMA devices, by name."""
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
    """The attributes of a message as a dictionary."""
    found = {}
    while len(body) >= 4:
        length, kind = struct.unpack_from("=HH", body)
        found[kind & 0x3fff] = body[4:length]
        body = body[(length + 3) & ~3:]
    return found
