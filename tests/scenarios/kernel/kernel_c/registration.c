// SPDX-License-Identifier: GPL-2.0
/* Fast registration, as users in the kernel do it: keys, addresses, invalidation from both ends. */
#include <linux/slab.h>
#include "kuser.h"

/* Registered, used and invalidated from each context, with as much as the peer may do. */
static int registered(struct test *t)
{
	static const int rights[] = {
		IB_ACCESS_REMOTE_READ,
		IB_ACCESS_LOCAL_WRITE | IB_ACCESS_REMOTE_WRITE,
		ALL_RIGHTS | IB_ACCESS_RELAXED_ORDERING,
	};
	struct scene s;
	int count = 0;

	if (set_scene(t, &s, NULL, 5000, 0))
		return -EIO;
	for (t->context = IN_TASK; t->context < IN_HANDLER; t->context++) {
		for (int i = 0; i < ARRAY_SIZE(rights); i++, count++) {
			int status;

			if (map_room(s.r, s.far, 10, 4500))
				return -EIO;
			status = register_by(s.b, s.r, rights[i]);
			if (status)
				return fail(t, "registering: status %d", status);
			fill(s.near->mem, 4500, count);
			memset(s.far->mem, GUARD, 5000);
			if (rights[i] & IB_ACCESS_REMOTE_WRITE) {
				if (touch_all(&s, IB_WR_RDMA_WRITE))
					return -EIO;
				if (differs(s.far->mem + 10, 4500, count) >= 0)
					return fail(t, "wrong bytes were written");
			}
			if (!is_guarded(s.far, 0, 10) || !is_guarded(s.far, 4510, 5000))
				return fail(t, "others were written");
			fill(s.far->mem + 10, 4500, count + 1);
			if (rights[i] & IB_ACCESS_REMOTE_READ) {
				if (touch_all(&s, IB_WR_RDMA_READ))
					return -EIO;
				if (differs(s.near->mem, 4500, count + 1) >= 0)
					return fail(t, "wrong bytes were read");
			}
			status = invalidate(s.b, s.r->mr->rkey);
			if (status)
				return fail(t, "invalidating: status %d", status);
		}
	}
	note(t, "%d of them", count);
	return 0;
}

#define AGAIN 80

/*
 * Invalidated and registered again in one list, of which the last reports. What is registered is
 * the list that was mapped meanwhile; without one it is the same as before.
 */
static int again(struct test *t)
{
	struct scene s;
	u32 at = 0;

	if (set_scene(t, &s, NULL, 4096, 0))
		return -EIO;
	/* The low byte comes round. */
	ib_update_fast_reg_key(s.r->mr, 256 - AGAIN / 2);
	if (register_by(s.b, s.r, ALL_RIGHTS))
		return fail(t, "registering");
	for (u32 i = 0; i < AGAIN; i++) {
		struct ib_send_wr inv = {
			.opcode = IB_WR_LOCAL_INV, .ex.invalidate_rkey = s.r->mr->rkey,
		};
		struct ib_reg_wr reg;
		struct waiter *w;
		int status;

		t->context = i % IN_HANDLER;
		/* While what was mapped before is registered still. */
		if (i % 3) {
			at = i * 16;
			if (map_room(s.r, s.far, at, 1000))
				return -EIO;
		}
		next_key(s.r);
		reg = registration(s.r, ALL_RIGHTS);
		inv.next = &reg.wr;
		w = wait_on(t, &reg.wr);
		status = w && !post_list(s.b, &inv) ? finish(w) : -EIO;
		if (status || w->wc.opcode != IB_WC_REG_MR)
			return fail(t, "registering again, %u: status %d", i, status);
		memset(s.far->mem, GUARD, 4096);
		fill(s.near->mem, 1000, i);
		status = touch(&s, IB_WR_RDMA_WRITE, 1000, s.r->mr->iova, s.r->mr->rkey);
		if (status || !holds(s.far, at, 1000, i))
			return fail(t, "registered again, %u: status %d, byte %d is wrong, or "
				    "the list of before was written", i, status,
				    differs(s.far->mem + at, 1000, i));
	}
	note(t, "%u times", AGAIN);
	return 0;
}

