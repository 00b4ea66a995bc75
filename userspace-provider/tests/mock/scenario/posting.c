// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/* Requests of every kind, as they arrive in the rings. */
#include "scenario.h"

void sending(void)
{
	int refused = mock.refused_writes;
	struct ibv_sge sge[6] = { { 0x1000, 10, 1 }, { 0x2000, 0, 2 } };
	struct ibv_send_wr wr[10], *bad = NULL;
	struct control *c = control(RING_SQ);
	struct ibv_qp *qp = create_qp(0);
	char text[] = "inline text";

	memset(wr, 0xff, sizeof(wr));
	for (int i = 0; i < 10; i++) {
		wr[i].wr_id = 1000 + i;
		wr[i].next = i < 9 ? &wr[i + 1] : NULL;
		wr[i].sg_list = sge;
		wr[i].num_sge = 2;
		wr[i].opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
		wr[i].send_flags = IBV_SEND_SIGNALED;
		wr[i].imm_data = 0x11223344;
		wr[i].wr.rdma.remote_addr = 0x123456789a;
		wr[i].wr.rdma.rkey = 0x55;
	}
	for (int state = IBV_QPS_RESET; state < IBV_QPS_RTS; state++) {
		set_state(qp, state);
		bad = NULL;
		CHECK(mock.ops.post_send(qp, wr, &bad) == EINVAL && bad == wr);
		SAID("in its state");
	}
	CHECK(c->producer == 0 && send_doorbells() == 0);

	/*
	 * A list of three, with a doorbell; one, without. What a query that a change has overtaken
	 * says of the state is of no account.
	 */
	set_state(qp, IBV_QPS_RTS);
	qp->state = IBV_QPS_INIT;
	c->flags = NEED_DOORBELL;
	wr[2].next = NULL;
	bad = (void *)0x30;
	CHECK(!mock.ops.post_send(qp, wr, &bad) && bad == (void *)0x30);
	CHECK(c->producer == 3 && send_doorbells() == 1);
	for (int i = 0; i < 3; i++) {
		struct send_wqe *w = send_slot(i);

		CHECK(w->wr_id == 1000 + i && w->opcode == 1 && w->flags == 2);
		CHECK(w->count == 2 && !w->srqn && w->imm == 0x11223344);
		CHECK(w->remote_addr == 0x123456789a && w->rkey == 0x55);
		CHECK(!w->operands[0] && !w->operands[1] && !memcmp(w->sge, sge, 32));
	}
	c->flags = 0;
	wr[3].next = NULL;
	wr[3].sg_list = NULL;
	wr[3].num_sge = 0;
	CHECK(!mock.ops.post_send(qp, &wr[3], &bad));
	CHECK(c->producer == 4 && send_doorbells() == 0 && send_slot(3)->count == 0);

	/* Five do not fit into the four that are left; those that do are under way. */
	c->flags = NEED_DOORBELL;
	wr[8].next = NULL;
	CHECK(mock.ops.post_send(qp, &wr[4], &bad) == ENOMEM && bad == &wr[8]);
	CHECK(c->producer == 8 && send_doorbells() == 1);
	CHECK(mock.ops.post_send(qp, &wr[8], &bad) == ENOMEM && bad == &wr[8]);
	CHECK(c->producer == 8 && send_doorbells() == 0);
	c->consumer = 1;
	CHECK(!mock.ops.post_send(qp, &wr[8], &bad) && c->producer == 9);
	CHECK(send_slot(8)->wr_id == 1008 && send_doorbells() == 1);
	c->consumer = 9;

	/* A malformed request in the middle. */
	wr[1].num_sge = 6;
	CHECK(mock.ops.post_send(qp, wr, &bad) == EINVAL && bad == &wr[1]);
	SAID("num_sge is 6 (0x6), and may be 0 to 5: ");
	CHECK(c->producer == 10 && send_doorbells() == 1);
	wr[1].num_sge = -1;
	CHECK(mock.ops.post_send(qp, &wr[1], &bad) == EINVAL && bad == &wr[1]);
	SAID("num_sge is -1");
	wr[1].num_sge = 1;
	wr[1].sg_list = NULL;
	CHECK(mock.ops.post_send(qp, &wr[1], &bad) == EINVAL);
	SAID("sg_list at 0x0");
	wr[1].num_sge = 0;
	wr[1].opcode = IBV_WR_TSO;
	CHECK(mock.ops.post_send(qp, &wr[1], &bad) == EOPNOTSUPP && bad == &wr[1]);
	SAID("does not have the opcode 10");
	wr[1].opcode = 1000;
	CHECK(mock.ops.post_send(qp, &wr[1], &bad) == EINVAL && bad == &wr[1]);
	SAID("opcode is 1000");
	CHECK(c->producer == 10 && send_doorbells() == 0);

	/* Inline: the bytes are in the slot, and the buffer is free at once. */
	wr[0].next = NULL;
	wr[0].opcode = IBV_WR_SEND;
	wr[0].send_flags = IBV_SEND_INLINE | IBV_SEND_SOLICITED | IBV_SEND_FENCE;
	sge[0] = (struct ibv_sge){ (uintptr_t)text, 7 };
	sge[1] = (struct ibv_sge){ (uintptr_t)text + 7, sizeof(text) - 7 };
	CHECK(!mock.ops.post_send(qp, wr, &bad));
	memset(text, 'x', sizeof(text));
	CHECK(send_slot(10)->count == 12);
	CHECK(!strcmp(send_slot(10)->data, "inline text") && send_slot(10)->flags == 13);
	CHECK(!send_slot(10)->remote_addr && !send_slot(10)->rkey && !send_slot(10)->imm);
	sge[0].length = 81;
	wr[0].num_sge = 1;
	CHECK(mock.ops.post_send(qp, wr, &bad) == EINVAL && bad == wr);
	SAID("inline length is 81 (0x51), and may be 0 to 80");
	CHECK(c->producer == 11 && send_doorbells() == 1);

	/* An error state takes requests: the module flushes them. */
	set_state(qp, IBV_QPS_ERR);
	wr[0].num_sge = 0;
	CHECK(!mock.ops.post_send(qp, wr, &bad) && c->producer == 12);
	CHECK(!mock.ops.post_send(qp, NULL, &bad) && c->producer == 12);

	CHECK(send_doorbells() == 1);

	/* A queue tries the shorter way once; another one, perhaps of another file, for itself. */
	CHECK(mock.refused_writes == refused + 1);

	/* Want of memory passes; what was posted must not be reported as refused. */
	mock.bell_errors = 1200;
	mock.bell_error = ENOMEM;
	CHECK(!mock.ops.post_send(qp, wr, &bad) && c->producer == 13);
	CHECK(mock.failed_bells == 1200 && send_doorbells() == 1201);
	mock.bell_errors = 3;
	mock.bell_error = EINTR;
	CHECK(!mock.ops.post_send(qp, wr, &bad) && send_doorbells() == 4);

	/* A device that is gone. */
	mock.bell_errors = 1;
	mock.bell_error = EIO;
	bad = NULL;
	CHECK(mock.ops.post_send(qp, wr, &bad) == EIO && bad == wr && send_doorbells() == 1);
	CHECK(!mock.ops.destroy_qp(qp));

	qp = create_qp(1);
	set_state(qp, IBV_QPS_RTS);
	wr[0].send_flags = 0;
	CHECK(!mock.ops.post_send(qp, wr, &bad) && send_slot(0)->flags == IBV_SEND_SIGNALED);
	CHECK(!mock.ops.destroy_qp(qp) && mappings() == 0);
	send_doorbells();
}

