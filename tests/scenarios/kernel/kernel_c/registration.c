// SPDX-License-Identifier: GPL-2.0
/* Fast registration, as users in the kernel do it: keys, addresses, invalidation from both ends. */
#include "kuser.h"

static void register_all(struct scene *s)
{
	must(s->a->t, "registering", register_by(s->b, s->r, ALL_RIGHTS));
}

static void invalidate_it(struct scene *s)
{
	must(s->a->t, "invalidating", invalidate(s->b, s->r->mr->rkey));
}

/*
 * Registered, used and invalidated from each context, with as much as the peer may do. Of the queue
 * pairs of a domain each may register, and invalidate.
 */
static void registered(struct test *t)
{
	static const int rights[] = {
		IB_ACCESS_REMOTE_READ,
		IB_ACCESS_LOCAL_WRITE | IB_ACCESS_REMOTE_WRITE,
		ALL_RIGHTS | IB_ACCESS_RELAXED_ORDERING,
	};
	struct scene s, other;
	int count = 0;

	set_scene(t, &s, NULL, 5000, 0);
	beside(&s, &other, IB_QPT_RC);
	for (t->context = IN_TASK; t->context < IN_HANDLER; t->context++) {
		for (int i = 0; i < ARRAY_SIZE(rights); i++, count++) {
			map_room(s.r, s.far, 10, 4500);
			must(t, "registering",
			     register_by(count % 2 ? other.b : s.b, s.r, rights[i]));
			fill(s.near->mem, 4500, count);
			memset(s.far->mem, GUARD, 5000);
			if (rights[i] & IB_ACCESS_REMOTE_WRITE) {
				touch_all(&s, IB_WR_RDMA_WRITE);
				check_room(t, s.far, 10, 4500, count);
			}
			fill(s.far->mem + 10, 4500, count + 1);
			if (rights[i] & IB_ACCESS_REMOTE_READ) {
				touch_all(&s, IB_WR_RDMA_READ);
				compare(t, s.near->mem, 4500, count + 1);
			}
			invalidate_it(count % 3 ? &other : &s);
		}
	}
	note(t, "%d of them", count);
}

#define AGAIN 80

/*
 * Invalidated and registered again in one list, of which the last reports. What is registered is
 * the list that was mapped meanwhile; without one it is the same as before.
 */
static void again(struct test *t)
{
	struct scene s;
	u32 at = 0;

	set_scene(t, &s, NULL, 4096, 0);
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
		}
		next_key(s.r);
		reg = registration(s.r, ALL_RIGHTS);
		inv.next = &reg.wr;
		w = wait_on(t, &reg.wr);
		post_list(s.b, &inv);
		must(t, "registering again", finish(w));
		CHECK(t, w->wc.opcode == IB_WC_REG_MR, "opcode %d", w->wc.opcode);
		memset(s.far->mem, GUARD, 4096);
		fill(s.near->mem, 1000, i);
		must(t, "a WRITE",
		     touch(&s, IB_WR_RDMA_WRITE, 1000, s.r->mr->iova, s.r->mr->rkey));
		check_room(t, s.far, at, 1000, i);
	}
	note(t, "%u times", AGAIN);
}

/* The peer says with a SEND that it is done with a key; what has come of it. */
static struct waiter *invalidate_by_peer(struct scene *s, struct ib_send_wr wr)
{
	struct waiter *came = post_receive(s->b, s->far, 0, 4096);

	wr.opcode = IB_WR_SEND_WITH_INV;
	wr.ex.invalidate_rkey = s->r->mr->rkey;
	must(s->a->t, "a SEND_WITH_INV", act(s->a, &wr));
	must(s->a->t, "its receive", finish(came));
	return came;
}

static void by_peer(struct test *t)
{
	struct scene s;
	int count = 0;

	set_scene(t, &s, NULL, 4096, 0);
	for (t->context = IN_TASK; t->context < IN_HANDLER; t->context++) {
		for (int i = 0; i < 4; i++, count++) {
			struct ib_sge sge = near_piece(&s, 0, 64);
			struct ib_send_wr wr = {
				.sg_list = &sge, .num_sge = i % 2,
				.send_flags = i < 2 ? IB_SEND_SOLICITED : 0,
			};
			struct ib_wc *wc;

			/* That it can be registered again shows that it was invalidated. */
			register_all(&s);
			touch_all(&s, IB_WR_RDMA_WRITE);
			fill(s.near->mem, 64, count);
			wc = &invalidate_by_peer(&s, wr)->wc;
			CHECK(t, wc->byte_len == 64 * (i % 2) && wc->opcode == IB_WC_RECV,
			      "its receive: opcode %d, %u bytes", wc->opcode, wc->byte_len);
			CHECK(t, wc->wc_flags & IB_WC_WITH_INVALIDATE &&
			      !(wc->wc_flags & IB_WC_WITH_IMM) &&
			      wc->ex.invalidate_rkey == s.r->mr->rkey,
			      "its receive: flags %x, key %x instead of %x", wc->wc_flags,
			      wc->ex.invalidate_rkey, s.r->mr->rkey);
			compare(t, s.far->mem, wc->byte_len, count);
		}
	}
	note(t, "%d keys invalidated by the peer", count);
}

/*
 * What is not registered any more, or was never, may be invalidated once more: who of both ends was
 * first need not be known. Nothing comes of it, and it can be registered again.
 */
