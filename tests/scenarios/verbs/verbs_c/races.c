// SPDX-License-Identifier: GPL-2.0
/*
 * Threads of one process that use the same objects at once, as libibverbs allows: they post to one queue pair and poll
 * one completion queue, while others make, connect, break and destroy queue pairs on that completion queue, and register
 * and deregister memory in that protection domain. How much is counted, not timed.
 */
#define _GNU_SOURCE
#include "pair.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum {
	POSTERS = 3, POLLERS = 2, BREAKERS = 2, REGISTRARS = 2,
	MESSAGES = 2000,		/* of each poster */
	LEN = 256,
	/* A poster's window: all of them fit into the queue. */
	WINDOW = DEPTH / POSTERS,
	/* The wr_ids of those that break their own queue pairs. */
	BROKEN = 1 << 30,
};

static struct pair shared;
static atomic_bool seen[POSTERS][MESSAGES];
/* The message has been looked at, too: its place may be used again. */
static atomic_bool done[POSTERS][MESSAGES];
static atomic_uint flushed, moved, registered;
static atomic_int posters_left = POSTERS, breakers_left = BREAKERS;

static bool is_over(void)
{
	return !atomic_load(&posters_left);
}

static void *run_poster(void *arg)
{
	unsigned int me = (uintptr_t)arg;

	for (unsigned int n = 0; n < MESSAGES; n++) {
		while (n >= WINDOW && !atomic_load(&done[me][n - WINDOW]))
			sched_yield();
		/* Each message has a place of its own at either end until it is complete. */
		size_t place = (me * WINDOW + n % WINDOW) * LEN;

		fill(shared.a.buf + place, LEN, me * MESSAGES + n);
		post_at(&shared.a, IBV_WR_RDMA_WRITE, (uint64_t)me << 16 | n, place, LEN, &shared.b, place);
	}
	for (unsigned int n = MESSAGES - WINDOW; n < MESSAGES; n++)
		while (!atomic_load(&done[me][n]))
			sched_yield();
	atomic_fetch_sub(&posters_left, 1);
	return NULL;
}

/* A completion of the shared queue pair. Two pollers may look at two of them in any order. */
static void shared_done(const struct ibv_wc *wc)
{
	unsigned int me = wc->wr_id >> 16, n = wc->wr_id & 0xffff;

	CHECK(me < POSTERS && n < MESSAGES, "a completion of %llx", (unsigned long long)wc->wr_id);
	CHECK(wc->status == IBV_WC_SUCCESS, "message %u of thread %u: %s", n, me, ibv_wc_status_str(wc->status));
	CHECK(!atomic_exchange(&seen[me][n], true), "message %u of thread %u completed twice", n, me);
	size_t place = (me * WINDOW + n % WINDOW) * LEN;

	compare(shared.b.buf + place, LEN, me * MESSAGES + n, "written data");
	atomic_store(&done[me][n], true);
}

static void *run_poller(void *arg)
{
	(void)arg;
	while (!is_over() || atomic_load(&breakers_left)) {
		struct ibv_wc wc[4];
		int n = ibv_poll_cq(shared.a.cq, 4, wc);

		CHECK(n >= 0, "ibv_poll_cq returned %d", n);
		if (!n)
			sched_yield();
		for (int i = 0; i < n; i++) {
			if (wc[i].wr_id < BROKEN) {
				shared_done(&wc[i]);
				continue;
			}
			CHECK(wc[i].status == IBV_WC_SUCCESS || wc[i].status == IBV_WC_WR_FLUSH_ERR ||
			      wc[i].status == IBV_WC_RETRY_EXC_ERR,
			      "a queue pair that is broken: %s", ibv_wc_status_str(wc[i].status));
			atomic_fetch_add(wc[i].status == IBV_WC_SUCCESS ? &moved : &flushed, 1);
		}
	}
	return NULL;
}

