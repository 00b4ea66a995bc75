// SPDX-License-Identifier: GPL-2.0
/*
 * Every step of a program's life with memory refused to the kernel: the n-th chance to fail in a system call fails
 * (/proc/thread-self/fail-nth: slab, pages, and copies from and to the program), for each n until the step has fewer.
 * A step either fails and leaves nothing, so that it can be tried again, or succeeds and works.
 */
#include "pair.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PAGE = 4096, LEN = 3000, MOST = 3000 };

static struct pair p;
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

static int open_context(void)
{
	return result(p.a.ctx = ibv_open_device(device));
}

static int alloc_pd(void)
{
	return result(p.a.pd = ibv_alloc_pd(p.a.ctx));
}

static int create_channel(void)
{
	return result(p.a.channel = ibv_create_comp_channel(p.a.ctx));
}

static int create_cq(void)
{
	return result(p.a.cq = ibv_create_cq(p.a.ctx, 4 * DEPTH, NULL, p.a.channel, 0));
}

/* Without a channel, for libibverbs counts a CQ whose destruction was not answered as a user of its channel. */
static int create_cq_alone(void)
{
	return result(p.a.cq = ibv_create_cq(p.a.ctx, 4 * DEPTH, NULL, NULL, 0));
}

static int create_spare(void)
{
	struct ibv_qp_init_attr attr = {
		.send_cq = p.a.cq, .recv_cq = p.a.cq, .qp_type = IBV_QPT_RC, .cap = { DEPTH, DEPTH, 2, 2, 64 },
	};

	return result(spare = ibv_create_qp(p.a.pd, &attr));
}

static int destroy_spare(void)
{
	return ibv_destroy_qp(spare);
}

static int resize_cq(void)
{
	return ibv_resize_cq(p.a.cq, 6 * DEPTH);
}

static int create_srq(void)
{
	struct ibv_srq_init_attr attr = { .attr = { .max_wr = DEPTH, .max_sge = 2 } };

	return result(srq = ibv_create_srq(p.a.pd, &attr));
}

static int resize_srq(void)
{
	struct ibv_srq_attr attr = { .max_wr = 2 * DEPTH };

	return ibv_modify_srq(srq, &attr, IBV_SRQ_MAX_WR);
}

static int destroy_srq(void)
{
	return ibv_destroy_srq(srq);
}

static int reg_mr(void)
{
	return result(extra = ibv_reg_mr(p.a.pd, p.a.buf, p.a.len, IBV_ACCESS_LOCAL_WRITE));
}

static int dereg_mr(void)
{
	return ibv_dereg_mr(extra);
}

static int alloc_mw(void)
{
	return result(mw = ibv_alloc_mw(p.a.pd, IBV_MW_TYPE_1));
}

static int dealloc_mw(void)
{
	return ibv_dealloc_mw(mw);
}

static int create_ah(void)
{
	struct ibv_ah_attr attr = { .is_global = 1, .port_num = 1,
				    .grh = { .sgid_index = p.a.gid_index, .hop_limit = 64, .dgid = p.b.gid } };

	return result(ah = ibv_create_ah(p.a.pd, &attr));
}

static int destroy_ah(void)
{
	return ibv_destroy_ah(ah);
}

static int create_member(void)
{
	struct ibv_qp_init_attr attr = {
		.send_cq = p.a.cq, .recv_cq = p.a.cq, .qp_type = IBV_QPT_UD, .cap = { DEPTH, DEPTH, 2, 2, 64 },
	};

	return result(member = ibv_create_qp(p.a.pd, &attr));
}

static int destroy_member(void)
{
	return ibv_destroy_qp(member);
}

static int attach(void)
{
	return ibv_attach_mcast(member, group, 0);
}

static int detach(void)
{
	return ibv_detach_mcast(member, group, 0);
}

static int to_reset_of_a(void)
{
	return to_state(&p.a, IBV_QPS_RESET);
}

static int to_init_of_a(void)
{
	return to_init(&p, &p.a);
}

static int to_rtr_of_a(void)
{
	return to_rtr(&p, &p.a, &p.b, p.b.qp->qp_num);
}

