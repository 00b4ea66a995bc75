/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What bindgen reads for sys::bindings: the C headers, and shims for what Rust
 * cannot reach: inline functions, macros, and sequences that would otherwise be
 * many small calls. Names begin with ferroce_. What they wrap is documented
 * where Rust calls them. Some hold a rule of the driver that is made of what
 * only C can read: ferroce_rx_open() and ferroce_arrival(), which packets are
 * taken, and for which port; ferroce_another_cpu(), where a worker may run;
 * ferroce_tx_alloc() and what stands around it, how packets are made. A packet
 * costs one call to take or make it and one to send it.
 */
#ifndef FERROCE_HELPERS_H
#define FERROCE_HELPERS_H

#include <linux/hrtimer.h>
#include <linux/netdevice.h>
#include <linux/notifier.h>
#include <linux/skbuff.h>
#include <linux/spinlock.h>
#include <linux/types.h>
#include <linux/workqueue.h>
#include <linux/xarray.h>
#include <net/dst.h>
#include <net/net_namespace.h>
#include <net/sock.h>
#include <net/udp_tunnel.h>
#include <rdma/ib_addr.h>
#include <rdma/ib_cache.h>
#include <rdma/ib_umem.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/ib_verbs.h>
#include <rdma/rdma_netlink.h>
#include <rdma/uverbs_ioctl.h>
#include "ferroce_trace.h"

/*
 * There a task may be preempted with BH disabled. But a change of a value spins
 * for its readers (sys::sync::Changeable), a CPU is to stay online meanwhile
 * (sys::work::Cpu), and spin_lock_irqsave() does not disable interrupts: a post
 * would run softirqs under the locks of its caller (ferroce_bh_may_disable()).
 */
#ifdef CONFIG_PREEMPT_RT
#error "ferroce does not work on PREEMPT_RT kernels: see helpers.h"
#endif

struct mm_struct;
struct nlattr;
struct scatterlist;
struct vm_area_struct;

/* Reasons of refusals. */
void ferroce_not_within(const char *name, int length, u64 value, u64 least, u64 most);
void ferroce_invalid(const char *reason, int length);
void ferroce_no_transition(u32 from, u32 to, u32 attr_mask);
void ferroce_verb_refused(const char *name, int length, int error);

/* Locks and tables. */
void ferroce_spin_lock_bh(spinlock_t *lock);
void ferroce_spin_unlock_bh(spinlock_t *lock);
int ferroce_spin_trylock_bh(spinlock_t *lock);
void ferroce_spin_lock_init(spinlock_t *lock);
unsigned long ferroce_spin_lock_irqsave(spinlock_t *lock);
void ferroce_spin_unlock_irqrestore(spinlock_t *lock, unsigned long flags);
void ferroce_bh_disable(void);
void ferroce_bh_enable(void);
bool ferroce_bh_may_disable(void);
bool ferroce_may_sleep(void);
bool ferroce_synchronize_rcu(void);
void ferroce_call_rcu(struct rcu_head *head, rcu_callback_t passed);
void ferroce_cond_resched(void);
void ferroce_wait_until_clear(u32 *word, u32 mask, u32 unless);
void ferroce_spin_until_clear(u32 *word, u32 mask, u32 unless);
void ferroce_wake(u32 *word);
void ferroce_xa_init(struct xarray *xa);
int ferroce_xa_reserve(struct xarray *xa, u32 *index, struct xa_limit limit,
		       u32 *next, bool may_sleep);
void ferroce_xa_publish(struct xarray *xa, unsigned long index, void *entry);
void ferroce_xa_free(struct xarray *xa, unsigned long index);
void *ferroce_xa_find(struct xarray *xa, unsigned long *index,
		      unsigned long max);

enum ferroce_queue {
	FERROCE_QUEUE_NORMAL,
	FERROCE_QUEUE_URGENT,
	FERROCE_QUEUE_BH,
};
struct workqueue_struct *ferroce_alloc_workqueue(const char *name,
						 enum ferroce_queue kind);
bool ferroce_is_urgent(void);
bool ferroce_queue_elsewhere(unsigned int seed, struct workqueue_struct *queue,
			     struct work_struct *work);

void ferroce_smp_mb(void);
int ferroce_this_cpu(void);
int ferroce_another_cpu(unsigned int seed);
bool ferroce_cpu_is_online(unsigned int cpu);
bool ferroce_is_alone(void);
struct module *ferroce_this_module(void);

/*
 * A timer that fires in the timer softirq, once: fire() returns
 * ferroce_timer_done. Bindgen names the kernel's own constant otherwise from
 * one version to the next.
 */
extern const enum hrtimer_restart ferroce_timer_done;
void ferroce_timer_setup(struct hrtimer *timer,
			 enum hrtimer_restart (*fire)(struct hrtimer *timer));
void ferroce_timer_start(struct hrtimer *timer, u64 at);

