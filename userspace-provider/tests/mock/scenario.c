// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Drives the provider as libibverbs and an application would, and looks at what arrives in the
 * rings: scenario PROVIDER.so. Every failed check ends the program.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include "mock.h"

#define CHECK(x)                                                                    \
	do {                                                                        \
		if (!(x)) {                                                         \
			fprintf(stderr, "%s:%d: %s: not so: %s (errno %d)\n",       \
				__FILE__, __LINE__, __func__, #x, errno);           \
			exit(1);                                                    \
		}                                                                   \
	} while (0)

#define NEED_DOORBELL 1

/* uabi::wqe and uabi::cqe, written down a second time. */
struct send_wqe {
	uint64_t wr_id;
	uint8_t opcode, flags;
	uint16_t count;
	uint32_t srqn;
	uint64_t remote_addr;
	uint32_t rkey, imm;
	uint64_t operands[2];
	union {
		struct ibv_sge sge[5];
		char data[80];
	};
};

struct recv_wqe {
	uint64_t wr_id;
	uint32_t num_sge, reserved;
	struct ibv_sge sge[3];
};

struct cqe {
	uint64_t wr_id;
	uint32_t status, opcode, byte_len, imm, qp_num, src_qp, flags, vendor_err;
	uint64_t timestamp;
	uint16_t pkey_index, vlan;
	uint8_t sl, network_hdr, smac[6];
	uint32_t reserved;
};

_Static_assert(sizeof(struct send_wqe) == 128 && sizeof(struct recv_wqe) == 64 &&
	       sizeof(struct cqe) == 64, "uABI");

static char *file;
static struct ibv_context *context;
static struct ibv_pd *pd;

static struct control *control(size_t ring)
{
	return (struct control *)(file + ring);
}

static struct send_wqe *send_slot(uint32_t index)
{
	return (struct send_wqe *)(file + RING_SQ + 256) + index % 8;
}

static struct recv_wqe *recv_slot(uint32_t index)
{
	return (struct recv_wqe *)(file + RING_RQ + 256) + index % 4;
}

/* Doorbells since the last call; none was for the other queue. */
static int doorbells(int *queue, const int *other)
{
	int n = *queue;

	CHECK(!*other);
	*queue = 0;
	return n;
}

static int send_doorbells(void)
{
	return doorbells(&mock.send_bells, &mock.recv_bells);
}

static int recv_doorbells(void)
{
	return doorbells(&mock.recv_bells, &mock.send_bells);
}

/* Mappings of the command file, and whether each but ours is kept from children. */
static int mappings(int want_dontfork)
{
	FILE *f = fopen("/proc/self/smaps", "r");
	char line[512];
	int n = 0, ours = 0;

	CHECK(f);
	while (fgets(line, sizeof(line), f)) {
		if (strchr(line, '-') && strstr(line, "memfd:")) {
			n++;
			ours = strtoul(line, NULL, 16) == (uintptr_t)file;
		} else if (!strncmp(line, "VmFlags:", 8) && n && !ours) {
			if (want_dontfork)
				CHECK(strstr(line, " dc"));
			ours = 1;
		}
	}
	fclose(f);
	return n - 1;
}

static void clear_rings(void)
{
	memset(file, 0, FILE_SIZE);
}

static void registration(void)
{
	const struct verbs_device_ops *ops = mock.device_ops;
	struct verbs_device *device;

	CHECK(ops && !strcmp(ops->name, "ferroce"));
	CHECK(ops->match_min_abi_version == 2 && ops->match_max_abi_version == 2);
	CHECK(ops->match_table[0].kind == VERBS_MATCH_DRIVER_ID);
	CHECK(ops->match_table[0].u.driver_id == DRIVER_ID);
	CHECK(ops->match_table[1].kind == VERBS_MATCH_SENTINEL);
	CHECK(!ops->match_device && ops->import_context && !ops->static_providers);
	device = ops->alloc_device(NULL);
	CHECK(device);
	memset(device, 0xff, sizeof(*device));
	ops->uninit_device(device);
}

static void contexts(void)
{
	struct verbs_context *vctx;

	mock.error = EPERM;
	errno = 0;
	CHECK(!mock.device_ops->alloc_context(NULL, mock.cmd_fd, NULL) && errno == EPERM);
	CHECK(!mock.contexts);
	mock.error = 0;
	/* A driver that has our id but is another one, or of another version. */
	mock.signature = "rdma_xyz";
	errno = 0;
	CHECK(!mock.device_ops->alloc_context(NULL, mock.cmd_fd, NULL) && errno == EPROTO);
	CHECK(!mock.contexts);
	mock.signature = "ferroce2";
	vctx = mock.device_ops->alloc_context((void *)0x20, mock.cmd_fd, NULL);
	CHECK(vctx && mock.contexts == 1);
	context = &vctx->context;
	CHECK(context->device == (void *)0x20);
	/* Another context on the same file. */
	mock.error = EIO;
	errno = 0;
	CHECK(!mock.device_ops->import_context((void *)0x20, mock.cmd_fd) && errno == EIO);
	CHECK(mock.contexts == 1);
	mock.error = 0;
	vctx = mock.device_ops->import_context((void *)0x20, mock.cmd_fd);
	CHECK(vctx && mock.contexts == 2 && vctx->context.num_comp_vectors == 3);
	mock.ops.free_context(&vctx->context);
	CHECK(mock.contexts == 1);
}

/* Domains around a domain, which the kernel knows nothing of. */
static void domains(void)
{
	struct ibv_td_init_attr td_attr = { 0 };
	struct ibv_parent_domain_init_attr attr = { .pd = NULL };
	struct ibv_pd *parent, *imported;
	struct ibv_td *td;

	errno = 0;
	CHECK(!mock.ops.alloc_parent_domain(context, &attr) && errno == EINVAL);
	td_attr.comp_mask = 1;
	CHECK(!mock.ops.alloc_td(context, &td_attr) && errno == EOPNOTSUPP);
	td_attr.comp_mask = 0;
	td = mock.ops.alloc_td(context, &td_attr);
	CHECK(td && td->context == context);
	attr = (struct ibv_parent_domain_init_attr){ .pd = pd, .td = td, .comp_mask = 1 << 2 };
	CHECK(!mock.ops.alloc_parent_domain(context, &attr) && errno == EOPNOTSUPP);
	attr.comp_mask = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS;
	errno = 0;
	CHECK(!mock.ops.alloc_parent_domain(context, &attr) && errno == EINVAL);
	attr.comp_mask = 0;
	parent = mock.ops.alloc_parent_domain(context, &attr);
	CHECK(parent && parent != pd && parent->context == context && parent->handle == pd->handle);
	/* What is referred to stays. */
	CHECK(mock.ops.dealloc_pd(pd) == EBUSY && mock.ops.dealloc_td(td) == EBUSY && mock.objects == 1);
	CHECK(!mock.ops.dealloc_pd(parent) && mock.objects == 1);
	CHECK(!mock.ops.dealloc_td(td));

	imported = mock.ops.import_pd(context, 17);
	CHECK(imported && imported->context == context && imported->handle == 17);
	mock.ops.unimport_pd(imported);
	CHECK(mock.objects == 1);
}

/* Regions that are registered again, imported, or nothing. */
static void regions(struct ibv_mr *mr)
{
	struct ibv_mr *other;

	CHECK(!mock.ops.rereg_mr((struct verbs_mr *)mr, 5, NULL, (void *)0x4000, 0x100, 3));
	mock.error = EFAULT;
	CHECK(mock.ops.rereg_mr((struct verbs_mr *)mr, 5, NULL, (void *)0x4000, 0x100, 3) == EFAULT);
	errno = 0;
	CHECK(!mock.ops.import_mr(pd, 8) && errno == EFAULT);
	/* The kernel is not asked. */
	other = mock.ops.alloc_null_mr(pd);
	CHECK(other && other->pd == pd && other->length == SIZE_MAX && other->lkey == 0xffffff00);
	CHECK(!mock.ops.dereg_mr((struct verbs_mr *)other));
	mock.error = 0;
	other = mock.ops.import_mr(pd, 8);
	CHECK(other && other->lkey == 9 && other->pd == pd);
	mock.ops.unimport_mr(other);
}

static void plain_objects(void)
{
	struct ibv_device_attr_ex attr;
	struct ibv_port_attr port;
	struct ibv_ah_attr ah_attr = { .dlid = 4 };
	struct ibv_ah *ah;
	struct ibv_mr *mr;

	CHECK(!mock.ops.query_device_ex(context, NULL, &attr, sizeof(attr)));
	CHECK(!strcmp(attr.orig_attr.fw_ver, "7.2.1"));
	CHECK(!mock.ops.query_device_ex(context, NULL, &attr, sizeof(attr.orig_attr)));
	CHECK(!mock.ops.query_port(context, 1, &port) && port.lid == 77);

	mock.error = ENOMEM;
	errno = 0;
	CHECK(!mock.ops.alloc_pd(context) && errno == ENOMEM);
	mock.error = 0;
	pd = mock.ops.alloc_pd(context);
	CHECK(pd && pd->context == context);

	mr = mock.ops.reg_mr(pd, (void *)0x1000, 0x2000, 0x3000, 1);
	CHECK(mr && mr->lkey == 6);
	regions(mr);
	mock.error = EBUSY;
	CHECK(mock.ops.dereg_mr((struct verbs_mr *)mr) == EBUSY && mr->lkey == 6);
	errno = 0;
	CHECK(!mock.ops.reg_mr(pd, (void *)0x1000, 0x2000, 0x3000, 1) && errno == EBUSY);
	CHECK(!mock.ops.create_ah(pd, &ah_attr));
	mock.error = 0;
	CHECK(!mock.ops.dereg_mr((struct verbs_mr *)mr));

	ah = mock.ops.create_ah(pd, &ah_attr);
	CHECK(ah && ah->handle == 4 && !mock.ops.destroy_ah(ah));
	CHECK(mock.objects == 1);
	domains();
}

/* The module completes something of a QP. */
static void complete_for(uint32_t qp_num, uint64_t wr_id)
{
	struct control *c = control(RING_CQ);
	struct cqe *cqe = (struct cqe *)(file + RING_CQ + 256) + c->producer % 16;

	*cqe = (struct cqe){ wr_id, 1, 2, 3, 4, qp_num, 6, 7 | 0x70000, 8, .pkey_index = 9, .vlan = 11,
			     .sl = 10 };
	c->producer++;
}

static void complete(uint64_t wr_id)
{
	complete_for(5, wr_id);
}

static struct ibv_cq *create_cq(void)
{
	return mock.ops.create_cq(context, 16, (void *)0x10, 3);
}

static void completion_queue(void)
{
	struct control *c = control(RING_CQ);
	struct ibv_wc wc[20];
	struct ibv_cq *cq;

	clear_rings();
	/* Indices that wrap soon. */
	c->producer = c->consumer = -3u;
	cq = create_cq();
	CHECK(cq && cq->context == context && cq->cqe == 16 && mappings(1) == 1);
	CHECK(mock.ops.poll_cq(cq, 1, wc) == 0);
	for (int i = 0; i < 16; i++)
		complete(100 + i);
	memset(wc, 0xff, sizeof(wc));
	CHECK(mock.ops.poll_cq(cq, 0, wc) == 0 && mock.ops.poll_cq(cq, -1, wc) == 0);
	CHECK(c->consumer == -3u);
	CHECK(mock.ops.poll_cq(cq, 5, wc) == 5 && c->consumer == 2);
	for (int i = 0; i < 5; i++)
		CHECK(wc[i].wr_id == 100 + i);
	CHECK(wc[0].status == 1 && wc[0].opcode == 2 && wc[0].byte_len == 3);
	CHECK(wc[0].imm_data == 4 && wc[0].qp_num == 5 && wc[0].src_qp == 6);
	CHECK(wc[0].wc_flags == 7 && wc[0].vendor_err == 8 && wc[0].pkey_index == 9);
	CHECK(!wc[0].slid && wc[0].sl == 10 && !wc[0].dlid_path_bits);
	CHECK(wc[5].wr_id == -1ull);
	CHECK(mock.ops.poll_cq(cq, 20, wc) == 11 && c->consumer == 13 && wc[10].wr_id == 115);
	CHECK(mock.ops.poll_cq(cq, 20, wc) == 0);

	CHECK(!mock.ops.req_notify_cq(cq, 1) && c->arm == 1);
	CHECK(!mock.ops.req_notify_cq(cq, 0) && c->arm == 2);
	CHECK(!mock.ops.req_notify_cq(cq, 1) && c->arm == 2);

	/* Something has written over the index of the module: that is an error, and not for ever. */
	uint32_t good = c->producer;

	c->producer = good + 17;
	memset(wc, 0xff, sizeof(wc));
	CHECK(mock.ops.poll_cq(cq, 20, wc) == -EIO && wc[0].wr_id == -1ull && c->consumer == 13);
	c->producer = good - 1;
	CHECK(mock.ops.poll_cq(cq, 20, wc) == -EIO);
	c->producer = good;
	CHECK(mock.ops.poll_cq(cq, 20, wc) == 0);
	complete(1);
	CHECK(mock.ops.poll_cq(cq, 20, wc) == 1 && wc[0].wr_id == 1);

	mock.error = EBUSY;
	CHECK(mock.ops.destroy_cq(cq) == EBUSY && mock.ops.poll_cq(cq, 1, wc) == 0);
	errno = 0;
	CHECK(!create_cq() && errno == EBUSY);
	mock.error = 0;
	CHECK(!mock.ops.destroy_cq(cq) && mappings(0) == 0 && mock.objects == 1);
}

static void bad_rings(void)
{
	struct ring_map good = mock.cq;

	mock.cq.entries = 12;
	errno = 0;
	CHECK(!create_cq() && errno == EPROTO && mock.objects == 1);
	mock.cq = good;
	mock.cq.stride = 32;
	CHECK(!create_cq() && errno == EPROTO && mock.objects == 1);
	mock.cq = good;
	mock.cq.length = 0;
	CHECK(!create_cq() && errno == EPROTO && mock.objects == 1);
	mock.cq = good;
	mock.cq.offset += 64;
	CHECK(!create_cq() && errno == EINVAL && mock.objects == 1);
	mock.cq = good;
	CHECK(mappings(0) == 0);
}

static void extended_completion_queue(void)
{
	struct ibv_cq_init_attr_ex attr = { .cqe = 16, .wc_flags = IBV_WC_STANDARD_FLAGS };
	struct ibv_poll_cq_attr poll = {};
	struct ibv_cq_ex *cq;
	struct ibv_wc wc;

	clear_rings();
	for (uint64_t refused = 1; refused <= 1 << 20; refused *= 2) {
		if (refused & (IBV_WC_STANDARD_FLAGS | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP | IBV_WC_EX_WITH_CVLAN |
			       IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK))
			continue;
		attr.wc_flags = refused;
		errno = 0;
		CHECK(!mock.ops.create_cq_ex(context, &attr) && errno == EOPNOTSUPP);
	}
	attr.wc_flags = IBV_WC_STANDARD_FLAGS | IBV_WC_EX_WITH_CVLAN;
	attr.comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS;
	attr.flags = 1 << 2;
	errno = 0;
	CHECK(!mock.ops.create_cq_ex(context, &attr) && errno == EOPNOTSUPP);
	attr.flags = IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN;
	attr.comp_mask = 1 << 2;
	CHECK(!mock.ops.create_cq_ex(context, &attr));
	attr.comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS;
	attr.flags = IBV_CREATE_CQ_ATTR_SINGLE_THREADED;
	cq = mock.ops.create_cq_ex(context, &attr);
	CHECK(cq && mappings(1) == 1);

	CHECK(ibv_start_poll(cq, &poll) == ENOENT);
	complete(41);
	complete(42);
	complete(43);
	poll.comp_mask = 1;
	CHECK(ibv_start_poll(cq, &poll) == EINVAL);
	poll.comp_mask = 0;
	CHECK(!ibv_start_poll(cq, &poll));
	CHECK(cq->wr_id == 41 && cq->status == 1 && ibv_wc_read_opcode(cq) == 2);
	CHECK(ibv_wc_read_byte_len(cq) == 3 && ibv_wc_read_imm_data(cq) == 4);
	CHECK(ibv_wc_read_qp_num(cq) == 5 && ibv_wc_read_src_qp(cq) == 6);
	CHECK(ibv_wc_read_wc_flags(cq) == 7 && ibv_wc_read_vendor_err(cq) == 8);
	CHECK(!ibv_wc_read_slid(cq) && ibv_wc_read_sl(cq) == 10 && ibv_wc_read_cvlan(cq) == 11 && !ibv_wc_read_dlid_path_bits(cq));
	CHECK(control(RING_CQ)->consumer == 0);
	CHECK(!ibv_next_poll(cq) && cq->wr_id == 42);
	ibv_end_poll(cq);
	CHECK(control(RING_CQ)->consumer == 2);
	/* Both interfaces share the queue, and the lock is free again. */
	CHECK(mock.ops.poll_cq(ibv_cq_ex_to_cq(cq), 1, &wc) == 1 && wc.wr_id == 43);
	complete(44);
	CHECK(!ibv_start_poll(cq, &poll) && ibv_next_poll(cq) == ENOENT);
	ibv_end_poll(cq);
	CHECK(control(RING_CQ)->consumer == 4);
	control(RING_CQ)->producer = 1000;
	CHECK(ibv_start_poll(cq, &poll) == EIO);
	control(RING_CQ)->producer = 4;
	CHECK(ibv_start_poll(cq, &poll) == ENOENT);
	CHECK(!mock.ops.destroy_cq(ibv_cq_ex_to_cq(cq)) && mappings(0) == 0);
}

/* The times of completions, and the clock that they are of. */
static void times(void)
{
	struct ibv_cq_init_attr_ex attr = { .cqe = 16, .wc_flags = IBV_WC_EX_WITH_COMPLETION_TIMESTAMP };
	struct ibv_values_ex values = { .comp_mask = IBV_VALUES_MASK_RAW_CLOCK };
	struct ibv_poll_cq_attr poll = {};
	struct cqe *cqe = (struct cqe *)(file + RING_CQ + 256);
	struct timespec before, after;
	struct ibv_cq_ex *cq;

	clear_rings();
	cq = mock.ops.create_cq_ex(context, &attr);
	CHECK(cq && cq->read_completion_ts && !cq->read_completion_wallclock_ns);
	complete(1);
	cqe[0].timestamp = 0x123456789abcdef;
	CHECK(!ibv_start_poll(cq, &poll) && ibv_wc_read_completion_ts(cq) == 0x123456789abcdef);
	ibv_end_poll(cq);
	CHECK(!mock.ops.destroy_cq(ibv_cq_ex_to_cq(cq)));

	clock_gettime(CLOCK_MONOTONIC_RAW, &before);
	CHECK(!mock.ops.query_rt_values(context, &values));
	CHECK(values.comp_mask == IBV_VALUES_MASK_RAW_CLOCK && !values.raw_clock.tv_sec);
	CHECK(values.raw_clock.tv_nsec >= before.tv_sec * 1000000000 + before.tv_nsec);
	values.comp_mask = 2;
	CHECK(mock.ops.query_rt_values(context, &values) == EINVAL);

	/* The time of day of a completion is between two looks at the clock. */
	clear_rings();
	attr.wc_flags = IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK;
	cq = mock.ops.create_cq_ex(context, &attr);
	CHECK(cq && !cq->read_completion_ts && ibv_start_poll(cq, &poll) == ENOENT);
	complete(1);
	complete(2);
	clock_gettime(CLOCK_REALTIME, &before);
	values.comp_mask = IBV_VALUES_MASK_RAW_CLOCK;
	CHECK(!mock.ops.query_rt_values(context, &values));
	cqe[0].timestamp = values.raw_clock.tv_nsec;
	cqe[1].timestamp = values.raw_clock.tv_nsec + 1;
	CHECK(!ibv_start_poll(cq, &poll));
	clock_gettime(CLOCK_REALTIME, &after);
	uint64_t at = ibv_wc_read_completion_wallclock_ns(cq);

	/* The clocks do not run at the same rate. */
	CHECK(at + 1000000 >= before.tv_sec * 1000000000ull + before.tv_nsec);
	CHECK(at <= after.tv_sec * 1000000000ull + after.tv_nsec + 1000000);
	CHECK(!ibv_next_poll(cq) && ibv_wc_read_completion_wallclock_ns(cq) == at + 1);
	ibv_end_poll(cq);
	CHECK(!mock.ops.destroy_cq(ibv_cq_ex_to_cq(cq)) && mappings(0) == 0);
}

static struct control *resized_to(void)
{
	return control(RING_CQ2);
}

/* As the module does it; one more is completed there before the process has mapped it. */
static void move_queue(void)
{
	struct control *from = control(RING_CQ), *to = resized_to();
	struct cqe *old = (void *)(from + 1), *new = (void *)(to + 1);

	for (uint32_t i = from->consumer; i != from->producer; i++)
		new[i % 32] = old[i % 16];
	to->consumer = from->consumer;
	to->producer = from->producer + 1;
	new[from->producer % 32] = (struct cqe){ .wr_id = 70 };
	to->arm = from->arm;
}

static void resizing(void)
{
	struct ibv_modify_cq_attr moderate = { IBV_CQ_ATTR_MODERATE, { 5, 6 } };
	struct control *c = control(RING_CQ);
	struct ibv_poll_cq_attr poll = {};
	struct ibv_cq_init_attr_ex attr = { .cqe = 16 };
	struct ibv_cq_ex *ex;
	struct ibv_wc wc[20];
	struct ibv_cq *cq;

	clear_rings();
	c->producer = c->consumer = -9u;
	cq = create_cq();
	CHECK(!mock.ops.modify_cq(cq, &moderate));
	mock.error = EINVAL;
	CHECK(mock.ops.modify_cq(cq, &moderate) == EINVAL);
	for (int i = 0; i < 16; i++)
		complete(i);
	CHECK(mock.ops.poll_cq(cq, 3, wc) == 3);
	CHECK(mock.ops.resize_cq(cq, 20) == EINVAL && cq->cqe == 16 && mappings(1) == 1);
	mock.error = 0;
	CHECK(!mock.ops.req_notify_cq(cq, 0));
	mock.on_resize = move_queue;
	CHECK(!mock.ops.resize_cq(cq, 20) && cq->cqe == 32 && mappings(1) == 1);
	CHECK(resized_to()->arm == 2 && mock.ops.poll_cq(cq, 20, wc) == 14);
	for (int i = 0; i < 13; i++)
		CHECK(wc[i].wr_id == 3 + i);
	CHECK(wc[13].wr_id == 70 && resized_to()->consumer == 8);
	resized_to()->arm = 0;
	CHECK(!mock.ops.req_notify_cq(cq, 1) && resized_to()->arm == 1);
	CHECK(!mock.ops.destroy_cq(cq) && mappings(0) == 0);

	/* Between start_poll and end_poll, by the thread that polls: what was taken is consumed. */
	clear_rings();
	ex = mock.ops.create_cq_ex(context, &attr);
	complete(1);
	complete(2);
	CHECK(!ibv_start_poll(ex, &poll) && ex->wr_id == 1);
	CHECK(!mock.ops.resize_cq(ibv_cq_ex_to_cq(ex), 20) && resized_to()->consumer == 1);
	CHECK(!ibv_next_poll(ex) && ex->wr_id == 2 && !ibv_next_poll(ex) && ex->wr_id == 70);
	ibv_end_poll(ex);
	CHECK(resized_to()->consumer == 3);
	CHECK(!mock.ops.destroy_cq(ibv_cq_ex_to_cq(ex)) && mappings(0) == 0);

	/* The new ring cannot be mapped: the module is there already, and nothing pretends otherwise. */
	clear_rings();
	cq = create_cq();
	mock.cq2.offset += 64;
	complete(1);
	CHECK(mock.ops.resize_cq(cq, 20) == EINVAL && mock.ops.poll_cq(cq, 20, wc) == -EIO);
	mock.cq2.offset -= 64;
	c->producer = 1;
	CHECK(!mock.ops.resize_cq(cq, 20) && mock.ops.poll_cq(cq, 20, wc) == 2 && wc[0].wr_id == 1);
	mock.on_resize = NULL;
	CHECK(!mock.ops.destroy_cq(cq) && mappings(0) == 0);
}

static struct ibv_cq *send_cq, *recv_cq;

static struct ibv_qp *create_qp(int sig_all)
{
	struct ibv_qp_init_attr attr = {
		.qp_type = IBV_QPT_RC, .sq_sig_all = sig_all, .send_cq = send_cq, .recv_cq = recv_cq
	};
	struct ibv_qp *qp;

	if (!send_cq)
		clear_rings();
	mock.cap = (struct ibv_qp_cap){ 8, 4, 5, 3, 80 };
	qp = mock.ops.create_qp(pd, &attr);
	CHECK(qp && attr.cap.max_inline_data == 80 && (send_cq || mappings(1) == 2));
	return qp;
}

/* An application built with older headers has shorter attributes, here at the end of its memory. */
static void shorter_attributes(void)
{
	size_t page = sysconf(_SC_PAGESIZE);
	char *end = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct ibv_qp_init_attr_ex *ex;
	const union ibv_gid group = { .raw = { 0xff } };
	struct ibv_cq_init_attr_ex *cq_attr;
	struct ibv_cq_ex *cq;
	struct ibv_qp *qp;

	CHECK(end != MAP_FAILED && !mprotect(end + page, page, PROT_NONE));
	end += page;
	ex = (void *)(end - offsetof(struct ibv_qp_init_attr_ex, xrcd));
	ex->qp_type = IBV_QPT_RC;
	ex->comp_mask = IBV_QP_INIT_ATTR_PD;
	ex->pd = pd;
	qp = mock.ops.create_qp_ex(context, ex);
	CHECK(qp && !mock.ops.attach_mcast(qp, &group, 7) && mock.objects == 3);
	mock.error = EINVAL;
	CHECK(mock.ops.attach_mcast(qp, &group, 7) == EINVAL && mock.ops.detach_mcast(qp, &group, 7) == EINVAL);
	mock.error = 0;
	CHECK(!mock.ops.detach_mcast(qp, &group, 7) && !mock.ops.destroy_qp(qp));
	memset(end - page, 0, page);
	cq_attr = (void *)(end - offsetof(struct ibv_cq_init_attr_ex, parent_domain));
	cq_attr->cqe = 16;
	cq = mock.ops.create_cq_ex(context, cq_attr);
	CHECK(cq && !mock.ops.destroy_cq(ibv_cq_ex_to_cq(cq)));
}

static struct control *srq_moved_to(uint32_t entries)
{
	struct control *from = control(RING_SRQ), *to = control(RING_SRQ2);

	to->consumer = from->consumer;
	to->producer = from->producer;
	memcpy(to + 1, from + 1, 4 * 64);
	from->successor = (struct ring_map){ RING_SRQ2, 0x1000, entries, 64 };
	return to;
}

static void move_srq(void)
{
	srq_moved_to(8);
}

static void move_srq_nowhere(void)
{
	srq_moved_to(7);
}

static void move_srq_back(void)
{
	control(RING_SRQ2)->successor = (struct ring_map){ RING_SRQ, 0x1000, 8, 64 };
}

static void shared_receive_queue(void)
{
	struct ibv_srq_init_attr attr = { .attr = { 2, 2, 0 } };
	struct ibv_srq_attr change = { .max_wr = 8, .srq_limit = 3 };
	struct ibv_sge sge[4] = { { 0x1000, 10, 1 }, { 0x2000, 20, 2 } };
	struct ibv_recv_wr wr[6], *bad = NULL;
	struct control *c = control(RING_SRQ);
	struct recv_wqe *slot = (void *)(c + 1);
	struct ibv_qp_init_attr qp_attr = { .qp_type = IBV_QPT_RC };
	struct ring_map good = mock.srq, rq = mock.rq;
	struct ibv_qp *qp;
	struct ibv_srq *srq;

	clear_rings();
	errno = 0;
	mock.error = EDQUOT;
	CHECK(!mock.ops.create_srq(pd, &attr) && errno == EDQUOT);
	mock.error = 0;
	mock.srq.stride = 32;
	CHECK(!mock.ops.create_srq(pd, &attr) && errno == EPROTO && mock.objects == 1);
	mock.srq = good;
	srq = mock.ops.create_srq(pd, &attr);
	CHECK(srq && attr.attr.max_wr == 4 && attr.attr.max_sge == 3 && mappings(1) == 1);
	for (int i = 0; i < 6; i++)
		wr[i] = (struct ibv_recv_wr){ 20 + i, i < 5 ? &wr[i + 1] : NULL, sge, 2 };
	/* A list that is longer than the queue; the flag asks for a doorbell that there is not. */
	c->flags = NEED_DOORBELL;
	CHECK(mock.ops.post_srq_recv(srq, wr, &bad) == ENOMEM && bad == &wr[4] && c->producer == 4);
	CHECK(recv_doorbells() == 0 && slot[3].wr_id == 23 && slot[3].num_sge == 2);
	CHECK(slot[3].sge[1].addr == 0x2000 && slot[3].sge[1].lkey == 2);
	wr[0].num_sge = 4;
	c->consumer = 1;
	CHECK(mock.ops.post_srq_recv(srq, wr, &bad) == EINVAL && bad == wr && c->producer == 4);
	CHECK(!mock.ops.post_srq_recv(srq, &wr[5], &bad) && c->producer == 5);
	CHECK(!mock.ops.query_srq(srq, &change) && change.max_sge == 3);

	/* The limit alone moves nothing; a resize that is refused neither. */
	change = (struct ibv_srq_attr){ .max_wr = 8, .srq_limit = 3 };
	CHECK(!mock.ops.modify_srq(srq, &change, IBV_SRQ_LIMIT));
	mock.error = EINVAL;
	CHECK(mock.ops.modify_srq(srq, &change, IBV_SRQ_MAX_WR) == EINVAL);
	mock.error = 0;
	mock.on_srq_resize = move_srq;
	CHECK(!mock.ops.modify_srq(srq, &change, IBV_SRQ_MAX_WR) && mappings(1) == 1);
	struct control *moved = control(RING_SRQ2);

	wr[1].next = NULL;
	for (int i = 0; i < 4; i++)
		CHECK(!mock.ops.post_srq_recv(srq, &wr[1], &bad));
	CHECK(moved->producer == 9 && c->producer == 5);
	CHECK(mock.ops.post_srq_recv(srq, &wr[1], &bad) == ENOMEM && bad == &wr[1]);
	CHECK(!mock.ops.destroy_srq(srq) && mappings(0) == 0);

	/* The new ring makes no sense: nothing is posted to the old one. */
	clear_rings();
	srq = mock.ops.create_srq(pd, &attr);
	mock.on_srq_resize = move_srq_nowhere;
	CHECK(mock.ops.modify_srq(srq, &change, IBV_SRQ_MAX_WR) == EPROTO);
	CHECK(mock.ops.post_srq_recv(srq, &wr[1], &bad) == ENOMEM && c->producer == 0);
	mock.on_srq_resize = move_srq_back;
	CHECK(mock.ops.modify_srq(srq, &change, IBV_SRQ_MAX_WR) == EPROTO);
	/* It can be mapped after all: first that, in which the module tells the next place. */
	c->successor.entries = 4;
	CHECK(!mock.ops.modify_srq(srq, &change, IBV_SRQ_MAX_WR) && mappings(1) == 1);
	CHECK(!mock.ops.post_srq_recv(srq, &wr[1], &bad) && c->producer == 1);

	/* A queue pair with it has no receive queue. */
	qp_attr.srq = srq;
	mock.cap = (struct ibv_qp_cap){ 8, 0, 5, 0, 80 };
	mock.rq = (struct ring_map){};
	qp = mock.ops.create_qp(pd, &qp_attr);
	CHECK(qp && mappings(1) == 2);
	qp->srq = srq;
	qp->state = IBV_QPS_INIT;
	CHECK(mock.ops.post_recv(qp, &wr[1], &bad) == EINVAL && bad == &wr[1]);
	CHECK(!mock.ops.destroy_qp(qp));
	mock.rq = rq;
	mock.error = EBUSY;
	CHECK(mock.ops.destroy_srq(srq) == EBUSY && mappings(1) == 1);
	mock.error = 0;
	CHECK(!mock.ops.destroy_srq(srq) && mappings(0) == 0 && mock.objects == 1);
}

static void queue_pair_life(void)
{
	struct ibv_qp_init_attr attr = { .qp_type = IBV_QPT_RAW_PACKET };
	struct ibv_qp_init_attr_ex ex = { .qp_type = IBV_QPT_RC };
	struct ring_map sq = mock.sq, rq = mock.rq;
	struct ibv_send_wr wr = { .opcode = IBV_WR_SEND }, *bad;
	struct ibv_recv_wr rwr = {}, *rbad;
	struct ibv_qp_attr qp_attr;
	struct ibv_qp *qp;

	mock.cap = (struct ibv_qp_cap){ 8, 4, 5, 3, 80 };
	errno = 0;
	CHECK(!mock.ops.create_qp(pd, &attr) && errno == EOPNOTSUPP);
	attr.qp_type = IBV_QPT_RC;
	mock.error = EDQUOT;
	CHECK(!mock.ops.create_qp(pd, &attr) && errno == EDQUOT);
	mock.error = 0;

	/* A queue that cannot be mapped takes the other one and the QP with it. */
	mock.rq.offset += 64;
	CHECK(!mock.ops.create_qp(pd, &attr) && errno == EINVAL && mappings(0) == 0);
	mock.rq = rq;
	mock.sq.stride = 64;
	CHECK(!mock.ops.create_qp(pd, &attr) && errno == EPROTO && mappings(0) == 0);
	mock.sq = sq;
	mock.cap.max_send_sge = 1000;
	CHECK(!mock.ops.create_qp(pd, &attr) && errno == EPROTO);
	CHECK(mock.objects == 1);

	mock.cap = (struct ibv_qp_cap){ 8, 4, 5, 3, 80 };
	ex.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
	ex.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_TSO;
	ex.pd = pd;
	errno = 0;
	CHECK(!mock.ops.create_qp_ex(context, &ex) && errno == EOPNOTSUPP);
	ex.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS;
	ex.create_flags = 2;
	errno = 0;
	CHECK(!mock.ops.create_qp_ex(context, &ex) && errno == EOPNOTSUPP);
	ex.create_flags = 0;
	qp = mock.ops.create_qp_ex(context, &ex);
	CHECK(qp && ex.cap.max_send_sge == 5 && mappings(1) == 2);
	CHECK(ex.comp_mask & IBV_QP_INIT_ATTR_CREATE_FLAGS);
	qp->state = IBV_QPS_ERR;
	CHECK(!mock.ops.query_qp(qp, &qp_attr, 0x12345, &attr) && qp_attr.qp_state == qp->state);
	mock.error = EBUSY;
	CHECK(mock.ops.destroy_qp(qp) == EBUSY && mappings(1) == 2);
	mock.error = 0;
	CHECK(!mock.ops.destroy_qp(qp) && mappings(0) == 0 && mock.objects == 1);

	/* A QP without a send queue, and without a receive queue. */
	mock.cap = (struct ibv_qp_cap){ 0, 4, 1, 1, 0 };
	mock.sq.length = 0;
	qp = mock.ops.create_qp(pd, &attr);
	CHECK(qp && mappings(1) == 1);
	qp->state = IBV_QPS_RTS;
	CHECK(mock.ops.post_send(qp, &wr, &bad) == ENOMEM && bad == &wr);
	CHECK(!mock.ops.destroy_qp(qp));
	mock.sq = sq;
	mock.cap = (struct ibv_qp_cap){ 8, 0, 1, 1, 0 };
	mock.rq.length = 0;
	qp = mock.ops.create_qp(pd, &attr);
	CHECK(qp && mappings(1) == 1);
	qp->state = IBV_QPS_RTS;
	CHECK(mock.ops.post_recv(qp, &rwr, &rbad) == ENOMEM && rbad == &rwr);
	CHECK(!mock.ops.destroy_qp(qp));
	mock.cap.max_recv_wr = 1;
	CHECK(!mock.ops.create_qp(pd, &attr) && errno == EPROTO && mappings(0) == 0);
	mock.rq = rq;
	CHECK(mock.objects == 1);
}

static void sending(void)
{
	struct ibv_sge sge[6] = { { 0x1000, 10, 1 }, { 0x2000, 0, 2 } };
	struct ibv_send_wr wr[10], *bad = NULL;
	struct control *c = control(RING_SQ);
	struct ibv_qp *qp = create_qp(0);
	char text[] = "inline text";

	memset(wr, 0xff, sizeof(wr));
	for (int i = 0; i < 10; i++) {
		wr[i].wr_id = 1000 + i;
		wr[i].next = i < 9 ? &wr[i + 1] : NULL;
		wr[i].sg_list = sge;
		wr[i].num_sge = 2;
		wr[i].opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
		wr[i].send_flags = IBV_SEND_SIGNALED;
		wr[i].imm_data = 0x11223344;
		wr[i].wr.rdma.remote_addr = 0x123456789a;
		wr[i].wr.rdma.rkey = 0x55;
	}
	for (int state = IBV_QPS_RESET; state < IBV_QPS_RTS; state++) {
		qp->state = state;
		bad = NULL;
		CHECK(mock.ops.post_send(qp, wr, &bad) == EINVAL && bad == wr);
	}
	CHECK(c->producer == 0 && send_doorbells() == 0);

	/* A list of three, with a doorbell; one, without. */
	qp->state = IBV_QPS_RTS;
	c->flags = NEED_DOORBELL;
	wr[2].next = NULL;
	bad = (void *)0x30;
	CHECK(!mock.ops.post_send(qp, wr, &bad) && bad == (void *)0x30);
	CHECK(c->producer == 3 && send_doorbells() == 1);
	for (int i = 0; i < 3; i++) {
		struct send_wqe *w = send_slot(i);

		CHECK(w->wr_id == 1000 + i && w->opcode == 1 && w->flags == 2);
		CHECK(w->count == 2 && !w->srqn && w->imm == 0x11223344);
		CHECK(w->remote_addr == 0x123456789a && w->rkey == 0x55);
		CHECK(!w->operands[0] && !w->operands[1] && !memcmp(w->sge, sge, 32));
	}
	c->flags = 0;
	wr[3].next = NULL;
	wr[3].sg_list = NULL;
	wr[3].num_sge = 0;
	CHECK(!mock.ops.post_send(qp, &wr[3], &bad));
	CHECK(c->producer == 4 && send_doorbells() == 0 && send_slot(3)->count == 0);

	/* Five do not fit into the four that are left; those that do are under way. */
	c->flags = NEED_DOORBELL;
	wr[8].next = NULL;
	CHECK(mock.ops.post_send(qp, &wr[4], &bad) == ENOMEM && bad == &wr[8]);
	CHECK(c->producer == 8 && send_doorbells() == 1);
	CHECK(mock.ops.post_send(qp, &wr[8], &bad) == ENOMEM && bad == &wr[8]);
	CHECK(c->producer == 8 && send_doorbells() == 0);
	c->consumer = 1;
	CHECK(!mock.ops.post_send(qp, &wr[8], &bad) && c->producer == 9);
	CHECK(send_slot(8)->wr_id == 1008 && send_doorbells() == 1);
	c->consumer = 9;

	/* A malformed request in the middle. */
	wr[1].num_sge = 6;
	CHECK(mock.ops.post_send(qp, wr, &bad) == EINVAL && bad == &wr[1]);
	CHECK(c->producer == 10 && send_doorbells() == 1);
	wr[1].num_sge = -1;
	CHECK(mock.ops.post_send(qp, &wr[1], &bad) == EINVAL && bad == &wr[1]);
	wr[1].num_sge = 1;
	wr[1].sg_list = NULL;
	CHECK(mock.ops.post_send(qp, &wr[1], &bad) == EINVAL);
	wr[1].num_sge = 0;
	wr[1].opcode = IBV_WR_TSO;
	CHECK(mock.ops.post_send(qp, &wr[1], &bad) == EOPNOTSUPP && bad == &wr[1]);
	wr[1].opcode = 1000;
	CHECK(mock.ops.post_send(qp, &wr[1], &bad) == EINVAL && bad == &wr[1]);
	CHECK(c->producer == 10 && send_doorbells() == 0);

	/* Inline: the bytes are in the slot, and the buffer is free at once. */
	wr[0].next = NULL;
	wr[0].opcode = IBV_WR_SEND;
	wr[0].send_flags = IBV_SEND_INLINE | IBV_SEND_SOLICITED | IBV_SEND_FENCE;
	sge[0] = (struct ibv_sge){ (uintptr_t)text, 7 };
	sge[1] = (struct ibv_sge){ (uintptr_t)text + 7, sizeof(text) - 7 };
	CHECK(!mock.ops.post_send(qp, wr, &bad));
	memset(text, 'x', sizeof(text));
	CHECK(send_slot(10)->count == 12);
	CHECK(!strcmp(send_slot(10)->data, "inline text") && send_slot(10)->flags == 13);
	CHECK(!send_slot(10)->remote_addr && !send_slot(10)->rkey && !send_slot(10)->imm);
	sge[0].length = 81;
	wr[0].num_sge = 1;
	CHECK(mock.ops.post_send(qp, wr, &bad) == EINVAL && bad == wr);
	CHECK(c->producer == 11 && send_doorbells() == 1);

	/* An error state takes requests: the module flushes them. */
	qp->state = IBV_QPS_ERR;
	wr[0].num_sge = 0;
	CHECK(!mock.ops.post_send(qp, wr, &bad) && c->producer == 12);
	CHECK(!mock.ops.post_send(qp, NULL, &bad) && c->producer == 12);

	CHECK(send_doorbells() == 1);

	/* Want of memory passes; what was posted must not be reported as refused. */
	mock.bell_errors = 1200;
	mock.bell_error = ENOMEM;
	CHECK(!mock.ops.post_send(qp, wr, &bad) && c->producer == 13);
	CHECK(mock.failed_bells == 1200 && send_doorbells() == 1201);
	mock.bell_errors = 3;
	mock.bell_error = EINTR;
	CHECK(!mock.ops.post_send(qp, wr, &bad) && send_doorbells() == 4);

	/* A device that is gone. */
	mock.bell_errors = 1;
	mock.bell_error = EIO;
	bad = NULL;
	CHECK(mock.ops.post_send(qp, wr, &bad) == EIO && bad == wr && send_doorbells() == 1);
	CHECK(!mock.ops.destroy_qp(qp));

	qp = create_qp(1);
	qp->state = IBV_QPS_RTS;
	wr[0].send_flags = 0;
	CHECK(!mock.ops.post_send(qp, wr, &bad) && send_slot(0)->flags == IBV_SEND_SIGNALED);
	CHECK(!mock.ops.destroy_qp(qp) && mappings(0) == 0);
	send_doorbells();
}

/* Windows: type 1 is bound by a request that the provider makes. */
static void windows(void)
{
	struct ibv_mr region = { .lkey = 0x77 };
	struct ibv_mw_bind bind = { 9, IBV_SEND_SIGNALED, { &region, 0x1000, 0x200, IBV_ACCESS_REMOTE_WRITE } };
	struct ibv_qp *qp = create_qp(0);
	struct ibv_mw *mw;

	mock.error = ENOMEM;
	errno = 0;
	CHECK(!mock.ops.alloc_mw(pd, IBV_MW_TYPE_1) && errno == ENOMEM);
	mock.error = 0;
	mw = mock.ops.alloc_mw(pd, IBV_MW_TYPE_1);
	CHECK(mw && mw->pd == pd && mw->type == IBV_MW_TYPE_1);
	qp->state = IBV_QPS_INIT;
	CHECK(mock.ops.bind_mw(qp, mw, &bind) == EINVAL && mw->rkey == 0x12345fe);
	qp->state = IBV_QPS_RTS;
	CHECK(!mock.ops.bind_mw(qp, mw, &bind) && mw->rkey == 0x12345ff);
	CHECK(send_slot(0)->wr_id == 9 && send_slot(0)->opcode == 8 && send_slot(0)->flags == 2 && !send_slot(0)->count);
	CHECK(send_slot(0)->remote_addr == 0x1000 && send_slot(0)->rkey == 0x12345ff && send_slot(0)->imm == 0x12345fe);
	CHECK(send_slot(0)->operands[0] == 0x200 && send_slot(0)->operands[1] == (0x77 | 2ull << 32));
	/* Nothing, of no region; the low byte goes round. */
	bind.bind_info = (struct ibv_mw_bind_info){ 0 };
	CHECK(!mock.ops.bind_mw(qp, mw, &bind) && mw->rkey == 0x1234500);
	CHECK(send_slot(1)->imm == 0x12345ff && !send_slot(1)->operands[0] && !send_slot(1)->operands[1]);
	mock.error = EBUSY;
	CHECK(mock.ops.dealloc_mw(mw) == EBUSY);
	mock.error = 0;
	CHECK(!mock.ops.dealloc_mw(mw) && !mock.ops.destroy_qp(qp));
	send_doorbells();
}

/* Requests made call by call. */
static void sending_by_calls(void)
{
	struct ibv_qp_init_attr_ex ex = { .qp_type = IBV_QPT_RC, .pd = pd };
	struct ibv_sge sge[6] = { { 0x1000, 10, 1 }, { 0x2000, 0, 2 } };
	char text[] = "inline text";
	struct ibv_data_buf bufs[2] = { { text, 7 }, { text + 7, sizeof(text) - 7 } };
	struct control *c = control(RING_SQ);
	struct ibv_qp_ex *x;
	struct ibv_qp *qp;

	mock.cap = (struct ibv_qp_cap){ 8, 4, 5, 3, 80 };
	memset((void *)c, 0, sizeof(*c));
	/* Without the attribute it has not the interface. */
	ex.comp_mask = IBV_QP_INIT_ATTR_PD;
	qp = mock.ops.create_qp_ex(context, &ex);
	CHECK(qp && !ibv_qp_to_qp_ex(qp) && !mock.ops.destroy_qp(qp));
	ex.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
	ex.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | IBV_QP_EX_WITH_RDMA_READ |
			    IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD;
	qp = mock.ops.create_qp_ex(context, &ex);
	CHECK(qp && (x = ibv_qp_to_qp_ex(qp)));

	/* Too soon. */
	qp->state = IBV_QPS_RTR;
	ibv_wr_start(x);
	ibv_wr_send(x);
	CHECK(ibv_wr_complete(x) == EINVAL && !c->producer);

	/* One of each kind, and nothing is seen before the end. */
	qp->state = IBV_QPS_RTS;
	c->flags = NEED_DOORBELL;
	ibv_wr_start(x);
	x->wr_id = 1;
	x->wr_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE;
	ibv_wr_send(x);
	ibv_wr_set_inline_data_list(x, 2, bufs);
	memset(text, 'x', sizeof(text));
	x->wr_id = 2;
	x->wr_flags = IBV_SEND_FENCE;
	ibv_wr_rdma_write_imm(x, 0x55, 0x123456789a, 0x11223344);
	ibv_wr_set_sge_list(x, 2, sge);
	x->wr_id = 3;
	x->wr_flags = 0;
	ibv_wr_rdma_read(x, 0x56, 0x1000);
	ibv_wr_set_sge(x, 7, 0x2000, 20);
	x->wr_id = 4;
	ibv_wr_atomic_cmp_swp(x, 0x57, 0x1008, 5, 6);
	ibv_wr_set_sge(x, 7, 0x2000, 8);
	x->wr_id = 5;
	ibv_wr_atomic_fetch_add(x, 0x58, 0x1010, 9);
	CHECK(!c->producer && send_doorbells() == 0);
	CHECK(!ibv_wr_complete(x));
	CHECK(c->producer == 5 && send_doorbells() == 1);
	CHECK(send_slot(0)->wr_id == 1 && send_slot(0)->opcode == IBV_WR_SEND && send_slot(0)->count == 12);
	CHECK(send_slot(0)->flags == (IBV_SEND_SIGNALED | IBV_SEND_INLINE) && !strcmp(send_slot(0)->data, "inline text"));
	CHECK(send_slot(1)->wr_id == 2 && send_slot(1)->opcode == IBV_WR_RDMA_WRITE_WITH_IMM);
	CHECK(send_slot(1)->flags == IBV_SEND_FENCE && send_slot(1)->imm == 0x11223344);
	CHECK(send_slot(1)->remote_addr == 0x123456789a && send_slot(1)->rkey == 0x55);
	CHECK(send_slot(1)->count == 2 && !memcmp(send_slot(1)->sge, sge, 32));
	CHECK(send_slot(2)->opcode == IBV_WR_RDMA_READ && send_slot(2)->rkey == 0x56 && send_slot(2)->count == 1);
	CHECK(!send_slot(2)->imm && !send_slot(2)->flags);
	CHECK(send_slot(3)->opcode == IBV_WR_ATOMIC_CMP_AND_SWP && send_slot(3)->remote_addr == 0x1008);
	CHECK(send_slot(3)->operands[0] == 5 && send_slot(3)->operands[1] == 6);
	CHECK(send_slot(4)->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD && send_slot(4)->rkey == 0x58);
	CHECK(send_slot(4)->operands[0] == 9 && !send_slot(4)->operands[1] && !send_slot(4)->count);

	/* Abort, and an empty list, leave the ring as it was. */
	ibv_wr_start(x);
	ibv_wr_send(x);
	ibv_wr_send(x);
	ibv_wr_abort(x);
	ibv_wr_start(x);
	CHECK(!ibv_wr_complete(x) && c->producer == 5 && send_doorbells() == 0);

	/* All or nothing: there is room for three. */
	ibv_wr_start(x);
	for (int i = 0; i < 4; i++)
		ibv_wr_send(x);
	CHECK(ibv_wr_complete(x) == ENOMEM && c->producer == 5 && send_doorbells() == 0);
	ibv_wr_start(x);
	for (int i = 0; i < 3; i++)
		ibv_wr_send(x);
	CHECK(!ibv_wr_complete(x) && c->producer == 8 && send_doorbells() == 1);
	c->consumer = 8;

	/* What goes wrong is told in the end, and the first of it. */
	for (int i = 0; i < 12; i++) {
		int want = i < 5 ? EOPNOTSUPP : EINVAL;

		ibv_wr_start(x);
		x->wr_flags = i == 5 ? IBV_SEND_IP_CSUM : 0;
		if (i > 5)
			i == 9 ? ibv_wr_rdma_read(x, 1, 2) : ibv_wr_send(x);
		switch (i) {
		case 0: ibv_wr_rdma_write(x, 1, 2); break;
		case 1: ibv_wr_local_inv(x, 1); break;
		case 2: ibv_wr_send_inv(x, 1); break;
		case 3: ibv_wr_send_tso(x, text, 1, 1); break;
		case 4: ibv_wr_bind_mw(x, NULL, 1, NULL); break;
		case 5: ibv_wr_send(x); break;
		case 6: ibv_wr_set_sge_list(x, 6, sge); break;
		case 7: ibv_wr_set_inline_data(x, text, 81); break;
		case 8: ibv_wr_set_inline_data(x, text, 1ull << 32 | 1); break;
		case 9: ibv_wr_set_inline_data(x, text, 1); break;
		case 10: ibv_wr_set_ud_addr(x, NULL, 1, 1); break;
		case 11: ibv_wr_set_xrc_srqn(x, 1); break;
		}
		ibv_wr_set_sge_list(x, 100, sge);
		CHECK(ibv_wr_complete(x) == want && c->producer == 8);
	}
	ibv_wr_start(x);
	ibv_wr_set_sge(x, 1, 2, 3);
	CHECK(ibv_wr_complete(x) == EINVAL && c->producer == 8);

	/* A device that is gone. */
	mock.bell_errors = 1;
	mock.bell_error = EIO;
	x->wr_flags = 0;
	ibv_wr_start(x);
	ibv_wr_send(x);
	CHECK(ibv_wr_complete(x) == EIO && send_doorbells() == 1);
	CHECK(!mock.ops.destroy_qp(qp) && mappings(0) == 0);
}

static void receiving(void)
{
	struct ibv_sge sge[4] = { { 0x1000, 10, 1 }, { 0x2000, 0, 2 }, { 3, 4, 5 } };
	struct ibv_recv_wr wr[6], *bad = NULL;
	struct control *c = control(RING_RQ);
	struct ibv_qp *qp = create_qp(0);

	for (int i = 0; i < 6; i++)
		wr[i] = (struct ibv_recv_wr){ 2000 + i, i < 5 ? &wr[i + 1] : NULL, sge, 3 };
	CHECK(mock.ops.post_recv(qp, wr, &bad) == EINVAL && bad == wr && !c->producer);
	qp->state = IBV_QPS_INIT;
	CHECK(mock.ops.post_recv(qp, wr, &bad) == ENOMEM && bad == &wr[4]);
	CHECK(c->producer == 4 && recv_doorbells() == 0);
	for (int i = 0; i < 4; i++) {
		struct recv_wqe *w = recv_slot(i);

		CHECK(w->wr_id == 2000 + i && w->num_sge == 3 && !w->reserved);
		CHECK(!memcmp(w->sge, sge, 48));
	}
	c->consumer = 2;
	c->flags = NEED_DOORBELL;
	qp->state = IBV_QPS_ERR;
	CHECK(!mock.ops.post_recv(qp, &wr[4], &bad) && c->producer == 6);
	CHECK(recv_doorbells() == 1 && recv_slot(5)->wr_id == 2005);
	c->consumer = 6;
	wr[1].num_sge = 4;
	CHECK(mock.ops.post_recv(qp, wr, &bad) == EINVAL && bad == &wr[1]);
	CHECK(c->producer == 7 && recv_doorbells() == 1);
	CHECK(!mock.ops.destroy_qp(qp));
}

static void module_drops_all(void)
{
	control(RING_SQ)->consumer = control(RING_SQ)->producer;
	control(RING_RQ)->consumer = control(RING_RQ)->producer;
}

static void module_starts_over(void)
{
	control(RING_SQ)->consumer = control(RING_RQ)->consumer = 0;
}

static void reset(void)
{
	struct ibv_send_wr wr = { .opcode = IBV_WR_SEND }, *bad;
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RESET };
	void (*ways[])(void) = { module_drops_all, module_starts_over };
	struct ibv_qp *qp = create_qp(0);

	for (int way = 0; way < 2; way++) {
		struct control *c = control(RING_SQ);

		qp->state = IBV_QPS_RTS;
		for (int i = 0; i < 8; i++)
			CHECK(!mock.ops.post_send(qp, &wr, &bad));
		CHECK(mock.ops.post_send(qp, &wr, &bad) == ENOMEM);
		mock.on_reset = ways[way];
		mock.error = EINVAL;
		CHECK(mock.ops.modify_qp(qp, &attr, IBV_QP_STATE) == EINVAL);
		mock.error = 0;
		CHECK(c->producer != c->consumer);
		CHECK(!mock.ops.modify_qp(qp, &attr, IBV_QP_STATE));
		CHECK(c->producer == c->consumer);
		for (int i = 0; i < 8; i++)
			CHECK(!mock.ops.post_send(qp, &wr, &bad));
		CHECK(mock.ops.post_send(qp, &wr, &bad) == ENOMEM);
		CHECK(c->producer - c->consumer == 8);
		c->consumer = c->producer;
	}
	mock.on_reset = NULL;
	CHECK(!mock.ops.destroy_qp(qp));
}

