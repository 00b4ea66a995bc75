# SPDX-License-Identifier: GPL-2.0
"""Makes everything the other targets stand on: host tools, virtme-ng, the Debian root with its kernel, sources.

All of it lives in the cache. Each part is made under another name and renamed when it is whole, so that what has the
right name can be trusted, and one lock keeps two set-ups from each other.
"""

import contextlib
import fcntl
import hashlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

from tests.lab import boot, config, debian, disk
from tests.lab.locks import SETTING_UP, lock
from tests.lab.say import LabError, step
from tests.lab.shell import chroot_command, run

DISK_NEEDED = 12 << 30


def root_path():
    return config.cache() / f"root-{config.recipe()}"


def ready_root():
    """The made root, or None when it is not there or not whole."""
    try:
        root = config.Root(root_path())
    except (OSError, ValueError, KeyError):
        return None
    if root.recipe != config.recipe():
        return None
    kdir = root.path / root.kdir.lstrip("/")
    whole = root.vmlinuz.exists() and (kdir / "rust/libkernel.rmeta").exists() and (kdir / "Module.symvers").exists()
    return root if whole else None


def setup(refresh=False):
    """Makes what is missing and returns the root."""
    if os.geteuid():
        raise LabError("set-up needs root: it makes a Debian root and mounts it; run it as root or with sudo")
    with lock(config.cache() / "lock", SETTING_UP):
        host_packages()
        virtme_ng()
        root = None if refresh else ready_root()
        if root is None:
            root = make_root()
        disk.make(root)
        rdma_core_sources(root)
        rdma_core_programs(root)
        newer_emulator(root)
        browser(root)
        cargo_fetch(root)
    return root


def host_packages(wanted=tuple(config.HOST_PACKAGES)):
    out = debian.output(["dpkg-query", "-W", "-f", "${Package} ${db:Status-Status}\n", *wanted])
    have = {line.split()[0] for line in out.splitlines() if line.endswith(" installed")}
    missing = [p for p in wanted if p not in have]
    if not missing:
        return
    if not shutil.which("apt-get"):
        raise LabError("set-up is for Debian 12 or 13, and this machine has no apt-get; install by hand: "
                       + " ".join(missing))
    step(f"install on this machine: {' '.join(missing)}")
    log = config.cache() / "setup.log"
    env = dict(os.environ, DEBIAN_FRONTEND="noninteractive")
    for words, what in ((["update"], "refreshing the package lists of this machine"),
                        (["install", "-y", "--no-install-recommends", *missing], "installing packages on this machine")):
        debian.wait_for_apt()
        run(["apt-get", "-q", "-o", f"DPkg::Lock::Timeout={debian.APT_PATIENCE}", *words], what, log, env=env)


def virtme_ng():
    """virtme-ng at its pinned version in a virtual environment of its own."""
    venv = config.cache() / "venv"
    stamp = venv / "ferroce-stamp"
    # The environment points at the interpreter that made it: another one makes it anew.
    want = f"virtme-ng {config.VIRTME_NG} {sys.version_info[:2]} {venv}"
    with contextlib.suppress(OSError):
        if stamp.read_text(encoding="utf-8") == want and (venv / "bin/vng").exists():
            return
    step(f"install virtme-ng {config.VIRTME_NG}")
    log = config.cache() / "setup.log"
    shutil.rmtree(venv, ignore_errors=True)
    run([sys.executable, "-m", "venv", venv], "making a Python environment", log)
    run([venv / "bin/python", "-m", "pip", "install", "-q", f"virtme-ng=={config.VIRTME_NG}"],
        "installing virtme-ng with pip (is the Python package index reachable?)", log)
    stamp.write_text(want, encoding="utf-8")


def remove_tree(path):
    """Deletes a tree, but never through something mounted in it."""
    path = Path(path)
    if not path.exists():
        return
    real = str(path.resolve())
    for line in Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines():
        point = line.split()[4]
        if point == real or point.startswith(real + "/"):
            raise LabError(f"{point} is mounted inside {path}, which is to be removed; unmount it first")
    shutil.rmtree(path)


def in_root(root, command, what, log, **kw):
    return run(chroot_command(root, command, writable=True, **kw), what, log)


def require_room(needed, what):
    free = shutil.disk_usage(config.cache()).free
    if free < needed:
        raise LabError(f"{config.cache()} has {free >> 30} GiB free and {what} needs {needed >> 30}; make room or name "
                       "another place in FERROCE_CACHE")


