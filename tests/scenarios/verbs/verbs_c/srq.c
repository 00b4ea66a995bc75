// SPDX-License-Identifier: GPL-2.0
/* Shared receive queues: many queue pairs take from one, each receive once. The b sides of the pairs share it. */
#include "datagrams.h"

#include <errno.h>
#include <stdatomic.h>
#include <string.h>

enum { MOST = 6, SLOT = 4096, SLOTS = 32 };

/* Beside the pair of the case. The receives are slots of the memory of the first b. */
static struct crowd {
	struct pair p[MOST];
	int pairs;
	struct ibv_srq *srq;
	struct ibv_cq *cq;
} c;

static struct ibv_qp *new_srq_qp(enum ibv_qp_type type, struct ibv_pd *pd, struct ibv_cq *cq, struct ibv_srq *srq)
{
	return new_sharing_qp_of(type, pd, cq, (struct ibv_qp_cap){ DEPTH, 5, 1, 1, 0 }, srq);
}

static void open_crowd(int pairs, int max_wr)
{
	c.pairs = pairs;
	c.srq = new_srq(p.b.pd, max_wr, 3);
	c.cq = new_cq(p.b.ctx, 1024, NULL, NULL);
	for (int i = 0; i < pairs; i++) {
		struct side *b = &c.p[i].b;

		pair_open_beside(&c.p[i], &p, SLOTS * SLOT);
		DESTROY(b->qp, b->cq);
		b->cq = c.cq;
		b->qp = new_srq_qp(IBV_QPT_RC, b->pd, c.cq, c.srq);
		pair_reconnect(&c.p[i], NULL);
	}
}

static void close_crowd(void)
{
	CHECK(ibv_destroy_srq(c.srq) == EBUSY, "a queue that others use was destroyed");
	for (int i = 0; i < c.pairs; i++) {
		c.p[i].b.cq = NULL;
		pair_close(&c.p[i]);
	}
	DESTROY(c.srq, c.cq);
}

/* Returns an errno. */
static int offer(uint64_t slot)
{
	struct ibv_sge list = sge(&c.p[0].b, slot % SLOTS * SLOT, SLOT);

	return post_shared_receive(c.srq, slot, &list, 1);
}

static void send_to(int pair, uint64_t id, uint32_t len, unsigned int seed)
{
	struct side *a = &c.p[pair].a;
	size_t at = id % SLOTS * SLOT;

	fill(a->buf + at, len, seed);
	post_one(a, IBV_WR_SEND, id, at, len);
}

static int pair_of(uint32_t qp_num)
{
	for (int i = 0; i < c.pairs; i++)
		if (c.p[i].b.qp && c.p[i].b.qp->qp_num == qp_num)
			return i;
	fail("completion of queue pair %u", qp_num);
}

/* The next receive, which must be this one, by this pair. */
static void received(uint64_t slot, int pair)
{
	struct ibv_wc wc = next_completion(c.cq, "a receive");

	CHECK(wc.wr_id == slot && wc.status == IBV_WC_SUCCESS, "receive %llu, %s, not %llu",
	      (unsigned long long)wc.wr_id, ibv_wc_status_str(wc.status), (unsigned long long)slot);
	CHECK(pair_of(wc.qp_num) == pair, "by pair %d, not %d", pair_of(wc.qp_num), pair);
}

static struct ibv_srq_attr asked(void)
{
	struct ibv_srq_attr attr;

	MUST(ibv_query_srq(c.srq, &attr));
	return attr;
}

static int modify(int mask, uint32_t max_wr, uint32_t limit)
{
	struct ibv_srq_attr attr = { .max_wr = max_wr, .srq_limit = limit };

	return ibv_modify_srq(c.srq, &attr, mask);
}

static void want_event(enum ibv_event_type type, const void *element, const char *what)
{
	want_device_event(p.b.ctx, type, element, what);
}

static void want_no_event(const char *what)
{
	struct ibv_async_event e;

	CHECK(!next_device_event(p.b.ctx, 20, &e), "%s: event \"%s\"", what, ibv_event_type_str(e.event_type));
}

