// SPDX-License-Identifier: GPL-2.0
/* Shared receive queues: limits, sizes, whose memory counts; what of unreliable services is lost, and what becomes of its receive. */
#include "datagrams.h"

enum { MOST = 3, WINDOW = 8, SLOT = 4096, SLOTS = 32 };

/* Places for all receives, and for what all senders have under way. */
#define CROWD .len = SLOTS * SLOT

/* Beside the pair of the case: each b shares the receives, which are slots of its memory, and the completion queue. */
static struct crowd {
	enum ibv_qp_type type;
	struct side a[MOST], b[MOST];
	int pairs;
	struct ibv_srq *srq;
	struct ibv_cq *cq;
	struct ibv_ah *ah;
} c;

static struct ibv_qp *new_srq_qp(enum ibv_qp_type type, struct ibv_srq *srq)
{
	return new_sharing_qp_of(type, p.b.pd, c.cq, (struct ibv_qp_cap){ DEPTH, 5, 1, 1, 0 }, srq);
}

static void connect_pair(int i)
{
	MUST(to_state(&c.a[i], IBV_QPS_RESET));
	MUST(to_state(&c.b[i], IBV_QPS_RESET));
	if (c.type != IBV_QPT_UD) {
		connect_sides(&c.a[i], &c.b[i], usual);
		return;
	}
	ready(c.a[i].qp, KEY);
	ready(c.b[i].qp, KEY);
}

static void open_crowd(enum ibv_qp_type type, int pairs, int max_wr)
{
	c = (struct crowd){ .type = type, .pairs = pairs, .srq = new_srq(p.b.pd, max_wr, 3),
			    .cq = new_cq(p.b.ctx, 1024, NULL, NULL), .ah = new_ah(p.a.pd, way(&p.a, &p.b)) };
	for (int i = 0; i < pairs; i++) {
		c.a[i] = side_beside(&p.a, type, DEPTH);
		c.b[i] = p.b;
		c.b[i].cq = c.cq;
		c.b[i].qp = new_srq_qp(type, c.srq);
		connect_pair(i);
	}
}

static void close_crowd(void)
{
	CHECK(ibv_destroy_srq(c.srq) == EBUSY, "a queue that others use was destroyed");
	for (int i = 0; i < c.pairs; i++) {
		side_end(&c.a[i]);
		DESTROY(c.b[i].qp);
	}
	DESTROY(c.srq, c.cq, c.ah);
}

/* Returns an errno. */
static int offer(uint64_t slot)
{
	struct ibv_sge list = sge(&p.b, slot % SLOTS * SLOT, SLOT);

	return post_shared_receive(c.srq, slot, &list, 1);
}

static void send_to(int pair, uint64_t id, uint32_t len, unsigned int seed)
{
	size_t at = (pair * WINDOW + id % WINDOW) * SLOT;
	struct ibv_sge list = sge(&c.a[pair], at, len);
	struct ibv_send_wr w = wr(IBV_WR_SEND, id, &list, 1);

	fill(p.a.buf + at, len, seed);
	if (c.type == IBV_QPT_UD)
		address(&w, c.ah, c.b[pair].qp, KEY);
	post(&c.a[pair], &w);
}

/* The header in front of a message. */
static uint32_t front(void)
{
	return c.type == IBV_QPT_UD ? GRH : 0;
}

