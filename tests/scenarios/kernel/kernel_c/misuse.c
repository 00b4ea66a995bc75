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
static int arrange(struct test *t, struct scene *s, int access)
{
	int status;

	if (set_scene(t, s, NULL, SIZE, 0) || map_room(s->r, s->far, AT, LENGTH))
		return -EIO;
	status = access ? register_by(s->b, s->r, access) : 0;
	return status ? fail(t, "registering: status %d", status) : 0;
}

/* The request ended so, and took its queue pair with it: what follows is flushed. */
static int ends(struct end *e, const char *what, int status, int want)
{
	struct ib_send_wr wr = { .opcode = IB_WR_SEND };

	if (expect(e->t, what, status, want))
		return -EIO;
	if (!wait_for(e->t, state_of(e) == IB_QPS_ERR))
		return fail(e->t, "%s: state %d", what, state_of(e));
	status = act(e, &wr);
	return status == IB_WC_WR_FLUSH_ERR ? 0 : fail(e->t, "behind %s: status %d", what, status);
}

/* A request of the near end that the far end refuses: both are in ERR, and nothing was written. */
static int is_refused(struct scene *s, const char *what, int status, int want)
{
	if (ends(s->a, what, status, want))
		return -EIO;
	if (!is_guarded(s->far, 0, SIZE))
		return fail(s->a->t, "%s: written nevertheless", what);
	if (!wait_for(s->a->t, state_of(s->b) == IB_QPS_ERR))
		return fail(s->a->t, "%s: state %d of the other end", what, state_of(s->b));
	return 0;
}

/* Another pair of the same domains. */
static int beside(struct scene *s, struct scene *other, enum ib_qp_type kind)
{
	struct wish wish = { .kind = kind, .way = BY_SOFTIRQ, .mate = s->a };

	*other = *s;
	other->a = make_end(s->a->t, 0, &wish);
	wish.mate = s->b;
	other->b = other->a ? make_end(s->a->t, 1, &wish) : NULL;
	return other->b ? connect(other->a, other->b, &wish) : -EIO;
}

/* What is registered stays so, with its key and what it leads to, and can be invalidated. */
static int is_unharmed(struct scene *s, u32 key)
{
	struct test *t = s->a->t;
	struct scene other;

	if (beside(s, &other, IB_QPT_RC))
		return -EIO;
	fill(s->near->mem, LENGTH, 7);
	if (touch(&other, IB_WR_RDMA_WRITE, LENGTH, s->r->mr->iova, key))
		return fail(t, "the region cannot be used any more");
	if (differs(s->far->mem + AT, LENGTH, 7) >= 0 || !is_guarded(s->far, 0, AT) ||
	    !is_guarded(s->far, AT + LENGTH, SIZE))
		return fail(t, "the region is not what it was");
	return invalidate(other.b, key) ? fail(t, "invalidating") : 0;
}

static int register_twice(struct test *t)
{
	struct scene s;
	u32 key;

	for (int i = 0; i < 2; i++) {
		if (arrange(t, &s, ALL_RIGHTS))
			return -EIO;
		key = s.r->mr->rkey;
		/* With a list of its own, or the one that is registered. */
		if (i && map_room(s.r, s.far, AT, LENGTH))
			return -EIO;
		if (ends(s.b, "what is registered", register_by(s.b, s.r, ALL_RIGHTS),
			 IB_WC_MW_BIND_ERR) || is_unharmed(&s, key))
			return -EIO;
	}
	return 0;
}

static int register_unmapped(struct test *t)
{
	struct scene s;

	if (arrange(t, &s, 0))
		return -EIO;
	s.r = make_region(s.b, IB_MR_TYPE_MEM_REG, 2);
	if (!s.r)
		return -EIO;
	/* Its user has not asked how much is mapped. */
	s.r->mr->iova = s.far->addr;
	s.r->mr->length = 100;
	return ends(s.b, "nothing mapped", register_by(s.b, s.r, ALL_RIGHTS), IB_WC_MW_BIND_ERR);
}

