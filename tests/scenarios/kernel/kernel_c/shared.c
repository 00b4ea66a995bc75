// SPDX-License-Identifier: GPL-2.0
/* Receives that queue pairs share: from every context, full, when one has ended. */
#include <linux/delay.h>
#include "kuser.h"

#define SHARERS 3
#define ROUNDS 15
#define CHAIN 6
#define RECEIVES 40
#define ROOM 2048

struct share;

struct ticket {
	struct ib_cqe cqe;
	struct share *share;
	u32 at;
};

/* Messages of several pairs, with one queue for what comes. */
struct share {
	struct test *t;
	struct pool *pool;
	struct end *a[SHARERS], *b[SHARERS];
	struct room *out[SHARERS], *in;
	struct ticket tickets[RECEIVES];
	/* The message that each waits for. */
	u32 next[SHARERS];
	atomic_t arrived;
	spinlock_t lock;
};

static u32 length_of(u32 which, u32 seq)
{
	return 1 + (which * 331 + seq * 977) % (ROOM - 1);
}

static int give(struct ticket *k)
{
	struct ib_sge sge = {
		.addr = k->share->in->addr + k->at,
		.length = ROOM,
		.lkey = k->share->pool->pd->local_dma_lkey,
	};
	struct ib_recv_wr wr = { .wr_cqe = &k->cqe, .sg_list = &sge, .num_sge = 1 };

	return ib_post_srq_recv(k->share->pool->srq, &wr, NULL);
}

static void on_shared(struct ib_cq *cq, struct ib_wc *wc)
{
	struct ticket *k = container_of(wc->wr_cqe, struct ticket, cqe);
	struct share *s = k->share;
	unsigned long flags;
	u32 which, seq;
	int err;

	if (!on_completion(s->t, cq, false))
		return;
	seq = be32_to_cpu(wc->ex.imm_data);
	for (which = 0; which < SHARERS && s->b[which]->qp != wc->qp; which++)
		;
	if (wc->status || which == SHARERS || !(wc->wc_flags & IB_WC_WITH_IMM)) {
		fail(s->t, "a receive: status %d, of queue pair %u", wc->status, which);
		return;
	}
	if (wc->byte_len != length_of(which, seq) ||
	    differs(s->in->mem + k->at, wc->byte_len, which * 1000 + seq) >= 0)
		fail(s->t, "message %u of pair %u: %u bytes, or wrong ones", seq, which,
		     wc->byte_len);
	lock_to_post(&s->lock, &flags);
	/* The messages of a pair come in order, whichever receives they take. */
	if (seq != s->next[which])
		fail(s->t, "message %u of pair %u came for %u", seq, which, s->next[which]);
	s->next[which]++;
	err = give(k);
	unlock_posted(&s->lock, &flags);
	if (err)
		fail(s->t, "posting a receive again: error %d", err);
	atomic_inc(&s->arrived);
}

/* Some of the tickets, in one of the contexts. */
struct share_part {
	struct share *s;
	int from, to;
};

static int give_part(void *arg)
{
	struct share_part *part = arg;
	int err = 0;

	for (int i = part->from; i < part->to && !err; i++)
		err = give(&part->s->tickets[i]);
	return err;
}

/* Some messages of a pair in one list; the last one reports. */
static int send_chain(struct share *s, u32 which, u32 from)
{
	struct ib_send_wr wr[CHAIN] = {};
	struct ib_sge sge[CHAIN];
	struct waiter *w;
	int status;

	for (int i = 0; i < CHAIN; i++) {
		u32 seq = from + i, len = length_of(which, seq);

		fill(s->out[which]->mem + i * ROOM, len, which * 1000 + seq);
		sge[i] = (struct ib_sge) {
			.addr = s->out[which]->addr + i * ROOM,
			.length = len,
			.lkey = s->a[which]->pd->local_dma_lkey,
		};
		wr[i].opcode = IB_WR_SEND_WITH_IMM;
		wr[i].ex.imm_data = cpu_to_be32(seq);
		wr[i].sg_list = &sge[i];
		wr[i].num_sge = 1;
		wr[i].next = i + 1 < CHAIN ? &wr[i + 1] : NULL;
	}
	w = wait_on(s->t, &wr[CHAIN - 1]);
	status = w && !post_list(s->a[which], wr) ? finish(w) : -EIO;
	return status ? fail(s->t, "sending: status %d", status) : 0;
}

static int by_many(struct test *t)
{
	static const enum way ways[SHARERS] = { BY_SOFTIRQ, BY_HAND, BY_WORKQUEUE };
	/* One case runs at a time; it stays until all queues have gone. */
	static struct share share;
	struct share *s = &share;

	memset(s, 0, sizeof(*s));
	s->t = t;
	spin_lock_init(&s->lock);
	s->pool = make_pool(t, 1, RECEIVES);
	if (!s->pool)
		return -EIO;
	for (int i = 0; i < SHARERS; i++) {
		struct wish wish = { .kind = IB_QPT_RC, .way = ways[i] };

		s->a[i] = make_end(t, 0, &wish);
		wish.pool = s->pool;
		s->b[i] = s->a[i] ? make_end(t, 1, &wish) : NULL;
		if (!s->b[i] || connect(s->a[i], s->b[i], &wish))
			return -EIO;
		s->out[i] = make_room(s->a[i], CHAIN * ROOM);
		if (!s->out[i])
			return -EIO;
	}
	s->in = make_room(s->b[0], RECEIVES * ROOM);
	if (!s->in)
		return -EIO;
	for (int i = 0; i < RECEIVES; i++) {
		s->tickets[i].cqe.done = on_shared;
		s->tickets[i].share = s;
		s->tickets[i].at = i * ROOM;
	}
	for (int i = 0; i < IN_HANDLER; i++) {
		struct share_part part = {
			.s = s,
			.from = RECEIVES * i / IN_HANDLER,
			.to = RECEIVES * (i + 1) / IN_HANDLER,
		};
		int err = run_in(t, i, give_part, &part);

		if (err)
			return fail(t, "receives from %s: error %d", context_names[i], err);
	}
	for (u32 round = 0; round < ROUNDS; round++) {
		t->context = round % IN_HANDLER;
		for (u32 i = 0; i < SHARERS; i++)
			if (send_chain(s, i, round * CHAIN))
				return -EIO;
	}
	if (!wait_for(t, atomic_read(&s->arrived) == SHARERS * ROUNDS * CHAIN))
		return fail(t, "%d of %d messages", atomic_read(&s->arrived),
			    SHARERS * ROUNDS * CHAIN);
	note(t, "%d messages of %d pairs by %d receives", atomic_read(&s->arrived), SHARERS,
	     RECEIVES);
	return 0;
}

/* A pair, whose far end has its receives from a pool. */
static int make_sharers(struct test *t, struct pool *pool, struct end **a, struct end **b)
{
	struct wish wish = { .kind = IB_QPT_RC, .way = BY_SOFTIRQ };

	*a = make_end(t, 0, &wish);
	wish.pool = pool;
	*b = *a ? make_end(t, 1, &wish) : NULL;
	return *b ? connect(*a, *b, &wish) : -EIO;
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

	if (!pool || make_sharers(t, pool, &a, &b))
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

		if (!pool || make_sharers(t, pool, &a[0], &b[0]) ||
		    make_sharers(t, pool, &a[1], &b[1]))
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
