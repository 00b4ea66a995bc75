/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What Rust fills in for each trace event. Documentation/tracing.md says what
 * the fields are.
 */
#ifndef FERROCE_TRACE_TYPES_H
#define FERROCE_TRACE_TYPES_H

#include <linux/types.h>
#include <rdma/ib_verbs.h>

/*
 * A list of fields is used three times: for the structure that Rust fills in,
 * for the record, and to copy the one to the other.
 */
#define FERROCE_MEMBER(type, name)	type name;

/* The BTH and the longest extended headers. */
#define FERROCE_TRACE_HEAD 40

struct ferroce_trace_verb {
	const char *name;
	u32 name_len;
	const struct ib_device *device;
};

struct ferroce_trace_verb_done {
	const char *name;
	u32 name_len;
	int ret;
};

struct ferroce_trace_qp {
	const struct ib_device *device;
	u32 qpn;
	u32 known_as;
	u32 type;
	u32 send_cq;
	u32 recv_cq;
	u32 max_send_wr;
	u32 max_recv_wr;
	u32 max_send_sge;
	u32 max_recv_sge;
	u32 max_inline;
};

#define FERROCE_QP_STATE_FIELDS(F)					\
	F(u32, qpn)							\
	F(u32, from)							\
	F(u32, to)							\
	F(u32, why)
struct ferroce_trace_qp_state {
	FERROCE_QP_STATE_FIELDS(FERROCE_MEMBER)
};

#define FERROCE_DOORBELL_FIELDS(F)					\
	F(u32, qpn)							\
	F(u32, producer)						\
	F(u32, taken)							\
	F(u32, by)
struct ferroce_trace_doorbell {
	FERROCE_DOORBELL_FIELDS(FERROCE_MEMBER)
};

#define FERROCE_TAKEN_FIELDS(F)						\
	F(u64, wr_id)							\
	F(u32, qpn)							\
	F(u32, index)							\
	F(u32, slot)							\
	F(u32, opcode)							\
	F(u32, len)							\
	F(u32, status)							\
	F(bool, signaled)						\
	F(bool, fence)							\
	F(bool, solicited)
struct ferroce_trace_taken {
	FERROCE_TAKEN_FIELDS(FERROCE_MEMBER)
};

/* Of a response, slot is -1; without an AETH, syndrome is. */
struct ferroce_trace_packet {
	u32 qpn;
	u32 dqpn;
	u32 psn;
	u32 len;
	u32 msn;
	u32 reason;
	s32 slot;
	s32 syndrome;
	s32 ifindex;
	u8 opcode;
	bool ack_req;
	u8 head_len;
	u8 head[FERROCE_TRACE_HEAD];
};

#define FERROCE_UNSENT_FIELDS(F)					\
	F(u32, qpn)							\
	F(u32, psn)							\
	F(u32, what)
struct ferroce_trace_unsent {
	FERROCE_UNSENT_FIELDS(FERROCE_MEMBER)
};

#define FERROCE_HANDED_FIELDS(F)					\
	F(u32, qpn)							\
	F(u32, to)							\
	F(u32, opcode)							\
	F(u32, psn)							\
	F(u32, span)							\
	F(u32, len)
struct ferroce_trace_handed {
	FERROCE_HANDED_FIELDS(FERROCE_MEMBER)
};

#define FERROCE_REQUEST_FIELDS(F)					\
	F(u32, qpn)							\
	F(u32, psn)							\
	F(u32, opcode)							\
	F(u32, outcome)
struct ferroce_trace_request {
	FERROCE_REQUEST_FIELDS(FERROCE_MEMBER)
};

#define FERROCE_ACK_FIELDS(F)						\
	F(u32, qpn)							\
	F(u32, psn)							\
	F(u32, syndrome)						\
	F(u32, msn)							\
	F(u32, una)							\
	F(u32, next)							\
	F(u32, window)
struct ferroce_trace_ack {
	FERROCE_ACK_FIELDS(FERROCE_MEMBER)
};

#define FERROCE_RECOVER_FIELDS(F)					\
	F(u64, timer_ns)						\
	F(u32, qpn)							\
	F(u32, what)							\
	F(u32, count)							\
	F(u32, una)							\
	F(u32, retries)							\
	F(u32, rnr_retries)
struct ferroce_trace_recover {
	FERROCE_RECOVER_FIELDS(FERROCE_MEMBER)
};

#define FERROCE_COMPLETE_FIELDS(F)					\
	F(u64, wr_id)							\
	F(u32, cq)							\
	F(u32, qpn)							\
	F(u32, status)							\
	F(u32, opcode)							\
	F(u32, byte_len)						\
	F(u32, vendor_err)
struct ferroce_trace_complete {
	FERROCE_COMPLETE_FIELDS(FERROCE_MEMBER)
};

#define FERROCE_CQ_EVENT_FIELDS(F)					\
	F(u32, cq)							\
	F(u32, what)
struct ferroce_trace_cq_event {
const struct ib_device *device;
	FERROCE_CQ_EVENT_FIELDS(FERROCE_MEMBER)
};

#define FERROCE_ASYNC_EVENT_FIELDS(F)					\
	F(u32, object)							\
	F(u32, id)							\
	F(u32, event)
struct ferroce_trace_async_event {
const struct ib_device *device;
	FERROCE_ASYNC_EVENT_FIELDS(FERROCE_MEMBER)
};

#define FERROCE_KEY_FIELDS(F)						\
	F(u64, len)							\
	F(u32, key)							\
	F(u32, what)							\
	F(u32, access)							\
	F(u32, pieces)							\
	F(bool, done)
struct ferroce_trace_key {
	FERROCE_KEY_FIELDS(FERROCE_MEMBER)
};

#define FERROCE_TIMER_FIELDS(F)						\
	F(u32, qpn)							\
	F(bool, due)
struct ferroce_trace_timer {
	FERROCE_TIMER_FIELDS(FERROCE_MEMBER)
};

#define FERROCE_OFFLOAD_FIELDS(F)					\
	F(u32, qpn)							\
	F(u32, from)							\
	F(u32, to)							\
	F(u32, why)
struct ferroce_trace_offload {
	FERROCE_OFFLOAD_FIELDS(FERROCE_MEMBER)
};

#endif