static int register_other_domain(struct test *t)
{
	struct scene s;

	return arrange(t, &s, 0) ?:
	       ends(s.a, "of another domain", register_by(s.a, s.r, ALL_RIGHTS), IB_WC_MW_BIND_ERR);
}

static int register_wrong_rights(struct test *t)
{
	static const int wrong[] = {
		IB_ACCESS_REMOTE_WRITE,
		IB_ACCESS_REMOTE_ATOMIC | IB_ACCESS_REMOTE_READ,
		ALL_RIGHTS | IB_ACCESS_MW_BIND,
		ALL_RIGHTS | IB_ACCESS_ON_DEMAND,
		ALL_RIGHTS | 1 << 15,
	};
	struct scene s;

	for (int i = 0; i < ARRAY_SIZE(wrong); i++)
		if (arrange(t, &s, 0) ||
		    ends(s.b, "rights", register_by(s.b, s.r, wrong[i]), IB_WC_MW_BIND_ERR))
			return -EIO;
	return 0;
}

/* Of the key only the low byte is the user's. */
static int register_wrong_key(struct test *t)
{
	struct scene s, other;

	for (int i = 0; i < 2; i++) {
		struct ib_reg_wr wr;

		if (arrange(t, &s, 0) || arrange(t, &other, 0))
			return -EIO;
		wr = registration(s.r, ALL_RIGHTS);
		wr.key = i ? other.r->mr->rkey : wr.key ^ 0x5a5a5a00;
		if (ends(s.b, i ? "the key of another" : "no key of it", act(s.b, &wr.wr),
			 IB_WC_MW_BIND_ERR))
			return -EIO;
	}
	return 0;
}

/* More than is mapped, nothing, or addresses beyond the last one. */
static int register_wrong_range(struct test *t)
{
	struct scene s;

	for (int i = 0; i < 3; i++) {
		if (arrange(t, &s, 0))
			return -EIO;
		if (i == 0)
			s.r->mr->length++;
		else if (i == 1)
			s.r->mr->length = 0;
		else
			s.r->mr->iova = 1 - (u64)LENGTH;
		if (ends(s.b, "a range", register_by(s.b, s.r, ALL_RIGHTS), IB_WC_MW_BIND_ERR))
			return -EIO;
	}
	return 0;
}

/* Only RC has it. With the others the sending half alone has ended. */
static int register_unreliable(struct test *t)
{
	static const enum ib_qp_type kinds[] = { IB_QPT_UC, IB_QPT_UD };
	struct scene s, other;

	for (int i = 0; i < 2 * ARRAY_SIZE(kinds); i++) {
		struct ib_send_wr inv = { .opcode = IB_WR_LOCAL_INV };
		struct ib_reg_wr reg;

		if (arrange(t, &s, i % 2 ? ALL_RIGHTS : 0) || beside(&s, &other, kinds[i / 2]))
			return -EIO;
		reg = registration(s.r, ALL_RIGHTS);
		inv.ex.invalidate_rkey = s.r->mr->rkey;
		if (expect(t, i % 2 ? "invalidating" : "registering",
			   act(other.b, i % 2 ? &inv : &reg.wr), IB_WC_LOC_QP_OP_ERR))
			return -EIO;
		if (!wait_for(t, state_of(other.b) == IB_QPS_SQE))
			return fail(t, "state %d", state_of(other.b));
		if (i % 2 && is_unharmed(&s, s.r->mr->rkey))
			return -EIO;
	}
	return 0;
}

/* Keys that are not to be invalidated: of nothing, as it was, of all memory. */
static int invalidate_wrong(struct test *t)
{
	static const char *const what[] = {
		"no key", "the key of nothing", "a key of before", "the key of all memory",
	};
	struct scene s;

	for (int i = 0; i < ARRAY_SIZE(what); i++) {
		u32 keys[ARRAY_SIZE(what)], of;

		if (arrange(t, &s, ALL_RIGHTS))
			return -EIO;
		of = s.r->mr->rkey;
		keys[0] = 0;
		keys[1] = of ^ 0x5a5a5a00;
		keys[2] = (of & ~0xff) | ((of - 1) & 0xff);
		keys[3] = s.b->pd->local_dma_lkey;
		if (ends(s.b, what[i], invalidate(s.b, keys[i]), IB_WC_MW_BIND_ERR) ||
		    is_unharmed(&s, of))
			return -EIO;
	}
	return 0;
}

