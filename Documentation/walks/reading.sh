# SPDX-License-Identifier: GPL-2.0
# Two messages each way, and READs of which every fifth response is dropped on its way in at the left end: which events the
# module has, but for those that come by chance, and whether a counter has what the requester counts of the loss.
. Documentation/walks/lib.sh
if [ "$1" = inside ]; then
	both ibv_rc_pingpong "-g 1 -m 1024 -s 2500 -n 2"
	left tc qdisc add dev eth0 clsact
	left tc filter add dev eth0 ingress protocol ip u32 match ip dport 4791 0xffff action pass random determ drop 5
	right ib_read_bw -d fe1 -x 1 -n 20 -s 65536 >/dev/null 2>&1 &
	right listening 18515
	left ib_read_bw -d fe0 -x 1 -n 20 -s 65536 10.77.0.2 2>&1
	wait $!
	exit
fi
single_packets
rm -rf /tmp/walk.kept
ferroce trace -o /tmp/walk.txt --keep /tmp/walk.kept -- sh "$0" inside >/tmp/walk.said 2>&1 || cat /tmp/walk.said
echo events: $(grep -o 'ferroce_[a-z_]*:' /tmp/walk.kept/events.txt | sort -u | sed 's/ferroce_//; s/:$//' |
	grep -vx 'async_event\|cq_event\|drop\|offload\|timer\|unsent')
grep -q 'what=IMPLIED_NAK' /tmp/walk.kept/events.txt && echo "the requester implied a loss"
counter=/sys/class/infiniband/fe0/ports/1/hw_counters/implied_naks
if [ -e $counter ]; then
	[ "$(cat $counter)" != 0 ] && echo "implied_naks has counted"
else
	echo "no counter implied_naks"
fi
