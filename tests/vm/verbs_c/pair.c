// SPDX-License-Identifier: GPL-2.0
/* Makes, connects and takes down the pair of queue pairs the cases talk through. */
#include "pair.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

/* Long under emulation, short against the limit of a scenario. */
static const double PATIENCE = 30.0;

double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec * 1e-9;
}

bool on_rxe(void)
{
	return getenv("RXE");
}

static struct ibv_context *open_device(const char *name)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *ctx = NULL;

	for (int i = 0; list && list[i]; i++)
		if (!strcmp(ibv_get_device_name(list[i]), name))
			ctx = ibv_open_device(list[i]);
	if (list)
		ibv_free_device_list(list);
	CHECK(ctx, "no device %s, or it cannot be opened", name);
	return ctx;
}

struct ibv_qp *make_qp(struct side *s)
{
	struct ibv_qp_init_attr attr = {
		.send_cq = s->cq, .recv_cq = s->cq, .qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = DEPTH, .max_recv_wr = DEPTH, .max_send_sge = MAX_SGE,
			 .max_recv_sge = MAX_SGE, .max_inline_data = INLINE_BYTES },
	};
	struct ibv_qp *qp = ibv_create_qp(s->pd, &attr);

	CHECK(qp, "ibv_create_qp: %s", strerror(errno));
	CHECK(attr.cap.max_send_wr >= DEPTH && attr.cap.max_inline_data >= INLINE_BYTES,
	      "the queue pair has less than was asked for");
	return qp;
}

static void side_open(struct pair *p, struct side *s, size_t len)
{
	if (p->opt.events) {
		s->channel = ibv_create_comp_channel(s->ctx);
		CHECK(s->channel, "ibv_create_comp_channel: %s", strerror(errno));
	}
	s->cq = ibv_create_cq(s->ctx, 4 * DEPTH, s, s->channel, 0);
	CHECK(s->cq, "ibv_create_cq: %s", strerror(errno));
	s->qp = make_qp(s);
	if (!len)
		return;
	s->len = len;
	s->buf = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(s->buf != MAP_FAILED, "mmap of %zu bytes: %s", len, strerror(errno));
	s->mr = ibv_reg_mr(s->pd, s->buf, len, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
	CHECK(s->mr, "ibv_reg_mr of %zu bytes: %s", len, strerror(errno));
}

/* A place of its own in the network, or that of the other side if both are on one device. */
static void side_place(struct side *s, const struct place *place, const struct side *same)
{
	s->gid_index = place->gid_index;
	if (same) {
		s->ctx = same->ctx;
		s->pd = same->pd;
	} else {
		s->ctx = open_device(place->device);
		s->pd = ibv_alloc_pd(s->ctx);
		CHECK(s->pd, "ibv_alloc_pd: %s", strerror(errno));
	}
	CHECK(!ibv_query_gid(s->ctx, 1, s->gid_index, &s->gid), "ibv_query_gid %d", s->gid_index);
}

static int or_default(int value, int standard)
{
	return value == NONE ? 0 : value ? value : standard;
}

void pair_options(struct pair *p, const struct options *opt)
{
	struct options o = opt ? *opt : (struct options){};

	o.mtu = or_default(o.mtu, 1024);
	o.mtu_of_b = or_default(o.mtu_of_b, o.mtu);
	o.rnr_retry = or_default(o.rnr_retry, 7);
	o.rnr_timer = or_default(o.rnr_timer, 1);
	o.retry_cnt = or_default(o.retry_cnt, 7);
	o.timeout = or_default(o.timeout, 14);
	o.rd_atomic = or_default(o.rd_atomic, 4);
	o.dest_rd_atomic = or_default(o.dest_rd_atomic, o.rd_atomic);
	p->opt = o;
}

void pair_open(struct pair *p, const struct options *opt, size_t len)
{
	bool one_device = !strcmp(places[0].device, places[1].device);

	memset(p, 0, sizeof(*p));
	pair_options(p, opt);
	side_place(&p->a, &places[0], NULL);
	side_place(&p->b, &places[1], one_device ? &p->a : NULL);
	side_open(p, &p->a, len);
	side_open(p, &p->b, len);
	if (!p->opt.no_connect)
		pair_connect(p);
}

void pair_open_beside(struct pair *p, const struct pair *other, size_t len)
{
	memset(p, 0, sizeof(*p));
	pair_options(p, NULL);
	p->neighbours = true;
	side_place(&p->a, &places[0], &other->a);
	side_place(&p->b, &places[1], &other->b);
	side_open(p, &p->a, len);
	side_open(p, &p->b, len);
	pair_connect(p);
}

static void side_close(struct side *s)
{
	int rc;

	if (s->qp && (rc = ibv_destroy_qp(s->qp)))
		fail("ibv_destroy_qp: %s", strerror(rc));
	if (s->mr && (rc = ibv_dereg_mr(s->mr)))
		fail("ibv_dereg_mr: %s", strerror(rc));
	if (s->cq && (rc = ibv_destroy_cq(s->cq)))
		fail("ibv_destroy_cq: %s", strerror(rc));
	if (s->channel && (rc = ibv_destroy_comp_channel(s->channel)))
		fail("ibv_destroy_comp_channel: %s", strerror(rc));
	if (s->buf)
		munmap(s->buf, s->len);
}

void pair_close(struct pair *p)
{
	int rc;

	side_close(&p->a);
	side_close(&p->b);
	for (struct side *s = &p->a; s && !p->neighbours; s = s == &p->a && p->b.ctx != p->a.ctx ? &p->b : NULL) {
		if ((rc = ibv_dealloc_pd(s->pd)))
			fail("ibv_dealloc_pd: %s", strerror(rc));
		if ((rc = ibv_close_device(s->ctx)))
			fail("ibv_close_device: %s", strerror(rc));
	}
}

int to_init(struct pair *p, struct side *s)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1 };

	if (p->opt.qp_access != NONE)
		attr.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
	return ibv_modify_qp(s->qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
}

