// SPDX-License-Identifier: GPL-2.0
/* What is flushed (WR_FLUSH) and in which order; what cannot be made; completion queues that overflow. */
#include "causes.h"

/* a begins anew, and goes as far as this. */
static void back_to(struct scene *s, enum ibv_qp_state state)
{
	struct side *a = &s->p.a;

	MUST(to_state(a, IBV_QPS_RESET));
	if (state >= IBV_QPS_INIT)
		MUST(to_init(&s->p, a));
	if (state >= IBV_QPS_RTR)
		MUST(to_rtr(&s->p, a, &s->p.b, s->p.b.qp->qp_num));
}

/* arg: the state from which a goes to ERR, with sends and receives in its queues. */
static void flushed_from(struct scene *s, const struct cause *c)
{
	enum ibv_qp_state from = c->arg[0];
	struct side *a = &s->p.a;
	int sends = 0, recvs = 0, want = 10;

	if (from < IBV_QPS_RTS) {
		back_to(s, from);
		want = 0;
	}
	for (int i = 0; i < 10; i++)
		post_recv(a, 100 + i, NULL, 0);
	if (from == IBV_QPS_SQD)
		MUST(to_state(a, IBV_QPS_SQD));
	for (int i = 0; i < want; i++) {
		/* The receives that they wait for never come. */
		struct ibv_send_wr w = wr(i % 3 ? IBV_WR_SEND : IBV_WR_RDMA_WRITE_WITH_IMM, i, NULL, 0);

		/* A flush completes the unsignalled ones too. */
		w.send_flags = i % 2 ? IBV_SEND_SIGNALED : 0;
		post(a, &w);
	}
	want_state(a, from, "before");
	MUST(to_state(a, IBV_QPS_ERR));
	for (int i = 0; i < want + 10; i++) {
		struct ibv_wc wc = next(a, "flush");

		CHECK(wc.status == IBV_WC_WR_FLUSH_ERR, "%s in a flush", status_name(wc.status));
		if (wc.wr_id < 100)
			CHECK(wc.wr_id == (uint64_t)sends++, "sends are flushed out of order");
		else
			CHECK(wc.wr_id == 100 + (uint64_t)recvs++, "receives are flushed out of order");
	}
	CHECK(sends == want && recvs == 10, "%d sends and %d receives flushed", sends, recvs);
	expect_none(a, 5, "after the flush");
	want_state(&s->p.b, IBV_QPS_RTS, "the peer");
}

/* ERR again and again: nothing completes twice. */
static void flushed_once(struct scene *s, const struct cause *c)
{
	(void)c;
	post_recv(&s->p.a, 1, NULL, 0);
	for (int i = 0; i < 3; i++)
		MUST(to_state(&s->p.a, IBV_QPS_ERR));
	expect(&s->p.a, 1, IBV_WC_WR_FLUSH_ERR, "the receive");
	for (int i = 0; i < 2 * DEPTH; i++) {
		post_one(&s->p.a, IBV_WR_SEND, i, 0, 0);
		expect(&s->p.a, i, IBV_WC_WR_FLUSH_ERR, "a send in ERR");
		if (on_rxe())
			continue;
		post_recv(&s->p.a, i, NULL, 0);
		expect(&s->p.a, i, IBV_WC_WR_FLUSH_ERR, "a receive in ERR");
	}
	expect_none(&s->p.a, 5, "after the flush");
}

static const struct cause flushes[] = {
	{ "WR_FLUSH_ERR of receives from INIT", .refused = flushed_from, .arg = { IBV_QPS_INIT } },
	{ "WR_FLUSH_ERR of receives from RTR", .refused = flushed_from, .arg = { IBV_QPS_RTR } },
	{ "WR_FLUSH_ERR of sends and receives from RTS, in order", .refused = flushed_from, .arg = { IBV_QPS_RTS } },
	{ "WR_FLUSH_ERR of sends and receives from SQD, in order", .refused = flushed_from, .arg = { IBV_QPS_SQD },
	  .rxe = "keeps a queue pair in SQD with what is posted" },
	{ "WR_FLUSH_ERR of all that is posted in ERR, each once", .refused = flushed_once },
};