static int invalidate_other_domain(struct test *t)
{
	struct scene s;

	return arrange(t, &s, ALL_RIGHTS) ?:
	       ends(s.a, "of another domain", invalidate(s.a, s.r->mr->rkey), IB_WC_MW_BIND_ERR) ?:
	       is_unharmed(&s, s.r->mr->rkey);
}

/* What the peer may not invalidate; the receive that the SEND has taken is not filled. */
static int peer_invalidates_wrong(struct test *t)
{
	static const char *const what[] = {
		"the key of nothing", "a key of before", "of another domain",
		"the key of all memory",
	};

	for (int i = 0; i < ARRAY_SIZE(what); i++) {
		struct ib_send_wr wr = { .opcode = IB_WR_SEND_WITH_INV };
		u32 keys[ARRAY_SIZE(what)], of;
		struct scene s, other;
		struct waiter *came;
		int status;

		if (arrange(t, &s, ALL_RIGHTS) || arrange(t, &other, ALL_RIGHTS))
			return -EIO;
		of = s.r->mr->rkey;
		keys[0] = of ^ 0x5a5a5a00;
		keys[1] = (of & ~0xff) | ((of - 1) & 0xff);
		keys[2] = other.r->mr->rkey;
		keys[3] = s.b->pd->local_dma_lkey;
		wr.ex.invalidate_rkey = keys[i];
		came = post_receive(s.b, NULL, 0, 0);
		if (!came || is_refused(&s, what[i], act(s.a, &wr), IB_WC_REM_ACCESS_ERR))
			return -EIO;
		status = finish(came);
		if (status != IB_WC_WR_FLUSH_ERR)
			return fail(t, "%s: its receive: status %d", what[i], status);
		if (is_unharmed(&s, of) || is_unharmed(&other, other.r->mr->rkey))
			return -EIO;
	}
	return 0;
}

/* One byte too far, one too early, far away. */
static int beyond(struct test *t)
{
	static const struct {
		enum ib_wr_opcode opcode;
		u64 at;
		u32 len;
	} reaches[] = {
		{ IB_WR_RDMA_WRITE, 0, LENGTH + 1 },
		{ IB_WR_RDMA_WRITE, LENGTH, 1 },
		{ IB_WR_RDMA_WRITE, -1, 1 },
		{ IB_WR_RDMA_WRITE, -1, LENGTH + 1 },
		{ IB_WR_RDMA_WRITE, 1, LENGTH },
		{ IB_WR_RDMA_WRITE, 1ull << 40, 8 },
		{ IB_WR_RDMA_READ, 0, LENGTH + 1 },
		{ IB_WR_RDMA_READ, LENGTH, 1 },
		{ IB_WR_RDMA_READ, -1, 2 },
	};
	struct scene s;

	for (int i = 0; i < ARRAY_SIZE(reaches); i++) {
		u64 at;

		if (arrange(t, &s, ALL_RIGHTS))
			return -EIO;
		at = s.r->mr->iova + reaches[i].at;
		if (is_refused(&s, "beyond", touch(&s, reaches[i].opcode, reaches[i].len, at,
						   s.r->mr->rkey), IB_WC_REM_ACCESS_ERR))
			return -EIO;
	}
	/* From the first byte to the last is not. */
	return arrange(t, &s, ALL_RIGHTS) ?: is_unharmed(&s, s.r->mr->rkey);
}

