// SPDX-License-Identifier: GPL-2.0
/* Every asynchronous event: provoked, and named in one printed table with what it is about. */
#include "pair.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct pair p;

/* Waits for an event about this object. Another may come before it: a queue that overruns fails its queue pair, too. */
static void want(struct ibv_context *ctx, enum ibv_event_type type, const void *object)
{
	struct ibv_async_event e;

	do
		CHECK(next_device_event(ctx, 1000 * patience(), &e), "no event \"%s\"", ibv_event_type_str(type));
	while (e.event_type != type);
	CHECK(e.element.qp == object, "the event \"%s\" is about something else", ibv_event_type_str(type));
}

/* As above, for what is about a port, or with 0 about the device. */
static void want_of_port(struct ibv_context *ctx, enum ibv_event_type type, int port)
{
	struct ibv_async_event e;

	do
		CHECK(next_device_event(ctx, 1000 * patience(), &e), "no event \"%s\"", ibv_event_type_str(type));
	while (e.event_type != type);
	CHECK(e.element.port_num == port, "the event \"%s\" is about port %d", ibv_event_type_str(type), e.element.port_num);
}

/* A queue with one place too few for the completions of a. */
static void overrun(void)
{
	struct ibv_send_wr w = wr(IBV_WR_RDMA_WRITE, 1, NULL, 0);
	struct ibv_cq *small;

	pair_open(&p, NULL, 4096);
	small = new_cq(p.a.ctx, 1, NULL, NULL);
	use_cq(&p, small);
	for (int i = 0; i <= small->cqe; i++)
		post(&p.a, &w);
}

static void cq_err(void)
{
	overrun();
	want(p.a.ctx, IBV_EVENT_CQ_ERR, p.a.cq);
	pair_close(&p);
}

static void qp_fatal(void)
{
	overrun();
	want(p.a.ctx, IBV_EVENT_QP_FATAL, p.a.qp);
	pair_close(&p);
}

static void write_to_b(uint32_t other_key)
{
	struct ibv_sge list = sge(&p.a, 0, 100);
	struct ibv_send_wr w = wr(IBV_WR_RDMA_WRITE, 1, &list, 1);

	aim(&w, &p.b, 0);
	w.wr.rdma.rkey ^= other_key;
	post(&p.a, &w);
}

static void qp_req_err(void)
{
	pair_open(&p, &(struct options){ .qp_access = NONE }, 4096);
	write_to_b(0);
	want(p.b.ctx, IBV_EVENT_QP_REQ_ERR, p.b.qp);
	pair_close(&p);
}

static void qp_access_err(void)
{
	pair_open(&p, NULL, 4096);
	write_to_b(0x5500);
	want(p.b.ctx, IBV_EVENT_QP_ACCESS_ERR, p.b.qp);
	pair_close(&p);
}

static void comm_est(void)
{
	struct ibv_async_event e;

	pair_open(&p, &(struct options){ .no_connect = true }, 4096);
	MUST(to_init(&p, &p.a));
	MUST(to_init(&p, &p.b));
	MUST(to_rtr(&p, &p.a, &p.b, p.b.qp->qp_num));
	MUST(to_rtr(&p, &p.b, &p.a, p.a.qp->qp_num));
	MUST(to_rts(&p, &p.a));
	write_to_b(0);
	want(p.b.ctx, IBV_EVENT_COMM_EST, p.b.qp);
	/* It comes once, however many packets do: the next event is that of the second write here. */
	write_to_b(0);
	write_to_b(0x5500);
	CHECK(next_device_event(p.b.ctx, 1000 * patience(), &e), "no event of a write with a wrong key");
	CHECK(e.event_type == IBV_EVENT_QP_ACCESS_ERR, "another event \"%s\"", ibv_event_type_str(e.event_type));
	pair_close(&p);
}

static void sq_drained(void)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_SQD, .en_sqd_async_notify = 1 };

	pair_open(&p, NULL, 4096);
	MUST(ibv_modify_qp(p.a.qp, &attr, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY));
	want(p.a.ctx, IBV_EVENT_SQ_DRAINED, p.a.qp);
	pair_close(&p);
}

/* b takes its receives from a queue that it shares; two are there. */
static struct ibv_srq *share(void)
{
	static const struct ibv_qp_cap cap = { .max_send_wr = 4, .max_send_sge = 1 };
	struct ibv_srq_init_attr attr = { .attr = { .max_wr = 4, .max_sge = 1 } };
	struct ibv_srq *srq;

