// SPDX-License-Identifier: GPL-2.0
/* Who posts: every context, with interrupts disabled, for each type of queue pair. */
#include <linux/delay.h>
#include "kuser.h"

#define MESSAGES 60
#define DEPTH 16

static void post_in(struct test *t, enum ib_qp_type kind, enum context context, enum way way)
{
	struct wish wish = { .kind = kind, .way = way, .inline_data = 64 };
	struct run run = {
		.context = context,
		.messages = MESSAGES,
		/* What is unreliable must find a receive. */
		.depth = kind == IB_QPT_RC ? DEPTH : MESSAGES,
		/* A datagram is one packet. */
		.size = kind == IB_QPT_UD ? 1000 : 3000,
	};

	make_pair(t, &wish, &run.from, &run.to);
	run_flow(t, &run);
}

static void every_context(struct test *t)
{
	static const enum way ways[CONTEXTS] = {
		[IN_TASK] = BY_WORKQUEUE, [IN_TIMER] = BY_HAND, [IN_WORK] = BY_UNBOUND,
		[IN_IRQ] = BY_SOFTIRQ, [IN_HANDLER] = BY_HAND,
	};

	for (int context = 0; context < CONTEXTS; context++)
		post_in(t, t->how->kind, context, ways[context]);
	post_in(t, t->how->kind, IN_HANDLER, BY_SOFTIRQ);
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

/* Address handles come and go where nobody may sleep. */
static void handles(struct test *t)
{
	struct wish wish = { .kind = IB_QPT_UD, .way = BY_SOFTIRQ };
	struct rdma_ah_attr attr;
	static DEFINE_SPINLOCK(lock);
	struct waiter *w[20];
	struct scene s;
	int came = 0;

	set_scene(t, &s, &wish, 512 + GRH_BYTES, 0);
	for (int i = 0; i < ARRAY_SIZE(w); i++) {
		struct ib_sge sge = near_piece(&s, 0, 500);
		struct ib_ud_wr wr = {
			.wr.sg_list = &sge, .wr.num_sge = 1, .wr.opcode = IB_WR_SEND,
			.remote_qpn = s.b->qp->qp_num, .remote_qkey = QKEY,
		};
		unsigned long flags;
		int status;

		w[i] = post_receive(s.b, s.far, 0, s.far->size);
		fill(s.near->mem, 500, i);
		fill_ah(s.a, s.b, &attr);
		lock_to_post(&lock, &flags);
		wr.ah = rdma_create_ah(s.a->pd, &attr, 0);
		unlock_posted(&lock, &flags);
		CHECK(t, !IS_ERR(wr.ah), "an address handle: error %ld", PTR_ERR(wr.ah));
		status = act(s.a, &wr.wr);
		lock_to_post(&lock, &flags);
		rdma_destroy_ah(wr.ah, 0);
		unlock_posted(&lock, &flags);
		must(t, "a datagram", status);
		/* It need not come: then its receive is for the next one. */
		if (t->lossy)
			continue;
		must(t, "its receive", finish(w[i]));
		CHECK(t, w[i]->wc.byte_len == 500 + GRH_BYTES, "%u bytes", w[i]->wc.byte_len);
		compare(t, s.far->mem + GRH_BYTES, 500, i);
	}
	for (int i = 0; i < ARRAY_SIZE(w); i++) {
		/* The last ones may still be under way. */
		for (int k = 0; k < 100 && !is_done(w[i]); k++)
			usleep_range(1000, 2000);
		came += is_done(w[i]);
	}
	note(t, "%d of 20 datagrams", came);
	CHECK(t, came, "no datagram came");
}

/*
 * A user that lets softirqs run where it posts, and has one request under way: it is carried out
 * before the post returns, and no other task runs for it.
 */
static void alone(struct test *t)
{
	struct wish wish = { .kind = IB_QPT_RC, .way = BY_SOFTIRQ };
	struct scene s;
	int at_once = 0;

	set_scene(t, &s, &wish, 512, ALL_RIGHTS);
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
	note(t, "%d of 100 were done when the post returned", at_once);
	/* Not all: ksoftirqd may be running already. */
	CHECK(t, at_once >= 10, "posts wait for other tasks");
}

const struct kuser_case posting_cases[] = {
	{ "rc-from-anywhere", every_context, IB_QPT_RC },
	{ "crowd", crowd },
	{ "alone", alone },
	{}
};

const struct kuser_case unreliable_cases[] = {
	{ "uc-from-anywhere", every_context, IB_QPT_UC },
	{ "ud-from-anywhere", every_context, IB_QPT_UD },
	{ "address-handles", handles },
	{}
};
