// SPDX-License-Identifier: GPL-2.0
/*
 * Fast registration, as users in the kernel do it: lists of pages and of pieces, keys, addresses,
 * invalidation from both ends.
 */
#include "kuser.h"

static void register_all(struct scene *s)
{
	must(s->a->t, "registering", register_by(s->b, s->r, ALL_RIGHTS));
}

static void invalidate_it(struct scene *s)
{
	must(s->a->t, "invalidating", invalidate(s->b, s->r->mr->rkey));
}

#define AGAIN 80

/*
 * Invalidated and registered again in one list, of which the last reports, from each context, by
 * one queue pair of the domain and by another. What is registered is the list that was mapped
 * meanwhile; without one it is the same as before. The address that the peer names is the user's
 * choice, as those of RDS and rpcrdma are.
 */
static void again(struct test *t)
{
	static const u64 bases[] = { 0, 1, 0xdeadbeef00000000, 0x7ffffffffffff123, -4096ull };
	struct scene s, other;
	u32 at = 0;

	set_scene(t, &s, 4096, 0);
	beside(&s, &other, IB_QPT_RC);
	/* The low byte comes round. */
	ib_update_fast_reg_key(s.r->mr, 256 - AGAIN / 2);
	register_all(&s);
	for (u32 i = 0; i < AGAIN; i++) {
		struct ib_send_wr inv = {
			.opcode = IB_WR_LOCAL_INV, .ex.invalidate_rkey = s.r->mr->rkey,
		};
		struct ib_reg_wr reg;
		struct waiter *w;

		t->context = i % IN_HANDLER;
		/* While what was mapped before is registered still. */
		if (i % 3) {
			at = i * 16;
			map_room(s.r, s.far, at, 1000);
			s.r->mr->iova = bases[i % ARRAY_SIZE(bases)];
		}
		next_key(s.r);
		reg = registration(s.r, ALL_RIGHTS);
		inv.next = &reg.wr;
		w = wait_on(t, &reg.wr);
		post_list(i % 2 ? other.b : s.b, &inv);
		must(t, "registering again", finish(w));
		CHECK(t, w->wc.opcode == IB_WC_REG_MR, "opcode %d", w->wc.opcode);
		memset(s.far->mem, GUARD, 4096);
		fill(s.near->mem, 1000, i);
		must(t, "a WRITE",
		     touch(&s, IB_WR_RDMA_WRITE, 1000, s.r->mr->iova, s.r->mr->rkey));
		check_room(t, s.far, at, 1000, i);
	}
}

/* The peer says with a SEND of so many bytes that it is done with a key. */
static void invalidate_by_peer(struct scene *s, u32 len, u32 seed)
{
	struct test *t = s->a->t;
	struct ib_sge sge = near_piece(s, 0, len);
	struct ib_send_wr wr = {
		.opcode = IB_WR_SEND_WITH_INV, .ex.invalidate_rkey = s->r->mr->rkey,
		.sg_list = &sge, .num_sge = !!len,
	};
	struct waiter *came = post_receive(s->b, s->far, 0, 4096);
	struct ib_wc *wc = &came->wc;

	fill(s->near->mem, len, seed);
	must(t, "a SEND_WITH_INV", act(s->a, &wr));
	must(t, "its receive", finish(came));
	CHECK(t, wc->byte_len == len && wc->opcode == IB_WC_RECV, "its receive: opcode %d, %u bytes",
	      wc->opcode, wc->byte_len);
	CHECK(t, wc->wc_flags & IB_WC_WITH_INVALIDATE && !(wc->wc_flags & IB_WC_WITH_IMM) &&
	      wc->ex.invalidate_rkey == s->r->mr->rkey, "its receive: flags %x, key %x instead of %x",
	      wc->wc_flags, wc->ex.invalidate_rkey, s->r->mr->rkey);
	compare(t, s->far->mem, len, seed);
}

/*
 * From both ends. What is not registered any more, or was never, may be invalidated once more: who
 * of both ends was first need not be known. That it can be registered again shows that it was
 * invalidated.
 */
static void invalidated(struct test *t)
{
	struct scene s;
	int count = 0;

	set_scene(t, &s, 4096, 0);
	for (t->context = IN_TASK; t->context < IN_HANDLER; t->context++) {
		for (int i = 0; i < 4; i++, count++) {
			if (i % 2)
				invalidate_it(&s);
			invalidate_by_peer(&s, 64 * (i / 2), count);
			invalidate_it(&s);
			invalidate_it(&s);
			register_all(&s);
			fill(s.near->mem, 4096, count);
			touch_all(&s, IB_WR_RDMA_WRITE);
			compare(t, s.far->mem, 4096, count);
		}
	}
}

