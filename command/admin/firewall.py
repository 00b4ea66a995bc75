# SPDX-License-Identifier: GPL-2.0
"""Whether the packet filter of this machine lets RoCE in and out: what each rule does to one packet."""

import ipaddress
import json
import os
import re
import shlex

from .link import below, likely_netdev
from .system import NET, ROCE_PORT, as_json, call, install, kernel_config, read

# What the rules are asked about: the first packet of a connection, which is new to the tracker in
# either direction, for both have the destination port 4791.
YES, NO, MAYBE = "yes", "no", "maybe"
ACCEPT, DROP, END = "accept", "drop", "end"
# A field that this packet does not have: no rule about it takes the packet, by `!=` neither.
ABSENT = object()
# Of RoCEv2 packets: the upper quarter.
SOURCE_PORTS = range(0xC000, 0x10000)
HOOKS = {"prerouting": "in", "input": "in", "output": "out", "postrouting": "out"}
# Targets of iptables behind which the next rule follows.
GO_ON = set("LOG NFLOG ULOG MARK CONNMARK CT SECMARK CONNSECMARK TOS DSCP TTL HL TCPMSS CLASSIFY TRACE "
            "CHECKSUM AUDIT SET RATEEST NOTRACK".split())
# What of nft decides nothing.
SILENT = {"text", "counter", "log", "mangle", "notrack", "set", "map", "meta", "ct helper", "flow", "dup"}


def possible(left, packet):
    """The values that the packet may have in what a rule looks at; None where nobody can know."""
    kind, what = next(iter(left.items())) if isinstance(left, dict) and left else ("", {})
    inward = HOOKS[packet["hook"]] == "in"
    key = what.get("key") if isinstance(what, dict) else None
    if kind == "payload":
        protocol, field = what.get("protocol"), what.get("field")
        if protocol in ("udp", "th"):
            return {"dport": [ROCE_PORT], "sport": SOURCE_PORTS}.get(field)
        if protocol in ("ip", "ip6"):
            if protocol != packet["family"]:
                return ABSENT
            if field in ("protocol", "nexthdr"):
                return ["udp"]
            return packet["own"] or None if field == ("daddr" if inward else "saddr") else None
        return None if protocol in ("ether", "vlan", None) else ABSENT
    if kind == "exthdr":
        return ABSENT
    if kind == "meta":
        if key in ("iif", "iifname", "oif", "oifname"):
            return [packet["netdev"]] if inward == key.startswith("i") else ABSENT
        return {"l4proto": ["udp"], "nfproto": ["ipv4" if packet["family"] == "ip" else "ipv6"],
                "protocol": [packet["family"]], "pkttype": ["host"] if inward else None}.get(key)
    if kind == "ct":
        # No rule of address translation is about this port.
        return {"state": ["new"], "direction": ["original"], "status": [""]}.get(key)
    if kind == "fib" and inward:
        # A host that answers has a way to the peer, and its packets are for an address here.
        if what.get("result") == "type":
            return ["local"] if "daddr" in what.get("flags", ()) else None
        return [True] if "saddr" in what.get("flags", ()) else None
    return None


def is_one(value, right, sets):
    """Whether a value is what a rule compares with, or among it."""
    if isinstance(right, list):
        return any(is_one(value, one, sets) for one in right)
    if isinstance(right, dict):
        if "set" in right:
            return is_one(value, right["set"], sets)
        if "elem" in right:
            return is_one(value, right["elem"]["val"], sets)
        if "range" in right:
            low, high = right["range"]
            if isinstance(value, IP_ADDRESSES):
                low, high = ipaddress.ip_address(low), ipaddress.ip_address(high)
            return type(low) is type(value) and low <= value <= high
        if "prefix" in right:
            net = ipaddress.ip_network(f"{right['prefix']['addr']}/{right['prefix']['len']}", False)
            return isinstance(value, IP_ADDRESSES) and value in net
        raise LookupError
    if isinstance(right, str) and right.startswith("@"):
        return is_one(value, sets[right[1:]], sets)
    if isinstance(value, IP_ADDRESSES):
        return value == ipaddress.ip_address(right)
    if isinstance(right, str) and right.endswith("*"):
        return isinstance(value, str) and value.startswith(right[:-1])
    return value == {17: "udp"}.get(right, right) if value == "udp" else value == right


