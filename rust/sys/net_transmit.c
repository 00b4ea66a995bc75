// SPDX-License-Identifier: GPL-2.0
/* Bodies of the shims in helpers.h: routes, and packets that leave. */
#include "helpers.h"

#include <linux/jhash.h>
#include <linux/percpu.h>
#include <linux/random.h>
#include <linux/shrinker.h>
#include <linux/vmstat.h>
#include <net/addrconf.h>
#include <net/inet_dscp.h>
#include <net/ip.h>
#include <net/ip6_route.h>
#include <net/ipv6.h>
#include <net/route.h>
#include <net/udp.h>

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

/* ip6_dst_lookup_flow() takes any source; IPv4's routing checks it. */
static bool ferroce_has_source6(struct net *net, const struct ferroce_flow *flow)
{
#if IS_ENABLED(CONFIG_IPV6)
	const struct net_device *dev;
	struct in6_addr source;
	bool found;

	memcpy(&source, flow->saddr, sizeof(source));
	rcu_read_lock();
	dev = dev_get_by_index_rcu(net, flow->oif);
	found = dev && ipv6_chk_addr(net, &source, dev, 0);
	rcu_read_unlock();
	return found;
#else
	return false;
#endif
}

/*
 * As skb_get_hash() would be, but computed once: the same for all packets of
 * the flow, on any CPU.
 */
static u32 ferroce_flow_hash(const struct ferroce_flow *flow)
{
	static u32 seed __read_mostly;
	u32 hash;

	net_get_random_once(&seed, sizeof(seed));
	hash = jhash(flow->saddr, sizeof(flow->saddr), seed);
	hash = jhash(flow->daddr, sizeof(flow->daddr), hash);
	return jhash_1word(flow->sport, hash) ?: 1;
}

int ferroce_route_lookup(struct net *net, const struct ferroce_flow *flow,
			 struct ferroce_route *route)
{
	struct dst_entry *dst;