/* The peer says with a SEND that it is done with a key. */
static int by_peer(struct test *t)
{
	struct scene s;
	int count = 0;

	if (set_scene(t, &s, NULL, 4096, 0))
		return -EIO;
	for (t->context = IN_TASK; t->context < IN_HANDLER; t->context++) {
		for (int i = 0; i < 4; i++, count++) {
			struct ib_sge sge = near_piece(&s, 0, 64);
			struct ib_send_wr wr = {
				.opcode = IB_WR_SEND_WITH_INV, .sg_list = &sge, .num_sge = i % 2,
				.send_flags = i < 2 ? IB_SEND_SOLICITED : 0,
			};
			struct waiter *came;
			int status;

			if (register_by(s.b, s.r, ALL_RIGHTS))
				return fail(t, "registering");
			if (touch_all(&s, IB_WR_RDMA_WRITE))
				return -EIO;
			came = post_receive(s.b, s.far, 0, 4096);
			wr.ex.invalidate_rkey = s.r->mr->rkey;
			fill(s.near->mem, 64, count);
			if (!came || act(s.a, &wr))
				return fail(t, "a SEND_WITH_INV");
			status = finish(came);
			if (status || came->wc.byte_len != 64 * (i % 2) ||
			    came->wc.opcode != IB_WC_RECV)
				return fail(t, "its receive: status %d, %u bytes", status,
					    came->wc.byte_len);
			if (!(came->wc.wc_flags & IB_WC_WITH_INVALIDATE) ||
			    came->wc.wc_flags & IB_WC_WITH_IMM ||
			    came->wc.ex.invalidate_rkey != s.r->mr->rkey)
				return fail(t, "its receive: flags %x, key %x instead of %x",
					    came->wc.wc_flags, came->wc.ex.invalidate_rkey,
					    s.r->mr->rkey);
			if (i % 2 && differs(s.far->mem, 64, count) >= 0)
				return fail(t, "wrong bytes");
			/* That it can be registered again shows that it was invalidated. */
		}
	}
	note(t, "%d keys invalidated by the peer", count);
	return 0;
}

/*
 * What is not registered any more, or was never, may be invalidated once more: who of both ends was
 * first need not be known. Nothing comes of it, and it can be registered again.
 */
static int invalidated_twice(struct test *t)
{
	struct scene s;

	if (set_scene(t, &s, NULL, 4096, 0))
		return -EIO;
	for (int i = 0; i < 6; i++) {
		struct ib_send_wr wr = {
			.opcode = IB_WR_SEND_WITH_INV, .ex.invalidate_rkey = s.r->mr->rkey,
		};
		struct waiter *came = post_receive(s.b, NULL, 0, 0);
		int first = i % 2 ? invalidate(s.b, s.r->mr->rkey) : 0;

		if (!came || first || act(s.a, &wr) || finish(came))
			return fail(t, "the peer invalidates, round %d", i);
		if (invalidate(s.b, s.r->mr->rkey) || invalidate(s.b, s.r->mr->rkey))
			return fail(t, "invalidating once more, round %d", i);
		if (register_by(s.b, s.r, ALL_RIGHTS))
			return fail(t, "registering, round %d", i);
		fill(s.near->mem, 4096, i);
		if (touch_all(&s, IB_WR_RDMA_WRITE))
			return -EIO;
		if (differs(s.far->mem, 4096, i) >= 0)
			return fail(t, "wrong bytes, round %d", i);
	}
	note(t, "6 rounds");
	return 0;
}

