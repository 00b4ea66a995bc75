// SPDX-License-Identifier: GPL-2.0
/*
 * Every step of a program's life with memory refused to the kernel: the n-th chance to fail in a system call fails
 * (/proc/thread-self/fail-nth: slab, pages, and copies from and to the program), for each n until the step has fewer.
 * A step either fails and leaves nothing, so that it can be tried again, or succeeds and works.
 */
#include "pair.h"

enum { PAGE = 4096, LEN = 3000, MOST = 3000 };

static struct ibv_device *device;
static int control;
static struct ibv_mr *extra;
static struct ibv_ah *ah;
static struct ibv_qp *spare;
static struct ibv_srq *srq;
static struct ibv_mw *mw;
static struct ibv_qp *member;
/* ff15::1:4e and 239.1.0.78: joining takes memory of IGMP or MLD. */
static const union ibv_gid groups[] = { { .raw = { 0xff, 0x15, [13] = 1, [15] = 0x4e } },
					{ .raw = { [10] = 0xff, [11] = 0xff, [12] = 239, [13] = 1, [15] = 78 } } };
static const union ibv_gid *group;

/* 0, or the errno. */
static int result(const void *made)
{
	return made ? 0 : errno ? errno : ENOMEM;
}

/* What a program does, and what takes it back. */
enum step {
	NOTHING, OPEN, CLOSE, ALLOC_PD, DEALLOC_PD, CREATE_CHANNEL, DESTROY_CHANNEL, CREATE_CQ, CREATE_CQ_ALONE, DESTROY_CQ,
	RESIZE_CQ, CREATE_SRQ, RESIZE_SRQ, DESTROY_SRQ, CREATE_QP, DESTROY_QP, REG_MR, DEREG_MR, ALLOC_MW, DEALLOC_MW, CREATE_AH,
	DESTROY_AH, CREATE_UD, DESTROY_UD, ATTACH, DETACH, QUERY, ARM, SEND, TO_RESET, TO_INIT, TO_RTR, TO_RTS, BACK_TO_INIT,
	BACK_TO_RTR,
};

static int create_qp(struct ibv_qp **qp, enum ibv_qp_type type)
{
	struct ibv_qp_init_attr attr = {
		.send_cq = p.a.cq, .recv_cq = p.a.cq, .qp_type = type, .cap = { DEPTH, DEPTH, 2, 2, 64 },
	};

	return result(*qp = ibv_create_qp(p.a.pd, &attr));
}

static int query(void)
{
	struct ibv_qp_init_attr init;
	struct ibv_port_attr port;
	struct ibv_device_attr d;
	struct ibv_qp_attr attr;
	int rc = ibv_query_qp(p.a.qp, &attr, IBV_QP_STATE, &init);

	return rc ?: ibv_query_device(p.a.ctx, &d) ?: ibv_query_port(p.a.ctx, 1, &port);
}

/* Whether the step had the chance, which must be known before anything else is asked of the kernel. */
static bool had_chance(void)
{
	char text[16] = "";
	ssize_t got = pread(control, text, sizeof(text) - 1, 0);

	/* What is copied here counts, too: if that was the chance then the step had fewer. */
	CHECK(got > 0 || errno == EFAULT, "fail-nth: %s", strerror(errno));
	CHECK(pwrite(control, "0", 1, 0) == 1 || errno == EFAULT, "fail-nth: %s", strerror(errno));
	return got > 0 && !atoi(text);
}

/* A message, posted while memory is short. What the driver could not send it sends again: nothing may be lost. */
static int send_one(void)
{
	static unsigned int seed;
	struct ibv_sge list = sge(&p.a, 0, LEN), room = sge(&p.b, PAGE, LEN);
	struct ibv_send_wr w = wr(IBV_WR_SEND, ++seed, &list, 1), again = wr(IBV_WR_SEND, seed, NULL, 0), *bad;
	int rc;

	fill(p.a.buf, LEN, seed);
	memset(p.b.buf + PAGE, 0, LEN);
	post_recv(&p.b, seed, &room, 1);
	rc = ibv_post_send(p.a.qp, &w, &bad);
	if (rc) {
		/* The doorbell failed, but the request stands in the ring, and the next one that succeeds sends it. */
		CHECK(had_chance(), "post_send, of which nothing failed: %s", strerror(rc));
		post_recv(&p.b, seed, NULL, 0);
		post(&p.a, &again);
	}
	expect(&p.b, seed, IBV_WC_SUCCESS, "receive");
	expect(&p.a, seed, IBV_WC_SUCCESS, "SEND");
	if (rc) {
		expect(&p.b, seed, IBV_WC_SUCCESS, "second receive");
		expect(&p.a, seed, IBV_WC_SUCCESS, "second SEND");
	}
	compare(p.b.buf + PAGE, LEN, seed, "received data");
	return 0;
}

