// SPDX-License-Identifier: GPL-2.0
/* One operation of one size: prepared, done, and checked at both ends, with the bytes around it. */
#include "peer.h"

#include <arpa/inet.h>
#include <string.h>

enum { UNTOUCHED = 0xa5, MARGIN = 16 };

/* A pattern without a short period, so that a shifted or repeated piece is seen. */
static uint8_t pattern(size_t i, unsigned int seed)
{
	uint32_t x = (uint32_t)(i >> 2) * 2654435761u + seed * 40503u;

	return (x >> 16) ^ (x >> (i & 3));
}

/* A message in up to three pieces, apart from each other and on odd addresses. */
struct layout {
	int n;
	size_t offset[3];
	uint32_t len[3];
};

static struct layout lay(uint32_t size, int n)
{
	/* The last piece is the largest: the pieces end inside packets, not at their borders. */
	uint32_t cut[3] = { size / 5, size / 3, 0 };
	struct layout l = { 0 };
	size_t offset = MARGIN + 1;

	for (int i = 0; i < n; i++) {
		uint32_t len = i == n - 1 ? size : cut[i];

		size -= len;
		if (!len)
			continue;
		l.offset[l.n] = offset;
		l.len[l.n++] = len;
		offset += len + 2 * MARGIN + 1;
	}
	return l;
}

static int list(const struct layout *l, enum area area, struct ibv_sge *to)
{
	for (int i = 0; i < l->n; i++)
		to[i] = piece(area, l->offset[i], l->len[i]);
	return l->n;
}

static void fill(const struct layout *l, enum area area, unsigned int seed)
{
	size_t done = 0;

	for (int p = 0; p < l->n; p++)
		for (size_t i = 0; i < l->len[p]; i++)
			at(area, l->offset[p])[i] = pattern(done++, seed);
}

static void clear(const struct layout *l, enum area area)
{
	memset(at(area, 0), UNTOUCHED, 2 * MARGIN);
	for (int p = 0; p < l->n; p++)
		memset(at(area, l->offset[p] - MARGIN), UNTOUCHED, l->len[p] + 2 * MARGIN);
}

static void compare(const struct layout *l, enum area area, unsigned int seed, const char *what)
{
	size_t done = 0;

	for (int p = 0; p < l->n; p++) {
		const uint8_t *data = at(area, l->offset[p]);

		for (size_t i = 0; i < l->len[p]; i++, done++)
			CHECK(data[i] == pattern(done, seed), "%s: byte %zu is %02x, not %02x", what, done, data[i],
			      pattern(done, seed));
		for (int i = 0; i < MARGIN; i++)
			CHECK(data[-1 - i] == UNTOUCHED && data[l->len[p] + i] == UNTOUCHED,
			      "%s: bytes around piece %d were written", what, p);
	}
	if (!l->n)
		for (int i = 0; i < 2 * MARGIN; i++)
			CHECK(at(area, i)[0] == UNTOUCHED, "%s: bytes were written by an empty message", what);
}

static struct ibv_send_wr request(enum ibv_wr_opcode opcode, uint64_t id, struct ibv_sge *sges, int n, size_t offset)
{
	struct ibv_send_wr w = { .opcode = opcode, .wr_id = id, .sg_list = sges, .num_sge = n,
				 .send_flags = IBV_SEND_SIGNALED };

	w.wr.rdma.remote_addr = there.addr + TARGET * AREA + offset;
	w.wr.rdma.rkey = there.rkey;
	return w;
}

struct kind {
	char letter;
	const char *name;
	enum ibv_wr_opcode post;
	enum ibv_wc_opcode done, received;
	bool takes_receive, places, imm;
};

static const struct kind kinds[] = {
	{ 's', "SEND", IBV_WR_SEND, IBV_WC_SEND, IBV_WC_RECV, true, false, false },
	{ 'S', "SEND with immediate", IBV_WR_SEND_WITH_IMM, IBV_WC_SEND, IBV_WC_RECV, true, false, true },
	{ 'w', "WRITE", IBV_WR_RDMA_WRITE, IBV_WC_RDMA_WRITE, 0, false, true, false },
	{ 'W', "WRITE with immediate", IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WC_RDMA_WRITE, IBV_WC_RECV_RDMA_WITH_IMM, true,
	  true, true },
	{ 'r', "READ", IBV_WR_RDMA_READ, IBV_WC_RDMA_READ, 0, false, true, false },
};

