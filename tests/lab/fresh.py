# SPDX-License-Identifier: GPL-2.0
"""Debian roots as debootstrap makes them, with the kernel and nothing of ours, for guests that install the packages as
their owner would. What the packages ask for is in an archive inside, made by apt's own choice: a guest has no network.
"""

import json
import re
import shlex
import shutil
from contextlib import contextmanager

from tests.lab import build, config, deb, debian, disk, setup
from tests.lab.locks import SETTING_UP, lock
from tests.lab.shell import chroot_command, run

# Counted up when the steps change.
RECIPE_VERSION = 1
DISK_NEEDED = 2 << 30
# Beside what every Debian has: what virtme-ng boots by, and the interpreter of the agent that runs the scenarios.
PROGRAMS = ("busybox-static", "python3", "initramfs-tools")
ARCHIVE = "srv/archive"
# depmod, which the packages start, reads every module of the kernel: for those of hardware that is not here it takes an
# emulated guest minutes.
MODULES = "/usr/lib/modules/*/kernel"
LEFT_OUT = tuple(f"{MODULES}/{name}" for name in ("drivers/*", "sound/*", "fs/*", "net/bluetooth/*", "net/mac80211/*",
                                                  "net/wireless/*"))
KEPT = tuple(f"{MODULES}/{name}" for name in (
    "drivers/infiniband/core/*", "drivers/infiniband/sw/*", "drivers/infiniband/ulp/*", "drivers/virtio/*",
    "drivers/block/virtio_blk.ko*", "drivers/char/virtio_console.ko*", "drivers/char/hw_random/virtio-rng.ko*",
    "drivers/net/veth.ko*", "drivers/net/dummy.ko*", "drivers/net/virtio_net.ko*", "drivers/net/net_failover.ko*",
    "drivers/net/ethernet/intel/e1000/*", "fs/9p/*", "fs/netfs/*", "fs/overlayfs/*", "fs/fuse/*", "fs/configfs/*",
    "fs/erofs/*"))


def asked_for():
    """What our packages depend on or recommend, by name: the first alternative of each. What the one for DKMS asks for
    is in the laboratory's root, all but dkms."""
    text = (config.CHECKOUT / "debian/control.in").read_text(encoding="utf-8")
    # A field goes on in the lines that begin with a space.
    stanzas = [re.sub(r"\n[ \t]", " ", stanza) for stanza in text.split("\n\n")]
    names = set()
    for stanza in stanzas:
        if re.search(r"^Package: (?!ferroce-dkms)", stanza, re.M):
            for field in re.findall(r"^(?:Depends|Recommends): (.*)$", stanza, re.M):
                names |= {re.match(r"[^ (|]*", word.strip()).group() for word in field.split(",")}
    return sorted(n for n in names if n and not n.startswith(("ferroce", "$", "linux-image-")))


def recipe(root, suite):
    parts = [RECIPE_VERSION, suite, root.release, root.version, PROGRAMS, LEFT_OUT, KEPT, asked_for()]
    return config.digest(parts)


def make(root, suite):
    """The root of a suite, with the kernel of the laboratory's; made if it is not there."""
    cache = config.cache()
    final = cache / f"fresh-{suite}-{recipe(root, suite)}"
    with lock(cache / f"fresh-{suite}.lock", SETTING_UP):
        if not final.exists():
            make_new(root, suite, final)
        made = config.Root(final)
        disk.make(made)
    return made


