// SPDX-License-Identifier: GPL-2.0
/* One operation of one size: prepared, done, and checked at both ends, with the bytes around it. */
#include "peer.h"

#include <arpa/inet.h>

static const struct kind kinds[] = {
	{ 's', "SEND", IBV_WR_SEND, IBV_WC_SEND, IBV_WC_RECV, true, false, false, 0 },
	{ 'S', "SEND with immediate", IBV_WR_SEND_WITH_IMM, IBV_WC_SEND, IBV_WC_RECV, true, false, true, 0 },
	{ 'w', "WRITE", IBV_WR_RDMA_WRITE, IBV_WC_RDMA_WRITE, 0, false, true, false, 0 },
	{ 'W', "WRITE with immediate", IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WC_RDMA_WRITE, IBV_WC_RECV_RDMA_WITH_IMM, true,
	  true, true, 0 },
	{ 'r', "READ", IBV_WR_RDMA_READ, IBV_WC_RDMA_READ, 0, false, true, false, 0 },
	{ 'z', "solicited SEND", IBV_WR_SEND, IBV_WC_SEND, IBV_WC_RECV, true, false, false, IBV_SEND_SOLICITED },
	{ 'y', "solicited WRITE", IBV_WR_RDMA_WRITE, IBV_WC_RDMA_WRITE, 0, false, true, false, IBV_SEND_SOLICITED },
	{ 'Z', "solicited WRITE with immediate", IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WC_RDMA_WRITE,
	  IBV_WC_RECV_RDMA_WITH_IMM, true, true, true, IBV_SEND_SOLICITED },
	/* Of a word. */
	{ 'a', "FETCH_AND_ADD", IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WC_FETCH_ADD },
	{ 'c', "CMP_AND_SWP that swaps", IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WC_COMP_SWAP },
	{ 'C', "CMP_AND_SWP that does not swap", IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WC_COMP_SWAP },
	{ 'A', "ATOMIC WRITE", IBV_WR_ATOMIC_WRITE, IBV_WC_ATOMIC_WRITE },
};

const struct kind *kind(char letter)
{
	for (size_t i = 0; i < COUNT(kinds); i++)
		if (kinds[i].letter == letter)
			return &kinds[i];
	return NULL;
}

struct ibv_send_wr request(const struct kind *k, uint64_t id, struct ibv_sge *sges, int n, size_t offset)
{
	struct ibv_send_wr w = { .opcode = k->post, .wr_id = id, .sg_list = sges, .num_sge = n,
				 .send_flags = IBV_SEND_SIGNALED | k->flags };

	w.wr.rdma.remote_addr = remote(TARGET, offset);
	w.wr.rdma.rkey = there.rkey;
	return w;
}

void check_received(const struct kind *k, const struct ibv_wc *wc, uint32_t size, uint32_t imm)
{
	CHECK(wc->byte_len == size, "%s: received %u bytes of %u", k->name, wc->byte_len, size);
	CHECK(k->imm == !!(wc->wc_flags & IBV_WC_WITH_IMM), "%s: an immediate too many or too few", k->name);
	CHECK(!k->imm || ntohl(wc->imm_data) == imm, "%s: immediate %08x", k->name, ntohl(wc->imm_data));
}

static void ask_for(const struct kind *k, int lane, uint32_t size, unsigned int seed, int pieces)
{
	struct layout local = lay(size, pieces);
	struct ibv_sge sges[MAX_SGE];

	clear(&local, ASKER);
	if (k->letter != 'r')
		fill(&local, ASKER, seed);
	together(k->name);
	/* Who is dead may have died before it prepared what is to be read. */
	bool known = k->letter != 'r' || !deserted;
	struct ibv_send_wr w = request(k, seed, sges, list(&local, ASKER, sges), MARGIN + 1);
	w.imm_data = htonl(~seed);
	if (plan.tell)
		printf("step %c lane %d size %u seed %u va %llu imm %u\n", k->letter, lane, size, seed,
		       (unsigned long long)w.wr.rdma.remote_addr, ~seed);
	post(lane, &w);
	completion(lane, seed, k->done, k->name);
	together(k->name);
	if (known)
		compare(&local, ASKER, seed, k->name);
}

static void serve(const struct kind *k, int lane, uint32_t size, unsigned int seed, int pieces)
{
	struct layout local = lay(size, k->places ? 1 : pieces);
	bool datagram = type_of(lane) == IBV_QPT_UD;
	struct ibv_sge sges[MAX_SGE + 1];
	int n = 0;

	clear(&local, TARGET);
	if (k->letter == 'r')
		fill(&local, TARGET, seed);
	if (datagram)
		sges[n++] = piece(TARGET, area_size() - GRH_BYTES, GRH_BYTES);
	if (k->takes_receive)
		expect_message(lane, seed, sges, k->places ? 0 : n + list(&local, TARGET, sges + n));
	together(k->name);
	if (k->takes_receive) {
		struct ibv_wc wc = completion(lane, seed, k->received, k->name);

		check_received(k, &wc, size + (datagram ? GRH_BYTES : 0), ~seed);
		compare(&local, TARGET, seed, k->name);
	}
	together(k->name);
	/* Nobody says when the last packet of an unreliable WRITE has come. */
	double end = now() + patience();
	while (type_of(lane) == IBV_QPT_UC && !deserted && !arrived(&local, TARGET, seed) &&
	       now() < end)
		usleep(1000);
	if (!deserted)
		compare(&local, TARGET, seed, k->name);
}

