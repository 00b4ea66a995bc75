// SPDX-License-Identifier: GPL-2.0
/*
 * Runs the cases. `echo "CASE DEVICE INDEX DEVICE INDEX lossy|exact" > parameters/run` runs one
 * between two places (or from one to itself); `parameters/said` is what came of it: lines of notes
 * and at last `passed`, or a line `failed: ...` among them. `parameters/cases` lists them, each
 * with its group.
 *
 * `run=stand ...` leaves traffic running until the device goes or this module does.
 */
#include <linux/kthread.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/percpu.h>
#include <linux/slab.h>
#include <linux/stdarg.h>
#include <rdma/ib_cache.h>
#include <uapi/rdma/ib_user_ioctl_verbs.h>
#include "kuser.h"

static const struct {
	const char *name;
	const struct kuser_case *cases;
} groups[] = {
	{ "posting", posting_cases }, { "unreliable", unreliable_cases },
	{ "polling", polling_cases }, { "queues", queue_cases },
	{ "operations", operation_cases }, { "registration", registration_cases },
	{ "registration", list_cases }, { "misuse", misuse_cases }, { "shared", shared_cases },
};

static struct ib_client client;
static DEFINE_MUTEX(running);
static struct test *last, *standing;

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

static void say(struct test *t, const char *word, const char *form, va_list args)
{
	unsigned long flags;

	spin_lock_irqsave(&t->lock, flags);
	t->len += scnprintf(t->said + t->len, sizeof(t->said) - t->len, "%s", word);
	t->len += vscnprintf(t->said + t->len, sizeof(t->said) - t->len, form, args);
	t->len += scnprintf(t->said + t->len, sizeof(t->said) - t->len, "\n");
	spin_unlock_irqrestore(&t->lock, flags);
}

void note(struct test *t, const char *form, ...)
{
	va_list args;

	va_start(args, form);
	say(t, "", form, args);
	va_end(args);
}

/* The first reason is what counts; what follows from it is not said. */
void fail(struct test *t, const char *form, ...)
{
	unsigned long flags;
	va_list args;
	bool first;

	spin_lock_irqsave(&t->lock, flags);
	first = !t->failed;
	t->failed = true;
	spin_unlock_irqrestore(&t->lock, flags);
	va_start(args, form);
	if (first)
		say(t, "failed: ", form, args);
	va_end(args);
}

/* Ends the thread of a case. */
void end_case(struct test *t)
{
	if (t->failed)
		note(t, "posted from %s", context_names[t->context]);
	kthread_complete_and_exit(&t->over, 0);
}

/* What ends with a status, or an error, has gone well. */
void must(struct test *t, const char *what, int status)
{
	CHECK(t, !status, "%s: status %d", what, status);
}

