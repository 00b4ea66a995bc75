// SPDX-License-Identifier: GPL-2.0
/*
 * Fast registration used wrongly: with which status or error each ends, that the queue pair is in
 * ERR then, and that nothing was written. Each is on a queue pair of its own.
 */
#include "kuser.h"

#define SIZE 8192
/* What is registered lies within a page, so that there is memory before it and behind it. */
#define AT 512
#define LENGTH 6000

/* A pair. The far end has mapped a part of its room, and registered it unless `access` is 0. */
static void arrange(struct test *t, struct scene *s, int access)
{
	set_scene(t, s, NULL, SIZE, 0);
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
	status = act(e, &wr);
	CHECK(e->t, status == IB_WC_WR_FLUSH_ERR, "behind %s: status %d", what, status);
}

/* A request of the near end that the far end refuses: both are in ERR, and nothing was written. */
static void is_refused(struct scene *s, const char *what, int status, int want)
{
	ends(s->a, what, status, want);
	check_guard(s->a->t, s->far, 0, SIZE);
	CHECK(s->a->t, comes_to(s->b, IB_QPS_ERR), "%s: the other end is not in ERR", what);
}

/* What is registered stays so, with its key and what it leads to, and can be invalidated. */
static void is_unharmed(struct scene *s, u32 key)
{
	struct test *t = s->a->t;
	struct scene other;

	beside(s, &other, IB_QPT_RC);
	fill(s->near->mem, LENGTH, 7);
	must(t, "a WRITE to a region that stays",
	     touch(&other, IB_WR_RDMA_WRITE, LENGTH, s->r->mr->iova, key));
	check_room(t, s->far, AT, LENGTH, 7);
	must(t, "invalidating", invalidate(other.b, key));
}

static void register_twice(struct test *t)
{
	struct scene s;
	u32 key;

	for (int i = 0; i < 2; i++) {
		arrange(t, &s, ALL_RIGHTS);
		key = s.r->mr->rkey;
		/* With a list of its own, or the one that is registered. */
		if (i)
			map_room(s.r, s.far, AT, LENGTH);
		ends(s.b, "what is registered", register_by(s.b, s.r, ALL_RIGHTS),
		     IB_WC_MW_BIND_ERR);
		is_unharmed(&s, key);
	}
}

/* Registrations that are refused: what is wrong with each. */
static const struct registering {
	const char *what;
	int access;
	/* By the end whose domain it is not. */
	bool elsewhere;
	/* Its user has not asked how much is mapped. */
	bool unmapped;
	/* Of the key only the low byte is the user's. */
	u32 key_error;
	bool of_another;
	/* More than is mapped, nothing, or addresses beyond the last one. */
	int more;
	u64 iova;
} registerings[] = {
	{ "nothing is mapped", ALL_RIGHTS, .unmapped = true },
	{ "another domain", ALL_RIGHTS, .elsewhere = true },
	{ "wrong rights", IB_ACCESS_REMOTE_WRITE },
	{ "wrong rights", IB_ACCESS_REMOTE_ATOMIC | IB_ACCESS_REMOTE_READ },
	{ "wrong rights", ALL_RIGHTS | IB_ACCESS_MW_BIND },
	{ "wrong rights", ALL_RIGHTS | IB_ACCESS_ON_DEMAND },
	{ "wrong rights", ALL_RIGHTS | 1 << 15 },
	{ "a wrong key", ALL_RIGHTS, .key_error = 0x5a5a5a00 },
	{ "a wrong key", ALL_RIGHTS, .of_another = true },
	{ "a wrong range", ALL_RIGHTS, .more = 1 },
	{ "a wrong range", ALL_RIGHTS, .more = -LENGTH },
	{ "a wrong range", ALL_RIGHTS, .iova = 1 - (u64)LENGTH },
};

