// SPDX-License-Identifier: GPL-2.0
/* Memory windows: what peers may do through them, and that it ends when it is to end. b has them, a is the peer. */
#include "pair.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { LEN = 8192, FROM = 1000, SIZE = 3000, READ = IBV_ACCESS_REMOTE_READ, WRITE = IBV_ACCESS_REMOTE_WRITE,
       BIND = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND };

struct windows {
	struct pair p;
	struct ibv_mr *mr;	/* b's memory, only for windows */
	struct ibv_mw *one, *two;	/* of both types, in b's domain */
	uint64_t at;		/* where most windows begin */
};

static void windows_open(struct windows *w, int access)
{
	pair_open(&w->p, NULL, LEN);
	w->mr = new_mr(w->p.b.pd, w->p.b.buf, LEN, access);
	w->one = new_mw(w->p.b.pd, IBV_MW_TYPE_1);
	w->two = new_mw(w->p.b.pd, IBV_MW_TYPE_2);
	w->at = (uintptr_t)w->p.b.buf + FROM;
}

static void windows_close(struct windows *w)
{
	DESTROY(w->one, w->two, w->mr);
	pair_close(&w->p);
}

static struct ibv_mw_bind_info info(struct windows *w, uint64_t at, uint64_t len, int access)
{
	return (struct ibv_mw_bind_info){ .mr = len ? w->mr : NULL, .addr = len ? (uintptr_t)w->p.b.buf + at : 0,
					  .length = len, .mw_access_flags = access };
}

/* The request that binds type 2, or type 1 without the help of the library. */
static struct ibv_send_wr bind_wr(struct ibv_mw *mw, uint32_t key, struct ibv_mw_bind_info what)
{
	struct ibv_send_wr w = wr(IBV_WR_BIND_MW, 3, NULL, 0);

	w.bind_mw.mw = mw;
	w.bind_mw.rkey = key;
	w.bind_mw.bind_info = what;
	return w;
}

static struct ibv_send_wr invalidate_wr(enum ibv_wr_opcode op, uint64_t id, uint32_t key)
{
	struct ibv_send_wr w = wr(op, id, NULL, 0);

	w.invalidate_rkey = key;
	return w;
}

/* A window of type 1 is bound by the verb, on any queue pair of its domain. */
static void bind_by_verb(struct side *s, struct ibv_mw *mw, struct ibv_mw_bind_info what)
{
	struct ibv_mw_bind b = { .wr_id = 3, .send_flags = IBV_SEND_SIGNALED, .bind_info = what };

	MUST(ibv_bind_mw(s->qp, mw, &b));
}

/* A binding, of which the status is told. The key is the window's new one. After an error all is connected anew. */
static enum ibv_wc_status bind_info(struct windows *w, struct ibv_mw *mw, struct ibv_mw_bind_info what, uint32_t *key)
{
	if (mw->type == IBV_MW_TYPE_1) {
		bind_by_verb(&w->p.b, mw, what);
		*key = mw->rkey;
	} else {
		*key = ibv_inc_rkey(*key ? *key : mw->rkey);
		struct ibv_send_wr b = bind_wr(mw, *key, what);

		post(&w->p.b, &b);
	}
	struct ibv_wc wc = next(&w->p.b, "a binding");

	CHECK(wc.wr_id == 3, "another completion than that of the binding");
	CHECK(wc.status || wc.opcode == IBV_WC_BIND_MW, "its opcode is %d", wc.opcode);
	if (wc.status)
		pair_reconnect(&w->p, NULL);
	return wc.status;
}

static uint32_t bind(struct windows *w, struct ibv_mw *mw, uint64_t at, uint64_t len, int access, uint32_t old)
{
	uint32_t key = old;
	enum ibv_wc_status status = bind_info(w, mw, info(w, at, len, access), &key);

	CHECK(!status, "bind of %u at %u: \"%s\"", (unsigned int)len, (unsigned int)at, ibv_wc_status_str(status));
	return key;
}

static enum ibv_wc_status invalidate(struct side *s, uint32_t key)
{
	struct ibv_send_wr w = invalidate_wr(IBV_WR_LOCAL_INV, 4, key);

	post(s, &w);
	struct ibv_wc wc = next(s, "an invalidation");

