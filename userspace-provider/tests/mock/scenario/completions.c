// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/* Completion queues: polling, times, and moving to another ring. */
#include "scenario.h"

void completion_queue(void)
{
	struct control *c = control(RING_CQ);
	struct ibv_wc wc[20];
	struct ibv_cq *cq;

	clear_rings();
	/* Indices that wrap soon. */
	c->producer = c->consumer = -3u;
	cq = create_cq();
	CHECK(cq && cq->context == context && cq->cqe == 16 && mappings() == 1);
	CHECK(mock.ops.poll_cq(cq, 1, wc) == 0);
	for (int i = 0; i < 16; i++)
		complete(100 + i);
	memset(wc, 0xff, sizeof(wc));
	CHECK(mock.ops.poll_cq(cq, 0, wc) == 0 && mock.ops.poll_cq(cq, -1, wc) == 0);
	CHECK(c->consumer == -3u);
	CHECK(mock.ops.poll_cq(cq, 5, wc) == 5 && c->consumer == 2);
	for (int i = 0; i < 5; i++)
		CHECK(wc[i].wr_id == 100 + i);
	CHECK(wc[0].status == 1 && wc[0].opcode == 2 && wc[0].byte_len == 3);
	CHECK(wc[0].imm_data == 4 && wc[0].qp_num == 5 && wc[0].src_qp == 6);
	CHECK(wc[0].wc_flags == 7 && wc[0].vendor_err == 8 && wc[0].pkey_index == 9);
	CHECK(!wc[0].slid && wc[0].sl == 10 && !wc[0].dlid_path_bits);
	CHECK(wc[5].wr_id == -1ull);
	CHECK(mock.ops.poll_cq(cq, 20, wc) == 11 && c->consumer == 13 && wc[10].wr_id == 115);
	CHECK(mock.ops.poll_cq(cq, 20, wc) == 0);

	CHECK(!mock.ops.req_notify_cq(cq, 1) && c->arm == 1);
	CHECK(!mock.ops.req_notify_cq(cq, 0) && c->arm == 2);
	CHECK(!mock.ops.req_notify_cq(cq, 1) && c->arm == 2);

	/* Something has written over the index of the module: that is an error, and not for ever. */
	uint32_t good = c->producer;

	c->producer = good + 17;
	memset(wc, 0xff, sizeof(wc));
	CHECK(mock.ops.poll_cq(cq, 20, wc) == -EIO && wc[0].wr_id == -1ull && c->consumer == 13);
	c->producer = good - 1;
	CHECK(mock.ops.poll_cq(cq, 20, wc) == -EIO);
	c->producer = good;
	CHECK(mock.ops.poll_cq(cq, 20, wc) == 0);
	complete(1);
	CHECK(mock.ops.poll_cq(cq, 20, wc) == 1 && wc[0].wr_id == 1);

	mock.error = EBUSY;
	CHECK(mock.ops.destroy_cq(cq) == EBUSY && mock.ops.poll_cq(cq, 1, wc) == 0);
	errno = 0;
	CHECK(!create_cq() && errno == EBUSY);
	mock.error = 0;
	CHECK(!mock.ops.destroy_cq(cq) && mappings() == 0 && mock.objects == 1);
}

void bad_rings(void)
{
	struct ring_map good = mock.cq;

	mock.cq.entries = 12;
	errno = 0;
	CHECK(!create_cq() && errno == EPROTO && mock.objects == 1);
	mock.cq = good;
	mock.cq.stride = 32;
	CHECK(!create_cq() && errno == EPROTO && mock.objects == 1);
	mock.cq = good;
	mock.cq.length = 0;
	CHECK(!create_cq() && errno == EPROTO && mock.objects == 1);
	mock.cq = good;
	mock.cq.offset += 64;
	CHECK(!create_cq() && errno == EINVAL && mock.objects == 1);
	mock.cq = good;
	CHECK(mappings() == 0);
}

