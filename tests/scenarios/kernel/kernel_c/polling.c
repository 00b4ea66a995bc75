// SPDX-License-Identifier: GPL-2.0
/* Who takes the completions: every way of ib_core, and by hand with events. */
#include <linux/cpumask.h>
#include <linux/delay.h>
#include <linux/dim.h>
#include <linux/sched.h>
#include "kuser.h"

static int poll(struct test *t)
{
	struct wish wish = { .kind = IB_QPT_RC, .way = t->how->way, .inline_data = 64 };
	struct run run = { .context = IN_TASK, .messages = 100, .depth = 16, .size = 1500 };

	return make_pair(t, &wish, &run.from, &run.to) ?: run_flow(t, &run);
}

/* ib_core moderates by what it measures; the scenario has switched that on. */
static int dim(struct test *t)
{
	struct wish wish = { .kind = IB_QPT_RC, .way = BY_SOFTIRQ, .inline_data = 64 };
	struct run run = { .context = IN_HANDLER, .messages = 600, .depth = 16, .size = 200 };
	struct dim *measured;
	u16 events;

	if (!t->place[0].dev->ops.modify_cq)
		return -EOPNOTSUPP;
	if (make_pair(t, &wish, &run.from, &run.to))
		return -EIO;
	measured = run.to->recvs->cq->dim;
	if (!measured)
		return fail(t, "the completion queue is not moderated");
	if (run_flow(t, &run))
		return -EIO;
	events = measured->measuring_sample.event_ctr;
	if (!events)
		return fail(t, "nothing was measured");
	note(t, "%u events measured, profile %d", events, measured->profile_ix);
	return 0;
}

/* An event for eight completions, or after a while for fewer. */
static int moderated(struct test *t)
{
	struct wish wish = { .kind = IB_QPT_RC, .way = BY_HAND, .inline_data = 64 };
	struct run run = { .context = IN_TASK, .messages = 83, .depth = 16, .size = 200 };
	int err, events;

	if (make_pair(t, &wish, &run.from, &run.to))
		return -EIO;
	err = rdma_set_cq_moderation(run.to->recvs->cq, 8, 2000);
	if (err == -EOPNOTSUPP)
		return err;
	if (err)
		return fail(t, "moderation: error %d", err);
	if (run_flow(t, &run))
		return -EIO;
	events = atomic_read(&run.to->recvs->events);
	note(t, "%d events for %d completions", events, atomic_read(&run.to->recvs->taken));
	return events ? 0 : fail(t, "no event");
}

static int send_solicited(struct scene *s, bool solicited)
{
	struct ib_sge sge = near_piece(s, 0, 8);
	struct ib_send_wr wr = {
		.opcode = IB_WR_SEND, .sg_list = &sge, .num_sge = 1,
		.send_flags = solicited ? IB_SEND_SOLICITED : 0,
	};
	int status = act(s->a, &wr);

	return status ? fail(s->a->t, "a SEND: status %d", status) : 0;
}

/* A pair polled by hand, whose far end has so many receives of 8 bytes. */
static int set_receives(struct test *t, struct scene *s, struct waiter **w, int count)
{
	struct wish wish = { .kind = IB_QPT_RC, .way = BY_HAND };

	if (set_scene(t, s, &wish, 8 * count, 0))
		return -EIO;
	for (int i = 0; i < count; i++) {
		w[i] = post_receive(s->b, s->far, i * 8, 8);
		if (!w[i])
			return -EIO;
	}
	return 0;
}

/* Polls what a queue has, as its handler would. */
static int take_some(struct queue *q)
{
	struct ib_wc wc;
	int count = 0;

	while (ib_poll_cq(q->cq, 1, &wc) == 1) {
		wc.wr_cqe->done(q->cq, &wc);
		count++;
	}
	return count;
}

/* What polls for an event is done with it. */
static bool is_calm(struct queue *q)
{
	if (!wait_for(q->t, !atomic_read(&q->inside)))
		return false;
	flush_work(&q->work);
	return true;
}

