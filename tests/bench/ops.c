// SPDX-License-Identifier: GPL-2.0
/*
 * What one operation costs: two queue pairs in one process, which posts and polls for both and gives the processor
 * away when there is nothing to poll. On a machine with one processor whose clock counts instructions, time is the
 * work of everybody: of the program, the provider, the kernel, and the threads the driver hands its work to.
 *
 * ops DEVICE GID DEVICE GID     the two ends, by device name and index in its GID table; the same twice is one device
 * ops DEVICE GID DEVICE GID ROW the same operations again and again; prints the address of an instruction that is
 *                               carried out once for each batch, and how many operations that is
 *
 * Then what it costs to set up a connection, and what becomes dearer when there are many: of others of the same kind, idle
 * or all of them busy in turn.
 *
 * The memory of each end is one huge page: how many pieces a registered region has is the same in every boot then.
 *
 * Prints a line for each row: its name and nanoseconds of one operation, in the best of some rounds. `note: ` begins
 * what else must be said.
 */
#include "rdma.h"

#include <sched.h>

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

enum { DEPTH = 64, ROOM = 1 << 20, HUGE_PAGE = 2 << 20, PSN = 100, QKEY = 0x1234, GRH = 40,
       WARM_UP = 3,
       /* The kernel's own work, such as that of a tick, falls into some of these and not into others. */
       ROUNDS = 5 };

/* `batch` operations are posted as one list, of which the last reports; `count` is a multiple of it. */
static const struct row {
	const char *name;
	enum ibv_wr_opcode op;
	uint32_t size;
	int mtu;
	int batch, count;
	enum ibv_qp_type type;	/* or RC */
	bool shared;		/* receives come from a shared queue */
} rows[] = {
	{ "SEND 64 B", IBV_WR_SEND, 64, 4096, 1, 200 },
	{ "SEND 64 B, lists of 32", IBV_WR_SEND, 64, 4096, 32, 640 },
	{ "WRITE 64 B", IBV_WR_RDMA_WRITE, 64, 4096, 1, 200 },
	{ "WRITE 64 B, lists of 32", IBV_WR_RDMA_WRITE, 64, 4096, 32, 640 },
	{ "READ 64 B", IBV_WR_RDMA_READ, 64, 4096, 1, 200 },
	{ "READ 64 B, lists of 32", IBV_WR_RDMA_READ, 64, 4096, 32, 320 },
	{ "SEND 64 KiB", IBV_WR_SEND, 64 << 10, 4096, 4, 40 },
	{ "WRITE 64 KiB", IBV_WR_RDMA_WRITE, 64 << 10, 4096, 4, 40 },
	{ "READ 64 KiB", IBV_WR_RDMA_READ, 64 << 10, 4096, 4, 40 },
	{ "WRITE 1 MiB", IBV_WR_RDMA_WRITE, 1 << 20, 4096, 1, 6 },
	{ "READ 1 MiB", IBV_WR_RDMA_READ, 1 << 20, 4096, 1, 6 },
	{ "WRITE 1 MiB MTU 1024", IBV_WR_RDMA_WRITE, 1 << 20, 1024, 1, 4 },
	{ "READ 1 MiB MTU 1024", IBV_WR_RDMA_READ, 1 << 20, 1024, 1, 4 },
	{ "FETCH_ADD 8 B", IBV_WR_ATOMIC_FETCH_AND_ADD, 8, 4096, 1, 200 },
	{ "CMP_SWAP 8 B", IBV_WR_ATOMIC_CMP_AND_SWP, 8, 4096, 1, 200 },
	{ "SEND 64 B, shared receives", IBV_WR_SEND, 64, 4096, 1, 200, .shared = true },
	{ "SEND 64 B, shared receives, lists of 32", IBV_WR_SEND, 64, 4096, 32, 640, .shared = true },
	{ "SEND 64 B, UC", IBV_WR_SEND, 64, 4096, 1, 200, IBV_QPT_UC },
	{ "SEND 64 B, UC, lists of 32", IBV_WR_SEND, 64, 4096, 32, 640, IBV_QPT_UC },
	{ "SEND 64 B, UD", IBV_WR_SEND, 64, 4096, 1, 200, IBV_QPT_UD },
	{ "SEND 64 B, UD, lists of 32", IBV_WR_SEND, 64, 4096, 32, 640, IBV_QPT_UD },
};

