// SPDX-License-Identifier: GPL-2.0
/*
 * Many objects at once, each of which is used: more than stand in front of the driver's tables, so that most are found
 * the long way. How many is given in the environment (COUNT).
 */
#include "pair.h"

enum { PAGE = 4096, PAGES = 256, LEN = 64 };

/* One WRITE of a pattern of its own, from the beginning of a's buffer through the region of b, which may be gone. */
static void write_through(const struct ibv_mr *mr, unsigned int seed, bool allowed, const char *which)
{
	char text[64];

	fill(p.a.buf, LEN, seed);
	memset(mr->addr, 0, LEN);
	snprintf(text, sizeof(text), "WRITE %u to %s region", seed, which);
	want_access(&p, IBV_WR_RDMA_WRITE, (uintptr_t)mr->addr, mr->rkey, LEN, allowed, text);
	if (allowed)
		compare(mr->addr, LEN, seed, "written data");
	for (int i = 0; i < LEN && !allowed; i++)
		CHECK(!((uint8_t *)mr->addr)[i], "%s: it was written", text);
}

/* One SEND into the region of b. */
static void send_into(struct ibv_mr *mr, unsigned int seed)
{
	struct ibv_sge room = { .addr = (uintptr_t)mr->addr, .length = LEN, .lkey = mr->lkey };

	fill(p.a.buf, LEN, seed);
	memset(mr->addr, 0, LEN);
	post_recv(&p.b, seed, &room, 1);
	post_one(&p.a, IBV_WR_SEND, seed, 0, LEN);
	expect(&p.b, seed, IBV_WC_SUCCESS, "receive");
	expect(&p.a, seed, IBV_WC_SUCCESS, "SEND");
	compare(mr->addr, LEN, seed, "received data");
}

CASE("scale.regions", "a great many regions, each of which is used: most stand behind the place in front of the table",
     .paths = LOCAL_PATH, .seconds = 240, .rxe = "is not judged here", .len = PAGES * PAGE)
{
	const int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
	unsigned int n = number_of("COUNT"), refused = 0;
	struct ibv_mr **mrs = calloc(n, sizeof(*mrs));

	CHECK(mrs, "no memory");
	for (unsigned int i = 0; i < n; i++)
		mrs[i] = new_mr(p.b.pd, p.b.buf + i % PAGES * PAGE, PAGE, access);
	for (unsigned int i = 0; i < n; i++) {
		write_through(mrs[i], i, true, "a new");
		if (i % 16 == 0)
			send_into(mrs[i], n + i);
	}
	for (unsigned int i = 1; i < n; i += 2) {
		struct ibv_mr gone = *mrs[i];

		DESTROY(mrs[i]);
		/* Each refusal ends the connection. */
		if (i % 512 != 1)
			continue;
		write_through(&gone, i, false, "a gone");
		refused++;
	}
	for (unsigned int i = 0; i < n; i += 2) {
		write_through(mrs[i], i + 1, true, "a remaining");
		DESTROY(mrs[i]);
	}
	printf("%u regions were used, %u refused when they had gone\n", n, refused);
	free(mrs);
}
