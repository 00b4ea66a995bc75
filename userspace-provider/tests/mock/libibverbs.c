// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * A libibverbs with a pretended module behind it. It has the private functions that the provider
 * calls, with the prototypes of the driver.h that it is compiled with, so both the arguments of
 * the provider and the layout of what it returns are put to the test. The command file descriptor
 * is a memfd, in which rings live at offsets; writes to it are refused, as they are in a process
 * whose credentials have changed.
 *
 * With QP_COMP_MASK the structure verbs_qp is that of an older release: comp_mask is there. With
 * EXTRA_CONTEXT the structure verbs_context is longer by so much.
 */
#include <assert.h>
#include <dlfcn.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "mock.h"

struct mock mock = {
	.cq = { RING_CQ, 0x1000, 16, 64 },
	.cq2 = { RING_CQ2, 0x1000, 32, 64 },
	.sq = { RING_SQ, 0x1000, 8, 128 },
	.rq = { RING_RQ, 0x1000, 4, 64 },
	.srq = { RING_SRQ, 0x1000, 4, 64 },
	.srq_attr = { 4, 3, 0 },
	.signature = "ferroce2",
};

/* The provider writes by number; everything else goes on to the C library. */
long syscall(long number, ...)
{
	long (*next)(long, ...) = dlsym(RTLD_NEXT, "syscall");
	long a[6];
	va_list ap;

	va_start(ap, number);
	for (int i = 0; i < 6; i++)
		a[i] = va_arg(ap, long);
	va_end(ap);
	if (number != SYS_write)
		return next(number, a[0], a[1], a[2], a[3], a[4], a[5]);
	mock.refused_writes++;
	errno = EACCES;
	return -1;
}

#define REGISTER_(abi) verbs_register_driver_##abi
#define REGISTER(abi) REGISTER_(abi)

void REGISTER(PABI)(const struct verbs_device_ops *ops)
{
	assert(!mock.device_ops);
	mock.device_ops = ops;
}

/* The provider looks for this one to tell rdma-core 36 and later. */
int ibv_query_qp_data_in_order(struct ibv_qp *qp, enum ibv_wr_opcode op, uint32_t flags)
{
	return 0;
}

#if RELEASE >= 62
/* And for this one to tell 62 and 63 from 59 to 61, which have the same private ABI. */
int ibv_cmd_query_port_speed(struct ibv_context *context, uint32_t port, uint64_t *speed)
{
	return ENOSYS;
}
#endif

#ifndef QP_COMP_MASK
#define QP_COMP_MASK offsetof(struct verbs_qp, comp_mask)
#endif
#ifndef EXTRA_CONTEXT
#define EXTRA_CONTEXT 0
#endif

static uint32_t *comp_mask(struct ibv_qp *qp)
{
	return (void *)((char *)qp + QP_COMP_MASK);
}

struct ibv_qp_ex *ibv_qp_to_qp_ex(struct ibv_qp *qp)
{
	return *comp_mask(qp) & VERBS_QP_EX ? (struct ibv_qp_ex *)qp : NULL;
}

void *_verbs_init_and_alloc_context(struct ibv_device *device, int cmd_fd, size_t alloc_size,
				    struct verbs_context *context_offset, uint32_t driver_id)
{
	struct verbs_context *context = calloc(1, alloc_size);

	assert(alloc_size >= sizeof(*context) + EXTRA_CONTEXT && !context_offset);
	assert(driver_id == DRIVER_ID);
	context->sz = sizeof(*context) + EXTRA_CONTEXT;
	for (char *extra = (char *)(context + 1); extra < (char *)context + context->sz; extra++)
		*extra = -1;
	context->context.device = device;
	context->context.cmd_fd = cmd_fd;
	mock.contexts++;
	return context;
}

void verbs_uninit_context(struct verbs_context *context)
{
	assert(context->context.cmd_fd == mock.cmd_fd);
	mock.contexts--;
}

void verbs_set_ops(struct verbs_context *context, const struct verbs_context_ops *ops)
{
	mock.ops = *ops;
}

int ibv_cmd_get_context(struct verbs_context *context, struct ibv_get_context *cmd, size_t cmd_size,
#if PABI >= 57
			struct ibv_fd_arr *fds,
#endif
			struct ib_uverbs_get_context_resp *resp, size_t resp_size)
{
#if PABI >= 57
	assert(!fds);
#endif
	assert(cmd_size == sizeof(*cmd) + 8 && resp_size == sizeof(*resp) + 24);
	assert(*(uint64_t *)(cmd + 1) == 0);
	memcpy(resp + 1, mock.signature, 8);
	return mock.error;
}

