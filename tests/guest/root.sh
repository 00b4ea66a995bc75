#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# Runs a command in the guest on a root from its disks, with a tmpfs upon them for what is written. It becomes the root of
# the whole guest, in place of the host's folder that it has booted from: what is there must be found by the kernel, too,
# which starts modprobe, and by udevd. What FOLDERS names are folders of the host's. /run/root/upper has what was written,
# /run/root/lower what was there before.
set -e
# Until the root is there each program comes from the host page by page: most are busybox's, which is one file.
mount() {
	busybox mount "$@"
}
W=/mnt
modprobe -a virtio_blk erofs overlay
mount -t tmpfs tmpfs $W
busybox mkdir $W/disk $W/changes $W/lower $W/upper $W/work $W/root
mount -t erofs -o ro /dev/vda $W/disk
mount -t erofs -o ro /dev/vdb $W/changes
mount -t overlay -o ro,lowerdir=$W/changes:$W/disk overlay $W/lower
mount -t overlay -o lowerdir=$W/changes:$W/disk,upperdir=$W/upper,workdir=$W/work overlay $W/root
for part in lower upper; do
	busybox mkdir -p /run/root/$part
	mount --bind $W/$part /run/root/$part
done
mount --make-rprivate /
for d in /dev /proc /run /sys /tmp $FOLDERS; do
	mount --rbind $d $W/root$d
done
cd $W/root
busybox pivot_root . mnt
busybox umount -l /mnt
exec busybox chroot . /bin/sh -c 'cd /srv/lab && exec "$@"' sh "$@"