static void impossible_queues(struct scene *s, const struct cause *c)
{
	struct side *a = &s->p.a;
	struct ibv_device_attr attr = device_of(a->ctx);

	for (int i = 0; i < 5; i++) {
		struct ibv_qp_init_attr init = {
			.send_cq = a->cq, .recv_cq = a->cq, .qp_type = IBV_QPT_RC,
			.cap = { .max_send_wr = 8, .max_recv_wr = 8, .max_send_sge = 1, .max_recv_sge = 1 },
		};
		uint32_t *field[] = { &init.cap.max_send_wr, &init.cap.max_recv_wr, &init.cap.max_send_sge,
				      &init.cap.max_recv_sge, &init.cap.max_inline_data };
		uint32_t limit = i < 2 ? attr.max_qp_wr : i < 4 ? attr.max_sge : 1 << 20;

		*field[i] = c->arg[0] ? ~0u : limit + 1;
		struct ibv_qp *qp = ibv_create_qp(a->pd, &init);
		CHECK(!qp && (errno == EINVAL || errno == ENOMEM), "limit %d: %s", i, qp ? "taken" : strerror(errno));
	}
	CHECK(!ibv_create_cq(a->ctx, attr.max_cqe + 1, NULL, NULL, 0), "a completion queue above the limit");
	CHECK(!ibv_create_cq(a->ctx, 0, NULL, NULL, 0), "a completion queue of nothing");
}

/* Regions that cannot be, of the buffer or of other memory; address 0 stands for a page of constants. */
enum { RIGHTS = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE };

static const struct impossible {
	const char *text;
	bool in_buffer;
	uint64_t addr, len, iova;
	int access;
} impossible[] = {
	{ "a region that wraps at 2^64", false, -4096ull, 8192, -4096ull, RIGHTS },
	{ "a region up to 2^64", false, -8192ull, 8192, 0, RIGHTS },
	{ "a region of 2^64 - 1 bytes", true, 0, ~0ull, 0, RIGHTS },
	{ "a region whose iova wraps at 2^64", true, 0, 4096, -4095ull, RIGHTS },
	{ "a region of memory that is not mapped", false, 4096, 4096, 4096, RIGHTS },
	{ "a region of which the last page is not mapped", true, 0, 1ull << 40, 0, RIGHTS },
	{ "a region of the kernel's memory", false, 0xffff888000000000, 4096, 0, RIGHTS },
	{ "a region with remote writing but no local writing", true, 0, 4096, 0, IBV_ACCESS_REMOTE_WRITE },
	{ "a region with remote atomics but no local writing", true, 0, 4096, 0, IBV_ACCESS_REMOTE_ATOMIC },
	{ "a region with remote atomics and reading but no local writing", true, 0, 4096, 0,
	  IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_REMOTE_READ },
	{ "a region with remote atomics and windows but no local writing", true, 0, 4096, 0,
	  IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND },
	{ "a region with a right that nobody knows", true, 0, 4096, 0, RIGHTS | 1 << 15 },
	{ "a region of constants that are to be written", false, 0, 4096, 0, RIGHTS },
};

static void impossible_region(struct scene *s, const struct cause *c)
{
	const struct impossible *i = &impossible[c->arg[0]];
	uint64_t addr = i->in_buffer ? (uintptr_t)s->p.a.buf : i->addr ? i->addr : (uintptr_t)impossible & -4096ull;
	bool is_about_rights = i->in_buffer && i->len == 4096 && !i->iova;
	struct ibv_mr *mr;

	errno = 0;
	mr = ibv_reg_mr_iova(s->p.a.pd, (void *)addr, i->len, i->iova, i->access);
	CHECK(!mr, "it was registered");
	CHECK(errno == EINVAL || errno == EOPNOTSUPP ||
	      (!is_about_rights && (errno == EFAULT || errno == ENOMEM || errno == EOVERFLOW)),
	      "registering: %s", strerror(errno));
}