/* Its owner names it in his own requests: a receive, a SEND, the far side of a READ. */
static void by_owner(struct test *t)
{
	struct ib_sge from, to;
	struct ib_send_wr wr = { .opcode = IB_WR_SEND, .sg_list = &from, .num_sge = 1 };
	struct ib_rdma_wr rd;
	struct region *lent;
	struct waiter *came;
	struct scene s;

	set_scene(t, &s, 8192, ALL_RIGHTS);
	lent = make_region(s.a, IB_MR_TYPE_MEM_REG, 3);
	map_room(lent, s.near, 50, 8000);
	must(t, "registering for local use", register_by(s.a, lent, IB_ACCESS_LOCAL_WRITE));
	from = (struct ib_sge) { .addr = lent->mr->iova, .length = 8000, .lkey = lent->mr->lkey };
	/* What arrives is put into what a peer may use, too. */
	to = (struct ib_sge) {
		.addr = s.r->mr->iova + 10, .length = 8000, .lkey = s.r->mr->lkey,
	};
	came = post_receive_into(s.b, &to);
	fill(s.near->mem + 50, 8000, 1);
	must(t, "a SEND of it", act(s.a, &wr));
	must(t, "a receive into it", finish(came));
	compare(t, s.far->mem + 10, 8000, 1);
	fill(s.far->mem, 8000, 2);
	rd = reach(&s, IB_WR_RDMA_READ, &from, 0);
	must(t, "a READ into it", act(s.a, &rd.wr));
	compare(t, s.near->mem + 50, 8000, 2);
}

#define FLOOD 40
#define BLOCK 32768

/* Once a registration has ended nothing more is written, whatever was under way. */
static void end_flooded(struct test *t, bool by_verb)
{
	/* One case runs at a time. */
	static struct ib_rdma_wr wr[FLOOD];
	struct waiter *w[FLOOD];
	struct ib_sge sge;
	struct scene s;
	int good = 0;

	set_scene(t, &s, BLOCK, ALL_RIGHTS);
	sge = near_piece(&s, 0, BLOCK);
	for (int i = 0; i < FLOOD; i++) {
		wr[i] = reach(&s, IB_WR_RDMA_WRITE, &sge, 0);
		w[i] = wait_on(t, &wr[i].wr);
		if (i)
			wr[i - 1].wr.next = &wr[i].wr;
	}
	fill(s.near->mem, BLOCK, 1);
	/* The last one is posted when it has ended, for all of them may be quick. */
	wr[FLOOD - 2].wr.next = NULL;
	post_list(s.a, &wr[0].wr);
	/* Not asleep, so that most of them are still to come when the first one is there. */
	for (int i = 0; i < 100000 && !is_done(w[0]); i++)
		cond_resched();
	must(t, "the first WRITE", finish(w[0]));
	if (by_verb) {
		must(t, "deregistering", ib_dereg_mr(s.r->mr));
		s.r->mr = NULL;
	} else {
		invalidate_it(&s);
	}
	memset(s.far->mem, GUARD, BLOCK);
	post_list(s.a, &wr[FLOOD - 1].wr);
	for (int i = 0; i < FLOOD; i++) {
		int status = finish(w[i]);

		if (!status && i == good && i < FLOOD - 1)
			good++;
		else
			CHECK(t, status == (i == good ? IB_WC_REM_ACCESS_ERR : IB_WC_WR_FLUSH_ERR),
			      "WRITE %d of %d: status %d", i, FLOOD, status);
	}
	check_guard(t, s.far, 0, BLOCK);
}

static void ended_flooded(struct test *t)
{
	for (int i = 0; i < 8; i++)
		end_flooded(t, i % 2);
}

/* Pages that lists take, and the room of each in the far room, from the end on: no two are one. */
#define PAGES 6
#define ROOM (4 * PAGE_SIZE)

