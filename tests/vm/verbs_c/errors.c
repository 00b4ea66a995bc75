// SPDX-License-Identifier: GPL-2.0
/* Cases in which a user does something wrong: the right status, the right state, a flush behind it, and nothing else. */
#include "pair.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void want_state(struct side *s, enum ibv_qp_state want, const char *who)
{
	enum ibv_qp_state have;

	/* The other side of an error learns of it a little later. */
	for (int i = 0; i < 2000 && (have = state_of(s)) != want; i++)
		usleep(1000);
	CHECK(have == want, "%s is in state %d, not %d", who, have, want);
}

/* After an error: what was posted behind it and what is posted now comes back flushed. */
static void want_flush(struct pair *p, uint64_t behind)
{
	struct ibv_send_wr w = wr(IBV_WR_SEND, behind + 1, NULL, 0);

	want_state(&p->a, IBV_QPS_ERR, "the requester");
	expect(&p->a, behind, IBV_WC_WR_FLUSH_ERR, "the request behind the error");
	post(&p->a, &w);
	expect(&p->a, behind + 1, IBV_WC_WR_FLUSH_ERR, "a request after the error");
	/* rdma_rxe, on which the cases themselves are judged, keeps late receives for ever. */
	if (getenv("RXE"))
		return;
	post_recv(&p->a, behind + 2, NULL, 0);
	expect(&p->a, behind + 2, IBV_WC_WR_FLUSH_ERR, "a receive after the error");
	expect_none(&p->a, 20, "after the flush");
}

/* Posts a bad request with a good one behind it, and checks what becomes of both. */
static void bad_request(struct pair *p, struct ibv_send_wr *w, enum ibv_wc_status status, const char *what)
{
	struct ibv_send_wr behind = wr(IBV_WR_SEND, 2, NULL, 0);

	w->wr_id = 1;
	w->next = &behind;
	post(&p->a, w);
	expect(&p->a, 1, status, what);
	want_flush(p, 2);
}

static void wrong_state(void)
{
	struct options opt = { .no_connect = true };
	struct ibv_send_wr w = wr(IBV_WR_SEND, 1, NULL, 0), *bad = NULL;
	struct ibv_recv_wr r = { .wr_id = 1 }, *bad_r = NULL;
	struct pair p;

	pair_open(&p, &opt, 4096);
	CHECK(ibv_post_recv(p.a.qp, &r, &bad_r) == EINVAL && bad_r == &r, "a receive was taken in RESET");
	CHECK(ibv_post_send(p.a.qp, &w, &bad) == EINVAL && bad == &w, "a send was taken in RESET");
	CHECK(!to_init(&p, &p.a), "to INIT");
	CHECK(!ibv_post_recv(p.a.qp, &r, &bad_r), "no receive was taken in INIT");
	CHECK(ibv_post_send(p.a.qp, &w, &bad) == EINVAL, "a send was taken in INIT");
	CHECK(!to_rtr(&p, &p.a, p.b.qp->qp_num), "to RTR");
	CHECK(ibv_post_send(p.a.qp, &w, &bad) == EINVAL, "a send was taken in RTR");
	expect_none(&p.a, 20, "of refused requests");
	pair_close(&p);
}

