// SPDX-License-Identifier: GPL-2.0
/* Bodies of the shims declared in helpers.h. */
#include <linux/cpumask.h>
#include <linux/kstrtox.h>
#include <linux/mm.h>
#include <linux/rcupdate.h>
#include <linux/scatterlist.h>
#include <linux/sched/isolation.h>
#include <linux/sched/stat.h>
#include <linux/smp.h>
#include <linux/sysfs.h>
#include <linux/topology.h>
#include <linux/utsname.h>
#include <linux/vmalloc.h>
#include <linux/workqueue.h>
#include "bindings_helper.h"

void ferroce_spin_lock_bh(spinlock_t *lock)
{
	spin_lock_bh(lock);
}

void ferroce_spin_unlock_bh(spinlock_t *lock)
{
	spin_unlock_bh(lock);
}

int ferroce_spin_trylock_bh(spinlock_t *lock)
{
	return spin_trylock_bh(lock);
}

/*
 * Expedited: destroy and deregister wait for it, and their callers wait for
 * them.
 */
void ferroce_synchronize_rcu(void)
{
	might_sleep();
	synchronize_rcu_expedited();
}

void ferroce_xa_init(struct xarray *xa)
{
	xa_init_flags(xa, XA_FLAGS_ALLOC1);
}

/* Reserved: the entry exists, and reads as NULL. */
int ferroce_xa_reserve(struct xarray *xa, u32 *index, u32 max, u32 *next)
{
	int ret = xa_alloc_cyclic(xa, index, NULL, XA_LIMIT(1, max), next,
				  GFP_KERNEL);

	return ret < 0 ? ret : 0;
}

void ferroce_xa_publish(struct xarray *xa, unsigned long index, void *entry)
{
	xa_store(xa, index, entry, GFP_KERNEL);
}

void *ferroce_xa_erase(struct xarray *xa, unsigned long index)
{
	return xa_erase(xa, index);
}

struct workqueue_struct *ferroce_alloc_workqueue(const char *name, bool urgent)
{
	return alloc_workqueue("%s",
			       WQ_PERCPU | WQ_MEM_RECLAIM |
				       (urgent ? WQ_HIGHPRI : 0),
			       0, name);
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
	int here = raw_smp_processor_id();
	int cpu;

	for_each_cpu_wrap(cpu, cpumask_of_node(numa_node_id()),
			  seed % nr_cpu_ids) {
		if (cpu != here && cpu_online(cpu) &&
		    housekeeping_test_cpu(cpu, HK_TYPE_DOMAIN) &&
		    housekeeping_test_cpu(cpu, HK_TYPE_KERNEL_NOISE))
			return cpu;
	}
	return -1;
}

bool ferroce_is_alone(void)
{
	return single_task_running();
}

struct module *ferroce_this_module(void)
{
	return THIS_MODULE;
}

static enum hrtimer_restart ferroce_timer_fire(struct hrtimer *timer)
{
	struct ferroce_timer *this =
		container_of(timer, struct ferroce_timer, timer);

	this->fire(this);
	return HRTIMER_NORESTART;
}

void ferroce_timer_setup(struct ferroce_timer *timer,
			 void (*fire)(struct ferroce_timer *timer))
{
	timer->fire = fire;
	hrtimer_setup(&timer->timer, ferroce_timer_fire, CLOCK_MONOTONIC,
		      HRTIMER_MODE_ABS_SOFT);
}

void ferroce_timer_start(struct ferroce_timer *timer, u64 at)
{
	hrtimer_start(&timer->timer, ns_to_ktime(at), HRTIMER_MODE_ABS_SOFT);
}

void ferroce_timer_cancel(struct ferroce_timer *timer)
{
	hrtimer_cancel(&timer->timer);
}

void *ferroce_vmalloc_user(unsigned long size)
{
	return vmalloc_user(size);
}

void ferroce_vfree(void *base)
{
	vfree(base);
}

