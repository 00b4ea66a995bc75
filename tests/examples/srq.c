// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * A shared receive queue (SRQ): many connections take their receives from one queue, which is as long as all of them need
 * together, and not as long as each of them may need for itself.
 *
 *   cc -o srq srq.c common.c -libverbs
 *   ./srq fe0 1
 *
 * One process plays all: each of PEERS queue pairs sends to one of the same number that share the queue.
 */
#include "common.h"

#include <errno.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PEERS = 3, RECEIVES = 8, LIMIT = 4, SIZE = 64 };

static struct ibv_context *context;
static struct ibv_cq *sent, *received;
static struct ibv_srq *srq;
static struct ibv_mr *mr;
static struct ibv_qp *senders[PEERS], *receivers[PEERS];
/* A piece for each receive, and one to send from. */
static char memory[RECEIVES + 1][SIZE];

static void post_shared(int number)
{
	struct ibv_sge piece = { .addr = (uintptr_t)memory[number], .length = SIZE, .lkey = mr->lkey };
	struct ibv_recv_wr receive = { .wr_id = number, .sg_list = &piece, .num_sge = 1 }, *bad;

	must("ibv_post_srq_recv", ibv_post_srq_recv(srq, &receive, &bad));
}

/* Asks for one event when fewer receives than this are left. */
static void set_limit(int limit)
{
	struct ibv_srq_attr attributes = { .srq_limit = limit };

	must("ibv_modify_srq", ibv_modify_srq(srq, &attributes, IBV_SRQ_LIMIT));
}

/* Who has sent is known by the queue pair that has received, which receive it took by wr_id: any may take any. */
static void message_from(int peer)
{
	struct ibv_wc wc;
	int by = -1;

	snprintf(memory[RECEIVES], SIZE, "message of %d", peer);
	post_request(senders[peer], IBV_WR_SEND, mr, memory[RECEIVES], SIZE, NULL, 0);
	if (next_completion(sent).status != IBV_WC_SUCCESS)
		give_up("a message did not arrive", 0);
	wc = next_completion(received);
	if (wc.status != IBV_WC_SUCCESS)
		give_up(ibv_wc_status_str(wc.status), 0);
	for (int i = 0; i < PEERS; i++)
		if (receivers[i]->qp_num == wc.qp_num)
			by = i;
	printf("receive %d: queue pair %d, \"%s\"\n", (int)wc.wr_id, by, memory[wc.wr_id]);
}

/* Events that are no completions come by the context. They, too, must be acknowledged before their object can go. */
static void wait_for_event(enum ibv_event_type type, const char *name)
{
	struct ibv_async_event event;
	int more;

	do {
		if (ibv_get_async_event(context, &event))
			give_up("ibv_get_async_event", errno);
		more = event.event_type != type;
		ibv_ack_async_event(&event);
	} while (more);
	printf("event: %s\n", name);
}

int main(int argc, char **argv)
{
	const struct ibv_qp_attr waits = { .timeout = 14, .retry_cnt = 7, .min_rnr_timer = 12, .rnr_retry = 7 };
	struct ibv_srq_init_attr attributes = { .attr = { .max_wr = RECEIVES, .max_sge = 1 } };
	struct ibv_qp_attr to_error = { .qp_state = IBV_QPS_ERR };
	struct ibv_pd *pd;
	int rc;

	if (argc != 3)
		give_up("usage: srq DEVICE GID_INDEX", 0);
	context = open_device(argv[1]);
	pd = made("ibv_alloc_pd", ibv_alloc_pd(context));
	sent = made("ibv_create_cq", ibv_create_cq(context, 16, NULL, NULL, 0));
	received = made("ibv_create_cq", ibv_create_cq(context, 16, NULL, NULL, 0));
	mr = made("ibv_reg_mr", ibv_reg_mr(pd, memory, sizeof(memory), IBV_ACCESS_LOCAL_WRITE));
	srq = made("ibv_create_srq", ibv_create_srq(pd, &attributes));

	for (int i = 0; i < PEERS; i++) {
		senders[i] = new_rc(pd, sent, sent, NULL);
		/* With a shared queue it has no receive queue of its own. */
		receivers[i] = new_rc(pd, received, received, srq);
		connect_pair(senders[i], receivers[i], atoi(argv[2]), &waits);
	}

	for (int i = 0; i < RECEIVES; i++)
		post_shared(i);
	set_limit(LIMIT);
	/* The fifth message leaves three receives, fewer than the limit. */
	for (int i = 0; i < RECEIVES - LIMIT + 1; i++)
		message_from(i % PEERS);
	wait_for_event(IBV_EVENT_SRQ_LIMIT_REACHED, "fewer receives than the limit");
	/* The limit is 0 now: one event for each time that it is set. First the receives, or it would come at once. */
	for (int i = 0; i < RECEIVES - LIMIT + 1; i++)
		post_shared(i);
	set_limit(LIMIT);
	message_from(0);

	/*
	 * The end of one connection. Its queue pair takes nothing from the queue any more when the event says so; receives that
	 * it has not taken stay for the others and are not flushed.
	 */
	must("RTS to ERR", ibv_modify_qp(receivers[0], &to_error, IBV_QP_STATE));
	wait_for_event(IBV_EVENT_QP_LAST_WQE_REACHED, "queue pair 0 takes no more");
	message_from(1);
	message_from(2);

	/* The queue goes after those that use it. */
	rc = ibv_destroy_srq(srq);
	printf("ibv_destroy_srq with queue pairs: %s\n", strerror(rc));
	for (int i = 0; i < PEERS; i++)
		if (ibv_destroy_qp(senders[i]) || ibv_destroy_qp(receivers[i]))
			give_up("ibv_destroy_qp", errno);
	if (ibv_destroy_srq(srq) || ibv_destroy_cq(sent) || ibv_destroy_cq(received) || ibv_dereg_mr(mr) || ibv_dealloc_pd(pd) ||
	    ibv_close_device(context))
		give_up("cleaning up", errno);
	return 0;
}
