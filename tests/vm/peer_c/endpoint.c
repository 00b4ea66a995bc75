// SPDX-License-Identifier: GPL-2.0
/* The queue pairs of one side and its memory. */
#include "peer.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static struct ibv_context *ctx;
static struct ibv_pd *pd;
static struct ibv_mr *mr;
static uint8_t *memory;
static size_t area_bytes;
struct contact here, there;

/* A completion queue each: completions of several queue pairs come in no order. */
static struct {
	struct ibv_qp *qp;
	struct ibv_cq *cq;
} lanes[MAX_LANES];

static void open_device(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);

	for (int i = 0; list && list[i]; i++)
		if (!strcmp(ibv_get_device_name(list[i]), plan.device))
			ctx = ibv_open_device(list[i]);
	if (list)
		ibv_free_device_list(list);
	CHECK(ctx, "no device %s, or it cannot be opened", plan.device);
	fcntl(ctx->async_fd, F_SETFL, fcntl(ctx->async_fd, F_GETFL) | O_NONBLOCK);
}

static enum ibv_mtu mtu_code(int bytes)
{
	return bytes == 256 ? IBV_MTU_256 : bytes == 512 ? IBV_MTU_512 : bytes == 1024 ? IBV_MTU_1024 :
	       bytes == 2048 ? IBV_MTU_2048 : IBV_MTU_4096;
}

static void to_init_and_rtr(int lane)
{
	struct ibv_qp_attr init = { .qp_state = IBV_QPS_INIT, .port_num = 1,
				    .qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ };
	struct ibv_qp_attr rtr = {
		.qp_state = IBV_QPS_RTR, .path_mtu = mtu_code(plan.mtu), .dest_qp_num = there.lane[lane].qpn,
		.rq_psn = there.lane[lane].psn, .max_dest_rd_atomic = 4, .min_rnr_timer = plan.rnr_timer,
		.ah_attr = { .is_global = 1, .port_num = 1,
			     .grh = { .sgid_index = plan.gid_index, .hop_limit = 64, .dgid = there.gid } },
	};
	int rc = ibv_modify_qp(lanes[lane].qp, &init, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);

	CHECK(!rc, "to INIT: %s", strerror(rc));
	rc = ibv_modify_qp(lanes[lane].qp, &rtr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			   IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
	CHECK(!rc, "to RTR: %s", strerror(rc));
}

static void to_rts(int lane)
{
	struct ibv_qp_attr rts = { .qp_state = IBV_QPS_RTS, .sq_psn = here.lane[lane].psn, .timeout = plan.timeout,
				   .retry_cnt = plan.retry, .rnr_retry = 7, .max_rd_atomic = 4 };
	int rc = ibv_modify_qp(lanes[lane].qp, &rts, IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
			       IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC);

	CHECK(!rc, "to RTS: %s", strerror(rc));
}

static void make_lane(int lane)
{
	struct ibv_cq *cq = ibv_create_cq(ctx, 2 * DEPTH, NULL, NULL, 0);

	CHECK(cq, "ibv_create_cq: %s", strerror(errno));
	struct ibv_qp_init_attr attr = {
		.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = DEPTH, .max_recv_wr = DEPTH, .max_send_sge = MAX_SGE, .max_recv_sge = MAX_SGE },
	};
	struct ibv_qp *qp = ibv_create_qp(pd, &attr);

	CHECK(qp, "ibv_create_qp: %s", strerror(errno));
	lanes[lane].cq = cq;
	lanes[lane].qp = qp;
	here.lane[lane].qpn = qp->qp_num;
	/* The sequence numbers wrap early in the traffic, at a different place for each side. */
	here.lane[lane].psn = ((plan.server ? 0xffffc0 : 0xfffff5) + 0x1000 * lane) & 0xffffff;
}

static void tell_contact(const char *who, const struct contact *c)
{
	for (int i = 0; i < plan.lanes; i++)
		printf("lane %d %s qpn %u psn %u addr %llu rkey %u\n", i, who, c->lane[i].qpn, c->lane[i].psn,
		       (unsigned long long)c->addr, c->rkey);
	fflush(stdout);
}

