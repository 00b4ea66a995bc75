// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/* What every part of the scenario looks at the rings by, and what it makes them of. */
#include "scenario.h"

char *file;
struct ibv_context *context;
struct ibv_pd *pd;

struct control *control(size_t ring)
{
	return (struct control *)(file + ring);
}

struct send_wqe *send_slot(uint32_t index)
{
	return (struct send_wqe *)(file + RING_SQ + 256) + index % 8;
}

struct recv_wqe *recv_slot(uint32_t index)
{
	return (struct recv_wqe *)(file + RING_RQ + 256) + index % 4;
}

/* Doorbells since the last call; none was for the other queue. */
static int doorbells(int *queue, const int *other)
{
	int n = *queue;

	CHECK(!*other);
	*queue = 0;
	return n;
}

int send_doorbells(void)
{
	return doorbells(&mock.send_bells, &mock.recv_bells);
}

int recv_doorbells(void)
{
	return doorbells(&mock.recv_bells, &mock.send_bells);
}

/* Mappings of the command file without ours. */
int mappings(void)
{
	FILE *f = fopen("/proc/self/maps", "r");
	char line[512];
	int n = 0;

	CHECK(f);
	while (fgets(line, sizeof(line), f))
		n += !!strstr(line, "memfd:");
	fclose(f);
	return n - 1;
}

void clear_rings(void)
{
	memset(file, 0, FILE_SIZE);
}

/* The module completes something of a QP. */
void complete_for(uint32_t qp_num, uint64_t wr_id)
{
	struct control *c = control(RING_CQ);
	struct cqe *cqe = (struct cqe *)(file + RING_CQ + 256) + c->producer % 16;

	*cqe = (struct cqe){ wr_id, 1, 2, 3, 4, qp_num, 6, 7 | 0x70000, 8, .pkey_index = 9, .vlan = 11,
			     .sl = 10 };
	c->producer++;
}

void complete(uint64_t wr_id)
{
	complete_for(5, wr_id);
}

struct ibv_cq *create_cq(void)
{
	return mock.ops.create_cq(context, 16, (void *)0x10, 3);
}

struct ibv_cq *send_cq, *recv_cq;

struct ibv_qp *create_qp(int sig_all)
{
	struct ibv_qp_init_attr attr = {
		.qp_type = IBV_QPT_RC, .sq_sig_all = sig_all, .send_cq = send_cq, .recv_cq = recv_cq
	};
	struct ibv_qp *qp;

	if (!send_cq)
		clear_rings();
	mock.cap = (struct ibv_qp_cap){ 8, 4, 5, 3, 80 };
	qp = mock.ops.create_qp(pd, &attr);
	CHECK(qp && attr.cap.max_inline_data == 80 && (send_cq || mappings() == 2));
	return qp;
}

/* Changes the state, and notes it where libibverbs does. */
void set_state(struct ibv_qp *qp, enum ibv_qp_state state)
{
	struct ibv_qp_attr attr = { .qp_state = state };

	CHECK(!mock.ops.modify_qp(qp, &attr, IBV_QP_STATE));
	qp->state = state;
}