static int to_rts_of_a(void)
{
	return to_rts(&p, &p.a);
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

static int arm(void)
{
	return ibv_req_notify_cq(p.a.cq, 0);
}

static int back_to_init(void)
{
	return to_reset_of_a() ?: to_init_of_a();
}

static int back_to_rtr(void)
{
	return back_to_init() ?: to_rtr_of_a();
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

static unsigned int all;

/*
 * Does a step with its first chance failing, then the second, and so on. `undo` takes back one that succeeded
 * nevertheless; NULL if doing it again does no harm. It is left done.
 *
 * The kernel may destroy an object and fail to copy the answer (EFAULT): the program learns that from the next try,
 * which finds none (ENOENT).
 */
static void scarcely(const char *name, int (*step)(void), int (*undo)(void))
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
		rc = step();
		if (unanswered && rc == ENOENT) {
			had_chance();
			CHECK(undo && !undo(), "%s: taking back what was done without an answer", name);
			n--;
		} else if (!had_chance()) {
			/* It has fewer chances. */
			CHECK(!rc, "%s, of which nothing failed: %s", name, strerror(rc));
			break;
		} else if (rc) {
			failed++;
		} else {
			survived++;
			CHECK(!undo || !undo(), "%s: taking it back", name);
		}
	}
	all += failed + survived;
	printf("%s: %u failures, of which it survived %u\n", name, failed + survived, survived);
	fflush(stdout);
}

static int close_context(void)
{
	return ibv_close_device(p.a.ctx);
}

static int dealloc_pd(void)
{
	return ibv_dealloc_pd(p.a.pd);
}

static int destroy_channel(void)
{
	return ibv_destroy_comp_channel(p.a.channel);
}

static int destroy_cq(void)
{
	return ibv_destroy_cq(p.a.cq);
}

static void scarce(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);

	control = open("/proc/thread-self/fail-nth", O_RDWR | O_CLOEXEC);
	if (control < 0)
		skip("this kernel refuses nothing: /proc/thread-self/fail-nth: %s", strerror(errno));
	for (int i = 0; list && list[i]; i++)
		if (!strcmp(ibv_get_device_name(list[i]), places[0].device))
			device = list[i];
	CHECK(device, "no device %s", places[0].device);
	scarcely("open", open_context, close_context);
	scarcely("alloc_pd", alloc_pd, dealloc_pd);
	scarcely("create_comp_channel", create_channel, destroy_channel);
	scarcely("create_cq", create_cq, destroy_cq);
	scarcely("resize_cq", resize_cq, NULL);
	scarcely("create_srq", create_srq, destroy_srq);
	scarcely("modify_srq", resize_srq, NULL);
	scarcely("destroy_srq", destroy_srq, create_srq);
	scarcely("create_qp", create_spare, destroy_spare);
	scarcely("destroy_qp", destroy_spare, create_spare);
	CHECK(!destroy_cq() && !create_cq_alone(), "a CQ without a channel");
	scarcely("destroy_cq", destroy_cq, create_cq_alone);
	CHECK(!destroy_channel() && !dealloc_pd() && !close_context(), "closing");
	ibv_free_device_list(list);

	pair_open(&p, NULL, 2 * PAGE);
	scarcely("reg_mr", reg_mr, dereg_mr);
	scarcely("dereg_mr", dereg_mr, reg_mr);
	scarcely("alloc_mw", alloc_mw, dealloc_mw);
	scarcely("dealloc_mw", dealloc_mw, alloc_mw);
	scarcely("create_ah", create_ah, destroy_ah);
	scarcely("destroy_ah", destroy_ah, create_ah);
	scarcely("create_qp of UD", create_member, destroy_member);
	for (group = groups; group < groups + COUNT(groups); group++) {
		scarcely("attach_mcast", attach, detach);
		CHECK(!detach(), "leaving a group");
	}
	CHECK(!destroy_member(), "destroying a queue pair that was in groups");
	scarcely("query", query, NULL);
	scarcely("req_notify_cq", arm, NULL);
	scarcely("post_send", send_one, NULL);
	scarcely("to RESET", to_reset_of_a, NULL);
	scarcely("to INIT", to_init_of_a, to_reset_of_a);
	scarcely("to RTR", to_rtr_of_a, back_to_init);
	scarcely("to RTS", to_rts_of_a, back_to_rtr);
	pair_close(&p);
	CHECK(all > 100, "only %u failures", all);
	printf("%u failures\n", all);
}

const struct test_case scarce_cases[] = {
	{ "scarce", scarce, "each step of a program's life with each of its allocations refused: it fails cleanly or works",
	  BY_HAND, .seconds = 170 },
	{ NULL },
};
