# SPDX-License-Identifier: GPL-2.0
"""What the command `ferroce` makes of packet filters, addresses and provider files."""

import importlib.machinery
import importlib.util
import re
import struct
import unittest

from tests.lab import config


def load():
    """The command as a module; its file has no ending."""
    loader = importlib.machinery.SourceFileLoader("ferroce_command", str(config.CHECKOUT / "command/ferroce"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    loader.exec_module(module)
    return module


ferroce = load()


def blocked(text, netdevs=("eth0",), family="ip"):
    """The chains that drop RoCE, of what `iptables -S` prints."""
    return [chain for _, _, chain in ferroce.blocked_by_nft(ferroce.from_iptables(text, family), list(netdevs))]


class Libraries(unittest.TestCase):
    """What a libibverbs says of itself in its bytes."""

    def test_of_a_wheel(self):
        data = b"ELF\0lib%s-rdmav34.so\0/etc/libibverbs.d\0rdmav\0/usr/lib64/libibverbs/lib%s-rdmav34.so\0"
        self.assertEqual(ferroce.wanted(data), ("/etc/libibverbs.d", "/usr/lib64/libibverbs", 34))

    def test_of_none(self):
        self.assertIsNone(ferroce.wanted(b"\0/usr/lib64/libibverbs/lib%s-rdmav34.so\0"))
        self.assertIsNone(ferroce.wanted(b"\0/etc/libibverbs.d\0"))


class Filters(unittest.TestCase):
    """Who says that a filter drops RoCE must be right; who cannot know says nothing."""

    def test_open(self):
        self.assertEqual(blocked("-P INPUT ACCEPT\n-P FORWARD DROP\n-P OUTPUT ACCEPT"), [])

    def test_policy(self):
        self.assertEqual(blocked("-P INPUT DROP\n-P OUTPUT ACCEPT"), ["INPUT"])
        self.assertEqual(blocked("-P INPUT DROP\n-P OUTPUT DROP"), ["INPUT", "OUTPUT"])
        self.assertEqual(blocked("-P INPUT DROP\n-A INPUT -p udp -m udp --dport 4791 -j ACCEPT"), [])
        self.assertEqual(blocked("-P INPUT DROP\n-A INPUT -p tcp -m tcp --dport 4791 -j ACCEPT"), ["INPUT"])
        self.assertEqual(blocked("-P INPUT DROP\n-A INPUT -p udp -m multiport --dports 53,4700:4800 -j ACCEPT"), [])
        self.assertEqual(blocked("-P INPUT DROP\n-A INPUT -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT"),
                         ["INPUT"])

    def test_rules_go_in_order(self):
        drop, accept = "-A INPUT -p udp -m udp --dport 4791 -j DROP", "-A INPUT -p udp -j ACCEPT"
        self.assertEqual(blocked(f"-P INPUT ACCEPT\n{drop}\n{accept}"), ["INPUT"])
        self.assertEqual(blocked(f"-P INPUT ACCEPT\n{accept}\n{drop}"), [])

    def test_interfaces(self):
        text = "-P INPUT DROP\n-A INPUT -i eth0 -j ACCEPT"
        self.assertEqual(blocked(text), [])
        self.assertEqual(blocked(text, ["eth1"]), ["INPUT"])
        self.assertEqual(blocked("-P INPUT DROP\n-A INPUT ! -i eth1 -j ACCEPT"), [])

    def test_what_is_not_known_is_no_problem(self):
        self.assertEqual(blocked("-P INPUT DROP\n-A INPUT -s 10.0.0.0/8 -j ACCEPT"), [])
        self.assertEqual(blocked("-P INPUT ACCEPT\n-A INPUT -s 10.0.0.0/8 -j DROP"), [])
        self.assertEqual(blocked("-P INPUT ACCEPT\n-A INPUT -p udp -m limit --limit 3/min -j DROP"), [])

    def test_chains(self):
        tail = "-A guard -p udp -m udp --dport 4791 -j {}\n-A INPUT -j guard"
        reject = tail.format("REJECT --reject-with icmp-port-unreachable")
        self.assertEqual(blocked(f"-P INPUT ACCEPT\n-N guard\n{reject}"), ["INPUT"])
        self.assertEqual(blocked("-P INPUT DROP\n-N guard\n" + tail.format("ACCEPT")), [])
        self.assertEqual(blocked("-P INPUT DROP\n-N guard\n" + tail.format("RETURN")), ["INPUT"])

    def test_what_iptables_put_into_nft_is_left_to_iptables(self):
        chain = {"chain": {"family": "ip", "table": "filter", "name": "INPUT", "type": "filter", "hook": "input",
                           "policy": "drop"}}
        rule = {"rule": {"family": "ip", "table": "filter", "chain": "INPUT",
                         "expr": [{"xt": {"type": "match", "name": "udp"}}, {"accept": None}]}}
        self.assertEqual(ferroce.blocked_by_nft({"nftables": [chain, rule]}, ["eth0"]), [])
        self.assertEqual(ferroce.blocked_by_nft({"nftables": [chain]}, ["eth0"]), [("ip", "filter", "INPUT")])


class Small(unittest.TestCase):
    """Bytes and addresses."""

    def test_the_version_in_a_provider(self):
        note = struct.pack("=III8sI", 8, 4, 1, b"ferroce\0", 7)
        self.assertEqual(ferroce.provider_abi(b"\x7fELF..." + note + b"..."), 7)
        self.assertIsNone(ferroce.provider_abi(b"\x7fELF... ferroce\0"))

    def test_addresses(self):
        self.assertEqual(ferroce.address_of("0000:0000:0000:0000:0000:ffff:0a4d:0001"), "10.77.0.1")
        self.assertEqual(ferroce.address_of("fe80:0000:0000:0000:0000:0000:0000:0001"), "fe80::1")

    def test_mtus_are_those_of_the_module(self):
        link = ferroce.Link("nothing", "")
        text = (config.CHECKOUT / "rust/verbs/reach.rs").read_text(encoding="utf-8")
        headers = sum(map(int, re.search(r"MAX_HEADERS: u32 = ([0-9 +]+);", text).group(1).split("+")))
        self.assertEqual(ferroce.MAX_HEADERS, headers)
        for mtu, ib_mtu in ((68, 256), (800, 512), (1500, 1024), (1023 + headers, 512), (1024 + headers, 1024),
                            (4500, 4096)):
            link.netdev_mtu = mtu
            self.assertEqual(link.ib_mtu(), ib_mtu)


if __name__ == "__main__":
    unittest.main()
