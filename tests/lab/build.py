# SPDX-License-Identifier: GPL-2.0
"""Builds what the guest runs, inside the made root: the module, the provider, the C cases."""

import hashlib
import os
import re
import shlex
import shutil
from concurrent.futures import ThreadPoolExecutor

from tests.lab import config
from tests.lab.locks import BUILDING, lock
from tests.lab.say import LabError, step
from tests.lab.shell import captured, chroot_command, in_namespace, overlay

LAB = config.BUILD / "lab"
# Held by who builds the module of this checkout, in rust/, or its index; all else is built elsewhere.
MODULE_TURN = "module.lock"


def run_in_root(root, command, what, cwd="/ferroce", env=None, binds=(), **how):
    """Runs a command in the root, as `run_build` does."""
    return run_build(chroot_command(root.path.resolve(), command, cwd=cwd, env=env, binds=binds), what, **how)


def run_build(argv, what, quiet=True, turn="build.lock"):
    """Runs what builds something; when it fails its whole output is shown. Two builds in a checkout would write each
    other's files, so that the second waits; but one that has files of its own has a lock of its own, `turn`."""
    with lock(config.BUILD / turn, BUILDING):
        done = captured(argv, 1800)
    if done.returncode:
        print(done.stdout, end="", flush=True)
        raise LabError(f"{what} failed (exit {done.returncode}); the reason is above")
    if not quiet:
        print(done.stdout, end="", flush=True)
    return done.stdout


def kernel_env(root):
    """What native.sh takes, for the kernel of the root."""
    return {"KDIR": root.kdir, "KERNELRELEASE": root.release, "CC": root.cc, "ARCH": "x86"}


def module(root, quiet=True):
    step(f"build the module for {root.release}")
    script = ("sh tests/lab/native.sh preflight-kernel && "
              f"KMAKE='make -j{os.cpu_count() or 2} ARCH=x86 CC={root.cc}' sh tests/lab/native.sh modules")
    run_in_root(root, f"sh -c {shlex.quote(script)}", "building the module", env=kernel_env(root), quiet=quiet,
                turn=MODULE_TURN)
    return config.CHECKOUT / "rust/ferroce.ko"


def provider(root, quiet=True):
    """build/lab/libferroce.so, made by the root's cargo so that it runs on the root's libraries."""
    if not (config.CHECKOUT / "userspace-provider/Cargo.toml").exists():
        raise LabError("userspace-provider is missing: this is not a whole checkout")
    step("build the provider")
    run_in_root(root, ["cargo", "build", "--release", "--locked", "--offline", "-p", "ferroce-provider"],
                "building the provider", quiet=quiet)
    made = config.BUILD / "cargo-lab/release/libferroce.so"
    return copy(made, LAB / "libferroce.so")


def copy(source, target):
    """Copies a product where the guest's root takes it from."""
    if not source.exists():
        raise LabError(f"the build made no {source}")
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(source, target)
    return target


# The C programs of the guest, and where their sources are. All have those of the library, too.
PROGRAMS = {"verbs_cases": "tests/scenarios/verbs/verbs_c", "verbs_peer": "tests/guest/peer_c", "verbs_traffic": "tests/scenarios/teardown/traffic_c"}
LIBRARY = "tests/guest/lib_c"
UABI = "rust/core/uabi/ferroce-abi.h"
# What is loaded into programs that are not ours.
PRELOADED = {"in_step.so": "tests/scenarios/cm/in_step.c"}
EXAMPLES = "tests/examples"
WALKS = "Documentation/walks"
KERNEL_CLIENT = "tests/scenarios/kernel/kernel_c"
CASES = LAB / "verbs_cases.list"


def compile_line(name, compiler, target, libraries):
    """What makes one of PROGRAMS, in the folder `target`."""
    return (f"{compiler} -std=gnu11 -O1 -g -Wall -Wextra -Wno-missing-field-initializers -Werror -I {LIBRARY} "
            f"-o {target}/{name} {PROGRAMS[name]}/*.c {LIBRARY}/*.c {libraries}")


