// SPDX-License-Identifier: GPL-2.0
/* Who posts: every context, with interrupts disabled, for each type of queue pair. */
#include "kuser.h"

#define MESSAGES 60
#define DEPTH 16

/* Every context posts, and by every way the completions are taken. */
static void every_context(struct test *t)
{
	static const struct {
		enum context context;
		enum way way;
	} rows[] = {
		{ IN_TASK, BY_DIRECT }, { IN_TASK, BY_WORKQUEUE }, { IN_TIMER, BY_HAND },
		{ IN_WORK, BY_UNBOUND }, { IN_IRQ, BY_SOFTIRQ }, { IN_HANDLER, BY_HAND },
		{ IN_HANDLER, BY_SOFTIRQ },
	};
	enum ib_qp_type kind = t->how->kind;

	for (int i = 0; i < ARRAY_SIZE(rows); i++) {
		struct wish wish = { .kind = kind, .way = rows[i].way, .inline_data = 64 };
		struct run run = {
			.context = rows[i].context,
			.messages = MESSAGES,
			/* What is unreliable must find a receive. */
			.depth = kind == IB_QPT_RC ? DEPTH : MESSAGES,
			/* A datagram is one packet. */
			.size = kind == IB_QPT_UD ? 1000 : 3000,
		};

		make_pair(t, &wish, &run.from, &run.to);
		run_flows(t, &run, 1);
	}
}

/* As many pairs at once, each from another context, on one completion queue for each side. */
static void crowd(struct test *t)
{
	struct wish near = { .kind = IB_QPT_RC, .inline_data = 64 }, far = near;
	struct run runs[CONTEXTS];

	near.queue = make_queue(t, 0, BY_SOFTIRQ, 4096);
	far.queue = make_queue(t, 1, BY_HAND, 4096);
	for (int i = 0; i < CONTEXTS; i++) {
		runs[i] = (struct run) {
			.from = make_end(t, 0, &near), .to = make_end(t, 1, &far), .context = i,
			.messages = 2 * MESSAGES, .depth = DEPTH, .size = 2000,
		};
		connect(runs[i].from, runs[i].to, &near);
	}
	run_flows(t, runs, CONTEXTS);
}

/*
 * A user that lets softirqs run where it posts, and has one request under way: it is carried out
 * before the post returns, and no other task runs for it.
 */
static void alone(struct test *t)
{
	struct scene s;
	int at_once = 0;

	set_scene(t, &s, 512, ALL_RIGHTS);
	for (int i = 0; i < 100; i++) {
		struct ib_sge sge = near_piece(&s, 0, 500);
		struct ib_rdma_wr wr = reach(&s, IB_WR_RDMA_WRITE, &sge, 0);
		struct waiter *w = wait_on(t, &wr.wr);
		unsigned long switches = current->nvcsw + current->nivcsw;

		fill(s.near->mem, 500, i);
		must(t, "posting", ib_post_send(s.a->qp, &wr.wr, NULL));
		if (is_done(w) && current->nvcsw + current->nivcsw == switches)
			at_once++;
		must(t, "a WRITE", finish(w));
		check_room(t, s.far, 0, 500, i);
	}
	/* Not all: ksoftirqd may be running already. */
	CHECK(t, at_once >= 10, "posts wait for other tasks: %d of 100 did not", at_once);
}

const struct kuser_case posting_cases[] = {
	{ "rc-from-anywhere", every_context, IB_QPT_RC },
	{ "uc-from-anywhere", every_context, IB_QPT_UC },
	{ "ud-from-anywhere", every_context, IB_QPT_UD },
	{ "crowd", crowd },
	{ "alone", alone },
	{}
};
