// SPDX-License-Identifier: GPL-2.0
/* Cases about unreliable services: what arrives, what is lost and counted, and the state SQE. */
#include "datagrams.h"

#define UC .opt = { .type = IBV_QPT_UC }, .len = 2 * HALF

long counter_of(const char *name)
{
	return hw_counter(places[0].device, name);
}

void want_counted(const char *name, long before)
{
	double end = now() + patience();

	while (before >= 0 && counter_of(name) <= before)
		CHECK(now() < end, "%s does not count", name);
	if (before < 0)
		usleep(300000);
}

void lose(struct side *from, struct side *to, struct ibv_send_wr *w, const char *counter)
{
	long before = counter_of(counter);

	post(from, w);
	expect(from, w->wr_id, IBV_WC_SUCCESS, "what is lost on the other side");
	want_counted(counter, before);
	expect_none(to, 5, "of what was lost");
	want_state(from, IBV_QPS_RTS, "the sender");
	want_state(to, IBV_QPS_RTS, "the receiver");
}

CASE("verbs.uc-sqe", "UC: local memory that is not there leads to SQE, and RTS leads back", .rxe = "goes to ERR", UC)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTS, .cur_qp_state = IBV_QPS_SQE };

	for (int round = 0; round < 3; round++) {
		struct ibv_sge good = sge(&p.a, 0, 3000), wrong = good;
		struct ibv_send_wr first = wr(IBV_WR_SEND, 1, &good, 1), bad = wr(IBV_WR_SEND, 2, &wrong, 1),
				   behind = wr(IBV_WR_RDMA_WRITE, 3, &good, 1);

		wrong.lkey ^= 0x100;
		aim(&behind, &p.b, HALF);
		behind.send_flags = 0;
		first.next = &bad;
		bad.next = &behind;
		post_room(&p.b, 5, HALF, 4000);
		post(&p.a, &first);
		expect(&p.a, 1, IBV_WC_SUCCESS, "before the bad one");
		expect(&p.a, 2, IBV_WC_LOC_PROT_ERR, "the bad one");
		expect(&p.a, 3, IBV_WC_WR_FLUSH_ERR, "behind it");
		expect(&p.b, 5, IBV_WC_SUCCESS, "the receive");
		want_state(&p.a, IBV_QPS_SQE, "the sender");
		want_state(&p.b, IBV_QPS_RTS, "the receiver");
		post_one(&p.a, IBV_WR_SEND, 4, 0, 3000);
		expect(&p.a, 4, IBV_WC_WR_FLUSH_ERR, "posted in SQE");
		move(IBV_WR_SEND, &p.b, 0, &p.a, HALF, 3000, 6 + round);
		if (round == 2)
			break;
		/* With and without the state that the user believes it to be in. */
		MUST(ibv_modify_qp(p.a.qp, &attr, IBV_QP_STATE | (round ? IBV_QP_CUR_STATE : 0)));
		move(IBV_WR_SEND, &p.a, 0, &p.b, HALF, 3000, 9 + round);
	}
	post_recv(&p.a, 8, NULL, 0);
	MUST(to_state(&p.a, IBV_QPS_ERR));
	expect(&p.a, 8, IBV_WC_WR_FLUSH_ERR, "a receive");
}

CASE("verbs.uc-receive-fails", "UC: a receive whose memory is not there ends the queue pair", UC)
{
	struct ibv_sge room = sge(&p.b, HALF, 4000);

	room.lkey ^= 0x100;
	post_recv(&p.b, 2, &room, 1);
	post_recv(&p.b, 3, NULL, 0);
	post_one(&p.a, IBV_WR_SEND, 1, 0, 3000);
	expect(&p.a, 1, IBV_WC_SUCCESS, "the SEND");
	expect(&p.b, 2, IBV_WC_LOC_PROT_ERR, "the bad receive");
	expect(&p.b, 3, IBV_WC_WR_FLUSH_ERR, "the one behind it");
	want_state(&p.b, IBV_QPS_ERR, "the receiver");
	want_state(&p.a, IBV_QPS_RTS, "the sender");
}
