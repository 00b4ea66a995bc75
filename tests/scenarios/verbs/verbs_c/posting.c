// SPDX-License-Identifier: GPL-2.0
/* What is flushed (WR_FLUSH) and in which order; what is refused before anything happens; completion queues that overflow. */
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

static struct ibv_qp_cap cap_of(struct side *s)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	MUST(ibv_query_qp(s->qp, &attr, IBV_QP_CAP, &init));
	return init.cap;
}

/* arg: the state in which a posts a send, which is refused, and a receive, which is refused in RESET alone. */
static void posted_in(struct scene *s, const struct cause *c)
{
	struct ibv_send_wr second = wr(IBV_WR_SEND, 2, NULL, 0), w = wr(IBV_WR_SEND, 1, NULL, 0);
	struct ibv_recv_wr r = { .wr_id = 3 }, *bad = NULL;
	struct side *a = &s->p.a;

	w.next = &second;
	back_to(s, c->arg[0]);
	want_unposted(a, &w, EINVAL, "a send");
	if (c->arg[0] == IBV_QPS_RESET)
		CHECK(ibv_post_recv(a->qp, &r, &bad) == EINVAL && bad == &r, "a receive was taken");
	else
		CHECK(!ibv_post_recv(a->qp, &r, &bad), "no receive was taken");
	expect_none(a, 5, "of what was refused");
}

/* Entries of a request, in place of a number: one more than was granted. */
enum { ONE_MORE = 1000 };

static const struct bad_request {
	const char *text;
	enum ibv_wr_opcode op;
	int entries;		/* the first is one byte longer than inline data may be */
	bool in_line;
	bool taken_by_rxe;
} bad_requests[] = {
	{ "more entries than granted", IBV_WR_SEND, ONE_MORE },
	{ "more inline bytes than granted", IBV_WR_SEND, 1, true },
	{ "-1 entries", IBV_WR_SEND, -1, .taken_by_rxe = true },
	{ "an unknown opcode", 250, .taken_by_rxe = true },
	{ "TSO", IBV_WR_TSO, .taken_by_rxe = true },
	{ "a READ inline", IBV_WR_RDMA_READ, 0, true, true },
	{ "FETCH_ADD inline", IBV_WR_ATOMIC_FETCH_AND_ADD, 0, true, true },
};

/* arg: which of the requests of a list is bad, and how. Those before it are executed, the others are not. */
static void bad_in_list(struct scene *s, const struct cause *c)
{
	const struct bad_request *how = &bad_requests[c->arg[1]];
	struct ibv_qp_cap cap = cap_of(&s->p.a);
	struct ibv_sge list[64] = { sge(&s->p.a, 0, cap.max_inline_data + 1) };
	struct ibv_send_wr w[4], *bad = NULL;
	int k = c->arg[0], rc;

	if (cap.max_send_sge >= 64)
		return;
	for (int i = 0; i < 4; i++) {
		w[i] = wr(IBV_WR_SEND, i, NULL, 0);
		w[i].next = i < 3 ? &w[i + 1] : NULL;
		post_recv(&s->p.b, i, NULL, 0);
	}
	w[k].sg_list = list;
	w[k].opcode = how->op;
	w[k].num_sge = how->entries == ONE_MORE ? (int)cap.max_send_sge + 1 : how->entries;
	w[k].send_flags |= how->in_line ? IBV_SEND_INLINE : 0;
	rc = ibv_post_send(s->p.a.qp, w, &bad);
	CHECK(rc > 0 && bad == &w[k], "refused with %s at request %td", strerror(rc), bad ? bad - w : -1);
	for (int i = 0; i < k; i++)
		expect_both(&s->p.a, i, &s->p.b, i, "a request before the bad one");
	expect_none(&s->p.a, 3, "of the bad request");
	expect_none(&s->p.b, 3, "of the bad request");
	want_state(&s->p.a, IBV_QPS_RTS, "the queue pair");
}

/* The number of entries and of inline bytes that were granted is taken, and works. */
static void just_enough(struct scene *s, const struct cause *c)
{
	struct ibv_qp_cap cap = cap_of(&s->p.a);
	struct ibv_sge list[64];

	(void)c;
	for (unsigned int i = 0; i < cap.max_send_sge && i < 64; i++)
		list[i] = sge(&s->p.a, i, 1);
	fill(s->p.a.buf, TARGET, 5);
	for (int in_line = 0; in_line < 2; in_line++) {
		struct ibv_sge whole = sge(&s->p.a, 0, cap.max_inline_data);
		struct ibv_send_wr w = wr(IBV_WR_SEND, 1, in_line ? &whole : list, in_line ? 1 : (int)cap.max_send_sge);
		uint32_t len = in_line ? cap.max_inline_data : cap.max_send_sge;

		w.send_flags |= in_line ? IBV_SEND_INLINE : 0;
		post_room(&s->p.b, 1, TARGET, TARGET_LEN);
		post(&s->p.a, &w);
		CHECK(expect_both(&s->p.a, 1, &s->p.b, 1, "as much as was granted").byte_len == len, "not %u bytes", len);
		compare(s->p.b.buf + TARGET, len, 5, "data");
	}
}

/*
 * A queue is full when as much is in it as was granted, in a list (arg[0]) or one by one; what was taken is executed. arg[1]:
 * of receives, else of sends, which wait for receives.
 */