/* Memory. */
struct mm_struct *ferroce_charge_pinned(unsigned long pages);
void ferroce_uncharge_pinned(struct mm_struct *mm, unsigned long pages);
bool ferroce_is_of_another(const struct mm_struct *mm);
void *ferroce_alloc_shared(unsigned long size);
void ferroce_free_shared(void *base);
int ferroce_map_shared(struct vm_area_struct *vma, void *base,
		       unsigned long size);
void ferroce_memmove(void *to, const void *from, size_t n);
u64 ferroce_compare_swap(u64 *at, u64 compare, u64 swap);
u64 ferroce_fetch_add(u64 *at, u64 value);
void ferroce_store_word(u64 *at, u64 value);
struct ib_umem *ferroce_umem_get(struct ib_device *device, unsigned long start,
				 size_t len, int access);
void ferroce_umem_put(struct ib_umem *umem);
bool ferroce_umem_is_writable(const struct ib_umem *umem);
bool ferroce_umem_is_of_caller(const struct ib_umem *umem);
size_t ferroce_umem_next(struct ib_umem *umem, struct scatterlist **cursor,
			 void **address);

/* ib_core. */
/*
 * Attributes of devices in sysfs. store() gets the written string;
 * it is NULL for an attribute that is for reading only. Both get the place of
 * the attribute. The places are filled from 0 on.
 */
typedef ssize_t ferroce_show_t(struct ib_device *device, unsigned int index,
			       char *buf);
typedef int ferroce_store_t(struct ib_device *device, unsigned int index,
			    const char *buf);
#define FERROCE_MAX_ATTRIBUTES 8
void ferroce_set_attribute(unsigned int place, const char *name,
			   ferroce_show_t *show, ferroce_store_t *store);
extern const struct attribute_group ferroce_device_group;

struct ib_ucontext *ferroce_udata_context(struct ib_udata *udata);
int ferroce_udata_in_empty(struct ib_udata *udata);
int ferroce_no_udata_io(struct ib_udata *udata);
struct net_device *ferroce_gid_netdev(const struct ib_gid_attr *attr);
bool ferroce_is_own_gid(const struct ib_gid_attr *attr, const union ib_gid *gid);
void ferroce_describe(struct ib_device *device,
		      const struct net_device *netdev, const char *what);
void ferroce_report_port_down(struct ib_device *device,
			      struct net_device *netdev);
void ferroce_port_speed(struct ib_device *device, u32 port, u16 *speed,
			u8 *width);
struct nlattr *ferroce_details_begin(struct sk_buff *msg);
void ferroce_details_end(struct sk_buff *msg, struct nlattr *begin, bool keep);

/* Net devices. */
void ferroce_netdev_hold(struct net_device *dev);
void ferroce_netdev_put(struct net_device *dev);
void ferroce_netdev_name(const struct net_device *dev, char name[IFNAMSIZ]);
bool ferroce_netdev_mac(const struct net_device *dev, u8 mac[ETH_ALEN]);
int ferroce_netdev_ifindex(const struct net_device *dev);
u32 ferroce_netdev_mtu(const struct net_device *dev);
u16 ferroce_netdev_hardware_type(const struct net_device *dev);
bool ferroce_netdev_is_operational(const struct net_device *dev);
bool ferroce_netdev_is_vlan(const struct net_device *dev);
bool ferroce_netdev_master(struct net_device *dev, char name[IFNAMSIZ]);
bool ferroce_netdev_has(const struct net_device *dev, bool is_v6,
			const u8 *address);
struct net_device *ferroce_notifier_netdev(void *info);

/* Addresses that netdevs get, in every namespace: one listener, called with BH disabled or not. */
typedef void (*ferroce_address_added_t)(void *context, struct net_device *dev);
int ferroce_addresses_listen(ferroce_address_added_t added, void *context);
void ferroce_addresses_ignore(void);

/* Network namespaces that wait for us before they end, and memory for packets. */
int ferroce_net_open(void);
void ferroce_net_close(void);
struct net *ferroce_netns_enter(struct net_device *dev);
void ferroce_netns_stay(struct net *net);
void ferroce_netns_leave(struct net *net);
const struct net *ferroce_netns_of_netdev(const struct net_device *dev);
struct net *ferroce_netns_of_sock(const struct sock *sk);

/* The socket pair of a namespace. */
#define FERROCE_UDP_PORT 4791

struct ferroce_sockets {
	struct sock *v4;
	struct sock *v6;
};

int ferroce_sockets_open(struct net *net,
			 int (*receive)(struct sock *sk, struct sk_buff *skb),
			 struct ferroce_sockets *sockets);
void ferroce_sockets_close(struct ferroce_sockets *sockets);

/* Bytes at ferroce_rx.next. */
#define FERROCE_RX_NEXT_LEN 12

