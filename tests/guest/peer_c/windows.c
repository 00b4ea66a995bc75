// SPDX-License-Identifier: GPL-2.0
/* Memory windows: one side lends a part of its memory, the other writes to it, reads it, and gives the key back. */
#include "peer.h"

/* What the lender tells. */
struct loan {
	uint64_t addr;
	uint32_t key;
};

static void lend(enum ibv_mw_type type, uint32_t size, unsigned int seed)
{
	struct ibv_qp *qp = queue_pair(0);
	struct ibv_mr *below = new_mr(qp->pd, at(TARGET, 0), area_size(), IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
	struct ibv_mw *mw = new_mw(qp->pd, type);
	struct layout place = lay_at(MARGIN, size);
	struct ibv_mw_bind_info info = { below, (uintptr_t)at(TARGET, MARGIN), size, REMOTE_ACCESS };
	struct loan loan = { .addr = info.addr }, none;

	clear(&place, TARGET);
	if (type == IBV_MW_TYPE_1) {
		struct ibv_mw_bind b = { .wr_id = seed, .send_flags = IBV_SEND_SIGNALED, .bind_info = info };

		MUST(ibv_bind_mw(qp, mw, &b));
		loan.key = mw->rkey;
	} else {
		struct ibv_send_wr w = { .opcode = IBV_WR_BIND_MW, .wr_id = seed, .send_flags = IBV_SEND_SIGNALED };

		loan.key = ibv_inc_rkey(mw->rkey);
		w.bind_mw.mw = mw;
		w.bind_mw.rkey = loan.key;
		w.bind_mw.bind_info = info;
		post(0, &w);
	}
	completion(0, seed, IBV_WC_BIND_MW, "binding a window");
	expect_message(0, seed, NULL, 0);
	swap(&loan, &none, sizeof(loan));
	struct ibv_wc wc = completion(0, seed, IBV_WC_RECV, "the end of a loan");

	/* rdma_rxe hands the kernel's number of this flag to user space. */
	if (type == IBV_MW_TYPE_2)
		CHECK(wc.wc_flags & (IBV_WC_WITH_INV | 1 << 2) && wc.invalidated_rkey == loan.key, "flags %#x, key %08x for %08x",
		      wc.wc_flags, wc.invalidated_rkey, loan.key);
	else
		CHECK(!(wc.wc_flags & IBV_WC_WITH_INV), "a key was invalidated");
	compare(&place, TARGET, seed, "what was written through a window");
	DESTROY(mw, below);
	together("a window is gone");
}

static void borrow(enum ibv_mw_type type, uint32_t size, unsigned int seed)
{
	struct layout place = lay_at(MARGIN, size);
	struct ibv_send_wr w = { .opcode = IBV_WR_RDMA_WRITE, .wr_id = seed, .send_flags = IBV_SEND_SIGNALED };
	struct loan none = {}, loan;
	struct ibv_sge sges[MAX_SGE];

	fill(&place, ASKER, seed);
	swap(&none, &loan, sizeof(loan));
	w.num_sge = list(&place, ASKER, sges);
	w.sg_list = sges;
	w.wr.rdma.remote_addr = loan.addr;
	w.wr.rdma.rkey = loan.key;
	post(0, &w);
	completion(0, seed, IBV_WC_RDMA_WRITE, "a WRITE through a window");
	clear(&place, ASKER);
	w.opcode = IBV_WR_RDMA_READ;
	post(0, &w);
	completion(0, seed, IBV_WC_RDMA_READ, "a READ through a window");
	compare(&place, ASKER, seed, "what was read through a window");
	w = (struct ibv_send_wr){ .opcode = type == IBV_MW_TYPE_2 ? IBV_WR_SEND_WITH_INV : IBV_WR_SEND, .wr_id = seed,
				  .send_flags = IBV_SEND_SIGNALED, .invalidate_rkey = loan.key };
	post(0, &w);
	completion(0, seed, IBV_WC_SEND, "giving a key back");
	together("a window is gone");
}

bool run_window(char op, uint32_t size, bool ask, unsigned int seed)
{
	enum ibv_mw_type type = op == 'K' ? IBV_MW_TYPE_2 : IBV_MW_TYPE_1;

	if (op != 'k' && op != 'K')
		return false;
	if (ask)
		borrow(type, size, seed);
	else
		lend(type, size, seed);
	return true;
}
