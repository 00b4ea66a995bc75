# SPDX-License-Identifier: GPL-2.0
# One SEND of 2500 bytes each way at a path MTU of 1024: by packets, and then within one device.
. Documentation/walks/lib.sh
one_each_way="-g 1 -m 1024 -s 2500 -n 1"
counted() { cat "/sys/class/infiniband/fe0/ports/1/hw_counters/$1"; }
single_packets
capture left eth0
right ibv_rc_pingpong -d fe1 $one_each_way >/dev/null &
right listening 18515
left strace -o /tmp/calls -e trace=write ibv_rc_pingpong -d fe0 $one_each_way 10.77.0.2 >/dev/null
ladder
echo "doorbells of the left program: $(grep -c '^write(3, "\\34' /tmp/calls)"
packets=$(counted sent_pkts) segments=$(counted local_segments)
left ibv_rc_pingpong -d fe0 $one_each_way >/dev/null &
left listening 18515
left ibv_rc_pingpong -d fe0 $one_each_way 10.77.0.1 >/dev/null
wait $!
echo "within one device: $(($(counted sent_pkts) - packets)) packets, $(($(counted local_segments) - segments)) segments"
