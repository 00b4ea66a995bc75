// SPDX-License-Identifier: GPL-2.0
/* Completion queues, queue pairs and their connection. */
#include "kuser.h"

const char *const way_names[WAYS] = { "direct", "softirq", "workqueue", "unbound", "by hand" };

static const enum ib_poll_context polls[WAYS] = {
	[BY_DIRECT] = IB_POLL_DIRECT,
	[BY_SOFTIRQ] = IB_POLL_SOFTIRQ,
	[BY_WORKQUEUE] = IB_POLL_WORKQUEUE,
	[BY_UNBOUND] = IB_POLL_UNBOUND_WORKQUEUE,
};

static void take(struct queue *q)
{
	struct ib_wc wc[4];
	int n;

	do {
		while ((n = ib_poll_cq(q->cq, ARRAY_SIZE(wc), wc)) > 0)
			for (int i = 0; i < n; i++)
				wc[i].wr_cqe->done(q->cq, &wc[i]);
		/* A completion that came in between raises no event: then it says so. */
	} while (q->rearms &&
		 ib_req_notify_cq(q->cq, IB_CQ_NEXT_COMP | IB_CQ_REPORT_MISSED_EVENTS) > 0);
}

static void on_event(struct ib_cq *cq, void *context)
{
	struct queue *q = context;

	if (atomic_inc_return(&q->inside) != 1)
		fail(q->t, "two handlers of one completion queue at a time");
	if (!on_completion(q->t, cq, true))
		return;
	take(q);
	atomic_dec(&q->inside);
}

static void on_cq_error(struct ib_event *event, void *context)
{
	struct queue *q = context;

	fail(q->t, "event %d of a completion queue", event->event);
}

struct queue *make_queue(struct test *t, int side, enum way way, u32 cqe)
{
	struct ib_device *dev = t->place[side].dev;
	struct queue *q = new_memory(t, sizeof(*q));
	struct ib_cq_init_attr attr = { .cqe = cqe };

	q->t = t;
	q->way = way;
	q->rearms = true;
	if (way == BY_HAND)
		q->cq = ib_create_cq(dev, on_event, on_cq_error, q, &attr);
	else
		q->cq = ib_alloc_cq(dev, q, cqe, side, polls[way]);
	CHECK(t, !IS_ERR(q->cq), "a completion queue, %s: error %ld", way_names[way],
	      PTR_ERR(q->cq));
	list_add_tail(&q->list, &t->queues);
	if (way == BY_HAND)
		ib_req_notify_cq(q->cq, IB_CQ_NEXT_COMP);
	return q;
}

void end_queue(struct queue *q)
{
	list_del(&q->list);
	if (q->way == BY_HAND)
		ib_destroy_cq(q->cq);
	else
		ib_free_cq(q->cq);
}

static void end_domain(void *object)
{
	ib_dealloc_pd(*(struct ib_pd **)object);
}

static struct ib_pd *make_domain(struct test *t, struct ib_device *dev)
{
	struct ib_pd *pd = ib_alloc_pd(dev, 0);

	CHECK(t, !IS_ERR(pd), "a protection domain: error %ld", PTR_ERR(pd));
	*(struct ib_pd **)new_object(t, sizeof(pd), end_domain) = pd;
	return pd;
}

struct end *make_end(struct test *t, int side, const struct wish *wish)
{
	struct end *e = new_memory(t, sizeof(*e));
	struct ib_qp_init_attr init = {
		.qp_type = wish->kind,
		.sq_sig_type = IB_SIGNAL_REQ_WR,
		.cap.max_send_wr = 64,
		.cap.max_send_sge = 4,
		.cap.max_recv_wr = 64,
		.cap.max_recv_sge = 4,
		.cap.max_inline_data = wish->inline_data,
	};
	struct ib_qp *qp;

	e->t = t;
	e->at = &t->place[side];
	e->kind = wish->kind;
	e->pd = wish->mate ? wish->mate->pd : make_domain(t, e->at->dev);
	list_add(&e->list, &t->ends);
	e->sends = wish->queue ?: make_queue(t, side, wish->way, wish->cqe ?: 512);
	e->recvs = wish->queue ?: make_queue(t, side, wish->way, wish->cqe ?: 512);
	init.send_cq = e->sends->cq;
	init.recv_cq = e->recvs->cq;
	qp = ib_create_qp(e->pd, &init);
	CHECK(t, !IS_ERR(qp), "a queue pair: error %ld", PTR_ERR(qp));
	e->qp = qp;
	return e;
}

static void change(struct end *e, struct ib_qp_attr *attr, enum ib_qp_state state, int mask)
{
	int err;

	attr->qp_state = state;
	err = ib_modify_qp(e->qp, attr, IB_QP_STATE | mask);
	CHECK(e->t, !err, "to state %d: error %d", state, err);
}

