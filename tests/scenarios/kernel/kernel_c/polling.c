// SPDX-License-Identifier: GPL-2.0
/* Who takes the completions: armed and by hand, moderated, and while the queue goes. */
#include <linux/cpumask.h>
#include <linux/delay.h>
#include <linux/dim.h>
#include <linux/sched.h>
#include "kuser.h"

/* ib_core moderates by what it measures; the scenario has switched that on. */
static void dim(struct test *t)
{
	struct wish wish = { .kind = IB_QPT_RC, .way = BY_SOFTIRQ, .inline_data = 64 };
	struct run run = { .context = IN_HANDLER, .messages = 600, .depth = 16, .size = 200 };
	struct dim *measured;

	make_pair(t, &wish, &run.from, &run.to);
	measured = run.to->recvs->cq->dim;
	CHECK(t, measured, "the completion queue is not moderated");
	run_flows(t, &run, 1);
	CHECK(t, measured->measuring_sample.event_ctr, "nothing was measured");
}

static void send_empty(struct end *a, int flags)
{
	struct ib_send_wr wr = { .opcode = IB_WR_SEND, .send_flags = flags };

	must(a->t, "a SEND", act(a, &wr));
}

/* Polls what a queue has, as its handler would. */
static void take_some(struct queue *q)
{
	struct ib_wc wc;

	while (ib_poll_cq(q->cq, 1, &wc) == 1)
		wc.wr_cqe->done(q->cq, &wc);
}

/* There are so many events, or more, and what polls for them is done. */
static void check_events(struct queue *q, int least)
{
	CHECK(q->t, wait_for(q->t, atomic_read(&q->events) >= least), "%d events, not %d",
	      atomic_read(&q->events), least);
	CHECK(q->t, wait_for(q->t, !atomic_read(&q->inside)), "the handler does not end");
}

/* What arming says, 1 if a completion was missed, is what it must say. */
static void arm(struct queue *q, enum ib_cq_notify_flags flags, bool missed)
{
	int said = ib_req_notify_cq(q->cq, flags | IB_CQ_REPORT_MISSED_EVENTS);

	CHECK(q->t, missed ? said > 0 : !said, "arming a queue with %s said %d",
	      missed ? "a completion" : "nothing", said);
}

/* What arming says and does, step by step. */
static void arming(struct test *t)
{
	struct wish wish = { .kind = IB_QPT_RC, .way = BY_HAND };
	struct waiter *w[4];
	struct end *a, *b;
	struct queue *q;
	int before;

	make_pair(t, &wish, &a, &b);
	for (int i = 0; i < ARRAY_SIZE(w); i++)
		w[i] = post_receive(b, NULL, 0, 0);
	q = b->recvs;
	q->rearms = false;
	/* It has been armed when it was made: one completion, one event. */
	send_empty(a, 0);
	must(t, "the first receive", finish(w[0]));
	check_events(q, 1);
	CHECK(t, atomic_read(&q->events) == 1, "%d events for it", atomic_read(&q->events));
	/* Without arming a completion raises none; who arms is told that he has missed it. */
	send_empty(a, 0);
	arm(q, IB_CQ_NEXT_COMP, true);
	/* Whether that event comes as well is the driver's affair. */
	take_some(q);
	CHECK(t, is_done(w[1]), "the completion is not there");
	arm(q, IB_CQ_NEXT_COMP, false);
	send_empty(a, 0);
	must(t, "a receive of an armed queue", finish(w[2]));
	check_events(q, 2);
	/* Only a solicited completion counts: both are found when its event comes. */
	arm(q, IB_CQ_SOLICITED, false);
	before = atomic_read(&q->events);
	send_empty(a, 0);
	w[2] = post_receive(b, NULL, 0, 0);
	CHECK(t, atomic_read(&q->events) == before && !is_done(w[3]),
	      "an event for a completion that was not solicited");
	send_empty(a, IB_SEND_SOLICITED);
	check_order((struct waiter *[]){ w[3], w[2] }, 2);
	CHECK(t, atomic_read(&q->events) == before + 1, "%d events more instead of one",
	      atomic_read(&q->events) - before);
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

/* One attempt, by a task that stays on another CPU than the poller. Nothing ends the case here. */
static void free_while_polled(struct test *t, struct queue *q, unsigned int cpu)
{
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
}

static void freed_while_polled(struct test *t)
{
	unsigned int here = cpumask_first(cpu_online_mask), there = cpumask_next(here, cpu_online_mask);
	struct ib_device_ops *ops = &t->place[0].dev->ops;
	struct queue *queues[5];

	CHECK(t, there < nr_cpu_ids, "it takes two processors");
	must(t, "staying on a processor", set_cpus_allowed_ptr(current, cpumask_of(here)));
	for (int i = 0; i < ARRAY_SIZE(queues); i++)
		queues[i] = make_queue(t, 0, BY_SOFTIRQ, 16);
	INIT_WORK(&slow.event, raise_event);
	slow.met = false;
	slow.arm = ops->req_notify_cq;
	WRITE_ONCE(ops->req_notify_cq, arm_slowly);
	/* A busy machine may keep one of them from its CPU until the other has given up. */
	for (int i = 0; i < ARRAY_SIZE(queues) && !t->failed && !slow.met; i++)
		free_while_polled(t, queues[i], there);
	WRITE_ONCE(ops->req_notify_cq, slow.arm);
	/* Nobody is in there who has found it in the table before. */
	synchronize_rcu();
	CHECK(t, slow.met, "the poller was never there when the queue was freed");
	CHECK(t, !slow.overtaken, "the queue was freed while it was polled");
}

const struct kuser_case polling_cases[] = {
	{ "arming", arming },
	{ "adaptive-moderation", dim },
	{ "freed-while-polled", freed_while_polled },
	{}
};
