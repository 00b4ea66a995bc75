// SPDX-License-Identifier: GPL-2.0
/* Bodies of the shims declared in helpers.h. */
#include <linux/bottom_half.h>
#include <linux/capability.h>
#include <linux/completion.h>
#include <linux/cpumask.h>
#include <linux/ethtool.h>
#include <linux/mm.h>
#include <linux/pci.h>
#include <linux/rcupdate.h>
#include <linux/rtnetlink.h>
#include <linux/scatterlist.h>
#include <linux/sched.h>
#include <linux/sched/isolation.h>
#include <linux/sched/mm.h>
#include <linux/sched/signal.h>
#include <linux/sched/stat.h>
#include <linux/smp.h>
#include <linux/sysfs.h>
#include <linux/topology.h>
#include <linux/unaligned.h>
#include <linux/utsname.h>
#include <linux/vmalloc.h>
#include <linux/wait_bit.h>
#include <linux/workqueue.h>
#include <net/netlink.h>
#include "helpers.h"

/*
 * In user context or not: where a worker asks, the process is not the one that
 * is refused. The attribute is not within these bounds, both included.
 */
void ferroce_not_within(const char *name, int length, u64 value, u64 least, u64 most)
{
	pr_debug("ferroce: %.*s is %llu (%#llx), and may be %llu to %llu\n",
		 length, name, value, value, least, most);
}

void ferroce_invalid(const char *reason, int length)
{
	pr_debug("ferroce: %.*s\n", length, reason);
}

void ferroce_no_transition(u32 from, u32 to, u32 attr_mask)
{
	pr_debug("ferroce: no transition from state %u to %u with attr_mask %#x\n",
		 from, to, attr_mask);
}

void ferroce_verb_refused(const char *name, int length, int error)
{
	pr_debug("ferroce: %.*s of %s[%d] is refused: %pe\n", length, name,
		 current->comm, task_pid_nr(current), ERR_PTR(error));
}

void ferroce_spin_lock_bh(spinlock_t *lock)
{
	spin_lock_bh(lock);
}

void ferroce_spin_unlock_bh(spinlock_t *lock)
{
	spin_unlock_bh(lock);
}

/* One class for all of them. */
void ferroce_spin_lock_init(spinlock_t *lock)
{
	spin_lock_init(lock);
}

unsigned long ferroce_spin_lock_irqsave(spinlock_t *lock)
{
	unsigned long flags;

	spin_lock_irqsave(lock, flags);
	return flags;
}

void ferroce_spin_unlock_irqrestore(spinlock_t *lock, unsigned long flags)
{
	spin_unlock_irqrestore(lock, flags);
}

void ferroce_bh_disable(void)
{
	local_bh_disable();
}

void ferroce_bh_enable(void)
{
	local_bh_enable();
}

/* With interrupts disabled they could not be enabled again. */
bool ferroce_bh_may_disable(void)
{
	if (irqs_disabled())
		return false;
	local_bh_disable();
	return true;
}

int ferroce_spin_trylock_bh(spinlock_t *lock)
{
	return spin_trylock_bh(lock);
}

/*
 * Whether this context may sleep. Without CONFIG_PREEMPT_COUNT it is unknown,
 * and the answer is no.
 */
bool ferroce_may_sleep(void)
{
	return preemptible() && !rcu_preempt_depth();
}

bool ferroce_synchronize_rcu(void)
{
	if (WARN_ON_ONCE(IS_ENABLED(CONFIG_PREEMPT_COUNT) &&
			 !ferroce_may_sleep()))
		return false;
	synchronize_rcu_expedited();
	return true;
}

/* Somebody may wait for the memory, so not when it suits RCU. */
void ferroce_call_rcu(struct rcu_head *head, rcu_callback_t passed)
{
	call_rcu_hurry(head, passed);
}

void ferroce_cond_resched(void)
{
	cond_resched();
}