/* The address that the peer names is the user's choice, as those of RDS and rpcrdma are. */
static int addresses(struct test *t)
{
	static const u64 bases[] = { 0, 1, 0xdeadbeef00000000, 0x7ffffffffffff123, -4096ull };
	struct scene s;

	if (set_scene(t, &s, NULL, PAGE_SIZE, 0))
		return -EIO;
	for (int i = 0; i < ARRAY_SIZE(bases); i++) {
		if (map_room(s.r, s.far, 0, 4000))
			return -EIO;
		s.r->mr->iova = bases[i];
		if (register_by(s.b, s.r, ALL_RIGHTS))
			return fail(t, "registering for %llx", bases[i]);
		fill(s.near->mem, 3900, i);
		memset(s.far->mem, GUARD, PAGE_SIZE);
		if (touch(&s, IB_WR_RDMA_WRITE, 3900, bases[i] + 100, s.r->mr->rkey))
			return fail(t, "a WRITE to %llx", bases[i] + 100);
		if (!holds(s.far, 100, 3900, i))
			return fail(t, "wrong bytes by %llx", bases[i]);
		if (invalidate(s.b, s.r->mr->rkey))
			return fail(t, "invalidating");
	}
	/* As RDS maps it. */
	if (ib_map_mr_sg_zbva(s.r->mr, s.r->sg, 1, NULL, PAGE_SIZE) != 1 || s.r->mr->iova)
		return fail(t, "a region from 0 on begins at %llx", s.r->mr->iova);
	if (register_by(s.b, s.r, ALL_RIGHTS))
		return fail(t, "registering from 0 on");
	fill(s.near->mem, 100, 99);
	if (touch(&s, IB_WR_RDMA_WRITE, 100, 7, s.r->mr->rkey) ||
	    differs(s.far->mem + 7, 100, 99) >= 0)
		return fail(t, "a WRITE to 7");
	note(t, "%zu addresses", ARRAY_SIZE(bases) + 1);
	return 0;
}

/* Its owner names it in his own requests: a receive, a SEND, the far side of a READ. */
static int by_owner(struct test *t)
{
	struct waiter *came;
	struct ib_sge sge, to;
	struct ib_recv_wr rwr = { .sg_list = &to, .num_sge = 1 };
	struct ib_rdma_wr rd;
	struct ib_send_wr wr;
	struct region *lent;
	struct scene s;

	if (set_scene(t, &s, NULL, 8192, ALL_RIGHTS))
		return -EIO;
	lent = make_region(s.a, IB_MR_TYPE_MEM_REG, 3);
	if (!lent || map_room(lent, s.near, 50, 8000))
		return -EIO;
	if (register_by(s.a, lent, IB_ACCESS_LOCAL_WRITE))
		return fail(t, "registering for local use");
	fill(s.near->mem + 50, 8000, 1);
	sge = (struct ib_sge) { .addr = lent->mr->iova, .length = 8000, .lkey = lent->mr->lkey };
	wr = (struct ib_send_wr) { .opcode = IB_WR_SEND, .sg_list = &sge, .num_sge = 1 };
	came = post_receive(s.b, s.far, 0, 8192);
	if (!came || act(s.a, &wr) || finish(came) || differs(s.far->mem, 8000, 1) >= 0)
		return fail(t, "a SEND of it");
	fill(s.far->mem, 8000, 2);
	rd = reach(&s, IB_WR_RDMA_READ, &sge, 0);
	if (act(s.a, &rd.wr) || differs(s.near->mem + 50, 8000, 2) >= 0)
		return fail(t, "a READ into it");
	/* The far end: what arrives is put into what a peer may use, too. */
	to = (struct ib_sge) {
		.addr = s.r->mr->iova + 10, .length = 8000, .lkey = s.r->mr->lkey,
	};
	came = make_waiter(t);
	if (!came)
		return -ENOMEM;
	rwr.wr_cqe = &came->cqe;
	if (ib_post_recv(s.b->qp, &rwr, NULL))
		return fail(t, "posting a receive");
	fill(s.near->mem + 50, 8000, 3);
	if (act(s.a, &wr) || finish(came) || differs(s.far->mem + 10, 8000, 3) >= 0)
		return fail(t, "a receive into it");
	note(t, "a SEND, a READ and a receive");
	return 0;
}