	CHECK(wc.wr_id == 4 && (wc.status || wc.opcode == IBV_WC_LOCAL_INV), "another completion");
	return wc.status;
}

static void may(struct windows *w, enum ibv_wr_opcode op, uint64_t addr, uint32_t len, uint32_t key, bool allowed,
		const char *what)
{
	want_access(&w->p, op, addr, key, len, allowed, what);
}

/* The window at FROM, of SIZE bytes, as peers name its begin: every byte of it, and none besides. */
static void exactly(struct windows *w, uint64_t begin, uint32_t key)
{
	uint8_t *buf = w->p.b.buf;

	fill(w->p.a.buf, LEN, 5);
	memset(buf, 0xee, LEN);
	may(w, IBV_WR_RDMA_WRITE, begin, SIZE, key, true, "a WRITE to all of it");
	compare(buf + FROM, SIZE, 5, "what was written");
	CHECK(buf[FROM - 1] == 0xee && buf[FROM + SIZE] == 0xee, "more was written");
	may(w, IBV_WR_RDMA_READ, begin + SIZE - 1, 1, key, true, "a READ of the last byte");
	CHECK(w->p.a.buf[0] == buf[FROM + SIZE - 1], "another byte was read");
	may(w, IBV_WR_RDMA_READ, begin, 1, key, true, "a READ of the first byte");
	memset(buf, 0xdd, LEN);
	may(w, IBV_WR_RDMA_WRITE, begin - 1, 1, key, false, "a WRITE of the byte before it");
	may(w, IBV_WR_RDMA_WRITE, begin + SIZE, 1, key, false, "a WRITE of the byte behind it");
	may(w, IBV_WR_RDMA_WRITE, begin, SIZE + 1, key, false, "a WRITE beyond it");
	may(w, IBV_WR_RDMA_WRITE, begin - 1, SIZE, key, false, "a WRITE from before it");
	may(w, IBV_WR_RDMA_READ, begin + 1, SIZE, key, false, "a READ beyond it");
	for (int i = 0; i < LEN; i++)
		CHECK(buf[i] == 0xdd, "byte %d was written by what was refused", i);
}

static void bounds(void)
{
	struct windows w;

	windows_open(&w, BIND);

	may(&w, IBV_WR_RDMA_READ, w.at, 1, w.one->rkey, false, "a READ by type 1, not bound");
	may(&w, IBV_WR_RDMA_READ, w.at, 1, w.two->rkey, false, "a READ by type 2, not bound");
	/* The region itself gives no right to a peer. */
	may(&w, IBV_WR_RDMA_READ, w.at, 1, w.mr->rkey, false, "a READ by the key of the region");
	exactly(&w, w.at, bind(&w, w.one, FROM, SIZE, READ | WRITE, 0));
	uint32_t key = bind(&w, w.two, FROM, SIZE, READ | WRITE, 0);

	CHECK(key >> 8 == w.two->rkey >> 8 && key != w.two->rkey, "the key %08x after %08x", key, w.two->rkey);
	exactly(&w, w.at, key);
	MUST(invalidate(&w.p.b, key));
	exactly(&w, 0, bind(&w, w.two, FROM, SIZE, READ | WRITE | IBV_ACCESS_ZERO_BASED, key));
	/* Windows of one byte, at the ends of the region. */
	for (int i = 0; i < 2; i++) {
		uint64_t byte = (uintptr_t)w.p.b.buf + (i ? LEN - 1 : 0);

		key = bind(&w, w.one, i ? LEN - 1 : 0, 1, WRITE, 0);
		may(&w, IBV_WR_RDMA_WRITE, byte, 1, key, true, "a WRITE of one byte");
		may(&w, IBV_WR_RDMA_WRITE, byte - 1, 1, key, false, "the byte before");
		may(&w, IBV_WR_RDMA_WRITE, byte + 1, 1, key, false, "the byte behind");
	}
	windows_close(&w);
}

