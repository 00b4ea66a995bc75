/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Trace events: what Rust fills in for each, then their fields and texts.
 * Documentation/tracing.md is their contract, and says what the fields are: names
 * and fields stay. The text of an event is made of name=value, of numbers and
 * symbols alone, so that trace-cmd and perf print it as the kernel does.
 */
#ifndef FERROCE_TRACE_TYPES
#define FERROCE_TRACE_TYPES

#include <linux/types.h>
#include <rdma/ib_verbs.h>

/*
 * A list of fields is used three times: for the structure that Rust fills in,
 * for the record, and to copy the one to the other.
 */
#define FERROCE_MEMBER(type, name)	type name;

/* The BTH and the longest extended headers. */
#define FERROCE_TRACE_HEAD 40

/* Safe code sets head_len: no more is read than there is. */
#define ferroce_head_len(event)						\
	min_t(u32, (event)->head_len, FERROCE_TRACE_HEAD)

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

#undef TRACE_SYSTEM
#define TRACE_SYSTEM ferroce

#if !defined(FERROCE_TRACE_H) || defined(TRACE_HEADER_MULTI_READ)
#define FERROCE_TRACE_H

#include <linux/sched.h>
#include <linux/tracepoint.h>
#include <trace/misc/rdma.h>
#include "ferroce_trace_names.h"

#define ferroce_assign(type, name)	__entry->name = event->name;

TRACE_EVENT(ferroce_verb,
	TP_PROTO(const struct ferroce_trace_verb *event),
	TP_ARGS(event),

	TP_STRUCT__entry(
		__string_len(op, event->name, event->name_len)
		__string(dev, event->device ? event->device->name : "")
	),

	TP_fast_assign(
		__assign_str(op);
		__assign_str(dev);
	),

	TP_printk("op=%s dev=%s", __get_str(op), __get_str(dev))
);

TRACE_EVENT(ferroce_verb_done,
	TP_PROTO(const struct ferroce_trace_verb_done *event),
	TP_ARGS(event),

	TP_STRUCT__entry(
		__string_len(op, event->name, event->name_len)
		__field(int, ret)
	),

	TP_fast_assign(
		__assign_str(op);
		__entry->ret = event->ret;
	),

	TP_printk("op=%s ret=%d", __get_str(op), __entry->ret)
);

TRACE_EVENT(ferroce_qp,
	TP_PROTO(const struct ferroce_trace_qp *event),
	TP_ARGS(event),

	TP_STRUCT__entry(
		__field(u32, qpn)
		__field(u32, known_as)
		__field(u32, type)
		__string(dev, event->device ? event->device->name : "")
		__field(int, pid)
		__field(u32, send_cq)
		__field(u32, recv_cq)
		__field(u32, max_send_wr)
		__field(u32, max_recv_wr)
		__field(u32, max_send_sge)
		__field(u32, max_recv_sge)
		__field(u32, max_inline)
	),

	TP_fast_assign(
		__entry->qpn = event->qpn;
		__entry->known_as = event->known_as;
		__entry->type = event->type;
		__assign_str(dev);
		__entry->pid = task_tgid_nr(current);
		__entry->send_cq = event->send_cq;
		__entry->recv_cq = event->recv_cq;
		__entry->max_send_wr = event->max_send_wr;
		__entry->max_recv_wr = event->max_recv_wr;
		__entry->max_send_sge = event->max_send_sge;
		__entry->max_recv_sge = event->max_recv_sge;
		__entry->max_inline = event->max_inline;
	),

	TP_printk("qpn=0x%x known_as=0x%x type=%s dev=%s pid=%d send_cq=%u recv_cq=%u max_send_wr=%u max_recv_wr=%u max_send_sge=%u max_recv_sge=%u max_inline=%u",
		  __entry->qpn, __entry->known_as,
		  ferroce_show_qp_type(__entry->type), __get_str(dev),
		  __entry->pid, __entry->send_cq, __entry->recv_cq,
		  __entry->max_send_wr, __entry->max_recv_wr,
		  __entry->max_send_sge, __entry->max_recv_sge,
		  __entry->max_inline)
);