static enum ibv_mtu mtu_code(int bytes)
{
	return bytes == 256 ? IBV_MTU_256 : bytes == 512 ? IBV_MTU_512 : bytes == 1024 ? IBV_MTU_1024 :
	       bytes == 2048 ? IBV_MTU_2048 : IBV_MTU_4096;
}

/* The sequence numbers start shortly before they wrap: every case of some packets crosses that. */
enum { FIRST_PSN = 0xfffff0 };

int to_rtr(struct pair *p, struct side *s, const struct side *dest, uint32_t dest_qpn)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR, .path_mtu = mtu_code(s == &p->b ? p->opt.mtu_of_b : p->opt.mtu),
		.dest_qp_num = dest_qpn, .rq_psn = FIRST_PSN, .max_dest_rd_atomic = p->opt.dest_rd_atomic,
		.min_rnr_timer = p->opt.rnr_timer,
		.ah_attr = { .is_global = 1, .port_num = 1,
			     .grh = { .sgid_index = s->gid_index, .hop_limit = 64, .dgid = dest->gid } },
	};

	return ibv_modify_qp(s->qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
			     IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
}

int to_rts(struct pair *p, struct side *s)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTS, .timeout = p->opt.timeout,
		.retry_cnt = p->opt.retry_cnt, .rnr_retry = p->opt.rnr_retry, .max_rd_atomic = p->opt.rd_atomic,
		.sq_psn = (FIRST_PSN + (s == &p->a ? p->opt.psn_ahead : 0)) & 0xffffff,
	};

	return ibv_modify_qp(s->qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
			     IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC);
}

int to_state(struct side *s, enum ibv_qp_state state)
{
	struct ibv_qp_attr attr = { .qp_state = state };

	return ibv_modify_qp(s->qp, &attr, IBV_QP_STATE);
}

void pair_connect(struct pair *p)
{
	struct side *sides[] = { &p->a, &p->b };
	int rc;

	for (int i = 0; i < 2; i++) {
		if ((rc = to_init(p, sides[i])))
			fail("to INIT: %s", strerror(rc));
		uint32_t qpn = p->opt.wrong_qpn && i == 0 ? sides[1]->qp->qp_num ^ 0x5a5a5a : sides[!i]->qp->qp_num;

		if ((rc = to_rtr(p, sides[i], sides[!i], qpn)))
			fail("to RTR: %s", strerror(rc));
	}
	for (int i = 0; i < 2; i++)
		if ((rc = to_rts(p, sides[i])))
			fail("to RTS: %s", strerror(rc));
}

void pair_reconnect(struct pair *p, const struct options *opt)
{
	struct side *sides[] = { &p->a, &p->b };
	struct ibv_wc wc;

	for (int i = 0; i < 2; i++) {
		CHECK(!to_state(sides[i], IBV_QPS_RESET), "to RESET");
		while (ibv_poll_cq(sides[i]->cq, 1, &wc) > 0)
			;
	}
	pair_options(p, opt);
	pair_connect(p);
}