/* More messages under way than there are receives, of one packet and of several. */
static void sharing(void)
{
	enum { MESSAGES = 200, WINDOW = 8 };
	unsigned int sent[MOST] = { 0 }, done[MOST] = { 0 }, seen[MOST] = { 0 }, total = 0;
	bool offered[SLOTS] = { false };
	struct ibv_wc wc;

	open_crowd(MOST, SLOTS);
	for (int i = 0; i < SLOTS; i++) {
		MUST(offer(i));
		offered[i] = true;
	}
	CHECK(offer(0) == ENOMEM, "more receives than the queue has room for");
	for (double end = now() + 3 * patience(); total < MOST * MESSAGES; ) {
		CHECK(now() < end, "%u messages have come", total);
		for (int i = 0; i < MOST; i++) {
			if (sent[i] < MESSAGES && sent[i] - done[i] < WINDOW) {
				send_to(i, sent[i], 1 + sent[i] * 37 % 4000, 1000 * i + sent[i]);
				sent[i]++;
			}
			if (ibv_poll_cq(c.p[i].a.cq, 1, &wc) == 1) {
				CHECK(wc.status == IBV_WC_SUCCESS && wc.wr_id == done[i], "SEND %llu of pair %d: %s",
				      (unsigned long long)wc.wr_id, i, ibv_wc_status_str(wc.status));
				done[i]++;
			}
		}
		if (ibv_poll_cq(c.cq, 1, &wc) != 1)
			continue;
		CHECK(wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_RECV, "a receive: %s",
		      ibv_wc_status_str(wc.status));
		CHECK(wc.wr_id < SLOTS && offered[wc.wr_id], "receive %llu came twice", (unsigned long long)wc.wr_id);
		offered[wc.wr_id] = false;
		end = now() + 3 * patience();
		int pair = pair_of(wc.qp_num);

		CHECK(wc.byte_len == 1 + seen[pair] * 37 % 4000, "message %u of pair %d has %u bytes", seen[pair], pair,
		      wc.byte_len);
		compare(c.p[0].b.buf + wc.wr_id * SLOT, wc.byte_len, 1000 * pair + seen[pair], "a message");
		seen[pair]++;
		total++;
		/* Some are missing for a while. */
		if (total % SLOTS < 20)
			continue;
		for (int i = 0; i < SLOTS; i++)
			if (!offered[i]) {
				MUST(offer(i));
				offered[i] = true;
			}
	}
	for (int i = 0; i < MOST; i++)
		CHECK(seen[i] == MESSAGES, "%u messages of pair %d", seen[i], i);
	CHECK(!ibv_poll_cq(c.cq, 1, &wc), "a completion too many");
	close_crowd();
}

/* One event, when there are fewer receives than that. */
static void limit(void)
{
	open_crowd(2, 16);
	CHECK(!asked().srq_limit && asked().max_wr == 16 && asked().max_sge >= 3, "it has %u receives, limit %u",
	      asked().max_wr, asked().srq_limit);
	for (int i = 0; i < 10; i++)
		MUST(offer(i));
	CHECK(modify(IBV_SRQ_LIMIT, 0, 17) == EINVAL, "a limit that is never kept");
	CHECK(modify(4, 0, 1) == EINVAL, "an attribute that there is not");
	MUST(modify(IBV_SRQ_LIMIT, 0, 7));
	for (int i = 0; i < 3; i++) {
		send_to(i % 2, i, 100, i);
		received(i, i % 2);
	}
	want_no_event("there are as many as the limit");
	CHECK(asked().srq_limit == 7, "the limit is %u", asked().srq_limit);
	send_to(1, 3, 100, 3);
	received(3, 1);
	want_event(IBV_EVENT_SRQ_LIMIT_REACHED, c.srq, "one fewer than the limit");
	CHECK(!asked().srq_limit, "the limit is %u still", asked().srq_limit);
	send_to(0, 4, 100, 4);
	received(4, 0);
	want_no_event("the limit is not armed");
	/* There are 5: who arms it too late learns at once. */
	MUST(modify(IBV_SRQ_LIMIT, 0, 6));
	want_event(IBV_EVENT_SRQ_LIMIT_REACHED, c.srq, "the limit was reached before");
	MUST(modify(IBV_SRQ_LIMIT, 0, 5));
	MUST(modify(IBV_SRQ_LIMIT, 0, 0));
	send_to(0, 5, 100, 5);
	received(5, 0);
	want_no_event("the limit was disarmed");
	close_crowd();
}

