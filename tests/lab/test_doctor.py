# SPDX-License-Identifier: GPL-2.0
"""Each answer of `ferroce doctor` and `ferroce try PEER` but "ok", provoked by a machine that is planted as text. That no
answer is without its case is told by the lines of the command that the cases have come to."""

import ast
import contextlib
import fnmatch
import json
import os
import re
import sys
import types
import unittest
from pathlib import Path
from unittest import mock

from command.admin import add, doctor, firewall, libraries, link, peer
from command.admin.report import Report
from command.admin.system import IB, NET, VERBS, Wrong
from tests.lab import config
from tests.lab.test_command import ADMIN, everywhere

RELEASE = "7.3.4+deb13-amd64"
MODULE = f"/lib/modules/{RELEASE}/updates/ferroce.ko"
ORDER = f"/lib/modules/{RELEASE}/modules.order"
LIBRARY = "/usr/lib/x86_64-linux-gnu/libibverbs.so.1"
PROVIDERS = "/usr/lib/x86_64-linux-gnu/libibverbs"
PROVIDER = f"{PROVIDERS}/libferroce-rdmav34.so"
# The note of a provider that serves version 2 alone.
NOTE = "\x08\0\0\0\x04\0\0\0\x01\0\0\0ferroce\0\x02\0\0\0"
PORT = f"{IB}/fe0/ports/1"
# Its files by path: one link on eth0, and all is well.
FILES = {
    "/sys/module/ferroce/version": "0.1.0", MODULE: "", LIBRARY: "IBVERBS_PRIVATE_34", PROVIDER: NOTE,
    "/etc/libibverbs.d/ferroce.driver": f"driver {PROVIDERS}/libferroce\n",
    f"{IB}/fe0/local_path": "1", f"{IB}/fe0/node_guid": "5054:00ff:fe00:0001", f"{PORT}/state": "4: ACTIVE",
    f"{PORT}/gids/1": "0000:0000:0000:0000:0000:ffff:c000:0201", f"{PORT}/gid_attrs/types/1": "RoCE v2",
    f"{VERBS}/uverbs0/ibdev": "fe0", f"{VERBS}/uverbs0/abi_version": "2", f"{VERBS}/uverbs0/dev": "231:192",
    f"{NET}/eth0/mtu": "4200", f"{NET}/eth0/flags": "0x1003", f"{NET}/eth0/carrier": "1", f"{NET}/eth0/type": "1",
    f"{NET}/eth0/operstate": "up", f"{NET}/eth0/device/vendor": "0x1af4",
    "/dev/infiniband/uverbs0": "", "/dev/infiniband/rdma_cm": "",
    "/proc/self/status": "CapEff:\t0000000000000000", "/proc/self/attr/current": "unconfined",
}
LINKS = [{"ifname": "fe0", "netdev": "eth0"}]
# What programs print, by the beginning of their command line: the longest that fits. A number is an exit status.
PROGRAMS = {
    "": 127, "rdma": "", "rdma -j link": json.dumps(LINKS), "rdma system": "netns shared", "modprobe": "", "ip": "[]",
    "modinfo -n": MODULE, "ldconfig -p": f"\tlibibverbs.so.1 (libc6,x86-64) => {LIBRARY}", "ibv_devices": "fe0 5054",
    "nft": '{"nftables": []}', "ip -j route get": '[{"dev": "eth0"}]',
}
GONE = object()


