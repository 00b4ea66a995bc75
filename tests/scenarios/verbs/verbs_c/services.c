// SPDX-License-Identifier: GPL-2.0
/* Cases about unreliable services: what arrives, what is lost and counted, and the state SQE. */
#include "datagrams.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

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

static void uc_messages(void)
{
	static const uint32_t lengths[] = { 0, 1, 1023, 1024, 1025, 4097, 40000 };
	static const enum ibv_wr_opcode ops[] = { IBV_WR_SEND, IBV_WR_RDMA_WRITE };

	for (size_t i = 0; i < COUNT(lengths); i++)
		for (size_t k = 0; k < COUNT(ops); k++) {
			struct side *from = i % 2 ? &p.a : &p.b, *to = i % 2 ? &p.b : &p.a;

			if (ops[k] == IBV_WR_SEND || lengths[i] == 0) {
				move(ops[k], from, 0, to, HALF, lengths[i], 10 * i + k);
				continue;
			}
			/* A WRITE completes when it has left: that it has arrived a SEND behind it says. */
			fill(from->buf, lengths[i], i);
			memset(to->buf + HALF, 0xee, lengths[i] + 1);
			post_recv(to, 3, NULL, 0);
			post_at(from, ops[k], 1, 0, lengths[i], to, HALF);
			post_one(from, IBV_WR_SEND, 2, 0, 0);
			expect(from, 1, IBV_WC_SUCCESS, "WRITE");
			expect(from, 2, IBV_WC_SUCCESS, "SEND behind it");
			expect(to, 3, IBV_WC_SUCCESS, "the receive");
			compare(to->buf + HALF, lengths[i], i, "what was written");
			CHECK(to->buf[HALF + lengths[i]] == 0xee, "the byte behind it was written");
		}
}

static void uc_immediate(void)
{
	for (int i = 0; i < 4; i++) {
		struct ibv_sge list = sge(&p.a, 0, 3000), room = sge(&p.b, HALF, 4000);
		struct ibv_send_wr w = wr(i % 2 ? IBV_WR_RDMA_WRITE_WITH_IMM : IBV_WR_SEND_WITH_IMM, i, &list, 1);

		w.imm_data = 0x01020304 + i;
		fill(p.a.buf, 3000, i);
		if (i % 2)
			aim(&w, &p.b, HALF);
		post_recv(&p.b, i, &room, i % 2 ? 0 : 1);
		post(&p.a, &w);
		expect(&p.a, i, IBV_WC_SUCCESS, "with immediate data");
		struct ibv_wc wc = expect(&p.b, i, IBV_WC_SUCCESS, "its receive");

		CHECK(wc.wc_flags == IBV_WC_WITH_IMM && wc.imm_data == (uint32_t)(0x01020304 + i), "immediate data %x",
		      wc.imm_data);
		CHECK(wc.opcode == (i % 2 ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV) && wc.byte_len == 3000,
		      "opcode %d, %u bytes", wc.opcode, wc.byte_len);
		compare(p.b.buf + HALF, 3000, i, "data");
	}
}

static void uc_no_receive(void)
{
	for (int i = 0; i < 3; i++) {
		struct ibv_sge list = sge(&p.a, 0, i ? 3000 : 1);
		struct ibv_send_wr w = wr(i == 2 ? IBV_WR_RDMA_WRITE_WITH_IMM : IBV_WR_SEND, i, &list, 1);

		aim(&w, &p.b, 0);
		lose(&p.a, &p.b, &w, "lost_no_receive");
		send_checked(&p.a, &p.b, 20 + i);
	}
}

static void uc_too_long(void)
{
	struct ibv_sge list = sge(&p.a, 0, 3000);
	struct ibv_send_wr w = wr(IBV_WR_SEND, 1, &list, 1);

	post_room(&p.b, 7, 0, 2999);
	lose(&p.a, &p.b, &w, "lost_too_long");
	/* The receive is used for the next one. */
	fill(p.a.buf, 2999, 3);
	post_one(&p.a, IBV_WR_SEND, 2, 0, 2999);
	expect(&p.a, 2, IBV_WC_SUCCESS, "one that fits");
	expect(&p.b, 7, IBV_WC_SUCCESS, "its receive");
	compare(p.b.buf, 2999, 3, "data");
}

