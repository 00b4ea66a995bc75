// SPDX-License-Identifier: GPL-2.0
/* RDMA WRITE and RDMA READ: what they do at both ends, and in which order. */
#include "kuser.h"

#define SIZE 65536

static const u32 lengths[] = { 1, 60, 1024, 3000, 40000 };

#define PIECES 3

/* Users have lists in packed structures, too: this one begins at each distance from a word. */
struct unaligned_list {
	u8 room[sizeof(u64) - 1 + PIECES * sizeof(struct ib_sge)] __aligned(sizeof(u64));
};

static struct ib_sge *begin_at(struct unaligned_list *list, u32 i)
{
	return (struct ib_sge *)(list->room + i % sizeof(u64));
}

/* A piece of the near room, cut into up to three. */
static int cut(struct scene *s, struct ib_sge *sge, u32 len, u32 pieces)
{
	u32 at = 0;

	pieces = min(pieces, len);
	for (u32 i = 0; i < pieces; i++) {
		u32 part = i + 1 == pieces ? len - at : len / pieces;

		sge[i] = near_piece(s, at, part);
		at += part;
	}
	return pieces;
}

static int check_immediate(struct test *t, struct waiter *w, u32 imm, u32 len)
{
	int status = finish(w);

	if (status || w->wc.opcode != IB_WC_RECV_RDMA_WITH_IMM || w->wc.byte_len != len ||
	    !(w->wc.wc_flags & IB_WC_WITH_IMM) || be32_to_cpu(w->wc.ex.imm_data) != imm)
		return fail(t, "its receive: status %d, opcode %d, %u bytes", status, w->wc.opcode,
			    w->wc.byte_len);
	return 0;
}

/* A WRITE, with immediate data every second time, or a READ. */
static int move_one(struct test *t, struct scene *s, u32 i, u32 len)
{
	bool reads = t->how->opcode == IB_WR_RDMA_READ, imm = !reads && i % 2;
	struct room *from = reads ? s->far : s->near, *to = reads ? s->near : s->far;
	u32 at = 64 + i % 9, from_at = reads ? at : 0, to_at = reads ? 0 : at;
	struct unaligned_list list;
	struct ib_sge *sge = begin_at(&list, i);
	struct ib_rdma_wr wr = reach(s, imm ? IB_WR_RDMA_WRITE_WITH_IMM : t->how->opcode, sge, at);
	struct waiter *done, *came = imm ? post_receive(s->b, NULL, 0, 0) : NULL;
	int status;

	if (imm && !came)
		return -EIO;
	wr.wr.num_sge = cut(s, sge, len, 1 + i % PIECES);
	wr.wr.ex.imm_data = cpu_to_be32(i);
	memset(to->mem, GUARD, SIZE);
	fill(from->mem + from_at, len, i);
	done = post(s->a, &wr.wr);
	status = finish(done);
	if (status || done->wc.opcode != (reads ? IB_WC_RDMA_READ : IB_WC_RDMA_WRITE))
		return fail(t, "%u bytes: status %d", len, status);
	if (!holds(to, to_at, len, i))
		return fail(t, "%u bytes: byte %d is wrong, or others were written", len,
			    differs(to->mem + to_at, len, i));
	return imm ? check_immediate(t, came, i, len) : 0;
}

/* Each length twice from each context. */
static int move(struct test *t)
{
	struct scene s;
	u32 i = 0;

	if (set_scene(t, &s, NULL, SIZE, ALL_RIGHTS))
		return -EIO;
	for (t->context = IN_TASK; t->context < IN_HANDLER; t->context++)
		for (int k = 0; k < 2 * ARRAY_SIZE(lengths); k++, i++)
			if (move_one(t, &s, i, lengths[k / 2]))
				return came_from(t);
	note(t, "%u of them", i);
	return 0;
}

struct taking {
	struct scene *s;
	struct ib_send_wr *wr;
	u32 len;
};

/* What stands there is overwritten before anybody else comes to this processor. */
static int post_and_spoil(void *arg)
{
	struct taking *k = arg;
	int err = ib_post_send(k->s->a->qp, k->wr, NULL);

	memset(k->s->near->mem, 0xee, k->len);
	return err;
}

