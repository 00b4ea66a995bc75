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

	if (run_atomic(op, 0, ask, seed) || run_mixture(op, size, ask, seed) || run_window(op, size, ask, seed))
		return;
	if (!k || to > (int)(COUNT(shapes)))
		leave(USAGE, "no operation %c, or %d shapes", op, plan.shapes);
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