struct end {
	struct ibv_context *ctx;
	int gid_index;
	union ibv_gid gid;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_srq *srq;
	struct ibv_ah *ah;	/* to the other end */
	struct ibv_mr *mr;
	uint8_t *memory;
};

/* Collapsing is immediate, and says whether it was done. */
static uint8_t *huge_page(void)
{
	uint8_t *memory = new_memory(2 * HUGE_PAGE);

	memory += -(uintptr_t)memory % HUGE_PAGE;
	madvise(memory, HUGE_PAGE, MADV_HUGEPAGE);
	memset(memory, 1, HUGE_PAGE);
	if (madvise(memory, HUGE_PAGE, MADV_COLLAPSE))
		printf("note: no huge page (%s), so figures of 64 KiB and more differ from boot to boot\n",
		       strerror(errno));
	return memory;
}

static void open_end(struct end *e, const char *device, int gid_index)
{
	e->ctx = open_device(device);
	e->gid_index = gid_index;
	e->gid = gid_of(e->ctx, gid_index);
	e->pd = new_pd(e->ctx);
	e->memory = huge_page();
	e->mr = new_mr(e->pd, e->memory, ROOM, ALL_ACCESS);
	e->cq = new_cq(e->ctx, 4 * DEPTH, NULL, NULL);
}

static enum ibv_qp_type type_of(const struct row *row)
{
	return row->type ? row->type : IBV_QPT_RC;
}

static const struct connection connection_of_all = {
	.access = REMOTE_ACCESS, .qkey = QKEY, .rq_psn = PSN, .sq_psn = PSN, .rd_atomic = 16, .dest_rd_atomic = 16,
	.rnr_timer = 12, .timeout = 18, .retry_cnt = 7, .rnr_retry = 7, .hop_limit = 64,
};

static void open_qp(const struct row *row, struct end *e)
{
	int receives = row->shared ? 0 : DEPTH;
	struct ibv_qp_cap cap = { .max_send_wr = DEPTH, .max_recv_wr = receives, .max_send_sge = 1, .max_recv_sge = !!receives };

	e->ah = NULL;
	e->srq = row->shared ? new_srq(e->pd, DEPTH, 1) : NULL;
	e->qp = new_sharing_qp_of(type_of(row), e->pd, e->cq, cap, e->srq);
	must(qp_to_init(e->qp, &connection_of_all), "to INIT");
}

static struct ibv_ah *new_ah_to(struct end *e, const struct end *peer)
{
	return new_ah(e->pd, (struct ibv_ah_attr){
		.is_global = 1, .port_num = 1,
		.grh = { .dgid = peer->gid, .sgid_index = e->gid_index, .hop_limit = 64 },
	});
}

static void connect_end(const struct row *row, struct end *e, const struct end *peer)
{
	struct connection c = connection_of_all;

	c.gid_index = e->gid_index;
	c.gid = peer->gid;
	c.qpn = peer->qp->qp_num;
	c.mtu = row->mtu;
	must(qp_to_rtr(e->qp, &c), "to RTR");
	must(qp_to_rts(e->qp, &c), "to RTS");
	if (type_of(row) == IBV_QPT_UD)
		e->ah = new_ah_to(e, peer);
}

static void await(struct end *e, int count)
{
	struct ibv_wc wc[DEPTH];

	while (count) {
		int n = ibv_poll_cq(e->cq, DEPTH, wc);

		CHECK(n >= 0, "ibv_poll_cq: %d", n);
		for (int i = 0; i < n; i++)
			CHECK(wc[i].status == IBV_WC_SUCCESS, "%s", ibv_wc_status_str(wc[i].status));
		count -= n;
		if (!n)
			sched_yield();
	}
}

