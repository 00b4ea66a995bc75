// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Datagrams to a group: sent once, received by each queue pair that is attached to the group.
 *
 *   cc -o mcast mcast.c common.c -libverbs
 *   ./mcast fe0 1 239.1.2.3          receives, with two queue pairs
 *   ./mcast fe0 1 239.1.2.3 send     sends to all that receive
 *
 * Who sends need not be a member. librdmacm has rdma_join_multicast, which finds the device by an address and tells the
 * network; ibv_attach_mcast alone is enough where the driver does that (ferroce) or no switch is choosy.
 */
#include "common.h"

#include <arpa/inet.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Datagrams to a group are for a queue pair number that none has. All members have the same key. */
enum { MEMBERS = 2, EVERYBODY = 0xffffff, QKEY = 0x11111111, GRH = 40, SIZE = GRH + 64, DATAGRAMS = 3 };

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static struct ibv_mr *mr;
static char memory[MEMBERS * DATAGRAMS][SIZE];

static struct ibv_qp *new_ud(void)
{
	struct ibv_qp_init_attr init = {
		.qp_type = IBV_QPT_UD, .send_cq = cq, .recv_cq = cq,
		.cap = { .max_send_wr = 4, .max_recv_wr = DATAGRAMS, .max_send_sge = 1, .max_recv_sge = 1 },
	};
	struct ibv_qp_attr attributes = { .qp_state = IBV_QPS_INIT, .port_num = PORT, .qkey = QKEY };
	struct ibv_qp *qp = ibv_create_qp(pd, &init);
	int rc;

	if (!qp)
		give_up("ibv_create_qp", errno);
	rc = ibv_modify_qp(qp, &attributes, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY);
	attributes.qp_state = IBV_QPS_RTR;
	if (!rc)
		rc = ibv_modify_qp(qp, &attributes, IBV_QP_STATE);
	attributes.qp_state = IBV_QPS_RTS;
	if (!rc)
		rc = ibv_modify_qp(qp, &attributes, IBV_QP_STATE | IBV_QP_SQ_PSN);
	must("RESET to RTS", rc);
	return qp;
}

static void receive_all(union ibv_gid *group)
{
	struct ibv_qp *members[MEMBERS];
	int got[MEMBERS] = { 0 };
	int rc;

	for (int m = 0; m < MEMBERS; m++) {
		members[m] = new_ud();
		for (int i = m * DATAGRAMS; i < (m + 1) * DATAGRAMS; i++)
			post_receive(members[m], i, mr, memory[i], SIZE);
		/* Receives first: what comes without one is lost. The last argument is a LID, which RoCE does not have. */
		must("ibv_attach_mcast", ibv_attach_mcast(members[m], group, 0));
	}
	printf("%d members\n", MEMBERS);
	fflush(stdout);
	for (int i = 0; i < MEMBERS * DATAGRAMS; i++) {
		struct ibv_wc wc = next_completion(cq);

		if (wc.status != IBV_WC_SUCCESS)
			give_up(ibv_wc_status_str(wc.status), 0);
		for (int m = 0; m < MEMBERS; m++)
			got[m] += members[m]->qp_num == wc.qp_num;
		/* The first 40 bytes are the header that says who sent it, as with any datagram (ud.c). */
		if (wc.wr_id == 0)
			printf("%u bytes: %s\n", wc.byte_len - GRH, memory[0] + GRH);
	}
	for (int m = 0; m < MEMBERS; m++) {
		printf("member %d got %d datagrams\n", m, got[m]);
		rc = ibv_detach_mcast(members[m], group, 0);
		/* A queue pair in a group is in use. */
		if (!rc)
			rc = ibv_destroy_qp(members[m]);
		must("leaving the group", rc);
	}
}

static void send_all(union ibv_gid *group, int gid_index)
{
	/* A handle for the group. With a hop limit of 1 no router passes it on. */
	struct ibv_ah_attr address = {
		.is_global = 1, .port_num = PORT, .grh = { .dgid = *group, .sgid_index = gid_index, .hop_limit = 1 },
	};
	struct ibv_qp *qp = new_ud();
	struct ibv_ah *ah = made("ibv_create_ah", ibv_create_ah(pd, &address));

	for (int i = 0; i < DATAGRAMS; i++) {
		struct ibv_sge piece = { .addr = (uintptr_t)memory[0], .length = 32, .lkey = mr->lkey };
		struct ibv_send_wr request = {
			.sg_list = &piece, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED,
			.wr.ud = { .ah = ah, .remote_qpn = EVERYBODY, .remote_qkey = QKEY },
		}, *bad;

		strcpy(memory[0], "Hello, everybody");
		must("ibv_post_send", ibv_post_send(qp, &request, &bad));
		/* That it was sent, and no more: nobody says whether there was a member. */
		wait_for(cq, "datagram");
	}
	if (ibv_destroy_ah(ah) || ibv_destroy_qp(qp))
		give_up("cleaning up", errno);
}

int main(int argc, char **argv)
{
	union ibv_gid group = { 0 };

	if (argc != 4 && (argc != 5 || strcmp(argv[4], "send")))
		give_up("usage: mcast DEVICE GID_INDEX GROUP [send]", 0);
	/* A group of IPv4 as a GID: ::ffff:239.1.2.3. One of IPv6 is a GID as it is. */
	if (inet_pton(AF_INET, argv[3], group.raw + 12) == 1)
		group.raw[10] = group.raw[11] = 0xff;
	else if (inet_pton(AF_INET6, argv[3], group.raw) != 1)
		give_up("no IP address", 0);
	context = open_device(argv[1]);
	pd = made("ibv_alloc_pd", ibv_alloc_pd(context));
	cq = made("ibv_create_cq", ibv_create_cq(context, 16, NULL, NULL, 0));
	mr = made("ibv_reg_mr", ibv_reg_mr(pd, memory, sizeof(memory), IBV_ACCESS_LOCAL_WRITE));
	if (argc == 5)
		send_all(&group, atoi(argv[2]));
	else
		receive_all(&group);
	if (ibv_destroy_cq(cq) || ibv_dereg_mr(mr) || ibv_dealloc_pd(pd) || ibv_close_device(context))
		give_up("cleaning up", errno);
	return 0;
}
