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
	if (!holds(s->far, AT, LENGTH, 7))
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

/* Registrations that are refused, by the name of their case: what is wrong with each. */
static const struct registering {
	const char *name;
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
	{ "register-unmapped", ALL_RIGHTS, .unmapped = true },
	{ "register-other-domain", ALL_RIGHTS, .elsewhere = true },
	{ "register-wrong-rights", IB_ACCESS_REMOTE_WRITE },
	{ "register-wrong-rights", IB_ACCESS_REMOTE_ATOMIC | IB_ACCESS_REMOTE_READ },
	{ "register-wrong-rights", ALL_RIGHTS | IB_ACCESS_MW_BIND },
	{ "register-wrong-rights", ALL_RIGHTS | IB_ACCESS_ON_DEMAND },
	{ "register-wrong-rights", ALL_RIGHTS | 1 << 15 },
	{ "register-wrong-key", ALL_RIGHTS, .key_error = 0x5a5a5a00 },
	{ "register-wrong-key", ALL_RIGHTS, .of_another = true },
	{ "register-wrong-range", ALL_RIGHTS, .more = 1 },
	{ "register-wrong-range", ALL_RIGHTS, .more = -LENGTH },
	{ "register-wrong-range", ALL_RIGHTS, .iova = 1 - (u64)LENGTH },
};