def are_no_peers(right):
    """Whether no peer can have any of these addresses."""
    if isinstance(right, dict) and "set" in right:
        return all(map(are_no_peers, right["set"]))
    try:
        net = ipaddress.ip_network(f"{right['prefix']['addr']}/{right['prefix']['len']}", False)
    except (KeyError, TypeError, ValueError):
        return False
    return any(net.version == one.version and net.subnet_of(one) for one in NO_PEERS)


# Loopback, 6to4, mapped and multicast addresses are those of no link's peer.
NO_PEERS = [ipaddress.ip_network(net) for net in ("127.0.0.0/8", "224.0.0.0/4", "::/96", "::ffff:0:0/96", "2002::/16",
                                                  "ff00::/8")]
IP_ADDRESSES = (ipaddress.IPv4Address, ipaddress.IPv6Address)
ORDERS = {"<": lambda a, b: a < b, ">": lambda a, b: a > b, "<=": lambda a, b: a <= b,
          ">=": lambda a, b: a >= b}


def takes(match, packet, sets):
    """Whether a match of nft takes the packet."""
    left, right, op = match.get("left", {}), match.get("right"), match.get("op", "==")
    found = possible(left, packet)
    if found is ABSENT:
        return NO
    if found is None:
        # Nothing is among nothing.
        named = sets.get(right[1:]) if isinstance(right, str) and right.startswith("@") else None
        return NO if op in ("==", "in") and (named == [] or are_no_peers(right)) else MAYBE
    try:
        if op in ORDERS:
            answers = {ORDERS[op](value, right) for value in found}
        else:
            answers = {is_one(value, right, sets) != (op == "!=") for value in found}
    except (LookupError, TypeError, ValueError):
        return MAYBE
    return MAYBE if len(answers) > 1 else YES if answers.pop() else NO


class Filter:
    """The chains of one way to filter packets, in the words of nft's JSON, and what they do to a packet."""

    def __init__(self, items, tool):
        self.tool = tool
        self.rules, self.sets, self.bases = {}, {}, []
        # Base chains below IP, of which nothing is judged.
        self.below = []
        # The first rule that nobody can judge without the packet.
        self.doubt = ""
        for item in items:
            kind, what = next(iter(item.items()))
            if kind == "chain":
                self.rules.setdefault((what["family"], what["table"], what["name"]), [])
                if what.get("family") == "bridge" or what.get("hook") in ("ingress", "egress"):
                    self.below += [what] if "hook" in what else []
                elif what.get("hook") in HOOKS and what.get("type") == "filter":
                    self.bases.append(what)
            elif kind == "rule":
                place = what["family"], what["table"], what["chain"]
                self.rules.setdefault(place, []).append(what["expr"])
            elif kind == "set":
                table = self.sets.setdefault((what["family"], what["table"]), {})
                table[what["name"]] = what.get("elem", [])

    def are_below(self, netdev):
        """The chains that a packet of a netdev goes through below IP, if they do anything; those of the family bridge if it is
        one."""
        is_bridge = os.path.isdir(f"{NET}/{netdev}/bridge")
        for base in self.below:
            place, devices = (base["family"], base["table"], base["name"]), base.get("dev", ())
            applies = is_bridge if base["family"] == "bridge" else netdev in ([devices] if isinstance(devices, str) else devices)
            if applies and (self.rules[place] or base.get("policy") == DROP):
                yield place

    def becomes(self, place, packet, depth=0):
        """What may become of the packet in a chain: some of accept, drop and end."""
        if depth > 16 or place not in self.rules:
            return {ACCEPT, DROP, END}
        out = set()
        for rule in self.rules[place]:
            results = self.apply(rule, place, packet, depth)
            out |= results & {ACCEPT, DROP, END}
            if "next" not in results:
                return out
        return out | {END}

    def apply(self, rule, place, packet, depth):
        """What may become of it by a rule: `next`, where the next one follows, and those of `becomes`."""
        sure, results = True, {"next"}
        for part in rule:
            kind, what = next(iter(part.items()))
            if kind in ("match", "never"):
                took = takes(what, packet, self.sets.get(place[:2], {})) if kind == "match" else NO
                if took == NO:
                    return {"next"}
                sure = sure and took == YES
            elif kind == "vmap":
                results = self.choose(what, place, packet, depth)
            elif kind in (ACCEPT, DROP, "reject", "return", "jump", "goto"):
                results = self.verdict(kind, what, place, packet, depth)
            elif kind == "queue":
                results = {ACCEPT, DROP}
            elif kind not in SILENT:
                sure = False
        if len(results) > 1 or not sure and results != {"next"}:
            self.doubt = self.doubt or " ".join(place) + ": " + words_of(rule)
        return results if sure else results | {"next"}

    def verdict(self, kind, what, place, packet, depth):
        """The results of a verdict."""
        if kind in ("jump", "goto"):
            inside = self.becomes((*place[:2], what["target"]), packet, depth + 1)
            return {"next" if kind == "jump" and one == END else one for one in inside}
        return {{"reject": DROP, "return": END}.get(kind, kind)}

    def choose(self, vmap, place, packet, depth):
        """The results of a verdict map."""
        data = vmap.get("data")
        pairs = data.get("set", []) if isinstance(data, dict) else None
        found = possible(vmap.get("key", {}), packet)
        if pairs is None:
            return {ACCEPT, DROP, "next"}
        if found is ABSENT:
            return {"next"}
        results = set()
        for value in [None] if found is None else found:
            hit = False
            for key, verdict in pairs:
                if found is None or is_one(value, key, {}):
                    hit = True
                    results |= self.verdict(*next(iter(verdict.items())), place, packet, depth)
            if found is None or not hit:
                results.add("next")
        return results

    def judge(self, packet):
        """The base chains that drop the packet for certain, and those that may; what is in doubt about the latter."""
        certain, perhaps = [], []
        for base in self.bases:
            if base["family"] not in (packet["family"], "inet"):
                continue
            place = base["family"], base["table"], base["name"]
            self.doubt = ""
            results = self.becomes(place, packet | {"hook": base["hook"]})
            results = {base.get("policy", ACCEPT) if one == END else one for one in results}
            if results == {DROP}:
                certain.append(place)
            elif DROP in results:
                perhaps.append((place, self.doubt))
        return certain, perhaps


