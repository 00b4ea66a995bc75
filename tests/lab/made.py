# SPDX-License-Identifier: GPL-2.0
"""Kernels that are made here, from the source that the root has of Debian's: each once, and kept in the cache under the
name of its recipe with what a guest boots and what modules are built against."""

import hashlib
import json
import os
import shlex
from dataclasses import dataclass
from pathlib import Path

from tests.lab import build, config, setup
from tests.lab.locks import SETTING_UP, lock
from tests.lab.say import LabError, step
from tests.lab.shell import chroot_command, run

HERE = Path(__file__).parent
# Counted up when the steps change without a change of the configuration.
STEPS = 1
DISK_NEEDED = 6 << 30
# One place in the root whatever the folder is called outside, for builds remember where they happened.
INSIDE = "/mnt"
TREE = f"{INSIDE}/linux"
# Configuration that a later kernel has always and no longer asks about, by its name up to here.
UNASKED = {"CONFIG_PROC_SYSCTL=y": "7.2"}
# What modules are not built against.
UNUSED = "block certs crypto drivers fs init io_uring ipc kernel lib mm net samples security sound usr virt"


@dataclass(frozen=True)
class Kind:
    """How make is called, fragments of its configuration, where the build leaves what is booted, patches of its source."""

    name: str
    about: str
    minutes: int
    make: str
    fragments: tuple
    target: str
    image: str
    patches: tuple = ()

    def configuration(self):
        """The fragments as one; of what two of them say, the later is wanted."""
        lines = {}
        for fragment in self.fragments:
            for line in (HERE / fragment).read_text(encoding="utf-8").splitlines():
                if "CONFIG_" in line.split("=")[0]:
                    lines[line.removeprefix("# ").split("=")[0].split(" ")[0]] = line
        return "\n".join(lines.values()) + "\n"

    def recipe(self, root):
        """Names what it is made of: its source, its compilers (they are the root's), its configuration, its patches."""
        parts = [STEPS, root.recipe, root.version, self.make, self.configuration()]
        # What a patch says of itself is no part of it.
        parts += ["--- " + (HERE / patch).read_text(encoding="utf-8").split("\n--- ", 1)[1] for patch in self.patches]
        return config.digest(parts)

    def folder(self, root):
        """Where it is: such as FERROCE_UM_DEBUG_KERNEL says, or in the cache."""
        told = os.environ.get(f"FERROCE_{self.name.upper().replace('-', '_')}_KERNEL")
        return Path(told or config.cache() / f"{self.name}-{self.recipe(root)}")


class Made(config.Upon):
    def __init__(self, root, folder, kind):
        super().__init__(root, folder)
        self.kind = kind

    @property
    def image(self):
        return self.folder / Path(self.kind.image).name


def ready(root, kind):
    """The kernel of today's recipe, or None when it is not there."""
    try:
        return Made(root, kind.folder(root), kind)
    except (OSError, ValueError, KeyError):
        return None


def make(root, kind):
    """Makes the kernel if it is not there. One that is there is not waited for while another recipe of its kind is made."""
    if there := ready(root, kind):
        return there
    with lock(config.cache() / f"{kind.name}.lock", SETTING_UP):
        return ready(root, kind) or make_new(root, kind)


