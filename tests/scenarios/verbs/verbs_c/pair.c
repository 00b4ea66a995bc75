// SPDX-License-Identifier: GPL-2.0
/* Makes, connects and takes down the pair of queue pairs the cases talk through. */
#include "pair.h"

#include <rdma/ib_user_verbs.h>

bool on_rxe(void)
{
	return getenv("RXE");
}

uint64_t number_of(const char *name)
{
	const char *text = getenv(name);

	CHECK(text, "%s is not set", name);
	return strtoull(text, NULL, 0);
}

int open_device_file(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	char path[128] = "";

	for (int i = 0; list && list[i]; i++)
		if (!strcmp(ibv_get_device_name(list[i]), places[0].device))
			snprintf(path, sizeof(path), "/dev/infiniband/%s", list[i]->dev_name);
	CHECK(path[0], "no device %s", places[0].device);
	ibv_free_device_list(list);
	int fd = open(path, O_RDWR | O_CLOEXEC);

	CHECK(fd >= 0, "%s: %s", path, strerror(errno));
	return fd;
}

int uverbs_command(int fd, uint32_t number, const void *request, size_t in, size_t out)
{
	uint8_t buf[sizeof(struct ib_uverbs_cmd_hdr) + 1024];
	struct ib_uverbs_cmd_hdr head = { .command = number, .in_words = (sizeof(head) + in) / 4, .out_words = out / 4 };

	CHECK(sizeof(head) + in <= sizeof(buf), "a request of %zu bytes", in);
	memcpy(buf, &head, sizeof(head));
	memcpy(buf + sizeof(head), request, in);
	return write(fd, buf, sizeof(head) + in) > 0 ? 0 : errno;
}

struct ibv_qp *make_qp_of(enum ibv_qp_type type, struct side *s)
{
	return new_qp_of(type, s->pd, s->cq, (struct ibv_qp_cap){ DEPTH, DEPTH, MAX_SGE, MAX_SGE, INLINE_BYTES });
}

struct ibv_qp *make_qp(struct side *s)
{
	return make_qp_of(IBV_QPT_RC, s);
}

static void side_open(struct pair *p, struct side *s, size_t len)
{
	s->channel = p->opt.events ? new_channel(s->ctx) : NULL;
	s->cq = new_cq(s->ctx, 4 * DEPTH, s->channel, s);
	s->qp = make_qp_of(p->opt.type, s);
	if (!len)
		return;
	s->len = len;
	s->buf = new_memory(len);
	s->mr = new_mr(s->pd, s->buf, len, ALL_ACCESS);
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
		s->pd = new_pd(s->ctx);
	}
	s->gid = gid_of(s->ctx, s->gid_index);
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
	o.timeout = or_default(o.timeout, 15);
	o.rd_atomic = or_default(o.rd_atomic, 4);
	o.type = o.type ? o.type : IBV_QPT_RC;
	o.dest_rd_atomic = or_default(o.dest_rd_atomic, o.rd_atomic);
	p->opt = o;
}

void pair_open_device(struct pair *p, const struct options *opt)
{
	bool one_device = !strcmp(places[0].device, places[1].device);

	memset(p, 0, sizeof(*p));
	pair_options(p, opt);
	side_place(&p->a, &places[0], NULL);
	side_place(&p->b, &places[1], one_device ? &p->a : NULL);
}

void pair_open(struct pair *p, const struct options *opt, size_t len)
{
	pair_open_device(p, opt);
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

/* What a case has taken away itself is NULL. */
#define END(object) do { \
		if (object) \
			DESTROY(object); \
	} while (0)

static void side_close(struct side *s)
{
	END(s->qp);
	END(s->mr);
	END(s->cq);
	END(s->channel);
	if (s->buf)
		munmap(s->buf, s->len);
}

void pair_close(struct pair *p)
{
	side_close(&p->a);
	side_close(&p->b);
	if (p->neighbours)
		return;
	if (p->b.ctx != p->a.ctx)
		DESTROY(p->b.pd, p->b.ctx);
	DESTROY(p->a.pd, p->a.ctx);
}

