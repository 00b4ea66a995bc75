# SPDX-License-Identifier: GPL-2.0
"""Small networks for the scenarios: one device looped to itself, or two in network namespaces over veth."""

import fcntl
import ipaddress
import os
import re
import socket
import subprocess
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace

from tests.guest import flavour, netlink
from tests.guest.netlink import in_netns
from tests.guest.scenario import PATIENCE, Failed, Skipped, command, say, say_command

# Room for an IB MTU of 4096 with every header.
WIRE_MTU = 4500
IB = "/sys/class/infiniband"
SIOCGIFHWADDR = 0x8927


@dataclass(frozen=True)
class End:
    """One side of a conversation: a device, where its programs run, and how to reach it over TCP."""

    dev: str
    netns: str | None
    netdev: str
    ip4: str
    ip6: str
    tcp: str

    def address(self, family):
        return self.ip4 if family == 4 else self.ip6

    def gid(self, family=4):
        """Index of the RoCE v2 GID that carries this end's address."""
        return gid_index(self.dev, self.address(family))


def read(path):
    """Text of a small file in /proc or /sys, or None when it cannot be read."""
    try:
        with open(path, encoding="utf-8", errors="replace") as f:
            return f.read().strip()
    except OSError:
        return None


def listing(path):
    """The names in a folder; none where it is not there."""
    try:
        return sorted(os.listdir(path))
    except FileNotFoundError:
        return []


def write(path, text):
    """Into a small file in /proc or /sys."""
    with open(path, "w", encoding="ascii") as f:
        f.write(str(text))


@contextmanager
def setting(path, value):
    """A value in a file of the kernel's, and at the end what was there before."""
    before = read(path)
    write(path, value)
    try:
        yield
    finally:
        write(path, before)


@contextmanager
def unsteered(ends):
    """What is sent between these is executed on the same CPU, so its waiter cannot be waiting for another virtual CPU,
    which the host may have stopped for as long as it likes: then a packet that is sent again is a fault of the driver's."""
    with ExitStack() as done:
        for dev in {end.dev for end in ends}:
            done.enter_context(setting(f"{IB}/{dev}/steering", "0"))
        yield


def gid_of(address):
    """The GID of an IP address as sysfs prints it."""
    ip = ipaddress.ip_address(address)
    if ip.version == 4:
        ip = ipaddress.IPv6Address(f"::ffff:{address}")
    # Python prints a mapped address differently from one version to the next; the bytes are what they are.
    text = ip.packed.hex()
    return ":".join(text[i:i + 4] for i in range(0, 32, 4))


def gid_table(dev):
    """Every GID in use, in order: index, GID, type."""
    base = f"{IB}/{dev}/ports/1"
    try:
        indices = sorted(map(int, os.listdir(f"{base}/gids")))
    except FileNotFoundError:
        return
    for index in indices:
        # An unused entry has no type: reading it fails.
        kind = read(f"{base}/gid_attrs/types/{index}")
        if kind:
            yield index, read(f"{base}/gids/{index}"), kind


def gid_index(dev, address):
    """Index of the RoCE v2 GID of an address. The table may trail behind the netdev, so it is waited for."""
    want = gid_of(address)
    end = time.monotonic() + 10 * PATIENCE
    while True:
        for index, gid, kind in gid_table(dev):
            if gid == want and kind == "RoCE v2":
                return index
        if time.monotonic() > end:
            raise Failed(f"{dev} has no RoCE v2 GID for {address}; its table is {list(gid_table(dev))}")
        time.sleep(0.05)


def wait_until(what, test, limit=10):
    """Waits for a condition; the text says what was waited for."""
    end = time.monotonic() + limit * PATIENCE
    while not test():
        if time.monotonic() > end:
            raise Failed(f"{what}: not within {limit} s")
        time.sleep(0.05)


def port_state(dev):
    """Such as `4: ACTIVE`."""
    return read(f"{IB}/{dev}/ports/1/state") or "gone"


def counters(dev):
    base = f"{IB}/{dev}/ports/1/hw_counters"
    found = {}
    for name in listing(base):
        value = read(f"{base}/{name}") or ""
        if value.isdigit() and name != "lifespan":
            found[name] = int(value)
    return found


def totals(ends):
    """The counters of the devices of these ends together."""
    found = {}
    for dev in {end.dev for end in ends}:
        for name, value in counters(dev).items():
            found[name] = found.get(name, 0) + value
    return found


def grown(before, now):
    """By how much each counter has grown."""
    return {name: value - before[name] for name, value in now.items()}


@contextmanager
def counters_if_it_fails():
    """The log of a scenario that fails says what the devices have counted until then."""
    try:
        yield
    except BaseException:
        for dev in devices():
            say(f"{dev} counted {({name: value for name, value in counters(dev).items() if value})}")
        raise


def wait_active(dev):
    wait_until(f"{dev} becomes ACTIVE", lambda: "ACTIVE" in port_state(dev))


