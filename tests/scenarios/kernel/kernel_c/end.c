// SPDX-License-Identifier: GPL-2.0
/* Completion queues, queue pairs and their connection. */
#include <linux/delay.h>
#include <linux/etherdevice.h>
#include <linux/slab.h>
#include <rdma/ib_cache.h>
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

static void take_later(struct work_struct *work)
{
	take(container_of(work, struct queue, work));
}

static void on_event(struct ib_cq *cq, void *context)
{
	struct queue *q = context;

	if (atomic_inc_return(&q->inside) != 1)
		fail(q->t, "two handlers of one completion queue at a time");
	if (!on_completion(q->t, cq, true))
		return;
	if (q->t->defers)
		schedule_work(&q->work);
	else
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
	struct queue *q = kzalloc(sizeof(*q), GFP_KERNEL);

	if (!q)
		return NULL;
	q->t = t;
	q->way = way;
	q->rearms = true;
	INIT_WORK(&q->work, take_later);
	if (way == BY_HAND) {
		struct ib_cq_init_attr attr = { .cqe = cqe };

		q->cq = ib_create_cq(dev, on_event, on_cq_error, q, &attr);
	} else {
		q->cq = ib_alloc_cq(dev, q, cqe, side, polls[way]);
	}
	if (IS_ERR(q->cq)) {
		fail(t, "a completion queue, %s: error %ld", way_names[way], PTR_ERR(q->cq));
		kfree(q);
		return NULL;
	}
	list_add_tail(&q->list, &t->queues);
	if (way == BY_HAND)
		ib_req_notify_cq(q->cq, IB_CQ_NEXT_COMP);
	return q;
}

int end_queue(struct queue *q)
{
	list_del(&q->list);
	if (q->way == BY_HAND) {
		cancel_work_sync(&q->work);
		ib_destroy_cq(q->cq);
		cancel_work_sync(&q->work);
	} else {
		ib_free_cq(q->cq);
	}
	kfree(q);
	return 0;
}

static void hear_end(struct ib_event *event, void *context)
{
	struct end *e = context;

	if (event->event == IB_EVENT_QP_LAST_WQE_REACHED)
		atomic_inc(&e->last_wqes);
	atomic_inc(&e->qp_events);
}

static struct ib_pd *domain_of(struct end *e, const struct wish *wish)
{
	e->borrows = wish->mate || wish->pool;
	if (wish->mate)
		return wish->mate->pd;
	return wish->pool ? wish->pool->pd : ib_alloc_pd(e->at->dev, 0);
}

struct end *make_end(struct test *t, int side, const struct wish *wish)
{
	struct end *e = kzalloc(sizeof(*e), GFP_KERNEL);
	struct ib_qp_init_attr init = {};

	if (!e)
		return NULL;
	e->t = t;
	e->at = &t->place[side];
	e->kind = wish->kind;
	e->pool = wish->pool;
	e->pd = domain_of(e, wish);
	if (IS_ERR(e->pd)) {
		fail(t, "a protection domain: error %ld", PTR_ERR(e->pd));
		kfree(e);
		return NULL;
	}
	list_add(&e->list, &t->ends);
	e->sends = wish->queue ?: make_queue(t, side, wish->way, wish->cqe ?: 512);
	e->recvs = wish->queue ?: make_queue(t, side, wish->way, wish->cqe ?: 512);
	if (!e->sends || !e->recvs)
		return NULL;
	init.event_handler = hear_end;
	init.qp_context = e;
	init.send_cq = e->sends->cq;
	init.recv_cq = e->recvs->cq;
	init.qp_type = wish->kind;
	init.sq_sig_type = IB_SIGNAL_REQ_WR;
	init.cap.max_send_wr = wish->send_wr ?: 64;
	init.cap.max_send_sge = wish->sge ?: 4;
	if (wish->pool) {
		init.srq = wish->pool->srq;
	} else {
		init.cap.max_recv_wr = wish->recv_wr ?: 64;
		init.cap.max_recv_sge = wish->sge ?: 4;
	}
	init.cap.max_inline_data = wish->inline_data;
	e->qp = ib_create_qp(e->pd, &init);
	if (IS_ERR(e->qp)) {
		fail(t, "a queue pair: error %ld", PTR_ERR(e->qp));
		e->qp = NULL;
		return NULL;
	}
	return e;
}

/* The far end is on this machine, so its address is known without asking for it. */
void fill_ah(struct end *e, struct end *to, struct rdma_ah_attr *attr)
{
	struct net_device *ndev;

	memset(attr, 0, sizeof(*attr));
	attr->type = RDMA_AH_ATTR_TYPE_ROCE;
	rdma_ah_set_port_num(attr, 1);
	rdma_ah_set_grh(attr, (union ib_gid *)&to->at->gid->gid, 0, e->at->index, 64, 0);
	rcu_read_lock();
	ndev = rdma_read_gid_attr_ndev_rcu(to->at->gid);
	if (!IS_ERR(ndev))
		ether_addr_copy(attr->roce.dmac, ndev->dev_addr);
	rcu_read_unlock();
}