static bool is_clear(u32 *word, u32 mask, u32 unless)
{
	u32 value = smp_load_acquire(word);

	return !(value & mask) || (value & unless);
}

void ferroce_wait_until_clear(u32 *word, u32 mask, u32 unless)
{
	wait_var_event(word, is_clear(word, mask, unless));
}

void ferroce_spin_until_clear(u32 *word, u32 mask, u32 unless)
{
	smp_cond_load_acquire(word, !(VAL & mask) || (VAL & unless));
}

/* The caller has changed the word, with an order that need not be full. */
void ferroce_wake(u32 *word)
{
	smp_mb();
	wake_up_var(word);
}

/* ULPs make and destroy address handles with IRQs off. */
void ferroce_xa_init(struct xarray *xa)
{
	xa_init_flags(xa, XA_FLAGS_ALLOC1 | XA_FLAGS_ACCOUNT |
				  XA_FLAGS_LOCK_IRQ);
}

static gfp_t xa_gfp(bool may_sleep)
{
	return may_sleep ? GFP_KERNEL : GFP_ATOMIC;
}

/* Reserved: the entry exists, and reads as NULL. */
int ferroce_xa_reserve(struct xarray *xa, u32 *index, struct xa_limit limit,
		       u32 *next, bool may_sleep)
{
	unsigned long flags;
	int ret;

	xa_lock_irqsave(xa, flags);
	ret = __xa_alloc_cyclic(xa, index, NULL, limit, next,
				xa_gfp(may_sleep));
	xa_unlock_irqrestore(xa, flags);
	return ret < 0 ? ret : 0;
}

void ferroce_xa_publish(struct xarray *xa, unsigned long index, void *entry)
{
	unsigned long flags;

	xa_lock_irqsave(xa, flags);
	__xa_store(xa, index, entry, 0);
	xa_unlock_irqrestore(xa, flags);
}

/* Frees an index, with its entry. */
void ferroce_xa_free(struct xarray *xa, unsigned long index)
{
	unsigned long flags;

	xa_lock_irqsave(xa, flags);
	__xa_erase(xa, index);
	xa_unlock_irqrestore(xa, flags);
}

/* The first entry from *index to max, with its place. */
void *ferroce_xa_find(struct xarray *xa, unsigned long *index,
		      unsigned long max)
{
	return xa_find(xa, index, max, XA_PRESENT);
}

struct workqueue_struct *ferroce_alloc_workqueue(const char *name,
						 enum ferroce_queue kind)
{
	switch (kind) {
	case FERROCE_QUEUE_BH:
		return alloc_workqueue("%s", WQ_BH | WQ_PERCPU, 0, name);
	case FERROCE_QUEUE_URGENT:
		return alloc_workqueue("%s",
				       WQ_PERCPU | WQ_MEM_RECLAIM | WQ_HIGHPRI,
				       0, name);
	default:
		return alloc_workqueue("%s", WQ_PERCPU | WQ_MEM_RECLAIM, 0,
				       name);
	}
}

/* Whether the worker that calls is one of WQ_HIGHPRI. */
bool ferroce_is_urgent(void)
{
	return task_nice(current) < 0;
}

void ferroce_smp_mb(void)
{
	smp_mb();
}

int ferroce_this_cpu(void)
{
	return raw_smp_processor_id();
}

int ferroce_another_cpu(unsigned int seed)
{
	/* A kernel thread calls for others, and is often bound to this CPU. */
	const struct cpumask *allowed = current->flags & PF_KTHREAD ?
					cpu_possible_mask : current->cpus_ptr;
	int here = raw_smp_processor_id();
	int cpu;

	for_each_cpu_wrap(cpu, cpumask_of_node(numa_node_id()),
			  seed % nr_cpu_ids) {
		if (cpu != here && cpu_online(cpu) &&
		    cpumask_test_cpu(cpu, allowed) &&
		    housekeeping_test_cpu(cpu, HK_TYPE_DOMAIN) &&
		    housekeeping_test_cpu(cpu, HK_TYPE_KERNEL_NOISE))
			return cpu;
	}
	return -1;
}

