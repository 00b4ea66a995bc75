# SPDX-License-Identifier: GPL-2.0
"""What a machine that is run by systemd does with links that are kept: run by a unit at each of its
boots, by tests/lab/reboot.py. What is seen goes to the console; the machine is off at the end."""

import json
import os
import subprocess
import sys
import time
import traceback
from pathlib import Path

DONE = Path("/var/lib/ferroce-reboot")
CONSOLE = "/dev/ttyS0"
NET = Path("/sys/class/net")
IB = Path("/sys/class/infiniband")
# Both are escaped in the name of a unit.
BRIDGE = "br-a+b"
LOCKDOWN = Path("/sys/kernel/security/lockdown")
# Seconds for what systemd and udev do by themselves, on a machine that is emulated.
PATIENCE = 300


def say(text):
    """A line on the console, which the kernel writes to as well."""
    with open(CONSOLE, "w", encoding="utf-8") as f:
        f.write(f"\r\nreboot: {text}\r\n")


def run(*argv, ok=0):
    """What a command prints; it must end so."""
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True,
                          stderr=subprocess.STDOUT, check=False)
    require(done.returncode == ok, f"{' '.join(argv)}: exit {done.returncode}: {done.stdout}")
    return done.stdout


def require(truth, text):
    if not truth:
        raise AssertionError(text)


def links():
    """The netdev of each link, and whether it is kept."""
    shown = json.loads(run("ferroce", "show", "--json"))
    return {one["device"]: (one["netdev"], one["kept"]) for one in shown}


def devices():
    """The links that there are. To ask the command takes seconds here."""
    return sorted(path.name for path in IB.iterdir()) if IB.exists() else []


def wait(what, ready):
    end = time.monotonic() + PATIENCE
    while not ready():
        require(time.monotonic() < end, f"{what}: not in {PATIENCE} s; links are {devices()}")
        time.sleep(0.2)


def card():
    return next(path.name for path in sorted(NET.iterdir()) if (path / "device").exists())


def active(unit):
    return subprocess.run(["systemctl", "-q", "is-active", unit], check=False).returncode == 0


def bridge(word):
    run("ip", "link", word, BRIDGE, *(["type", "bridge"] if word == "add" else []))


def first():
    """Links that are kept: of a card, and of a bridge that goes and is made anew."""
    run("ferroce", "add", "--keep", card(), "rdma0")
    bridge("add")
    said = run("ferroce", "add", "--keep", BRIDGE)
    require(", kept" in said, f"ferroce add --keep: {said}")
    require(links() == {"rdma0": (card(), True), "fe0": (BRIDGE, True)}, f"links are {links()}")
    unit = run("systemd-escape", "--template=ferroce@.service", BRIDGE).strip()
    for one in (unit, f"ferroce@{card()}.service"):
        require(active(one), f"{one} is not active")
    bridge("del")
    wait("the link goes with its bridge", lambda: "fe0" not in devices())
    require(f"fe0: kept for {BRIDGE}, which is not there" in run("ferroce", "show"), "not shown as kept")
    # The name of a link that is to come back is not given to another.
    run("ip", "link", "add", "other", "type", "bridge")
    require("fe1:" in run("ferroce", "add", "other"), f"links are {devices()}")
    run("ferroce", "del", "fe1")
    bridge("add")
    wait("the link comes back with its bridge", lambda: "fe0" in devices())
    say("a bridge that was made anew has its link again")
    # For now alone, and while the unit still starts: the link is there a moment before.
    run("systemctl", "stop", unit)
    wait("the link goes with its unit", lambda: "fe0" not in devices())
    require(f"fe0: kept for {BRIDGE}, and deleted for now" in run("ferroce", "show"), "not shown as deleted for now")
    run("systemctl", "start", unit)
    wait("the link comes with its unit", lambda: "fe0" in devices())


def second():
    """After a reboot: the card's link has come by itself; what is deleted comes back no more; lockdown."""
    wait("the card's link comes at boot", lambda: "rdma0" in devices())
    require(links() == {"rdma0": (card(), True)}, f"links are {links()}")
    say("after a reboot the link of the card is there")
    bridge("add")
    wait("the bridge's link comes", lambda: "fe0" in devices())
    run("ferroce", "del", "fe0")
    run("ferroce", "del", card())
    require(links() == {}, f"{links()} after ferroce del")
    bridge("del")
    bridge("add")
    run("udevadm", "settle")
    run("systemctl", "daemon-reload")
    left = [str(path) for path in Path("/etc/systemd/system").rglob("*ferroce@*")]
    require(not left and devices() == [], f"forgotten links have left {left}, {devices()}")
    say("what was deleted is forgotten")
    locked()


def locked():
    """As under Secure Boot: the doctor and add say why the module cannot be loaded."""
    run("modprobe", "-r", "ferroce")
    LOCKDOWN.write_text("integrity", encoding="ascii")
    said = run("ferroce", "add", card(), ok=1)
    require("ockdown" in said or "Operation not permitted" in said, f"ferroce add under lockdown: {said}")
    say(said.strip())
    found = json.loads(run("ferroce", "doctor", "--json", ok=1))["findings"]
    module = [one for one in found if one["check"] == "module"]
    require(len(module) == 1 and module[0]["status"] == "problem" and "integrity" in module[0]["text"]
            and "not signed" in module[0]["text"], f"the doctor says {module}")
    proof = run("sh", "-c", module[0]["proof"])
    require("[integrity]" in proof, f"{module[0]['proof']}: {proof}")
    say(module[0]["text"])


def main():
    """The next stage; then the machine goes on."""
    stages = [first, second]
    at = int(DONE.read_text(encoding="ascii")) if DONE.exists() else 0
    try:
        # It begins while udev renames cards and loads drivers for all that it finds: a name of before is of nothing then,
        # and systemd waits a minute and a half for a netdev that udev has not come to.
        run("udevadm", "settle", f"--timeout={PATIENCE}")
        stages[at]()
    except Exception:  # pylint: disable=broad-exception-caught
        found = traceback.format_exc()
        said = subprocess.run(["journalctl", "-b", "-n", "40", "--no-pager", "-u", "ferroce@*"], stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, check=False).stdout
        say("failed\r\n" + (said + found).replace("\n", "\r\n"))
        say("because " + found.strip().splitlines()[-1])
        os.sync()
        run("systemctl", "poweroff", "--force")
        return 1
    DONE.write_text(str(at + 1), encoding="ascii")
    os.sync()
    say(f"stage {at + 1} of {len(stages)} is done")
    # Before a reboot all units end as they should, among them those of the links.
    run("systemctl", *(("--no-block", "reboot") if at + 1 < len(stages) else ("poweroff", "--force")))
    return 0


if __name__ == "__main__":
    sys.exit(main())