/* What is in the CQ by wr_id, which are below 10, as one number. */
static uint64_t poll_all(struct ibv_cq *cq)
{
	struct ibv_wc wc[16];
	uint64_t ids = 0;
	int n = mock.ops.poll_cq(cq, 16, wc);

	CHECK(n >= 0);
	for (int i = 0; i < n; i++)
		ids = 10 * ids + wc[i].wr_id;
	return ids;
}

/* The application frees what the completions of a QP point to when that is reset or gone. */
static void completions_of_the_gone(void)
{
	struct ibv_cq_init_attr_ex attr = { .cqe = 16, .wc_flags = IBV_WC_STANDARD_FLAGS };
	struct ibv_qp_attr to_reset = { .qp_state = IBV_QPS_RESET };
	struct ibv_poll_cq_attr poll = {};
	struct control *c = control(RING_CQ);
	struct ibv_qp *one, *two;
	struct ibv_cq_ex *cq;
	int status;
	pid_t child;

	clear_rings();
	c->producer = c->consumer = -6u;
	cq = mock.ops.create_cq_ex(context, &attr);
	CHECK(cq);
	send_cq = recv_cq = ibv_cq_ex_to_cq(cq);
	mock.qp_num = 1;
	one = create_qp(0);
	mock.qp_num = 2;
	two = create_qp(0);

	/* The others keep their order, also where indices wrap, and slots become free. */
	for (int i = 1; i < 10; i++)
		complete_for(1 + i % 2, i);
	CHECK(!mock.ops.modify_qp(one, &to_reset, IBV_QP_STATE));
	CHECK(c->consumer == -2u && poll_all(send_cq) == 13579);
	/* Nothing of it there, nothing there. */
	CHECK(!mock.ops.modify_qp(one, &to_reset, IBV_QP_STATE));
	complete_for(2, 1);
	CHECK(!mock.ops.modify_qp(one, &to_reset, IBV_QP_STATE) && poll_all(send_cq) == 1);
	/* Another change of state, or one that is refused, forgets nothing. */
	complete_for(1, 2);
	mock.error = EINVAL;
	CHECK(mock.ops.modify_qp(one, &to_reset, IBV_QP_STATE) == EINVAL);
	CHECK(mock.ops.destroy_qp(one) == EINVAL);
	mock.error = 0;
	to_reset.qp_state = IBV_QPS_ERR;
	CHECK(!mock.ops.modify_qp(one, &to_reset, IBV_QP_STATE));
	to_reset.qp_state = IBV_QPS_RESET;
	CHECK(poll_all(send_cq) == 2);

	/* In the middle of extended polling, by the thread that polls. */
	for (int i = 1; i < 7; i++)
		complete_for(1 + i % 2, i);
	CHECK(!ibv_start_poll(cq, &poll) && cq->wr_id == 1);
	CHECK(!mock.ops.modify_qp(one, &to_reset, IBV_QP_STATE));
	CHECK(cq->wr_id == 1 && ibv_wc_read_qp_num(cq) == 2);
	CHECK(!ibv_next_poll(cq) && cq->wr_id == 3 && !ibv_next_poll(cq) && cq->wr_id == 5);
	CHECK(ibv_next_poll(cq) == ENOENT);
	ibv_end_poll(cq);
	CHECK(c->consumer == c->producer);

	/* A child of fork has no rings: it must not touch what is at their place. */
	fflush(NULL);
	child = fork();
	CHECK(child >= 0);
	if (!child) {
		struct rlimit none = { 0 };

		setrlimit(RLIMIT_CORE, &none);
		_exit(mock.ops.destroy_qp(two));
	}
	CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && !WEXITSTATUS(status));

	/* A ring that was scribbled over is left alone. */
	c->producer += 100;
	CHECK(!mock.ops.modify_qp(one, &to_reset, IBV_QP_STATE));
	c->producer -= 100;

	complete_for(1, 1);
	complete_for(2, 2);
	complete_for(1, 3);
	CHECK(!mock.ops.destroy_qp(one) && poll_all(send_cq) == 2);
	CHECK(!mock.ops.destroy_qp(two));
	CHECK(!mock.ops.destroy_cq(send_cq) && mappings(0) == 0);
	send_cq = recv_cq = NULL;
	mock.qp_num = 0;
}

