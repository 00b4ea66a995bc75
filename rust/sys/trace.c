// SPDX-License-Identifier: GPL-2.0
/* The tracepoints, and the functions by which Rust emits their events. */
/* For the names in trace/misc/rdma.h, of which those of the CM are not used. */
#include <rdma/ib_cm.h>
#include <rdma/rdma_cm.h>

#define CREATE_TRACE_POINTS
#define CREATE_RUST_TRACE_POINTS
#include "ferroce_trace.h"