/* Of a new key of type 2 only the low byte counts: other devices look at no more, and programs rely on it. */
static void low_byte(void)
{
	struct windows w;

	windows_open(&w, BIND);
	struct ibv_mw *mw = w.two;
	uint32_t before = mw->rkey, keys[] = { 0x42, ~mw->rkey, mw->rkey ^ 0x100, 0xffffff17 };

	for (size_t i = 0; i < COUNT(keys); i++) {
		struct ibv_send_wr b = bind_wr(mw, keys[i], info(&w, FROM, SIZE, READ | WRITE));
		uint32_t key = (mw->rkey & ~0xffu) | (keys[i] & 0xff);

		post(&w.p.b, &b);
		expect(&w.p.b, 3, IBV_WC_SUCCESS, "a binding");
		CHECK(mw->rkey == before, "the window's key became %08x", mw->rkey);
		may(&w, IBV_WR_RDMA_READ, w.at, 10, key, true, "a READ by the low byte of the new key");
		may(&w, IBV_WR_RDMA_READ, w.at, 10, keys[i], false, "a READ by all of the new key");
		MUST(invalidate(&w.p.b, key));
	}
	windows_close(&w);
}

/* All rights of a window, and of the region below. */
static void rights(void)
{
	static const int regions[] = { BIND, IBV_ACCESS_MW_BIND, IBV_ACCESS_LOCAL_WRITE | READ | WRITE };

	for (size_t i = 0; i < COUNT(regions); i++) {
		struct windows w;

		windows_open(&w, regions[i]);
		struct ibv_mw **mw[] = { &w.one, &w.two };
		uint32_t last[2] = {};

		for (int n = 0; n < 2; n++)
			for (int access = 0; access < 4; access++) {
				int flags = (access & 1 ? READ : 0) | (access & 2 ? WRITE : 0);
				bool good = regions[i] & IBV_ACCESS_MW_BIND &&
					(!(flags & WRITE) || regions[i] & IBV_ACCESS_LOCAL_WRITE);
				enum ibv_wc_status want = good ? IBV_WC_SUCCESS : IBV_WC_MW_BIND_ERR;
				enum ibv_wc_status is = bind_info(&w, *mw[n], info(&w, FROM, SIZE, flags), &last[n]);

				CHECK(is == want, "type %d, rights %d of a region with %d: \"%s\"", n + 1, flags, regions[i],
				      ibv_wc_status_str(is));
				if (!good) {
					/* The provider has counted on. */
					DESTROY(*mw[n]);
					*mw[n] = new_mw(w.p.b.pd, n ? IBV_MW_TYPE_2 : IBV_MW_TYPE_1);
					last[n] = 0;
					continue;
				}
				may(&w, IBV_WR_RDMA_READ, w.at, 10, last[n], flags & READ, "a READ");
				may(&w, IBV_WR_RDMA_WRITE, w.at, 10, last[n], flags & WRITE, "a WRITE");
				if (n)
					MUST(invalidate(&w.p.b, last[n]));
			}
		windows_close(&w);
	}
}

