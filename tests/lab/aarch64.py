# SPDX-License-Identifier: GPL-2.0
"""aarch64: module, provider and programs cross-compiled for Debian's arm64 kernel, and a guest for scenarios on it.

What it stands on is made once, in the cache, under the name of its recipe: compilers for aarch64, which are laid over
the laboratory's root, the kernel's tree prepared for arm64, and what the guest boots. Nothing of another architecture
runs while that is made: packages of arm64 are unpacked, not installed.
"""

import json
import os
import re
import shlex
import shutil
from contextlib import contextmanager
from pathlib import Path

from tests.guest.scenario import PATIENCE
from tests.lab import boot, build, config, debian, setup
from tests.lab.locks import SETTING_UP, lock
from tests.lab.say import LabError, step
from tests.lab.shell import chroot_command, in_namespace, run

# Counted up when the steps change without a change of the lists.
STEPS = 1
DISK_NEEDED = 4 << 30
ENDING = "+deb13-arm64"
TRIPLET = "aarch64-linux-gnu"
TARGET = "aarch64-unknown-linux-gnu"
# Needed on the host.
HOST_PACKAGES = ["qemu-system-arm", "cpio"]
# Laid over the root: what compiles for aarch64; @ is the compiler that the kernel was built with. Its tree has a
# library for programs of 32 bits, which the preparation makes.
TRIPLET_32 = "arm-linux-gnueabihf"
CROSS_PACKAGES = [f"@-{TRIPLET}", f"@-{TRIPLET_32}", "libc6-dev-arm64-cross"]
# Unpacked with all that they depend on; what is left out would only fill the guest's memory.
GUEST_PACKAGES = ["libc6", "busybox-static", "kmod", "iproute2", "procps", "python3", "libibverbs1",
                  "ibverbs-providers", "ibverbs-utils", "librdmacm1t64", "rdmacm-utils"]
LEFT_OUT = ("systemd", "udev", "libsystemd-shared", "perl-base", "passwd", "adduser", "debconf", "tzdata",
            "libpam-modules", "libpam-runtime", "init-system-helpers", "login.defs", "rdma-core", "media-types")
# Of the kernel's modules: what RDMA over veth needs, and the folders that the host shows to a guest.
MODULES = ("kernel/net/*", "kernel/drivers/infiniband/core/*", "kernel/drivers/infiniband/sw/*",
           "kernel/drivers/net/veth.ko*", "kernel/drivers/net/dummy.ko*", "kernel/drivers/virtio/*",
           "kernel/drivers/char/hw_random/*", "kernel/fs/9p/*", "kernel/fs/netfs/*", "kernel/fs/configfs/*",
           "kernel/lib/*", "kernel/crypto/*", "kernel/arch/arm64/*", "kernel/drivers/net/bonding/*",
           "kernel/drivers/net/macvlan.ko*")
# One place in the root whatever the folder is called outside, for builds remember where they happened.
INSIDE = "/mnt"
TREE = f"{INSIDE}/linux"


class Cross(config.Upon):
    """The kernel of arm64 and what its guest has."""

    @property
    def cc(self):
        return self.stamp["cc"]

    @property
    def guest(self):
        return self.folder / "guest"

    @property
    def vmlinuz(self):
        return self.folder / "vmlinuz"


def recipe(root):
    parts = [STEPS, root.recipe, root.version, CROSS_PACKAGES, GUEST_PACKAGES, LEFT_OUT, MODULES]
    return config.digest(parts)


def make(root):
    """What it all stands on; made if it is not there."""
    setup.host_packages(HOST_PACKAGES)
    final = config.cache() / f"aarch64-{recipe(root)}"
    with lock(config.cache() / "aarch64.lock", SETTING_UP):
        if not final.exists():
            make_new(root, final)
    return Cross(root, final)


def laid_over(root, folder, command, **kw):
    """A command that runs another in the root with the cross compilers laid over it, and the folder in its place."""
    point, cross = (folder / "root").resolve(), (folder / "cross").resolve()
    lower = shlex.quote(f"{cross}:{root.path.resolve()}")
    rest = shlex.join(chroot_command(point, command, **kw))
    return in_namespace(f"mount -t overlay overlay -o lowerdir={lower} {shlex.quote(str(point))}\nexec {rest}")


