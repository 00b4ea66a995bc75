// SPDX-License-Identifier: GPL-2.0
/* Cases about states: transitions, and what outlives them. The errors of work requests are in causes.h. */
#include "pair.h"

CASE("verbs.wrong-transition", "transitions that a queue pair must refuse", .opt = { .no_connect = true }, .len = 4096)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTS };

	CHECK(to_rts(&p, &p.a) == EINVAL, "RESET to RTS was taken");
	CHECK(to_state(&p.a, IBV_QPS_INIT) == EINVAL, "INIT without a port was taken");
	CHECK(!to_init(&p, &p.a), "to INIT");
	CHECK(to_rts(&p, &p.a) == EINVAL, "INIT to RTS was taken");
	/* What the user claims the state to be does not count. */
	attr.cur_qp_state = IBV_QPS_RTR;
	CHECK(ibv_modify_qp(p.a.qp, &attr, IBV_QP_STATE | IBV_QP_CUR_STATE), "a false current state was believed");
	CHECK(to_state(&p.a, IBV_QPS_RTR) == EINVAL, "RTR without a path was taken");
	want_state(&p.a, IBV_QPS_INIT, "after refusals the queue pair");
	p.opt.mtu = 4096;
	CHECK(!to_rtr(&p, &p.a, &p.b, p.b.qp->qp_num), "to RTR");
	CHECK(!to_rts(&p, &p.a), "to RTS");
	CHECK(!to_state(&p.a, IBV_QPS_ERR), "to ERR");
	CHECK(to_rts(&p, &p.a) == EINVAL, "ERR to RTS was taken");
	CHECK(!to_state(&p.a, IBV_QPS_RESET), "to RESET");
}

/*
 * Of timers, retry counts and PSNs a device has some bits, and takes those of whatever it is given: programs rely on it.
 * What does not fit anywhere is still refused.
 */
CASE("verbs.few-bits", "timers, retry counts and PSNs of more bits than a device has",
     .rxe = "refuses a timeout of more than five bits", .opt = { .no_connect = true }, .len = 8192)
{
	const int asked = IBV_QP_TIMEOUT | IBV_QP_MIN_RNR_TIMER | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_RQ_PSN | IBV_QP_SQ_PSN;
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	for (int i = 0; i < 2; i++) {
		struct side *s = i ? &p.b : &p.a, *other = i ? &p.a : &p.b;
		struct connection c = {
			.gid_index = s->gid_index, .gid = other->gid, .qpn = other->qp->qp_num | 1 << 24, .hop_limit = 64,
			.mtu = 1024, .rq_psn = 0xcd000000 | 77, .sq_psn = 0xab000000 | 77, .timeout = 32 + 18,
			.retry_cnt = 8 + 5, .rnr_retry = 16 + 7, .rnr_timer = 32 + 1, .rd_atomic = 1, .dest_rd_atomic = 1,
		};

		MUST(qp_to_init(s->qp, &c));
		CHECK(qp_to_rtr(s->qp, &c) == EINVAL, "a queue pair number of 25 bits was taken");
		c.qpn = other->qp->qp_num;
		MUST(qp_to_rtr(s->qp, &c));
		MUST(qp_to_rts(s->qp, &c));
	}
	MUST(ibv_query_qp(p.a.qp, &attr, asked, &init));
	CHECK(attr.timeout == 18 && attr.min_rnr_timer == 1 && attr.retry_cnt == 5 && attr.rnr_retry == 7,
	      "timeout %u, min_rnr_timer %u, retry_cnt %u, rnr_retry %u", attr.timeout, attr.min_rnr_timer, attr.retry_cnt,
	      attr.rnr_retry);
	CHECK(attr.rq_psn == 77 && attr.sq_psn == 77, "PSNs %#x and %#x", attr.rq_psn, attr.sq_psn);
	send_checked(&p.a, &p.b, 1);
	/* And it may be changed so: 32 is the code 0. */
	attr.min_rnr_timer = 32;
	MUST(ibv_modify_qp(p.a.qp, &attr, IBV_QP_MIN_RNR_TIMER));
	MUST(ibv_query_qp(p.a.qp, &attr, asked, &init));
	CHECK(!attr.min_rnr_timer, "min_rnr_timer 32 is %u", attr.min_rnr_timer);
}

CASE("verbs.refused-attributes", "an alternate path, its migration and another capacity are refused",
     .rxe = "takes any state of path migration", .len = 8192)
{
	struct ibv_ah_attr path = { .is_global = 1, .port_num = 1,
				    .grh = { .dgid = p.b.gid, .sgid_index = p.a.gid_index, .hop_limit = 64 } };
	struct ibv_qp_attr attr = { .alt_ah_attr = path, .alt_port_num = 1, .alt_timeout = 14,
				    .path_mig_state = IBV_MIG_REARM, .cap = { .max_send_wr = 1 } };
	static const struct { int mask, error; const char *what; } refused[] = {
		{ IBV_QP_ALT_PATH, EINVAL, "an alternate path" },
		{ IBV_QP_PATH_MIG_STATE, EOPNOTSUPP, "path migration" },
		{ IBV_QP_CAP, EOPNOTSUPP, "another capacity" },
	};

	for (size_t i = 0; i < sizeof(refused) / sizeof(*refused); i++) {
		int error = ibv_modify_qp(p.a.qp, &attr, refused[i].mask);

		CHECK(error == refused[i].error, "%s: %s", refused[i].what, strerror(error));
	}
	attr.path_mig_state = IBV_MIG_MIGRATED;
	CHECK(!ibv_modify_qp(p.a.qp, &attr, IBV_QP_PATH_MIG_STATE), "the state that every path has was refused");
	want_state(&p.a, IBV_QPS_RTS, "after refusals the queue pair");
	send_checked(&p.a, &p.b, 1);
}

CASE("verbs.numbers-not-reused", "keys and numbers are not given out again at once",
     .rxe = "gives the lowest free number", .len = 4096)
{
	enum { ROUNDS = 64 };
	uint32_t keys[ROUNDS], numbers[ROUNDS];

	for (int i = 0; i < ROUNDS; i++) {
		struct ibv_mr *mr = new_mr(p.a.pd, p.a.buf, 4096, IBV_ACCESS_LOCAL_WRITE);
		keys[i] = mr->rkey >> 8;
		struct ibv_qp *qp = make_qp(&p.a);
		numbers[i] = qp->qp_num;
		DESTROY(mr, qp);
		for (int j = 0; j < i; j++) {
			CHECK(keys[j] != keys[i], "region %d has the key of region %d", i, j);
			CHECK(numbers[j] != numbers[i], "queue pair %d has the number of queue pair %d", i, j);
		}
	}
}

CASE("verbs.one-slot", "a queue of one request has room again once the completion is seen",
     .opt = { .no_connect = true }, .len = 4096)
{
	DESTROY(p.a.qp);
	p.a.qp = new_qp(p.a.pd, p.a.cq, (struct ibv_qp_cap){ 1, 1, 1, 1, 0 });
	pair_connect(&p);
	for (int i = 0; i < 2000; i++) {
		post_at(&p.a, IBV_WR_RDMA_WRITE, 1, 0, 64, &p.b, 0);
		expect(&p.a, 1, IBV_WC_SUCCESS, "a WRITE through the one slot");
	}
}
