// SPDX-License-Identifier: GPL-2.0
/* Queues that are full, drained, flushed, destroyed with work in them, or not in the right state. */
#include <linux/delay.h>
#include "kuser.h"

/* Requests that are only counted. One case runs at a time. */
static struct counter {
	struct ib_cqe cqe;
	struct test *t;
	atomic_t all, good, flushed;
} sends, recvs;

static void on_counted(struct ib_cq *cq, struct ib_wc *wc)
{
	struct counter *c = container_of(wc->wr_cqe, struct counter, cqe);

	if (!on_completion(c->t, cq, false))
		return;
	if (wc->status == IB_WC_SUCCESS)
		atomic_inc(&c->good);
	if (wc->status == IB_WC_WR_FLUSH_ERR)
		atomic_inc(&c->flushed);
	atomic_inc(&c->all);
}

static void count_for(struct test *t)
{
	sends = (struct counter) { .cqe.done = on_counted, .t = t };
	recvs = sends;
}

/* So many have completed, and of these at least so many were flushed. */
static void check_flushed(struct counter *c, const char *what, int all, int least)
{
	CHECK(c->t, atomic_read(&c->all) == all && atomic_read(&c->flushed) >= least,
	      "of %d %s %d complete, %d flushed", all, what, atomic_read(&c->all),
	      atomic_read(&c->flushed));
}

/* An empty message, which needs no memory. */
static int put_send(struct end *e, int flags)
{
	const struct ib_send_wr *bad = NULL;
	struct ib_send_wr wr = {
		.wr_cqe = &sends.cqe, .opcode = IB_WR_SEND, .send_flags = flags,
	};
	int err = ib_post_send(e->qp, &wr, &bad);

	CHECK(e->t, !err || bad == &wr, "a refused request is not the bad one");
	return err;
}

static int put_receive(struct end *e)
{
	const struct ib_recv_wr *bad = NULL;
	struct ib_recv_wr wr = { .wr_cqe = &recvs.cqe };
	int err = ib_post_recv(e->qp, &wr, &bad);

	CHECK(e->t, !err || bad == &wr, "a refused receive is not the bad one");
	return err;
}

static void drain_by(struct test *t, enum ib_qp_type kind, enum way way)
{
	struct wish wish = { .kind = kind, .way = way, .rnr_timer = 20 };
	bool held = kind == IB_QPT_RC;
	struct end *a, *b;

	make_pair(t, &wish, &a, &b);
	count_for(t);
	for (int i = 0; i < 12; i++)
		must(t, "posting", put_receive(a) ?: (held ? put_send(a, IB_SEND_SIGNALED) : 0));
	/* The far end has no receives, so the sends are all there. */
	ib_drain_qp(a->qp);
	check_flushed(&recvs, "receives", 12, 12);
	if (held)
		check_flushed(&sends, "sends", 12, 12);
	count_for(t);
	for (int i = 0; i < 5; i++)
		must(t, "posting", put_receive(b));
	ib_drain_rq(b->qp);
	/* A send of the near end may have been under way, and have found one. */
	check_flushed(&recvs, "receives", 5, 4);
	/* What is drained can be drained again. */
	ib_drain_sq(b->qp);
	ib_drain_qp(b->qp);
}

static void drain(struct test *t)
{
	static const enum ib_qp_type kinds[] = { IB_QPT_RC, IB_QPT_UC, IB_QPT_UD };
	int count = 0;

	for (int i = 0; i < ARRAY_SIZE(kinds); i++) {
		/* rdma_rxe refuses what ib_core posts to drain such a queue pair. */
		if (t->defers && kinds[i] == IB_QPT_UD)
			continue;
		for (enum way way = BY_DIRECT; way < BY_HAND; way++, count++)
			drain_by(t, kinds[i], way);
	}
	note(t, "%d drained", 2 * count);
}

static int signaled_send(struct end *e)
{
	return put_send(e, IB_SEND_SIGNALED);
}

/* Posts until there is no room any more; how many. */
static int put_all(struct end *e, int (*put)(struct end *e))
{
	int count = 0, err;

	while (!(err = put(e)) && count < 1500)
		count++;
	CHECK(e->t, err == -ENOMEM && count >= 64, "after %d requests: error %d", count, err);
	return count;
}

static void full(struct test *t)
{
	struct wish wish = { .kind = IB_QPT_RC, .way = BY_SOFTIRQ, .cqe = 2048 };
	int count, held, gave = 0;
	struct end *a, *b;

	make_pair(t, &wish, &a, &b);
	count_for(t);
	count = put_all(a, put_receive);
	held = put_all(a, signaled_send);
	note(t, "full with %d receives, %d sends", count, held);
	/* With receives there the sends go out, and there is room again. */
	while (gave < held + 1) {
		int err = put_receive(b);

		CHECK(t, !err || err == -ENOMEM, "a receive: error %d", err);
		if (!err)
			gave++;
		else
			CHECK(t, wait_for(t, atomic_read(&recvs.all) > gave - 64),
			      "no receive was used");
	}
	CHECK(t, wait_for(t, atomic_read(&sends.good) == held), "%d of %d sends",
	      atomic_read(&sends.good), held);
	must(t, "a send when all are complete", signaled_send(a));
	CHECK(t, wait_for(t, atomic_read(&sends.good) == held + 1), "it does not complete");
}