/* A right that was not given; READs bring nothing. */
static int without_right(struct test *t)
{
	static const struct {
		enum ib_wr_opcode opcode;
		int access;
	} lacks[] = {
		{ IB_WR_RDMA_WRITE, ALL_RIGHTS & ~IB_ACCESS_REMOTE_WRITE },
		{ IB_WR_RDMA_READ, ALL_RIGHTS & ~IB_ACCESS_REMOTE_READ },
		{ IB_WR_RDMA_WRITE, IB_ACCESS_LOCAL_WRITE },
		{ IB_WR_RDMA_READ, IB_ACCESS_LOCAL_WRITE },
	};
	struct scene s;

	for (int i = 0; i < ARRAY_SIZE(lacks); i++) {
		if (arrange(t, &s, lacks[i].access))
			return -EIO;
		memset(s.near->mem, 1, SIZE);
		if (is_refused(&s, "without the right", touch(&s, lacks[i].opcode, 100,
			       s.r->mr->iova, s.r->mr->rkey), IB_WC_REM_ACCESS_ERR))
			return -EIO;
		if (memchr_inv(s.near->mem, 1, SIZE))
			return fail(t, "the READ has brought something");
	}
	return 0;
}

/* Atomic operations: without the right, beyond the range, not on a word. */
static int atomic_wrong(struct test *t)
{
	static const struct {
		const char *what;
		int access, at, want;
	} wrong[] = {
		{ "without the right", ALL_RIGHTS & ~IB_ACCESS_REMOTE_ATOMIC, 0,
		  IB_WC_REM_ACCESS_ERR },
		{ "behind it", ALL_RIGHTS, LENGTH, IB_WC_REM_ACCESS_ERR },
		{ "half of it", ALL_RIGHTS, LENGTH - 4, IB_WC_REM_INV_REQ_ERR },
		{ "not a word", ALL_RIGHTS, 4, IB_WC_REM_INV_REQ_ERR },
	};
	struct scene s;

	for (int i = 0; i < ARRAY_SIZE(wrong); i++) {
		struct ib_atomic_wr wr;
		struct ib_sge sge;

		if (arrange(t, &s, wrong[i].access))
			return -EIO;
		sge = near_piece(&s, 0, 8);
		wr = reach_word(&s, &sge, wrong[i].at);
		wr.compare_add = 1;
		if (is_refused(&s, wrong[i].what, act(s.a, &wr.wr), wrong[i].want))
			return -EIO;
	}
	return 0;
}

/* A key that leads nowhere any more, or to another domain. */
static int stale_key(struct test *t)
{
	static const char *const what[] = {
		"not registered yet", "invalidated", "registered again under another key",
		"deregistered", "of another domain", "of no region",
	};

	for (int i = 0; i < ARRAY_SIZE(what); i++) {
		struct scene s, other;
		u32 key;
		int err = 0;

		if (arrange(t, &s, i ? ALL_RIGHTS : 0) || arrange(t, &other, ALL_RIGHTS))
			return -EIO;
		key = s.r->mr->rkey;
		if (i == 1 || i == 2)
			err = invalidate(s.b, key);
		if (i == 2)
			err = err ?: register_by(s.b, s.r, ALL_RIGHTS);
		if (i == 3) {
			/* While it is registered still. */
			err = ib_dereg_mr(s.r->mr);
			s.r->mr = NULL;
		}
		if (i == 4)
			key = other.r->mr->rkey;
		if (i == 5)
			key ^= 0x5a5a5a00;
		if (err)
			return fail(t, "%s: error %d", what[i], err);
		if (is_refused(&s, what[i], touch(&s, IB_WR_RDMA_WRITE, 8, s.far->addr + AT, key),
			       IB_WC_REM_ACCESS_ERR))
			return -EIO;
		if (!is_guarded(other.far, 0, SIZE) || is_unharmed(&other, other.r->mr->rkey))
			return fail(t, "%s: the other region", what[i]);
		if (i == 2 && is_unharmed(&s, s.r->mr->rkey))
			return -EIO;
	}
	return 0;
}

