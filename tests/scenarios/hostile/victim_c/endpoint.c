// SPDX-License-Identifier: GPL-2.0
/* The queue pairs under attack. */
#include "victim.h"

#include <string.h>

struct ibv_context *ctx;
struct ibv_pd *own_pd, *foreign_pd;
struct ibv_qp *helper;
static struct ibv_cq *cq;

static struct ibv_qp *qps[MAX_QP];
/* Of each queue pair, where its kind has such. */
static struct ibv_srq *srqs[MAX_QP];
static struct ibv_mw *mws[MAX_QP];
static int count;

/* What the kind of a queue pair says beside its name. */
struct kind {
	const char *name;
	enum ibv_qp_state state;
	bool stranger;		/* its peer is another address than the attacker's */
	int access;
	int recvs;
	int rd_atomic;
	enum ibv_qp_type type;	/* 0 is that of RC */
	bool shares;		/* its receives are in a shared queue of its own */
	bool has_window;	/* of type 2B */
};

static const struct kind kinds[] = {
	{ "rts", IBV_QPS_RTS, false, REMOTE_ACCESS, 4, 4 },
	{ "rts-no-receives", IBV_QPS_RTS, false, REMOTE_ACCESS, 0, 4 },
	{ "rts-no-rights", IBV_QPS_RTS, false, 0, 4, 4 },
	{ "rts-no-reads", IBV_QPS_RTS, false, REMOTE_ACCESS, 4, 0 },
	{ "rts-stranger", IBV_QPS_RTS, true, REMOTE_ACCESS, 4, 4 },
	{ "rtr", IBV_QPS_RTR, false, REMOTE_ACCESS, 4, 4 },
	{ "init", IBV_QPS_INIT, false, REMOTE_ACCESS, 4, 4 },
	{ "reset", IBV_QPS_RESET, false, REMOTE_ACCESS, 0, 4 },
	{ "err", IBV_QPS_ERR, false, REMOTE_ACCESS, 4, 4 },
	{ "rts-shared-receives", IBV_QPS_RTS, false, REMOTE_ACCESS, 4, 4, .shares = true },
	{ "rts-flush", IBV_QPS_RTS, false, REMOTE_ACCESS | IBV_ACCESS_FLUSH_GLOBAL, 4, 4 },
	{ "rts-window", IBV_QPS_RTS, false, REMOTE_ACCESS, 4, 4, .has_window = true },
	{ "uc", IBV_QPS_RTS, false, IBV_ACCESS_REMOTE_WRITE, 4, 0, IBV_QPT_UC },
	{ "uc-no-receives", IBV_QPS_RTS, false, IBV_ACCESS_REMOTE_WRITE, 0, 0, IBV_QPT_UC },
	{ "uc-no-rights", IBV_QPS_RTS, false, 0, 4, 0, IBV_QPT_UC },
	{ "uc-init", IBV_QPS_INIT, false, IBV_ACCESS_REMOTE_WRITE, 4, 0, IBV_QPT_UC },
	{ "uc-err", IBV_QPS_ERR, false, IBV_ACCESS_REMOTE_WRITE, 4, 0, IBV_QPT_UC },
	{ "ud", IBV_QPS_RTS, false, 0, 4, 0, IBV_QPT_UD },
	{ "ud-no-receives", IBV_QPS_RTS, false, 0, 0, 0, IBV_QPT_UD },
	{ "ud-init", IBV_QPS_INIT, false, 0, 4, 0, IBV_QPT_UD },
	{ "ud-err", IBV_QPS_ERR, false, 0, 4, 0, IBV_QPT_UD },
	{ NULL },
};

void endpoint_open(void)
{
	ctx = open_device(device_name);
	own_pd = new_pd(ctx);
	foreign_pd = new_pd(ctx);
	cq = new_cq(ctx, 2 * DEPTH * MAX_QP, NULL, NULL);
	struct connection c = usual;

	c.gid_index = gid_index;
	c.gid = attacker;
	c.qpn = 0x600000;
	helper = new_qp(own_pd, cq, (struct ibv_qp_cap){ DEPTH, 1, 1, 1, 0 });
	connect_qp(helper, &c);
}

void succeeded(const char *what)
{
	struct ibv_wc wc = next_completion(cq, what);

	CHECK(!wc.status, "%s: %s", what, ibv_wc_status_str(wc.status));
}

static void drop_events(bool tell_them)
{
	struct ibv_async_event event;

	while (next_device_event(ctx, 0, &event))
		if (tell_them)
			tell("event %d\n", event.event_type);
}

