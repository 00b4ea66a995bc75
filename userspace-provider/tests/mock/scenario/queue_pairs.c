// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/* What becomes of queue pairs, also with the attributes of older headers. */
#include "scenario.h"

/* An application built with older headers has shorter attributes, here at the end of its memory. */
void shorter_attributes(void)
{
	size_t page = sysconf(_SC_PAGESIZE);
	char *end = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct ibv_qp_init_attr_ex *ex;
	const union ibv_gid group = { .raw = { 0xff } };
	struct ibv_cq_init_attr_ex *cq_attr;
	struct ibv_cq_ex *cq;
	struct ibv_qp *qp;

	CHECK(end != MAP_FAILED && !mprotect(end + page, page, PROT_NONE));
	end += page;
	ex = (void *)(end - offsetof(struct ibv_qp_init_attr_ex, xrcd));
	ex->qp_type = IBV_QPT_RC;
	ex->comp_mask = IBV_QP_INIT_ATTR_PD;
	ex->pd = pd;
	qp = mock.ops.create_qp_ex(context, ex);
	CHECK(qp && !mock.ops.attach_mcast(qp, &group, 7) && mock.objects == 3);
	mock.error = EINVAL;
	CHECK(mock.ops.attach_mcast(qp, &group, 7) == EINVAL && mock.ops.detach_mcast(qp, &group, 7) == EINVAL);
	mock.error = 0;
	CHECK(!mock.ops.detach_mcast(qp, &group, 7) && !mock.ops.destroy_qp(qp));
	memset(end - page, 0, page);
	cq_attr = (void *)(end - offsetof(struct ibv_cq_init_attr_ex, parent_domain));
	cq_attr->cqe = 16;
	cq = mock.ops.create_cq_ex(context, cq_attr);
	CHECK(cq && !mock.ops.destroy_cq(ibv_cq_ex_to_cq(cq)));
}

void queue_pair_life(void)
{
	struct ibv_qp_init_attr attr = { .qp_type = IBV_QPT_RAW_PACKET };
	struct ibv_qp_init_attr_ex ex = { .qp_type = IBV_QPT_RC };
	struct ring_map sq = mock.sq, rq = mock.rq;
	struct ibv_send_wr wr = { .opcode = IBV_WR_SEND }, *bad;
	struct ibv_recv_wr rwr = {}, *rbad;
	struct ibv_qp_attr qp_attr;
	struct ibv_qp *qp;

	mock.cap = (struct ibv_qp_cap){ 8, 4, 5, 3, 80 };
	errno = 0;
	CHECK(!mock.ops.create_qp(pd, &attr) && errno == EOPNOTSUPP);
	SAID("qp_type is 8, and may be");
	attr.qp_type = IBV_QPT_RC;
	mock.error = EDQUOT;
	CHECK(!mock.ops.create_qp(pd, &attr) && errno == EDQUOT);
	SAID("create_qp of RC: the kernel refuses it");
	mock.error = EINVAL;
	attr.cap.max_inline_data = 513;
	CHECK(!mock.ops.create_qp(pd, &attr) && errno == EINVAL);
	SAID("create_qp of RC: max_inline_data is 513, and may be 0 to 512: ");
	mock.error = ENOMEM;
	attr.cap.max_inline_data = 0;
	CHECK(!mock.ops.create_qp(pd, &attr) && errno == ENOMEM);
	SAID("RLIMIT_MEMLOCK");
	mock.error = 0;

	/* A queue that cannot be mapped takes the other one and the QP with it. */
	mock.rq.offset += 64;
	CHECK(!mock.ops.create_qp(pd, &attr) && errno == EINVAL && mappings() == 0);
	mock.rq = rq;
	mock.sq.stride = 64;
	CHECK(!mock.ops.create_qp(pd, &attr) && errno == EPROTO && mappings() == 0);
	mock.sq = sq;
	mock.cap.max_send_sge = 1000;
	CHECK(!mock.ops.create_qp(pd, &attr) && errno == EPROTO);
	CHECK(mock.objects == 1);

	mock.cap = (struct ibv_qp_cap){ 8, 4, 5, 3, 80 };
	ex.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
	ex.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_TSO;
	ex.pd = pd;
	errno = 0;
	CHECK(!mock.ops.create_qp_ex(context, &ex) && errno == EOPNOTSUPP);
	ex.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS;
	ex.create_flags = 2;
	errno = 0;
	CHECK(!mock.ops.create_qp_ex(context, &ex) && errno == EOPNOTSUPP);
	ex.create_flags = 0;
	qp = mock.ops.create_qp_ex(context, &ex);
	CHECK(qp && ex.cap.max_send_sge == 5 && mappings() == 2);
	CHECK(ex.comp_mask & IBV_QP_INIT_ATTR_CREATE_FLAGS);
	set_state(qp, IBV_QPS_ERR);
	CHECK(!mock.ops.query_qp(qp, &qp_attr, 0x12345, &attr) && qp_attr.qp_state == qp->state);
	mock.error = EBUSY;
	CHECK(mock.ops.destroy_qp(qp) == EBUSY && mappings() == 2);
	mock.error = 0;
	CHECK(!mock.ops.destroy_qp(qp) && mappings() == 0 && mock.objects == 1);

	/* A QP without a send queue, and without a receive queue. */
	mock.cap = (struct ibv_qp_cap){ 0, 4, 1, 1, 0 };
	mock.sq.length = 0;
	qp = mock.ops.create_qp(pd, &attr);
	CHECK(qp && mappings() == 1);
	set_state(qp, IBV_QPS_RTS);
	CHECK(mock.ops.post_send(qp, &wr, &bad) == ENOMEM && bad == &wr);
	CHECK(!mock.ops.destroy_qp(qp));
	mock.sq = sq;
	mock.cap = (struct ibv_qp_cap){ 8, 0, 1, 1, 0 };
	mock.rq.length = 0;
	qp = mock.ops.create_qp(pd, &attr);
	CHECK(qp && mappings() == 1);
	set_state(qp, IBV_QPS_RTS);
	CHECK(mock.ops.post_recv(qp, &rwr, &rbad) == ENOMEM && rbad == &rwr);
	CHECK(!mock.ops.destroy_qp(qp));
	mock.cap.max_recv_wr = 1;
	CHECK(!mock.ops.create_qp(pd, &attr) && errno == EPROTO && mappings() == 0);
	mock.rq = rq;
	CHECK(mock.objects == 1);
}