class Planted:
    """A machine of files and programs, in place of the one that the test runs on."""

    def __init__(self, files=(), programs=(), root=True, limit=doctor.resource.RLIM_INFINITY, mode=0o666, access=True,
                 installed=True, kept=()):
        self.files = {path: text for path, text in {**FILES, **dict(files)}.items() if text is not GONE}
        self.programs = PROGRAMS | dict(programs)
        self.mode, self.access, self.limit, self.installed = mode, access, limit, installed
        self.root, self.kept = root, dict(kept)

    def call(self, *argv, **_):
        """What a program ends with."""
        line = " ".join(argv)
        said = self.programs[max((words for words in self.programs if f"{line} ".startswith(words and f"{words} ")), key=len)]
        if isinstance(said, tuple):
            return said
        return (said, "", f"{argv[0]} is not installed") if isinstance(said, int) else (0, said, "")

    def listing(self, path):
        return sorted({name[len(path) + 1:].split("/")[0] for name in self.files if name.startswith(path + "/")})

    def exists(self, path):
        return path in self.files or bool(self.listing(path))

    @contextlib.contextmanager
    def here(self):
        names = types.SimpleNamespace(release=RELEASE)
        stat = types.SimpleNamespace(st_mode=self.mode)
        place = types.SimpleNamespace(exists=self.exists, isdir=self.exists, basename=os.path.basename,
                                      dirname=os.path.dirname, realpath=lambda path: path)
        system = types.SimpleNamespace(path=place, uname=lambda: names, geteuid=lambda: 0 if self.root else 1000,
                                       access=lambda *_: self.access, stat=lambda _: stat, R_OK=4, W_OK=2,
                                       strerror=os.strerror)
        files = types.SimpleNamespace(glob=lambda pattern: fnmatch.filter(sorted(self.files), pattern))
        limits = mock.patch.object(doctor.resource, "getrlimit", lambda _: (self.limit, self.limit))
        programs = mock.patch.object(doctor.shutil, "which", lambda name: f"/usr/bin/{name}" if self.installed
                                     and self.installed is not name else None)
        with limits, programs, everywhere(
                os=system, glob=files, call=self.call, listing=self.listing, kernel_log=lambda: None, kept=lambda: self.kept,
                read=lambda path: self.files.get(path, "").strip(),
                contents=lambda path: self.files.get(path, "").encode("latin-1")):
            yield


# The lines of the command at which an answer was given.
REACHED = set()


def answers(planted, ask=doctor.diagnose):
    """What is not ok: status, check, text, fix and proof of each."""
    report = Report()
    put = report.put

    def noted(status, *words, **more):
        frame = sys._getframe(2)  # pylint: disable=protected-access
        REACHED.add((frame.f_code.co_filename, frame.f_lineno))
        put(status, *words, **more)

    report.put = noted
    with planted.here():
        ask(report)
    return [tuple(one.values()) for one in report.findings if one["status"] != "ok"]


def of(status):
    """A function that makes an answer that is expected: its check, and patterns of its text, fix and proof."""
    return lambda check, text, fix, proof=".*": (status, check, text, fix, proof)


problem, hint, unknown = map(of, ("problem", "hint", "unknown"))


NO_MODULE = {path: GONE for path in FILES if path.startswith(("/sys/module/ferroce", IB, VERBS))}
CONFIG = f"/boot/config-{RELEASE}"
UEFI = {"/sys/firmware/efi/fw_platform_size": "64"}
REJECTED = 1, "", "modprobe: ERROR: could not insert 'ferroce': Key was rejected by service"
CAPABLE = {"/proc/self/status": "CapEff:\t000001ffffffffff"}
NO_LINK = problem("link", "there is no ferroce link", "^ferroce add eth0$")
WHEEL = "/home/ann/x.libs/libibverbs-1de1263b.so.1"
MAPS = {"/proc/77/maps": f"7f00 r-xp 00000000 08:01 77 {WHEEL}\n"}


def wheel(private):
    """The bytes of a libibverbs that a wheel brings."""
    return f"\0/etc/libibverbs.d\0/usr/lib64/libibverbs/lib%s-rdmav{private}.so\0"


DROPS = "*filter\n:INPUT DROP [0:0]\nCOMMIT"
MAY_DROP = "*filter\n:INPUT ACCEPT [0:0]\n-A INPUT -s 10.0.0.0/8 -j DROP\nCOMMIT"
FIREWALLD = json.dumps({"nftables": [{"chain": {"family": "inet", "table": "firewalld", "name": "filter_INPUT", "type": "filter",
                                                "hook": "input", "policy": "drop"}}]})
RXE = {f"{IB}/rxe0/parent": "eth1"}
VLAN = {f"{NET}/eth0.7/uevent": "DEVTYPE=vlan\nINTERFACE=eth0.7", f"{NET}/eth0.7/lower_eth0/mtu": "4200", f"{NET}/eth0.7/type": "1",
        f"{NET}/eth0.7/operstate": "up"}


def slave(kind):
    """`ip` of a netdev that belongs to another one."""
    return {"ip -j -d link": json.dumps([{"ifname": "eth0", "master": "br0", "linkinfo": {"info_slave_kind": kind}}])}