int ibv_cmd_query_context(struct ibv_context *context, struct ibv_command_buffer *driver)
{
	assert(context->cmd_fd == mock.cmd_fd && !driver);
	context->num_comp_vectors = 3;
	return mock.error;
}

void __verbs_log(struct verbs_context *context, uint32_t level, const char *format, ...)
{
	va_list ap;

	assert(level == VERBS_LOG_ERR);
	va_start(ap, format);
	vsnprintf(mock.said, sizeof(mock.said), format, ap);
	va_end(ap);
}

int ibv_cmd_query_device_any(struct ibv_context *context,
			     const struct ibv_query_device_ex_input *input,
			     struct ibv_device_attr_ex *attr, size_t attr_size,
			     struct ib_uverbs_ex_query_device_resp *resp, size_t *resp_size)
{
	assert(*resp_size == sizeof(*resp));
	memset(attr, 0, attr_size);
	resp->base.fw_ver = 7ull << 32 | 2 << 16 | 1;
	resp->base.max_qp_wr = 16384;
	resp->base.max_sge = 32;
	resp->base.max_cqe = 1 << 20;
	resp->base.max_srq_wr = 65536;
	resp->base.max_srq_sge = 31;
	/* What is wrong with the arguments of another command is nothing to this one. */
	return mock.error == EINVAL ? 0 : mock.error;
}

int ibv_cmd_query_port(struct ibv_context *context, uint8_t port, struct ibv_port_attr *attr,
		       struct ibv_query_port *cmd, size_t cmd_size)
{
	assert(cmd_size == sizeof(*cmd) && port == 1);
	attr->lid = 77;
	return 0;
}

int ibv_cmd_alloc_pd(struct ibv_context *context, struct ibv_pd *pd, struct ibv_alloc_pd *cmd,
		     size_t cmd_size, struct ib_uverbs_alloc_pd_resp *resp, size_t resp_size)
{
	assert(cmd_size == sizeof(*cmd) && resp_size == sizeof(*resp));
	pd->context = context;
	pd->handle = 5;
	mock.objects += !mock.error;
	return mock.error;
}

int ibv_cmd_dealloc_pd(struct ibv_pd *pd)
{
	assert(pd->handle == 5);
	mock.objects -= !mock.error;
	return mock.error;
}

int ibv_cmd_reg_mr(struct ibv_pd *pd, void *addr, size_t length, uint64_t hca_va, int access,
		   struct verbs_mr *vmr, struct ibv_reg_mr *cmd, size_t cmd_size,
		   struct ib_uverbs_reg_mr_resp *resp, size_t resp_size)
{
	assert(cmd_size == sizeof(*cmd) && resp_size == sizeof(*resp));
	assert(addr == (void *)0x1000 && length == 0x2000 && hca_va == 0x3000 && access == 1);
	vmr->ibv_mr.lkey = 6;
	mock.objects += !mock.error;
	return mock.error;
}

int ibv_cmd_dereg_mr(struct verbs_mr *vmr)
{
	assert(vmr->ibv_mr.lkey == 6);
	mock.objects -= !mock.error;
	return mock.error;
}

int ibv_cmd_rereg_mr(struct verbs_mr *vmr, uint32_t flags, void *addr, size_t length, uint64_t hca_va, int access,
		     struct ibv_pd *pd, struct ibv_rereg_mr *cmd, size_t cmd_size,
		     struct ib_uverbs_rereg_mr_resp *resp, size_t resp_size)
{
	assert(cmd_size == sizeof(*cmd) && resp_size == sizeof(*resp));
	assert(vmr->ibv_mr.lkey == 6 && flags == 5 && addr == (void *)0x4000 && length == 0x100);
	assert(hca_va == 0x4000 && (mock.error || access == 3));
	return mock.error;
}

int ibv_cmd_query_mr(struct ibv_pd *pd, struct verbs_mr *vmr, uint32_t handle)
{
	vmr->ibv_mr.pd = pd;
	vmr->ibv_mr.lkey = handle + 1;
	return mock.error;
}

int ibv_cmd_alloc_mw(struct ibv_pd *pd, enum ibv_mw_type type, struct ibv_mw *mw, struct ibv_alloc_mw *cmd,
		     size_t cmd_size, struct ib_uverbs_alloc_mw_resp *resp, size_t resp_size)
{
	assert(cmd_size == sizeof(*cmd) && resp_size == sizeof(*resp));
	mw->context = pd->context;
	mw->pd = pd;
	mw->type = type;
	mw->rkey = 0x12345fe;
	mock.objects += !mock.error;
	return mock.error;
}

