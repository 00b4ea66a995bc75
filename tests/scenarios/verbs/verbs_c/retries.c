// SPDX-License-Identifier: GPL-2.0
/* Nobody answers (RETRY_EXC), or nobody is ready (RNR_RETRY_EXC), and how long that takes at least. */
#include "causes.h"

/* Delays of RNR NAKs in units of 10 us, by their code (IBTA volume 1, table 45). */
static const unsigned int rnr_delay[32] = {
	65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096,
	6144, 8192, 12288, 16384, 24576, 32768, 49152,
};

static void peer_gone(struct scene *s, const struct cause *c, struct draft *d)
{
	plain(s, c, d);
	DESTROY(s->p.b.qp);
	/* Another takes its place, of whom the requester knows nothing. */
	s->p.b.qp = make_qp(&s->p.b);
}

static void peer_in(struct scene *s, const struct cause *c, struct draft *d)
{
	plain(s, c, d);
	CHECK(!to_state(&s->p.b, c->arg[2] == IBV_QPS_ERR ? IBV_QPS_ERR : IBV_QPS_RESET), "to ERR or RESET");
	if (c->arg[2] == IBV_QPS_INIT)
		CHECK(!to_init(&s->p, &s->p.b), "to INIT");
}

/* The peer is connected, but to somebody else: a stranger of the same device. */
static void peer_elsewhere(struct scene *s, const struct cause *c, struct draft *d)
{
	plain(s, c, d);
	CHECK(!to_state(&s->p.b, IBV_QPS_RESET) && !to_init(&s->p, &s->p.b) &&
	      !to_rtr(&s->p, &s->p.b, &s->p.b, s->p.b.qp->qp_num), "the peer's transitions");
}

/* What becomes of the peer, how often and how long it is waited for; args: an operation, its length, the state of the peer. */
#define RETRIES(what, how, peer, count, exponent, args, ...) \
	{ what, .build = how, .opt = { .retry_cnt = (count) ? (count) : NONE, .timeout = exponent, __VA_ARGS__ }, \
	  .at_least_us = ((count) + 1) * (4096u << (exponent)) / 1000, .status = IBV_WC_RETRY_EXC_ERR, \
	  .responder = peer, .arg = { args } }
#define GONE "SEND to a queue pair that is gone, "
#define ARGS(...) __VA_ARGS__

static const struct cause retry[] = {
	RETRIES(GONE "retry_cnt 0", peer_gone, LEFT_BEFORE, 0, 12, ARGS(IBV_WR_SEND, 100)),
	RETRIES(GONE "retry_cnt 1", peer_gone, LEFT_BEFORE, 1, 12, ARGS(IBV_WR_SEND, 100)),
	RETRIES(GONE "retry_cnt 3", peer_gone, LEFT_BEFORE, 3, 12, ARGS(IBV_WR_SEND, 100)),
	RETRIES("WRITE of 3000 bytes to a queue pair that is gone, timeout 8", peer_gone, LEFT_BEFORE, 2, 8,
		ARGS(IBV_WR_RDMA_WRITE, 3000)),
	RETRIES("READ of 3000 bytes from a queue pair that is gone, timeout 15", peer_gone, LEFT_BEFORE, 2, 15,
		ARGS(IBV_WR_RDMA_READ, 3000)),
	RETRIES("SEND to a queue pair in ERR", peer_in, LEFT_BEFORE, 2, 10, ARGS(IBV_WR_SEND, 100, IBV_QPS_ERR)),
	RETRIES("WRITE to a queue pair in RESET", peer_in, LEFT_BEFORE, 2, 10, ARGS(IBV_WR_RDMA_WRITE, 100, IBV_QPS_RESET)),
	RETRIES("READ from a queue pair in INIT", peer_in, LEFT_BEFORE, 2, 10, ARGS(IBV_WR_RDMA_READ, 100, IBV_QPS_INIT)),
	RETRIES("SEND to a number that nobody has", plain, STAYS, 2, 10, ARGS(IBV_WR_SEND, 100), .wrong_qpn = true),
	RETRIES("SEND with a PSN far ahead of what is expected", plain, STAYS, 2, 10, ARGS(IBV_WR_SEND, 100), .psn_ahead = 1000),
	{ GONE "retry_cnt 7", .build = peer_gone, .arg = { IBV_WR_SEND, 100 }, .opt = { .retry_cnt = 7, .timeout = 12 },
	  .at_least_us = 8 * 16777, .status = IBV_WC_RETRY_EXC_ERR, .responder = LEFT_BEFORE,
	  .rxe = "takes a retry_cnt of 7 for ever" },
	{ GONE "waited for twice the timeout", .build = peer_gone, .arg = { IBV_WR_SEND, 100 },
	  .opt = { .retry_cnt = NONE, .timeout = 14 }, .at_least_us = 2 * 67108, .status = IBV_WC_RETRY_EXC_ERR,
	  .responder = LEFT_BEFORE, .rxe = "waits for one Local ACK Timeout" },
	{ GONE "timeout 1, which is too short for any peer", .build = peer_gone, .arg = { IBV_WR_SEND, 100 },
	  .opt = { .retry_cnt = 2, .timeout = 1 }, .at_least_us = 3 * 8388, .status = IBV_WC_RETRY_EXC_ERR,
	  .responder = LEFT_BEFORE, .rxe = "waits for a jiffy" },
	{ "SEND to a queue pair that is connected to another one on the same device", .build = peer_elsewhere,
	  .arg = { IBV_WR_SEND, 100 }, .opt = { .retry_cnt = 2, .timeout = 10 }, .status = IBV_WC_RETRY_EXC_ERR,
	  .responder = LEFT_BEFORE, .local_only = true },
};