/* What cannot be bound is not, and the queue pair goes to ERR. */
static void refused(void)
{
	struct windows w;

	windows_open(&w, BIND);
	struct ibv_pd *other = new_pd(w.p.b.ctx);
	struct ibv_mr *foreign = new_mr(other, w.p.b.buf, LEN, BIND);
	struct ibv_mr *offsets = new_mr(w.p.b.pd, w.p.b.buf, LEN, BIND | IBV_ACCESS_ZERO_BASED);
	uint64_t at = (uintptr_t)w.p.b.buf;

	for (int type = IBV_MW_TYPE_1; type <= IBV_MW_TYPE_2; type++) {
		struct {
			struct ibv_mw_bind_info info;
			bool foreign;
			const char *what;
		} tries[] = {
			{ { w.mr, at, LEN + 1, READ }, false, "more than the region" },
			{ { w.mr, at - 1, 10, READ }, false, "what begins before it" },
			{ { w.mr, at + LEN, 1, READ }, false, "what begins behind it" },
			{ { w.mr, at + 1, UINT64_MAX, READ }, false, "a length that wraps" },
			{ { w.mr, at, 10, READ | 1 << 15 }, false, "a right that nobody knows" },
			{ { w.mr, at, 10, IBV_ACCESS_MW_BIND }, false, "windows to a window" },
			{ { offsets, 0, 10, READ }, false, "a region of offsets" },
			{ { foreign, at, 10, READ }, false, "a region of another domain" },
			{ { w.mr, at, 10, READ }, true, "a window of another domain" },
			{ { w.mr, at, type == IBV_MW_TYPE_1 ? 10 : 0, READ | IBV_ACCESS_ZERO_BASED }, false,
			  "type 1 with offsets, or type 2 without a byte" },
		};

		for (size_t i = 0; i < COUNT(tries); i++) {
			struct ibv_mw *mw = new_mw(tries[i].foreign ? other : w.p.b.pd, type);
			/* libibverbs itself looks at the domains of type 1; the request goes round it. */
			struct ibv_send_wr r = bind_wr(mw, ibv_inc_rkey(mw->rkey), tries[i].info);

			post(&w.p.b, &r);
			expect(&w.p.b, 3, IBV_WC_MW_BIND_ERR, tries[i].what);
			want_state(&w.p.b, IBV_QPS_ERR, tries[i].what);
			pair_reconnect(&w.p, NULL);
			DESTROY(mw);
		}
	}
	uint32_t key = bind(&w, w.two, FROM, SIZE, READ, 0);

	CHECK(bind_info(&w, w.two, info(&w, 0, 10, READ), &key) == IBV_WC_MW_BIND_ERR, "type 2 was bound twice");
	/* What is refused at once. */
	struct ibv_sge list = sge(&w.p.b, 0, 10);
	struct ibv_send_wr r = wr(IBV_WR_LOCAL_INV, 3, &list, 1), *bad;

	CHECK(ibv_post_send(w.p.b.qp, &r, &bad) == EINVAL && bad == &r, "an invalidation with data");
	r = wr(IBV_WR_BIND_MW, 3, NULL, 0);
	CHECK(ibv_post_send(w.p.b.qp, &r, &bad) == EINVAL, "a binding of no window");
	errno = 0;
	CHECK(!ibv_alloc_mw(w.p.b.pd, 3) && errno, "a window of type 3");
	send_checked(&w.p.b, &w.p.a, 9);
	DESTROY(foreign, offsets, other);
	windows_close(&w);
}

/* Keys end: by another binding, by one of nothing, by invalidations of both sides, and with the window. */
static void ends(void)
{
	struct windows w;

	windows_open(&w, BIND);
	uint32_t old = bind(&w, w.one, FROM, SIZE, READ, 0), key = bind(&w, w.one, FROM, SIZE, READ, 0);

	CHECK(old != key, "the key did not change");
	may(&w, IBV_WR_RDMA_READ, w.at, 1, old, false, "a READ by the key before");
	may(&w, IBV_WR_RDMA_READ, w.at, 1, key, true, "a READ by the key");
	CHECK(ibv_dereg_mr(w.mr) == EBUSY, "a region was deregistered under a window");
	CHECK(ibv_rereg_mr(w.mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, BIND | READ) == IBV_REREG_MR_ERR_CMD &&
	      errno == EBUSY, "a region became another under a window");
	key = bind(&w, w.one, 0, 0, 0, 0);
	may(&w, IBV_WR_RDMA_READ, w.at, 1, key, false, "a READ by a window that is not bound any more");
	MUST(ibv_rereg_mr(w.mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, BIND));
	/* Every low byte that a key can have is taken, and ends. */
	key = w.two->rkey;
	for (int i = 0; i < 256; i++) {
		uint32_t before = key;

		key = bind(&w, w.two, FROM, SIZE, READ, key);
		CHECK(key == ((before & ~0xffu) | ((before + 1) & 0xff)), "%08x after %08x", key, before);
		if (i % 37)
			MUST(invalidate(&w.p.b, key));
		else {
			may(&w, IBV_WR_RDMA_READ, w.at, 1, key, true, "a READ by this byte");
			may(&w, IBV_WR_RDMA_READ, w.at, 1, before, false, "a READ by the byte before");
			MUST(invalidate(&w.p.b, key));
			may(&w, IBV_WR_RDMA_READ, w.at, 1, key, false, "a READ by a key that was invalidated");
		}
	}
	/* The peer invalidates, with the message that tells of it. */
	key = bind(&w, w.two, FROM, SIZE, READ, key);
	for (uint32_t len = 0; len <= 3000; len += 1500) {
		struct ibv_sge from = sge(&w.p.a, 0, len);
		struct ibv_send_wr r = invalidate_wr(IBV_WR_SEND_WITH_INV, 6, key);

		may(&w, IBV_WR_RDMA_READ, w.at, 1, key, true, "a READ by the key");
		fill(w.p.a.buf, LEN, len);
		r.sg_list = &from;
		r.num_sge = 1;
		post_room(&w.p.b, 7, 4096, len);
		post(&w.p.a, &r);
		struct ibv_wc wc = expect(&w.p.b, 7, IBV_WC_SUCCESS, "a receive");

		CHECK(wc.wc_flags == IBV_WC_WITH_INV && wc.invalidated_rkey == key && wc.byte_len == len,
		      "flags %#x, key %08x for %08x, %u bytes", wc.wc_flags, wc.invalidated_rkey, key, wc.byte_len);
		CHECK(expect(&w.p.a, 6, IBV_WC_SUCCESS, "a SEND").opcode == IBV_WC_SEND, "its opcode");
		compare(w.p.b.buf + 4096, len, len, "the message");
		may(&w, IBV_WR_RDMA_READ, w.at, 1, key, false, "a READ by a key that the peer has invalidated");
		key = bind(&w, w.two, FROM, SIZE, READ, key);
	}
	DESTROY(w.two);
	may(&w, IBV_WR_RDMA_READ, w.at, 1, key, false, "a READ by a window that is gone");
	w.two = new_mw(w.p.b.pd, IBV_MW_TYPE_2);
	windows_close(&w);
}

