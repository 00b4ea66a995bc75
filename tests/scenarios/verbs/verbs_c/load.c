// SPDX-License-Identifier: GPL-2.0
/* Work that is looked at from outside: what it takes of the processors, and of what interrupts them. */
#include "pair.h"

static char page[4096];

static const char *const kinds[] = { "mr", "cq", "qp", "connected-qp" };

/* One object of the kind, made and destroyed. */
static void one(size_t kind)
{
	struct side s = p.a;

	if (kind == 0)
		DESTROY(new_mr(p.a.pd, page, sizeof(page), IBV_ACCESS_LOCAL_WRITE));
	if (kind == 1)
		DESTROY(new_cq(p.a.ctx, 64, NULL, NULL));
	if (kind < 2)
		return;
	s.qp = make_qp(&s);
	if (kind == 3) {
		MUST(to_init(&p, &s));
		MUST(to_rtr(&p, &s, &s, s.qp->qp_num));
		MUST(to_rts(&p, &s));
	}
	DESTROY(s.qp);
}

/* COUNT objects of each kind; prints how often the process PID went to sleep meanwhile. */
CASE("load.churn", "objects made and destroyed", .paths = BY_HAND)
{
	static const char sleeps[] = "voluntary_ctxt_switches";
	int count = number_of("COUNT");

	pair_open(&p, NULL, 0);
	for (size_t k = 0; k < COUNT(kinds); k++) {
		/* A thread that waits for work gives up its CPU after each piece of it. */
		long before = process_status(getenv("PID"), sleeps);

		for (int i = 0; i < count; i++)
			one(k);
		printf("%s %d %ld\n", kinds[k], count, process_status(getenv("PID"), sleeps) - before);
	}
	pair_close(&p);
}

/* 64 GiB, until standard input ends. */
CASE("load.copy", "gigabytes copied", .paths = BY_HAND)
{
	enum { MANY = 1024, BYTES = 64 << 20 };
	static struct ibv_send_wr w[MANY];
	char c;

	pair_open(&p, &(struct options){ .no_connect = true }, BYTES);
	DESTROY(p.a.qp);
	p.a.qp = new_qp(p.a.pd, p.a.cq, (struct ibv_qp_cap){ MANY, 1, 1, 1, 0 });
	pair_connect(&p);
	struct ibv_sge list = sge(&p.a, 0, BYTES);

	for (int i = 0; i < MANY; i++) {
		w[i] = wr(IBV_WR_RDMA_WRITE, i, &list, 1);
		aim(&w[i], &p.b, 0);
		w[i].send_flags = 0;
		w[i].next = i + 1 < MANY ? &w[i + 1] : NULL;
	}
	post(&p.a, w);
	printf("running\n");
	fflush(stdout);
	while (read(0, &c, 1) > 0)
		;
	/* With nearly all of it still to be done. */
	pair_close(&p);
}
