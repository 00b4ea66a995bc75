/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Shims for what Rust cannot reach: inline functions, macros, and sequences
 * that would otherwise be many small calls. Names begin with ferroce_. What they
 * wrap is documented where Rust calls them. Some hold a rule of the driver that
 * is made of what only C can read: ferroce_rx_open() and ferroce_arrival(), which
 * packets are taken, and for which port; ferroce_another_cpu(), where a worker
 * may run; ferroce_tx_alloc() and what stands around it, how packets are made.
 */
#ifndef FERROCE_HELPERS_H
#define FERROCE_HELPERS_H

#include <linux/hrtimer.h>
#include <linux/spinlock.h>
#include <linux/types.h>
#include <linux/workqueue.h>
#include <linux/xarray.h>
#include <rdma/ib_verbs.h>
#include <rdma/ib_user_verbs.h>

struct mm_struct;
struct nlattr;
struct sk_buff;
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
void ferroce_xa_replace(struct xarray *xa, unsigned long index, void *entry);
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
unsigned int ferroce_possible_cpus(void);
void ferroce_set_node_desc(struct ib_device *device, const char *what);
void ferroce_set_parent(struct ib_device *device,
			const struct net_device *netdev);
void ferroce_report_port_down(struct ib_device *device,
			      struct net_device *netdev);
void ferroce_copy_node_desc(struct ib_device *device,
			    const struct ib_device_modify *modify);
struct nlattr *ferroce_details_begin(struct sk_buff *msg);
void ferroce_details_end(struct sk_buff *msg, struct nlattr *begin);
void ferroce_details_cancel(struct sk_buff *msg, struct nlattr *begin);
void ferroce_name_assigned_by_user(struct ib_device *device);

#endif
