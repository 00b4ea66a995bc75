# SPDX-License-Identifier: GPL-2.0
# tests/examples/rnr.c with packets: the receive that comes late, and the one that never comes.
. Documentation/walks/lib.sh
by_packets rnr
ladder | sed -n "/^1\. /,\$p" | sed "/PSN 3000/,\$d"