/* Windows: type 1 is bound by a request that the provider makes. */
void windows(void)
{
	struct ibv_mr region = { .lkey = 0x77 };
	struct ibv_mw_bind bind = { 9, IBV_SEND_SIGNALED, { &region, 0x1000, 0x200, IBV_ACCESS_REMOTE_WRITE } };
	struct ibv_qp *qp = create_qp(0);
	struct ibv_mw *mw;

	mock.error = ENOMEM;
	errno = 0;
	CHECK(!mock.ops.alloc_mw(pd, IBV_MW_TYPE_1) && errno == ENOMEM);
	mock.error = 0;
	mw = mock.ops.alloc_mw(pd, IBV_MW_TYPE_1);
	CHECK(mw && mw->pd == pd && mw->type == IBV_MW_TYPE_1);
	set_state(qp, IBV_QPS_INIT);
	CHECK(mock.ops.bind_mw(qp, mw, &bind) == EINVAL && mw->rkey == 0x12345fe);
	set_state(qp, IBV_QPS_RTS);
	CHECK(!mock.ops.bind_mw(qp, mw, &bind) && mw->rkey == 0x12345ff);
	CHECK(send_slot(0)->wr_id == 9 && send_slot(0)->opcode == 8 && send_slot(0)->flags == 2 && !send_slot(0)->count);
	CHECK(send_slot(0)->remote_addr == 0x1000 && send_slot(0)->rkey == 0x12345ff && send_slot(0)->imm == 0x12345fe);
	CHECK(send_slot(0)->operands[0] == 0x200 && send_slot(0)->operands[1] == (0x77 | 2ull << 32));
	/* Nothing, of no region; the low byte goes round. */
	bind.bind_info = (struct ibv_mw_bind_info){ 0 };
	CHECK(!mock.ops.bind_mw(qp, mw, &bind) && mw->rkey == 0x1234500);
	CHECK(send_slot(1)->imm == 0x12345ff && !send_slot(1)->operands[0] && !send_slot(1)->operands[1]);
	mock.error = EBUSY;
	CHECK(mock.ops.dealloc_mw(mw) == EBUSY);
	mock.error = 0;
	CHECK(!mock.ops.dealloc_mw(mw) && !mock.ops.destroy_qp(qp));
	send_doorbells();
}

