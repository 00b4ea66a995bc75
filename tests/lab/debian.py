# SPDX-License-Identifier: GPL-2.0
"""What the Debian archive offers: the host's mirror and proxies, and the newest kernel that is complete."""

import errno
import fcntl
import os
import re
import subprocess
import time
from dataclasses import dataclass

from tests.lab.say import LabError, step

# Rust abstractions the module is written for are those of 7.2.
OLDEST = (7, 2)


# Seconds for another apt on this machine to end, such as the one that a new machine starts by itself.
APT_PATIENCE = 900
APT_LOCKS = ("/var/lib/dpkg/lock-frontend", "/var/lib/apt/lists/lock", "/var/cache/apt/archives/lock")


def wait_for_apt():
    """Waits while another apt is at work: of its locks, apt itself waits for the first alone."""
    end = time.monotonic() + APT_PATIENCE
    said = False
    while held := next((path for path in APT_LOCKS if locked(path)), None):
        if not said:
            step(f"another program installs packages on this machine (it holds {held}); waiting for it")
            said = True
        if time.monotonic() > end:
            raise LabError(f"{held} has been held by another program for {APT_PATIENCE} s; end it, and try again")
        time.sleep(2)


def locked(path):
    try:
        with open(path, "r+", encoding="utf-8") as f:
            fcntl.lockf(f, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except OSError as e:
        return e.errno in (errno.EACCES, errno.EAGAIN)
    return False


def apt_config():
    """apt's own settings that a second apt needs to reach the same archive: proxies and what to verify."""
    out = output(["apt-config", "dump"])
    keep = []
    for line in out.splitlines():
        if re.match(r'Acquire::(https?|ftp)(::[\w.-]+)?::(Proxy|CaInfo|CaPath|Verify-Peer|Verify-Host)(::\S+)? "', line) \
                or re.match(r'Acquire::(Check-Valid-Until|Check-Date|Retries) "', line):
            keep.append(line)
    return keep


def output(argv):
    """Output of a program, empty when it is not there or fails."""
    try:
        return subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                              text=True, errors="replace", timeout=60).stdout
    except (OSError, subprocess.TimeoutExpired):
        return ""


def pick_mirror(targets):
    """The mirror of the Debian archive proper among apt's index targets, lines of `URI|suite|component`."""
    for line in targets.splitlines():
        uri, _, rest = line.partition("|")
        suite, _, component = rest.partition("|")
        if component.strip() != "main" or "security" in suite or "security" in uri:
            continue
        if not re.match(r"(bookworm|trixie|forky|sid|stable|oldstable|testing|unstable)([-/].*)?$", suite):
            continue
        if uri.startswith("mirror+file:"):
            uri = first_of_list(uri[len("mirror+file:"):])
        if uri and re.match(r"(https?|file|tor\+https?|copy):", uri):
            return uri.rstrip("/")
    return None


def first_of_list(path):
    """The first mirror of a list such as cloud images use."""
    try:
        with open(path.rstrip("/"), encoding="utf-8") as f:
            for line in f:
                if line.strip() and not line.startswith("#"):
                    return line.split()[0]
    except OSError:
        pass
    return None


def mirror():
    """Where packages come from: FERROCE_MIRROR, or what the host's apt uses, which reads its lists of both formats."""
    chosen = os.environ.get("FERROCE_MIRROR")
    if chosen:
        return chosen.rstrip("/")
    targets = ["apt-get", "indextargets", "--format", "$(REPO_URI)|$(RELEASE)|$(COMPONENT)", "Created-By: Packages"]
    found = pick_mirror(output(targets))
    if not found:
        # A machine whose lists were never fetched, or cleaned away, knows its sources only after this.
        wait_for_apt()
        subprocess.run(["apt-get", "-q", "update"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=False)
        found = pick_mirror(output(targets))
    if not found:
        raise LabError("apt's configuration names no Debian mirror; FERROCE_MIRROR=URL names one")
    return found


@dataclass(frozen=True)
class Kernel:
    """One kernel of the archive with every package of its set."""

    release: str
    version: str
    image: str
    modules: str
    headers: str
    source: str

    def packages(self):
        """Names to be asked for, each at `version`."""
        return [self.image, self.modules, self.headers, self.source]


def version_key(release):
    return tuple(map(int, re.findall(r"\d+", release.split("+", 1)[0])))


def complete_kernels(index, suffix="+deb13-amd64"):
    """Kernels of a package index that have image, modules, headers and source of one version, newest first. One whose packages
    are still arriving is left out."""
    have = set(re.findall(r"^Package: (\S+)\n(?:.+\n)*?Version: (\S+)$", index, re.M))
    found = []
    for name, version in have:
        number = name.removeprefix("linux-headers-").removesuffix(suffix)
        if name != f"linux-headers-{number}{suffix}" or not number.replace(".", "").isdigit() or version_key(number)[:2] < OLDEST:
            continue
        release, base = number + suffix, number + suffix.rsplit("-", 1)[0]
        one = Kernel(release, version, f"linux-binary-{release}", f"linux-modules-{release}", name,
                     f"linux-source-{'.'.join(number.split('.')[:2])}")
        if all((package, version) in have for package in (*one.packages(), f"linux-headers-{base}-common", f"linux-kbuild-{base}")):
            found.append(one)
    return sorted(found, key=lambda k: version_key(k.release), reverse=True)