void extended_completion_queue(void)
{
	struct ibv_cq_init_attr_ex attr = { .cqe = 16, .wc_flags = IBV_WC_STANDARD_FLAGS };
	struct ibv_poll_cq_attr poll = {};
	struct ibv_cq_ex *cq;
	struct ibv_wc wc;

	clear_rings();
	for (uint64_t refused = 1; refused <= 1 << 20; refused *= 2) {
		if (refused & (IBV_WC_STANDARD_FLAGS | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP | IBV_WC_EX_WITH_CVLAN |
			       IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK))
			continue;
		attr.wc_flags = refused;
		errno = 0;
		CHECK(!mock.ops.create_cq_ex(context, &attr) && errno == EOPNOTSUPP);
	}
	attr.wc_flags = IBV_WC_STANDARD_FLAGS | IBV_WC_EX_WITH_CVLAN;
	attr.comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS;
	attr.flags = 1 << 2;
	errno = 0;
	CHECK(!mock.ops.create_cq_ex(context, &attr) && errno == EOPNOTSUPP);
	attr.flags = IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN;
	attr.comp_mask = 1 << 2;
	CHECK(!mock.ops.create_cq_ex(context, &attr));
	attr.comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS;
	attr.flags = IBV_CREATE_CQ_ATTR_SINGLE_THREADED;
	cq = mock.ops.create_cq_ex(context, &attr);
	CHECK(cq && mappings() == 1);

	/* Who finds nothing writes nothing where the module reads. */
	control(RING_CQ)->consumer = 77;
	CHECK(ibv_start_poll(cq, &poll) == ENOENT && control(RING_CQ)->consumer == 77);
	control(RING_CQ)->consumer = 0;
	complete(41);
	complete(42);
	complete(43);
	poll.comp_mask = 1;
	CHECK(ibv_start_poll(cq, &poll) == EINVAL);
	poll.comp_mask = 0;
	CHECK(!ibv_start_poll(cq, &poll));
	CHECK(cq->wr_id == 41 && cq->status == 1 && ibv_wc_read_opcode(cq) == 2);
	CHECK(ibv_wc_read_byte_len(cq) == 3 && ibv_wc_read_imm_data(cq) == 4);
	CHECK(ibv_wc_read_qp_num(cq) == 5 && ibv_wc_read_src_qp(cq) == 6);
	CHECK(ibv_wc_read_wc_flags(cq) == 7 && ibv_wc_read_vendor_err(cq) == 8);
	CHECK(!ibv_wc_read_slid(cq) && ibv_wc_read_sl(cq) == 10 && ibv_wc_read_cvlan(cq) == 11 && !ibv_wc_read_dlid_path_bits(cq));
	CHECK(control(RING_CQ)->consumer == 0);
	CHECK(!ibv_next_poll(cq) && cq->wr_id == 42);
	ibv_end_poll(cq);
	CHECK(control(RING_CQ)->consumer == 2);
	/* Both interfaces share the queue, and the lock is free again. */
	CHECK(mock.ops.poll_cq(ibv_cq_ex_to_cq(cq), 1, &wc) == 1 && wc.wr_id == 43);
	complete(44);
	CHECK(!ibv_start_poll(cq, &poll) && ibv_next_poll(cq) == ENOENT);
	ibv_end_poll(cq);
	CHECK(control(RING_CQ)->consumer == 4);
	control(RING_CQ)->producer = 1000;
	CHECK(ibv_start_poll(cq, &poll) == EIO);
	control(RING_CQ)->producer = 4;
	CHECK(ibv_start_poll(cq, &poll) == ENOENT);
	CHECK(!mock.ops.destroy_cq(ibv_cq_ex_to_cq(cq)) && mappings() == 0);
}

/* The times of completions, and the clock that they are of. */
void times(void)
{
	struct ibv_cq_init_attr_ex attr = { .cqe = 16, .wc_flags = IBV_WC_EX_WITH_COMPLETION_TIMESTAMP };
	struct ibv_values_ex values = { .comp_mask = IBV_VALUES_MASK_RAW_CLOCK };
	struct ibv_poll_cq_attr poll = {};
	struct cqe *cqe = (struct cqe *)(file + RING_CQ + 256);
	struct timespec before, after;
	struct ibv_cq_ex *cq;

	clear_rings();
	cq = mock.ops.create_cq_ex(context, &attr);
	CHECK(cq && cq->read_completion_ts && !cq->read_completion_wallclock_ns);
	complete(1);
	cqe[0].timestamp = 0x123456789abcdef;
	CHECK(!ibv_start_poll(cq, &poll) && ibv_wc_read_completion_ts(cq) == 0x123456789abcdef);
	ibv_end_poll(cq);
	CHECK(!mock.ops.destroy_cq(ibv_cq_ex_to_cq(cq)));

	clock_gettime(CLOCK_MONOTONIC_RAW, &before);
	CHECK(!mock.ops.query_rt_values(context, &values));
	CHECK(values.comp_mask == IBV_VALUES_MASK_RAW_CLOCK && !values.raw_clock.tv_sec);
	CHECK(values.raw_clock.tv_nsec >= before.tv_sec * 1000000000 + before.tv_nsec);
	values.comp_mask = 2;
	CHECK(mock.ops.query_rt_values(context, &values) == EINVAL);

	/* The time of day of a completion is between two looks at the clock. */
	clear_rings();
	attr.wc_flags = IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK;
	cq = mock.ops.create_cq_ex(context, &attr);
	CHECK(cq && !cq->read_completion_ts && ibv_start_poll(cq, &poll) == ENOENT);
	complete(1);
	complete(2);
	clock_gettime(CLOCK_REALTIME, &before);
	values.comp_mask = IBV_VALUES_MASK_RAW_CLOCK;
	CHECK(!mock.ops.query_rt_values(context, &values));
	cqe[0].timestamp = values.raw_clock.tv_nsec;
	cqe[1].timestamp = values.raw_clock.tv_nsec + 1;
	CHECK(!ibv_start_poll(cq, &poll));
	clock_gettime(CLOCK_REALTIME, &after);
	uint64_t at = ibv_wc_read_completion_wallclock_ns(cq);

	/* The clocks do not run at the same rate. */
	CHECK(at + 1000000 >= before.tv_sec * 1000000000ull + before.tv_nsec);
	CHECK(at <= after.tv_sec * 1000000000ull + after.tv_nsec + 1000000);
	CHECK(!ibv_next_poll(cq) && ibv_wc_read_completion_wallclock_ns(cq) == at + 1);
	ibv_end_poll(cq);
	CHECK(!mock.ops.destroy_cq(ibv_cq_ex_to_cq(cq)) && mappings() == 0);
}

