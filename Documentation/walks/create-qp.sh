# SPDX-License-Identifier: GPL-2.0
# The calls of user space that lead to a queue pair: who calls whom, and what the kernel is asked for.
. Documentation/walks/lib.sh
build rnr
cat >/tmp/create-qp.gdb <<'END'
set pagination off
set breakpoint pending on
break ibv_create_qp
run fe0 1
catch syscall ioctl
continue
backtrace
kill
END
# Those frames alone whose functions have a name, without addresses.
left gdb -batch -x /tmp/create-qp.gdb /tmp/rnr 2>/dev/null |
	sed -n 's/^#[0-9]* *0x[0-9a-f]* in \([a-z].*\) () from .*\/\([^/]*\)$/\1 (\2)/p
		s/^#[0-9]* *0x[0-9a-f]* in \([a-z_]*\) ()$/\1 (the program)/p' |
	sed 's/\.so[.0-9]*)/)/; s/-rdmav[0-9]*)/)/'
# From the second completion queue, which has the ring at 0x1000, to the first queue pair: a region is in between.
left strace -o /tmp/calls -e trace=ioctl,mmap,write /tmp/rnr fe0 1 >/dev/null
sed -n '/0x1000) /,/0x3000) /p' /tmp/calls | sed 's/0x[0-9a-f]\{6,\}/ADDRESS/'
