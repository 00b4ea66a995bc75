// SPDX-License-Identifier: GPL-2.0
/*
 * What one operation costs: two queue pairs in one process, which posts and polls for both and gives the processor
 * away when there is nothing to poll. On a machine with one processor whose clock counts instructions, time is the
 * work of everybody: of the program, the provider, the kernel, and the threads the driver hands its work to.
 *
 * ops DEVICE GID DEVICE GID     the two ends, by device name and index in its GID table; the same twice is one device
 * ops DEVICE GID DEVICE GID ROW the same operations again and again; prints the address of an instruction that is
 *                               carried out once for each batch, and how many operations that is
 *
 * Then what it costs to set up a connection, and what becomes dearer when there are many: of others of the same kind, idle
 * or all of them busy in turn.
 *
 * The memory of each end is one huge page: how many pieces a registered region has is the same in every boot then.
 *
 * Prints a line for each row: its name and nanoseconds of one operation, in the best of some rounds. `note: ` begins
 * what else must be said.
 */
#include "common.h"

#include <errno.h>
#include <infiniband/verbs.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

enum { DEPTH = 64, ROOM = 1 << 20, HUGE_PAGE = 2 << 20, PSN = 100, QKEY = 0x1234, GRH = 40,
       WARM_UP = 3,
       /* The kernel's own work, such as that of a tick, falls into some of these and not into others. */
       ROUNDS = 5 };

/* `batch` operations are posted as one list, of which the last reports; `count` is a multiple of it. */
static const struct row {
	const char *name;
	enum ibv_wr_opcode op;
	uint32_t size;
	enum ibv_mtu mtu;
	int batch, count;
	enum ibv_qp_type type;	/* or RC */
	bool shared;		/* receives come from a shared queue */
} rows[] = {
	{ "SEND 64 B", IBV_WR_SEND, 64, IBV_MTU_4096, 1, 200 },
	{ "SEND 64 B, lists of 32", IBV_WR_SEND, 64, IBV_MTU_4096, 32, 640 },
	{ "WRITE 64 B", IBV_WR_RDMA_WRITE, 64, IBV_MTU_4096, 1, 200 },
	{ "WRITE 64 B, lists of 32", IBV_WR_RDMA_WRITE, 64, IBV_MTU_4096, 32, 640 },
	{ "READ 64 B", IBV_WR_RDMA_READ, 64, IBV_MTU_4096, 1, 200 },
	{ "READ 64 B, lists of 32", IBV_WR_RDMA_READ, 64, IBV_MTU_4096, 32, 320 },
	{ "SEND 64 KiB", IBV_WR_SEND, 64 << 10, IBV_MTU_4096, 4, 40 },
	{ "WRITE 64 KiB", IBV_WR_RDMA_WRITE, 64 << 10, IBV_MTU_4096, 4, 40 },
	{ "READ 64 KiB", IBV_WR_RDMA_READ, 64 << 10, IBV_MTU_4096, 4, 40 },
	{ "WRITE 1 MiB", IBV_WR_RDMA_WRITE, 1 << 20, IBV_MTU_4096, 1, 6 },
	{ "READ 1 MiB", IBV_WR_RDMA_READ, 1 << 20, IBV_MTU_4096, 1, 6 },
	{ "WRITE 1 MiB MTU 1024", IBV_WR_RDMA_WRITE, 1 << 20, IBV_MTU_1024, 1, 4 },
	{ "READ 1 MiB MTU 1024", IBV_WR_RDMA_READ, 1 << 20, IBV_MTU_1024, 1, 4 },
	{ "FETCH_ADD 8 B", IBV_WR_ATOMIC_FETCH_AND_ADD, 8, IBV_MTU_4096, 1, 200 },
	{ "CMP_SWAP 8 B", IBV_WR_ATOMIC_CMP_AND_SWP, 8, IBV_MTU_4096, 1, 200 },
	{ "SEND 64 B, shared receives", IBV_WR_SEND, 64, IBV_MTU_4096, 1, 200, .shared = true },
	{ "SEND 64 B, shared receives, lists of 32", IBV_WR_SEND, 64, IBV_MTU_4096, 32, 640, .shared = true },
	{ "SEND 64 B, UC", IBV_WR_SEND, 64, IBV_MTU_4096, 1, 200, IBV_QPT_UC },
	{ "SEND 64 B, UC, lists of 32", IBV_WR_SEND, 64, IBV_MTU_4096, 32, 640, IBV_QPT_UC },
	{ "SEND 64 B, UD", IBV_WR_SEND, 64, IBV_MTU_4096, 1, 200, IBV_QPT_UD },
	{ "SEND 64 B, UD, lists of 32", IBV_WR_SEND, 64, IBV_MTU_4096, 32, 640, IBV_QPT_UD },
};

