// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Memory regions: what registering asks for, what a key permits, and what is certain when a region has gone.
 *
 *   cc -o memory memory.c common.c -libverbs
 *   ./memory fe0 1
 *
 * Two queue pairs of one process play both sides: `a` asks for the memory of `b`.
 */
#include "common.h"

#include <errno.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SIZE = 4096, BIG = 1 << 20, LITTLE = 64 << 10, NOBODY = 65534, WRITES = 100 };

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static struct ibv_mr *own;
static char *memory, *theirs;
static int gid_index;
static struct ibv_qp *a, *b;

/*
 * Registered pages stay where they are, so how many a user may have is limited: RLIMIT_MEMLOCK (`ulimit -l`), from which root
 * is exempt. Tried in a child that is nobody: what it gives up here it does not get back.
 */
static void limited(const char *device)
{
	const struct rlimit little = { LITTLE, LITTLE };
	pid_t child = fork();
	int status;

	if (child < 0)
		give_up("fork", errno);
	if (!child) {
		void *big = aligned_alloc(SIZE, BIG);
		struct ibv_mr *mr;

		if (!big || setrlimit(RLIMIT_MEMLOCK, &little) || (geteuid() == 0 && setuid(NOBODY)))
			give_up("giving up what root may", errno);
		pd = made("ibv_alloc_pd", ibv_alloc_pd(open_device(device)));
		mr = ibv_reg_mr(pd, big, BIG, IBV_ACCESS_LOCAL_WRITE);
		printf("1 MiB where 64 KiB may be locked: %s\n", mr ? "registered" : strerror(errno));
		exit(fflush(stdout) ? 1 : 0);
	}
	if (waitpid(child, &status, 0) != child || status)
		give_up("the child failed", 0);
}

/* A connection for each attempt, for a refused request ends it. */
static void connect_anew(void)
{
	const struct ibv_qp_attr waits = { .timeout = 14, .retry_cnt = 7, .min_rnr_timer = 12, .rnr_retry = 7,
					   .max_rd_atomic = 1 };

	if ((a && ibv_destroy_qp(a)) || (b && ibv_destroy_qp(b)))
		give_up("ibv_destroy_qp", errno);
	a = new_rc(pd, cq, cq, NULL);
	b = new_rc(pd, cq, cq, NULL);
	connect_pair(a, b, gid_index, &waits);
}

static struct ibv_mr *registered(int access)
{
	struct ibv_mr *mr = made("ibv_reg_mr", ibv_reg_mr(pd, theirs, SIZE, access));

	return mr;
}

static enum ibv_wc_status attempt(enum ibv_wr_opcode opcode, size_t at, uint32_t rkey)
{
	post_request(a, opcode, own, memory, 64, theirs + at, rkey);
	return next_completion(cq).status;
}

/* One request on a connection of its own. */
static void attempt_alone(const char *what, enum ibv_wr_opcode opcode, size_t at, uint32_t rkey)
{
	connect_anew();
	printf("%s: %s\n", what, ibv_wc_status_str(attempt(opcode, at, rkey)));
}

