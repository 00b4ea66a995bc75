// SPDX-License-Identifier: GPL-2.0
/* Devices, their objects, connections, completions and events. */
#include "rdma.h"

#include <stdarg.h>
#include <strings.h>
#include <time.h>

void (*on_failure)(const char *text);

const struct connection usual = {
	.mtu = 1024, .access = REMOTE_ACCESS, .rd_atomic = 4, .dest_rd_atomic = 4, .rnr_timer = 1, .timeout = 15,
	.retry_cnt = 7, .rnr_retry = 7, .hop_limit = 64,
};

void fail(const char *fmt, ...)
{
	char text[512];
	int error = errno;
	va_list args;

	va_start(args, fmt);
	vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	errno = error;
	if (on_failure)
		on_failure(text);
	printf("failed: %s\n", text);
	exit(1);
}

void must(int rc, const char *what)
{
	if (rc > 0)
		errno = rc;
	CHECK(!rc, "%s: %s", what, strerror(errno));
}

void *made(void *object, const char *what)
{
	CHECK(object, "%s: %s", what, strerror(errno));
	return object;
}

int shortened(int full, int less)
{
	const char *text = getenv("FERROCE_SHORT");

	return text && !strcmp(text, "1") ? less : full;
}

static int times_patience = 1;

double patience(void)
{
	const char *text = getenv("FERROCE_PATIENCE");

	return 10.0 * times_patience * (text ? atoi(text) : 4);
}

void be_patient(int times)
{
	times_patience = times;
}

void rest(void)
{
	usleep(200);
}

double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec * 1e-9;
}

static void do_not_block(int fd)
{
	MUST(fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK));
}

struct ibv_context *open_device(const char *name)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *ctx = NULL;

	for (int i = 0; list && list[i]; i++)
		if (!strcmp(ibv_get_device_name(list[i]), name))
			ctx = ibv_open_device(list[i]);
	CHECK(ctx, "no device %s, or it cannot be opened", name);
	ibv_free_device_list(list);
	do_not_block(ctx->async_fd);
	return ctx;
}

union ibv_gid gid_of(struct ibv_context *ctx, int gid_index)
{
	union ibv_gid gid;

	CHECK(!ibv_query_gid(ctx, 1, gid_index, &gid), "ibv_query_gid %d: %s", gid_index, strerror(errno));
	return gid;
}

long hw_counter(const char *device, const char *name)
{
	long value;
	char path[256];
	FILE *f;

	/* The kernel reads them anew after ten milliseconds. */
	usleep(20000);
	snprintf(path, sizeof(path), "/sys/class/infiniband/%s/ports/1/hw_counters/%s", device, name);
	f = fopen(path, "r");
	if (!f)
		return -1;
	CHECK(fscanf(f, "%ld", &value) == 1, "%s is no number", path);
	fclose(f);
	return value;
}

struct ibv_device_attr device_of(struct ibv_context *ctx)
{
	struct ibv_device_attr attr;

	MUST(ibv_query_device(ctx, &attr));
	return attr;
}

struct ibv_pd *new_pd(struct ibv_context *ctx)
{
	return MADE(ibv_alloc_pd(ctx));
}

struct ibv_comp_channel *new_channel(struct ibv_context *ctx)
{
	struct ibv_comp_channel *channel = MADE(ibv_create_comp_channel(ctx));

	do_not_block(channel->fd);
	return channel;
}

struct ibv_cq *new_cq(struct ibv_context *ctx, int entries, struct ibv_comp_channel *channel, void *context)
{
	return MADE(ibv_create_cq(ctx, entries, context, channel, 0));
}

struct ibv_cq_ex *new_cq_ex(struct ibv_context *ctx, struct ibv_cq_init_attr_ex attr)
{
	return MADE(ibv_create_cq_ex(ctx, &attr));
}

uint8_t *new_memory(size_t len)
{
	uint8_t *at = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	CHECK(at != MAP_FAILED, "mmap of %zu bytes: %s", len, strerror(errno));
	return at;
}

struct ibv_mr *new_mr(struct ibv_pd *pd, void *at, size_t len, int access)
{
	struct ibv_mr *mr = ibv_reg_mr(pd, at, len, access);

	CHECK(mr, "ibv_reg_mr of %zu bytes with the access flags %#x: %s", len, access, strerror(errno));
	return mr;
}

struct ibv_qp *new_qp(struct ibv_pd *pd, struct ibv_cq *cq, struct ibv_qp_cap cap)
{
	return new_qp_of(IBV_QPT_RC, pd, cq, cap);
}