static void resize(void)
{
	static const unsigned int sizes[] = { 64, 10, 2000, 16, 11, 128 };
	uint64_t offered = 0, taken = 0;
	struct ibv_device_attr device;

	open_crowd(2, 16);
	MUST(ibv_query_device(p.b.ctx, &device));
	CHECK(device.device_cap_flags & IBV_DEVICE_SRQ_RESIZE, "the device does not say that it can");
	for (int round = 0; round < 6; round++)
		for (size_t i = 0; i < COUNT(sizes); i++) {
			for (; offered < taken + 10; offered++)
				MUST(offer(offered));
			MUST(modify(IBV_SRQ_MAX_WR, sizes[i], 0));
			CHECK(asked().max_wr >= sizes[i] && asked().max_wr < 2 * sizes[i], "%u receives, not %u",
			      asked().max_wr, sizes[i]);
			for (size_t n = i * 2; n; n--, taken++) {
				send_to(n % 2, taken, 2000, taken);
				received(taken, n % 2);
				compare(c.p[0].b.buf + taken % SLOTS * SLOT, 2000, taken, "a message");
				expect(&c.p[n % 2].a, taken, IBV_WC_SUCCESS, "a SEND");
			}
		}
	for (; offered < taken + 10; offered++)
		MUST(offer(offered));
	CHECK(modify(IBV_SRQ_MAX_WR, 8, 0) == EINVAL && modify(IBV_SRQ_MAX_WR, device.max_srq_wr + 1, 0) == EINVAL,
	      "a size that cannot be");
	MUST(modify(IBV_SRQ_LIMIT, 0, 10));
	CHECK(modify(IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT, 16, 17) == EINVAL, "a limit that is never kept");
	MUST(modify(IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT, 200, 100));
	want_event(IBV_EVENT_SRQ_LIMIT_REACHED, c.srq, "both at a time");
	MUST(modify(IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT, 16, 4));
	CHECK(asked().max_wr == 16 && asked().srq_limit == 4, "%u receives, limit %u", asked().max_wr,
	      asked().srq_limit);
	want_no_event("there are as many as the limit");
	MUST(modify(IBV_SRQ_LIMIT, 0, 0));
	for (; taken < offered; taken++) {
		send_to(0, taken, 10, 1);
		received(taken, 0);
		expect(&c.p[0].a, taken, IBV_WC_SUCCESS, "a SEND");
	}
	close_crowd();
}

/* A queue pair in ERR takes nothing any more, and says so; the receives are for the others. */
static void last_wqe(void)
{
	struct ibv_wc wc;

	open_crowd(2, 16);
	for (int i = 0; i < 4; i++)
		MUST(offer(i));
	send_to(0, 0, 100, 1);
	received(0, 0);
	MUST(to_state(&c.p[0].b, IBV_QPS_ERR));
	want_event(IBV_EVENT_QP_LAST_WQE_REACHED, c.p[0].b.qp, "moved to ERR");
	CHECK(!ibv_poll_cq(c.cq, 1, &wc), "receive %llu was flushed", (unsigned long long)wc.wr_id);
	for (int i = 1; i < 4; i++) {
		send_to(1, i, 100, i);
		received(i, 1);
	}
	want_no_event("nothing else happened");
	/* One that ends by an error: the receive that it has taken comes back with it. */
	MUST(offer(4));
	send_to(1, 4, 0, 1);
	received(4, 1);
	struct ibv_sge bad = sge(&c.p[0].b, 0, 100);

	bad.lkey ^= 0x5500;
	MUST(post_shared_receive(c.srq, 5, &bad, 1));
	send_to(1, 5, 100, 1);
	wc = next_completion(c.cq, "the bad receive");
	CHECK(wc.wr_id == 5 && wc.status == IBV_WC_LOC_PROT_ERR, "receive %llu: %s", (unsigned long long)wc.wr_id,
	      ibv_wc_status_str(wc.status));
	want_event(IBV_EVENT_QP_LAST_WQE_REACHED, c.p[1].b.qp, "ended by an error");
	close_crowd();
}

