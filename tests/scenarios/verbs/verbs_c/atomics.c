// SPDX-License-Identifier: GPL-2.0
/* Atomic operations: what they find and leave, also when others change the same word at the same time. */
#include "pair.h"

/* Where the word is in the buffer of b, with words around it that nobody touches. */
enum { WORD = 4096 };

static uint64_t *word(struct pair *p)
{
	return (uint64_t *)(p->b.buf + WORD);
}

/* One operation of `by` on the word of `target`, into these places of the buffer of `by`. */
static void post_atomic(struct pair *by, enum ibv_wr_opcode op, uint64_t id, struct ibv_sge *list, int n,
			struct pair *target, uint64_t compare_add, uint64_t swap)
{
	struct ibv_send_wr w = wr(op, id, list, n);

	w.wr.atomic.remote_addr = (uintptr_t)word(target);
	w.wr.atomic.rkey = target->b.mr->rkey;
	w.wr.atomic.compare_add = compare_add;
	w.wr.atomic.swap = swap;
	post(&by->a, &w);
}

static bool neighbours_are(struct pair *p, uint64_t value)
{
	return word(p)[-1] == value && word(p)[1] == value;
}

CASE("verbs.atomic-values", "what CMP_SWAP and FETCH_ADD find and leave, in the order of memory", .len = 8192)
{
	static const struct {
		enum ibv_wr_opcode op;
		uint64_t before, compare_add, swap, after;
	} rows[] = {
		{ IBV_WR_ATOMIC_FETCH_AND_ADD, 0x0102030405060708, 1, 77, 0x0102030405060709 },
		{ IBV_WR_ATOMIC_FETCH_AND_ADD, 0xffffffff, 1, 0, 0x100000000 },
		{ IBV_WR_ATOMIC_FETCH_AND_ADD, ~0ull, 2, 0, 1 },
		{ IBV_WR_ATOMIC_FETCH_AND_ADD, 5, -5ull, 0, 0 },
		{ IBV_WR_ATOMIC_CMP_AND_SWP, 0x8877665544332211, 0x8877665544332211, 0x1122334455667788,
		  0x1122334455667788 },
		{ IBV_WR_ATOMIC_CMP_AND_SWP, 0x8877665544332211, 0x8877665544332210, 1, 0x8877665544332211 },
		{ IBV_WR_ATOMIC_CMP_AND_SWP, 0x100000000, 0, 1, 0x100000000 },
		{ IBV_WR_ATOMIC_CMP_AND_SWP, 0, 0, ~0ull, ~0ull },
	};
	struct ibv_device_attr device;

	MUST(ibv_query_device(p.a.ctx, &device));
	CHECK(on_rxe() || device.atomic_cap == IBV_ATOMIC_GLOB, "atomic_cap %d", device.atomic_cap);
	for (unsigned int i = 0; i < COUNT(rows); i++) {
		/* Pieces on odd addresses. */
		struct ibv_sge list[] = { sge(&p.a, 1001, 3), sge(&p.a, 2001, 0), sge(&p.a, 3001, 5) };
		bool adds = rows[i].op == IBV_WR_ATOMIC_FETCH_AND_ADD;
		uint64_t found;

		memset(p.a.buf, 0xee, p.a.len);
		memset(p.b.buf, 0xdd, p.b.len);
		*word(&p) = rows[i].before;
		post_atomic(&p, rows[i].op, i, list, 3, &p, rows[i].compare_add, rows[i].swap);
		struct ibv_wc wc = expect(&p.a, i, IBV_WC_SUCCESS, "an atomic operation");

		CHECK(wc.opcode == (adds ? IBV_WC_FETCH_ADD : IBV_WC_COMP_SWAP), "opcode %d", wc.opcode);
		CHECK(wc.byte_len == 8, "%u bytes", wc.byte_len);
		memcpy(&found, p.a.buf + 1001, 3);
		memcpy((uint8_t *)&found + 3, p.a.buf + 3001, 5);
		CHECK(p.a.buf[1004] == 0xee && p.a.buf[2001] == 0xee && p.a.buf[3006] == 0xee, "too much came");
		CHECK(found == rows[i].before, "row %u found %#llx, not %#llx", i, (unsigned long long)found,
		      (unsigned long long)rows[i].before);
		CHECK(*word(&p) == rows[i].after, "row %u left %#llx, not %#llx", i, (unsigned long long)*word(&p),
		      (unsigned long long)rows[i].after);
		CHECK(neighbours_are(&p, 0xdddddddddddddddd), "its neighbours changed");
	}
}

enum { ROUNDS = 400, WINDOW = 8 };

/* Queue pairs that still add; and how often a processor has added meanwhile. */
static atomic_int left = 2;
static uint64_t by_hand;
/* The second queue pair, and what each addition has found. */
static struct pair beside;
static uint64_t found_by[2][ROUNDS];

