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

static void check_immediate(struct waiter *w, u32 imm, u32 len)
{
	int status = finish(w);

	CHECK(w->t, !status && w->wc.opcode == IB_WC_RECV_RDMA_WITH_IMM && w->wc.byte_len == len &&
	      w->wc.wc_flags & IB_WC_WITH_IMM && be32_to_cpu(w->wc.ex.imm_data) == imm,
	      "its receive: status %d, opcode %d, %u bytes", status, w->wc.opcode, w->wc.byte_len);
}

/* A WRITE, with immediate data every second time, or a READ. */
static void move_one(struct test *t, struct scene *s, u32 i, u32 len)
{
	bool reads = t->how->opcode == IB_WR_RDMA_READ, imm = !reads && i % 2;
	struct room *from = reads ? s->far : s->near, *to = reads ? s->near : s->far;
	u32 at = 64 + i % 9, from_at = reads ? at : 0, to_at = reads ? 0 : at;
	struct unaligned_list list;
	struct ib_sge *sge = begin_at(&list, i);
	struct ib_rdma_wr wr = reach(s, imm ? IB_WR_RDMA_WRITE_WITH_IMM : t->how->opcode, sge, at);
	struct waiter *done = wait_on(t, &wr.wr);
	struct waiter *came = imm ? post_receive(s->b, NULL, 0, 0) : NULL;

	wr.wr.num_sge = cut(sge, near_piece(s, 0, len), 1 + i % PIECES);
	wr.wr.ex.imm_data = cpu_to_be32(i);
	memset(to->mem, GUARD, SIZE);
	fill(from->mem + from_at, len, i);
	post_list(s->a, &wr.wr);
	must(t, "a request", finish(done));
	CHECK(t, done->wc.opcode == (reads ? IB_WC_RDMA_READ : IB_WC_RDMA_WRITE), "opcode %d",
	      done->wc.opcode);
	check_room(t, to, to_at, len, i);
	if (imm)
		check_immediate(came, i, len);
}

/* Each length twice from each context. */
static void move(struct test *t)
{
	struct scene s;
	u32 i = 0;

	set_scene(t, &s, NULL, SIZE, ALL_RIGHTS);
	for (t->context = IN_TASK; t->context < IN_HANDLER; t->context++)
		for (int k = 0; k < 2 * ARRAY_SIZE(lengths); k++, i++)
			move_one(t, &s, i, lengths[k / 2]);
	note(t, "%u of them", i);
}

#define STEPS 6

/* One of each in one list: each finds what those before it have done; they complete in order. */
static void in_order(struct test *t, struct scene *s, struct room *in, u32 seed)
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
	for (int i = 0; i < ARRAY_SIZE(came); i++)
		came[i] = post_receive(s->b, in, 0, in->size);
	for (int i = 0; i < STEPS; i++) {
		done[i] = wait_on(t, all[i]);
		if (i)
			all[i - 1]->next = all[i];
	}
	post_list(s->a, all[0]);
	check_order(done, STEPS);
	check_immediate(came[0], seed, 256);
	check_order(came, ARRAY_SIZE(came));
	CHECK(t, words[256 / 8] == seed && words[264 / 8] == seed + 3 &&
	      words[(512 + 256) / 8] == 1000 + seed, "words %llu, %llu, %llu", words[256 / 8],
	      words[264 / 8], words[(512 + 256) / 8]);
	compare(t, s->near->mem + 512, 256, seed);
	compare(t, in->mem, 256, seed);
	compare(t, s->far->mem + 1024, 256, seed);
}

static void ordered(struct test *t)
{
	struct room *in;
	struct scene s;
	u32 i = 0;

	set_scene(t, &s, NULL, SIZE, ALL_RIGHTS);
	in = make_room(s.b, 256);
	for (t->context = IN_TASK; t->context < IN_HANDLER; t->context++)
		for (int k = 0; k < 4; k++, i++)
			in_order(t, &s, in, i);
	note(t, "%u lists", i);
}

const struct kuser_case operation_cases[] = {
	{ "write", move, .opcode = IB_WR_RDMA_WRITE },
	{ "read", move, .opcode = IB_WR_RDMA_READ },
	{ "ordered", ordered },
	{}
};