/* Posts one batch and waits until both ends know of it. */
static void batch(const void *what, struct end *from, struct end *to)
{
	const struct row *row = what;
	struct ibv_sge send_sge = { (uintptr_t)from->memory, row->size, from->mr->lkey };
	struct ibv_sge recv_sge = { (uintptr_t)to->memory, row->size + (to->ah ? GRH : 0), to->mr->lkey };
	struct ibv_send_wr wr[DEPTH];
	struct ibv_recv_wr recv[DEPTH], *bad;
	int i;

	if (row->op == IBV_WR_SEND) {
		for (i = 0; i < row->batch; i++)
			recv[i] = (struct ibv_recv_wr){ .next = &recv[i + 1], .sg_list = &recv_sge, .num_sge = 1 };
		recv[i - 1].next = NULL;
		MUST(to->srq ? ibv_post_srq_recv(to->srq, recv, &bad) : ibv_post_recv(to->qp, recv, &bad));
	}
	for (i = 0; i < row->batch; i++) {
		wr[i] = (struct ibv_send_wr){
			.next = &wr[i + 1], .sg_list = &send_sge, .num_sge = 1, .opcode = row->op,
			.wr.rdma = { (uintptr_t)to->memory, to->mr->rkey },
		};
		if (row->op == IBV_WR_ATOMIC_FETCH_AND_ADD || row->op == IBV_WR_ATOMIC_CMP_AND_SWP) {
			wr[i].wr.atomic.compare_add = wr[i].wr.atomic.swap = 1;
			wr[i].wr.atomic.remote_addr = (uintptr_t)to->memory;
			wr[i].wr.atomic.rkey = to->mr->rkey;
		} else if (from->ah) {
			wr[i].wr.ud.ah = from->ah;
			wr[i].wr.ud.remote_qpn = to->qp->qp_num;
			wr[i].wr.ud.remote_qkey = QKEY;
		}
	}
	wr[i - 1].next = NULL;
	wr[i - 1].send_flags = IBV_SEND_SIGNALED;
	MUST(post_send(from->qp, wr));
	await(from, 1);
	if (row->op == IBV_WR_SEND)
		await(to, row->batch);
}

static void close_qp(struct end *e)
{
	DESTROY(e->qp);
	if (e->ah)
		DESTROY(e->ah);
	if (e->srq)
		DESTROY(e->srq);
}

static void connect_both(const struct row *row, struct end *one, struct end *other)
{
	open_qp(row, one);
	open_qp(row, other);
	connect_end(row, one, other);
	connect_end(row, other, one);
}

/* Where one batch ends and the next one begins, for who watches the instructions. */
static __attribute__((noinline)) void mark(void)
{
	asm volatile("" ::: "memory");
}

typedef void work(const void *what, struct end *from, struct end *to);

/* Does it so many times in a round, of which the shortest counts, and each time is so many operations; or without end. */
static void time_of(const char *name, int times, int each, bool endless, work *once, const void *what, struct end *from,
		    struct end *to)
{
	double began, took, least = 1e9;

	for (int i = 0; i < WARM_UP; i++)
		once(what, from, to);
	if (endless) {
		printf("%p %d\n", (void *)mark, each);
		fflush(stdout);
	}
	while (endless) {
		mark();
		once(what, from, to);
	}
	for (int round = 0; round < ROUNDS; round++) {
		began = now();
		for (int i = 0; i < times; i++)
			once(what, from, to);
		took = now() - began;
		least = took < least ? took : least;
	}
	printf("%s: %.0f\n", name, least * 1e9 / (times * each));
	fflush(stdout);
}

static void measure(const struct row *row, bool endless, struct end *from, struct end *to)
{
	connect_both(row, from, to);
	time_of(row->name, row->count / row->batch, row->batch, endless, batch, row, from, to);
	close_qp(from);
	close_qp(to);
}