/* Where the word is in both areas: it is aligned, and there is nothing around it that another operation writes. */
enum { WORD = 8, PLACE = 4 * MARGIN };

static uint64_t word_of(unsigned int seed)
{
	uint64_t word;

	fill_piece((uint8_t *)&word, 0, WORD, seed);
	return word;
}

/* What an operation finds, what it adds or compares with, what it puts there, and what is there then. */
struct values {
	uint64_t before, first, second, after;
};

static struct values values_of(char letter, unsigned int seed)
{
	uint64_t before = word_of(seed), other = word_of(seed + 1);

	switch (letter) {
	case 'a': return (struct values){ before, other, 0, before + other };
	case 'c': return (struct values){ before, before, other, other };
	case 'C': return (struct values){ before, ~before, other, before };
	default: return (struct values){ before, 0, other, other };
	}
}

static void ask_for_word(const struct kind *k, int lane, unsigned int seed)
{
	struct layout place = lay_at(PLACE, WORD);
	struct values v = values_of(k->letter, seed);
	struct ibv_sge sge[MAX_SGE];
	struct ibv_send_wr w = { .opcode = k->post, .wr_id = seed, .sg_list = sge, .num_sge = list(&place, ASKER, sge),
				 .send_flags = IBV_SEND_SIGNALED,
				 .wr.atomic = { remote(TARGET, PLACE), v.first, v.second, there.rkey } };

	clear(&place, ASKER);
	together(k->name);
	if (plan.tell)
		printf("atomic %c lane %d va %llu first %llu second %llu before %llu\n", k->letter, lane,
		       (unsigned long long)w.wr.atomic.remote_addr, (unsigned long long)v.first,
		       (unsigned long long)v.second, (unsigned long long)v.before);
	if (k->letter == 'A')
		post_atomic_write(lane, seed, w.wr.atomic.remote_addr, &v.second);
	else
		post(lane, &w);
	completion(lane, seed, k->done, k->name);
	together(k->name);
	/* An ATOMIC WRITE brings nothing. */
	if (k->letter != 'A')
		compare(&place, ASKER, seed, k->name);
}

static void serve_word(const struct kind *k, unsigned int seed)
{
	struct layout place = lay_at(PLACE, WORD);
	uint64_t found, want = values_of(k->letter, seed).after;

	clear(&place, TARGET);
	fill(&place, TARGET, seed);
	together(k->name);
	together(k->name);
	memcpy(&found, at(TARGET, PLACE), WORD);
	CHECK(found == want, "%s: %#llx is there, not %#llx", k->name, (unsigned long long)found, (unsigned long long)want);
	/* The bytes around it. */
	fill(&place, TARGET, seed);
	compare(&place, TARGET, seed, k->name);
}

/* Whether a lane's type has an operation. */
static bool serves(int lane, char op)
{
	return type_of(lane) == IBV_QPT_RC || strchr(type_of(lane) == IBV_QPT_UC ? "sSwWzyZ" : "sSz", op);
}

/* Pieces of a message on the asking side and in the receive. What is one range of memory on the remote side of WRITE
 * and READ is a list of pieces on the local one. */
static const struct {
	int asking, asked;
} shapes[] = { { 1, 3 }, { 3, 2 }, { 7, 16 }, { 16, 1 } };

void run_step(char op, uint32_t size, bool ask, unsigned int seed)
{
	const struct kind *k = kind(op);
	int from = 0, to = plan.shapes;

	if (run_mixture(op, size, ask, seed) || run_window(op, size, ask, seed))
		return;
	if (!k || to > (int)(COUNT(shapes)))
		leave(USAGE, "no operation %c, or %d shapes", op, plan.shapes);
	if (strchr("acCA", op)) {
		if (ask)
			ask_for_word(k, 0, seed);
		else
			serve_word(k, seed);
		return;
	}
	/* Small messages cannot be cut, and large ones take long. */
	if (size <= 4)
		to = 1;
	else if (size >= 1 << 20)
		from = to - 1;
	for (int lane = 0; lane < (plan.types ? plan.lanes : 1); lane++)
		for (int i = from; i < to && serves(lane, op); i++) {
			if (ask)
				ask_for(k, lane, size, seed + i, shapes[i].asking);
			else
				serve(k, lane, size, seed + i, shapes[i].asked);
		}
}
