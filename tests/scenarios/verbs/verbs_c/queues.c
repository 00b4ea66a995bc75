// SPDX-License-Identifier: GPL-2.0
/* Completion queues: all that a completion tells, its time, moderated events, overruns, and other sizes. */
#include "pair.h"

#include <time.h>

#define RXE "has no times, no moderation, and overruns only in its own way"

#define STANDARD IBV_WC_STANDARD_FLAGS
#define TIME IBV_WC_EX_WITH_COMPLETION_TIMESTAMP
#define WALLCLOCK IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK

static uint64_t raw_clock(struct ibv_context *ctx)
{
	struct ibv_values_ex values = { .comp_mask = IBV_VALUES_MASK_RAW_CLOCK };

	MUST(ibv_query_rt_values_ex(ctx, &values));
	CHECK(values.comp_mask == IBV_VALUES_MASK_RAW_CLOCK, "the device has no clock");
	return values.raw_clock.tv_sec * 1000000000ull + values.raw_clock.tv_nsec;
}

static uint64_t wall_clock(void)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	return t.tv_sec * 1000000000ull + t.tv_nsec;
}

/* The first completion, which must come within the patience. */
static void begin_poll(struct ibv_cq_ex *cq)
{
	struct ibv_poll_cq_attr attr = { 0 };
	int rc;

	WAIT_UNTIL((rc = ibv_start_poll(cq, &attr)) != ENOENT, "no completion");
	CHECK(!rc, "ibv_start_poll: %s", strerror(rc));
}

CASE("queues.cq-fields", "all that a completion tells by ibv_start_poll, and its time", .rxe = RXE, .len = 8192)
{
	static const uint64_t refused[] = { IBV_WC_EX_WITH_FLOW_TAG, IBV_WC_EX_WITH_TM_INFO, 1 << 12, 1ull << 40 };
	struct ibv_device_attr_ex device;

	MUST(ibv_query_device_ex(p.a.ctx, NULL, &device));
	CHECK(device.completion_timestamp_mask == ~0ull && device.hca_core_clock == 1000000,
	      "the clock has the mask 0x%llx and %llu kHz", (unsigned long long)device.completion_timestamp_mask,
	      (unsigned long long)device.hca_core_clock);
	for (size_t i = 0; i < COUNT(refused); i++) {
		struct ibv_cq_init_attr_ex attr = { .cqe = 4, .wc_flags = refused[i] };

		CHECK(!ibv_create_cq_ex(p.a.ctx, &attr) && errno == EOPNOTSUPP, "field 0x%llx: %s",
		      (unsigned long long)refused[i], strerror(errno));
	}
	struct ibv_cq_ex *cq = new_cq_ex(p.a.ctx, (struct ibv_cq_init_attr_ex){
		.cqe = DEPTH, .wc_flags = STANDARD | TIME | WALLCLOCK, .comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS,
		.flags = IBV_CREATE_CQ_ATTR_SINGLE_THREADED });

	use_cq(&p, ibv_cq_ex_to_cq(cq));
	uint64_t before = raw_clock(p.a.ctx), wall_before = wall_clock();

	for (int i = 0; i < 3; i++) {
		struct ibv_sge list = sge(&p.b, 0, 100);
		struct ibv_send_wr w = wr(IBV_WR_SEND_WITH_IMM, i, &list, 1);

		post_room(&p.a, 40 + i, 4096, 200);
		w.imm_data = 0x11223344 + i;
		post(&p.b, &w);
		expect(&p.b, i, IBV_WC_SUCCESS, "the SEND");
	}
	begin_poll(cq);
	for (int i = 0; i < 3; i++) {
		CHECK(i == 0 || !ibv_next_poll(cq), "completion %d is missing", i);
		CHECK(cq->wr_id == 40u + i && cq->status == IBV_WC_SUCCESS, "completion of %llu, %s",
		      (unsigned long long)cq->wr_id, ibv_wc_status_str(cq->status));
		CHECK(ibv_wc_read_opcode(cq) == IBV_WC_RECV && ibv_wc_read_byte_len(cq) == 100 &&
		      ibv_wc_read_wc_flags(cq) == IBV_WC_WITH_IMM && ibv_wc_read_imm_data(cq) == 0x11223344u + i &&
		      ibv_wc_read_qp_num(cq) == p.a.qp->qp_num,
		      "opcode %d, %u bytes, flags %u, immediate 0x%x, queue pair %u", ibv_wc_read_opcode(cq),
		      ibv_wc_read_byte_len(cq), ibv_wc_read_wc_flags(cq), ibv_wc_read_imm_data(cq), ibv_wc_read_qp_num(cq));
		CHECK(!ibv_wc_read_vendor_err(cq) && !ibv_wc_read_slid(cq) && !ibv_wc_read_dlid_path_bits(cq) &&
		      !ibv_wc_read_sl(cq), "a field of a LID, a service level, or an error");
		uint64_t at = ibv_wc_read_completion_ts(cq), wall = ibv_wc_read_completion_wallclock_ns(cq);

		CHECK(before < at && at < raw_clock(p.a.ctx), "%llu is not between %llu and now", (unsigned long long)at,
		      (unsigned long long)before);
		/* The time of day is corrected all the time, and may be set. */
		CHECK(wall + 2000000000 > wall_before && wall < wall_clock() + 2000000000, "%llu is not between %llu and now",
		      (unsigned long long)wall, (unsigned long long)wall_before);
		before = at;
	}
	CHECK(ibv_next_poll(cq) == ENOENT, "a completion too many");
	ibv_end_poll(cq);
	/* An error tells its time, too. */
	struct ibv_sge bad = { .addr = (uintptr_t)p.a.buf, .length = 10, .lkey = p.a.mr->lkey ^ 0x5500 };
	struct ibv_send_wr w = wr(IBV_WR_RDMA_WRITE, 50, &bad, 1);

	aim(&w, &p.b, 0);
	post(&p.a, &w);
	begin_poll(cq);
	CHECK(cq->wr_id == 50 && cq->status == IBV_WC_LOC_PROT_ERR && ibv_wc_read_completion_ts(cq) > before,
	      "completion of %llu, %s", (unsigned long long)cq->wr_id, ibv_wc_status_str(cq->status));
	ibv_end_poll(cq);
}

