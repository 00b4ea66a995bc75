# SPDX-License-Identifier: GPL-2.0
"""A capture as a list of packets with all their fields, read three times: by tshark, by scapy and by `ferroce trace`. All must
agree."""

import logging
import os
import subprocess

from command.trace.data import data
from command.trace.opcodes import HEADERS, OPCODES
from command.trace.trace import load
from tests.guest.scenario import require

# Our names of the fields, and tshark's. scapy knows the BTH and the AETH of an acknowledgement; the other headers are
# cut out of the bytes behind the BTH here, where OPCODES says what is there.
BTH = {"opcode": "opcode", "se": "se", "migreq": "m", "pad": "padcnt", "tver": "tver", "pkey": "p_key",
       "dqpn": "destqp", "ackreq": "a", "psn": "psn"}
TSHARK = ({name: f"infiniband.bth.{field}" for name, field in BTH.items()}
          | {"syndrome": "infiniband.aeth.syndrome", "msn": "infiniband.aeth.msn", "va": "infiniband.reth.va",
             "rkey": "infiniband.reth.r_key", "dmalen": "infiniband.reth.dmalen", "imm": "infiniband.immdt",
             "icrc": "infiniband.invariant.crc", "time": "frame.time_epoch", "frame_len": "frame.len",
             "src4": "ip.src", "src6": "ipv6.src", "ip_len": "ip.len", "ip6_len": "ipv6.plen", "ttl4": "ip.ttl",
             "ttl6": "ipv6.hlim", "tos4": "ip.dsfield", "tos6": "ipv6.tclass", "flow": "ipv6.flow", "ip_id": "ip.id",
             "df": "ip.flags.df", "sport": "udp.srcport", "dport": "udp.dstport", "udp_len": "udp.length",
             "udp_sum": "udp.checksum", "qkey": "infiniband.deth.q_key", "sqpn": "infiniband.deth.srcqp",
             "swap": "infiniband.atomiceth.swapdt", "compare": "infiniband.atomiceth.cmpdt",
             "original": "infiniband.atomicacketh.origremdt"})
# tshark would take a payload for one of these, and then for a malformed one.
GUESSES = ("smcr_infiniband", "smb_direct_infiniband", "rpcrdma_infiniband", "nvme_rdma", "lnet_ib", "iser_infiniband",
           "eth_over_ib", "mellanox_eoib", "sdp_infiniband", "fc_infiniband")
TEXT = {"src4", "src6", "time"}


def number(text):
    """A number as tshark prints it: decimal, hexadecimal, a truth value, or bytes."""
    if text in ("True", "False"):
        return int(text == "True")
    return int(text, 0) if not text.startswith("0") or text.lower().startswith("0x") or text == "0" else int(text, 16)


def by_tshark(path):
    argv = ["tshark", "-n", "-r", path, "-T", "fields", "-E", "separator=|", "-E", "occurrence=f"]
    for guess in GUESSES:
        argv += ["--disable-heuristic", guess]
    for field in TSHARK.values():
        argv += ["-e", field]
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          timeout=120, env=dict(os.environ, HOME="/tmp"))
    require(done.returncode == 0, f"tshark: exit {done.returncode}: {done.stderr.strip()}")
    packets = []
    for line in done.stdout.splitlines():
        raw = dict(zip(TSHARK, line.split("|")))
        # The immediate is a string of bytes to tshark.
        imm = {"imm": int(raw.pop("imm").replace(":", ""), 16)} if raw["imm"] else {}
        packets.append({k: v if k in TEXT else number(v) for k, v in raw.items() if v} | imm)
    return packets


