#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# Stands for udevd while the machine boots, and for udevadm: udev looks at each device of the machine, which under
# emulation takes longer than all the rest of the boot. The root that root.sh makes has both, but nothing starts udevd
# there: it would look at each device that comes and goes, which takes as long as what is done with it. link.udev does,
# and udev.sh in guests that are to be as their owner's.
case $0 in *udevadm) exit ;; esac
while read -r driver; do
	name=${driver##*/}
	[ -d /sys/module/$(echo ${name%%.*} | tr - _) ] || insmod $driver
done </drivers
# By these names virtme-ng finds the ports that the script's input and output go by.
mkdir -p /dev/virtio-ports
for port in /sys/class/virtio-ports/*; do
	read -r name <$port/name && ln -s ../${port##*/} /dev/virtio-ports/$name
done
# As udev and systemd-tmpfiles would have it.
chmod 666 /dev/null
chmod 1777 /tmp
mkdir -p /run/lock