bool ferroce_queue_elsewhere(unsigned int seed, struct workqueue_struct *queue,
			     struct work_struct *work)
{
	bool queued;
	int cpu;

	/* Work of softirqs would wait for a CPU that goes offline. */
	preempt_disable();
	cpu = ferroce_another_cpu(seed);
	queued = queue_work_on(cpu < 0 ? smp_processor_id() : cpu, queue, work);
	preempt_enable();
	return queued;
}

bool ferroce_cpu_is_online(unsigned int cpu)
{
	return cpu < nr_cpu_ids && cpu_online(cpu);
}

bool ferroce_is_alone(void)
{
	return single_task_running();
}

struct module *ferroce_this_module(void)
{
	return THIS_MODULE;
}

const enum hrtimer_restart ferroce_timer_done = HRTIMER_NORESTART;

void ferroce_timer_setup(struct hrtimer *timer,
			 enum hrtimer_restart (*fire)(struct hrtimer *timer))
{
	hrtimer_setup(timer, fire, CLOCK_MONOTONIC,
		      HRTIMER_MODE_ABS_PINNED_SOFT);
}

void ferroce_timer_start(struct hrtimer *timer, u64 at)
{
	hrtimer_start(timer, ns_to_ktime(at), HRTIMER_MODE_ABS_PINNED_SOFT);
}

/* As ib_umem_get() does; the pages are given back by ferroce_uncharge_pinned(). */
struct mm_struct *ferroce_charge_pinned(unsigned long pages)
{
	unsigned long limit = rlimit(RLIMIT_MEMLOCK) >> PAGE_SHIFT;
	struct mm_struct *mm = current->mm;

	if (!mm)
		return NULL;
	if (atomic64_add_return(pages, &mm->pinned_vm) > limit &&
	    !capable(CAP_IPC_LOCK)) {
		atomic64_sub(pages, &mm->pinned_vm);
		return NULL;
	}
	mmgrab(mm);
	return mm;
}

void ferroce_uncharge_pinned(struct mm_struct *mm, unsigned long pages)
{
	atomic64_sub(pages, &mm->pinned_vm);
	mmdrop(mm);
}

/* Whether not the process of this memory calls. One that ends has no memory any more. */
bool ferroce_is_of_another(const struct mm_struct *mm)
{
	return current->mm != mm && !(current->flags & PF_EXITING);
}

/*
 * vmalloc_user() does not account. What it has besides is a flag that
 * remap_vmalloc_range() asks for. A process that asks for too much gets an
 * error rather than being killed.
 */
void *ferroce_alloc_shared(unsigned long size)
{
	return __vmalloc(size, GFP_KERNEL_ACCOUNT | __GFP_ZERO | __GFP_NOWARN |
				       __GFP_RETRY_MAYFAIL);
}

void ferroce_free_shared(void *base)
{
	vfree(base);
}

/* A child must not write into its parent's rings. */
int ferroce_map_shared(struct vm_area_struct *vma, void *base,
		       unsigned long size)
{
	unsigned long at;
	int ret;

	if (!(vma->vm_flags & VM_SHARED) || vma->vm_end - vma->vm_start != size)
		return -EINVAL;
	vm_flags_set(vma, VM_DONTCOPY | VM_DONTEXPAND | VM_DONTDUMP);
	for (at = 0; at < size; at += PAGE_SIZE) {
		ret = vm_insert_page(vma, vma->vm_start + at,
				     vmalloc_to_page(base + at));
		if (ret)
			return ret;
	}
	return 0;
}