	dst = flow->is_v6 ? ferroce_route6(net, flow) :
			    ferroce_route4(net, flow);
	if (IS_ERR(dst))
		return PTR_ERR(dst);
	/* Such as unreachable and prohibit routes. */
	if (dst->error) {
		int err = dst->error;

		dst_release(dst);
		return err < 0 ? err : -EHOSTUNREACH;
	}
	route->net = net;
	route->dst = dst;
	route->flow = *flow;
	route->hash = ferroce_flow_hash(flow);
	route->cookie = 0;
#if IS_ENABLED(CONFIG_IPV6)
	if (flow->is_v6)
		route->cookie = rt6_get_cookie(dst_rt6_info(dst));
#endif
	/* After the cookie, which the removal of an address makes invalid. */
	if (flow->is_v6 && !ferroce_has_source6(net, flow)) {
		ferroce_route_release(route);
		return -EADDRNOTAVAIL;
	}
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

/* The device it leads by; 0 when that has gone. */
int ferroce_route_ifindex(const struct ferroce_route *route)
{
	int ifindex;

	rcu_read_lock();
	ifindex = READ_ONCE(dst_dev_rcu(route->dst)->ifindex);
	rcu_read_unlock();
	return ifindex;
}

/* In a VRF, the VRF itself is the loopback device. */
bool ferroce_route_is_loopback(const struct ferroce_route *route)
{
	const struct net_device *dev;
	bool loopback;

	rcu_read_lock();
	dev = dst_dev_rcu(route->dst);
	loopback = (dev->flags & IFF_LOOPBACK) || netif_is_l3_master(dev);
	rcu_read_unlock();
	return loopback;
}

/* Another reference, for another owner of the same route. */
void ferroce_route_hold(const struct ferroce_route *route)
{
	dst_hold(route->dst);
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
 * Memory for packets. With INIT_ON_ALLOC, which distributions set, the kernel
 * clears all memory that it hands out, 8 KiB for a packet of 4 KiB. So packets
 * are made in pages that each CPU keeps: a packet has a reference of its page,
 * one more is ours, and a page that has no other is empty. The pages are
 * touched with BH disabled on their CPU only; packets are freed anywhere, and
 * also with interrupts disabled (rdma_rxe does it), which memory of a
 * page_pool would not bear. A CPU keeps the one that it fills, and as many full
 * ones as were in flight at once, up to 64: 2080 KiB in all, of which the
 * shrinker takes 2048. A page has six packets of 4 KiB, so 390 may be in flight
 * before a page is allocated and cleared for them.
 */
#define FERROCE_PAGE_ORDER	get_order(32768)
#define FERROCE_PAGE_BYTES	(PAGE_SIZE << FERROCE_PAGE_ORDER)
#define FERROCE_PAGES		64

struct ferroce_pages {
	/* The one that packets are made in, and how much of it they have. */
	struct page *now;
	unsigned int used;
	/*
	 * Those that were full, from the oldest on; all others are NULL. The
	 * shrinker takes them too, on any CPU, and leaves NULL: whose exchange
	 * returns a page has it.
	 */
	unsigned int oldest;
	unsigned int count;
	struct page *full[FERROCE_PAGES];
};

static DEFINE_PER_CPU(struct ferroce_pages, ferroce_pages);
static bool ferroce_pages_open __read_mostly;
static struct shrinker *ferroce_pages_shrinker;

/* Memory that can be had back counts as available (MemAvailable). */
static void ferroce_count_page(const struct page *page, int sign)
{
	mod_node_page_state(page_pgdat(page), NR_KERNEL_MISC_RECLAIMABLE,
			    sign * (1 << FERROCE_PAGE_ORDER));
}

/* Packets that are in the page keep it. */
static void ferroce_give_back(struct page *page)
{
	ferroce_count_page(page, -1);
	put_page(page);
}

static unsigned long ferroce_pages_count(struct shrinker *shrinker,
					 struct shrink_control *control)
{
	const struct ferroce_pages *own;
	unsigned long pages = 0;
	int cpu, n;

	for_each_possible_cpu(cpu) {
		own = per_cpu_ptr(&ferroce_pages, cpu);
		for (n = 0; n < FERROCE_PAGES; n++)
			pages += !!READ_ONCE(own->full[n]);
	}
	return pages;
}

static unsigned long ferroce_pages_scan(struct shrinker *shrinker,
					struct shrink_control *control)
{
	struct ferroce_pages *own;
	unsigned long freed = 0;
	struct page *page;
	int cpu, n;

	for_each_possible_cpu(cpu) {
		own = per_cpu_ptr(&ferroce_pages, cpu);
		for (n = 0; n < FERROCE_PAGES; n++) {
			if (freed == control->nr_to_scan)
				return freed;
			if (!READ_ONCE(own->full[n]))
				continue;
			page = xchg(&own->full[n], NULL);
			if (!page)
				continue;
			ferroce_give_back(page);
			freed++;
		}
	}
	return freed;
}

int ferroce_packet_memory_open(void)
{
	struct shrinker *shrinker;

	shrinker = shrinker_alloc(0, "ferroce-packets");
	if (!shrinker)
		return -ENOMEM;
	shrinker->count_objects = ferroce_pages_count;
	shrinker->scan_objects = ferroce_pages_scan;
	shrinker_register(shrinker);
	ferroce_pages_shrinker = shrinker;
	WRITE_ONCE(ferroce_pages_open, true);
	return 0;
}

void ferroce_packet_memory_close(void)
{
	struct ferroce_pages *own;
	int cpu, n;

	WRITE_ONCE(ferroce_pages_open, false);
	/* Code that still builds a packet has BH disabled. */
	synchronize_net();
	shrinker_free(ferroce_pages_shrinker);
	for_each_possible_cpu(cpu) {
		own = per_cpu_ptr(&ferroce_pages, cpu);
		for (n = 0; n < FERROCE_PAGES; n++)
			if (own->full[n])
				ferroce_give_back(own->full[n]);
		if (own->now)
			ferroce_give_back(own->now);
		memset(own, 0, sizeof(*own));
	}
}

/*
 * Whether all packets in a page were freed, and the CPUs that freed them are
 * done with it: put_page() is ordered after their reads, and what is written
 * next comes after this read of the count.
 */
static bool ferroce_page_is_empty(struct page *page)
{
	if (!page || page_ref_count(page) != 1)
		return false;
	smp_acquire__after_ctrl_dep();
	return true;
}

/*
 * The oldest page, if it is empty. If it is not, there will be one more; when
 * there are as many as there may be, its packets keep it, and we do not.
 */
static struct page *ferroce_oldest_page(struct ferroce_pages *own)
{
	struct page *page, **place;
	bool is_empty;

	while (own->count) {
		place = &own->full[own->oldest % FERROCE_PAGES];
		page = xchg(place, NULL);
		is_empty = ferroce_page_is_empty(page);
		if (page && !is_empty && own->count < FERROCE_PAGES) {
			smp_store_release(place, page);
			return NULL;
		}
		own->oldest++;
		own->count--;
		if (is_empty)
			return page;
		if (page)
			ferroce_give_back(page);
	}
	return NULL;
}

/* Puts the full page away, and goes on to the oldest or a new one. */
static struct page *ferroce_next_page(struct ferroce_pages *own)
{
	struct page *page = ferroce_oldest_page(own);
	unsigned int last = own->oldest + own->count;

	if (own->now) {
		smp_store_release(&own->full[last % FERROCE_PAGES], own->now);
		own->count++;
	}
	if (!page) {
		page = alloc_pages(GFP_ATOMIC | __GFP_NOWARN | __GFP_NOMEMALLOC |
				   __GFP_COMP, FERROCE_PAGE_ORDER);
		if (page)
			ferroce_count_page(page, 1);
	}
	own->now = page;
	own->used = 0;
	return page;
}

static struct sk_buff *ferroce_tx_skb(unsigned int len)
{
	unsigned int size = SKB_HEAD_ALIGN(len);
	struct ferroce_pages *own;
	struct sk_buff *skb;
	struct page *page;

	if (!READ_ONCE(ferroce_pages_open) || !in_softirq() ||
	    in_hardirq() || irqs_disabled() || size > FERROCE_PAGE_BYTES)
		goto slab;
	own = this_cpu_ptr(&ferroce_pages);
	page = own->now;
	if (ferroce_page_is_empty(page))
		own->used = 0;
	else if (!page || size > FERROCE_PAGE_BYTES - own->used)
		page = ferroce_next_page(own);
	if (!page)
		goto slab;
	skb = napi_build_skb(page_address(page) + own->used, size);
	if (!skb)
		return NULL;
	get_page(page);
	own->used += size;
	return skb;

slab:
	return alloc_skb(len, GFP_ATOMIC | __GFP_NOWARN);
}

/*
 * Room in front of each packet of a batch. A single packet is given more when it
 * needs it, but skb_segment_list() copies the headers of a tunnel in front of
 * each without a look: Ethernet, two VLAN tags, IPv6, UDP, Geneve with its 252
 * bytes of options, and Ethernet again are 338.
 */
#define FERROCE_HEADROOM	384

/* The IB bytes are not cleared: sys/net/transmit.rs sees that all are written. */
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
	/*
	 * What is longer than the MTU would be refused by IP too, but with an
	 * ICMP message to ourselves, from which routing learns a path MTU that
	 * can outlive a short change of the device's by minutes.
	 */
	if (ib_len > U16_MAX - headers || ib_len + headers > dst_mtu(dst))
		return -EMSGSIZE;

	rcu_read_lock();
	below = LL_RESERVED_SPACE(dst_dev_rcu(dst)) + dst->header_len;
	rcu_read_unlock();
	below = max_t(unsigned int, below, FERROCE_HEADROOM);
	below = ALIGN(below, SMP_CACHE_BYTES);
	skb = ferroce_tx_skb(below + headers + ib_len + dst->trailer_len);
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

	__skb_set_sw_hash(skb, route->hash, true);
	/* As a socket's, for the PCP of a VLAN and for qdiscs. */
	skb->priority = rt_tos2priority(flow->traffic_class);
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
 * How much one batch may hold: bytes from its IP header on, and packets. With
 * GSO switched off (ethtool -K DEV gso off) it is one packet.
 */
void ferroce_tx_batch_limits(const struct ferroce_route *route, u32 *bytes,
			     u32 *packets)
{
	const struct net_device *dev;

	*bytes = 0;
	*packets = 1;
	/* A lightweight tunnel may put any number of bytes in front (SRv6). */
	if (dst_xfrm(route->dst) || route->dst->lwtstate)
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
 *
 * A batch is what GRO makes of packets that it takes together (SKB_GSO_FRAGLIST,
 * skb_gro_receive_list()): each has its own headers in front of its data, where
 * skb_segment_list() finds them, and its own ICRC. It goes through the stack
 * once, and is taken apart by what cannot handle it: a device without
 * tx-gso-list, or the receiving socket. Generic XDP makes it linear, and it is
 * then cut into pieces of gso_size again, so all but the last must have it.
 */
void ferroce_tx_append(struct sk_buff *head, struct sk_buff *tail,
		       struct sk_buff *skb)
{
	__skb_pull(skb, skb_transport_offset(skb) + sizeof(struct udphdr));
	if (head == tail)
		skb_shinfo(head)->frag_list = skb;
	else
		tail->next = skb;
	head->data_len += skb->len;
	head->len += skb->len;
	head->truesize += skb->truesize;
}

/* The batch is complete: its head carries the fields for the stack. */
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

