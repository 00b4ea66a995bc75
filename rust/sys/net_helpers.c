// SPDX-License-Identifier: GPL-2.0
/* Bodies of the shims in helpers.h: net devices, namespaces, sockets, links. */
#include "helpers.h"

#include <linux/crc32.h>
#include <linux/if_arp.h>
#include <linux/if_vlan.h>
#include <linux/igmp.h>
#include <linux/inetdevice.h>
#include <linux/ipv6.h>
#include <linux/rtnetlink.h>
#include <linux/wait.h>
#include <net/addrconf.h>
#include <net/ip.h>
#include <net/ipv6.h>
#include <net/netns/generic.h>
#include <net/udp.h>
#include <net/udp_tunnel.h>

void ferroce_netdev_hold(struct net_device *dev)
{
	dev_hold(dev);
}

void ferroce_netdev_put(struct net_device *dev)
{
	dev_put(dev);
}

void ferroce_netdev_name(const struct net_device *dev, char name[IFNAMSIZ])
{
	strscpy(name, dev->name, IFNAMSIZ);
}

/* A tunnel has none, or an address of IP in its place, and that of lo is all zero. */
bool ferroce_netdev_mac(const struct net_device *dev, u8 mac[ETH_ALEN])
{
	if (dev->addr_len != ETH_ALEN || is_zero_ether_addr(dev->dev_addr))
		return false;
	memcpy(mac, dev->dev_addr, ETH_ALEN);
	return true;
}

int ferroce_netdev_ifindex(const struct net_device *dev)
{
	return READ_ONCE(dev->ifindex);
}

u32 ferroce_netdev_mtu(const struct net_device *dev)
{
	return READ_ONCE(dev->mtu);
}

u16 ferroce_netdev_hardware_type(const struct net_device *dev)
{
	return READ_ONCE(dev->type);
}

bool ferroce_netdev_is_operational(const struct net_device *dev)
{
	return netif_running(dev) && netif_carrier_ok(dev);
}

bool ferroce_netdev_is_vlan(const struct net_device *dev)
{
	return is_vlan_dev(dev);
}

/*
 * The name of the netdev that has taken this one, as a bridge or bond does: what
 * comes in here is its, as are the addresses. A VRF takes neither.
 */
bool ferroce_netdev_master(struct net_device *dev, char name[IFNAMSIZ])
{
	const struct net_device *master;
	bool has;

	rcu_read_lock();
	master = netdev_master_upper_dev_get_rcu(dev);
	has = master && !netif_is_l3_master(master);
	if (has)
		strscpy(name, master->name, IFNAMSIZ);
	rcu_read_unlock();
	return has;
}

struct net_device *ferroce_notifier_netdev(void *info)
{
	return netdev_notifier_info_to_dev(info);
}

static struct {
	ferroce_address_added_t added;
	void *context;
} ferroce_addresses;

static int ferroce_inetaddr_event(struct notifier_block *block,
				  unsigned long event, void *ptr)
{
	const struct in_ifaddr *address = ptr;

	if (event == NETDEV_UP)
		ferroce_addresses.added(ferroce_addresses.context,
					address->ifa_dev->dev);
	return NOTIFY_DONE;
}

static struct notifier_block ferroce_inetaddr = {
	.notifier_call = ferroce_inetaddr_event,
};

#if IS_ENABLED(CONFIG_IPV6)
static int ferroce_inet6addr_event(struct notifier_block *block,
				   unsigned long event, void *ptr)
{
	const struct inet6_ifaddr *address = ptr;

	if (event == NETDEV_UP)
		ferroce_addresses.added(ferroce_addresses.context,
					address->idev->dev);
	return NOTIFY_DONE;
}

static struct notifier_block ferroce_inet6addr = {
	.notifier_call = ferroce_inet6addr_event,
};
#endif

int ferroce_addresses_listen(ferroce_address_added_t added, void *context)
{
	int err;

	if (cmpxchg(&ferroce_addresses.added, NULL, added))
		return -EBUSY;
	ferroce_addresses.context = context;
	err = register_inetaddr_notifier(&ferroce_inetaddr);
	if (err)
		goto forget;
#if IS_ENABLED(CONFIG_IPV6)
	err = register_inet6addr_notifier(&ferroce_inet6addr);
	if (err) {
		unregister_inetaddr_notifier(&ferroce_inetaddr);
		goto forget;
	}
#endif
	return 0;

forget:
	ferroce_addresses.added = NULL;
	return err;
}

