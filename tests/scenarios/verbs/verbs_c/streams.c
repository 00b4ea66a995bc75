// SPDX-License-Identifier: GPL-2.0
/*
 * A process that posts one request after the other and waits for none: a driver may let another CPU send for it, as long
 * as nothing is lost, doubled or overtaken when it begins, or ends, or when that CPU is wanted by others.
 */
#include "pair.h"

enum {
	VISIT = 16,		/* every so many requests one is signalled */
	ECHO = 4096,		/* where in a's buffer READs put what they found */
};

/* Requests are numbered from 1. WRITE n puts n into place n % DEPTH of b's buffer; a READ fetches the place of n - 1. */
struct stream {
	struct pair p;
	uint64_t posted, finished;
	/* From this request on others want the CPUs; 0 if nobody does. */
	uint64_t others_spin_at;
};

static volatile uint64_t *place(uint8_t *base, uint64_t n)
{
	return (uint64_t *)base + n % DEPTH;
}

static bool is_read(uint64_t n)
{
	return n % DEPTH == DEPTH - 1;
}

static void post_next(struct stream *s, bool signalled)
{
	uint64_t n = ++s->posted;
	bool read = is_read(n);
	struct ibv_sge list = read ? sge(&s->p.a, ECHO + n % DEPTH * 8, 8) :
		(struct ibv_sge){ .addr = (uintptr_t)&n, .length = 8 };
	struct ibv_send_wr w = wr(read ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE, n, &list, 1);

	aim(&w, &s->p.b, read ? (n - 1) % DEPTH * 8 : n % DEPTH * 8);
	w.send_flags = (signalled ? IBV_SEND_SIGNALED : 0) | (read ? 0 : IBV_SEND_INLINE);
	post(&s->p.a, &w);
}

/* The completion of request n is here. Everything up to it must be done, and nothing that was never posted. */
static void finish(struct stream *s, uint64_t n)
{
	for (uint64_t i = s->finished + 1; i <= n; i++) {
		uint64_t there = is_read(i) ? *place(s->p.a.buf + ECHO, i) : *place(s->p.b.buf, i);
		uint64_t least = is_read(i) ? i - 1 : i;

		CHECK(there >= least && there <= s->posted && (there - least) % DEPTH == 0,
		      "request %llu of %llu is complete, but %llu is in its place", (unsigned long long)i,
		      (unsigned long long)s->posted, (unsigned long long)there);
	}
	s->finished = n;
}

static _Atomic enum { SLEEP, SPIN, END } others;

/* Posts as fast as it can, and visits the CQ only when the queue is full. */
static void run(struct stream *s, uint64_t count)
{
	uint64_t last = s->posted + count;

	while (s->finished < last) {
		while (s->posted < last && s->posted - s->finished < DEPTH) {
			if (s->posted && s->posted == s->others_spin_at)
				atomic_store(&others, SPIN);
			post_next(s, (s->posted + 1) % VISIT == 0 || s->posted + 1 == last);
		}
		uint64_t n = (s->finished / VISIT + 1) * VISIT;

		if (n > last)
			n = last;
		expect(&s->p.a, n, IBV_WC_SUCCESS, "stream");
		finish(s, n);
	}
}

static void open_stream(struct stream *s)
{
	/* An ACK timeout of 275 s, longer than any of this may last: on a busy machine nothing is to be repeated either. */
	struct options opt = { .rd_atomic = 4, .timeout = 26 };

	memset(s, 0, sizeof(*s));
	pair_open(&s->p, &opt, 65536);
}

CASE("verbs.stream", "a process that waits for nothing, with another CPU for it", .counts = "sq_offloaded")
{
	struct stream s;

	open_stream(&s);
	run(&s, 40000);
	pair_close(&s.p);
}

/* In turns with somebody who waits for each request: begin and end of streams, the last one taken down in its middle. */
static void bursts(struct stream *s)
{
	for (int round = 0; round < 150; round++) {
		run(s, 1 + round * 7 % 200);
		for (int i = 0; i < round % 20; i++)
			run(s, 1);
	}
	/* Nothing may be left behind, or come later. */
	for (int i = 0; i < DEPTH; i++)
		post_next(s, false);
	CHECK(!to_state(&s->p.a, IBV_QPS_ERR), "to ERR");
	CHECK(!to_state(&s->p.a, IBV_QPS_RESET), "to RESET");
	pair_close(&s->p);
}

CASE("verbs.stream-in-bursts", "streams that begin and end, and one that is cut off", .counts = "sq_offloaded")
{
	struct stream s;

	open_stream(&s);
	bursts(&s);
}

CASE("verbs.stream-on-one-cpu", "streams of a process that may run on one CPU only", .counts = "sq_polled")
{
	struct stream s;
	cpu_set_t one;

	CPU_ZERO(&one);
	CPU_SET(sched_getcpu(), &one);
	CHECK(!sched_setaffinity(0, sizeof(one), &one), "sched_setaffinity: %s", strerror(errno));
	open_stream(&s);
	run(&s, shortened(40000, 4000));
	bursts(&s);
}

static void *other(void *unused)
{
	while (atomic_load(&others) == SLEEP)
		usleep(1000);
	while (atomic_load(&others) == SPIN)
		;
	return unused;
}

CASE("verbs.stream-busy-cpus", "streams while every CPU is wanted by others", .counts = "sq_offload_ended")
{
	pthread_t threads[64];
	cpu_set_t all, one;
	struct stream s;
	int count = 0;

	open_stream(&s);
	CHECK(!sched_getaffinity(0, sizeof(all), &all), "sched_getaffinity: %s", strerror(errno));
	for (int round = 0; round < 3; round++) {
		atomic_store(&others, SLEEP);
		for (int cpu = 0; cpu < CPU_SETSIZE && count < 64; cpu++) {
			if (!CPU_ISSET(cpu, &all))
				continue;
			CPU_ZERO(&one);
			CPU_SET(cpu, &one);
			CHECK(!pthread_create(&threads[count], NULL, other, NULL), "pthread_create");
			CHECK(!pthread_setaffinity_np(threads[count], sizeof(one), &one), "pthread_setaffinity_np");
			count++;
		}
		s.others_spin_at = s.posted + shortened(6000, 2000);
		run(&s, shortened(36000, 3500));
		atomic_store(&others, END);
		while (count)
			pthread_join(threads[--count], NULL);
	}
	pair_close(&s.p);
}