/* A queue pair of a's process on another completion queue, connected to the b of `with`, whose a rests meanwhile. */
static void connect_other(struct pair *p, struct pair *with, struct ibv_cq *cq)
{
	*p = *with;
	p->a.cq = cq;
	p->a.qp = make_qp(&p->a);
	MUST(to_state(&with->b, IBV_QPS_RESET));
	pair_options(p, NULL);
	pair_connect(p);
}

/* Two queue pairs share the queue that overflows: neither can report anything any more. */
static void overflow(struct scene *s, const struct cause *c)
{
	struct ibv_cq *small = new_cq(s->p.a.ctx, 4, NULL, NULL);
	bool cq_err = false, fatal[2] = { false };
	struct ibv_async_event e;
	struct pair p[2];
	struct ibv_wc wc;
	int cqe, n;

	(void)c;
	cqe = small->cqe;
	connect_other(&p[0], &s->p, small);
	connect_other(&p[1], &s->n, small);
	for (int i = 0; i < cqe + 1; i++)
		post_one(&p[0].a, IBV_WR_RDMA_WRITE, i, 0, 0);
	want_state(&p[0].a, IBV_QPS_ERR, "the queue pair whose completion is lost");
	want_state(&p[1].a, IBV_QPS_RTS, "the queue pair that has not lost one yet");
	post_one(&p[1].a, IBV_WR_RDMA_WRITE, cqe + 1, 0, 0);
	want_state(&p[1].a, IBV_QPS_ERR, "the queue pair that has lost one, too");
	while ((!cq_err || !fatal[0] || !fatal[1]) && next_device_event(p[0].a.ctx, 1000 * patience(), &e)) {
		cq_err |= e.event_type == IBV_EVENT_CQ_ERR && e.element.cq == small;
		for (int i = 0; i < 2; i++)
			fatal[i] |= e.event_type == IBV_EVENT_QP_FATAL && e.element.qp == p[i].a.qp;
	}
	CHECK(cq_err && fatal[0] && fatal[1], "events: CQ_ERR %d, QP_FATAL %d, %d", cq_err, fatal[0], fatal[1]);
	/* What was in the queue is still there, and nothing is added any more. */
	for (n = 0; ibv_poll_cq(small, 1, &wc) == 1; n++)
		CHECK(wc.wr_id == (uint64_t)n && wc.status == IBV_WC_SUCCESS, "completion %d is of %llu, %s", n,
		      (unsigned long long)wc.wr_id, status_name(wc.status));
	CHECK(n == cqe, "%d of %d completions are left", n, cqe);
	for (int i = 0; i < 2; i++) {
		want_state(&p[i].b, IBV_QPS_RTS, "the peer");
		DESTROY(p[i].a.qp);
	}
	DESTROY(small);
	pair_reconnect(&s->n, NULL);
}

static const struct cause refusals[] = {
	{ "queues one larger than the device has", .refused = impossible_queues },
	{ "queues of 2^32 - 1", .refused = impossible_queues, .arg = { 1 } },
	{ "completions beyond a full queue: CQ_ERR, QP_FATAL of all who lose one; what was in it is kept", .refused = overflow,
	  .rxe = "loses the completion and goes on" },
};

enum { REFUSALS = COUNT(refusals), REGIONS = COUNT(impossible) };

static void refusal(int i, struct cause *c)
{
	if (i < REFUSALS) {
		*c = refusals[i];
		return;
	}
	c->refused = impossible_region;
	c->arg[0] = i - REFUSALS;
	snprintf(c->text, sizeof(c->text), "%s", impossible[c->arg[0]].text);
}

const struct family flush_family = { "flushes", 60, flushes, COUNT(flushes) };
const struct family refusal_family = { "refusals", 90, NULL, REFUSALS + REGIONS, refusal };