def begin(name, needed, what, log=None):
    """Where something large is to be made until it is whole, and the log of that; what was left there before goes."""
    cache = config.cache()
    require_room(needed, what)
    log = cache / f"{log or name}.log"
    log.write_text("", encoding="utf-8")
    step(f"make {what} in {cache} (some minutes, once; log in {log})")
    for old in cache.glob(f"new-{name}-*"):
        remove_tree(old)
    return cache / f"new-{name}-{os.getpid()}", log


def make_root():
    """The Debian root: packages, kernel, prepared kernel tree."""
    cache, site, made_of = config.cache(), debian.mirror(), config.debian()
    new, log = begin("root", DISK_NEEDED, f"a Debian {made_of.suite} root from {site}", log="setup")
    step("  Debian packages: tools to build with, stock RDMA programs")
    options = [f"--aptopt={line}" for line in debian.apt_config()]
    run(["mmdebstrap", "--mode=root", "--variant=minbase", *options, "--include=" + ",".join(config.ROOT_PACKAGES),
         made_of.suite, new, *[f"deb {site} {suite} main" for suite in made_of.suites]], "making the Debian root", log)
    for folder in ("ferroce", "cache"):
        (new / folder).mkdir(exist_ok=True)
    sources = new / "etc/apt/sources.list.d"
    (sources / "src.list").write_text(
        f"deb-src {site} {config.SUITE} main\ndeb-src {site} sid main\n", encoding="utf-8")
    in_root(new, ["apt-get", "-q", "update"], "reading the package lists", log)
    kernel, config_text = install_kernel(new, log)
    install_rust(new, config_text, kernel, log)
    kdir, cc = prepare_kernel(new, kernel, config_text, log)
    unpack_pyverbs(new, log)
    stamp = {"recipe": config.recipe(), "release": kernel.release, "version": kernel.version, "kdir": kdir, "cc": cc,
             "made": time.strftime("%Y-%m-%d")}
    (new / config.Root.STAMP).write_text(json.dumps(stamp, indent=1), encoding="utf-8")
    final = root_path()
    with lock(cache / f"{final.name}.lock", SETTING_UP):
        remove_tree(final)
        new.rename(final)
    root = ready_root()
    if root is None:
        raise LabError(f"the root in {final} is not whole although every step succeeded; see {log}")
    forget_old_roots(final)
    step(f"  the root is ready: kernel {root.release}")
    return root


def forget_old_roots(keep, pattern="root-*"):
    """Removes roots of a kind that nobody uses, but the last three others: several kernels may be tested in turn."""
    others = sorted((p for p in config.cache().glob(pattern) if p.is_dir() and p != keep),
                    key=lambda p: p.stat().st_mtime)
    for path in others[:-3]:
        with open(f"{path}.lock", "a", encoding="utf-8") as f:
            try:
                fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            with contextlib.suppress(LabError):
                remove_tree(path)
                disk.of(path).unlink(missing_ok=True)


@contextlib.contextmanager
def in_use(root):
    """Keeps a root from being replaced while something runs in it."""
    with lock(config.cache() / f"{root.path.name}.lock", SETTING_UP, shared=True):
        yield root


def package_index(root):
    """The package index of where the kernel comes from, as apt has it."""
    script = ("apt-get indextargets --format '$(FILENAME)' 'Created-By: Packages' "
              f"'Release: {config.debian().kernels}' | while read f; do /usr/lib/apt/apt-helper cat-file \"$f\"; done")
    done = subprocess.run(chroot_command(root, f"sh -c {shlex.quote(script)}", writable=True),
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, errors="replace", timeout=120)
    return done.stdout


