# SPDX-License-Identifier: GPL-2.0
# tests/examples/events.c, and which of its steps are system calls: its own lines, doorbells, waits and events taken.
. Documentation/walks/lib.sh
build events
left strace -s 80 -o /tmp/calls -e trace=poll,read,write stdbuf -oL /tmp/events fe0 1 >/dev/null
sed -n 's/^write(1, "\(.*\)\\n".*/\1/p
	s/^write(3, "\\34.*/    write: doorbell/p
	s/^poll(\[{fd=[0-9]*, events=POLLIN}\], 1, [0-9]*) *= 1 .*/    poll: readable/p
	s/^poll(\[{fd=[0-9]*, events=POLLIN}\], 1, [0-9]*) *= 0 .*/    poll: nothing/p
	s/^read([0-9]*, ".*", 8) *= 8/    read: an event/p' /tmp/calls