def below_ip(family, **more):
    """`nft` of a chain that sees packets before IP does."""
    hook = "input" if family == "bridge" else "ingress"
    chain = {"family": family, "table": "t", "name": "low", "type": "filter", "hook": hook, "policy": "drop"}
    return json.dumps({"nftables": [{"chain": chain | more}]})


# What is planted, and what the doctor answers.
DOCTOR = (
    (Planted(), ()),
    # The kernel and the module in it.
    (Planted({**NO_MODULE, MODULE: GONE, CONFIG: "\n# CONFIG_RUST is not set\n"}),
     (problem("kernel", "without CONFIG_RUST: it can load no module in Rust", "linux-image-amd64"), NO_LINK)),
    (Planted({**NO_MODULE, MODULE: GONE, CONFIG: "\nCONFIG_RUST=y\n"}),
     (problem("kernel", "without CONFIG_INFINIBAND: it has no RDMA core", "linux-image-amd64"), NO_LINK)),
    (Planted({**NO_MODULE, MODULE: GONE}),
     (problem("module", f"there is no module ferroce for the kernel {re.escape(RELEASE)}: none .* as in a container$",
              "^on the host: ferroce add"), NO_LINK)),
    (Planted({**NO_MODULE, MODULE: GONE, ORDER: ""}),
     (problem("module", f"there is no module ferroce for the kernel {re.escape(RELEASE)}$", "ferroce-dkms"), NO_LINK)),
    (Planted({**NO_MODULE, MODULE: GONE, ORDER: "", f"{doctor.NOT_BUILT}/{RELEASE}": "gcc-14 is not installed"}),
     (problem("module", "gcc-14 is not installed$", "remove that reason; then dkms autoinstall"), NO_LINK)),
    *((Planted({**NO_MODULE, doctor.LOCKDOWN: text}, {"modinfo -F signer": ""}),
       (problem("module", rf"locked down \({mode}.*is not signed", "ferroce-dkms.*boot without lockdown=", doctor.LOCKDOWN), NO_LINK))
      for mode, text in (("integrity", "none [integrity] confidentiality"), ("confidentiality", "none integrity [confidentiality]"))),
    (Planted({**NO_MODULE, doctor.LOCKDOWN: "[none] integrity confidentiality"}, {"modinfo -F signer": ""}, root=False),
     (NO_LINK, unknown("firewall", "only root can read", "^$"))),
    (Planted({**NO_MODULE, "/sys/module/module/parameters/sig_enforce": "Y", **UEFI}, {"modinfo -F signer": ""}),
     (problem("module", "enforces signatures.*is not signed", "ferroce-dkms.*; then mokutil"), NO_LINK)),
    (Planted({**NO_MODULE, "/proc/sys/kernel/modules_disabled": "1"}),
     (problem("module", "loads no module any more", "boot the machine anew"), NO_LINK)),
    (Planted({**NO_MODULE, doctor.LOCKDOWN: "none [integrity] confidentiality"}, {"modinfo -F signer": "DKMS"}, root=False),
     (unknown("module", "signed by DKMS: whether that key is trusted", "^$", "^sudo modprobe ferroce$"), NO_LINK,
      unknown("firewall", "only root can read", "^$"))),
    (Planted({**NO_MODULE, **UEFI}, {"modprobe": REJECTED}), (problem("module", "Key was rejected", "^mokutil --import"), NO_LINK)),
    (Planted(NO_MODULE, {"modprobe": REJECTED}), (problem("module", "Key was rejected", "has no UEFI"), NO_LINK)),
    (Planted(NO_MODULE, {"modprobe": (1, "", "modprobe: ERROR: could not insert 'ferroce': Exec format error")}),
     (problem("module", "Exec format error", "^apt install --reinstall ferroce-dkms",
              "^modprobe ferroce"), NO_LINK)),
    (Planted({"/sys/module/ferroce/notes/.note.gnu.build-id": "one", MODULE: "another"}),
     (problem("module", "another one than", "^modprobe -r ferroce && modprobe ferroce"),)),
    # libibverbs and the provider.
    (Planted(programs={"ldconfig -p": ""}), (problem("libibverbs", "is not installed", "libibverbs1"),)),
    (Planted({PROVIDER: GONE}), (problem("provider", f"{PROVIDER} is missing", "--reinstall ferroce-provider"),)),
    (Planted({PROVIDER: GONE, f"{PROVIDERS}/libferroce-rdmav65.so": NOTE}),
     (problem("provider", "there is only libferroce-rdmav65.so", f"^ln -s libferroce-rdmav65.so {PROVIDER}"),)),
    (Planted({"/etc/libibverbs.d/ferroce.driver": "driver other\n"}),
     (problem("provider", "no file in /etc/libibverbs.d", f"echo driver {PROVIDERS}/libferroce >"),)),
    # Where PROVIDERDIR= has put it.
    (Planted({PROVIDER: GONE, "/opt/libferroce-rdmav34.so": NOTE, "/etc/libibverbs.d/ferroce.driver": "driver /opt/libferroce"}), ()),
    (Planted({"/etc/libibverbs.d/ferroce.driver": "driver /opt/libferroce"}),
     (problem("provider", "^/opt/libferroce-rdmav34.so is missing", "--reinstall ferroce-provider"),)),
    (Planted({f"{VERBS}/uverbs0/abi_version": "3"}),
     (problem("provider", "speaks version 3 .* version 2:", "--only-upgrade ferroce-provider"),)),
    (Planted({f"{VERBS}/uverbs0/abi_version": "1"}),
     (problem("provider", "speaks version 1 .* version 2:", "of one release"),)),
    (Planted(programs={"ibv_devices": (0, "", "libibverbs: Warning: no userspace device-specific driver")}),
     (problem("provider", "does not list fe0: libibverbs: Warning", "IBV_SHOW_WARNINGS=1"),)),
    (Planted({**MAPS, WHEEL: wheel(34), "/etc/libibverbs.d/ferroce.driver": "driver ferroce\n"}),
     (problem("other libibverbs", "process 77 .* finds no provider .*/usr/lib64/libibverbs/libferroce-rdmav34.so",
              f"^echo driver {PROVIDERS}/libferroce >/etc/libibverbs.d/ferroce.driver, and start"),)),
    (Planted({**MAPS, WHEEL: wheel(22)}),
     (problem("other libibverbs", "of the private ABI 22", "replace it by a link"),)),
    # Device files, the connection manager, memory.
    (Planted({f"{VERBS}/uverbs0/ibdev": GONE}), (problem("device node", "ib_uverbs is not loaded", "^modprobe ib_uverbs$"),)),
    (Planted({"/dev/infiniband/uverbs0": GONE}),
     (problem("device node", "uverbs0 is missing", "udevadm trigger.*; of a container: --device .*mknod -m 666 .* c 231 192$"),)),
    (Planted({"/dev/infiniband/uverbs0": GONE}, {"rdma -j link": "[]"}), (hint("link", "in another network namespace", "^$"),)),
    (Planted(mode=0o600), (problem("device node", "by users that are not root", "^chmod 666"),)),
    (Planted(access=False, root=False),
     (problem("device node", "cannot be opened by you", "^chmod 666"), unknown("firewall", "only root", "^$"))),
    (Planted({"/dev/infiniband/rdma_cm": GONE}), (hint("rdma_cm", "rdma_cm is missing", "modprobe rdma_ucm"),)),
    (Planted({f"{IB}/mlx5_0/ports/1/gids/0": FILES[f"{PORT}/gids/1"], f"{IB}/mlx5_0/ports/1/gid_attrs/types/0": "RoCE v2"}),
     (hint("rdma_cm", "mlx5_0 has the address 192.0.2.1", "rdma link delete mlx5_0"),)),
    (Planted({f"{IB}/fe1/local_path": "1", f"{IB}/fe1/ports/1/gids/2": FILES[f"{PORT}/gids/1"],
              f"{IB}/fe1/ports/1/gid_attrs/types/2": "RoCE v2"}),
     (hint("link", "the netdev of fe1 is in another", "^$"), hint("rdma_cm", "fe1 has the address 192.0.2.1 of fe0", "delete fe1"))),
    (Planted(limit=65536), (problem("memlock", "only 64 KiB", "memlock unlimited"),)),
    (Planted(limit=8 << 20), (hint("memlock", "8 MiB can be registered", "memlock unlimited"),)),
    (Planted({**CAPABLE, "/proc/self/uid_map": "0 0 4294967295"}, limit=65536), ()),
    (Planted({**CAPABLE, "/proc/self/uid_map": "0 1000 1\n1 100000 65536"}, limit=65536),
     (problem("memlock", "only 64 KiB", "memlock unlimited"),)),
    # Links.
    (Planted({path: GONE for path in FILES if path.startswith((IB, VERBS))}), (NO_LINK,)),
    (Planted(NO_MODULE, kept={"eth0": "rdma0", "eth7": "fe7"}),
     (problem("link", "rdma0 is kept for eth0, and is not there", "^ferroce add eth0$"),)),
    (Planted({f"{NET}/eth1/type": "1"}, kept={"eth0": "fe0", "eth1": ""}),
     (problem("link", "a link is kept for eth1", "^ferroce add eth1$"),)),
    (Planted(programs={"rdma -j link": "[]"}), (hint("link", "in another network namespace", "^$"),)),
    (Planted({f"{NET}/eth0/flags": "0x1002"}), (problem("netdev", "eth0 of fe0 is down", "^ip link set eth0 up$"),)),
    (Planted({f"{NET}/eth0/carrier": "0"}), (problem("netdev", "has no carrier", "plug in the cable"),)),
    (Planted(programs=slave("bridge")), (problem("link", "eth0 of fe0 belongs to br0", "^ferroce del fe0; ferroce add br0$"),)),
    (Planted(programs=slave("vrf")), ()),
    # What is up is a VLAN of the default route, which can carry no link.
    (Planted({**NO_MODULE, **VLAN}, {"ip -j route show default": '[{"dev": "eth0.7"}]'}), (NO_LINK,)),
    (Planted({f"{PORT}/state": "1: DOWN"}), (problem("link", "is DOWN although eth0 is up", "^ferroce del fe0; ferroce add"),)),
    (Planted({f"{PORT}/gids/1": "fe80:0000:0000:0000:0000:0000:0000:0001"}),
     (problem("gid", "eth0 of fe0 has no address", "^ip addr add"),)),
    (Planted({f"{NET}/eth0/mtu": "800"}), (problem("mtu", "the IB MTU of fe0 512", "^ip link set eth0 mtu 1500"),)),
    (Planted({f"{NET}/eth0/mtu": "1500"}), (hint("mtu", "the IB MTU of fe0 1024; 4096 is quicker", "^ip link set eth0 mtu 4200"),)),
    (Planted(programs={"rdma system": "netns exclusive"}), (problem("netns mode", "exclusive", "^rdma system set netns shared"),)),
    (Planted(installed="rdma"), (problem("rdma", "is not installed", "iproute2"),)),
    (Planted({**NO_MODULE, **RXE}, {"rdma -j link": '[{"ifname": "rxe0", "netdev": "eth1"}]'}),
     (problem("rdma_rxe", "the link rxe0 on eth1", "^rdma link delete rxe0$"),)),
    (Planted({**NO_MODULE, "/proc/net/udp": "  0: 00000000:12B7 00000000:0000 07"}),
     (problem("udp port", "a program has the UDP port 4791", "^ss -ulpn"),)),
    # Packet filters, and what confines programs.
    (Planted(programs={"iptables-save": DROPS}), (problem("firewall", "chain INPUT .*iptables. drops", "^iptables -t filter -I INPUT"),)),
    (Planted(programs={"iptables-save": DROPS, "ufw status": "Status: active"}),
     (problem("firewall", "chain INPUT .*ufw. drops", "^ufw allow in 4791/udp$"),)),
    (Planted(programs={"iptables-save": DROPS.replace("INPUT", "OUTPUT"), "ufw status": "Status: active"}),
     (problem("firewall", "chain OUTPUT .*ufw. drops", "^ufw allow out 4791/udp$"),)),
    (Planted(programs={"nft": FIREWALLD, "firewall-cmd --state": "running", "firewall-cmd --get-zone-of-interface=eth0": "home"}),
     (problem("firewall", "filter_INPUT .*firewalld. drops", "^firewall-cmd --permanent --zone=home --add-port=4791/udp && "),)),
    (Planted(programs={"nft": FIREWALLD}), (problem("firewall", "filter_INPUT .*nft. drops", "^nft insert rule inet firewalld"),)),
    (Planted(programs={"iptables-save": MAY_DROP}), (unknown("firewall", "may drop .* -s 10.0.0.0/8", "if it does$"),)),
    (Planted(programs={"ip -j link": '[{"xdp": {}}]'}), (unknown("firewall", "eth0 has an XDP program", "^$"),)),
    (Planted(programs={"tc -j filter show dev eth0 egress": '[{"kind": "bpf"}]'}),
     (unknown("firewall", "eth0 has filters of tc .egress.", "^$", "tc filter show dev eth0 egress"),)),
    *((Planted(files, {"nft": below_ip(family, **more)}), (unknown("firewall", f"eth0 has the chain low of the table {family} t", "^$"),))
      for files, family, more in (({}, "netdev", {"dev": "eth0"}), ({}, "inet", {"dev": ["eth0", "eth1"]}),
                                  ({f"{NET}/eth0/bridge/bridge_id": "8000"}, "bridge", {}))),
    *((Planted(programs={"nft": below_ip(family, **more)}), ()) for family, more in (("netdev", {"dev": "eth1"}), ("bridge", {}))),
    (Planted({**VLAN, f"{PORT}/gids/2": "::ffff:10.7.0.1", f"{PORT}/gid_attrs/types/2": "RoCE v2", f"{PORT}/gid_attrs/ndevs/2": "eth0.7"},
             {"iptables-save": "*filter\n:INPUT ACCEPT [0:0]\n-A INPUT -i eth0.7 -j DROP\nCOMMIT"}),
     (problem("firewall", "chain INPUT .*iptables. drops", "^iptables -t filter -I INPUT"),)),
    (Planted({"/sys/module/nf_tables/refcnt": "1"}, {"nft": 127}),
     (unknown("firewall", "nft, which reads it, is not installed", "nftables"),)),
    (Planted({"/sys/module/nf_tables/refcnt": "1"}, {"nft": (1, "", "Operation not permitted (you must be root)")}),
     (unknown("firewall", "nft, which reads it, fails: Operation not permitted", "^of a container: on the host, ip netns attach"),)),
    (Planted({"/proc/net/ip_tables_names": "filter"}), (unknown("firewall", "iptables-save, which reads it", "iptables"),)),
    (Planted(root=False), (unknown("firewall", "only root can read", "^$"),)),
    (Planted({"/sys/fs/selinux/enforce": "1"}), (hint("selinux", "is enforcing", "ausearch"),)),
    (Planted({"/proc/self/attr/current": "docker-default (enforce)"}), (hint("apparmor", "docker-default", "aa-complain"),)),
)


