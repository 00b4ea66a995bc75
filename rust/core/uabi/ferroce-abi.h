/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * The contract between the module ferroce and a user-space provider, for providers in C. The source
 * of it is rust/core/uabi, which the module and its own provider compile; the provider's test uabi_header
 * compares this file with that, name by name. Documentation/uabi.md has the rules in words.
 *
 * Integers are in the byte order of the machine, but immediate data, which are big-endian. Reserved
 * members and unknown flags are zero.
 */
#ifndef FERROCE_ABI_H
#define FERROCE_ABI_H

#include <linux/types.h>

/* uverbs_abi_ver of a device; a provider serves a range that ends here. */
#define FERROCE_ABI_VERSION		2
#define FERROCE_OLDEST_ABI_VERSION	2

/* driver_id of a device: outside enum rdma_driver_id. */
#define FERROCE_DRIVER_ID		0x46655243

/* What travels behind the core's structures in the verbs commands. A structure may grow at its end. */

/* mmap of the command file, and the shape of the ring there; all zero if there is none. */
struct ferroce_ring_map {
	__aligned_u64 offset;
	__aligned_u64 length;
	__u32 entries;
	__u32 stride;
};

struct ferroce_alloc_ucontext_req {
	__aligned_u64 features;
};

/* "ferroce2" in the order of memory. */
#define FERROCE_SIGNATURE		"ferroce2"
/* The key of memory that reads as zeros, for those who import a context and get no response. */
#define FERROCE_NULL_LKEY		0xffffff00
/* CLOCK_MONOTONIC_RAW. */
#define FERROCE_CLOCK			4

struct ferroce_alloc_ucontext_resp {
	__u8 signature[8];
	__aligned_u64 features;
	__u32 null_lkey;
	__u32 clock;
};

/* The number that a datagram names the address handle by. */
struct ferroce_create_ah_resp {
	__u32 number;
	__u32 reserved;
};

/* Of create_cq and resize_cq. */
struct ferroce_create_cq_resp {
	struct ferroce_ring_map cq;
};

struct ferroce_create_srq_resp {
	struct ferroce_ring_map srq;
};

struct ferroce_create_qp_resp {
	struct ferroce_ring_map sq;
	struct ferroce_ring_map rq;
};

/* The start of a mapping; slots follow at FERROCE_CONTROL_SIZE. */
#define FERROCE_CONTROL_SIZE		256
#define FERROCE_SLOT_ALIGN		64

struct ferroce_control {
	__u32 producer;
	__u32 pad0[15];
	__u32 consumer;
	__u32 pad1[15];
	/* Of a send or receive queue, written by the module. */
	__u32 flags;
	__u32 pad2[3];
	/* Of a shared receive queue: the ring that has taken its place. */
	struct ferroce_ring_map successor;
	__u32 pad3[6];
	/* Of a completion queue. */
	__u32 arm;
	__u32 pad4[15];
};

#define FERROCE_FLAG_NEED_DOORBELL	(1 << 0)

enum {
	FERROCE_ARM_NONE = 0,
	FERROCE_ARM_SOLICITED = 1,
	FERROCE_ARM_NEXT = 2,
};

/* Opcodes are those of enum ib_uverbs_wr_opcode, flags those of enum ibv_send_flags. */
#define FERROCE_SEND_ALL		15
#define FERROCE_OP_KERNEL		0x20
#define FERROCE_MAX_SGE			32
#define FERROCE_MAX_INLINE		512

/* A send queue slot: this, then entries or the bytes of an inline message. */
struct ferroce_send_wqe {
	__aligned_u64 wr_id;
	__u8 opcode;
	__u8 flags;
	__u16 count;
	__u32 srqn;
	union {
		__aligned_u64 remote_addr;
		struct {
			__u32 qpn;
			__u32 qkey;
		} destination;
	};
	union {
		__u32 rkey;
		__u32 ah;
	};
	union {
		__u32 imm;
		__u32 old_key;
	};
	union {
		__aligned_u64 operands[2];
		struct {
			__aligned_u64 compare_add;
			__aligned_u64 swap;
		} atomic;
		struct {
			__u32 length;
			__u8 placement;
			__u8 selectivity;
			__u16 reserved[5];
		} flush;
		struct {
			__aligned_u64 length;
			__u32 lkey;
			__u32 access;
		} bind;
		__u8 atomic_write[8];
	};
};

/* A receive queue slot: this, then entries. */
struct ferroce_recv_wqe {
	__aligned_u64 wr_id;
	__u32 num_sge;
	__u32 reserved;
};

struct ferroce_sge {
	__aligned_u64 addr;
	__u32 length;
	__u32 lkey;
};

/* A completion queue slot. */
#define FERROCE_CQE_STRIDE		64

/* Flags up to bit 15 are those of enum ibv_wc_flags. */
#define FERROCE_WC_WITH_VLAN		(1 << 16)
#define FERROCE_WC_WITH_SMAC		(1 << 17)
#define FERROCE_WC_WITH_NETWORK_HDR	(1 << 18)

struct ferroce_cqe {
	__aligned_u64 wr_id;
	__u32 status;
	__u32 opcode;
	__u32 byte_len;
	__u32 imm;
	__u32 qp_num;
	__u32 src_qp;
	__u32 flags;
	__u32 vendor_err;
	__aligned_u64 timestamp;
	__u16 pkey_index;
	__u16 vlan;
	__u8 sl;
	__u8 network_hdr;
	__u8 smac[6];
	__u32 reserved;
};

#endif
