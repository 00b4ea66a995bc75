// SPDX-License-Identifier: GPL-2.0
/*
 * A process that writes into its mapped rings whatever it likes, while the module works on them: some of it noise, most
 * of it requests that are right, or almost. What becomes of its own queue pairs is its own affair; a neighbour in another
 * process must not notice, and the device must be as before.
 */
#include "pair.h"

/* After RENEWED rounds a pair is made anew: a completion queue that overran is of no use any more. */
enum { PAIRS = 3, ROUNDS = 150, RENEWED = 4, DOORBELLS = 20, MEMORY = 1 << 16, MOST_RINGS = 6 * PAIRS + 10,
       STRIDE = UABI_SEND_STRIDE, PRODUCER = UABI_PRODUCER / 4, CONSUMER = UABI_CONSUMER / 4 };

/* What is written in one go: a request with two entries. */
struct request {
	struct uabi_send_wqe wqe;
	struct ibv_sge list[2];
};

static struct ring {
	_Atomic uint32_t *at;
	size_t words;
	uint32_t slots;
	bool completions;
} rings[MOST_RINGS];
static int ring_count;
/* Held while the rings are changed for others. */
static pthread_rwlock_t rings_lock = PTHREAD_RWLOCK_INITIALIZER;
static atomic_bool over;
static struct side *sides[2 * PAIRS];

/* xorshift: every thread has its own. */
static uint32_t draw(uint32_t *state)
{
	uint32_t x = *state;

	x ^= x << 13;
	x ^= x >> 17;
	x ^= x << 5;
	return *state = x;
}

/* The mapping is in whole pages, the slots are a power of two. */
static uint32_t slots_of(size_t bytes)
{
	uint32_t slots = 1;

	while (UABI_CONTROL_SIZE + 2 * slots * STRIDE <= bytes)
		slots *= 2;
	return slots;
}

static void find_rings(void)
{
	struct mapping found[MOST_RINGS];

	ring_count = mapped_rings(found, MOST_RINGS);
	for (int i = 0; i < ring_count; i++)
		rings[i] = (struct ring){ (void *)found[i].at, found[i].len / 4, slots_of(found[i].len),
					  found[i].len > UABI_CONTROL_SIZE + 4 * DEPTH * UABI_CQE_STRIDE };
	CHECK(ring_count >= 3 * PAIRS, "%d rings are mapped", ring_count);
}

/* A number that is near to something: an index, a bound, a key. */
static uint32_t plausible(uint32_t *state)
{
	struct side *s = sides[draw(state) % (2 * PAIRS)];

	switch (draw(state) % 6) {
	case 0: return draw(state) % 4;
	case 1: return draw(state) % 200;
	case 2: return s->mr->lkey;
	case 3: return (uint32_t)(uintptr_t)s->buf;
	case 4: return -(draw(state) % 4);
	default: return draw(state);
	}
}

/* A request in which one word may be wrong. */
static void write_request(struct ring *r, uint32_t slot, uint32_t *state)
{
	enum { WORDS = sizeof(struct request) / 4 };
	size_t at = (UABI_CONTROL_SIZE + (size_t)slot * STRIDE) / 4;
	/* Whose ring this is nobody knows, but a side and another one of the other kind is right half of the time. */
	int kind = draw(state) % 2;
	struct side *from = sides[draw(state) % PAIRS * 2 + kind], *to = sides[draw(state) % PAIRS * 2 + !kind];
	/* WRITE or READ, for a SEND wants a receive, and as one this is none; signaled or not, or inline. */
	struct request q = { .wqe = { .wr_id = 7, .opcode = draw(state) % 2 ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ,
				      .remote_addr = (uintptr_t)to->buf, .rkey = to->mr->rkey } };
	uint32_t words[WORDS];

	q.wqe.flags = draw(state) % 8;
	q.wqe.count = draw(state) % 3;
	if (draw(state) % 8 == 0) {
		q.wqe.opcode = draw(state) % 4;
		q.wqe.flags = IBV_SEND_INLINE | draw(state) % 8;
		q.wqe.count = draw(state) % 64;
	}
	for (int i = 0; i < 2; i++)
		q.list[i] = sge(from, 0, draw(state) % (MEMORY / 2));
	memcpy(words, &q, sizeof(words));
	if (draw(state) % 32 == 0)
		words[draw(state) % WORDS] = plausible(state);
	for (int i = 0; i < WORDS; i++)
		atomic_store_explicit(&r->at[at + i], words[i], memory_order_relaxed);
}

