/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The layout of the rings, for scenarios that write them by hand. That the header below is the contract in rust/core/uabi,
 * the provider's test uabi_header shows.
 */
#ifndef FERROCE_TESTS_UABI_H
#define FERROCE_TESTS_UABI_H

#include "../../../rust/core/uabi/ferroce-abi.h"

#include <stddef.h>

#define uabi_send_wqe ferroce_send_wqe
#define uabi_recv_wqe ferroce_recv_wqe
#define uabi_cqe ferroce_cqe

#define SLOT_OF(bytes) (((bytes) + FERROCE_SLOT_ALIGN - 1) / FERROCE_SLOT_ALIGN * FERROCE_SLOT_ALIGN)

enum {
	UABI_DRIVER_ID = FERROCE_DRIVER_ID,
	UABI_CONTROL_SIZE = FERROCE_CONTROL_SIZE,
	UABI_PRODUCER = offsetof(struct ferroce_control, producer),
	UABI_CONSUMER = offsetof(struct ferroce_control, consumer),
	UABI_CQE_STRIDE = FERROCE_CQE_STRIDE,
	UABI_WC_WITH_VLAN = FERROCE_WC_WITH_VLAN,
	UABI_WC_WITH_SMAC = FERROCE_WC_WITH_SMAC,
	UABI_WC_WITH_NETWORK_HDR = FERROCE_WC_WITH_NETWORK_HDR,
	/* The kernel's enum rdma_network_type. */
	UABI_NETWORK_IPV4 = 2,
	UABI_NETWORK_IPV6 = 3,
	UABI_OP_KERNEL = FERROCE_OP_KERNEL,
	/* What a request of the queues that the scenarios make may have: entries, or as many inline bytes as there is room for. */
	UABI_QUEUE_SGES = 4,
	UABI_SEND_STRIDE = SLOT_OF(sizeof(struct ferroce_send_wqe) + UABI_QUEUE_SGES * sizeof(struct ferroce_sge)),
	UABI_RECV_STRIDE = SLOT_OF(sizeof(struct ferroce_recv_wqe) + UABI_QUEUE_SGES * sizeof(struct ferroce_sge)),
	UABI_QUEUE_INLINE = UABI_SEND_STRIDE - sizeof(struct ferroce_send_wqe),
};

#endif
