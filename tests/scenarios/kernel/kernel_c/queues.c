// SPDX-License-Identifier: GPL-2.0
/* Queues that are full, drained, flushed, destroyed with work in them, or not in the right state. */
#include <linux/delay.h>
#include "kuser.h"

/* Requests that are only counted. One case runs at a time. */
static struct counter {
	struct ib_cqe cqe;
	struct test *t;
	atomic_t good, flushed, other;
	int status;
} sends, recvs;

static void on_counted(struct ib_cq *cq, struct ib_wc *wc)
{
	struct counter *c = container_of(wc->wr_cqe, struct counter, cqe);

	if (!on_completion(c->t, cq, false))
		return;
	if (wc->status == IB_WC_SUCCESS) {
		atomic_inc(&c->good);
	} else if (wc->status == IB_WC_WR_FLUSH_ERR) {
		atomic_inc(&c->flushed);
	} else {
		WRITE_ONCE(c->status, wc->status);
		atomic_inc(&c->other);
	}
}

static void count_for(struct test *t)
{
	memset(&sends, 0, sizeof(sends));
	memset(&recvs, 0, sizeof(recvs));
	sends.cqe.done = on_counted;
	recvs.cqe.done = on_counted;
	sends.t = t;
	recvs.t = t;
}

static int all_of(struct counter *c)
{
	return atomic_read(&c->good) + atomic_read(&c->flushed) + atomic_read(&c->other);
}

/* An empty message, which needs no memory. */
static int put_send(struct end *e, int flags)
{
	const struct ib_send_wr *bad = NULL;
	struct ib_send_wr wr = {
		.wr_cqe = &sends.cqe, .opcode = IB_WR_SEND, .send_flags = flags,
	};
	int err = ib_post_send(e->qp, &wr, &bad);

	if (err && bad != &wr)
		fail(e->t, "a refused request is not the bad one");
	return err;
}

static int put_receive(struct end *e)
{
	const struct ib_recv_wr *bad = NULL;
	struct ib_recv_wr wr = { .wr_cqe = &recvs.cqe };
	int err = ib_post_recv(e->qp, &wr, &bad);

	if (err && bad != &wr)
		fail(e->t, "a refused receive is not the bad one");
	return err;
}

static int drain_by(struct test *t, enum ib_qp_type kind, enum way way)
{
	struct wish wish = { .kind = kind, .way = way, .rnr_timer = 20 };
	bool held = kind == IB_QPT_RC;
	struct end *a, *b;

	if (make_pair(t, &wish, &a, &b))
		return -EIO;
	count_for(t);
	for (int i = 0; i < 12; i++)
		if (put_receive(a) || (held && put_send(a, IB_SEND_SIGNALED)))
			return fail(t, "posting");
	/* The far end has no receives, so the sends are all there. */
	ib_drain_qp(a->qp);
	if (all_of(&recvs) != 12 || atomic_read(&recvs.flushed) != 12)
		return fail(t, "%s: %d receives flushed, %d complete", way_names[way],
			    atomic_read(&recvs.flushed), all_of(&recvs));
	if (held && (all_of(&sends) != 12 || atomic_read(&sends.flushed) != 12))
		return fail(t, "%s: %d sends flushed, %d complete", way_names[way],
			    atomic_read(&sends.flushed), all_of(&sends));
	count_for(t);
	for (int i = 0; i < 5; i++)
		if (put_receive(b))
			return fail(t, "posting");
	ib_drain_rq(b->qp);
	/* A send of the near end may have been under way, and have found one. */
	if (all_of(&recvs) != 5 || atomic_read(&recvs.flushed) < 4)
		return fail(t, "%s: of 5 receives %d complete, %d flushed", way_names[way],
			    all_of(&recvs), atomic_read(&recvs.flushed));
	/* What is drained can be drained again. */
	ib_drain_sq(b->qp);
	ib_drain_qp(b->qp);
	return 0;
}

static int drain(struct test *t)
{
	static const enum ib_qp_type kinds[] = { IB_QPT_RC, IB_QPT_UC, IB_QPT_UD };
	int count = 0;

	for (int i = 0; i < ARRAY_SIZE(kinds); i++) {
		/* It refuses what ib_core posts to drain such a queue pair. */
		if (t->defers && kinds[i] == IB_QPT_UD)
			continue;
		for (enum way way = BY_DIRECT; way < BY_HAND; way++, count++)
			if (drain_by(t, kinds[i], way))
				return -EIO;
	}
	note(t, "%d drained", 2 * count);
	return 0;
}