static void wrong_request(void)
{
	struct ibv_sge list[MAX_SGE + 1] = { 0 };
	struct ibv_send_wr w, *bad;
	struct ibv_recv_wr r = { .sg_list = list, .num_sge = MAX_SGE + 1 }, *bad_r;
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;
	struct pair p;

	pair_open(&p, NULL, 4096);
	CHECK(!ibv_query_qp(p.a.qp, &attr, IBV_QP_CAP, &init), "ibv_query_qp");
	if (init.cap.max_send_sge <= MAX_SGE) {
		w = wr(IBV_WR_SEND, 1, list, MAX_SGE + 1);
		CHECK(ibv_post_send(p.a.qp, &w, &bad), "a send of too many pieces was taken");
	}
	if (init.cap.max_recv_sge <= MAX_SGE)
		CHECK(ibv_post_recv(p.a.qp, &r, &bad_r), "a receive of too many pieces was taken");
	list[0] = sge(&p.a, 0, init.cap.max_inline_data + 1);
	w = wr(IBV_WR_SEND, 1, list, 1);
	w.send_flags |= IBV_SEND_INLINE;
	CHECK(ibv_post_send(p.a.qp, &w, &bad), "too much inline data was taken");
	/* The queue is full when as much is in it as was granted; the refusal names the request. */
	r.num_sge = 0;
	unsigned int taken = 0;
	int rc;
	while (!(rc = ibv_post_recv(p.a.qp, &r, &bad_r)) && taken < 100000)
		taken++;
	CHECK(rc == ENOMEM && taken >= DEPTH && bad_r == &r, "full after %u receives with %s", taken, strerror(rc));
	pair_close(&p);
}

static void wrong_transition(void)
{
	struct options opt = { .no_connect = true };
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTS };
	struct pair p;

	pair_open(&p, &opt, 4096);
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
	CHECK(!to_rtr(&p, &p.a, p.b.qp->qp_num), "to RTR");
	CHECK(!to_rts(&p, &p.a), "to RTS");
	CHECK(!to_state(&p.a, IBV_QPS_ERR), "to ERR");
	CHECK(to_rts(&p, &p.a) == EINVAL, "ERR to RTS was taken");
	CHECK(!to_state(&p.a, IBV_QPS_RESET), "to RESET");
	pair_close(&p);
}

static void bad_lkey(void)
{
	struct pair p;

	pair_open(&p, NULL, 4096);
	post_recv(&p.b, 1, NULL, 0);
	struct ibv_sge list = sge(&p.a, 0, 100);
	list.lkey ^= 0x55;
	struct ibv_send_wr w = wr(IBV_WR_SEND, 1, &list, 1);
	bad_request(&p, &w, IBV_WC_LOC_PROT_ERR, "SEND with a wrong key");
	pair_close(&p);
}

static void beyond_mr(void)
{
	struct pair p;

	pair_open(&p, NULL, 4096);
	struct ibv_sge list = sge(&p.a, 4000, 97);
	struct ibv_send_wr w = wr(IBV_WR_RDMA_WRITE, 1, &list, 1);
	aim(&w, &p.b, 0);
	bad_request(&p, &w, IBV_WC_LOC_PROT_ERR, "WRITE from beyond the region");
	CHECK(p.b.buf[0] == 0, "something was written");
	pair_close(&p);
}

static void recv_bad_lkey(void)
{
	struct pair p;

	pair_open(&p, NULL, 4096);
	struct ibv_sge from = sge(&p.a, 0, 100), to = sge(&p.b, 0, 100);
	to.lkey ^= 0x55;
	post_recv(&p.b, 1, &to, 1);
	post_recv(&p.b, 2, NULL, 0);
	struct ibv_send_wr w = wr(IBV_WR_SEND, 1, &from, 1);
	bad_request(&p, &w, IBV_WC_REM_OP_ERR, "SEND into a receive with a wrong key");
	expect(&p.b, 1, IBV_WC_LOC_PROT_ERR, "a receive with a wrong key");
	want_state(&p.b, IBV_QPS_ERR, "the responder");
	expect(&p.b, 2, IBV_WC_WR_FLUSH_ERR, "the receive behind it");
	pair_close(&p);
}

static void recv_too_short(void)
{
	for (uint32_t len = 101; len <= 3000; len += 2899) {
		struct pair p;

		pair_open(&p, NULL, 4096);
		struct ibv_sge from = sge(&p.a, 0, len), to = sge(&p.b, 0, 100);
		post_recv(&p.b, 1, &to, 1);
		post_recv(&p.b, 2, NULL, 0);
		struct ibv_send_wr w = wr(IBV_WR_SEND, 1, &from, 1);
		bad_request(&p, &w, IBV_WC_REM_INV_REQ_ERR, "SEND longer than the receive");
		expect(&p.b, 1, IBV_WC_LOC_LEN_ERR, "a receive shorter than the message");
		want_state(&p.b, IBV_QPS_ERR, "the responder");
		expect(&p.b, 2, IBV_WC_WR_FLUSH_ERR, "the receive behind it");
		pair_close(&p);
	}
}