def install_kernel(new, log):
    """The newest complete kernel: image and modules unpacked, headers and source installed."""
    made_of = config.debian()
    kernels = debian.complete_kernels(package_index(new), made_of.ending)
    wanted = "" if made_of == config.UNSTABLE else config.wanted_kernel()
    offered = ", ".join(k.release for k in kernels)
    kernels = [k for k in kernels if not wanted or re.match(re.escape(wanted) + r"(?![0-9])", k.release)]
    if wanted and offered and not kernels:
        raise LabError(f"FERROCE_KERNEL={wanted}: {made_of.kernels} has {offered}")
    if not kernels:
        raise LabError(f"{made_of.kernels} has no complete kernel of {'.'.join(map(str, debian.OLDEST))} or "
                       "later on this mirror now; name another mirror in FERROCE_MIRROR or try again later")
    kernel = kernels[0]
    step(f"  kernel {kernel.release}, version {kernel.version}")
    in_root(new, ["apt-get", "-q", "install", "-y", "--no-install-recommends", "-t", made_of.kernels,
                  f"{kernel.headers}={kernel.version}", f"{kernel.source}={kernel.version}"],
            "installing the kernel's headers and source", log)
    wanted = " ".join(f"{p}={kernel.version}" for p in (kernel.image, kernel.modules))
    # Unpacked, not installed: nothing here needs an initramfs or a boot loader.
    in_root(new, f"""sh -ec '
        mkdir -p /var/tmp/kernel; cd /var/tmp/kernel
        apt-get -q download {wanted}
        for f in *.deb; do dpkg -x $f /var/tmp/kernel/x; done
        cd x
        if [ -d lib ]; then mkdir -p usr; cp -a lib usr/; rm -r lib; fi
        cp -a . /; cd /; rm -r /var/tmp/kernel
        R={kernel.release}
        [ -e /usr/lib/modules/$R/vmlinuz ] || cp /boot/vmlinuz-$R /usr/lib/modules/$R/vmlinuz
        depmod $R'""", "unpacking the kernel", log)
    text = (new / f"usr/src/{kernel.headers}/.config").read_text(encoding="utf-8")
    if "CONFIG_RUST=y" not in text:
        raise LabError(f"the kernel {kernel.release} is built without CONFIG_RUST, so it cannot load a Rust module")
    return kernel, text


def rustc_version(config_text):
    """The compiler a kernel was built with, such as 1.85.1, from its configuration."""
    number = int(re.search(r"^CONFIG_RUSTC_VERSION=(\d+)", config_text, re.M).group(1))
    return f"{number // 100000}.{number // 100 % 1000}.{number % 100}"


def install_rust(new, config_text, kernel, log):
    """rustc and its company in exactly the version the kernel was built with."""
    want = rustc_version(config_text)
    step(f"  rustc {want}, as the kernel was built with")
    out = run(chroot_command(new, ["apt-cache", "madison", "rustc"], writable=True), "asking for rustc", None)
    versions = [line.split("|")[1].strip() for line in out.splitlines() if line.count("|") == 2]
    fitting = [v for v in versions if re.match(re.escape(want) + r"\b", v)]
    if not fitting:
        raise LabError(f"kernel {kernel.release} was built with rustc {want}, and {config.debian().suite} offers only "
                       f"{', '.join(sorted(set(versions)))}")
    in_root(new, ["apt-get", "-q", "install", "-y", "--no-install-recommends", "--allow-downgrades",
                  *[f"{p}={fitting[0]}" for p in config.RUST_PACKAGES]], f"installing rustc {want}", log)


def prepare_kernel(new, kernel, config_text, log):
    """Regenerates the Rust metadata Debian does not ship, from the same source, configuration and compilers."""
    step("  prepare the kernel tree and its Rust metadata (a minute)")
    kdir = f"/usr/src/{kernel.source}"
    cc = re.search(r'^CONFIG_CC_VERSION_TEXT="(\S+)', config_text, re.M).group(1)
    rust = f"/usr/src/rustc-{rustc_version(config_text)}/library"
    in_root(new, f"""sh -ec '
        cd /usr/src; tar xf {kernel.source}.tar.xz; rm {kernel.source}.tar.xz
        cp {kernel.headers}/.config {kernel.headers}/Module.symvers {kdir}/
        cd {kdir}; cp .config .config.debian
        make ARCH=x86 CC={cc} KERNELRELEASE={kernel.release} olddefconfig
        cmp .config .config.debian || {{ echo the configuration changed; exit 1; }}
        RUST_LIB_SRC={rust} make -j{os.cpu_count() or 2} ARCH=x86 CC={cc} KERNELRELEASE={kernel.release} \
            prepare modules_prepare
        test -e rust/libkernel.rmeta
        rm -rf Documentation'""", "preparing the kernel tree", log)
    return kdir, cc