def words_of(rule):
    """A rule, shortened, for people."""
    return next((part["text"] for part in rule if "text" in part), None) or json.dumps(rule)[:160]


OPTIONS = {"-p": ("meta", "l4proto"), "-i": ("meta", "iifname"), "-o": ("meta", "oifname"),
           "--ctstate": ("ct", "state"), "--state": ("ct", "state"), "--ctstatus": ("ct", "status")}
# Matches of what a UDP datagram without extension headers does not have.
NEVER = {"--icmp-type", "--icmpv6-type", "--rt-type", "--tcp-flags", "--syn", "--frag", "-f"}
PORTS = {"--dport": "dport", "--dports": "dport", "--sport": "sport", "--sports": "sport"}


def from_iptables(text, family):
    """What iptables-save prints, or `iptables -S`, in the form of nft's JSON."""
    items, table = [], "filter"
    for line in text.splitlines():
        words = shlex.split(line)
        if line.startswith("*"):
            table = line[1:]
        elif line.startswith(":") or words[:1] in (["-P"], ["-N"]):
            name, policy = (words[0][1:], words[1]) if line[0] == ":" else (*words[1:], "-")[:2]
            hook = {"hook": name.lower(), "type": "nat" if table == "nat" else "filter", "policy": policy.lower()}
            items.append({"chain": {"family": family, "table": table, "name": name}
                          | (hook if policy != "-" else {})})
        elif words[:1] == ["-A"]:
            items.append({"rule": {"family": family, "table": table, "chain": words[1],
                                   "expr": [{"text": line}, *expressions(words[2:], family)]}})
    return items