/* Nothing there: the sender is told, and waits. */
static void empty(void)
{
	open_crowd(2, 16);
	send_to(0, 1, 3000, 7);
	expect_none(&c.p[0].a, 20, "there is no receive");
	MUST(offer(1));
	received(1, 0);
	compare(c.p[0].b.buf + SLOT, 3000, 7, "the message that waited");
	expect(&c.p[0].a, 1, IBV_WC_SUCCESS, "the SEND that waited");
	pair_reconnect(&c.p[1], &(struct options){ .rnr_retry = NONE });
	send_to(1, 2, 100, 1);
	expect(&c.p[1].a, 2, IBV_WC_RNR_RETRY_EXC_ERR, "the SEND that may not wait");
	/* A WRITE needs none; one with immediate data does. */
	post_at(&c.p[0].a, IBV_WR_RDMA_WRITE_WITH_IMM, 3, 0, 100, &c.p[0].b, 0);
	expect_none(&c.p[0].a, 20, "there is no receive");
	MUST(offer(3));
	received(3, 0);
	expect(&c.p[0].a, 3, IBV_WC_SUCCESS, "the WRITE that waited");
	close_crowd();
}

/* A datagram and the header in front of it go to the memory of the queue's domain, and to no other. */
static void rules_of_datagrams(struct ibv_srq *srq, struct ibv_mr *of_srq)
{
	struct side *a = &c.p[0].a, *b = &c.p[0].b;
	struct ibv_qp *from = make_qp_of(IBV_QPT_UD, a), *to = new_srq_qp(IBV_QPT_UD, b->pd, c.cq, srq);
	struct ibv_ah *ah = new_ah(a->pd, way(a, b));
	const uint32_t keys[] = { of_srq->lkey, b->mr->lkey };
	struct ibv_wc wc;

	ready(from, KEY);
	ready(to, KEY);
	fill(a->buf, 100, 40);
	memset(b->buf, 0xee, 512);
	for (int i = 0; i < 2; i++) {
		struct ibv_sge message = sge(a, 0, 100), room = sge(b, i * 256, GRH + 100);
		struct ibv_send_wr w = datagram(&message, ah, to, KEY);

		room.lkey = keys[i];
		MUST(post_shared_receive(srq, 30 + i, &room, 1));
		MUST(post_send(from, &w));
		wc = next_completion(c.cq, "a datagram");
		CHECK(wc.wr_id == 30u + i && wc.qp_num == to->qp_num, "another completion");
		CHECK(wc.status == (i ? IBV_WC_LOC_PROT_ERR : IBV_WC_SUCCESS), "memory of the domain of the queue%s: %s",
		      i ? " pair" : "", ibv_wc_status_str(wc.status));
		CHECK(i || wc.byte_len == GRH + 100, "%u bytes", wc.byte_len);
		wc = next_completion(a->cq, "its request");
		CHECK(wc.wr_id == 1 && wc.status == IBV_WC_SUCCESS, "its request: %s", ibv_wc_status_str(wc.status));
	}
	compare(b->buf + GRH, 100, 40, "the datagram");
	for (int n = 256; n < 256 + GRH + 100; n++)
		CHECK(b->buf[n] == 0xee, "byte %d of the other one was written", n);
	want_event(IBV_EVENT_QP_LAST_WQE_REACHED, to, "ended by an error");
	DESTROY(ah, from, to);
}

