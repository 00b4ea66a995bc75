/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Shims for what Rust cannot reach: inline functions, macros, and sequences
 * that would otherwise be many small calls. They decide nothing; names begin
 * with ferroce_. What they wrap is documented where Rust calls them.
 */
#ifndef FERROCE_HELPERS_H
#define FERROCE_HELPERS_H

#include <linux/hrtimer.h>
#include <linux/spinlock.h>
#include <linux/types.h>
#include <linux/xarray.h>
#include <rdma/ib_verbs.h>
#include <rdma/ib_user_verbs.h>

struct scatterlist;
struct vm_area_struct;

/* Locks and tables. */
void ferroce_spin_lock_bh(spinlock_t *lock);
void ferroce_spin_unlock_bh(spinlock_t *lock);
int ferroce_spin_trylock_bh(spinlock_t *lock);
void ferroce_synchronize_rcu(void);
void ferroce_xa_init(struct xarray *xa);
int ferroce_xa_reserve(struct xarray *xa, u32 *index, u32 max, u32 *next);
void ferroce_xa_publish(struct xarray *xa, unsigned long index, void *entry);
void *ferroce_xa_erase(struct xarray *xa, unsigned long index);
struct workqueue_struct *ferroce_alloc_workqueue(const char *name, bool urgent);

void ferroce_smp_mb(void);
int ferroce_this_cpu(void);
int ferroce_another_cpu(unsigned int seed);
bool ferroce_is_alone(void);
struct module *ferroce_this_module(void);

/* A timer that fires once, in the timer softirq. */
struct ferroce_timer {
	struct hrtimer timer;
	void (*fire)(struct ferroce_timer *timer);
};
void ferroce_timer_setup(struct ferroce_timer *timer,
			 void (*fire)(struct ferroce_timer *timer));
void ferroce_timer_start(struct ferroce_timer *timer, u64 at);
void ferroce_timer_cancel(struct ferroce_timer *timer);

/* Memory. */
void *ferroce_vmalloc_user(unsigned long size);
void ferroce_vfree(void *base);
int ferroce_map_ring(struct vm_area_struct *vma, void *base);
void ferroce_memmove(void *to, const void *from, size_t n);
struct ib_umem *ferroce_umem_get(struct ib_device *device, unsigned long start,
				 size_t len, int access);
size_t ferroce_umem_next(struct ib_umem *umem, struct scatterlist **cursor,
			 void **address);

/* ib_core. */
/* RoCEv2 without the management classes: no CM, no QP1 yet. */
#define FERROCE_PORT_CAPABILITIES_INIT \
	(RDMA_CORE_CAP_PROT_ROCE_UDP_ENCAP | RDMA_CORE_CAP_ETH_AH)
static const u32 FERROCE_PORT_CAPABILITIES = FERROCE_PORT_CAPABILITIES_INIT;
/* The doorbells. */
static const u64 FERROCE_EXTRA_COMMANDS =
	(1ULL << IB_USER_VERBS_CMD_POST_SEND) |
	(1ULL << IB_USER_VERBS_CMD_POST_RECV);
static const u32 FERROCE_STATS_LIFESPAN_MS = 10;

struct ferroce_attributes {
	bool (*local_path)(struct ib_device *device);
	void (*set_local_path)(struct ib_device *device, bool on);
};
extern struct ferroce_attributes ferroce_attributes;
extern const struct attribute_group ferroce_device_group;

struct ib_ucontext *ferroce_udata_context(struct ib_udata *udata);
int ferroce_udata_in_empty(struct ib_udata *udata);
int ferroce_no_udata_io(struct ib_udata *udata);
struct net_device *ferroce_gid_netdev(const struct ib_gid_attr *attr);
bool ferroce_is_own_gid(const struct ib_gid_attr *attr, const union ib_gid *gid);
struct net *ferroce_netdev_net(struct net_device *netdev);
unsigned int ferroce_possible_cpus(void);
void ferroce_set_node_desc(struct ib_device *device);
void ferroce_name_assigned_by_user(struct ib_device *device);

#endif