def expressions(words, family):
    """The matches and the verdict of a rule of iptables."""
    found, op = [], "=="
    while words:
        word, words = words[0], words[1:]
        if word == "!":
            op = "!="
            continue
        count = next((n for n, one in enumerate(words) if one == "!" or re.match("-[-a-z]", one)), len(words))
        value, words = words[:count], words[count:]
        if word in ("-j", "-g"):
            found += target(value[0], "jump" if word == "-j" else "goto")
            # What follows are the target's own words.
            break
        if word in NEVER:
            found.append({"never": None} if op == "==" else {"text": ""})
        elif word in OPTIONS:
            left, key = OPTIONS[word]
            right = [one.replace("+", "*") if word in ("-i", "-o") else {"17": "udp"}.get(one, one.lower())
                     for one in value[0].split(",")]
            found += [] if right == ["all"] else [match(op, {left: {"key": key}}, {"set": right})]
        elif word in PORTS:
            right = [{"range": list(map(int, p.split(":")))} if ":" in p else int(p) for p in value[0].split(",")]
            found.append(match(op, {"payload": {"protocol": "th", "field": PORTS[word]}}, {"set": right}))
        elif word in ("-s", "-d"):
            address, _, length = value[0].partition("/")
            prefix = {"prefix": {"addr": address, "len": length or (32 if family == "ip" else 128)}}
            found.append(match(op, {"payload": {"protocol": family, "field": "saddr" if word == "-s" else "daddr"}},
                               prefix))
        elif word == "--dst-type":
            found.append(match(op, {"fib": {"result": "type", "flags": ["daddr"]}}, value[0].lower()))
        elif word not in ("-m", "--comment", "-c"):
            found.append({"unknown": word})
        op = "=="
    return found


def match(op, left, right):
    """As in nft's JSON."""
    return {"match": {"op": op, "left": left, "right": right}}


def target(name, how):
    """What a target of iptables is to nft."""
    if name in ("ACCEPT", "DROP", "REJECT", "RETURN"):
        return [{name.lower(): None}]
    if name == "NFQUEUE":
        return [{"queue": None}]
    return [] if name in GO_ON else [{how: {"target": name}}]


def filters():
    """Each packet filter of this network namespace, with how it is read; and what does not read it, with what it says."""
    found, unread, owned = [], [], set()
    for program, family in (("iptables", "ip"), ("ip6tables", "ip6")):
        new, tables = "nf_tables" in call(program, "-V")[1], read(f"/proc/net/{family}_tables_names")
        # The old kind of tables is told by another program, where the usual one has the new kind.
        for save in [f"{program}-save"] + ([f"{program}-legacy-save"] if new and tables else []):
            status, text, err = call(save)
            if not status:
                found.append(Filter(from_iptables(text, family), program))
                if new and "legacy" not in save:
                    owned |= {(family, line[1:]) for line in text.splitlines() if line.startswith("*")}
            elif tables:
                unread.append((save, status, err))
    status, text, err = call("nft", "-j", "list", "ruleset")
    if not status:
        items = json.loads(text)["nftables"] if text else []
        # What iptables has put there, it has told itself.
        inner = [next(iter(item.values())) for item in items]
        items = [item for item, what in zip(items, inner) if (what.get("family"), what.get("table")) not in owned]
        found.append(Filter(items, "nft"))
    elif os.path.isdir("/sys/module/nf_tables") or "\nCONFIG_NF_TABLES=y\n" in kernel_config():
        unread.append(("nft", status, err))
    return found, unread


def front_end():
    """Who keeps the rules of this machine, and will write them anew: ufw, firewalld or nobody."""
    if "running" == call("firewall-cmd", "--state")[1]:
        return "firewalld"
    return "ufw" if "Status: active" in call("ufw", "status")[1] else ""


def opens(tool, place, netdev, front):
    """The command that opens the port for good, and the one that shows how it stands."""
    family, table, chain = place
    if front == "firewalld" and table == "firewalld":
        zone = call("firewall-cmd", f"--get-zone-of-interface={netdev}")[1] or call(
            "firewall-cmd", "--get-default-zone")[1]
        return (f"firewall-cmd --permanent --zone={zone} --add-port={ROCE_PORT}/udp && firewall-cmd --reload",
                f"firewall-cmd --zone={zone} --query-port={ROCE_PORT}/udp")
    if front == "ufw" and tool != "nft":
        out = chain == "OUTPUT"
        return f"ufw allow {'out' if out else 'in'} {ROCE_PORT}/udp", "ufw status verbose"
    if tool == "nft":
        return (f"nft insert rule {family} {table} {chain} udp dport {ROCE_PORT} accept (and in /etc/nftables.conf, "
                "or whatever loads the rules, to keep it)", f"nft list chain {family} {table} {chain}")
    return (f"{tool} -t {table} -I {chain} -p udp --dport {ROCE_PORT} -j ACCEPT (and netfilter-persistent save, to keep "
            "it)", f"{tool} -t {table} -S {chain}")