/* A received packet, linear; the pointers live until it is freed. */
struct ferroce_rx {
	const struct sk_buff *skb;
	const u8 *ip;
	const u8 *udp;
	const u8 *payload;
	/* Where the BTH of the packet behind it in a batch begins; or NULL. */
	const u8 *next;
	u32 ip_len;
	u32 payload_len;
	int ifindex;
	bool is_v6;
	bool copied;
};

int ferroce_rx_open(struct sk_buff *skb, struct ferroce_rx *rx);

/* Contents of the Ethernet header. */
struct ferroce_link_info {
	u8 mac[ETH_ALEN];
	u16 vlan;
	bool has_mac;
	bool has_vlan;
};

int ferroce_rx_real_ifindex(const struct ferroce_rx *rx);
bool ferroce_rx_is_own(const struct ferroce_rx *rx);
void ferroce_rx_link(const struct ferroce_rx *rx, struct ferroce_link_info *info);

/* How a packet relates to a port. */
enum ferroce_arrival {
	FERROCE_ARRIVED,
	FERROCE_WRONG_ADDRESS,
	FERROCE_WRONG_DEVICE,
};

enum ferroce_arrival ferroce_arrival(struct net *net, int port, int ifindex,
				     bool is_v6, const u8 *address);
u32 ferroce_rx_keep(struct sk_buff *skb);

/*
 * Packets that are executed later, linked by `next` and held with their netdev;
 * batches of them, linked by `prev` of their first.
 */
struct ferroce_rx_batch {
	struct sk_buff *first;
	struct sk_buff *last;
};

u32 ferroce_rx_batch_len(const struct sk_buff *skb);
bool ferroce_rx_defer(struct ferroce_rx_batch *batch, struct sk_buff *skb);
struct sk_buff *ferroce_rx_deferred_next(const struct sk_buff *skb);
const struct net *ferroce_rx_deferred_netns(const struct sk_buff *skb);
void ferroce_rx_deferred_end(struct sk_buff *skb, bool dropped);
void ferroce_rx_batches_add(struct ferroce_rx_batch *batches, struct sk_buff *first);
struct sk_buff *ferroce_rx_batches_take(struct ferroce_rx_batch *batches);
void ferroce_rx_end(struct sk_buff *skb, bool dropped);

/* A netdev's membership in a multicast group. */
struct ferroce_membership {
	/* The in_device or inet6_dev that has joined, held. */
	void *joined;
	u8 address[16];
	bool is_v6;
};

int ferroce_membership_join(struct net *net, struct net_device *dev, bool is_v6,
			    const u8 *address,
			    struct ferroce_membership *membership);
void ferroce_membership_leave(struct net_device *dev,
			      const struct ferroce_membership *membership);

/* Common fields of a flow of packets; an IPv4 address uses 4 bytes. */
struct ferroce_flow {
	u8 saddr[16];
	u8 daddr[16];
	u32 flow_label;
	int oif;
	u16 sport;
	u8 traffic_class;
	u8 hop_limit;
	bool is_v6;
};

struct ferroce_route {
	struct net *net;
	struct dst_entry *dst;
	u32 cookie;
	u32 hash;
	struct ferroce_flow flow;
};

int ferroce_route_lookup(struct net *net, const struct ferroce_flow *flow,
			 struct ferroce_route *route);
bool ferroce_route_is_valid(const struct ferroce_route *route);
int ferroce_route_ifindex(const struct ferroce_route *route);
bool ferroce_route_is_loopback(const struct ferroce_route *route);
void ferroce_route_hold(const struct ferroce_route *route);
void ferroce_route_release(struct ferroce_route *route);

/* A packet to be sent: headers are IP and UDP, then ib_len bytes at ib. */
struct ferroce_tx {
	struct sk_buff *skb;
	const u8 *headers;
	u8 *ib;
	u32 headers_len;
};

int ferroce_packet_memory_open(void);
void ferroce_packet_memory_close(void);
int ferroce_tx_alloc(const struct ferroce_route *route, u32 ib_len,
		     u16 ip_id, struct ferroce_tx *tx);
void ferroce_tx_free(struct sk_buff *skb);
void ferroce_tx_batch_limits(const struct ferroce_route *route, u32 *bytes,
			     u32 *packets);
void ferroce_tx_append(struct sk_buff *head, struct sk_buff *tail,
		       struct sk_buff *skb);
void ferroce_tx_close(struct sk_buff *head, u16 packets);
int ferroce_tx_send(const struct ferroce_route *route, struct sk_buff *skb);

/* `rdma link add` and `delete`: the one registration of this module. */
typedef int (*ferroce_newlink_t)(void *context, const char *name,
				 struct net_device *dev);
typedef void (*ferroce_dellink_t)(struct ib_device *device);
int ferroce_link_register(const char *type, ferroce_newlink_t newlink,
			  ferroce_dellink_t dellink, void *context);
void ferroce_link_unregister(void);
void ferroce_link_made(struct ib_device *device);

u32 ferroce_crc32_le(u32 crc, const u8 *head, size_t head_len, const u8 *rest,
		     size_t rest_len);

#endif