/* The sequence numbers start shortly before they wrap: every case of some packets crosses that. */
enum { FIRST_PSN = 0xfffff0 };

static struct connection of_side(const struct pair *p, const struct side *s)
{
	const struct options *o = &p->opt;

	return (struct connection){
		.gid_index = s->gid_index, .mtu = s == &p->b ? o->mtu_of_b : o->mtu, .rq_psn = FIRST_PSN,
		.sq_psn = (FIRST_PSN + (s == &p->a ? o->psn_ahead : 0)) & 0xffffff,
		.access = o->qp_access == NONE ? 0 : REMOTE_ACCESS, .rd_atomic = o->rd_atomic,
		.dest_rd_atomic = o->dest_rd_atomic, .rnr_timer = o->rnr_timer, .timeout = o->timeout,
		.retry_cnt = o->retry_cnt, .rnr_retry = o->rnr_retry,
	};
}

int to_init(struct pair *p, struct side *s)
{
	struct connection c = of_side(p, s);

	return qp_to_init(s->qp, &c);
}

int to_rtr(struct pair *p, struct side *s, const struct side *dest, uint32_t dest_qpn)
{
	struct connection c = of_side(p, s);

	c.gid = dest->gid;
	c.qpn = dest_qpn;
	return qp_to_rtr(s->qp, &c);
}

int to_rts(struct pair *p, struct side *s)
{
	struct connection c = of_side(p, s);

	return qp_to_rts(s->qp, &c);
}

int to_state(struct side *s, enum ibv_qp_state state)
{
	return qp_to(s->qp, state);
}

void pair_open_b_in_rtr(struct pair *p, const struct options *opt, size_t len)
{
	struct options o = opt ? *opt : (struct options){};

	o.no_connect = true;
	pair_open(p, &o, len);
	MUST(to_init(p, &p->a));
	MUST(to_init(p, &p->b));
	MUST(to_rtr(p, &p->a, &p->b, p->b.qp->qp_num));
	MUST(to_rtr(p, &p->b, &p->a, p->a.qp->qp_num));
	MUST(to_rts(p, &p->a));
}

struct side side_beside(const struct side *s, enum ibv_qp_type type, int entries)
{
	struct side other = *s;

	other.cq = new_cq(s->ctx, entries, NULL, NULL);
	other.qp = make_qp_of(type, &other);
	return other;
}

void side_end(struct side *s)
{
	DESTROY(s->qp, s->cq);
}

void ready(struct ibv_qp *qp, uint32_t qkey)
{
	connect_qp(qp, &(struct connection){ .qkey = qkey, .sq_psn = 0xfffffe });
}

static void connect_side(const struct side *s, const struct side *to, uint32_t qpn, struct connection c)
{
	c.gid_index = s->gid_index;
	c.gid = to->gid;
	c.qpn = qpn;
	connect_qp(s->qp, &c);
}

void pair_connect(struct pair *p)
{
	uint32_t wrong = p->opt.wrong_qpn ? 0x5a5a5a : 0;

	if (p->opt.type == IBV_QPT_UD) {
		ready(p->a.qp, KEY);
		ready(p->b.qp, KEY);
		return;
	}
	connect_side(&p->a, &p->b, p->b.qp->qp_num ^ wrong, of_side(p, &p->a));
	connect_side(&p->b, &p->a, p->a.qp->qp_num, of_side(p, &p->b));
}

void connect_sides(const struct side *one, const struct side *other, struct connection c)
{
	connect_side(one, other, other->qp->qp_num, c);
	connect_side(other, one, one->qp->qp_num, c);
}

void pair_reconnect(struct pair *p, const struct options *opt)
{
	struct ibv_wc wc;

	MUST(to_state(&p->a, IBV_QPS_RESET));
	MUST(to_state(&p->b, IBV_QPS_RESET));
	while (ibv_poll_cq(p->a.cq, 1, &wc) > 0 || ibv_poll_cq(p->b.cq, 1, &wc) > 0)
		;
	pair_options(p, opt);
	pair_connect(p);
}

