// SPDX-License-Identifier: GPL-2.0
/*
 * Fast registration used wrongly: with which status each ends, that the queue pair is in ERR then,
 * and that nothing was written. Each is on a queue pair of its own.
 */
#include "kuser.h"

#define SIZE 8192
/* What is registered lies within a page, so that there is memory before it and behind it. */
#define AT 512
#define LENGTH 6000

/* A pair. The far end has mapped a part of its room, and registered it unless `access` is 0. */
static void arrange(struct test *t, struct scene *s, int access)
{
	set_scene(t, s, SIZE, 0);
	map_room(s->r, s->far, AT, LENGTH);
	if (access)
		must(t, "registering", register_by(s->b, s->r, access));
}

/* The request ended so, and took its queue pair with it: what follows is flushed. */
static void ends(struct end *e, const char *what, int status, int want)
{
	struct ib_send_wr wr = { .opcode = IB_WR_SEND };

	expect(e->t, what, status, want);
	CHECK(e->t, comes_to(e, IB_QPS_ERR), "%s: not in ERR", what);
	expect(e->t, "what is behind it", act(e, &wr), IB_WC_WR_FLUSH_ERR);
}

/* What is registered stays so, with its key and what it leads to, and can be invalidated. */
static void is_unharmed(struct scene *s)
{
	struct test *t = s->a->t;
	struct scene other;

	beside(s, &other, IB_QPT_RC);
	fill(s->near->mem, LENGTH, 7);
	touch_all(&other, IB_WR_RDMA_WRITE);
	check_room(t, s->far, AT, LENGTH, 7);
	must(t, "invalidating", invalidate(other.b, s->r->mr->rkey));
}

/* Registrations that are refused: what is wrong with each. */
static const struct registering {
	const char *what;
	int access;
	/* It is registered already, with another list, or with none: its user has not asked. */
	bool twice, mapped_again, unmapped;
	/* By the end whose domain it is not. */
	bool elsewhere;
	/* Of the key only the low byte is the user's. */
	u32 key_error;
	/* More than is mapped, nothing, or addresses beyond the last one. */
	int more;
	u64 iova;
} registerings[] = {
	{ "registered already", ALL_RIGHTS, .twice = true },
	{ "registered already, another list", ALL_RIGHTS, .twice = true, .mapped_again = true },
	{ "nothing is mapped", ALL_RIGHTS, .unmapped = true },
	{ "another domain", ALL_RIGHTS, .elsewhere = true },
	{ "rights to write without the owner's", IB_ACCESS_REMOTE_WRITE },
	{ "atomic rights without the owner's", IB_ACCESS_REMOTE_ATOMIC | IB_ACCESS_REMOTE_READ },
	{ "rights that it cannot have", ALL_RIGHTS | IB_ACCESS_MW_BIND },
	{ "on-demand paging", ALL_RIGHTS | IB_ACCESS_ON_DEMAND },
	{ "unknown rights", ALL_RIGHTS | 1 << 15 },
	{ "a wrong key", ALL_RIGHTS, .key_error = 0x5a5a5a00 },
	{ "more than is mapped", ALL_RIGHTS, .more = 1 },
	{ "no bytes", ALL_RIGHTS, .more = -LENGTH },
	{ "addresses beyond the last one", ALL_RIGHTS, .iova = 1 - (u64)LENGTH },
};

static void register_wrong(struct test *t)
{
	for (int i = 0; i < ARRAY_SIZE(registerings); i++) {
		const struct registering *r = &registerings[i];
		struct ib_reg_wr wr;
		struct scene s;
		struct end *e;

		arrange(t, &s, r->twice ? ALL_RIGHTS : 0);
		if (r->mapped_again)
			map_room(s.r, s.far, AT, LENGTH);
		if (r->unmapped) {
			s.r = make_region(s.b, IB_MR_TYPE_MEM_REG, 2);
			s.r->mr->iova = s.far->addr;
			s.r->mr->length = 100;
		}
		s.r->mr->length += r->more;
		s.r->mr->iova = r->iova ?: s.r->mr->iova;
		wr = registration(s.r, r->access);
		wr.key ^= r->key_error;
		e = r->elsewhere ? s.a : s.b;
		ends(e, r->what, act(e, &wr.wr), IB_WC_MW_BIND_ERR);
		if (r->twice)
			is_unharmed(&s);
	}
}

