// SPDX-License-Identifier: GPL-2.0
/*
 * verbs_traffic DEVICE GID_INDEX SIZE FD [asks] [shares] [datagrams]: one side of traffic that never ends by itself, for
 * everything to be taken away from under it; the other side is at the other end of the socket FD. It sends, receives,
 * polls and waits for events, and goes on doing so when everything is gone. What succeeds must have moved the right
 * bytes, and what fails must have failed for want of the other side or of the device.
 *
 * It says "running PID" when a message each way is complete, "closed PID" after a SIGUSR2, "error PID STATUS" once when
 * completions say that the other side, or the device, is gone, and "broken PID TEXT" for all that may never be. SIGUSR1:
 * it destroys everything in the middle. SIGUSR2: it closes the command file.
 */
#include "rdma.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

/* How it ends. BROKEN is the only wrong one; most are killed. See traffic.py. */
enum { BROKEN = 1, NO_DEVICE = 3, DESTROYED = 4, PEER_GONE = 5 };

/* Turns are numbered from 0; those of receives have a bit of their own in the wr_id, and the number of their room. */
enum { DEPTH = 32, ROOMS = 8, UNTOUCHED = 0xee };
#define RECEIVE (1ull << 63)

/* What messages are made of; what the other side writes; what was read from it; and a room for each receive. */
enum area { SOURCE, WRITTEN, FETCHED, ROOM };

/* Behind the areas: the word that the other side counts in, and what this one has found there. */
struct words {
	uint64_t counter;
	uint64_t found[DEPTH];
};

struct contact {
	union ibv_gid gid;
	uint64_t addr, counter;
	uint32_t qpn, rkey, loose_qpn;
	uint32_t seed;		/* of the pattern in SOURCE */
};

static struct ibv_context *ctx;
static struct ibv_pd *pd;
static struct ibv_comp_channel *channel;
static struct ibv_cq *cq;
static struct ibv_mr *mr;
static struct ibv_qp *qp;
static struct ibv_srq *srq;
static struct ibv_mw *mw;
static uint32_t window_key;
static uint8_t *memory;
static struct words *words;
static struct contact here, there;
static const char *device;
static int gid_index, peer;
/* Bytes of the largest message. */
static uint32_t size;
/* It posts WRITE, READ and SEND, the other side SEND only; its receives are in a shared queue; beside the connection there
 * are datagrams, not messages of UC. */
static bool asks, shares, datagrams;
static volatile sig_atomic_t destroy_asked, close_asked;
static bool device_gone, room_posted[ROOMS];
static uint64_t turn;
static uint32_t sends, received;
static bool sent, running, failing;

/* One write each, so that lines of several processes do not mix. */
#define say(word, ...) say_of(getpid(), word, __VA_ARGS__)
#define say_of(pid, word, fmt, ...) dprintf(1, word " %d " fmt "\n", pid, ##__VA_ARGS__)
#define broken(...) do { say("broken", __VA_ARGS__); _exit(BROKEN); } while (0)

static void on_signal(int number)
{
	if (number == SIGUSR1)
		destroy_asked = 1;
	else
		close_asked = 1;
}

static void look_for_events(void)
{
	struct ibv_async_event event;
	struct ibv_cq *which;
	void *context;

	while (ctx && next_device_event(ctx, 0, &event))
		device_gone |= event.event_type == IBV_EVENT_DEVICE_FATAL;
	if (channel && !ibv_get_cq_event(channel, &which, &context))
		ibv_ack_cq_events(which, 1);
}

/* A verb has failed. That the device is gone, or on its way out, is the only excuse. */
static void failed(const char *text)
{
	char path[128];

	snprintf(path, sizeof(path), "/sys/class/infiniband/%s", device);
	for (double end = now() + patience(); !device_gone && !access(path, F_OK); usleep(10000)) {
		if (now() > end)
			broken("%s", text);
		look_for_events();
	}
	_exit(NO_DEVICE);
}

static void wrong_bytes(const char *text)
{
	broken("%s", text);
}

static void same_bytes(const uint8_t *at, uint32_t len, const char *what)
{
	on_failure = wrong_bytes;
	compare_piece(at, 0, len, there.seed, what);
	on_failure = failed;
}