static void register_wrong(struct test *t)
{
	const struct registering *r = registerings;
	struct scene s, other;
	struct ib_reg_wr wr;
	struct end *e;

	for (; r < registerings + ARRAY_SIZE(registerings); r++) {
		arrange(t, &s, 0);
		arrange(t, &other, 0);
		if (r->unmapped) {
			s.r = make_region(s.b, IB_MR_TYPE_MEM_REG, 2);
			s.r->mr->iova = s.far->addr;
			s.r->mr->length = 100;
		}
		s.r->mr->length += r->more;
		s.r->mr->iova = r->iova ?: s.r->mr->iova;
		wr = registration(s.r, r->access);
		wr.key = r->of_another ? other.r->mr->rkey : wr.key ^ r->key_error;
		e = r->elsewhere ? s.a : s.b;
		ends(e, r->what, act(e, &wr.wr), IB_WC_MW_BIND_ERR);
	}
}

/* Only RC has it. With the others the sending half alone has ended. */
static void register_unreliable(struct test *t)
{
	static const enum ib_qp_type kinds[] = { IB_QPT_UC, IB_QPT_UD };
	struct scene s, other;

	for (int i = 0; i < 2 * ARRAY_SIZE(kinds); i++) {
		struct ib_send_wr inv = { .opcode = IB_WR_LOCAL_INV };
		struct ib_reg_wr reg;

		arrange(t, &s, i % 2 ? ALL_RIGHTS : 0);
		beside(&s, &other, kinds[i / 2]);
		reg = registration(s.r, ALL_RIGHTS);
		inv.ex.invalidate_rkey = s.r->mr->rkey;
		expect(t, i % 2 ? "invalidating" : "registering",
		       act(other.b, i % 2 ? &inv : &reg.wr), IB_WC_LOC_QP_OP_ERR);
		CHECK(t, comes_to(other.b, IB_QPS_SQE), "not in SQE");
		if (i % 2)
			is_unharmed(&s, s.r->mr->rkey);
	}
}

/* Keys that are not to be invalidated. */
static u32 wrong_key(struct scene *s, struct scene *other, int which)
{
	u32 of = s->r->mr->rkey;
	u32 keys[] = {
		of ^ 0x5a5a5a00, (of & ~0xff) | ((of - 1) & 0xff), s->b->pd->local_dma_lkey,
		other->r->mr->rkey, 0,
	};

	return keys[which];
}

/* By the user, or by the peer: the receive that its SEND has taken is not filled. */
static void invalidate_wrong(struct test *t)
{
	static const char *const wrong_keys[] = {
		"the key of nothing", "a key of before", "the key of all memory",
		"of another domain", "no key",
	};
	bool by_peer = t->how->opcode == IB_WR_SEND_WITH_INV;

	/* For the peer to name no key is to invalidate none. */
	for (int i = 0; i < ARRAY_SIZE(wrong_keys) - by_peer; i++) {
		struct ib_send_wr wr = { .opcode = IB_WR_SEND_WITH_INV };
		struct scene s, other;
		struct waiter *came;

		arrange(t, &s, ALL_RIGHTS);
		arrange(t, &other, ALL_RIGHTS);
		wr.ex.invalidate_rkey = wrong_key(&s, &other, i);
		if (by_peer) {
			came = post_receive(s.b, NULL, 0, 0);
			is_refused(&s, wrong_keys[i], act(s.a, &wr), IB_WC_REM_ACCESS_ERR);
			expect(t, "its receive", finish(came), IB_WC_WR_FLUSH_ERR);
		} else {
			ends(s.b, wrong_keys[i], invalidate(s.b, wr.ex.invalidate_rkey),
			     IB_WC_MW_BIND_ERR);
		}
		is_unharmed(&s, s.r->mr->rkey);
		is_unharmed(&other, other.r->mr->rkey);
	}
}