static int full(struct test *t)
{
	struct wish wish = { .kind = IB_QPT_RC, .way = BY_SOFTIRQ, .cqe = 2048 };
	int count = 0, gave = 0, held, err;
	struct end *a, *b;

	if (make_pair(t, &wish, &a, &b))
		return -EIO;
	count_for(t);
	while (count < 1500 && !(err = put_receive(a)))
		count++;
	if (err != -ENOMEM || count < 64)
		return fail(t, "after %d receives: error %d", count, err);
	held = 0;
	while (held < 1500 && !(err = put_send(a, IB_SEND_SIGNALED)))
		held++;
	if (err != -ENOMEM || held < 64)
		return fail(t, "after %d sends: error %d", held, err);
	note(t, "full with %d receives, %d sends", count, held);
	/* With receives there the sends go out, and there is room again. */
	while (gave < held + 1) {
		err = put_receive(b);
		if (err && err != -ENOMEM)
			return fail(t, "a receive: error %d", err);
		if (!err)
			gave++;
		else if (!wait_for(t, all_of(&recvs) > gave - 64))
			return fail(t, "no receive was used");
	}
	if (!wait_for(t, atomic_read(&sends.good) == held))
		return fail(t, "%d of %d sends", atomic_read(&sends.good), held);
	err = put_send(a, IB_SEND_SIGNALED);
	if (err || !wait_for(t, atomic_read(&sends.good) == held + 1))
		return fail(t, "no room when all are complete: error %d", err);
	return 0;
}

/* Destroyed as it is, with sends held up at both ends of a message, and receives. */
static int destroy(struct test *t)
{
	struct wish wish = { .kind = IB_QPT_RC, .rnr_timer = 1 };
	struct end *a, *b;

	count_for(t);
	for (int i = 0; i < 12; i++) {
		wish.way = i % WAYS == BY_DIRECT ? BY_HAND : i % WAYS;
		if (make_pair(t, &wish, &a, &b))
			return -EIO;
		for (int k = 0; k < 20; k++)
			if (put_send(a, k % 2 ? IB_SEND_SIGNALED : 0) || put_receive(a))
				return fail(t, "posting");
		/* Some of them find receives while the end is destroyed. */
		for (int k = 0; k < i; k++)
			if (put_receive(b))
				return fail(t, "posting");
		if (i % 3 == 0)
			usleep_range(100, 200);
		a->connected = false;
		b->connected = false;
		end_end(i % 2 ? b : a);
		end_end(i % 2 ? a : b);
	}
	note(t, "%d sends, %d receives had completed", all_of(&sends), all_of(&recvs));
	if (all_of(&sends) > 12 * 20)
		return fail(t, "more completions than requests");
	return 0;
}

/* Each state takes what it may take. */
static int states(struct test *t)
{
	struct wish wish = { .kind = IB_QPT_RC, .way = BY_SOFTIRQ };
	struct room *out, *in;
	struct end *a, *b;

	a = make_end(t, 0, &wish);
	b = a ? make_end(t, 1, &wish) : NULL;
	if (!b)
		return -EIO;
	count_for(t);
	if (put_send(a, IB_SEND_SIGNALED) != -EINVAL || put_receive(a) != -EINVAL)
		return fail(t, "RESET takes requests");
	if (connect(a, b, &wish))
		return -EIO;
	out = make_room(a, 256);
	in = make_room(b, 256);
	if (!out || !in)
		return -EIO;
	/* From any state to RESET, and again from there. */
	for (int i = 0; i < 4; i++) {
		if (send_one(a, b, out, in, 200, i))
			return -EIO;
		if (i % 2 && to_state(a, IB_QPS_ERR))
			return fail(t, "to ERR");
		if (to_state(a, IB_QPS_RESET) || to_state(b, IB_QPS_RESET))
			return fail(t, "to RESET");
		if (put_send(a, IB_SEND_SIGNALED) != -EINVAL)
			return fail(t, "RESET takes requests");
		if (connect(a, b, &wish))
			return -EIO;
	}
	return all_of(&sends) ? fail(t, "a refused request completed") : 0;
}