def link_add(name, netdev, netns=None, ok=(0,), driver=None):
    """`rdma link add` of the flavour under test, or of another."""
    return command(["rdma", "link", "add", name, "type", (driver or flavour.current()).link_type, "netdev", netdev],
                   netns=netns, ok=ok, timeout=60)


def link_del(name, netns=None):
    return command(["rdma", "link", "delete", name], netns=netns, timeout=60)


def plug(dev, netdev, netns=None, driver=None):
    """The same as `link_add` without a program, for what a scenario stands on."""
    kind = (driver or flavour.current()).link_type
    say(f"add the link {dev} of type {kind} to {netdev}")
    netlink.rdma_link_add(netns, dev, kind, netdev)


def unplug(dev, netns=None):
    """The same as `link_del` without a program, of a device that may have gone, or may be going by itself."""
    number = in_netns(netns, netlink.rdma_devices).get(dev)
    if number is None:
        return
    say(f"delete the link {dev}")
    try:
        in_netns(netns, lambda: netlink.rdma_link_delete(number))
    except OSError as e:
        say(f"it cannot be deleted: {e}")
        wait_until(f"{dev} goes", lambda: dev not in devices())


def add_links(ends, drivers=(None, None)):
    """A link on the netdev of each, until all are ACTIVE."""
    for end, driver in zip(ends, drivers):
        link_add(end.dev, end.netdev, netns=end.netns, driver=driver)
    for end in ends:
        wait_active(end.dev)


@contextmanager
def linked(ends, drivers=(None, None)):
    """The same, and at the end those links that are left go."""
    try:
        add_links(ends, drivers)
        with counters_if_it_fails():
            yield ends
    finally:
        for end in ends:
            if end.dev in devices():
                link_del(end.dev, netns=end.netns)


def devices():
    return listing(IB)


def batch(lines, netns=None):
    """Many `ip` commands in one process: starting processes is the slow part of an emulated guest."""
    say_command(["ip << " + "; ".join(lines)], netns)
    done = in_netns(netns, lambda: subprocess.run(
        ["ip", "-batch", "-"], input="\n".join(lines) + "\n", text=True, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, timeout=60))
    if done.returncode:
        raise Failed(f"ip: {done.stdout.strip()} in {lines}")


def no_dad():
    """Addresses are usable at once, also in namespaces that are made from now on: nobody else lives on these wires."""
    for name, value in (("core/devconf_inherit_init_net", 1), ("ipv6/conf/default/accept_dad", 0),
                        ("ipv6/conf/all/accept_dad", 0)):
        write(f"/proc/sys/net/{name}", value)


def netdev_counter(end, column):
    """A column of /proc/net/dev for the netdev of an end."""
    shown = in_netns(end.netns, lambda: read("/proc/thread-self/net/dev"))
    return int(re.search(rf"^ *{end.netdev}:(.*)", shown, re.M)[1].split()[column])


def tx_packets(end):
    """What the netdev of an end has sent. A batch counts once."""
    return netdev_counter(end, 9)


def tx_dropped(end):
    """What the netdev of an end could not send; of a veth: what its peer did not take, too."""
    return netdev_counter(end, 11)


def mac(end):
    def ask():
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
            return fcntl.ioctl(s, SIOCGIFHWADDR, end.netdev.encode().ljust(40, b"\0"))[18:24]

    return in_netns(end.netns, ask).hex(":")


@contextmanager
def wire():
    """A veth pair in the first namespace, both ends up, with addresses on the first."""
    no_dad()
    say("join v0 and v1")
    netlink.veth(("v0", None), ("v1", None), WIRE_MTU)
    netlink.configure(None, "v1")
    netlink.configure(None, "v0", "10.77.0.1/24", "fd77::1/64")
    wait_up(None, "v0")
    try:
        yield "v0", "v1"
    finally:
        say("delete v0")
        try:
            netlink.delete_netdev(None, "v0")
        except OSError:
            # Where its other end was moved to a namespace that goes, it goes by itself.
            wait_until("v0 goes", lambda: not os.path.exists("/sys/class/net/v0"))


@contextmanager
def loop(local_path=None):
    """One device on one netdev that talks to itself. `local_path` sets the switch, None leaves it alone."""
    dev = flavour.current().prefix + "0"
    with wire() as (netdev, _):
        plug(dev, netdev)
        try:
            wait_active(dev)
            if local_path is not None:
                set_local_path(dev, local_path)
            with counters_if_it_fails():
                yield End(dev, None, netdev, "10.77.0.1", "fd77::1", "127.0.0.1")
        finally:
            unplug(dev)


WAYS = {"local": "by the local path", "wire": "by packets"}


def each_way(report, end, ways, run):
    """Calls `run` with the name of each of these ways in which a device serves itself, and sets it to that. What fails says
    by which way; only what is skipped on all of them is skipped. rdma_rxe has one way."""
    skipped = []
    ways = ways if flavour.current().is_ferroce else ways[-1:]
    for way in ways:
        set_local_path(end.dev, way == "local")
        try:
            run(way)
        except Failed as e:
            raise Failed(f"{WAYS[way]}: {e}") from e
        except Skipped as e:
            skipped.append((WAYS[way], e))
    if len(skipped) == len(ways):
        raise skipped[0][1]
    for way, why in skipped:
        report.skip(way, str(why))