static const struct row plain = { "", IBV_WR_RDMA_WRITE, 64, 4096, 1, 1 };

static void queue_pair(const void *what, struct end *from, struct end *to)
{
	open_qp(&plain, from);
	close_qp(from);
}

static void connection(const void *what, struct end *from, struct end *to)
{
	connect_both(&plain, from, to);
	close_qp(from);
	close_qp(to);
}

static void completion_queue(const void *what, struct end *from, struct end *to)
{
	DESTROY(new_cq(from->ctx, DEPTH, NULL, NULL));
}

static struct ibv_mr *region(struct end *e, size_t size)
{
	return new_mr(e->pd, e->memory, size, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
}

static void small_region(const void *what, struct end *from, struct end *to)
{
	DESTROY(region(from, 4096));
}

static void large_region(const void *what, struct end *from, struct end *to)
{
	DESTROY(region(from, ROOM));
}

static void address_handle(const void *what, struct end *from, struct end *to)
{
	DESTROY(new_ah_to(from, to));
}

/* What is made and destroyed, while there are so many other regions. */
static const struct set_up {
	const char *name;
	work *once;
	int count, regions;
} set_ups[] = {
	{ "queue pair to INIT, destroyed", queue_pair, 50 },
	{ "two queue pairs to RTS, destroyed", connection, 50 },
	{ "completion queue, destroyed", completion_queue, 50 },
	{ "address handle, destroyed", address_handle, 50 },
	{ "region of 4 KiB, deregistered", small_region, 100 },
	{ "region of 1 MiB, deregistered", large_region, 50 },
	{ "region of 4 KiB beside 20,000, deregistered", small_region, 100, 20000 },
};

static void measure_set_up(const struct set_up *row, bool endless, struct end *from, struct end *to)
{
	struct ibv_mr **others = MADE(calloc(row->regions + 1, sizeof(*others)));

	for (int i = 0; i < row->regions; i++)
		others[i] = region(from, 4096);
	time_of(row->name, row->count, 1, endless, row->once, NULL, from, to);
	for (int i = 0; i < row->regions; i++)
		DESTROY(others[i]);
	free(others);
}

enum { MANY = 1024 };
static struct ibv_qp *ones[MANY], *others[MANY];

static void in_turn(const void *what, struct end *from, struct end *to)
{
	for (int i = 0; i < MANY; i++) {
		from->qp = ones[i];
		batch(&plain, from, to);
	}
}

/* WRITEs of many queue pairs in turn, of which each has one on its way. */
static void measure_many(struct end *from, struct end *to)
{
	char name[64];

	for (int i = 0; i < MANY; i++) {
		connect_both(&plain, from, to);
		ones[i] = from->qp;
		others[i] = to->qp;
	}
	snprintf(name, sizeof(name), "WRITE 64 B of %d queue pairs in turn", MANY);
	time_of(name, 1, MANY, false, in_turn, NULL, from, to);
	for (int i = 0; i < MANY; i++)
		DESTROY(ones[i], others[i]);
}

int main(int argc, char **argv)
{
	struct end from = { 0 }, to = { 0 };

	if (argc < 5 || argc > 6)
		return 2;
	open_end(&from, argv[1], atoi(argv[2]));
	open_end(&to, argv[3], atoi(argv[4]));
	for (size_t i = 0; i < COUNT(rows); i++)
		if (argc == 5 || !strcmp(rows[i].name, argv[5]))
			measure(&rows[i], argc == 6, &from, &to);
	/* What is set up does not know yet where the other end is. */
	for (size_t i = 0; i < COUNT(set_ups) && !strcmp(argv[1], argv[3]); i++)
		if (argc == 5 || !strcmp(set_ups[i].name, argv[5]))
			measure_set_up(&set_ups[i], argc == 6, &from, &to);
	if (argc == 6)
		fail("there is no row %s", argv[5]);
	measure_many(&from, &to);
	return 0;
}