TRACE_EVENT(ferroce_qp_state,
	TP_PROTO(const struct ferroce_trace_qp_state *event),
	TP_ARGS(event),

	TP_STRUCT__entry(FERROCE_QP_STATE_FIELDS(__field)),

	TP_fast_assign(FERROCE_QP_STATE_FIELDS(ferroce_assign)),

	TP_printk("qpn=0x%x from=%s to=%s why=%s", __entry->qpn,
		  ferroce_show_state(__entry->from),
		  ferroce_show_state(__entry->to),
		  ferroce_show_state_cause(__entry->why))
);

TRACE_EVENT(ferroce_doorbell,
	TP_PROTO(const struct ferroce_trace_doorbell *event),
	TP_ARGS(event),

	TP_STRUCT__entry(FERROCE_DOORBELL_FIELDS(__field)),

	TP_fast_assign(FERROCE_DOORBELL_FIELDS(ferroce_assign)),

	TP_printk("qpn=0x%x producer=%u taken=%u by=%s", __entry->qpn,
		  __entry->producer, __entry->taken,
		  ferroce_show_server(__entry->by))
);

TRACE_EVENT(ferroce_taken,
	TP_PROTO(const struct ferroce_trace_taken *event),
	TP_ARGS(event),

	TP_STRUCT__entry(FERROCE_TAKEN_FIELDS(__field)),

	TP_fast_assign(FERROCE_TAKEN_FIELDS(ferroce_assign)),

	TP_printk("qpn=0x%x index=%u slot=%u wr_id=0x%llx opcode=%s len=%u signaled=%d fence=%d solicited=%d status=%s",
		  __entry->qpn, __entry->index, __entry->slot, __entry->wr_id,
		  ferroce_show_operation(__entry->opcode), __entry->len,
		  __entry->signaled, __entry->fence, __entry->solicited,
		  rdma_show_wc_status(__entry->status))
);

DECLARE_EVENT_CLASS(ferroce_packet,
	TP_PROTO(const struct ferroce_trace_packet *event),
	TP_ARGS(event),

	TP_STRUCT__entry(
		__field(u32, qpn)
		__field(u32, dqpn)
		__field(u32, psn)
		__field(u32, len)
		__field(u32, msn)
		__field(s32, slot)
		__field(s32, syndrome)
		__field(s32, ifindex)
		__field(u8, opcode)
		__field(bool, ack_req)
		__dynamic_array(u8, head, ferroce_head_len(event))
	),

	TP_fast_assign(
		__entry->qpn = event->qpn;
		__entry->dqpn = event->dqpn;
		__entry->psn = event->psn;
		__entry->len = event->len;
		__entry->msn = event->msn;
		__entry->slot = event->slot;
		__entry->syndrome = event->syndrome;
		__entry->ifindex = event->ifindex;
		__entry->opcode = event->opcode;
		__entry->ack_req = event->ack_req;
		memcpy(__get_dynamic_array(head), event->head,
		       ferroce_head_len(event));
	),

	TP_printk("qpn=0x%x dqpn=0x%x opcode=%s psn=%u ack_req=%d len=%u slot=%d syndrome=%d msn=%u ifindex=%d head=%s",
		  __entry->qpn, __entry->dqpn,
		  ferroce_show_opcode(__entry->opcode), __entry->psn,
		  __entry->ack_req, __entry->len, __entry->slot,
		  __entry->syndrome, __entry->msn, __entry->ifindex,
		  __print_hex_str(__get_dynamic_array(head),
				  __get_dynamic_array_len(head)))
);

DEFINE_EVENT(ferroce_packet, ferroce_tx,
	TP_PROTO(const struct ferroce_trace_packet *event),
	TP_ARGS(event)
);

