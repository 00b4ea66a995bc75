// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * A connection by librdmacm: by IP address and port as with a socket, and without a word about GIDs, PSNs and states.
 *
 *   cc -o cm cm.c common.c -lrdmacm -libverbs
 *   ./cm listen 192.0.2.1            waits for a connection to this address, one of an RDMA device here
 *   ./cm connect 192.0.2.1           connects to the program above, and sends a message
 *
 * What goes on is told by events, one at a time, each of which is acknowledged. The kernel module rdma_ucm must be there.
 */
#include "common.h"

#include <errno.h>
#include <netdb.h>
#include <rdma/rdma_cma.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SIZE = 64, MS = 5000 };
static const char port[] = "18522";

/* What belongs to one connection. */
struct connection {
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	char memory[SIZE];
};

/* Waits for the next event, which must be this one; `private_data` gets a text that came with it. Returns whose it is. */
static struct rdma_cm_id *expect(struct rdma_event_channel *channel, enum rdma_cm_event_type want, char *private_data)
{
	struct rdma_cm_event *event;
	struct rdma_cm_id *id;

	if (rdma_get_cm_event(channel, &event))
		give_up("rdma_get_cm_event", errno);
	printf("%s", rdma_event_str(event->event));
	if (event->event != want) {
		/* The status says why: a negative errno, or the reason of a peer that rejects. */
		printf(", status %d\n", event->status);
		exit(1);
	}
	if (private_data) {
		size_t length = event->param.conn.private_data_len;

		/* What the peer gave is padded with zeroes. */
		snprintf(private_data, SIZE, "%.*s", (int)length, (const char *)event->param.conn.private_data);
		printf(", \"%s\"", private_data);
	}
	printf("\n");
	/* The id of a request is a new one; that which listens goes on. After the ack the event is gone. */
	id = event->id;
	if (rdma_ack_cm_event(event))
		give_up("rdma_ack_cm_event", errno);
	return id;
}

/* The device is known by now: id->verbs is its context. The queue pair is taken from state to state by librdmacm. */
static struct connection *prepare(struct rdma_cm_id *id)
{
	struct connection *c = calloc(1, sizeof(*c));
	struct ibv_qp_init_attr attributes = {
		.qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1 },
	};

	if (!c)
		give_up("calloc", errno);
	c->pd = ibv_alloc_pd(id->verbs);
	c->cq = ibv_create_cq(id->verbs, 8, NULL, NULL, 0);
	if (!c->pd || !c->cq)
		give_up("a protection domain and a completion queue", errno);
	c->mr = ibv_reg_mr(c->pd, c->memory, SIZE, IBV_ACCESS_LOCAL_WRITE);
	attributes.send_cq = attributes.recv_cq = c->cq;
	if (!c->mr || rdma_create_qp(id, c->pd, &attributes))
		give_up("a region and a queue pair", errno);
	return c;
}

static void dissolve(struct rdma_cm_id *id, struct connection *c)
{
	rdma_destroy_qp(id);
	if (ibv_dereg_mr(c->mr) || ibv_destroy_cq(c->cq) || ibv_dealloc_pd(c->pd) || rdma_destroy_id(id))
		give_up("cleaning up", errno);
	free(c);
}

static void serve(struct rdma_event_channel *channel, struct rdma_cm_id *listener, struct sockaddr *address)
{
	struct rdma_conn_param answer = { .rnr_retry_count = 7, .private_data = "welcome", .private_data_len = 8 };
	struct rdma_cm_id *id;
	struct connection *c;
	char hello[SIZE];

	/* ENODEV here: no RDMA device has this address (Documentation/cm.md of ferroce has what else it may be). */
	if (rdma_bind_addr(listener, address))
		give_up("rdma_bind_addr", errno);
	if (rdma_listen(listener, 1))
		give_up("rdma_listen", errno);
	printf("listens\n");
	fflush(stdout);
	id = expect(channel, RDMA_CM_EVENT_CONNECT_REQUEST, hello);
	c = prepare(id);
	/* Before the peer knows that it is connected, so that its first message finds a receive. */
	post_receive(id->qp, 0, c->mr, c->memory, SIZE);
	if (rdma_accept(id, &answer))
		give_up("rdma_accept", errno);
	expect(channel, RDMA_CM_EVENT_ESTABLISHED, NULL);
	wait_for(c->cq, "receive");
	printf("it says: %s\n", c->memory);
	expect(channel, RDMA_CM_EVENT_DISCONNECTED, NULL);
	dissolve(id, c);
}

static void call(struct rdma_event_channel *channel, struct rdma_cm_id *id, struct sockaddr *address)
{
	struct rdma_conn_param request = {
		.retry_count = 7, .rnr_retry_count = 7, .private_data = "hello", .private_data_len = 6,
	};
	struct connection *c;
	char welcome[SIZE];

	/* To which device, by which of its addresses, to which MAC address: routing and ARP. */
	if (rdma_resolve_addr(id, NULL, address, MS))
		give_up("rdma_resolve_addr", errno);
	expect(channel, RDMA_CM_EVENT_ADDR_RESOLVED, NULL);
	if (rdma_resolve_route(id, MS))
		give_up("rdma_resolve_route", errno);
	expect(channel, RDMA_CM_EVENT_ROUTE_RESOLVED, NULL);
	c = prepare(id);
	/* Queue pair number and PSN go to the peer with this, and come back with its answer. */
	if (rdma_connect(id, &request))
		give_up("rdma_connect", errno);
	expect(channel, RDMA_CM_EVENT_ESTABLISHED, welcome);
	strcpy(c->memory, "Hello by librdmacm");
	post_request(id->qp, IBV_WR_SEND, c->mr, c->memory, SIZE, NULL, 0);
	wait_for(c->cq, "SEND");
	/* The queue pair goes to ERR at both ends: what is still posted is flushed. */
	if (rdma_disconnect(id))
		give_up("rdma_disconnect", errno);
	expect(channel, RDMA_CM_EVENT_DISCONNECTED, NULL);
	dissolve(id, c);
}

int main(int argc, char **argv)
{
	struct addrinfo hints = { .ai_socktype = SOCK_STREAM }, *address;
	struct rdma_event_channel *channel;
	struct rdma_cm_id *id;
	int rc, serves = argc == 3 && !strcmp(argv[1], "listen");

	if (argc != 3 || (!serves && strcmp(argv[1], "connect")))
		give_up("usage: cm listen|connect ADDRESS", 0);
	rc = getaddrinfo(argv[2], port, &hints, &address);
	if (rc)
		give_up(gai_strerror(rc), 0);
	channel = made("rdma_create_event_channel", rdma_create_event_channel());
	if (rdma_create_id(channel, &id, NULL, RDMA_PS_TCP))
		give_up("rdma_create_id", errno);
	if (serves) {
		serve(channel, id, address->ai_addr);
		if (rdma_destroy_id(id))
			give_up("rdma_destroy_id", errno);
	} else {
		call(channel, id, address->ai_addr);
	}
	rdma_destroy_event_channel(channel);
	freeaddrinfo(address);
	return 0;
}
