// SPDX-License-Identifier: GPL-2.0
/*
 * How much a process may take: what bounds it is set from outside, by a cgroup or a resource limit, or is one of the
 * device's own limits. Some cases talk with their scenario: they say what they have, and go on at a line of input.
 */
#include "pair.h"

#include <rdma/ib_user_verbs.h>
#include <sys/resource.h>

enum {
	CQ_ENTRIES = 1 << 16,		/* of 64 bytes: 4 MiB */
	LARGE_CQS = 64,			/* 256 MiB */
	NOBODY = 65534,
};

/* Says something, and waits until it has been looked at. */
static void report(const char *fmt, unsigned int n)
{
	char line[16];

	printf(fmt, n);
	fflush(stdout);
	CHECK(fgets(line, sizeof(line), stdin), "nobody answers");
}

static struct ibv_cq *cq_of(int entries)
{
	errno = 0;
	return ibv_create_cq(p.a.ctx, entries, NULL, NULL, 0);
}

CASE("limits.limit-cgroup", "completion queues until there is no more memory for them", .paths = BY_HAND)
{
	struct ibv_cq *cqs[LARGE_CQS];
	unsigned int n = 0;

	pair_open_device(&p, NULL);
	report("%u queues\n", 0);
	for (; n < 4; n++)
		CHECK((cqs[n] = cq_of(CQ_ENTRIES)), "completion queue %u: %s", n, strerror(errno));
	report("%u queues\n", n);
	while (n < LARGE_CQS && (cqs[n] = cq_of(CQ_ENTRIES)))
		n++;
	CHECK(n < LARGE_CQS, "%u completion queues of 4 MiB are there, and nothing ends it", n);
	CHECK(errno == ENOMEM, "completion queue %u: %s", n, strerror(errno));
	report("%u queues\n", n);
	while (n)
		DESTROY(cqs[--n]);
	report("%u queues\n", 0);
	pair_close(&p);
}

/* Kilobytes that are pinned for this process, as /proc/self/status has them. */
static unsigned long pinned(void)
{
	return process_status("self", "VmPin");
}

CASE("limits.limit-memlock", "rings and pinned memory of an ordinary user", .paths = BY_HAND)
{
	const unsigned long limit = 8 << 20, ring = 1 << 20;
	const struct rlimit r = { limit, limit };
	enum { MANY = 32 };
	struct ibv_cq *cqs[MANY];
	struct pair q;
	int n = 0;

	CHECK(!setrlimit(RLIMIT_MEMLOCK, &r), "setrlimit: %s", strerror(errno));
	CHECK(!setresgid(NOBODY, NOBODY, NOBODY) && !setresuid(NOBODY, NOBODY, NOBODY), "becoming nobody");
	pair_open_device(&p, NULL);
	CHECK(!pinned(), "%lu KiB are pinned before anything is made", pinned());
	while (n < MANY && (cqs[n] = cq_of(ring / 64)))
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
		DESTROY(cqs[i % n]);
		/* A ring goes with its last mapping, which may be a moment later. */
		for (double end = now() + patience(); !(cqs[i % n] = cq_of(ring / 64)); usleep(1000))
			CHECK(now() < end, "queue %d after one was destroyed: %s", i, strerror(errno));
	}
	while (n)
		DESTROY(cqs[--n]);
	for (double end = now() + patience(); pinned(); usleep(1000))
		CHECK(now() < end, "%lu KiB are still pinned", pinned());
	struct ibv_mr *mr = new_mr(p.a.pd, memory, limit, IBV_ACCESS_LOCAL_WRITE);
	/* Work queues are under it, too: nothing is left for a queue pair, however small. */
	CHECK(!cq_of(1) && errno == ENOMEM, "a completion queue beyond the limit: %s", strerror(errno));
	DESTROY(mr);
	struct ibv_cq *cq = new_cq(p.a.ctx, 16, NULL, NULL);
	unsigned long before = pinned();
	struct ibv_qp *qp = new_qp(p.a.pd, cq, (struct ibv_qp_cap){ 16, 16, 1, 1, 0 });
	CHECK(pinned() >= before + 8, "two rings of a queue pair add %lu KiB to VmPin", pinned() - before);
	DESTROY(qp, cq);
	/* And the queues work. */
	pair_open_beside(&q, &p, 8192);
	send_checked(&q.a, &q.b, 1);
	pair_close(&q);
	pair_close(&p);
}

/* The kinds of objects. */
enum kind { CONTEXT, PD, AH, CQ, QP, SRQ, MR, MW, KINDS };
static const char *const kind_names[KINDS] = { "context", "PD", "AH", "CQ", "QP", "SRQ", "MR", "MW" };

enum { MOST_TRIED = 4096, REFUSALS = 1000 };

static uint8_t page[4096] __attribute__((aligned(4096)));