/* Own requests by a key that leads nowhere any more. */
static int stale_local_key(struct test *t)
{
	struct scene s;

	for (int i = 0; i < 3; i++) {
		struct ib_sge sge = {};
		struct ib_send_wr wr = { .opcode = IB_WR_SEND, .sg_list = &sge, .num_sge = 1 };
		struct region *lent;
		int err = 0;

		if (arrange(t, &s, 0))
			return -EIO;
		lent = make_region(s.a, IB_MR_TYPE_MEM_REG, 3);
		if (!lent || map_room(lent, s.near, AT, LENGTH) ||
		    register_by(s.a, lent, IB_ACCESS_LOCAL_WRITE))
			return fail(t, "registering");
		sge = (struct ib_sge) {
			.addr = lent->mr->iova, .length = 8, .lkey = lent->mr->lkey,
		};
		if (i == 0)
			err = invalidate(s.a, lent->mr->lkey);
		else if (i == 1)
			sge.addr += LENGTH - 7;
		else
			sge.lkey ^= 1;
		if (err || !post_receive(s.b, s.far, 0, 8))
			return fail(t, "invalidating: error %d", err);
		if (ends(s.a, "a SEND", act(s.a, &wr), IB_WC_LOC_PROT_ERR))
			return -EIO;
		if (!is_guarded(s.far, 0, SIZE))
			return fail(t, "it was sent");
	}
	return 0;
}

/* A list, a size of pages, a region that cannot be. */
static int wrong_lists(struct test *t)
{
	u32 most = t->place[1].dev->attrs.max_fast_reg_page_list_len;
	struct scene s;
	struct ib_mr *mr;
	int err;

	if (arrange(t, &s, ALL_RIGHTS))
		return -EIO;
	err = ib_map_mr_sg(s.r->mr, s.r->sg, 0, NULL, PAGE_SIZE);
	if (err != -EINVAL)
		return fail(t, "an empty list: %d", err);
	err = ib_map_mr_sg(s.r->mr, s.r->sg, 1, NULL, PAGE_SIZE / 2);
	if (err != -EINVAL)
		return fail(t, "half a page: %d", err);
	err = ib_map_mr_sg(s.r->mr, s.r->sg, 1, NULL, 3 * PAGE_SIZE);
	if (err != -EINVAL)
		return fail(t, "three pages: %d", err);
	mr = ib_alloc_mr(s.b->pd, IB_MR_TYPE_MEM_REG, most + 1);
	if (!IS_ERR(mr) || PTR_ERR(mr) != -EINVAL)
		return fail(t, "a region of %u pages: %ld", most + 1, PTR_ERR(mr));
	mr = ib_alloc_mr(s.b->pd, IB_MR_TYPE_MEM_REG, 0);
	if (!IS_ERR(mr) || PTR_ERR(mr) != -EINVAL)
		return fail(t, "a region of no pages: %ld", PTR_ERR(mr));
	mr = ib_alloc_mr(s.b->pd, IB_MR_TYPE_DM, 1);
	if (!IS_ERR(mr) || PTR_ERR(mr) != -EOPNOTSUPP)
		return fail(t, "a region of another type: %ld", PTR_ERR(mr));
	/* What was registered before does not mind; and what failed is not mapped. */
	if (is_unharmed(&s, s.r->mr->rkey))
		return -EIO;
	return ends(s.b, "a list that was refused", register_by(s.b, s.r, ALL_RIGHTS),
		    IB_WC_MW_BIND_ERR);
}

const struct kuser_case misuse_cases[] = {
	{ "register-twice", register_twice },
	{ "register-unmapped", register_unmapped },
	{ "register-other-domain", register_other_domain },
	{ "register-wrong-rights", register_wrong_rights },
	{ "register-wrong-key", register_wrong_key },
	{ "register-wrong-range", register_wrong_range },
	{ "register-unreliable", register_unreliable },
	{ "invalidate-wrong", invalidate_wrong },
	{ "invalidate-other-domain", invalidate_other_domain },
	{ "peer-invalidates-wrong", peer_invalidates_wrong },
	{ "beyond", beyond },
	{ "without-right", without_right },
	{ "atomic-wrong", atomic_wrong },
	{ "stale-key", stale_key },
	{ "stale-local-key", stale_local_key },
	{ "wrong-lists", wrong_lists },
	{}
};