/* No call is in progress when it returns. */
void ferroce_addresses_ignore(void)
{
#if IS_ENABLED(CONFIG_IPV6)
	unregister_inet6addr_notifier(&ferroce_inet6addr);
#endif
	unregister_inetaddr_notifier(&ferroce_inetaddr);
	ferroce_addresses.added = NULL;
}

/*
 * A namespace counts its residents. Its exit runs after its last netdev
 * has gone (subsystems exit after devices), so none can be added, and
 * before IPv4, IPv6 and their routes are taken down.
 */
struct ferroce_netns {
	atomic_t residents;
};

static unsigned int ferroce_netns_id __read_mostly;
static DECLARE_WAIT_QUEUE_HEAD(ferroce_netns_wait);

static int ferroce_netns_init(struct net *net)
{
	struct ferroce_netns *ns = net_generic(net, ferroce_netns_id);

	atomic_set(&ns->residents, 0);
	return 0;
}

static void ferroce_netns_exit(struct net *net)
{
	struct ferroce_netns *ns = net_generic(net, ferroce_netns_id);

	wait_event(ferroce_netns_wait, !atomic_read_acquire(&ns->residents));
}

static struct pernet_operations ferroce_netns_ops = {
	.init = ferroce_netns_init,
	.exit = ferroce_netns_exit,
	.id = &ferroce_netns_id,
	.size = sizeof(struct ferroce_netns),
};

int ferroce_net_open(void)
{
	int err;

	err = ferroce_packet_memory_open();
	if (err)
		return err;
	err = register_pernet_subsys(&ferroce_netns_ops);
	if (err)
		ferroce_packet_memory_close();
	return err;
}

void ferroce_net_close(void)
{
	unregister_pernet_subsys(&ferroce_netns_ops);
	ferroce_packet_memory_close();
}

/* NULL while the netdev is being removed. */
struct net *ferroce_netns_enter(struct net_device *dev)
{
	struct net *net;

	ASSERT_RTNL();
	if (dev->reg_state != NETREG_REGISTERED)
		return NULL;
	net = dev_net(dev);
	ferroce_netns_stay(net);
	return net;
}

void ferroce_netns_stay(struct net *net)
{
	struct ferroce_netns *ns = net_generic(net, ferroce_netns_id);

	atomic_inc(&ns->residents);
}

void ferroce_netns_leave(struct net *net)
{
	struct ferroce_netns *ns = net_generic(net, ferroce_netns_id);

	/* The namespace may be gone as soon as the count is zero. */
	if (atomic_dec_and_test(&ns->residents))
		wake_up_all(&ferroce_netns_wait);
}

/* Only to compare: the device may leave the namespace at any moment. */
const struct net *ferroce_netns_of_netdev(const struct net_device *dev)
{
	const struct net *net;

	rcu_read_lock();
	net = dev_net_rcu(dev);
	rcu_read_unlock();
	return net;
}

struct net *ferroce_netns_of_sock(const struct sock *sk)
{
	return sock_net(sk);
}

static int ferroce_socket_open(struct net *net, u8 family,
			       int (*receive)(struct sock *, struct sk_buff *),
			       struct sock **sk)
{
	struct udp_port_cfg port = {
		.family = family,
		.local_udp_port = htons(FERROCE_UDP_PORT),
		.ipv6_v6only = family == AF_INET6,
		/* RoCEv2 sends a zero checksum: the ICRC covers the packet. */
		.use_udp6_rx_checksums = 0,
	};
	struct udp_tunnel_sock_cfg tunnel = {
		.encap_type = 1,
		.encap_rcv = receive,
	};
	struct socket *sock;
	int err;

	err = udp_sock_create(net, &port, &sock);
	if (err)
		return err;
	*sk = sock->sk;
	setup_udp_tunnel_sock(net, sock->sk, &tunnel);
	return 0;
}

int ferroce_sockets_open(struct net *net,
			 int (*receive)(struct sock *sk, struct sk_buff *skb),
			 struct ferroce_sockets *sockets)
{
	int err;

