// SPDX-License-Identifier: GPL-2.0
/* Requests that the other side must refuse, or cannot serve at once. Each has a lane of its own, from lane 1 on, as most
 * end it. The asking side prints what became of it; those who watch the packets judge. */
#include "peer.h"

struct mistake {
	char letter;
	const char *name;
	char kind;
};

static const struct mistake mistakes[] = {
	{ 'n', "a SEND before its receive", 's' },
	{ 'g', "a SEND of which a packet is lost", 's' },
	{ 'l', "a SEND longer than its receive", 's' },
	{ 'k', "a WRITE with a wrong key", 'w' },
	{ 'K', "a READ with a wrong key", 'r' },
	{ 'e', "a WRITE beyond the end of the region", 'w' },
	{ 'E', "a READ beyond the end of the region", 'r' },
	{ 'q', "a WRITE that the queue pair does not permit", 'w' },
	{ 'Q', "a READ that the queue pair does not permit", 'r' },
};

static void ask_wrongly(const struct mistake *m, int lane, uint32_t size, unsigned int seed)
{
	struct layout local = lay_at(MARGIN + 1, size);
	struct ibv_sge sge[MAX_SGE];
	struct ibv_wc wc;

	clear(&local, ASKER);
	fill(&local, ASKER, seed);
	together(m->name);
	struct ibv_send_wr w = request(kind(m->kind), seed, sge, list(&local, ASKER, sge), MARGIN + 1);
	if (strchr("kK", m->letter))
		w.wr.rdma.rkey ^= 0x5a000000;
	if (strchr("eE", m->letter))
		w.wr.rdma.remote_addr = remote(TARGET, area_size() - size + 1);
	printf("mistake %c lane %d size %u seed %u va %llu key %u\n", m->letter, lane, size, seed,
	       (unsigned long long)w.wr.rdma.remote_addr, w.wr.rdma.rkey);
	fflush(stdout);
	post(lane, &w);
	wc = outcome(lane, m->name);
	CHECK(wc.wr_id == seed, "%s: completion of %llu", m->name, (unsigned long long)wc.wr_id);
	printf("outcome %c status %d %s\n", m->letter, wc.status, ibv_wc_status_str(wc.status));
	together(m->name);
	compare(&local, ASKER, seed, m->name);
}

/* What was refused has changed nothing; only a SEND may have begun to fill its receive. */
static void untouched(const struct mistake *m, uint32_t room)
{
	uint8_t value = at(TARGET, 0)[0];
	const uint8_t *data = at(TARGET, MARGIN + 1), *end = at(TARGET, area_size());

	for (int i = -MARGIN; i < (int)room + MARGIN; i++)
		CHECK((m->letter == 'l' && i >= 0 && i < (int)room) || data[i] == value, "%s: byte %d was written", m->name, i);
	for (int i = 1; i <= (int)room; i++)
		CHECK(end[-i] == value, "%s: the end of the region was written", m->name);
}

/* RNR NAKs that the device has sent, by the name that the driver has for them. */
static long rnr_naks(void)
{
	long count = hw_counter(plan.device, "rnr_nak_sent");

	return count < 0 ? hw_counter(plan.device, "send_rnr_err") : count;
}

static void refuse(const struct mistake *m, int lane, uint32_t size, unsigned int seed)
{
	bool arrives = strchr("ng", m->letter);
	uint32_t room = m->letter == 'l' ? size - 1 : size;
	struct layout local = lay_at(MARGIN + 1, room);
	struct ibv_sge sge[MAX_SGE];
	int n = list(&local, TARGET, sge);

	clear(&local, TARGET);
	/* Where a range that is too long would end. */
	memset(at(TARGET, area_size() - size), at(TARGET, 0)[0], size);
	if (strchr("qQ", m->letter))
		permit(lane, m->letter == 'q' ? IBV_ACCESS_REMOTE_READ : IBV_ACCESS_REMOTE_WRITE);
	if (strchr("gl", m->letter))
		expect_message(lane, seed, sge, n);
	long before = m->letter == 'n' ? rnr_naks() : 0;
	together(m->name);
	if (m->letter == 'n') {
		/* The other side has to ask again more than once. */
		for (double end = now() + patience(); rnr_naks() < before + 2;)
			CHECK(now() < end, "%s: %ld RNR NAKs", m->name, rnr_naks() - before);
		expect_message(lane, seed, sge, n);
	}
	if (arrives) {
		struct ibv_wc wc = completion(lane, seed, IBV_WC_RECV, m->name);

		check_received(kind('s'), &wc, size, 0);
		compare(&local, TARGET, seed, m->name);
	}
	together(m->name);
	if (!arrives)
		untouched(m, room);
}

void run_mistake(char letter, uint32_t size, bool ask, unsigned int seed)
{
	static int lane;

	for (size_t i = 0; i < COUNT(mistakes); i++) {
		if (mistakes[i].letter != letter)
			continue;
		CHECK(++lane < plan.lanes, "%s needs a lane of its own", mistakes[i].name);
		if (ask)
			ask_wrongly(&mistakes[i], lane, size, seed);
		else
			refuse(&mistakes[i], lane, size, seed);
		return;
	}
	leave(USAGE, "no mistake %c", letter);
}