/* What is refused, and memory of another domain: that of the queue counts, not that of the queue pair. */
static void rules(void)
{
	struct ibv_srq_init_attr large = { .attr = { .max_wr = 1, .max_sge = 1 } };
	struct ibv_device_attr device;
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	open_crowd(1, 16);
	struct side *b = &c.p[0].b;
	struct ibv_sge list = sge(b, 0, 100);

	CHECK(post_receive(b->qp, 1, &list, 1) == EINVAL, "it took a receive of its own");
	MUST(ibv_query_qp(b->qp, &attr, IBV_QP_CAP, &init));
	CHECK(init.srq == c.srq && !init.cap.max_recv_wr, "it has %u receives of its own", init.cap.max_recv_wr);
	MUST(ibv_query_device(b->ctx, &device));
	CHECK(device.max_srq > 0 && device.max_srq_wr > 0 && device.max_srq_sge > 0, "the device has no such queues");
	large.attr.max_wr = device.max_srq_wr + 1;
	CHECK(!ibv_create_srq(b->pd, &large) && errno == EINVAL, "%u receives: %s", large.attr.max_wr, strerror(errno));
	large.attr = (struct ibv_srq_attr){ .max_wr = 1, .max_sge = device.max_srq_sge + 1 };
	CHECK(!ibv_create_srq(b->pd, &large) && errno == EINVAL, "%u entries: %s", large.attr.max_sge, strerror(errno));

	struct ibv_pd *pd = new_pd(b->ctx);
	struct ibv_srq *srq = new_srq(pd, 4, 3);
	struct ibv_mr *mr = new_mr(pd, b->buf, SLOT, ALL_ACCESS);

	DESTROY(b->qp);
	b->qp = new_srq_qp(IBV_QPT_RC, b->pd, c.cq, srq);
	pair_reconnect(&c.p[0], NULL);
	list.lkey = mr->lkey;
	MUST(post_shared_receive(srq, 9, &list, 1));
	list.lkey = b->mr->lkey;
	MUST(post_shared_receive(srq, 9, &list, 1));
	send_to(0, 1, 100, 7);
	received(9, 0);
	compare(b->buf, 100, 7, "the message");
	expect(&c.p[0].a, 1, IBV_WC_SUCCESS, "the SEND");
	send_to(0, 2, 100, 7);
	struct ibv_wc wc = next_completion(c.cq, "memory of the domain of the queue pair");

	CHECK(wc.status == IBV_WC_LOC_PROT_ERR, "it was taken: %s", ibv_wc_status_str(wc.status));
	want_event(IBV_EVENT_QP_LAST_WQE_REACHED, b->qp, "ended by an error");
	expect(&c.p[0].a, 2, IBV_WC_REM_OP_ERR, "the SEND");
	rules_of_datagrams(srq, mr);
	DESTROY(b->qp, srq, mr, pd);
	b->qp = new_srq_qp(IBV_QPT_RC, b->pd, c.cq, c.srq);
	close_crowd();
}

/* An index that cannot be ends the queue and who uses it, and nobody else. */
static void scribbled(void)
{
	static const uint64_t MARK = 0xfe110ce5f00d1111;
	bool srq_err = false, fatal = false;
	struct ibv_async_event e;

	open_crowd(2, 16);
	MUST(offer(MARK));
	atomic_store(producer_of(marked_ring(MARK, 1)), 1000);
	send_to(0, 1, 100, 1);
	while (!(srq_err && fatal)) {
		CHECK(next_device_event(p.b.ctx, 1000 * patience(), &e), "events: SRQ_ERR %d, QP_FATAL %d", srq_err, fatal);
		srq_err |= e.event_type == IBV_EVENT_SRQ_ERR && e.element.srq == c.srq;
		fatal |= e.event_type == IBV_EVENT_QP_FATAL && e.element.qp == c.p[0].b.qp;
	}
	want_state(&c.p[0].b, IBV_QPS_ERR, "the queue pair that wanted a receive");
	want_state(&c.p[1].b, IBV_QPS_RTS, "the other one");
	send_to(1, 1, 100, 1);
	want_state(&c.p[1].b, IBV_QPS_ERR, "the other one, that wanted a receive too");
	CHECK(modify(IBV_SRQ_MAX_WR, 64, 0) == EINVAL, "a queue that has ended was resized");
	send_checked(&p.a, &p.b, 1);
	close_crowd();
}

const struct test_case srq_cases[] = {
	{ "srq-sharing", sharing, "six queue pairs take from one queue under load, each receive once", .len = 8192 },
	{ "srq-limit", limit, "the limit is told once", .rxe = "tells nothing when the limit was reached before",
	  .len = 8192 },
	{ "srq-resize", resize, "a shared queue that is resized keeps its receives",
	  .rxe = "tells nothing when the limit was reached before", .len = 8192 },
	{ "srq-last-wqe", last_wqe, "a queue pair in ERR says that it takes nothing any more", .len = 8192 },
	{ "srq-empty", empty, "with nothing there the sender waits, or is told", .len = 8192 },
	{ "srq-rules", rules, "what is refused, and whose memory counts",
	  .rxe = "counts the memory of the queue pair", .len = 8192 },
	{ "srq-scribbled", scribbled, "an index that cannot be ends a shared queue and who uses it",
	  .rxe = "has another ring", .len = 8192 },
	{ NULL },
};
