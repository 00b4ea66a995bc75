// SPDX-License-Identifier: GPL-2.0
/* Memory regions that become others, or are shared, nothing, or of offsets. */
#include "pair.h"

#define NO_REREG "changes neither memory nor keys, and takes what it does not do"

enum { LEN = 8192, TRANSLATION = IBV_REREG_MR_CHANGE_TRANSLATION, PD = IBV_REREG_MR_CHANGE_PD,
       ACCESS = IBV_REREG_MR_CHANGE_ACCESS };

static void can(struct pair *p, enum ibv_wr_opcode op, void *at, struct ibv_mr *mr, uint32_t len, bool allowed,
		const char *what, int flags)
{
	char text[64];

	snprintf(text, sizeof(text), "flags %d: %s", flags, what);
	want_access(p, op, (uintptr_t)at, mr->rkey, len, allowed, text);
}

CASE("memory.rereg", "regions registered again: memory, domain and rights in every combination", .rxe = NO_REREG,
     .len = LEN)
{
	uint8_t *other = new_memory(LEN);
	struct ibv_pd *other_pd = new_pd(p.b.ctx);

	for (int flags = 1; flags <= (TRANSLATION | PD | ACCESS); flags++) {
		struct ibv_mr *mr = p.b.mr;
		uint32_t rkey = mr->rkey;
		bool moves = flags & TRANSLATION, in_pd = !(flags & PD), writable = !(flags & ACCESS);
		int access = flags & ACCESS ? IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ : 0;
		uint8_t *at = moves ? other : p.b.buf, *old = moves ? p.b.buf : other;
		uint32_t len = moves ? LEN / 2 : LEN;

		memset(p.b.buf, 0x11, LEN);
		memset(other, 0x22, LEN);
		fill(p.a.buf, LEN, flags);
		MUST(ibv_rereg_mr(mr, flags, other_pd, other, LEN / 2, access));
		CHECK(mr->rkey == rkey && mr->lkey == rkey, "flags %d: the keys have changed", flags);
		CHECK(mr->pd == (flags & PD ? other_pd : p.b.pd), "flags %d: the domain of libibverbs", flags);
		can(&p, IBV_WR_RDMA_WRITE, at, mr, len, in_pd && writable, "a WRITE", flags);
		if (in_pd && writable)
			compare(at, len, flags, "what was written");
		else
			CHECK(at[0] == (moves ? 0x22 : 0x11), "flags %d: what was refused was written", flags);
		can(&p, IBV_WR_RDMA_READ, at, mr, len, in_pd, "a READ", flags);
		can(&p, IBV_WR_RDMA_READ, at + 1, mr, len, false, "a READ beyond the end", flags);
		can(&p, IBV_WR_RDMA_READ, old, mr, 1, false, "a READ where it is not", flags);
		CHECK(old[0] == (moves ? 0x11 : 0x22), "flags %d: memory that is not in it was written", flags);
		/* And back. */
		MUST(ibv_rereg_mr(mr, TRANSLATION | PD | ACCESS, p.b.pd, p.b.buf, LEN, ALL_ACCESS));
		move(IBV_WR_RDMA_WRITE, &p.a, 0, &p.b, 0, LEN - 1, 100 + flags);
	}
	/* A domain that was left is not in use. */
	DESTROY(other_pd);
	munmap(other, LEN);
}

