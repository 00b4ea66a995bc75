// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * What tutorials say of verbs, tried: each claim, and what comes of it.
 *
 *   cc -o claims claims.c common.c -libverbs
 *   ./claims fe0 1
 *
 * Two queue pairs of one process play both sides: `a` sends, `b` receives.
 */
#include "common.h"

#include <errno.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SIZE = 64 };

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_cq *sent, *received;
static struct ibv_qp *a, *b;
static struct ibv_mr *mr;
static char memory[2 * SIZE];

static void claim(const char *text)
{
	printf("\"%s\"\n", text);
}

/* The requests of this program write from the first half of its memory into the second. */
static int post_write(uint32_t lkey, uint32_t rkey, int flags)
{
	struct ibv_sge piece = { .addr = (uintptr_t)memory, .length = SIZE, .lkey = lkey };
	struct ibv_send_wr request = {
		.sg_list = &piece, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE, .send_flags = flags,
		.wr.rdma = { .remote_addr = (uintptr_t)memory + SIZE, .rkey = rkey },
	}, *bad;

	return ibv_post_send(a, &request, &bad);
}

static void show_write(const char *what, uint32_t lkey, uint32_t rkey, int flags)
{
	must("ibv_post_send", post_write(lkey, rkey, flags));
	printf("    %s: %s\n", what, ibv_wc_status_str(next_completion(sent).status));
}

static void connect_anew(int gid_index)
{
	/* Impatient, so that the end of a peer that has gone comes soon. */
	const struct ibv_qp_attr waits = { .timeout = 12, .retry_cnt = 1, .min_rnr_timer = 12, .rnr_retry = 0 };

	if ((a && ibv_destroy_qp(a)) || (b && ibv_destroy_qp(b)))
		give_up("ibv_destroy_qp", errno);
	a = new_rc(pd, sent, sent, NULL);
	b = new_rc(pd, received, received, NULL);
	connect_pair(a, b, gid_index, &waits);
}

int main(int argc, char **argv)
{
	int gid_index, rc;

	if (argc != 3)
		give_up("usage: claims DEVICE GID_INDEX", 0);
	gid_index = atoi(argv[2]);
	context = open_device(argv[1]);

	claim("A completion queue is made from a protection domain.");
	sent = ibv_create_cq(context, 16, NULL, NULL, 0);
	received = ibv_create_cq(context, 16, NULL, NULL, 0);
	printf("    without any domain: %s\n", sent && received ? "made" : strerror(errno));
	pd = made("ibv_alloc_pd", ibv_alloc_pd(context));
	mr = made("ibv_reg_mr", ibv_reg_mr(pd, memory, sizeof(memory), IBV_ACCESS_LOCAL_WRITE |
					   IBV_ACCESS_REMOTE_WRITE));

	claim("ibv_post_send returns -1 and sets errno.");
	a = new_rc(pd, sent, sent, NULL);
	rc = post_write(mr->lkey, mr->rkey, IBV_SEND_SIGNALED);
	printf("    to a queue pair in RESET: returns %d (%s)\n", rc, strerror(rc));

	claim("An lkey is for SEND and receive, an rkey for WRITE and READ.");
	connect_anew(gid_index);
	show_write("WRITE with both", mr->lkey, mr->rkey, IBV_SEND_SIGNALED);
	show_write("WRITE with a wrong lkey", ~mr->lkey, mr->rkey, IBV_SEND_SIGNALED);

	claim("An unsignaled request has no completion.");
	connect_anew(gid_index);
	show_write("unsignaled, with a wrong rkey", mr->lkey, ~mr->rkey, 0);

	claim("After an error the next request may work.");
	show_write("the same queue pair, with the right rkey", mr->lkey, mr->rkey, IBV_SEND_SIGNALED);

	claim("RDMA WRITE needs no queue pair at the receiver.");
	connect_anew(gid_index);
	if (ibv_destroy_qp(b))
		give_up("ibv_destroy_qp", errno);
	b = NULL;
	show_write("to one that has gone", mr->lkey, mr->rkey, IBV_SEND_SIGNALED);

	if (ibv_destroy_qp(a) || ibv_destroy_cq(sent) || ibv_destroy_cq(received) || ibv_dereg_mr(mr) || ibv_dealloc_pd(pd) ||
	    ibv_close_device(context))
		give_up("cleaning up", errno);
	return 0;
}