static void invalidated_twice(struct test *t)
{
	struct scene s;

	set_scene(t, &s, NULL, 4096, 0);
	for (int i = 0; i < 6; i++) {
		if (i % 2)
			invalidate_it(&s);
		invalidate_by_peer(&s, (struct ib_send_wr) {});
		invalidate_it(&s);
		invalidate_it(&s);
		register_all(&s);
		fill(s.near->mem, 4096, i);
		touch_all(&s, IB_WR_RDMA_WRITE);
		compare(t, s.far->mem, 4096, i);
	}
	note(t, "6 rounds");
}

/* A WRITE of so many bytes goes to this byte of the region, whose first one has this address. */
static void write_to(struct test *t, struct scene *s, u64 base, u32 at, u32 len)
{
	CHECK(t, s->r->mr->iova == base, "a region for %llx begins at %llx", base, s->r->mr->iova);
	register_all(s);
	fill(s->near->mem, len, len);
	memset(s->far->mem, GUARD, PAGE_SIZE);
	must(t, "a WRITE", touch(s, IB_WR_RDMA_WRITE, len, base + at, s->r->mr->rkey));
	check_room(t, s->far, at, len, len);
	invalidate_it(s);
}

/* The address that the peer names is the user's choice, as those of RDS and rpcrdma are. */
static void addresses(struct test *t)
{
	static const u64 bases[] = { 0, 1, 0xdeadbeef00000000, 0x7ffffffffffff123, -4096ull };
	struct scene s;

	set_scene(t, &s, NULL, PAGE_SIZE, 0);
	for (int i = 0; i < ARRAY_SIZE(bases); i++) {
		map_room(s.r, s.far, 0, 4000);
		s.r->mr->iova = bases[i];
		write_to(t, &s, bases[i], 100, 3900);
	}
	/* As RDS maps it. */
	CHECK(t, ib_map_mr_sg_zbva(s.r->mr, s.r->sg, 1, NULL, PAGE_SIZE) == 1,
	      "a region from 0 on");
	write_to(t, &s, 0, 7, 100);
	note(t, "%zu addresses", ARRAY_SIZE(bases) + 1);
}

/* Its owner names it in his own requests: a receive, a SEND, the far side of a READ. */
static void by_owner(struct test *t)
{
	struct waiter *came;
	struct ib_sge sge, to;
	struct ib_recv_wr rwr = { .sg_list = &to, .num_sge = 1 };
	struct ib_send_wr wr = { .opcode = IB_WR_SEND, .sg_list = &sge, .num_sge = 1 };
	struct ib_rdma_wr rd;
	struct region *lent;
	struct scene s;

	set_scene(t, &s, NULL, 8192, ALL_RIGHTS);
	lent = make_region(s.a, IB_MR_TYPE_MEM_REG, 3);
	map_room(lent, s.near, 50, 8000);
	must(t, "registering for local use", register_by(s.a, lent, IB_ACCESS_LOCAL_WRITE));
	fill(s.near->mem + 50, 8000, 1);
	sge = (struct ib_sge) { .addr = lent->mr->iova, .length = 8000, .lkey = lent->mr->lkey };
	came = post_receive(s.b, s.far, 0, 8192);
	must(t, "a SEND of it", act(s.a, &wr));
	must(t, "its receive", finish(came));
	compare(t, s.far->mem, 8000, 1);
	fill(s.far->mem, 8000, 2);
	rd = reach(&s, IB_WR_RDMA_READ, &sge, 0);
	must(t, "a READ into it", act(s.a, &rd.wr));
	compare(t, s.near->mem + 50, 8000, 2);
	/* The far end: what arrives is put into what a peer may use, too. */
	to = (struct ib_sge) {
		.addr = s.r->mr->iova + 10, .length = 8000, .lkey = s.r->mr->lkey,
	};
	came = make_waiter(t);
	rwr.wr_cqe = &came->cqe;
	must(t, "posting a receive", ib_post_recv(s.b->qp, &rwr, NULL));
	fill(s.near->mem + 50, 8000, 3);
	must(t, "a SEND to it", act(s.a, &wr));
	must(t, "a receive into it", finish(came));
	compare(t, s.far->mem + 10, 8000, 3);
	note(t, "a SEND, a READ and a receive");
}

#define FLOOD 40
#define BLOCK 32768

/* What ends a registration while the peer writes, and is ended. */
static void end_region(struct scene *s, bool by_verb)
{
	if (!by_verb) {
		invalidate_it(s);
		return;
	}
	must(s->a->t, "deregistering", ib_dereg_mr(s->r->mr));
	s->r->mr = NULL;
}

/* Once it has ended nothing more is written, whatever was under way. */
static void end_flooded(struct test *t, bool by_verb)
{
	/* One case runs at a time. */
	static struct ib_rdma_wr wr[FLOOD];
	struct waiter *w[FLOOD];
	struct ib_sge sge;
	struct scene s;
	int good = 0;

	set_scene(t, &s, NULL, BLOCK, ALL_RIGHTS);
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
	end_region(&s, by_verb);
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
	note(t, "after %d of %d WRITEs", good, FLOOD);
}

static void ended_flooded(struct test *t)
{
	for (int i = 0; i < 8; i++)
		end_flooded(t, i % 2);
}

const struct kuser_case registration_cases[] = {
	{ "registered", registered },
	{ "registered-again", again },
	{ "invalidated-by-peer", by_peer },
	{ "invalidated-twice", invalidated_twice },
	{ "addresses", addresses },
	{ "by-owner", by_owner },
	{ "ended-under-writes", ended_flooded },
	{}
};
