// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * RDMA WRITE with immediate data: a WRITE of which the peer is told, and so one that needs a receive.
 *
 *   cc -o write_imm write_imm.c common.c -libverbs
 *   ./write_imm fe0 1
 *
 * Two queue pairs of one process play both sides: `a` writes, `b` is written to. Immediate data are 32 bits that come with
 * the message into the completion; what they mean is up to the programs.
 */
#include "common.h"

#include <arpa/inet.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SIZE = 64, IMMEDIATE = 4711 };

static struct ibv_cq *sent, *received;
static struct ibv_qp *a, *b;
static struct ibv_mr *mr;
/* What is written from, what is written to, and what a receive names. */
static struct {
	char from[SIZE], to[SIZE], receive[SIZE];
} memory;

static void write_to_peer(const char *text, int with_immediate)
{
	struct ibv_sge piece = { .addr = (uintptr_t)memory.from, .length = SIZE, .lkey = mr->lkey };
	struct ibv_send_wr request = {
		.sg_list = &piece, .num_sge = 1, .send_flags = IBV_SEND_SIGNALED,
		.opcode = with_immediate ? IBV_WR_RDMA_WRITE_WITH_IMM : IBV_WR_RDMA_WRITE,
		/* In network byte order: the device carries the four bytes as they are. */
		.imm_data = htonl(IMMEDIATE),
		.wr.rdma = { .remote_addr = (uintptr_t)memory.to, .rkey = mr->rkey },
	}, *bad;

	memset(&memory, 0, sizeof(memory));
	strcpy(memory.from, text);
	must("ibv_post_send", ibv_post_send(a, &request, &bad));
}

static void show_memory(void)
{
	printf("    written to: \"%s\", memory of the receive: \"%s\"\n", memory.to, memory.receive);
}

/* What the peer's completion queue has to say. */
static void show_receive(void)
{
	struct ibv_wc wc;
	int n = ibv_poll_cq(received, 1, &wc);

	if (n < 0)
		give_up("ibv_poll_cq", -n);
	if (!n) {
		printf("    the peer's completion queue is empty\n");
	} else if (wc.status != IBV_WC_SUCCESS) {
		printf("    receive %d: %s\n", (int)wc.wr_id, ibv_wc_status_str(wc.status));
	} else if (wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM && wc.wc_flags & IBV_WC_WITH_IMM) {
		/* byte_len is of the WRITE, of which not a byte has gone into the receive. */
		printf("    receive %d: a WRITE of %u bytes with immediate data %u\n", (int)wc.wr_id, wc.byte_len,
		       ntohl(wc.imm_data));
	} else {
		printf("    receive %d: another message\n", (int)wc.wr_id);
	}
}

static const char *status_of_write(void)
{
	return ibv_wc_status_str(next_completion(sent).status);
}

int main(int argc, char **argv)
{
	/* Impatient: a receive that is not there is missed at once. */
	const struct ibv_qp_attr waits = { .timeout = 14, .retry_cnt = 7, .min_rnr_timer = 12, .rnr_retry = 0 };
	struct ibv_context *context;
	struct ibv_pd *pd;

	if (argc != 3)
		give_up("usage: write_imm DEVICE GID_INDEX", 0);
	context = open_device(argv[1]);
	pd = made("ibv_alloc_pd", ibv_alloc_pd(context));
	sent = made("ibv_create_cq", ibv_create_cq(context, 16, NULL, NULL, 0));
	received = made("ibv_create_cq", ibv_create_cq(context, 16, NULL, NULL, 0));
	mr = made("ibv_reg_mr", ibv_reg_mr(pd, &memory, sizeof(memory), IBV_ACCESS_LOCAL_WRITE |
					   IBV_ACCESS_REMOTE_WRITE));
	a = new_rc(pd, sent, sent, NULL);
	b = new_rc(pd, received, received, NULL);
	connect_pair(a, b, atoi(argv[2]), &waits);

	/* A plain WRITE needs no receive, and takes none: the peer does not notice. */
	post_receive(b, 1, mr, memory.receive, SIZE);
	write_to_peer("plain", 0);
	printf("WRITE: %s\n", status_of_write());
	show_memory();
	show_receive();

	/* With immediate data it takes the oldest receive, to have something to complete. */
	write_to_peer("with immediate data", 1);
	printf("WRITE with immediate data: %s\n", status_of_write());
	show_memory();
	show_receive();

	/* The memory of such a receive is never used, so it needs none. A SEND would not fit into this one. */
	post_receive(b, 2, mr, NULL, 0);
	write_to_peer("again", 1);
	printf("again, the receive has no memory: %s\n", status_of_write());
	show_memory();
	show_receive();

	/* Without a receive it is as with a SEND: receiver not ready, until rnr_retry is used up (rnr.c). */
	write_to_peer("too soon", 1);
	printf("again, there is no receive: %s\n", status_of_write());
	show_memory();
	show_receive();

	if (ibv_destroy_qp(a) || ibv_destroy_qp(b) || ibv_destroy_cq(sent) || ibv_destroy_cq(received) || ibv_dereg_mr(mr) ||
	    ibv_dealloc_pd(pd) || ibv_close_device(context))
		give_up("cleaning up", errno);
	return 0;
}