def by_wire(comes):
    """A socket by which this comes from the peer, or which fails so."""
    made = mock.MagicMock()
    made.return_value.__enter__.return_value.recv.side_effect = comes if isinstance(comes, Exception) else lambda _: comes
    return made


def asked(way=("route resolved", 0), said=("rejected", 8), guid=FILES[f"{IB}/fe0/node_guid"], refuses=None):
    """The connection manager here: the way, what the peer says, the device that leads there; or why it refuses to ask."""
    made = mock.Mock(NODE=peer.Manager.NODE, side_effect=way if isinstance(way, Exception) else None)
    made.return_value.configure_mock(**{"resolve.return_value": way, "device.return_value": guid, "event.return_value": said,
                                        "knock.side_effect": refuses})
    return made


SILENCE = TimeoutError()
PEER = "192.0.2.9"


def counted(sent, received):
    return {"rdma -j statistic": json.dumps([{"ifname": "fe0", "port": 1, "sent_pkts": sent, "rcvd_pkts": received}])}


def neighbour(state):
    return {"ip -j neigh": json.dumps([{"dst": PEER, "state": [state]}])}


WAITS = {"rping": ""}
# What is planted, the wire, the connection manager, and what `ferroce try PEER` answers.
TRY = (
    (Planted(programs=WAITS), by_wire(SILENCE), asked(), ()),
    (Planted(programs={"ip -j route get": '[{"dev": "eth1"}]'}), by_wire(SILENCE), asked(),
     (problem("link", "by eth1, which has no ferroce link", "^ferroce add eth1$"),)),
    (Planted(VLAN, {"ip -j route get": '[{"dev": "eth0.7"}]', **WAITS}), by_wire(SILENCE), asked(), ()),
    (Planted({**NO_MODULE, **VLAN}, {"ip -j route get": '[{"dev": "eth0.7"}]'}), by_wire(SILENCE), asked(),
     (problem("link", "by eth0.7 on eth0, which has no ferroce link", "^ferroce add eth0$"),)),
    (Planted({f"{PORT}/state": "1: DOWN"}), by_wire(SILENCE), asked(), (problem("link", "fe0 on eth0 is DOWN", "^ferroce doctor$"),)),
    (Planted(), by_wire(b""), asked(), (problem("peer", "is no RDMA device", "^ss -ulpn"),)),
    (Planted(), by_wire(ConnectionRefusedError()), asked(), (problem("peer", "refuses UDP port 4791", "there: ferroce doctor"),)),
    (Planted(programs=neighbour("REACHABLE")), by_wire(OSError(113, "No route to host")), asked(),
     (problem("peer", "prohibits UDP port 4791", "there: ferroce doctor"),)),
    (Planted(), by_wire(OSError(1, "Operation not permitted")), asked(),
     (problem("peer", "cannot be sent to: Operation not permitted", "^ferroce doctor$"),)),
    (Planted(programs=neighbour("FAILED")), by_wire(OSError(113, "No route to host")), asked(),
     (problem("peer", f"no machine says that it has the address {PEER}", "is the address right"),)),
    (Planted(), by_wire(SILENCE), asked(way=FileNotFoundError(2, "No such file")), (unknown("port", "cannot be opened", "modprobe rdma_ucm"),)),
    (Planted({f"{NET}/eth0/type": "65534"}), by_wire(SILENCE), asked(way=("address error", -19)),
     (unknown("port", "eth0 is no Ethernet", "^$"),)),
    (Planted(), by_wire(SILENCE), asked(way=("address error", -19)), (problem("address", "No such device", "^ferroce doctor$"),)),
    (Planted(), by_wire(SILENCE), asked(refuses=OSError(99, "Cannot assign requested address")),
     (problem("address", f"does not ask {PEER}: Cannot assign", "^ferroce doctor$"),)),
    (Planted(), by_wire(SILENCE), asked(guid="1"), (problem("address", "another RDMA device than fe0", "^ferroce doctor says"),)),
    (Planted(), by_wire(SILENCE), asked(said=("connect error", -5)), (problem("port", "says: connect error", "there: ferroce doctor"),)),
    (Planted(), by_wire(SILENCE), asked(said=None), (problem("way there", "nothing left fe0", "^ferroce doctor$"),)),
    (Planted(programs=counted(2, 2)), by_wire(SILENCE), asked(said=None), (problem("port", "none is an answer", "there: modprobe rdma_ucm"),)),
    (Planted(programs=counted(2, 0)), by_wire(SILENCE), asked(said=None), (problem("way there or back", "none came back", "there: ferroce doctor"),)),
    (Planted(programs={**counted(2, 0), "iptables-save": DROPS}), by_wire(SILENCE), asked(said=None),
     (problem("firewall", "chain INPUT", "^iptables"),)),
    (Planted(installed="rping"), by_wire(SILENCE), asked(), (hint("message", "rping is not installed", "rdmacm-utils"),)),
    (Planted(programs={"rping": (1, "", "cma event RDMA_CM_EVENT_REJECTED, error 8")}), by_wire(SILENCE), asked(),
     (hint("message", "no program waits", "there: ferroce try --listen"),)),
    (Planted(programs={"rping": (1, "", "cma event RDMA_CM_EVENT_REJECTED, error 28\nconnect error -1")}), by_wire(SILENCE), asked(),
     (problem("message", "cannot accept .*error 28.*less than eth0, whose MTU is 4200", "^ip link set NETDEV mtu 4200 there"),)),
    (Planted(programs={"rping": (1, "", "wait for CQ: transport retry counter exceeded")}), by_wire(SILENCE), asked(),
     (problem("message", "a message of 60000 B does not", "mtu 1500 at both ends"),)),
)