/* What a key permits is up to who registers; the responder checks each request against it. */
static void rights(void)
{
	struct ibv_mr *mr = ibv_reg_mr(pd, theirs, SIZE, IBV_ACCESS_REMOTE_WRITE);
	uint32_t rkey;

	/* A peer may not do what the owner may not. */
	printf("REMOTE_WRITE without LOCAL_WRITE: %s\n", mr ? "registered" : strerror(errno));
	mr = registered(IBV_ACCESS_REMOTE_READ);
	attempt_alone("READ, permitted", IBV_WR_RDMA_READ, 0, mr->rkey);
	attempt_alone("WRITE, not permitted", IBV_WR_RDMA_WRITE, 0, mr->rkey);
	attempt_alone("READ beyond the end", IBV_WR_RDMA_READ, SIZE - 63, mr->rkey);
	rkey = mr->rkey;
	if (ibv_dereg_mr(mr))
		give_up("ibv_dereg_mr", errno);
	attempt_alone("READ by the key of a region that has gone", IBV_WR_RDMA_READ, 0, rkey);

	/* Another region over the same memory: other keys, other rights. */
	mr = registered(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	attempt_alone("WRITE, permitted", IBV_WR_RDMA_WRITE, 0, mr->rkey);
	/* The memory that a WRITE is copied from is local: its lkey counts, and is as needed as the peer's rkey. */
	connect_anew();
	own->lkey ^= 0xff00;
	printf("WRITE by a wrong lkey: %s\n", ibv_wc_status_str(attempt(IBV_WR_RDMA_WRITE, 0, mr->rkey)));
	own->lkey ^= 0xff00;
	if (ibv_dereg_mr(mr))
		give_up("ibv_dereg_mr", errno);
}

/*
 * A window is a key to a part of a region, which its owner gives and takes back by requests, without a system call. One of type
 * 2 is for the peer of the queue pair that has bound it.
 */
static void window(void)
{
	struct ibv_mr *mr = registered(IBV_ACCESS_MW_BIND);
	struct ibv_mw *mw = ibv_alloc_mw(pd, IBV_MW_TYPE_2);
	struct ibv_send_wr request = { .opcode = IBV_WR_BIND_MW, .send_flags = IBV_SEND_SIGNALED }, *bad;

	if (!mw)
		give_up("ibv_alloc_mw", errno);
	connect_anew();
	/* Another low byte of the key each time: a peer that has kept an old key does not get at what is bound later. */
	request.bind_mw.mw = mw;
	request.bind_mw.rkey = ibv_inc_rkey(mw->rkey);
	request.bind_mw.bind_info.mr = mr;
	request.bind_mw.bind_info.addr = (uintptr_t)theirs;
	request.bind_mw.bind_info.length = 64;
	request.bind_mw.bind_info.mw_access_flags = IBV_ACCESS_REMOTE_READ;
	if (ibv_post_send(b, &request, &bad) || next_completion(cq).status != IBV_WC_SUCCESS)
		give_up("binding a window", 0);
	mw->rkey = request.bind_mw.rkey;
	printf("READ through a window of 64 bytes: %s\n", ibv_wc_status_str(attempt(IBV_WR_RDMA_READ, 0, mw->rkey)));
	printf("deregistering the region below: %s\n", ibv_dereg_mr(mr) ? "refused" : "done");
	request.opcode = IBV_WR_LOCAL_INV;
	request.invalidate_rkey = mw->rkey;
	if (ibv_post_send(b, &request, &bad) || next_completion(cq).status != IBV_WC_SUCCESS)
		give_up("invalidating a window", 0);
	printf("READ through it when it is invalidated: %s\n", ibv_wc_status_str(attempt(IBV_WR_RDMA_READ, 0, mw->rkey)));
	if (ibv_dealloc_mw(mw) || ibv_dereg_mr(mr))
		give_up("ibv_dealloc_mw and ibv_dereg_mr", errno);
}

/* A region may go at any time, also while a peer writes: when ibv_dereg_mr has returned, nobody writes there any more. */
static void gone_under_traffic(void)
{
	struct ibv_mr *mr = registered(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	enum ibv_wc_status status = IBV_WC_SUCCESS;
	uint32_t rkey = mr->rkey;
	int done = 0, posted = 0, dirty = 0;

	connect_anew();
	memset(memory, 'x', SIZE);
	while (status == IBV_WC_SUCCESS) {
		while (posted < done + 8)
			post_request(a, IBV_WR_RDMA_WRITE, own, memory, SIZE, theirs, rkey), posted++;
		if (done == WRITES) {
			if (ibv_dereg_mr(mr))
				give_up("ibv_dereg_mr", errno);
			mr = NULL;
			memset(theirs, 0, SIZE);
		}
		status = next_completion(cq).status;
		done++;
		if (!mr && done > WRITES + 16)
			give_up("a WRITE was done after its region had gone", 0);
	}
	for (; done < posted; done++)
		next_completion(cq);
	for (int i = 0; i < SIZE; i++)
		dirty |= theirs[i];
	printf("deregistered under traffic: %s, and the memory is %s\n", ibv_wc_status_str(status), dirty ? "changed" : "as it was");
}

int main(int argc, char **argv)
{
	if (argc != 3)
		give_up("usage: memory DEVICE GID_INDEX", 0);
	gid_index = atoi(argv[2]);
	limited(argv[1]);
	context = open_device(argv[1]);
	pd = made("ibv_alloc_pd", ibv_alloc_pd(context));
	cq = made("ibv_create_cq", ibv_create_cq(context, 64, NULL, NULL, 0));
	memory = made("aligned_alloc", aligned_alloc(SIZE, 2 * SIZE));

	theirs = memory + SIZE;
	own = made("ibv_reg_mr", ibv_reg_mr(pd, memory, SIZE, IBV_ACCESS_LOCAL_WRITE));
	rights();
	window();
	gone_under_traffic();
	if (ibv_destroy_qp(a) || ibv_destroy_qp(b) || ibv_destroy_cq(cq) || ibv_dereg_mr(own) || ibv_dealloc_pd(pd) ||
	    ibv_close_device(context))
		give_up("cleaning up", errno);
	free(memory);
	return 0;
}