/* Keys that are not for him who invalidates. */
static void not_his(void)
{
	struct windows w;
	struct pair beside;

	windows_open(&w, BIND | READ | WRITE);
	pair_open_beside(&beside, &w.p, LEN);
	uint32_t first = bind(&w, w.one, FROM, SIZE, READ, 0), second = bind(&w, w.two, FROM, SIZE, READ, 0);
	uint32_t keys[] = { first, w.mr->rkey, second ^ 1, second ^ 0x100, w.two->rkey, 0, 0xffffff00 };
	struct windows other = { .p = beside };

	/* Type 1 is for all queue pairs of the domain, type 2 for the one that has bound it. */
	may(&other, IBV_WR_RDMA_READ, w.at, 1, first, true, "type 1 by another queue pair");
	may(&other, IBV_WR_RDMA_READ, w.at, 1, second, false, "type 2 by another queue pair");
	CHECK(invalidate(&beside.b, second) == IBV_WC_MW_BIND_ERR, "another queue pair has invalidated it");
	pair_reconnect(&beside, NULL);
	for (size_t i = 0; i < COUNT(keys); i++) {
		struct ibv_send_wr r = invalidate_wr(IBV_WR_SEND_WITH_INV, 6, keys[i]);

		post_room(&w.p.b, 7, 0, 100);
		post(&w.p.a, &r);
		expect(&w.p.a, 6, IBV_WC_REM_ACCESS_ERR, "an invalidation by the peer");
		expect(&w.p.b, 7, IBV_WC_WR_FLUSH_ERR, "the receive that it took");
		want_state(&w.p.b, IBV_QPS_ERR, "b");
		pair_reconnect(&w.p, NULL);
		CHECK(invalidate(&w.p.b, keys[i]) == IBV_WC_MW_BIND_ERR, "key %zu was invalidated", i);
		want_state(&w.p.b, IBV_QPS_ERR, "b");
		pair_reconnect(&w.p, NULL);
	}
	may(&w, IBV_WR_RDMA_READ, w.at, 1, first, true, "a READ by type 1");
	may(&w, IBV_WR_RDMA_READ, w.at, 1, second, true, "a READ by type 2");
	MUST(invalidate(&w.p.b, second));
	CHECK(invalidate(&w.p.b, second) == IBV_WC_MW_BIND_ERR, "it was invalidated twice");
	pair_close(&beside);
	windows_close(&w);
}