CASE("memory.rereg-errors", "a region that cannot be registered again so stays what it was", .paths = LOCAL_PATH,
     .rxe = NO_REREG, .len = LEN)
{
	uint8_t *hole = new_memory(LEN);
	struct ibv_mr *mr = p.b.mr;
	struct {
		int flags;
		void *addr;
		size_t len;
		int access;
		const char *what;
	} tries[] = {
		{ 0, NULL, 0, 0, "no flag" },
		{ TRANSLATION, hole, LEN, 0, "memory that is not there" },
		{ TRANSLATION, p.b.buf, SIZE_MAX, 0, "more than there can be" },
		{ ACCESS, NULL, 0, IBV_ACCESS_REMOTE_WRITE, "remote writers only" },
		{ ACCESS, NULL, 0, IBV_ACCESS_LOCAL_WRITE | 1 << 15, "an unknown right" },
		{ TRANSLATION | ACCESS, p.b.buf, LEN, IBV_ACCESS_ON_DEMAND, "paging" },
	};

	munmap(hole, LEN);
	for (size_t i = 0; i < COUNT(tries); i++) {
		int is = ibv_rereg_mr(mr, tries[i].flags, p.b.pd, tries[i].addr, tries[i].len, tries[i].access);

		CHECK(is == IBV_REREG_MR_ERR_CMD, "%s: %d (%s)", tries[i].what, is, strerror(errno));
		/* The region is what it was. */
		CHECK(mr->addr == p.b.buf && mr->length == LEN && mr->pd == p.b.pd, "%s: it is another", tries[i].what);
		move(IBV_WR_RDMA_WRITE, &p.a, 0, &p.b, 0, LEN - 1, i);
	}
	/* What was pinned to be read can be made writable, by whose memory it is: a child has other memory there. */
	MUST(ibv_rereg_mr(mr, TRANSLATION | ACCESS, NULL, p.b.buf, LEN, IBV_ACCESS_REMOTE_READ));
	can(&p, IBV_WR_RDMA_WRITE, p.b.buf, mr, 100, false, "a WRITE to what can be read", 0);
	pid_t child = new_process();

	if (!child) {
		CHECK(ibv_rereg_mr(mr, ACCESS, NULL, NULL, 0, ALL_ACCESS) == IBV_REREG_MR_ERR_CMD && errno == EINVAL,
		      "a child made it writable: %s", strerror(errno));
		exit(0);
	}
	expect_success_of(child, "the child");
	can(&p, IBV_WR_RDMA_WRITE, p.b.buf, mr, 100, false, "a WRITE to what can still be read", 0);
	MUST(ibv_rereg_mr(mr, ACCESS, NULL, NULL, 0, ALL_ACCESS));
	move(IBV_WR_RDMA_WRITE, &p.a, 0, &p.b, 0, LEN - 1, 77);
}

CASE("memory.rereg-under-way", "memory that a region has left is not written any more", .rxe = NO_REREG, .len = LEN)
{
	uint8_t *memory[2] = { new_memory(LEN), new_memory(LEN) };
	/* Of offsets: the address does not change. */
	struct ibv_mr *mr = new_mr(p.b.pd, memory[0], LEN, ALL_ACCESS | IBV_ACCESS_ZERO_BASED);
	struct writer w = { .p = &p, .addr = 0, .rkey = mr->rkey, .len = LEN };

	memset(p.a.buf, 0xaa, LEN);
	begin_writing(&w);
	for (int i = 1; i <= 200; i++) {
		uint8_t *now = memory[i % 2], *before = memory[!(i % 2)];

		MUST(ibv_rereg_mr(mr, TRANSLATION, NULL, now, LEN, 0));
		/* From here on nobody writes there. One WRITE may be half done. */
		memset(before, 0x55, LEN);
		int written = w.written;

		while (w.written < written + 2 && !w.refused)
			rest();
		for (int at = 0; at < LEN; at++)
			CHECK(before[at] == 0x55, "round %d: byte %d was written after the region had moved", i, at);
		CHECK(now[0] == 0xaa && now[LEN - 1] == 0xaa, "round %d: nothing was written to the new memory", i);
	}
	end_writing(&w);
	CHECK(!w.refused, "a WRITE was refused while its target moved");
	DESTROY(mr);
	munmap(memory[0], LEN);
	munmap(memory[1], LEN);
}

/*
 * The null region between what is something, in each place that an operation can name it in: it goes out as zeros, and what
 * comes into it is gone.
 */