static int inline_write(struct test *t)
{
	struct wish wish = { .kind = IB_QPT_RC, .way = BY_SOFTIRQ, .inline_data = 64 };
	struct scene s;
	u32 i = 0;

	if (set_scene(t, &s, &wish, PAGE_SIZE, ALL_RIGHTS))
		return -EIO;
	for (u32 len = 1; len <= 64; len += 7, i++) {
		struct waiter *came = i % 2 ? post_receive(s.b, NULL, 0, 0) : NULL, *done;
		struct ib_sge sge = near_piece(&s, 0, len);
		struct ib_rdma_wr wr = reach(&s, i % 2 ? IB_WR_RDMA_WRITE_WITH_IMM :
					     IB_WR_RDMA_WRITE, &sge, 100);
		struct taking taking = { .s = &s, .wr = &wr.wr, .len = len };
		int err;

		/* No key is needed, and this one leads nowhere. */
		sge.lkey = ~0;
		wr.wr.send_flags = IB_SEND_INLINE;
		wr.wr.ex.imm_data = cpu_to_be32(i);
		done = wait_on(t, &wr.wr);
		if (!done || (i % 2 && !came))
			return -EIO;
		fill(s.near->mem, len, i);
		memset(s.far->mem, GUARD, PAGE_SIZE);
		err = run_in(t, i % IN_HANDLER, post_and_spoil, &taking);
		if (err || finish(done))
			return fail(t, "%u bytes inline: error %d", len, err);
		if (!holds(s.far, 100, len, i))
			return fail(t, "%u bytes inline came as others", len);
		if (came && check_immediate(t, came, i, len))
			return -EIO;
	}
	note(t, "%u of them", i);
	return 0;
}

#define STEPS 6

/* One of each in one list: each finds what those before it have done; they complete in order. */
static int in_order(struct test *t, struct scene *s, struct room *in, u32 seed)
{
	struct ib_sge out = near_piece(s, 0, 256), old = near_piece(s, 256, 8);
	struct ib_sge swapped = near_piece(s, 264, 8), back = near_piece(s, 512, 512);
	struct ib_rdma_wr wr = reach(s, IB_WR_RDMA_WRITE, &out, 0);
	struct ib_atomic_wr add = reach_word(s, &old, 256), swap = reach_word(s, &swapped, 256);
	struct ib_rdma_wr rd = reach(s, IB_WR_RDMA_READ, &back, 0);
	struct ib_rdma_wr imm = reach(s, IB_WR_RDMA_WRITE_WITH_IMM, &out, 1024);
	struct ib_send_wr send = { .opcode = IB_WR_SEND, .sg_list = &out, .num_sge = 1 };
	struct ib_send_wr *all[STEPS] = { &wr.wr, &add.wr, &swap.wr, &rd.wr, &imm.wr, &send };
	struct waiter *done[STEPS], *came[2];
	u64 *words = (u64 *)s->near->mem;

	add.compare_add = 3;
	swap.wr.opcode = IB_WR_ATOMIC_CMP_AND_SWP;
	swap.compare_add = seed + 3;
	swap.swap = 1000 + seed;
	imm.wr.ex.imm_data = cpu_to_be32(seed);
	fill(s->near->mem, 256, seed);
	memset(s->near->mem + 256, 0, 1024);
	memset(s->far->mem, GUARD, SIZE);
	((u64 *)s->far->mem)[256 / 8] = seed;
	for (int i = 0; i < ARRAY_SIZE(came); i++) {
		came[i] = post_receive(s->b, in, 0, in->size);
		if (!came[i])
			return -EIO;
	}
	for (int i = 0; i < STEPS; i++) {
		done[i] = wait_on(t, all[i]);
		if (!done[i])
			return -EIO;
		if (i)
			all[i - 1]->next = all[i];
	}
	if (post_list(s->a, all[0]))
		return -EIO;
	for (int i = 0; i < STEPS; i++) {
		int status = finish(done[i]);

		if (status || (i && done[i]->order < done[i - 1]->order))
			return fail(t, "step %d: status %d, or out of order", i, status);
	}
	if (check_immediate(t, came[0], seed, 256) || finish(came[1]) ||
	    came[1]->order < came[0]->order)
		return fail(t, "the receives");
	if (words[256 / 8] != seed || words[264 / 8] != seed + 3 ||
	    words[(512 + 256) / 8] != 1000 + seed)
		return fail(t, "words %llu, %llu, %llu", words[256 / 8], words[264 / 8],
			    words[(512 + 256) / 8]);
	if (differs(s->near->mem + 512, 256, seed) >= 0 || differs(in->mem, 256, seed) >= 0 ||
	    differs(s->far->mem + 1024, 256, seed) >= 0)
		return fail(t, "wrong bytes");
	return 0;
}