struct end {
	struct ibv_context *ctx;
	int gid_index;
	union ibv_gid gid;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_srq *srq;
	struct ibv_ah *ah;	/* to the other end */
	struct ibv_mr *mr;
	char *memory;
	bool atomics;		/* the device does them */
};

static uint64_t now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1000000000ull + ts.tv_nsec;
}

/* Collapsing is immediate, and says whether it was done. */
static char *huge_page(void)
{
	char *memory = mmap(NULL, 2 * HUGE_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (memory == MAP_FAILED)
		give_up("mmap", errno);
	memory += -(uintptr_t)memory % HUGE_PAGE;
	madvise(memory, HUGE_PAGE, MADV_HUGEPAGE);
	memset(memory, 1, HUGE_PAGE);
	if (madvise(memory, HUGE_PAGE, MADV_COLLAPSE))
		printf("note: no huge page (%s), so figures of 64 KiB and more differ from boot to boot\n",
		       strerror(errno));
	return memory;
}

static void open_end(struct end *e, const char *device, int gid_index)
{
	struct ibv_device_attr offers;

	e->ctx = open_device(device);
	e->gid_index = gid_index;
	if (ibv_query_gid(e->ctx, 1, gid_index, &e->gid))
		give_up("ibv_query_gid", errno);
	e->pd = made("ibv_alloc_pd", ibv_alloc_pd(e->ctx));
	e->memory = huge_page();
	must("ibv_query_device", ibv_query_device(e->ctx, &offers));
	e->atomics = offers.atomic_cap != IBV_ATOMIC_NONE;
	e->mr = made("ibv_reg_mr", ibv_reg_mr(e->pd, e->memory, ROOM, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
					      IBV_ACCESS_REMOTE_READ | (e->atomics ? IBV_ACCESS_REMOTE_ATOMIC : 0)));
	e->cq = made("ibv_create_cq", ibv_create_cq(e->ctx, 4 * DEPTH, NULL, NULL, 0));
}

static bool is_atomic(const struct row *row)
{
	return row->op == IBV_WR_ATOMIC_FETCH_AND_ADD || row->op == IBV_WR_ATOMIC_CMP_AND_SWP;
}

static enum ibv_qp_type type_of(const struct row *row)
{
	return row->type ? row->type : IBV_QPT_RC;
}

/* False when the device has no such queue pair. */
static bool open_qp(const struct row *row, struct end *e)
{
	struct ibv_srq_init_attr shared = { .attr = { .max_wr = DEPTH, .max_sge = 1 } };
	struct ibv_qp_init_attr init = {
		.send_cq = e->cq, .recv_cq = e->cq, .qp_type = type_of(row),
		.cap = { .max_send_wr = DEPTH, .max_recv_wr = DEPTH, .max_send_sge = 1, .max_recv_sge = 1 },
	};
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT, .port_num = 1,
		.qp_access_flags = IBV_ACCESS_REMOTE_WRITE, .qkey = QKEY,
	};
	int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT;

	if (row->shared) {
		init.srq = e->srq = ibv_create_srq(e->pd, &shared);
		if (!e->srq)
			return false;
	}
	e->qp = ibv_create_qp(e->pd, &init);
	if (!e->qp)
		return false;
	if (init.qp_type == IBV_QPT_RC)
		attr.qp_access_flags |= IBV_ACCESS_REMOTE_READ | (e->atomics ? IBV_ACCESS_REMOTE_ATOMIC : 0);
	mask |= init.qp_type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS;
	must("to INIT", ibv_modify_qp(e->qp, &attr, mask));
	return true;
}

static void connect_qp(const struct row *row, struct end *e, const struct end *peer)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR, .path_mtu = row->mtu, .dest_qp_num = peer->qp->qp_num, .rq_psn = PSN,
		.max_dest_rd_atomic = 16, .min_rnr_timer = 12,
		.ah_attr = { .is_global = 1, .port_num = 1,
			     .grh = { .dgid = peer->gid, .sgid_index = e->gid_index, .hop_limit = 64 } },
	};

	int connected = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
	int answered = IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	int repeated = IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;

	if (type_of(row) == IBV_QPT_UD) {
		e->ah = made("ibv_create_ah", ibv_create_ah(e->pd, &attr.ah_attr));
		connected = 0;
	}
	if (type_of(row) != IBV_QPT_RC)
		answered = repeated = 0;
	must("to RTR", ibv_modify_qp(e->qp, &attr, IBV_QP_STATE | connected | answered));
	attr = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTS, .sq_psn = PSN, .timeout = 18, .retry_cnt = 7, .rnr_retry = 7,
		.max_rd_atomic = 16,
	};
	must("to RTS", ibv_modify_qp(e->qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN | repeated));
}