static uint8_t *place(enum area area)
{
	return memory + (size_t)area * size;
}

static void swap(const void *mine, void *theirs, size_t len)
{
	if (!swap_over(peer, mine, theirs, len))
		_exit(PEER_GONE);
}

/*
 * Messages of UC, or datagrams, that nobody answers. They may be lost, and are when things are taken away; what comes must
 * be whole. Handles of datagrams are made and destroyed all the time. Their wr_ids have the bit LOOSE, those of receives
 * LOOSE_RECEIVE as well.
 */
enum { LOOSE_DEPTH = 8, LOOSE_ROOMS = 4, GRH = 40, QKEY = 0x1dea, MOST = 1024 };
#define LOOSE (1ull << 62)
#define LOOSE_RECEIVE (1ull << 61)

static struct {
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	struct ibv_ah_attr peer;
	/* The second handle was the first one before, and requests before `old_until` may still name it. */
	struct ibv_ah *ah, *old_ah;
	uint64_t turn, old_until;
	uint8_t *rooms;
	bool posted[LOOSE_ROOMS];
} loose;

static uint32_t loose_size(void)
{
	return size < MOST ? size : MOST;
}

static void open_loose(void)
{
	loose.rooms = new_memory(LOOSE_ROOMS * (GRH + MOST));
	loose.mr = new_mr(pd, loose.rooms, LOOSE_ROOMS * (GRH + MOST), IBV_ACCESS_LOCAL_WRITE);
	loose.qp = new_qp_of(datagrams ? IBV_QPT_UD : IBV_QPT_UC, pd, cq,
			     (struct ibv_qp_cap){ LOOSE_DEPTH, LOOSE_ROOMS, 1, 1, 0 });
}

static void connect_loose(struct connection c)
{
	c.qpn = there.loose_qpn;
	c.access = IBV_ACCESS_REMOTE_WRITE;
	c.qkey = QKEY;
	connect_qp(loose.qp, &c);
	loose.peer = (struct ibv_ah_attr){ .is_global = 1, .port_num = 1,
					   .grh = { .sgid_index = gid_index, .hop_limit = 64, .dgid = there.gid } };
	if (datagrams)
		loose.ah = new_ah(pd, loose.peer);
}

static void post_loose(void)
{
	for (int i = 0; i < LOOSE_ROOMS; i++) {
		struct ibv_sge room = { .addr = (uintptr_t)loose.rooms + i * (GRH + MOST), .length = GRH + MOST,
					.lkey = loose.mr->lkey };

		loose.posted[i] = loose.posted[i] || !post_receive(loose.qp, LOOSE | LOOSE_RECEIVE | i, &room, 1);
	}
	for (int i = 0; i < 2 && (!datagrams || loose.ah); i++, loose.turn++) {
		struct ibv_sge list = { .addr = (uintptr_t)place(SOURCE), .length = loose.turn % 3 ? loose_size() : 1,
					.lkey = mr->lkey };
		struct ibv_send_wr w = { .wr_id = LOOSE | loose.turn, .opcode = IBV_WR_SEND, .sg_list = &list,
					 .num_sge = 1, .send_flags = loose.turn % 4 ? 0 : IBV_SEND_SIGNALED };

		if (datagrams) {
			w.wr.ud.ah = loose.ah;
			w.wr.ud.remote_qpn = there.loose_qpn;
			w.wr.ud.remote_qkey = QKEY;
		}
		if (post_send(loose.qp, &w))
			break;
	}
}

/* A new handle in place of the old one, which goes when the datagrams that name it have gone. */
static void renew_handle(void)
{
	if (!loose.ah || loose.old_ah)
		return;
	loose.old_ah = loose.ah;
	loose.old_until = loose.turn;
	/* Refused when the device goes: then there are no datagrams any more. */
	loose.ah = ibv_create_ah(pd, &loose.peer);
}

