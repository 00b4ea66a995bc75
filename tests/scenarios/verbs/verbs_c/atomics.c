// SPDX-License-Identifier: GPL-2.0
/* Atomic operations: what they find and leave, also when others change the same word at the same time. */
#include "pair.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

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

static uint64_t word_at(const uint8_t *at)
{
	uint64_t value;

	memcpy(&value, at, sizeof(value));
	return value;
}

static bool neighbours_are(struct pair *p, uint64_t value)
{
	return word(p)[-1] == value && word(p)[1] == value;
}

static void values(void)
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

	for (unsigned int i = 0; i < COUNT(rows); i++) {
		/* One entry, and pieces on odd addresses. */
		struct ibv_sge list[3] = { sge(&p.a, 8 * i, 8) };
		bool pieces = i % 2;
		uint64_t found;

		if (pieces) {
			list[0] = sge(&p.a, 1001, 3);
			list[1] = sge(&p.a, 2001, 0);
			list[2] = sge(&p.a, 3001, 5);
		}
		memset(p.a.buf, 0xee, p.a.len);
		memset(p.b.buf, 0xdd, p.b.len);
		*word(&p) = rows[i].before;
		post_atomic(&p, rows[i].op, i, list, pieces ? 3 : 1, &p, rows[i].compare_add, rows[i].swap);
		struct ibv_wc wc = expect(&p.a, i, IBV_WC_SUCCESS, "an atomic operation");
		bool adds = rows[i].op == IBV_WR_ATOMIC_FETCH_AND_ADD;
		CHECK(wc.opcode == (adds ? IBV_WC_FETCH_ADD : IBV_WC_COMP_SWAP), "opcode %d", wc.opcode);
		CHECK(wc.byte_len == 8, "%u bytes", wc.byte_len);
		if (pieces) {
			memcpy(&found, p.a.buf + 1001, 3);
			memcpy((uint8_t *)&found + 3, p.a.buf + 3001, 5);
			CHECK(p.a.buf[1004] == 0xee && p.a.buf[2001] == 0xee && p.a.buf[3006] == 0xee, "too much came");
		} else {
			found = word_at(p.a.buf + 8 * i);
			CHECK(p.a.buf[8 * i + 8] == 0xee, "too much came");
		}
		CHECK(found == rows[i].before, "row %u found %#llx, not %#llx", i, (unsigned long long)found,
		      (unsigned long long)rows[i].before);
		CHECK(*word(&p) == rows[i].after, "row %u left %#llx, not %#llx", i, (unsigned long long)*word(&p),
		      (unsigned long long)rows[i].after);
		CHECK(neighbours_are(&p, 0xdddddddddddddddd), "its neighbours changed");
	}
}

/* Among READs and WRITEs, more than may be under way at a time; unsignalled ones and fences. */
static void in_order(void)
{
	enum { N = 40 };
	struct ibv_sge list[N];

	*word(&p) = 0;
	for (int i = 0; i < N; i++) {
		bool reads = i % 4 == 3;
		struct ibv_send_wr w = wr(reads ? IBV_WR_RDMA_READ : IBV_WR_ATOMIC_FETCH_AND_ADD, i, &list[i], 1);

		list[i] = sge(&p.a, 8 * i, 8);
		if (reads) {
			aim(&w, &p.b, WORD);
			w.send_flags |= IBV_SEND_FENCE;
		} else {
			w.wr.atomic.remote_addr = (uintptr_t)word(&p);
			w.wr.atomic.rkey = p.b.mr->rkey;
			w.wr.atomic.compare_add = 1;
			w.send_flags = 0;
		}
		post(&p.a, &w);
	}
	for (int i = 3; i < N; i += 4)
		expect(&p.a, i, IBV_WC_SUCCESS, "a READ between them");
	for (uint64_t i = 0; i < N; i++) {
		uint64_t found = word_at(p.a.buf + 8 * i), want = i / 4 * 3 + i % 4;

		/* A READ may come before what is behind it, but not later than its fence. */
		CHECK(found == want || (i % 4 == 3 && found > want && found <= want + 3), "number %llu found %llu",
		      (unsigned long long)i, (unsigned long long)found);
	}
	CHECK(*word(&p) == N / 4 * 3, "%llu in the end", (unsigned long long)*word(&p));
}

enum { ROUNDS = 400, WINDOW = 8 };

/* Who still adds, or locks; and what a processor has done meanwhile. */
static atomic_int left;
static uint64_t by_hand;

