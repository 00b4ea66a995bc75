// SPDX-License-Identifier: GPL-2.0
/* Memory regions with every mixture of rights that programs ask for. */
#include "pair.h"

enum {
	LOCAL = IBV_ACCESS_LOCAL_WRITE,
	REMOTE = REMOTE_ACCESS,
	ATOMIC = IBV_ACCESS_REMOTE_ATOMIC,
	BIND = IBV_ACCESS_MW_BIND,
};

/* b's memory is registered again with these rights; a writes to it, reads it, and sends into it. */
static void moves(int access)
{
	struct pair p;

	pair_open(&p, NULL, 8192);
	DESTROY(p.b.mr);
	p.b.mr = new_mr(p.b.pd, p.b.buf, p.b.len, access);
	if (access & IBV_ACCESS_REMOTE_WRITE)
		move(IBV_WR_RDMA_WRITE, &p.a, 0, &p.b, 10, 3000, 1);
	if (access & IBV_ACCESS_REMOTE_READ)
		move(IBV_WR_RDMA_READ, &p.a, 4096, &p.b, 100, 3000, 2);
	if (access & IBV_ACCESS_LOCAL_WRITE)
		send_checked(&p.a, &p.b, 3);
	/* What was not asked for is still denied. */
	if (!(access & IBV_ACCESS_REMOTE_WRITE))
		want_access(&p, IBV_WR_RDMA_WRITE, (uintptr_t)p.b.buf, p.b.mr->rkey, 3000, false, "WRITE without the right");
	pair_close(&p);
}

/* What UCX and other libraries register with, whatever they do then. */
static void everything(void)
{
	moves(LOCAL | REMOTE | ATOMIC | BIND);
	moves(LOCAL | REMOTE | ATOMIC | BIND | IBV_ACCESS_RELAXED_ORDERING);
}

static void some(void)
{
	static const int rights[] = { LOCAL | ATOMIC, LOCAL | BIND, BIND, LOCAL | IBV_ACCESS_REMOTE_READ | ATOMIC,
				      LOCAL | REMOTE | BIND, IBV_ACCESS_REMOTE_READ };

	for (size_t i = 0; i < COUNT(rights); i++)
		moves(rights[i]);
}

const struct test_case access_cases[] = {
	{ "access-everything", everything, "regions with every right that libraries ask for" },
	{ "access-mixtures", some, "regions with some rights: what was not asked for is denied", LOCAL_PATH },
	{ NULL },
};
