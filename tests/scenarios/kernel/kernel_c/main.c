// SPDX-License-Identifier: GPL-2.0
/*
 * `insmod ferroce_kuser.ko group=GROUP device=DEVICE,DEVICE gid=INDEX,INDEX` runs the cases of a
 * group between two places (or from one to itself), and is there when all have passed; the kernel's
 * log has what was wrong.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/kthread.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/percpu.h>
#include <linux/slab.h>
#include <linux/stdarg.h>
#include <rdma/ib_cache.h>
#include "kuser.h"

static const struct {
	const char *name;
	const struct kuser_case *cases;
} groups[] = {
	{ "posting", posting_cases }, { "polling", polling_cases }, { "queues", queue_cases },
	{ "operations", operation_cases }, { "registration", registration_cases },
	{ "misuse", misuse_cases },
};

unsigned int patience = 90;
module_param(patience, uint, 0400);
static char *group, *device[SIDES];
module_param(group, charp, 0400);
module_param_array(device, charp, NULL, 0400);
static int gid[SIDES];
module_param_array(gid, int, NULL, 0400);

/* The devices that are named, while they are there. */
static struct ib_device *devices[SIDES];
static DEFINE_MUTEX(running);

/* Held with interrupts disabled only: who finds it raised on his CPU stands on a poster's stack. */
static DEFINE_PER_CPU(int, posting);

void lock_to_post(spinlock_t *lock, unsigned long *flags)
{
	spin_lock_irqsave(lock, *flags);
	__this_cpu_inc(posting);
}

void unlock_posted(spinlock_t *lock, unsigned long *flags)
{
	__this_cpu_dec(posting);
	spin_unlock_irqrestore(lock, *flags);
}

/* The first reason is what counts; what follows from it is not said. */
void fail(struct test *t, const char *form, ...)
{
	struct va_format text = { .fmt = form };
	va_list args;

	va_start(args, form);
	text.va = &args;
	if (!xchg(&t->failed, true))
		pr_err("%s: %pV; posted from %s\n", t->how->name, &text,
		       context_names[t->context]);
	va_end(args);
}

/* Ends the thread of a case. */
void end_case(struct test *t)
{
	kthread_complete_and_exit(&t->over, 0);
}

/* What ends with a status, or an error, has gone well. */
void must(struct test *t, const char *what, int status)
{
	CHECK(t, !status, "%s: status %d", what, status);
}

/* It has ended with this status. */
void expect(struct test *t, const char *what, int status, int want)
{
	CHECK(t, status == want, "%s: status %d instead of %d", what, status, want);
}

/* What is there until the end of a test, and how it ends. */
struct object {
	struct list_head list;
	void (*end)(void *object);
	u64 mem[];
};

void *new_object(struct test *t, size_t size, void (*end)(void *object))
{
	struct object *o = kzalloc(sizeof(*o) + size, GFP_KERNEL);

	CHECK(t, o, "no memory");
	o->end = end;
	list_add(&o->list, &t->objects);
	return o->mem;
}

void *new_memory(struct test *t, size_t size)
{
	return new_object(t, size, NULL);
}

/* The last one first. */
void end_objects(struct test *t)
{
	struct object *o, *next;

	list_for_each_entry_safe(o, next, &t->objects, list) {
		if (o->end)
			o->end(o->mem);
		list_del(&o->list);
		kfree(o);
	}
}

/* What holds for each function that is called for a completion queue. If not, no lock may be taken. */
bool on_completion(struct test *t, struct ib_cq *cq, bool handler)
{
	struct queue *q = cq->cq_context;

	if (handler)
		atomic_inc(&q->events);
	if (!this_cpu_read(posting))
		return true;
	fail(t, "%s on the stack of who posts", handler ? "a handler" : "a completion");
	return false;
}

void poll_all(struct test *t)
{
	struct queue *q;

	list_for_each_entry(q, &t->queues, list)
		if (q->way == BY_DIRECT)
			ib_process_cq_direct(q->cq, -1);
}

static int run_thread(void *arg)
{
	struct test *t = arg;

	t->how->run(t);
	end_case(t);
}

/* A device stays while `running` is held, for who takes it away waits for us. */
static int run_case(struct test *t)
{
	int err = 0;

	for (int i = 0; i < SIDES && !err; i++) {
		struct place *place = &t->place[i];

		*place = (struct place) { .dev = devices[i], .index = gid[i] };
		err = place->dev ? rdma_query_gid(place->dev, 1, place->index, &place->gid) :
				   -ENODEV;
	}
	if (err)
		return err;
	pr_info("%s\n", t->how->name);
	err = PTR_ERR_OR_ZERO(kthread_run(run_thread, t, "kuser"));
	if (err)
		return err;
	/* It may last longer than a task may hang. */
	wait_for_completion_state(&t->over, TASK_IDLE);
	end_all(t);
	return t->failed ? -EREMOTEIO : 0;
}

static int run_cases(const struct kuser_case *how)
{
	int err = 0;

	for (; how->name && !err; how++) {
		struct test *t = kzalloc(sizeof(*t), GFP_KERNEL);

		if (!t)
			return -ENOMEM;
		t->how = how;
		spin_lock_init(&t->lock);
		init_completion(&t->over);
		INIT_LIST_HEAD(&t->ends);
		INIT_LIST_HEAD(&t->queues);
		INIT_LIST_HEAD(&t->objects);
		INIT_LIST_HEAD(&t->flows);
		mutex_lock(&running);
		err = run_case(t);
		mutex_unlock(&running);
		kfree(t);
	}
	return err;
}

static int add_one(struct ib_device *dev)
{
	mutex_lock(&running);
	for (int i = 0; i < SIDES; i++)
		if (device[i] && !strcmp(dev_name(&dev->dev), device[i]))
			devices[i] = dev;
	mutex_unlock(&running);
	return 0;
}

static void remove_one(struct ib_device *dev, void *data)
{
	mutex_lock(&running);
	for (int i = 0; i < SIDES; i++)
		if (devices[i] == dev)
			devices[i] = NULL;
	mutex_unlock(&running);
}

static struct ib_client client = {
	.name = KBUILD_MODNAME,
	.add = add_one,
	.remove = remove_one,
};

static int __init kuser_init(void)
{
	int err = ib_register_client(&client);

	if (err)
		return err;
	err = -ENOENT;
	for (int i = 0; i < ARRAY_SIZE(groups); i++)
		if (group && !strcmp(groups[i].name, group))
			err = run_cases(groups[i].cases);
	if (err)
		ib_unregister_client(&client);
	return err;
}
module_init(kuser_init);

static void __exit kuser_exit(void)
{
	ib_unregister_client(&client);
}
module_exit(kuser_exit);

MODULE_DESCRIPTION("A user of RDMA in the kernel, for tests");
MODULE_LICENSE("GPL");