static int take(enum step step)
{
	struct ibv_ah_attr to = { .is_global = 1, .port_num = 1,
				  .grh = { .sgid_index = p.a.gid_index, .hop_limit = 64, .dgid = p.b.gid } };
	struct ibv_srq_init_attr shared = { .attr = { .max_wr = DEPTH, .max_sge = 2 } };
	struct ibv_srq_attr larger = { .max_wr = 2 * DEPTH };

	switch (step) {
	case OPEN: return result(p.a.ctx = ibv_open_device(device));
	case CLOSE: return ibv_close_device(p.a.ctx);
	case ALLOC_PD: return result(p.a.pd = ibv_alloc_pd(p.a.ctx));
	case DEALLOC_PD: return ibv_dealloc_pd(p.a.pd);
	case CREATE_CHANNEL: return result(p.a.channel = ibv_create_comp_channel(p.a.ctx));
	case DESTROY_CHANNEL: return ibv_destroy_comp_channel(p.a.channel);
	case CREATE_CQ: return result(p.a.cq = ibv_create_cq(p.a.ctx, 4 * DEPTH, NULL, p.a.channel, 0));
	/* For libibverbs counts a CQ whose destruction was not answered as a user of its channel. */
	case CREATE_CQ_ALONE: return result(p.a.cq = ibv_create_cq(p.a.ctx, 4 * DEPTH, NULL, NULL, 0));
	case DESTROY_CQ: return ibv_destroy_cq(p.a.cq);
	case RESIZE_CQ: return ibv_resize_cq(p.a.cq, 6 * DEPTH);
	case CREATE_SRQ: return result(srq = ibv_create_srq(p.a.pd, &shared));
	case RESIZE_SRQ: return ibv_modify_srq(srq, &larger, IBV_SRQ_MAX_WR);
	case DESTROY_SRQ: return ibv_destroy_srq(srq);
	case CREATE_QP: return create_qp(&spare, IBV_QPT_RC);
	case DESTROY_QP: return ibv_destroy_qp(spare);
	case REG_MR: return result(extra = ibv_reg_mr(p.a.pd, p.a.buf, p.a.len, IBV_ACCESS_LOCAL_WRITE));
	case DEREG_MR: return ibv_dereg_mr(extra);
	case ALLOC_MW: return result(mw = ibv_alloc_mw(p.a.pd, IBV_MW_TYPE_1));
	case DEALLOC_MW: return ibv_dealloc_mw(mw);
	case CREATE_AH: return result(ah = ibv_create_ah(p.a.pd, &to));
	case DESTROY_AH: return ibv_destroy_ah(ah);
	case CREATE_UD: return create_qp(&member, IBV_QPT_UD);
	case DESTROY_UD: return ibv_destroy_qp(member);
	case ATTACH: return ibv_attach_mcast(member, group, 0);
	case DETACH: return ibv_detach_mcast(member, group, 0);
	case QUERY: return query();
	case ARM: return ibv_req_notify_cq(p.a.cq, 0);
	case SEND: return send_one();
	case TO_RESET: return to_state(&p.a, IBV_QPS_RESET);
	case TO_INIT: return to_init(&p, &p.a);
	case TO_RTR: return to_rtr(&p, &p.a, &p.b, p.b.qp->qp_num);
	case TO_RTS: return to_rts(&p, &p.a);
	case BACK_TO_INIT: return take(TO_RESET) ?: take(TO_INIT);
	case BACK_TO_RTR: return take(BACK_TO_INIT) ?: take(TO_RTR);
	default: return 0;
	}
}