struct ibv_qp *new_qp_of(enum ibv_qp_type type, struct ibv_pd *pd, struct ibv_cq *cq, struct ibv_qp_cap cap)
{
	return new_sharing_qp_of(type, pd, cq, cap, NULL);
}

struct ibv_qp *new_sharing_qp(struct ibv_pd *pd, struct ibv_cq *cq, struct ibv_qp_cap cap, struct ibv_srq *srq)
{
	return new_sharing_qp_of(IBV_QPT_RC, pd, cq, cap, srq);
}

struct ibv_qp *new_sharing_qp_of(enum ibv_qp_type type, struct ibv_pd *pd, struct ibv_cq *cq, struct ibv_qp_cap cap,
				 struct ibv_srq *srq)
{
	struct ibv_qp_init_attr attr = { .send_cq = cq, .recv_cq = cq, .srq = srq, .qp_type = type, .cap = cap };
	struct ibv_qp *qp = MADE(ibv_create_qp(pd, &attr));

	CHECK(attr.cap.max_send_wr >= cap.max_send_wr && attr.cap.max_inline_data >= cap.max_inline_data &&
	      (srq || attr.cap.max_recv_wr >= cap.max_recv_wr), "the queue pair has less than was asked for");
	/* With a shared queue, what is said of receives is not looked at. */
	CHECK(!srq || (!attr.cap.max_recv_wr && !attr.cap.max_recv_sge), "it has %u receives of its own",
	      attr.cap.max_recv_wr);
	return qp;
}

struct ibv_srq *new_srq(struct ibv_pd *pd, int max_wr, int max_sge)
{
	struct ibv_srq_init_attr attr = { .attr = { .max_wr = max_wr, .max_sge = max_sge } };
	struct ibv_srq *srq = MADE(ibv_create_srq(pd, &attr));

	CHECK(attr.attr.max_wr >= (uint32_t)max_wr && attr.attr.max_sge >= (uint32_t)max_sge, "%u receives of %u entries",
	      attr.attr.max_wr, attr.attr.max_sge);
	return srq;
}

struct ibv_mw *new_mw(struct ibv_pd *pd, enum ibv_mw_type type)
{
	struct ibv_mw *mw = MADE(ibv_alloc_mw(pd, type));

	CHECK(mw->type == type && mw->pd == pd, "it is another window");
	return mw;
}

struct ibv_ah *new_ah(struct ibv_pd *pd, struct ibv_ah_attr attr)
{
	return MADE(ibv_create_ah(pd, &attr));
}

static enum ibv_mtu mtu_code(int bytes)
{
	return IBV_MTU_256 + ffs(bytes / 256) - 1;
}

int qp_to_init(struct ibv_qp *qp, const struct connection *c)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = c->access,
				    .qkey = c->qkey };

	return ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
			     (qp->qp_type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS));
}

int qp_to_rtr(struct ibv_qp *qp, const struct connection *c)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR, .path_mtu = mtu_code(c->mtu), .dest_qp_num = c->qpn, .rq_psn = c->rq_psn,
		.max_dest_rd_atomic = c->dest_rd_atomic, .min_rnr_timer = c->rnr_timer,
		.ah_attr = { .is_global = 1, .port_num = 1,
			     .grh = { .sgid_index = c->gid_index, .hop_limit = c->hop_limit, .dgid = c->gid,
				      .traffic_class = c->traffic_class, .flow_label = c->flow_label } },
	};

	int mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;

	if (qp->qp_type == IBV_QPT_UD)
		mask = IBV_QP_STATE;
	if (qp->qp_type == IBV_QPT_RC)
		mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	return ibv_modify_qp(qp, &attr, mask);
}

int qp_to_rts(struct ibv_qp *qp, const struct connection *c)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTS, .sq_psn = c->sq_psn, .timeout = c->timeout, .retry_cnt = c->retry_cnt,
		.rnr_retry = c->rnr_retry, .max_rd_atomic = c->rd_atomic,
	};

	int mask = IBV_QP_STATE | IBV_QP_SQ_PSN;

	if (qp->qp_type == IBV_QPT_RC)
		mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
	return ibv_modify_qp(qp, &attr, mask);
}

int qp_to(struct ibv_qp *qp, enum ibv_qp_state state)
{
	struct ibv_qp_attr attr = { .qp_state = state };

	return ibv_modify_qp(qp, &attr, IBV_QP_STATE);
}

void connect_qp(struct ibv_qp *qp, const struct connection *c)
{
	must(qp_to_init(qp, c), "to INIT");
	must(qp_to_rtr(qp, c), "to RTR");
	must(qp_to_rts(qp, c), "to RTS");
}

enum ibv_qp_state state_of_qp(struct ibv_qp *qp)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	MUST(ibv_query_qp(qp, &attr, IBV_QP_STATE, &init));
	return attr.qp_state;
}

