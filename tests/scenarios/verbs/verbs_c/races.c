// SPDX-License-Identifier: GPL-2.0
/*
 * Threads of one process that use the same objects at once, as libibverbs allows. How much is counted, not timed.
 * Writers post to one queue pair. Senders have one each, whose peers take from a shared receive queue, to which offerers
 * post. Pollers poll the two completion queues of all of them. Meanwhile breakers make, connect, break and destroy queue
 * pairs that complete into the same queues and take from the same receives; registrars register and deregister memory in
 * the same domain; one resizes queues; handlers make and destroy handles while datagrams by these are on their way.
 */
#include "datagrams.h"

#include <arpa/inet.h>

enum {
	WRITERS = 3, SENDERS = 2, OFFERERS = 2, POLLERS = 2, BREAKERS = 2, REGISTRARS = 2, HANDLERS = 2,
	TALKERS = WRITERS + SENDERS,	/* the first of them write */
	WRITES = 2000, SENDS = 600,	/* of each */
	LEN = 200,
	/* Of each talker: those of all writers fit into their queue. */
	WINDOW = DEPTH / WRITERS,
	RECEIVES = 64,
	/* A receive's place is used again after as many others: by then the message has long been looked at. */
	PLACES = 4096,
	/* The places behind those: what talkers have under way, and what breakers and handlers send. */
	TALK = PLACES * LEN, SCRATCH = TALK + TALKERS * WINDOW * LEN, BUFFER = SCRATCH + 4 * LEN,
	/* The number of a message is that of its talker, and behind it, in 16 bits, one of its own. */
	BROKEN = TALKERS << 16,
	/* So much of everything else happens at least, and the messages are spread over it. */
	ROUNDS = 12,
};

/* What the writers talk through, and whose other queues and memory are everybody's. */
static struct pair base;
static struct side talkers[TALKERS];
static struct ibv_qp *taking[SENDERS];
static struct ibv_cq *receipts;
static struct ibv_srq *srq;
static atomic_bool seen[TALKERS][WRITES];
/* The message has been looked at, too: its place may be used again. */
static atomic_bool done[TALKERS][WRITES];
/* The queue pairs that a breaker has destroyed last. */
static atomic_uint gone[BREAKERS][2];
static atomic_uint offered, resizes, broken, registered, handles, moved, flushed;
static atomic_int talkers_left = TALKERS, breakers_left = BREAKERS;

static bool is_over(void)
{
	return !atomic_load(&talkers_left);
}

/* Whether there was enough beside the messages for the n-th of so many. */
static bool may_go_on(unsigned int n, unsigned int messages)
{
	unsigned int wanted = (n + 1) * ROUNDS / messages;

	return atomic_load(&resizes) >= wanted && atomic_load(&broken) >= wanted && atomic_load(&handles) >= wanted &&
	       atomic_load(&registered) >= wanted;
}

/* Where a message is in the buffers. */
static size_t place_of(uint32_t number)
{
	return TALK + ((number >> 16) * WINDOW + (number & 0xffff) % WINDOW) * LEN;
}

static struct ibv_qp *taking_qp(void)
{
	return new_sharing_qp(base.b.pd, receipts, (struct ibv_qp_cap){ DEPTH, 0, 1, 0, 0 }, srq);
}

static void post_message(struct side *from, uint32_t number, size_t place, uint32_t len)
{
	struct ibv_sge list = sge(from, place, len);
	struct ibv_send_wr w = wr(IBV_WR_SEND_WITH_IMM, number, &list, 1);

	w.imm_data = htonl(number);
	post(from, &w);
}

