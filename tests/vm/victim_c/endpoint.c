// SPDX-License-Identifier: GPL-2.0
/* The queue pairs under attack. */
#include "victim.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct ibv_context *ctx;
struct ibv_pd *own_pd, *foreign_pd;
static struct ibv_cq *cq;

static struct ibv_qp *qps[MAX_QP];
static int count;

/* What the kind of a queue pair says beside its name. */
struct kind {
	const char *name;
	enum ibv_qp_state state;
	bool stranger;		/* its peer is another address than the attacker's */
	int access;
	int recvs;
	int rd_atomic;
};

#define REMOTE (IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE)

static const struct kind kinds[] = {
	{ "rts", IBV_QPS_RTS, false, REMOTE, 4, 4 },
	{ "rts-no-receives", IBV_QPS_RTS, false, REMOTE, 0, 4 },
	{ "rts-no-rights", IBV_QPS_RTS, false, 0, 4, 4 },
	{ "rts-no-reads", IBV_QPS_RTS, false, REMOTE, 4, 0 },
	{ "rts-stranger", IBV_QPS_RTS, true, REMOTE, 4, 4 },
	{ "rtr", IBV_QPS_RTR, false, REMOTE, 4, 4 },
	{ "init", IBV_QPS_INIT, false, REMOTE, 4, 4 },
	{ "reset", IBV_QPS_RESET, false, REMOTE, 0, 4 },
	{ "err", IBV_QPS_ERR, false, REMOTE, 4, 4 },
	{ NULL },
};

void endpoint_open(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);

	for (int i = 0; list && list[i]; i++)
		if (!strcmp(ibv_get_device_name(list[i]), device_name))
			ctx = ibv_open_device(list[i]);
	if (list)
		ibv_free_device_list(list);
	CHECK(ctx, "no device %s, or it cannot be opened", device_name);
	fcntl(ctx->async_fd, F_SETFL, fcntl(ctx->async_fd, F_GETFL) | O_NONBLOCK);
	own_pd = ibv_alloc_pd(ctx);
	foreign_pd = ibv_alloc_pd(ctx);
	CHECK(own_pd && foreign_pd, "ibv_alloc_pd: %s", strerror(errno));
	cq = ibv_create_cq(ctx, 2 * DEPTH * MAX_QP, NULL, NULL, 0);
	CHECK(cq, "ibv_create_cq: %s", strerror(errno));
}

static void drop_events(bool tell_them)
{
	struct ibv_async_event event;

	while (!ibv_get_async_event(ctx, &event)) {
		if (tell_them)
			tell("event %d\n", event.event_type);
		ibv_ack_async_event(&event);
	}
}

void endpoint_close(void)
{
	int rc;

	make(0, "rts");
	rc = ibv_destroy_cq(cq);
	CHECK(!rc, "ibv_destroy_cq: %s", strerror(rc));
	rc = ibv_dealloc_pd(own_pd);
	CHECK(!rc, "ibv_dealloc_pd: %s", strerror(rc));
	rc = ibv_dealloc_pd(foreign_pd);
	CHECK(!rc, "ibv_dealloc_pd: %s", strerror(rc));
	rc = ibv_close_device(ctx);
	CHECK(!rc, "ibv_close_device: %s", strerror(rc));
}

static void post_receive(int index, int n)
{
	struct ibv_sge to = { .addr = (uintptr_t)areas[RECEIVES].at + RECEIVE * n, .length = RECEIVE,
			      .lkey = areas[RECEIVES].mr->lkey };
	struct ibv_recv_wr r = { .wr_id = 1000 + n, .sg_list = &to, .num_sge = 1 }, *bad;
	int rc = ibv_post_recv(qps[index], &r, &bad);

	CHECK(!rc, "ibv_post_recv: %s", strerror(rc));
}

static void modify(int index, struct ibv_qp_attr *attr, int mask, const char *what)
{
	int rc = ibv_modify_qp(qps[index], attr, mask);

	CHECK(!rc, "%s: %s", what, strerror(rc));
}

/* Numbers of the peer and PSNs differ between queue pairs, so that an answer says whose it is; some wrap soon. */
static uint32_t psn_of(int index, int round, bool send)
{
	uint32_t at = 0xfffffd + 0x31337 * (uint32_t)(index + 7 * round) + (send ? 0x456789 : 0);

	return at & 0xffffff;
}

