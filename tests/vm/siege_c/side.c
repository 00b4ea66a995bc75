// SPDX-License-Identifier: GPL-2.0
/* One side: sends, receives, polls and waits for events, and goes on doing so when everything is gone. */
#include "siege.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

enum { DEPTH = 32, AREA = 1 << 18 };

struct contact {
	union ibv_gid gid;
	uint64_t addr;
	uint32_t qpn, rkey;
};

static struct ibv_context *ctx;
static struct ibv_pd *pd;
static struct ibv_comp_channel *channel;
static struct ibv_cq *cq;
static struct ibv_mr *mr;
static struct ibv_qp *qp;
static uint8_t *memory;
static struct contact there;
static const struct plan *plan;
static volatile sig_atomic_t destroy_asked, close_asked;
static bool device_gone;

static void on_signal(int number)
{
	if (number == SIGUSR1)
		destroy_asked = 1;
	else
		close_asked = 1;
}

/* While everything is still there nothing may fail; later, a device that is gone is the only excuse. */
static void need(bool truth, const char *what)
{
	char path[128];
	int error = errno;

	if (truth)
		return;
	snprintf(path, sizeof(path), "/sys/class/infiniband/%s", plan->device);
	if (device_gone || access(path, F_OK))
		_exit(SIEGE_NO_DEVICE);
	/* It may be on its way out, still in sysfs. */
	if (error == EIO || error == ENODEV || error == EINVAL)
		_exit(SIEGE_NO_DEVICE);
	broken("%s: %s", what, strerror(error));
}

static void nonblocking(int fd)
{
	fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
}

static void swap(const void *mine, void *theirs, size_t len)
{
	if (send(plan->peer, mine, len, MSG_NOSIGNAL) != (ssize_t)len ||
	    recv(plan->peer, theirs, len, MSG_WAITALL) != (ssize_t)len)
		_exit(SIEGE_PEER_GONE);
}

