// SPDX-License-Identifier: GPL-2.0
/* Atomic operations: what they bring and what they leave behind. */
#include <linux/slab.h>
#include "kuser.h"

#define SIZE 65536

/* An atomic operation, what was there before, and what is afterwards. */
static const struct change {
	enum ib_wr_opcode opcode;
	u64 before, compare_add, swap, after;
} changes[] = {
	{ IB_WR_ATOMIC_CMP_AND_SWP, 5, 5, 9, 9 },
	{ IB_WR_ATOMIC_CMP_AND_SWP, 5, 6, 9, 5 },
	{ IB_WR_ATOMIC_CMP_AND_SWP, 0x1122334455667788, 0x1122334455667788,
	  0x8877665544332211, 0x8877665544332211 },
	{ IB_WR_ATOMIC_CMP_AND_SWP, 0x1122334455667788, 0x1122334455667780, 1, 0x1122334455667788 },
	{ IB_WR_ATOMIC_FETCH_AND_ADD, 5, 7, 0, 12 },
	{ IB_WR_ATOMIC_FETCH_AND_ADD, 0xffffffff, 1, 0, 0x100000000 },
	{ IB_WR_ATOMIC_FETCH_AND_ADD, ~0ull, 2, 0, 1 },
	{ IB_WR_ATOMIC_FETCH_AND_ADD, 10, -3, 0, 7 },
};

static int change_one(struct test *t, struct scene *s, const struct change *c, u32 at)
{
	bool swaps = c->opcode == IB_WR_ATOMIC_CMP_AND_SWP;
	struct ib_sge sge = near_piece(s, 8, 8);
	struct ib_atomic_wr wr = reach_word(s, &sge, at);
	u64 *word = (u64 *)(s->far->mem + at);
	struct waiter *done;
	int status;

	wr.wr.opcode = c->opcode;
	wr.compare_add = c->compare_add;
	wr.swap = c->swap;
	memset(s->near->mem, GUARD, 64);
	memset(s->far->mem, GUARD, SIZE);
	*word = c->before;
	done = post(s->a, &wr.wr);
	status = finish(done);
	if (status || done->wc.opcode != (swaps ? IB_WC_COMP_SWAP : IB_WC_FETCH_ADD))
		return fail(t, "an atomic operation: status %d", status);
	if (((u64 *)s->near->mem)[1] != c->before || *word != c->after)
		return fail(t, "of %llx it brought %llx and made %llx", c->before,
			    ((u64 *)s->near->mem)[1], *word);
	if (!is_guarded(s->near, 0, 8) || !is_guarded(s->near, 16, 64) ||
	    !is_guarded(s->far, 0, at) || !is_guarded(s->far, at + 8, SIZE))
		return fail(t, "more than a word was written");
	return 0;
}

static int atomics(struct test *t)
{
	struct scene s;
	int count = 0;

	if (set_scene(t, &s, NULL, SIZE, ALL_RIGHTS))
		return -EIO;
	for (t->context = IN_TASK; t->context < IN_HANDLER; t->context++)
		for (int i = 0; i < ARRAY_SIZE(changes); i++, count++)
			if (change_one(t, &s, &changes[i], PAGE_SIZE - 8 + 8 * i))
				return came_from(t);
	note(t, "%d of them", count);
	return 0;
}

#define COUNTED 60

/* A word that processors change at the same time, where the device says that this may be. */
static int counted(struct test *t)
{
	bool global = t->place[1].dev->attrs.atomic_cap == IB_ATOMIC_GLOB;
	struct ib_atomic_wr *wr;
	struct waiter *last = NULL;
	struct ib_sge sge;
	atomic64_t *word;
	u64 ours = 0;
	struct scene s;
	int err;

	if (set_scene(t, &s, NULL, SIZE, ALL_RIGHTS))
		return -EIO;
	word = (atomic64_t *)s.far->mem;
	atomic64_set(word, 0);
	sge = near_piece(&s, 0, 8);
	wr = kcalloc(COUNTED, sizeof(*wr), GFP_KERNEL);
	if (!wr)
		return -ENOMEM;
	for (int i = 0; i < COUNTED; i++) {
		wr[i] = reach_word(&s, &sge, 0);
		wr[i].compare_add = 1ull << 32;
		if (i)
			wr[i - 1].wr.next = &wr[i].wr;
	}
	last = wait_on(t, &wr[COUNTED - 1].wr);
	err = last ? post_list(s.a, &wr[0].wr) : -ENOMEM;
	kfree(wr);
	if (err)
		return err;
	while (!is_done(last) && global && ours < U32_MAX) {
		atomic64_inc(word);
		ours++;
		cond_resched();
	}
	if (finish(last))
		return fail(t, "atomic operations: status %d", last->wc.status);
	note(t, "%d, and %llu of a processor", COUNTED, ours);
	return atomic64_read(word) == ((u64)COUNTED << 32) + ours ? 0 :
	       fail(t, "%llx after %d and %llu", atomic64_read(word), COUNTED, ours);
}

const struct kuser_case atomic_cases[] = {
	{ "atomics", atomics },
	{ "counted", counted },
	{}
};
