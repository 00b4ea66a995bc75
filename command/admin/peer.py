# SPDX-License-Identifier: GPL-2.0
"""`ferroce try PEER` and `ferroce try --listen`: each leg of the way to a peer."""

import errno
import json
import os
import re
import select
import shutil
import socket
import struct
import subprocess
import tempfile
import time

from .firewall import check_firewall
from .link import below, likely_netdev, links
from .report import Report
from .system import IB, NET, ROCE_PORT, Wrong, as_json, call, install, read


class Manager:
    """The connection manager as programs have it, by its device file (include/uapi/rdma/rdma_user_cm.h): no library is
    needed, and a request that no program waits for is answered by the manager at the other end."""

    NODE = "/dev/infiniband/rdma_cm"
    CREATE_ID, RESOLVE_ROUTE, QUERY_ROUTE, CONNECT, GET_EVENT, RESOLVE_ADDR = 0, 4, 5, 6, 12, 21
    TCP, RC = 0x0106, 2
    EVENTS = ("address resolved", "address error", "route resolved", "route error", "connect request",
              "connect response", "connect error", "unreachable", "rejected", "established")

    def __init__(self):
        self.fd = os.open(self.NODE, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        # Of an identifier without a context of the user's, here 1, the kernel reports no events.
        self.id = struct.unpack_from("=I", self.ask(self.CREATE_ID, "=QQHB5x", 1, None, self.TCP, self.RC))[0]

    def ask(self, command, form, *values):
        """Writes a command; None among the values is where the answer goes, which is returned."""
        # Not above: it takes a third of the time that the command takes to start.
        import ctypes  # pylint: disable=import-outside-toplevel
        answer = ctypes.create_string_buffer(1024)
        values = [ctypes.addressof(answer) if value is None else value for value in values]
        body = struct.pack(form, *values)
        os.write(self.fd, struct.pack("=IHH", command, len(body), len(answer)) + body)
        return answer.raw

    def event(self, patience):
        """The next event and its status; None where none comes in that many seconds."""
        if not select.select([self.fd], [], [], patience)[0]:
            return None
        _, _, event, status = struct.unpack_from("=QIIi", self.ask(self.GET_EVENT, "=Q", None))
        return self.EVENTS[event] if event < len(self.EVENTS) else f"event {event}", status

    def resolve(self, address, patience):
        """Finds the way to an address; the event that ends that."""
        where = sockaddr(address)
        size = 28 if ":" in address else 16
        self.ask(self.RESOLVE_ADDR, "=IIHHI128s128s", self.id, patience * 1000, 0, size, 0, b"", where)
        happened = self.event(patience + 1)
        if happened and happened[0] == "address resolved":
            self.ask(self.RESOLVE_ROUTE, "=II", self.id, patience * 1000)
            happened = self.event(patience + 1)
        return happened

    def device(self):
        """The GUID of the device that was chosen, as sysfs writes it."""
        guid = self.ask(self.QUERY_ROUTE, "=QII", None, self.id, 0)[:8].hex()
        return ":".join(guid[i:i + 4] for i in range(0, 16, 4))

    def knock(self):
        """Asks for a connection to a service that nobody offers. No queue pair is behind it."""
        self.ask(self.CONNECT, "=II256sBBBBBBBBIIII", 2, 0, b"", 0, 0, 1, 1, 0, 7, 7, 1, self.id, 0, 0, 0)

    def close(self):
        """Forgets the request."""
        os.close(self.fd)


# The status of a rejection for that (IB_CM_REJ_INVALID_SERVICE_ID).
NOBODY_LISTENS = "8"
# Ports of the connection manager: one that no program uses; and that of `try --listen`, rping's own.
NO_SERVICE, TRY_SERVICE = 1, 7174
# Seconds for an answer: the manager asks again each 4.3 s.
PATIENCE = 10


def sockaddr(address):
    """The bytes of a socket address of Linux: of the service that nobody offers."""
    if ":" in address:
        address, _, scope = address.partition("%")
        index = socket.if_nametoindex(scope) if scope else 0
        return struct.pack("=HHI16sI", socket.AF_INET6, socket.htons(NO_SERVICE), 0,
                           socket.inet_pton(socket.AF_INET6, address), index)
    return struct.pack("=HH4s8x", socket.AF_INET, socket.htons(NO_SERVICE), socket.inet_pton(socket.AF_INET, address))


def for_ip(address):
    """An address as ip(8) takes it: one that is link-local with its netdev."""
    plain, _, netdev = address.partition("%")
    return (plain, "dev", netdev) if netdev else (plain,)


def route_to(address):
    """The netdev by which an address is reached, as the kernel says."""
    status, out, err = call("ip", "-j", "route", "get", *for_ip(address))
    if status:
        raise Wrong(f"there is no route to {address}: {err or out}")
    return json.loads(out)[0]


def reach(report, name):
    """Sends to a peer, and says of each leg of the way whether it is there."""
    try:
        address, _, *rest = socket.getaddrinfo(name, None, proto=socket.IPPROTO_UDP)[0][4]
    except OSError as e:
        raise Wrong(f"{name} is no address, and no name of a machine: {e.strerror}") from None
    # Of IPv6 there is a scope behind it, by the number of a netdev.
    if any(rest[1:]):
        address += f"%{socket.if_indextoname(rest[1])}"
    elif address.startswith("fe80:"):
        raise Wrong(f"{address} is link-local: name the netdev that leads there, as in {address}%{likely_netdev() or 'eth0'}")
    route = route_to(address)
    if route.get("type") == "local" or route["dev"] == "lo":
        raise Wrong(f"{name} is this machine itself: ferroce try sends to it")
    netdev = below(route["dev"])
    link = next((link for link in links() if link.netdev == netdev), None)
    if not link:
        report.problem("link", f"the way to {address} is by {route['dev']}"
                       f"{f' on {netdev}' if netdev != route['dev'] else ''}, which has no ferroce link",
                       f"ferroce add {netdev}", f"ip route get {' '.join(for_ip(address))}")
        return
    if link.state != "ACTIVE":
        report.problem("link", f"{link.name} on {link.netdev} is {link.state}", "ferroce doctor")
        return
    report.ok("link", f"{link.name} on {link.netdev}, which leads to {address}", f"ip route get {' '.join(for_ip(address))}")
    if is_there(report, link, address) and answers(report, link, address):
        message(report, link, address)


def neighbour(address):
    """What the kernel knows of an address on a wire of this machine: reachable, failed, nothing."""
    return {state for one in as_json("ip", "-j", "neigh", "show", *for_ip(address)) for state in one.get("state", [])}


def is_there(report, link, address):
    """Asks the machine: an empty datagram to the port of RoCE, which a device only counts as dropped, is refused where
    there is no device. As long as the neighbour is looked for, nothing has left. Whether to go on."""
    there = f"nc -u {address} {ROCE_PORT}"
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.settimeout(1)
        try:
            s.connect(socket.getaddrinfo(address, ROCE_PORT, type=socket.SOCK_DGRAM)[0][4])
            s.send(b"")
            for _ in range(PATIENCE):
                try:
                    s.recv(1)
                    report.problem("peer", f"what answers on UDP port {ROCE_PORT} of {address} is no RDMA device",
                                   f"ss -ulpn sport = :{ROCE_PORT} there names it", there)
                    return False
                except TimeoutError:
                    if "INCOMPLETE" not in neighbour(address):
                        break
        except ConnectionRefusedError:
            report.problem("peer", f"{address} refuses UDP port {ROCE_PORT}: no RDMA device has that address there, or its "
                           "packet filter rejects it", "there: ferroce doctor (or ferroce add NETDEV)", there)
            return False
        except OSError as e:
            if {"REACHABLE", "STALE", "DELAY", "PROBE"} & neighbour(address):
                report.problem("peer", f"{address}, or a machine on the way, prohibits UDP port {ROCE_PORT}: its packet "
                               "filter rejects it", "there: ferroce doctor", there)
                return False
            if e.errno != errno.EHOSTUNREACH:
                report.problem("peer", f"{address} cannot be sent to: {e.strerror}", "ferroce doctor", f"ping {address}")
                return False
    if {"INCOMPLETE", "FAILED"} & neighbour(address):
        report.problem("peer", f"no machine says that it has the address {address}", f"is the address right, and the cable "
                       f"or the VLAN of {link.netdev}?", f"ip neigh show {' '.join(for_ip(address))}; ping {address}")
        return False
    report.ok("peer", f"{address} is there", f"ip neigh show {' '.join(for_ip(address))}")
    return True


def answers(report, link, address):
    """Knocks at the peer's connection manager. Whatever it answers has gone there and back on UDP port 4791."""
    if not os.path.exists(Manager.NODE) and not os.geteuid():
        # Where a machine has udev its rules have done so.
        call("modprobe", "rdma_ucm")
    try:
        manager = Manager()
    except OSError as e:
        report.unknown("port", f"{Manager.NODE} cannot be opened ({e.strerror}), which asks the peer", "modprobe rdma_ucm",
                       f"ls -l {Manager.NODE}")
        return False
    try:
        happened = manager.resolve(address, PATIENCE)
        if happened and happened[0] == "address error" and read(f"{NET}/{link.netdev}/type") != "1":
            report.unknown("port", f"{link.netdev} is no Ethernet, and the connection manager takes no GIDs of others "
                           "(links.md, Tunnels): it cannot ask the peer", "", "ibv_rc_pingpong at both ends")
            return False
        if not happened or happened[0] != "route resolved":
            what = f"{happened[0]}, {os.strerror(-happened[1])}" if happened else "no answer"
            report.problem("address", f"the connection manager finds no way to {address}: {what}", "ferroce doctor",
                           f"rping -c -a {address} -C 1")
            return False
        if manager.device() != read(f"{IB}/{link.name}/node_guid"):
            report.problem("address", f"the connection manager takes another RDMA device than {link.name} for {address}",
                           "ferroce doctor says which has the same address")
            return False
        before = link.totals()
        manager.knock()
        happened = manager.event(PATIENCE)
    except OSError as e:
        report.problem("address", f"the connection manager does not ask {address}: {e.strerror}", "ferroce doctor",
                       f"rping -c -a {address} -C 1")
        return False
    finally:
        manager.close()
    if happened and happened[0] == "rejected":
        report.ok("port", f"UDP port {ROCE_PORT} is open both ways: the device at {address} has answered")
        return True
    after = link.totals()
    sent, got = (after.get(name, 0) - before.get(name, 0) for name in ("sent_pkts", "rcvd_pkts"))
    if happened and happened[0] != "unreachable":
        report.problem("port", f"the device at {address} says: {happened[0]} ({happened[1]})", "there: ferroce doctor")
    elif not sent:
        report.problem("way there", f"nothing left {link.name} for {address}", "ferroce doctor", f"ferroce show {link.name}")
    elif got:
        report.problem("port", f"{got} packets came back, and none is an answer: the connection manager is not loaded at "
                       f"{address}", "there: modprobe rdma_ucm")
    else:
        blocked = Report()
        check_firewall(blocked, [link])
        if blocked.count("problem"):
            report.findings += [f for f in blocked.findings if f["status"] == "problem"]
        else:
            report.problem("way there or back", f"{sent} packets left {link.name} for UDP port {ROCE_PORT} of {address}, and "
                           "none came back: a packet filter there or on the way, or no ferroce link at that address",
                           "there: ferroce doctor", f"there: ferroce try --listen, which says what arrives; here: ferroce "
                           f"try {address}")
    return False


def message(report, link, address):
    """A message of data, where the other end waits for one: large, so that its packets are as large as any."""
    if not shutil.which("rping"):
        report.hint("message", "rping is not installed: no message with data was tried", install("rdmacm-utils"))
        return
    status, out, err = call("rping", "-c", "-a", address, "-p", str(TRY_SERVICE), "-C", "3", "-S", "60000", "-V", timeout=60)
    said = (err or out).splitlines()
    rejected = re.search(r"REJECTED, error (\d+)", err + out)
    if not status:
        report.ok("message", "3 of 60000 B there and back, data checked")
    elif rejected and rejected[1] != NOBODY_LISTENS:
        report.problem("message", f"the program at {address} cannot accept the connection ({rejected[0]}): most likely the "
                       f"netdev there carries less than {link.netdev}, whose MTU is {link.netdev_mtu}",
                       f"ip link set NETDEV mtu {link.netdev_mtu} there, or the smaller one here", "there: ip link")
    elif rejected:
        report.hint("message", "no program waits for one there", f"there: ferroce try --listen; here: ferroce try {address}")
    else:
        report.problem("message", f"a small packet arrives, and a message of 60000 B does not "
                       f"({said[-1] if said else f'exit {status}'}): the MTU on the way is smaller than at the ends",
                       "ip link set NETDEV mtu 1500 at both ends", f"ping -M do -s 4200 {address}")


def listen(address):
    """Waits for `ferroce try` of a peer, and says what arrives."""
    if not shutil.which("rping"):
        raise Wrong("rping is not installed: " + install("rdmacm-utils"))
    ready = [link for link in links() if link.netdev and link.state == "ACTIVE" and link.best_gid()]
    if not ready:
        raise Wrong("there is no ferroce link that is ACTIVE with an address: ferroce doctor")
    for link in ready:
        own = address or link.best_gid()[1]
        there = f"{own}%NETDEV, by the netdev that leads here" if own.startswith("fe80:") else own
        print(f"waiting at {link.name}; on the other machine: ferroce try {there}", flush=True)
    before = {link.name: link.totals() for link in ready}
    argv = ["rping", "-s", "-p", str(TRY_SERVICE), "-S", "60000", "-V"] + (["-a", address] if address else [])
    with tempfile.TemporaryFile("w+") as out, subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=out,
                                                               stderr=subprocess.STDOUT) as server:
        try:
            said = set()
            while server.poll() is None:
                time.sleep(0.2)
                for link in ready:
                    for name, what in (("rcvd_pkts", "arrive"), ("sent_pkts", "leave")):
                        if link.totals().get(name, 0) > before[link.name].get(name, 0) and (link.name, name) not in said:
                            said.add((link.name, name))
                            print(f"{link.name}: packets {what}", flush=True)
        except KeyboardInterrupt:
            print(f"\n{'nothing has arrived' if not said else 'no message has come to its end'}")
            return 1
        finally:
            server.kill()
        out.seek(0)
        text = out.read().strip()
    if server.returncode:
        raise Wrong(f"rping: {text.splitlines()[-1] if text else f'exit {server.returncode}'}")
    print("messages have come and gone, data checked")
    return 0
