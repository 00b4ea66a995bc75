# SPDX-License-Identifier: GPL-2.0
"""What one message looks like on the wire: as tshark decodes it, with the ICRC as scapy computes it.

`python3 -m tests.judges.message FILE` judges and prints a capture where these two are installed.
"""

import os
import subprocess
import sys

from tests.guest.scenario import Failed, require

# The message of the scenario, in bytes, and the path MTU.
SIZE, MTU = 2500, 1024
FIELDS = ("frame.number", "ip.src", "ipv6.src", "udp.srcport", "udp.length", "infiniband.bth.opcode",
          "infiniband.bth.psn", "infiniband.bth.destqp", "infiniband.bth.a", "infiniband.bth.m",
          "infiniband.bth.padcnt", "infiniband.aeth.syndrome", "infiniband.aeth.msn", "infiniband.invariant.crc")


def decode(path):
    """The capture's packets as dictionaries of tshark's fields."""
    argv = ["tshark", "-n", "-r", path, "-T", "fields", "-E", "separator=|"]
    for field in FIELDS:
        argv += ["-e", field]
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          timeout=120, env=dict(os.environ, HOME="/tmp"))
    require(done.returncode == 0, f"tshark: exit {done.returncode}: {done.stderr.strip()}")
    text = done.stdout
    packets = []
    for line in text.splitlines():
        values = line.split("|")
        if len(values) == len(FIELDS):
            packets.append(dict(zip(FIELDS, values)))
    return packets


def name_of(opcode):
    # Late: a guest, which has no use for names, has no folder command/.
    from command.trace import opcodes
    return opcodes.name_of(opcode)


def number(text):
    """A number as tshark prints it, decimal or hexadecimal."""
    return int(text, 16) if text.lower().startswith("0x") else int(text)


def judge_message(packets):
    """Checks the packets of one exchange: each side sends one message of three packets, and acknowledges one."""
    require(packets, "nothing was captured")
    by_source = {}
    for p in packets:
        by_source.setdefault(p["ip.src"] or p["ipv6.src"], []).append(p)
    require(len(by_source) == 2, f"packets come from {sorted(by_source)}")
    for source, mine in by_source.items():
        sends = [p for p in mine if number(p["infiniband.bth.opcode"]) != 17]
        acks = [p for p in mine if number(p["infiniband.bth.opcode"]) == 17]
        shape = [number(p["infiniband.bth.opcode"]) for p in sends]
        require(shape == [0, 1, 2], f"{source} sent {list(map(name_of, shape))}")
        psns = [number(p["infiniband.bth.psn"]) for p in sends]
        require([(n - psns[0]) & 0xffffff for n in psns] == [0, 1, 2], f"{source}: PSNs {psns}")
        # UDP header 8, BTH 12, payload, ICRC 4; the payload is padded to four bytes.
        lengths = [int(p["udp.length"]) - 24 for p in sends]
        require(lengths == [MTU, MTU, SIZE - 2 * MTU], f"{source}: payloads {lengths}")
        require(len({p["infiniband.bth.destqp"] for p in mine}) == 1, f"{source} addresses several queue pairs")
        require(len({p["udp.srcport"] for p in mine}) == 1, f"{source} uses several UDP source ports")
        require(int(mine[0]["udp.srcport"]) >= 0xC000, f"{source}: UDP source port {mine[0]['udp.srcport']}")
        require(sends[-1]["infiniband.bth.a"] in ("1", "True"), f"{source} asks for no acknowledgement")
        require(acks, f"{source} acknowledges nothing")
        other = next(s for s in by_source if s != source)
        last = next(p for p in by_source[other] if number(p["infiniband.bth.opcode"]) == 2)
        require(any(p["infiniband.bth.psn"] == last["infiniband.bth.psn"] for p in acks),
                f"{source} does not acknowledge the last packet")
        for p in acks:
            require(number(p["infiniband.aeth.syndrome"]) >> 5 == 0, f"{source} sent a NAK")


def judge_icrc(path):
    """Compares the ICRC of every packet with scapy's, an implementation made by others; returns their number."""
    import logging
    logging.getLogger("scapy").setLevel(logging.ERROR)
    from scapy.contrib.roce import BTH
    from scapy.utils import rdpcap
    count = 0
    for packet in rdpcap(path):
        if BTH not in packet:
            continue
        raw = bytes(packet.original)
        bth = packet[BTH]
        have = raw[-4:]
        want = bth.compute_icrc(b"")
        require(have == want, f"packet {count + 1}: ICRC {have.hex()}, and scapy computes {want.hex()}")
        count += 1
    require(count >= 8, f"scapy found {count} packets")
    return count


def table(packets):
    lines = [f"{'from':>12}  {'packet':<12} {'PSN':>8}  {'bytes':>5}  {'to QP':>8}  ICRC"]
    for p in packets:
        op = number(p["infiniband.bth.opcode"])
        payload = int(p["udp.length"]) - 24 - (4 if op == 17 else 0)
        extra = f"  MSN {p['infiniband.aeth.msn']}" if op == 17 else ""
        lines.append(f"{p['ip.src'] or p['ipv6.src']:>12}  {name_of(op):<12} {p['infiniband.bth.psn']:>8}  "
                     f"{payload:>5}  {p['infiniband.bth.destqp']:>8}  {p['infiniband.invariant.crc']}{extra}")
    return lines


def main():
    """Judges a capture named on the command line and prints it; its last line says what is wrong, if anything."""
    try:
        packets = decode(sys.argv[1])
        print("\n".join(table(packets)))
        judge_message(packets)
        print(f"{judge_icrc(sys.argv[1])} ICRCs agree with scapy's")
    except Failed as e:
        sys.exit(f"{e}")


if __name__ == "__main__":
    main()