static void take_loose(const struct ibv_wc *wc)
{
	const uint32_t header = datagrams ? GRH : 0, len = wc->byte_len - header;
	const int room = wc->wr_id & 0xff;

	if (wc->status != IBV_WC_SUCCESS && wc->status != IBV_WC_WR_FLUSH_ERR)
		broken("a message that may be lost: %s", ibv_wc_status_str(wc->status));
	if (!(wc->wr_id & LOOSE_RECEIVE)) {
		if (loose.old_ah && (wc->wr_id & ~LOOSE) >= loose.old_until) {
			ibv_destroy_ah(loose.old_ah);
			loose.old_ah = NULL;
		}
		return;
	}
	loose.posted[room] = false;
	if (wc->status != IBV_WC_SUCCESS)
		return;
	if (wc->byte_len < header || (len != 1 && len != loose_size()))
		broken("%u bytes of a message that may be lost", wc->byte_len);
	same_bytes(loose.rooms + room * (GRH + MOST) + header, len, "a message that may be lost");
}

static void destroy_loose(void)
{
	DESTROY(loose.qp);
	if (loose.old_ah)
		DESTROY(loose.old_ah);
	if (loose.ah)
		DESTROY(loose.ah);
	DESTROY(loose.mr);
}

static void set_up(void)
{
	size_t areas = (size_t)(ROOM + ROOMS) * size, len = ((areas + 7) & ~7ul) + sizeof(*words);

	ctx = open_device(device);
	pd = new_pd(ctx);
	channel = new_channel(ctx);
	cq = new_cq(ctx, 4 * DEPTH, channel, NULL);
	memory = new_memory(len);
	memset(memory, UNTOUCHED, areas);
	words = (struct words *)(memory + len - sizeof(*words));
	mr = new_mr(pd, memory, len, ALL_ACCESS | IBV_ACCESS_MW_BIND);
	mw = new_mw(pd, IBV_MW_TYPE_2);
	window_key = mw->rkey;
	if (shares) {
		srq = new_srq(pd, ROOMS, 1);
		qp = new_sharing_qp(pd, cq, (struct ibv_qp_cap){ DEPTH, 0, 1, 0, 0 }, srq);
	} else {
		qp = new_qp(pd, cq, (struct ibv_qp_cap){ DEPTH, ROOMS, 1, 1, 0 });
	}
	open_loose();
	here = (struct contact){ .gid = gid_of(ctx, gid_index), .addr = (uintptr_t)memory, .rkey = mr->rkey,
				 .qpn = qp->qp_num, .seed = getpid(), .counter = (uintptr_t)&words->counter,
				 .loose_qpn = loose.qp->qp_num };
	fill_piece(place(SOURCE), 0, size, here.seed);
	swap(&here, &there, sizeof(here));
}

static void connect_to_peer(void)
{
	/* Retries that go on for about two seconds: there is always a timer running. */
	struct connection c = usual;
	char mine = 'x', theirs;

	c.gid_index = gid_index;
	c.gid = there.gid;
	c.qpn = there.qpn;
	c.rnr_timer = 5;
	connect_qp(qp, &c);
	connect_loose(c);
	swap(&mine, &theirs, 1);
}

/* One side counts in the other's memory, the other binds its window and takes it back. */
static enum ibv_wr_opcode op_of(uint64_t n)
{
	if (!asks)
		return n % 7 == 2 ? IBV_WR_BIND_MW : n % 7 == 3 ? IBV_WR_LOCAL_INV : IBV_WR_SEND_WITH_IMM;
	if (n % 7 == 3)
		return IBV_WR_ATOMIC_FETCH_AND_ADD;
	return n % 3 == 0 ? IBV_WR_SEND_WITH_IMM : n % 3 == 1 ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ;
}

/* Where the n-th request finds what it adds to. */
static uint64_t *found_by(uint64_t n)
{
	return &words->found[n / 7 % DEPTH];
}

static uint32_t len_of(uint64_t n)
{
	return n % 5 ? size : 1;
}