def by_scapy(path):
    """Dictionaries of the fields that scapy finds, with the payload, the bytes of the pad, and the ICRC as computed."""
    logging.getLogger("scapy").setLevel(logging.ERROR)
    from scapy.contrib import roce
    from scapy.layers.inet import IP, UDP
    from scapy.layers.inet6 import IPv6
    from scapy.utils import rdpcap
    packets = []
    for packet in rdpcap(path):
        require(roce.BTH in packet, f"scapy finds no BTH in {packet.summary()}")
        bth, udp, raw = packet[roce.BTH], packet[UDP], bytes(packet.original)
        p = {"opcode": bth.opcode, "se": bth.solicited, "migreq": bth.migreq, "pad": bth.padcount,
             "tver": bth.version, "pkey": bth.pkey, "dqpn": bth.dqpn, "ackreq": bth.ackreq, "psn": bth.psn,
             # tshark does not name these.
             "fecn": bth.fecn, "becn": bth.becn, "reserved": bth.resv6 | bth.resv7,
             "sport": udp.sport, "dport": udp.dport, "udp_len": udp.len, "udp_sum": udp.chksum,
             "frame_len": len(raw)}
        if IP in packet:
            ip = packet[IP]
            begin = 14 + 20
            p |= {"src4": ip.src, "ip_len": ip.len, "ttl4": ip.ttl, "tos4": ip.tos, "ip_id": ip.id,
                  "df": int("DF" in str(ip.flags)), "ip_header": ip.ihl * 4}
        else:
            ip = packet[IPv6]
            begin = 14 + 40
            p |= {"src6": ip.src, "ip6_len": ip.plen, "ttl6": ip.hlim, "tos6": ip.tc, "flow": ip.fl,
                  "next_header": ip.nh}
        if bth.opcode == 0x11:
            p |= {"syndrome": packet[roce.AETH].syndrome, "msn": packet[roce.AETH].msn}
        p["icrc_bytes"], p["icrc_computed"] = raw[-4:], bth.compute_icrc(b"")
        cut_out(p, raw[begin + 8 + 12:-4])
        packets.append(p)
    return packets


def cut_out(p, rest):
    """Adds the fields of the headers in `rest`, all that is between BTH and ICRC, and the payload and its pad."""
    name, headers = OPCODES.get(p["opcode"], (f"opcode {p['opcode']:#x}", ""))
    p["name"] = name
    for header in headers:
        length, fields = HEADERS[header]
        require(len(rest) >= length, f"{name}: it ends in its headers")
        found = {field: int.from_bytes(rest[a:b], "big") for field, (a, b) in fields.items()}
        for field, value in found.items():
            require(p.get(field, value) == value, f"{name}: scapy has {field} {p.get(field)}, the bytes {value}")
        p |= found
        rest = rest[length:]
    end = len(rest) - p["pad"]
    require(end >= 0, f"{name}: more pad than payload")
    p["payload"], p["pad_bytes"] = rest[:end], rest[end:]


def by_command(path):
    """Dictionaries of the fields that `ferroce trace show` finds."""
    with open(path, "rb") as f:
        held = data(load([(path, f.read())]), True)
    rows = [row for talk in held["conversations"] for row in talk["rows"]]
    found = []
    for row in sorted(rows, key=lambda row: row["frame"]):
        fields = {name: value for _, header in row["headers"] for name, value in header.items() if name != "meaning"}
        found.append({name: row[name] for name in (*BTH, "fecn", "becn", "name", "sport", "src", "length", "icrc")} | fields)
    return found


def judge_command(packets, found):
    """What `ferroce trace show` draws is what the others see: in every field, its ICRC included."""
    require(len(packets) == len(found), f"ferroce trace finds {len(found)} packets, and there are {len(packets)}")
    for p, c in zip(packets, found):
        want = p | {"length": len(p["payload"]), "icrc": "good"}
        for field, value in c.items():
            require(want[field] == value, f"packet {p['number']}, {p['name']}: {field} is {value} to ferroce trace, not {want[field]}")


def decode(path):
    """The packets of a capture; fails unless all decoders see the same in every field that they name."""
    one, two = by_tshark(path), by_scapy(path)
    require(one, "nothing was captured")
    require(len(one) == len(two), f"tshark finds {len(one)} packets, scapy {len(two)}")
    packets = []
    for n, (a, b) in enumerate(zip(one, two), 1):
        for field in TSHARK:
            if field in ("icrc", "time"):
                continue
            require(a.get(field) == b.get(field),
                    f"packet {n}, {b['name']}: {field} is {a.get(field)} to tshark and {b.get(field)} to scapy")
        require("icrc" in a and f"{a['icrc']:08x}" == b["icrc_bytes"].hex(),
                f"packet {n}, {b['name']}: the ICRC is {a.get('icrc')} to tshark and {b['icrc_bytes'].hex()} to scapy")
        require(b["icrc_bytes"] == b["icrc_computed"],
                f"packet {n}, {b['name']}: ICRC {b['icrc_bytes'].hex()}, and scapy computes {b['icrc_computed'].hex()}")
        packets.append(b | {"time": float(a["time"]), "src": b.get("src4") or b.get("src6"), "number": n})
    judge_command(packets, by_command(path))
    return packets