/* Every delay with one retry; every number of retries with one delay; every operation that takes a receive. */
static const struct {
	const char *text;
	enum ibv_wr_opcode op;
	uint32_t len;
} takers[] = {
	{ "SEND of 0 bytes", IBV_WR_SEND, 0 },
	{ "SEND of 3000 bytes", IBV_WR_SEND, 3000 },
	{ "SEND with immediate of 100 bytes", IBV_WR_SEND_WITH_IMM, 100 },
	{ "WRITE with immediate of 100 bytes", IBV_WR_RDMA_WRITE_WITH_IMM, 100 },
};

enum { TAKERS = COUNT(takers), RETRY_COUNTS = 7, DELAYS = 32, ENDLESS = 1 };

/* rnr_retry 7 is for ever: with the longest wait that a test can afford, the request is still there. */
static void endless(struct scene *s, const struct cause *c)
{
	(void)c;
	post_one(&s->p.a, IBV_WR_SEND, 1, 0, 100);
	expect_none(&s->p.a, 500, "of a SEND nobody is ready for");
	post_room(&s->p.b, 2, TARGET, 100);
	expect(&s->p.a, 1, IBV_WC_SUCCESS, "the patient SEND");
	expect(&s->p.b, 2, IBV_WC_SUCCESS, "the late receive");
}

static void rnr_get(int i, struct cause *c)
{
	int taker = 1, retries = 1, timer = 14;

	if (i == TAKERS + RETRY_COUNTS + DELAYS) {
		*c = (struct cause){ "nothing with rnr_retry 7, for 500 us times 1000", .refused = endless, .opt.rnr_timer = 12 };
		return;
	}
	if (i < TAKERS)
		taker = i;
	else if (i < TAKERS + RETRY_COUNTS)
		retries = i - TAKERS;
	else
		timer = i - TAKERS - RETRY_COUNTS;
	snprintf(c->text, sizeof(c->text), "%s without a receive, rnr_retry %d, a delay of %u.%02u ms", takers[taker].text,
		 retries, rnr_delay[timer] / 100, rnr_delay[timer] % 100);
	c->opt.rnr_retry = retries ? retries : NONE;
	c->opt.rnr_timer = timer ? timer : NONE;
	c->build = plain;
	c->arg[0] = takers[taker].op;
	c->arg[1] = takers[taker].len;
	c->no_receives = true;
	c->status = IBV_WC_RNR_RETRY_EXC_ERR;
	c->at_least_us = 10 * retries * rnr_delay[timer];
}

const struct family retry_family = { "retries", 90, retry, COUNT(retry) };
const struct family rnr_family = { "receiver-not-ready", 90, NULL, TAKERS + RETRY_COUNTS + DELAYS + ENDLESS, rnr_get };
