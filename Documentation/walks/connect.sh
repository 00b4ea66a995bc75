# SPDX-License-Identifier: GPL-2.0
# A connection by librdmacm: tests/examples/cm.c, and the messages of the connection manager.
. Documentation/walks/lib.sh
build cm
modprobe rdma_ucm
single_packets
capture left eth0
right /tmp/cm listen 10.77.0.2 >/tmp/right &
until grep -q listens /tmp/right; do sleep 0.1; done
left /tmp/cm connect 10.77.0.2 >/tmp/left
wait $!
echo "left:"; cat /tmp/left
echo "right:"; cat /tmp/right
ladder
