// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * A datagram (UD), and the answer to its sender, in eight steps.
 *
 *   cc -o ud ud.c common.c -libverbs
 *   ./ud fe0 1                   waits and answers
 *   ./ud fe0 1 192.0.2.1         sends to the program above, which runs on 192.0.2.1
 *
 * What differs from the reliable connection in rc.c: the queue pair is connected to nobody, so that each request says whom
 * it is for; a message is one packet; nobody repeats what was lost; and in front of each message stand 40 bytes that say
 * where it comes from.
 */
#include "common.h"

#include <errno.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { GRH = 40, SIZE = GRH + 1024 };

/* A datagram is taken only with the key of the queue pair that it is for. */
enum { QKEY = 0x11111111 };

/* What the first datagram needs to arrive. The answer needs nothing of it. */
struct side {
	union ibv_gid gid;
	uint32_t qp_num;
};

/* Step 6: from RESET to RTS. There is no peer to name, so a port and a key are all that it takes. */
static void make_ready(struct ibv_qp *qp)
{
	struct ibv_qp_attr attributes = {
		.qp_state = IBV_QPS_INIT, .port_num = PORT, .pkey_index = 0, .qkey = QKEY, .sq_psn = 0,
	};

	must("RESET to INIT", ibv_modify_qp(qp, &attributes, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
					    IBV_QP_QKEY));
	attributes.qp_state = IBV_QPS_RTR;
	must("INIT to RTR", ibv_modify_qp(qp, &attributes, IBV_QP_STATE));
	attributes.qp_state = IBV_QPS_RTS;
	must("RTR to RTS", ibv_modify_qp(qp, &attributes, IBV_QP_STATE | IBV_QP_SQ_PSN));
}

static void receive_into(struct ibv_qp *qp, struct ibv_mr *mr)
{
	struct ibv_sge piece = { .addr = (uintptr_t)mr->addr, .length = SIZE, .lkey = mr->lkey };
	struct ibv_recv_wr receive = { .sg_list = &piece, .num_sge = 1 }, *bad;

	must("ibv_post_recv", ibv_post_recv(qp, &receive, &bad));
}

/* Sends what stands behind the place of the GRH. */
static void send_text(struct ibv_qp *qp, struct ibv_mr *mr, struct ibv_ah *ah, uint32_t qp_num)
{
	char *text = (char *)mr->addr + GRH;
	struct ibv_sge piece = { .addr = (uintptr_t)text, .length = strlen(text) + 1, .lkey = mr->lkey };
	struct ibv_send_wr request = {
		.sg_list = &piece, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED,
		.wr.ud = { .ah = ah, .remote_qpn = qp_num, .remote_qkey = QKEY },
	}, *bad;

	must("ibv_post_send", ibv_post_send(qp, &request, &bad));
}

int main(int argc, char **argv)
{
	struct ibv_qp_init_attr attributes = { 0 };
	struct ibv_ah_attr address = { 0 };
	struct ibv_context *context;
	struct side own = { 0 }, peer;
	struct ibv_mr *out, *in;
	struct ibv_pd *pd;
	struct ibv_cq *sent, *received;
	struct ibv_qp *qp;
	struct ibv_ah *ah;
	struct ibv_wc wc;
	char *memory, ready = 0;
	int gid_index, connection, sends = argc == 4;

	if (argc != 3 && argc != 4)
		give_up("usage: ud DEVICE GID_INDEX [HOST]", 0);
	gid_index = atoi(argv[2]);

	/* Step 1: the device. A context is an open device file; everything else is made from it (common.c). */
	context = open_device(argv[1]);

	/* Step 2: a protection domain, which address handles belong to as well. */
	pd = made("ibv_alloc_pd", ibv_alloc_pd(context));

	/* Step 3: registered memory, to send from and to receive into. */
	memory = made("calloc", calloc(2, SIZE));
	out = made("ibv_reg_mr", ibv_reg_mr(pd, memory, SIZE, 0));
	in = made("ibv_reg_mr", ibv_reg_mr(pd, memory + SIZE, SIZE, IBV_ACCESS_LOCAL_WRITE));

	/*
	 * Step 4: a completion queue for each way. In a common one nothing would say which comes first: the answer may be
	 * there before it is reported that the datagram was sent.
	 */
	sent = made("ibv_create_cq", ibv_create_cq(context, 16, NULL, NULL, 0));
	received = made("ibv_create_cq", ibv_create_cq(context, 16, NULL, NULL, 0));

	/* Step 5: a queue pair. */
	attributes.qp_type = IBV_QPT_UD;
	attributes.send_cq = sent;
	attributes.recv_cq = received;
	attributes.cap.max_send_wr = attributes.cap.max_recv_wr = 8;
	attributes.cap.max_send_sge = attributes.cap.max_recv_sge = 1;
	qp = made("ibv_create_qp", ibv_create_qp(pd, &attributes));

	/* Step 6: ready, with a receive, for what comes without one is lost; then each learns of the other. */
	make_ready(qp);
	receive_into(qp, in);
	if (ibv_query_gid(context, PORT, gid_index, &own.gid))
		give_up("ibv_query_gid", errno);
	own.qp_num = qp->qp_num;
	connection = meet(sends ? argv[3] : NULL, "18521");
	swap(connection, &own, &peer, sizeof(own));

	/*
	 * Step 7: work. An address handle is the way to a port; the request adds the queue pair there, and its key. Datagrams
	 * may be lost: in a program that is in earnest waiting for them has a limit.
	 */
	if (sends) {
		address.is_global = 1;
		address.port_num = PORT;
		address.grh.dgid = peer.gid;
		address.grh.sgid_index = gid_index;
		address.grh.hop_limit = 64;
		ah = made("ibv_create_ah", ibv_create_ah(pd, &address));
		strcpy(memory + GRH, "Hello by datagram");
		send_text(qp, out, ah, peer.qp_num);
		wait_for(sent, "send");
		wc = wait_for(received, "receive");
	} else {
		wc = wait_for(received, "receive");
		/* The 40 bytes in front, and the completion, say whom to answer. */
		ah = made("ibv_create_ah_from_wc", ibv_create_ah_from_wc(pd, &wc, in->addr, PORT));
		strcpy(memory + GRH, "Hello back");
		send_text(qp, out, ah, wc.src_qp);
		wait_for(sent, "answer");
	}
	printf("from queue pair 0x%x, %u bytes: %s\n", wc.src_qp, wc.byte_len - GRH, (char *)in->addr + GRH);
	if (wc.src_qp != peer.qp_num)
		give_up("that is somebody else", 0);
	swap(connection, &ready, &ready, 1);

	/* Step 8: everything goes in the opposite order. */
	must("ibv_destroy_ah", ibv_destroy_ah(ah));
	must("ibv_destroy_qp", ibv_destroy_qp(qp));
	must("ibv_destroy_cq", ibv_destroy_cq(received));
	must("ibv_destroy_cq", ibv_destroy_cq(sent));
	must("ibv_dereg_mr", ibv_dereg_mr(in));
	must("ibv_dereg_mr", ibv_dereg_mr(out));
	must("ibv_dealloc_pd", ibv_dealloc_pd(pd));
	if (ibv_close_device(context))
		give_up("ibv_close_device", errno);
	free(memory);
	close(connection);
	return 0;
}
