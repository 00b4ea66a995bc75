// SPDX-License-Identifier: GPL-2.0
/* Queues that are full, drained, destroyed with work in them, or not in the right state. */
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
static int put_send(struct end *e)
{
	const struct ib_send_wr *bad = NULL;
	struct ib_send_wr wr = {
		.wr_cqe = &sends.cqe, .opcode = IB_WR_SEND, .send_flags = IB_SEND_SIGNALED,
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
		must(t, "posting", put_receive(a) ?: (held ? put_send(a) : 0));
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
	for (enum way way = BY_DIRECT; way < BY_HAND; way++) {
		drain_by(t, IB_QPT_RC, way);
		drain_by(t, IB_QPT_UC, way);
		drain_by(t, IB_QPT_UD, way);
	}
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

/* Queues take as much as there is room for; of what they took nothing is lost. */
static void full(struct test *t)
{
	struct wish wish = { .kind = IB_QPT_RC, .way = BY_SOFTIRQ, .cqe = 4096 };
	struct end *a, *b;
	int held;

	make_pair(t, &wish, &a, &b);
	count_for(t);
	held = put_all(a, put_send);
	for (int gave = 0; gave < held;) {
		/* Those that were taken make room. */
		gave += put_all(b, put_receive);
		CHECK(t, wait_for(t, atomic_read(&recvs.all) >= min(gave, held)), "no receive was used");
	}
	CHECK(t, wait_for(t, atomic_read(&sends.good) == held), "%d of %d sends",
	      atomic_read(&sends.good), held);
	must(t, "a send when all are complete", put_send(a));
}

/* Destroyed as it is, with sends held up at both ends of a message, and receives. */
static void destroy(struct test *t)
{
	struct wish wish = { .kind = IB_QPT_RC };
	struct end *a, *b;

	count_for(t);
	for (int i = 0; i < 12; i++) {
		wish.way = i % WAYS == BY_DIRECT ? BY_HAND : i % WAYS;
		make_pair(t, &wish, &a, &b);
		for (int k = 0; k < 20; k++)
			must(t, "posting", put_send(a) ?: put_receive(a));
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
	CHECK(t, atomic_read(&sends.all) <= 12 * 20, "more completions than requests");
}

/*
 * Requests that are refused: in a state that takes none, with too many pieces, with too much inline.
 * Of a list those before the wrong one are posted, and the user learns which that is.
 */
static void refused(struct test *t)
{
	struct wish wish = { .kind = IB_QPT_RC, .way = BY_SOFTIRQ, .inline_data = 32 };
	struct end *a = make_end(t, 0, &wish), *b = make_end(t, 1, &wish);
	struct ib_sge sge[64] = {};
	struct ib_send_wr last = { .opcode = IB_WR_SEND };
	struct ib_send_wr wrong = { .next = &last, .opcode = IB_WR_SEND };
	struct ib_send_wr first = {
		.next = &wrong, .wr_cqe = &sends.cqe, .opcode = IB_WR_SEND,
		.send_flags = IB_SEND_SIGNALED,
	};
	struct ib_recv_wr wrong_recv = { .sg_list = sge, .num_sge = ARRAY_SIZE(sge) };
	struct ib_recv_wr first_recv = { .next = &wrong_recv, .wr_cqe = &recvs.cqe };
	const struct ib_send_wr *bad = NULL;
	const struct ib_recv_wr *bad_recv = NULL;
	int err;

	count_for(t);
	/* From RTS and from ERR back to RESET, too. */
	for (int i = 0; i < 3; i++) {
		if (i == 2)
			must(t, "to ERR", to_state(a, IB_QPS_ERR));
		must(t, "to RESET", to_state(a, IB_QPS_RESET) ?: to_state(b, IB_QPS_RESET));
		CHECK(t, put_send(a) == -EINVAL && put_receive(a) == -EINVAL,
		      "RESET takes requests");
		connect(a, b, &wish);
	}
	err = ib_post_recv(b->qp, &first_recv, &bad_recv);
	CHECK(t, err == -EINVAL && bad_recv == &wrong_recv, "a receive of too many pieces: %d", err);
	wrong.sg_list = sge;
	wrong.num_sge = ARRAY_SIZE(sge);
	err = ib_post_send(a->qp, &first, &bad);
	CHECK(t, err == -EINVAL && bad == &wrong, "a request of too many pieces: %d", err);
	CHECK(t, wait_for(t, atomic_read(&sends.good) == 1 && atomic_read(&recvs.good) == 1),
	      "what stands before it was not posted");
	sge[0] = piece(a, make_room(a, 4096), 0, 4096);
	wrong.num_sge = 1;
	wrong.send_flags = IB_SEND_INLINE;
	err = ib_post_send(a->qp, &wrong, &bad);
	CHECK(t, err == -EINVAL && bad == &wrong, "4096 bytes inline: %d", err);
	CHECK(t, atomic_read(&sends.all) == 1, "a refused request completed");
}

const struct kuser_case queue_cases[] = {
	{ "drain", drain },
	{ "full", full },
	{ "destroy-with-work", destroy },
	{ "refused", refused },
	{}
};