def c_programs(root):
    """What PROGRAMS names, in build/lab, and the list of cases that the scenarios are made from."""
    LAB.mkdir(parents=True, exist_ok=True)
    made = []
    shared = [config.CHECKOUT / UABI, *(config.CHECKOUT / LIBRARY).glob("*.[ch]")]
    for name, folder in PROGRAMS.items():
        sources = [*shared, *(config.CHECKOUT / folder).glob("*.[ch]")]
        program = LAB / name
        made.append(program)
        if program.exists() and program.stat().st_mtime > max(s.stat().st_mtime for s in sources):
            continue
        run_in_root(root, compile_line(name, "cc", "build/lab", "-libverbs"), f"building {name}")
    if not CASES.exists() or CASES.stat().st_mtime < made[0].stat().st_mtime:
        CASES.write_text(run_in_root(root, ["build/lab/verbs_cases", "--list"], "listing the cases"), encoding="utf-8")
    return made


def preloaded(root):
    for name, source in PRELOADED.items():
        run_in_root(root, f"cc -std=gnu11 -O1 -Wall -Wextra -Werror -shared -fPIC -o build/lab/{name} {source}",
                    f"building {name}")
    return [LAB / name for name in PRELOADED]


def examples(root):
    """The examples, in build/lab: each made as its first lines tell the reader to."""
    made = []
    for source in sorted((config.CHECKOUT / EXAMPLES).glob("*.c")):
        if source.stem != "common":
            made.append(LAB / f"example_{source.stem}")
            told = re.search(rf"^ \*   cc -o {source.stem} (.*)$", source.read_text(encoding="utf-8"), re.M)[1]
            run_in_root(root, f"cc -Wall -Wextra -Werror -o ../../build/lab/{made[-1].name} {told}",
                        f"building {made[-1].name}", cwd=f"/ferroce/{EXAMPLES}")
    return made


def programs(root):
    """Everything that the guest runs of ours, beside the module and the provider; and the list of cases."""
    return [*c_programs(root), CASES, *preloaded(root), *examples(root), hostile_packets(root)]


def hostile_packets(root):
    run_in_root(root, ["cargo", "build", "--release", "--locked", "--offline", "-p", "ferroce-hostile"],
                "building hostile_packets")
    return copy(config.BUILD / "cargo-lab/release/hostile_packets", LAB / "hostile_packets")


def sync(source, target):
    """Copies changed sources and forgets those that are gone; what the kernel's build made stays."""
    here = {p.relative_to(source) for p in source.rglob("*") if p.is_file() and p.suffix in (".rs", ".c", ".h")
            or p.name in ("Kbuild", "bindgen_parameters")}
    here = {p for p in here if not p.name.endswith("_generated.rs")}
    for path in here:
        old = target / path
        if not old.exists() or old.read_bytes() != (source / path).read_bytes():
            old.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source / path, old)
    for path in list(target.rglob("*.rs")):
        if path.relative_to(target) not in here and not path.name.endswith("_generated.rs"):
            path.unlink()


def module_copy(place, kernel):
    """A copy of the module's sources in this place, which is for builds for this kernel alone."""
    source, stamp = place / "src", place / "kernel"
    sync(config.CHECKOUT / "rust", source / "rust")
    shutil.copy2(config.CHECKOUT / "Kbuild", source / "Kbuild")
    if not stamp.exists() or stamp.read_text(encoding="utf-8") != kernel:
        clean(place)
    stamp.write_text(kernel, encoding="utf-8")
    return source


def clean(folder):
    """What another kernel's build left does not fit this one."""
    for path in folder.rglob("*"):
        if path.is_file() and (path.suffix in (".o", ".ko", ".mod", ".cmd", ".d", ".rmeta")
                               or path.name.endswith(("_generated.rs", ".mod.c", "modules.order"))):
            path.unlink()