def unpack_pyverbs(new, log):
    """The pyverbs tests of rdma-core, which Debian ships partly compressed."""
    in_root(new, """sh -ec '
        mkdir -p /srv/pyverbs; cp -r /usr/share/doc/rdma-core/tests /srv/pyverbs/
        gunzip -f /srv/pyverbs/tests/*.gz'""", "unpacking the pyverbs tests", log)


def rdma_core_sources(root):
    """Source packages of rdma-core for the provider's layout tests: one of each private ABI. Where the archive has gone on,
    what has come after it stands for it if it has the same interface, and a note says so."""
    cache, log = config.cache(), config.cache() / "setup.log"
    missing = [v for v in config.RDMA_CORE if not any(path.exists() for path in rdma_core_told(v))]
    if not missing:
        return
    step(f"  sources of rdma-core {' and '.join(missing)}")
    in_root(root.path, ["apt-get", "-q", "update"], "reading the source lists", log)

    def asked(*words):
        return run(chroot_command(root.path, words, writable=True), "asking for rdma-core", None)

    offered = sorted(set(re.findall(r"^Version: (\S+)$", asked("apt-cache", "showsrc", "--only-source", "rdma-core"), re.M)),
                     key=debian.version_key)
    for version in missing:
        complete, absent = rdma_core_told(version)
        # Itself, or the newest of its series, or of all.
        picked = max(offered, key=lambda v: (v.startswith(f"{version}-"), v.split(".")[0] == version.split(".")[0], offered.index(v)))
        new, final = cache / f"new-rdma-core-{version}", complete.parent
        remove_tree(new)
        remove_tree(final)
        new.mkdir()
        # The upstream tarball alone, by the name and checksum of the signed index: the headers are in it, and the
        # rest of a source package is not on every mirror.
        uri, name, checksum = re.search(r"^'(\S+)' (\S+\.orig\.tar\.\w+) \d+ (SHA256:\w+)", asked(
            "apt-get", "source", "--print-uris", "--only-source", f"rdma-core={picked}"), re.M).groups()
        in_root(root.path, f"""sh -ec 'cd /tmp
            /usr/lib/apt/apt-helper download-file {uri} {name} {checksum}
            tar xf {name} --strip-components=1 --no-same-owner -C /cache/{new.name}'""",
                f"fetching the source of rdma-core {picked}", log)
        abi, wanted = private_abi(new), config.PRIVATE_ABI[version]
        note = "" if picked.startswith(f"{version}-") else f"the archive has no rdma-core {version} any more, and now has {picked}: " \
            + ("the provider's layouts are compared with that" if abi == wanted else f"its private ABI is {abi}, and nothing has {wanted}")
        if note:
            step(f"  note: {note}")
        if abi == wanted:
            (new / complete.name).write_text(note, encoding="utf-8")
            new.rename(final)
        else:
            absent.write_text(note, encoding="utf-8")
            remove_tree(new)


def rdma_core_told(version):
    """Where a note stands of sources that are here, and of those that the archive of this root has not: asked again with
    another root."""
    folder = config.cache() / f"rdma-core-{version}"
    return folder / ".complete", folder.with_name(f"{folder.name}.absent-{config.recipe()}")


def own_lists(suite):
    """Shell lines for apt with lists and sources of its own, by $A: nothing else is ever taken from that suite."""
    return f"""mkdir -p /tmp/lists/partial /tmp/packages/partial
        echo "deb {debian.mirror()} {suite} main" >/tmp/sources
        A="-q -o Dir::Etc::SourceList=/tmp/sources -o Dir::Etc::SourceParts=/dev/null -o Dir::State::Lists=/tmp/lists"
        apt-get $A update"""


def unpacked(root, final, what, *packages):
    """Debian's packages, unpacked, with what they need beyond the root, in a folder of another name until it is whole."""
    suite, new = config.debian().suite, config.cache() / f"new-{final.name}"
    step(f"  {what} of Debian {suite}")
    remove_tree(new)
    new.mkdir()
    in_root(root.path, f"""sh -ec '
        {own_lists(suite)}
        apt-get $A -o Dir::Cache::Archives=/tmp/packages install -y --download-only --no-install-recommends {" ".join(packages)}
        for f in /tmp/packages/*.deb; do dpkg -x $f /cache/{new.name}; done
        rm -rf /cache/{new.name}/usr/share/doc'""", f"fetching {what} of Debian {suite}", config.cache() / "setup.log")
    return new


