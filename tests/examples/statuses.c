// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Every status that a completion can have over a reliable connection: provoked, and explained in a sentence.
 *
 *   cc -o statuses statuses.c common.c -libverbs
 *   ./statuses fe0 1
 *
 * Two queue pairs of one process play both sides: `a` sends, `b` receives. An error ends a connection, so that each status
 * has a new one. tests/scenarios/verbs/verbs_c/causes.c has all the causes of each.
 *
 * vendor_err says which cause of a status it was, by numbers of the device's maker. Those of ferroce are in
 * Documentation/verbs.md.
 */
#include "common.h"

#include <errno.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { SIZE = 4096, OUTSIDE = 8 };

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static struct ibv_mr *mr;
static char *memory;
static int gid_index;
static struct ibv_qp *a, *b;
static uint32_t vendor_err;

/* Nothing here takes so many seconds, unless it takes for ever. */
enum { LONGEST = 5 };
#define NO_COMPLETION ((enum ibv_wc_status)-1)

/* The next completion of a queue pair; those of the other one do not matter here. */
static enum ibv_wc_status status_at(struct ibv_qp *qp)
{
	time_t end = time(NULL) + LONGEST;
	struct ibv_wc wc;

	vendor_err = 0;
	while (time(NULL) <= end) {
		int n = ibv_poll_cq(cq, 1, &wc);

		if (n < 0)
			give_up("ibv_poll_cq", -n);
		if (!n || wc.qp_num != qp->qp_num)
			continue;
		vendor_err = wc.vendor_err;
		return wc.status;
	}
	return NO_COMPLETION;
}

static enum ibv_wc_status success(void)
{
	post_receive(b, 0, mr, memory + SIZE / 2, 64);
	post_request(a, IBV_WR_SEND, mr, memory, 64, memory + SIZE / 2, 0);
	return status_at(a);
}

static void send_too_much(void)
{
	post_receive(b, 0, mr, memory + SIZE / 2, 16);
	post_request(a, IBV_WR_SEND, mr, memory, 64, memory + SIZE / 2, 0);
}

static enum ibv_wc_status loc_len_err(void)
{
	send_too_much();
	return status_at(b);
}

static enum ibv_wc_status rem_inv_req_err(void)
{
	send_too_much();
	return status_at(a);
}

static enum ibv_wc_status loc_qp_op_err(void)
{
	post_request(a, IBV_WR_RDMA_READ, mr, memory, 64, memory + SIZE / 2, mr->rkey);
	return status_at(a);
}

static enum ibv_wc_status loc_prot_err(void)
{
	post_request(a, IBV_WR_RDMA_WRITE, mr, memory + SIZE, OUTSIDE, memory + SIZE / 2, mr->rkey);
	return status_at(a);
}

static enum ibv_wc_status wr_flush_err(void)
{
	struct ibv_qp_attr to_error = { .qp_state = IBV_QPS_ERR };

	must("RTS to ERR", ibv_modify_qp(a, &to_error, IBV_QP_STATE));
	post_request(a, IBV_WR_SEND, mr, memory, 64, memory + SIZE / 2, 0);
	return status_at(a);
}

static enum ibv_wc_status mw_bind_err(void)
{
	struct ibv_mw *mw = ibv_alloc_mw(pd, IBV_MW_TYPE_2);
	struct ibv_send_wr w = { .opcode = IBV_WR_BIND_MW, .send_flags = IBV_SEND_SIGNALED }, *bad;
	enum ibv_wc_status status;

	if (!mw)
		give_up("ibv_alloc_mw", errno);
	w.bind_mw.mw = mw;
	/* The low byte of a window's key is the user's: each binding takes another. */
	w.bind_mw.rkey = ibv_inc_rkey(mw->rkey);
	w.bind_mw.bind_info = (struct ibv_mw_bind_info){
		.mr = mr, .addr = (uintptr_t)memory, .length = SIZE, .mw_access_flags = IBV_ACCESS_REMOTE_READ,
	};
	must("ibv_post_send", ibv_post_send(a, &w, &bad));
	status = status_at(a);
	must("ibv_dealloc_mw", ibv_dealloc_mw(mw));
	return status;
}

static enum ibv_wc_status rem_access_err(void)
{
	post_request(a, IBV_WR_RDMA_WRITE, mr, memory, 64, memory + SIZE / 2, ~mr->rkey);
	return status_at(a);
}

static enum ibv_wc_status rem_op_err(void)
{
	post_receive(b, 0, mr, memory + SIZE, OUTSIDE);
	post_request(a, IBV_WR_SEND, mr, memory, OUTSIDE, memory + SIZE / 2, 0);
	return status_at(a);
}