/* In this order: each finds what those before it have left. */
static const struct life {
	const char *name;
	enum step step, undo;	/* NOTHING if doing it again does no harm */
} first_life[] = {
	{ "open", OPEN, CLOSE },
	{ "alloc_pd", ALLOC_PD, DEALLOC_PD },
	{ "create_comp_channel", CREATE_CHANNEL, DESTROY_CHANNEL },
	{ "create_cq", CREATE_CQ, DESTROY_CQ },
	{ "resize_cq", RESIZE_CQ },
	{ "create_srq", CREATE_SRQ, DESTROY_SRQ },
	{ "modify_srq", RESIZE_SRQ },
	{ "destroy_srq", DESTROY_SRQ, CREATE_SRQ },
	{ "create_qp", CREATE_QP, DESTROY_QP },
	{ "destroy_qp", DESTROY_QP, CREATE_QP },
}, second_life[] = {
	{ "reg_mr", REG_MR, DEREG_MR },
	{ "dereg_mr", DEREG_MR, REG_MR },
	{ "alloc_mw", ALLOC_MW, DEALLOC_MW },
	{ "dealloc_mw", DEALLOC_MW, ALLOC_MW },
	{ "create_ah", CREATE_AH, DESTROY_AH },
	{ "destroy_ah", DESTROY_AH, CREATE_AH },
	{ "create_qp of UD", CREATE_UD, DESTROY_UD },
}, last_life[] = {
	{ "query", QUERY },
	{ "req_notify_cq", ARM },
	{ "post_send", SEND },
	{ "to RESET", TO_RESET },
	{ "to INIT", TO_INIT, TO_RESET },
	{ "to RTR", TO_RTR, BACK_TO_INIT },
	{ "to RTS", TO_RTS, BACK_TO_RTR },
};

static unsigned int all;

/*
 * Does a step with its first chance failing, then the second, and so on. `undo` takes back one that succeeded
 * nevertheless. It is left done.
 *
 * The kernel may destroy an object and fail to copy the answer (EFAULT): the program learns that from the next try,
 * which finds none (ENOENT).
 */
static void scarcely(const char *name, enum step step, enum step undo)
{
	unsigned int failed = 0, survived = 0;
	int rc = 0;

	for (unsigned int n = 1;; n++) {
		bool unanswered = rc == EFAULT;
		char text[16];

		CHECK(n < MOST, "%s: %u chances to fail, and no end", name, n);
		CHECK(pwrite(control, text, snprintf(text, sizeof(text), "%u", n), 0) > 0, "fail-nth: %s",
		      strerror(errno));
		errno = 0;
		rc = take(step);
		if (unanswered && rc == ENOENT) {
			had_chance();
			CHECK(undo && !take(undo), "%s: taking back what was done without an answer", name);
			n--;
		} else if (!had_chance()) {
			/* It has fewer chances. */
			CHECK(!rc, "%s, of which nothing failed: %s", name, strerror(rc));
			break;
		} else if (rc) {
			failed++;
		} else {
			survived++;
			CHECK(!take(undo), "%s: taking it back", name);
		}
	}
	all += failed + survived;
	printf("%s: %u failures, of which it survived %u\n", name, failed + survived, survived);
	fflush(stdout);
}

static void live(const struct life *steps, size_t n)
{
	for (size_t i = 0; i < n; i++)
		scarcely(steps[i].name, steps[i].step, steps[i].undo);
}

CASE("scarce.scarce", "each step of a program's life with each of its allocations refused: it fails cleanly or works",
     .paths = BY_HAND, .seconds = 170)
{
	struct ibv_device **list = ibv_get_device_list(NULL);

	control = open("/proc/thread-self/fail-nth", O_RDWR | O_CLOEXEC);
	if (control < 0)
		skip("this kernel refuses nothing: /proc/thread-self/fail-nth: %s", strerror(errno));
	for (int i = 0; list && list[i]; i++)
		if (!strcmp(ibv_get_device_name(list[i]), places[0].device))
			device = list[i];
	CHECK(device, "no device %s", places[0].device);
	live(first_life, COUNT(first_life));
	CHECK(!take(DESTROY_CQ) && !take(CREATE_CQ_ALONE), "a CQ without a channel");
	scarcely("destroy_cq", DESTROY_CQ, CREATE_CQ_ALONE);
	DESTROY(p.a.channel, p.a.pd, p.a.ctx);
	ibv_free_device_list(list);

	pair_open(&p, NULL, 2 * PAGE);
	live(second_life, COUNT(second_life));
	for (group = groups; group < groups + COUNT(groups); group++) {
		scarcely("attach_mcast", ATTACH, DETACH);
		CHECK(!take(DETACH), "leaving a group");
	}
	CHECK(!take(DESTROY_UD), "destroying a queue pair that was in groups");
	live(last_life, COUNT(last_life));
	pair_close(&p);
	CHECK(all > 100, "only %u failures", all);
	printf("%u failures\n", all);
}
