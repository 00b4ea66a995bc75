// SPDX-License-Identifier: GPL-2.0
/* The contexts that users in the kernel post in. */
#include <linux/completion.h>
#include "kuser.h"

const char *const context_names[CONTEXTS] = {
	"task", "timer", "workqueue", "hard interrupt", "completion",
};

/* That who posts is in this context, with interrupts disabled. */
void check_context(struct test *t, enum context context)
{
	bool right = true;

	if (context == IN_TASK || context == IN_WORK)
		right = in_task();
	else if (context == IN_TIMER)
		right = in_serving_softirq();
	else if (context == IN_IRQ)
		right = in_hardirq();
	if (!right || !irqs_disabled())
		fail(t, "posted in the wrong context");
}

static void in_timer(struct timer_list *timer)
{
	struct poster *p = container_of(timer, struct poster, timer);

	p->post(p);
}

static void in_work(struct work_struct *work)
{
	struct poster *p = container_of(work, struct poster, work);

	p->post(p);
}

static void in_irq(struct irq_work *irq)
{
	struct poster *p = container_of(irq, struct poster, irq);

	p->post(p);
}

void set_up_poster(struct poster *p, enum context context, void (*post)(struct poster *))
{
	p->context = context;
	p->post = post;
	timer_setup(&p->timer, in_timer, 0);
	INIT_WORK(&p->work, in_work);
	init_irq_work(&p->irq, in_irq);
}

/* Has the context post; a task looks by itself. */
void kick(struct poster *p)
{
	if (p->context == IN_TIMER)
		mod_timer(&p->timer, jiffies);
	else if (p->context == IN_WORK)
		schedule_work(&p->work);
	else if (p->context == IN_IRQ)
		irq_work_queue(&p->irq);
}

void stop_poster(struct poster *p)
{
	timer_shutdown_sync(&p->timer);
	cancel_work_sync(&p->work);
	irq_work_sync(&p->irq);
}

/* Something that is done once. */
struct once {
	struct poster poster;
	struct test *t;
	spinlock_t lock;
	int (*act)(void *arg);
	void *arg;
	int result;
	struct completion done;
};

static void act_once(struct poster *poster)
{
	struct once *o = container_of(poster, struct once, poster);
	unsigned long flags;

	lock_to_post(&o->lock, &flags);
	check_context(o->t, poster->context);
	o->result = o->act(o->arg);
	unlock_posted(&o->lock, &flags);
	complete(&o->done);
}

/*
 * Does something in a context that is not that of completions, with interrupts disabled and a lock
 * held; what it returns.
 */
int run_in(struct test *t, enum context context, int (*act)(void *arg), void *arg)
{
	struct once *o = new_memory(t, sizeof(*o));

	o->t = t;
	o->act = act;
	o->arg = arg;
	spin_lock_init(&o->lock);
	init_completion(&o->done);
	set_up_poster(&o->poster, context, act_once);
	if (context == IN_TASK)
		act_once(&o->poster);
	else
		kick(&o->poster);
	wait_for_completion(&o->done);
	stop_poster(&o->poster);
	return o->result;
}