/* Requests made call by call. */
void sending_by_calls(void)
{
	struct ibv_qp_init_attr_ex ex = { .qp_type = IBV_QPT_RC, .pd = pd };
	struct ibv_sge sge[6] = { { 0x1000, 10, 1 }, { 0x2000, 0, 2 } };
	char text[] = "inline text";
	struct ibv_data_buf bufs[2] = { { text, 7 }, { text + 7, sizeof(text) - 7 } };
	struct control *c = control(RING_SQ);
	struct ibv_qp_ex *x;
	struct ibv_qp *qp;

	mock.cap = (struct ibv_qp_cap){ 8, 4, 5, 3, 80 };
	memset((void *)c, 0, sizeof(*c));
	/* Without the attribute it has not the interface. */
	ex.comp_mask = IBV_QP_INIT_ATTR_PD;
	qp = mock.ops.create_qp_ex(context, &ex);
	CHECK(qp && !ibv_qp_to_qp_ex(qp) && !mock.ops.destroy_qp(qp));
	ex.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
	ex.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | IBV_QP_EX_WITH_RDMA_READ |
			    IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD;
	qp = mock.ops.create_qp_ex(context, &ex);
	CHECK(qp && (x = ibv_qp_to_qp_ex(qp)));

	/* Too soon. */
	set_state(qp, IBV_QPS_RTR);
	ibv_wr_start(x);
	ibv_wr_send(x);
	CHECK(ibv_wr_complete(x) == EINVAL && !c->producer);

	/* One of each kind, and nothing is seen before the end. */
	set_state(qp, IBV_QPS_RTS);
	c->flags = NEED_DOORBELL;
	ibv_wr_start(x);
	x->wr_id = 1;
	x->wr_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE;
	ibv_wr_send(x);
	ibv_wr_set_inline_data_list(x, 2, bufs);
	memset(text, 'x', sizeof(text));
	x->wr_id = 2;
	x->wr_flags = IBV_SEND_FENCE;
	ibv_wr_rdma_write_imm(x, 0x55, 0x123456789a, 0x11223344);
	ibv_wr_set_sge_list(x, 2, sge);
	x->wr_id = 3;
	x->wr_flags = 0;
	ibv_wr_rdma_read(x, 0x56, 0x1000);
	ibv_wr_set_sge(x, 7, 0x2000, 20);
	x->wr_id = 4;
	ibv_wr_atomic_cmp_swp(x, 0x57, 0x1008, 5, 6);
	ibv_wr_set_sge(x, 7, 0x2000, 8);
	x->wr_id = 5;
	ibv_wr_atomic_fetch_add(x, 0x58, 0x1010, 9);
	CHECK(!c->producer && send_doorbells() == 0);
	CHECK(!ibv_wr_complete(x));
	CHECK(c->producer == 5 && send_doorbells() == 1);
	CHECK(send_slot(0)->wr_id == 1 && send_slot(0)->opcode == IBV_WR_SEND && send_slot(0)->count == 12);
	CHECK(send_slot(0)->flags == (IBV_SEND_SIGNALED | IBV_SEND_INLINE) && !strcmp(send_slot(0)->data, "inline text"));
	CHECK(send_slot(1)->wr_id == 2 && send_slot(1)->opcode == IBV_WR_RDMA_WRITE_WITH_IMM);
	CHECK(send_slot(1)->flags == IBV_SEND_FENCE && send_slot(1)->imm == 0x11223344);
	CHECK(send_slot(1)->remote_addr == 0x123456789a && send_slot(1)->rkey == 0x55);
	CHECK(send_slot(1)->count == 2 && !memcmp(send_slot(1)->sge, sge, 32));
	CHECK(send_slot(2)->opcode == IBV_WR_RDMA_READ && send_slot(2)->rkey == 0x56 && send_slot(2)->count == 1);
	CHECK(!send_slot(2)->imm && !send_slot(2)->flags);
	CHECK(send_slot(3)->opcode == IBV_WR_ATOMIC_CMP_AND_SWP && send_slot(3)->remote_addr == 0x1008);
	CHECK(send_slot(3)->operands[0] == 5 && send_slot(3)->operands[1] == 6);
	CHECK(send_slot(4)->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD && send_slot(4)->rkey == 0x58);
	CHECK(send_slot(4)->operands[0] == 9 && !send_slot(4)->operands[1] && !send_slot(4)->count);

	/* Abort, and an empty list, leave the ring as it was. */
	ibv_wr_start(x);
	ibv_wr_send(x);
	ibv_wr_send(x);
	ibv_wr_abort(x);
	ibv_wr_start(x);
	CHECK(!ibv_wr_complete(x) && c->producer == 5 && send_doorbells() == 0);

	/* All or nothing: there is room for three. */
	ibv_wr_start(x);
	for (int i = 0; i < 4; i++)
		ibv_wr_send(x);
	CHECK(ibv_wr_complete(x) == ENOMEM && c->producer == 5 && send_doorbells() == 0);
	ibv_wr_start(x);
	for (int i = 0; i < 3; i++)
		ibv_wr_send(x);
	CHECK(!ibv_wr_complete(x) && c->producer == 8 && send_doorbells() == 1);
	c->consumer = 8;

	/* What goes wrong is told in the end, and the first of it. */
	for (int i = 0; i < 12; i++) {
		int want = i < 5 ? EOPNOTSUPP : EINVAL;

		ibv_wr_start(x);
		x->wr_flags = i == 5 ? IBV_SEND_IP_CSUM : 0;
		if (i > 5)
			i == 9 ? ibv_wr_rdma_read(x, 1, 2) : ibv_wr_send(x);
		switch (i) {
		case 0: ibv_wr_rdma_write(x, 1, 2); break;
		case 1: ibv_wr_local_inv(x, 1); break;
		case 2: ibv_wr_send_inv(x, 1); break;
		case 3: ibv_wr_send_tso(x, text, 1, 1); break;
		case 4: ibv_wr_bind_mw(x, NULL, 1, NULL); break;
		case 5: ibv_wr_send(x); break;
		case 6: ibv_wr_set_sge_list(x, 6, sge); break;
		case 7: ibv_wr_set_inline_data(x, text, 81); break;
		case 8: ibv_wr_set_inline_data(x, text, 1ull << 32 | 1); break;
		case 9: ibv_wr_set_inline_data(x, text, 1); break;
		case 10: ibv_wr_set_ud_addr(x, NULL, 1, 1); break;
		case 11: ibv_wr_set_xrc_srqn(x, 1); break;
		}
		ibv_wr_set_sge_list(x, 100, sge);
		CHECK(ibv_wr_complete(x) == want && c->producer == 8);
	}
	ibv_wr_start(x);
	ibv_wr_set_sge(x, 1, 2, 3);
	CHECK(ibv_wr_complete(x) == EINVAL && c->producer == 8);

	/* A device that is gone. */
	mock.bell_errors = 1;
	mock.bell_error = EIO;
	x->wr_flags = 0;
	ibv_wr_start(x);
	ibv_wr_send(x);
	CHECK(ibv_wr_complete(x) == EIO && send_doorbells() == 1);
	CHECK(!mock.ops.destroy_qp(qp) && mappings() == 0);
}

