# SPDX-License-Identifier: GPL-2.0
# Three addresses to which rdma_bind_addr does not bind, and what the kernel said each time.
. Documentation/walks/lib.sh
build cm
modprobe rdma_ucm
try() {
	echo "$1:"
	left strace -e trace=write -o /tmp/calls /tmp/cm listen "$2" 2>&1
	# From the last BIND on; a command's number is in its first byte.
	sed -n 's/^write(3, "\\24\\0\\0\\0.* = \(.*\)/    BIND = \1/p; s/^write(3, "\\23\\0\\0\\0.* = \(.*\)/    QUERY = \1/p' /tmp/calls |
		tac | sed '/BIND/q' | tac
}
left ip link add dummy0 type dummy
left ip addr add 10.99.0.1/24 dev dummy0
left ip link set dummy0 up
try "an address of a netdev without a link" 10.99.0.1
mv /dev/infiniband/uverbs0 /dev/infiniband/hidden
try "an address of fe0, which libibverbs does not list" 10.77.0.1
mv /dev/infiniband/hidden /dev/infiniband/uverbs0
try "an address of nobody" 10.99.0.2
