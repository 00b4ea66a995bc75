#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# Runs a command on a machine whose start has done with devices and places what that of a Debian does.
systemd-tmpfiles --create --boot --exclude-prefix=/dev --exclude-prefix=/root
/usr/lib/systemd/systemd-udevd --daemon
udevadm trigger --type=subsystems --action=add
udevadm trigger --type=devices --action=add
udevadm settle
exec "$@"