static enum ibv_wc_status retry_exc_err(void)
{
	struct ibv_qp_attr to_reset = { .qp_state = IBV_QPS_RESET };

	must("RTS to RESET", ibv_modify_qp(b, &to_reset, IBV_QP_STATE));
	post_request(a, IBV_WR_SEND, mr, memory, 64, memory + SIZE / 2, 0);
	return status_at(a);
}

static enum ibv_wc_status rnr_retry_exc_err(void)
{
	post_request(a, IBV_WR_SEND, mr, memory, 64, memory + SIZE / 2, 0);
	return status_at(a);
}

static const struct {
	enum ibv_wc_status status;
	enum ibv_wc_status (*provoke)(void);
	int reads;
	const char *why;
} table[] = {
	{ IBV_WC_SUCCESS, success, 1, "The request was done, and the peer has said so." },
	{ IBV_WC_LOC_LEN_ERR, loc_len_err, 1, "A message was longer than the receive that it took; the receive says this." },
	{ IBV_WC_REM_INV_REQ_ERR, rem_inv_req_err, 1,
	  "The same, as its sender sees it: the peer finds the request invalid." },
	{ IBV_WC_LOC_QP_OP_ERR, loc_qp_op_err, 0,
	  "The queue pair cannot do this: an RDMA READ, though max_rd_atomic was set to 0." },
	{ IBV_WC_LOC_PROT_ERR, loc_prot_err, 1, "A piece of local memory lies outside the region that its lkey names." },
	{ IBV_WC_WR_FLUSH_ERR, wr_flush_err, 1, "The queue pair is in ERR: all that is posted comes back undone." },
	{ IBV_WC_MW_BIND_ERR, mw_bind_err, 1,
	  "A window cannot be bound so: its region was registered without IBV_ACCESS_MW_BIND." },
	{ IBV_WC_REM_ACCESS_ERR, rem_access_err, 1,
	  "The peer has no region with this rkey, or it does not grant the access, or ends before." },
	{ IBV_WC_REM_OP_ERR, rem_op_err, 1,
	  "The peer could not do it, through no fault of ours: its receive names memory outside its region." },
	{ IBV_WC_RETRY_EXC_ERR, retry_exc_err, 1,
	  "No answer, however often it was sent (retry_cnt): the peer's queue pair has gone." },
	{ IBV_WC_RNR_RETRY_EXC_ERR, rnr_retry_exc_err, 1,
	  "The peer is there but has no receive, however often it was asked (rnr_retry)." },
};

static void open_all(const char *name)
{
	context = open_device(name);
	pd = made("ibv_alloc_pd", ibv_alloc_pd(context));
	/* Longer than what is registered, so that what lies outside the region is still memory of this process. */
	memory = made("calloc", calloc(1, SIZE + OUTSIDE));
	mr = made("ibv_reg_mr", ibv_reg_mr(pd, memory, SIZE, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
					   IBV_ACCESS_REMOTE_READ));
	cq = made("ibv_create_cq", ibv_create_cq(context, 64, NULL, NULL, 0));
}

int main(int argc, char **argv)
{
	/* Impatient: an answer that does not come is missed soon, a receive that is not there at once. */
	struct ibv_qp_attr waits = { .timeout = 12, .retry_cnt = 1, .min_rnr_timer = 1, .rnr_retry = 0 };
	int wrong = 0;

	if (argc != 3)
		give_up("usage: statuses DEVICE GID_INDEX", 0);
	gid_index = atoi(argv[2]);
	open_all(argv[1]);
	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
		enum ibv_wc_status got;

		waits.max_rd_atomic = table[i].reads;
		a = new_rc(pd, cq, cq, NULL);
		b = new_rc(pd, cq, cq, NULL);
		connect_pair(a, b, gid_index, &waits);
		got = table[i].provoke();
		printf("%2d %-26s vendor_err 0x%03x  %s\n", table[i].status, ibv_wc_status_str(table[i].status), vendor_err,
		       table[i].why);
		if (got == NO_COMPLETION) {
			printf("   but it has not completed: this device neither does such a request nor fails it\n");
			wrong = 1;
		} else if (got != table[i].status) {
			printf("   but it was %d, %s\n", got, ibv_wc_status_str(got));
			wrong = 1;
		}
		/* What is left of its completions goes with a queue pair. */
		if (ibv_destroy_qp(a) || ibv_destroy_qp(b))
			give_up("ibv_destroy_qp", errno);
	}
	if (ibv_destroy_cq(cq) || ibv_dereg_mr(mr) || ibv_dealloc_pd(pd) || ibv_close_device(context))
		give_up("cleaning up", errno);
	free(memory);
	return wrong;
}