/* Copies 1 to 8 bytes, with one store for each. */
static __always_inline void copy_word(u8 *to, const u8 *from, size_t n)
{
	if (n == 8) {
		put_unaligned(get_unaligned((const u64 *)from), (u64 *)to);
		return;
	}
	if (n & 4) {
		put_unaligned(get_unaligned((const u32 *)from), (u32 *)to);
		to += 4;
		from += 4;
	}
	if (n & 2) {
		put_unaligned(get_unaligned((const u16 *)from), (u16 *)to);
		to += 2;
		from += 2;
	}
	if (n & 1)
		*to = *from;
}

void ferroce_memmove(void *to, const void *from, size_t n)
{
	size_t most = n ? (n - 1) & ~(size_t)7 : 0;

	/*
	 * Ranges that overlap are rare, and memmove() is the slower of the two
	 * for the others where it relies on "rep movsb" (ERMS without FSRM).
	 */
	if (unlikely((uintptr_t)to - (uintptr_t)from < n ||
		     (uintptr_t)from - (uintptr_t)to < n)) {
		memmove(to, from, n);
		return;
	}
	/*
	 * Programs poll the last bytes of a message, and write them themselves
	 * as soon as they have come. memcpy() may store them before the others,
	 * and twice (the first and the last word of 8 or 16 bytes overlap): it
	 * would put the peer's value over that of the program.
	 */
	memcpy(to, from, most);
	smp_wmb();
	if (n)
		copy_word(to + most, from + most, n - most);
}

/* As one for all processors, and for the processes that have the memory mapped. */
u64 ferroce_compare_swap(u64 *at, u64 compare, u64 swap)
{
	return cmpxchg64(at, compare, swap);
}

u64 ferroce_fetch_add(u64 *at, u64 value)
{
	return atomic64_fetch_add(value, (atomic64_t *)at);
}

void ferroce_store_word(u64 *at, u64 value)
{
	smp_store_release(at, value);
}

/* With a reference to the device, which releasing the umem looks at. */
struct ib_umem *ferroce_umem_get(struct ib_device *device, unsigned long start,
				 size_t len, int access)
{
	struct ib_umem *umem = ib_umem_get_va(device, start, len, access);

	if (!IS_ERR_OR_NULL(umem))
		get_device(&device->dev);
	return umem;
}

void ferroce_umem_put(struct ib_umem *umem)
{
	struct ib_device *device = umem->ibdev;

	ib_umem_release(umem);
	put_device(&device->dev);
}

/* Whether its pages may be written to, and whether the calling process pinned it. */
bool ferroce_umem_is_writable(const struct ib_umem *umem)
{
	return umem->writable;
}

bool ferroce_umem_is_of_caller(const struct ib_umem *umem)
{
	return umem->owning_mm == current->mm;
}

/* The contiguous runs of a umem, one by one; 0 at the end. */
size_t ferroce_umem_next(struct ib_umem *umem, struct scatterlist **cursor,
			 void **address)
{
	struct scatterlist *sg;

	/* Every page has an address, and the length of a region fits. */
	BUILD_BUG_ON(IS_ENABLED(CONFIG_HIGHMEM));
	BUILD_BUG_ON(sizeof(size_t) < sizeof(u64));

	sg = *cursor ? sg_next(*cursor) : umem->sgt_append.sgt.sgl;
	if (!sg)
		return 0;
	*cursor = sg;
	*address = page_address(sg_page(sg)) + sg->offset;
	return sg->length;
}

/* Where create_cq gets no bundle there is no udata either. */
static_assert(offsetof(struct uverbs_attr_bundle, driver_udata) == 0);

struct ib_ucontext *ferroce_udata_context(struct ib_udata *udata)
{
	return rdma_udata_to_uverbs_attr_bundle(udata)->context;
}

int ferroce_udata_in_empty(struct ib_udata *udata)
{
	return ib_is_udata_in_empty(udata);
}

int ferroce_no_udata_io(struct ib_udata *udata)
{
	return ib_no_udata_io(udata);
}