int ibv_cmd_create_srq(struct ibv_pd *pd, struct ibv_srq *srq, struct ibv_srq_init_attr *attr,
		       struct ibv_create_srq *cmd, size_t cmd_size,
		       struct ib_uverbs_create_srq_resp *resp, size_t resp_size)
{
	assert(cmd_size == sizeof(*cmd) && resp_size == sizeof(*resp) + sizeof(struct ring_map));
	srq->context = pd->context;
	srq->handle = 10;
	attr->attr.max_wr = mock.srq_attr.max_wr;
	attr->attr.max_sge = mock.srq_attr.max_sge;
	memcpy(resp + 1, &mock.srq, sizeof(mock.srq));
	mock.objects += !mock.error;
	return mock.error;
}

int ibv_cmd_dealloc_mw(struct ibv_mw *mw)
{
	mock.objects -= !mock.error;
	return mock.error;
}

int ibv_cmd_modify_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr, int mask,
		       struct ibv_modify_srq *cmd, size_t cmd_size)
{
	assert(srq->handle == 10 && cmd_size == sizeof(*cmd));
	assert(mock.error || (attr->max_wr == 8 && attr->srq_limit == 3));
	if (!mock.error && (mask & IBV_SRQ_MAX_WR))
		mock.on_srq_resize();
	return mock.error;
}

int ibv_cmd_query_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr, struct ibv_query_srq *cmd,
		      size_t cmd_size)
{
	assert(srq->handle == 10 && cmd_size == sizeof(*cmd));
	*attr = mock.srq_attr;
	return mock.error;
}

int ibv_cmd_destroy_srq(struct ibv_srq *srq)
{
	assert(srq->handle == 10);
	mock.objects -= !mock.error;
	return mock.error;
}

int ibv_cmd_create_ah(struct ibv_pd *pd, struct ibv_ah *ah, struct ibv_ah_attr *attr,
		      struct ib_uverbs_create_ah_resp *resp, size_t resp_size)
{
	assert(resp_size == sizeof(*resp) + 8);
	ah->handle = attr->dlid;
	mock.objects += !mock.error;
	return mock.error;
}

int ibv_cmd_destroy_ah(struct ibv_ah *ah)
{
	mock.objects -= !mock.error;
	return mock.error;
}

int ibv_cmd_attach_mcast(struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid)
{
	assert(gid->raw[0] == 0xff && lid == 7);
	mock.objects += !mock.error;
	return mock.error;
}

int ibv_cmd_detach_mcast(struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid)
{
	assert(gid->raw[0] == 0xff && lid == 7);
	mock.objects -= !mock.error;
	return mock.error;
}

static int create_cq(struct ibv_context *context, int cqe, struct ibv_cq *cq, void *driver)
{
	cq->context = context;
	cq->handle = 8;
	cq->cqe = cqe;
	memcpy(driver, &mock.cq, sizeof(mock.cq));
	mock.objects += !mock.error;
	return mock.error;
}

int ibv_cmd_create_cq(struct ibv_context *context, int cqe, struct ibv_comp_channel *channel,
		      int comp_vector, struct ibv_cq *cq, struct ibv_create_cq *cmd,
		      size_t cmd_size, struct ib_uverbs_create_cq_resp *resp, size_t resp_size)
{
	assert(!cmd && !cmd_size && resp_size == sizeof(*resp) + sizeof(struct ring_map));
	assert(channel == (void *)0x10 && comp_vector == 3);
	return create_cq(context, cqe, cq, resp + 1);
}

int ibv_cmd_create_cq_ex(struct ibv_context *context, const struct ibv_cq_init_attr_ex *attr,
#if PABI >= 59
			 struct verbs_create_cq_prov_attr *prov_attr,
#endif
			 struct verbs_cq *cq, struct ibv_create_cq_ex *cmd, size_t cmd_size,
			 struct ib_uverbs_ex_create_cq_resp *resp, size_t resp_size,
			 uint32_t cmd_flags)
{
#if PABI >= 59
	assert(!prov_attr);
#endif
	assert(!cmd && !cmd_size && resp_size == sizeof(*resp) + sizeof(struct ring_map));
	assert(!cmd_flags);
	return create_cq(context, attr->cqe, &cq->cq, resp + 1);
}

