/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/* What the pretended libibverbs (libibverbs.c) shares with the test (scenario/). */
#ifndef MOCK_H
#define MOCK_H

#include <stddef.h>
#include <stdint.h>
#include <infiniband/driver.h>

/* uabi::DRIVER_ID. */
#define DRIVER_ID 0x46655243

/* Offsets in the command file. */
#define RING_CQ 0x1000
#define RING_SQ 0x2000
#define RING_RQ 0x3000
#define RING_CQ2 0x4000
#define RING_SRQ 0x5000
#define RING_SRQ2 0x6000
#define FILE_SIZE 0x7000

/* uabi::udata::RingMap. */
struct ring_map {
	uint64_t offset;
	uint64_t length;
	uint32_t entries;
	uint32_t stride;
};

/* uabi::ring::Control. */
struct control {
	_Alignas(64) _Atomic uint32_t producer;
	_Alignas(64) _Atomic uint32_t consumer;
	_Alignas(64) _Atomic uint32_t flags;
	_Alignas(16) struct ring_map successor;
	_Alignas(64) _Atomic uint32_t arm;
};

_Static_assert(sizeof(struct control) == 256, "the control block of the uABI");

struct mock {
	/* What the provider has registered. */
	const struct verbs_device_ops *device_ops;
	struct verbs_context_ops ops;
	/* What the pretended module answers. */
	int cmd_fd;
	int error;
	struct ring_map cq, cq2, sq, rq, srq;
	struct ibv_srq_attr srq_attr;
	struct ibv_qp_cap cap;
	const char *signature;
	uint32_t qp_num;
	/* The next doorbells fail so many times in this way. */
	int bell_errors, bell_error;
	/* Doorbells that came, and of these those that failed. */
	int send_bells, recv_bells, failed_bells, refused_writes;
	void (*on_reset)(void);
	/* The module moves the completion queue to `cq2`, the shared receive queue somewhere. */
	void (*on_resize)(void), (*on_srq_resize)(void);
	/* What the provider has not given back. */
	int contexts;
	int objects;
	/* The last line of the log. */
	char said[512];
};

extern struct mock mock;

#endif