void endpoint_close(void)
{
	make(0, "rts");
	DESTROY(helper, cq, own_pd, foreign_pd);
	MUST(ibv_close_device(ctx));
}

/* Numbers of the peer and PSNs differ between queue pairs, so that an answer says whose it is; some wrap soon. */
static uint32_t psn_of(int index, int round, bool send)
{
	uint32_t at = 0xfffffd + 0x31337 * (uint32_t)(index + 7 * round) + (send ? 0x456789 : 0);

	return at & 0xffffff;
}

/* The Q_Key of all. */
#define QKEY 0x2468ace0

static void to_state(int index, const struct kind *kind, int round)
{
	struct ibv_qp *qp = qps[index];
	/* Without a timeout nothing is sent that the generator has not provoked. */
	struct connection c = {
		.gid_index = gid_index, .gid = kind->stranger ? other : attacker, .qpn = 0x700000 + index,
		.rq_psn = psn_of(index, round, false), .sq_psn = psn_of(index, round, true), .mtu = 256,
		.access = kind->access, .rd_atomic = 4, .dest_rd_atomic = kind->rd_atomic, .rnr_timer = 12,
		.retry_cnt = 2, .rnr_retry = 2, .qkey = QKEY,
	};

	MUST(qp_to(qp, IBV_QPS_RESET));
	if (kind->state == IBV_QPS_RESET)
		return;
	MUST(qp_to_init(qp, &c));
	for (int n = 0; n < kind->recvs; n++) {
		struct ibv_sge to = { .addr = (uintptr_t)areas[RECEIVES].at + RECEIVE * n, .length = RECEIVE,
				      .lkey = areas[RECEIVES].mr->lkey };

		MUST(srqs[index] ? post_shared_receive(srqs[index], 1000 + n, &to, 1)
				 : post_receive(qp, 1000 + n, &to, 1));
	}
	if (kind->state == IBV_QPS_INIT)
		return;
	MUST(qp_to_rtr(qp, &c));
	if (kind->state == IBV_QPS_RTR)
		return;
	MUST(qp_to_rts(qp, &c));
	if (kind->state == IBV_QPS_ERR)
		MUST(qp_to(qp, IBV_QPS_ERR));
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

static void make_one(const struct kind *kind)
{
	struct ibv_qp_cap cap = { DEPTH, DEPTH, 1, 1, 0 };

	if (kind->shares) {
		srqs[count] = new_srq(own_pd, DEPTH, 1);
		qps[count] = new_sharing_qp(own_pd, cq, cap, srqs[count]);
	} else {
		qps[count] = new_qp_of(kind->type ? kind->type : IBV_QPT_RC, own_pd, cq, cap);
	}
	if (kind->has_window)
		mws[count] = new_mw(own_pd, IBV_MW_TYPE_2);
	count++;
}

static void destroy_one(void)
{
	count--;
	if (mws[count])
		DESTROY(mws[count]);
	DESTROY(qps[count]);
	if (srqs[count])
		DESTROY(srqs[count]);
	mws[count] = NULL;
	srqs[count] = NULL;
}

void make(int n, const char *name)
{
	const struct kind *kind = find(name);
	static enum ibv_qp_type type;
	static int round;

	CHECK(n <= MAX_QP, "%d queue pairs are too many", n);
	round++;
	/* Queue pairs of one type and with nothing of their own are used again. */
	while (count > n || (count && (type != kind->type || kind->shares || kind->has_window || srqs[0] || mws[0])))
		destroy_one();
	type = kind->type;
	while (count < n)
		make_one(kind);
	/* Those that are used again complete nothing when they are reset; what they completed before goes. */
	drain();
	for (int i = 0; i < n; i++) {
		to_state(i, kind, round);
		tell("qp %d %u %u %u %u %u\n", i, qps[i]->qp_num, 0x700000 + i, psn_of(i, round, false),
		     psn_of(i, round, true), mws[i] ? memory_bind(&areas[MW_OWN], qps[i], mws[i]) : 0);
	}
	drain();
	drop_events(false);
}

void tell_states(void)
{
	for (int i = 0; i < count; i++) {
		struct ibv_qp_init_attr init;
		struct ibv_qp_attr attr;

		MUST(ibv_query_qp(qps[i], &attr, IBV_QP_STATE | IBV_QP_RQ_PSN | IBV_QP_SQ_PSN, &init));
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
					   !strcmp(op, "read") ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE };

	CHECK(index >= 0 && index < count && len <= REGION, "post %d %s %u", index, op, len);
	w.wr.rdma.remote_addr = 0x123456789000;
	w.wr.rdma.rkey = 0xfeed;
	MUST(post_send(qps[index], &w));
}
