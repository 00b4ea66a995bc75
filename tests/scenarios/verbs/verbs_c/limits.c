// SPDX-License-Identifier: GPL-2.0
/*
 * How much a process may take: what bounds it is set from outside, by a cgroup or a resource limit, or is one of the
 * device's own limits. Some cases talk with whoever started them: they say what they have, and go on at a line of input.
 */
#define _GNU_SOURCE
#include "pair.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum {
	CQ_ENTRIES = 1 << 16,		/* of 64 bytes: 4 MiB */
	LARGE_CQS = 64,			/* 256 MiB */
	NOBODY = 65534,
	REGIONS = 20000,
};

/* Says something, and waits until it has been looked at. */
static void report(const char *fmt, unsigned int n)
{
	char line[16];

	printf(fmt, n);
	fflush(stdout);
	CHECK(fgets(line, sizeof(line), stdin), "nobody answers");
}

static struct ibv_cq *cq_of(struct pair *p, int entries)
{
	errno = 0;
	return ibv_create_cq(p->a.ctx, entries, NULL, NULL, 0);
}

/* Makes large completion queues until there is no more memory for them; all are destroyed in good order. */
static void large_cqs(void)
{
	struct ibv_cq *cqs[LARGE_CQS];
	struct pair p;
	unsigned int n = 0;

	pair_open_device(&p, NULL);
	report("%u queues\n", 0);
	for (; n < 4; n++)
		CHECK((cqs[n] = cq_of(&p, CQ_ENTRIES)), "completion queue %u: %s", n, strerror(errno));
	report("%u queues\n", n);
	while (n < LARGE_CQS && (cqs[n] = cq_of(&p, CQ_ENTRIES)))
		n++;
	CHECK(n < LARGE_CQS, "%u completion queues of 4 MiB are there, and nothing ends it", n);
	CHECK(errno == ENOMEM, "completion queue %u: %s", n, strerror(errno));
	report("%u queues\n", n);
	while (n)
		CHECK(!ibv_destroy_cq(cqs[--n]), "ibv_destroy_cq");
	report("%u queues\n", 0);
	pair_close(&p);
}

/* Kilobytes that are pinned for this process, as /proc/self/status has them. */
static unsigned long pinned(void)
{
	return process_status("self", "VmPin");
}

/* Rings of an ordinary user are under RLIMIT_MEMLOCK, together with pinned memory, and are given back when they go. */
static void memlock(void)
{
	const unsigned long limit = 8 << 20, ring = 1 << 20;
	const struct rlimit r = { limit, limit };
	enum { MANY = 32 };
	struct ibv_cq *cqs[MANY];
	struct pair p, q;
	int n = 0;

	CHECK(!setrlimit(RLIMIT_MEMLOCK, &r), "setrlimit: %s", strerror(errno));
	CHECK(!setresgid(NOBODY, NOBODY, NOBODY) && !setresuid(NOBODY, NOBODY, NOBODY), "becoming nobody");
	pair_open_device(&p, NULL);
	CHECK(!pinned(), "%lu KiB are pinned before anything is made", pinned());
	while (n < MANY && (cqs[n] = cq_of(&p, ring / 64)))
		n++;
	CHECK(n < MANY, "an ordinary user with a limit of %lu KiB has completion queues of %lu KiB", limit >> 10,
	      n * ring >> 10);
	CHECK(errno == ENOMEM, "completion queue %d: %s", n, strerror(errno));
	/* The ring may need a page more than its entries. */
	CHECK(n >= 6 && n <= 8, "%d completion queues of 1 MiB under a limit of 8 MiB", n);
	CHECK(pinned() >= n * ring >> 10 && pinned() <= limit >> 10, "VmPin is %lu KiB with %d queues", pinned(), n);
	/* Pinned memory is under the same limit. */
	uint8_t *memory = new_memory(limit);
	CHECK(!ibv_reg_mr(p.a.pd, memory, 2 * ring, IBV_ACCESS_LOCAL_WRITE) && errno == ENOMEM,
	      "a region beyond the limit: %s", strerror(errno));
	/* As often as you like, for what goes is given back. */
	for (int i = 0; i < 20; i++) {
		CHECK(!ibv_destroy_cq(cqs[i % n]), "ibv_destroy_cq");
		/* A ring goes with its last mapping, which may be a moment later. */
		for (int wait = 0; !(cqs[i % n] = cq_of(&p, ring / 64)); wait++) {
			CHECK(wait < 30000, "queue %d after one was destroyed: %s", i, strerror(errno));
			usleep(1000);
		}
	}
	while (n)
		CHECK(!ibv_destroy_cq(cqs[--n]), "ibv_destroy_cq");
	for (int wait = 0; pinned(); wait++) {
		CHECK(wait < 30000, "%lu KiB are still pinned", pinned());
		usleep(1000);
	}
	struct ibv_mr *mr = new_mr(p.a.pd, memory, limit, IBV_ACCESS_LOCAL_WRITE);
	/* Work queues are under it, too: nothing is left for a queue pair, however small. */
	CHECK(!cq_of(&p, 1) && errno == ENOMEM, "a completion queue beyond the limit: %s", strerror(errno));
	CHECK(!ibv_dereg_mr(mr), "ibv_dereg_mr");
	struct ibv_cq *cq = new_cq(p.a.ctx, 16, NULL, NULL);
	unsigned long before = pinned();
	struct ibv_qp *qp = new_qp(p.a.pd, cq, (struct ibv_qp_cap){ 16, 16, 1, 1, 0 });
	CHECK(pinned() >= before + 8, "two rings of a queue pair add %lu KiB to VmPin", pinned() - before);
	MUST(ibv_destroy_qp(qp));
	MUST(ibv_destroy_cq(cq));
	/* And the queues work. */
	pair_open_beside(&q, &p, 8192);
	send_checked(&q.a, &q.b, 1);
	pair_close(&q);
	pair_close(&p);
}

