// SPDX-License-Identifier: GPL-2.0
/* Runs the causes of errors one after another, judges each, and prints a line about it. */
#include "causes.h"

/* Work request ids: the bad one, the one behind it, those posted later; the receives of both sides. */
enum { BAD = 1, BEHIND, LATE, LATE_RECEIVE, OWN_RECEIVE, FIRST_RECEIVE = 101, SECOND_RECEIVE };

static const struct family *const all[] = {
	&length_family, &qp_op_family, &prot_family, &access_family, &invalid_family, &receive_family, &retry_family,
	&rnr_family, &flush_family, &refusal_family,
};

/* What is in the memory of each side before a cause. */
static uint8_t painted[2][BUF];

const char *status_name(enum ibv_wc_status status)
{
	static const char *const names[] = {
		[IBV_WC_SUCCESS] = "SUCCESS", [IBV_WC_LOC_LEN_ERR] = "LOC_LEN_ERR",
		[IBV_WC_LOC_QP_OP_ERR] = "LOC_QP_OP_ERR", [IBV_WC_LOC_PROT_ERR] = "LOC_PROT_ERR",
		[IBV_WC_WR_FLUSH_ERR] = "WR_FLUSH_ERR", [IBV_WC_LOC_ACCESS_ERR] = "LOC_ACCESS_ERR",
		[IBV_WC_REM_INV_REQ_ERR] = "REM_INV_REQ_ERR", [IBV_WC_REM_ACCESS_ERR] = "REM_ACCESS_ERR",
		[IBV_WC_REM_OP_ERR] = "REM_OP_ERR",
		[IBV_WC_RETRY_EXC_ERR] = "RETRY_EXC_ERR", [IBV_WC_RNR_RETRY_EXC_ERR] = "RNR_RETRY_EXC_ERR",
	};

	return status < COUNT(names) && names[status] ? names[status] : ibv_wc_status_str(status);
}

static void get_cause(const struct family *f, int i, struct cause *c)
{
	*c = f->causes ? f->causes[i] : (struct cause){};
	if (f->get)
		f->get(i, c);
}

bool by_local_path(void)
{
	char path[128], value = '0';
	FILE *f;

	if (strcmp(places[0].device, places[1].device))
		return false;
	snprintf(path, sizeof(path), "/sys/class/infiniband/%s/local_path", places[0].device);
	f = fopen(path, "r");
	if (f) {
		value = fgetc(f);
		fclose(f);
	}
	return value == '1';
}

void gather(struct side *s, int n, const uint64_t *ids, enum ibv_wc_status status, const char *what)
{
	bool seen[8] = { 0 };

	for (int i = 0; i < n; i++) {
		struct ibv_wc wc = next(s, what);
		int k = 0;

		while (k < n && (seen[k] || ids[k] != wc.wr_id))
			k++;
		CHECK(k < n, "%s: an unexpected completion of %llu, %s", what, (unsigned long long)wc.wr_id,
		      status_name(wc.status));
		CHECK(wc.status == status, "%s: request %llu ended with %s, not %s", what,
		      (unsigned long long)wc.wr_id, status_name(wc.status), status_name(status));
		CHECK(wc.qp_num == s->qp->qp_num, "%s: the completion names another queue pair", what);
		seen[k] = true;
	}
}

void exchange(struct pair *p, unsigned int seed)
{
	static const struct {
		enum ibv_wr_opcode op;
		uint32_t len;
	} messages[] = {
		{ IBV_WR_SEND, 1500 }, { IBV_WR_SEND, 300 }, { IBV_WR_RDMA_WRITE, 1025 }, { IBV_WR_RDMA_WRITE, 7 },
		{ IBV_WR_RDMA_READ, 2100 }, { IBV_WR_RDMA_READ, 64 },
	};

	for (unsigned int i = 0; i < COUNT(messages); i++)
		move(messages[i].op, i % 2 ? &p->b : &p->a, 0, i % 2 ? &p->a : &p->b, TARGET, messages[i].len, seed + i);
}

static void paint(struct scene *s)
{
	for (int i = 0; i < 2 && !painted[1][0]; i++)
		memset(painted[i], 0xa1 + i, BUF);
	memcpy(s->p.a.buf, painted[0], BUF);
	memcpy(s->p.b.buf, painted[1], BUF);
}

/* Nothing was written but in the place for messages, and where the cause has a good part. */
static void want_untouched(struct scene *s, const struct cause *c)
{
	struct side *sides[] = { &s->p.a, &s->p.b };

	for (int i = 0; i < 2; i++) {
		memcpy(sides[i]->buf + TARGET, painted[i] + TARGET, TARGET_LEN);
		if (c->may_fill_region)
			memcpy(sides[i]->buf + SMALL, painted[i] + SMALL, SMALL_LEN);
		if (!memcmp(sides[i]->buf, painted[i], BUF))
			continue;
		for (size_t at = 0; at < BUF; at++)
			CHECK(sides[i]->buf[at] == painted[i][at], "byte %zu of the %s was written", at,
			      i ? "responder" : "requester");
	}
}

