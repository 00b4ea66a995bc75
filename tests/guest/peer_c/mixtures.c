// SPDX-License-Identifier: GPL-2.0
/* Many messages posted at once, on every lane: what is under way at the same time must not touch what is beside it. */
#include "peer.h"

#include <arpa/inet.h>

enum { SLOTS = 15 };
static const char order[] = "swrWS";

struct mixture {
	struct layout slot[SLOTS];
	const struct kind *kind[SLOTS];
};

static bool prepare(struct mixture *m, uint32_t size, bool ask, unsigned int seed)
{
	enum area area = ask ? ASKER : TARGET;
	size_t room = size + 2 * MARGIN + 1;
	struct ibv_sge sge[MAX_SGE];

	if (room * SLOTS > area_size())
		return false;
	for (int i = 0; i < SLOTS; i++) {
		m->kind[i] = kind(order[i % 5]);
		m->slot[i] = lay_at(i * room + MARGIN, size);
		clear(&m->slot[i], area);
	}
	for (int i = 0; i < SLOTS; i++) {
		const struct kind *k = m->kind[i];

		if (ask == (k->letter != 'r'))
			fill(&m->slot[i], area, seed + i);
		if (!ask && k->takes_receive)
			expect_message(i % plan.lanes, i, sge, k->places ? 0 : list(&m->slot[i], TARGET, sge));
	}
	return true;
}

/* Whether no message of this lane comes after this one. */
static bool last_of_lane(int i)
{
	return i + plan.lanes >= SLOTS;
}

/* With `quiet` only the last message of each lane is signalled: its completion stands for those before it. */
static void burst(uint32_t size, bool ask, unsigned int seed, bool quiet)
{
	struct mixture m;
	struct ibv_sge sge[MAX_SGE];

	if (!prepare(&m, size, ask, seed))
		return;
	together("burst");
	for (int i = 0; ask && i < SLOTS; i++) {
		struct ibv_send_wr w = request(m.kind[i], i, sge, list(&m.slot[i], ASKER, sge), m.slot[i].offset[0]);

		w.imm_data = htonl(seed + i);
		if (quiet && !last_of_lane(i))
			w.send_flags &= ~IBV_SEND_SIGNALED;
		post(i % plan.lanes, &w);
	}
	for (int i = 0; i < SLOTS; i++) {
		if (ask && (!quiet || last_of_lane(i)))
			completion(i % plan.lanes, i, m.kind[i]->done, "burst");
		if (!ask && m.kind[i]->takes_receive) {
			struct ibv_wc wc = completion(i % plan.lanes, i, m.kind[i]->received, "burst");

			check_received(m.kind[i], &wc, size, seed + i);
		}
	}
	together("burst");
	for (int i = 0; size && i < SLOTS && (ask || !deserted); i++)
		compare(&m.slot[i], ask ? ASKER : TARGET, seed + i, "burst");
}

/* On every lane: READ, then with a fence SEND and WRITE what it brought. Without the fence the old bytes would leave. */
static void fenced(uint32_t size, bool ask, unsigned int seed)
{
	size_t room = size + 2 * MARGIN + 1;
	struct layout slot[3 * MAX_LANES];
	struct ibv_sge sge[MAX_SGE];
	int n = 3 * plan.lanes;

	if (room * n > area_size())
		return;
	/* Three slots a lane: what is read, what is received, what is written. */
	for (int i = 0; i < n; i++) {
		slot[i] = lay_at(i * room + MARGIN, size);
		clear(&slot[i], ask ? ASKER : TARGET);
	}
	for (int i = 0; !ask && i < n; i += 3) {
		fill(&slot[i], TARGET, seed + i);
		expect_message(i / 3, i, sge, list(&slot[i + 1], TARGET, sge));
	}
	together("fenced");
	for (int i = 0; ask && i < n; i += 3)
		for (int part = 0; part < 3; part++) {
			const struct kind *k = kind("rsw"[part]);
			struct ibv_send_wr w = request(k, i + part, sge, list(&slot[i], ASKER, sge),
						       slot[i + part].offset[0]);

			w.send_flags |= part ? IBV_SEND_FENCE : 0;
			post(i / 3, &w);
		}
	for (int i = 0; i < n; i++) {
		if (ask)
			completion(i / 3, i, kind("rsw"[i % 3])->done, "fenced");
		else if (i % 3 == 0)
			completion(i / 3, i, IBV_WC_RECV, "fenced");
	}
	together("fenced");
	for (int i = 0; size && i < n && (ask || !deserted); i += ask ? 3 : 1)
		compare(&slot[i], ask ? ASKER : TARGET, seed + i / 3 * 3, "fenced");
}

bool run_mixture(char op, uint32_t size, bool ask, unsigned int seed)
{
	switch (op) {
	case 'b': burst(size, ask, seed, false); return true;
	case 'u': burst(size, ask, seed, true); return true;
	case 'f': fenced(size, ask, seed); return true;
	default: return false;
	}
}