static bool is_draining(struct side *s)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	MUST(ibv_query_qp(s->qp, &attr, IBV_QP_STATE, &init));
	return attr.sq_draining;
}

/* A send queue that is drained has completed all. It goes on afterwards. */
static void drain(struct side *s)
{
	MUST(to_state(s, IBV_QPS_SQD));
	WAIT_UNTIL(!is_draining(s), "the send queue is not drained");
	MUST(to_state(s, IBV_QPS_RTS));
}

static void moderate(struct ibv_cq *cq, int count, int period)
{
	struct ibv_modify_cq_attr attr = { .attr_mask = IBV_CQ_ATTR_MODERATE,
					   .moderate = { .cq_count = count, .cq_period = period } };

	MUST(ibv_modify_cq(cq, &attr));
}

/* So many requests in one list are done, and their completions taken. */
static void done(int n)
{
	struct ibv_send_wr list[3];

	for (int i = 0; i < n; i++) {
		list[i] = wr(IBV_WR_RDMA_WRITE, i, NULL, 0);
		list[i].next = i + 1 < n ? &list[i + 1] : NULL;
	}
	post(&p.a, list);
	for (int i = 0; i < n; i++)
		expect(&p.a, i, IBV_WC_SUCCESS, "the WRITE");
}

/*
 * Moderation loses no event and makes none up: one comes for each arming, after enough completions or after the time, and
 * none without. What is held back, and for how long, the tests of cq_producer.rs show, whose clock stands still.
 */
