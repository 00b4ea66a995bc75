# SPDX-License-Identifier: GPL-2.0
# tests/examples/rnr.c with packets: the receive that comes late, and the one that never comes.
. Documentation/walks/lib.sh
build rnr
echo 0 >/sys/class/infiniband/fe0/local_path
capture left lo
left /tmp/rnr fe0 1
ladder | sed -n "/^1\. /,\$p" | sed "/PSN 3000/,\$d"