/* As fast as it can, with pauses in which a CMP_SWAP has a chance. */
static void *adds_by_hand(void *unused)
{
	for (; atomic_load(&left); by_hand++) {
		atomic_fetch_add((_Atomic uint64_t *)word(&p), 1);
		if (by_hand % 10000 == 0)
			rest();
	}
	return unused;
}

static void *adds(void *unused)
{
	struct ibv_sge list[WINDOW];
	unsigned int posted = 0;

	for (unsigned int i = 0; i < WINDOW; i++)
		list[i] = sge(&p.a, 8 * i, 8);
	for (unsigned int done = 0; done < ROUNDS; done++) {
		for (; posted < ROUNDS && posted < done + WINDOW; posted++)
			post_atomic(&p, IBV_WR_ATOMIC_FETCH_AND_ADD, posted, &list[posted % WINDOW], 1, &p, 1, 0);
		expect(&p.a, done, IBV_WC_SUCCESS, "FETCH_ADD");
		memcpy(&found_by[0][done], p.a.buf + 8 * (done % WINDOW), 8);
	}
	atomic_fetch_sub(&left, 1);
	return unused;
}

/* From what the last one has found to one more. */
static void *swaps(void *unused)
{
	struct ibv_sge list = sge(&beside.a, 0, 8);
	uint64_t found, guess = 0;

	for (unsigned int done = 0; done < ROUNDS; guess = found) {
		post_atomic(&beside, IBV_WR_ATOMIC_CMP_AND_SWP, done, &list, 1, &p, guess, guess + 1);
		expect(&beside.a, done, IBV_WC_SUCCESS, "CMP_SWAP");
		memcpy(&found, beside.a.buf, 8);
		if (found == guess)
			found_by[1][done++] = found++;
	}
	atomic_fetch_sub(&left, 1);
	return unused;
}

CASE("verbs.atomic-crowd", "a queue pair adds to a word, another swaps it, a processor adds: none is lost", .seconds = 120,
     .len = 8192)
{
	static const struct crew crews[] = { { adds_by_hand, 1 }, { adds, 1 }, { swaps, 1 } };

	pair_open_beside(&beside, &p, 8192);
	*word(&p) = 0;
	run_crews(crews, COUNT(crews));
	CHECK(*word(&p) == by_hand + 2 * ROUNDS, "%llu of %llu", (unsigned long long)*word(&p),
	      (unsigned long long)by_hand + 2 * ROUNDS);
	for (int n = 0; n < 2; n++)
		for (int i = 1; i < ROUNDS; i++)
			CHECK(found_by[n][i] > found_by[n][i - 1], "a value was found twice");
	for (int i = 0, j = 0; i < ROUNDS && j < ROUNDS; found_by[0][i] < found_by[1][j] ? i++ : j++)
		CHECK(found_by[0][i] != found_by[1][j], "both found %llu", (unsigned long long)found_by[0][i]);
	pair_close(&beside);
}

/* Gives a a queue pair that posts by ibv_wr_*, connects both, and has b permit this. */
static void extend(int access)
{
	struct ibv_qp_attr attr = { .qp_access_flags = access };
	struct ibv_qp_init_attr_ex init = {
		.qp_type = IBV_QPT_RC, .send_cq = p.a.cq, .recv_cq = p.a.cq, .pd = p.a.pd,
		.cap = { DEPTH, DEPTH, MAX_SGE, MAX_SGE, INLINE_BYTES },
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_ATOMIC_WRITE | IBV_QP_EX_WITH_FLUSH,
	};

	DESTROY(p.a.qp);
	p.a.qp = ibv_create_qp_ex(p.a.ctx, &init);
	CHECK(p.a.qp, "ibv_create_qp_ex: %s", strerror(errno));
	pair_reconnect(&p, NULL);
	MUST(ibv_modify_qp(p.b.qp, &attr, IBV_QP_ACCESS_FLAGS));
}

/* The request of a that was posted ends so, and at b there is an event if it is refused. */
static void want_end(uint64_t id, enum ibv_wc_status status, enum ibv_wc_opcode opcode)
{
	struct ibv_wc wc = expect(&p.a, id, status, "the request");
	bool good = status == IBV_WC_SUCCESS;
	struct ibv_async_event e;

	CHECK(!good || wc.opcode == opcode, "opcode %d, not %d", wc.opcode, opcode);
	CHECK(good == !next_device_event(p.b.ctx, good ? 0 : 2000, &e), "an event, or none");
}

static struct ibv_qp_ex *extended(uint64_t id)
{
	struct ibv_qp_ex *x = ibv_qp_to_qp_ex(p.a.qp);

	CHECK(x, "the queue pair has no extended interface");
	ibv_wr_start(x);
	x->wr_id = id;
	x->wr_flags = IBV_SEND_SIGNALED;
	return x;
}

enum { FLUSHES = IBV_ACCESS_FLUSH_GLOBAL | IBV_ACCESS_FLUSH_PERSISTENT };