/* What arming says and does, step by step. */
static int arming(struct test *t)
{
	enum ib_cq_notify_flags next = IB_CQ_NEXT_COMP | IB_CQ_REPORT_MISSED_EVENTS;
	struct waiter *w[4];
	struct scene s;
	struct queue *q;
	int said;

	if (set_receives(t, &s, w, ARRAY_SIZE(w)))
		return -EIO;
	q = s.b->recvs;
	q->rearms = false;
	/* It has been armed when it was made: one completion, one event. */
	if (send_solicited(&s, false) || finish(w[0]) ||
	    !wait_for(t, atomic_read(&q->events) == 1) || !is_calm(q))
		return fail(t, "%d events for the first completion", atomic_read(&q->events));
	/* Without arming a completion raises none; who arms is told that he has missed it. */
	if (send_solicited(&s, false))
		return -EIO;
	said = ib_req_notify_cq(q->cq, next);
	if (said <= 0)
		return fail(t, "arming a queue with a completion said %d", said);
	/* Whether that event comes as well is the driver's affair. */
	take_some(q);
	if (!is_done(w[1]))
		return fail(t, "the completion is not there");
	said = ib_req_notify_cq(q->cq, next);
	if (said)
		return fail(t, "arming an empty queue said %d", said);
	if (send_solicited(&s, false) || finish(w[2]) ||
	    !wait_for(t, atomic_read(&q->events) >= 2) || !is_calm(q))
		return fail(t, "no event for an armed queue");
	/* Only a solicited completion counts: both are found when its event comes. */
	said = ib_req_notify_cq(q->cq, IB_CQ_SOLICITED | IB_CQ_REPORT_MISSED_EVENTS);
	if (said)
		return fail(t, "arming for solicited ones said %d", said);
	said = atomic_read(&q->events);
	if (send_solicited(&s, false))
		return -EIO;
	w[2] = post_receive(s.b, s.far, 16, 8);
	if (!w[2])
		return -EIO;
	if (atomic_read(&q->events) != said || is_done(w[3]))
		return fail(t, "an event for a completion that was not solicited");
	if (send_solicited(&s, true) || finish(w[2]) || finish(w[3]))
		return fail(t, "no event for a solicited completion");
	note(t, "%d events", atomic_read(&q->events));
	return atomic_read(&q->events) == said + 1 ? 0 : fail(t, "%d events more instead of one",
							      atomic_read(&q->events) - said);
}

/* Polling by hand in one task, while the handler of the queue polls as well. */
static int polled_twice(struct test *t)
{
	struct waiter *w[32];
	struct scene s;
	int taken;

	if (set_receives(t, &s, w, ARRAY_SIZE(w)))
		return -EIO;
	for (int i = 0; i < ARRAY_SIZE(w); i++) {
		if (send_solicited(&s, false))
			return -EIO;
		take_some(s.b->recvs);
	}
	for (int i = 0; i < ARRAY_SIZE(w); i++)
		if (finish(w[i]))
			return -EIO;
	taken = atomic_read(&s.b->recvs->taken);
	note(t, "%d completions", taken);
	return taken == ARRAY_SIZE(w) ? 0 : fail(t, "%d completions", taken);
}

/*
 * ib_core's poller arms a queue when it has already said that it is done with it. It is kept there,
 * while the queue is freed on another CPU.
 */
static struct {
	struct ib_cq *cq;
	int (*arm)(struct ib_cq *cq, enum ib_cq_notify_flags flags);
	struct work_struct event;
	/* The poller is there, somebody frees the queue, and the memory is gone. */
	bool inside, freeing, freed;
	/* Both were there at a time; the memory went first. */
	bool met, overtaken;
	struct task_struct *freer;
} slow;

static bool comes_true(const bool *what, int ms)
{
	for (; ms && !READ_ONCE(*what); ms--)
		mdelay(1);
	return READ_ONCE(*what);
}