/* Bindings keep their place between what is sent, and a fence holds them. */
static void order(void)
{
	struct windows w;

	windows_open(&w, BIND);
	uint32_t key = w.two->rkey;

	for (int round = 0; round < 20; round++) {
		struct ibv_sge list = sge(&w.p.b, 0, 4000), room = sge(&w.p.a, 0, 4000);
		struct ibv_send_wr list_of[6];

		key = ibv_inc_rkey(key);
		/* b reads, binds, tells a, unbinds when it has read again, and tells that. */
		for (int i = 0; i < 6; i++) {
			list_of[i] = wr(IBV_WR_SEND, 10 + i, NULL, 0);
			list_of[i].next = i < 5 ? &list_of[i + 1] : NULL;
			if (i == 0 || i == 3) {
				list_of[i] = wr(IBV_WR_RDMA_READ, 10 + i, &list, 1);
				list_of[i].next = &list_of[i + 1];
				aim(&list_of[i], &w.p.a, 0);
			}
			post_recv(&w.p.a, 20 + i, &room, i == 2 || i == 5);
		}
		list_of[1] = bind_wr(w.two, key, info(&w, FROM, SIZE, READ));
		list_of[1].wr_id = 11;
		list_of[1].next = &list_of[2];
		list_of[2].send_flags = 0;
		list_of[4].opcode = IBV_WR_LOCAL_INV;
		list_of[4].send_flags |= IBV_SEND_FENCE;
		list_of[4].invalidate_rkey = key;
		post(&w.p.b, list_of);
		for (int i = 0; i < 6; i++)
			if (i != 2)
				expect(&w.p.b, 10 + i, IBV_WC_SUCCESS, "in order");
		for (int i = 0; i < 2; i++)
			expect(&w.p.a, 20 + i, IBV_WC_SUCCESS, "a receive");
		pair_reconnect(&w.p, NULL);
	}
	/* In SQD nothing begins, in ERR all is flushed. */
	struct ibv_send_wr r = invalidate_wr(IBV_WR_LOCAL_INV, 30, bind(&w, w.two, FROM, SIZE, READ, key));

	MUST(to_state(&w.p.b, IBV_QPS_SQD));
	post(&w.p.b, &r);
	expect_none(&w.p.b, 50, "in SQD");
	MUST(to_state(&w.p.b, IBV_QPS_RTS));
	expect(&w.p.b, 30, IBV_WC_SUCCESS, "after SQD");
	MUST(to_state(&w.p.b, IBV_QPS_ERR));
	post(&w.p.b, &r);
	expect(&w.p.b, 30, IBV_WC_WR_FLUSH_ERR, "in ERR");
	windows_close(&w);
}

/* a writes without a pause through a window that b takes away; from the moment it is gone nothing is written. */
struct writer {
	struct windows *w;
	_Atomic uint32_t key;
	atomic_bool stop;
	atomic_int written, refused;
};

static void *keep_writing(void *arg)
{
	struct writer *writer = arg;
	struct side *a = &writer->w->p.a;

	while (!writer->stop) {
		struct ibv_sge list = sge(a, 0, SIZE);
		struct ibv_send_wr r = wr(IBV_WR_RDMA_WRITE, 5, &list, 1);

		r.wr.rdma.remote_addr = writer->w->at;
		r.wr.rdma.rkey = writer->key;
		post(a, &r);
		enum ibv_wc_status status = next(a, "a WRITE").status;

		CHECK(!status || status == IBV_WC_REM_ACCESS_ERR, "a WRITE: \"%s\"", ibv_wc_status_str(status));
		if (status) {
			writer->refused++;
			return NULL;
		}
		writer->written++;
	}
	return NULL;
}

