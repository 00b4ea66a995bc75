// SPDX-License-Identifier: GPL-2.0
/* Every asynchronous event: provoked, and named in one printed table with what it is about. */
#include "pair.h"

/* b takes its receives from this one where a row needs it. */
static struct ibv_srq *srq;

/* Waits for an event. Another may come before it: a queue that overruns fails its queue pair, too. */
static struct ibv_async_event wait_for(struct ibv_context *ctx, enum ibv_event_type type)
{
	struct ibv_async_event e;

	do
		CHECK(next_device_event(ctx, 1000 * patience(), &e), "no event \"%s\"", ibv_event_type_str(type));
	while (e.event_type != type);
	return e;
}

/* It is about this port, or with 0 about the device. */
static void want_of_port(struct ibv_context *ctx, enum ibv_event_type type, int port)
{
	int is = wait_for(ctx, type).element.port_num;

	CHECK(is == port, "the event \"%s\" is about port %d", ibv_event_type_str(type), is);
}

/* A queue with one place too few for the completions of a. */
static void overrun(void)
{
	pair_open(&p, NULL, 4096);
	use_cq(&p, new_cq(p.a.ctx, 1, NULL, NULL));
	for (int i = 0; i <= p.a.cq->cqe; i++)
		post_one(&p.a, IBV_WR_RDMA_WRITE, 1, 0, 0);
}

static void write_to_b(uint32_t other_key)
{
	post_named(&p.a, IBV_WR_RDMA_WRITE, 1, 0, 100, (uintptr_t)p.b.buf, p.b.mr->rkey ^ other_key);
}

static void denied(void)
{
	pair_open(&p, &(struct options){ .qp_access = NONE }, 4096);
	write_to_b(0);
}

static void wrong_key(void)
{
	pair_open(&p, NULL, 4096);
	write_to_b(0x5500);
}

static void send_in_rtr(void)
{
	pair_open_b_in_rtr(&p, NULL, 4096);
	write_to_b(0);
}

/* However many packets come: the next event is that of the second write here. */
static void comes_once(void)
{
	write_to_b(0);
	write_to_b(0x5500);
	want_device_event(p.b.ctx, IBV_EVENT_QP_ACCESS_ERR, p.b.qp, "a WRITE with a wrong key");
}

static void to_sqd(void)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_SQD, .en_sqd_async_notify = 1 };

	pair_open(&p, NULL, 4096);
	MUST(ibv_modify_qp(p.a.qp, &attr, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY));
}

static void share(void)
{
	static const struct ibv_qp_cap cap = { .max_send_wr = 4, .max_send_sge = 1 };

	pair_open(&p, NULL, 4096);
	srq = new_srq(p.b.pd, 4, 1);
	DESTROY(p.b.qp);
	p.b.qp = new_sharing_qp_of(IBV_QPT_RC, p.b.pd, p.b.cq, cap, srq);
	pair_reconnect(&p, NULL);
}

static void wrong_index(void)
{
	static const uint64_t MARK = 0xfe110ce5f00d2222;

	share();
	MUST(post_shared_receive(srq, MARK, NULL, 0));
	atomic_store(producer_of(marked_ring(MARK, 0)), 1000);
	post_one(&p.a, IBV_WR_SEND, 1, 0, 0);
}

static void its_user_fails(void)
{
	want_state(&p.b, IBV_QPS_ERR, "the queue pair that wanted a receive");
}

static void below_limit(void)
{
	struct ibv_srq_attr limit = { .srq_limit = 2 };

	share();
	for (int i = 0; i < 2; i++)
		MUST(post_shared_receive(srq, i, NULL, 0));
	MUST(ibv_modify_srq(srq, &limit, IBV_SRQ_LIMIT));
	post_one(&p.a, IBV_WR_SEND, 1, 0, 0);
}