static void *scribble(void *seed)
{
	uint32_t state = (uint32_t)(uintptr_t)seed;

	while (!atomic_load(&over)) {
		pthread_rwlock_rdlock(&rings_lock);

		struct ring *r = &rings[draw(&state) % ring_count];
		uint32_t index = atomic_load(&r->at[PRODUCER]);

		/* Mostly requests, for noise ends a queue pair before it has done anything. */
		switch (draw(&state) % 128) {
		case 0:
			/* Indices, flags, arm: on cache lines of their own. */
			atomic_store(&r->at[draw(&state) % 4 * CONSUMER], plausible(&state));
			break;
		case 1:
			atomic_store(&r->at[draw(&state) % r->words], draw(&state));
			break;
		case 2:
			/* One that is perhaps being done. */
			write_request(r, draw(&state) % r->slots, &state);
			break;
		default:
			if (r->completions) {
				atomic_store(&r->at[CONSUMER], index);
			} else if (index - atomic_load(&r->at[CONSUMER]) < r->slots) {
				write_request(r, index & (r->slots - 1), &state);
				atomic_store(&r->at[PRODUCER], index + 1);
			}
		}
		pthread_rwlock_unlock(&rings_lock);
	}
	return NULL;
}

/* The neighbour, until it is told that it was long enough. */
static void neighbour(int told)
{
	struct pair p;
	char end;

	pair_open(&p, NULL, 8192);
	for (unsigned int round = 1; read(told, &end, 1) == 1; round++)
		send_checked(&p.a, &p.b, round);
	pair_close(&p);
	exit(0);
}

/* Every side's memory has a byte of its own, so that what was moved shows. */
static void mark(int pair)
{
	for (int i = 2 * pair; i < 2 * pair + 2; i++)
		memset(sides[i]->buf, i + 1, MEMORY);
}

static bool moved(int pair)
{
	for (int i = 2 * pair; i < 2 * pair + 2; i++)
		for (int at = 0; at < MEMORY; at++)
			if (sides[i]->buf[at] != i + 1)
				return true;
	return false;
}

CASE("verbs.scribbled-rings", "a process writes noise into its rings: others notice nothing",
     .rxe = "has rings of another layout")
{
	const char *seed = getenv("FERROCE_SEED");
	uint32_t state = seed ? atoi(seed) | 1 : 1001;
	struct pair base, pairs[PAIRS], fresh;
	pthread_t threads[2];
	int pipes[2], status, lives = 0, moves = 0;
	pid_t child;

	CHECK(!pipe(pipes), "pipe: %s", strerror(errno));
	signal(SIGPIPE, SIG_IGN);
	child = new_process();
	if (!child) {
		close(pipes[1]);
		neighbour(pipes[0]);
	}
	close(pipes[0]);
	printf("seed %u\n", state);
	/* All in the same two domains, so that keys of one pair are good for another. */
	pair_open(&base, NULL, 4096);
	for (int i = 0; i < PAIRS; i++) {
		pair_open_beside(&pairs[i], &base, MEMORY);
		sides[2 * i] = &pairs[i].a;
		sides[2 * i + 1] = &pairs[i].b;
		mark(i);
	}
	find_rings();
	for (int i = 0; i < 2; i++)
		CHECK(!pthread_create(&threads[i], NULL, scribble, (void *)(uintptr_t)draw(&state)), "pthread_create");
	for (int round = 0; round < ROUNDS; round++) {
		int drawn = draw(&state) % PAIRS;
		struct pair *p = &pairs[drawn];

		for (int i = 0; i < DOORBELLS; i++)
			ring_doorbell(sides[draw(&state) % (2 * PAIRS)]->qp, draw(&state) % 2);
		moves += moved(drawn);
		if (round % RENEWED == 0) {
			pthread_rwlock_wrlock(&rings_lock);
			pair_close(p);
			pair_open_beside(p, &base, MEMORY);
			find_rings();
			pthread_rwlock_unlock(&rings_lock);
		} else {
			/*
			 * Completions are not polled: the provider would find the same disorder. What is in the
			 * rings may end the queue pair's life before it has come to RTS.
			 */
			CHECK(!to_state(&p->a, IBV_QPS_RESET) && !to_state(&p->b, IBV_QPS_RESET), "to RESET");
			CHECK(!to_init(p, &p->a) && !to_init(p, &p->b), "to INIT");
			lives += !to_rtr(p, &p->a, &p->b, p->b.qp->qp_num) && !to_rts(p, &p->a) &&
				 !to_rtr(p, &p->b, &p->a, p->a.qp->qp_num) && !to_rts(p, &p->b);
		}
		mark(drawn);
		CHECK(write(pipes[1], "x", 1) == 1, "the neighbour has ended");
	}
	printf("%d pairs were connected again, %d lives had moved data\n", lives, moves);
	CHECK(lives && moves, "%d pairs were connected again, %d lives had moved data: nothing was tried", lives, moves);
	atomic_store(&over, true);
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	for (int i = 0; i < PAIRS; i++)
		pair_close(&pairs[i]);
	pair_close(&base);
	close(pipes[1]);
	CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && !WEXITSTATUS(status), "the neighbour failed");
	pair_open(&fresh, NULL, 4096);
	move(IBV_WR_RDMA_WRITE, &fresh.a, 0, &fresh.b, 0, 100, 1);
	pair_close(&fresh);
}
