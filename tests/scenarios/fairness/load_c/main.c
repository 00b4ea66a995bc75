// SPDX-License-Identifier: GPL-2.0
/*
 * verbs_load DEVICE GID_INDEX churn COUNT PID   makes and destroys COUNT objects of each kind, and prints of each: KIND
 *                                               OBJECTS SWITCHES, how often the process PID went to sleep meanwhile
 * verbs_load DEVICE GID_INDEX copy              posts 64 GiB of WRITEs between two queue pairs of the device, says
 *                                               "running", and ends with its standard input
 */
#include "rdma.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct ibv_context *ctx;
static struct ibv_pd *pd;
static struct connection to_self;

static struct ibv_qp *make_qp(struct ibv_cq *cq, int depth)
{
	return new_qp(pd, cq, (struct ibv_qp_cap){ depth, 1, 1, 1, 0 });
}

static void connect_to(struct ibv_qp *qp, uint32_t dest)
{
	to_self.qpn = dest;
	connect_qp(qp, &to_self);
}

static const char SLEEPS[] = "voluntary_ctxt_switches";
static char page[4096];

static void one_mr(struct ibv_cq *cq)
{
	(void)cq;
	MUST(ibv_dereg_mr(new_mr(pd, page, sizeof(page), IBV_ACCESS_LOCAL_WRITE)));
}

static void one_cq(struct ibv_cq *cq)
{
	(void)cq;
	MUST(ibv_destroy_cq(new_cq(ctx, 64, NULL, NULL)));
}

static void one_qp(struct ibv_cq *cq)
{
	MUST(ibv_destroy_qp(make_qp(cq, 1)));
}

static void one_connected_qp(struct ibv_cq *cq)
{
	struct ibv_qp *qp = make_qp(cq, 1);

	connect_to(qp, qp->qp_num);
	MUST(ibv_destroy_qp(qp));
}

static void churn(int count, const char *pid)
{
	static const struct {
		const char *name;
		void (*one)(struct ibv_cq *cq);
	} kinds[] = { { "mr", one_mr }, { "cq", one_cq }, { "qp", one_qp }, { "connected-qp", one_connected_qp } };
	struct ibv_cq *cq = new_cq(ctx, 64, NULL, NULL);

	for (size_t k = 0; k < COUNT(kinds); k++) {
		/* A thread that waits for work gives up its CPU after each piece of it. */
		long before = process_status(pid, SLEEPS);

		for (int i = 0; i < count; i++)
			kinds[k].one(cq);
		printf("%s %d %ld\n", kinds[k].name, count, process_status(pid, SLEEPS) - before);
	}
	MUST(ibv_destroy_cq(cq));
}

enum { DEPTH = 1024, BYTES = 64 << 20 };

static void copy(void)
{
	struct ibv_cq *cq = new_cq(ctx, 2 * DEPTH, NULL, NULL);
	uint8_t *memory = new_memory(2UL * BYTES);
	struct ibv_mr *mr = new_mr(pd, memory, 2UL * BYTES, ALL_ACCESS);
	struct ibv_qp *from = make_qp(cq, DEPTH), *to = make_qp(cq, 1);
	char c;

	connect_to(from, to->qp_num);
	connect_to(to, from->qp_num);

	struct ibv_sge list = { .addr = (uintptr_t)memory, .length = BYTES, .lkey = mr->lkey };
	static struct ibv_send_wr w[DEPTH];

	for (int i = 0; i < DEPTH; i++)
		w[i] = (struct ibv_send_wr){ .opcode = IBV_WR_RDMA_WRITE, .sg_list = &list, .num_sge = 1,
					     .next = i + 1 < DEPTH ? &w[i + 1] : NULL,
					     .wr.rdma = { .remote_addr = (uintptr_t)memory + BYTES, .rkey = mr->rkey } };
	MUST(post_send(from, w));
	printf("running\n");
	fflush(stdout);
	while (read(0, &c, 1) > 0)
		;
	/* With nearly all of it still to be done. */
	MUST(ibv_destroy_qp(from));
	MUST(ibv_destroy_qp(to));
	MUST(ibv_dereg_mr(mr));
	MUST(ibv_destroy_cq(cq));
}

int main(int argc, char **argv)
{
	if (argc < 4 || (strcmp(argv[3], "copy") && argc != 6)) {
		fprintf(stderr, "usage: verbs_load DEVICE GID_INDEX copy | churn COUNT PID\n");
		return 2;
	}
	ctx = open_device(argv[1]);
	pd = new_pd(ctx);
	to_self = usual;
	to_self.gid_index = atoi(argv[2]);
	to_self.gid = gid_of(ctx, to_self.gid_index);
	if (!strcmp(argv[3], "copy"))
		copy();
	else
		churn(atoi(argv[4]), argv[5]);
	MUST(ibv_dealloc_pd(pd));
	MUST(ibv_close_device(ctx));
	return 0;
}