/* Adds 1 until the others have done all of theirs, and at least as often as one of them. */
static void *adds_by_hand(void *unused)
{
	while (atomic_load(&left) || by_hand < ROUNDS) {
		atomic_fetch_add((_Atomic uint64_t *)word(&p), 1);
		by_hand++;
	}
	return unused;
}

/* ROUNDS times FETCH_ADD of 1 by a queue pair; what each has found. */
struct adder {
	struct pair *by;
	uint64_t found[ROUNDS];
};

static void *adds(void *arg)
{
	struct adder *a = arg;
	struct ibv_sge list[WINDOW];
	unsigned int posted = 0;

	for (unsigned int i = 0; i < WINDOW; i++)
		list[i] = sge(&a->by->a, 8 * i, 8);
	for (unsigned int done = 0; done < ROUNDS; done++) {
		for (; posted < ROUNDS && posted < done + WINDOW; posted++)
			post_atomic(a->by, IBV_WR_ATOMIC_FETCH_AND_ADD, posted, &list[posted % WINDOW], 1, &p, 1, 0);
		expect(&a->by->a, done, IBV_WC_SUCCESS, "FETCH_ADD");
		a->found[done] = word_at(a->by->a.buf + 8 * (done % WINDOW));
		CHECK(!done || a->found[done] > a->found[done - 1], "a value was found twice");
	}
	atomic_fetch_sub(&left, 1);
	return NULL;
}

static int by_value(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

/* Two queue pairs and a processor count in one word: nothing is lost, and no two find the same. */
static void crowd(void)
{
	static struct adder adders[2];
	static uint64_t all[2 * ROUNDS];
	pthread_t hand, threads[2];
	struct pair beside;

	pair_open_beside(&beside, &p, 8192);
	*word(&p) = 0;
	left = 2;
	MUST(pthread_create(&hand, NULL, adds_by_hand, NULL));
	for (int i = 0; i < 2; i++) {
		adders[i].by = i ? &beside : &p;
		MUST(pthread_create(&threads[i], NULL, adds, &adders[i]));
	}
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	pthread_join(hand, NULL);
	CHECK(*word(&p) == by_hand + 2 * ROUNDS, "%llu of %llu", (unsigned long long)*word(&p),
	      (unsigned long long)by_hand + 2 * ROUNDS);
	for (int i = 0; i < 2; i++)
		memcpy(all + i * ROUNDS, adders[i].found, sizeof(adders[i].found));
	qsort(all, 2 * ROUNDS, sizeof(*all), by_value);
	for (int i = 1; i < 2 * ROUNDS; i++)
		CHECK(all[i] != all[i - 1], "two queue pairs found %llu", (unsigned long long)all[i]);
	CHECK(all[2 * ROUNDS - 1] >= 2 * ROUNDS - 1, "some of them found too little");
	pair_close(&beside);
}

/* What the lock in the word guards: 0 is free. */
static volatile uint64_t guarded;

static void *locks_by_hand(void *unused)
{
	while (atomic_load(&left)) {
		uint64_t is_free = 0;

		if (atomic_compare_exchange_strong((_Atomic uint64_t *)word(&p), &is_free, 1)) {
			guarded++;
			by_hand++;
			atomic_store((_Atomic uint64_t *)word(&p), 0);
		}
		sched_yield();
	}
	return unused;
}

/* CMP_SWAP on the word; what it has found. */
static uint64_t swapped(uint64_t from, uint64_t to)
{
	struct ibv_sge list = sge(&p.a, 0, 8);

	post_atomic(&p, IBV_WR_ATOMIC_CMP_AND_SWP, 1, &list, 1, &p, from, to);
	expect(&p.a, 1, IBV_WC_SUCCESS, "CMP_SWAP");
	return word_at(p.a.buf);
}

/* CMP_SWAP takes a lock that a processor takes too: what it guards is never changed by two at once. */
static void locked(void)
{
	unsigned int taken = 0;
	pthread_t hand;

	*word(&p) = 0;
	left = 1;
	MUST(pthread_create(&hand, NULL, locks_by_hand, NULL));
	while (taken < ROUNDS / 4) {
		uint64_t found = swapped(0, 2);

		CHECK(found < 2, "found %llu", (unsigned long long)found);
		if (found)
			continue;
		taken++;
		guarded++;
		found = swapped(2, 0);
		CHECK(found == 2, "who held the lock found %llu", (unsigned long long)found);
	}
	atomic_store(&left, 0);
	pthread_join(hand, NULL);
	CHECK(guarded == taken + by_hand, "%llu changes, not %llu", (unsigned long long)guarded,
	      (unsigned long long)(taken + by_hand));
}

/* Gives both sides queue pairs that post by ibv_wr_* and permit this, and connects them. */
static void extend(int access)
{
	struct side *sides[] = { &p.a, &p.b };

	for (int i = 0; i < 2; i++) {
		struct ibv_qp_init_attr_ex init = {
			.qp_type = IBV_QPT_RC, .send_cq = sides[i]->cq, .recv_cq = sides[i]->cq, .pd = sides[i]->pd,
			.cap = { DEPTH, DEPTH, MAX_SGE, MAX_SGE, INLINE_BYTES },
			.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
			.send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_ATOMIC_WRITE | IBV_QP_EX_WITH_FLUSH |
					  IBV_QP_EX_WITH_SEND,
		};

		DESTROY(sides[i]->qp);
		sides[i]->qp = ibv_create_qp_ex(sides[i]->ctx, &init);
		CHECK(sides[i]->qp, "ibv_create_qp_ex: %s", strerror(errno));
	}
	pair_connect(&p);
	for (int i = 0; i < 2; i++) {
		struct ibv_qp_attr attr = { .qp_access_flags = access };

		MUST(ibv_modify_qp(sides[i]->qp, &attr, IBV_QP_ACCESS_FLAGS));
	}
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

static struct ibv_qp_ex *extended(struct side *s, uint64_t id)
{
	struct ibv_qp_ex *x = ibv_qp_to_qp_ex(s->qp);

	CHECK(x, "the queue pair has no extended interface");
	ibv_wr_start(x);
	x->wr_id = id;
	x->wr_flags = IBV_SEND_SIGNALED;
	return x;
}

enum { FLUSHES = IBV_ACCESS_FLUSH_GLOBAL | IBV_ACCESS_FLUSH_PERSISTENT };

/* ATOMIC WRITE: eight bytes in the order of memory, from wherever they are; and where it may not. */
static void atomic_write(void)
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
		struct ibv_qp_ex *x = extended(&p.a, i);
		ibv_wr_atomic_write(x, p.b.mr->rkey, (uintptr_t)word(&p) + rows[i].offset, text + 1);
		/* It is taken when it is posted. */
		memset(text, 'x', sizeof(text));
		MUST(ibv_wr_complete(x));
		want_end(i, rows[i].status, IBV_WC_ATOMIC_WRITE);
		CHECK(!memcmp(word(&p), rows[i].status ? "\xdd\xdd\xdd\xdd\xdd\xdd\xdd\xdd" : "12345678", 8), "wrong bytes");
		CHECK(neighbours_are(&p, 0xdddddddddddddddd), "its neighbours changed");
	}
}