static void climb(struct end *e, struct end *to, const struct wish *wish)
{
	bool rc = e->kind == IB_QPT_RC, ud = e->kind == IB_QPT_UD;
	struct ib_qp_attr attr = {
		.port_num = 1,
		.qkey = QKEY,
		.qp_access_flags = IB_ACCESS_LOCAL_WRITE | IB_ACCESS_REMOTE_WRITE,
		.path_mtu = IB_MTU_1024,
		.dest_qp_num = to->qp->qp_num,
		.rq_psn = to->qp->qp_num & 0xffff,
		.sq_psn = e->qp->qp_num & 0xffff,
		.max_dest_rd_atomic = 4,
		.max_rd_atomic = 4,
		.min_rnr_timer = wish->rnr_timer ?: 1,
		.timeout = 16,
		.retry_cnt = 7,
		.rnr_retry = 7,
	};
	unsigned long flags;
	struct ib_ah *ah;

	if (rc)
		attr.qp_access_flags |= IB_ACCESS_REMOTE_READ | IB_ACCESS_REMOTE_ATOMIC;
	attr.ah_attr.type = RDMA_AH_ATTR_TYPE_ROCE;
	rdma_ah_set_port_num(&attr.ah_attr, 1);
	rdma_ah_set_grh(&attr.ah_attr, &to->at->gid, 0, e->at->index, 64, 0);
	change(e, &attr, IB_QPS_INIT, IB_QP_PKEY_INDEX | IB_QP_PORT |
	       (ud ? IB_QP_QKEY : IB_QP_ACCESS_FLAGS));
	change(e, &attr, IB_QPS_RTR,
	       (ud ? 0 : IB_QP_AV | IB_QP_PATH_MTU | IB_QP_DEST_QPN | IB_QP_RQ_PSN) |
	       (rc ? IB_QP_MAX_DEST_RD_ATOMIC | IB_QP_MIN_RNR_TIMER : 0));
	change(e, &attr, IB_QPS_RTS, IB_QP_SQ_PSN |
	       (rc ? IB_QP_TIMEOUT | IB_QP_RETRY_CNT | IB_QP_RNR_RETRY |
		IB_QP_MAX_QP_RD_ATOMIC : 0));
	e->peer = to;
	e->connected = true;
	if (!ud)
		return;
	/* Handles come, and go, where nobody may sleep. */
	lock_to_post(&e->t->lock, &flags);
	ah = rdma_create_ah(e->pd, &attr.ah_attr, 0);
	unlock_posted(&e->t->lock, &flags);
	CHECK(e->t, !IS_ERR(ah), "an address handle: error %ld", PTR_ERR(ah));
	e->ah = ah;
}

void connect(struct end *a, struct end *b, const struct wish *wish)
{
	climb(a, b, wish);
	climb(b, a, wish);
}

void make_pair(struct test *t, const struct wish *wish, struct end **a, struct end **b)
{
	*a = make_end(t, 0, wish);
	*b = make_end(t, 1, wish);
	connect(*a, *b, wish);
}

int to_state(struct end *e, enum ib_qp_state state)
{
	struct ib_qp_attr attr = { .qp_state = state };

	return ib_modify_qp(e->qp, &attr, IB_QP_STATE);
}

static int state_of(struct end *e)
{
	struct ib_qp_init_attr init;
	struct ib_qp_attr attr;

	return ib_query_qp(e->qp, &attr, IB_QP_STATE, &init) ?: attr.qp_state;
}

/* The far end learns of an error a little later. */
bool comes_to(struct end *e, enum ib_qp_state state)
{
	return wait_for(e->t, state_of(e) == state);
}

/* What a case has left without arming it must raise events again, for ib_core waits for them. */
static void arm_again(struct queue *q)
{
	if (!q || q->way != BY_HAND || q->rearms)
		return;
	q->rearms = true;
	take(q);
}

void end_end(struct end *e)
{
	unsigned long flags;

	if (e->qp) {
		if (e->connected) {
			arm_again(e->sends);
			arm_again(e->recvs);
			ib_drain_qp(e->qp);
		}
		ib_destroy_qp(e->qp);
		e->qp = NULL;
	}
	if (e->ah) {
		lock_to_post(&e->t->lock, &flags);
		rdma_destroy_ah(e->ah, 0);
		unlock_posted(&e->t->lock, &flags);
	}
	e->ah = NULL;
	e->connected = false;
}

/* Ends all that was made, in whatever state it is: first who uses it, and who posts. */
void end_all(struct test *t)
{
	struct queue *q, *next_q;
	struct end *e;

	stop_flows(t);
	list_for_each_entry(e, &t->ends, list)
		end_end(e);
	list_for_each_entry_safe(q, next_q, &t->queues, list)
		end_queue(q);
	end_objects(t);
}
