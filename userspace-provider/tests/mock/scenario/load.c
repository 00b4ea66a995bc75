// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/* Many threads, and the module in the middle. */
#include "scenario.h"

#define ROUNDS 12000

/* Completes for three QPs in turn, the number of the round as wr_id. */
static void *completer(void *arg)
{
	struct control *c = control(RING_CQ);

	for (uint64_t i = 0; i < ROUNDS; i++) {
		while (c->producer - c->consumer == 16)
			sched_yield();
		complete_for(1 + i % 3, i);
	}
	return NULL;
}

/* While the module completes, one QP is reset again and again: nothing of others gets lost or twice. */
void forgetting_under_load(void)
{
	struct ibv_qp_attr to_reset = { .qp_state = IBV_QPS_RESET };
	uint64_t next[3] = { 0, 1, 2 };
	struct ibv_wc wc[4];
	struct ibv_qp *qp;
	pthread_t thread;
	int n = 0, turn = 0;

	clear_rings();
	send_cq = recv_cq = create_cq();
	mock.qp_num = 1;
	qp = create_qp(0);
	CHECK(!pthread_create(&thread, NULL, completer, NULL));
	while (next[1] < ROUNDS || next[2] < ROUNDS) {
		if (turn++ % 2)
			CHECK(!mock.ops.modify_qp(qp, &to_reset, IBV_QP_STATE));
		n = mock.ops.poll_cq(send_cq, 4, wc);
		CHECK(n >= 0);
		for (int i = 0; i < n; i++) {
			int of = wc[i].qp_num - 1;

			CHECK(wc[i].wr_id % 3 == of && wc[i].wr_id >= next[of]);
			CHECK(!of || wc[i].wr_id == next[of]);
			next[of] = wc[i].wr_id + 3;
		}
	}
	pthread_join(thread, NULL);
	CHECK(!mock.ops.destroy_qp(qp) && !poll_all(send_cq));
	CHECK(!mock.ops.destroy_cq(send_cq) && mappings() == 0);
	send_cq = recv_cq = NULL;
	mock.qp_num = 0;
}

#define POSTERS 4
#define EACH 20000

static struct ibv_qp *shared;
static struct ibv_cq *shared_cq;
static _Atomic int polled;
static unsigned char seen[POSTERS * EACH], completed[POSTERS * EACH];

static void *poster(void *arg)
{
	struct ibv_send_wr wr = { .opcode = IBV_WR_SEND }, *bad;

	for (uintptr_t i = 0; i < EACH; i++) {
		wr.wr_id = (uintptr_t)arg * EACH + i;
		for (;;) {
			int err = mock.ops.post_send(shared, &wr, &bad);

			if (!err)
				break;
			CHECK(err == ENOMEM);
			sched_yield();
		}
	}
	return NULL;
}

static void *poller(void *arg)
{
	struct ibv_wc wc[3];

	while (polled < POSTERS * EACH) {
		int n = mock.ops.poll_cq(shared_cq, 3, wc);

		for (int i = 0; i < n; i++)
			CHECK(!__atomic_exchange_n(&completed[wc[i].wr_id], 1, __ATOMIC_RELAXED));
		polled += n;
		if (!n)
			sched_yield();
	}
	return NULL;
}

/* Threads that post and threads that poll, and a module in the middle: nothing is lost or twice. */
void threads(void)
{
	struct control *c, *cc = control(RING_CQ);
	pthread_t thread[POSTERS + 2];
	uint32_t taken = 0;

	shared = create_qp(0);
	set_state(shared, IBV_QPS_RTS);
	shared_cq = create_cq();
	CHECK(shared_cq);
	c = control(RING_SQ);
	for (uintptr_t i = 0; i < POSTERS + 2; i++)
		CHECK(!pthread_create(&thread[i], NULL, i < POSTERS ? poster : poller, (void *)i));
	while (taken < POSTERS * EACH) {
		uint64_t id;

		if (c->producer == taken || cc->producer - cc->consumer == 16) {
			sched_yield();
			continue;
		}
		id = send_slot(taken)->wr_id;
		CHECK(id < POSTERS * EACH && !seen[id]++);
		c->consumer = ++taken;
		complete(id);
	}
	for (int i = 0; i < POSTERS + 2; i++)
		pthread_join(thread[i], NULL);
	CHECK(c->producer == POSTERS * EACH && polled == POSTERS * EACH);
	CHECK(!mock.ops.destroy_qp(shared) && !mock.ops.destroy_cq(shared_cq));
}