static void shares_and_fails(void)
{
	share();
	MUST(to_state(&p.b, IBV_QPS_ERR));
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

/* In this order: the last ones take the port and the device away. */
static const struct {
	enum ibv_event_type type;
	const char *name, *object, *by;
	/* Opens a pair and does it to the object here; and what is looked at afterwards. */
	void (*provoke)(void);
	void *about;
	void (*afterwards)(void);
	const char *told;	/* in place of a function: a command about the device of a (%1$s), or its netdev (%2$s) */
} events[] = {
#define EVENT(name) IBV_EVENT_##name, #name
	{ EVENT(CQ_ERR), "completion queue", "a completion finds no room", overrun, &p.a.cq },
	{ EVENT(QP_FATAL), "queue pair", "a completion of it is lost so", overrun, &p.a.qp },
	{ EVENT(QP_REQ_ERR), "queue pair", "the peer writes, which it does not permit", denied, &p.b.qp },
	{ EVENT(QP_ACCESS_ERR), "queue pair", "the peer writes with a key of nothing", wrong_key, &p.b.qp },
	{ EVENT(COMM_EST), "queue pair", "the peer sends while it is in RTR", send_in_rtr, &p.b.qp, comes_once },
	{ EVENT(SQ_DRAINED), "queue pair", "it is moved to SQD", to_sqd, &p.a.qp },
	{ EVENT(SRQ_ERR), "shared receive queue", "its process writes an index that cannot be", wrong_index, &srq,
	  its_user_fails },
	{ EVENT(SRQ_LIMIT_REACHED), "shared receive queue", "a message takes one more receive", below_limit, &srq },
	{ EVENT(QP_LAST_WQE_REACHED), "queue pair", "it shares receives, and is moved to ERR", shares_and_fails, &p.b.qp },
	{ EVENT(GID_CHANGE), "port", "the netdev gets another address",
	  .told = "ip address add 10.79.0.1/24 dev %2$s # %1$s" },
	{ EVENT(PORT_ERR), "port", "the netdev goes down", .told = "ip link set %2$s down # %1$s" },
	{ EVENT(PORT_ACTIVE), "port", "the netdev comes up", .told = "ip link set %2$s up # %1$s" },
	{ EVENT(DEVICE_FATAL), "device", "rdma link delete", .told = "rdma link delete %1$s # %2$s" },
	{ EVENT(PATH_MIG), "never", "RoCE has no alternate paths" },
	{ EVENT(PATH_MIG_ERR), "never", "RoCE has no alternate paths" },
	{ EVENT(LID_CHANGE), "never", "RoCE has no LIDs" },
	{ EVENT(SM_CHANGE), "never", "RoCE has no subnet manager" },
	{ EVENT(CLIENT_REREGISTER), "never", "RoCE has no subnet manager" },
	{ EVENT(PKEY_CHANGE), "never", "RoCE has one P_Key, the default" },
	{ EVENT(WQ_FATAL), "never", "there are no work queues without queue pairs" },
#undef EVENT
};

/* Each row opens pairs of its own. */
static void provoke(size_t i)
{
	events[i].provoke();
	void *object = *(void **)events[i].about;
	/* Both sides may be of one device. */
	struct ibv_context *ctx = object == p.a.cq || object == p.a.qp ? p.a.ctx : p.b.ctx;

	CHECK(wait_for(ctx, events[i].type).element.qp == object, "the event %s is about something else", events[i].name);
	if (events[i].afterwards)
		events[i].afterwards();
	if (srq) {
		DESTROY(p.b.qp, srq);
		p.b.qp = NULL;
		srq = NULL;
	}
	pair_close(&p);
}

/* The link's speed has changed: it came with libibverbs of rdma-core 65, and ferroce's never changes. */
enum { SPEED_CHANGE = COUNT(events) };

static bool in_table(enum ibv_event_type type)
{
	for (size_t i = 0; i < COUNT(events); i++)
		if (events[i].type == type)
			return true;
	return false;
}

CASE("tables.every-event", "each asynchronous event, with its object", .paths = BY_HAND, .rxe = "tells not all of them")
{
	for (size_t i = 0; i < COUNT(events); i++) {
		CHECK(in_table(i), "event %zu is not in the table", i);
		if (events[i].provoke)
			provoke(i);
		if (events[i].told) {
			struct ibv_context *ctx = open_device(places[0].device);

			tell(events[i].told);
			want_of_port(ctx, events[i].type, events[i].type == IBV_EVENT_DEVICE_FATAL ? 0 : 1);
			DESTROY(ctx);
		}
		printf("%-20s | %-20s | %s\n", events[i].name, events[i].object, events[i].by);
		fflush(stdout);
	}
	for (int i = COUNT(events); strcmp(ibv_event_type_str(i), "unknown"); i++)
		CHECK(i == SPEED_CHANGE, "libibverbs knows an event %d, %s, that the table does not name", i,
		      ibv_event_type_str(i));
}

CASE("tables.netdev-gone", "what waits comes back when the netdev goes, and what is late is refused", .paths = BY_HAND,
     .rxe = "destroys it without a word")
{
	enum { MANY = 8192 };

	pair_open(&p, NULL, 4096);
	post_room(&p.b, MANY, 0, 4096);
	struct side many = p.b;

	many.cq = new_cq(p.b.ctx, MANY, NULL, NULL);
	many.qp = new_qp(p.b.pd, many.cq, (struct ibv_qp_cap){ 1, MANY, 1, 1, 0 });
	MUST(to_init(&p, &many));
	for (int i = 0; i < MANY; i++)
		post_room(&many, i, 0, 4096);
	tell("ip link delete %2$s # %1$s");
	want_of_port(p.b.ctx, IBV_EVENT_DEVICE_FATAL, 0);
	expect(&p.b, MANY, IBV_WC_WR_FLUSH_ERR, "the receive of a connection");
	for (int i = 0; i < MANY; i++)
		expect(&many, i, IBV_WC_WR_FLUSH_ERR, "a receive of many");

	/* One more would never come back, so it is refused. */
	struct ibv_send_wr late = wr(IBV_WR_SEND, 1, NULL, 0);
	struct ibv_qp *receivers[] = { p.b.qp, many.qp };
	int error = post_send(p.a.qp, &late);

	CHECK(error == EIO, "a send of a device that is gone: %s", strerror(error));
	for (size_t i = 0; i < COUNT(receivers); i++) {
		error = post_receive(receivers[i], 1, NULL, 0);
		CHECK(error == EIO, "a receive of a device that is gone: %s", strerror(error));
	}
}

void observed(void);
