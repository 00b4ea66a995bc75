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
    modules: str | None
    headers: str
    source: str

    def packages(self):
        """Names to be asked for, each at `version`."""
        return [p for p in (self.image, self.modules, self.headers, self.source) if p]


def stanzas(text):
    """Package index entries as dictionaries of their one-line fields."""
    for block in text.split("\n\n"):
        entry = {}
        for line in block.splitlines():
            if line[:1] not in (" ", "\t") and ":" in line:
                key, _, value = line.partition(":")
                entry[key] = value.strip()
        if "Package" in entry:
            yield entry


def version_key(release):
    return tuple(map(int, re.findall(r"\d+", release.split("+", 1)[0])))


def complete_kernels(index, suffix="+deb13-amd64"):
    """Kernels of a package index that have image, modules, headers and source of one version, newest first.

    Up to 7.0 the modules are part of the image; later they are a package of their own and the image's package is
    called linux-binary. A kernel whose packages are still arriving is left out.
    """
    have = {}
    depends = {}
    for entry in stanzas(index):
        key = (entry["Package"], entry.get("Version"))
        have[key] = True
        depends[key] = entry.get("Depends", "")
    found = []
    for name, version in have:
        match = re.fullmatch(r"linux-headers-(\d[\d.]*)(" + re.escape(suffix) + ")", name)
        if not match:
            continue
        release = match.group(1) + match.group(2)
        if version_key(release)[:2] < OLDEST:
            continue
        series = ".".join(match.group(1).split(".")[:2])
        modules = f"linux-modules-{release}"
        image = next((p for p in (f"linux-binary-{release}", f"linux-image-{release}-unsigned",
                                  f"linux-image-{release}") if (p, version) in have), None)
        if image is None:
            continue
        if image.startswith("linux-binary-") and (modules, version) not in have:
            continue
        needed = [f"linux-source-{series}", f"linux-headers-{match.group(1)}{suffix.rsplit('-', 1)[0]}-common",
                  f"linux-kbuild-{match.group(1)}{suffix.rsplit('-', 1)[0]}"]
        if any((p, version) not in have for p in needed):
            continue
        found.append(Kernel(release, version, image, modules if (modules, version) in have else None, name,
                            needed[0]))
    return sorted(found, key=lambda k: version_key(k.release), reverse=True)
