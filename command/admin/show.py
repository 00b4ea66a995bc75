# SPDX-License-Identifier: GPL-2.0
"""`ferroce show`: links, GIDs, MTUs, peers, counters."""

import json
import os
import time

from .keep import kept, lost
from .link import called, links
from .system import NET, Wrong


def show_one(link, grown=None):
    """A link for people to read."""
    best = link.best_gid()
    where = (f"netdev {link.netdev} MTU {link.netdev_mtu}, IB MTU {link.ib_mtu()}" if link.netdev
             else "netdev in another network namespace")
    always = ", kept" if link.netdev in kept() else ""
    print(f"{link.name}: {link.state}, {where}, version {link.version}{always}")
    for index, address, kind in link.gids():
        mark = f"   <- use -d {link.name} -g {index}" if best and best[0] == index else ""
        print(f"    GID {index}: {address} ({kind}){mark}")
    peers = ", ".join(f"{address} {state}" for address, state in link.peers().items())
    if peers:
        print(f"    peers: {peers}")
    counters = link.counters() if grown is None else grown
    words = ", ".join(f"{name} {value}" for name, value in counters.items())
    print(f"    counters{'' if grown is None else ' that grew'}: {words or 'none'}")


def show(args):
    """Every link, or the one that is named."""
    found = called(args.link) if args.link else links()
    if args.link and not found:
        raise Wrong(f"there is no ferroce link {args.link}, and none on a netdev of that name")
    grown = {}
    if args.seconds:
        before = {link.name: link.counters() for link in found}
        time.sleep(args.seconds)
        for link in found:
            was = before[link.name]
            grown[link.name] = {n: v - was.get(n, 0) for n, v in link.counters().items() if v > was.get(n, 0)}
    if args.json:
        data = [link.data() | ({"grown": grown[link.name]} if grown else {}) for link in found]
        print(json.dumps(data, indent=1))
        return 0
    for link in found:
        show_one(link, grown.get(link.name))
    for netdev, name in [] if args.link else lost(found):
        here = os.path.isdir(f"{NET}/{netdev}")
        print(f"{name}: kept for {netdev}, " + (f"and deleted for now: ferroce add {netdev}" if here else
                                                "which is not there now"))
    if not found:
        print("no ferroce link: ferroce add NETDEV makes one")
    return 0