def set_local_path(dev, on):
    """Lets a device serve itself without packets, or not. rdma_rxe has no such switch and always sends packets."""
    path = f"{IB}/{dev}/local_path"
    if not os.path.exists(path):
        if flavour.current().is_ferroce:
            raise Failed(f"{path} is missing")
        return
    write(path, int(on))
    if read(path) != str(int(on)):
        raise Failed(f"{path} does not keep what was written")


def two_ends(spaces, netdevs, drivers=None):
    """The ends that two netdevs are, with the devices that are to be theirs."""
    drivers = drivers or (flavour.current(), flavour.current())
    return [End(f"{driver.prefix}{n}", netns, netdev, f"10.77.0.{n + 1}", f"fd77::{n + 1}", f"10.77.0.{n + 1}")
            for n, (netns, netdev, driver) in enumerate(zip(spaces, netdevs, drivers))]


def join(one, two, mtu=WIRE_MTU):
    """Makes the network namespaces of two ends, a veth pair between them, and their addresses."""
    say(f"join {one.netdev} in {one.netns} and {two.netdev} in {two.netns}")
    for end in (one, two):
        netlink.add_netns(end.netns)
    netlink.veth((one.netdev, one.netns), (two.netdev, two.netns), mtu)
    for end in (one, two):
        configure(end)
    for end in (one, two):
        wait_up(end.netns, end.netdev)


def configure(end):
    netlink.configure(end.netns, end.netdev, f"{end.ip4}/24", f"{end.ip6}/64")


def acquaint(one, two, state=netlink.NUD_PERMANENT):
    """Tells each of two ends where the other is: ib_core gives a queue pair up that has not found its peer in a second,
    and a lost or late answer is asked for again after just that."""
    for end, other in ((one, two), (two, one)):
        for address in (other.ip4, other.ip6):
            netlink.add_neighbour(end.netns, end.netdev, address, mac(other), state)


def wait_up(netns, netdev):
    """Waits until everybody knows that a netdev is up. A device that was added before would still raise an event about it:
    ib_core cannot know whether the port was active."""
    wait_until(f"{netdev} comes up", lambda: netlink.is_up(netns, netdev))


@contextmanager
def pair(mtu=WIRE_MTU, drivers=None, bridged=False):
    """Two devices in two network namespaces with a veth pair between them; `drivers` are those of the two, if not the
    one under test. With `bridged` each has a veth pair of its own to a bridge, and outlives the other's netdev. A
    scenario may take away any part of it."""
    one, two = two_ends(("fa", "fb"), ("va", "vb"), drivers)
    no_dad()
    try:
        if bridged:
            batch([f"link add br0 mtu {mtu} type bridge", "link set br0 up"])
            for end in (one, two):
                netlink.add_netns(end.netns)
                netlink.veth((end.netdev, end.netns), ("b" + end.netdev, None), mtu)
                batch([f"link set b{end.netdev} master br0", f"link set b{end.netdev} up"])
                configure(end)
                wait_up(end.netns, end.netdev)
        else:
            join(one, two, mtu)
        acquaint(one, two, netlink.NUD_STALE)
        for end, driver in zip((one, two), drivers or (None, None)):
            plug(end.dev, end.netdev, end.netns, driver)
        for end in (one, two):
            wait_active(end.dev)
        with counters_if_it_fails():
            yield one, two
    finally:
        there = [end for end in (one, two) if os.path.exists(f"{netlink.NAMED}/{end.netns}")]
        for end in there:
            unplug(end.dev, end.netns)
        for end in there:
            netlink.delete_netns(end.netns)
        if os.path.exists("/sys/class/net/br0"):
            batch(["link del br0"])


def tagged(ends, vlan=7):
    """The same devices by a VLAN upon the netdev of each: its addresses are among their GIDs."""
    made = []
    for number, end in enumerate(ends, 1):
        batch([f"link add link {end.netdev} name upper type vlan id {vlan}", "link set upper up",
               f"addr add 10.99.0.{number}/24 dev upper", f"addr add fd99::{number}/64 dev upper nodad"],
              netns=end.netns)
        made.append(replace(end, netdev="upper", ip4=f"10.99.0.{number}", ip6=f"fd99::{number}"))
    return made


def show_packets(ends):
    """Makes a capture show the packets that are meant: ferroce hands a netdev many at once unless GSO is off."""
    for end in ends:
        command(["ethtool", "-K", end.netdev, "gso", "off"], netns=end.netns)


@contextmanager
def both_ends(where, local_path=None):
    """The two ends of a conversation: `loop` gives one device twice, `pair` two."""
    if where == "loop":
        with loop(local_path) as end:
            yield end, end
    else:
        with pair() as ends:
            yield ends
