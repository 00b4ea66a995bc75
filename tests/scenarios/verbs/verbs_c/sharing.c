// SPDX-License-Identifier: GPL-2.0
/* One completion queue of several queue pairs: what stands in it when one of them goes, and threads that share it. */
#include "pair.h"

/* Of the completion queue. */
enum { ENTRIES = 4 * DEPTH };

/*
 * The a sides of two pairs share a queue: that of the case, which is kept, and one that goes. Requests of the first have
 * the numbers 1, 2, 3 ..., sends and receives apart; those of the other have GOES in theirs, and must not be seen once
 * its queue pair is destroyed.
 */
static struct {
	struct pair goes;
	struct ibv_cq_ex *extended;
	uint64_t posted, sends_seen, recvs_seen, goes_seen;
} s;

#define GOES (1ull << 32)

static void open_shared(bool extended)
{
	struct ibv_comp_channel *channel = p.a.channel;

	memset(&s, 0, sizeof(s));
	pair_open_beside(&s.goes, &p, 8192);
	if (extended)
		s.extended = new_cq_ex(p.a.ctx, (struct ibv_cq_init_attr_ex){
			.cqe = ENTRIES, .channel = channel, .wc_flags = IBV_WC_EX_WITH_QP_NUM });
	use_cq(&p, extended ? ibv_cq_ex_to_cq(s.extended) : new_cq(p.a.ctx, ENTRIES, channel, NULL));
	use_cq(&s.goes, p.a.cq);
}

static void close_shared(void)
{
	s.goes.a.cq = NULL;
	pair_close(&s.goes);
}

/* One message each way. Afterwards a's receive is complete: b has its acknowledgement. */
static void exchange(struct pair *p, uint64_t id)
{
	post_room(&p->b, id, 0, 16);
	post_one(&p->a, IBV_WR_SEND, id, 0, 16);
	expect(&p->b, id, IBV_WC_SUCCESS, "receive of b");
	post_room(&p->a, id, 0, 16);
	post_one(&p->b, IBV_WR_SEND, id, 0, 16);
	expect(&p->b, id, IBV_WC_SUCCESS, "SEND of b");
}

static void exchange_kept(void)
{
	exchange(&p, ++s.posted);
}

static void seen(uint64_t id, uint32_t qpn, enum ibv_wc_status status, enum ibv_wc_opcode opcode, bool gone)
{
	uint64_t *last = opcode == IBV_WC_RECV ? &s.recvs_seen : &s.sends_seen;

	CHECK(status == IBV_WC_SUCCESS, "request %#llx: %s", (unsigned long long)id, ibv_wc_status_str(status));
	if (id & GOES) {
		CHECK(!gone, "completion %#llx of queue pair %u, which is gone, is still in the queue",
		      (unsigned long long)id, qpn);
		s.goes_seen++;
		return;
	}
	CHECK(qpn == p.a.qp->qp_num, "completion of queue pair %u", qpn);
	CHECK(id == *last + 1, "%s %llu follows %llu", opcode == IBV_WC_RECV ? "receive" : "SEND",
	      (unsigned long long)id, (unsigned long long)*last);
	*last = id;
}

/* Takes at most so many completions; how many there were. */
static int take(int most, bool gone)
{
	struct ibv_poll_cq_attr attr = { 0 };
	struct ibv_cq_ex *x = s.extended;
	struct ibv_wc wc;
	int n = 0, rc;

	if (!most)
		return 0;
	if (!x) {
		while (n < most && (rc = ibv_poll_cq(p.a.cq, 1, &wc)) > 0) {
			seen(wc.wr_id, wc.qp_num, wc.status, wc.opcode, gone);
			n++;
		}
		return n;
	}
	rc = ibv_start_poll(x, &attr);
	if (rc == ENOENT)
		return 0;
	CHECK(!rc, "ibv_start_poll: %s", strerror(rc));
	for (;;) {
		seen(x->wr_id, ibv_wc_read_qp_num(x), x->status, ibv_wc_read_opcode(x), gone);
		if (++n == most)
			break;
		rc = ibv_next_poll(x);
		CHECK(!rc || rc == ENOENT, "ibv_next_poll: %s", strerror(rc));
		if (rc)
			break;
	}
	ibv_end_poll(x);
	return n;
}

static bool all_is_taken(void)
{
	take(ENTRIES, true);
	return s.sends_seen == s.posted && s.recvs_seen == s.posted;
}

/* Everything of the pair that is kept comes, in order; a SEND's completion may be a little later than its receive's. */
static void take_rest(void)
{
	WAIT_UNTIL(all_is_taken(), "of %llu messages each way %llu SENDs and %llu receives are complete",
		   (unsigned long long)s.posted, (unsigned long long)s.sends_seen, (unsigned long long)s.recvs_seen);
	CHECK(!take(1, true), "a completion too many");
}

static void remove_queue_pair(void)
{
	DESTROY(s.goes.a.qp);
	s.goes.a.qp = NULL;
}

static void renew_queue_pair(void)
{
	s.goes.a.qp = make_qp(&s.goes.a);
	pair_reconnect(&s.goes, NULL);
}

/* Many times round the ring, with the completions of both mixed in ever another way, some taken before. */
static void mixed(bool extended)
{
	enum { ROUNDS = 40, EACH = 10 };
	uint32_t draw = 1;

	open_shared(extended);
	for (int round = 0; round < ROUNDS; round++) {
		int kept = 0, going = 0;

		while (kept < EACH || going < EACH) {
			draw = draw * 1664525u + 1013904223u;
			if (going == EACH || (kept < EACH && (draw >> 16) % 2)) {
				exchange_kept();
				kept++;
			} else {
				exchange(&s.goes, GOES | going++);
			}
		}
		s.goes_seen = 0;
		/* Fewer than there are of `goes`: at least its receives. */
		take(draw % EACH, false);
		CHECK(s.goes_seen < EACH, "nothing of the queue pair that goes is left in the queue");
		remove_queue_pair();
		/* The other one goes on. */
		exchange_kept();
		take_rest();
		renew_queue_pair();
	}
	CHECK(s.recvs_seen > ENTRIES, "the ring has not come round");
	close_shared();
}

CASE("users.shared-cq-destroy",
     "completions of a destroyed queue pair are not seen, the others in order; by ibv_poll_cq and ibv_start_poll",
     .rxe = "leaves completions of a queue pair that is gone in the queue",
     .opt = { .events = true }, .len = 8192)
{
	mixed(false);
	mixed(true);
}