static int ordered(struct test *t)
{
	struct room *in;
	struct scene s;
	u32 i = 0;

	if (set_scene(t, &s, NULL, SIZE, ALL_RIGHTS))
		return -EIO;
	in = make_room(s.b, 256);
	if (!in)
		return -EIO;
	for (t->context = IN_TASK; t->context < IN_HANDLER; t->context++)
		for (int k = 0; k < 4; k++, i++)
			if (in_order(t, &s, in, i))
				return came_from(t);
	note(t, "%u lists", i);
	return 0;
}

#define LINKS 60

/* Each is posted when the one before it completes. */
struct chain {
	struct ib_cqe cqe;
	struct test *t;
	struct scene *s;
	spinlock_t lock;
	int links;
	bool done;
};

static int post_link(struct chain *c)
{
	static const enum ib_wr_opcode kinds[] = { IB_WR_RDMA_WRITE, IB_WR_RDMA_READ };
	struct ib_sge sge = near_piece(c->s, 8 * c->links, 8);
	struct ib_rdma_wr wr = reach(c->s, kinds[c->links % 2], &sge, 8 * (c->links | 1));
	struct ib_atomic_wr add = reach_word(c->s, &sge, 0);
	bool adds = c->links % 3 == 2;
	struct ib_send_wr *first = adds ? &add.wr : &wr.wr;

	add.compare_add = 1;
	first->wr_cqe = &c->cqe;
	first->send_flags = IB_SEND_SIGNALED;
	return ib_post_send(c->s->a->qp, first, NULL);
}

static void on_link(struct ib_cq *cq, struct ib_wc *wc)
{
	struct chain *c = container_of(wc->wr_cqe, struct chain, cqe);
	unsigned long flags;
	int err = 0;

	if (!on_completion(c->t, cq, false))
		return;
	if (wc->status) {
		fail(c->t, "link %d: status %d", c->links, wc->status);
		return;
	}
	lock_to_post(&c->lock, &flags);
	if (++c->links < LINKS)
		err = post_link(c);
	unlock_posted(&c->lock, &flags);
	if (err)
		fail(c->t, "link %d: error %d", c->links, err);
	/* What the completions brought is there before it is said to be there. */
	if (c->links == LINKS)
		smp_store_release(&c->done, true);
}

static int first_link(void *arg)
{
	return post_link(arg);
}

static int from_completion(struct test *t)
{
	static const enum way ways[] = { BY_SOFTIRQ, BY_HAND, BY_WORKQUEUE, BY_DIRECT };
	/* One case runs at a time; it stays until all queues have gone. */
	static struct chain chains[ARRAY_SIZE(ways)];
	static struct scene scenes[ARRAY_SIZE(ways)];

	for (int i = 0; i < ARRAY_SIZE(ways); i++) {
		struct wish wish = { .kind = IB_QPT_RC, .way = ways[i] };
		struct chain *c = &chains[i];
		int err;

		if (set_scene(t, &scenes[i], &wish, PAGE_SIZE, ALL_RIGHTS))
			return -EIO;
		memset(scenes[i].far->mem, 0, PAGE_SIZE);
		*c = (struct chain) { .cqe.done = on_link, .t = t, .s = &scenes[i] };
		spin_lock_init(&c->lock);
		err = run_in(t, IN_TASK, first_link, c);
		/* Pairs with the release in on_link(). */
		if (err || !wait_for(t, smp_load_acquire(&c->done)))
			return fail(t, "%s: %d links", way_names[ways[i]], c->links);
		if (*(u64 *)scenes[i].far->mem != LINKS / 3)
			return fail(t, "%llu were added", *(u64 *)scenes[i].far->mem);
	}
	note(t, "%d of them in each of %zu ways", LINKS, ARRAY_SIZE(ways));
	return 0;
}

const struct kuser_case operation_cases[] = {
	{ "write", move, .opcode = IB_WR_RDMA_WRITE },
	{ "read", move, .opcode = IB_WR_RDMA_READ },
	{ "inline-write", inline_write },
	{ "ordered", ordered },
	{ "one-sided-from-completion", from_completion },
	{}
};