def make_new(root, suite, final):
    site = debian.mirror()
    new, log = setup.begin(f"fresh-{suite}", DISK_NEEDED, f"a fresh Debian {suite} from {site}")
    suites = {suite, f"{config.SUITE}-backports"} | ({f"{suite}-updates"} if suite == config.SUITE else set())
    # Nothing boots by an initramfs here, and to make one takes an emulated guest longer than all the rest.
    hook = ('mkdir -p "$1/etc/initramfs-tools"; '
            'echo update_initramfs=no >"$1/etc/initramfs-tools/update-initramfs.conf"')
    rules = ["force-confold", *[f"path-exclude={path}" for path in LEFT_OUT],
             *[f"path-include={path}" for path in KEPT]]
    run(["mmdebstrap", "--mode=root", "--variant=important", *[f"--aptopt={line}" for line in debian.apt_config()],
         *[f"--dpkgopt={rule}" for rule in rules], f"--essential-hook={hook}", f"--include={','.join(PROGRAMS)}",
         suite, new, *[f"deb {site} {name} main" for name in sorted(suites)]],
        f"making a fresh Debian {suite}", log)
    for name in ("ferroce", "cache"):
        (new / name).mkdir()
    setup.in_root(new, ["apt-get", "-q", "update"], "reading the package lists", log)
    setup.in_root(new, ["apt-get", "-q", "install", "-y", "--no-install-recommends", "-t", f"{config.SUITE}-backports",
                        f"linux-image-{root.release}={root.version}"],
                  "installing the kernel (if the mirror has it no more: make setup REFRESH=1)", log)
    fill_archive(root, new, log)
    for name in ("ferroce", "cache"):
        (new / name).rmdir()
    vmlinuz = new / "usr/lib/modules" / root.release / "vmlinuz"
    if not vmlinuz.exists():
        shutil.copy(new / f"boot/vmlinuz-{root.release}", vmlinuz)
    stamp = {"recipe": recipe(root, suite), "release": root.release, "version": root.version, "kdir": "", "cc": ""}
    (new / config.Root.STAMP).write_text(json.dumps(stamp, indent=1), encoding="utf-8")
    new.rename(final)
    setup.forget_old_roots(final, f"fresh-{suite}-*")


@contextmanager
def stand(root, suite):
    """A root to boot from, kept while it is in use, and the lines that finish it for a guest."""
    made = make(root, suite)
    with setup.in_use(made):
        yield made, guest_setup(root)


def fill_archive(root, new, log):
    """Puts what our packages ask for into an archive of the root's own, the only one that its apt knows then."""
    setup.in_root(new, f"""sh -ec '
        apt-get -q clean
        apt-get -q install -y --download-only {" ".join(asked_for())}
        cd /var/cache/apt/archives
        apt-get -q download dkms'""", "fetching what the packages ask for", log)
    archive = new / ARCHIVE
    archive.mkdir(parents=True)
    for path in sorted((new / "var/cache/apt/archives").glob("*.deb")):
        path.rename(archive / path.name)
    # The tool is the laboratory's.
    run(chroot_command(root.path.resolve(), "sh -c 'dpkg-scanpackages -m . >Packages'",
                       cwd=f"/cache/{new.name}/{ARCHIVE}"), "listing what the packages ask for", log)
    for path in (new / "etc/apt/sources.list.d").iterdir():
        path.unlink()
    (new / "etc/apt/sources.list").write_text(f"deb [trusted=yes] file:/{ARCHIVE} ./\n", encoding="utf-8")
    # What the maker was to do otherwise than a Debian does.
    for folder in ("etc/apt/apt.conf.d", "etc/dpkg/dpkg.cfg.d"):
        for path in (new / folder).glob("*mmdebstrap"):
            path.unlink()
    setup.remove_tree(new / "var/lib/apt/lists")
    setup.in_root(new, ["apt-get", "-q", "update"], "reading the archive", log)


def guest_setup(root):
    """Builds the packages, and those of a next version; returns the shell lines that put them into a guest's root, $M."""
    build.c_programs(root)
    found = deb.ready(root)
    lines = [f"cp {shlex.quote(str(build.CASES))} $M/srv/lab/"]
    usual = [path for path in found if path.parent == deb.FOLDER]
    for folder, paths in (("packages", usual), ("newer", deb.newer(root, usual))):
        lines += [f"mkdir -p $M/srv/{folder}", f"cp {shlex.join(map(str, paths))} $M/srv/{folder}/"]
    return lines
