# SPDX-License-Identifier: GPL-2.0
"""What the command `ferroce` makes of packet filters, addresses and provider files."""

import contextlib
import importlib
import importlib.machinery
import importlib.util
import ipaddress
import json
import os
import re
import struct
import tempfile
import unittest
from pathlib import Path
from unittest import mock

from command.admin import firewall, keep, libraries, link, system
from tests.lab import config


def load():
    """The command as a module; its file has no ending."""
    loader = importlib.machinery.SourceFileLoader("ferroce_command", str(config.CHECKOUT / "command/ferroce"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    loader.exec_module(module)
    return module


ferroce = load()
ADMIN = [importlib.import_module(f"command.admin.{path.stem}")
         for path in sorted((config.CHECKOUT / "command/admin").glob("[a-z]*.py"))]


def everywhere(**names):
    """These names in every module of the command that has them."""
    stack = contextlib.ExitStack()
    for module in ADMIN:
        for name, value in names.items():
            if hasattr(module, name):
                stack.enter_context(mock.patch.object(module, name, value))
    return stack


FILTERS = config.CHECKOUT / "tests/scenarios/product/filters"
OWN = {"ip": "192.0.2.7", "ip6": "2001:db8::7"}


def judged(items, family="ip", netdev="eth0"):
    """What a packet filter does to RoCE: open, blocked in these chains, or cannot tell for these reasons."""
    packet = {"family": family, "netdev": netdev, "own": [ipaddress.ip_address(OWN[family])]}
    certain, perhaps = firewall.Filter(items, "test").judge(packet)
    if certain:
        return "blocked", *[chain for _, _, chain in certain]
    return ("cannot tell", *[doubt for _, doubt in perhaps]) if perhaps else ("open",)


def iptables(text, family="ip"):
    """The same of what `iptables -S` or iptables-save prints."""
    return judged(firewall.from_iptables(text, family), family)


def recorded(name):
    """What a front end has put into the kernel of a Debian 13: what iptables-save or `nft -j list ruleset` has printed."""
    return (FILTERS / name).read_text(encoding="utf-8")


def nft(chain, *rules):
    """A chain of the hook input with these rules, in nft's JSON."""
    place = {"family": "inet", "table": "guard"}
    base = place | {"name": "gate", "type": "filter", "hook": "input"} | chain
    return [{"chain": base}, *({"rule": place | {"chain": "gate", "expr": list(expr)}} for expr in rules)]


class Libraries(unittest.TestCase):
    """What a libibverbs says of itself in its bytes."""

    def test_of_a_wheel(self):
        data = b"ELF\0lib%s-rdmav34.so\0/etc/libibverbs.d\0rdmav\0/usr/lib64/libibverbs/lib%s-rdmav34.so\0"
        self.assertEqual(libraries.wanted(data), ("/etc/libibverbs.d", "/usr/lib64/libibverbs", 34))
        # What stands before a string need not end with a zero: so in rdma-core 64 and 65.
        self.assertEqual(libraries.wanted(data.replace(b"\0/", b"\0hv\xf8\xff/")), libraries.wanted(data))

    def test_of_none(self):
        self.assertIsNone(libraries.wanted(b"\0/usr/lib64/libibverbs/lib%s-rdmav34.so\0"))
        self.assertIsNone(libraries.wanted(b"\0/etc/libibverbs.d\0"))


class FrontEnds(unittest.TestCase):
    """Rule sets as they are found on machines: each of the three answers, for either family."""

    def test_ufw(self):
        for family, ending, before in (("ip", "iptables", "ufw"), ("ip6", "ip6tables", "ufw6")):
            text = recorded(f"ufw.{ending}")
            rule = f"-A {before}-user-input {{}} -j ACCEPT\nCOMMIT"
            self.assertEqual(iptables(text, family), ("blocked", "INPUT"))
            allowed = rule.format("-p udp -m udp --dport 4791")
            self.assertEqual(iptables(text.replace("COMMIT", allowed), family), ("open",))
            some = rule.format("-s " + {"ip": "192.0.2.0/24", "ip6": "2001:db8::/64"}[family])
            answer, doubt = iptables(text.replace("COMMIT", some), family)
            self.assertEqual(answer, "cannot tell")
            self.assertIn(some.split("\n", maxsplit=1)[0], doubt)
            outward = text.replace(":OUTPUT ACCEPT", ":OUTPUT DROP").replace(
                f"-A {before}-track-output -p udp -m conntrack --ctstate NEW -j ACCEPT\n", "")
            self.assertEqual(iptables(outward.replace("COMMIT", allowed), family), ("blocked", "OUTPUT"))

    def test_firewalld(self):
        items = json.loads(recorded("firewalld.json"))["nftables"]
        for family in OWN:
            self.assertEqual(judged(items, family), ("blocked", "filter_INPUT"))
            place = {"family": "inet", "table": "firewalld", "chain": "filter_IN_public_allow"}
            port = {"match": {"op": "==", "left": {"payload": {"protocol": "udp", "field": "dport"}}, "right": 4791}}
            self.assertEqual(judged([*items, {"rule": place | {"expr": [port, {"accept": None}]}}], family), ("open",))
            other = json.loads(json.dumps(port).replace("4791", "4792"))
            self.assertEqual(judged([*items, {"rule": place | {"expr": [other, {"accept": None}]}}], family),
                             ("blocked", "filter_INPUT"))

    def test_nft(self):
        """The workstation of nftables' own examples, and the usual server with a verdict map."""
        items = json.loads(recorded("nft-workstation.json"))["nftables"]
        self.assertEqual(judged(items), ("blocked", "input"))
        state = {"vmap": {"key": {"ct": {"key": "state"}}, "data": {"set": [
            ["established", {"accept": None}], ["related", {"accept": None}], ["invalid", {"drop": None}]]}}}
        self.assertEqual(judged(nft({"policy": "drop"}, [state])), ("blocked", "gate"))
        ports = {"vmap": {"key": {"payload": {"protocol": "udp", "field": "dport"}},
                          "data": {"set": [[53, {"accept": None}], [4791, {"accept": None}]]}}}
        self.assertEqual(judged(nft({"policy": "drop"}, [state], [ports])), ("open",))
        limited = [{"limit": {"rate": 10}}, {"accept": None}]
        self.assertEqual(judged(nft({"policy": "drop"}, [state], limited))[0], "cannot tell")

    def test_sets(self):
        banned = {"set": {"family": "inet", "table": "guard", "name": "banned", "elem": ["198.51.100.1"]}}
        drop = [firewall.match("==", {"payload": {"protocol": "ip", "field": "saddr"}}, "@banned"), {"drop": None}]
        self.assertEqual(judged([banned, *nft({}, drop)])[0], "cannot tell")
        banned["set"]["elem"] = []
        self.assertEqual(judged([banned, *nft({}, drop)]), ("open",))
        opened = {"set": {"family": "inet", "table": "guard", "name": "opened", "elem": [{"range": [4000, 5000]}]}}
        take = [firewall.match("==", {"payload": {"protocol": "udp", "field": "dport"}}, "@opened"), {"accept": None}]
        self.assertEqual(judged([opened, *nft({"policy": "drop"}, take)]), ("open",))


class Filters(unittest.TestCase):
    """Rules one at a time: open and blocked are said when they are certain alone."""

    DROP = "-P INPUT DROP\n-A INPUT {} -j ACCEPT"
    ACCEPT = "-P INPUT ACCEPT\n-A INPUT {} -j DROP"

    def test_policies(self):
        self.assertEqual(iptables("-P INPUT ACCEPT\n-P FORWARD DROP\n-P OUTPUT ACCEPT"), ("open",))
        self.assertEqual(iptables("-P INPUT DROP\n-P OUTPUT ACCEPT"), ("blocked", "INPUT"))
        self.assertEqual(iptables("-P INPUT DROP\n-P OUTPUT DROP"), ("blocked", "INPUT", "OUTPUT"))
        self.assertEqual(iptables("*raw\n:PREROUTING DROP [0:0]\nCOMMIT"), ("blocked", "PREROUTING"))
        self.assertEqual(iptables("*nat\n:INPUT DROP [0:0]\nCOMMIT"), ("open",))

    def test_matches(self):
        """What takes the packet for certain, for certain not, and perhaps."""
        sure = ("-p udp -m udp --dport 4791", "-p udp -m multiport --dports 53,4700:4800", "-p all", "-p 17",
                "-i eth0", "-i eth+", "! -i eth1", "-d 192.0.2.0/24", "-m addrtype --dst-type LOCAL",
                "-p udp --sport 1024:65535", "! -p tcp", "-m conntrack --ctstate NEW", '-m comment --comment "a -j b"')
        never = ("-p tcp -m tcp --dport 4791", "-p udp --dport 4790", "-i eth1", "-o eth0", "-d 198.51.100.1/32",
                 "-m conntrack --ctstate RELATED,ESTABLISHED", "-p icmp -m icmp --icmp-type 8", "-p udp --sport 67",
                 "-m addrtype --dst-type MULTICAST", "-s 127.0.0.0/8", "! -p udp")
        perhaps = ("-s 10.0.0.0/8", "-m limit --limit 3/min", "-p udp --sport 50000", "-m mark --mark 0x1",
                   "-m set --match-set good src", "! -s 10.0.0.0/8")
        for answers, words in (((("open",), ("blocked", "INPUT")), sure), ((("blocked", "INPUT"), ("open",)), never)):
            for one in words:
                self.assertEqual((iptables(self.DROP.format(one)), iptables(self.ACCEPT.format(one))), answers, one)
        for one in perhaps:
            for text in (self.DROP, self.ACCEPT):
                self.assertEqual(iptables(text.format(one))[0], "cannot tell", one)

    def test_order(self):
        drop, accept = "-A INPUT -p udp -m udp --dport 4791 -j DROP", "-A INPUT -p udp -j ACCEPT"
        self.assertEqual(iptables(f"-P INPUT ACCEPT\n{drop}\n{accept}"), ("blocked", "INPUT"))
        self.assertEqual(iptables(f"-P INPUT ACCEPT\n{accept}\n{drop}"), ("open",))
        log = "-A INPUT -m limit --limit 3/min -j LOG --log-prefix \"x -j DROP\""
        self.assertEqual(iptables(f"-P INPUT ACCEPT\n{log}"), ("open",))

    def test_chains(self):
        tail = "-A guard -p udp -m udp --dport 4791 -j {}\n-A INPUT -j guard"
        for policy, word, answer in (("ACCEPT", "REJECT --reject-with icmp-port-unreachable", ("blocked", "INPUT")),
                                     ("DROP", "ACCEPT", ("open",)), ("DROP", "RETURN", ("blocked", "INPUT")),
                                     ("DROP", "NFQUEUE --queue-num 0", None), ("ACCEPT", "SOMETHING --new", None)):
            found = iptables(f"-P INPUT {policy}\n-N guard\n" + tail.format(word))
            self.assertEqual(found if answer else found[0], answer or "cannot tell", word)
        self.assertEqual(iptables("-P INPUT ACCEPT\n-N a\n-A a -j a\n-A INPUT -j a")[0], "cannot tell")
        # What comes behind a goto is what comes behind the jump to the chain that it is in.
        goto = "-P INPUT ACCEPT\n-N a\n-N b\n-A a -g b\n-A a -j DROP\n-A INPUT -j a"
        self.assertEqual(iptables(goto), ("open",))

    def test_one_table_may_be_enough(self):
        self.assertEqual(judged(nft({"policy": "accept"}) + [{"chain": {
            "family": "ip", "table": "other", "name": "last", "type": "filter", "hook": "input", "policy": "drop"}}]),
            ("blocked", "last"))


class Links(unittest.TestCase):
    def test_units(self):
        """As `systemd-escape --template=ferroce@.service` has it."""
        for netdev, unit in (("eth0", "eth0"), ("br-lan", r"br\x2dlan"), ("eth0.7", "eth0.7"), (".a", r"\x2ea"),
                             ("a+b", r"a\x2bb")):
            self.assertEqual(keep.unit_of(netdev), f"ferroce@{unit}.service")

    def test_kept(self):
        with tempfile.TemporaryDirectory() as folder, mock.patch.object(keep, "UNITS", folder):
            for netdev in ("br-lan", "eth0"):
                wants = Path(folder, f"sys-subsystem-net-devices-{netdev}.device.wants")
                wants.mkdir()
                (wants / keep.unit_of(netdev)).symlink_to("/nowhere")
            place = Path(folder, keep.unit_of("br-lan") + ".d")
            place.mkdir()
            (place / "link.conf").write_text("[Service]\nEnvironment=NAME=rdma0\n", encoding="utf-8")
            self.assertEqual(keep.kept(), {"br-lan": "rdma0", "eth0": ""})

    def test_netdev_to_propose(self):
        routes = [{"dst": "default", "dev": "wlan0"}]
        with tempfile.TemporaryDirectory() as folder, mock.patch.object(link, "NET", folder):
            for name, state, card in (("br-0a1b", "up", 0), ("docker0", "up", 0), ("eth1", "up", 1), ("eth0", "down", 1),
                                      ("wlan0", "up", 1)):
                place = Path(folder, name)
                (place / "device" if card else place).mkdir(parents=True)
                for file, text in (("type", "1"), ("operstate", state)):
                    (place / file).write_text(text, encoding="ascii")
            for answer, want in ((routes, "wlan0"), ([], "eth1")):
                with mock.patch.object(link, "as_json", return_value=answer):
                    self.assertEqual(link.likely_netdev(), want)


class Small(unittest.TestCase):
    def test_the_version_in_a_provider(self):
        note = struct.pack("=III8sII", 8, 8, 1, b"ferroce\0", 7, 5)
        self.assertEqual(libraries.provider_abi(b"\x7fELF..." + note + b"..."), range(5, 8))
        self.assertEqual(libraries.versions(range(5, 8)), "versions 5 to 7")
        note = struct.pack("=III8sI", 8, 4, 1, b"ferroce\0", 7)
        self.assertEqual(libraries.provider_abi(b"\x7fELF..." + note + b"..."), range(7, 8))
        self.assertEqual(libraries.versions(range(7, 8)), "version 7")
        self.assertIsNone(libraries.provider_abi(b"\x7fELF... ferroce\0"))

    def test_what_is_not_the_kernels_log(self):
        """In containers there may be a FIFO in its place (systemd-nspawn), or /dev/null."""
        with tempfile.TemporaryDirectory() as folder:
            os.mkfifo(f"{folder}/fifo")
            Path(folder, "text").touch()
            for path, opened in ((f"{folder}/fifo", False), (f"{folder}/text", True), ("/dev/null", True), ("/nowhere", False)):
                with mock.patch.object(system, "KMSG", path):
                    log = system.kernel_log()
                self.assertEqual(log is not None, opened, path)
                self.assertEqual((system.last_sentence(log), system.reasons(log)), ("", []))

    def test_a_time_to_wait(self):
        self.assertEqual(ferroce.seconds("0.5"), 0.5)
        for text in ("-1", "0", "nan", "inf", "1x"):
            with self.assertRaises(ValueError):
                ferroce.seconds(text)

    def test_a_program_that_cannot_be_run(self):
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "one").touch(mode=0o644)
            self.assertEqual(system.call(f"{folder}/one"), (126, "", f"{folder}/one: Permission denied"))

    def test_addresses(self):
        self.assertEqual(link.address_of("0000:0000:0000:0000:0000:ffff:0a4d:0001"), "10.77.0.1")
        self.assertEqual(link.address_of("fe80:0000:0000:0000:0000:0000:0000:0001"), "fe80::1")

    def test_mtus_are_those_of_the_module(self):
        one = link.Link("nothing", "")
        text = (config.CHECKOUT / "rust/core/message.rs").read_text(encoding="utf-8")
        headers = sum(map(int, re.search(r"MAX_OVERHEAD: u32 = ([0-9 +]+);", text).group(1).split("+")))
        self.assertEqual(link.MAX_HEADERS, headers)
        for mtu, ib_mtu in ((68, 256), (800, 512), (1500, 1024), (1023 + headers, 512), (1024 + headers, 1024),
                            (4500, 4096)):
            one.netdev_mtu = mtu
            self.assertEqual(one.ib_mtu(), ib_mtu)