def script(root, new, lines, what, log, over=False):
    """Runs shell lines in the root, or that with the compilers over it; without a log returns what they have printed."""
    path = new / "script.sh"
    path.write_text(lines, encoding="utf-8")
    command, binds = ["sh", "-e", f"{INSIDE}/{path.name}"], [(new, INSIDE)]
    if over:
        return run(laid_over(root, new, command, binds=binds), what, log)
    return run(chroot_command(root.path.resolve(), command, binds=binds), what, log)


def apt(arch):
    """Shell lines that define A, apt-get's options for an architecture with lists of its own, and fetch these."""
    lines = ["mkdir -p /tmp/lists/partial /tmp/cache/archives/partial", "A='-q -y -o Debug::NoLocking=1 "
             "-o APT::Sandbox::User=root -o Dir::State::Lists=/tmp/lists -o Dir::Cache=/tmp/cache "
             "-o Dir::Etc::SourceParts=/dev/null -o Acquire::Languages=none'"]
    if arch != "amd64":
        lines += [": >/tmp/status", f'A="$A -o APT::Architecture={arch} -o APT::Architectures={arch} '
                                    '-o Dir::State::status=/tmp/status"']
    lines.append("apt-get $A update")
    return "\n".join(lines)


def make_new(root, final):
    if config.debian() != config.STABLE:
        raise LabError(f"aarch64 is for the kernels of {config.STABLE.kernels}; leave FERROCE_KERNEL away")
    new, log = setup.begin("aarch64", DISK_NEEDED, "the set-up for aarch64")
    for name in ("cross", "guest", "packages", "root"):
        (new / name).mkdir(parents=True)
    kernel, cc = fetch(root, new, log)
    step(f"  prepare the tree of {kernel.release} and its Rust metadata")
    prepare_kernel(root, new, kernel, cc, log)
    step("  unpack what the guest boots")
    unpack_guest(root, new, kernel, log)
    shutil.rmtree(new / "packages")
    (new / "script.sh").unlink()
    (new / Cross.STAMP).write_text(json.dumps({"release": kernel.release, "version": kernel.version, "cc": cc}),
                                   encoding="utf-8")
    new.rename(final)
    setup.forget_old_roots(final, "aarch64-*")


def fetch(root, new, log):
    """Downloads all packages, and unpacks the compilers; returns the kernel and its compiler."""
    index = script(root, new, apt("arm64") + f"""
        apt-get $A indextargets --format '$(FILENAME)' 'Created-By: Packages' 'Release: {config.debian().kernels}' |
            while read f; do /usr/lib/apt/apt-helper cat-file "$f"; done""", "asking for kernels of arm64", None)
    kernels = debian.complete_kernels(index, ENDING)
    # That of the root, which everything else is tested with, while the archive has it.
    kernel = next((k for k in kernels if k.version == root.version), kernels[0] if kernels else None)
    if kernel is None:
        raise LabError(f"{config.debian().kernels} has no complete kernel for arm64 on this mirror now")
    step(f"  packages: kernel {kernel.release}, compilers, what the guest runs")
    rust = run(chroot_command(root.path.resolve(), ["dpkg-query", "-W", "-f", "${Version}", "rustc"]),
               "asking for the version of rustc", None).strip()
    names = " ".join(f"{p}={kernel.version}" for p in kernel.packages())
    script(root, new, apt("arm64") + f"""
        cd {INSIDE}/packages
        mkdir kernel rust guest
        (cd kernel && apt-get $A download {names})
        (cd rust && apt-get $A download libstd-rust-dev={rust})
        apt-get $A install --no-install-recommends --download-only {" ".join(GUEST_PACKAGES)}
        mv /tmp/cache/archives/*.deb guest/
        dpkg -x kernel/{kernel.headers}_*.deb {INSIDE}/headers""", "fetching packages of arm64", log)
    text = (new / f"headers/usr/src/{kernel.headers}/.config").read_text(encoding="utf-8")
    if "CONFIG_RUST=y" not in text:
        raise LabError(f"the kernel {kernel.release} is built without CONFIG_RUST, so it cannot load a Rust module")
    if not rust.startswith(setup.rustc_version(text)):
        raise LabError(f"the kernel {kernel.release} was built with rustc {setup.rustc_version(text)}, and the root "
                       f"has {rust}")
    cc = re.search(r'^CONFIG_CC_VERSION_TEXT="(\S+)', text, re.M).group(1)
    compilers = " ".join(CROSS_PACKAGES).replace("@", re.search(r"gcc-\d+$", cc).group(0))
    script(root, new, apt("amd64") + f"""
        apt-get $A install --no-install-recommends --download-only {compilers}
        for f in /tmp/cache/archives/*.deb {INSIDE}/packages/rust/*.deb; do dpkg -x $f {INSIDE}/cross; done
        rm -rf {INSIDE}/cross/usr/share""", "fetching compilers for aarch64", log)
    return kernel, cc


