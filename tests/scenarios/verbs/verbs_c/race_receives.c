// SPDX-License-Identifier: GPL-2.0
/*
 * Threads that share what several queue pairs receive by: two post to one shared receive queue and two send by queue
 * pairs that take from it; two poll one completion queue; one resizes both queues; one breaks queue pairs that take from
 * the same queue and complete into the same; two make and destroy handles while datagrams by these are on their way.
 */
#include "pair.h"

#include <arpa/inet.h>
#include <errno.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

enum { SENDERS = 2, OFFERERS = 2, POLLERS = 2, HANDLERS = 2, MESSAGES = 600, LEN = 200, RECEIVES = 64, WINDOW = 8,
       /* A receive's place is used again after as many others: by then the message has long been looked at. */
       PLACES = 4096, QKEY = 0x77, OF_BROKEN = 1 << 20,
       /* So much of everything else happens at least, and the messages are spread over it. */
       ROUNDS = 12 };

static struct pair base, talks[SENDERS];
static struct ibv_cq *cq;
static struct ibv_srq *srq;
static atomic_bool seen[SENDERS][MESSAGES];
static atomic_uint arrived[SENDERS], offered, resizes, broken, flushed, handles;
static atomic_int senders_left = SENDERS;

static bool is_over(void)
{
	return !atomic_load(&senders_left);
}

/* Whether there was enough beside the messages for the n-th of them. */
static bool may_go_on(unsigned int n)
{
	unsigned int wanted = (n + 1) * ROUNDS / MESSAGES;

	return atomic_load(&resizes) >= wanted && atomic_load(&broken) >= wanted && atomic_load(&handles) >= wanted;
}

static struct ibv_qp *taking_qp(void)
{
	return new_sharing_qp(base.b.pd, cq, (struct ibv_qp_cap){ DEPTH, 0, 1, 0, 0 }, srq);
}

static void *run_sender(void *arg)
{
	unsigned int me = (uintptr_t)arg;
	struct side *a = &talks[me].a;

	for (unsigned int n = 0; n < MESSAGES; n++) {
		size_t place = (me * WINDOW + n % WINDOW) * LEN;
		struct ibv_sge list = sge(a, place, LEN);
		struct ibv_send_wr w = wr(IBV_WR_SEND_WITH_IMM, n, &list, 1);

		while (n >= WINDOW + atomic_load(&arrived[me]) || !may_go_on(n))
			sched_yield();
		fill(a->buf + place, LEN, me * MESSAGES + n);
		w.imm_data = htonl(me << 16 | n);
		post(a, &w);
		expect(a, n, IBV_WC_SUCCESS, "a SEND to a shared queue");
	}
	while (atomic_load(&arrived[me]) < MESSAGES)
		sched_yield();
	atomic_fetch_sub(&senders_left, 1);
	return NULL;
}

static void *run_offerer(void *unused)
{
	while (!is_over()) {
		unsigned int n = atomic_fetch_add(&offered, 1) % PLACES;
		struct ibv_sge room = sge(&base.b, (size_t)n * LEN, LEN);
		int refused;

		while ((refused = post_shared_receive(srq, n, &room, 1)) == ENOMEM && !is_over())
			sched_yield();
		CHECK(!refused || refused == ENOMEM, "a receive: %d", refused);
	}
	return unused;
}

static void take(const struct ibv_wc *wc)
{
	unsigned int me = ntohl(wc->imm_data) >> 16, n = ntohl(wc->imm_data) & 0xffff;

	if (wc->status == IBV_WC_WR_FLUSH_ERR || wc->status == IBV_WC_LOC_LEN_ERR) {
		atomic_fetch_add(&flushed, 1);
		return;
	}
	CHECK(wc->status == IBV_WC_SUCCESS, "a receive: %s", ibv_wc_status_str(wc->status));
	if (ntohl(wc->imm_data) == OF_BROKEN)
		return;
	CHECK(me < SENDERS && n < MESSAGES, "a message of the number %#x", ntohl(wc->imm_data));
	CHECK(!atomic_exchange(&seen[me][n], true), "message %u of sender %u came twice", n, me);
	compare(base.b.buf + wc->wr_id * LEN, LEN, me * MESSAGES + n, "a message");
	atomic_fetch_add(&arrived[me], 1);
}

static void *run_poller(void *unused)
{
	while (!is_over()) {
		struct ibv_wc wc[4];
		int n = ibv_poll_cq(cq, 4, wc);

		CHECK(n >= 0, "ibv_poll_cq returned %d", n);
		for (int i = 0; i < n; i++)
			take(&wc[i]);
		if (!n)
			sched_yield();
	}
	return unused;
}