#define ROUNDS 12000

/* Completes for three QPs in turn, the number of the round as wr_id. */
static void *completer(void *arg)
{
	struct control *c = control(RING_CQ);

	for (uint64_t i = 0; i < ROUNDS; i++) {
		while (c->producer - c->consumer == 16)
			sched_yield();
		complete_for(1 + i % 3, i);
	}
	return NULL;
}

/* While the module completes, one QP is reset again and again: nothing of others gets lost or twice. */
static void forgetting_under_load(void)
{
	struct ibv_qp_attr to_reset = { .qp_state = IBV_QPS_RESET };
	uint64_t next[3] = { 0, 1, 2 };
	struct ibv_wc wc[4];
	struct ibv_qp *qp;
	pthread_t thread;
	int n = 0, turn = 0;

	clear_rings();
	send_cq = recv_cq = create_cq();
	mock.qp_num = 1;
	qp = create_qp(0);
	CHECK(!pthread_create(&thread, NULL, completer, NULL));
	while (next[1] < ROUNDS || next[2] < ROUNDS) {
		if (turn++ % 2)
			CHECK(!mock.ops.modify_qp(qp, &to_reset, IBV_QP_STATE));
		n = mock.ops.poll_cq(send_cq, 4, wc);
		CHECK(n >= 0);
		for (int i = 0; i < n; i++) {
			int of = wc[i].qp_num - 1;

			CHECK(wc[i].wr_id % 3 == of && wc[i].wr_id >= next[of]);
			CHECK(!of || wc[i].wr_id == next[of]);
			next[of] = wc[i].wr_id + 3;
		}
	}
	pthread_join(thread, NULL);
	CHECK(!mock.ops.destroy_qp(qp) && !poll_all(send_cq));
	CHECK(!mock.ops.destroy_cq(send_cq) && mappings(0) == 0);
	send_cq = recv_cq = NULL;
	mock.qp_num = 0;
}