CASE("queues.cq-moderation", "events wait for their count or their time, and none is lost", .paths = LOCAL_PATH,
     .rxe = RXE, .opt = { .events = true }, .len = 4096)
{
	enum { PERIOD = 65535 };
	static const struct {
		int count, period, completions;
	} rounds[] = { { 3, PERIOD, 3 }, { 3, PERIOD, 1 }, { 2, 1, 3 }, { 100, PERIOD, 2 }, { 0, 0, 1 } };
	struct ibv_modify_cq_attr wrong = { .attr_mask = IBV_CQ_ATTR_RESERVED };
	struct ibv_device_attr_ex device;

	MUST(ibv_query_device_ex(p.a.ctx, NULL, &device));
	CHECK(device.cq_mod_caps.max_cq_count == 65535 && device.cq_mod_caps.max_cq_period == 65535,
	      "the device moderates %u completions, %u us", device.cq_mod_caps.max_cq_count,
	      device.cq_mod_caps.max_cq_period);
	CHECK(ibv_modify_cq(p.a.cq, &wrong) == EINVAL, "an unknown attribute was changed");
	for (size_t i = 0; i < 4 * COUNT(rounds); i++) {
		size_t r = i % COUNT(rounds);

		moderate(p.a.cq, rounds[r].count, rounds[r].period);
		MUST(ibv_req_notify_cq(p.a.cq, 0));
		done(rounds[r].completions);
		CHECK(event_within(&p.a, 1000 * patience()), "the event of %d completions is lost", rounds[r].completions);
		/* Longer than any period. */
		done(rounds[r].completions);
		CHECK(!event_within(&p.a, 100), "an event that nobody has asked for");
	}
	/* What is held back when moderation ends comes at once. */
	moderate(p.a.cq, 100, PERIOD);
	MUST(ibv_req_notify_cq(p.a.cq, 0));
	done(1);
	moderate(p.a.cq, 0, 0);
	CHECK(event_within(&p.a, 1000 * patience()), "an event that was held back is lost");
	/* A queue may go while one is held back. */
	moderate(p.a.cq, 100, PERIOD);
	MUST(ibv_req_notify_cq(p.a.cq, 0));
	done(1);
}

CASE("queues.cq-resize", "a queue that is resized keeps what is in it, and its arm", .rxe = RXE,
     .opt = { .events = true }, .len = 4096)
{
	static const int sizes[] = { 16, 40, 11, 4096, 10, 64, 12, 10 };
	struct ibv_device_attr device;
	uint64_t posted = 0, seen = 0;
	struct ibv_wc wc;

	MUST(ibv_query_device(p.a.ctx, &device));
	for (int round = 0; round < 10; round++)
		for (size_t i = 0; i < COUNT(sizes); i++) {
			/* Ten are in there most of the time; they come round the ring. */
			for (; posted < seen + 10; posted++)
				post_one(&p.a, IBV_WR_RDMA_WRITE, posted, 0, 0);
			move(IBV_WR_RDMA_WRITE, &p.b, 0, &p.a, 0, 10, 1);
			MUST(ibv_resize_cq(p.a.cq, sizes[i]));
			CHECK(p.a.cq->cqe >= sizes[i] && p.a.cq->cqe < 2 * sizes[i], "%d entries, not %d",
			      p.a.cq->cqe, sizes[i]);
			for (int n = i % 4 * 3; n; n--, seen++)
				expect(&p.a, seen, IBV_WC_SUCCESS, "a request");
		}
	for (; seen < posted; seen++)
		expect(&p.a, seen, IBV_WC_SUCCESS, "a request");
	/* Too little, nothing, and too much change nothing. */
	for (; posted < seen + 10; posted++)
		post_one(&p.a, IBV_WR_RDMA_WRITE, posted, 0, 0);
	drain(&p.a);
	CHECK(ibv_resize_cq(p.a.cq, 4) == EINVAL, "ten completions were put into four entries");
	CHECK(ibv_resize_cq(p.a.cq, 0) == EINVAL && ibv_resize_cq(p.a.cq, device.max_cqe + 1) == EINVAL &&
	      ibv_resize_cq(p.a.cq, -1) == EINVAL, "a size that cannot be");
	for (; seen < posted; seen++)
		expect(&p.a, seen, IBV_WC_SUCCESS, "a request");
	CHECK(!ibv_poll_cq(p.a.cq, 1, &wc), "a completion too many");
	/* Who has armed the queue before learns of what comes after. Of before nothing is held back. */
	while (event_within(&p.a, 100))
		;
	MUST(ibv_req_notify_cq(p.a.cq, 0));
	MUST(ibv_resize_cq(p.a.cq, 100));
	done(1);
	CHECK(event_within(&p.a, 1000 * patience()), "the event is lost");
	MUST(ibv_resize_cq(p.a.cq, 10));
	done(2);
	CHECK(!event_within(&p.a, 0), "an event that nobody has asked for");
}