void use_cq(struct pair *p, struct ibv_cq *cq)
{
	DESTROY(p->a.qp, p->a.cq);
	p->a.cq = cq;
	p->a.qp = make_qp(&p->a);
	pair_reconnect(p, NULL);
}

void want_state(struct side *s, enum ibv_qp_state want, const char *who)
{
	/* The other side of an error learns of it a little later. */
	WAIT_UNTIL(state_of_qp(s->qp) == want, "%s is in state %d, not %d", who, state_of_qp(s->qp), want);
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
	MUST(post_send(s->qp, w));
}

void post_list(struct side *s, struct ibv_send_wr *w, int n)
{
	for (int i = 0; i < n; i++)
		w[i].next = i + 1 < n ? &w[i + 1] : NULL;
	post(s, w);
}

void post_recv(struct side *s, uint64_t id, struct ibv_sge *list, int n)
{
	MUST(post_receive(s->qp, id, list, n));
}

void post_one(struct side *s, enum ibv_wr_opcode op, uint64_t id, size_t mine, uint32_t len)
{
	post_named(s, op, id, mine, len, 0, 0);
}

void post_at(struct side *s, enum ibv_wr_opcode op, uint64_t id, size_t mine, uint32_t len, struct side *to, size_t theirs)
{
	post_named(s, op, id, mine, len, (uintptr_t)to->buf + theirs, to->mr->rkey);
}

void post_named(struct side *s, enum ibv_wr_opcode op, uint64_t id, size_t mine, uint32_t len, uint64_t addr, uint32_t rkey)
{
	struct ibv_sge list = len ? sge(s, mine, len) : (struct ibv_sge){};
	struct ibv_send_wr w = wr(op, id, &list, len ? 1 : 0);

	w.wr.rdma.remote_addr = addr;
	w.wr.rdma.rkey = rkey;
	post(s, &w);
}

void post_room(struct side *s, uint64_t id, size_t offset, uint32_t len)
{
	struct ibv_sge list = sge(s, offset, len);

	post_recv(s, id, &list, 1);
}