static void uc_denied(void)
{
	memset(p.b.buf, 0xee, 2 * HALF);
	for (int i = 0; i < 3; i++) {
		struct ibv_sge list = sge(&p.a, 0, 3000);
		struct ibv_send_wr w = wr(IBV_WR_RDMA_WRITE, i, &list, 1);

		aim(&w, &p.b, i == 0 ? 2 * HALF - 2999 : 0);
		if (i == 1)
			w.wr.rdma.rkey ^= 0x100;
		if (i == 2) {
			struct ibv_qp_attr attr = { .qp_access_flags = 0 };

			MUST(ibv_modify_qp(p.b.qp, &attr, IBV_QP_ACCESS_FLAGS));
		}
		lose(&p.a, &p.b, &w, "lost_denied");
	}
	for (size_t i = 0; i < 2 * HALF; i++)
		CHECK(p.b.buf[i] == 0xee, "byte %zu was written", i);
	send_checked(&p.a, &p.b, 9);
}

/* The local memory of a request is not there: the send queue ends, receives go on, and RTS is the way back. */
static void uc_sqe(void)
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

/* What a receive names is not there: it ends in error, and with it the queue pair; the sender does not learn it. */
static void uc_receive_fails(void)
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

/* What UC does not have is refused when it is posted, and harms nothing. */
static void uc_refuses(void)
{
	static const enum ibv_wr_opcode ops[] = { IBV_WR_RDMA_READ, IBV_WR_ATOMIC_CMP_AND_SWP,
						  IBV_WR_ATOMIC_FETCH_AND_ADD };
	struct ibv_qp_attr attr = { .timeout = 14, .retry_cnt = 7 };

	for (size_t i = 0; i < COUNT(ops); i++) {
		struct ibv_sge list = sge(&p.a, 0, 8);
		struct ibv_send_wr w = wr(ops[i], i, &list, 1), *bad = NULL;

		aim(&w, &p.b, 0);
		CHECK(ibv_post_send(p.a.qp, &w, &bad) && bad == &w, "operation %d was taken", ops[i]);
		expect_none(&p.a, 5, "of what was refused");
	}
	CHECK(ibv_modify_qp(p.a.qp, &attr, IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT) == EINVAL, "a timeout was taken");
	CHECK(to_state(&p.a, IBV_QPS_SQE) == EINVAL, "a user moved it to SQE");
	send_checked(&p.a, &p.b, 1);
}

static void uc_states(void)
{
	post_recv(&p.b, 1, NULL, 0);
	MUST(to_state(&p.a, IBV_QPS_SQD));
	post_one(&p.a, IBV_WR_SEND, 2, 0, 0);
	expect_none(&p.a, 50, "of a send posted in SQD");
	MUST(to_state(&p.a, IBV_QPS_RTS));
	expect(&p.a, 2, IBV_WC_SUCCESS, "the send that waited");
	expect(&p.b, 1, IBV_WC_SUCCESS, "its receive");
	MUST(to_state(&p.a, IBV_QPS_ERR));
	post_one(&p.a, IBV_WR_SEND, 2, 0, 0);
	expect(&p.a, 2, IBV_WC_WR_FLUSH_ERR, "a send in ERR");
	pair_reconnect(&p, &p.opt);
	send_checked(&p.a, &p.b, 3);
}

#define UC .opt = { .type = IBV_QPT_UC }, .len = 2 * HALF

const struct test_case service_cases[] = {
	{ "uc-messages", uc_messages, "UC: SEND and WRITE of 0 B to 40 kB", UC },
	{ "uc-immediate", uc_immediate, "UC: immediate data, with SEND and WRITE", UC },
	{ "uc-no-receive", uc_no_receive, "UC: a message without a receive is lost and counted", UC },
	{ "uc-too-long", uc_too_long, "UC: a message longer than its receive is lost, and the receive serves the next", UC },
	{ "uc-denied", uc_denied, "UC: a WRITE with a bad key, range or right is lost and counted", UC },
	{ "uc-sqe", uc_sqe, "UC: local memory that is not there leads to SQE, and RTS leads back",
	  .rxe = "goes to ERR", UC },
	{ "uc-receive-fails", uc_receive_fails, "UC: a receive whose memory is not there ends the queue pair", UC },
	{ "uc-refuses", uc_refuses, "UC: READ and atomics are refused when posted", UC },
	{ "uc-states", uc_states, "UC: SQD, ERR and RESET", .rxe = "never sends what was posted in SQD", UC },
	{ NULL },
};
