#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# Runs a command in the guest on a root from its disks, with a tmpfs upon them for what is written. It becomes the root of
# the whole guest, in place of the host's folder that it has booted from, which has nothing but busybox (boot_root in
# tests/lab/boot.py): what is there must be found by the kernel, too, which starts modprobe. What FOLDERS names are
# folders of the host's. /run/root/upper has what was written, /run/root/lower what was there before.
set -e
W=/mnt
mount -t tmpfs tmpfs $W
mkdir $W/disk $W/changes $W/lower $W/upper $W/work $W/root
mount -t erofs -o ro /dev/vda $W/disk
mount -t erofs -o ro /dev/vdb $W/changes
mount -t overlay -o ro,lowerdir=$W/changes:$W/disk overlay $W/lower
mount -t overlay -o lowerdir=$W/changes:$W/disk,upperdir=$W/upper,workdir=$W/work overlay $W/root
for part in lower upper; do
	mkdir -p /run/root/$part
	mount --bind $W/$part /run/root/$part
done
mount --make-rprivate /
for d in /dev /proc /run /sys /tmp $FOLDERS; do
	mount --rbind $d $W/root$d
done
cd $W/root
pivot_root . mnt
umount -l /mnt
exec chroot . /bin/sh -c 'cd /srv/lab && exec "$@"' sh "$@"
