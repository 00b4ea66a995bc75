// SPDX-License-Identifier: GPL-2.0
/* Bodies of the shims declared in net_helpers.h. */
#include "bindings_helper.h"

#include <linux/crc32.h>
#include <linux/if_vlan.h>
#include <linux/ipv6.h>
#include <linux/rtnetlink.h>
#include <linux/wait.h>
#include <net/inet_dscp.h>
#include <net/ip.h>
#include <net/ip6_route.h>
#include <net/ipv6.h>
#include <net/netns/generic.h>
#include <net/route.h>
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

void ferroce_netdev_mac(const struct net_device *dev, u8 mac[ETH_ALEN])
{
	memcpy(mac, dev->dev_addr, ETH_ALEN);
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

bool ferroce_netdev_is_up(const struct net_device *dev)
{
	return netif_running(dev);
}

bool ferroce_netdev_has_carrier(const struct net_device *dev)
{
	return netif_carrier_ok(dev);
}

bool ferroce_netdev_is_vlan(const struct net_device *dev)
{
	return is_vlan_dev(dev);
}

bool ferroce_netdev_is_bond(const struct net_device *dev)
{
	return netif_is_lag_master(dev) || netif_is_lag_port(dev);
}

struct net_device *ferroce_notifier_netdev(void *info)
{
	return netdev_notifier_info_to_dev(info);
}

/*
 * A namespace counts who depends on it. Its exit runs after its last netdev
 * has gone (subsystems exit after devices), so nobody can enter any more, and
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

int ferroce_netns_register(void)
{
	return register_pernet_subsys(&ferroce_netns_ops);
}

void ferroce_netns_unregister(void)
{
	unregister_pernet_subsys(&ferroce_netns_ops);
}

/* NULL when the netdev is on its way out. */
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

/*
 * The skb is ours alone (IP unshares it) but its data may be shared with a
 * clone: it is only read. The transport header is where the data begins.
 */
int ferroce_rx_open(struct sk_buff *skb, struct ferroce_rx *rx)
{
	rx->ifindex = skb->dev ? skb->dev->ifindex : 0;
	rx->copied = skb_is_nonlinear(skb);
	if (rx->copied && __skb_linearize(skb))
		return -ENOMEM;
	if (skb->len < sizeof(struct udphdr))
		return -EINVAL;

	rx->ip = skb_network_header(skb);
	rx->ip_len = skb_network_header_len(skb);
	rx->is_v6 = skb->protocol == htons(ETH_P_IPV6);
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
	rx->payload_len = skb->len - sizeof(struct udphdr);
	return 0;
}

void ferroce_rx_consume(struct sk_buff *skb)
{
	consume_skb(skb);
}

void ferroce_rx_drop(struct sk_buff *skb)
{
	kfree_skb(skb);
}

static struct dst_entry *ferroce_route4(struct net *net,
					const struct ferroce_flow *flow)
{
	struct flowi4 fl4 = {
		.flowi4_oif = flow->oif,
		.flowi4_dscp = inet_dsfield_to_dscp(flow->traffic_class),
		.flowi4_proto = IPPROTO_UDP,
		.fl4_sport = htons(flow->sport),
		.fl4_dport = htons(FERROCE_UDP_PORT),
	};
	struct rtable *rt;

	memcpy(&fl4.saddr, flow->saddr, sizeof(fl4.saddr));
	memcpy(&fl4.daddr, flow->daddr, sizeof(fl4.daddr));
	rt = ip_route_output_flow(net, &fl4, NULL);
	return IS_ERR(rt) ? ERR_CAST(rt) : &rt->dst;
}

static struct dst_entry *ferroce_route6(struct net *net,
					const struct ferroce_flow *flow)
{
#if IS_ENABLED(CONFIG_IPV6)
	struct flowi6 fl6 = {
		.flowi6_oif = flow->oif,
		.flowlabel = ip6_make_flowinfo(flow->traffic_class,
					       htonl(flow->flow_label & 0xfffff)),
		.flowi6_proto = IPPROTO_UDP,
		.fl6_sport = htons(flow->sport),
		.fl6_dport = htons(FERROCE_UDP_PORT),
	};

	memcpy(&fl6.saddr, flow->saddr, sizeof(fl6.saddr));
	memcpy(&fl6.daddr, flow->daddr, sizeof(fl6.daddr));
	return ip6_dst_lookup_flow(net, NULL, &fl6, NULL);
#else
	return ERR_PTR(-EAFNOSUPPORT);
#endif
}

int ferroce_route_lookup(struct net *net, const struct ferroce_flow *flow,
			 struct ferroce_route *route)
{
	struct dst_entry *dst;

	dst = flow->is_v6 ? ferroce_route6(net, flow) :
			    ferroce_route4(net, flow);
	if (IS_ERR(dst))
		return PTR_ERR(dst);
	/* A lookup can answer with a route that only says no. */
	if (dst->error) {
		int err = dst->error;

		dst_release(dst);
		return err < 0 ? err : -EHOSTUNREACH;
	}
	route->net = net;
	route->dst = dst;
	route->flow = *flow;
	route->cookie = 0;
#if IS_ENABLED(CONFIG_IPV6)
	if (flow->is_v6)
		route->cookie = rt6_get_cookie(dst_rt6_info(dst));
#endif
	return 0;
}

bool ferroce_route_is_valid(const struct ferroce_route *route)
{
	bool valid;

	rcu_read_lock();
	valid = dst_check(route->dst, route->cookie);
	rcu_read_unlock();
	return valid;
}

void ferroce_route_release(struct ferroce_route *route)
{
	dst_release(route->dst);
	route->dst = NULL;
}

static void ferroce_tx_put_ipv4(struct sk_buff *skb,
				const struct ferroce_route *route, u16 id)
{
	const struct ferroce_flow *flow = &route->flow;
	struct iphdr *ip;

	ip = skb_push(skb, sizeof(*ip));
	skb_reset_network_header(skb);
	ip->version = 4;
	ip->ihl = sizeof(*ip) / 4;
	ip->tos = flow->traffic_class;
	ip->tot_len = htons(skb->len);
	ip->id = htons(id);
	ip->frag_off = htons(IP_DF);
	ip->ttl = flow->hop_limit ?: ip4_dst_hoplimit(route->dst);
	ip->protocol = IPPROTO_UDP;
	memcpy(&ip->saddr, flow->saddr, sizeof(ip->saddr));
	memcpy(&ip->daddr, flow->daddr, sizeof(ip->daddr));
	ip_send_check(ip);
	skb->protocol = htons(ETH_P_IP);
}

static void ferroce_tx_put_ipv6(struct sk_buff *skb,
				const struct ferroce_route *route)
{
	const struct ferroce_flow *flow = &route->flow;
	struct ipv6hdr *ip;
	u16 payload_len = skb->len;

	ip = skb_push(skb, sizeof(*ip));
	skb_reset_network_header(skb);
	ip6_flow_hdr(ip, flow->traffic_class,
		     htonl(flow->flow_label & 0xfffff));
	ip->payload_len = htons(payload_len);
	ip->nexthdr = IPPROTO_UDP;
	ip->hop_limit = flow->hop_limit ?: ip6_dst_hoplimit(route->dst);
	memcpy(&ip->saddr, flow->saddr, sizeof(ip->saddr));
	memcpy(&ip->daddr, flow->daddr, sizeof(ip->daddr));
	skb->protocol = htons(ETH_P_IPV6);
}

/*
 * The IB bytes are not cleared: whoever fills them fills them all, or frees
 * the packet.
 */
int ferroce_tx_alloc(const struct ferroce_route *route, u32 ib_len,
		     u16 ip_id, struct ferroce_tx *tx)
{
	const struct ferroce_flow *flow = &route->flow;
	struct dst_entry *dst = route->dst;
	unsigned int below, headers;
	struct sk_buff *skb;
	struct udphdr *udp;

	headers = sizeof(*udp) +
		  (flow->is_v6 ? sizeof(struct ipv6hdr) : sizeof(struct iphdr));
	if (ib_len > U16_MAX - headers)
		return -EMSGSIZE;

	rcu_read_lock();
	below = LL_RESERVED_SPACE(dst_dev_rcu(dst)) + dst->header_len;
	rcu_read_unlock();
	/*
	 * Packets of a batch cannot be given more room on their way, as a
	 * single one can: a tunnel's headers must fit in front of each.
	 */
	below = max_t(unsigned int, below, MAX_HEADER);
	skb = alloc_skb(below + headers + ib_len + dst->trailer_len,
			GFP_ATOMIC | __GFP_NOWARN);
	if (!skb)
		return -ENOMEM;
	skb_reserve(skb, below + headers);
	tx->ib = skb_put(skb, ib_len);

	udp = skb_push(skb, sizeof(*udp));
	skb_reset_transport_header(skb);
	udp->source = htons(flow->sport);
	udp->dest = htons(FERROCE_UDP_PORT);
	udp->len = htons(skb->len);
	udp->check = 0;
	if (flow->is_v6)
		ferroce_tx_put_ipv6(skb, route);
	else
		ferroce_tx_put_ipv4(skb, route, ip_id);

	tx->skb = skb;
	tx->headers = skb->data;
	tx->headers_len = headers;
	return 0;
}

void ferroce_tx_free(struct sk_buff *skb)
{
	kfree_skb(skb);
}

/*
 * How much one batch may hold: bytes from the first packet's IP header on, and
 * packets. With GSO switched off (ethtool -K DEV gso off) it is one packet.
 */
void ferroce_tx_batch_limits(const struct ferroce_route *route, u32 *bytes,
			     u32 *packets)
{
	const struct net_device *dev;

	*bytes = 0;
	*packets = 1;
	if (dst_xfrm(route->dst))
		return;
	rcu_read_lock();
	dev = dst_dev_rcu(route->dst);
	if (dev->features & NETIF_F_GSO) {
		/* The length of the whole stands in 16 bits of IP and UDP. */
		*bytes = min3(READ_ONCE(dev->gso_max_size),
			      READ_ONCE(dev->gso_ipv4_max_size),
			      (unsigned int)U16_MAX);
		*packets = READ_ONCE(dev->gso_max_segs);
	}
	rcu_read_unlock();
}

/*
 * Makes skb the next packet of the batch that begins with head, behind tail.
 * A batch is what GRO makes of packets it has put in a row (SKB_GSO_FRAGLIST):
 * each keeps its own headers, which segmentation finds in front of its data,
 * and its own ICRC. It goes through the stack once, and is taken apart by what
 * cannot handle it: a device without tx-gso-list, or the receiving socket.
 */
void ferroce_tx_append(struct sk_buff *head, struct sk_buff *tail,
		       struct sk_buff *skb)
{
	__skb_pull(skb, skb_transport_offset(skb));
	if (head == tail)
		skb_shinfo(head)->frag_list = skb;
	else
		tail->next = skb;
	head->data_len += skb->len;
	head->len += skb->len;
	head->truesize += skb->truesize;
}

/* The batch is whole: what the stack wants to know of it stands in its head. */
void ferroce_tx_close(struct sk_buff *head, u16 packets)
{
	unsigned int network = skb_transport_offset(head);

	skb_shinfo(head)->gso_type = SKB_GSO_UDP_L4 | SKB_GSO_FRAGLIST;
	skb_shinfo(head)->gso_size = skb_headlen(head) - network -
				     sizeof(struct udphdr);
	skb_shinfo(head)->gso_segs = packets;
	/* Else the stack takes a GSO packet apart to compute checksums. */
	head->ip_summed = CHECKSUM_UNNECESSARY;
	/* IP sets its own length when the packet leaves. */
	udp_hdr(head)->len = htons(head->len - network);
}

/* Takes the skb. 0, NET_XMIT_CN, or that the packet is lost. */
int ferroce_tx_send(const struct ferroce_route *route, struct sk_buff *skb)
{
	dst_hold(route->dst);
	skb_dst_set(skb, route->dst);
#if IS_ENABLED(CONFIG_IPV6)
	if (route->flow.is_v6)
		return ip6_local_out(route->net, NULL, skb);
#endif
	return ip_local_out(route->net, NULL, skb);
}

static struct {
	ferroce_newlink_t newlink;
	void *context;
	struct rdma_link_ops ops;
} ferroce_link;

/* ib_core calls this under its lock of link types. */
static int ferroce_newlink(const char *name, struct net_device *dev)
{
	return ferroce_link.newlink(ferroce_link.context, name, dev);
}

int ferroce_link_register(const char *type, ferroce_newlink_t newlink,
			  void *context)
{
	if (ferroce_link.newlink)
		return -EBUSY;
	ferroce_link.newlink = newlink;
	ferroce_link.context = context;
	ferroce_link.ops.type = type;
	ferroce_link.ops.newlink = ferroce_newlink;
	rdma_link_register(&ferroce_link.ops);
	return 0;
}

void ferroce_link_unregister(void)
{
	rdma_link_unregister(&ferroce_link.ops);
	ferroce_link.newlink = NULL;
}

u32 ferroce_crc32_le(u32 crc, const u8 *bytes, size_t len)
{
	return crc32_le(crc, bytes, len);
}