def kernel_make(release, cc):
    cc_32 = cc.replace(TRIPLET, TRIPLET_32)
    return (f"make -j{os.cpu_count() or 2} ARCH=arm64 CROSS_COMPILE={TRIPLET}- CC={cc} "
            f"CROSS_COMPILE_COMPAT={TRIPLET_32}- CC_COMPAT={cc_32} KERNELRELEASE={release}")


def prepare_kernel(root, new, kernel, cc, log):
    """The kernel's tree, with the Rust metadata that Debian does not ship: as setup.prepare_kernel does it."""
    rust = next((root.path / "usr/src").glob("rustc-*/library")).relative_to(root.path)
    build = kernel_make(kernel.release, cc)
    script(root, new, f"""
        cd {INSIDE}
        dpkg -x packages/kernel/{kernel.source}_*.deb source
        tar xf source/usr/src/{kernel.source}.tar.xz
        rm -r source
        mv {kernel.source} linux
        cp headers/usr/src/{kernel.headers}/.config headers/usr/src/{kernel.headers}/Module.symvers linux/
        rm -r headers
        cd linux
        cp .config .config.debian
        {build} olddefconfig
        cmp .config .config.debian || {{ diff .config.debian .config; exit 1; }}
        RUST_LIB_SRC=/{rust} {build} prepare modules_prepare
        test -e rust/libkernel.rmeta
        # Modules are built against headers, metadata and tools; the rest is most of the size.
        rm -rf Documentation
        find . -name '*.c' -not -path './scripts/*' -not -path './rust/*' -not -path './tools/*' -delete
        find arch -mindepth 1 -maxdepth 1 -type d -not -name arm64 -not -name arm -exec rm -r {{}} +""",
           "preparing the kernel's tree for arm64", log, over=True)


def unpack_guest(root, new, kernel, log):
    left_out = " ".join(f"guest/{name}_*.deb" for name in LEFT_OUT)
    members = " ".join(shlex.quote(f"./usr/lib/modules/{kernel.release}/{name}") for name in MODULES)
    script(root, new, f"""
        G={INSIDE}/guest
        mkdir -p $G/usr/bin $G/usr/sbin $G/usr/lib $G/etc $G/dev $G/proc $G/sys $G/tmp $G/run $G/root $G/var/tmp
        for name in bin sbin lib; do ln -s usr/$name $G/$name; done
        cd {INSIDE}/packages
        rm -f {left_out}
        for f in guest/*.deb; do dpkg -x $f $G; done
        # What the packages do not bring. The root's busybox is the same for this processor, and can be asked.
        for name in $(busybox --list); do
            [ -e $G/usr/bin/$name ] || [ -e $G/usr/sbin/$name ] || ln -s busybox $G/usr/bin/$name
        done
        # As systemd has it: modules make no devices by themselves.
        mkdir -p $G/etc/modprobe.d
        printf 'options dummy numdummies=0\\noptions bonding max_bonds=0\\n' >$G/etc/modprobe.d/systemd.conf
        mkdir kernel/x
        dpkg -x kernel/{kernel.image}_*.deb kernel/x
        cp $(find kernel/x -name 'vmlinuz*' -type f | head -n 1) {INSIDE}/vmlinuz
        # tar fails where a pattern fits nothing, as the kernel has built in what was a module: they are looked for
        # behind it.
        dpkg-deb --fsys-tarfile kernel/{kernel.modules}_*.deb |
            tar x -C $G --wildcards {members} || true
        for name in ib_uverbs rdma_ucm veth 9p 9pnet_virtio; do
            find $G/usr/lib/modules -name "$name.ko*" | grep -q . || {{ echo "there is no module $name"; exit 1; }}
        done
        # Where there is one, what installs a module runs depmod.
        touch $G/usr/lib/modules/{kernel.release}/modules.order
        depmod -b $G {kernel.release}
        cd $G/usr/share && rm -rf doc man locale lintian bash-completion info
        python3 -m compileall -q $G/usr/lib/python3.* >/dev/null""", "unpacking what the guest boots", log)