static void *make(enum kind kind)
{
	struct ibv_ah_attr ah = { .is_global = 1, .port_num = 1,
				  .grh = { .sgid_index = p.a.gid_index, .hop_limit = 64, .dgid = p.b.gid } };
	struct ibv_qp_init_attr qp = { .send_cq = p.a.cq, .recv_cq = p.a.cq, .qp_type = IBV_QPT_RC,
				       .cap = { 1, 1, 1, 1, 0 } };
	struct ibv_srq_init_attr srq = { .attr = { .max_wr = 1, .max_sge = 1 } };

	errno = 0;
	switch (kind) {
	case CONTEXT: return ibv_open_device(p.a.ctx->device);
	case PD: return ibv_alloc_pd(p.a.ctx);
	case AH: return ibv_create_ah(p.a.pd, &ah);
	case CQ: return cq_of(1);
	case QP: return ibv_create_qp(p.a.pd, &qp);
	case SRQ: return ibv_create_srq(p.a.pd, &srq);
	case MR: return ibv_reg_mr(p.a.pd, page, sizeof(page), IBV_ACCESS_LOCAL_WRITE);
	case MW: return ibv_alloc_mw(p.a.pd, IBV_MW_TYPE_2);
	default: fail("no kind %d", kind);
	}
}

static void end(enum kind kind, void *object)
{
	switch (kind) {
	case CONTEXT: DESTROY((struct ibv_context *)object); break;
	case PD: DESTROY((struct ibv_pd *)object); break;
	case AH: DESTROY((struct ibv_ah *)object); break;
	case CQ: DESTROY((struct ibv_cq *)object); break;
	case QP: DESTROY((struct ibv_qp *)object); break;
	case SRQ: DESTROY((struct ibv_srq *)object); break;
	case MR: DESTROY((struct ibv_mr *)object); break;
	case MW: DESTROY((struct ibv_mw *)object); break;
	default: fail("no kind %d", kind);
	}
}

/* What the device says it has; of contexts it says nothing, and there are so many. */
static int most_of(enum kind kind, int contexts)
{
	struct ibv_device_attr a;

	MUST(ibv_query_device(p.a.ctx, &a));
	return (const int[KINDS]){ contexts, a.max_pd, a.max_ah, a.max_cq, a.max_qp, a.max_srq, a.max_mr, a.max_mw }[kind];
}

/* A command whose answer the program cannot take: all is made, and must be unmade. */
static void unanswerable(int fd, uint32_t number, void *body, size_t len)
{
	static uint64_t *nowhere;

	if (!nowhere)
		nowhere = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	memcpy(body, &nowhere, sizeof(nowhere));
	int rc = uverbs_command(fd, number, body, len, 256);

	CHECK(rc == EFAULT, "command %u without room for its answer: %s", number, strerror(rc));
}

#define UNANSWERABLE(name, type, ...) do { \
	struct ib_uverbs_##type c = { __VA_ARGS__ }; \
	unanswerable(p.a.ctx->cmd_fd, IB_USER_VERBS_CMD_##name, &c, sizeof(c)); \
} while (0)

static void context_unanswered(void)
{
	struct {
		struct ib_uverbs_get_context core;
		uint64_t ours;
	} c = {};
	int fd = open_device_file();

	unanswerable(fd, IB_USER_VERBS_CMD_GET_CONTEXT, &c, sizeof(c));
	close(fd);
}

/* One that is begun and cannot be finished. */
static void make_in_vain(enum kind kind)
{
	struct ib_uverbs_ah_attr to = { .is_global = 1, .port_num = 1,
					.grh = { .sgid_index = p.a.gid_index, .hop_limit = 64 } };
	uint32_t pd = p.a.pd->handle, cq = p.a.cq->handle;

	memcpy(to.grh.dgid, &p.b.gid, sizeof(to.grh.dgid));
	switch (kind) {
	case CONTEXT: context_unanswered(); break;
	case PD: UNANSWERABLE(ALLOC_PD, alloc_pd); break;
	case AH: UNANSWERABLE(CREATE_AH, create_ah, .pd_handle = pd, .attr = to); break;
	case CQ: UNANSWERABLE(CREATE_CQ, create_cq, .cqe = 1, .comp_channel = -1); break;
	case QP:
		UNANSWERABLE(CREATE_QP, create_qp, .pd_handle = pd, .send_cq_handle = cq, .recv_cq_handle = cq, .max_send_wr = 1,
			     .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1, .qp_type = IBV_QPT_RC);
		break;
	case SRQ: UNANSWERABLE(CREATE_SRQ, create_srq, .pd_handle = pd, .max_wr = 1, .max_sge = 1); break;
	case MR:
		UNANSWERABLE(REG_MR, reg_mr, .start = (uintptr_t)page, .hca_va = (uintptr_t)page, .length = sizeof(page),
			     .pd_handle = pd, .access_flags = IBV_ACCESS_LOCAL_WRITE);
		/* Memory that is not there is found out later than the limit. */
		CHECK(!ibv_reg_mr(p.a.pd, NULL, 4096, IBV_ACCESS_LOCAL_WRITE) && errno == EFAULT, "memory at 0: %s",
		      strerror(errno));
		break;
	case MW: UNANSWERABLE(ALLOC_MW, alloc_mw, .pd_handle = pd, .mw_type = IBV_MW_TYPE_2); break;
	default: fail("no kind %d", kind);
	}
}