static void *run_talker(void *arg)
{
	unsigned int me = (uintptr_t)arg, messages = me < WRITERS ? WRITES : SENDS;

	for (unsigned int n = 0; n < messages; n++) {
		uint32_t number = me << 16 | n;
		size_t place = place_of(number);

		while ((n >= WINDOW && !atomic_load(&done[me][n - WINDOW])) || !may_go_on(n, messages))
			sched_yield();
		fill(base.a.buf + place, LEN, number);
		if (me < WRITERS) {
			post_at(&talkers[me], IBV_WR_RDMA_WRITE, number, place, LEN, &base.b, place);
			continue;
		}
		post_message(&talkers[me], number, place, LEN);
		expect(&talkers[me], number, IBV_WC_SUCCESS, "a SEND to a shared queue");
	}
	for (unsigned int n = messages - WINDOW; n < messages; n++)
		while (!atomic_load(&done[me][n]))
			sched_yield();
	atomic_fetch_sub(&talkers_left, 1);
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

/* A message of a talker. Two pollers may look at two of them in any order. */
static void look_at(uint32_t number, const uint8_t *at)
{
	unsigned int me = number >> 16, n = number & 0xffff;

	CHECK(me < TALKERS && n < WRITES, "a message of the number %#x", number);
	CHECK(!atomic_exchange(&seen[me][n], true), "message %u of talker %u came twice", n, me);
	compare(at, LEN, number, "a message");
	atomic_store(&done[me][n], true);
}

/* A completion of a WRITE, or of a receive. */
static void take(const struct ibv_wc *wc, bool is_receipt)
{
	uint32_t number = is_receipt ? ntohl(wc->imm_data) : wc->wr_id;

	/* What was flushed says no number. */
	if (number == BROKEN || (is_receipt && wc->status)) {
		CHECK(wc->status == IBV_WC_SUCCESS || wc->status == IBV_WC_WR_FLUSH_ERR ||
		      wc->status == (is_receipt ? IBV_WC_LOC_LEN_ERR : IBV_WC_REM_INV_REQ_ERR) ||
		      (!is_receipt && wc->status == IBV_WC_RETRY_EXC_ERR),
		      "of a queue pair that is broken: %s", ibv_wc_status_str(wc->status));
		atomic_fetch_add(wc->status == IBV_WC_SUCCESS ? &moved : &flushed, 1);
		return;
	}
	CHECK(wc->status == IBV_WC_SUCCESS, "message %#x: %s", number, ibv_wc_status_str(wc->status));
	look_at(number, base.b.buf + (is_receipt ? wc->wr_id * LEN : place_of(number)));
}

/* What is gone before a poll begins does not come out of it. */
static void *run_poller(void *unused)
{
	for (unsigned int i = 0; !is_over() || atomic_load(&breakers_left); i++) {
		/* In turns by a side of the pairs that are broken, and by breaker. */
		unsigned int receipt = i % 2, number = atomic_load(&gone[i / 2 % BREAKERS][receipt]);
		struct ibv_wc wc[4];
		int n = ibv_poll_cq(receipt ? receipts : base.a.cq, 4, wc);

		CHECK(n >= 0, "ibv_poll_cq returned %d", n);
		for (int k = 0; k < n; k++) {
			CHECK(wc[k].qp_num != number, "a completion of queue pair %u, which is gone", number);
			take(&wc[k], receipt);
		}
		if (!n)
			sched_yield();
	}
	return unused;
}

/* Connections that end in the middle of their messages, with shared receives in their hands. */
static void *run_breaker(void *arg)
{
	unsigned int me = (uintptr_t)arg;
	enum { A_FAILS, A_IS_RESET, B_FAILS, B_IS_RESET, TOO_LONG, DESTROYED, WAYS };
	struct pair mine = base;

	/* One round there is, however soon the talkers have ended. */
	for (unsigned int round = 0; !round || !is_over(); round++) {
		unsigned int way = round % WAYS;

		mine.a.qp = make_qp(&mine.a);
		mine.b.qp = taking_qp();
		pair_connect(&mine);
		for (unsigned int i = 0; i < 6; i++)
			post_at(&mine.a, IBV_WR_RDMA_WRITE, BROKEN, SCRATCH, LEN, &mine.b, SCRATCH);
		/* The last one may be longer than a receive: it takes one and ends both sides. */
		for (unsigned int i = 0; i < 4; i++)
			post_message(&mine.a, BROKEN, SCRATCH, i == 3 && way == TOO_LONG ? 3 * LEN : 1);
		if (way < TOO_LONG)
			MUST(to_state(way < B_FAILS ? &mine.a : &mine.b, way % 2 ? IBV_QPS_RESET : IBV_QPS_ERR));
		/* What is flushed comes out only while the queue pair is there. */
		while (way == A_FAILS && !atomic_load(&moved) && !atomic_load(&flushed))
			sched_yield();
		uint32_t numbers[] = { mine.a.qp->qp_num, mine.b.qp->qp_num };

		DESTROY(mine.a.qp, mine.b.qp);
		atomic_store(&gone[me][0], numbers[0]);
		atomic_store(&gone[me][1], numbers[1]);
		atomic_fetch_add(&broken, 1);
	}
	atomic_fetch_sub(&breakers_left, 1);
	return NULL;
}

static void *run_registrar(void *unused)
{
	while (!is_over()) {
		DESTROY(new_mr(base.a.pd, base.a.buf, base.a.len, IBV_ACCESS_LOCAL_WRITE));
		atomic_fetch_add(&registered, 1);
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
		MUST(ibv_resize_cq(receipts, 8 * DEPTH + attr.max_wr + n * 37 % 2000));
		atomic_fetch_add(&resizes, 1);
		usleep(500);
	}
	return unused;
}

/* Each has a queue pair of its own; nobody has its receives, so what it sends is lost. */
static void *run_handler(void *unused)
{
	struct side own = ready_side(&base.a, DEPTH);

	while (!is_over()) {
		struct ibv_ah *ah = new_ah(base.a.pd, way(&base.a, &base.b));
		struct ibv_sge list = sge(&base.a, SCRATCH, 64);
		struct ibv_send_wr w = datagram(&list, ah, own.qp, KEY);

		for (int i = 0; i < 4; i++)
			post(&own, &w);
		for (int i = 0; i < 4; i++)
			expect(&own, 1, IBV_WC_SUCCESS, "a datagram");
		/* Its number is the next one's, perhaps the other thread's. */
		DESTROY(ah);
		atomic_fetch_add(&handles, 1);
	}
	side_end(&own);
	return unused;
}

CASE("races.shared-queues",
     "threads share queue pairs, completion queues and receives, while others break, resize, register and renew; what is gone completes no more",
     .seconds = 240, .rxe = "is not judged here")
{
	static const struct crew crews[] = {
		{ run_talker, TALKERS }, { run_offerer, OFFERERS }, { run_poller, POLLERS }, { run_breaker, BREAKERS },
		{ run_registrar, REGISTRARS }, { run_resizer, 1 }, { run_handler, HANDLERS },
	};
	struct ibv_wc wc;

	/* A queue pair is quiet while the others go on, so its timeout must be long. */
	pair_open(&base, &(struct options){ .timeout = 18 }, BUFFER);
	receipts = new_cq(base.b.ctx, 8 * DEPTH, NULL, NULL);
	srq = new_srq(base.b.pd, RECEIVES, 1);
	for (int i = 0; i < TALKERS; i++) {
		struct pair talk = base;

		talkers[i] = base.a;
		if (i < WRITERS)
			continue;
		talk.a = talkers[i] = side_beside(&base.a, IBV_QPT_RC, DEPTH);
		talk.b.qp = taking[i - WRITERS] = taking_qp();
		pair_connect(&talk);
	}
	run_crews(crews, COUNT(crews));
	/* What the pollers left is of queue pairs that are gone, and went with them. */
	while (ibv_poll_cq(base.a.cq, 1, &wc) > 0)
		CHECK(wc.wr_id == BROKEN, "message %llx completed twice", (unsigned long long)wc.wr_id);
	CHECK(atomic_load(&moved) + atomic_load(&flushed), "nothing came of the queue pairs that were broken");
	printf("%u messages; beside them %u queue pairs broken with %u requests that completed and %u that did not, "
	       "%u regions, %u resizes, %u handles\n", WRITERS * WRITES + SENDERS * SENDS, atomic_load(&broken),
	       atomic_load(&moved), atomic_load(&flushed), atomic_load(&registered), atomic_load(&resizes),
	       atomic_load(&handles));
	for (int i = 0; i < SENDERS; i++) {
		DESTROY(taking[i]);
		side_end(&talkers[WRITERS + i]);
	}
	DESTROY(srq, receipts);
	pair_close(&base);
}

enum { FAILURES = 300 };

static atomic_uint recovered;

static void recover(void)
{
	if (p.opt.type != IBV_QPT_RC) {
		MUST(to_state(&p.a, IBV_QPS_RTS));
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

static void recover_at_once(void)
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

CASE("races.reset-at-once",
     "a queue pair is connected anew before the post that has failed returns: it does not fail once more",
     .rxe = "is not judged here", .opt = { .events = true }, .len = 4096)
{
	recover_at_once();
}

CASE("races.resumed-at-once",
     "a queue pair in SQE goes on before the post that has failed returns: it does not fail once more",
     .rxe = "is not judged here", .opt = { .events = true, .type = IBV_QPT_UC }, .len = 4096)
{
	recover_at_once();
}
