// SPDX-License-Identifier: GPL-2.0
/* Receives that queue pairs share: from every context, full, when one has ended. */
#include "kuser.h"

/* A pair, whose far end has its receives from a pool. */
static int make_sharers(struct test *t, struct pool *pool, enum way way, struct end **a,
			struct end **b)
{
	struct wish wish = { .kind = IB_QPT_RC, .way = way, .inline_data = 64 };

	*a = make_end(t, 0, &wish);
	wish.pool = pool;
	*b = *a ? make_end(t, 1, &wish) : NULL;
	return *b ? connect(*a, *b, &wish) : -EIO;
}

#define DEPTH 7

/* Each context posts to a queue pair of its own; all of them give, and take, the same receives. */
static int by_many(struct test *t)
{
	static const enum way ways[] = { BY_SOFTIRQ, BY_HAND, BY_WORKQUEUE };
	struct pool *pool = make_pool(t, 1, CONTEXTS * DEPTH);
	struct run runs[CONTEXTS] = {};

	if (!pool)
		return -EIO;
	for (int i = 0; i < CONTEXTS; i++) {
		/* Of another size each, so that no message can pass for that of another pair. */
		runs[i] = (struct run) {
			.context = i, .messages = 90, .depth = DEPTH, .size = 2000 - 100 * i,
		};
		if (make_sharers(t, pool, ways[i % ARRAY_SIZE(ways)], &runs[i].from, &runs[i].to))
			return -EIO;
	}
	return run_flows(t, runs, CONTEXTS);
}

/* Empty messages, so many. */
static int send_empty(struct end *a, int count)
{
	for (int i = 0; i < count; i++) {
		struct ib_send_wr wr = { .opcode = IB_WR_SEND };
		int status = act(a, &wr);

		if (status)
			return fail(a->t, "message %d: status %d", i, status);
	}
	return 0;
}

static int full(struct test *t)
{
	struct pool *pool = make_pool(t, 1, 20);
	const struct ib_recv_wr *bad = NULL;
	struct ib_recv_wr wr[3] = {};
	struct ib_sge sge[64] = {};
	struct ib_srq_attr attr;
	struct waiter *w[64];
	struct end *a, *b;
	int count = 0, err;

	if (!pool || make_sharers(t, pool, BY_SOFTIRQ, &a, &b))
		return -EIO;
	err = ib_query_srq(pool->srq, &attr);
	if (err || attr.max_wr < 20 || attr.max_wr > 60 || attr.max_sge < 2 || attr.srq_limit)
		return fail(t, "error %d, room for %u", err, attr.max_wr);
	/* Its ring is not the kernel's to map again. */
	if (pool->srq->device->ops.driver_id != RDMA_DRIVER_RXE &&
	    ib_modify_srq(pool->srq, &attr, IB_SRQ_MAX_WR) != -EOPNOTSUPP)
		return fail(t, "a user in the kernel resized its queue");
	for (; count < attr.max_wr; count++) {
		w[count] = post_receive(b, NULL, 0, 0);
		if (!w[count])
			return -EIO;
	}
	if (ib_post_srq_recv(pool->srq, wr, &bad) != -ENOMEM || bad != wr)
		return fail(t, "more than there is room for");
	/* None of its own. */
	bad = NULL;
	if (ib_post_recv(b->qp, wr, &bad) != -EINVAL || bad != wr)
		return fail(t, "a receive for the queue pair alone");
	if (send_empty(a, count))
		return -EIO;
	for (int i = 0; i < count; i++)
		if (finish(w[i]) || (i && w[i]->order < w[i - 1]->order))
			return fail(t, "receive %d", i);
	/* Of a list the first one is posted. */
	for (int i = 0; i < 3; i++) {
		w[i] = make_waiter(t);
		if (!w[i])
			return -ENOMEM;
		wr[i].wr_cqe = &w[i]->cqe;
		wr[i].next = i < 2 ? &wr[i + 1] : NULL;
	}
	wr[1].sg_list = sge;
	wr[1].num_sge = ARRAY_SIZE(sge);
	if (ib_post_srq_recv(pool->srq, wr, &bad) != -EINVAL || bad != &wr[1])
		return fail(t, "a receive of too many pieces");
	if (send_empty(a, 1) || finish(w[0]))
		return fail(t, "what stands before it was not posted");
	note(t, "full with %d", count);
	return 0;
}

/* One of two is in ERR: it takes no more, says so, and what is left is for the other. */
static int last_one(struct test *t)
{
	for (int i = 0; i < 3; i++) {
		struct pool *pool = make_pool(t, 1, 16);
		struct end *a[2], *b[2];
		struct room *long_room;
		struct waiter *w[10];

		if (!pool || make_sharers(t, pool, BY_SOFTIRQ, &a[0], &b[0]) ||
		    make_sharers(t, pool, BY_SOFTIRQ, &a[1], &b[1]))
			return -EIO;
		for (int k = 0; k < ARRAY_SIZE(w); k++) {
			w[k] = post_receive(b[0], NULL, 0, 0);
			if (!w[k])
				return -EIO;
		}
		if (send_empty(a[0], 2))
			return -EIO;
		long_room = make_room(a[0], 64);
		if (!long_room)
			return -EIO;
		if (i == 0) {
			if (to_state(b[0], IB_QPS_ERR))
				return fail(t, "to ERR");
		} else if (i == 1) {
			ib_drain_qp(b[0]->qp);
			b[0]->connected = false;
		} else {
			struct ib_sge sge = {
				.addr = long_room->addr, .length = 64,
				.lkey = a[0]->pd->local_dma_lkey,
			};
			struct ib_send_wr wr = {
				.opcode = IB_WR_SEND, .sg_list = &sge, .num_sge = 1,
			};

			/* Longer than its receive, which fails for that. */
			if (expect(t, "a message that is too long", act(a[0], &wr),
				   IB_WC_REM_INV_REQ_ERR) ||
			    expect(t, "its receive", finish(w[2]), IB_WC_LOC_LEN_ERR))
				return -EIO;
		}
		if (!wait_for(t, atomic_read(&b[0]->last_wqes)))
			return fail(t, "no event for the last receive");
		if (send_empty(a[1], ARRAY_SIZE(w) - 2 - i / 2))
			return -EIO;
		for (int k = 0; k < ARRAY_SIZE(w); k++)
			if (k != 2 || i < 2 ? finish(w[k]) : 0)
				return fail(t, "receive %d: status %d", k, w[k]->wc.status);
		if (atomic_read(&b[0]->last_wqes) != 1 || atomic_read(&b[1]->last_wqes))
			return fail(t, "%d events for one, %d for the other",
				    atomic_read(&b[0]->last_wqes), atomic_read(&b[1]->last_wqes));
	}
	note(t, "by its user, drained, by its peer");
	return 0;
}

const struct kuser_case shared_cases[] = {
	{ "shared-by-many", by_many },
	{ "shared-full", full },
	{ "shared-last-one", last_one },
	{}
};
