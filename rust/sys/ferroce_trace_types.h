/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What Rust fills in for each trace event. Documentation/tracing.md says what
 * the fields are.
 */
#ifndef FERROCE_TRACE_TYPES_H
#define FERROCE_TRACE_TYPES_H

#include <linux/types.h>
#include <rdma/ib_verbs.h>

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

struct ferroce_trace_qp_state {
	u32 qpn;
	u32 from;
	u32 to;
	u32 why;
};

struct ferroce_trace_doorbell {
	u32 qpn;
	u32 producer;
	u32 taken;
	u32 by;
};

struct ferroce_trace_taken {
	u64 wr_id;
	u32 qpn;
	u32 index;
	u32 slot;
	u32 opcode;
	u32 len;
	u32 status;
	bool signaled;
	bool fence;
	bool solicited;
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

struct ferroce_trace_unsent {
	u32 qpn;
	u32 psn;
	u32 what;
};

struct ferroce_trace_handed {
	u32 qpn;
	u32 to;
	u32 opcode;
	u32 psn;
	u32 span;
	u32 len;
};

struct ferroce_trace_request {
	u32 qpn;
	u32 psn;
	u32 opcode;
	u32 outcome;
};

struct ferroce_trace_ack {
	u32 qpn;
	u32 psn;
	u32 syndrome;
	u32 msn;
	u32 una;
	u32 next;
	u32 window;
};

struct ferroce_trace_recover {
	u64 timer_ns;
	u32 qpn;
	u32 what;
	u32 count;
	u32 una;
	u32 retries;
	u32 rnr_retries;
};

struct ferroce_trace_complete {
	u64 wr_id;
	u32 cq;
	u32 qpn;
	u32 status;
	u32 opcode;
	u32 byte_len;
	u32 vendor_err;
};

struct ferroce_trace_cq_event {
	const struct ib_device *device;
	u32 cq;
	u32 what;
};

struct ferroce_trace_async_event {
	const struct ib_device *device;
	u32 object;
	u32 id;
	u32 event;
};

struct ferroce_trace_key {
	u64 len;
	u32 key;
	u32 what;
	u32 access;
	u32 pieces;
	bool done;
};

struct ferroce_trace_timer {
	u32 qpn;
	bool due;
};

struct ferroce_trace_offload {
	u32 qpn;
	u32 from;
	u32 to;
	u32 why;
};

#endif
