# SPDX-License-Identifier: GPL-2.0
# tests/examples/memory.c with packets: what keys permit, and what a peer is told.
. Documentation/walks/lib.sh
by_packets memory
ladder | sed -n "/^1\. /,\$p" | sed "/^7\. /,\$d"