/* Of a list of which one is wrong, those before it are posted, and the user learns which it is. */
static int lists(struct test *t)
{
	struct wish wish = { .kind = IB_QPT_RC, .way = BY_SOFTIRQ, .inline_data = 32 };
	struct ib_sge sge[64] = {};
	const struct ib_send_wr *bad;
	struct ib_send_wr wr[3] = {};
	struct ib_recv_wr rwr[3] = {};
	const struct ib_recv_wr *rbad;
	struct room *room;
	struct end *a, *b;

	if (make_pair(t, &wish, &a, &b))
		return -EIO;
	room = make_room(a, 4096);
	if (!room)
		return -EIO;
	count_for(t);
	for (int i = 0; i < 3; i++) {
		wr[i].wr_cqe = &sends.cqe;
		wr[i].opcode = IB_WR_SEND;
		wr[i].send_flags = IB_SEND_SIGNALED;
		wr[i].next = i < 2 ? &wr[i + 1] : NULL;
		rwr[i].wr_cqe = &recvs.cqe;
		rwr[i].next = i < 2 ? &rwr[i + 1] : NULL;
	}
	rwr[1].sg_list = sge;
	rwr[1].num_sge = ARRAY_SIZE(sge);
	if (ib_post_recv(b->qp, rwr, &rbad) != -EINVAL || rbad != &rwr[1])
		return fail(t, "a receive of too many pieces");
	wr[1].sg_list = sge;
	wr[1].num_sge = ARRAY_SIZE(sge);
	bad = NULL;
	if (ib_post_send(a->qp, wr, &bad) != -EINVAL || bad != &wr[1])
		return fail(t, "a request of too many pieces");
	if (!wait_for(t, atomic_read(&sends.good) == 1 && atomic_read(&recvs.good) == 1))
		return fail(t, "what stands before it was not posted");
	/* More inline than there is room for. */
	sge[0] = (struct ib_sge) { .addr = room->addr, .length = 4096 };
	wr[0].next = NULL;
	wr[0].send_flags |= IB_SEND_INLINE;
	wr[0].sg_list = sge;
	wr[0].num_sge = 1;
	bad = NULL;
	if (ib_post_send(a->qp, wr, &bad) != -EINVAL || bad != &wr[0])
		return fail(t, "4096 bytes inline");
	if (all_of(&sends) != 1)
		return fail(t, "a refused request completed");
	return 0;
}

static int stands_on(struct waiter *w, struct end *e, bool sends);

/* So many times as long as it took: more than there are messages, two of which follow each other. */
#define PAUSE 64

void after_pause(struct timer_list *timer)
{
	struct waiter *w = container_of(timer, struct waiter, pause);

	stands_on(w, w->poster, true);
}

/*
 * Every other message is posted where the last one completes, the ones between after a pause. All of this runs in
 * softirqs: without a pause a slow machine does nothing else, and what is to end the traffic never runs.
 */
static void on_standing_send(struct ib_cq *cq, struct ib_wc *wc)
{
	struct waiter *w = container_of(wc->wr_cqe, struct waiter, cqe);
	u64 pause = PAUSE * (ktime_get_ns() - w->since);

	if (!on_completion(w->t, cq, false) || wc->status != IB_WC_SUCCESS || READ_ONCE(w->t->ending))
		return;
	atomic_inc(&w->t->messages);
	if (atomic_inc_return(&w->times) % 2)
		stands_on(w, w->poster, true);
	else
		mod_timer(&w->pause, jiffies + 1 + nsecs_to_jiffies(min_t(u64, pause, NSEC_PER_SEC)));
}

static void on_standing_receive(struct ib_cq *cq, struct ib_wc *wc)
{
	struct waiter *w = container_of(wc->wr_cqe, struct waiter, cqe);

	if (on_completion(w->t, cq, false) && wc->status == IB_WC_SUCCESS &&
	    !READ_ONCE(w->t->ending))
		stands_on(w, w->poster, false);
}

static int stands_on(struct waiter *w, struct end *e, bool sends)
{
	struct room *room = list_first_entry(&w->t->rooms, struct room, list);
	struct ib_sge sge = {
		.addr = room->addr, .length = 4096, .lkey = e->pd->local_dma_lkey,
	};
	struct ib_send_wr wr = {
		.wr_cqe = &w->cqe, .opcode = IB_WR_SEND, .sg_list = &sge, .num_sge = 1,
		.send_flags = IB_SEND_SIGNALED,
	};
	struct ib_recv_wr rwr = { .wr_cqe = &w->cqe, .sg_list = &sge, .num_sge = 1 };

	w->poster = e;
	w->since = ktime_get_ns();
	return sends ? ib_post_send(e->qp, &wr, NULL) : ib_post_recv(e->qp, &rwr, NULL);
}

/* Messages for ever, one by each completion of the last. */
int stand(struct test *t)
{
	static const enum way ways[] = { BY_SOFTIRQ, BY_HAND, BY_WORKQUEUE };

	for (int i = 0; i < ARRAY_SIZE(ways); i++) {
		struct wish wish = { .kind = IB_QPT_RC, .way = ways[i] };
		struct end *a, *b;

		if (make_pair(t, &wish, &a, &b) || !make_room(b, 4096))
			return -EIO;
		for (int k = 0; k < 16; k++) {
			struct waiter *s = make_waiter(t), *r = make_waiter(t);

			if (!s || !r)
				return -ENOMEM;
			s->cqe.done = on_standing_send;
			r->cqe.done = on_standing_receive;
			if (stands_on(r, b, false) || (k < 8 && stands_on(s, a, true)))
				return fail(t, "posting");
		}
	}
	return wait_for(t, atomic_read(&t->messages) > 100) ? 0 : fail(t, "nothing moves");
}

const struct kuser_case queue_cases[] = {
	{ "drain", drain },
	{ "full", full },
	{ "destroy-with-work", destroy },
	{ "states", states },
	{ "lists", lists },
	{}
};
