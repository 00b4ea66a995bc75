// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Sleeping until there is a completion: arm, wait, acknowledge, arm again, poll; and what other orders miss.
 *
 *   cc -o events events.c common.c -libverbs
 *   ./events fe0 1
 *
 * Two queue pairs of one process play both sides: `a` sends, `b` receives. The queue with the receives has a completion
 * channel: a file descriptor that becomes readable with an event.
 */
#include "common.h"

#include <errno.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SIZE = 64, MESSAGES = 3 };

static struct ibv_comp_channel *channel;
static struct ibv_cq *sent, *received;
static struct ibv_qp *a, *b;
static struct ibv_mr *mr;
static char memory[SIZE];
static unsigned int events;

/* Asks for one event, with the next completion or, `solicited`, with the next one whose sender asks for it. */
static void arm(int solicited)
{
	must("ibv_req_notify_cq", ibv_req_notify_cq(received, solicited));
}

/* Sends messages, and comes back when they have arrived: their ACKs are there, so their receives are complete. */
static void send_messages(int count, int flags)
{
	struct ibv_sge piece = { .addr = (uintptr_t)memory, .length = SIZE, .lkey = mr->lkey };
	struct ibv_send_wr request = {
		.sg_list = &piece, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED | flags,
	}, *bad;

	for (int i = 0; i < count; i++) {
		post_receive(b, i, mr, memory, SIZE);
		must("ibv_post_send", ibv_post_send(a, &request, &bad));
		if (next_completion(sent).status != IBV_WC_SUCCESS)
			give_up("a message did not arrive", 0);
	}
}

/* Whether an event comes within this time. A program in earnest calls ibv_get_cq_event alone, which waits for ever. */
static int event_comes(int ms)
{
	struct pollfd wait = { .fd = channel->fd, .events = POLLIN };
	struct ibv_cq *of;
	void *context;
	int n = poll(&wait, 1, ms);

	if (n < 0)
		give_up("poll", errno);
	if (!n)
		return 0;
	/* One channel may serve many queues, so that an event says which it is of. */
	if (ibv_get_cq_event(channel, &of, &context))
		give_up("ibv_get_cq_event", errno);
	if (of != received)
		give_up("an event of another queue", 0);
	events++;
	return 1;
}

/* Takes all that is there: one event may stand for many completions, or for none that is left. */
static int poll_all(void)
{
	struct ibv_wc wc;
	int n, count = 0;

	while ((n = ibv_poll_cq(received, 1, &wc)) > 0) {
		if (wc.status != IBV_WC_SUCCESS)
			give_up(ibv_wc_status_str(wc.status), 0);
		count++;
	}
	if (n < 0)
		give_up("ibv_poll_cq", -n);
	return count;
}

int main(int argc, char **argv)
{
	const struct ibv_qp_attr waits = { .timeout = 14, .retry_cnt = 7, .rnr_retry = 7, .min_rnr_timer = 12 };
	struct ibv_context *context;
	struct ibv_pd *pd;

	if (argc != 3)
		give_up("usage: events DEVICE GID_INDEX", 0);
	context = open_device(argv[1]);
	pd = made("ibv_alloc_pd", ibv_alloc_pd(context));
	channel = made("ibv_create_comp_channel", ibv_create_comp_channel(context));
	mr = made("ibv_reg_mr", ibv_reg_mr(pd, memory, SIZE, IBV_ACCESS_LOCAL_WRITE));
	sent = made("ibv_create_cq", ibv_create_cq(context, 16, NULL, NULL, 0));
	received = made("ibv_create_cq", ibv_create_cq(context, 16, NULL, channel, 0));

	a = new_rc(pd, sent, sent, NULL);
	b = new_rc(pd, received, received, NULL);
	connect_pair(a, b, atoi(argv[2]), &waits);

	/* Right: the queue is armed before it is found empty, so that nothing can come in between. */
	arm(0);
	printf("armed, polled: %d completions\n", poll_all());
	send_messages(MESSAGES, 0);
	printf("%d messages: %s\n", MESSAGES, event_comes(10000) ? "an event" : "no event");
	/* One event, then silence: a queue is armed for one. So it is armed again, and then polled until it is empty. */
	arm(0);
	printf("armed again, polled: %d completions\n", poll_all());
	send_messages(1, 0);
	printf("1 message more: %s\n", event_comes(10000) ? "an event" : "no event");

	/* Wrong: polled, and not armed again. A program that waits now sleeps for ever. */
	printf("not armed again, polled: %d completions\n", poll_all());
	send_messages(1, 0);
	printf("1 message: %s\n", event_comes(200) ? "an event" : "no event");

	/* Wrong: armed last, and not polled behind that. What came before is in the queue, and asks for no event. */
	arm(0);
	printf("armed too late: %s", event_comes(200) ? "an event" : "no event");
	printf(", though there are %d completions\n", poll_all());

	/* Half of this is for errors and for whom the sender wants to wake: IBV_SEND_SOLICITED. */
	send_messages(1, 0);
	event_comes(200);
	poll_all();
	arm(1);
	send_messages(1, 0);
	printf("armed for solicited ones, 1 message: %s\n", event_comes(200) ? "an event" : "no event");
	send_messages(1, IBV_SEND_SOLICITED);
	printf("1 solicited message: %s\n", event_comes(10000) ? "an event" : "no event");
	printf("polled: %d completions\n", poll_all());

	/* Each event must be acknowledged before the queue goes: ibv_destroy_cq waits for that. Many at once cost less. */
	ibv_ack_cq_events(received, events);
	if (ibv_destroy_qp(a) || ibv_destroy_qp(b) || ibv_destroy_cq(sent) || ibv_destroy_cq(received) ||
	    ibv_destroy_comp_channel(channel) || ibv_dereg_mr(mr) || ibv_dealloc_pd(pd) || ibv_close_device(context))
		give_up("cleaning up", errno);
	return 0;
}