/* Fills all queues. What is refused is refused because a queue is full, or because nothing is there any more. */
static void post_all(void)
{
	for (int i = 0; i < ROOMS; i++) {
		struct ibv_sge room = { .addr = (uintptr_t)place(ROOM + i), .length = size, .lkey = mr->lkey };

		if (!room_posted[i])
			room_posted[i] = !(srq ? post_shared_receive(srq, RECEIVE | i, &room, 1)
					       : post_receive(qp, RECEIVE | i, &room, 1));
	}
	post_loose();
	for (int i = 0; i < DEPTH; i++) {
		enum ibv_wr_opcode op = op_of(turn);
		bool reads = op == IBV_WR_RDMA_READ;
		struct ibv_sge list = { .addr = (uintptr_t)place(reads ? FETCHED : SOURCE), .length = len_of(turn),
					.lkey = mr->lkey };
		struct ibv_send_wr w = { .wr_id = turn, .opcode = op, .sg_list = &list, .num_sge = 1,
					 .send_flags = turn % 4 ? 0 : IBV_SEND_SIGNALED };

		/* SENDs are counted, so that none is lost, doubled or overtaken unseen. */
		if (op == IBV_WR_SEND_WITH_IMM)
			w.imm_data = htonl(sends);
		if (op == IBV_WR_ATOMIC_FETCH_AND_ADD) {
			list = (struct ibv_sge){ .addr = (uintptr_t)found_by(turn), .length = 8, .lkey = mr->lkey };
			w.wr.atomic.remote_addr = there.counter;
			w.wr.atomic.rkey = there.rkey;
			w.wr.atomic.compare_add = 1;
		} else if (op == IBV_WR_BIND_MW) {
			w.bind_mw.mw = mw;
			w.bind_mw.rkey = ibv_inc_rkey(window_key);
			w.bind_mw.bind_info = (struct ibv_mw_bind_info){ .mr = mr, .addr = (uintptr_t)memory,
									 .length = size,
									 .mw_access_flags = REMOTE_ACCESS };
		} else if (op == IBV_WR_LOCAL_INV) {
			w.invalidate_rkey = window_key;
		} else {
			w.wr.rdma.remote_addr = there.addr + (reads ? SOURCE : WRITTEN) * (uint64_t)size;
			w.wr.rdma.rkey = there.rkey;
		}
		if (op == IBV_WR_BIND_MW || op == IBV_WR_LOCAL_INV)
			w.num_sge = 0;
		int refused = post_send(qp, &w);

		if (refused == ENOMEM)
			break;
		/* It stands in the ring. Only the doorbell may have failed, when the device goes: it may be done yet. */
		turn++;
		sends += op == IBV_WR_SEND_WITH_IMM;
		if (op == IBV_WR_BIND_MW)
			window_key = w.bind_mw.rkey;
		if (refused)
			break;
	}
}

static void take_receive(const struct ibv_wc *wc)
{
	uint8_t *room = place(ROOM + (wc->wr_id & ~RECEIVE));

	if (wc->opcode != IBV_WC_RECV || ntohl(wc->imm_data) != received)
		broken("receive %u has opcode %d and the number %u", received, wc->opcode, ntohl(wc->imm_data));
	if (wc->byte_len != size && wc->byte_len != 1)
		broken("receive %u has %u bytes", received, wc->byte_len);
	same_bytes(room, wc->byte_len, "received data");
	memset(room, UNTOUCHED, size);
	/* The side that asks has written once before its second SEND. */
	if (!asks && received)
		same_bytes(place(WRITTEN), size, "data written by the other side");
	received++;
}

static void take_sent(const struct ibv_wc *wc)
{
	static const enum ibv_wc_opcode opcode[] = { [IBV_WR_SEND_WITH_IMM] = IBV_WC_SEND,
						     [IBV_WR_RDMA_WRITE] = IBV_WC_RDMA_WRITE,
						     [IBV_WR_RDMA_READ] = IBV_WC_RDMA_READ,
						     [IBV_WR_ATOMIC_FETCH_AND_ADD] = IBV_WC_FETCH_ADD,
						     [IBV_WR_BIND_MW] = IBV_WC_BIND_MW,
						     [IBV_WR_LOCAL_INV] = IBV_WC_LOCAL_INV };
	enum ibv_wr_opcode op = op_of(wc->wr_id);

	if (wc->wr_id % 4 || wc->wr_id >= turn || wc->opcode != opcode[op])
		broken("request %llu of %llu has a completion of opcode %d", (unsigned long long)wc->wr_id,
		       (unsigned long long)turn, wc->opcode);
	if (op == IBV_WR_RDMA_READ)
		same_bytes(place(FETCHED), len_of(wc->wr_id), "read data");
	/* Nobody else counts there, and each request is executed once. */
	if (op == IBV_WR_ATOMIC_FETCH_AND_ADD && *found_by(wc->wr_id) != wc->wr_id / 7)
		broken("request %llu found %llu", (unsigned long long)wc->wr_id,
		       (unsigned long long)*found_by(wc->wr_id));
	sent = true;
}