/* Keys that are not to be invalidated, by the user or by the peer, whose receive is not filled. */
static void invalidate_wrong(struct test *t)
{
	static const char *const what[] = {
		"the key of all memory", "a key of nothing", "a key of before", "of another domain",
	};

	for (int i = 0; i < 2 * ARRAY_SIZE(what); i++) {
		struct ib_send_wr wr = { .opcode = IB_WR_SEND_WITH_INV };
		struct scene s, other;
		struct waiter *came;
		u32 own;

		arrange(t, &s, ALL_RIGHTS);
		arrange(t, &other, ALL_RIGHTS);
		own = s.r->mr->rkey;
		wr.ex.invalidate_rkey = (u32[]) {
			s.b->pd->local_dma_lkey, own ^ 0x5a5a5a00, (own & ~0xff) | ((own - 1) & 0xff),
			other.r->mr->rkey,
		}[i / 2];
		if (i % 2) {
			came = post_receive(s.b, NULL, 0, 0);
			ends(s.a, what[i / 2], act(s.a, &wr), IB_WC_REM_ACCESS_ERR);
			CHECK(t, comes_to(s.b, IB_QPS_ERR), "the other end is not in ERR");
			expect(t, "its receive", finish(came), IB_WC_WR_FLUSH_ERR);
		} else {
			ends(s.b, what[i / 2], invalidate(s.b, wr.ex.invalidate_rkey),
			     IB_WC_MW_BIND_ERR);
		}
		is_unharmed(&s);
		is_unharmed(&other);
	}
}

/*
 * Requests by an own key that was invalidated, of a byte too many, by a wrong key. Those of a peer
 * are judged by the same code as those that name a window: memory.windows-* has them.
 */
static void use_wrong(struct test *t)
{
	for (int i = 0; i < 3; i++) {
		struct ib_sge sge = {};
		struct ib_send_wr wr = { .opcode = IB_WR_SEND, .sg_list = &sge, .num_sge = 1 };
		struct scene s;

		arrange(t, &s, ALL_RIGHTS);
		sge = (struct ib_sge) {
			.addr = s.r->mr->iova + (i == 1 ? LENGTH - 7 : 0), .length = 8,
			.lkey = s.r->mr->lkey ^ (i == 2),
		};
		if (i == 0)
			must(t, "invalidating", invalidate(s.b, s.r->mr->lkey));
		post_receive(s.a, s.near, 0, 8);
		memset(s.near->mem, GUARD, SIZE);
		ends(s.b, "a SEND", act(s.b, &wr), IB_WC_LOC_PROT_ERR);
		check_guard(t, s.near, 0, SIZE);
	}
}

/* Lists, sizes of pages, and regions that cannot be. */
static void wrong_lists(struct test *t)
{
	u32 most = t->place[1].dev->attrs.max_fast_reg_page_list_len;
	static const struct {
		int pieces;
		u32 page;
	} lists[] = { { 0, PAGE_SIZE }, { 1, PAGE_SIZE / 2 }, { 1, 3 * PAGE_SIZE } };
	const struct {
		enum ib_mr_type type;
		u32 pages;
		int want;
	} regions[] = {
		/* As many pages as the device says, and not one more. */
		{ IB_MR_TYPE_MEM_REG, most + 1, -EINVAL }, { IB_MR_TYPE_MEM_REG, 0, -EINVAL },
		{ IB_MR_TYPE_DM, 1, -EOPNOTSUPP },
	};
	struct scene s;

	arrange(t, &s, ALL_RIGHTS);
	for (int i = 0; i < ARRAY_SIZE(lists); i++)
		CHECK(t, ib_map_mr_sg(s.r->mr, s.r->sg, lists[i].pieces, NULL, lists[i].page) ==
		      -EINVAL, "%d pieces of pages of %u bytes", lists[i].pieces, lists[i].page);
	make_region(s.b, IB_MR_TYPE_MEM_REG, most);
	for (int i = 0; i < ARRAY_SIZE(regions); i++)
		CHECK(t, ib_alloc_mr(s.b->pd, regions[i].type, regions[i].pages) ==
		      ERR_PTR(regions[i].want), "a region of type %d, of %u pages", regions[i].type,
		      regions[i].pages);
	/* What was registered before does not mind; and what failed is not mapped. */
	is_unharmed(&s);
	ends(s.b, "a list that was refused", register_by(s.b, s.r, ALL_RIGHTS), IB_WC_MW_BIND_ERR);
}

const struct kuser_case misuse_cases[] = {
	{ "register-wrong", register_wrong },
	{ "invalidate-wrong", invalidate_wrong },
	{ "use-wrong", use_wrong },
	{ "wrong-lists", wrong_lists },
	{}
};