/* Requests of the peer that are refused. */
static const struct refusal {
	const char *what;
	enum ib_wr_opcode opcode;
	int access;
	u64 at;
	u32 len;
	/* Or REM_ACCESS_ERR. */
	enum ib_wc_status want;
} refusals[] = {
	/* One byte too far, one too early, far away. */
	{ "beyond it", IB_WR_RDMA_WRITE, ALL_RIGHTS, 0, LENGTH + 1 },
	{ "beyond it", IB_WR_RDMA_WRITE, ALL_RIGHTS, LENGTH, 1 },
	{ "beyond it", IB_WR_RDMA_WRITE, ALL_RIGHTS, -1, 1 },
	{ "beyond it", IB_WR_RDMA_WRITE, ALL_RIGHTS, -1, LENGTH + 1 },
	{ "beyond it", IB_WR_RDMA_WRITE, ALL_RIGHTS, 1, LENGTH },
	{ "beyond it", IB_WR_RDMA_WRITE, ALL_RIGHTS, 1ull << 40, 8 },
	{ "beyond it", IB_WR_RDMA_READ, ALL_RIGHTS, 0, LENGTH + 1 },
	{ "beyond it", IB_WR_RDMA_READ, ALL_RIGHTS, LENGTH, 1 },
	{ "beyond it", IB_WR_RDMA_READ, ALL_RIGHTS, -1, 2 },
	{ "without the right", IB_WR_RDMA_WRITE, ALL_RIGHTS & ~IB_ACCESS_REMOTE_WRITE, 0, 100 },
	{ "without the right", IB_WR_RDMA_READ, ALL_RIGHTS & ~IB_ACCESS_REMOTE_READ, 0, 100 },
	{ "without the right", IB_WR_RDMA_WRITE, IB_ACCESS_LOCAL_WRITE, 0, 100 },
	{ "without the right", IB_WR_RDMA_READ, IB_ACCESS_LOCAL_WRITE, 0, 100 },
	{ "a wrong word", IB_WR_ATOMIC_FETCH_AND_ADD, ALL_RIGHTS & ~IB_ACCESS_REMOTE_ATOMIC },
	{ "a wrong word", IB_WR_ATOMIC_FETCH_AND_ADD, ALL_RIGHTS, LENGTH },
	/* Half of it is beyond, and it is no word. */
	{ "a wrong word", IB_WR_ATOMIC_FETCH_AND_ADD, ALL_RIGHTS, LENGTH - 4, 0,
	  IB_WC_REM_INV_REQ_ERR },
	{ "a wrong word", IB_WR_ATOMIC_FETCH_AND_ADD, ALL_RIGHTS, 4, 0, IB_WC_REM_INV_REQ_ERR },
};

static void refused(struct test *t)
{
	const struct refusal *r = refusals;
	struct scene s;

	for (; r < refusals + ARRAY_SIZE(refusals); r++) {
		struct ib_atomic_wr add;
		struct ib_sge sge;
		int status;

		if ((r->opcode == IB_WR_ATOMIC_FETCH_AND_ADD) != !!t->how->opcode)
			continue;
		arrange(t, &s, r->access);
		memset(s.near->mem, GUARD, SIZE);
		sge = near_piece(&s, 0, 8);
		add = reach_word(&s, &sge, r->at);
		add.compare_add = 1;
		status = r->opcode == IB_WR_ATOMIC_FETCH_AND_ADD ? act(s.a, &add.wr) :
			 touch(&s, r->opcode, r->len, s.r->mr->iova + r->at, s.r->mr->rkey);
		is_refused(&s, r->what, status, r->want ?: IB_WC_REM_ACCESS_ERR);
		check_guard(t, s.near, 0, SIZE);
	}
	/* From the first byte to the last is no fault. */
	arrange(t, &s, ALL_RIGHTS);
	is_unharmed(&s, s.r->mr->rkey);
}

/* A key that leads nowhere any more, or to another domain. */
static void stale_key(struct test *t)
{
	enum { UNREGISTERED, INVALIDATED, ANEW, DEREGISTERED, OTHER_DOMAIN, NO_REGION, KEYS };
	static const char *const what[KEYS] = {
		"not registered yet", "invalidated", "registered again under another key",
		"deregistered", "of another domain", "of no region",
	};

	for (int i = 0; i < KEYS; i++) {
		struct scene s, other;
		u32 key;

		arrange(t, &s, i == UNREGISTERED ? 0 : ALL_RIGHTS);
		arrange(t, &other, ALL_RIGHTS);
		key = i == OTHER_DOMAIN ? other.r->mr->rkey : s.r->mr->rkey;
		if (i == INVALIDATED || i == ANEW)
			must(t, "invalidating", invalidate(s.b, key));
		if (i == ANEW)
			must(t, "registering", register_by(s.b, s.r, ALL_RIGHTS));
		if (i == DEREGISTERED) {
			/* While it is registered still. */
			must(t, "deregistering", ib_dereg_mr(s.r->mr));
			s.r->mr = NULL;
		}
		if (i == NO_REGION)
			key ^= 0x5a5a5a00;
		is_refused(&s, what[i], touch(&s, IB_WR_RDMA_WRITE, 8, s.far->addr + AT, key),
			   IB_WC_REM_ACCESS_ERR);
		check_guard(t, other.far, 0, SIZE);
		is_unharmed(&other, other.r->mr->rkey);
		if (i == ANEW)
			is_unharmed(&s, s.r->mr->rkey);
	}
}