/* Holds the netdev for the caller. */
struct net_device *ferroce_gid_netdev(const struct ib_gid_attr *attr)
{
	struct net_device *netdev;

	rcu_read_lock();
	netdev = rdma_read_gid_attr_ndev_rcu(attr);
	if (IS_ERR(netdev))
		netdev = NULL;
	else
		dev_hold(netdev);
	rcu_read_unlock();
	return netdev;
}

/*
 * Whether a packet from the netdev of attr to gid stays on this host, as it has
 * that address on the same netdev. The GID table says another thing: it has the
 * addresses of all that is upon the link's netdev in any network namespace, and
 * of some netdevs those that were removed. A GID itself need be no address: the
 * default one stays without IPv6.
 */
bool ferroce_is_own_gid(const struct ib_gid_attr *attr, const union ib_gid *gid)
{
	bool is_v6 = !ipv6_addr_v4mapped((const struct in6_addr *)gid);
	const struct net_device *dev;
	bool own;

	if (!memcmp(gid, &attr->gid, sizeof(*gid)))
		return true;
	rcu_read_lock();
	dev = rdma_read_gid_attr_ndev_rcu(attr);
	own = !IS_ERR(dev) && ferroce_netdev_has(dev, is_v6,
						 gid->raw + (is_v6 ? 0 : 12));
	rcu_read_unlock();
	return own;
}

static void ferroce_set_node_desc(struct ib_device *device, const char *what)
{
	const char *host = init_utsname()->nodename;

	/* The host name of a kernel without one. */
	if (!*host || !strcmp(host, "(none)"))
		strscpy(device->node_desc, what, sizeof(device->node_desc));
	else
		scnprintf(device->node_desc, sizeof(device->node_desc),
			  "%s %s", what, host);
}

/*
 * The card that the netdev is on, as code that looks for topology finds it: the
 * PCI function, also from a virtio device or a USB adapter, or whatever the
 * netdev's own parent is; veth, tunnels and bridges have none. It cannot go
 * before us: its driver waits for the netdev, and that for our reference.
 */
static void ferroce_set_parent(struct ib_device *device,
			       const struct net_device *netdev)
{
	struct device *parent;

	device->dev.parent = netdev->dev.parent;
	for (parent = netdev->dev.parent; parent; parent = parent->parent) {
		if (!dev_is_pci(parent))
			continue;
		device->dev.parent = parent;
		return;
	}
}

void ferroce_describe(struct ib_device *device,
		      const struct net_device *netdev, const char *what)
{
	device->node_type = RDMA_NODE_IB_CA;
	device->phys_port_cnt = 1;
	device->num_comp_vectors = num_possible_cpus();
	ferroce_set_parent(device, netdev);
	ferroce_set_node_desc(device, what);
	ib_mark_name_assigned_by_user(device);
}

struct ferroce_port_down {
	struct ib_event_handler handler;
	struct completion done;
};

static void ferroce_port_event(struct ib_event_handler *handler,
			       struct ib_event *event)
{
	struct ferroce_port_down *down =
		container_of(handler, struct ferroce_port_down, handler);

	if (event->event == IB_EVENT_PORT_ERR)
		complete(&down->done);
}

/*
 * Reports that the port has gone down, and returns when every user has got the
 * event: what becomes of its GIDs is reported by another workqueue, which would
 * be quicker more often than not. The handler is the last in the list, and
 * taking it out waits for those in front of it: a handler that took the RTNL,
 * which our caller holds, would wait for ever, and so would we. None does; they
 * leave what sleeps to workers. Nor does what comes before them, which would
 * only make the event late.
 */
void ferroce_report_port_down(struct ib_device *device,
			      struct net_device *netdev)
{
	struct ferroce_port_down down;
	enum ib_port_state before;