	sockets->v4 = NULL;
	sockets->v6 = NULL;
	err = ferroce_socket_open(net, AF_INET, receive, &sockets->v4);
	if (err)
		return err;
	if (!IS_ENABLED(CONFIG_IPV6) || !ipv6_mod_enabled())
		return 0;
	err = ferroce_socket_open(net, AF_INET6, receive, &sockets->v6);
	if (err == -EAFNOSUPPORT)
		return 0;
	if (err)
		ferroce_sockets_close(sockets);
	return err;
}

void ferroce_sockets_close(struct ferroce_sockets *sockets)
{
	if (sockets->v6)
		udp_tunnel_sock_release(sockets->v6);
	if (sockets->v4)
		udp_tunnel_sock_release(sockets->v4);
	sockets->v4 = NULL;
	sockets->v6 = NULL;
	/* A receiver that found a socket before may still run. */
	synchronize_net();
}

/* IP leaves the largest fragment's length in a reassembled skb. */
static bool ferroce_rx_was_fragmented(const struct sk_buff *skb, bool is_v6)
{
	return is_v6 ? IP6CB(skb)->frag_max_size : IPCB(skb)->frag_max_size;
}

/*
 * UDP takes a batch apart in front of the socket (udp_queue_rcv_skb()), and hands
 * over one packet after the other while it has the list of those that follow.
 * Nothing else leaves a packet in a list.
 */
static const u8 *ferroce_rx_next(const struct sk_buff *skb)
{
	const struct sk_buff *next = skb->next;
	unsigned int bth;

	if (likely(!next))
		return NULL;
	bth = skb_transport_offset(next) + sizeof(struct udphdr);
	if (bth + FERROCE_RX_NEXT_LEN > skb_headlen(next))
		return NULL;
	return next->data + bth;
}

/*
 * The skb is ours alone (IP unshares it) but its data may be shared with a
 * clone: it is only read. The transport header is where the data begins.
 * After -ENOMEM the part of it is described that is linear.
 */
int ferroce_rx_open(struct sk_buff *skb, struct ferroce_rx *rx)
{
	int below_vrf, err = 0;

	rx->skb = skb;
	rx->is_v6 = skb->protocol == htons(ETH_P_IPV6);
	/* Behind a VRF skb->dev is the VRF, and this the device below it. */
	below_vrf = rx->is_v6 ? inet6_sdif(skb) : inet_sdif(skb);
	rx->ifindex = below_vrf ?: skb->dev ? skb->dev->ifindex : 0;
	if (ferroce_rx_was_fragmented(skb, rx->is_v6))
		return -EPROTO;
	rx->copied = skb_is_nonlinear(skb);
	if (rx->copied && __skb_linearize(skb))
		err = -ENOMEM;
	if (skb_headlen(skb) < sizeof(struct udphdr))
		return -EINVAL;

	rx->ip = skb_network_header(skb);
	rx->ip_len = skb_network_header_len(skb);
	if (rx->is_v6) {
		/* Nothing may stand between the IPv6 header and UDP. */
		if (rx->ip_len != sizeof(struct ipv6hdr) ||
		    ipv6_hdr(skb)->nexthdr != IPPROTO_UDP)
			return -EPROTO;
	} else {
		if (rx->ip_len != sizeof(struct iphdr) ||
		    ip_hdr(skb)->ihl != 5)
			return -EPROTO;
	}
	rx->udp = skb->data;
	rx->payload = skb->data + sizeof(struct udphdr);
	rx->payload_len = skb_headlen(skb) - sizeof(struct udphdr);
	rx->next = ferroce_rx_next(skb);
	return err;
}

void ferroce_rx_link(const struct ferroce_rx *rx, struct ferroce_link_info *info)
{
	const struct sk_buff *skb = rx->skb;
	const struct net_device *dev = skb->dev;

	memset(info, 0, sizeof(*info));
	if (!dev)
		return;
	if (is_vlan_dev(dev)) {
		info->has_vlan = true;
		info->vlan = vlan_dev_vlan_id(dev);
	}
	if (dev->type == ARPHRD_ETHER && skb_mac_header_was_set(skb) &&
	    skb_mac_header_len(skb) >= ETH_HLEN) {
		info->has_mac = true;
		memcpy(info->mac, eth_hdr(skb)->h_source, ETH_ALEN);
	}
}