static void bad_rkey(void)
{
	static const enum ibv_wr_opcode ops[] = { IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ, IBV_WR_RDMA_WRITE_WITH_IMM };

	for (int i = 0; i < 3; i++) {
		struct pair p;

		pair_open(&p, NULL, 4096);
		post_recv(&p.b, 9, NULL, 0);
		struct ibv_sge list = sge(&p.a, 0, 100);
		memset(p.a.buf, 0x77, 100);
		struct ibv_send_wr w = wr(ops[i], 1, &list, 1);
		aim(&w, &p.b, 0);
		w.wr.rdma.rkey ^= 0x55;
		bad_request(&p, &w, IBV_WC_REM_ACCESS_ERR, "a wrong remote key");
		CHECK(p.b.buf[0] == 0, "something was written");
		want_state(&p.b, IBV_QPS_ERR, "the responder");
		expect(&p.b, 9, IBV_WC_WR_FLUSH_ERR, "the responder's receive");
		pair_close(&p);
	}
}

static void remote_bounds(void)
{
	static const size_t at[] = { 4000, (size_t)-50, 1 << 20 };

	for (int i = 0; i < 3; i++) {
		struct pair p;

		pair_open(&p, NULL, 4096);
		struct ibv_sge list = sge(&p.a, 0, 97);
		struct ibv_send_wr w = wr(IBV_WR_RDMA_WRITE, 1, &list, 1);
		aim(&w, &p.b, at[i]);
		bad_request(&p, &w, IBV_WC_REM_ACCESS_ERR, "WRITE beyond the region");
		pair_close(&p);
	}
}

static void remote_rights(void)
{
	static const enum ibv_wr_opcode ops[] = { IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ };

	for (int i = 0; i < 2; i++) {
		struct pair p;

		pair_open(&p, NULL, 4096);
		struct ibv_mr *closed = ibv_reg_mr(p.pd, p.b.buf, 4096, IBV_ACCESS_LOCAL_WRITE |
						   (i ? IBV_ACCESS_REMOTE_WRITE : IBV_ACCESS_REMOTE_READ));
		CHECK(closed, "ibv_reg_mr: %s", strerror(errno));
		struct ibv_sge list = sge(&p.a, 0, 100);
		struct ibv_send_wr w = wr(ops[i], 1, &list, 1);
		aim(&w, &p.b, 0);
		w.wr.rdma.rkey = closed->rkey;
		bad_request(&p, &w, IBV_WC_REM_ACCESS_ERR, "an operation the region does not allow");
		CHECK(!ibv_dereg_mr(closed), "ibv_dereg_mr");
		pair_close(&p);
	}
}