static int register_wrong(struct test *t)
{
	const struct registering *r = registerings;
	int rows = 0;
	struct scene s, other;
	struct ib_reg_wr wr;
	struct end *e;

	for (; r < registerings + ARRAY_SIZE(registerings); r++) {
		if (strcmp(r->name, t->how->name))
			continue;
		if (arrange(t, &s, 0) || arrange(t, &other, 0))
			return -EIO;
		if (r->unmapped) {
			s.r = make_region(s.b, IB_MR_TYPE_MEM_REG, 2);
			if (!s.r)
				return -EIO;
			s.r->mr->iova = s.far->addr;
			s.r->mr->length = 100;
		}
		s.r->mr->length += r->more;
		s.r->mr->iova = r->iova ?: s.r->mr->iova;
		wr = registration(s.r, r->access);
		wr.key = r->of_another ? other.r->mr->rkey : wr.key ^ r->key_error;
		e = r->elsewhere ? s.a : s.b;
		if (ends(e, r->name, act(e, &wr.wr), IB_WC_MW_BIND_ERR))
			return -EIO;
		rows++;
	}
	return rows ? 0 : fail(t, "no row has its name");
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

/* Keys that are not to be invalidated. */
static const char *const wrong_keys[] = {
	"the key of nothing", "a key of before", "the key of all memory", "of another domain",
	"no key",
};

static u32 wrong_key(struct scene *s, struct scene *other, int which)
{
	u32 of = s->r->mr->rkey;
	u32 keys[] = {
		of ^ 0x5a5a5a00, (of & ~0xff) | ((of - 1) & 0xff), s->b->pd->local_dma_lkey,
		other->r->mr->rkey, 0,
	};

	return keys[which];
}

static int invalidate_wrong(struct test *t)
{
	struct scene s, other;

	for (int i = 0; i < ARRAY_SIZE(wrong_keys); i++) {
		if (arrange(t, &s, ALL_RIGHTS) || arrange(t, &other, ALL_RIGHTS))
			return -EIO;
		if (ends(s.b, wrong_keys[i], invalidate(s.b, wrong_key(&s, &other, i)),
			 IB_WC_MW_BIND_ERR) ||
		    is_unharmed(&s, s.r->mr->rkey) || is_unharmed(&other, other.r->mr->rkey))
			return -EIO;
	}
	return 0;
}

/* What the peer may not invalidate; the receive that the SEND has taken is not filled. */
static int peer_invalidates_wrong(struct test *t)
{
	/* To name no key is to invalidate none. */
	for (int i = 0; wrong_keys[i] != wrong_keys[ARRAY_SIZE(wrong_keys) - 1]; i++) {
		struct ib_send_wr wr = { .opcode = IB_WR_SEND_WITH_INV };
		struct scene s, other;
		struct waiter *came;
		int status;

		if (arrange(t, &s, ALL_RIGHTS) || arrange(t, &other, ALL_RIGHTS))
			return -EIO;
		wr.ex.invalidate_rkey = wrong_key(&s, &other, i);
		came = post_receive(s.b, NULL, 0, 0);
		if (!came || is_refused(&s, wrong_keys[i], act(s.a, &wr), IB_WC_REM_ACCESS_ERR))
			return -EIO;
		status = finish(came);
		if (status != IB_WC_WR_FLUSH_ERR)
			return fail(t, "%s: its receive: status %d", wrong_keys[i], status);
		if (is_unharmed(&s, s.r->mr->rkey) || is_unharmed(&other, other.r->mr->rkey))
			return -EIO;
	}
	return 0;
}

/* Requests of the peer that are refused, by the name of their case. */
static const struct refusal {
	const char *name;
	enum ib_wr_opcode opcode;
	int access;
	u64 at;
	u32 len;
	/* Or REM_ACCESS_ERR. */
	enum ib_wc_status want;
} refusals[] = {
	/* One byte too far, one too early, far away. */
	{ "beyond", IB_WR_RDMA_WRITE, ALL_RIGHTS, 0, LENGTH + 1 },
	{ "beyond", IB_WR_RDMA_WRITE, ALL_RIGHTS, LENGTH, 1 },
	{ "beyond", IB_WR_RDMA_WRITE, ALL_RIGHTS, -1, 1 },
	{ "beyond", IB_WR_RDMA_WRITE, ALL_RIGHTS, -1, LENGTH + 1 },
	{ "beyond", IB_WR_RDMA_WRITE, ALL_RIGHTS, 1, LENGTH },
	{ "beyond", IB_WR_RDMA_WRITE, ALL_RIGHTS, 1ull << 40, 8 },
	{ "beyond", IB_WR_RDMA_READ, ALL_RIGHTS, 0, LENGTH + 1 },
	{ "beyond", IB_WR_RDMA_READ, ALL_RIGHTS, LENGTH, 1 },
	{ "beyond", IB_WR_RDMA_READ, ALL_RIGHTS, -1, 2 },
	{ "without-right", IB_WR_RDMA_WRITE, ALL_RIGHTS & ~IB_ACCESS_REMOTE_WRITE, 0, 100 },
	{ "without-right", IB_WR_RDMA_READ, ALL_RIGHTS & ~IB_ACCESS_REMOTE_READ, 0, 100 },
	{ "without-right", IB_WR_RDMA_WRITE, IB_ACCESS_LOCAL_WRITE, 0, 100 },
	{ "without-right", IB_WR_RDMA_READ, IB_ACCESS_LOCAL_WRITE, 0, 100 },
	{ "atomic-wrong", IB_WR_ATOMIC_FETCH_AND_ADD, ALL_RIGHTS & ~IB_ACCESS_REMOTE_ATOMIC },
	{ "atomic-wrong", IB_WR_ATOMIC_FETCH_AND_ADD, ALL_RIGHTS, LENGTH },
	/* Half of it is beyond, and it is no word. */
	{ "atomic-wrong", IB_WR_ATOMIC_FETCH_AND_ADD, ALL_RIGHTS, LENGTH - 4, 0,
	  IB_WC_REM_INV_REQ_ERR },
	{ "atomic-wrong", IB_WR_ATOMIC_FETCH_AND_ADD, ALL_RIGHTS, 4, 0, IB_WC_REM_INV_REQ_ERR },
};

static int refused(struct test *t)
{
	const struct refusal *r = refusals;
	struct scene s;
	int rows = 0;

	for (; r < refusals + ARRAY_SIZE(refusals); r++) {
		struct ib_atomic_wr add;
		struct ib_sge sge;
		int status;

		if (strcmp(r->name, t->how->name))
			continue;
		if (arrange(t, &s, r->access))
			return -EIO;
		memset(s.near->mem, 1, SIZE);
		sge = near_piece(&s, 0, 8);
		add = reach_word(&s, &sge, r->at);
		add.compare_add = 1;
		status = r->opcode == IB_WR_ATOMIC_FETCH_AND_ADD ? act(s.a, &add.wr) :
			 touch(&s, r->opcode, r->len, s.r->mr->iova + r->at, s.r->mr->rkey);
		if (is_refused(&s, r->name, status, r->want ?: IB_WC_REM_ACCESS_ERR))
			return -EIO;
		if (memchr_inv(s.near->mem, 1, SIZE))
			return fail(t, "%s: it has brought something", r->name);
		rows++;
	}
	if (!rows)
		return fail(t, "no row has its name");
	/* From the first byte to the last is no fault. */
	return arrange(t, &s, ALL_RIGHTS) ?: is_unharmed(&s, s.r->mr->rkey);
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
	{ "register-unmapped", register_wrong },
	{ "register-other-domain", register_wrong },
	{ "register-wrong-rights", register_wrong },
	{ "register-wrong-key", register_wrong },
	{ "register-wrong-range", register_wrong },
	{ "register-unreliable", register_unreliable },
	{ "invalidate-wrong", invalidate_wrong },
	{ "peer-invalidates-wrong", peer_invalidates_wrong },
	{ "beyond", refused },
	{ "without-right", refused },
	{ "atomic-wrong", refused },
	{ "stale-key", stale_key },
	{ "stale-local-key", stale_local_key },
	{ "wrong-lists", wrong_lists },
	{}
};