void endpoint_open(size_t largest)
{
	int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;

	open_device();
	pd = ibv_alloc_pd(ctx);
	CHECK(pd, "ibv_alloc_pd: %s", strerror(errno));
	/* Room for a mixture of messages of 64 KiB at least. */
	area_bytes = (largest > 5 << 18 ? largest : 5 << 18) + 4096;
	memory = mmap(NULL, 2 * area_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(memory != MAP_FAILED, "mmap: %s", strerror(errno));
	mr = ibv_reg_mr(pd, memory, 2 * area_bytes, access);
	CHECK(mr, "ibv_reg_mr: %s", strerror(errno));
	for (int i = 0; i < plan.lanes; i++)
		make_lane(i);

	CHECK(!ibv_query_gid(ctx, 1, plan.gid_index, &here.gid), "ibv_query_gid %d", plan.gid_index);
	here.addr = (uintptr_t)memory;
	here.rkey = mr->rkey;
	swap(&here, &there, sizeof(here));
	if (plan.tell) {
		tell_contact("here", &here);
		tell_contact("there", &there);
	}
	for (int i = 0; i < plan.lanes; i++) {
		to_init_and_rtr(i);
		to_rts(i);
	}
	together("connected");
}

void endpoint_close(void)
{
	int rc;

	for (int i = 0; i < plan.lanes; i++) {
		rc = ibv_destroy_qp(lanes[i].qp);
		CHECK(!rc, "ibv_destroy_qp: %s", strerror(rc));
		rc = ibv_destroy_cq(lanes[i].cq);
		CHECK(!rc, "ibv_destroy_cq: %s", strerror(rc));
	}
	rc = ibv_dereg_mr(mr);
	CHECK(!rc, "ibv_dereg_mr: %s", strerror(rc));
	rc = ibv_dealloc_pd(pd);
	CHECK(!rc, "ibv_dealloc_pd: %s", strerror(rc));
	rc = ibv_close_device(ctx);
	CHECK(!rc, "ibv_close_device: %s", strerror(rc));
}

size_t area_size(void)
{
	return area_bytes;
}

uint8_t *at(enum area area, size_t offset)
{
	return memory + area * area_bytes + offset;
}

struct ibv_sge piece(enum area area, size_t offset, uint32_t len)
{
	return (struct ibv_sge){ .addr = (uintptr_t)at(area, offset), .length = len, .lkey = mr->lkey };
}

uint64_t remote(enum area area, size_t offset)
{
	return there.addr + area * area_bytes + offset;
}

void post_receive(int lane, uint64_t id, struct ibv_sge *list, int n)
{
	struct ibv_recv_wr r = { .wr_id = id, .sg_list = list, .num_sge = n }, *bad;
	int rc = ibv_post_recv(lanes[lane].qp, &r, &bad);

	if (rc == EIO || rc == ENODEV)
		leave(DEVICE_GONE, "ibv_post_recv: %s", strerror(rc));
	CHECK(!rc, "ibv_post_recv: %s", strerror(rc));
}

void post(int lane, struct ibv_send_wr *w)
{
	struct ibv_send_wr *bad;
	int rc = ibv_post_send(lanes[lane].qp, w, &bad);

	if (rc == EIO || rc == ENODEV)
		leave(DEVICE_GONE, "ibv_post_send: %s", strerror(rc));
	CHECK(!rc, "ibv_post_send: %s", strerror(rc));
}

void permit(int lane, int access)
{
	struct ibv_qp_attr attr = { .qp_access_flags = access };
	int rc = ibv_modify_qp(lanes[lane].qp, &attr, IBV_QP_ACCESS_FLAGS);

	CHECK(!rc, "ibv_modify_qp of the access flags: %s", strerror(rc));
}

/* Something happened to the device or the queue pair; only the end of the device matters here. */
static void look_for_events(void)
{
	struct ibv_async_event event;

	while (!ibv_get_async_event(ctx, &event)) {
		ibv_ack_async_event(&event);
		if (event.event_type == IBV_EVENT_DEVICE_FATAL)
			leave(DEVICE_GONE, "the device is gone");
	}
}

struct ibv_wc outcome(int lane, const char *what)
{
	struct ibv_cq *cq = lanes[lane].cq;
	double end = now() + PATIENCE;
	struct ibv_wc wc;
	int n;

	for (unsigned int turn = 0; !(n = ibv_poll_cq(cq, 1, &wc)); turn++) {
		CHECK(now() < end, "%s: no completion in %.0f s", what, PATIENCE);
		/* One processor may have to serve both sides and the network. */
		usleep(turn < 20 ? 50 : 500);
		if (tear_asked) {
			endpoint_close();
			leave(TORN_DOWN, "destroyed with work under way");
		}
		if (turn % 16 != 15)
			continue;
		look_for_events();
		if (plan.alone || !peer_left())
			continue;
		/* What it did last may have come just now. */
		n = ibv_poll_cq(cq, 1, &wc);
		if (!n)
			leave(PEER_GONE, "%s: the other side is gone", what);
		break;
	}
	CHECK(n == 1, "%s: ibv_poll_cq returned %d", what, n);
	CHECK(wc.qp_num == lanes[lane].qp->qp_num, "%s: the completion names queue pair %u, not %u", what, wc.qp_num,
	      lanes[lane].qp->qp_num);
	return wc;
}

struct ibv_wc completion(int lane, uint64_t id, enum ibv_wc_opcode opcode, const char *what)
{
	struct ibv_wc wc = outcome(lane, what);

	if (wc.status)
		leave(ERROR_COMPLETION, "%s: %s", what, ibv_wc_status_str(wc.status));
	CHECK(wc.wr_id == id, "%s: completion of %llu, but %llu is next", what, (unsigned long long)wc.wr_id,
	      (unsigned long long)id);
	CHECK(wc.opcode == opcode, "%s: opcode %d, not %d", what, wc.opcode, opcode);
	return wc;
}
