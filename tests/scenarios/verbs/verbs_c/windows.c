// SPDX-License-Identifier: GPL-2.0
/* Memory windows: what peers may do through them, and that it ends when it is to end. b has them, a is the peer. */
#include "pair.h"

#define WINDOWS .rxe = "binds and invalidates by other rules", .len = LEN

enum { LEN = 8192, FROM = 1000, SIZE = 3000, READ = IBV_ACCESS_REMOTE_READ, WRITE = IBV_ACCESS_REMOTE_WRITE,
       BIND = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND };

/* b's memory, only for windows; two windows, of both types; and where most of them begin. */
static struct ibv_mr *mr;
static struct ibv_mw *one, *two;
static uint64_t at;

/* A case begins with this, and ends with the other. */
static void windows_open(int access)
{
	mr = new_mr(p.b.pd, p.b.buf, LEN, access);
	one = new_mw(p.b.pd, IBV_MW_TYPE_1);
	two = new_mw(p.b.pd, IBV_MW_TYPE_2);
	at = (uintptr_t)p.b.buf + FROM;
}

static void windows_close(void)
{
	DESTROY(one, two, mr);
}

static struct ibv_mw_bind_info info(uint64_t from, uint64_t len, int access)
{
	return (struct ibv_mw_bind_info){ .mr = len ? mr : NULL, .addr = len ? (uintptr_t)p.b.buf + from : 0,
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
static enum ibv_wc_status bind_info(struct ibv_mw *mw, struct ibv_mw_bind_info what, uint32_t *key)
{
	if (mw->type == IBV_MW_TYPE_1) {
		bind_by_verb(&p.b, mw, what);
		*key = mw->rkey;
	} else {
		*key = ibv_inc_rkey(*key ? *key : mw->rkey);
		struct ibv_send_wr b = bind_wr(mw, *key, what);

		post(&p.b, &b);
	}
	struct ibv_wc wc = next(&p.b, "a binding");

	CHECK(wc.wr_id == 3, "another completion than that of the binding");
	CHECK(wc.status || wc.opcode == IBV_WC_BIND_MW, "its opcode is %d", wc.opcode);
	if (wc.status)
		pair_reconnect(&p, NULL);
	return wc.status;
}

static uint32_t bind(struct ibv_mw *mw, uint64_t from, uint64_t len, int access, uint32_t old)
{
	uint32_t key = old;
	enum ibv_wc_status status = bind_info(mw, info(from, len, access), &key);

	CHECK(!status, "bind of %u at %u: \"%s\"", (unsigned int)len, (unsigned int)from, ibv_wc_status_str(status));
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

static void may(enum ibv_wr_opcode op, uint64_t addr, uint32_t len, uint32_t key, bool allowed, const char *what)
{
	want_access(&p, op, addr, key, len, allowed, what);
}

/* The window at FROM, of SIZE bytes, as peers name its begin. */
static void exactly(uint64_t begin, uint32_t key)
{
	want_exactly(&p, p.b.buf + FROM, SIZE, begin, key);
}

CASE("memory.windows-bounds", "every byte of a window and none besides, of both types and by offsets", WINDOWS)
{
	windows_open(BIND);
	may(IBV_WR_RDMA_READ, at, 1, one->rkey, false, "a READ by type 1, not bound");
	may(IBV_WR_RDMA_READ, at, 1, two->rkey, false, "a READ by type 2, not bound");
	/* The region itself gives no right to a peer. */
	may(IBV_WR_RDMA_READ, at, 1, mr->rkey, false, "a READ by the key of the region");
	exactly(at, bind(one, FROM, SIZE, READ | WRITE, 0));
	uint32_t key = bind(two, FROM, SIZE, READ | WRITE, 0);

	CHECK(key >> 8 == two->rkey >> 8 && key != two->rkey, "the key %08x after %08x", key, two->rkey);
	exactly(at, key);
	MUST(invalidate(&p.b, key));
	exactly(0, bind(two, FROM, SIZE, READ | WRITE | IBV_ACCESS_ZERO_BASED, key));
	/* Windows of one byte, at the ends of the region. */
	for (int i = 0; i < 2; i++) {
		uint64_t byte = (uintptr_t)p.b.buf + (i ? LEN - 1 : 0);

		key = bind(one, i ? LEN - 1 : 0, 1, WRITE, 0);
		may(IBV_WR_RDMA_WRITE, byte, 1, key, true, "a WRITE of one byte");
		may(IBV_WR_RDMA_WRITE, byte - 1, 1, key, false, "the byte before");
		may(IBV_WR_RDMA_WRITE, byte + 1, 1, key, false, "the byte behind");
	}
	windows_close();
}

CASE("memory.windows-rights", "rights of windows and of the regions below", .paths = LOCAL_PATH, WINDOWS)
{
	static const int regions[] = { BIND, IBV_ACCESS_MW_BIND, IBV_ACCESS_LOCAL_WRITE | READ | WRITE };

	for (size_t i = 0; i < 8 * COUNT(regions); i++) {
		int region = regions[i / 8], type = i & 4 ? 2 : 1, flags = (i & 1 ? READ : 0) | (i & 2 ? WRITE : 0);
		bool good = region & IBV_ACCESS_MW_BIND && (!(flags & WRITE) || region & IBV_ACCESS_LOCAL_WRITE);
		uint32_t key = 0;

		windows_open(region);
		enum ibv_wc_status is = bind_info(type == 2 ? two : one, info(FROM, SIZE, flags), &key);

		CHECK(is == (good ? IBV_WC_SUCCESS : IBV_WC_MW_BIND_ERR), "type %d, rights %d of a region with %d: \"%s\"",
		      type, flags, region, ibv_wc_status_str(is));
		if (good) {
			may(IBV_WR_RDMA_READ, at, 10, key, flags & READ, "a READ");
			may(IBV_WR_RDMA_WRITE, at, 10, key, flags & WRITE, "a WRITE");
		}
		windows_close();
	}
}

CASE("memory.windows-refused", "bindings that cannot be", .paths = LOCAL_PATH, WINDOWS)
{
	windows_open(BIND);
	struct ibv_pd *other = new_pd(p.b.ctx);
	struct ibv_mr *foreign = new_mr(other, p.b.buf, LEN, BIND);
	struct ibv_mr *offsets = new_mr(p.b.pd, p.b.buf, LEN, BIND | IBV_ACCESS_ZERO_BASED);
	uint64_t begin = (uintptr_t)p.b.buf;

	for (int type = IBV_MW_TYPE_1; type <= IBV_MW_TYPE_2; type++) {
		struct {
			struct ibv_mw_bind_info info;
			bool foreign;
			const char *what;
		} tries[] = {
			{ { mr, begin, LEN + 1, READ }, false, "more than the region" },
			{ { mr, begin - 1, 10, READ }, false, "what begins before it" },
			{ { mr, begin + LEN, 1, READ }, false, "what begins behind it" },
			{ { mr, begin + 1, UINT64_MAX, READ }, false, "a length that wraps" },
			{ { mr, begin, 10, READ | 1 << 15 }, false, "a right that nobody knows" },
			{ { mr, begin, 10, IBV_ACCESS_MW_BIND }, false, "windows to a window" },
			{ { offsets, 0, 10, READ }, false, "a region of offsets" },
			{ { foreign, begin, 10, READ }, false, "a region of another domain" },
			{ { mr, begin, 10, READ }, true, "a window of another domain" },
			{ { mr, begin, type == IBV_MW_TYPE_1 ? 10 : 0, READ | IBV_ACCESS_ZERO_BASED }, false,
			  "type 1 with offsets, or type 2 without a byte" },
		};

		for (size_t i = 0; i < COUNT(tries); i++) {
			struct ibv_mw *mw = new_mw(tries[i].foreign ? other : p.b.pd, type);
			/* libibverbs itself looks at the domains of type 1; the request goes round it. */
			struct ibv_send_wr r = bind_wr(mw, ibv_inc_rkey(mw->rkey), tries[i].info);

			post(&p.b, &r);
			expect(&p.b, 3, IBV_WC_MW_BIND_ERR, tries[i].what);
			want_state(&p.b, IBV_QPS_ERR, tries[i].what);
			pair_reconnect(&p, NULL);
			DESTROY(mw);
		}
	}
	uint32_t key = bind(two, FROM, SIZE, READ, 0);

	CHECK(bind_info(two, info(0, 10, READ), &key) == IBV_WC_MW_BIND_ERR, "type 2 was bound twice");
	errno = 0;
	CHECK(!ibv_alloc_mw(p.b.pd, 3) && errno, "a window of type 3");
	send_checked(&p.b, &p.a, 9);
	DESTROY(foreign, offsets, other);
	windows_close();
}

CASE("memory.windows-ends", "keys that end: bound anew, of nothing, invalidated by either side, gone", .seconds = 90,
     WINDOWS)
{
	windows_open(BIND);
	uint32_t old = bind(one, FROM, SIZE, READ, 0), key = bind(one, FROM, SIZE, READ, 0);

	CHECK(old != key, "the key did not change");
	may(IBV_WR_RDMA_READ, at, 1, old, false, "a READ by the key before");
	may(IBV_WR_RDMA_READ, at, 1, key, true, "a READ by the key");
	CHECK(ibv_dereg_mr(mr) == EBUSY, "a region was deregistered under a window");
	CHECK(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, BIND | READ) == IBV_REREG_MR_ERR_CMD &&
	      errno == EBUSY, "a region became another under a window");
	key = bind(one, 0, 0, 0, 0);
	may(IBV_WR_RDMA_READ, at, 1, key, false, "a READ by a window that is not bound any more");
	MUST(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, BIND));
	/*
	 * Every low byte that a key can have is taken, and ends. Of the key that a binding asks for no more counts: other
	 * devices look at no more, and programs rely on it.
	 */
	uint32_t first = two->rkey;

	key = first;
	for (int i = 0; i < 256; i++) {
		uint32_t before = key, asked = ibv_inc_rkey(key) ^ (i % 2 ? 0x5a5a5a00 : 0);
		struct ibv_send_wr b = bind_wr(two, asked, info(FROM, SIZE, READ));

		key = ibv_inc_rkey(key);
		post(&p.b, &b);
		expect(&p.b, 3, IBV_WC_SUCCESS, "a binding");
		CHECK(two->rkey == first, "the window's key became %08x", two->rkey);
		may(IBV_WR_RDMA_READ, at, 1, key, true, "a READ by this byte");
		if (i % 37 < 2) {
			may(IBV_WR_RDMA_READ, at, 1, before, false, "a READ by the byte before");
			may(IBV_WR_RDMA_READ, at, 1, asked, asked == key, "a READ by all of the key that was asked for");
		}
		MUST(invalidate(&p.b, key));
		if (i % 37 < 2)
			may(IBV_WR_RDMA_READ, at, 1, key, false, "a READ by a key that was invalidated");
	}
	/* The peer invalidates, with the message that tells of it. */
	key = bind(two, FROM, SIZE, READ, key);
	for (uint32_t len = 0; len <= 3000; len += 1500) {
		struct ibv_sge from = sge(&p.a, 0, len);
		struct ibv_send_wr r = invalidate_wr(IBV_WR_SEND_WITH_INV, 6, key);

		may(IBV_WR_RDMA_READ, at, 1, key, true, "a READ by the key");
		fill(p.a.buf, LEN, len);
		r.sg_list = &from;
		r.num_sge = 1;
		post_room(&p.b, 7, 4096, len);
		post(&p.a, &r);
		CHECK(expect(&p.a, 6, IBV_WC_SUCCESS, "a SEND").opcode == IBV_WC_SEND, "its opcode");
		struct ibv_wc wc = expect(&p.b, 7, IBV_WC_SUCCESS, "a receive");

		CHECK(wc.wc_flags == IBV_WC_WITH_INV && wc.invalidated_rkey == key && wc.byte_len == len,
		      "flags %#x, key %08x for %08x, %u bytes", wc.wc_flags, wc.invalidated_rkey, key, wc.byte_len);
		compare(p.b.buf + 4096, len, len, "the message");
		may(IBV_WR_RDMA_READ, at, 1, key, false, "a READ by a key that the peer has invalidated");
		key = bind(two, FROM, SIZE, READ, key);
	}
	DESTROY(two);
	may(IBV_WR_RDMA_READ, at, 1, key, false, "a READ by a window that is gone");
	two = new_mw(p.b.pd, IBV_MW_TYPE_2);
	windows_close();
}

/* An invalidation that fails ends the queue pair. */
static void invalidate_in_vain(struct pair *pair, uint32_t key, const char *what)
{
	CHECK(invalidate(&pair->b, key) == IBV_WC_MW_BIND_ERR, "%s: %08x was invalidated", what, key);
	want_state(&pair->b, IBV_QPS_ERR, "b");
	pair_reconnect(pair, NULL);
}

CASE("memory.windows-not-his", "keys that are not for him who invalidates, or uses, them", WINDOWS)
{
	struct pair beside;

	windows_open(BIND | READ | WRITE);
	pair_open_beside(&beside, &p, LEN);
	uint32_t first = bind(one, FROM, SIZE, READ, 0), second = bind(two, FROM, SIZE, READ, 0);
	uint32_t keys[] = { first, mr->rkey, second ^ 1, second ^ 0x100, two->rkey, 0, 0xffffff00 };

	/* Type 1 is for all queue pairs of the domain, type 2 for the one that has bound it. */
	want_access(&beside, IBV_WR_RDMA_READ, at, first, 1, true, "type 1 by another queue pair");
	want_access(&beside, IBV_WR_RDMA_READ, at, second, 1, false, "type 2 by another queue pair");
	invalidate_in_vain(&beside, second, "by another queue pair");
	for (size_t i = 0; i < COUNT(keys); i++) {
		struct ibv_send_wr r = invalidate_wr(IBV_WR_SEND_WITH_INV, 6, keys[i]);

		post_room(&p.b, 7, 0, 100);
		post(&p.a, &r);
		expect(&p.a, 6, IBV_WC_REM_ACCESS_ERR, "an invalidation by the peer");
		expect(&p.b, 7, IBV_WC_WR_FLUSH_ERR, "the receive that it took");
		want_state(&p.b, IBV_QPS_ERR, "b");
		pair_reconnect(&p, NULL);
		invalidate_in_vain(&p, keys[i], "a key that is no window's of this queue pair");
	}
	may(IBV_WR_RDMA_READ, at, 1, first, true, "a READ by type 1");
	may(IBV_WR_RDMA_READ, at, 1, second, true, "a READ by type 2");
	MUST(invalidate(&p.b, second));
	invalidate_in_vain(&p, second, "twice");
	pair_close(&beside);
	windows_close();
}

/* a writes through a window of type 1 or 2. */
static struct writer write_through(struct ibv_mw *mw)
{
	return (struct writer){ .p = &p, .addr = at, .rkey = bind(mw, FROM, SIZE, WRITE, 0), .len = SIZE };
}

CASE("memory.windows-races", "windows taken away under WRITEs: nothing is written any more", .seconds = 90, WINDOWS)
{
	/* How the window goes. What b does to it it does by another queue pair, or by the verb. */
	enum { MOVED, INVALIDATED, UNBOUND, DESTROYED, WAYS };
	struct pair beside;
	uint8_t *place = p.b.buf + FROM;

	windows_open(BIND);
	pair_open_beside(&beside, &p, LEN);
	memset(p.a.buf, 0xaa, LEN);
	for (int round = 0; round < 40; round++) {
		int way = round % WAYS;
		struct ibv_mw *mw = new_mw(p.b.pd, way == INVALIDATED ? IBV_MW_TYPE_2 : IBV_MW_TYPE_1);
		struct writer writer = write_through(mw);

		begin_writing(&writer);
		if (way == INVALIDATED)
			MUST(invalidate(&p.b, writer.rkey));
		else if (way == DESTROYED)
			DESTROY(mw);
		else {
			bind_by_verb(&beside.b, mw, way == MOVED ? info(0, 10, WRITE) : (struct ibv_mw_bind_info){ 0 });
			expect(&beside.b, 3, IBV_WC_SUCCESS, "another binding, or one of nothing");
		}
		/* From here on nobody writes there. */
		memset(place, 0x55, SIZE);
		WAIT_UNTIL(writer.refused, "round %d: nothing was refused", round);
		end_writing(&writer);
		for (int i = 0; i < SIZE; i++)
			CHECK(place[i] == 0x55, "round %d: byte %d was written after the window was gone", round, i);
		pair_reconnect(&p, NULL);
		if (way != DESTROYED)
			DESTROY(mw);
	}
	pair_close(&beside);
	windows_close();
}

CASE("memory.windows-kept", "a window bound once more under its key, while a peer writes through it", .seconds = 90,
     WINDOWS)
{
	struct pair beside;

	windows_open(BIND);
	pair_open_beside(&beside, &p, LEN);
	struct writer writer = write_through(one);

	begin_writing(&writer);
	for (int round = 0; round < 2000 || writer.written < 2000; round++) {
		/* Longer and shorter in turns; what is written fits both. */
		struct ibv_send_wr r = bind_wr(one, writer.rkey, info(FROM, SIZE + round % 2, WRITE));

		CHECK(!writer.refused, "a WRITE was refused in round %d", round);
		post(&beside.b, &r);
		expect(&beside.b, 3, IBV_WC_SUCCESS, "a binding");
	}
	end_writing(&writer);
	CHECK(!writer.refused, "a WRITE was refused");
	pair_close(&beside);
	windows_close();
}