DEFINE_EVENT(ferroce_packet, ferroce_rx,
	TP_PROTO(const struct ferroce_trace_packet *event),
	TP_ARGS(event)
);

TRACE_EVENT(ferroce_drop,
	TP_PROTO(const struct ferroce_trace_packet *event),
	TP_ARGS(event),

	TP_STRUCT__entry(
		__field(u32, dqpn)
		__field(u32, psn)
		__field(u32, reason)
		__field(s32, ifindex)
		__field(u8, opcode)
		__dynamic_array(u8, head, ferroce_head_len(event))
	),

	TP_fast_assign(
		__entry->dqpn = event->dqpn;
		__entry->psn = event->psn;
		__entry->reason = event->reason;
		__entry->ifindex = event->ifindex;
		__entry->opcode = event->opcode;
		memcpy(__get_dynamic_array(head), event->head,
		       ferroce_head_len(event));
	),

	TP_printk("dqpn=0x%x opcode=%s psn=%u reason=%s ifindex=%d head=%s",
		  __entry->dqpn, ferroce_show_opcode(__entry->opcode),
		  __entry->psn, ferroce_show_drop(__entry->reason),
		  __entry->ifindex,
		  __print_hex_str(__get_dynamic_array(head),
				  __get_dynamic_array_len(head)))
);

TRACE_EVENT(ferroce_unsent,
	TP_PROTO(const struct ferroce_trace_unsent *event),
	TP_ARGS(event),

	TP_STRUCT__entry(FERROCE_UNSENT_FIELDS(__field)),

	TP_fast_assign(FERROCE_UNSENT_FIELDS(ferroce_assign)),

	TP_printk("qpn=0x%x psn=%u what=%s", __entry->qpn, __entry->psn,
		  ferroce_show_unsent(__entry->what))
);

TRACE_EVENT(ferroce_handed,
	TP_PROTO(const struct ferroce_trace_handed *event),
	TP_ARGS(event),

	TP_STRUCT__entry(FERROCE_HANDED_FIELDS(__field)),

	TP_fast_assign(FERROCE_HANDED_FIELDS(ferroce_assign)),

	TP_printk("qpn=0x%x to=0x%x opcode=%s psn=%u span=%u len=%u",
		  __entry->qpn, __entry->to,
		  ferroce_show_opcode(__entry->opcode), __entry->psn,
		  __entry->span, __entry->len)
);

TRACE_EVENT(ferroce_request,
	TP_PROTO(const struct ferroce_trace_request *event),
	TP_ARGS(event),

	TP_STRUCT__entry(FERROCE_REQUEST_FIELDS(__field)),

	TP_fast_assign(FERROCE_REQUEST_FIELDS(ferroce_assign)),

	TP_printk("qpn=0x%x psn=%u opcode=%s outcome=%s", __entry->qpn,
		  __entry->psn, ferroce_show_opcode(__entry->opcode),
		  ferroce_show_outcome(__entry->outcome))
);

TRACE_EVENT(ferroce_ack,
	TP_PROTO(const struct ferroce_trace_ack *event),
	TP_ARGS(event),

	TP_STRUCT__entry(FERROCE_ACK_FIELDS(__field)),

	TP_fast_assign(FERROCE_ACK_FIELDS(ferroce_assign)),

	TP_printk("qpn=0x%x psn=%u syndrome=%u msn=%u una=%u next=%u window=%u",
		  __entry->qpn, __entry->psn, __entry->syndrome, __entry->msn,
		  __entry->una, __entry->next, __entry->window)
);

TRACE_EVENT(ferroce_recover,
	TP_PROTO(const struct ferroce_trace_recover *event),
	TP_ARGS(event),

	TP_STRUCT__entry(FERROCE_RECOVER_FIELDS(__field)),

	TP_fast_assign(FERROCE_RECOVER_FIELDS(ferroce_assign)),

	TP_printk("qpn=0x%x what=%s count=%u una=%u retries=%u rnr_retries=%u timer_ns=%llu",
		  __entry->qpn, ferroce_show_recovery(__entry->what),
		  __entry->count, __entry->una, __entry->retries,
		  __entry->rnr_retries, __entry->timer_ns)
);

