# SPDX-License-Identifier: GPL-2.0
"""Links that systemd adds again: at each boot, and whenever the netdev is made anew."""

import glob
import os
import re
import shutil

from .system import Wrong, call, must, read

# What an instance of the unit reads, and where systemd looks for it.
UNITS = "/etc/systemd/system"


def unit_of(netdev):
    """The unit that keeps a netdev's link, as systemd-escape writes it."""
    return "ferroce@" + re.sub(r"^\.|[^A-Za-z0-9:_./]", lambda m: f"\\x{ord(m.group()):02x}", netdev).replace(
        "/", "-") + ".service"


def kept():
    """The name of the link that is kept on each netdev, whether the netdev is there or not; nothing where that is left
    to ferroce add."""
    found = {}
    for path in glob.glob(f"{UNITS}/*.wants/ferroce@*.service"):
        unit = os.path.basename(path)
        name = re.search(r"^Environment=NAME=(\S+)$", read(f"{UNITS}/{unit}.d/link.conf"), re.M)
        instance = unit[len("ferroce@"):-len(".service")].replace("-", "/")
        netdev = re.sub(r"\\x([0-9a-f]{2})", lambda m: chr(int(m.group(1), 16)), instance)
        found[netdev] = name.group(1) if name else ""
    return found


def lost(found):
    """The netdev and the name of each link that is kept and not among these."""
    there = {link.netdev for link in found}
    return [(netdev, name or "a link") for netdev, name in kept().items() if netdev not in there]


def keep(netdev, name):
    """Has systemd add the link at each boot, and whenever its netdev is made anew."""
    if not os.path.isdir("/run/systemd/system"):
        raise Wrong("--keep is done by systemd, which does not run here; without it, what brings up the netdev runs "
                    f"ferroce add --if-missing {netdev} {name}")
    folder = f"{UNITS}/{unit_of(netdev)}.d"
    os.makedirs(folder, exist_ok=True)
    with open(f"{folder}/link.conf", "w", encoding="utf-8") as f:
        f.write(f"# Written by ferroce add --keep; ferroce del {name} removes it.\n[Service]\nEnvironment=NAME={name}\n")
    must("systemctl", "daemon-reload")
    must("systemctl", "enable", "--now", unit_of(netdev))


def forget(netdev):
    """Has systemd add it no more."""
    shutil.rmtree(f"{UNITS}/{unit_of(netdev)}.d", ignore_errors=True)
    for path in glob.glob(f"{UNITS}/*.wants/{glob.escape(unit_of(netdev))}"):
        os.unlink(path)
    if os.path.isdir("/run/systemd/system"):
        # It runs this command again, which finds nothing left to delete or to forget.
        call("systemctl", "stop", unit_of(netdev))
        call("systemctl", "daemon-reload")