static struct control *resized_to(void)
{
	return control(RING_CQ2);
}

/* As the module does it; one more is completed there before the process has mapped it. */
static void move_queue(void)
{
	struct control *from = control(RING_CQ), *to = resized_to();
	struct cqe *old = (void *)(from + 1), *new = (void *)(to + 1);

	for (uint32_t i = from->consumer; i != from->producer; i++)
		new[i % 32] = old[i % 16];
	to->consumer = from->consumer;
	to->producer = from->producer + 1;
	new[from->producer % 32] = (struct cqe){ .wr_id = 70 };
	to->arm = from->arm;
}

void resizing(void)
{
	struct ibv_modify_cq_attr moderate = { IBV_CQ_ATTR_MODERATE, { 5, 6 } };
	struct control *c = control(RING_CQ);
	struct ibv_poll_cq_attr poll = {};
	struct ibv_cq_init_attr_ex attr = { .cqe = 16 };
	struct ibv_cq_ex *ex;
	struct ibv_wc wc[20];
	struct ibv_cq *cq;

	clear_rings();
	c->producer = c->consumer = -9u;
	cq = create_cq();
	CHECK(!mock.ops.modify_cq(cq, &moderate));
	mock.error = EINVAL;
	CHECK(mock.ops.modify_cq(cq, &moderate) == EINVAL);
	for (int i = 0; i < 16; i++)
		complete(i);
	CHECK(mock.ops.poll_cq(cq, 3, wc) == 3);
	CHECK(mock.ops.resize_cq(cq, 20) == EINVAL && cq->cqe == 16 && mappings() == 1);
	mock.error = 0;
	CHECK(!mock.ops.req_notify_cq(cq, 0));
	mock.on_resize = move_queue;
	CHECK(!mock.ops.resize_cq(cq, 20) && cq->cqe == 32 && mappings() == 1);
	CHECK(resized_to()->arm == 2 && mock.ops.poll_cq(cq, 20, wc) == 14);
	for (int i = 0; i < 13; i++)
		CHECK(wc[i].wr_id == 3 + i);
	CHECK(wc[13].wr_id == 70 && resized_to()->consumer == 8);
	resized_to()->arm = 0;
	CHECK(!mock.ops.req_notify_cq(cq, 1) && resized_to()->arm == 1);
	CHECK(!mock.ops.destroy_cq(cq) && mappings() == 0);

	/* Between start_poll and end_poll, by the thread that polls: what was taken is consumed. */
	clear_rings();
	ex = mock.ops.create_cq_ex(context, &attr);
	complete(1);
	complete(2);
	CHECK(!ibv_start_poll(ex, &poll) && ex->wr_id == 1);
	CHECK(!mock.ops.resize_cq(ibv_cq_ex_to_cq(ex), 20) && resized_to()->consumer == 1);
	CHECK(!ibv_next_poll(ex) && ex->wr_id == 2 && !ibv_next_poll(ex) && ex->wr_id == 70);
	ibv_end_poll(ex);
	CHECK(resized_to()->consumer == 3);
	CHECK(!mock.ops.destroy_cq(ibv_cq_ex_to_cq(ex)) && mappings() == 0);

	/* The new ring cannot be mapped: the module is there already, and nothing pretends otherwise. */
	clear_rings();
	cq = create_cq();
	mock.cq2.offset += 64;
	complete(1);
	CHECK(mock.ops.resize_cq(cq, 20) == EINVAL && mock.ops.poll_cq(cq, 20, wc) == -EIO);
	mock.cq2.offset -= 64;
	c->producer = 1;
	CHECK(!mock.ops.resize_cq(cq, 20) && mock.ops.poll_cq(cq, 20, wc) == 2 && wc[0].wr_id == 1);
	mock.on_resize = NULL;
	CHECK(!mock.ops.destroy_cq(cq) && mappings() == 0);
}