static void to_state(int index, const struct kind *kind, int round)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RESET };

	modify(index, &attr, IBV_QP_STATE, "to RESET");
	if (kind->state == IBV_QPS_RESET)
		return;
	attr = (struct ibv_qp_attr){ .qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = kind->access };
	modify(index, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS, "to INIT");
	for (int n = 0; n < kind->recvs; n++)
		post_receive(index, n);
	if (kind->state == IBV_QPS_INIT)
		return;
	attr = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_256, .dest_qp_num = 0x700000 + index,
		.rq_psn = psn_of(index, round, false), .max_dest_rd_atomic = kind->rd_atomic, .min_rnr_timer = 12,
		.ah_attr = { .is_global = 1, .port_num = 1,
			     .grh = { .sgid_index = gid_index, .hop_limit = 64,
				      .dgid = kind->stranger ? other : attacker } },
	};
	modify(index, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
	       IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER, "to RTR");
	if (kind->state == IBV_QPS_RTR)
		return;
	/* Without a timeout nothing is sent that the generator has not provoked. */
	attr = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS, .sq_psn = psn_of(index, round, true), .timeout = 0,
				     .retry_cnt = 2, .rnr_retry = 2, .max_rd_atomic = 4 };
	modify(index, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
	       IBV_QP_MAX_QP_RD_ATOMIC, "to RTS");
	if (kind->state == IBV_QPS_ERR) {
		attr.qp_state = IBV_QPS_ERR;
		modify(index, &attr, IBV_QP_STATE, "to ERR");
	}
}

static const struct kind *find(const char *name)
{
	const struct kind *kind = kinds;

	while (kind->name && strcmp(kind->name, name))
		kind++;
	CHECK(kind->name, "no kind %s", name);
	return kind;
}

static void drain(void)
{
	struct ibv_wc wc[64];
	int n;

	do {
		n = ibv_poll_cq(cq, 64, wc);
		CHECK(n >= 0, "ibv_poll_cq: %d", n);
	} while (n);
}

void make(int n, const char *name)
{
	const struct kind *kind = find(name);
	static int round;
	int rc;

	CHECK(n <= MAX_QP, "%d queue pairs are too many", n);
	round++;
	while (count > n) {
		rc = ibv_destroy_qp(qps[--count]);
		CHECK(!rc, "ibv_destroy_qp: %s", strerror(rc));
	}
	while (count < n) {
		struct ibv_qp_init_attr attr = {
			.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC,
			.cap = { .max_send_wr = DEPTH, .max_recv_wr = DEPTH, .max_send_sge = 1, .max_recv_sge = 1 },
		};

		qps[count] = ibv_create_qp(own_pd, &attr);
		CHECK(qps[count], "ibv_create_qp: %s", strerror(errno));
		count++;
	}
	/* Queue pairs that are used again complete nothing when they are reset; what they completed before goes. */
	for (int i = 0; i < n; i++) {
		to_state(i, kind, round);
		tell("qp %d %u %u %u %u\n", i, qps[i]->qp_num, 0x700000 + i, psn_of(i, round, false),
		     psn_of(i, round, true));
	}
	drain();
	drop_events(false);
}

void tell_states(void)
{
	for (int i = 0; i < count; i++) {
		struct ibv_qp_init_attr init;
		struct ibv_qp_attr attr;
		int rc = ibv_query_qp(qps[i], &attr, IBV_QP_STATE | IBV_QP_RQ_PSN | IBV_QP_SQ_PSN, &init);

		CHECK(!rc, "ibv_query_qp: %s", strerror(rc));
		tell("state %d %d %u\n", i, attr.qp_state, attr.rq_psn);
	}
}

static int index_of(uint32_t number)
{
	for (int i = 0; i < count; i++)
		if (qps[i]->qp_num == number)
			return i;
	fail("a completion names queue pair %u", number);
}

void tell_completions(void)
{
	struct ibv_wc wc;
	int n;

	while ((n = ibv_poll_cq(cq, 1, &wc)) == 1)
		tell("wc %d %llu %d %u\n", index_of(wc.qp_num), (unsigned long long)wc.wr_id, wc.status,
		     wc.status == IBV_WC_SUCCESS && (wc.opcode & IBV_WC_RECV) ? wc.byte_len : 0);
	CHECK(!n, "ibv_poll_cq: %d", n);
}

void tell_events(void)
{
	drop_events(true);
}

void post(int index, const char *op, uint32_t len)
{
	struct ibv_sge list = { .addr = (uintptr_t)areas[SENDS].at, .length = len, .lkey = areas[SENDS].mr->lkey };
	struct ibv_send_wr w = { .wr_id = index, .sg_list = &list, .num_sge = 1, .send_flags = IBV_SEND_SIGNALED,
				 .opcode = !strcmp(op, "send") ? IBV_WR_SEND :
					   !strcmp(op, "read") ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE }, *bad;
	int rc;

	CHECK(index >= 0 && index < count && len <= REGION, "post %d %s %u", index, op, len);
	w.wr.rdma.remote_addr = 0x123456789000;
	w.wr.rdma.rkey = 0xfeed;
	rc = ibv_post_send(qps[index], &w, &bad);
	CHECK(!rc, "ibv_post_send: %s", strerror(rc));
}