static void full_queue(struct scene *s, const struct cause *c)
{
	bool listed = c->arg[0], receives = c->arg[1];
	struct ibv_qp_cap cap = cap_of(receives ? &s->p.b : &s->p.a);
	struct ibv_recv_wr *bad_receive = NULL;
	struct ibv_send_wr *bad_send = NULL;
	unsigned int taken = 0;
	int rc;

	unsigned int most = receives ? cap.max_recv_wr : cap.max_send_wr, n = most + 3;
	struct ibv_send_wr *w = calloc(n, sizeof(*w));
	struct ibv_recv_wr *r = calloc(n, sizeof(*r));

	for (unsigned int i = 0; i < n; i++) {
		bool more = listed && i + 1 < n;

		w[i] = wr(IBV_WR_SEND, i, NULL, 0);
		w[i].next = more ? &w[i + 1] : NULL;
		r[i] = (struct ibv_recv_wr){ .wr_id = i, .next = more ? &r[i + 1] : NULL };
	}
	do
		rc = receives ? ibv_post_recv(s->p.b.qp, &r[taken], &bad_receive) :
				ibv_post_send(s->p.a.qp, &w[taken], &bad_send);
	while (!rc && ++taken < n);
	if (rc)
		taken = receives ? bad_receive - r : bad_send - w;
	CHECK(rc == ENOMEM && taken == most, "full after %u of %u with %s", taken, most, strerror(rc));
	for (unsigned int i = 0; i < taken; i++) {
		if (receives)
			post_one(&s->p.a, IBV_WR_SEND, i, 0, 0);
		else
			post_recv(&s->p.b, i, NULL, 0);
		expect_both(&s->p.a, i, &s->p.b, i, "a message");
	}
	expect_none(&s->p.a, 3, "of what was refused");
	free(w);
	free(r);
}

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

/* arg: which of the receives of a list is bad. */
static void bad_in_receive_list(struct scene *s, const struct cause *c)
{
	struct ibv_qp_cap cap = cap_of(&s->p.b);
	struct ibv_sge list[64] = { 0 };
	struct ibv_recv_wr r[4], *bad = NULL;
	int k = c->arg[0];

	for (int i = 0; i < 4; i++)
		r[i] = (struct ibv_recv_wr){ .wr_id = i, .next = i < 3 ? &r[i + 1] : NULL, .sg_list = list };
	r[k].num_sge = cap.max_recv_sge < 64 ? (int)cap.max_recv_sge + 1 : -1;
	CHECK(ibv_post_recv(s->p.b.qp, r, &bad) == EINVAL && bad == &r[k], "refused at receive %td", bad ? bad - r : -1);
	for (int i = 0; i < k; i++) {
		post_one(&s->p.a, IBV_WR_SEND, i, 0, 0);
		expect_both(&s->p.a, i, &s->p.b, i, "a send into a receive before the bad one");
	}
}

static const struct cause refusals[] = {
	{ "posting sends and receives in RESET, with EINVAL", .refused = posted_in, .arg = { IBV_QPS_RESET },
	  .rxe = "takes receives in RESET" },
	{ "posting sends in INIT, with EINVAL; receives are taken", .refused = posted_in, .arg = { IBV_QPS_INIT },
	  .rxe = "takes sends before RTS" },
	{ "posting sends in RTR, with EINVAL; receives are taken", .refused = posted_in, .arg = { IBV_QPS_RTR },
	  .rxe = "takes sends before RTS" },
	{ "nothing of as many entries and inline bytes as were granted", .refused = just_enough },
	{ "sends beyond a full queue, with ENOMEM; all before are executed", .refused = full_queue },
	{ "sends beyond a full queue in one list, with ENOMEM; all before are executed", .refused = full_queue,
	  .arg = { 1 } },
	{ "receives beyond a full queue, with ENOMEM; all before are filled", .refused = full_queue, .arg = { 0, 1 } },
	{ "receives beyond a full queue in one list, with ENOMEM; all before are filled", .refused = full_queue,
	  .arg = { 1, 1 } },
	{ "queues one larger than the device has", .refused = impossible_queues },
	{ "queues of 2^32 - 1", .refused = impossible_queues, .arg = { 1 } },
	{ "completions beyond a full queue: CQ_ERR, QP_FATAL of all who lose one; what was in it is kept", .refused = overflow,
	  .rxe = "loses the completion and goes on" },
	{ "more entries than granted in receive 1 of a list of 4", .refused = bad_in_receive_list, .arg = { 0 } },
	{ "more entries than granted in receive 4 of a list of 4", .refused = bad_in_receive_list, .arg = { 3 } },
};

enum { REFUSALS = COUNT(refusals), REGIONS = COUNT(impossible), POSITIONS = 4, LISTS = COUNT(bad_requests) * POSITIONS };

static void refusal(int i, struct cause *c)
{
	if (i < REFUSALS) {
		*c = refusals[i];
		return;
	}
	i -= REFUSALS;
	if (i < REGIONS) {
		snprintf(c->text, sizeof(c->text), "%s", impossible[i].text);
		c->refused = impossible_region;
		c->arg[0] = i;
		return;
	}
	i -= REGIONS;
	const struct bad_request *how = &bad_requests[i / POSITIONS];

	c->refused = bad_in_list;
	c->arg[0] = i % POSITIONS;
	c->arg[1] = i / POSITIONS;
	snprintf(c->text, sizeof(c->text), "%s in request %d of a list of 4; bad_wr names it, those before are executed",
		 how->text, c->arg[0] + 1);
	c->rxe = how->taken_by_rxe ? "takes it" : NULL;
}

const struct family flush_family = { "flushes", 60, flushes, COUNT(flushes) };
const struct family refusal_family = { "refusals", 90, NULL, REFUSALS + REGIONS + LISTS, refusal };
