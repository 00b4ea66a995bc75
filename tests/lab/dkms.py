# SPDX-License-Identifier: GPL-2.0
"""The package for DKMS, installed and removed as on a machine of somebody's: in the laboratory's root, which has the
compilers, with everything that is written thrown away."""

import re
import shlex

from tests.lab import config, deb, fresh, rules
from tests.lab.shell import captured, chroot_command, in_namespace, overlay

LIMIT = 1500
# The kernel that runs, as its scripts are told, is one without Rust, which the build must leave out; the root's is built
# for. Others are left out as well, and the hook of their packages succeeds: one of a series that is not known, one whose
# source is not there, and at last the root's own, with an error in the module's source.
SCRIPT = """
set -eu
old=6.12.0-without-rust
printf '#!/bin/sh\\n[ "$*" = -r ] && echo %s || exec /usr/bin/uname "$@"\\n' $old >/usr/local/bin/uname
chmod 755 /usr/local/bin/uname
headers=/usr/src/linux-headers-without-rust modules=/lib/modules/@RELEASE@
mkdir -p $headers/include /lib/modules/$old
printf '# CONFIG_RUST is not set\\nCONFIG_INFINIBAND=m\\n' >$headers/.config
ln -s $headers /lib/modules/$old/build
dpkg -i /srv/packages/dkms_*.deb
dpkg -i /srv/packages/ferroce-dkms_*.deb
echo "status: $(dkms status ferroce)"
echo "file: $(modinfo -k @RELEASE@ -n ferroce)"
echo "version: $(modinfo -k @RELEASE@ -F version ferroce)"
status=0
dkms build ferroce/@VERSION@ -k $old || status=$?
echo "without Rust: exit $status"
for other in 7.4.0-series 7.3.99-no-source; do
	headers=/usr/src/linux-headers-$other
	mkdir -p $headers/include /lib/modules/$other
	cp @KDIR@/.config $headers/
	ln -s $headers /lib/modules/$other/build
	/etc/kernel/postinst.d/dkms $other
	echo "$other: apt goes on; $(cat /var/lib/ferroce-dkms/$other 2>&1)"
done
dkms unbuild ferroce/@VERSION@ -k @RELEASE@
echo 'compile_error!("planted");' >>/usr/src/ferroce-@VERSION@/rust/ferroce_main.rs
/etc/kernel/postinst.d/dkms @RELEASE@
echo "with an error: apt goes on; $(cat /var/lib/ferroce-dkms/@RELEASE@)"
status=0
dpkg-reconfigure ferroce-dkms || status=$?
echo "reconfigured: exit $status"
dpkg --purge ferroce-dkms
find $modules /usr/src /var/lib /etc -name '*ferroce*' ! -name ferroce-lab.json | sed 's/^/left: /'
"""
# As on a machine that has the kernel's source package, and not the laboratory's prepared tree: what Rust modules are
# compiled against is made first. It leaves nothing of that.
FROM_SOURCE = """
set -eu
mount -t tmpfs tmpfs @KDIR@
cd /tmp
apt-get -q update
apt-get -q download @SOURCE@=@KERNEL@
dpkg -x @SOURCE@_*.deb /
dpkg -i /srv/packages/dkms_*.deb
dpkg -i /srv/packages/ferroce-dkms_*.deb
echo "status: $(dkms status ferroce)"
echo "signer: $(modinfo -k @RELEASE@ -F signer ferroce)"
echo "version: $(modinfo -k @RELEASE@ -F version ferroce)"
find /var/lib/dkms /var/lib/ferroce-dkms -name libkernel.rmeta -o -name '@RELEASE@' -type f | sed 's/^/left: /'
"""
# What each must print.
SAID_FROM_SOURCE = (
    r"^status: ferroce/@VERSION@, @RELEASE@, x86_64: installed$",
    r"^signer: DKMS module signing key$",
    r"^version: @VERSION@$",
)
SAID = (
    r"^ferroce-dkms: the kernel 6\.12\.0-without-rust that runs is built without CONFIG_RUST and cannot load Rust modules",
    r"^status: ferroce/@VERSION@, @RELEASE@, x86_64: installed$",
    r"^file: /lib/modules/@RELEASE@/updates/dkms/ferroce\.ko",
    r"^version: @VERSION@$",
    r"^without Rust: exit 77$",
    r"^7\.4\.0-series: apt goes on; cat: .*No such file",
    r"^7\.3\.99-no-source: apt goes on; the source of the kernel 7\.3\.99-no-source is not there: apt-get install",
    r"^with an error: apt goes on; the module does not compile for the kernel @RELEASE@",
    r"^reconfigured: exit 0$",
    r"^ferroce-dkms: no module was built for the kernel @RELEASE@: the module does not compile",
)


def command(root, text, room):
    """Runs a script in the root with an overlay upon it that has so much room, and the packages beside it."""
    work = config.BUILD / "dkms"
    work.mkdir(parents=True, exist_ok=True)
    tool = fresh.make(root, config.SUITE).path / fresh.ARCHIVE
    q = shlex.quote
    script = filled(text, root)
    lines = [
        *overlay(root.path, work, room),
        "mkdir -p $M/srv/packages",
        f"cp {q(str(tool))}/dkms_*.deb {q(str(deb.FOLDER))}/dkms/*.deb $M/srv/packages/",
        "exec " + shlex.join(chroot_command(work / "m", ["sh", "-c", script], writable=True)),
    ]
    return in_namespace("\n".join(lines))


def filled(text, root, quote=str):
    """The text with the names of this kernel and this version in it."""
    known = {"RELEASE": root.release, "VERSION": rules.version(), "KDIR": root.kdir, "KERNEL": root.version,
             "SOURCE": deb.values(root)["SOURCE"]}
    for name, value in known.items():
        text = text.replace(f"@{name}@", quote(value))
    return text


def missing(text, root, said=SAID):
    """What the output lacks, or has too much of; nothing when all is well."""
    wanted = [filled(one, root, re.escape) for one in said]
    return ([f"it does not say {one!r}" for one in wanted if not re.search(one, text, re.M)]
            + re.findall(r"^left: .*$", text, re.M))


def check(root, script=SCRIPT, said=SAID, room="2g"):
    """Builds the packages where they are not there, and runs it; returns its output and what is wrong with it."""
    deb.ready(root)
    done = captured(command(root, script, room), LIMIT)
    wrong = missing(done.stdout, root, said)
    return done.stdout, [f"exit {done.returncode}", *wrong] if done.returncode else wrong