/* One queue pair of a domain registers, the peer of another uses it, a third invalidates. */
static int in_domain(struct test *t)
{
	struct scene s, other;

	if (set_scene(t, &s, NULL, PAGE_SIZE, ALL_RIGHTS))
		return -EIO;
	for (int i = 0; i < 2; i++) {
		if (beside(&s, &other, IB_QPT_RC))
			return -EIO;
		fill(s.near->mem, 100, i);
		if (touch(&other, IB_WR_RDMA_WRITE, 100, s.r->mr->iova, s.r->mr->rkey) ||
		    differs(s.far->mem, 100, i) >= 0)
			return fail(t, "a WRITE through another queue pair");
		if (invalidate(other.b, s.r->mr->rkey))
			return fail(t, "invalidating by another queue pair");
		if (register_by(other.b, s.r, ALL_RIGHTS))
			return fail(t, "registering by another queue pair");
	}
	note(t, "two more queue pairs of one domain");
	return 0;
}

#define FLOOD 40
#define BLOCK 32768

/* What ends a registration while the peer writes. */
static int end_by_request(struct scene *s)
{
	return invalidate(s->b, s->r->mr->rkey);
}

static int end_by_verb(struct scene *s)
{
	int err = ib_dereg_mr(s->r->mr);

	s->r->mr = NULL;
	return err;
}

/* Once it has ended nothing more is written, whatever was under way. */
static int end_flooded(struct test *t, int (*end)(struct scene *s))
{
	struct ib_rdma_wr *wr = kcalloc(FLOOD, sizeof(*wr), GFP_KERNEL);
	struct waiter *w[FLOOD];
	struct ib_sge sge;
	struct scene s;
	int good = 0, err;

	if (!wr || set_scene(t, &s, NULL, BLOCK, ALL_RIGHTS)) {
		kfree(wr);
		return -EIO;
	}
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
	err = t->failed ? -EIO : post_list(s.a, &wr[0].wr);
	/* Not asleep, so that most of them are still to come when the first one is there. */
	for (int i = 0; i < 100000 && !err && !is_done(w[0]); i++)
		cond_resched();
	if (!err)
		err = finish(w[0]);
	if (!err)
		err = end(&s);
	memset(s.far->mem, GUARD, BLOCK);
	if (!err)
		err = post_list(s.a, &wr[FLOOD - 1].wr);
	kfree(wr);
	if (err)
		return fail(t, "ending it: error %d", err);
	for (int i = 0; i < FLOOD; i++) {
		int status = finish(w[i]);

		if (!status && i == good && i < FLOOD - 1)
			good++;
		else if (status != (i == good ? IB_WC_REM_ACCESS_ERR : IB_WC_WR_FLUSH_ERR))
			return fail(t, "WRITE %d of %d: status %d", i, FLOOD, status);
	}
	if (!is_guarded(s.far, 0, BLOCK))
		return fail(t, "written after it had ended");
	note(t, "after %d of %d WRITEs", good, FLOOD);
	return 0;
}

static int ended_flooded(struct test *t)
{
	for (int i = 0; i < 8; i++)
		if (end_flooded(t, i % 2 ? end_by_verb : end_by_request))
			return -EIO;
	return 0;
}

const struct kuser_case registration_cases[] = {
	{ "registered", registered },
	{ "registered-again", again },
	{ "invalidated-by-peer", by_peer },
	{ "invalidated-twice", invalidated_twice },
	{ "addresses", addresses },
	{ "by-owner", by_owner },
	{ "in-domain", in_domain },
	{ "ended-under-writes", ended_flooded },
	{}
};