static void other_pd(void)
{
	struct pair p;

	pair_open(&p, NULL, 4096);
	struct ibv_pd *pd = ibv_alloc_pd(p.ctx);
	CHECK(pd, "ibv_alloc_pd");
	struct ibv_mr *mr = ibv_reg_mr(pd, p.b.buf, 4096, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	CHECK(mr, "ibv_reg_mr: %s", strerror(errno));
	struct ibv_sge list = sge(&p.a, 0, 100);
	struct ibv_send_wr w = wr(IBV_WR_RDMA_WRITE, 1, &list, 1);
	aim(&w, &p.b, 0);
	w.wr.rdma.rkey = mr->rkey;
	bad_request(&p, &w, IBV_WC_REM_ACCESS_ERR, "a key of another protection domain");
	CHECK(!ibv_dereg_mr(mr) && !ibv_dealloc_pd(pd), "tearing down");
	pair_close(&p);
}

static void dereg_then_use(void)
{
	struct pair p;

	pair_open(&p, NULL, 4096);
	struct ibv_mr *mr = ibv_reg_mr(p.pd, p.b.buf, 4096, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	CHECK(mr, "ibv_reg_mr: %s", strerror(errno));
	struct ibv_sge list = sge(&p.a, 0, 100);
	struct ibv_send_wr w = wr(IBV_WR_RDMA_WRITE, 1, &list, 1);
	aim(&w, &p.b, 0);
	w.wr.rdma.rkey = mr->rkey;
	CHECK(!ibv_dereg_mr(mr), "ibv_dereg_mr");
	bad_request(&p, &w, IBV_WC_REM_ACCESS_ERR, "a key that is gone");
	pair_close(&p);
}

/* A third queue pair that names b as its peer, with the PSNs of a, is not who b is connected to. */
static void stranger(void)
{
	struct options opt = { .zero_retries = true, .rnr_retry = 7, .retry_cnt = 1, .timeout = 10 };
	struct pair p;

	pair_open(&p, &opt, 4096);
	struct side c = { .cq = ibv_create_cq(p.ctx, DEPTH, NULL, NULL, 0) };
	CHECK(c.cq, "ibv_create_cq: %s", strerror(errno));
	c.qp = make_qp(&p, &c);
	CHECK(!to_init(&p, &c) && !to_rtr(&p, &c, p.b.qp->qp_num) && !to_rts(&p, &c), "the stranger's transitions");

	struct ibv_sge room = sge(&p.b, 0, 100);
	post_recv(&p.b, 5, &room, 1);
	struct ibv_sge list = sge(&p.a, 0, 100);
	struct ibv_send_wr w = wr(IBV_WR_SEND, 1, &list, 1);
	post(&c, &w);
	expect(&c, 1, IBV_WC_RETRY_EXC_ERR, "SEND of a stranger");
	expect_none(&p.b, 50, "the stranger's message");

	w.wr_id = 2;
	post(&p.a, &w);
	expect(&p.a, 2, IBV_WC_SUCCESS, "SEND of the peer");
	expect(&p.b, 5, IBV_WC_SUCCESS, "the peer's message");
	CHECK(!ibv_destroy_qp(c.qp) && !ibv_destroy_cq(c.cq), "destroying the stranger");
	pair_close(&p);
}

/* A key or a number that was given back is not given out again at once: what still names it finds nothing. */
static void numbers_not_reused(void)
{
	enum { ROUNDS = 64 };
	uint32_t keys[ROUNDS], numbers[ROUNDS];
	struct pair p;

	pair_open(&p, NULL, 4096);
	for (int i = 0; i < ROUNDS; i++) {
		struct ibv_mr *mr = ibv_reg_mr(p.pd, p.a.buf, 4096, IBV_ACCESS_LOCAL_WRITE);
		CHECK(mr, "ibv_reg_mr: %s", strerror(errno));
		keys[i] = mr->rkey >> 8;
		CHECK(!ibv_dereg_mr(mr), "ibv_dereg_mr");
		struct ibv_qp *qp = make_qp(&p, &p.a);
		numbers[i] = qp->qp_num;
		CHECK(!ibv_destroy_qp(qp), "ibv_destroy_qp");
		for (int j = 0; j < i; j++) {
			CHECK(keys[j] != keys[i], "region %d has the key of region %d", i, j);
			CHECK(numbers[j] != numbers[i], "queue pair %d has the number of queue pair %d", i, j);
		}
	}
	pair_close(&p);
}

/* Room for one request: it is there again as soon as the completion is seen. */
static void one_slot(void)
{
	struct pair p;

	pair_open(&p, &(struct options){ .no_connect = true }, 4096);
	struct ibv_qp_init_attr attr = {
		.send_cq = p.a.cq, .recv_cq = p.a.cq, .qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 },
	};
	CHECK(!ibv_destroy_qp(p.a.qp), "ibv_destroy_qp");
	p.a.qp = ibv_create_qp(p.pd, &attr);
	CHECK(p.a.qp, "ibv_create_qp: %s", strerror(errno));
	pair_connect(&p);
	struct ibv_sge list = sge(&p.a, 0, 64);
	struct ibv_send_wr w = wr(IBV_WR_RDMA_WRITE, 1, &list, 1);
	aim(&w, &p.b, 0);
	for (int i = 0; i < 2000; i++) {
		post(&p.a, &w);
		expect(&p.a, 1, IBV_WC_SUCCESS, "a WRITE through the one slot");
	}
	pair_close(&p);
}

static void qp_rights(void)
{
	static const enum ibv_wr_opcode ops[] = { IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ };

	for (int i = 0; i < 2; i++) {
		struct options opt = { .qp_access = -1 };
		struct ibv_send_wr behind = wr(IBV_WR_SEND, 2, NULL, 0);
		struct pair p;

		pair_open(&p, &opt, 4096);
		struct ibv_sge list = sge(&p.a, 0, 100);
		struct ibv_send_wr w = wr(ops[i], 1, &list, 1);
		aim(&w, &p.b, 0);
		w.next = &behind;
		post(&p.a, &w);
		struct ibv_wc wc = next(&p.a, "an operation the queue pair does not allow");
		/* Both answers are found in real devices; the specification has the first. */
		CHECK(wc.wr_id == 1 && (wc.status == IBV_WC_REM_INV_REQ_ERR || wc.status == IBV_WC_REM_ACCESS_ERR),
		      "an operation the queue pair does not allow: \"%s\"", ibv_wc_status_str(wc.status));
		want_flush(&p, 2);
		pair_close(&p);
	}
}

static void rnr_exhausted(void)
{
	struct options opt = { .zero_retries = true, .rnr_retry = 2, .retry_cnt = 7 };
	struct pair p;

	pair_open(&p, &opt, 4096);
	struct ibv_sge list = sge(&p.a, 0, 100);
	struct ibv_send_wr w = wr(IBV_WR_SEND, 1, &list, 1);
	bad_request(&p, &w, IBV_WC_RNR_RETRY_EXC_ERR, "SEND to nobody ready");
	CHECK(state_of(&p.b) == IBV_QPS_RTS, "the responder left RTS");
	pair_close(&p);
}

static void rnr_none(void)
{
	struct options opt = { .zero_retries = true, .rnr_retry = 0, .retry_cnt = 7 };
	struct pair p;

	pair_open(&p, &opt, 4096);
	struct ibv_send_wr w = wr(IBV_WR_SEND, 1, NULL, 0);
	bad_request(&p, &w, IBV_WC_RNR_RETRY_EXC_ERR, "SEND to nobody ready, no retries");
	pair_close(&p);
}

static void rnr_recovers(void)
{
	struct pair p;

	pair_open(&p, NULL, 65536);
	for (int i = 0; i < 5; i++) {
		struct ibv_sge from = sge(&p.a, 0, 5000), to = sge(&p.b, 0, 8192);
		struct ibv_send_wr w = wr(IBV_WR_SEND, i, &from, 1);

		fill(p.a.buf, 5000, i);
		post(&p.a, &w);
		expect_none(&p.a, 30, "of a SEND nobody is ready for");
		post_recv(&p.b, i, &to, 1);
		expect(&p.b, i, IBV_WC_SUCCESS, "the late receive");
		expect(&p.a, i, IBV_WC_SUCCESS, "the patient SEND");
		compare(p.b.buf, 5000, i, "data after receiver-not-ready");
	}
	pair_close(&p);
}

static void peer_gone(void)
{
	struct options opt = { .zero_retries = true, .rnr_retry = 7, .retry_cnt = 2, .timeout = 10 };
	struct pair p;

	pair_open(&p, &opt, 4096);
	CHECK(!ibv_destroy_qp(p.b.qp), "ibv_destroy_qp");
	p.b.qp = NULL;
	struct ibv_sge list = sge(&p.a, 0, 100);
	struct ibv_send_wr w = wr(IBV_WR_RDMA_WRITE, 1, &list, 1);
	aim(&w, &p.b, 0);
	bad_request(&p, &w, IBV_WC_RETRY_EXC_ERR, "WRITE to a queue pair that is gone");
	CHECK(p.b.buf[0] == 0, "something was written");
	pair_close(&p);
}

static void peer_in_error(void)
{
	struct options opt = { .zero_retries = true, .rnr_retry = 7, .retry_cnt = 2, .timeout = 10 };
	struct pair p;

	pair_open(&p, &opt, 4096);
	post_recv(&p.b, 5, NULL, 0);
	CHECK(!to_state(&p.b, IBV_QPS_ERR), "to ERR");
	expect(&p.b, 5, IBV_WC_WR_FLUSH_ERR, "the receive of a queue pair in ERR");
	struct ibv_send_wr w = wr(IBV_WR_SEND, 1, NULL, 0);
	bad_request(&p, &w, IBV_WC_RETRY_EXC_ERR, "SEND to a queue pair in ERR");
	pair_close(&p);
}

static void flush(void)
{
	struct options opt = { .zero_retries = true, .rnr_retry = 7, .retry_cnt = 7 };
	struct pair p;

	pair_open(&p, &opt, 4096);
	for (int i = 0; i < 10; i++)
		post_recv(&p.a, 100 + i, NULL, 0);
	/* They wait for a receive that never comes. */
	for (int i = 0; i < 10; i++) {
		struct ibv_send_wr w = wr(IBV_WR_SEND, i, NULL, 0);

		/* A flush completes the unsignalled ones too. */
		w.send_flags = i % 2 ? IBV_SEND_SIGNALED : 0;
		post(&p.a, &w);
	}
	CHECK(!to_state(&p.a, IBV_QPS_ERR), "to ERR");
	int sends = 0, recvs = 0;
	for (int i = 0; i < 20; i++) {
		struct ibv_wc wc = next(&p.a, "flush");

		CHECK(wc.status == IBV_WC_WR_FLUSH_ERR, "\"%s\" in a flush", ibv_wc_status_str(wc.status));
		if (wc.wr_id < 100)
			CHECK(wc.wr_id == (uint64_t)sends++, "sends are flushed out of order");
		else
			CHECK(wc.wr_id == 100 + (uint64_t)recvs++, "receives are flushed out of order");
	}
	CHECK(sends == 10 && recvs == 10, "%d sends and %d receives flushed", sends, recvs);
	expect_none(&p.a, 20, "after the flush");
	pair_close(&p);
}

static void reuse(void)
{
	struct pair p;

	pair_open(&p, NULL, 65536);
	for (int i = 0; i < 4; i++) {
		struct ibv_sge from = sge(&p.a, 0, 5000), to = sge(&p.b, 0, 8192);
		struct ibv_send_wr w = wr(IBV_WR_SEND, i, &from, 1);

		fill(p.a.buf, 5000, i);
		post_recv(&p.b, i, &to, 1);
		post(&p.a, &w);
		expect(&p.b, i, IBV_WC_SUCCESS, "receive");
		expect(&p.a, i, IBV_WC_SUCCESS, "send");
		compare(p.b.buf, 5000, i, "data of a reused queue pair");
		/* Receives left in the queue vanish with the reset, by way of ERR or straight. */
		post_recv(&p.b, 50, &to, 1);
		if (i % 2) {
			CHECK(!to_state(&p.b, IBV_QPS_ERR), "to ERR");
			expect(&p.b, 50, IBV_WC_WR_FLUSH_ERR, "flushed receive");
		}
		CHECK(!to_state(&p.a, IBV_QPS_RESET) && !to_state(&p.b, IBV_QPS_RESET), "to RESET");
		pair_connect(&p);
		expect_none(&p.b, 10, "of a reset queue pair");
	}
	pair_close(&p);
}

static void sqd(void)
{
	struct pair p;

	pair_open(&p, NULL, 4096);
	for (int i = 0; i < 3; i++)
		post_recv(&p.b, i, NULL, 0);
	struct ibv_send_wr w = wr(IBV_WR_SEND, 0, NULL, 0);
	post(&p.a, &w);
	expect(&p.a, 0, IBV_WC_SUCCESS, "before the drain");
	CHECK(!to_state(&p.a, IBV_QPS_SQD), "to SQD");
	w = wr(IBV_WR_SEND, 1, NULL, 0);
	post(&p.a, &w);
	expect_none(&p.a, 100, "of a send posted in SQD");
	CHECK(!to_state(&p.a, IBV_QPS_RTS), "back to RTS");
	expect(&p.a, 1, IBV_WC_SUCCESS, "the send that waited");
	expect(&p.b, 0, IBV_WC_SUCCESS, "receive");
	expect(&p.b, 1, IBV_WC_SUCCESS, "receive");
	pair_close(&p);
}

static void busy(void)
{
	struct options opt = { .no_connect = true };
	struct pair p;

	pair_open(&p, &opt, 4096);
	CHECK(ibv_destroy_cq(p.a.cq) == EBUSY, "a completion queue in use was destroyed");
	CHECK(ibv_dealloc_pd(p.pd) == EBUSY, "a protection domain in use was freed");
	pair_close(&p);
}

static void outstanding(void)
{
	struct pair p;

	/* Everything is taken down with requests on their way; the next pair knows nothing of it. */
	for (int i = 0; i < 6; i++) {
		struct options opt = { .mtu = 256 };

		pair_open(&p, &opt, 1 << 20);
		struct ibv_sge list = sge(&p.a, 0, 1 << 19);
		for (int k = 0; k < 16; k++) {
			struct ibv_send_wr w = wr(k % 2 ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE, k, &list, 1);

			aim(&w, &p.b, 0);
			post(&p.a, &w);
			if (k % 2 == 0)
				post_recv(&p.b, k, NULL, 0);
		}
		pair_close(&p);
	}
}

static void access_event(void)
{
	struct ibv_async_event e;
	struct pair p;

	pair_open(&p, NULL, 4096);
	struct ibv_sge list = sge(&p.a, 0, 100);
	struct ibv_send_wr w = wr(IBV_WR_RDMA_WRITE, 1, &list, 1);
	aim(&w, &p.b, 0);
	w.wr.rdma.rkey ^= 0x55;
	post(&p.a, &w);
	expect(&p.a, 1, IBV_WC_REM_ACCESS_ERR, "a wrong remote key");
	CHECK(!ibv_get_async_event(p.ctx, &e), "ibv_get_async_event: %s", strerror(errno));
	CHECK(e.event_type == IBV_EVENT_QP_ACCESS_ERR && e.element.qp == p.b.qp, "the event is \"%s\"",
	      ibv_event_type_str(e.event_type));
	ibv_ack_async_event(&e);
	pair_close(&p);
}

const struct test_case error_cases[] = {
	{ "wrong-state", wrong_state },
	{ "wrong-request", wrong_request },
	{ "wrong-transition", wrong_transition },
	{ "bad-lkey", bad_lkey },
	{ "beyond-mr", beyond_mr },
	{ "recv-bad-lkey", recv_bad_lkey },
	{ "recv-too-short", recv_too_short },
	{ "bad-rkey", bad_rkey },
	{ "remote-bounds", remote_bounds },
	{ "remote-rights", remote_rights },
	{ "other-pd", other_pd },
	{ "key-gone", dereg_then_use },
	{ "stranger", stranger },
	{ "numbers-not-reused", numbers_not_reused },
	{ "one-slot", one_slot },
	{ "qp-rights", qp_rights },
	{ "rnr-exhausted", rnr_exhausted },
	{ "rnr-none", rnr_none },
	{ "rnr-recovers", rnr_recovers },
	{ "peer-gone", peer_gone },
	{ "peer-in-error", peer_in_error },
	{ "flush", flush },
	{ "reuse", reuse },
	{ "sqd", sqd },
	{ "busy", busy },
	{ "outstanding", outstanding },
	{ "access-event", access_event },
	{ NULL, NULL },
};
