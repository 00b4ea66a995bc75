// SPDX-License-Identifier: GPL-2.0
/* RDMA WRITE, RDMA READ and atomic operations: what they do at both ends. */
#include "kuser.h"

#define SIZE 65536
#define PIECES 3
#define WORD 256

static const u32 lengths[] = { 1, 60, 1024, 3000, 40000 };

static void check_immediate(struct waiter *w, u32 imm, u32 len)
{
	must(w->t, "its receive", finish(w));
	CHECK(w->t, w->wc.opcode == IB_WC_RECV_RDMA_WITH_IMM && w->wc.byte_len == len &&
	      w->wc.wc_flags & IB_WC_WITH_IMM && be32_to_cpu(w->wc.ex.imm_data) == imm,
	      "its receive: opcode %d, %u bytes", w->wc.opcode, w->wc.byte_len);
}

/* A WRITE, with immediate data every second time, or a READ. */
static void move_one(struct test *t, struct scene *s, bool reads, u32 len, u32 i)
{
	bool imm = !reads && i % 2;
	struct room *from = reads ? s->far : s->near, *to = reads ? s->near : s->far;
	u32 at = 64 + i % 9, from_at = reads ? at : 0, to_at = reads ? 0 : at;
	struct ib_sge sge[PIECES];
	enum ib_wr_opcode write = imm ? IB_WR_RDMA_WRITE_WITH_IMM : IB_WR_RDMA_WRITE;
	struct ib_rdma_wr wr = reach(s, reads ? IB_WR_RDMA_READ : write, sge, at);
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

/* Adds 2 to 40, or finds 40 and swaps. */
static void change_word(struct test *t, struct scene *s, bool swaps)
{
	u64 *found = (u64 *)s->near->mem, *word = (u64 *)(s->far->mem + WORD);
	struct ib_sge sge = near_piece(s, 0, 8);
	struct ib_atomic_wr wr = reach_word(s, &sge, WORD);
	struct waiter *done = wait_on(t, &wr.wr);

	if (swaps)
		wr.wr.opcode = IB_WR_ATOMIC_CMP_AND_SWP;
	wr.compare_add = swaps ? 40 : 2;
	wr.swap = 42;
	*found = 0;
	*word = 40;
	post_list(s->a, &wr.wr);
	must(t, "an atomic operation", finish(done));
	CHECK(t, done->wc.opcode == (swaps ? IB_WC_COMP_SWAP : IB_WC_FETCH_ADD), "opcode %d",
	      done->wc.opcode);
	CHECK(t, *found == 40 && *word == 42, "it found %llu and left %llu", *found, *word);
}

static void every_operation(struct test *t)
{
	struct scene s;
	u32 i = 0;

	set_scene(t, &s, SIZE, ALL_RIGHTS);
	for (t->context = IN_TASK; t->context < IN_HANDLER; t->context++) {
		for (int k = 0; k < 2 * ARRAY_SIZE(lengths); k++, i++) {
			move_one(t, &s, false, lengths[k / 2], i);
			move_one(t, &s, true, lengths[k / 2], i);
			change_word(t, &s, i % 2);
		}
	}
}

const struct kuser_case operation_cases[] = {
	{ "operations", every_operation },
	{}
};