CASE("verbs.atomic-write", "ATOMIC WRITE, by ibv_wr_*: eight bytes as they are; and where it may not",
     .opt = { .no_connect = true }, .len = 8192)
{
	static const struct {
		int offset, access;
		enum ibv_wc_status status;
	} rows[] = {
		{ 0, REMOTE_ACCESS, IBV_WC_SUCCESS },
		{ 4, REMOTE_ACCESS, IBV_WC_REM_INV_REQ_ERR },
		{ 4096, REMOTE_ACCESS, IBV_WC_REM_ACCESS_ERR },
		{ 0, IBV_ACCESS_REMOTE_READ, IBV_WC_REM_INV_REQ_ERR },
	};

	for (unsigned int i = 0; i < COUNT(rows); i++) {
		uint8_t text[] = "?12345678";

		extend(rows[i].access);
		memset(p.b.buf, 0xdd, p.b.len);
		struct ibv_qp_ex *x = extended(i);
		ibv_wr_atomic_write(x, p.b.mr->rkey, (uintptr_t)word(&p) + rows[i].offset, text + 1);
		/* It is taken when it is posted. */
		memset(text, 'x', sizeof(text));
		MUST(ibv_wr_complete(x));
		want_end(i, rows[i].status, IBV_WC_ATOMIC_WRITE);
		CHECK(!memcmp(word(&p), rows[i].status ? "\xdd\xdd\xdd\xdd\xdd\xdd\xdd\xdd" : "12345678", 8), "wrong bytes");
		CHECK(neighbours_are(&p, 0xdddddddddddddddd), "its neighbours changed");
	}
}

CASE("verbs.atomic-flush", "FLUSH of a range and of a region behind a WRITE; and where it may not",
     .opt = { .no_connect = true }, .len = 8192)
{
	static const struct {
		int offset, qp, mr;
		uint8_t placement, selectivity;
		enum ibv_wc_status status;
	} rows[] = {
		{ 0, FLUSHES, IBV_ACCESS_FLUSH_GLOBAL, IBV_FLUSH_GLOBAL, IBV_FLUSH_RANGE, IBV_WC_SUCCESS },
		{ 1 << 20, FLUSHES, IBV_ACCESS_FLUSH_GLOBAL, IBV_FLUSH_GLOBAL, IBV_FLUSH_MR, IBV_WC_SUCCESS },
		{ 1 << 20, FLUSHES, IBV_ACCESS_FLUSH_GLOBAL, IBV_FLUSH_GLOBAL, IBV_FLUSH_RANGE, IBV_WC_REM_ACCESS_ERR },
		{ 0, FLUSHES, 0, IBV_FLUSH_GLOBAL, IBV_FLUSH_RANGE, IBV_WC_REM_ACCESS_ERR },
		{ 0, FLUSHES, 0, IBV_FLUSH_GLOBAL, IBV_FLUSH_MR, IBV_WC_REM_ACCESS_ERR },
		{ 0, FLUSHES, IBV_ACCESS_FLUSH_GLOBAL, IBV_FLUSH_PERSISTENT, IBV_FLUSH_RANGE, IBV_WC_REM_ACCESS_ERR },
		{ 0, IBV_ACCESS_FLUSH_PERSISTENT, IBV_ACCESS_FLUSH_GLOBAL, IBV_FLUSH_GLOBAL, IBV_FLUSH_RANGE,
		  IBV_WC_REM_INV_REQ_ERR },
	};

	for (unsigned int i = 0; i < COUNT(rows); i++) {
		extend(REMOTE_ACCESS | rows[i].qp);
		DESTROY(p.b.mr);
		p.b.mr = new_mr(p.b.pd, p.b.buf, p.b.len, ALL_ACCESS | rows[i].mr);
		fill(p.a.buf, 100, i);
		struct ibv_qp_ex *x = extended(100 + i);
		x->wr_flags = 0;
		ibv_wr_rdma_write(x, p.b.mr->rkey, (uintptr_t)p.b.buf);
		ibv_wr_set_sge(x, p.a.mr->lkey, (uintptr_t)p.a.buf, 100);
		x->wr_id = i;
		x->wr_flags = IBV_SEND_SIGNALED;
		ibv_wr_flush(x, p.b.mr->rkey, (uintptr_t)p.b.buf + rows[i].offset, 100, rows[i].placement,
			     rows[i].selectivity);
		MUST(ibv_wr_complete(x));
		want_end(i, rows[i].status, IBV_WC_FLUSH);
		compare(p.b.buf, 100, i, "what was written before it");
	}
	/* Nothing persists: who wants memory that does is told so. */
	CHECK(!ibv_reg_mr(p.a.pd, p.a.buf, 4096, ALL_ACCESS | IBV_ACCESS_FLUSH_PERSISTENT), "it was registered");
	CHECK(errno == EOPNOTSUPP || errno == EINVAL, "refused with %s", strerror(errno));
}