void receiving(void)
{
	struct ibv_sge sge[4] = { { 0x1000, 10, 1 }, { 0x2000, 0, 2 }, { 3, 4, 5 } };
	struct ibv_recv_wr wr[6], *bad = NULL;
	struct control *c = control(RING_RQ);
	struct ibv_qp *qp = create_qp(0);

	for (int i = 0; i < 6; i++)
		wr[i] = (struct ibv_recv_wr){ 2000 + i, i < 5 ? &wr[i + 1] : NULL, sge, 3 };
	CHECK(mock.ops.post_recv(qp, wr, &bad) == EINVAL && bad == wr && !c->producer);
	set_state(qp, IBV_QPS_INIT);
	CHECK(mock.ops.post_recv(qp, wr, &bad) == ENOMEM && bad == &wr[4]);
	CHECK(c->producer == 4 && recv_doorbells() == 0);
	for (int i = 0; i < 4; i++) {
		struct recv_wqe *w = recv_slot(i);

		CHECK(w->wr_id == 2000 + i && w->num_sge == 3 && !w->reserved);
		CHECK(!memcmp(w->sge, sge, 48));
	}
	c->consumer = 2;
	c->flags = NEED_DOORBELL;
	set_state(qp, IBV_QPS_ERR);
	CHECK(!mock.ops.post_recv(qp, &wr[4], &bad) && c->producer == 6);
	CHECK(recv_doorbells() == 1 && recv_slot(5)->wr_id == 2005);
	c->consumer = 6;
	wr[1].num_sge = 4;
	CHECK(mock.ops.post_recv(qp, wr, &bad) == EINVAL && bad == &wr[1]);
	SAID("num_sge of a receive is 4 (0x4), and may be 0 to 3");
	CHECK(c->producer == 7 && recv_doorbells() == 1);
	CHECK(!mock.ops.destroy_qp(qp));
}