/* What is one range of memory on the remote side is a list of pieces on the local one. */
static void single(const struct kind *k, uint32_t size, bool ask, unsigned int seed, int pieces)
{
	struct layout local = lay(size, pieces), remote = lay(size, k->places ? 1 : pieces == 1 ? 3 : 2);
	bool read = k->letter == 'r';
	struct ibv_sge sges[MAX_SGE];

	if (ask) {
		clear(&local, ASKER);
		if (!read)
			fill(&local, ASKER, seed);
		together(k->name);
		struct ibv_send_wr w = request(k->post, seed, sges, list(&local, ASKER, sges), MARGIN + 1);
		w.imm_data = htonl(~seed);
		post(&w);
		completion(seed, k->done, k->name);
		together(k->name);
		compare(&local, ASKER, seed, k->name);
		return;
	}
	clear(&remote, TARGET);
	if (read)
		fill(&remote, TARGET, seed);
	if (k->takes_receive)
		post_receive(seed, sges, k->places ? 0 : list(&remote, TARGET, sges));
	together(k->name);
	if (k->takes_receive) {
		struct ibv_wc wc = completion(seed, k->received, k->name);

		CHECK(wc.byte_len == size, "%s: received %u bytes of %u", k->name, wc.byte_len, size);
		CHECK(k->imm == !!(wc.wc_flags & IBV_WC_WITH_IMM), "%s: an immediate too many or too few", k->name);
		CHECK(!k->imm || ntohl(wc.imm_data) == ~seed, "%s: immediate %08x", k->name, ntohl(wc.imm_data));
		compare(&remote, TARGET, seed, k->name);
	}
	together(k->name);
	if (!deserted)
		compare(&remote, TARGET, seed, k->name);
}

/* A mixture posted at once: what is under way at the same time must not touch what is beside it. */
enum { SLOTS = 15 };

static void burst(uint32_t size, bool ask, unsigned int seed)
{
	static const char order[] = "swrWS";
	size_t room = size + 2 * MARGIN + 1;
	struct layout slot[SLOTS];
	struct ibv_sge sge;

	if (room * SLOTS > AREA)
		return;
	for (int i = 0; i < SLOTS; i++) {
		slot[i] = lay(size, 1);
		slot[i].offset[0] = i * room + MARGIN;
		clear(&slot[i], ask ? ASKER : TARGET);
	}
	for (int i = 0; i < SLOTS; i++) {
		bool read = order[i % 5] == 'r', imm = order[i % 5] == 'W', takes = strchr("sWS", order[i % 5]);

		if (ask == !read)
			fill(&slot[i], ask ? ASKER : TARGET, seed + i);
		sge = piece(TARGET, slot[i].offset[0], size);
		if (!ask && takes)
			post_receive(i, &sge, imm || !size ? 0 : 1);
	}
	together("burst");
	for (int i = 0; ask && i < SLOTS; i++) {
		const struct kind *k = kinds;

		while (k->letter != order[i % 5])
			k++;
		sge = piece(ASKER, slot[i].offset[0], size);
		struct ibv_send_wr w = request(k->post, i, &sge, size ? 1 : 0, slot[i].offset[0]);
		w.imm_data = htonl(i);
		post(&w);
	}
	for (int i = 0; i < SLOTS; i++) {
		char letter = order[i % 5];

		if (ask) {
			completion(i, letter == 'r' ? IBV_WC_RDMA_READ : strchr("sS", letter) ? IBV_WC_SEND :
				   IBV_WC_RDMA_WRITE, "burst");
		} else if (strchr("sWS", letter)) {
			struct ibv_wc wc = completion(i, letter == 'W' ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV, "burst");

			CHECK(wc.byte_len == size, "burst: received %u bytes of %u", wc.byte_len, size);
			CHECK(letter == 's' || ntohl(wc.imm_data) == (uint32_t)i, "burst: immediate %08x",
			      ntohl(wc.imm_data));
		}
	}
	together("burst");
	for (int i = 0; size && i < SLOTS && (ask || !deserted); i++)
		compare(&slot[i], ask ? ASKER : TARGET, seed + i, "burst");
}

void run_step(char op, uint32_t size, bool ask, unsigned int seed)
{
	if (op == 'b') {
		burst(size, ask, seed);
		return;
	}
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
		if (kinds[i].letter == op) {
			/* Small messages cannot be cut, and large ones have been often enough. */
			single(&kinds[i], size, ask, seed, 1);
			if (size > 4 && size < 1 << 20)
				single(&kinds[i], size, ask, seed + 1, 3);
			return;
		}
	leave(USAGE, "no operation %c", op);
}