static void await(struct end *e, int count)
{
	struct ibv_wc wc[DEPTH];

	while (count) {
		int n = ibv_poll_cq(e->cq, DEPTH, wc);

		if (n < 0)
			give_up("ibv_poll_cq", -n);
		for (int i = 0; i < n; i++)
			if (wc[i].status != IBV_WC_SUCCESS)
				give_up(ibv_wc_status_str(wc[i].status), 0);
		count -= n;
		if (!n)
			sched_yield();
	}
}

/* Posts one batch and waits until both ends know of it. */
static void batch(const void *what, struct end *from, struct end *to)
{
	const struct row *row = what;
	struct ibv_sge send_sge = { (uintptr_t)from->memory, row->size, from->mr->lkey };
	struct ibv_sge recv_sge = { (uintptr_t)to->memory, row->size + (to->ah ? GRH : 0), to->mr->lkey };
	struct ibv_send_wr wr[DEPTH], *bad;
	struct ibv_recv_wr recv[DEPTH], *bad_recv;
	int i;

	if (row->op == IBV_WR_SEND) {
		for (i = 0; i < row->batch; i++)
			recv[i] = (struct ibv_recv_wr){ .next = &recv[i + 1], .sg_list = &recv_sge, .num_sge = 1 };
		recv[i - 1].next = NULL;
		must("ibv_post_recv", to->srq ? ibv_post_srq_recv(to->srq, recv, &bad_recv) : ibv_post_recv(to->qp, recv, &bad_recv));
	}
	for (i = 0; i < row->batch; i++) {
		wr[i] = (struct ibv_send_wr){
			.next = &wr[i + 1], .sg_list = &send_sge, .num_sge = 1, .opcode = row->op,
			.wr.rdma = { (uintptr_t)to->memory, to->mr->rkey },
		};
		if (is_atomic(row)) {
			wr[i].wr.atomic.compare_add = wr[i].wr.atomic.swap = 1;
			wr[i].wr.atomic.remote_addr = (uintptr_t)to->memory;
			wr[i].wr.atomic.rkey = to->mr->rkey;
		} else if (from->ah) {
			wr[i].wr.ud.ah = from->ah;
			wr[i].wr.ud.remote_qpn = to->qp->qp_num;
			wr[i].wr.ud.remote_qkey = QKEY;
		}
	}
	wr[i - 1].next = NULL;
	wr[i - 1].send_flags = IBV_SEND_SIGNALED;
	must("ibv_post_send", ibv_post_send(from->qp, wr, &bad));
	await(from, 1);
	if (row->op == IBV_WR_SEND)
		await(to, row->batch);
}

static void close_qp(struct end *e)
{
	must("ibv_destroy_qp", ibv_destroy_qp(e->qp));
	if (e->ah)
		must("ibv_destroy_ah", ibv_destroy_ah(e->ah));
	if (e->srq)
		must("ibv_destroy_srq", ibv_destroy_srq(e->srq));
	e->ah = NULL;
	e->srq = NULL;
}

static void connect_both(const struct row *row, struct end *one, struct end *other)
{
	connect_qp(row, one, other);
	connect_qp(row, other, one);
}

/* Where one batch ends and the next one begins, for who watches the instructions. */
static __attribute__((noinline)) void mark(void)
{
	asm volatile("" ::: "memory");
}

typedef void work(const void *what, struct end *from, struct end *to);

/* Does it so many times in a round, of which the shortest counts, and each time is so many operations; or without end. */
static void time_of(const char *name, int times, int each, bool endless, work *once, const void *what, struct end *from,
		    struct end *to)
{
	uint64_t began, took, least = UINT64_MAX;

	for (int i = 0; i < WARM_UP; i++)
		once(what, from, to);
	if (endless) {
		printf("%p %d\n", (void *)mark, each);
		fflush(stdout);
	}
	while (endless) {
		mark();
		once(what, from, to);
	}
	for (int round = 0; round < ROUNDS; round++) {
		began = now();
		for (int i = 0; i < times; i++)
			once(what, from, to);
		took = now() - began;
		least = took < least ? took : least;
	}
	printf("%s: %llu\n", name, (unsigned long long)least / (times * each));
	fflush(stdout);
}

static void measure(const struct row *row, bool endless, struct end *from, struct end *to)
{
	if ((is_atomic(row) && !from->atomics) || !open_qp(row, from)) {
		printf("note: %s is not there (%s)\n", row->name, is_atomic(row) ? "no atomics" : strerror(errno));
		return;
	}
	if (!open_qp(row, to))
		give_up("ibv_create_qp", errno);
	connect_both(row, from, to);
	time_of(row->name, row->count / row->batch, row->batch, endless, batch, row, from, to);
	close_qp(from);
	close_qp(to);
}

static const struct row plain = { "", IBV_WR_RDMA_WRITE, 64, IBV_MTU_4096, 1, 1 };