int post_send(struct ibv_qp *qp, struct ibv_send_wr *w)
{
	struct ibv_send_wr *bad;

	return ibv_post_send(qp, w, &bad);
}

int post_receive(struct ibv_qp *qp, uint64_t id, struct ibv_sge *list, int n)
{
	struct ibv_recv_wr r = { .wr_id = id, .sg_list = list, .num_sge = n }, *bad;

	return ibv_post_recv(qp, &r, &bad);
}

int post_shared_receive(struct ibv_srq *srq, uint64_t id, struct ibv_sge *list, int n)
{
	struct ibv_recv_wr r = { .wr_id = id, .sg_list = list, .num_sge = n }, *bad;

	return ibv_post_srq_recv(srq, &r, &bad);
}

struct ibv_wc next_completion(struct ibv_cq *cq, const char *what)
{
	struct ibv_wc wc;
	int n;

	WAIT_UNTIL((n = ibv_poll_cq(cq, 1, &wc)), "%s: no completion in %.0f s", what, patience());
	CHECK(n == 1, "%s: ibv_poll_cq returned %d", what, n);
	return wc;
}

bool next_device_event(struct ibv_context *ctx, int ms, struct ibv_async_event *e)
{
	struct pollfd fd = { .fd = ctx->async_fd, .events = POLLIN };

	if ((ms && poll(&fd, 1, ms) <= 0) || ibv_get_async_event(ctx, e))
		return false;
	/* Before it is looked at: destroying waits for this, also when the look ends in failure. */
	ibv_ack_async_event(e);
	return true;
}

void want_device_event(struct ibv_context *ctx, enum ibv_event_type type, const void *object, const char *what)
{
	struct ibv_async_event e;

	CHECK(next_device_event(ctx, 1000 * patience(), &e), "%s: no event \"%s\"", what, ibv_event_type_str(type));
	CHECK(e.event_type == type && e.element.qp == object, "%s: event \"%s\"%s", what, ibv_event_type_str(e.event_type),
	      e.event_type == type ? " about something else" : "");
}

/* Eight bytes of the pattern. */
static uint64_t word(uint64_t n, unsigned int seed)
{
	uint64_t x = (n + 1) * 0x9e3779b97f4a7c15u + seed * 0xbf58476d1ce4e5b9u;

	return x ^ x >> 29;
}

/* How many bytes from here on are in one word of the pattern. */
static size_t in_word(size_t from, size_t left)
{
	size_t n = 8 - from % 8;

	return n < left ? n : left;
}

void fill_piece(uint8_t *at, size_t from, size_t len, unsigned int seed)
{
	for (size_t n; len; at += n, from += n, len -= n) {
		uint64_t w = word(from / 8, seed);

		n = in_word(from, len);
		memcpy(at, (uint8_t *)&w + from % 8, n);
	}
}

void compare_piece(const uint8_t *at, size_t from, size_t len, unsigned int seed, const char *what)
{
	for (size_t n; len; at += n, from += n, len -= n) {
		uint64_t w = word(from / 8, seed);
		const uint8_t *want = (uint8_t *)&w + from % 8;

		n = in_word(from, len);
		for (size_t i = 0; memcmp(at, want, n) && i < n; i++)
			CHECK(at[i] == want[i], "%s: byte %zu is %02x, not %02x", what, from + i, at[i], want[i]);
	}
}

int mapped_rings(struct mapping *rings, int most)
{
	FILE *maps = fopen("/proc/self/maps", "r");
	unsigned long from, to;
	char line[512];
	int n = 0;

	CHECK(maps, "/proc/self/maps: %s", strerror(errno));
	while (n < most && fgets(line, sizeof(line), maps))
		if (strstr(line, "/uverbs") && sscanf(line, "%lx-%lx", &from, &to) == 2)
			rings[n++] = (struct mapping){ (void *)from, to - from };
	fclose(maps);
	return n;
}

pid_t new_process(void)
{
	fflush(stdout);
	pid_t pid = fork();

	CHECK(pid >= 0, "fork: %s", strerror(errno));
	return pid;
}

long process_status(const char *pid, const char *key)
{
	char path[64], line[128];
	size_t len = strlen(key);

	snprintf(path, sizeof(path), "/proc/%s/status", pid);
	FILE *f = fopen(path, "r");

	CHECK(f, "%s: %s", path, strerror(errno));
	while (fgets(line, sizeof(line), f))
		if (!strncmp(line, key, len) && line[len] == ':') {
			fclose(f);
			return atol(line + len + 1);
		}
	fail("%s says nothing of %s", path, key);
}
