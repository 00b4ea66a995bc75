// SPDX-License-Identifier: GPL-2.0
/* Receives that queue pairs share: from every context, full, when one has ended. */
#include "kuser.h"

static void hear_pool(struct ib_event *event, void *context)
{
	struct pool *pool = context;

	fail(pool->t, "event %d of a shared receive queue", event->event);
}

static void end_pool(void *object)
{
	struct pool *pool = object;

	if (pool->srq)
		ib_destroy_srq(pool->srq);
}

static struct pool *make_pool(struct test *t, u32 receives)
{
	struct ib_pd *pd = make_domain(t, t->place[1].dev);
	struct pool *pool = new_object(t, sizeof(*pool), end_pool);
	struct ib_srq_init_attr init = {
		.event_handler = hear_pool,
		.srq_context = pool,
		.srq_type = IB_SRQT_BASIC,
		.attr = { .max_wr = receives, .max_sge = 2 },
	};
	struct ib_srq *srq = ib_create_srq(pd, &init);

	CHECK(t, !IS_ERR(srq), "a shared receive queue: error %ld", PTR_ERR(srq));
	*pool = (struct pool) { .t = t, .pd = pd, .srq = srq };
	return pool;
}

/* A pair, whose far end has its receives from a pool. */
static void make_sharers(struct test *t, struct pool *pool, enum way way, struct end **a,
			 struct end **b)
{
	struct wish wish = { .kind = IB_QPT_RC, .way = way, .inline_data = 64 };

	*a = make_end(t, 0, &wish);
	wish.pool = pool;
	*b = make_end(t, 1, &wish);
	connect(*a, *b, &wish);
}

#define DEPTH 7

/* Each context posts to a queue pair of its own; all of them give, and take, the same receives. */
static void by_many(struct test *t)
{
	static const enum way ways[] = { BY_SOFTIRQ, BY_HAND, BY_WORKQUEUE };
	struct pool *pool = make_pool(t, CONTEXTS * DEPTH);
	struct run runs[CONTEXTS];

	for (int i = 0; i < CONTEXTS; i++) {
		/* Of another size each, so that no message can pass for that of another pair. */
		runs[i] = (struct run) {
			.context = i, .messages = 90, .depth = DEPTH, .size = 2000 - 100 * i,
		};
		make_sharers(t, pool, ways[i % ARRAY_SIZE(ways)], &runs[i].from, &runs[i].to);
	}
	run_flows(t, runs, CONTEXTS);
}

/* Empty messages, so many. */
static void send_empty(struct end *a, int count)
{
	while (count--) {
		struct ib_send_wr wr = { .opcode = IB_WR_SEND };

		must(a->t, "an empty message", act(a, &wr));
	}
}

static void full(struct test *t)
{
	struct pool *pool = make_pool(t, 20);
	const struct ib_recv_wr *bad = NULL;
	struct ib_recv_wr wr[3] = {};
	static struct ib_sge sge[64];
	struct ib_srq_attr attr;
	struct waiter *w[64];
	struct end *a, *b;
	int err;

	make_sharers(t, pool, BY_SOFTIRQ, &a, &b);
	must(t, "its attributes", ib_query_srq(pool->srq, &attr));
	CHECK(t, attr.max_wr >= 20 && attr.max_wr <= 60 && attr.max_sge >= 2 && !attr.srq_limit,
	      "room for %u, of %u pieces, limit %u", attr.max_wr, attr.max_sge, attr.srq_limit);
	/* Its ring is not the kernel's to map again. */
	err = ib_modify_srq(pool->srq, &attr, IB_SRQ_MAX_WR);
	CHECK(t, err == -EOPNOTSUPP || t->defers, "a user in the kernel resized its queue: %d",
	      err);
	for (int i = 0; i < attr.max_wr; i++)
		w[i] = post_receive(b, NULL, 0, 0);
	err = ib_post_srq_recv(pool->srq, wr, &bad);
	CHECK(t, err == -ENOMEM && bad == wr, "more than there is room for: %d", err);
	/* None of its own. */
	bad = NULL;
	err = ib_post_recv(b->qp, wr, &bad);
	CHECK(t, err == -EINVAL && bad == wr, "a receive for the queue pair alone: %d", err);
	send_empty(a, attr.max_wr);
	check_order(w, attr.max_wr);
	/* Of a list the first one is posted. */
	for (int i = 0; i < 3; i++) {
		w[i] = make_waiter(t);
		wr[i].wr_cqe = &w[i]->cqe;
		wr[i].next = i < 2 ? &wr[i + 1] : NULL;
	}
	wr[1].sg_list = sge;
	wr[1].num_sge = ARRAY_SIZE(sge);
	err = ib_post_srq_recv(pool->srq, wr, &bad);
	CHECK(t, err == -EINVAL && bad == &wr[1], "a receive of too many pieces: %d", err);
	send_empty(a, 1);
	must(t, "what stands before it", finish(w[0]));
	note(t, "full with %d", attr.max_wr);
}

/* How one of two comes to take no more receives: by its user, drained, by its peer. */
enum last { BY_USER, DRAINED, BY_PEER, LASTS };

/* A message that is longer than the receive of no bytes it finds, which fails for that. */
static void send_too_long(struct end *a, struct waiter *receive)
{
	struct ib_sge sge = piece(a, make_room(a, 64), 0, 64);
	struct ib_send_wr wr = { .opcode = IB_WR_SEND, .sg_list = &sge, .num_sge = 1 };

	expect(a->t, "a message that is too long", act(a, &wr), IB_WC_REM_INV_REQ_ERR);
	expect(a->t, "its receive", finish(receive), IB_WC_LOC_LEN_ERR);
}

/* One of two is in ERR: it takes no more, says so, and what is left is for the other. */
static void last_one(struct test *t)
{
	for (enum last how = 0; how < LASTS; how++) {
		struct pool *pool = make_pool(t, 16);
		struct end *a[2], *b[2];
		struct waiter *w[10];

		for (int i = 0; i < 2; i++)
			make_sharers(t, pool, BY_SOFTIRQ, &a[i], &b[i]);
		for (int i = 0; i < ARRAY_SIZE(w); i++)
			w[i] = post_receive(b[0], NULL, 0, 0);
		send_empty(a[0], 2);
		if (how == BY_USER)
			must(t, "to ERR", to_state(b[0], IB_QPS_ERR));
		if (how == DRAINED) {
			ib_drain_qp(b[0]->qp);
			b[0]->connected = false;
		}
		if (how == BY_PEER)
			send_too_long(a[0], w[2]);
		CHECK(t, wait_for(t, atomic_read(&b[0]->last_wqes)),
		      "no event for the last receive");
		send_empty(a[1], ARRAY_SIZE(w) - (how == BY_PEER ? 3 : 2));
		for (int i = 0; i < ARRAY_SIZE(w); i++)
			if (how != BY_PEER || i != 2)
				must(t, "a receive", finish(w[i]));
		CHECK(t, atomic_read(&b[0]->last_wqes) == 1 && !atomic_read(&b[1]->last_wqes),
		      "%d events for one, %d for the other", atomic_read(&b[0]->last_wqes),
		      atomic_read(&b[1]->last_wqes));
	}
	note(t, "by its user, drained, by its peer");
}

const struct kuser_case shared_cases[] = {
	{ "shared-by-many", by_many },
	{ "shared-full", full },
	{ "shared-last-one", last_one },
	{}
};