def make_new(root, kind):
    """Builds under another name and renames what is whole. What an earlier build of the same has left is gone on with."""
    cache, final = config.cache(), kind.folder(root)
    new = cache / f"new-{final.name}"
    for old in cache.glob(f"new-{kind.name}-*"):
        if old != new and len(old.name) == len(new.name):
            setup.remove_tree(old)
    if not new.exists():
        setup.require_room(DISK_NEEDED, f"the {kind.about}")
    (new / "root/usr").mkdir(parents=True, exist_ok=True)
    log = cache / f"{kind.name}.log"
    log.write_text("", encoding="utf-8")
    step(f"make the {kind.about} from the source of {root.version} (about {kind.minutes} minutes of two idle cores, once; "
         f"log in {log})")
    (new / "config").write_text(kind.configuration(), encoding="utf-8")
    (new / "patch").write_text("".join((HERE / patch).read_text(encoding="utf-8") for patch in kind.patches),
                               encoding="utf-8")
    in_new(root, new, f"""
        [ ! -e {TREE}/.copied ] || exit 0
        rm -rf {TREE}
        cp -a {root.kdir} {TREE}
        cd {TREE}
        # What the stock kernel's preparation removed, as far as the build looks there.
        rm -rf Documentation
        mkdir Documentation
        touch Documentation/Kconfig Documentation/Makefile
        {kind.make} mrproper
        [ ! -s {INSIDE}/patch ] || patch -p1 <{INSIDE}/patch
        touch .copied""", "copying the kernel's source", log)
    in_new(root, new, f"""
        cd {TREE}
        {kind.make} tinyconfig
        scripts/kconfig/merge_config.sh -m .config {INSIDE}/config
        {kind.make} olddefconfig
        lost=0
        while IFS= read -r line; do
            case $line in {"|".join(UNASKED)}) continue ;; CONFIG_*) ;; *) continue ;; esac
            grep -qxF "$line" .config || {{ echo "the configuration lost $line"; lost=1; }}
        done <{INSIDE}/config
        exit $lost""", f"configuring the {kind.about}", log)
    step("  compile it")
    in_new(root, new, f"""
        cd {TREE}
        {kind.make} -j{os.cpu_count() or 2} {kind.target} modules
        {kind.make} INSTALL_MOD_PATH={INSIDE}/root/usr modules_install
        rm -f {INSIDE}/root/usr/lib/modules/*/build
        cp {kind.image} System.map .config {INSIDE}/
        {kind.make} -s kernelrelease >{INSIDE}/release""", f"building the {kind.about}", log)
    in_new(root, new, f"""
        cd {TREE}
        rm -rf {UNUSED}
        find . -name '*.o' -not -path './scripts/*' -not -path './tools/*' -delete
        find . -name '*.a' -not -path './tools/*' -delete
        rm -f linux vmlinux vmlinux.unstripped arch/x86/boot/compressed/vmlinux*""", "keeping what modules need", log)
    release = (new / "release").read_text(encoding="ascii").strip()
    stamp = {"release": release, "recipe": kind.recipe(root)}
    (new / Made.STAMP).write_text(json.dumps(stamp), encoding="utf-8")
    setup.remove_tree(final)
    new.rename(final)
    setup.forget_old_roots(final, f"{kind.name}-{'?' * 16}")
    made = ready(root, kind)
    if made is None:
        raise LabError(f"the {kind.about} in {final} is not whole although every step succeeded; see {log}")
    return made


def in_new(root, new, script, what, log):
    """Runs a script in the root with the new folder in its place."""
    rust = next((root.path / "usr/src").glob("rustc-*/library"))
    env = {"RUST_LIB_SRC": "/" + str(rust.relative_to(root.path)), "KBUILD_BUILD_HOST": "lab",
           "KBUILD_BUILD_USER": "lab"}
    run(chroot_command(root.path.resolve(), f"sh -ec {shlex.quote(script)}", env=env, binds=[(new, INSIDE)]), what, log)


def modules(kernel, *others):
    """ferroce.ko for such a kernel and the modules of other folders, each built in this checkout's copy of its sources."""
    name = hashlib.sha256(str(config.CHECKOUT).encode()).hexdigest()[:12]
    work = config.cache() / f"{kernel.kind.name}-module" / name
    source = build.module_copy(work, str(kernel.folder.resolve()))
    folders = {source: source / "rust/ferroce.ko"}
    for other in others:
        folder = work / Path(other).name
        build.sync(config.CHECKOUT / other, folder)
        made = next(line.split()[-1] for line in (folder / "Kbuild").read_text(encoding="utf-8").splitlines()
                    if line.startswith("obj-m"))
        folders[folder] = folder / made.replace(".o", ".ko")
    step(f"build the module for the {kernel.kind.about} {kernel.release}")
    for folder, module in folders.items():
        build.run_in_root(kernel.root, f"{kernel.kind.make} -j{os.cpu_count() or 2} --no-print-directory -C {TREE} "
                                       f"M={inside_cache(folder)} modules",
                          f"building a module for the {kernel.kind.about}", binds=[(kernel.folder, INSIDE)],
                          turn=f"{kernel.kind.name}-module.lock")
        if not module.exists():
            raise LabError(f"the build made no {module}")
    return list(folders.values())


def inside_cache(path):
    return "/cache/" + str(path.relative_to(config.cache()))
