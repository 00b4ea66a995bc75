/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The names by which trace events show numbers. The comment says which enum or
 * table of the Rust code a list repeats; tests/lab/rules.py compares them.
 *
 * No include guard: each pass of the tracing macros reads this file.
 */

/* rust/sys/ib/qp.rs: QpState */
#define ferroce_show_state(value)					\
	__print_symbolic(value,						\
		{ 0, "RESET" },						\
		{ 1, "INIT" },						\
		{ 2, "RTR" },						\
		{ 3, "RTS" },						\
		{ 4, "SQD" },						\
		{ 5, "SQE" },						\
		{ 6, "ERR" })

/* rust/sys/trace.rs: StateCause */
#define ferroce_show_state_cause(value)					\
	__print_symbolic(value,						\
		{ 0, "USER" },						\
		{ 1, "SEND_ERROR" },					\
		{ 2, "ERROR" },						\
		{ 3, "FATAL" })

/* rust/core/operation.rs: Operation */
#define ferroce_show_operation(value)					\
	__print_symbolic(value,						\
		{ 0, "SEND" },						\
		{ 1, "SEND_IMM" },					\
		{ 2, "SEND_INV" },					\
		{ 3, "WRITE" },						\
		{ 4, "WRITE_IMM" },					\
		{ 5, "READ" },						\
		{ 6, "COMPARE_SWAP" },					\
		{ 7, "FETCH_ADD" },					\
		{ 8, "ATOMIC_WRITE" },					\
		{ 9, "FLUSH" },						\
		{ 10, "LOCAL_INV" },					\
		{ 11, "BIND_MW" },					\
		{ 12, "REG_MR" })

/* rust/core/wire/opcode.rs: opcodes */
#define ferroce_show_opcode(value)					\
	__print_symbolic(value,						\
		{ 0x00, "RC_SEND_FIRST" },				\
		{ 0x01, "RC_SEND_MIDDLE" },				\
		{ 0x02, "RC_SEND_LAST" },				\
		{ 0x03, "RC_SEND_LAST_IMM" },				\
		{ 0x04, "RC_SEND_ONLY" },				\
		{ 0x05, "RC_SEND_ONLY_IMM" },				\
		{ 0x06, "RC_WRITE_FIRST" },				\
		{ 0x07, "RC_WRITE_MIDDLE" },				\
		{ 0x08, "RC_WRITE_LAST" },				\
		{ 0x09, "RC_WRITE_LAST_IMM" },				\
		{ 0x0a, "RC_WRITE_ONLY" },				\
		{ 0x0b, "RC_WRITE_ONLY_IMM" },				\
		{ 0x0c, "RC_READ_REQUEST" },				\
		{ 0x0d, "RC_READ_RESPONSE_FIRST" },			\
		{ 0x0e, "RC_READ_RESPONSE_MIDDLE" },			\
		{ 0x0f, "RC_READ_RESPONSE_LAST" },			\
		{ 0x10, "RC_READ_RESPONSE_ONLY" },			\
		{ 0x11, "RC_ACKNOWLEDGE" },				\
		{ 0x12, "RC_ATOMIC_ACKNOWLEDGE" },			\
		{ 0x13, "RC_COMPARE_SWAP" },				\
		{ 0x14, "RC_FETCH_ADD" },				\
		{ 0x15, "RC_RESERVED15" },				\
		{ 0x16, "RC_SEND_LAST_INVALIDATE" },			\
		{ 0x17, "RC_SEND_ONLY_INVALIDATE" },			\
		{ 0x18, "RC_RESERVED18" },				\
		{ 0x19, "RC_RESERVED19" },				\
		{ 0x1a, "RC_RESERVED1A" },				\
		{ 0x1b, "RC_RESERVED1B" },				\
		{ 0x1c, "RC_FLUSH" },					\
		{ 0x1d, "RC_ATOMIC_WRITE" },				\
		{ 0x1e, "RC_RESERVED1E" },				\
		{ 0x1f, "RC_RESERVED1F" },				\
		{ 0x20, "UC_SEND_FIRST" },				\
		{ 0x21, "UC_SEND_MIDDLE" },				\
		{ 0x22, "UC_SEND_LAST" },				\
		{ 0x23, "UC_SEND_LAST_IMM" },				\
		{ 0x24, "UC_SEND_ONLY" },				\
		{ 0x25, "UC_SEND_ONLY_IMM" },				\
		{ 0x26, "UC_WRITE_FIRST" },				\
		{ 0x27, "UC_WRITE_MIDDLE" },				\
		{ 0x28, "UC_WRITE_LAST" },				\
		{ 0x29, "UC_WRITE_LAST_IMM" },				\
		{ 0x2a, "UC_WRITE_ONLY" },				\
		{ 0x2b, "UC_WRITE_ONLY_IMM" },				\
		{ 0x64, "UD_SEND_ONLY" },				\
		{ 0x65, "UD_SEND_ONLY_IMM" },				\
		{ 0x81, "CONGESTION_NOTIFICATION" },			\
		{ 0xc0, "RC_MISSING" })

/* rust/sys/trace.rs: RequestEnd */
#define ferroce_show_outcome(value)					\
	__print_symbolic(value,						\
		{ 0, "EXECUTED" },					\
		{ 1, "DUPLICATE" },					\
		{ 2, "OUT_OF_SEQUENCE" },				\
		{ 3, "KEPT" },						\
		{ 4, "NO_RECEIVE" },					\
		{ 5, "OUTSIDE_WINDOW" },				\
		{ 6, "UNKNOWN_READ" },					\
		{ 7, "NOT_READY" },					\
		{ 8, "INVALID_REQUEST" },				\
		{ 9, "ACCESS_ERROR" },					\
		{ 10, "LOCAL_ERROR" },					\
		{ 11, "TOO_LONG" },					\
		{ 12, "DENIED" },					\
		{ 13, "INVALID" })