/* It has ended with this status, and says so. */
void expect(struct test *t, const char *what, int status, int want)
{
	CHECK(t, status == want, "%s: status %d instead of %d", what, status, want);
	note(t, "%s: status %d", what, status);
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

	atomic_inc(handler ? &q->events : &q->taken);
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

static const struct kuser_case *find(const char *name)
{
	for (int i = 0; i < ARRAY_SIZE(groups); i++)
		for (const struct kuser_case *c = groups[i].cases; c->name; c++)
			if (!strcmp(c->name, name))
				return c;
	return NULL;
}

/* A device that there is. It stays while `running` is held, for who takes it away waits for us. */
struct known {
	struct list_head list;
	struct ib_device *dev;
};

static LIST_HEAD(devices);

static void free_places(struct test *t)
{
	for (int i = 0; i < SIDES; i++)
		if (t->place[i].gid)
			rdma_put_gid_attr(t->place[i].gid);
	memset(t->place, 0, sizeof(t->place));
}

static int find_place(struct place *place, const char *name, int index)
{
	const struct ib_gid_attr *gid;
	struct known *k;

	list_for_each_entry(k, &devices, list) {
		if (strcmp(dev_name(&k->dev->dev), name))
			continue;
		gid = rdma_get_gid_attr(k->dev, 1, index);
		if (IS_ERR(gid))
			return PTR_ERR(gid);
		*place = (struct place) { .dev = k->dev, .index = index, .gid = gid };
		return 0;
	}
	return -ENODEV;
}

static struct test *new_test(void)
{
	struct test *t = kzalloc(sizeof(*t), GFP_KERNEL);

	if (!t)
		return NULL;
	spin_lock_init(&t->lock);
	init_completion(&t->over);
	INIT_LIST_HEAD(&t->ends);
	INIT_LIST_HEAD(&t->queues);
	INIT_LIST_HEAD(&t->waiters);
	INIT_LIST_HEAD(&t->objects);
	return t;
}

static int run_case(void *arg)
{
	struct test *t = arg;

	t->how->run(t);
	end_case(t);
}

static int run_set(const char *text, const struct kernel_param *param)
{
	static const struct kuser_case stands = { "stand", stand };
	char name[32], dev[SIDES][IB_DEVICE_NAME_MAX], loss[8];
	int index[SIDES], err = 0;
	const struct kuser_case *c;
	struct test *t;

	if (sscanf(text, "%31s %63s %d %63s %d %7s", name, dev[0], &index[0], dev[1], &index[1],
		   loss) != 6)
		return -EINVAL;
	c = strcmp(name, stands.name) ? find(name) : &stands;
	if (!c)
		return -ENOENT;
	t = new_test();
	if (!t)
		return -ENOMEM;
	mutex_lock(&running);
	kfree(last);
	last = t;
	for (int i = 0; i < SIDES && !err; i++)
		err = find_place(&t->place[i], dev[i], index[i]);
	if (!err) {
		t->how = c;
		t->lossy = !strcmp(loss, "lossy");
		t->defers = t->place[0].dev->ops.driver_id == RDMA_DRIVER_RXE ||
			    t->place[1].dev->ops.driver_id == RDMA_DRIVER_RXE;
		err = PTR_ERR_OR_ZERO(kthread_run(run_case, t, "kuser"));
	}
	/* It may last longer than a task may hang. */
	if (!err)
		wait_for_completion_state(&t->over, TASK_IDLE);
	if (!err && c == &stands && !t->failed && !standing) {
		/* The device can go while it stands: what is told so ends it. */
		free_places(t);
		standing = t;
		last = NULL;
	} else {
		end_all(t);
		free_places(t);
		if (!err && !t->failed)
			note(t, "passed");
	}
	mutex_unlock(&running);
	/* The verdict is read apart. */
	return err;
}

static int said_get(char *buffer, const struct kernel_param *param)
{
	int len;

	mutex_lock(&running);
	len = scnprintf(buffer, PAGE_SIZE, "%s", last ? last->said : standing ? "stands\n" : "");
	mutex_unlock(&running);
	return len;
}

static int cases_get(char *buffer, const struct kernel_param *param)
{
	int len = 0;

	for (int i = 0; i < ARRAY_SIZE(groups); i++)
		for (const struct kuser_case *c = groups[i].cases; c->name; c++)
			len += scnprintf(buffer + len, PAGE_SIZE - len, "%s %s\n", groups[i].name,
					 c->name);
	return len;
}

static const struct kernel_param_ops run_ops = { .set = run_set };
static const struct kernel_param_ops said_ops = { .get = said_get };
static const struct kernel_param_ops cases_ops = { .get = cases_get };

unsigned int patience = 90;
module_param(patience, uint, 0400);
module_param_cb(run, &run_ops, NULL, 0200);
module_param_cb(said, &said_ops, NULL, 0400);
module_param_cb(cases, &cases_ops, NULL, 0400);

static int add_one(struct ib_device *dev)
{
	struct known *k = kzalloc(sizeof(*k), GFP_KERNEL);

	if (!k)
		return -ENOMEM;
	k->dev = dev;
	ib_set_client_data(dev, &client, k);
	mutex_lock(&running);
	list_add(&k->list, &devices);
	mutex_unlock(&running);
	return 0;
}

/* As a user in the kernel has to: when this returns nothing of the device is used any more. */
static void remove_one(struct ib_device *dev, void *data)
{
	struct known *k = data;
	bool uses = false;
	struct end *e;

	mutex_lock(&running);
	list_del(&k->list);
	kfree(k);
	if (standing) {
		list_for_each_entry(e, &standing->ends, list)
			uses |= e->pd->device == dev;
		if (uses) {
			end_all(standing);
			note(standing, "%d messages", atomic_read(&standing->messages));
			if (!standing->failed)
				note(standing, "passed");
			kfree(last);
			last = standing;
			standing = NULL;
		}
	}
	mutex_unlock(&running);
}

static struct ib_client client = {
	.name = KBUILD_MODNAME,
	.add = add_one,
	.remove = remove_one,
};

static int __init kuser_init(void)
{
	return ib_register_client(&client);
}
module_init(kuser_init);

static void __exit kuser_exit(void)
{
	ib_unregister_client(&client);
	kfree(last);
}
module_exit(kuser_exit);

MODULE_DESCRIPTION("A user of RDMA in the kernel, for tests");
MODULE_LICENSE("GPL");
