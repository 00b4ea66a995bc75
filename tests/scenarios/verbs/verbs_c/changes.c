// SPDX-License-Identifier: GPL-2.0
/* Attributes that are changed while a queue pair lives: on the way to RTS, in RTS, and drained in SQD. */
#include "datagrams.h"

enum { LEN = 3000 };

static int change(struct side *s, struct ibv_qp_attr attr, int mask)
{
	return ibv_modify_qp(s->qp, &attr, mask);
}

static void drain(struct side *s)
{
	MUST(to_state(s, IBV_QPS_SQD));
}

/* A request of a to b's memory, and what must become of it. */
static void expect_request(enum ibv_wr_opcode op, enum ibv_wc_status status, const char *what)
{
	post_at(&p.a, op, 1, 0, LEN, &p.b, 0);
	expect(&p.a, 1, status, what);
}

/* From RTR to RTS with one attribute more than that takes. */
static void to_rts_with(struct side *s, struct ibv_qp_attr attr, int more)
{
	attr.qp_state = IBV_QPS_RTS;
	attr.timeout = 15;
	attr.retry_cnt = attr.rnr_retry = 7;
	attr.max_rd_atomic = 4;
	MUST(change(s, attr, IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
		    IBV_QP_MAX_QP_RD_ATOMIC | more));
}

CASE("verbs.change-rights", "rights that come with RTS are those that count")
{
	for (int grants = 0; grants < 2; grants++) {
		struct ibv_qp_attr attr = { .qp_access_flags = grants ? REMOTE_ACCESS : IBV_ACCESS_REMOTE_READ }, said;
		struct ibv_qp_init_attr init;

		pair_open_b_in_rtr(&p, &(struct options){ .qp_access = grants ? NONE : 0 }, 8192);
		to_rts_with(&p.b, attr, IBV_QP_ACCESS_FLAGS);
		MUST(ibv_query_qp(p.b.qp, &said, IBV_QP_ACCESS_FLAGS, &init));
		CHECK(said.qp_access_flags == attr.qp_access_flags, "rights %x", said.qp_access_flags);
		expect_request(IBV_WR_RDMA_READ, IBV_WC_SUCCESS, "a READ, which was granted with RTS");
		expect_request(IBV_WR_RDMA_WRITE, grants ? IBV_WC_SUCCESS : IBV_WC_REM_INV_REQ_ERR,
			       grants ? "a WRITE that was granted with RTS" : "a WRITE that was refused with RTS");
		pair_close(&p);
	}
}

/* The same of the delay that RNR NAKs ask for: two of them, which are 160 ms apart, end a request. */
CASE("verbs.change-delay", "the delay of RNR NAKs is changed with RTS, and in RTS")
{
	const struct ibv_qp_attr attr = { .min_rnr_timer = 28 };

	for (int alive = 0; alive < 2; alive++) {
		pair_open_b_in_rtr(&p, &(struct options){ .rnr_retry = 1, .rnr_timer = 1 }, 8192);
		if (alive) {
			MUST(to_rts(&p, &p.b));
			MUST(change(&p.b, attr, IBV_QP_MIN_RNR_TIMER));
		} else {
			to_rts_with(&p.b, attr, IBV_QP_MIN_RNR_TIMER);
		}
		double began = now();

		post_one(&p.a, IBV_WR_SEND, 1, 0, 0);
		expect(&p.a, 1, IBV_WC_RNR_RETRY_EXC_ERR, "a SEND without a receive");
		CHECK(now() - began >= 0.16, "%.0f ms after the first RNR NAK, which asks for 163.84", (now() - began) * 1e3);
		pair_close(&p);
	}
}

CASE("verbs.change-qkey", "UD: a Q_Key that comes with RTS is the one that counts", UD)
{
	const struct connection c = { .qkey = KEY };

	MUST(to_state(&p.b, IBV_QPS_RESET));
	MUST(qp_to_init(p.b.qp, &c));
	MUST(qp_to_rtr(p.b.qp, &c));
	MUST(change(&p.b, (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS, .qkey = KEY + 1 },
		    IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_QKEY));
	struct ibv_ah *ah = new_ah(p.a.pd, way(&p.a, &p.b));
	struct ibv_sge list = sge(&p.a, 0, 100);
	struct ibv_send_wr w = datagram(&list, ah, p.b.qp, KEY);

	post_room(&p.b, 2, 0, HALF);
	lose(&p.a, &p.b, &w, "drop_qkey");
	address(&w, ah, p.b.qp, KEY + 1);
	post(&p.a, &w);
	expect(&p.a, 1, IBV_WC_SUCCESS, "a datagram with the key of RTS");
	expect(&p.b, 2, IBV_WC_SUCCESS, "its receive");
	DESTROY(ah);
}