static int climb(struct end *e, struct end *to, const struct wish *wish)
{
	bool rc = e->kind == IB_QPT_RC, ud = e->kind == IB_QPT_UD;
	struct ib_qp_attr attr = {
		.qp_state = IB_QPS_INIT,
		.port_num = 1,
		.qkey = QKEY,
		.qp_access_flags = IB_ACCESS_LOCAL_WRITE | IB_ACCESS_REMOTE_WRITE,
	};
	int err;

	if (rc)
		attr.qp_access_flags |= IB_ACCESS_REMOTE_READ | IB_ACCESS_REMOTE_ATOMIC;
	err = ib_modify_qp(e->qp, &attr, IB_QP_STATE | IB_QP_PKEY_INDEX | IB_QP_PORT |
			   (ud ? IB_QP_QKEY : IB_QP_ACCESS_FLAGS));
	if (err)
		return fail(e->t, "to INIT: error %d", err);
	attr.qp_state = IB_QPS_RTR;
	attr.path_mtu = IB_MTU_1024;
	attr.dest_qp_num = to->qp->qp_num;
	attr.rq_psn = to->qp->qp_num & 0xffff;
	attr.max_dest_rd_atomic = 4;
	attr.min_rnr_timer = wish->rnr_timer ?: 1;
	fill_ah(e, to, &attr.ah_attr);
	err = ib_modify_qp(e->qp, &attr, IB_QP_STATE |
			   (ud ? 0 : IB_QP_AV | IB_QP_PATH_MTU | IB_QP_DEST_QPN | IB_QP_RQ_PSN) |
			   (rc ? IB_QP_MAX_DEST_RD_ATOMIC | IB_QP_MIN_RNR_TIMER : 0));
	if (err)
		return fail(e->t, "to RTR: error %d", err);
	attr.qp_state = IB_QPS_RTS;
	attr.sq_psn = e->qp->qp_num & 0xffff;
	attr.timeout = 16;
	attr.retry_cnt = wish->retry ?: 7;
	attr.rnr_retry = wish->rnr_retry ?: 7;
	attr.max_rd_atomic = 4;
	err = ib_modify_qp(e->qp, &attr, IB_QP_STATE | IB_QP_SQ_PSN |
			   (rc ? IB_QP_TIMEOUT | IB_QP_RETRY_CNT | IB_QP_RNR_RETRY |
			    IB_QP_MAX_QP_RD_ATOMIC : 0));
	if (err)
		return fail(e->t, "to RTS: error %d", err);
	e->peer = to;
	e->connected = true;
	if (ud) {
		fill_ah(e, to, &attr.ah_attr);
		e->ah = rdma_create_ah(e->pd, &attr.ah_attr, RDMA_CREATE_AH_SLEEPABLE);
		if (IS_ERR(e->ah)) {
			err = PTR_ERR(e->ah);
			e->ah = NULL;
			return fail(e->t, "an address handle: error %d", err);
		}
	}
	return 0;
}

int connect(struct end *a, struct end *b, const struct wish *wish)
{
	return climb(a, b, wish) ?: climb(b, a, wish);
}

int make_pair(struct test *t, const struct wish *wish, struct end **a, struct end **b)
{
	*a = make_end(t, 0, wish);
	*b = *a ? make_end(t, 1, wish) : NULL;
	if (!*b)
		return -EIO;
	return connect(*a, *b, wish);
}

int to_state(struct end *e, enum ib_qp_state state)
{
	struct ib_qp_attr attr = { .qp_state = state };

	return ib_modify_qp(e->qp, &attr, IB_QP_STATE);
}

/* The state, or an error. */
int state_of(struct end *e)
{
	struct ib_qp_init_attr init;
	struct ib_qp_attr attr;

	return ib_query_qp(e->qp, &attr, IB_QP_STATE, &init) ?: attr.qp_state;
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
	if (e->qp) {
		if (e->connected) {
			arm_again(e->sends);
			arm_again(e->recvs);
			if (e->t->defers && e->kind == IB_QPT_UD) {
				/* It refuses what ib_core posts to drain such a queue pair. */
				to_state(e, IB_QPS_ERR);
			} else {
				ib_drain_qp(e->qp);
			}
		}
		ib_destroy_qp(e->qp);
		e->qp = NULL;
	}
	if (e->ah)
		rdma_destroy_ah(e->ah, RDMA_DESTROY_AH_SLEEPABLE);
	e->ah = NULL;
	e->connected = false;
}

/* Ends all that was made, in whatever state it is. */
void end_all(struct test *t)
{
	struct waiter *w, *next_w;
	struct region *m, *next_m;
	struct queue *q, *next_q;
	struct pool *p, *next_p;
	struct room *r, *next_r;
	struct end *e, *next_e;

	WRITE_ONCE(t->ending, true);
	list_for_each_entry(w, &t->waiters, list)
		timer_shutdown_sync(&w->pause);
	list_for_each_entry(e, &t->ends, list)
		end_end(e);
	list_for_each_entry_safe(q, next_q, &t->queues, list)
		end_queue(q);
	free_flows(t);
	list_for_each_entry_safe(m, next_m, &t->regions, list)
		free_region(m);
	list_for_each_entry_safe(e, next_e, &t->ends, list) {
		if (!e->borrows)
			ib_dealloc_pd(e->pd);
		list_del(&e->list);
		kfree(e);
	}
	list_for_each_entry_safe(p, next_p, &t->pools, list)
		end_pool(p);
	list_for_each_entry_safe(r, next_r, &t->rooms, list)
		free_room(r);
	list_for_each_entry_safe(w, next_w, &t->waiters, list) {
		list_del(&w->list);
		kfree(w);
	}
}