/* A message from here to there: it takes the next receive, which must be this one. */
static void arrive(int pair, uint64_t slot, uint32_t len, unsigned int seed)
{
	send_to(pair, slot, len, seed);
	struct ibv_wc wc = expect_both(&c.a[pair], slot, &c.b[pair], slot, "a message");

	CHECK(wc.byte_len == front() + len, "%u bytes", wc.byte_len);
	compare(p.b.buf + slot % SLOTS * SLOT + front(), len, seed, "a message");
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

CASE("queues.srq-limit", "the limit is told once", .rxe = "tells nothing when the limit was reached before", CROWD)
{
	open_crowd(IBV_QPT_RC, 2, 16);
	CHECK(!asked().srq_limit && asked().max_wr == 16 && asked().max_sge >= 3, "it has %u receives, limit %u",
	      asked().max_wr, asked().srq_limit);
	for (int i = 0; i < 10; i++)
		MUST(offer(i));
	CHECK(modify(IBV_SRQ_LIMIT, 0, 17) == EINVAL, "a limit that is never kept");
	CHECK(modify(4, 0, 1) == EINVAL, "an attribute that there is not");
	MUST(modify(IBV_SRQ_LIMIT, 0, 7));
	for (int i = 0; i < 3; i++)
		arrive(i % 2, i, 100, i);
	want_no_event("there are as many as the limit");
	CHECK(asked().srq_limit == 7, "the limit is %u", asked().srq_limit);
	arrive(1, 3, 100, 3);
	want_event(IBV_EVENT_SRQ_LIMIT_REACHED, c.srq, "one fewer than the limit");
	CHECK(!asked().srq_limit, "the limit is %u still", asked().srq_limit);
	arrive(0, 4, 100, 4);
	want_no_event("the limit is not armed");
	/* There are 5: who arms it too late learns at once. */
	MUST(modify(IBV_SRQ_LIMIT, 0, 6));
	want_event(IBV_EVENT_SRQ_LIMIT_REACHED, c.srq, "the limit was reached before");
	MUST(modify(IBV_SRQ_LIMIT, 0, 5));
	MUST(modify(IBV_SRQ_LIMIT, 0, 0));
	arrive(0, 5, 100, 5);
	want_no_event("the limit was disarmed");
	close_crowd();
}

CASE("queues.srq-resize", "a shared queue that is resized keeps its receives",
     .rxe = "tells nothing when the limit was reached before", CROWD)
{
	static const unsigned int sizes[] = { 64, 10, 2000, 16, 11, 128 };
	struct ibv_device_attr device = device_of(p.b.ctx);
	uint64_t offered = 0, taken = 0;

	open_crowd(IBV_QPT_RC, 2, 16);
	CHECK(device.device_cap_flags & IBV_DEVICE_SRQ_RESIZE, "the device does not say that it can");
	for (size_t i = 0; i < 6 * COUNT(sizes); i++) {
		unsigned int size = sizes[i % COUNT(sizes)];

		for (; offered < taken + 10; offered++)
			MUST(offer(offered));
		MUST(modify(IBV_SRQ_MAX_WR, size, 0));
		CHECK(asked().max_wr >= size && asked().max_wr < 2 * size, "%u receives, not %u", asked().max_wr, size);
		for (size_t n = i % COUNT(sizes) * 2; n; n--, taken++)
			arrive(n % 2, taken, 2000, taken);
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
	for (; taken < offered; taken++)
		arrive(0, taken, 10, 1);
	close_crowd();
}

/* The memory of the domain of the shared queue counts, not that of the queue pair: also under the header of a datagram. */
static void rules_of_memory(enum ibv_qp_type type)
{
	open_crowd(type, 1, 16);
	struct ibv_pd *pd = new_pd(p.b.ctx);
	struct ibv_srq *srq = new_srq(pd, 4, 3);
	struct ibv_mr *mr = new_mr(pd, p.b.buf, SLOT, ALL_ACCESS);
	const uint32_t keys[] = { mr->lkey, p.b.mr->lkey };

	DESTROY(c.b[0].qp);
	c.b[0].qp = new_srq_qp(type, srq);
	connect_pair(0);
	memset(p.b.buf, 0xee, 512);
	for (int i = 0; i < 2; i++) {
		struct ibv_sge room = sge(&p.b, i * 256, GRH + 100);

		room.lkey = keys[i];
		MUST(post_shared_receive(srq, 9 + i, &room, 1));
		send_to(0, 1 + i, 100, 7);
		expect(&c.b[0], 9 + i, i ? IBV_WC_LOC_PROT_ERR : IBV_WC_SUCCESS,
		       i ? "memory of the domain of the queue pair" : "memory of the domain of the queue");
		expect(&c.a[0], 1 + i, i && type == IBV_QPT_RC ? IBV_WC_REM_OP_ERR : IBV_WC_SUCCESS, "the SEND");
	}
	compare(p.b.buf + front(), 100, 7, "the message");
	for (int n = 256; n < 512; n++)
		CHECK(p.b.buf[n] == 0xee, "byte %d of the other one was written", n);
	want_event(IBV_EVENT_QP_LAST_WQE_REACHED, c.b[0].qp, "ended by an error");
	DESTROY(c.b[0].qp, srq, mr, pd);
	c.b[0].qp = new_srq_qp(type, c.srq);
	close_crowd();
}

CASE("queues.srq-empty", "with nothing there the sender waits, or is told", CROWD)
{
	struct connection impatient = usual;

	open_crowd(IBV_QPT_RC, 2, 16);
	send_to(0, 1, 3000, 7);
	expect_none(&c.a[0], 20, "there is no receive");
	MUST(offer(1));
	expect_both(&c.a[0], 1, &c.b[0], 1, "the SEND that waited");
	compare(p.b.buf + SLOT, 3000, 7, "the message that waited");
	impatient.rnr_retry = 0;
	MUST(to_state(&c.a[1], IBV_QPS_RESET));
	MUST(to_state(&c.b[1], IBV_QPS_RESET));
	connect_sides(&c.a[1], &c.b[1], impatient);
	send_to(1, 2, 100, 1);
	expect(&c.a[1], 2, IBV_WC_RNR_RETRY_EXC_ERR, "the SEND that may not wait");
	/* A WRITE needs none; one with immediate data does. */
	post_at(&c.a[0], IBV_WR_RDMA_WRITE_WITH_IMM, 3, 0, 100, &p.b, 0);
	expect_none(&c.a[0], 20, "there is no receive");
	MUST(offer(3));
	expect_both(&c.a[0], 3, &c.b[0], 3, "the WRITE that waited");
	close_crowd();
}

CASE("queues.srq-rules", "what is refused, and whose memory counts", .rxe = "counts the memory of the queue pair",
     CROWD)
{
	struct ibv_device_attr device = device_of(p.b.ctx);
	const struct ibv_srq_attr large[] = { { .max_wr = device.max_srq_wr + 1, .max_sge = 1 },
					      { .max_wr = 1, .max_sge = device.max_srq_sge + 1 } };
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	CHECK(device.max_srq > 0 && device.max_srq_wr > 0 && device.max_srq_sge > 0, "the device has no such queues");
	for (int i = 0; i < 2; i++) {
		struct ibv_srq_init_attr too_large = { .attr = large[i] };

		CHECK(!ibv_create_srq(p.b.pd, &too_large) && errno == EINVAL, "%u receives of %u entries: %s",
		      large[i].max_wr, large[i].max_sge, strerror(errno));
	}
	open_crowd(IBV_QPT_RC, 1, 16);
	CHECK(post_receive(c.b[0].qp, 1, NULL, 0) == EINVAL, "it took a receive of its own");
	MUST(ibv_query_qp(c.b[0].qp, &attr, IBV_QP_CAP, &init));
	CHECK(init.srq == c.srq && !init.cap.max_recv_wr, "it has %u receives of its own", init.cap.max_recv_wr);
	close_crowd();
	rules_of_memory(IBV_QPT_RC);
	rules_of_memory(IBV_QPT_UD);
}

static void lose_one(int i, uint32_t len, const char *counter)
{
	long before = counter_of(counter);

	send_to(i, 99, len, 99);
	expect(&c.a[i], 99, IBV_WC_SUCCESS, "what is lost");
	want_counted(counter, before);
	expect_none(&c.b[i], 2, "of what was lost");
}

static void share(enum ibv_qp_type type)
{
	open_crowd(type, 3, 16);
	const uint32_t too_long = SLOT - front() + 1;

	for (int i = 0; i < 3; i++)
		lose_one(i, 10, "lost_no_receive");
	for (int i = 0; i < 8; i++)
		MUST(offer(i));
	for (int i = 0; i < 5; i++)
		arrive(i % 3, i, 1000 * i / 2, i);
	/* What is too long is lost; the queue pair keeps the receive for its next message, the others take others. */
	lose_one(0, too_long, "lost_too_long");
	lose_one(0, too_long, "lost_too_long");
	arrive(1, 6, 30, 22);
	arrive(0, 5, 31, 23);
	arrive(0, 7, 32, 24);
	for (int i = 0; i < 3; i++)
		lose_one(i, 10, "lost_no_receive");
	/* A queue pair in ERR gives back what it has kept; the others go on. */
	for (int i = 8; i < 11; i++)
		MUST(offer(i));
	lose_one(2, too_long, "lost_too_long");
	MUST(to_state(&c.b[2], IBV_QPS_ERR));
	expect(&c.b[2], 8, IBV_WC_WR_FLUSH_ERR, "what it had kept");
	want_event(IBV_EVENT_QP_LAST_WQE_REACHED, c.b[2].qp, "in ERR");
	lose_one(2, 10, "drop_state");
	arrive(0, 9, 33, 25);
	arrive(1, 10, 34, 26);
	close_crowd();
}

CASE("queues.srq-uc", "UC with a shared queue: messages that are too long, a queue pair that fails",
     .rxe = "ends such a queue pair in error", CROWD)
{
	share(IBV_QPT_UC);
}

CASE("queues.srq-ud", "UD with a shared queue: messages that are too long, a queue pair that fails",
     .rxe = "ends such a queue pair in error", CROWD)
{
	share(IBV_QPT_UD);
}