static void must_open_qp(struct end *e)
{
	if (!open_qp(&plain, e))
		give_up("ibv_create_qp", errno);
}

static void queue_pair(const void *what, struct end *from, struct end *to)
{
	must_open_qp(from);
	close_qp(from);
}

static void connection(const void *what, struct end *from, struct end *to)
{
	must_open_qp(from);
	must_open_qp(to);
	connect_both(&plain, from, to);
	close_qp(from);
	close_qp(to);
}

static void completion_queue(const void *what, struct end *from, struct end *to)
{
	must("ibv_destroy_cq", ibv_destroy_cq(made("ibv_create_cq", ibv_create_cq(from->ctx, DEPTH, NULL, NULL, 0))));
}

static struct ibv_mr *must_register(struct end *e, size_t size)
{
	return made("ibv_reg_mr",
		    ibv_reg_mr(e->pd, e->memory, size, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE));
}

static void small_region(const void *what, struct end *from, struct end *to)
{
	must("ibv_dereg_mr", ibv_dereg_mr(must_register(from, 4096)));
}

static void large_region(const void *what, struct end *from, struct end *to)
{
	must("ibv_dereg_mr", ibv_dereg_mr(must_register(from, ROOM)));
}

static void address_handle(const void *what, struct end *from, struct end *to)
{
	struct ibv_ah_attr attr = {
		.is_global = 1, .port_num = 1,
		.grh = { .dgid = to->gid, .sgid_index = from->gid_index, .hop_limit = 64 },
	};

	must("ibv_destroy_ah", ibv_destroy_ah(made("ibv_create_ah", ibv_create_ah(from->pd, &attr))));
}

/* What is made and destroyed, while there are so many other regions. */
static const struct set_up {
	const char *name;
	work *once;
	int count, regions;
} set_ups[] = {
	{ "queue pair to INIT, destroyed", queue_pair, 50 },
	{ "two queue pairs to RTS, destroyed", connection, 50 },
	{ "completion queue, destroyed", completion_queue, 50 },
	{ "address handle, destroyed", address_handle, 50 },
	{ "region of 4 KiB, deregistered", small_region, 100 },
	{ "region of 1 MiB, deregistered", large_region, 50 },
	{ "region of 4 KiB beside 20,000, deregistered", small_region, 100, 20000 },
};

static void measure_set_up(const struct set_up *row, bool endless, struct end *from, struct end *to)
{
	struct ibv_mr **others = made("calloc", calloc(row->regions + 1, sizeof(*others)));

	for (int i = 0; i < row->regions; i++)
		others[i] = must_register(from, 4096);
	time_of(row->name, row->count, 1, endless, row->once, NULL, from, to);
	for (int i = 0; i < row->regions; i++)
		must("ibv_dereg_mr", ibv_dereg_mr(others[i]));
	free(others);
}

enum { MANY = 1024 };
static struct ibv_qp *ones[MANY], *others[MANY];

static void in_turn(const void *what, struct end *from, struct end *to)
{
	for (int i = 0; i < MANY; i++) {
		from->qp = ones[i];
		batch(&plain, from, to);
	}
}

/* WRITEs of many queue pairs in turn, of which each has one on its way. */
static void measure_many(struct end *from, struct end *to)
{
	char name[64];

	for (int i = 0; i < MANY; i++) {
		must_open_qp(from);
		must_open_qp(to);
		connect_both(&plain, from, to);
		ones[i] = from->qp;
		others[i] = to->qp;
	}
	snprintf(name, sizeof(name), "WRITE 64 B of %d queue pairs in turn", MANY);
	time_of(name, 1, MANY, false, in_turn, NULL, from, to);
	for (int i = 0; i < MANY; i++) {
		must("ibv_destroy_qp", ibv_destroy_qp(ones[i]));
		must("ibv_destroy_qp", ibv_destroy_qp(others[i]));
	}
}

int main(int argc, char **argv)
{
	struct end from = { 0 }, to = { 0 };

	if (argc < 5 || argc > 6)
		return 2;
	open_end(&from, argv[1], atoi(argv[2]));
	open_end(&to, argv[3], atoi(argv[4]));
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		if (argc == 5 || !strcmp(rows[i].name, argv[5]))
			measure(&rows[i], argc == 6, &from, &to);
	/* What is set up does not know yet where the other end is. */
	for (size_t i = 0; i < sizeof(set_ups) / sizeof(set_ups[0]) && !strcmp(argv[1], argv[3]); i++)
		if (argc == 5 || !strcmp(set_ups[i].name, argv[5]))
			measure_set_up(&set_ups[i], argc == 6, &from, &to);
	if (argc == 6)
		give_up(argv[5], ENOENT);
	measure_many(&from, &to);
	return 0;
}