/* What a device says it has at most, an object of the kind, and its end. */
struct kind {
	const char *name;
	int most;
	void *(*make)(struct pair *p);
	int (*end)(void *object);
};

/* Beyond this a limit is not tried here. */
enum { REACHABLE = 70000 };

static void *make_pd(struct pair *p)
{
	return ibv_alloc_pd(p->a.ctx);
}

static int end_pd(void *pd)
{
	return ibv_dealloc_pd(pd);
}

static void *make_ah(struct pair *p)
{
	struct ibv_ah_attr attr = { .is_global = 1, .port_num = 1,
				    .grh = { .sgid_index = p->a.gid_index, .hop_limit = 64, .dgid = p->b.gid } };

	return ibv_create_ah(p->a.pd, &attr);
}

static int end_ah(void *ah)
{
	return ibv_destroy_ah(ah);
}

static void *make_cq(struct pair *p)
{
	return cq_of(p, 1);
}

static int end_cq(void *cq)
{
	return ibv_destroy_cq(cq);
}

static void *make_mr(struct pair *p)
{
	static uint8_t page[4096] __attribute__((aligned(4096)));

	return ibv_reg_mr(p->a.pd, page, sizeof(page), IBV_ACCESS_LOCAL_WRITE);
}

static int end_mr(void *mr)
{
	return ibv_dereg_mr(mr);
}

/* Makes objects until one is refused; how many there are then. Whether `most` is refused is what is asked. */
static int make_all(struct pair *p, const struct kind *k, void **objects, int have)
{
	while (have <= k->most) {
		errno = 0;
		if (!(objects[have] = k->make(p)))
			break;
		have++;
	}
	return have;
}

static void device_limits(void)
{
	struct ibv_device_attr attr;
	int reached = 0;
	struct pair p;

	pair_open_device(&p, NULL);
	CHECK(!ibv_query_device(p.a.ctx, &attr), "ibv_query_device");
	const struct kind kinds[] = {
		{ "PD", attr.max_pd, make_pd, end_pd },
		{ "AH", attr.max_ah, make_ah, end_ah },
		{ "CQ", attr.max_cq, make_cq, end_cq },
		{ "MR", attr.max_mr, make_mr, end_mr },
	};
	/* Each queue is a mapping, and a process has 65530 of them at most. */
	const int mappings = 60000;

	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		const struct kind *k = &kinds[i];

		if (k->most > REACHABLE || (k->make == make_cq && k->most > mappings)) {
			printf("%s: %d are beyond reach\n", k->name, k->most);
			continue;
		}
		reached++;
		void **objects = calloc(k->most + 1, sizeof(*objects));
		CHECK(objects, "no memory");
		int n = make_all(&p, k, objects, 0), error = errno;

		CHECK(n <= k->most, "the device has at most %d of %s, and %d were made", k->most, k->name, n);
		/* Those that are there already, ours and others', count. */
		CHECK(n > k->most - 64, "%s %d of %d: %s", k->name, n, k->most, strerror(error));
		CHECK(error == ENOMEM || error == ENOSPC || error == EAGAIN, "%s %d: %s", k->name, n, strerror(error));
		/* What goes makes room for as many. */
		for (int j = 0; j < 100; j++)
			CHECK(!k->end(objects[--n]), "the end of %s %d", k->name, n);
		int again = make_all(&p, k, objects, n);
		CHECK(again == n + 100, "%d of %s went, and %d more were made", 100, k->name, again - n);
		printf("%s: %d of %d, then: %s\n", k->name, again, k->most, strerror(error));
		while (again)
			CHECK(!k->end(objects[--again]), "the end of %s %d", k->name, again);
		free(objects);
	}
	CHECK(reached, "no limit of the device can be reached");
	pair_close(&p);
}

/* As many regions as a large program has, and then its sudden end. */
static void many_regions(void)
{
	struct pair p;

	pair_open_device(&p, NULL);
	for (int i = 0; i < REGIONS; i++)
		CHECK(make_mr(&p), "region %d: %s", i, strerror(errno));
	report("%u regions\n", REGIONS);
	fail("not killed");
}

/* tests/scenarios/verbs/limits.py sets the bounds, and talks with those that have something to tell. */
const struct test_case limit_cases[] = {
	{ "limit-cgroup", large_cqs, "completion queues until there is no more memory for them", BY_HAND },
	{ "limit-memlock", memlock, "rings and pinned memory of an ordinary user", BY_HAND },
	{ "limit-device", device_limits, "as many objects as the device says it has", BY_HAND, .seconds = 100 },
	{ "limit-regions", many_regions, "20,000 regions", BY_HAND },
	{ NULL },
};
