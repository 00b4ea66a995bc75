// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/* Queue pairs that are reset or gone, and what is left of their completions. */
#include "scenario.h"

static void module_drops_all(void)
{
	control(RING_SQ)->consumer = control(RING_SQ)->producer;
	control(RING_RQ)->consumer = control(RING_RQ)->producer;
}

static void module_starts_over(void)
{
	control(RING_SQ)->consumer = control(RING_RQ)->consumer = 0;
}

void reset(void)
{
	struct ibv_send_wr wr = { .opcode = IBV_WR_SEND }, *bad;
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RESET };
	void (*ways[])(void) = { module_drops_all, module_starts_over };
	struct ibv_qp *qp = create_qp(0);

	for (int way = 0; way < 2; way++) {
		struct control *c = control(RING_SQ);

		set_state(qp, IBV_QPS_RTS);
		for (int i = 0; i < 8; i++)
			CHECK(!mock.ops.post_send(qp, &wr, &bad));
		CHECK(mock.ops.post_send(qp, &wr, &bad) == ENOMEM);
		mock.on_reset = ways[way];
		mock.error = EINVAL;
		CHECK(mock.ops.modify_qp(qp, &attr, IBV_QP_STATE) == EINVAL);
		SAID("modify_qp from state 3 to 0 with attr_mask 0x1: the kernel refuses it");
		/* Whatever is in the members that the mask does not name. */
		CHECK(mock.ops.modify_qp(qp, &attr, IBV_QP_MIN_RNR_TIMER) == EINVAL);
		SAID("modify_qp in state 3 with attr_mask 0x8000: the kernel refuses it");
		CHECK(mock.ops.modify_qp(qp, &attr, IBV_QP_AV) == EINVAL);
		SAID("modify_qp in state 3 with attr_mask 0x80: is_global is 0");
		mock.error = 0;
		CHECK(c->producer != c->consumer);
		CHECK(!mock.ops.modify_qp(qp, &attr, IBV_QP_STATE));
		CHECK(c->producer == c->consumer);
		set_state(qp, IBV_QPS_RTS);
		for (int i = 0; i < 8; i++)
			CHECK(!mock.ops.post_send(qp, &wr, &bad));
		CHECK(mock.ops.post_send(qp, &wr, &bad) == ENOMEM);
		CHECK(c->producer - c->consumer == 8);
		c->consumer = c->producer;
	}
	mock.on_reset = NULL;
	CHECK(!mock.ops.destroy_qp(qp));
}

/* What is in the CQ by wr_id, which are below 10, as one number. */
uint64_t poll_all(struct ibv_cq *cq)
{
	struct ibv_wc wc[16];
	uint64_t ids = 0;
	int n = mock.ops.poll_cq(cq, 16, wc);

	CHECK(n >= 0);
	for (int i = 0; i < n; i++)
		ids = 10 * ids + wc[i].wr_id;
	return ids;
}

/* The application frees what the completions of a QP point to when that is reset or gone. */
void completions_of_the_gone(void)
{
	struct ibv_cq_init_attr_ex attr = { .cqe = 16, .wc_flags = IBV_WC_STANDARD_FLAGS };
	struct ibv_qp_attr to_reset = { .qp_state = IBV_QPS_RESET };
	struct ibv_poll_cq_attr poll = {};
	struct control *c = control(RING_CQ);
	struct ibv_qp *one, *two;
	struct ibv_cq_ex *cq;
	int status;
	pid_t child;

	clear_rings();
	c->producer = c->consumer = -6u;
	cq = mock.ops.create_cq_ex(context, &attr);
	CHECK(cq);
	send_cq = recv_cq = ibv_cq_ex_to_cq(cq);
	mock.qp_num = 1;
	one = create_qp(0);
	mock.qp_num = 2;
	two = create_qp(0);

	/* The others keep their order, also where indices wrap, and slots become free. */
	for (int i = 1; i < 10; i++)
		complete_for(1 + i % 2, i);
	CHECK(!mock.ops.modify_qp(one, &to_reset, IBV_QP_STATE));
	CHECK(c->consumer == -2u && poll_all(send_cq) == 13579);
	/* Nothing of it there, nothing there. */
	CHECK(!mock.ops.modify_qp(one, &to_reset, IBV_QP_STATE));
	complete_for(2, 1);
	CHECK(!mock.ops.modify_qp(one, &to_reset, IBV_QP_STATE) && poll_all(send_cq) == 1);
	/* Another change of state, or one that is refused, forgets nothing. */
	complete_for(1, 2);
	mock.error = EINVAL;
	CHECK(mock.ops.modify_qp(one, &to_reset, IBV_QP_STATE) == EINVAL);
	CHECK(mock.ops.destroy_qp(one) == EINVAL);
	mock.error = 0;
	to_reset.qp_state = IBV_QPS_ERR;
	CHECK(!mock.ops.modify_qp(one, &to_reset, IBV_QP_STATE));
	to_reset.qp_state = IBV_QPS_RESET;
	CHECK(poll_all(send_cq) == 2);

	/* In the middle of extended polling, by the thread that polls. */
	for (int i = 1; i < 7; i++)
		complete_for(1 + i % 2, i);
	CHECK(!ibv_start_poll(cq, &poll) && cq->wr_id == 1);
	CHECK(!mock.ops.modify_qp(one, &to_reset, IBV_QP_STATE));
	CHECK(cq->wr_id == 1 && ibv_wc_read_qp_num(cq) == 2);
	CHECK(!ibv_next_poll(cq) && cq->wr_id == 3 && !ibv_next_poll(cq) && cq->wr_id == 5);
	CHECK(ibv_next_poll(cq) == ENOENT);
	ibv_end_poll(cq);
	CHECK(c->consumer == c->producer);

	/* A child of fork has no rings: it must not touch what is at their place. */
	fflush(NULL);
	child = fork();
	CHECK(child >= 0);
	if (!child) {
		struct rlimit none = { 0 };

		setrlimit(RLIMIT_CORE, &none);
		_exit(mock.ops.destroy_qp(two));
	}
	CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && !WEXITSTATUS(status));

	/* A ring that was scribbled over is left alone. */
	c->producer += 100;
	CHECK(!mock.ops.modify_qp(one, &to_reset, IBV_QP_STATE));
	c->producer -= 100;

	complete_for(1, 1);
	complete_for(2, 2);
	complete_for(1, 3);
	CHECK(!mock.ops.destroy_qp(one) && poll_all(send_cq) == 2);
	CHECK(!mock.ops.destroy_qp(two));
	CHECK(!mock.ops.destroy_cq(send_cq) && mappings() == 0);
	send_cq = recv_cq = NULL;
	mock.qp_num = 0;
}