CASE("memory.null-region", "the region that reads as zeros and swallows what is written", .rxe = "has no null region",
     .len = LEN)
{
	static const struct {
		enum ibv_wr_opcode op;
		bool into;
	} rows[] = { { IBV_WR_SEND, false }, { IBV_WR_RDMA_WRITE, false }, { IBV_WR_SEND, true }, { IBV_WR_RDMA_READ, true } };
	struct ibv_mr *nothing = MADE(ibv_alloc_null_mr(p.a.pd)), *there = MADE(ibv_alloc_null_mr(p.b.pd));
	struct ibv_sge hole = { .addr = 0x123, .length = 3000, .lkey = nothing->lkey }, into = hole;

	into.lkey = there->lkey;
	for (size_t i = 0; i < COUNT(rows); i++) {
		bool sends = rows[i].op == IBV_WR_SEND, reads = rows[i].op == IBV_WR_RDMA_READ;
		struct side *from = reads ? &p.b : &p.a, *to = reads ? &p.a : &p.b, *odd = rows[i].into ? to : from;
		struct ibv_sge pieces[] = { sge(odd, 0, 100), odd == &p.a ? hole : into, sge(odd, 3100, 100) };
		struct ibv_sge whole = sge(odd == from ? to : from, 0, 3200);
		struct ibv_send_wr w = wr(rows[i].op, i, odd == &p.a ? pieces : &whole, odd == &p.a ? 3 : 1);

		fill(from->buf, LEN, i);
		memset(to->buf, 0xee, LEN);
		if (sends)
			post_recv(&p.b, i, odd == &p.b ? pieces : &whole, odd == &p.b ? 3 : 1);
		else
			aim(&w, &p.b, 0);
		post(&p.a, &w);
		if (sends)
			expect(&p.b, i, IBV_WC_SUCCESS, "a receive");
		expect(&p.a, i, IBV_WC_SUCCESS, "a request with nothing in it");
		memset(from->buf + 100, rows[i].into ? 0xee : 0, 3000);
		CHECK(!memcmp(to->buf, from->buf, 3200) && to->buf[3200] == 0xee,
		      rows[i].into ? "nothing was written to" : "nothing is not zeros");
	}
	/* All of it, from nothing to nothing. */
	struct ibv_send_wr w = wr(IBV_WR_SEND, 10, &hole, 1);

	post_recv(&p.b, 10, &into, 1);
	post(&p.a, &w);
	CHECK(expect_both(&p.a, 10, &p.b, 10, "a SEND of nothing").byte_len == 3000, "its length");
	/* It is for who has it, not for peers. */
	want_access(&p, IBV_WR_RDMA_WRITE, 0, there->lkey, 10, false, "a peer's WRITE to nothing");
	want_access(&p, IBV_WR_RDMA_READ, 0, there->lkey, 10, false, "a peer's READ of nothing");
	DESTROY(nothing, there);
}

CASE("memory.empty-region", "regions of 0 bytes, also where there is no memory",
     .rxe = "refuses those at the start of a page", .len = LEN)
{
	uint8_t *hole = new_memory(LEN);
	void *places[] = { p.b.buf, p.b.buf + 100, NULL, hole, (void *)UINTPTR_MAX };

	munmap(hole, LEN);
	for (size_t i = 0; i < COUNT(places); i++) {
		struct ibv_mr *mine = new_mr(p.a.pd, places[i], 0, ALL_ACCESS);
		struct ibv_mr *mr = new_mr(p.b.pd, places[i], 0, ALL_ACCESS | IBV_ACCESS_MW_BIND);
		uint64_t at = (uintptr_t)places[i];

		CHECK(!mr->length && mr->addr == places[i], "place %zu: %zu bytes", i, mr->length);
		struct ibv_sge from[] = { { at, 0, mine->lkey }, sge(&p.a, 0, 100), { at, 0, mine->lkey } };
		struct ibv_sge to[] = { { at, 0, mr->lkey }, sge(&p.b, 0, 100) };

		for (int n = 1; n <= 3; n++) {
			struct ibv_send_wr w = wr(IBV_WR_SEND, n, from, n);

			fill(p.a.buf, 100, n);
			post_recv(&p.b, n, to, 2);
			post(&p.a, &w);
			CHECK(expect_both(&p.a, n, &p.b, n, "a SEND").byte_len == (n > 1 ? 100 : 0), "its length");
			if (n > 1)
				compare(p.b.buf, 100, n, "what stands beside nothing");
		}
		for (int reads = 0; reads < 2; reads++) {
			enum ibv_wr_opcode op = reads ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE;

			want_access(&p, op, at, mr->rkey, 0, true, "a request of nothing");
			want_access(&p, op, at, mr->rkey, 1, false, "a byte of nothing");
		}
		from[0].length = 1;
		struct ibv_send_wr w = wr(IBV_WR_SEND, 5, from, 1);

		post(&p.a, &w);
		expect(&p.a, 5, IBV_WC_LOC_PROT_ERR, "a SEND of a byte of nothing");
		pair_reconnect(&p, NULL);
		MUST(ibv_rereg_mr(mr, ACCESS, NULL, NULL, 0, IBV_ACCESS_REMOTE_READ));
		MUST(ibv_rereg_mr(mr, ACCESS, NULL, NULL, 0, ALL_ACCESS));
		MUST(ibv_rereg_mr(mr, TRANSLATION, NULL, p.b.buf, LEN, 0));
		want_access(&p, IBV_WR_RDMA_WRITE, (uintptr_t)p.b.buf, mr->rkey, 100, true, "a WRITE to what became something");
		DESTROY(mine, mr);
	}
}