enum ibv_qp_state state_of(struct side *s)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;
	int rc = ibv_query_qp(s->qp, &attr, IBV_QP_STATE, &init);

	CHECK(!rc, "ibv_query_qp: %s", strerror(rc));
	return attr.qp_state;
}

void want_state(struct side *s, enum ibv_qp_state want, const char *who)
{
	enum ibv_qp_state have;

	/* The other side of an error learns of it a little later. */
	for (int i = 0; i < 2000 && (have = state_of(s)) != want; i++)
		usleep(1000);
	CHECK(have == want, "%s is in state %d, not %d", who, have, want);
}

/* A pattern without a short period, so that a shifted or repeated piece is seen. */
static uint8_t pattern(size_t i, unsigned int seed)
{
	uint32_t x = (uint32_t)(i >> 2) * 2654435761u + seed * 40503u;

	return (x >> 16) ^ (x >> (i & 3));
}

void fill(uint8_t *at, size_t len, unsigned int seed)
{
	for (size_t i = 0; i < len; i++)
		at[i] = pattern(i, seed);
}

void compare(const uint8_t *at, size_t len, unsigned int seed, const char *what)
{
	for (size_t i = 0; i < len; i++)
		CHECK(at[i] == pattern(i, seed), "%s: byte %zu of %zu is %02x, not %02x", what, i, len, at[i],
		      pattern(i, seed));
}

struct ibv_sge sge(struct side *s, size_t offset, uint32_t len)
{
	return (struct ibv_sge){ .addr = (uintptr_t)s->buf + offset, .length = len, .lkey = s->mr->lkey };
}

struct ibv_send_wr wr(enum ibv_wr_opcode op, uint64_t id, struct ibv_sge *list, int n)
{
	return (struct ibv_send_wr){ .opcode = op, .wr_id = id, .sg_list = list, .num_sge = n,
				     .send_flags = IBV_SEND_SIGNALED };
}

void aim(struct ibv_send_wr *w, struct side *target, size_t offset)
{
	w->wr.rdma.remote_addr = (uintptr_t)target->buf + offset;
	w->wr.rdma.rkey = target->mr->rkey;
}

void post(struct side *s, struct ibv_send_wr *w)
{
	struct ibv_send_wr *bad;
	int rc = ibv_post_send(s->qp, w, &bad);

	CHECK(!rc, "ibv_post_send: %s", strerror(rc));
}

void post_recv(struct side *s, uint64_t id, struct ibv_sge *list, int n)
{
	struct ibv_recv_wr r = { .wr_id = id, .sg_list = list, .num_sge = n }, *bad;
	int rc = ibv_post_recv(s->qp, &r, &bad);

	CHECK(!rc, "ibv_post_recv: %s", strerror(rc));
}

struct ibv_wc next(struct side *s, const char *what)
{
	double end = now() + PATIENCE;
	struct ibv_wc wc;
	int n;

	while (!(n = ibv_poll_cq(s->cq, 1, &wc))) {
		CHECK(now() < end, "%s: no completion in %.0f s", what, PATIENCE);
		/* One processor may have to serve both sides and the network. */
		usleep(200);
	}
	CHECK(n == 1, "%s: ibv_poll_cq returned %d", what, n);
	return wc;
}

struct ibv_wc expect(struct side *s, uint64_t id, enum ibv_wc_status status, const char *what)
{
	struct ibv_wc wc = next(s, what);

	CHECK(wc.wr_id == id, "%s: completion of %llu came first (%s), %llu was next", what,
	      (unsigned long long)wc.wr_id, ibv_wc_status_str(wc.status), (unsigned long long)id);
	CHECK(wc.status == status, "%s: \"%s\", not \"%s\"", what, ibv_wc_status_str(wc.status),
	      ibv_wc_status_str(status));
	CHECK(wc.qp_num == s->qp->qp_num, "%s: the completion names queue pair %u, not %u", what, wc.qp_num,
	      s->qp->qp_num);
	return wc;
}

void expect_none(struct side *s, int ms, const char *what)
{
	struct ibv_wc wc;

	usleep(ms * 1000);
	CHECK(!ibv_poll_cq(s->cq, 1, &wc), "%s: an unexpected completion of %llu, \"%s\"", what,
	      (unsigned long long)wc.wr_id, ibv_wc_status_str(wc.status));
}
