// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include "common.h"

#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

void give_up(const char *what, int error)
{
	if (error)
		fprintf(stderr, "%s: %s\n", what, strerror(error));
	else
		fprintf(stderr, "%s\n", what);
	exit(1);
}

void must(const char *what, int error)
{
	if (error)
		give_up(what, error);
}

void *made(const char *what, void *object)
{
	if (!object)
		give_up(what, errno);
	return object;
}

int meet(const char *host, const char *port)
{
	struct addrinfo hints = { .ai_flags = AI_PASSIVE, .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM }, *list;
	int s, yes = 1, connection;
	int rc = getaddrinfo(host, port, &hints, &list);

	if (rc)
		give_up(gai_strerror(rc), 0);
	s = socket(list->ai_family, SOCK_STREAM, 0);
	if (s < 0)
		give_up("socket", errno);
	if (host) {
		if (connect(s, list->ai_addr, list->ai_addrlen))
			give_up(host, errno);
		connection = s;
	} else {
		setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
		if (bind(s, list->ai_addr, list->ai_addrlen) || listen(s, 1))
			give_up("waiting for the other program", errno);
		connection = accept(s, NULL, NULL);
		if (connection < 0)
			give_up("accept", errno);
		close(s);
	}
	freeaddrinfo(list);
	return connection;
}

void swap(int connection, const void *mine, void *theirs, size_t length)
{
	if (send(connection, mine, length, MSG_NOSIGNAL) != (ssize_t)length)
		give_up("telling the other program", errno);
	if (recv(connection, theirs, length, MSG_WAITALL) != (ssize_t)length)
		give_up("the other program has gone", 0);
}

struct ibv_context *open_device(const char *name)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *context = NULL;

	made("ibv_get_device_list", list);
	for (int i = 0; list[i] && !context; i++) {
		if (!strcmp(ibv_get_device_name(list[i]), name))
			context = made("ibv_open_device", ibv_open_device(list[i]));
	}
	/* The list may go: the context does not need it. */
	ibv_free_device_list(list);
	if (!context)
		give_up("there is no such RDMA device", ENODEV);
	return context;
}

struct ibv_wc next_completion(struct ibv_cq *cq)
{
	struct ibv_wc completion;
	int n;

	/* Asking again and again is the fastest; ibv_req_notify_cq and ibv_get_cq_event sleep instead. */
	do
		n = ibv_poll_cq(cq, 1, &completion);
	while (!n);
	if (n < 0)
		give_up("ibv_poll_cq", -n);
	return completion;
}

struct ibv_wc wait_for(struct ibv_cq *cq, const char *what)
{
	struct ibv_wc completion = next_completion(cq);

	if (completion.status != IBV_WC_SUCCESS) {
		fprintf(stderr, "%s: %s\n", what, ibv_wc_status_str(completion.status));
		exit(1);
	}
	printf("%s: done\n", what);
	return completion;
}

struct ibv_qp *new_rc(struct ibv_pd *pd, struct ibv_cq *sends, struct ibv_cq *receives, struct ibv_srq *srq)
{
	struct ibv_qp_init_attr attributes = {
		.qp_type = IBV_QPT_RC, .send_cq = sends, .recv_cq = receives, .srq = srq,
		.cap = { .max_send_wr = 16, .max_recv_wr = 16, .max_send_sge = 1, .max_recv_sge = 1 },
	};

	return made("ibv_create_qp", ibv_create_qp(pd, &attributes));
}

static void connect_one(struct ibv_qp *qp, uint32_t peer, int gid_index, uint32_t psn, const struct ibv_qp_attr *waits)
{
	struct ibv_qp_attr init = {
		.qp_state = IBV_QPS_INIT, .port_num = PORT,
		.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ,
	};
	struct ibv_qp_attr rtr = {
		.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = peer, .rq_psn = psn,
		.max_dest_rd_atomic = waits->max_rd_atomic, .min_rnr_timer = waits->min_rnr_timer,
		.ah_attr = { .is_global = 1, .port_num = PORT, .grh = { .sgid_index = gid_index, .hop_limit = 64 } },
	};
	struct ibv_qp_attr rts = {
		.qp_state = IBV_QPS_RTS, .sq_psn = psn, .timeout = waits->timeout, .retry_cnt = waits->retry_cnt,
		.rnr_retry = waits->rnr_retry, .max_rd_atomic = waits->max_rd_atomic,
	};

	if (ibv_query_gid(qp->context, PORT, gid_index, &rtr.ah_attr.grh.dgid))
		give_up("ibv_query_gid", errno);
	must("RESET to INIT", ibv_modify_qp(qp, &init, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
					    IBV_QP_ACCESS_FLAGS));
	must("INIT to RTR", ibv_modify_qp(qp, &rtr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
					  IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
	must("RTR to RTS", ibv_modify_qp(qp, &rts, IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
					 IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC));
}

void connect_pair(struct ibv_qp *a, struct ibv_qp *b, int gid_index, const struct ibv_qp_attr *waits)
{
	/* Each connection begins with other numbers, so that it cannot take an old packet of the one before for its own. */
	static uint32_t psn;

	psn = (psn + 1000) & 0xffffff;
	connect_one(a, b->qp_num, gid_index, psn, waits);
	connect_one(b, a->qp_num, gid_index, psn, waits);
}

void post_receive(struct ibv_qp *qp, uint64_t wr_id, struct ibv_mr *mr, void *memory, uint32_t length)
{
	struct ibv_sge piece = { .addr = (uintptr_t)memory, .length = length, .lkey = length ? mr->lkey : 0 };
	struct ibv_recv_wr receive = { .wr_id = wr_id, .sg_list = &piece, .num_sge = length ? 1 : 0 }, *bad;

	must("ibv_post_recv", ibv_post_recv(qp, &receive, &bad));
}

void post_request(struct ibv_qp *qp, enum ibv_wr_opcode opcode, struct ibv_mr *mr, void *memory, uint32_t length,
		  void *remote, uint32_t rkey)
{
	struct ibv_sge piece = { .addr = (uintptr_t)memory, .length = length, .lkey = mr->lkey };
	struct ibv_send_wr request = {
		.sg_list = &piece, .num_sge = 1, .opcode = opcode, .send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = { .remote_addr = (uintptr_t)remote, .rkey = rkey },
	}, *bad;

	/* It returns a positive errno, and then nothing of the request is done. */
	must("ibv_post_send", ibv_post_send(qp, &request, &bad));
}

void pause_ms(int ms)
{
	struct timespec time = { .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L };

	while (nanosleep(&time, &time) && errno == EINTR)
		;
}
