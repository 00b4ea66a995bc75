// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * A message over a reliable connection (RC), and then a look into the peer's memory, in eight steps.
 *
 *   cc -o rc rc.c common.c -libverbs
 *   ./rc fe0 1                   receives
 *   ./rc fe0 1 192.0.2.1         sends to the program above, which runs on 192.0.2.1
 *
 * The arguments are the RDMA device (`rdma link` lists them), and the index of its GID that stands for the IP address to be
 * used (`cat /sys/class/infiniband/fe0/ports/1/gids/1`; `ibv_devinfo -v` lists all).
 */
#include "common.h"

#include <errno.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SIZE = 4096 };

/* What each side has to know of the other one to connect, and to reach into its memory. */
struct side {
	union ibv_gid gid;
	uint32_t qp_num, psn, rkey;
	uint64_t address;
};

/* Step 6: the queue pair goes from RESET by INIT and RTR to RTS; each step takes the attributes that it needs. */
static void connect_to(struct ibv_qp *qp, int gid_index, uint32_t own_psn, const struct side *peer, enum ibv_mtu mtu)
{
	/* INIT: which port, and what the peer may do with our memory if it has a key. */
	struct ibv_qp_attr init = {
		.qp_state = IBV_QPS_INIT, .port_num = PORT, .pkey_index = 0, .qp_access_flags = IBV_ACCESS_REMOTE_READ,
	};
	/* RTR, ready to receive: who the peer is, and how to reach it. */
	struct ibv_qp_attr rtr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = mtu,
		.dest_qp_num = peer->qp_num,
		.rq_psn = peer->psn,		/* the number of its first packet */
		.max_dest_rd_atomic = 1,	/* READs that it may have under way */
		.min_rnr_timer = 12,		/* it tries again after 0.64 ms when we have no receive */
		.ah_attr = {
			.is_global = 1,		/* RoCE has GIDs only, no LIDs */
			.port_num = PORT,
			.grh = { .dgid = peer->gid, .sgid_index = gid_index, .hop_limit = 64 },
		},
	};
	/* RTS, ready to send: what happens when there is no answer. */
	struct ibv_qp_attr rts = {
		.qp_state = IBV_QPS_RTS,
		.sq_psn = own_psn,
		.timeout = 14,			/* 4.096 us * 2^14 = 67 ms */
		.retry_cnt = 7,
		.rnr_retry = 7,			/* for ever */
		.max_rd_atomic = 1,		/* READs that we may have under way */
	};

	must("RESET to INIT", ibv_modify_qp(qp, &init, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
					    IBV_QP_ACCESS_FLAGS));
	must("INIT to RTR", ibv_modify_qp(qp, &rtr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
					  IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
	must("RTR to RTS", ibv_modify_qp(qp, &rts, IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
					 IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC));
}

int main(int argc, char **argv)
{
	static const char greeting[] = "Hello by SEND", secret[] = "and this by RDMA READ";
	struct ibv_send_wr request = { 0 }, *bad_request;
	struct ibv_recv_wr receive = { 0 }, *bad_receive;
	struct ibv_port_attr port;
	struct ibv_qp_init_attr attributes = { 0 };
	struct ibv_context *context;
	struct side own = { 0 }, peer;
	struct ibv_sge piece;
	struct ibv_pd *pd;
	struct ibv_mr *mr;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	char *memory, ready = 0;
	int gid_index, connection, rc, sends = argc == 4;

	if (argc != 3 && argc != 4)
		give_up("usage: rc DEVICE GID_INDEX [HOST]", 0);
	gid_index = atoi(argv[2]);

	/* Step 1: the device. A context is an open device file; everything else is made from it (common.c). */
	context = open_device(argv[1]);

	/* Step 2: a protection domain. Queue pairs reach memory of their own domain only. */
	pd = made("ibv_alloc_pd", ibv_alloc_pd(context));

	/* Step 3: memory, registered: its pages stay where they are, and keys name it: lkey for us, rkey for the peer. */
	memory = made("calloc", calloc(1, SIZE));
	mr = made("ibv_reg_mr", ibv_reg_mr(pd, memory, SIZE, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ));

	/* Step 4: a completion queue, in which the ends of requests are reported. */
	cq = made("ibv_create_cq", ibv_create_cq(context, 16, NULL, NULL, 0));

	/* Step 5: a queue pair: a send queue and a receive queue. */
	attributes.qp_type = IBV_QPT_RC;
	attributes.send_cq = attributes.recv_cq = cq;
	attributes.cap.max_send_wr = attributes.cap.max_recv_wr = 8;
	attributes.cap.max_send_sge = attributes.cap.max_recv_sge = 1;
	qp = made("ibv_create_qp", ibv_create_qp(pd, &attributes));

	/* Step 6: both sides tell each other who they are, by any other way, here TCP, and connect. */
	must("ibv_query_port", ibv_query_port(context, PORT, &port));
	if (ibv_query_gid(context, PORT, gid_index, &own.gid))
		give_up("ibv_query_gid", errno);
	own.qp_num = qp->qp_num;
	own.psn = getpid() & 0xffffff;
	own.rkey = mr->rkey;
	own.address = (uintptr_t)memory;
	connection = meet(sends ? argv[3] : NULL, "18520");
	swap(connection, &own, &peer, sizeof(own));
	connect_to(qp, gid_index, own.psn, &peer, port.active_mtu);

	/*
	 * Step 7: work. A request names pieces of memory; what stands at `wr_id` comes back in its completion, and wait_for
	 * (common.c) polls for that.
	 */
	piece = (struct ibv_sge){ .addr = (uintptr_t)memory, .length = SIZE, .lkey = mr->lkey };
	if (!sends) {
		receive.sg_list = &piece;
		receive.num_sge = 1;
		must("ibv_post_recv", ibv_post_recv(qp, &receive, &bad_receive));
	}
	/* A SEND to a side without a receive would be repeated until it has one: better not to begin too early. */
	swap(connection, &ready, &ready, 1);
	if (sends) {
		strcpy(memory, greeting);
		piece.length = sizeof(greeting);
		request.sg_list = &piece;
		request.num_sge = 1;
		request.opcode = IBV_WR_SEND;
		request.send_flags = IBV_SEND_SIGNALED;
		must("ibv_post_send", ibv_post_send(qp, &request, &bad_request));
		wait_for(cq, "SEND");
	} else {
		wait_for(cq, "receive");
		printf("it says: %s\n", memory);
		/* For the peer's READ, in which this program has no part at all. */
		strcpy(memory, secret);
	}
	swap(connection, &ready, &ready, 1);
	if (sends) {
		piece.length = sizeof(secret);
		request.opcode = IBV_WR_RDMA_READ;
		request.wr.rdma.remote_addr = peer.address;
		request.wr.rdma.rkey = peer.rkey;
		must("ibv_post_send", ibv_post_send(qp, &request, &bad_request));
		wait_for(cq, "RDMA READ");
		printf("it says: %s\n", memory);
	}
	/* The peer's memory must be there until it was read. */
	swap(connection, &ready, &ready, 1);

	/* Step 8: everything goes in the opposite order; what is still in use is refused with EBUSY. */
	must("ibv_destroy_qp", ibv_destroy_qp(qp));
	must("ibv_destroy_cq", ibv_destroy_cq(cq));
	must("ibv_dereg_mr", ibv_dereg_mr(mr));
	must("ibv_dealloc_pd", ibv_dealloc_pd(pd));
	rc = ibv_close_device(context);
	if (rc)
		give_up("ibv_close_device", errno);
	free(memory);
	close(connection);
	return 0;
}