CASE("verbs.change-timeout", "a request that waits for nobody gets a timeout and a number of retries in SQD",
     .opt = { .wrong_qpn = true, .timeout = NONE }, .len = 4096)
{
	const struct ibv_qp_attr attr = { .timeout = 12, .retry_cnt = 2 };

	post_one(&p.a, IBV_WR_SEND, 1, 0, 0);
	expect_none(&p.a, 50, "of a SEND to nobody, without a timeout");
	drain(&p.a);
	CHECK(change(&p.a, attr, IBV_QP_TIMEOUT | IBV_QP_DEST_QPN) == EINVAL, "another peer was taken in SQD");
	double began = now();

	MUST(change(&p.a, attr, IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT));
	expect(&p.a, 1, IBV_WC_RETRY_EXC_ERR, "the SEND, with a timeout");
	CHECK(now() - began >= 3 * 0.0167, "%.1f ms are too soon for three timeouts of 16.8", (now() - began) * 1e3);
	want_state(&p.a, IBV_QPS_ERR, "the sender");
}

CASE("verbs.change-rnr-retry", "a request that waits for a receive gets a number of retries in SQD", .len = 4096)
{
	post_one(&p.a, IBV_WR_SEND, 1, 0, 0);
	expect_none(&p.a, 50, "of a SEND without a receive");
	drain(&p.a);
	MUST(change(&p.a, (struct ibv_qp_attr){ .rnr_retry = 1 }, IBV_QP_RNR_RETRY));
	expect(&p.a, 1, IBV_WC_RNR_RETRY_EXC_ERR, "the SEND, with one retry");
}

CASE("verbs.change-reads", "how many READs a side asks, and serves, is changed in SQD")
{
	for (int serves = 0; serves < 2; serves++) {
		const struct options opt = { .rd_atomic = serves ? 4 : NONE, .dest_rd_atomic = serves ? NONE : 4 };
		struct side *changed = serves ? &p.b : &p.a;

		pair_open(&p, &opt, 8192);
		drain(changed);
		CHECK(change(changed, (struct ibv_qp_attr){ .max_rd_atomic = 255 }, IBV_QP_MAX_QP_RD_ATOMIC) == EINVAL,
		      "255 READs were taken");
		MUST(change(changed, (struct ibv_qp_attr){ .max_rd_atomic = 4, .max_dest_rd_atomic = 4 },
			    IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_MAX_DEST_RD_ATOMIC));
		MUST(to_state(changed, IBV_QPS_RTS));
		fill(p.b.buf, LEN, 7);
		memset(p.a.buf, 0, LEN);
		expect_request(IBV_WR_RDMA_READ, IBV_WC_SUCCESS, "a READ, which was allowed in SQD");
		compare(p.a.buf, LEN, 7, "what was read");
		pair_close(&p);
	}
}

static int new_path(struct side *s, const struct side *peer)
{
	return change(s, (struct ibv_qp_attr){ .ah_attr = way(s, peer) }, IBV_QP_AV);
}

/*
 * A drained queue pair gets another path: what waits goes by it, and the peer takes nothing from there until it was told,
 * too. By the local path there are no packets, and the peer's path asks for none. Of UC ib_core takes no path there:
 * uverbs adds a port to it, which its table of transitions has for RC alone.
 */
CASE("verbs.change-path", "RC: another path in SQD, from IPv4 to IPv6, is the one of all that follows",
     .rxe = "never sends what was posted in SQD", .opt = { .timeout = 19 }, .len = 2 * HALF)
{
	long sent = counter_of("sent_pkts");

	send_checked(&p.a, &p.b, 1);
	bool by_packets = counter_of("sent_pkts") != sent;

	use_family(&p.a, true);
	use_family(&p.b, true);
	CHECK(new_path(&p.a, &p.b) == EINVAL, "another path was taken in RTS");
	drain(&p.a);
	post_recv(&p.b, 3, NULL, 0);
	post_one(&p.a, IBV_WR_SEND, 1, 0, 0);
	CHECK(change(&p.a, (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS, .ah_attr.port_num = 1 },
		     IBV_QP_STATE | IBV_QP_AV) == EINVAL, "another path was taken on the way to RTS");
	CHECK(change(&p.a, (struct ibv_qp_attr){ .port_num = 2 }, IBV_QP_PORT) == EINVAL, "port 2 was taken");
	CHECK(change(&p.a, (struct ibv_qp_attr){ .pkey_index = 1 }, IBV_QP_PKEY_INDEX) == EINVAL, "P_Key 1 was taken");
	MUST(new_path(&p.a, &p.b));
	expect_none(&p.a, 20, "of a SEND in SQD");
	want_state(&p.a, IBV_QPS_SQD, "with a new path, a queue pair in SQD");
	long refused = counter_of("drop_address");

	MUST(to_state(&p.a, IBV_QPS_RTS));
	if (by_packets)
		want_counted("drop_address", refused);
	drain(&p.b);
	MUST(new_path(&p.b, &p.a));
	MUST(to_state(&p.b, IBV_QPS_RTS));
	expect(&p.a, 1, IBV_WC_SUCCESS, "the SEND that waited");
	expect(&p.b, 3, IBV_WC_SUCCESS, "its receive");
	refused = counter_of("drop_address");
	send_checked(&p.a, &p.b, 2);
	send_checked(&p.b, &p.a, 3);
	CHECK(counter_of("drop_address") == refused, "packets by the new path were dropped");
}
