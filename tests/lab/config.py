# SPDX-License-Identifier: GPL-2.0
"""Where things are, and what the made root consists of. A change of the recipe makes the next set-up build it anew."""

import hashlib
import json
import os
from dataclasses import dataclass
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
BUILD = CHECKOUT / "build"

VIRTME_NG = "1.42"
RDMA_CORE = {"56.1": "trixie", "65.0": "sid"}
# The interface between libibverbs and its providers in each.
PRIVATE_ABI = {"56.1": 34, "65.0": 65}

# What a guest runs of the newer one beside its own, as Debian has it: its programs and the libraries that these need.
NEWER = "65.0"
NEWER_PACKAGES = ["libibverbs1", "ibverbs-providers", "ibverbs-utils", "libnl-3-200", "libnl-route-3-200"]
# And for its own tests, with the Python that they are built for, which stands for @. They are left out where the archive
# has not all of them.
NEWER_PYVERBS = ["python3-pyverbs", "librdmacm1t64", "libexpat1", "python@-minimal", "libpython@", "libpython@-minimal",
                 "libpython@-stdlib"]

# The browser for the pages of `ferroce trace`, and a font.
BROWSER_PACKAGES = ["chromium-headless-shell", "fonts-dejavu-core"]

# Needed on the host: to make the root and to boot it.
HOST_PACKAGES = [
    "mmdebstrap", "qemu-system-x86", "python3-venv", "python3-pip", "kmod", "util-linux", "ca-certificates",
    "debian-archive-keyring", "erofs-utils",
]

# Pinned to one version: the kernel's Rust metadata is readable by the compiler that made it alone.
RUST_PACKAGES = ["rustc", "rust-src", "rustfmt", "rust-clippy", "cargo", "libstd-rust-dev"]

ROOT_PACKAGES = [
    # What builds the module and the provider.
    "make", "gcc", "gcc-14", "libc6-dev", "bc", "bison", "flex", "libelf-dev", "libssl-dev", "pahole", "python3",
    "xz-utils", "cpio", "kmod", "bindgen", "clang", "lld", "llvm", "libclang-dev", "dpkg-dev", "ca-certificates",
    "libibverbs-dev", "librdmacm-dev", "git",
    # What the guest runs.
    "rdma-core", "ibverbs-utils", "ibverbs-providers", "rdmacm-utils", "perftest", "infiniband-diags",
    "python3-pyverbs", "python3-scapy", "tshark", "tcpdump", "iproute2", "iputils-ping", "ethtool", "procps",
    "strace", "gdb", "udev", "busybox-static", "gzip", "nftables",
    # The kernel's own users of RDMA, and what lives on librdmacm.
    "fio", "nvme-cli", "nfs-kernel-server", "nfs-common", "open-iscsi", "targetcli-fb", "srptools", "ucx-utils",
    "libfabric-bin",
    # What makes the Debian packages.
    "debhelper", "dh-dkms", "fakeroot", "lintian",
]

# Counted up when the steps change without a change of the lists above.
RECIPE_VERSION = 1


@dataclass(frozen=True)
class Debian:
    """What a root is made of: a suite, what else its packages come from, which of these has the kernel, and how the names
    of its kernels end."""

    suite: str
    others: tuple
    kernels: str
    ending: str

    @property
    def suites(self):
        return (self.suite, *self.others)


# Ours, and what the packages are built for.
STABLE = Debian("trixie", ("trixie-updates", "trixie-backports"), "trixie-backports", "+deb13-amd64")
UNSTABLE = Debian("sid", (), "sid", "+deb14-amd64")
SUITE = STABLE.suite


def wanted_kernel():
    """FERROCE_KERNEL, such as 7.2, asks for the newest complete kernel whose release begins so, sid for that of sid, with
    everything else of sid; it gets a root of its own, so that two kernels can be tested in turn."""
    return os.environ.get("FERROCE_KERNEL", "")


def debian():
    """What today's root is made of."""
    return UNSTABLE if wanted_kernel() == UNSTABLE.suite else STABLE


def digest(parts):
    """Stands for all of these in the name of what is made of them."""
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]


def recipe():
    """Names everything the root is made of, so that a root made otherwise is not taken for this one."""
    parts = [RECIPE_VERSION, debian().suite, sorted(RDMA_CORE.items()), sorted(ROOT_PACKAGES), sorted(RUST_PACKAGES)]
    if wanted_kernel():
        parts.append(wanted_kernel())
    return digest(parts)


def cache():
    """The folder that outlives checkouts."""
    text = os.environ.get("FERROCE_CACHE")
    if text:
        return Path(text).absolute()
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(base).absolute() / "ferroce"


def newer_rdma_core():
    """Where the packages of the newer rdma-core are unpacked; without `usr` where the archive has no such."""
    return cache() / f"rdma-core-{NEWER}-programs-{digest([recipe(), NEWER_PACKAGES, NEWER_PYVERBS])}"


def newer_emulator():
    """Where Debian's qemu for the release of the root is unpacked."""
    return cache() / f"qemu-{recipe()}"


def browser():
    return cache() / f"browser-{digest([recipe(), BROWSER_PACKAGES])}"


class Root:
    """The made root and the kernel in it, as its stamp describes them."""

    STAMP = "etc/ferroce-lab.json"

    def __init__(self, path):
        self.path = Path(path)
        with open(self.path / self.STAMP, encoding="utf-8") as f:
            stamp = json.load(f)
        self.recipe = stamp["recipe"]
        self.release = stamp["release"]
        self.version = stamp["version"]
        # Inside the root.
        self.kdir = stamp["kdir"]
        self.cc = stamp["cc"]

    @property
    def vmlinuz(self):
        return self.path / "usr/lib/modules" / self.release / "vmlinuz"


class Upon:
    """A kernel that was made upon the root, as its stamp describes it. It takes the place of `Root` for a guest."""

    STAMP = "stamp.json"

    def __init__(self, root, folder):
        self.root = root
        # Where the judges of captures run.
        self.path = root.path
        self.folder = Path(folder)
        with open(self.folder / self.STAMP, encoding="utf-8") as f:
            self.stamp = json.load(f)
        self.release = self.stamp["release"]