/* Connections that end in the middle of their messages, in one of three ways, on the completion queue of all. */
static void *run_breaker(void *arg)
{
	unsigned int me = (uintptr_t)arg;
	struct pair mine = shared;

	/* One round there is, however soon the posters have ended. */
	for (unsigned int round = 0; !round || !is_over(); round++) {
		mine.a.qp = make_qp(&mine.a);
		mine.b.qp = make_qp(&mine.b);
		pair_connect(&mine);
		for (unsigned int i = 0; i < 8; i++)
			/* Behind the places of the posters. */
			post_at(&mine.a, IBV_WR_RDMA_WRITE, BROKEN + round, (POSTERS * WINDOW + me) * LEN, LEN, &mine.b,
				(POSTERS * WINDOW + me) * LEN);
		if (round % 3 < 2)
			MUST(to_state(&mine.a, round % 3 ? IBV_QPS_RESET : IBV_QPS_ERR));
		/* What is flushed comes out only while the queue pair is there. */
		while (round % 3 == 0 && !atomic_load(&moved) && !atomic_load(&flushed))
			sched_yield();
		DESTROY(mine.a.qp, mine.b.qp);
	}
	atomic_fetch_sub(&breakers_left, 1);
	return NULL;
}

static void *run_registrar(void *arg)
{
	(void)arg;
	while (!is_over()) {
		DESTROY(new_mr(shared.a.pd, shared.a.buf, shared.a.len, IBV_ACCESS_LOCAL_WRITE));
		atomic_fetch_add(&registered, 1);
		sched_yield();
	}
	return NULL;
}

static void shared_queues(void)
{
	static const struct crew crews[] = {
		{ run_poster, POSTERS }, { run_poller, POLLERS }, { run_breaker, BREAKERS },
		{ run_registrar, REGISTRARS },
	};
	struct ibv_wc wc;

	/* The shared queue pair is quiet when the others go on, so its timeout must be long. */
	pair_open(&shared, &(struct options){ .timeout = 18 }, 64 << 10);
	run_crews(crews, COUNT(crews));
	/* What the pollers left is of queue pairs that are gone, and went with them. */
	while (ibv_poll_cq(shared.a.cq, 1, &wc) > 0)
		CHECK(wc.wr_id >= BROKEN, "message %llx completed twice", (unsigned long long)wc.wr_id);
	CHECK(atomic_load(&registered), "no region was registered meanwhile");
	CHECK(atomic_load(&moved) + atomic_load(&flushed), "nothing came of the queue pairs that were broken");
	printf("%u messages of %u threads; beside them %u that completed and %u that did not, %u regions\n",
	       POSTERS * MESSAGES, POSTERS, atomic_load(&moved), atomic_load(&flushed), atomic_load(&registered));
	pair_close(&shared);
}

enum { FAILURES = 300 };

static atomic_uint recovered;

static void recover(void)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTS, .cur_qp_state = IBV_QPS_SQE };

	if (p.opt.type != IBV_QPT_RC) {
		MUST(ibv_modify_qp(p.a.qp, &attr, IBV_QP_STATE | IBV_QP_CUR_STATE));
		return;
	}
	MUST(to_state(&p.a, IBV_QPS_RESET));
	MUST(to_init(&p, &p.a));
	MUST(to_rtr(&p, &p.a, &p.b, p.b.qp->qp_num));
	MUST(to_rts(&p, &p.a));
}

/* It runs as soon as it is woken, on the CPU of the poster: while the post is still in the kernel, if that can be preempted. */
static void *run_recoverer(void *arg)
{
	const struct sched_param prompt = { .sched_priority = 1 };

	(void)arg;
	CHECK(!sched_setscheduler(0, SCHED_FIFO, &prompt), "no real-time priority");
	for (unsigned int n = 0; n < FAILURES; n++) {
		CHECK(event_within(&p.a, 1000 * patience()), "no event of the request in error");
		expect(&p.a, n, IBV_WC_LOC_PROT_ERR, "a request without memory");
		MUST(ibv_req_notify_cq(p.a.cq, 0));
		recover();
		atomic_store(&recovered, n + 1);
	}
	return NULL;
}