static void take(const struct ibv_wc *wc)
{
	if (wc->wr_id & RECEIVE)
		room_posted[wc->wr_id & ~RECEIVE] = false;
	if (wc->status == IBV_WC_SUCCESS) {
		(wc->wr_id & RECEIVE ? take_receive : take_sent)(wc);
		if (!running && sent && received)
			say("running", "%s", device);
		running |= sent && received;
		return;
	}
	if (wc->status != IBV_WC_WR_FLUSH_ERR && wc->status != IBV_WC_RETRY_EXC_ERR)
		broken("%s %llu: %s", wc->wr_id & RECEIVE ? "receive" : "request",
		       (unsigned long long)(wc->wr_id & ~RECEIVE), ibv_wc_status_str(wc->status));
	if (!failing)
		say("error", "%s", ibv_wc_status_str(wc->status));
	failing = true;
}

static bool poll_all(void)
{
	struct ibv_wc wc;
	bool any = false;
	int n;

	for (; (n = ibv_poll_cq(cq, 1, &wc)) > 0; any = true) {
		if (!(wc.wr_id & RECEIVE) && (wc.wr_id & LOOSE))
			take_loose(&wc);
		else
			take(&wc);
	}
	if (n < 0)
		broken("ibv_poll_cq: %d", n);
	ibv_req_notify_cq(cq, 0);
	return any;
}

static void destroy_all(void)
{
	destroy_loose();
	DESTROY(qp, mw);
	if (srq)
		DESTROY(srq);
	DESTROY(mr, cq, channel);
	channel = NULL;
	DESTROY(pd, ctx);
	_exit(DESTROYED);
}

/* Takes the rings out of the address space: the last that refers to the command file when it is closed. */
static void unmap_rings(void)
{
	struct mapping rings[16];
	int n = mapped_rings(rings, COUNT(rings));

	for (int i = 0; i < n; i++)
		munmap(rings[i].at, rings[i].len);
	if (n != 5 && !device_gone)
		broken("%d rings were mapped, not 5", n);
}

/* The command file is closed. First its mappings keep it, and the queues work on; then they go, and with them all
 * objects, while the files of events are still open. */
static void close_all(void)
{
	int cmd_fd = ctx->cmd_fd;

	/* Nothing that is opened later may get its number. */
	if (dup2(open("/dev/null", O_RDWR | O_CLOEXEC), cmd_fd) < 0)
		broken("dup2: %s", strerror(errno));
	for (int i = 0; i < 10; i++) {
		poll_all();
		post_all();
		usleep(500);
	}
	unmap_rings();
	say("closed", "with the files of events open");
	for (;;) {
		struct ibv_async_event event;

		/* Acknowledging is bookkeeping of objects that are gone, so they are only read. */
		while (!ibv_get_async_event(ctx, &event))
			;
		usleep(2000);
	}
}

int main(int argc, char **argv)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	on_failure = failed;
	signal(SIGUSR1, on_signal);
	signal(SIGUSR2, on_signal);
	if (argc < 5)
		broken("too few arguments");
	device = argv[1];
	gid_index = atoi(argv[2]);
	size = atoi(argv[3]);
	peer = atoi(argv[4]);
	for (char **word = argv + 5; *word; word++) {
		asks |= !strcmp(*word, "asks");
		shares |= !strcmp(*word, "shares");
		datagrams |= !strcmp(*word, "datagrams");
	}
	set_up();
	connect_to_peer();
	for (uint64_t renewed = 0;;) {
		post_all();
		if (turn / 64 != renewed) {
			renewed = turn / 64;
			renew_handle();
		}
		look_for_events();
		if (!poll_all())
			usleep(300);
		if (destroy_asked)
			destroy_all();
		if (close_asked)
			close_all();
	}
}