/* Whether the memory goes, until who frees it has slept for a while: time in which he waits for a processor is none. */
static bool goes_first(void)
{
	for (int slept = 0; slept < 100 && !READ_ONCE(slow.freed); mdelay(1))
		slept = task_is_running(slow.freer) ? 0 : slept + 1;
	return READ_ONCE(slow.freed);
}

static int arm_slowly(struct ib_cq *cq, enum ib_cq_notify_flags flags)
{
	if (cq != READ_ONCE(slow.cq) || !in_serving_softirq())
		return slow.arm(cq, flags);
	WRITE_ONCE(slow.inside, true);
	slow.met = comes_true(&slow.freeing, 10000);
	slow.overtaken = slow.met && goes_first();
	return slow.overtaken ? 0 : slow.arm(cq, flags);
}

/* As the driver does for a completion. There is none, and ib_core does not know before it looks. */
static void raise_event(struct work_struct *work)
{
	slow.cq->comp_handler(slow.cq, slow.cq->cq_context);
}

/* One attempt, by a task that stays on another CPU than the poller. */
static int free_while_polled(struct test *t, unsigned int cpu)
{
	struct queue *q = make_queue(t, 0, BY_SOFTIRQ, 16);

	if (!q)
		return -EIO;
	slow.inside = slow.freeing = slow.freed = slow.overtaken = false;
	slow.freer = current;
	WRITE_ONCE(slow.cq, q->cq);
	schedule_work_on(cpu, &slow.event);
	if (!wait_for(t, READ_ONCE(slow.inside))) {
		fail(t, "nobody polls");
		flush_work(&slow.event);
	}
	WRITE_ONCE(slow.freeing, true);
	end_queue(q);
	WRITE_ONCE(slow.freed, true);
	/* The poller is in a softirq, and that before the work ends or in a thread. */
	flush_work(&slow.event);
	synchronize_rcu();
	WRITE_ONCE(slow.cq, NULL);
	return t->failed ? -EIO : 0;
}

static int freed_while_polled(struct test *t)
{
	unsigned int here = cpumask_first(cpu_online_mask), there = cpumask_next(here, cpu_online_mask);
	struct ib_device_ops *ops = &t->place[0].dev->ops;
	cpumask_var_t before;
	int err;

	if (there >= nr_cpu_ids)
		return fail(t, "it takes two processors");
	if (!alloc_cpumask_var(&before, GFP_KERNEL))
		return -ENOMEM;
	cpumask_copy(before, current->cpus_ptr);
	err = set_cpus_allowed_ptr(current, cpumask_of(here));
	INIT_WORK(&slow.event, raise_event);
	slow.met = false;
	slow.arm = ops->req_notify_cq;
	WRITE_ONCE(ops->req_notify_cq, arm_slowly);
	/* A busy machine may keep one of them from its CPU until the other has given up. */
	for (int attempt = 0; !err && attempt < 5 && !slow.met; attempt++)
		err = free_while_polled(t, there);
	WRITE_ONCE(ops->req_notify_cq, slow.arm);
	/* Nobody is in there who has found it in the table before. */
	synchronize_rcu();
	set_cpus_allowed_ptr(current, before);
	free_cpumask_var(before);
	if (!err && !slow.met)
		err = fail(t, "the poller was never there when the queue was freed");
	if (!err && slow.overtaken)
		err = fail(t, "the queue was freed while it was polled");
	return err;
}

const struct kuser_case polling_cases[] = {
	{ "poll-direct", poll, .way = BY_DIRECT },
	{ "poll-softirq", poll, .way = BY_SOFTIRQ },
	{ "poll-workqueue", poll, .way = BY_WORKQUEUE },
	{ "poll-unbound-workqueue", poll, .way = BY_UNBOUND },
	{ "poll-by-hand", poll, .way = BY_HAND },
	{ "poll-by-two", polled_twice },
	{ "arming", arming },
	{ "moderated", moderated },
	{ "adaptive-moderation", dim },
	{ "freed-while-polled", freed_while_polled },
	{}
};
