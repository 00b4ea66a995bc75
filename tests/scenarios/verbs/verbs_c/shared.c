// SPDX-License-Identifier: GPL-2.0
/* Cases about unreliable services whose receives come from a shared queue: what is lost, and what becomes of its receive. */
#include "datagrams.h"

enum { QPS = 3, SLOT = 2048, SLOTS = 16, TOO_LONG = SLOT + 100 };

/* Three queue pairs of b share a queue; each hears of one of a. The pair of the case is beside them. */
static struct trio {
	enum ibv_qp_type type;
	struct side a[QPS], b[QPS];
	struct ibv_srq *srq;
	struct ibv_ah *ah;
	uint64_t posted, taken;
} t;

static void open_trio(enum ibv_qp_type type)
{
	static const struct ibv_qp_cap cap = { .max_send_wr = 1, .max_send_sge = 1 };

	t.type = type;
	t.srq = new_srq(p.b.pd, SLOTS, 1);
	t.ah = new_ah(p.a.pd, way(&p.a, &p.b));
	for (int i = 0; i < QPS; i++) {
		t.a[i] = side_beside(&p.a, type, DEPTH);
		t.b[i] = p.b;
		t.b[i].cq = new_cq(p.b.ctx, DEPTH, NULL, NULL);
		t.b[i].qp = new_sharing_qp_of(type, p.b.pd, t.b[i].cq, cap, t.srq);
		if (type == IBV_QPT_UD) {
			ready(t.a[i].qp, KEY);
			ready(t.b[i].qp, KEY);
		} else {
			connect_sides(&t.a[i], &t.b[i], usual);
		}
	}
}

static void close_trio(void)
{
	for (int i = 0; i < QPS; i++) {
		side_end(&t.a[i]);
		side_end(&t.b[i]);
	}
	DESTROY(t.srq, t.ah);
}

static void offer(int n)
{
	for (; n; n--, t.posted++) {
		struct ibv_sge room = sge(&p.b, HALF + t.posted % SLOTS * SLOT, SLOT);

		MUST(post_shared_receive(t.srq, t.posted, &room, 1));
	}
}

static void send_to(int i, uint32_t len, unsigned int seed)
{
	struct ibv_sge list = sge(&t.a[i], 0, len);
	struct ibv_send_wr w = wr(IBV_WR_SEND, seed, &list, 1);

	fill(t.a[i].buf, len, seed);
	if (t.type == IBV_QPT_UD)
		address(&w, t.ah, t.b[i].qp, KEY);
	post(&t.a[i], &w);
	expect(&t.a[i], seed, IBV_WC_SUCCESS, "a message");
}

/* A message that arrives, in this receive. */
static void arrive_in(int i, uint64_t slot, uint32_t len, unsigned int seed)
{
	uint32_t front = t.type == IBV_QPT_UD ? GRH : 0;

	send_to(i, len, seed);
	struct ibv_wc wc = expect(&t.b[i], slot, IBV_WC_SUCCESS, "its receive");

	CHECK(wc.byte_len == front + len && wc.qp_num == t.b[i].qp->qp_num, "%u bytes for queue pair %u", wc.byte_len,
	      wc.qp_num);
	compare(p.b.buf + HALF + slot % SLOTS * SLOT + front, len, seed, "a message");
}

/* In the next one. */
static void arrive(int i, uint32_t len, unsigned int seed)
{
	arrive_in(i, t.taken++, len, seed);
}

static void lose_one(int i, uint32_t len, const char *counter)
{
	long before = counter_of(counter);

	send_to(i, len, 99);
	want_counted(counter, before);
	for (int k = 0; k < QPS; k++)
		expect_none(&t.b[k], 2, "of what was lost");
}

static void share(enum ibv_qp_type type)
{
	struct ibv_srq_attr limit = { .srq_limit = 5 };
	struct ibv_async_event e;
	uint64_t kept;

	open_trio(type);
	for (int i = 0; i < QPS; i++)
		lose_one(i, 10, "lost_no_receive");
	offer(12);
	for (int n = 0; n < 7; n++)
		arrive(n * 2 % QPS, n ? 200 * n : 0, n);
	/* Five are left: the next one makes it fewer. */
	MUST(ibv_modify_srq(t.srq, &limit, IBV_SRQ_LIMIT));
	CHECK(!next_device_event(p.b.ctx, 10, &e), "the limit was told early");
	arrive(0, 20, 20);
	want_device_event(p.b.ctx, IBV_EVENT_SRQ_LIMIT_REACHED, t.srq, "below the limit");
	arrive(1, 20, 21);
	CHECK(!next_device_event(p.b.ctx, 10, &e), "the limit was told twice");
	/* What is too long for its receive is lost; the queue pair keeps that for its next message, the others take others. */
	lose_one(0, TOO_LONG, "lost_too_long");
	lose_one(0, TOO_LONG, "lost_too_long");
	kept = t.taken++;
	arrive(1, 30, 22);
	arrive_in(0, kept, 31, 23);
	arrive(0, 32, 24);
	for (int i = 0; i < QPS; i++)
		lose_one(i, 10, "lost_no_receive");
	/* A queue pair in ERR gives back what it has kept; the others go on. */
	offer(3);
	lose_one(2, TOO_LONG, "lost_too_long");
	kept = t.taken++;
	MUST(qp_to(t.b[2].qp, IBV_QPS_ERR));
	expect(&t.b[2], kept, IBV_WC_WR_FLUSH_ERR, "what it had kept");
	want_device_event(p.b.ctx, IBV_EVENT_QP_LAST_WQE_REACHED, t.b[2].qp, "in ERR");
	lose_one(2, 10, "drop_state");
	arrive(0, 33, 25);
	arrive(1, 34, 26);
	close_trio();
}

static void uc_share(void)
{
	share(IBV_QPT_UC);
}

static void ud_share(void)
{
	share(IBV_QPT_UD);
}

const struct test_case shared_cases[] = {
	{ "srq-uc", uc_share, "UC with a shared queue: limit, messages that are too long, a queue pair that fails",
	  .rxe = "ends such a queue pair in error", UD },
	{ "srq-ud", ud_share, "UD with a shared queue: limit, messages that are too long, a queue pair that fails",
	  .rxe = "ends such a queue pair in error", UD },
	{ NULL },
};