int ibv_cmd_resize_cq(struct ibv_cq *cq, int cqe, struct ibv_resize_cq *cmd, size_t cmd_size,
		      struct ib_uverbs_resize_cq_resp *resp, size_t resp_size)
{
	assert(cq->handle == 8 && cmd_size == sizeof(*cmd));
	assert(resp_size == sizeof(*resp) + sizeof(struct ring_map));
	if (mock.error)
		return mock.error;
	memcpy(resp + 1, &mock.cq2, sizeof(mock.cq2));
	if (mock.on_resize)
		mock.on_resize();
	cq->cqe = mock.cq2.entries;
	return 0;
}

int ibv_cmd_modify_cq(struct ibv_cq *cq, struct ibv_modify_cq_attr *attr,
		      struct ibv_modify_cq *cmd, size_t cmd_size)
{
	assert(cq->handle == 8 && cmd_size == sizeof(*cmd));
	assert(attr->moderate.cq_count == 5 && attr->moderate.cq_period == 6);
	return mock.error;
}

int ibv_cmd_destroy_cq(struct ibv_cq *cq)
{
	assert(cq->handle == 8);
	mock.objects -= !mock.error;
	return mock.error;
}

static int create_qp(struct ibv_context *context, struct ibv_qp *qp, struct ibv_qp_cap *cap,
		     size_t cmd_size, struct ib_uverbs_create_qp_resp *resp, size_t resp_size)
{
	assert(cmd_size == sizeof(struct ibv_create_qp));
	assert(resp_size == sizeof(*resp) + 2 * sizeof(struct ring_map));
	qp->context = context;
	qp->handle = 9;
	qp->qp_num = mock.qp_num;
	qp->state = IBV_QPS_RESET;
	/* As libibverbs does: it is in what the provider has allocated, and touches nothing else. */
	*comp_mask(qp) |= VERBS_QP_XRCD;
	*cap = mock.cap;
	memcpy(resp + 1, &mock.sq, sizeof(mock.sq));
	memcpy((char *)(resp + 1) + sizeof(mock.sq), &mock.rq, sizeof(mock.rq));
	mock.objects += !mock.error;
	return mock.error;
}

int ibv_cmd_create_qp(struct ibv_pd *pd, struct ibv_qp *qp, struct ibv_qp_init_attr *attr,
		      struct ibv_create_qp *cmd, size_t cmd_size,
		      struct ib_uverbs_create_qp_resp *resp, size_t resp_size)
{
	return create_qp(pd->context, qp, &attr->cap, cmd_size, resp, resp_size);
}

int ibv_cmd_create_qp_ex(struct ibv_context *context, struct verbs_qp *qp,
			 struct ibv_qp_init_attr_ex *attr, struct ibv_create_qp *cmd,
			 size_t cmd_size, struct ib_uverbs_create_qp_resp *resp, size_t resp_size)
{
	assert(attr->comp_mask == IBV_QP_INIT_ATTR_PD);
	return create_qp(context, &qp->qp, &attr->cap, cmd_size, resp, resp_size);
}

int ibv_cmd_query_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int attr_mask,
		     struct ibv_qp_init_attr *init_attr, struct ibv_query_qp *cmd, size_t cmd_size)
{
	assert(cmd_size == sizeof(*cmd) && attr_mask == 0x12345);
	attr->qp_state = qp->state;
	return 0;
}

int ibv_cmd_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int attr_mask,
		      struct ibv_modify_qp *cmd, size_t cmd_size)
{
	assert(cmd_size == sizeof(*cmd));
	if (!mock.error && (attr_mask & IBV_QP_STATE) && attr->qp_state == IBV_QPS_RESET &&
	    mock.on_reset)
		mock.on_reset();
	return mock.error;
}

int ibv_cmd_destroy_qp(struct ibv_qp *qp)
{
	assert(qp->handle == 9);
	mock.objects -= !mock.error;
	return mock.error;
}

static int doorbell(struct ibv_qp *qp, void *list, int *count)
{
	assert(qp->handle == 9 && !list);
	++*count;
	if (!mock.bell_errors)
		return 0;
	mock.bell_errors--;
	mock.failed_bells++;
	return mock.bell_error;
}

int ibv_cmd_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad_wr)
{
	*bad_wr = wr;
	return doorbell(qp, wr, &mock.send_bells);
}

int ibv_cmd_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr)
{
	*bad_wr = wr;
	return doorbell(qp, wr, &mock.recv_bells);
}