def browser(root):
    """The browser in which the pages of `ferroce trace` are tried, with a font."""
    final = config.browser()
    if not final.exists():
        unpacked(root, final, "a browser without a window", *config.BROWSER_PACKAGES).rename(final)
        forget_old_roots(final, "browser-*")


def newer_emulator(root):
    """Where this machine's qemu is older than that of the root's Debian, the latter, unpacked, with the root's libraries:
    what guests do takes two thirds of the time there."""
    final = config.newer_emulator()
    if final.exists() or boot.is_new_enough(boot.emulator()):
        return
    new = unpacked(root, final, "qemu, which is faster than this machine's,", "qemu-system-x86")
    libraries = "usr/lib/x86_64-linux-gnu"
    places = [f"{final}/{libraries}", f"{root.path.resolve()}/{libraries}"]
    program = new / boot.QEMU
    program.write_text("#!/bin/sh\nexec " + shlex.join([
        f"{root.path.resolve()}/usr/lib64/ld-linux-x86-64.so.2", "--library-path", ":".join(places),
        f"{final}/usr/bin/{boot.QEMU}", "-L", f"{final}/usr/share/qemu", "-L", f"{final}/usr/share/seabios"])
        + ' "$@"\n', encoding="utf-8")
    program.chmod(0o755)
    new.rename(final)
    forget_old_roots(final, "qemu-*")


def rdma_core_programs(root):
    """Debian's packages of the newer rdma-core, unpacked, for a guest whose own are older."""
    final, new = config.newer_rdma_core(), config.cache() / "new-rdma-core-programs"
    if final.exists():
        return
    suite, abi = config.RDMA_CORE[config.NEWER], config.PRIVATE_ABI[config.NEWER]
    step(f"  programs of rdma-core {config.NEWER}")
    remove_tree(new)
    new.mkdir()
    packages, pyverbs = (" ".join(f"{name}/{suite}" for name in names).replace("@", "$P")
                         for names in (config.NEWER_PACKAGES, config.NEWER_PYVERBS))
    in_root(root.path, f"""sh -ec '
        {own_lists(suite)}
        cd /tmp/packages
        apt-get $A download {packages}
        P=$(apt-cache $A show python3-pyverbs | sed -n "s/^Depends:.*libpython\\(3[.][0-9]*\\) .*/\\1/p" | head -n 1)
        apt-get $A download {pyverbs} || echo "there is no pyverbs of it"
        for f in *.deb; do dpkg -x $f /cache/{new.name}; done
        rm -rf /cache/{new.name}/usr/share/doc'""",
            f"fetching the programs of rdma-core {config.NEWER}", config.cache() / "setup.log")
    library = next(new.glob("usr/lib/*/libibverbs.so.1"))
    if f"IBVERBS_PRIVATE_{abi}".encode() not in library.read_bytes():
        step(f"  note: the archive has no libibverbs of the private ABI {abi} any more, so none runs in the guest")
        remove_tree(new / "usr")
    new.rename(final)


def private_abi(source):
    """The number of the interface between libibverbs and its providers, from the sources of rdma-core."""
    found = re.search(r'^set\(IBVERBS_PABI_VERSION "(\d+)"\)', (source / "CMakeLists.txt").read_text(encoding="utf-8"),
                      re.M)
    return int(found.group(1)) if found else None


def rdma_core_notes():
    """What is to be said of the sources, and the versions that are missing."""
    told = {version: [path.read_text(encoding="utf-8") if path.exists() else None for path in rdma_core_told(version)]
            for version in config.RDMA_CORE}
    notes = [note for both in told.values() for note in both if note]
    return notes, [version for version, (complete, absent) in told.items() if complete is None and absent is not None]


def cargo_fetch(root):
    """The crates of Cargo.lock, so that later builds need no network."""
    lockfile = config.CHECKOUT / "Cargo.lock"
    if not lockfile.exists():
        return
    want = hashlib.sha256(lockfile.read_bytes()).hexdigest()[:16]
    stamp = config.cache() / "cargo" / f"fetched-{want}"
    if stamp.exists():
        return
    step("  crates named in Cargo.lock")
    run(chroot_command(root.path, ["cargo", "fetch", "-q", "--locked"], cwd="/ferroce"),
        "fetching crates (is the crate registry reachable?)", config.cache() / "setup.log")
    stamp.touch()