/* The index of a netdev, or of the one below it if it is a VLAN. */
static int ferroce_real_ifindex(const struct net_device *dev)
{
	return is_vlan_dev(dev) ? vlan_dev_real_dev(dev)->ifindex : dev->ifindex;
}

/* The netdev that a packet came in by; behind a VRF it is not the skb's. */
static const struct net_device *ferroce_rx_netdev(const struct ferroce_rx *rx)
{
	const struct net_device *dev = rx->skb->dev;

	return dev ? dev_get_by_index_rcu(dev_net_rcu(dev), rx->ifindex) : NULL;
}

int ferroce_rx_real_ifindex(const struct ferroce_rx *rx)
{
	const struct net_device *dev;
	int ifindex;

	rcu_read_lock();
	dev = ferroce_rx_netdev(rx);
	ifindex = dev ? ferroce_real_ifindex(dev) : rx->ifindex;
	rcu_read_unlock();
	return ifindex;
}

/* Packets of this host to itself arrive by `lo` or by a VRF. */
static bool ferroce_is_own(const struct net_device *dev)
{
	return (dev->flags & IFF_LOOPBACK) || netif_is_l3_master(dev);
}

bool ferroce_rx_is_own(const struct ferroce_rx *rx)
{
	const struct net_device *dev;
	bool own;

	rcu_read_lock();
	dev = ferroce_rx_netdev(rx);
	own = dev && ferroce_is_own(dev);
	rcu_read_unlock();
	return own;
}

/* Whether the netdev has an address, which others may have, too. In RCU. */
bool ferroce_netdev_has(const struct net_device *dev, bool is_v6,
			const u8 *address)
{
	const struct in_device *in;
	const struct in_ifaddr *ifa;
	__be32 v4;

	if (is_v6) {
#if IS_ENABLED(CONFIG_IPV6)
		struct in6_addr v6;

		memcpy(&v6, address, sizeof(v6));
		return ipv6_chk_addr(dev_net_rcu(dev), &v6, dev, 1);
#else
		return false;
#endif
	}
	memcpy(&v4, address, sizeof(v4));
	in = __in_dev_get_rcu(dev);
	if (in)
		in_dev_for_each_ifa_rcu(ifa, in)
			if (ifa->ifa_local == v4)
				return true;
	return false;
}

/* The netdev that has an address: rather one of the two than another. */
static const struct net_device *ferroce_owner(struct net *net,
					      const struct net_device *dev,
					      const struct net_device *in,
					      bool is_v6, const u8 *address)
{
#if IS_ENABLED(CONFIG_IPV6)
	struct in6_addr v6;
#endif
	__be32 v4;

	if (dev && ferroce_netdev_has(dev, is_v6, address))
		return dev;
	if (in && ferroce_netdev_has(in, is_v6, address))
		return in;
	if (!is_v6) {
		memcpy(&v4, address, sizeof(v4));
		return __ip_dev_find(net, v4, false);
	}
#if IS_ENABLED(CONFIG_IPV6)
	memcpy(&v6, address, sizeof(v6));
	/* With a netdev it would look there alone, and a VLAN may have it. */
	return ipv6_dev_find(net, &v6, NULL);
#else
	return NULL;
#endif
}

/*
 * A packet to an address of this host, which came in by the netdev `ifindex`,
 * is for a device on the netdev `port` if that, or a VLAN on it, has the
 * address, and if it came in there or from this host itself. Another netdev may
 * have it as well, as in two VRFs.
 */
enum ferroce_arrival ferroce_arrival(struct net *net, int port, int ifindex,
				     bool is_v6, const u8 *address)
{
	enum ferroce_arrival arrival = FERROCE_ARRIVED;
	const struct net_device *owner, *in;

	rcu_read_lock();
	in = dev_get_by_index_rcu(net, ifindex);
	owner = ferroce_owner(net, dev_get_by_index_rcu(net, port), in, is_v6,
			      address);
	if (!owner || ferroce_real_ifindex(owner) != port)
		arrival = FERROCE_WRONG_ADDRESS;
	else if (!in || (ferroce_real_ifindex(in) != port && !ferroce_is_own(in)))
		arrival = FERROCE_WRONG_DEVICE;
	rcu_read_unlock();
	return arrival;
}