/* FLUSH of a range and of a region, behind a WRITE in one list; and where it may not. */
static void flush(void)
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
		struct ibv_qp_ex *x = extended(&p.a, 100 + i);
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
}

/* Nothing persists: who wants memory that does is told so. */
static void no_persistence(void)
{
	struct ibv_device_attr_ex attr;

	MUST(ibv_query_device_ex(p.a.ctx, NULL, &attr));
	CHECK(attr.orig_attr.atomic_cap == IBV_ATOMIC_GLOB, "atomic_cap %d", attr.orig_attr.atomic_cap);
	errno = 0;
	CHECK(!ibv_reg_mr(p.a.pd, p.a.buf, 4096, ALL_ACCESS | IBV_ACCESS_FLUSH_PERSISTENT), "it was registered");
	CHECK(errno == EOPNOTSUPP || errno == EINVAL, "refused with %s", strerror(errno));
}

const struct test_case atomic_cases[] = {
	{ "atomic-values", values, "what CMP_SWAP and FETCH_ADD find and leave, in the order of memory",
	  .len = 8192 },
	{ "atomic-order", in_order, "atomic operations and READs, more than may be under way, each finds what is before it",
	  .opt = { .rd_atomic = 2 }, .len = 8192 },
	{ "atomic-crowd", crowd, "two queue pairs and a processor add to one word: none is lost", .seconds = 120,
	  .len = 8192 },
	{ "atomic-lock", locked, "CMP_SWAP takes a lock that a processor takes too", .seconds = 120, .len = 8192 },
	{ "atomic-write", atomic_write, "ATOMIC WRITE, by ibv_wr_*: eight bytes as they are; and where it may not",
	  .opt = { .no_connect = true }, .len = 8192 },
	{ "atomic-flush", flush, "FLUSH of a range and of a region behind a WRITE; and where it may not",
	  .opt = { .no_connect = true }, .len = 8192 },
	{ "atomic-no-persistence", no_persistence, "memory that is to persist is refused", LOCAL_PATH,
	  .rxe = "has the flag, and refuses memory that is not persistent with EINVAL", .len = 4096 },
	{ NULL },
};
