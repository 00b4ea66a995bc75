# SPDX-License-Identifier: GPL-2.0
"""A machine that systemd runs, on the laboratory's root, and that boots more than once: what is
written stays on a disk of its own. What happens there is in tests/guest/reboot.py."""

import re
import shlex
import time

from tests.guest.scenario import PATIENCE
from tests.lab import boot, build, disk, say
from tests.lab.say import Bad

STAGES = 2
LIMIT = 900 * PATIENCE
# Said by the first program, before anything of ferroce is there.
BOOTED = "the kernel has booted"
SIZE = "512M"
DRIVERS = "virtio_blk virtio_net e1000 virtio_rng erofs overlay ext4 crc32c_cryptoapi"

# What takes seconds of an emulated boot, and that nothing is asked of here.
MASKED = ("rdma-load-modules@rdma.service", "rdma-load-modules@roce.service", "rdma-ndd.service", "dev-hugepages.mount",
          "dev-mqueue.mount", "modprobe@efi_pstore.service", "modprobe@configfs.service", "modprobe@fuse.service",
          "systemd-modules-load.service", "systemd-binfmt.service", "proc-sys-fs-binfmt_misc.automount")

INIT = """#!/bin/busybox sh
/bin/busybox --install -s /bin
mount -t devtmpfs dev /dev
mount -t proc proc /proc
mount -t sysfs sysfs /sys
echo "BOOTED" >/dev/console
while read -r driver; do insmod $driver; done </drivers
until [ -b /dev/vdc ]; do sleep 0.1; done
mount -t erofs -o ro /dev/vda /disk
mount -t erofs -o ro /dev/vdb /changes
mount -t ext4 /dev/vdc /store
mkdir -p /store/upper /store/work
mount -t overlay -o lowerdir=/changes:/disk,upperdir=/store/upper,workdir=/store/work overlay /root
for d in dev proc sys; do mount --move /$d /root/$d; done
exec switch_root /root /usr/lib/systemd/systemd
"""
# It runs beside what is done at boot, and waits for the end of that.
UNIT = """[Unit]
Description=stages of tests/guest/reboot.py
After=basic.target
[Service]
Type=simple
WorkingDirectory=/srv/lab
ExecStart=/usr/bin/python3 -m tests.guest.reboot
[Install]
WantedBy=basic.target
"""


class Machine(boot.Guest):
    """It makes its disks, and becomes the machine."""

    def _script(self, agent, extra, env):
        return script(self.root, self.work, self.kvm)


def script(root, work, kvm):
    q = shlex.quote
    mnt, store, initrd = work / "mnt", work / "store.ext4", work / "initrd"
    mnt.mkdir(exist_ok=True)
    (work / "init").write_text(INIT.replace("BOOTED", BOOTED), encoding="ascii")
    (work / "unit").write_text(UNIT, encoding="ascii")
    changes = f"{mnt}/changes"
    append = ("console=ttyS0 loglevel=4 panic=-1 oops=panic mitigations=off apparmor=0 rdinit=/init "
              f"systemd.unit=basic.target systemd.firstboot=off systemd.condition_needs_update=0 module_blacklist={boot.BLACKLIST} "
              + "".join(f"systemd.mask={unit} " for unit in MASKED)
              + ("" if kvm else boot.EMULATED))
    qemu = boot.pc(kvm, 2048, root.vmlinuz.resolve(), append, *boot.CARDS.split(), *disk.options(disk.of(root.path), changes),
                   "-drive", f"if=none,id=store,format=raw,file={store}", "-device", "virtio-blk-pci,drive=store",
                   "-initrd", str(initrd))
    unit = "$M/etc/systemd/system"
    return "\n".join([
        *boot.own_root(root.path, mnt),
        *build.install_lines(root),
        f"install -m 644 {q(str(work / 'unit'))} {unit}/ferroce-reboot.service",
        f"mkdir -p {unit}/basic.target.wants",
        f"ln -s ../ferroce-reboot.service {unit}/basic.target.wants/",
        "echo 0123456789abcdef0123456789abcdef >$M/etc/machine-id",
        boot.COMPILED,
        disk.of_changes(f"{mnt}/u", changes),
        "I=$W/i",
        "mkdir -p $I/bin $I/dev $I/proc $I/sys $I/disk $I/changes $I/store $I/root",
        f"cp {q(str(work / 'init'))} $I/init && chmod 755 $I/init",
        "cp $M/usr/bin/busybox $I/bin/",
        f"for one in {DRIVERS}; do chroot $M modprobe -S {q(root.release)} --show-depends $one; done"
        " | sed -n 's/^insmod \\([^ ]*\\).*/\\1/p' | awk '!seen[$0]++' >$I/drivers",
        "while read -r one; do install -D $M$one $I$one; done <$I/drivers",
        f"(cd $I && find . | $M/usr/bin/busybox cpio -o -H newc) >{q(str(initrd))}",
        f"truncate -s {SIZE} {q(str(store))} && mkfs.ext4 -q {q(str(store))}",
        "exec " + shlex.join(qemu),
    ])


def run(root):
    """Links that are kept come back with their netdev and after a reboot; lockdown is explained."""
    kvm = boot.kvm_works(root)
    ended, text, console = machine(root, kvm)
    if not ended and BOOTED not in text and not kvm:
        # Nothing of ours has run.
        say.line("    the emulated machine failed in the kernel's boot: once more, in another")
        ended, text, console = machine(root, kvm)
    done = re.findall(r"^reboot: stage (\d) of", text, re.M)
    if not ended or done != [str(n + 1) for n in range(STAGES)]:
        # What a stage that failed says first and last, with all between them.
        said = re.search(r"^reboot: failed\n(.*?)^reboot: because (.*?)$", text, re.M | re.S)
        raise Bad(f"{'it went' if ended else 'it does not end, but went'} through {len(done)} of {STAGES} stages"
                  f"{': ' + said[2] if said else ''}; the console is {console}", said[0] if said else text[-6000:])
    return "; ".join(line for line in re.findall(r"^reboot: (.*)$", text, re.M) if not line.startswith("stage"))[:300]


def machine(root, kvm):
    """Runs it: whether it has ended, what its console says, and where that is."""
    guest = Machine(root, boot.fresh_work("reboot"), "", kvm)

    def said():
        return guest.console.read_text(encoding="utf-8", errors="replace").replace("\r", "")

    def in_time():
        after = time.monotonic() - guest.began
        return after < LIMIT and (after < guest.BOOT_LIMIT or BOOTED in said())

    guest.start()
    try:
        while guest.alive() and in_time():
            time.sleep(0.5)
    finally:
        ended = not guest.alive()
        guest.stop()
    return ended, said(), guest.console