/* Destroyed as it is, with sends held up at both ends of a message, and receives. */
static void destroy(struct test *t)
{
	struct wish wish = { .kind = IB_QPT_RC, .rnr_timer = 1 };
	struct end *a, *b;

	count_for(t);
	for (int i = 0; i < 12; i++) {
		wish.way = i % WAYS == BY_DIRECT ? BY_HAND : i % WAYS;
		make_pair(t, &wish, &a, &b);
		for (int k = 0; k < 20; k++)
			must(t, "posting",
			     put_send(a, k % 2 ? IB_SEND_SIGNALED : 0) ?: put_receive(a));
		/* Some of them find receives while the end is destroyed. */
		for (int k = 0; k < i; k++)
			must(t, "posting", put_receive(b));
		if (i % 3 == 0)
			usleep_range(100, 200);
		a->connected = false;
		b->connected = false;
		end_end(i % 2 ? b : a);
		end_end(i % 2 ? a : b);
	}
	note(t, "%d sends, %d receives had completed", atomic_read(&sends.all),
	     atomic_read(&recvs.all));
	CHECK(t, atomic_read(&sends.all) <= 12 * 20, "more completions than requests");
}

/* One message, checked; both queue pairs have to work for it. */
static void send_one(struct end *from, struct end *to, struct room *out, struct room *in, u32 seed)
{
	struct ib_sge sge = piece(from, out, 0, 200);
	struct ib_send_wr wr = { .opcode = IB_WR_SEND, .sg_list = &sge, .num_sge = 1 };
	struct waiter *w = post_receive(to, in, 0, in->size);

	fill(out->mem, 200, seed);
	memset(in->mem, 0, in->size);
	must(from->t, "a SEND", act(from, &wr));
	must(from->t, "its receive", finish(w));
	CHECK(from->t, w->wc.byte_len == 200, "%u bytes", w->wc.byte_len);
	compare(from->t, in->mem, 200, seed);
}

/* Each state takes what it may take. */
static void states(struct test *t)
{
	struct wish wish = { .kind = IB_QPT_RC, .way = BY_SOFTIRQ };
	struct end *a = make_end(t, 0, &wish), *b = make_end(t, 1, &wish);
	struct room *out = make_room(a, 256), *in = make_room(b, 256);

	count_for(t);
	/* From any state to RESET, and again from there. */
	for (int i = 0; i < 5; i++) {
		if (i && i % 2 == 0)
			must(t, "to ERR", to_state(a, IB_QPS_ERR));
		must(t, "to RESET", to_state(a, IB_QPS_RESET) ?: to_state(b, IB_QPS_RESET));
		CHECK(t, signaled_send(a) == -EINVAL && put_receive(a) == -EINVAL,
		      "RESET takes requests");
		connect(a, b, &wish);
		send_one(a, b, out, in, i);
	}
	CHECK(t, !atomic_read(&sends.all), "a refused request completed");
}

/* Of a list of which one is wrong, those before it are posted, and the user learns which it is. */
static void lists(struct test *t)
{
	struct wish wish = { .kind = IB_QPT_RC, .way = BY_SOFTIRQ, .inline_data = 32 };
	struct ib_sge sge[64] = {};
	struct ib_send_wr wr[3] = {};
	struct ib_recv_wr rwr[3] = {};
	const struct ib_send_wr *bad = NULL;
	const struct ib_recv_wr *rbad = NULL;
	struct end *a, *b;
	int err;

	make_pair(t, &wish, &a, &b);
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
	err = ib_post_recv(b->qp, rwr, &rbad);
	CHECK(t, err == -EINVAL && rbad == &rwr[1], "a receive of too many pieces: %d", err);
	wr[1].sg_list = sge;
	wr[1].num_sge = ARRAY_SIZE(sge);
	err = ib_post_send(a->qp, wr, &bad);
	CHECK(t, err == -EINVAL && bad == &wr[1], "a request of too many pieces: %d", err);
	CHECK(t, wait_for(t, atomic_read(&sends.good) == 1 && atomic_read(&recvs.good) == 1),
	      "what stands before it was not posted");
	/* More inline than there is room for. */
	sge[0] = (struct ib_sge) { .addr = make_room(a, 4096)->addr, .length = 4096 };
	wr[0].next = NULL;
	wr[0].send_flags |= IB_SEND_INLINE;
	wr[0].sg_list = sge;
	wr[0].num_sge = 1;
	err = ib_post_send(a->qp, wr, &bad);
	CHECK(t, err == -EINVAL && bad == &wr[0], "4096 bytes inline: %d", err);
	CHECK(t, atomic_read(&sends.all) == 1, "a refused request completed");
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
	struct ib_sge sge = piece(e, w->room, 0, 4096);
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
void stand(struct test *t)
{
	static const enum way ways[] = { BY_SOFTIRQ, BY_HAND, BY_WORKQUEUE };

	for (int i = 0; i < ARRAY_SIZE(ways); i++) {
		struct wish wish = { .kind = IB_QPT_RC, .way = ways[i] };
		struct room *room;
		struct end *a, *b;

		make_pair(t, &wish, &a, &b);
		room = make_room(b, 4096);
		for (int k = 0; k < 16; k++) {
			struct waiter *s = make_waiter(t), *r = make_waiter(t);

			s->room = room;
			r->room = room;
			s->cqe.done = on_standing_send;
			r->cqe.done = on_standing_receive;
			must(t, "posting",
			     stands_on(r, b, false) ?: (k < 8 ? stands_on(s, a, true) : 0));
		}
	}
	CHECK(t, wait_for(t, atomic_read(&t->messages) > 100), "nothing moves");
}

const struct kuser_case queue_cases[] = {
	{ "drain", drain },
	{ "full", full },
	{ "destroy-with-work", destroy },
	{ "states", states },
	{ "lists", lists },
	{}
};