def packets(found):
    """The packets to ask about: of each link, and of each VLAN on it, in each family of its addresses; without a link, of any
    netdev."""
    for link in found:
        own = [(read(f"{link.port}/gid_attrs/ndevs/{index}") or link.netdev, ipaddress.ip_address(address))
               for index, address, _ in link.gids()] if link.netdev else []
        for netdev in {netdev: None for netdev, _ in own if below(netdev) == link.netdev}:
            its = [address for at, address in own if at == netdev]
            global_ones = [a for a in its if not a.is_link_local] or its
            for version, family in ((4, "ip"), (6, "ip6")):
                mine = [a for a in global_ones if a.version == version]
                if mine:
                    yield {"family": family, "netdev": netdev, "own": mine}
    if not any(link.netdev for link in found):
        netdev = likely_netdev() or "eth0"
        yield {"family": "ip", "netdev": netdev, "own": []}


def below_ip(netdev, all_filters):
    """What may drop packets of a netdev outside of IP, and the command that shows it."""
    if any("xdp" in one for one in as_json("ip", "-j", "link", "show", "dev", netdev)):
        yield "an XDP program", f"ip -d link show {netdev}"
    for way in ("ingress", "egress"):
        if as_json("tc", "-j", "filter", "show", "dev", netdev, way):
            yield f"filters of tc ({way})", f"tc filter show dev {netdev} {way}"
    for one in all_filters:
        for family, table, chain in one.are_below(netdev):
            yield f"the chain {chain} of the table {family} {table}", f"nft list chain {family} {table} {chain}"


def check_firewall(report, found):
    """Whether the packet filter lets RoCE in and out: open, blocked, or not to be told from here. Only root may ask."""
    if os.geteuid():
        report.unknown("firewall", "only root can read the packet filter", "", "sudo ferroce doctor")
        return
    certain, perhaps, (all_filters, unread) = {}, {}, filters()
    for packet in packets(found):
        for one in all_filters:
            drops, doubts = one.judge(packet)
            certain |= {(one.tool, place): packet["netdev"] for place in drops}
            perhaps |= {(one.tool, place): (packet["netdev"], doubt) for place, doubt in doubts}
    front = front_end() if certain or perhaps else ""
    said = set()
    for (tool, place), netdev in certain.items():
        fix, proof = opens(tool, place, netdev, front)
        if fix not in said:
            said.add(fix)
            report.problem("firewall", f"the chain {place[2]} of the table {place[0]} {place[1]} ({front or tool}) drops "
                           f"UDP port {ROCE_PORT}, which is RoCE (programs that meet by TCP, as ibv_rc_pingpong and "
                           "perftest do by port 18515, need that open as well)", fix, proof)
    for (tool, place), (netdev, doubt) in perhaps.items():
        fix, proof = opens(tool, place, netdev, front)
        if (tool, place) not in certain and fix not in said:
            said.add(fix)
            report.unknown("firewall", f"the chain {place[2]} of the table {place[0]} {place[1]} ({front or tool}) may drop "
                           f"UDP port {ROCE_PORT}: it depends on {doubt or 'more than the rules say'}",
                           f"{fix}, if it does", f"ferroce try PEER; {proof}")
    for netdev in {link.netdev: None for link in found if link.netdev} | {packet["netdev"]: None for packet in packets(found)}:
        for what, proof in below_ip(netdev, all_filters):
            said.add(netdev)
            report.unknown("firewall", f"{netdev} has {what}, which may drop anything", "", f"ferroce try PEER; {proof}")
    for program, status, err in unread[:1]:
        missing = status == 127
        report.unknown("firewall", f"the kernel has a packet filter, and {program}, which reads it, "
                       + ("is not installed" if missing else f"fails: {err.splitlines()[-1] if err else f'exit {status}'}"),
                       install("nftables" if program == "nft" else "iptables") if missing else
                       "of a container: on the host, ip netns attach NAME PID, with a process of it, and ip netns exec NAME ferroce doctor",
                       "ferroce try PEER")
    if not unread and not said:
        report.ok("firewall", f"open: no rule here drops UDP port {ROCE_PORT}; whether others on the way do, "
                  "ferroce try PEER says", "ferroce try PEER; nft list ruleset")
