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

/* What is denied writes nothing; the next message arrives, by a receive that was too short, too. */
CASE("verbs.uc-lost", "UC: what has no receive, a too short one, a bad key, range or right, is lost and counted", UC)
{
	static const struct {
		enum ibv_wr_opcode op;
		uint32_t len, other_key;
		size_t at;
		bool too_short, no_right;
		const char *counter;
	} rows[] = {
		{ IBV_WR_SEND, 1, .counter = "lost_no_receive" },
		{ IBV_WR_SEND, 3000, .counter = "lost_no_receive" },
		{ IBV_WR_RDMA_WRITE_WITH_IMM, 3000, .counter = "lost_no_receive" },
		{ IBV_WR_SEND, 3000, .too_short = true, .counter = "lost_too_long" },
		{ IBV_WR_RDMA_WRITE, 3000, .at = 2 * HALF - 2999, .counter = "lost_denied" },
		{ IBV_WR_RDMA_WRITE, 3000, .other_key = 0x100, .counter = "lost_denied" },
		{ IBV_WR_RDMA_WRITE, 3000, .no_right = true, .counter = "lost_denied" },
	};

	for (size_t i = 0; i < COUNT(rows); i++) {
		struct ibv_sge list = sge(&p.a, 0, rows[i].len);
		struct ibv_send_wr w = wr(rows[i].op, 1, &list, 1);
		struct ibv_qp_attr no_right = { .qp_access_flags = 0 };

		aim(&w, &p.b, rows[i].at);
		w.wr.rdma.rkey ^= rows[i].other_key;
		if (rows[i].no_right)
			MUST(ibv_modify_qp(p.b.qp, &no_right, IBV_QP_ACCESS_FLAGS));
		if (rows[i].too_short)
			post_room(&p.b, 7, 0, 2999);
		memset(p.b.buf, 0xee, 2 * HALF);
		lose(&p.a, &p.b, &w, rows[i].counter);
		for (size_t at = 0; at < 2 * HALF && rows[i].op == IBV_WR_RDMA_WRITE; at++)
			CHECK(p.b.buf[at] == 0xee, "row %zu: byte %zu was written", i, at);
		if (!rows[i].too_short)
			post_room(&p.b, 7, 0, 2999);
		fill(p.a.buf, 2999, i);
		post_one(&p.a, IBV_WR_SEND, 2, 0, 2999);
		expect(&p.a, 2, IBV_WC_SUCCESS, "the next one");
		expect(&p.b, 7, IBV_WC_SUCCESS, "its receive");
		compare(p.b.buf, 2999, i, "data");
	}
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