static bool ferroce_is_member4(struct in_device *in, __be32 group)
{
	const struct ip_mc_list *im;

	for (im = rtnl_dereference(in->mc_list); im;
	     im = rtnl_dereference(im->next_rcu))
		if (im->multiaddr == group)
			return true;
	return false;
}

static int ferroce_join4(struct net_device *dev,
			 struct ferroce_membership *membership)
{
	struct in_device *in = __in_dev_get_rtnl(dev);
	__be32 group;

	if (!in)
		return -ENODEV;
	memcpy(&group, membership->address, sizeof(group));
	ip_mc_inc_group(in, group);
	/* It does not say when it has had no memory. */
	if (!ferroce_is_member4(in, group))
		return -ENOMEM;
	in_dev_hold(in);
	membership->joined = in;
	return 0;
}

static void ferroce_leave4(struct net_device *dev,
			   const struct ferroce_membership *membership)
{
	struct in_device *in = membership->joined;
	__be32 group;

	memcpy(&group, membership->address, sizeof(group));
	if (__in_dev_get_rtnl(dev) == in)
		ip_mc_dec_group(in, group);
	in_dev_put(in);
}

#if IS_ENABLED(CONFIG_IPV6)
static int ferroce_join6(struct net_device *dev,
			 struct ferroce_membership *membership)
{
	struct inet6_dev *in = __in6_dev_get(dev);
	struct in6_addr group;
	int err;

	if (!in)
		return -ENODEV;
	memcpy(&group, membership->address, sizeof(group));
	err = ipv6_dev_mc_inc(dev, &group);
	if (err)
		return err;
	in6_dev_hold(in);
	membership->joined = in;
	return 0;
}

static void ferroce_leave6(struct net_device *dev,
			   const struct ferroce_membership *membership)
{
	struct inet6_dev *in = membership->joined;
	struct in6_addr group;

	memcpy(&group, membership->address, sizeof(group));
	if (__in6_dev_get(dev) == in)
		ipv6_dev_mc_dec(dev, &group);
	in6_dev_put(in);
}
#else
static int ferroce_join6(struct net_device *dev,
			 struct ferroce_membership *membership)
{
	return -EAFNOSUPPORT;
}

static void ferroce_leave6(struct net_device *dev,
			   const struct ferroce_membership *membership)
{
}
#endif

/*
 * What a netdev has joined it leaves when it loses its IP configuration, by
 * going away or to another namespace. What it has then is another one, which is
 * not ours to leave.
 */
int ferroce_membership_join(struct net *net, struct net_device *dev, bool is_v6,
			    const u8 *address,
			    struct ferroce_membership *membership)
{
	ASSERT_RTNL();
	if (dev->reg_state != NETREG_REGISTERED || !net_eq(dev_net(dev), net))
		return -ENODEV;
	membership->is_v6 = is_v6;
	memcpy(membership->address, address, is_v6 ? 16 : 4);
	return is_v6 ? ferroce_join6(dev, membership) :
		       ferroce_join4(dev, membership);
}

void ferroce_membership_leave(struct net_device *dev,
			      const struct ferroce_membership *membership)
{
	ASSERT_RTNL();
	if (membership->is_v6)
		ferroce_leave6(dev, membership);
	else
		ferroce_leave4(dev, membership);
}

/*
 * Releases what a namespace, a netdev or a route would have to wait for, and so
 * must not be held for long.
 */
static void ferroce_rx_detach(struct sk_buff *skb)
{
	skb_orphan(skb);
	skb_dst_drop(skb);
	skb_ext_reset(skb);
	nf_reset_ct(skb);
}

/*
 * Takes a reference, for later. Returns the memory that the skb takes. A piece of
 * a page keeps all of it, if its neighbours are gone; as a rule they are not, so
 * it pays for a quarter at least.
 */
u32 ferroce_rx_keep(struct sk_buff *skb)
{
	unsigned long bytes;

	ferroce_rx_detach(skb);
	bytes = skb_get(skb)->truesize;
	if (skb->head_frag)
		bytes = max(bytes, page_size(virt_to_head_page(skb->head)) / 4);
	return bytes;
}

/* Bytes of the packets from this one to the end of its batch. */
u32 ferroce_rx_batch_len(const struct sk_buff *skb)
{
	u32 len = 0;

	for (; skb; skb = skb->next)
		len += skb->len;
	return len;
}

/*
 * The caller goes on to the packet behind this one by a pointer of its own. Who
 * has another reference may have linked it already.
 */
