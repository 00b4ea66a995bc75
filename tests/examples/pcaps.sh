# SPDX-License-Identifier: GPL-2.0
# Makes small captures in a guest (make pcaps), each about one thing, with a comment on each packet: build/pcaps. list.txt
# there says of each what it is about, and a filter of Wireshark's that shows it.
set -e
. Documentation/walks/lib.sh
out=${1:-build/pcaps}
rm -rf "$out"
mkdir -p "$out"
for name in rnr srq claims write_imm statuses cm mcast; do build "$name"; done
single_packets

# NAME, what it is about, a filter, and the commands, in which `both` runs the two ends of a program.
pcap() {
	printf '. Documentation/walks/lib.sh\n%s\n' "$4" >/tmp/pcap.sh
	if ! ferroce trace --wire --note "$2" -o "$out/$1.pcapng" -- sh -e /tmp/pcap.sh >/tmp/pcap.out 2>&1; then
		echo "$1:" >&2
		cat /tmp/pcap.out >&2
		exit 1
	fi
	printf '%s\t%s\t%s\n' "$1" "$2" "$3" >>"$out/list.txt"
	echo "$1: $2"
}

# Loses packets on their way in at the right end: what u32 matches, and how.
losing="right tc qdisc add dev eth0 clsact
right tc filter add dev eth0 ingress protocol ip u32 match ip dport 4791 0xffff"
mended="right tc qdisc del dev eth0 clsact"
one="-g 1 -m 1024 -n 1"
perf="-F -x 1 -m 1024 -n 5"

pcap send "A SEND of 2500 bytes: First, Middle, Last, and one ACK for all of them" "infiniband.bth.opcode == 1" \
	"both ibv_rc_pingpong '$one -s 2500'"
pcap send-only "A SEND of 64 bytes: one packet, one ACK" "infiniband.bth.opcode == 4" "both ibv_rc_pingpong '$one -s 64'"
pcap small-mtu "The same at a path MTU of 256: a packet for each 256 bytes" "infiniband.bth.opcode == 1 && udp.length == 280" \
	"both ibv_rc_pingpong '-g 1 -m 256 -n 1 -s 1000'"
pcap ipv6 "RoCE v2 over IPv6" "ipv6 && infiniband.bth" "both ibv_rc_pingpong '-g 0 -m 1024 -n 1 -s 64'"
pcap uc "UC: no acknowledgement" "infiniband.bth.opcode == 0x24" "both ibv_uc_pingpong '$one -s 64'"
pcap ud "UD: each datagram names the queue pair that it comes from" "infiniband.deth.srcqp" "both ibv_ud_pingpong '-g 1 -n 1 -s 64'"
pcap shared-receives "Several connections that share a receive queue" "infiniband.bth.opcode == 4" "left /tmp/srq fe0 1"
pcap write "RDMA WRITE of 2500 bytes: only the first packet says where to" "infiniband.bth.opcode == 6 && infiniband.reth.dmalen == 2500" \
	"both ib_write_bw '$perf -s 2500'"
pcap write-with-immediate "RDMA WRITE with immediate data, which takes a receive" "infiniband.bth.opcode == 0x0b && infiniband.immdt" \
	"left /tmp/write_imm fe0 1"
pcap read "RDMA READ of 2500 bytes: a request, and three responses" "infiniband.bth.opcode == 0x0e" "both ib_read_bw '$perf -s 2500'"
pcap fetch-and-add "FETCH_AND_ADD: the answer has the value before it" "infiniband.bth.opcode == 0x14" \
	"both ib_atomic_bw '-F -x 1 -n 5 -A FETCH_AND_ADD'"
pcap compare-and-swap "CMP_AND_SWP" "infiniband.bth.opcode == 0x13" "both ib_atomic_bw '-F -x 1 -n 5 -A CMP_AND_SWAP'"
pcap no-receive "RNR NAK: a message came before its receive was posted" "infiniband.aeth.syndrome.opcode == 1" "left /tmp/rnr fe0 1"
pcap no-access "NAK remote access error: the R_Key is that of no region" "infiniband.aeth.syndrome == 0x62" \
	"left /tmp/claims fe0 1"
pcap failures "Each way in which a request can fail" "infiniband.aeth.syndrome == 0x61" "left /tmp/statuses fe0 1"
pcap lost "A packet is lost: what comes behind it is kept, a report names it, and it alone goes again" \
	"infiniband.bth.opcode == 0xc0" "$losing action pass random determ drop 5
both ibv_rc_pingpong '-g 1 -m 1024 -n 2 -s 5000'
$mended"
pcap lost-response "A response of a READ is lost: what comes behind it is placed, and it alone is asked for again" \
	"infiniband.bth.opcode == 0x0c && infiniband.reth.dmalen < 5000" "$(echo "$losing" | sed s/right/left/) action pass random determ drop 7
both ib_read_bw '$perf -s 5000 -o 1'
$(echo "$mended" | sed s/right/left/)"
pcap doubled "The network doubles packets: each is executed once" "infiniband.bth.opcode == 4" \
	"left tc qdisc add dev eth0 root netem duplicate 100%
both ibv_rc_pingpong '$one -s 64'
left tc qdisc del dev eth0 root"
pcap connect "The connection manager: REQ, REP, RTU, and the end of it" "infiniband.cm.req && infiniband.cm.req.localqpn" \
	"right /tmp/cm listen 10.77.0.2 &
until right rdma resource show cm_id | grep -q LISTEN; do sleep 0.1; done
left /tmp/cm connect 10.77.0.2
wait \$!"
pcap refused "The connection manager: REQ, and REJ, for nobody listens" "infiniband.cm.rej.msgrej" "left /tmp/cm connect 10.77.0.2 || :"
pcap group "A datagram to a group, received by two queue pairs" "ip.dst == 239.1.2.3 && infiniband.deth" \
	"right /tmp/mcast fe1 1 239.1.2.3 &
until right ip maddr show dev eth0 | grep -q 239.1.2.3; do sleep 0.1; done
left /tmp/mcast fe0 1 239.1.2.3 send
wait \$!"