static void races(void)
{
	struct windows w;
	struct pair beside;
	uint8_t *at;

	windows_open(&w, BIND);
	/* What b does to its windows it does by another queue pair, or by the verb. */
	pair_open_beside(&beside, &w.p, LEN);
	at = w.p.b.buf + FROM;
	memset(w.p.a.buf, 0xaa, LEN);
	for (int round = 0; round < 40; round++) {
		struct ibv_mw *mw = new_mw(w.p.b.pd, round % 4 == 1 ? IBV_MW_TYPE_2 : IBV_MW_TYPE_1);
		struct writer writer = { .w = &w };
		pthread_t thread;

		writer.key = bind(&w, mw, FROM, SIZE, WRITE, 0);
		MUST(pthread_create(&thread, NULL, keep_writing, &writer));
		while (writer.written < 3)
			usleep(10);
		switch (round % 4) {
		case 0:
			/* To another place, by another queue pair. */
			bind_by_verb(&beside.b, mw, info(&w, 0, 10, WRITE));
			expect(&beside.b, 3, IBV_WC_SUCCESS, "another binding");
			break;
		case 1:
			MUST(invalidate(&w.p.b, writer.key));
			break;
		case 2:
			bind_by_verb(&beside.b, mw, (struct ibv_mw_bind_info){ 0 });
			expect(&beside.b, 3, IBV_WC_SUCCESS, "a binding of nothing");
			break;
		default:
			DESTROY(mw);
		}
		/* From here on nobody writes there. */
		memset(at, 0x55, SIZE);
		MUST(pthread_join(thread, NULL));
		CHECK(writer.refused == 1, "round %d: nothing was refused", round);
		for (int i = 0; i < SIZE; i++)
			CHECK(at[i] == 0x55, "round %d: byte %d was written after the window was gone", round, i);
		pair_reconnect(&w.p, NULL);
		if (round % 4 != 3)
			DESTROY(mw);
	}
	pair_close(&beside);
	windows_close(&w);
}

/* A window of type 1 that is bound once more under its key is never away for who writes through it. */
static void kept(void)
{
	struct windows w;
	struct pair beside;
	struct writer writer = { .w = &w };
	pthread_t thread;

	windows_open(&w, BIND);
	pair_open_beside(&beside, &w.p, LEN);
	writer.key = bind(&w, w.one, FROM, SIZE, WRITE, 0);
	MUST(pthread_create(&thread, NULL, keep_writing, &writer));
	for (int round = 0; round < 2000 || writer.written < 2000; round++) {
		/* Longer and shorter in turns; what is written fits both. */
		struct ibv_send_wr r = bind_wr(w.one, writer.key, info(&w, FROM, SIZE + round % 2, WRITE));

		CHECK(!writer.refused, "a WRITE was refused in round %d", round);
		post(&beside.b, &r);
		expect(&beside.b, 3, IBV_WC_SUCCESS, "a binding");
	}
	writer.stop = true;
	MUST(pthread_join(thread, NULL));
	CHECK(!writer.refused, "a WRITE was refused");
	pair_close(&beside);
	windows_close(&w);
}

/* Windows that are bound do not keep a process from ending. */
static void left_behind(void)
{
	struct windows w;

	windows_open(&w, BIND);
	for (int i = 0; i < 30; i++) {
		bind(&w, new_mw(w.p.b.pd, i % 2 ? IBV_MW_TYPE_2 : IBV_MW_TYPE_1), i, 10, READ, 0);
	}
}

#define BINDS_OTHERWISE "binds and invalidates by other rules"

const struct test_case window_cases[] = {
	{ "windows-bounds", bounds, "every byte of a window and none besides, of both types and by offsets",
	  .rxe = BINDS_OTHERWISE },
	{ "windows-rights", rights, "rights of windows and of the regions below", LOCAL_PATH, .rxe = BINDS_OTHERWISE },
	{ "windows-low-byte", low_byte, "a new key of which the upper bytes are others", LOCAL_PATH, .rxe = BINDS_OTHERWISE },
	{ "windows-refused", refused, "bindings that cannot be", LOCAL_PATH, .rxe = BINDS_OTHERWISE },
	{ "windows-ends", ends, "keys that end: bound anew, of nothing, invalidated by either side, gone", .seconds = 90,
	  .rxe = BINDS_OTHERWISE },
	{ "windows-not-his", not_his, "keys that are not for him who invalidates, or uses, them", .rxe = BINDS_OTHERWISE },
	{ "windows-order", order, "bindings and invalidations among what is sent, and under fences", .rxe = BINDS_OTHERWISE },
	{ "windows-races", races, "windows taken away under WRITEs: nothing is written any more", .seconds = 90,
	  .rxe = BINDS_OTHERWISE },
	{ "windows-kept", kept, "a window bound once more under its key, while a peer writes through it", .seconds = 90,
	  .rxe = BINDS_OTHERWISE },
	{ "windows-left-behind", left_behind, "a process that ends with windows bound", LOCAL_PATH },
	{ NULL },
};
