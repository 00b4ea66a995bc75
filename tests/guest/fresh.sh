#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# Runs a command in the guest on a root that may be written to as that of any machine: the cached, read-only mount of
# the host's, and a tmpfs upon it. It becomes the root of the whole guest, for what is installed there must be found by
# the kernel, which starts modprobe, and by udevd. What HOT names are folders of the host's. /run/fresh/upper has what
# was written, /run/fresh/lower what was there before.
set -e
W=/mnt
mount -t tmpfs tmpfs $W
mkdir $W/lower $W/upper $W/work $W/root
mount -t 9p -o ro,version=9p2000.L,trans=virtio,cache=loose,msize=524288 hot $W/lower
mount -t overlay overlay -o lowerdir=$W/lower,upperdir=$W/upper,workdir=$W/work $W/root
for part in lower upper; do
	mkdir -p /run/fresh/$part
	mount --bind $W/$part /run/fresh/$part
done
mount --make-rprivate /
for d in /dev /proc /sys /run /tmp $HOT; do
	mount --rbind $d $W/root$d
done
cd $W/root
# Busybox's, for sid has that of util-linux in a package that not every machine has.
busybox pivot_root . mnt
umount -l /mnt
exec chroot . sh -c 'cd /srv/lab && exec "$@"' sh "$@"
