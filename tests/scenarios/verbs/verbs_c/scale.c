// SPDX-License-Identifier: GPL-2.0
/*
 * Many objects at once, each of which is used: more than stand in front of the driver's tables, so that most are found
 * the long way. How many is given in the environment (COUNT).
 */
#include "pair.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PAGE = 4096, PAGES = 256, LEN = 64 };

/* One WRITE of a pattern of its own, from the beginning of a's buffer through the region of b; how it ends. */
static enum ibv_wc_status write_through(struct pair *p, struct ibv_mr *mr, unsigned int seed)
{
	struct ibv_sge list = sge(&p->a, 0, LEN);
	struct ibv_send_wr w = wr(IBV_WR_RDMA_WRITE, seed, &list, 1);

	fill(p->a.buf, LEN, seed);
	memset(mr->addr, 0, LEN);
	w.wr.rdma.remote_addr = (uintptr_t)mr->addr;
	w.wr.rdma.rkey = mr->rkey;
	post(&p->a, &w);
	return next(&p->a, "WRITE").status;
}

/* One SEND into the region of b. */
static void send_into(struct pair *p, struct ibv_mr *mr, unsigned int seed)
{
	struct ibv_sge list = sge(&p->a, 0, LEN);
	struct ibv_sge room = { .addr = (uintptr_t)mr->addr, .length = LEN, .lkey = mr->lkey };
	struct ibv_send_wr w = wr(IBV_WR_SEND, seed, &list, 1);

	fill(p->a.buf, LEN, seed);
	memset(mr->addr, 0, LEN);
	post_recv(&p->b, seed, &room, 1);
	post(&p->a, &w);
	expect(&p->b, seed, IBV_WC_SUCCESS, "receive");
	expect(&p->a, seed, IBV_WC_SUCCESS, "SEND");
	compare(mr->addr, LEN, seed, "received data");
}

/* A WRITE that is permitted, with its data checked. */
static void write_checked(struct pair *p, struct ibv_mr *mr, unsigned int seed, const char *which)
{
	enum ibv_wc_status status = write_through(p, mr, seed);

	CHECK(status == IBV_WC_SUCCESS, "WRITE %u to %s region: %s", seed, which, ibv_wc_status_str(status));
	compare(mr->addr, LEN, seed, "written data");
}

/* Each of many regions takes a WRITE and a receive; then every other one goes, and those that stay still do. */
static void regions(void)
{
	const int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
	unsigned int n = number_of("COUNT"), refused = 0;
	struct ibv_mr **mrs = calloc(n, sizeof(*mrs));
	struct pair p;

	CHECK(mrs, "no memory");
	pair_open(&p, NULL, PAGES * PAGE);
	for (unsigned int i = 0; i < n; i++) {
		mrs[i] = ibv_reg_mr(p.b.pd, p.b.buf + i % PAGES * PAGE, PAGE, access);
		CHECK(mrs[i], "region %u: %s", i, strerror(errno));
	}
	for (unsigned int i = 0; i < n; i++) {
		write_checked(&p, mrs[i], i, "a new");
		if (i % 16 == 0)
			send_into(&p, mrs[i], n + i);
	}
	for (unsigned int i = 1; i < n; i += 2) {
		struct ibv_mr gone = *mrs[i];

		CHECK(!ibv_dereg_mr(mrs[i]), "deregistering region %u", i);
		mrs[i] = NULL;
		/* Each refusal ends the connection. */
		if (i % 512 != 1)
			continue;
		enum ibv_wc_status status = write_through(&p, &gone, i);

		CHECK(status == IBV_WC_REM_ACCESS_ERR, "a WRITE to region %u, which has gone: %s", i,
		      ibv_wc_status_str(status));
		for (int j = 0; j < LEN; j++)
			CHECK(!((uint8_t *)gone.addr)[j], "region %u, which has gone, was written to", i);
		pair_reconnect(&p, NULL);
		refused++;
	}
	for (unsigned int i = 0; i < n; i += 2) {
		write_checked(&p, mrs[i], i + 1, "a remaining");
		CHECK(!ibv_dereg_mr(mrs[i]), "deregistering region %u", i);
	}
	printf("%u regions were used, %u refused when they had gone\n", n, refused);
	pair_close(&p);
	free(mrs);
}

/* Many connections between two completion queues; every one carries a message each way, in an order of its own. */
static void queue_pairs(void)
{
	unsigned int n = number_of("COUNT") / 2;
	struct ibv_qp **qps = calloc(2 * n, sizeof(*qps));
	struct ibv_qp *own[2];
	struct pair p;

	CHECK(qps, "no memory");
	pair_open(&p, &(struct options){ .no_connect = true }, 2 * PAGE);
	own[0] = p.a.qp;
	own[1] = p.b.qp;
	for (unsigned int i = 0; i < 2 * n; i += 2) {
		for (int s = 0; s < 2; s++) {
			struct side *side = s ? &p.b : &p.a;
			struct ibv_qp_init_attr attr = {
				.send_cq = side->cq, .recv_cq = side->cq, .qp_type = IBV_QPT_RC,
				.cap = { .max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 },
			};

			qps[i + s] = side->qp = ibv_create_qp(side->pd, &attr);
			CHECK(side->qp, "queue pair %u: %s", i + s, strerror(errno));
		}
		pair_connect(&p);
	}
	for (unsigned int k = 0; k < n; k++) {
		/* Neighbours in the table are not neighbours in time. */
		unsigned int i = 2 * ((uint64_t)k * 7919 % n);

		p.a.qp = qps[i];
		p.b.qp = qps[i + 1];
		send_checked(&p.a, &p.b, k);
		send_checked(&p.b, &p.a, n + k);
	}
	for (unsigned int i = 0; i < 2 * n; i++)
		CHECK(!ibv_destroy_qp(qps[i]), "destroying queue pair %u", i);
	printf("%u queue pairs carried two messages each\n", 2 * n);
	p.a.qp = own[0];
	p.b.qp = own[1];
	pair_close(&p);
	free(qps);
}

const struct test_case scale_cases[] = {
	{ "regions", regions, "a great many regions, each of which is used: most stand behind the place in front of the table",
	  LOCAL_PATH, .seconds = 240, .rxe = "is not judged here" },
	{ "queue-pairs", queue_pairs, "a great many queue pairs, each of which is used",
	  LOCAL_PATH, .seconds = 240, .rxe = "is not judged here" },
	{ NULL },
};
