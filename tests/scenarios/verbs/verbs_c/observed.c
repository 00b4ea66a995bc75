// SPDX-License-Identifier: GPL-2.0
/*
 * Objects in a state that is known, for who looks at them from outside. Commands come on standard input, a line each;
 * when one is done there is a line "done".
 */
#include "pair.h"

enum { LENGTH = 1 << 16, REGION = 3 * 4096, RECEIVES = 3, SENDS = 5 };

static struct pair n;

/* More SENDs than there are receives: the last ones wait. */
static void stick(void)
{
	for (int i = 0; i < RECEIVES; i++)
		post_recv(&p.b, i, NULL, 0);
	for (int i = 0; i < SENDS; i++)
		post_one(&p.a, IBV_WR_SEND, i, 0, 0);
}

/* They go on; two receives are left. */
static void unstick(void)
{
	for (int i = RECEIVES; i < SENDS + 2; i++)
		post_recv(&p.b, i, NULL, 0);
	for (int i = 0; i < SENDS; i++) {
		expect(&p.a, i, IBV_WC_SUCCESS, "a SEND");
		expect(&p.b, i, IBV_WC_SUCCESS, "its receive");
	}
}

static void send(struct pair *pair, int count, uint32_t length)
{
	for (int i = 0; i < count; i++)
		move(IBV_WR_SEND, &pair->a, 0, &pair->b, LENGTH / 2, length, i);
}

/* Of each kind one more, with something to tell. */
static struct {
	struct ibv_srq *srq;
	struct ibv_mr *mr, *offsets;
	struct ibv_mw *mw;
	struct ibv_cq_ex *cq;
	struct ibv_comp_channel *channel;
} o;

static void make(void)
{
	struct ibv_srq_attr limit = { .srq_limit = 4 };
	struct ibv_cq_init_attr_ex cq = { .cqe = 32, .wc_flags = IBV_WC_EX_WITH_COMPLETION_TIMESTAMP };
	struct ibv_modify_cq_attr moderate = { .attr_mask = IBV_CQ_ATTR_MODERATE, .moderate = { 8, 1000 } };
	struct ibv_mw_bind bind = { .wr_id = 9, .send_flags = IBV_SEND_SIGNALED };

	o.srq = new_srq(p.b.pd, 16, 2);
	for (int i = 0; i < 6; i++)
		MUST(post_shared_receive(o.srq, i, NULL, 0));
	MUST(ibv_modify_srq(o.srq, &limit, IBV_SRQ_LIMIT));
	o.mr = new_mr(p.a.pd, p.a.buf, REGION, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
	o.offsets = new_mr(p.a.pd, p.a.buf, REGION + 1, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ZERO_BASED);
	o.mw = new_mw(p.a.pd, IBV_MW_TYPE_1);
	bind.bind_info = (struct ibv_mw_bind_info){ .mr = o.mr, .addr = (uintptr_t)p.a.buf, .length = 64,
						    .mw_access_flags = IBV_ACCESS_REMOTE_READ };
	MUST(ibv_bind_mw(p.a.qp, o.mw, &bind));
	expect(&p.a, 9, IBV_WC_SUCCESS, "the binding");
	o.channel = new_channel(p.a.ctx);
	cq.channel = o.channel;
	o.cq = new_cq_ex(p.a.ctx, cq);
	MUST(ibv_modify_cq(ibv_cq_ex_to_cq(o.cq), &moderate));
	MUST(ibv_req_notify_cq(ibv_cq_ex_to_cq(o.cq), 1));
}

/* A region that is registered again, to memory behind which there is a file: it takes as long as that is not read. */
static struct {
	pthread_t thread;
	struct ibv_mr *mr;
	void *page;
} again;

static void *register_again(void *unused)
{
	MUST(ibv_rereg_mr(again.mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, again.page, 4096, 0));
	return unused;
}

static void begin_again(const char *path, long offset)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	CHECK(fd >= 0, "%s: %s", path, strerror(errno));
	again.page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, offset);
	CHECK(again.page != MAP_FAILED, "mmap: %s", strerror(errno));
	close(fd);
	again.mr = new_mr(p.b.pd, p.b.buf, 5 * 4096, ALL_ACCESS);
	CHECK(!pthread_create(&again.thread, NULL, register_again, NULL), "pthread_create");
}

/* Peers reach it under the key of before. */
static void end_again(void)
{
	pthread_join(again.thread, NULL);
	fill(p.a.buf, 4096, 7);
	want_access(&p, IBV_WR_RDMA_WRITE, (uintptr_t)again.page, again.mr->rkey, 4096, true,
		    "a WRITE to a region that was registered again");
	compare(again.page, 4096, 7, "what was written");
	DESTROY(again.mr);
	MUST(munmap(again.page, 4096));
}

static void drop(void)
{
	if (!o.srq)
		return;
	DESTROY(ibv_cq_ex_to_cq(o.cq), o.channel, o.mw, o.offsets, o.mr, o.srq);
}

CASE("tables.observed", "objects that are looked at from outside", .paths = BY_HAND, .rxe = "tells no details")
{
	char line[80], path[40], which;
	int count;
	long offset;
	uint32_t length;

	pair_open(&p, &(struct options){ .retry_cnt = 6, .timeout = 15 }, LENGTH);
	pair_open_beside(&n, &p, LENGTH);
	printf("%u %u %u %u\n", p.a.qp->qp_num, p.b.qp->qp_num, n.a.qp->qp_num, n.b.qp->qp_num);
	do {
		puts("done");
		fflush(stdout);
		CHECK(fgets(line, sizeof(line), stdin), "no more commands");
		if (!strcmp(line, "stick\n"))
			stick();
		else if (!strcmp(line, "unstick\n"))
			unstick();
		else if (!strcmp(line, "make\n"))
			make();
		else if (sscanf(line, "send %c %d %u", &which, &count, &length) == 3)
			send(which == 'p' ? &p : &n, count, length);
		else if (sscanf(line, "again %39s %ld", path, &offset) == 2)
			begin_again(path, offset);
		else if (!strcmp(line, "finish\n"))
			end_again();
		else
			CHECK(!strcmp(line, "end\n"), "no such command: %s", line);
	} while (strcmp(line, "end\n"));
	drop();
	pair_close(&n);
	pair_close(&p);
}
