// SPDX-License-Identifier: GPL-2.0
/* The queue pairs of one side and its memory. */
#include "peer.h"

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
	struct ibv_ah *ah;	/* of UD */
} lanes[MAX_LANES];

enum { QKEY = 0x1ee7ca5e };

enum ibv_qp_type type_of(int lane)
{
	if (!plan.types || plan.types[lane] == 'r')
		return IBV_QPT_RC;
	if (plan.types[lane] != 'u' && plan.types[lane] != 'd')
		leave(USAGE, "no type %c", plan.types[lane]);
	return plan.types[lane] == 'u' ? IBV_QPT_UC : IBV_QPT_UD;
}

static void connect_lane(int lane)
{
	struct connection c = usual;
	struct ibv_ah_attr to = { .is_global = 1, .port_num = 1,
				  .grh = { .dgid = there.gid, .sgid_index = plan.gid_index, .hop_limit = 64 } };

	c.gid_index = plan.gid_index;
	c.gid = there.gid;
	c.qpn = there.lane[lane].qpn;
	c.rq_psn = there.lane[lane].psn;
	c.sq_psn = here.lane[lane].psn;
	c.mtu = plan.mtu;
	c.rnr_timer = plan.rnr_timer;
	c.timeout = plan.timeout;
	c.retry_cnt = plan.retry;
	c.traffic_class = plan.traffic_class;
	c.qkey = QKEY;
	connect_qp(lanes[lane].qp, &c);
	if (type_of(lane) != IBV_QPT_UD)
		return;
	/* It is connected to nobody, and has an address to send to. */
	lanes[lane].ah = new_ah(pd, to);
}

/* With ATOMIC WRITE among the operations, a queue pair on which ibv_wr_atomic_write works. */
static struct ibv_qp *new_extended_qp(struct ibv_cq *cq, struct ibv_qp_cap cap)
{
	struct ibv_qp_init_attr_ex init = { .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .cap = cap, .pd = pd,
					    .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
					    .send_ops_flags = IBV_QP_EX_WITH_ATOMIC_WRITE };
	struct ibv_qp *qp = ibv_create_qp_ex(ctx, &init);

	CHECK(qp, "ibv_create_qp_ex: %s", strerror(errno));
	return qp;
}

static void make_lane(int lane)
{
	struct ibv_qp_cap cap = { DEPTH, DEPTH, MAX_SGE, MAX_SGE, 0 };

	lanes[lane].cq = new_cq(ctx, 2 * DEPTH, NULL, NULL);
	lanes[lane].qp = type_of(lane) == IBV_QPT_RC && strchr(plan.ops, 'A') ?
			 new_extended_qp(lanes[lane].cq, cap) : new_qp_of(type_of(lane), pd, lanes[lane].cq, cap);
	here.lane[lane].qpn = lanes[lane].qp->qp_num;
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
	ctx = open_device(plan.device);
	pd = new_pd(ctx);
	/* Room for a mixture of messages of 64 KiB at least. */
	area_bytes = (largest > 5 << 18 ? largest : 5 << 18) + 4096;
	memory = new_memory(2 * area_bytes);
	mr = new_mr(pd, memory, 2 * area_bytes, ALL_ACCESS);
	for (int i = 0; i < plan.lanes; i++)
		make_lane(i);
	here.gid = gid_of(ctx, plan.gid_index);
	here.addr = (uintptr_t)memory;
	here.rkey = mr->rkey;
	swap(&here, &there, sizeof(here));
	if (plan.tell) {
		tell_contact("here", &here);
		tell_contact("there", &there);
	}
	for (int i = 0; i < plan.lanes; i++)
		connect_lane(i);
	together("connected");
}

void endpoint_close(void)
{
	for (int i = 0; i < plan.lanes; i++) {
		if (lanes[i].ah)
			DESTROY(lanes[i].ah);
		DESTROY(lanes[i].qp, lanes[i].cq);
	}
	DESTROY(mr, pd, ctx);
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

/* A device that is gone takes nothing any more. */
static void posted(int rc, const char *what)
{
	if (rc == EIO || rc == ENODEV)
		leave(DEVICE_GONE, "%s: %s", what, strerror(rc));
	must(rc, what);
}

void expect_message(int lane, uint64_t id, struct ibv_sge *list, int n)
{
	posted(post_receive(lanes[lane].qp, id, list, n), "ibv_post_recv");
}

void post(int lane, struct ibv_send_wr *w)
{
	if (lanes[lane].ah) {
		w->wr.ud.ah = lanes[lane].ah;
		w->wr.ud.remote_qpn = there.lane[lane].qpn;
		w->wr.ud.remote_qkey = QKEY;
	}
	posted(post_send(lanes[lane].qp, w), "ibv_post_send");
}

void post_atomic_write(int lane, uint64_t id, uint64_t addr, const void *value)
{
	struct ibv_qp_ex *x = ibv_qp_to_qp_ex(lanes[lane].qp);

	CHECK(x, "the queue pair has no ibv_wr_*");
	ibv_wr_start(x);
	x->wr_id = id;
	x->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_atomic_write(x, there.rkey, addr, value);
	posted(ibv_wr_complete(x), "ibv_wr_atomic_write");
}

struct ibv_qp *queue_pair(int lane)
{
	return lanes[lane].qp;
}

void permit(int lane, int access)
{
	struct ibv_qp_attr attr = { .qp_access_flags = access };

	MUST(ibv_modify_qp(lanes[lane].qp, &attr, IBV_QP_ACCESS_FLAGS));
}

/* Something happened to the device or the queue pair; only the end of the device matters here. */
static void look_for_events(void)
{
	struct ibv_async_event event;

	while (next_device_event(ctx, 0, &event))
		if (event.event_type == IBV_EVENT_DEVICE_FATAL)
			leave(DEVICE_GONE, "the device is gone");
}

struct ibv_wc outcome(int lane, const char *what)
{
	struct ibv_cq *cq = lanes[lane].cq;
	double end = now() + patience();
	struct ibv_wc wc;
	int n;

	for (unsigned int turn = 0; !(n = ibv_poll_cq(cq, 1, &wc)); turn++) {
		CHECK(now() < end, "%s: no completion in %.0f s", what, patience());
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