/* Makes objects until one is refused, with this error; how many there are then. */
static int make_all(enum kind kind, void **objects, int have, int refusal)
{
	void *made;

	while (have < MOST_TRIED && (made = make(kind)))
		objects[have++] = made;
	CHECK(have < MOST_TRIED, "%s: %d were made, and nothing ends it", kind_names[kind], have);
	CHECK(errno == refusal, "%s %d: %s", kind_names[kind], have, strerror(errno));
	return have;
}

CASE("limits.limit-device", "as many objects as the device says it has", .paths = BY_HAND)
{
	const int most = number_of("MOST");
	void *objects[MOST_TRIED];

	pair_open_device(&p, NULL);
	p.a.cq = new_cq(p.a.ctx, 1, NULL, NULL);
	for (enum kind k = 0; k < KINDS; k++) {
		int said = most_of(k, most);

		CHECK(said == most, "the device says %d of %s, not %d", said, kind_names[k], most);
		int n = make_all(k, objects, 0, ENOMEM);

		/* Those that are there already, ours and others', count. */
		CHECK(n <= most && n > most - 8, "%d of %s where there may be %d", n, kind_names[k], most);
		/* Being refused takes nothing away. */
		for (int i = 0; i < REFUSALS; i++)
			CHECK(!make(k) && errno == ENOMEM, "%s %d: %s", kind_names[k], n, strerror(errno));
		/* What goes makes room for as many. */
		for (int i = 0; i < 10; i++)
			end(k, objects[--n]);
		n = make_all(k, objects, n, ENOMEM);
		for (int i = n; i; i--)
			end(k, objects[i - 1]);
		/* What fails after it was counted is not counted for ever. */
		for (int i = 0; i < REFUSALS; i++)
			make_in_vain(k);
		int again = make_all(k, objects, 0, ENOMEM);

		CHECK(again == n, "%d of %s, and after %d that failed %d", n, kind_names[k], REFUSALS, again);
		while (again)
			end(k, objects[--again]);
		printf("%s: %d of %d\n", kind_names[k], n, most);
	}
	pair_close(&p);
}

CASE("limits.limit-objects", "as many objects as a cgroup allows", .paths = BY_HAND)
{
	const int most = number_of("MOST");
	void *objects[MOST_TRIED];

	pair_open_device(&p, NULL);
	p.a.cq = new_cq(p.a.ctx, 1, NULL, NULL);
	/* The context is counted apart, and the domain and the queue are there already. */
	for (enum kind k = CONTEXT + 1; k < KINDS; k++) {
		int n = make_all(k, objects, 0, EAGAIN);

		CHECK(n == most - 2, "%d of %s in a cgroup that may have %d objects", n, kind_names[k], most);
		end(k, objects[--n]);
		CHECK(make_all(k, objects, n, EAGAIN) == n + 1, "one %s went, and no other came", kind_names[k]);
		for (n++; n; n--)
			end(k, objects[n - 1]);
	}
	pair_close(&p);
}

/* Makes queue pairs with the smallest rings, connects each to the one before it, and destroys them: twice, for the first
 * time fills caches. */
CASE("limits.limit-footprint", "idle queue pairs, whose memory is looked at", .paths = BY_HAND)
{
	const struct ibv_qp_cap least = { 1, 1, 1, 1, 0 };
	unsigned int n = number_of("COUNT");
	struct ibv_qp **qps = calloc(n, sizeof(*qps));
	struct pair each;

	CHECK(qps, "no memory");
	pair_open(&p, &(struct options){ .no_connect = true }, 8192);
	each = p;
	for (int round = 0; round < 2; round++) {
		report("%u made\n", 0);
		for (unsigned int i = 0; i < n; i++)
			qps[i] = new_qp(p.a.pd, p.a.cq, least);
		report("%u made\n", n);
		for (unsigned int i = 1; i < n; i += 2) {
			each.a.qp = qps[i - 1];
			each.b.qp = qps[i];
			pair_connect(&each);
		}
		report("%u connected\n", n);
		for (unsigned int i = 0; i < n; i++)
			DESTROY(qps[i]);
		report("%u made\n", 0);
	}
	pair_close(&p);
	free(qps);
}

/* tests/scenarios/verbs/limits.py sets the bounds, and talks with those that have something to tell. */