/* rust/sys/trace.rs: Recovery */
#define ferroce_show_recovery(value)					\
	__print_symbolic(value,						\
		{ 0, "RETRANSMITTED" },					\
		{ 1, "TIMEOUT" },					\
		{ 2, "RNR_NAK" },					\
		{ 3, "SEQUENCE_NAK" },					\
		{ 4, "IMPLIED_NAK" },					\
		{ 5, "FATAL_NAK" },					\
		{ 6, "TAIL_PROBE" },					\
		{ 7, "DUPLICATE_RESPONSE" },				\
		{ 8, "UNEXPECTED_RESPONSE" },				\
		{ 9, "OUT_OF_SEQUENCE_RESPONSE" },			\
		{ 10, "BAD_RESPONSE" },					\
		{ 11, "SLOWDOWN" })

/* rust/core/uabi/cqe.rs: WC_ */
#define ferroce_show_wc_opcode(value)					\
	__print_symbolic(value,						\
		{ 0, "SEND" },						\
		{ 1, "RDMA_WRITE" },					\
		{ 2, "RDMA_READ" },					\
		{ 3, "COMP_SWAP" },					\
		{ 4, "FETCH_ADD" },					\
		{ 5, "BIND_MW" },					\
		{ 6, "LOCAL_INV" },					\
		{ 8, "FLUSH" },						\
		{ 9, "ATOMIC_WRITE" },					\
		{ 10, "REG_MR" },					\
		{ 128, "RECV" },					\
		{ 129, "RECV_RDMA_WITH_IMM" })

/* rust/observe.rs: counters */
#define ferroce_show_drop(value)					\
	__print_symbolic(value,						\
		{ 38, "drop_icrc" },					\
		{ 39, "drop_ip_header" },				\
		{ 40, "drop_malformed" },				\
		{ 41, "drop_opcode" },					\
		{ 42, "drop_unknown_qp" },				\
		{ 43, "drop_group" },					\
		{ 44, "drop_address" },					\
		{ 45, "drop_interface" },				\
		{ 46, "drop_pkey" },					\
		{ 47, "drop_qkey" },					\
		{ 48, "drop_mad" },					\
		{ 49, "drop_state" },					\
		{ 50, "drop_no_memory" })

/* rust/sys/trace.rs: DoorbellServer */
#define ferroce_show_server(value)					\
	__print_symbolic(value,						\
		{ 0, "INLINE" },					\
		{ 1, "INVITES" },					\
		{ 2, "NEAR" },						\
		{ 3, "FAR" },						\
		{ 4, "TIMER" },						\
		{ 5, "MOVING" },					\
		{ 6, "OTHER" })

/* rust/sys/trace.rs: Unsent */
#define ferroce_show_unsent(value)					\
	__print_symbolic(value,						\
		{ 0, "AGAIN" },						\
		{ 1, "LOST" })

/* rust/sys/trace.rs: CqNews */
#define ferroce_show_cq_news(value)					\
	__print_symbolic(value,						\
		{ 0, "RAISED" },					\
		{ 1, "HELD_BACK" },					\
		{ 2, "DELIVERED" },					\
		{ 3, "OVERRUN" })

/* rust/sys/trace.rs: AsyncObject */
#define ferroce_show_object(value)					\
	__print_symbolic(value,						\
		{ 0, "CQ" },						\
		{ 1, "QP" },						\
		{ 2, "SRQ" })

/* rust/sys/trace.rs: KeyAction */
#define ferroce_show_key_change(value)					\
	__print_symbolic(value,						\
		{ 0, "REGISTER" },					\
		{ 1, "REREGISTER" },					\
		{ 2, "DEREGISTER" },					\
		{ 3, "BIND" },						\
		{ 4, "INVALIDATE" },					\
		{ 5, "FAST" })

/* rust/core/offload/decision.rs: SenderKind */
#define ferroce_show_sender(value)					\
	__print_symbolic(value,						\
		{ 0, "INLINE" },					\
		{ 1, "INVITING" },					\
		{ 2, "NEAR" },						\
		{ 3, "FAR" },						\
		{ 4, "MOVING" },					\
		{ 5, "POLLING" })

/* rust/sys/trace.rs: OffloadCause */
#define ferroce_show_offload_cause(value)				\
	__print_symbolic(value,						\
		{ 0, "STREAMS" },					\
		{ 1, "TAKEN" },						\
		{ 2, "DECLINED" },					\
		{ 3, "BUDGET" },					\
		{ 4, "IN_FLIGHT" },					\
		{ 5, "ACKNOWLEDGED" },					\
		{ 6, "NO_HELP" },					\
		{ 7, "IDLE" },						\
		{ 8, "ENDED" })

TRACE_DEFINE_ENUM(IB_QPT_GSI);
TRACE_DEFINE_ENUM(IB_QPT_RC);
TRACE_DEFINE_ENUM(IB_QPT_UC);
TRACE_DEFINE_ENUM(IB_QPT_UD);
#define ferroce_show_qp_type(value)					\
	__print_symbolic(value,						\
		{ IB_QPT_GSI, "GSI" },					\
		{ IB_QPT_RC, "RC" },					\
		{ IB_QPT_UC, "UC" },					\
		{ IB_QPT_UD, "UD" })