/* What is left of a requester after an error: a flush of everything. */
static void want_flush(struct scene *s, const struct cause *c)
{
	struct ibv_send_wr late = wr(IBV_WR_SEND, LATE, NULL, 0);

	want_state(&s->p.a, IBV_QPS_ERR, "the requester");
	gather(&s->p.a, 2, (uint64_t[]){ BEHIND, OWN_RECEIVE }, IBV_WC_WR_FLUSH_ERR, "behind the error");
	/* The provider does not know where the ring is then. */
	if (c->posts_itself)
		return;
	post(&s->p.a, &late);
	/* rdma_rxe, on which the cases themselves are judged, keeps late receives for ever. */
	if (!on_rxe())
		post_recv(&s->p.a, LATE_RECEIVE, NULL, 0);
	gather(&s->p.a, on_rxe() ? 1 : 2, (uint64_t[]){ LATE, LATE_RECEIVE }, IBV_WC_WR_FLUSH_ERR, "after the error");
}

static const char *judge_responder(struct scene *s, const struct cause *c)
{
	static char text[64];
	struct side *b = &s->p.b;

	if (c->responder == ENDS_BY_ACCESS)
		want_device_event(b->ctx, IBV_EVENT_QP_ACCESS_ERR, b->qp, "the responder");
	if (c->responder == ENDS_BY_REQUEST)
		want_device_event(b->ctx, IBV_EVENT_QP_REQ_ERR, b->qp, "the responder");
	if (c->responder == STAYS) {
		want_state(b, IBV_QPS_RTS, "the responder");
		expect_none(b, 2, "at the responder");
		return "responder RTS";
	}
	if (c->responder == LEFT_BEFORE)
		return "responder as it was";
	if (c->responder == ENDS_BY_RECEIVE)
		expect(b, FIRST_RECEIVE, c->receive, "the receive");
	else if (!c->no_receives)
		expect(b, FIRST_RECEIVE, IBV_WC_WR_FLUSH_ERR, "a receive of the responder");
	want_state(b, IBV_QPS_ERR, "the responder");
	if (!c->no_receives)
		expect(b, SECOND_RECEIVE, IBV_WC_WR_FLUSH_ERR, "the receive behind it");
	if (c->responder == ENDS_BY_RECEIVE)
		snprintf(text, sizeof(text), "responder ERR, its receive %s", status_name(c->receive));
	else
		snprintf(text, sizeof(text), "responder ERR + %s event",
			 c->responder == ENDS_BY_ACCESS ? "QP_ACCESS_ERR" : "QP_REQ_ERR");
	return text;
}

/* The request went well: what stands behind it too. */
static const char *judge_success(struct scene *s, const struct draft *d)
{
	bool takes = d->w.opcode == IBV_WR_SEND || d->w.opcode == IBV_WR_SEND_WITH_IMM ||
		     d->w.opcode == IBV_WR_RDMA_WRITE_WITH_IMM;

	expect(&s->p.a, BEHIND, IBV_WC_SUCCESS, "the request behind it");
	expect(&s->p.b, FIRST_RECEIVE, IBV_WC_SUCCESS, "the receive");
	if (takes)
		expect(&s->p.b, SECOND_RECEIVE, IBV_WC_SUCCESS, "the second receive");
	want_state(&s->p.a, IBV_QPS_RTS, "the requester");
	want_state(&s->p.b, IBV_QPS_RTS, "the responder");
	return "responder RTS";
}

