# SPDX-License-Identifier: GPL-2.0
# What the walks' scripts share. They run in a guest of `make um`, `make run` or `make shell`, in a clone.

# Compiles an example as its first lines say, as /tmp/NAME.
build() {
	(cd tests/examples && cc -o "/tmp/$1" "$1.c" common.c -lrdmacm -libverbs)
}

# Each packet on its own, also of what a netdev is handed at once.
single_packets() {
	for end in left right; do $end ethtool -K eth0 gso off; done
}

# Captures what a netdev of a namespace sees, from now on until `ladder`.
capture() {
	rm -f /tmp/walk.pcap /tmp/walk.tcpdump
	$1 tcpdump -i "$2" -U --immediate-mode -w /tmp/walk.pcap udp port 4791 2>/tmp/walk.tcpdump &
	tcpdump=$!
	until grep -q "listening on" /tmp/walk.tcpdump; do sleep 0.1; done
}

# What was captured, as a ladder.
ladder() {
	sleep 0.3
	kill $tcpdump
	wait $tcpdump
	ferroce trace show /tmp/walk.pcap "$@"
}

# Runs an example on one device, by packets, which are captured.
by_packets() {
	build "$1"
	echo 0 >/sys/class/infiniband/fe0/local_path
	capture left lo
	left "/tmp/$1" fe0 1
}

# Runs a program with two ends that meet at TCP port 18515: at the right end, and then at the left one with its address.
both() {
	right "$1" -d fe1 $2 >/dev/null &
	right listening 18515
	left "$1" -d fe0 $2 10.77.0.2 >/dev/null
	wait $!
}