static void recovered_at_once(void)
{
	unsigned int early = 0;
	pthread_t recoverer;
	cpu_set_t one;

	CPU_ZERO(&one);
	CPU_SET(sched_getcpu(), &one);
	CHECK(!sched_setaffinity(0, sizeof(one), &one), "not on one CPU");
	MUST(ibv_req_notify_cq(p.a.cq, 0));
	MUST(pthread_create(&recoverer, NULL, run_recoverer, NULL));
	for (unsigned int n = 0; n < FAILURES; n++) {
		struct ibv_sge nowhere = { .addr = (uintptr_t)p.a.buf, .length = 8, .lkey = p.a.mr->lkey ^ 1 };
		struct ibv_send_wr w = wr(IBV_WR_SEND, n, &nowhere, 1);

		post(&p.a, &w);
		early += atomic_load(&recovered) > n;
		while (atomic_load(&recovered) <= n)
			sched_yield();
		CHECK(state_of_qp(p.a.qp) == IBV_QPS_RTS, "after recovery %u of %u it failed once more", n + 1, FAILURES);
	}
	pthread_join(recoverer, NULL);
	printf("%u of %u times it had recovered before the post returned\n", early, FAILURES);
}

enum { ASKERS = 3, CHANGES = 300 };

static pthread_barrier_t together;
static atomic_bool enough;

static void *run_asker(void *arg)
{
	unsigned int *asked = arg;

	for (unsigned int n = 0; n < CHANGES; n++) {
		pthread_barrier_wait(&together);
		while (!atomic_load(&enough)) {
			state_of_qp(p.a.qp);
			++*asked;
		}
		pthread_barrier_wait(&together);
	}
	return NULL;
}

/*
 * A query that began before a change may end behind it: libibverbs then notes the state of before. There are more who
 * ask than CPUs, so one of them is often interrupted while it asks, and goes on when the queue pair is in RTS.
 */
static void asked_meanwhile(void)
{
	unsigned int asked[ASKERS] = { 0 };
	pthread_t askers[ASKERS];

	pthread_barrier_init(&together, NULL, ASKERS + 1);
	for (unsigned int i = 0; i < ASKERS; i++)
		MUST(pthread_create(&askers[i], NULL, run_asker, &asked[i]));
	for (unsigned int n = 0; n < CHANGES; n++) {
		MUST(to_state(&p.a, IBV_QPS_RESET));
		MUST(to_init(&p, &p.a));
		pthread_barrier_wait(&together);
		usleep(2000);
		atomic_store(&enough, true);
		MUST(to_rtr(&p, &p.a, &p.b, p.b.qp->qp_num));
		MUST(to_rts(&p, &p.a));
		pthread_barrier_wait(&together);
		atomic_store(&enough, false);
		struct ibv_send_wr w = wr(IBV_WR_SEND, n, NULL, 0);
		int error = post_send(p.a.qp, &w);

		CHECK(!error, "in RTS for time %u of %u it takes no request: %s", n + 1, CHANGES, strerror(error));
	}
	for (unsigned int i = 0; i < ASKERS; i++)
		pthread_join(askers[i], NULL);
	printf("asked %u, %u and %u times while it came to RTS %u times\n", asked[0], asked[1], asked[2], CHANGES);
}

const struct test_case race_cases[] = {
	{ "shared-queues", shared_queues,
	  "threads post to one queue pair and poll one queue, others break and make queue pairs and regions",
	  .seconds = 240, .rxe = "is not judged here" },
	{ "shared-receives", shared_receives,
	  "threads share a receive queue and a completion queue, both resized, others break queue pairs and renew handles",
	  .seconds = 240, .rxe = "is not judged here" },
	{ "reset-at-once", recovered_at_once,
	  "a queue pair is connected anew before the post that has failed returns: it does not fail once more",
	  .rxe = "is not judged here", .opt = { .events = true }, .len = 4096 },
	{ "resumed-at-once", recovered_at_once,
	  "a queue pair in SQE goes on before the post that has failed returns: it does not fail once more",
	  .rxe = "is not judged here", .opt = { .events = true, .type = IBV_QPT_UC }, .len = 4096 },
	{ "asked-meanwhile", asked_meanwhile, "a queue pair in RTS takes requests, whatever another thread learnt of it before",
	  LOCAL_PATH, .len = 4096 },
	{ NULL },
};