#define POSTERS 4
#define EACH 20000

static struct ibv_qp *shared;
static struct ibv_cq *shared_cq;
static _Atomic int polled;
static unsigned char seen[POSTERS * EACH], completed[POSTERS * EACH];

static void *poster(void *arg)
{
	struct ibv_send_wr wr = { .opcode = IBV_WR_SEND }, *bad;

	for (uintptr_t i = 0; i < EACH; i++) {
		wr.wr_id = (uintptr_t)arg * EACH + i;
		for (;;) {
			int err = mock.ops.post_send(shared, &wr, &bad);

			if (!err)
				break;
			CHECK(err == ENOMEM);
			sched_yield();
		}
	}
	return NULL;
}

static void *poller(void *arg)
{
	struct ibv_wc wc[3];

	while (polled < POSTERS * EACH) {
		int n = mock.ops.poll_cq(shared_cq, 3, wc);

		for (int i = 0; i < n; i++)
			CHECK(!__atomic_exchange_n(&completed[wc[i].wr_id], 1, __ATOMIC_RELAXED));
		polled += n;
		if (!n)
			sched_yield();
	}
	return NULL;
}

/* Threads that post and threads that poll, and a module in the middle: nothing is lost or twice. */
static void threads(void)
{
	struct control *c, *cc = control(RING_CQ);
	pthread_t thread[POSTERS + 2];
	uint32_t taken = 0;

	shared = create_qp(0);
	shared->state = IBV_QPS_RTS;
	shared_cq = create_cq();
	CHECK(shared_cq);
	c = control(RING_SQ);
	for (uintptr_t i = 0; i < POSTERS + 2; i++)
		CHECK(!pthread_create(&thread[i], NULL, i < POSTERS ? poster : poller, (void *)i));
	while (taken < POSTERS * EACH) {
		uint64_t id;

		if (c->producer == taken || cc->producer - cc->consumer == 16) {
			sched_yield();
			continue;
		}
		id = send_slot(taken)->wr_id;
		CHECK(id < POSTERS * EACH && !seen[id]++);
		c->consumer = ++taken;
		complete(id);
	}
	for (int i = 0; i < POSTERS + 2; i++)
		pthread_join(thread[i], NULL);
	CHECK(c->producer == POSTERS * EACH && polled == POSTERS * EACH);
	CHECK(!mock.ops.destroy_qp(shared) && !mock.ops.destroy_cq(shared_cq));
}