	if (ib_get_cached_port_state(device, 1, &before) ||
	    before != IB_PORT_ACTIVE) {
		ib_dispatch_port_state_event(device, netdev);
		return;
	}
	init_completion(&down.done);
	INIT_IB_EVENT_HANDLER(&down.handler, device, ferroce_port_event);
	ib_register_event_handler(&down.handler);
	ib_dispatch_port_state_event(device, netdev);
	wait_for_completion_timeout(&down.done, HZ / 10);
	ib_unregister_event_handler(&down.handler);
}

/*
 * What ib_get_eth_speed() says, if the netdev says anything, which lo does not,
 * nor a macvlan on such a one: else a line in the log would complain each time
 * that anybody asks. While the netdev goes away it fails, and the values stay.
 */
void ferroce_port_speed(struct ib_device *device, u32 port, u16 *speed,
			u8 *width)
{
	struct net_device *netdev = ib_device_get_netdev(device, port);
	struct ethtool_link_ksettings settings;
	bool tells;

	if (!netdev)
		return;
	rtnl_lock();
	tells = READ_ONCE(netdev->reg_state) == NETREG_REGISTERED &&
		!__ethtool_get_link_ksettings(netdev, &settings);
	rtnl_unlock();
	dev_put(netdev);
	if (tells)
		ib_get_eth_speed(device, port, speed, width);
}

struct nlattr *ferroce_details_begin(struct sk_buff *msg)
{
	return nla_nest_start(msg, RDMA_NLDEV_ATTR_DRIVER);
}

void ferroce_details_end(struct sk_buff *msg, struct nlattr *begin, bool keep)
{
	if (keep)
		nla_nest_end(msg, begin);
	else
		nla_nest_cancel(msg, begin);
}

/*
 * Each network namespace has a device of its own for the attributes, which is
 * no part of the ib_device.
 */

static struct ferroce_attribute {
	struct device_attribute attr;
	ferroce_show_t *show;
	ferroce_store_t *store;
} ferroce_attributes[FERROCE_MAX_ATTRIBUTES];

static struct attribute *ferroce_attribute_list[FERROCE_MAX_ATTRIBUTES + 1];

const struct attribute_group ferroce_device_group = {
	.attrs = ferroce_attribute_list,
};

static ssize_t ferroce_attribute_show(struct device *dev,
				      struct device_attribute *attr, char *buf)
{
	struct ferroce_attribute *this =
		container_of(attr, struct ferroce_attribute, attr);

	return this->show(rdma_device_to_ibdev(dev), this - ferroce_attributes,
			  buf);
}

static ssize_t ferroce_attribute_store(struct device *dev,
				       struct device_attribute *attr,
				       const char *buf, size_t count)
{
	struct ferroce_attribute *this =
		container_of(attr, struct ferroce_attribute, attr);
	int ret = this->store(rdma_device_to_ibdev(dev),
			      this - ferroce_attributes, buf);

	return ret ? ret : count;
}

void ferroce_set_attribute(unsigned int place, const char *name,
			   ferroce_show_t *show, ferroce_store_t *store)
{
	struct ferroce_attribute *this;

	if (WARN_ON_ONCE(place >= FERROCE_MAX_ATTRIBUTES))
		return;
	this = &ferroce_attributes[place];
	this->attr.attr.name = name;
	this->attr.attr.mode = store ? 0644 : 0444;
	this->attr.show = ferroce_attribute_show;
	this->attr.store = store ? ferroce_attribute_store : NULL;
	this->show = show;
	this->store = store;
	ferroce_attribute_list[place] = &this->attr.attr;
}

/*
 * The tracepoints, and the functions by which Rust emits their events. Last, and
 * read once more: what trace/define_trace.h makes of the header is code. Names of
 * trace/misc/rdma.h need types of the CM, which are not used otherwise.
 */
#include <rdma/ib_cm.h>
#include <rdma/rdma_cm.h>

#define CREATE_TRACE_POINTS
#define CREATE_RUST_TRACE_POINTS
#include "ferroce_trace.h"
