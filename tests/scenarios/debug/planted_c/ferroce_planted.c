// SPDX-License-Identifier: GPL-2.0
/*
 * A module with one bug of each kind that the debug kernel is there to find: `insmod ferroce_planted.ko bug=NAME`
 * does it and fails to load. The scenarios debug.finds.* see that the kernel reports it, so that a detector that has
 * gone silent is noticed before it is trusted.
 *
 * Every bug is one that the kernel survives once it has been reported.
 */
#include <linux/hrtimer.h>
#include <linux/list.h>
#include <linux/module.h>
#include <linux/rcupdate.h>
#include <linux/slab.h>
#include <linux/spinlock.h>
#include <linux/string.h>
#include <linux/vmalloc.h>

static char *bug = "";
module_param(bug, charp, 0);

static DEFINE_SPINLOCK(lock_a);
static DEFINE_SPINLOCK(lock_b);

static void sleep_in_atomic(void)
{
	void *p;

	spin_lock_bh(&lock_a);
	p = kmalloc(16, GFP_KERNEL);
	spin_unlock_bh(&lock_a);
	kfree(p);
}

static void lock_order(void)
{
	spin_lock(&lock_a);
	spin_lock(&lock_b);
	spin_unlock(&lock_b);
	spin_unlock(&lock_a);
	spin_lock(&lock_b);
	spin_lock(&lock_a);
	spin_unlock(&lock_a);
	spin_unlock(&lock_b);
}

static int __rcu *shared;

static void rcu_unprotected(void)
{
	(void)rcu_dereference(shared);
}

static void list_corruption(void)
{
	LIST_HEAD(head);
	LIST_HEAD(one);
	LIST_HEAD(two);

	list_add(&one, &head);
	head.next = &two;
	list_del(&one);
}

static enum hrtimer_restart fires(struct hrtimer *timer)
{
	return HRTIMER_NORESTART;
}

static void timer_freed(void)
{
	struct hrtimer *timer = kzalloc(sizeof(*timer), GFP_KERNEL);

	if (!timer)
		return;
	hrtimer_setup(timer, fires, CLOCK_MONOTONIC, HRTIMER_MODE_REL);
	hrtimer_start(timer, ms_to_ktime(60000), HRTIMER_MODE_REL);
	kfree(timer);
}

static void leak(void)
{
	/*
	 * More than one: a stale register or stack slot may still point to the last. Zeroed: what is left of
	 * the allocator's list in one points to the next, and so on.
	 */
	for (int i = 0; i < 16; i++) {
		void *p = kzalloc(200, GFP_KERNEL);

		OPTIMIZER_HIDE_VAR(p);
	}
}

static void use_after_free(void)
{
	char *p = kmalloc(64, GFP_KERNEL);

	OPTIMIZER_HIDE_VAR(p);
	kfree(p);
	WRITE_ONCE(p[8], 1);
}

static void vmalloc_out_of_bounds(void)
{
	char *p = vmalloc(100);

	OPTIMIZER_HIDE_VAR(p);
	if (p)
		(void)READ_ONCE(p[104]);
	vfree(p);
}

static const struct {
	const char *name;
	void (*plant)(void);
} bugs[] = {
	{ "sleep-in-atomic", sleep_in_atomic },
	{ "rcu-unprotected", rcu_unprotected },
	{ "list-corruption", list_corruption },
	{ "timer-freed", timer_freed },
	{ "leak", leak },
	{ "lock-order", lock_order },
	{ "use-after-free", use_after_free },
	{ "vmalloc-out-of-bounds", vmalloc_out_of_bounds },
};

static int __init planted_init(void)
{
	for (int i = 0; i < ARRAY_SIZE(bugs); i++) {
		if (!strcmp(bug, bugs[i].name)) {
			bugs[i].plant();
			return -ECANCELED;
		}
	}
	return -EINVAL;
}
module_init(planted_init);

MODULE_DESCRIPTION("Bugs on purpose, for the test of the debug kernel");
MODULE_LICENSE("GPL");