bool ferroce_rx_defer(struct ferroce_rx_batch *batch, struct sk_buff *skb)
{
	if (!skb->dev || skb_shared(skb))
		return false;
	ferroce_rx_detach(skb);
	dev_hold(skb->dev);
	skb_get(skb);
	skb->next = NULL;
	skb->prev = NULL;
	if (batch->last)
		batch->last->next = skb;
	else
		batch->first = skb;
	batch->last = skb;
	return true;
}

struct sk_buff *ferroce_rx_deferred_next(const struct sk_buff *skb)
{
	return skb->next;
}

const struct net *ferroce_rx_deferred_netns(const struct sk_buff *skb)
{
	return ferroce_netns_of_netdev(skb->dev);
}

void ferroce_rx_deferred_end(struct sk_buff *skb, bool dropped)
{
	struct net_device *dev = skb->dev;

	skb->next = NULL;
	ferroce_rx_end(skb, dropped);
	/* Last: who traces the end of the skb may look at its netdev. */
	dev_put(dev);
}

void ferroce_rx_batches_add(struct ferroce_rx_batch *batches, struct sk_buff *first)
{
	if (batches->last)
		batches->last->prev = first;
	else
		batches->first = first;
	batches->last = first;
}

struct sk_buff *ferroce_rx_batches_take(struct ferroce_rx_batch *batches)
{
	struct sk_buff *first = batches->first;

	if (!first)
		return NULL;
	batches->first = first->prev;
	if (!batches->first)
		batches->last = NULL;
	first->prev = NULL;
	return first;
}

void ferroce_rx_end(struct sk_buff *skb, bool dropped)
{
	if (dropped)
		kfree_skb(skb);
	else
		consume_skb(skb);
}

static struct {
	ferroce_newlink_t newlink;
	ferroce_dellink_t dellink;
	void *context;
	struct rdma_link_ops ops;
} ferroce_link;

/* ib_core calls this under its lock of link types. */
static int ferroce_newlink(const char *name, struct net_device *dev)
{
	return ferroce_link.newlink(ferroce_link.context, name, dev);
}

/* An error would leave ib_core with a reference that it does not drop. */
static int ferroce_dellink(struct ib_device *device)
{
	ferroce_link.dellink(device);
	return 0;
}

int ferroce_link_register(const char *type, ferroce_newlink_t newlink,
			  ferroce_dellink_t dellink, void *context)
{
	if (cmpxchg(&ferroce_link.newlink, NULL, newlink))
		return -EBUSY;
	ferroce_link.dellink = dellink;
	ferroce_link.context = context;
	ferroce_link.ops.type = type;
	ferroce_link.ops.newlink = ferroce_newlink;
	ferroce_link.ops.dellink = ferroce_dellink;
	rdma_link_register(&ferroce_link.ops);
	return 0;
}

void ferroce_link_unregister(void)
{
	rdma_link_unregister(&ferroce_link.ops);
	ferroce_link.newlink = NULL;
}

/* `rdma link delete` finds the link type by the device. */
void ferroce_link_made(struct ib_device *device)
{
	device->link_ops = &ferroce_link.ops;
}

/* Bytes that are copied together for the sake of one CRC: most messages are short. */
#define FERROCE_CRC_TOGETHER	256

static noinline u32 ferroce_crc32_le_together(u32 crc, const u8 *head,
					      size_t head_len, const u8 *rest,
					      size_t rest_len)
{
	/* It would take longer to clear it. */
	u8 both[FERROCE_CRC_TOGETHER] __uninitialized;

	memcpy(both, head, head_len);
	memcpy(both + head_len, rest, rest_len);
	return crc32_le(crc, both, head_len + rest_len);
}

/*
 * Each crc32_le() of 16 bytes or more takes the FPU and gives it back, which is
 * dearer than to copy a short rest behind its head.
 */
u32 ferroce_crc32_le(u32 crc, const u8 *head, size_t head_len, const u8 *rest,
		     size_t rest_len)
{
	if (rest_len >= 16 && head_len + rest_len <= FERROCE_CRC_TOGETHER)
		return ferroce_crc32_le_together(crc, head, head_len, rest,
						 rest_len);
	return crc32_le(crc32_le(crc, head, head_len), rest, rest_len);
}
