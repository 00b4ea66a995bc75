# SPDX-License-Identifier: GPL-2.0
# Datagrams to a group: tests/examples/mcast.c with two members, one of another Q_Key, and one without a member; then mckey.
. Documentation/walks/lib.sh
build mcast
modprobe rdma_ucm
capture left eth0
right tcpdump -i eth0 -n -t -v --immediate-mode -l igmp >/tmp/igmp 2>/tmp/igmp.log &
igmp=$!
until grep -q "listening on" /tmp/igmp.log; do sleep 0.1; done
groups() { right ip maddress show dev eth0 | grep -e "239\.1\.2\." -e "01:00:5e:01:02:" | tr -d "\t"; }
refused() { right rdma statistic show link fe1/1 | grep -o "drop_qkey [0-9]*"; }

right /tmp/mcast fe1 1 239.1.2.3 >/tmp/right &
members=$!
until grep -q members /tmp/right; do sleep 0.1; done
echo "right has joined:"; groups
echo "left, with another Q_Key:"
(cd tests/examples && sed 's/QKEY = 0x11111111/QKEY = 0x22222222/' mcast.c | cc -I. -o /tmp/other -x c - -x none common.c -libverbs)
left /tmp/other fe0 1 239.1.2.3 send; refused
echo "left:"
left /tmp/mcast fe0 1 239.1.2.3 send
wait $members
echo "right:"; cat /tmp/right
echo "right has left: $(groups | wc -l) addresses"
echo "left, without a member:"
left /tmp/mcast fe0 1 239.1.2.3 send
ladder | sed -n "/^1\. /,\$p" | sed "/^2\. /,\$d"
kill $igmp
echo "IGMP:"; grep -o "10.*239\.1\.2\.3.*" /tmp/igmp | sort -u

echo "mckey, two members:"
for member in 1 2; do right stdbuf -oL mckey -m 239.1.2.4 -b 10.77.0.2 -C 1 >/tmp/mckey$member & done
until grep -q receiving /tmp/mckey1 && grep -q receiving /tmp/mckey2; do sleep 0.1; done
groups
left mckey -s -m 239.1.2.4 -b 10.77.0.1 -C 1 >/dev/null
wait
grep -h -e joined -e return /tmp/mckey1 /tmp/mckey2
echo "a group of IPv6:"
left mckey -s -m ff0e::1 -b fd77::1 2>&1 >/dev/null | grep joining