struct ibv_wc next(struct side *s, const char *what)
{
	return next_completion(s->cq, what);
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

struct ibv_wc expect_both(struct side *from, uint64_t id, struct side *to, uint64_t receive, const char *what)
{
	expect(from, id, IBV_WC_SUCCESS, what);
	return expect(to, receive, IBV_WC_SUCCESS, what);
}

void move(enum ibv_wr_opcode op, struct side *from, size_t mine, struct side *to, size_t theirs, uint32_t len,
	  unsigned int seed)
{
	bool reads = op == IBV_WR_RDMA_READ;
	uint8_t *source = reads ? to->buf + theirs : from->buf + mine, *sink = reads ? from->buf + mine : to->buf + theirs;

	fill(source, len, seed);
	memset(sink, 0xee, len + 1);
	if (op == IBV_WR_SEND)
		post_room(to, seed, theirs, len);
	if (op == IBV_WR_SEND)
		post_one(from, op, seed, mine, len);
	else
		post_at(from, op, seed, mine, len, to, theirs);
	if (op == IBV_WR_SEND)
		CHECK(expect(to, seed, IBV_WC_SUCCESS, "a good receive").byte_len == len, "not %u bytes", len);
	expect(from, seed, IBV_WC_SUCCESS, "a good request");
	compare(sink, len, seed, "data");
	CHECK(sink[len] == 0xee, "the byte behind the data was written");
}

void send_checked(struct side *from, struct side *to, unsigned int seed)
{
	move(IBV_WR_SEND, from, 0, to, 4096, 3000, seed);
}

void expect_none(struct side *s, int ms, const char *what)
{
	struct ibv_wc wc;

	usleep(ms * 1000);
	CHECK(!ibv_poll_cq(s->cq, 1, &wc), "%s: an unexpected completion of %llu, \"%s\"", what,
	      (unsigned long long)wc.wr_id, ibv_wc_status_str(wc.status));
}

void want_access(struct pair *p, enum ibv_wr_opcode op, uint64_t addr, uint32_t rkey, uint32_t len, bool allowed,
		 const char *what)
{
	post_named(&p->a, op, 1, 0, len, addr, rkey);
	expect(&p->a, 1, allowed ? IBV_WC_SUCCESS : IBV_WC_REM_ACCESS_ERR, what);
	if (!allowed)
		pair_reconnect(p, NULL);
}

void want_exactly(struct pair *p, const uint8_t *bytes, uint32_t len, uint64_t begin, uint32_t rkey)
{
	fill(p->a.buf, len, 5);
	memset(p->b.buf, 0xee, p->b.len);
	want_access(p, IBV_WR_RDMA_WRITE, begin, rkey, len, true, "a WRITE to all of it");
	compare(bytes, len, 5, "what was written");
	CHECK(bytes[-1] == 0xee && bytes[len] == 0xee, "more was written");
	want_access(p, IBV_WR_RDMA_READ, begin + len - 1, rkey, 1, true, "a READ of the last byte");
	CHECK(p->a.buf[0] == bytes[len - 1], "another byte was read");
	want_access(p, IBV_WR_RDMA_READ, begin, rkey, 1, true, "a READ of the first byte");
	memset(p->b.buf, 0xdd, p->b.len);
	want_access(p, IBV_WR_RDMA_WRITE, begin - 1, rkey, 1, false, "a WRITE of the byte before it");
	want_access(p, IBV_WR_RDMA_WRITE, begin + len, rkey, 1, false, "a WRITE of the byte behind it");
	want_access(p, IBV_WR_RDMA_WRITE, begin, rkey, len + 1, false, "a WRITE beyond it");
	want_access(p, IBV_WR_RDMA_WRITE, begin - 1, rkey, len, false, "a WRITE from before it");
	want_access(p, IBV_WR_RDMA_READ, begin + 1, rkey, len, false, "a READ beyond it");
	for (size_t i = 0; i < p->b.len; i++)
		CHECK(p->b.buf[i] == 0xdd, "byte %zu was written by what was refused", i);
}

static void *keep_writing(void *writer)
{
	struct writer *w = writer;

	while (!w->stop && !w->refused) {
		post_named(&w->p->a, IBV_WR_RDMA_WRITE, 5, 0, w->len, w->addr, w->rkey);
		enum ibv_wc_status status = next(&w->p->a, "a WRITE").status;

		CHECK(!status || status == IBV_WC_REM_ACCESS_ERR, "a WRITE: \"%s\"", ibv_wc_status_str(status));
		status ? w->refused++ : w->written++;
	}
	return NULL;
}

void begin_writing(struct writer *w)
{
	MUST(pthread_create(&w->thread, NULL, keep_writing, w));
	while (w->written < 3 && !w->refused)
		rest();
}

void end_writing(struct writer *w)
{
	w->stop = true;
	MUST(pthread_join(w->thread, NULL));
}

bool event_within(struct side *s, int ms)
{
	struct pollfd fd = { .fd = s->channel->fd, .events = POLLIN };
	struct ibv_cq *cq;
	void *context;

	if (poll(&fd, 1, ms) <= 0)
		return false;
	MUST(ibv_get_cq_event(s->channel, &cq, &context));
	CHECK(cq == s->cq && context == s, "the event is about another completion queue");
	ibv_ack_cq_events(cq, 1);
	return true;
}

uint8_t *marked_ring(uint64_t mark, uint16_t behind)
{
	struct mapping rings[64];
	int n = mapped_rings(rings, COUNT(rings));

	for (int i = 0; i < n; i++) {
		struct uabi_send_wqe first;

		memcpy(&first, rings[i].at + UABI_CONTROL_SIZE, sizeof(first));
		if (first.wr_id == mark && (first.opcode | first.flags << 8) == behind)
			return rings[i].at;
	}
	fail("no ring begins with what was posted");
}

_Atomic uint32_t *producer_of(uint8_t *ring)
{
	return (_Atomic uint32_t *)(ring + UABI_PRODUCER);
}