static void set_up(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct contact here = { 0 };

	for (int i = 0; list && list[i]; i++)
		if (!strcmp(ibv_get_device_name(list[i]), plan->device))
			ctx = ibv_open_device(list[i]);
	need(ctx, "ibv_open_device");
	nonblocking(ctx->async_fd);
	pd = ibv_alloc_pd(ctx);
	need(pd, "ibv_alloc_pd");
	channel = ibv_create_comp_channel(ctx);
	need(channel, "ibv_create_comp_channel");
	nonblocking(channel->fd);
	cq = ibv_create_cq(ctx, 4 * DEPTH, NULL, channel, 0);
	need(cq, "ibv_create_cq");
	memory = mmap(NULL, 2 * AREA, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	if (memory == MAP_FAILED)
		broken("mmap: %s", strerror(errno));
	mr = ibv_reg_mr(pd, memory, 2 * AREA, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
	need(mr, "ibv_reg_mr");
	struct ibv_qp_init_attr attr = {
		.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = DEPTH, .max_recv_wr = DEPTH, .max_send_sge = 1, .max_recv_sge = 1 },
	};
	qp = ibv_create_qp(pd, &attr);
	need(qp, "ibv_create_qp");
	need(!ibv_query_gid(ctx, 1, plan->gid_index, &here.gid), "ibv_query_gid");
	here.addr = (uintptr_t)memory;
	here.rkey = mr->rkey;
	here.qpn = qp->qp_num;
	swap(&here, &there, sizeof(here));
}

static void connect_qp(void)
{
	struct ibv_qp_attr init = { .qp_state = IBV_QPS_INIT, .port_num = 1,
				    .qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ };
	struct ibv_qp_attr rtr = {
		.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = there.qpn, .max_dest_rd_atomic = 4,
		.min_rnr_timer = 5,
		.ah_attr = { .is_global = 1, .port_num = 1,
			     .grh = { .sgid_index = plan->gid_index, .hop_limit = 64, .dgid = there.gid } },
	};
	/* Retries that go on for about half a second: there is always a timer running. */
	struct ibv_qp_attr rts = { .qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7,
				   .max_rd_atomic = 4 };
	char mine = 'x', theirs;

	need(!(errno = ibv_modify_qp(qp, &init, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS)),
	     "to INIT");
	need(!(errno = ibv_modify_qp(qp, &rtr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
				     IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER)), "to RTR");
	need(!(errno = ibv_modify_qp(qp, &rts, IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
				     IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC)), "to RTS");
	swap(&mine, &theirs, 1);
}

/* Fills both queues. What is refused is refused because a queue is full, or because nothing is there any more. */
static void post_all(void)
{
	static unsigned int turn;
	struct ibv_sge room = { .addr = (uintptr_t)memory + AREA, .length = plan->size, .lkey = mr->lkey };
	struct ibv_sge from = { .addr = (uintptr_t)memory, .length = plan->size, .lkey = mr->lkey };
	struct ibv_recv_wr r = { .sg_list = &room, .num_sge = 1 }, *bad_r;

	for (int i = 0; i < DEPTH && !ibv_post_recv(qp, &r, &bad_r); i++)
		;
	for (int i = 0; i < DEPTH; i++, turn++) {
		enum ibv_wr_opcode op = !plan->asks ? IBV_WR_SEND : turn % 3 == 0 ? IBV_WR_SEND :
					turn % 3 == 1 ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ;
		struct ibv_send_wr w = { .opcode = op, .sg_list = &from, .num_sge = 1,
					 .send_flags = turn % 4 ? 0 : IBV_SEND_SIGNALED }, *bad;

		from.length = turn % 5 ? plan->size : 1;
		if (op != IBV_WR_SEND) {
			w.wr.rdma.remote_addr = there.addr;
			w.wr.rdma.rkey = there.rkey;
		}
		if (ibv_post_send(qp, &w, &bad))
			break;
	}
}

static void look_for_events(void)
{
	struct ibv_async_event event;
	struct ibv_cq *which;
	void *context;

	while (!ibv_get_async_event(ctx, &event)) {
		ibv_ack_async_event(&event);
		device_gone |= event.event_type == IBV_EVENT_DEVICE_FATAL;
	}
	if (channel && !ibv_get_cq_event(channel, &which, &context))
		ibv_ack_cq_events(which, 1);
}

static bool poll_all(void)
{
	struct ibv_wc wc[16];
	bool any = false;
	int n;

	while ((n = ibv_poll_cq(cq, 16, wc)) > 0)
		any = true;
	if (n < 0)
		broken("ibv_poll_cq: %d", n);
	ibv_req_notify_cq(cq, 0);
	return any;
}

static void destroyed(int rc, const char *what)
{
	errno = rc;
	need(!rc, what);
}

static void destroy_all(void)
{
	destroyed(ibv_destroy_qp(qp), "ibv_destroy_qp");
	destroyed(ibv_dereg_mr(mr), "ibv_dereg_mr");
	destroyed(ibv_destroy_cq(cq), "ibv_destroy_cq");
	destroyed(ibv_destroy_comp_channel(channel), "ibv_destroy_comp_channel");
	destroyed(ibv_dealloc_pd(pd), "ibv_dealloc_pd");
	destroyed(ibv_close_device(ctx), "ibv_close_device");
	_exit(SIEGE_DESTROYED);
}

/* Takes the rings out of the address space: the last that refers to the command file when it is closed. */
static void unmap_rings(void)
{
	FILE *maps = fopen("/proc/self/maps", "r");
	unsigned long from[16], to[16];
	char line[512];
	int n = 0;

	if (!maps)
		broken("/proc/self/maps: %s", strerror(errno));
	while (n < 16 && fgets(line, sizeof(line), maps))
		if (strstr(line, "/uverbs") && sscanf(line, "%lx-%lx", &from[n], &to[n]) == 2)
			n++;
	fclose(maps);
	for (int i = 0; i < n; i++)
		munmap((void *)from[i], to[i] - from[i]);
	if (n != 3 && !device_gone)
		broken("%d rings were mapped, not 3", n);
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

void run_side(const struct plan *of_side)
{
	plan = of_side;
	signal(SIGUSR1, on_signal);
	signal(SIGUSR2, on_signal);
	set_up();
	connect_qp();
	say("running", "%s", plan->device);
	for (;;) {
		post_all();
		look_for_events();
		if (!poll_all())
			usleep(300);
		if (destroy_asked)
			destroy_all();
		if (close_asked)
			close_all();
	}
}
