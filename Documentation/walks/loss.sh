# SPDX-License-Identifier: GPL-2.0
# Two messages of 5000 bytes each way, and every fifth packet is dropped on its way in at the right end.
. Documentation/walks/lib.sh
single_packets
right tc qdisc add dev eth0 clsact
right tc filter add dev eth0 ingress protocol ip u32 match ip dport 4791 0xffff action pass random determ drop 5
capture left eth0
right ibv_rc_pingpong -d fe1 -g 1 -m 1024 -s 5000 -n 2 >/dev/null &
right listening 18515
left ibv_rc_pingpong -d fe0 -g 1 -m 1024 -s 5000 -n 2 10.77.0.2 >/dev/null
wait $!
ladder
