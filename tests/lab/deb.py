# SPDX-License-Identifier: GPL-2.0
"""`make deb`: the Debian packages, built in the made root without a network, from a copy of the checkout."""

import hashlib
import os
import re
import shlex
import shutil
import struct
import time
from email.utils import parsedate_to_datetime

from tests.lab import build, config, rules
from tests.lab.say import LabError, line, step

FOLDER = config.BUILD / "deb"
# The version of a kernel's source package, and the one between at signs in debian/*.in.
SERIES = re.compile(r"\d+\.\d+")


def values(root):
    """What stands between at signs in debian/*.in, for the kernel of the root."""
    return {"RELEASE": root.release, "SOURCE": f"linux-source-{SERIES.match(root.release).group(0)}",
            "CC_PACKAGE": re.search(r"gcc-\d+$", root.cc).group(0)}


def changed_at():
    """The time of the last entry of debian/changelog: what is built from it has no later one."""
    text = (config.CHECKOUT / "debian/changelog").read_text(encoding="utf-8")
    return int(parsedate_to_datetime(re.search(r"^ -- .*>  (.*)$", text, re.M).group(1)).timestamp())


def copy_sources(target):
    """The checkout as people wrote it; all of it as old as the changelog, so that no clock gets into the packages."""
    when = changed_at()
    if when > time.time():
        raise LabError("debian/changelog is from the future: dates of the packages would be those of today")
    shutil.rmtree(target, ignore_errors=True)
    for path in rules.sources() + sorted((config.CHECKOUT / "LICENSES").iterdir()):
        copy = target / path.relative_to(config.CHECKOUT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, copy)
        os.utime(copy, (when, when))


def fill_in(folder, known):
    """Makes of each debian/*.in the file without that end; one about the modules is named after their package."""
    for path in sorted(folder.glob("*.in")):
        name = path.name.removesuffix(".in").replace("ferroce-modules", f"ferroce-modules-{known['RELEASE']}")
        text = path.read_text(encoding="utf-8")
        for key, value in known.items():
            text = text.replace(f"@{key}@", value)
        (folder / name).write_text(text, encoding="utf-8")
        shutil.copymode(path, folder / name)


def make(root, folder=FOLDER, quiet=True):
    """Builds all packages; returns their files. Those for DKMS stand apart: who installs all that lies in `folder`
    wants the module that is built already."""
    source = config.BUILD / "deb-build/ferroce"
    shutil.rmtree(source.parent, ignore_errors=True)
    copy_sources(source)
    fill_in(source / "debian", values(root))
    step(f"build the Debian packages for {root.release}")
    env = dict(build.kernel_env(root), CARGO_TARGET_DIR="", HOME="/tmp")
    env.pop("ARCH")
    # Unchecked is what it needs: the root has all of it but a compiler for C++, which build-essential stands for.
    build.run_in_root(root, "dpkg-buildpackage --build=binary --no-sign --no-check-builddeps", "building the Debian packages",
                      cwd="/ferroce/build/deb-build/ferroce", env=env, quiet=quiet)
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "dkms").mkdir(parents=True)
    for path in sorted(source.parent.glob("*.deb")):
        shutil.copy2(path, folder / "dkms" if path.name.startswith("ferroce-dkms_") else folder)
    return files(folder)


# Of the tests, what takes part in a build.
BUILT_BY = ("tests/lab/deb.py", "tests/lab/native.sh")


def digest(root):
    """Names all that the packages are made from."""
    total = hashlib.sha256(f"{root.recipe} {root.version}".encode())
    for path in rules.sources():
        name = str(path.relative_to(config.CHECKOUT))
        if not name.startswith(("tests/", "Documentation/")) or name in BUILT_BY:
            total.update(f"{name} ".encode() + path.read_bytes())
    return total.hexdigest()


def ready(root):
    """The packages of this very checkout, which are built if they are not there."""
    stamp = config.BUILD / "deb.made"
    want = digest(root)
    if not stamp.exists() or stamp.read_text(encoding="ascii") != want or not files():
        stamp.unlink(missing_ok=True)
        make(root)
        stamp.write_text(want, encoding="ascii")
    return files()


BUILD_ID = struct.pack("=III4s", 4, 20, 3, b"GNU\0")


def renumbered(module, old, new):
    """The bytes of a module as a build of another version would have them: its number, and the identity of its build."""
    number = f"version={old}\0".encode(), f"version={new}\0".encode()
    at = module.find(BUILD_ID) + len(BUILD_ID)
    if at < len(BUILD_ID) or module.count(number[0]) != 1 or len(old) != len(new):
        raise LabError(f"the module has not one version {old} and one build ID")
    module = module.replace(*number)
    return module[:at] + hashlib.sha1(module).digest() + module[at + 20:]


def following(version):
    """A later version of the same length."""
    at = max(n for n, letter in enumerate(version) if letter in "012345678")
    return version[:at] + str(int(version[at]) + 1) + version[at + 1:]


def newer(root, found):
    """The packages once more as those of the next version, from what is in the first; returns their files."""
    old = rules.version()
    new = following(old)
    folder = config.BUILD / "deb-newer"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for path in found:
        tree = folder / "tree"
        inside = f"/ferroce/{tree.relative_to(config.CHECKOUT)}"
        build.run_in_root(root, ["dpkg-deb", "-R", f"/ferroce/{path.relative_to(config.CHECKOUT)}", inside],
                          "unpacking a package")
        control = tree / "DEBIAN/control"
        text = control.read_text(encoding="utf-8").replace(f"(= {old})", f"(= {new})")
        text = re.sub(rf"^Version: {re.escape(old)}$", f"Version: {new}", text, flags=re.M)
        control.write_text(text, encoding="utf-8")
        for module in tree.rglob("*.ko"):
            module.write_bytes(renumbered(module.read_bytes(), old, new))
        build.run_in_root(root, f"sh -c 'cd {inside} && find * -path DEBIAN -prune -o -type f -exec md5sum {{}} + "
                          f">DEBIAN/md5sums; dpkg-deb --root-owner-group -b . ..'", "packing it again")
        shutil.rmtree(tree)
    return sorted(folder.glob("*.deb"))


def files(folder=FOLDER):
    return [*sorted(folder.glob("*.deb")), *sorted(folder.glob("dkms/*.deb"))]


def lint(root):
    """What lintian finds in the packages last built; nothing is what it should."""
    out = build.run_in_root(root, "lintian --allow-root --fail-on none --tag-display-limit 0 *.changes",
                            "running lintian", cwd="/ferroce/build/deb-build")
    return [text for text in out.splitlines() if re.match(r"[EWI]: ", text)]


def show(found):
    for path in found:
        line(f"{path.relative_to(config.CHECKOUT)}  {path.stat().st_size >> 10} KiB")
    line(f"apt install {shlex.quote(str(FOLDER.relative_to(config.CHECKOUT)))}/*.deb installs all but DKMS's, for "
         "which Documentation/packages.md has the words")
