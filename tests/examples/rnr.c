// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Receiver not ready (RNR): a message comes, and there is no receive for it. Three endings, and how not to come there.
 *
 *   cc -o rnr rnr.c common.c -libverbs
 *   ./rnr fe0 1
 *
 * Two queue pairs of one process play both sides: `a` sends, `b` receives.
 */
#include "common.h"

#include <errno.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* LATE in milliseconds. */
enum { SIZE = 64, LATE = 25, RECEIVES = 4, MESSAGES = 100 };

static struct ibv_cq *sent, *received;
static struct ibv_qp *a, *b;
static struct ibv_mr *mr;
static char memory[SIZE];
static int gid_index;

static void connect_again(int rnr_retry)
{
	/*
	 * How long `a` waits before it tries again is up to `b`, which puts min_rnr_timer into each RNR NAK: 20 is 10.24 ms. How
	 * often is up to `a`: rnr_retry times; 7 is for ever.
	 */
	const struct ibv_qp_attr waits = { .timeout = 14, .retry_cnt = 7, .min_rnr_timer = 20, .rnr_retry = rnr_retry };
	struct ibv_qp_attr reset = { .qp_state = IBV_QPS_RESET };
	int rc = ibv_modify_qp(a, &reset, IBV_QP_STATE);

	if (!rc)
		rc = ibv_modify_qp(b, &reset, IBV_QP_STATE);
	must("to RESET", rc);
	/* Both sides: PSNs begin anew, and each must expect what the other begins with. */
	connect_pair(a, b, gid_index, &waits);
}

static void send_message(void)
{
	post_request(a, IBV_WR_SEND, mr, memory, SIZE, NULL, 0);
}

static const char *status_of_send(void)
{
	return ibv_wc_status_str(next_completion(sent).status);
}

static const char *state_of(struct ibv_qp *qp)
{
	struct ibv_qp_attr now;
	struct ibv_qp_init_attr init;

	must("ibv_query_qp", ibv_query_qp(qp, &now, IBV_QP_STATE, &init));
	return now.qp_state == IBV_QPS_RTS ? "RTS" : now.qp_state == IBV_QPS_ERR ? "ERR" : "another state";
}

/* A receive that comes late: the message waits for it, and nobody notices but by the time. */
static void late(void)
{
	struct ibv_wc none;

	connect_again(7);
	send_message();
	pause_ms(LATE);
	printf("no receive for %d ms: %s\n", LATE, ibv_poll_cq(sent, 1, &none) ? "a completion" : "no completion");
	post_receive(b, 0, mr, memory, SIZE);
	printf("a receive: %s\n", status_of_send());
	wait_for(received, "it");
}

/* None at all: it is the sender that is told, and its queue pair is of no use any more. The receiver learns nothing. */
static void never(void)
{
	connect_again(2);
	send_message();
	printf("no receive, rnr_retry 2: %s\n", status_of_send());
	printf("sender in %s, receiver in %s\n", state_of(a), state_of(b));
	send_message();
	printf("posted again: %s\n", status_of_send());
	/* What helps is to begin anew, on both sides, with a receive first. */
	connect_again(2);
	post_receive(b, 0, mr, memory, SIZE);
	send_message();
	printf("connected again, a receive first: %s\n", status_of_send());
	wait_for(received, "it");
}

/*
 * How not to come there: the sender knows how many receives there are, and sends no more. Here it sees that by itself; a
 * receiver of another machine sends such credits back, best with messages that it sends anyway. With rnr_retry 0 the first
 * message without a receive would end the connection.
 */
static void by_credits(void)
{
	int credits = 0, done = 0;

	connect_again(0);
	for (; credits < RECEIVES; credits++)
		post_receive(b, credits, mr, memory, SIZE);
	while (done < MESSAGES) {
		while (credits) {
			credits--;
			send_message();
		}
		if (next_completion(sent).status != IBV_WC_SUCCESS || next_completion(received).status != IBV_WC_SUCCESS)
			give_up("a message had no receive", 0);
		done++;
		/* The receive first, then the credit for it. */
		post_receive(b, 0, mr, memory, SIZE);
		credits++;
	}
	printf("%d messages through %d receives by credits, rnr_retry 0: success\n", done, RECEIVES);
}

int main(int argc, char **argv)
{
	struct ibv_context *context;
	struct ibv_pd *pd;

	if (argc != 3)
		give_up("usage: rnr DEVICE GID_INDEX", 0);
	gid_index = atoi(argv[2]);
	context = open_device(argv[1]);
	pd = made("ibv_alloc_pd", ibv_alloc_pd(context));
	sent = made("ibv_create_cq", ibv_create_cq(context, 16, NULL, NULL, 0));
	received = made("ibv_create_cq", ibv_create_cq(context, 16, NULL, NULL, 0));
	mr = made("ibv_reg_mr", ibv_reg_mr(pd, memory, SIZE, IBV_ACCESS_LOCAL_WRITE));
	a = new_rc(pd, sent, sent, NULL);
	b = new_rc(pd, received, received, NULL);

	late();
	never();
	by_credits();

	if (ibv_destroy_qp(a) || ibv_destroy_qp(b) || ibv_destroy_cq(sent) || ibv_destroy_cq(received) || ibv_dereg_mr(mr) ||
	    ibv_dealloc_pd(pd) || ibv_close_device(context))
		give_up("cleaning up", errno);
	return 0;
}
