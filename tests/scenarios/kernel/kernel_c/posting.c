// SPDX-License-Identifier: GPL-2.0
/* Who posts: every context, with interrupts disabled, for each type of queue pair. */
#include <linux/delay.h>
#include "kuser.h"

#define MESSAGES 60
#define DEPTH 16

static int post_in(struct test *t, enum ib_qp_type kind, enum context context, enum way way)
{
	struct wish wish = { .kind = kind, .way = way, .inline_data = 64 };
	struct run run = {
		.context = context,
		.messages = MESSAGES,
		.depth = DEPTH,
		/* A datagram is one packet. */
		.size = kind == IB_QPT_UD ? 1000 : 3000,
	};

	return make_pair(t, &wish, &run.from, &run.to) ?: run_flow(t, &run);
}

static int one_context(struct test *t)
{
	return post_in(t, t->how->kind, t->how->context, t->how->way);
}

static int rc_handler(struct test *t)
{
	return post_in(t, IB_QPT_RC, IN_HANDLER, BY_HAND) ?:
	       post_in(t, IB_QPT_RC, IN_HANDLER, BY_SOFTIRQ);
}

static int every_context(struct test *t)
{
	int err = 0;

	for (int context = 0; context < CONTEXTS && !err; context++)
		err = post_in(t, t->how->kind, context, context % 2 ? BY_SOFTIRQ : BY_HAND);
	return err;
}

/* Six pairs at once, each from another context, on one completion queue for each side. */
static int crowd(struct test *t)
{
	struct wish wish = { .kind = IB_QPT_RC, .inline_data = 64 };
	struct run runs[CONTEXTS] = {};
	struct queue *queues[SIDES];

	for (int i = 0; i < SIDES; i++) {
		queues[i] = make_queue(t, i, i ? BY_HAND : BY_SOFTIRQ, 4096);
		if (!queues[i])
			return -EIO;
	}
	for (int i = 0; i < CONTEXTS; i++) {
		wish.queue = queues[0];
		runs[i].from = make_end(t, 0, &wish);
		wish.queue = queues[1];
		runs[i].to = make_end(t, 1, &wish);
		if (!runs[i].from || !runs[i].to || connect(runs[i].from, runs[i].to, &wish))
			return -EIO;
		runs[i].context = i;
		runs[i].messages = 2 * MESSAGES;
		runs[i].depth = DEPTH;
		runs[i].size = 2000;
	}
	return run_flows(t, runs, CONTEXTS);
}

/* Address handles come and go where nobody may sleep. */
static int handles(struct test *t)
{
	struct wish wish = { .kind = IB_QPT_UD, .way = BY_SOFTIRQ };
	struct rdma_ah_attr attr;
	static DEFINE_SPINLOCK(lock);
	struct waiter *w[20];
	struct scene s;
	int came = 0;

	if (set_scene(t, &s, &wish, 512 + GRH_BYTES, 0))
		return -EIO;
	for (int i = 0; i < ARRAY_SIZE(w); i++) {
		struct ib_sge sge = near_piece(&s, 0, 500);
		struct ib_ud_wr wr = {
			.wr.sg_list = &sge, .wr.num_sge = 1, .wr.opcode = IB_WR_SEND,
			.remote_qpn = s.b->qp->qp_num, .remote_qkey = QKEY,
		};
		unsigned long flags;
		struct ib_ah *ah;
		int status;

		w[i] = post_receive(s.b, s.far, 0, s.far->size);
		if (!w[i])
			return -EIO;
		fill(s.near->mem, 500, i);
		fill_ah(s.a, s.b, &attr);
		lock_to_post(&lock, &flags);
		ah = rdma_create_ah(s.a->pd, &attr, 0);
		unlock_posted(&lock, &flags);
		if (IS_ERR(ah))
			return fail(t, "an address handle: error %ld", PTR_ERR(ah));
		wr.ah = ah;
		status = act(s.a, &wr.wr);
		lock_to_post(&lock, &flags);
		rdma_destroy_ah(ah, 0);
		unlock_posted(&lock, &flags);
		if (status)
			return fail(t, "a datagram: status %d", status);
		/* It need not come: then its receive is for the next one. */
		if (t->lossy)
			continue;
		status = finish(w[i]);
		if (status || w[i]->wc.byte_len != 500 + GRH_BYTES)
			return fail(t, "datagram %d: status %d, %u bytes", i, status,
				    w[i]->wc.byte_len);
		if (differs(s.far->mem + GRH_BYTES, 500, i) >= 0)
			return fail(t, "datagram %d: wrong bytes", i);
	}
	for (int i = 0; i < ARRAY_SIZE(w); i++) {
		/* The last ones may still be under way. */
		for (int k = 0; k < 100 && !is_done(w[i]); k++)
			usleep_range(1000, 2000);
		came += is_done(w[i]);
	}
	note(t, "%d of 20 datagrams", came);
	return came ? 0 : fail(t, "no datagram came");
}

/*
 * A user that lets softirqs run where it posts, and has one request under way: it is carried out
 * before the post returns, and no other task runs for it.
 */
static int alone(struct test *t)
{
	struct wish wish = { .kind = IB_QPT_RC, .way = BY_SOFTIRQ };
	struct scene s;
	int at_once = 0;

	if (set_scene(t, &s, &wish, 512, ALL_RIGHTS))
		return -EIO;
	for (int i = 0; i < 100; i++) {
		struct ib_sge sge = near_piece(&s, 0, 500);
		struct ib_rdma_wr wr = reach(&s, IB_WR_RDMA_WRITE, &sge, 0);
		struct waiter *w = wait_on(t, &wr.wr);
		unsigned long switches = current->nvcsw + current->nivcsw;
		int err;

		fill(s.near->mem, 500, i);
		err = w ? ib_post_send(s.a->qp, &wr.wr, NULL) : -ENOMEM;
		if (err)
			return fail(t, "posting: error %d", err);
		if (is_done(w) && current->nvcsw + current->nivcsw == switches)
			at_once++;
		if (finish(w) || !holds(s.far, 0, 500, i))
			return fail(t, "a WRITE: status %d, or wrong bytes", w->wc.status);
	}
	note(t, "%d of 100 were done when the post returned", at_once);
	/* Not all: ksoftirqd may be running already. */
	return at_once >= 10 ? 0 : fail(t, "posts wait for other tasks");
}

const struct kuser_case posting_cases[] = {
	{ "rc-from-task", one_context, IB_QPT_RC, IN_TASK, BY_WORKQUEUE },
	{ "rc-from-timer", one_context, IB_QPT_RC, IN_TIMER, BY_SOFTIRQ },
	{ "rc-from-tasklet", one_context, IB_QPT_RC, IN_TASKLET, BY_SOFTIRQ },
	{ "rc-from-workqueue", one_context, IB_QPT_RC, IN_WORK, BY_UNBOUND },
	{ "rc-from-hard-interrupt", one_context, IB_QPT_RC, IN_IRQ, BY_SOFTIRQ },
	{ "rc-from-completion", rc_handler },
	{ "uc-from-anywhere", every_context, IB_QPT_UC },
	{ "ud-from-anywhere", every_context, IB_QPT_UD },
	{ "crowd", crowd },
	{ "address-handles", handles },
	{ "alone", alone },
	{}
};
