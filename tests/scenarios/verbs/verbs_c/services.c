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

/* One message, everything of which is checked. */
static void uc_message(struct side *from, struct side *to, enum ibv_wr_opcode op, uint32_t len, unsigned int seed)
{
	bool sends = op == IBV_WR_SEND || op == IBV_WR_SEND_WITH_IMM;
	bool imm = op == IBV_WR_SEND_WITH_IMM || op == IBV_WR_RDMA_WRITE_WITH_IMM;
	struct ibv_sge list = sge(from, 0, len), room = sge(to, HALF, len);
	struct ibv_send_wr w = wr(op, 1, &list, 1);
	struct ibv_wc wc;

	w.imm_data = seed;
	if (!sends)
		aim(&w, to, HALF);
	fill(from->buf, len, seed);
	memset(to->buf + HALF, 0xee, len + 1);
	post_recv(to, 2, &room, sends ? 1 : 0);
	post(from, &w);
	expect(from, 1, IBV_WC_SUCCESS, "a message");
	/* A WRITE completes when it has left: that it has arrived a SEND behind it says. */
	if (op == IBV_WR_RDMA_WRITE) {
		post_one(from, IBV_WR_SEND, 3, 0, 0);
		expect(from, 3, IBV_WC_SUCCESS, "the SEND behind it");
	}
	wc = expect(to, 2, IBV_WC_SUCCESS, "its receive");
	CHECK(!!(wc.wc_flags & IBV_WC_WITH_IMM) == imm && (!imm || wc.imm_data == seed), "flags %x, immediate data %x",
	      wc.wc_flags, wc.imm_data);
	CHECK(wc.opcode == (imm && !sends ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV) &&
	      wc.byte_len == (op == IBV_WR_RDMA_WRITE ? 0 : len), "opcode %d, %u bytes", wc.opcode, wc.byte_len);
	compare(to->buf + HALF, len, seed, "data");
	CHECK(to->buf[HALF + len] == 0xee, "the byte behind the data was written");
}

static void uc_messages(void)
{
	static const uint32_t lengths[] = { 0, 1, 1023, 1024, 1025, 4097, 40000 };
	static const enum ibv_wr_opcode ops[] = { IBV_WR_SEND, IBV_WR_RDMA_WRITE, IBV_WR_SEND_WITH_IMM,
						  IBV_WR_RDMA_WRITE_WITH_IMM };

	for (size_t i = 0; i < COUNT(lengths); i++)
		for (size_t k = 0; k < COUNT(ops); k++)
			uc_message(i % 2 ? &p.a : &p.b, i % 2 ? &p.b : &p.a, ops[k], lengths[i], 10 * i + k);
}

/* What is denied writes nothing; the next message arrives, by a receive that was too short, too. */
static void uc_lost(void)
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

#define UC .opt = { .type = IBV_QPT_UC }, .len = 2 * HALF

const struct test_case service_cases[] = {
	{ "uc-messages", uc_messages, "UC: SEND and WRITE of 0 B to 40 kB, with and without immediate data", UC },
	{ "uc-lost", uc_lost, "UC: what has no receive, a too short one, a bad key, range or right, is lost and counted", UC },
	{ "uc-sqe", uc_sqe, "UC: local memory that is not there leads to SQE, and RTS leads back",
	  .rxe = "goes to ERR", UC },
	{ "uc-receive-fails", uc_receive_fails, "UC: a receive whose memory is not there ends the queue pair", UC },
	{ "uc-refuses", uc_refuses, "UC: READ and atomics are refused when posted", UC },
	{ NULL },
};
