/* SPDX-License-Identifier: GPL-2.0 */
/* The C headers that sys/bindings.rs is generated from. */
#include <linux/netdevice.h>
#include <linux/notifier.h>
#include <net/udp_tunnel.h>
#include <rdma/ib_addr.h>
#include <rdma/ib_cache.h>
#include <rdma/ib_umem.h>
#include <rdma/ib_verbs.h>
#include <rdma/rdma_netlink.h>
#include <rdma/uverbs_ioctl.h>
#include "ferroce_trace.h"
#include "helpers.h"
#include "net_helpers.h"
