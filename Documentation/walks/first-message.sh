# SPDX-License-Identifier: GPL-2.0
# The first message of tests/examples/rc.c, as both programs and the wire saw it.
. Documentation/walks/lib.sh
build rc
single_packets
capture left eth0
right /tmp/rc fe1 1 >/tmp/right &
right listening 18520
left /tmp/rc fe0 1 10.77.0.2 >/tmp/left
echo "left:"; cat /tmp/left
echo "right:"; cat /tmp/right
ladder