/* A child must not write into its parent's rings. */
int ferroce_map_ring(struct vm_area_struct *vma, void *base)
{
	if (!(vma->vm_flags & VM_SHARED))
		return -EINVAL;
	vm_flags_set(vma, VM_DONTCOPY | VM_DONTEXPAND | VM_DONTDUMP);
	return remap_vmalloc_range(vma, base, 0);
}

void ferroce_memmove(void *to, const void *from, size_t n)
{
	/*
	 * Ranges that overlap are rare, and memmove() is the slower of the two
	 * for the others where it relies on "rep movsb" (ERMS without FSRM).
	 */
	if (unlikely((uintptr_t)to - (uintptr_t)from < n ||
		     (uintptr_t)from - (uintptr_t)to < n))
		memmove(to, from, n);
	else
		memcpy(to, from, n);
}

struct ib_umem *ferroce_umem_get(struct ib_device *device, unsigned long start,
				 size_t len, int access)
{
	return ib_umem_get_va(device, start, len, access);
}

/* The contiguous runs of a umem, one by one; 0 at the end. */
size_t ferroce_umem_next(struct ib_umem *umem, struct scatterlist **cursor,
			 void **address)
{
	struct scatterlist *sg;

	sg = *cursor ? sg_next(*cursor) : umem->sgt_append.sgt.sgl;
	if (!sg)
		return 0;
	*cursor = sg;
	*address = page_address(sg_page(sg)) + sg->offset;
	return sg->length;
}

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

/* Whether gid is in the GID table of the device and port of attr. */
bool ferroce_is_own_gid(const struct ib_gid_attr *attr, const union ib_gid *gid)
{
	const struct ib_gid_attr *own;

	own = rdma_find_gid_by_port(attr->device, gid, IB_GID_TYPE_ROCE_UDP_ENCAP,
				    attr->port_num, NULL);
	if (IS_ERR(own))
		return false;
	rdma_put_gid_attr(own);
	return true;
}

struct net *ferroce_netdev_net(struct net_device *netdev)
{
	return dev_net(netdev);
}

unsigned int ferroce_possible_cpus(void)
{
	return num_possible_cpus();
}

void ferroce_set_node_desc(struct ib_device *device)
{
	scnprintf(device->node_desc, sizeof(device->node_desc), "ferroce %s",
		  init_utsname()->nodename);
}

void ferroce_name_assigned_by_user(struct ib_device *device)
{
	ib_mark_name_assigned_by_user(device);
}

/*
 * Attributes of the device in sysfs. Each network namespace has a device of its
 * own for them, which is no part of the ib_device.
 */

struct ferroce_attributes ferroce_attributes;

static ssize_t parent_show(struct device *dev, struct device_attribute *attr,
			   char *buf)
{
	struct ib_device *device = rdma_device_to_ibdev(dev);
	struct net_device *netdev = ib_device_get_netdev(device, 1);
	ssize_t ret;

	if (!netdev)
		return -ENODEV;
	ret = sysfs_emit(buf, "%s\n", netdev_name(netdev));
	dev_put(netdev);
	return ret;
}
static DEVICE_ATTR_RO(parent);

static ssize_t local_path_show(struct device *dev,
			       struct device_attribute *attr, char *buf)
{
	struct ib_device *device = rdma_device_to_ibdev(dev);

	return sysfs_emit(buf, "%d\n", ferroce_attributes.local_path(device));
}

static ssize_t local_path_store(struct device *dev,
				struct device_attribute *attr,
				const char *buf, size_t count)
{
	struct ib_device *device = rdma_device_to_ibdev(dev);
	bool on;
	int ret;

	ret = kstrtobool(buf, &on);
	if (ret)
		return ret;
	ferroce_attributes.set_local_path(device, on);
	return count;
}
static DEVICE_ATTR_RW(local_path);

static struct attribute *ferroce_device_attributes[] = {
	&dev_attr_parent.attr,
	&dev_attr_local_path.attr,
	NULL,
};

const struct attribute_group ferroce_device_group = {
	.attrs = ferroce_device_attributes,
};
