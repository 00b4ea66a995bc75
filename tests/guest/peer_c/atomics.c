// SPDX-License-Identifier: GPL-2.0
/* Operations on eight bytes: what was there comes back, and what is there afterwards is what the operation makes of it. */
#include "peer.h"

/* Where the word is in both areas: it is aligned, and there is nothing around it that another operation writes. */
enum { WORD = 8, PLACE = 4 * MARGIN };

struct operation {
	char letter;
	const char *name;
	enum ibv_wr_opcode post;
	enum ibv_wc_opcode done;
};

static const struct operation operations[] = {
	{ 'a', "FETCH_AND_ADD", IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WC_FETCH_ADD },
	{ 'c', "CMP_AND_SWP that swaps", IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WC_COMP_SWAP },
	{ 'C', "CMP_AND_SWP that does not swap", IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WC_COMP_SWAP },
	{ 'A', "ATOMIC WRITE", IBV_WR_ATOMIC_WRITE, IBV_WC_ATOMIC_WRITE },
};

static uint64_t word_of(unsigned int seed)
{
	uint64_t word;

	fill_piece((uint8_t *)&word, 0, WORD, seed);
	return word;
}

/* The operands: what is added or compared with, and what is put there. */
static void operands(char letter, unsigned int seed, uint64_t *first, uint64_t *second)
{
	uint64_t before = word_of(seed);

	*second = letter == 'a' ? 0 : word_of(seed + 1);
	*first = letter == 'a' ? word_of(seed + 1) : letter == 'c' ? before : letter == 'C' ? ~before : 0;
}

static uint64_t result(char letter, unsigned int seed)
{
	uint64_t first, second;

	operands(letter, seed, &first, &second);
	return letter == 'a' ? word_of(seed) + first : letter == 'C' ? word_of(seed) : second;
}

static void ask_for(const struct operation *o, int lane, unsigned int seed)
{
	struct layout place = lay_at(PLACE, WORD);
	struct ibv_sge sge[MAX_SGE];
	struct ibv_send_wr w = { .opcode = o->post, .wr_id = seed, .sg_list = sge, .num_sge = list(&place, ASKER, sge),
				 .send_flags = IBV_SEND_SIGNALED };
	uint64_t first, second;

	clear(&place, ASKER);
	operands(o->letter, seed, &first, &second);
	w.wr.atomic.remote_addr = remote(TARGET, PLACE);
	w.wr.atomic.rkey = there.rkey;
	w.wr.atomic.compare_add = first;
	w.wr.atomic.swap = second;
	together(o->name);
	if (plan.tell)
		printf("atomic %c lane %d va %llu first %llu second %llu before %llu\n", o->letter, lane,
		       (unsigned long long)w.wr.atomic.remote_addr, (unsigned long long)first, (unsigned long long)second,
		       (unsigned long long)word_of(seed));
	if (o->letter == 'A')
		post_atomic_write(lane, seed, w.wr.atomic.remote_addr, &second);
	else
		post(lane, &w);
	completion(lane, seed, o->done, o->name);
	together(o->name);
	/* An ATOMIC WRITE brings nothing. */
	if (o->letter != 'A')
		compare(&place, ASKER, seed, o->name);
}

static void serve(const struct operation *o, unsigned int seed)
{
	struct layout place = lay_at(PLACE, WORD);
	uint64_t found, want = result(o->letter, seed);

	clear(&place, TARGET);
	fill(&place, TARGET, seed);
	together(o->name);
	together(o->name);
	memcpy(&found, at(TARGET, PLACE), WORD);
	CHECK(found == want, "%s: %#llx is there, not %#llx", o->name, (unsigned long long)found,
	      (unsigned long long)want);
	/* The bytes around it. */
	fill(&place, TARGET, seed);
	compare(&place, TARGET, seed, o->name);
}

bool run_atomic(char op, int lane, bool ask, unsigned int seed)
{
	for (size_t i = 0; i < COUNT(operations); i++) {
		if (operations[i].letter != op)
			continue;
		if (ask)
			ask_for(&operations[i], lane, seed);
		else
			serve(&operations[i], seed);
		return true;
	}
	return false;
}