static void *run_resizer(void *unused)
{
	for (unsigned int n = 0; !is_over(); n++) {
		/* There is no room for fewer receives than are posted, which are as many as there may be. */
		struct ibv_srq_attr attr = { .max_wr = RECEIVES + (n < 1000 ? n : 1000) };

		MUST(ibv_modify_srq(srq, &attr, IBV_SRQ_MAX_WR));
		/* It always has room for all that may be on its way, from a page of completions to some. */
		MUST(ibv_resize_cq(cq, 8 * DEPTH + attr.max_wr + n * 37 % 2000));
		atomic_fetch_add(&resizes, 1);
		usleep(500);
	}
	return unused;
}

/* Queue pairs that end with receives of the shared queue in their hands. */
static void *run_breaker(void *unused)
{
	struct pair mine = base;

	for (unsigned int round = 0; !is_over(); round++) {
		mine.a.qp = make_qp(&mine.a);
		mine.b.qp = taking_qp();
		pair_connect(&mine);
		for (unsigned int i = 0; i < 4; i++) {
			/* The last one is longer than a receive: it takes one and ends both sides. */
			struct ibv_sge list = sge(&mine.a, SENDERS * WINDOW * LEN, i == 3 && round % 3 == 2 ? 3 * LEN : 1);
			struct ibv_send_wr w = wr(IBV_WR_SEND_WITH_IMM, i, &list, 1);

			w.imm_data = htonl(OF_BROKEN);
			post(&mine.a, &w);
		}
		if (round % 3 == 0)
			MUST(to_state(&mine.b, IBV_QPS_ERR));
		else if (round % 3 == 1)
			MUST(to_state(&mine.b, IBV_QPS_RESET));
		DESTROY(mine.a.qp, mine.b.qp);
		atomic_fetch_add(&broken, 1);
	}
	return unused;
}

/* Each has a queue pair of its own; nobody has its receives, so what it sends is lost. */
static void *run_handler(void *unused)
{
	struct ibv_ah_attr to = { .is_global = 1, .port_num = 1,
				  .grh = { .sgid_index = base.a.gid_index, .hop_limit = 64, .dgid = base.b.gid } };
	struct ibv_cq *own = new_cq(base.a.ctx, DEPTH, NULL, NULL);
	struct ibv_qp *qp = new_qp_of(IBV_QPT_UD, base.a.pd, own, (struct ibv_qp_cap){ DEPTH, 1, 1, 1, 0 });

	connect_qp(qp, &(struct connection){ .qkey = QKEY });
	while (!is_over()) {
		struct ibv_ah *ah = new_ah(base.a.pd, to);

		for (int i = 0; i < 4; i++) {
			struct ibv_sge list = sge(&base.a, SENDERS * WINDOW * LEN, 64);
			struct ibv_send_wr w = wr(IBV_WR_SEND, i, &list, 1);

			w.wr.ud.ah = ah;
			w.wr.ud.remote_qpn = qp->qp_num;
			w.wr.ud.remote_qkey = QKEY;
			MUST(post_send(qp, &w));
		}
		for (int i = 0; i < 4; i++) {
			struct ibv_wc wc = next_completion(own, "a datagram");

			CHECK(wc.status == IBV_WC_SUCCESS, "a datagram: %s", ibv_wc_status_str(wc.status));
		}
		/* Its number is the next one's, perhaps the other thread's. */
		DESTROY(ah);
		atomic_fetch_add(&handles, 1);
	}
	DESTROY(qp, own);
	return unused;
}

void shared_receives(void)
{
	static const struct crew crews[] = {
		{ run_sender, SENDERS }, { run_offerer, OFFERERS }, { run_poller, POLLERS }, { run_resizer, 1 },
		{ run_breaker, 1 }, { run_handler, HANDLERS },
	};

	pair_open(&base, &(struct options){ .timeout = 18, .rnr_timer = 1 }, PLACES * LEN);
	cq = new_cq(base.b.ctx, 8 * DEPTH, NULL, NULL);
	srq = new_srq(base.b.pd, RECEIVES, 1);
	for (int i = 0; i < SENDERS; i++) {
		talks[i] = base;
		talks[i].a = side_beside(&base.a, IBV_QPT_RC, DEPTH);
		talks[i].b.qp = taking_qp();
		pair_connect(&talks[i]);
	}
	run_crews(crews, COUNT(crews));
	printf("%u messages by %u resizes, %u queue pairs broken with %u receives flushed, %u handles\n",
	       SENDERS * MESSAGES, atomic_load(&resizes), atomic_load(&broken), atomic_load(&flushed),
	       atomic_load(&handles));
	for (int i = 0; i < SENDERS; i++) {
		DESTROY(talks[i].a.qp, talks[i].b.qp, talks[i].a.cq);
	}
	DESTROY(srq, cq);
	pair_close(&base);
}
