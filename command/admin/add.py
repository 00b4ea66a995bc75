# SPDX-License-Identifier: GPL-2.0
"""`ferroce add` and `ferroce del`."""

import json
import os
import re
import time

from .keep import forget, keep, kept
from .link import Link, called, in_this_namespace, likely_netdev, links
from .show import show_one
from .system import IB, NET, Wrong, call, install, kernel_log, last_sentence, listing, module_loaded, must, need_root, read, reasons


def load_module():
    """Loads the module, for where that fails rdma says `Invalid argument`, whatever the reason."""
    if module_loaded():
        return
    log = kernel_log()
    status, _, err = call("modprobe", "ferroce")
    if status:
        raise Wrong("; ".join([err.splitlines()[-1] if err else "modprobe ferroce fails", *reasons(log)])
                    + " (ferroce doctor says more)")


def add(netdev, name=None, if_missing=False):
    """`rdma link add`, with a name where none is given, and the reason where it is refused."""
    need_root("adding a link")
    # ib_core takes some more, which then stand otherwise in sysfs, or break the file of a kept link.
    if name and not re.fullmatch(r"[^\s/%]{1,63}", name):
        raise Wrong(f"no link can be called {name!r}: a name has at most 63 characters, and no blank, / or %")
    netdev, index = in_this_namespace(netdev)
    if index not in ("", read(f"{NET}/{netdev}/ifindex")):
        raise Wrong(f"{NET} is that of another network namespace than {netdev}'s, as nsenter -n leaves it: ip netns attach NAME "
                    f"PID, with a process of the container, and ip netns exec NAME ferroce add {netdev}")
    if not os.path.isdir(f"{NET}/{netdev}"):
        likely = likely_netdev()
        raise Wrong(f"there is no netdev {netdev}; " + (f"ferroce add {likely} may be meant, and " if likely else "")
                    + "ip link shows which there are")
    there = next((link for link in links() if link.netdev == netdev), None)
    if if_missing and there and name in (None, there.name):
        return there
    if not name:
        taken = set(listing(IB)) | set(kept().values())
        name = kept().get(netdev) or next(f"fe{n}" for n in range(10000) if f"fe{n}" not in taken)
    load_module()
    log = kernel_log()
    status, out, err = call("rdma", "link", "add", name, "type", "ferroce", "netdev", netdev)
    if status == 127:
        raise Wrong("rdma is not installed: " + install("iproute2"))
    if status:
        why = last_sentence(log).removeprefix(f"{name}: ") or err or out
        raise Wrong(f"{name} on {netdev} was refused: {why} (ferroce doctor may know more)")
    # Where udev runs, its rules do so, too.
    call("modprobe", "-qa", "ib_uverbs", "rdma_ucm")
    # The table of GIDs is filled a little later.
    for _ in range(50):
        link = next((link for link in links() if link.name == name), None)
        if link and (link.best_gid() or link.state == "DOWN"):
            break
        time.sleep(0.1)
    return link or Link(name, netdev)


def delete(what, stay_kept=False):
    """Deletes a link by its own name or by that of its netdev."""
    need_root("deleting a link")
    link, first = next(iter(called(what)), None), in_this_namespace(what)[0]
    netdev = next((netdev for netdev, name in kept().items() if what in (netdev, name) or netdev == first
                   or link and link.netdev == netdev), None)
    if netdev and not stay_kept:
        # Which deletes the link.
        forget(netdev)
    elif not link:
        raise Wrong(f"there is no ferroce link {what}, and none on a netdev of that name; ferroce show lists them")
    if link and link.name in listing(IB):
        must("rdma", "link", "delete", link.name)
    return link.name if link else what


def run_add(args):
    """Adds a link, and has it kept if that is asked for."""
    link = add(args.netdev, args.name, args.if_missing or args.keep)
    if args.keep:
        keep(link.netdev or args.netdev, link.name)
    if args.json:
        print(json.dumps(link.data(), indent=1))
    else:
        show_one(link)
    return 0


def run_delete(args):
    """Deletes a link, and keeps it no more unless told to."""
    print(f"{delete(args.link, args.stay_kept)} is gone")
    return 0