	pair_open(&p, NULL, 4096);
	srq = ibv_create_srq(p.b.pd, &attr);
	CHECK(srq, "ibv_create_srq: %s", strerror(errno));
	MUST(ibv_destroy_qp(p.b.qp));
	p.b.qp = new_sharing_qp(p.b.pd, p.b.cq, cap, srq);
	pair_reconnect(&p, NULL);
	return srq;
}

static void end_sharing(struct ibv_srq *srq)
{
	MUST(ibv_destroy_qp(p.b.qp));
	p.b.qp = NULL;
	MUST(ibv_destroy_srq(srq));
	pair_close(&p);
}

static void send_to_b(void)
{
	struct ibv_send_wr w = wr(IBV_WR_SEND, 1, NULL, 0);

	post(&p.a, &w);
}

static void srq_err(void)
{
	static const uint64_t MARK = 0xfe110ce5f00d2222;
	struct ibv_srq *srq = share();
	struct mapping rings[64];

	MUST(post_shared_receive(srq, MARK, NULL, 0));
	for (int i = mapped_rings(rings, COUNT(rings)) - 1; i >= 0; i--)
		if (*(uint64_t *)(rings[i].at + UABI_CONTROL_SIZE) == MARK)
			atomic_store((_Atomic uint32_t *)(rings[i].at + UABI_PRODUCER), 1000);
	send_to_b();
	want(p.b.ctx, IBV_EVENT_SRQ_ERR, srq);
	end_sharing(srq);
}

static void srq_limit(void)
{
	struct ibv_srq_attr limit = { .srq_limit = 2 };
	struct ibv_srq *srq = share();

	for (int i = 0; i < 2; i++)
		MUST(post_shared_receive(srq, i, NULL, 0));
	MUST(ibv_modify_srq(srq, &limit, IBV_SRQ_LIMIT));
	send_to_b();
	want(p.b.ctx, IBV_EVENT_SRQ_LIMIT_REACHED, srq);
	end_sharing(srq);
}

static void last_wqe(void)
{
	struct ibv_srq *srq = share();

	MUST(to_state(&p.b, IBV_QPS_ERR));
	want(p.b.ctx, IBV_EVENT_QP_LAST_WQE_REACHED, p.b.qp);
	end_sharing(srq);
}

/* Runs a command about the device of a (%1$s), or its netdev (%2$s). */
static void tell(const char *how)
{
	char path[160], netdev[32] = "", line[160];
	FILE *f;

	snprintf(path, sizeof(path), "/sys/class/infiniband/%s/ports/1/gid_attrs/ndevs/%d", places[0].device,
		 places[0].gid_index);
	f = fopen(path, "r");
	CHECK(f && fscanf(f, "%31s", netdev) == 1, "no netdev in %s", path);
	fclose(f);
	snprintf(line, sizeof(line), how, places[0].device, netdev);
	CHECK(!system(line), "%s", line);
}

/* As above, and waits for the event of the port. */
static void change(const char *how, enum ibv_event_type type)
{
	struct ibv_context *ctx = open_device(places[0].device);

	tell(how);
	want_of_port(ctx, type, type == IBV_EVENT_DEVICE_FATAL ? 0 : 1);
	MUST(ibv_close_device(ctx));
}

static void gid_change(void)
{
	change("ip address add 10.79.0.1/24 dev %2$s # %1$s", IBV_EVENT_GID_CHANGE);
}

static void port_err(void)
{
	change("ip link set %2$s down # %1$s", IBV_EVENT_PORT_ERR);
}

static void port_active(void)
{
	change("ip link set %2$s up # %1$s", IBV_EVENT_PORT_ACTIVE);
}

static void device_fatal(void)
{
	change("rdma link delete %1$s # %2$s", IBV_EVENT_DEVICE_FATAL);
}