def asking(wire, manager, counts):
    """`ferroce try` of the peer, for `answers`."""
    # What is counted grows while it knocks.
    totals = iter(({}, counts))

    def ask(report):
        with mock.patch.object(peer.socket, "socket", wire), mock.patch.object(peer, "Manager", manager), \
                mock.patch.object(link.Link, "totals", lambda _: next(totals)):
            peer.reach(report, PEER)
    return ask


def every_answer():
    """The file, and the first and last line, of each place of the command that gives an answer which is not ok."""
    return [(module.__file__, node.lineno, node.end_lineno) for module in ADMIN
            for node in ast.walk(ast.parse(Path(module.__file__).read_text(encoding="utf-8")))
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
            and node.func.attr in ("problem", "hint", "unknown")]


class Answers(unittest.TestCase):
    """Each mistake has its answer and no other, and each answer its mistake."""

    def agree(self, found, wanted):
        self.assertEqual([one[:2] for one in found], [one[:2] for one in wanted], found)
        for one, patterns in zip(found, wanted):
            for said, pattern in zip(one[2:], patterns[2:], strict=True):
                self.assertRegex(said, pattern)

    def test_all(self):
        REACHED.clear()
        for planted, wanted in DOCTOR:
            with self.subTest(wanted=wanted):
                self.agree(answers(planted), wanted)
        for planted, wire, manager, wanted in TRY:
            with self.subTest(wanted=wanted):
                counts = {name: value for one in json.loads(planted.programs.get("rdma -j statistic", "[]"))
                          for name, value in one.items() if name.endswith("_pkts")}
                self.agree(answers(planted, asking(wire, manager, counts)), wanted)
        missed = [(file, first) for file, first, last in every_answer()
                  if not REACHED & {(file, line) for line in range(first, last + 1)}]
        self.assertEqual(missed, [], "no case comes to the answers at these lines of the command")
        self.assertGreater(len(every_answer()), 50)

    def test_count(self):
        """Users are told of as many mistakes as the doctor knows."""
        known = sum(Path(module.__file__).read_text(encoding="utf-8").count("report.problem(")
                    for module in (doctor, firewall, libraries))
        for name in ("README.md", "Documentation/features.md"):
            said = (config.CHECKOUT / name).read_text(encoding="utf-8")
            self.assertIn(f"diagnoses {known} misconfigurations", said, name)

    def test_scope(self):
        """A link-local address is one of each link."""
        with Planted().here():
            with self.assertRaisesRegex(Wrong, "name the netdev that leads there, as in fe80::9%eth0"):
                peer.reach(Report(), "fe80::9")
            with mock.patch.object(peer, "route_to", return_value={"dev": "lo"}) as way, self.assertRaises(Wrong):
                peer.reach(Report(), "fe80::9%lo")
            way.assert_called_once_with("fe80::9%lo")
        self.assertEqual(peer.for_ip("fe80::9%lo"), ("fe80::9", "dev", "lo"))

    def test_sysfs_of_another_namespace(self):
        """Under nsenter -n there may be a netdev of that name in either, or in one alone."""
        for files in ({f"{NET}/eth0/ifindex": "2"}, {path: GONE for path in FILES if path.startswith(NET)}):
            with Planted(files).here(), mock.patch.object(link.socket, "if_nametoindex", return_value=7), \
                    mock.patch.object(link.socket, "if_indextoname", return_value="eth0"), \
                    self.assertRaisesRegex(Wrong, "of another network namespace than eth0's, as nsenter -n leaves it"):
                add.add("eth0")

    def test_another_name_of_a_netdev(self):
        """An alternative name, as `ip link property add altname` gives it, stands for the netdev."""
        planted = Planted({f"{NET}/eth0/ifindex": "7"})
        with planted.here(), mock.patch.object(link.socket, "if_nametoindex", return_value=7), \
                mock.patch.object(link.socket, "if_indextoname", return_value="eth0"):
            self.assertEqual(add.add("enp0s3", if_missing=True).netdev, "eth0")
            self.assertEqual([[one.name for one in link.called(what)] for what in ("enp0s3", "eth0", "fe0")], [["fe0"]] * 3)

    def test_names_that_no_link_can_have(self):
        for name in ("a/b", "50%", "my link", "x" * 64):
            with Planted().here(), self.assertRaisesRegex(Wrong, "no link can be called"):
                add.add("eth0", name)

    def test_no_netdev(self):
        with Planted(NO_MODULE).here(), self.assertRaisesRegex(Wrong, "no netdev eth9; ferroce add eth0 may be meant"):
            add.add("eth9")
