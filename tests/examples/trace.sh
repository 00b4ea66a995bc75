# SPDX-License-Identifier: GPL-2.0
# Runs an example in a guest (make trace EXAMPLE=rnr) and draws its packets: build/trace/rnr.html.
# What talks to itself is on one device, by packets; what has two ends is between `left` and `right`.
set -e
name=${1:?the name of an example is missing: make trace EXAMPLE=rnr}
if ! [ -e "tests/examples/$name.c" ] || [ "$name" = common ]; then
	echo "there is no example $name; there are:" $(cd tests/examples && ls *.c | grep -v common | sed 's/\.c$//') >&2
	exit 2
fi
. Documentation/walks/lib.sh
build "$name"
single_packets
mkdir -p build/trace

# Both ends, the second one once this command says that the first one waits.
two_ends() {
	right "/tmp/$name" $1 >/tmp/right.out 2>&1 &
	# It says why, too, where the second one fails.
	trap "kill $! 2>/dev/null || :; sed 's/^/the other end: /' /tmp/right.out" EXIT
	until eval "$3" >/dev/null; do kill -0 $!; sleep 0.1; done
	left "/tmp/$name" $2
	wait $!
}

if [ "$2" = inside ]; then
	case $name in
	rc | ud) two_ends "fe1 1" "fe0 1 10.77.0.2" "right ss -Hltn | grep 1852" ;;
	cm) two_ends "listen 10.77.0.2" "connect 10.77.0.2" "right rdma resource show cm_id | grep LISTEN" ;;
	mcast) two_ends "fe1 1 239.1.2.3" "fe0 1 239.1.2.3 send" "right ip maddr show dev eth0 | grep 239.1.2.3" ;;
	*) left "/tmp/$name" fe0 1 ;;
	esac
	exit
fi
ferroce trace --wire -o "build/trace/$name.html" -- sh "$0" "$name" inside