WORK = config.BUILD / "aarch64"


def build_in(cross, command, what, env=None):
    """Runs what builds something, in the root with the compilers laid over it, and the checkout at /ferroce."""
    binds = [(cross.folder.resolve(), INSIDE)]
    return build.run_build(laid_over(cross.root, cross.folder, command, cwd="/ferroce", env=env, binds=binds), what)


def module(cross):
    """ferroce.ko for the kernel of arm64, built on a copy of the sources: beside the usual one."""
    source = build.module_copy(WORK, cross.folder.name)
    step(f"build the module for {cross.release}")
    build_in(cross, f"{kernel_make(cross.release, cross.cc)} --no-print-directory -C {TREE} "
                    f"M=/ferroce/{source.relative_to(config.CHECKOUT)} modules", "building the module for aarch64")
    return source / "rust/ferroce.ko"


def cargo(cross, *words):
    env = {f"CARGO_TARGET_{TARGET.upper().replace('-', '_')}_LINKER": cross.cc}
    return build_in(cross, ["cargo", *words, "--locked", "--offline", "--target", TARGET],
                    "building the provider for aarch64", env)


def provider(cross):
    """libferroce.so. That it compiles says that its layouts are those that the source asserts for aarch64."""
    step("build the provider for aarch64")
    cargo(cross, "build", "--release", "-p", "ferroce-provider")
    return build.copy(config.BUILD / f"cargo-lab/{TARGET}/release/libferroce.so", WORK / "libferroce.so")


def is_for_it(path):
    head = path.read_bytes()[:20]
    return head[:6] == b"\x7fELF\x02\x01" and head[18:20] == (183).to_bytes(2, "little")


def provider_tests(cross):
    out = cargo(cross, "test", "--no-run", "-q", "--lib", "-p", "ferroce-provider", "--message-format=json")
    made = [json.loads(line).get("executable") for line in out.splitlines() if line.startswith("{")]
    inside = next(path for path in made if path)
    return build.copy(config.CHECKOUT / Path(inside).relative_to("/ferroce"), WORK / "provider_tests")


def layouts(cross):
    """Programs that print what the layouts of rdma-core are for C, compiled for aarch64: the provider's tests say what
    they are asked, and compare in the guest. Those for the releases whose sources the archive had."""
    folder = WORK / "layouts"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    _, missing = setup.rdma_core_notes()
    env = {"FERROCE_LAYOUTS": f"/ferroce/{folder.relative_to(config.CHECKOUT)}"}
    if missing:
        env["FERROCE_ALLOW_MISSING_SOURCES"] = "1"
    build.run_in_root(cross.root, ["cargo", "test", "-q", "--locked", "--offline", "--lib", "-p", "ferroce-provider",
                                   "those_of_rdma_core"], "comparing the layouts for x86-64", env=env)
    made = []
    for source in sorted(folder.glob("layout-*.c")):
        abi = source.stem.removeprefix("layout-")
        here = folder.relative_to(config.CHECKOUT)
        build_in(cross, f"{cross.cc} -D_GNU_SOURCE -Wall -Werror -DPABI={abi} -isystem {here}/include-{abi} "
                        f"-o {here}/{source.stem} {here}/{source.name}", f"building {source.stem} for aarch64")
        made.append(folder / source.stem)
    return made