/* Own requests by a key that leads nowhere any more. */
static void stale_local_key(struct test *t)
{
	struct scene s;

	for (int i = 0; i < 3; i++) {
		struct ib_sge sge = {};
		struct ib_send_wr wr = { .opcode = IB_WR_SEND, .sg_list = &sge, .num_sge = 1 };
		struct region *lent;

		arrange(t, &s, 0);
		lent = make_region(s.a, IB_MR_TYPE_MEM_REG, 3);
		map_room(lent, s.near, AT, LENGTH);
		must(t, "registering", register_by(s.a, lent, IB_ACCESS_LOCAL_WRITE));
		sge = (struct ib_sge) {
			.addr = lent->mr->iova, .length = 8, .lkey = lent->mr->lkey,
		};
		if (i == 0)
			must(t, "invalidating", invalidate(s.a, lent->mr->lkey));
		else if (i == 1)
			sge.addr += LENGTH - 7;
		else
			sge.lkey ^= 1;
		post_receive(s.b, s.far, 0, 8);
		ends(s.a, "a SEND", act(s.a, &wr), IB_WC_LOC_PROT_ERR);
		check_guard(t, s.far, 0, SIZE);
	}
}

/* A list, or a size of pages, that cannot be. */
static void map_wrong(struct scene *s, int pieces, u32 page)
{
	int err = ib_map_mr_sg(s->r->mr, s->r->sg, pieces, NULL, page);

	CHECK(s->a->t, err == -EINVAL, "%d pieces of pages of %u bytes: %d", pieces, page, err);
}

/* A region that cannot be. */
static void make_wrong(struct scene *s, enum ib_mr_type type, u32 pages, int want)
{
	struct ib_mr *mr = ib_alloc_mr(s->b->pd, type, pages);

	CHECK(s->a->t, mr == ERR_PTR(want), "a region of type %d, of %u pages: %ld", type, pages,
	      PTR_ERR(mr));
}

static void wrong_lists(struct test *t)
{
	struct scene s;

	arrange(t, &s, ALL_RIGHTS);
	map_wrong(&s, 0, PAGE_SIZE);
	map_wrong(&s, 1, PAGE_SIZE / 2);
	map_wrong(&s, 1, 3 * PAGE_SIZE);
	make_wrong(&s, IB_MR_TYPE_MEM_REG, t->place[1].dev->attrs.max_fast_reg_page_list_len + 1,
		   -EINVAL);
	make_wrong(&s, IB_MR_TYPE_MEM_REG, 0, -EINVAL);
	make_wrong(&s, IB_MR_TYPE_DM, 1, -EOPNOTSUPP);
	/* What was registered before does not mind; and what failed is not mapped. */
	is_unharmed(&s, s.r->mr->rkey);
	ends(s.b, "a list that was refused", register_by(s.b, s.r, ALL_RIGHTS), IB_WC_MW_BIND_ERR);
}

const struct kuser_case misuse_cases[] = {
	{ "register-twice", register_twice },
	{ "register-wrong", register_wrong },
	{ "register-unreliable", register_unreliable },
	{ "invalidate-wrong", invalidate_wrong },
	{ "peer-invalidates-wrong", invalidate_wrong, .opcode = IB_WR_SEND_WITH_INV },
	{ "refused", refused },
	{ "atomic-wrong", refused, .opcode = IB_WR_ATOMIC_FETCH_AND_ADD },
	{ "stale-key", stale_key },
	{ "stale-local-key", stale_local_key },
	{ "wrong-lists", wrong_lists },
	{}
};
