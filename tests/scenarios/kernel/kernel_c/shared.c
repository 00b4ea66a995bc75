// SPDX-License-Identifier: GPL-2.0
/* Receives that queue pairs share: from every context, full, with a limit, when one has ended. */
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

/* A message of whichever type, into the receive that is next; tells whether it came. */
static int send_typed(struct test *t, struct end *a, struct end *b, struct room *out,
		      struct room *in, struct waiter *next, u32 seed)
{
	u32 len = 100 + seed * 13, head = a->kind == IB_QPT_UD ? GRH_BYTES : 0;
	struct ib_sge sge = { .addr = out->addr, .length = len, .lkey = a->pd->local_dma_lkey };
	struct ib_ud_wr wr = {
		.wr.opcode = IB_WR_SEND, .wr.sg_list = &sge, .wr.num_sge = 1,
		.ah = a->ah, .remote_qpn = b->qp->qp_num, .remote_qkey = QKEY,
	};
	int status;

	fill(out->mem, len, seed);
	memset(in->mem, 0, in->size);
	status = act(a, &wr.wr);
	if (status)
		return fail(t, "type %d: status %d", a->kind, status);
	/* It need not come: then its receive is for the next one. */
	for (int i = 0; i < 100 && !is_done(next); i++)
		usleep_range(1000, 2000);
	if (!is_done(next) && a->kind != IB_QPT_RC)
		return t->lossy ? 0 : fail(t, "type %d: lost on one device", a->kind);
	status = finish(next);
	if (status || next->wc.qp != b->qp || next->wc.byte_len != head + len ||
	    differs(in->mem + head, len, seed) >= 0)
		return fail(t, "type %d: status %d, %u bytes, or wrong ones", a->kind, status,
			    next->wc.byte_len);
	return 1;
}

static int by_types(struct test *t)
{
	static const enum ib_qp_type kinds[] = { IB_QPT_RC, IB_QPT_UC, IB_QPT_UD };
	struct end *a[ARRAY_SIZE(kinds)], *b[ARRAY_SIZE(kinds)];
	struct pool *pool = make_pool(t, 1, 32);
	struct room *out, *in;
	struct waiter *w[30];
	int came[ARRAY_SIZE(kinds)] = {}, count = 0;

	if (!pool)
		return -EIO;
	for (int i = 0; i < ARRAY_SIZE(kinds); i++) {
		struct wish wish = { .kind = kinds[i], .way = BY_SOFTIRQ };

		a[i] = make_end(t, 0, &wish);
		wish.pool = pool;
		b[i] = a[i] ? make_end(t, 1, &wish) : NULL;
		if (!b[i] || connect(a[i], b[i], &wish))
			return -EIO;
	}
	out = make_room(a[0], 1024);
	in = make_room(b[0], 1024);
	if (!out || !in)
		return -EIO;
	for (int i = 0; i < ARRAY_SIZE(w); i++) {
		w[i] = post_receive(b[0], in, 0, 1024);
		if (!w[i])
			return -EIO;
	}
	for (int i = 0; i < ARRAY_SIZE(w); i++) {
		int k = i % ARRAY_SIZE(kinds), result;

		result = send_typed(t, a[k], b[k], out, in, w[count], i);
		if (result < 0)
			return result;
		came[k] += result;
		count += result;
	}
	note(t, "%d of RC, %d of UC, %d of UD", came[0], came[1], came[2]);
	return came[1] && came[2] ? 0 : fail(t, "none of a type came");
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

static int limit_to(struct pool *pool, u32 limit)
{
	struct ib_srq_attr attr = { .srq_limit = limit };

	return ib_modify_srq(pool->srq, &attr, IB_SRQ_LIMIT);
}

static int limit(struct test *t)
{
	struct pool *pool = make_pool(t, 1, 32);
	struct ib_srq_attr attr;
	struct end *a, *b;

	if (!pool || make_sharers(t, pool, &a, &b))
		return -EIO;
	for (int i = 0; i < 20; i++)
		if (!post_receive(b, NULL, 0, 0))
			return -EIO;
	if (limit_to(pool, 1000) != -EINVAL)
		return fail(t, "a limit of more than there is room for");
	attr = (struct ib_srq_attr){ .max_wr = 64 };
	/* Its ring is not the kernel's to map again. */
	if (pool->srq->device->ops.driver_id != RDMA_DRIVER_RXE &&
	    ib_modify_srq(pool->srq, &attr, IB_SRQ_MAX_WR) != -EOPNOTSUPP)
		return fail(t, "a user in the kernel resized its queue");
	if (limit_to(pool, 15) || ib_query_srq(pool->srq, &attr) || attr.srq_limit != 15)
		return fail(t, "the limit is %u", attr.srq_limit);
	/* As many as the limit are not fewer than it. */
	if (send_empty(a, 5) || atomic_read(&pool->limits))
		return fail(t, "an event for 15 receives");
	if (send_empty(a, 1) || !wait_for(t, atomic_read(&pool->limits) == 1))
		return fail(t, "no event for 14 receives");
	if (ib_query_srq(pool->srq, &attr) || attr.srq_limit)
		return fail(t, "the limit is %u still", attr.srq_limit);
	/* It was one for once. */
	if (send_empty(a, 4) || limit_to(pool, 8) || send_empty(a, 3) ||
	    !wait_for(t, atomic_read(&pool->limits) >= 2))
		return fail(t, "no event for 7 receives");
	/* One that is armed and disarmed. */
	if (limit_to(pool, 5) || limit_to(pool, 0) || send_empty(a, 5))
		return fail(t, "disarming");
	if (!t->defers) {
		/* Reached already when it is armed. */
		if (limit_to(pool, 3) || !wait_for(t, atomic_read(&pool->limits) >= 3))
			return fail(t, "no event for a limit that was reached before");
	}
	if (send_empty(a, 1))
		return -EIO;
	note(t, "%d events", atomic_read(&pool->limits));
	return atomic_read(&pool->limits) == (t->defers ? 2 : 3) ? 0 :
	       fail(t, "%d events", atomic_read(&pool->limits));
}

static int in_use(struct test *t)
{
	struct pool *pool = make_pool(t, 1, 8);
	struct end *a[2], *b[2];
	int err;

	if (!pool || make_sharers(t, pool, &a[0], &b[0]) || make_sharers(t, pool, &a[1], &b[1]))
		return -EIO;
	for (int i = 0; i < 2; i++) {
		err = end_pool(pool);
		if (err != -EBUSY)
			return fail(t, "ending it for %d queue pairs: error %d", 2 - i, err);
		if (!post_receive(b[i], NULL, 0, 0) || send_empty(a[i], 1))
			return -EIO;
		/* What is left in it does not keep it. */
		if (!post_receive(b[i], NULL, 0, 0))
			return -EIO;
		end_end(a[i]);
		end_end(b[i]);
	}
	err = ib_destroy_srq_user(pool->srq, NULL);
	if (err)
		return fail(t, "ending it for nobody: error %d", err);
	/* The ends have their domain from it still. */
	pool->srq = NULL;
	note(t, "busy twice");
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
	{ "shared-by-types", by_types },
	{ "shared-full", full },
	{ "shared-limit", limit },
	{ "shared-in-use", in_use },
	{ "shared-last-one", last_one },
	{}
};