int main(int argc, char **argv)
{
	/* A request that is lost must not hang the test. */
	alarm(120);
	mock.cmd_fd = memfd_create("uverbs", MFD_ALLOW_SEALING);
	CHECK(argc == 2 && mock.cmd_fd >= 0 && !ftruncate(mock.cmd_fd, FILE_SIZE));
	file = mmap(NULL, FILE_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, mock.cmd_fd, 0);
	CHECK(file != MAP_FAILED);
	/* Nothing is to be written to it any more. */
	CHECK(!fcntl(mock.cmd_fd, F_ADD_SEALS, F_SEAL_GROW | F_SEAL_SHRINK));
	lseek(mock.cmd_fd, 0, SEEK_END);
	if (!dlopen(argv[1], RTLD_NOW)) {
		fprintf(stderr, "%s\n", dlerror());
		return 1;
	}
	registration();
	contexts();
	plain_objects();
	completion_queue();
	bad_rings();
	extended_completion_queue();
	times();
	resizing();
	shared_receive_queue();
	queue_pair_life();
	shorter_attributes();
	sending();
	windows();
	sending_by_calls();
	receiving();
	reset();
	completions_of_the_gone();
	forgetting_under_load();
	threads();
	CHECK(!mock.ops.dealloc_pd(pd) && !mock.objects && mappings(0) == 0);
	mock.ops.free_context(context);
	CHECK(!mock.contexts);
	puts("ok");
	return 0;
}