def kernel_client(root):
    """ferroce_kuser.ko, a user of RDMA in the kernel, built from a copy that each kernel has of its own."""
    target = LAB / f"kernel_c-{root.release}"
    sync(config.CHECKOUT / KERNEL_CLIENT, target)
    run_in_root(root, f"make -j{os.cpu_count() or 2} --no-print-directory -C {root.kdir} "
                f"M=/ferroce/build/lab/{target.name} KERNELRELEASE={root.release} "
                f"ARCH=x86 CC={root.cc} KCFLAGS=-Werror modules",
                "building the user of RDMA in the kernel")
    return target / "ferroce_kuser.ko"


def guest_setup(root, with_module=True, made=None, release=None, client=None):
    """Builds everything; returns the shell lines that put it into the guest's root, which is at $M. Another kernel than
    that of the root brings its own modules and release."""
    q = shlex.quote
    with ThreadPoolExecutor(1) as beside:
        # Beside the rest: the module is one crate, with which its compiler keeps one processor busy.
        building = beside.submit(indexed_module, root) if with_module and not made else None
        lines = [f"cp {q(str(program))} $M/srv/lab/" for program in [*programs(root), client or kernel_client(root)]]
        # What walks and examples are tried with: the part of a clone that they name.
        lines += [f"cd {q(str(config.CHECKOUT))}", "mkdir -p $M/srv/lab/clone",
                  f"cp -r --parents {EXAMPLES} {WALKS} $M/srv/lab/clone/"]
        newer = config.newer_rdma_core() / "usr"
        if newer.exists():
            lines.append(f"mkdir -p $M/srv/newer && cp -a {q(str(newer))} $M/srv/newer/")
            # Another release that stands for it has other tests.
            source = config.cache() / f"rdma-core-{config.NEWER}"
            if (source / ".complete").exists() and not (source / ".complete").read_text(encoding="utf-8"):
                lines.append(f"cp -a {q(str(source / 'tests'))} $M/srv/newer/")
        if not with_module:
            return lines
        library = provider(root)
        ours, index = building.result() if building else (made, None)
        return lines + native_install(release or root.release, library, ours, index)


def module_index(root, made):
    """What depmod makes of the root's modules with this one among them. It is kept while the module is the same: to read
    them all takes as long as a boot."""
    place = LAB / f"index-{root.release}"
    kept, stamp = place / "kept", place / "module"
    mark = f"{root.path.resolve()} {hashlib.sha256(made.read_bytes()).hexdigest()}"
    with lock(LAB / "index.lock", BUILDING):
        if stamp.exists() and stamp.read_text(encoding="utf-8") == mark:
            return kept
        shutil.rmtree(place, ignore_errors=True)
        kept.mkdir(parents=True)
        work = place / "root"
        work.mkdir()
        step("list the modules of the root with it")
        q = shlex.quote
        run_build(in_namespace("\n".join([
            *overlay(root.path, work),
            f"install -D -m 644 {q(str(made))} $M/lib/modules/{root.release}/updates/ferroce.ko",
            f"depmod -b $M {root.release}",
            f"cp $W/u/usr/lib/modules/{root.release}/modules.* {q(str(kept))}/"])), "depmod", turn=MODULE_TURN)
        stamp.write_text(mark, encoding="utf-8")
        return kept


def indexed_module(root):
    """The module, built, and the folder of what depmod makes of the root's modules with it."""
    made = module(root)
    return made, module_index(root, made)


def install_lines(root):
    """Builds the module and the provider; returns the shell lines that install them, and the command, in $M."""
    ours, index = indexed_module(root)
    return native_install(root.release, provider(root), ours, index)


def native_install(release, library, module_file, index=None, triplet="x86_64-linux-gnu"):
    """The shell lines that install these, and the command, in $M. Without an index the modules there are few."""
    q = shlex.quote
    env = (f"MODULE={q(str(module_file))} PROVIDER={q(str(library))} KERNELRELEASE={q(release)} DESTDIR=$M "
           f"PROVIDERDIR=/usr/lib/{triplet}/libibverbs{' DEPMOD=true' if index else ''}")
    copied = [f"cp {q(str(index))}/* $M/lib/modules/{q(release)}/"] if index else []
    return [f"cd {q(str(config.CHECKOUT))}", f"{env} sh tests/lab/native.sh install", *copied]