def programs(cross):
    """The guest's programs in C. libibverbs is that of the guest; its headers are those of the root."""
    made = []
    # No library that it needs is looked for: it is there when the program runs.
    link = f"-Wl,--allow-shlib-undefined {INSIDE}/guest/usr/lib/{TRIPLET}/libibverbs.so.1 -idirafter /usr/include"
    WORK.mkdir(parents=True, exist_ok=True)
    for name in build.PROGRAMS:
        build_in(cross, build.compile_line(name, cross.cc, WORK.relative_to(config.CHECKOUT), link),
                 f"building {name} for aarch64")
        made.append(WORK / name)
    return made


@contextmanager
def stand(root):
    """What a guest boots, and the lines that finish its root."""
    cross = make(root)
    with lock(Path(f"{cross.folder}.lock"), SETTING_UP, shared=True):
        yield cross, guest_setup(cross)


def guest_setup(cross):
    """Builds everything; returns the shell lines that put it into the guest's root, which is at $M."""
    made = [*programs(cross), provider_tests(cross), *layouts(cross), build.CASES]
    return [*[f"cp {shlex.quote(str(path))} $M/srv/lab/" for path in made],
            *build.native_install(cross.release, provider(cross), module(cross), triplet=TRIPLET)]


# A model that every qemu has which Debian 12 or a later one brings, with the atomic instructions of ARMv8.1.
CPU = "neoverse-n1"
# What its guest loads before anything runs there.
DRIVERS = "virtio-rng 9pnet_virtio 9p veth ib_uverbs rdma_ucm"
# The first process of a guest without systemd and virtme-ng: it mounts what programs expect, runs one command, and ends the
# machine.
INIT = """#!/bin/sh
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t debugfs debugfs /sys/kernel/debug
mount -t devtmpfs dev /dev
mkdir -p /dev/pts /dev/shm
mount -t devpts devpts /dev/pts
mount -t tmpfs tmpfs /dev/shm
mount -t tmpfs tmpfs /tmp
mount -t tmpfs tmpfs /run
mkdir -p /run/netns /run/lock
modprobe -a @DRIVERS@
mount -t 9p -o trans=virtio,version=9p2000.L,msize=512000 results /srv/results
ip link set lo up
ulimit -l unlimited
cd /srv/lab
sh /srv/results/command.sh >/srv/results/output.txt 2>&1 </dev/null
sync
busybox reboot -f
"""


class Guest(boot.Guest):
    """Emulated by qemu, with all its files in an initramfs; for its slowness with fewer rounds of the same."""

    WHAT = "kernel of arm64"
    BOOT_LIMIT = 120 * PATIENCE
    GRACE = 180

    def _script(self, agent, extra, env):
        q = shlex.quote
        mnt = self.work / "mnt"
        mnt.mkdir(exist_ok=True)
        slow = {"PYTHONDONTWRITEBYTECODE": "1", "FERROCE_SHORT": "1", "FERROCE_PATIENCE": str(3 * PATIENCE)}
        sets = " ".join(f"{k}={q(v)}" for k, v in (env | slow).items())
        (self.results / "command.sh").write_text(f"exec env {sets} {agent}\n", encoding="utf-8")
        (self.work / "init").write_text(INIT.replace("@DRIVERS@", DRIVERS), encoding="utf-8")
        append = "console=ttyAMA0 loglevel=7 log_buf_len=4M panic=-1 oops=panic apparmor=0 mitigations=off rdinit=/init"
        qemu = boot.machine("qemu-system-aarch64", "virt,accel=tcg", CPU, 1536, self.root.vmlinuz.resolve(), append, "-no-reboot",
                            *boot.folder_of_host(self.results, "results", "results"), "-initrd", f"{mnt}/initrd")
        return "\n".join([
            *boot.own_root(self.root.guest, mnt),
            f"install -m 755 {q(str(self.work / 'init'))} $M/init",
            *extra,
            "cd $M",
            "find . | cpio --quiet -o -H newc -R 0:0 >$W/initrd",
            "exec " + shlex.join(qemu),
        ])