TRACE_EVENT(ferroce_complete,
	TP_PROTO(const struct ferroce_trace_complete *event),
	TP_ARGS(event),

	TP_STRUCT__entry(FERROCE_COMPLETE_FIELDS(__field)),

	TP_fast_assign(FERROCE_COMPLETE_FIELDS(ferroce_assign)),

	TP_printk("qpn=0x%x cq=%u wr_id=0x%llx status=%s opcode=%s byte_len=%u vendor_err=0x%x",
		  __entry->qpn, __entry->cq, __entry->wr_id,
		  rdma_show_wc_status(__entry->status),
		  ferroce_show_wc_opcode(__entry->opcode), __entry->byte_len,
		  __entry->vendor_err)
);

TRACE_EVENT(ferroce_cq_event,
	TP_PROTO(const struct ferroce_trace_cq_event *event),
	TP_ARGS(event),

	TP_STRUCT__entry(
		__string(dev, event->device ? event->device->name : "")
		FERROCE_CQ_EVENT_FIELDS(__field)
	),

	TP_fast_assign(
		__assign_str(dev);
		FERROCE_CQ_EVENT_FIELDS(ferroce_assign)
	),

	TP_printk("dev=%s cq=%u what=%s", __get_str(dev), __entry->cq,
		  ferroce_show_cq_news(__entry->what))
);

TRACE_EVENT(ferroce_async_event,
	TP_PROTO(const struct ferroce_trace_async_event *event),
	TP_ARGS(event),

	TP_STRUCT__entry(
		__string(dev, event->device ? event->device->name : "")
		FERROCE_ASYNC_EVENT_FIELDS(__field)
	),

	TP_fast_assign(
		__assign_str(dev);
		FERROCE_ASYNC_EVENT_FIELDS(ferroce_assign)
	),

	TP_printk("dev=%s object=%s id=0x%x event=%s", __get_str(dev),
		  ferroce_show_object(__entry->object), __entry->id,
		  rdma_show_ib_event(__entry->event))
);

TRACE_EVENT(ferroce_key,
	TP_PROTO(const struct ferroce_trace_key *event),
	TP_ARGS(event),

	TP_STRUCT__entry(FERROCE_KEY_FIELDS(__field)),

	TP_fast_assign(FERROCE_KEY_FIELDS(ferroce_assign)),

	TP_printk("key=0x%x what=%s len=%llu access=0x%x pieces=%u done=%d",
		  __entry->key, ferroce_show_key_change(__entry->what),
		  __entry->len, __entry->access, __entry->pieces,
		  __entry->done)
);

TRACE_EVENT(ferroce_timer,
	TP_PROTO(const struct ferroce_trace_timer *event),
	TP_ARGS(event),

	TP_STRUCT__entry(FERROCE_TIMER_FIELDS(__field)),

	TP_fast_assign(FERROCE_TIMER_FIELDS(ferroce_assign)),

	TP_printk("qpn=0x%x due=%d", __entry->qpn, __entry->due)
);

TRACE_EVENT(ferroce_offload,
	TP_PROTO(const struct ferroce_trace_offload *event),
	TP_ARGS(event),

	TP_STRUCT__entry(FERROCE_OFFLOAD_FIELDS(__field)),

	TP_fast_assign(FERROCE_OFFLOAD_FIELDS(ferroce_assign)),

	TP_printk("qpn=0x%x from=%s to=%s why=%s", __entry->qpn,
		  ferroce_show_sender(__entry->from),
		  ferroce_show_sender(__entry->to),
		  ferroce_show_offload_cause(__entry->why))
);

#endif

#undef TRACE_INCLUDE_PATH
#define TRACE_INCLUDE_PATH .
#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_FILE ferroce_trace
#include <trace/define_trace.h>
