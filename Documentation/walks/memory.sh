# SPDX-License-Identifier: GPL-2.0
# tests/examples/memory.c with packets: what keys permit, and what a peer is told.
. Documentation/walks/lib.sh
build memory
echo 0 >/sys/class/infiniband/fe0/local_path
capture left lo
left /tmp/memory fe0 1
ladder | sed -n "/^1\. /,\$p" | sed "/^7\. /,\$d"
