// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/* Shared receive queues, and their moves to other rings. */
#include "scenario.h"

static struct control *srq_moved_to(uint32_t entries)
{
	struct control *from = control(RING_SRQ), *to = control(RING_SRQ2);

	to->consumer = from->consumer;
	to->producer = from->producer;
	memcpy(to + 1, from + 1, 4 * 64);
	from->successor = (struct ring_map){ RING_SRQ2, 0x1000, entries, 64 };
	return to;
}

static void move_srq(void)
{
	srq_moved_to(8);
}

static void move_srq_nowhere(void)
{
	srq_moved_to(7);
}

static void move_srq_back(void)
{
	control(RING_SRQ2)->successor = (struct ring_map){ RING_SRQ, 0x1000, 8, 64 };
}

void shared_receive_queue(void)
{
	struct ibv_srq_init_attr attr = { .attr = { 2, 2, 0 } };
	struct ibv_srq_attr change = { .max_wr = 8, .srq_limit = 3 };
	struct ibv_sge sge[4] = { { 0x1000, 10, 1 }, { 0x2000, 20, 2 } };
	struct ibv_recv_wr wr[6], *bad = NULL;
	struct control *c = control(RING_SRQ);
	struct recv_wqe *slot = (void *)(c + 1);
	struct ibv_qp_init_attr qp_attr = { .qp_type = IBV_QPT_RC };
	struct ring_map good = mock.srq, rq = mock.rq;
	struct ibv_qp *qp;
	struct ibv_srq *srq;

	clear_rings();
	errno = 0;
	mock.error = EDQUOT;
	CHECK(!mock.ops.create_srq(pd, &attr) && errno == EDQUOT);
	mock.error = 0;
	mock.srq.stride = 32;
	CHECK(!mock.ops.create_srq(pd, &attr) && errno == EPROTO && mock.objects == 1);
	mock.srq = good;
	srq = mock.ops.create_srq(pd, &attr);
	CHECK(srq && attr.attr.max_wr == 4 && attr.attr.max_sge == 3 && mappings() == 1);
	for (int i = 0; i < 6; i++)
		wr[i] = (struct ibv_recv_wr){ 20 + i, i < 5 ? &wr[i + 1] : NULL, sge, 2 };
	/* A list that is longer than the queue; the flag asks for a doorbell that there is not. */
	c->flags = NEED_DOORBELL;
	CHECK(mock.ops.post_srq_recv(srq, wr, &bad) == ENOMEM && bad == &wr[4] && c->producer == 4);
	CHECK(recv_doorbells() == 0 && slot[3].wr_id == 23 && slot[3].num_sge == 2);
	CHECK(slot[3].sge[1].addr == 0x2000 && slot[3].sge[1].lkey == 2);
	wr[0].num_sge = 4;
	c->consumer = 1;
	CHECK(mock.ops.post_srq_recv(srq, wr, &bad) == EINVAL && bad == wr && c->producer == 4);
	CHECK(!mock.ops.post_srq_recv(srq, &wr[5], &bad) && c->producer == 5);
	CHECK(!mock.ops.query_srq(srq, &change) && change.max_sge == 3);

	/* The limit alone moves nothing; a resize that is refused neither. */
	change = (struct ibv_srq_attr){ .max_wr = 8, .srq_limit = 3 };
	CHECK(!mock.ops.modify_srq(srq, &change, IBV_SRQ_LIMIT));
	mock.error = EINVAL;
	CHECK(mock.ops.modify_srq(srq, &change, IBV_SRQ_MAX_WR) == EINVAL);
	change = (struct ibv_srq_attr){ .max_wr = 1 << 20, .max_sge = 1000, .srq_limit = 3 };
	CHECK(mock.ops.modify_srq(srq, &change, IBV_SRQ_MAX_WR) == EINVAL);
	SAID("modify_srq: max_wr is 1048576, and may be 0 to 65536");
	CHECK(mock.ops.modify_srq(srq, &change, IBV_SRQ_LIMIT) == EINVAL);
	SAID("modify_srq: the kernel refuses it");
	change = (struct ibv_srq_attr){ .max_wr = 8, .srq_limit = 3 };
	mock.error = 0;
	mock.on_srq_resize = move_srq;
	CHECK(!mock.ops.modify_srq(srq, &change, IBV_SRQ_MAX_WR) && mappings() == 1);
	struct control *moved = control(RING_SRQ2);

	wr[1].next = NULL;
	for (int i = 0; i < 4; i++)
		CHECK(!mock.ops.post_srq_recv(srq, &wr[1], &bad));
	CHECK(moved->producer == 9 && c->producer == 5);
	CHECK(mock.ops.post_srq_recv(srq, &wr[1], &bad) == ENOMEM && bad == &wr[1]);
	CHECK(!mock.ops.destroy_srq(srq) && mappings() == 0);

	/* The new ring makes no sense: nothing is posted to the old one. */
	clear_rings();
	srq = mock.ops.create_srq(pd, &attr);
	mock.on_srq_resize = move_srq_nowhere;
	CHECK(mock.ops.modify_srq(srq, &change, IBV_SRQ_MAX_WR) == EPROTO);
	CHECK(mock.ops.post_srq_recv(srq, &wr[1], &bad) == ENOMEM && c->producer == 0);
	mock.on_srq_resize = move_srq_back;
	CHECK(mock.ops.modify_srq(srq, &change, IBV_SRQ_MAX_WR) == EPROTO);
	/* It can be mapped after all: first that, in which the module tells the next place. */
	c->successor.entries = 4;
	CHECK(!mock.ops.modify_srq(srq, &change, IBV_SRQ_MAX_WR) && mappings() == 1);
	CHECK(!mock.ops.post_srq_recv(srq, &wr[1], &bad) && c->producer == 1);

	/* A queue pair with it has no receive queue. */
	qp_attr.srq = srq;
	mock.cap = (struct ibv_qp_cap){ 8, 0, 5, 0, 80 };
	mock.rq = (struct ring_map){};
	qp = mock.ops.create_qp(pd, &qp_attr);
	CHECK(qp && mappings() == 2);
	qp->srq = srq;
	set_state(qp, IBV_QPS_INIT);
	CHECK(mock.ops.post_recv(qp, &wr[1], &bad) == EINVAL && bad == &wr[1]);
	CHECK(!mock.ops.destroy_qp(qp));
	mock.rq = rq;
	mock.error = EBUSY;
	CHECK(mock.ops.destroy_srq(srq) == EBUSY && mappings() == 1);
	mock.error = 0;
	CHECK(!mock.ops.destroy_srq(srq) && mappings() == 0 && mock.objects == 1);
}