/* In this order: the last ones take the port and the device away. */
#define EVENTS(ROW)                                                                                       \
	ROW(CQ_ERR, "completion queue", "a completion finds no room", cq_err)                             \
	ROW(QP_FATAL, "queue pair", "a completion of it is lost so", qp_fatal)                            \
	ROW(QP_REQ_ERR, "queue pair", "the peer writes, which it does not permit", qp_req_err)            \
	ROW(QP_ACCESS_ERR, "queue pair", "the peer writes with a key of nothing", qp_access_err)          \
	ROW(COMM_EST, "queue pair", "the peer sends while it is in RTR", comm_est)                        \
	ROW(SQ_DRAINED, "queue pair", "it is moved to SQD", sq_drained)                                   \
	ROW(SRQ_ERR, "shared receive queue", "its process writes an index that cannot be", srq_err)       \
	ROW(SRQ_LIMIT_REACHED, "shared receive queue", "a message takes one more receive", srq_limit)     \
	ROW(QP_LAST_WQE_REACHED, "queue pair", "it shares receives, and is moved to ERR", last_wqe)       \
	ROW(GID_CHANGE, "port", "the netdev gets another address", gid_change)                            \
	ROW(PORT_ERR, "port", "the netdev goes down", port_err)                                           \
	ROW(PORT_ACTIVE, "port", "the netdev comes up", port_active)                                      \
	ROW(DEVICE_FATAL, "device", "rdma link delete", device_fatal)                                     \
	ROW(PATH_MIG, "never", "RoCE has no alternate paths", NULL)                                       \
	ROW(PATH_MIG_ERR, "never", "RoCE has no alternate paths", NULL)                                   \
	ROW(LID_CHANGE, "never", "RoCE has no LIDs", NULL)                                                \
	ROW(SM_CHANGE, "never", "RoCE has no subnet manager", NULL)                                       \
	ROW(CLIENT_REREGISTER, "never", "RoCE has no subnet manager", NULL)                               \
	ROW(PKEY_CHANGE, "never", "RoCE has one P_Key, the default", NULL)                                \
	ROW(WQ_FATAL, "never", "there are no work queues without queue pairs", NULL)

static const struct {
	enum ibv_event_type type;
	const char *name, *object, *by;
	void (*provoke)(void);
} events[] = {
#define ROW(event, object, by, provoke) { IBV_EVENT_##event, #event, object, by, provoke },
	EVENTS(ROW)
#undef ROW
};

/* The link's speed has changed: it came with libibverbs of rdma-core 65, and ferroce's never changes. */
enum { SPEED_CHANGE = COUNT(events) };

static bool in_table(enum ibv_event_type type)
{
	for (size_t i = 0; i < COUNT(events); i++)
		if (events[i].type == type)
			return true;
	return false;
}

static void every_event(void)
{
	for (size_t i = 0; i < COUNT(events); i++) {
		CHECK(in_table(i), "event %zu is not in the table", i);
		if (events[i].provoke)
			events[i].provoke();
		printf("%-20s | %-20s | %s\n", events[i].name, events[i].object, events[i].by);
		fflush(stdout);
	}
	for (int i = COUNT(events); strcmp(ibv_event_type_str(i), "unknown"); i++)
		CHECK(i == SPEED_CHANGE, "libibverbs knows an event %d, %s, that the table does not name", i,
		      ibv_event_type_str(i));
}

/* Nobody who waits for a peer does so any longer: requests come back before the device goes, however many. */
static void netdev_gone(void)
{
	enum { MANY = 8192 };
	struct side many;
	struct ibv_sge list;

	pair_open(&p, NULL, 4096);
	list = sge(&p.b, 0, 4096);
	post_recv(&p.b, MANY, &list, 1);
	many = p.b;
	many.cq = ibv_create_cq(p.b.ctx, MANY, NULL, NULL, 0);
	CHECK(many.cq, "a completion queue of %d: %m", MANY);
	struct ibv_qp_init_attr init = {
		.send_cq = many.cq,
		.recv_cq = many.cq,
		.cap = { .max_send_wr = 1, .max_recv_wr = MANY, .max_send_sge = 1, .max_recv_sge = 1 },
		.qp_type = IBV_QPT_RC,
	};
	many.qp = ibv_create_qp(p.b.pd, &init);
	CHECK(many.qp, "%d receives: %m", MANY);
	MUST(to_init(&p, &many));
	for (int i = 0; i < MANY; i++)
		post_recv(&many, i, &list, 1);
	tell("ip link delete %2$s # %1$s");
	want_of_port(p.b.ctx, IBV_EVENT_DEVICE_FATAL, 0);
	expect(&p.b, MANY, IBV_WC_WR_FLUSH_ERR, "the receive of a connection");
	for (int i = 0; i < MANY; i++)
		expect(&many, i, IBV_WC_WR_FLUSH_ERR, "a receive of many");
}

void observed(void);

const struct test_case table_cases[] = {
	{ "every-event", every_event, "each asynchronous event, with its object", .paths = BY_HAND,
	  .rxe = "tells not all of them" },
	{ "netdev-gone", netdev_gone, "what waits comes back when the netdev goes", .paths = BY_HAND,
	  .rxe = "destroys it without a word" },
	{ "observed", observed, "objects that are looked at from outside", .paths = BY_HAND, .rxe = "tells no details" },
	{ NULL },
};