static void provoke(struct scene *s, const struct cause *c)
{
	struct side *a = &s->p.a, *b = &s->p.b;
	struct ibv_send_wr behind = wr(IBV_WR_SEND, BEHIND, NULL, 0);
	struct draft d = { .list[0] = sge(a, 0, 100), .receive[0] = sge(b, TARGET, TARGET_LEN), .receive_sges = 1 };
	const char *responder;
	double began;

	d.w = wr(IBV_WR_SEND, BAD, d.list, 1);
	d.w.next = &behind;
	post_recv(a, OWN_RECEIVE, NULL, 0);
	c->build(s, c, &d);
	if (!c->no_receives && !c->receives_itself && c->responder != LEFT_BEFORE) {
		post_recv(b, FIRST_RECEIVE, d.receive, d.receive_sges);
		post_recv(b, SECOND_RECEIVE, NULL, 0);
	}
	began = now();
	/* What stands behind a READ or an atomic operation may be executed before its responses come, unless it is fenced. */
	if (d.w.opcode == IBV_WR_RDMA_READ || d.w.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD ||
	    d.w.opcode == IBV_WR_ATOMIC_CMP_AND_SWP)
		behind.send_flags |= IBV_SEND_FENCE;
	if (d.before)
		d.before->next = &d.w;
	if (!c->posts_itself)
		post(a, d.before ? d.before : &d.w);
	struct ibv_wc wc = expect(a, BAD, c->status, "the request");
	CHECK(now() - began >= c->at_least_us * 1e-6, "the error came after %.0f us already, %u are the least",
	      (now() - began) * 1e6, c->at_least_us);
	if (c->status == IBV_WC_SUCCESS) {
		responder = judge_success(s, &d);
	} else {
		want_flush(s, c);
		responder = judge_responder(s, c);
	}
	want_untouched(s, c);
	printf("%s: %s; requester %s, %s", status_name(c->status), c->text, c->status ? "ERR" : "RTS", responder);
	if (wc.vendor_err)
		printf(", vendor_err 0x%x", wc.vendor_err);
}

/* Into the trace that records meanwhile, if there is one: what is provoked from here on, or that it is over. */
static void mark(const char *family, const struct cause *c)
{
	const char *path = getenv("FERROCE_TRACE_MARKER");
	int fd = path ? open(path, O_WRONLY) : -1;

	if (fd < 0)
		return;
	if (c)
		dprintf(fd, "cause %s %s: %s\n", family, status_name(c->status), c->text);
	else
		dprintf(fd, "over\n");
	close(fd);
}

static void judge(struct scene *s, const struct family *f, const struct cause *c)
{
	struct side *sides[] = { &s->p.a, &s->p.b };
	struct ibv_async_event e;

	pair_reconnect(&s->p, &c->opt);
	paint(s);
	if (c->refused) {
		c->refused(s, c);
		printf(strncmp(c->text, "WR_", 3) ? "refused: %s" : "%s", c->text);
	} else {
		mark(f->name, c);
		provoke(s, c);
		mark(f->name, NULL);
	}
	drop_regions();
	exchange(&s->n, 1000);
	pair_reconnect(&s->p, NULL);
	exchange(&s->p, 2000);
	for (int i = 0; i < 2; i++)
		if (next_device_event(sides[i]->ctx, 0, &e))
			fail("an event too many: \"%s\"", ibv_event_type_str(e.event_type));
	printf("; neighbours move data, and both again after RESET\n");
}

/* Runs causes from `at` on; on the way `at` says how far it came, for the parent. */
static void run_from(const struct family *f, volatile int *at)
{
	struct scene s;

	pair_open(&s.p, NULL, BUF);
	pair_open_beside(&s.n, &s.p, BUF);
	for (; *at < f->count; (*at)++) {
		struct cause c = { 0 };

		alarm(2 * patience());
		get_cause(f, *at, &c);
		if (on_rxe() && c.rxe)
			printf("left out: %s; rdma_rxe %s\n", c.text, c.rxe);
		else if (by_local_path() ? c.wire_only : c.local_only)
			printf("left out: %s; not on this path\n", c.text);
		else
			judge(&s, f, &c);
		fflush(stdout);
	}
	pair_close(&s.n);
	pair_close(&s.p);
}

/* A cause that fails ends its process; the next ones run in another. */
static int run_family(const struct family *f, volatile int *at)
{
	int failed = 0, status;

	for (*at = 0; *at < f->count; (*at)++) {
		pid_t child = new_process();

		if (!child) {
			run_from(f, at);
			exit(0);
		}
		waitpid(child, &status, 0);
		if (status) {
			struct cause c = { 0 };

			get_cause(f, *at < f->count ? *at : f->count - 1, &c);
			printf("FAILED (%s): %s: %s\n", WIFSIGNALED(status) ? strsignal(WTERMSIG(status)) : "see above",
			       f->name, c.text);
			failed++;
		}
	}
	return failed;
}

int run_causes(const char *family)
{
	volatile int *at = mmap(NULL, sizeof(*at), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	int causes = 0, failed = 0;

	CHECK(at != MAP_FAILED, "mmap: %s", strerror(errno));
	for (size_t i = 0; i < COUNT(all); i++) {
		if (family && strcmp(family, all[i]->name))
			continue;
		causes += all[i]->count;
		failed += run_family(all[i], at);
	}
	CHECK(causes, "no errors are called %s", family);
	printf("%d causes, %d failed\n", causes, failed);
	return failed ? 1 : 0;
}

void list_families(void)
{
	for (size_t i = 0; i < COUNT(all); i++)
		printf("errors.%s\tlocal wire veth\t%d\t\t\t%d causes of errors: %s\n", all[i]->name, all[i]->seconds,
		       all[i]->count, all[i]->name);
}