/* WRITEs all of what is listed, compares it, READs it back, and looks that nothing else changed. */
static void check_listed(struct scene *s, u32 seed)
{
	struct test *t = s->a->t;
	struct scatterlist *sg = s->r->sg;
	u32 len = s->r->mr->length, at = 0;

	register_all(s);
	fill(s->near->mem, len, seed);
	touch_all(s, IB_WR_RDMA_WRITE);
	for (int i = 0; i < s->r->pieces && at < len; i++) {
		CHECK(t, !memcmp(sg_virt(&sg[i]), s->near->mem + at, sg[i].length),
		      "piece %d of %u bytes is wrong", i, len);
		at += sg[i].length;
	}
	memset(s->near->mem, 0, len);
	touch_all(s, IB_WR_RDMA_READ);
	compare(t, s->near->mem, len, seed);
	invalidate_it(s);
	/* With the pieces set back nothing of what was written may be left. */
	at = 0;
	for (int i = 0; i < s->r->pieces && at < len; i++) {
		memset(sg_virt(&sg[i]), GUARD, sg[i].length);
		at += sg[i].length;
	}
	check_guard(t, s->far, 0, s->far->size);
}

/* Maps what is listed, of which so many pieces with so many bytes can be taken, and uses it. */
static void use_list(struct scene *s, int pieces, u32 bytes)
{
	unsigned int skip = 0;
	int taken = map_list(s->r, &skip);

	CHECK(s->a->t, taken == pieces && s->r->mr->length == bytes && !skip,
	      "%d of %d pieces, %llu bytes and %u of the next instead of %d and %u", taken,
	      s->r->pieces, s->r->mr->length, skip, pieces, bytes);
	check_listed(s, bytes);
}

/* A list: where each piece begins and ends in its room, and how many are taken. */
struct list {
	struct {
		u32 from, to;
	} piece[PAGES];
	int taken;
};

static void use_lists(struct scene *s, const struct list *list, int count)
{
	for (; count--; list++) {
		u32 bytes = 0;

		list_again(s->r);
		for (int k = 0; k < PAGES && list->piece[k].to; k++) {
			u32 from = list->piece[k].from, len = list->piece[k].to - from;

			list_piece(s->r, s->far, (PAGES - 1 - k) * ROOM + from, len);
			bytes += k < list->taken ? len : 0;
		}
		use_list(s, list->taken, bytes);
	}
}

static void page_lists(struct test *t)
{
	static const struct list lists[] = {
		/* The first one may begin, and the last one end, within a page. */
		{ { { 0, PAGE_SIZE }, { 0, PAGE_SIZE }, { 0, PAGE_SIZE } }, 3 },
		{ { { 1365, PAGE_SIZE }, { 0, PAGE_SIZE }, { 0, 2731 } }, 3 },
		{ { { PAGE_SIZE - 1, PAGE_SIZE }, { 0, PAGE_SIZE }, { 0, 1 } }, 3 },
		{ { { 100, 2 * PAGE_SIZE }, { 0, 3 * PAGE_SIZE + 7 } }, 2 },
		{ { { 77, 78 } }, 1 },
		/* What follows one that ends within a page, and one that begins there, is not taken. */
		{ { { 0, PAGE_SIZE }, { 0, 100 }, { 0, PAGE_SIZE } }, 2 },
		{ { { 0, PAGE_SIZE }, { 0, PAGE_SIZE }, { 1, PAGE_SIZE } }, 2 },
	};
	struct scene s;

	set_scene(t, &s, PAGES * ROOM, 0);
	use_lists(&s, lists, ARRAY_SIZE(lists));
}

/* Pieces of any size that begin and end anywhere, as far as there is room. */
static void gap_lists(struct test *t)
{
	static const struct list lists[] = {
		{ { { 0, 1 }, { 37, 290 }, { 74, PAGE_SIZE }, { 0, PAGE_SIZE }, { 11, 12 } }, 5 },
		{ { { 0, 1 }, { 37, 290 }, { 74, 577 }, { 0, PAGE_SIZE }, { 11, 12 }, { 5, 9 } }, 5 },
	};
	struct scene s;

	set_scene(t, &s, PAGES * ROOM, 0);
	s.r = make_region(s.b, IB_MR_TYPE_SG_GAPS, PAGES - 1);
	use_lists(&s, lists, ARRAY_SIZE(lists));
}

const struct kuser_case registration_cases[] = {
	{ "registered-again", again },
	{ "invalidated-twice", invalidated },
	{ "by-owner", by_owner },
	{ "ended-under-writes", ended_flooded },
	{ "page-lists", page_lists },
	{ "gap-lists", gap_lists },
	{}
};
