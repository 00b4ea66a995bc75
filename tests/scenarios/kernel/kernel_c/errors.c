// SPDX-License-Identifier: GPL-2.0
/*
 * What goes wrong with messages, and with which status it ends. Each attempt is made on queue pairs of
 * its own, for it ends them.
 */
#include "kuser.h"

struct attempt {
	struct end *a, *b;
	struct room *near, *far;
};

/* With so many retries, or as many as usual if there is an answer to wait for: it may be late. */
static int set_up(struct attempt *m, struct test *t, u8 retry)
{
	struct wish wish = { .kind = IB_QPT_RC, .way = BY_SOFTIRQ, .retry = retry, .rnr_retry = 1 };

	if (make_pair(t, &wish, &m->a, &m->b))
		return -EIO;
	m->near = make_room(m->a, 512);
	m->far = make_room(m->b, 512);
	if (!m->near || !m->far)
		return -EIO;
	memset(m->far->mem, GUARD, 512);
	return 0;
}

/* Access to its own memory by a key that leads nowhere. */
static int wrong_local_key(struct test *t)
{
	for (int i = 0; i < 2; i++) {
		struct attempt m;
		struct ib_sge sge = { .length = 8, .lkey = 0x7fffff00 };
		struct ib_send_wr wr = { .opcode = IB_WR_SEND, .sg_list = &sge, .num_sge = 1 };
		struct ib_recv_wr rwr = { .sg_list = &sge, .num_sge = 1 };
		struct waiter *w;
		int status;

		if (set_up(&m, t, 0))
			return -EIO;
		sge.addr = i ? m.far->addr : m.near->addr;
		if (!i) {
			if (expect(t, "a SEND of it", act(m.a, &wr), IB_WC_LOC_PROT_ERR))
				return -EIO;
			continue;
		}
		w = make_waiter(t);
		if (!w)
			return -EIO;
		rwr.wr_cqe = &w->cqe;
		if (ib_post_recv(m.b->qp, &rwr, NULL))
			return fail(t, "posting");
		sge.addr = m.near->addr;
		sge.lkey = m.a->pd->local_dma_lkey;
		status = act(m.a, &wr);
		if (expect(t, "a receive into it", finish(w), IB_WC_LOC_PROT_ERR) ||
		    expect(t, "for its sender", status, IB_WC_REM_OP_ERR))
			return -EIO;
		if (m.far->mem[0] != GUARD)
			return fail(t, "written nevertheless");
	}
	return 0;
}

static int too_long(struct test *t)
{
	struct attempt m;
	struct ib_sge sge = { .length = 200 };
	struct ib_send_wr wr = { .opcode = IB_WR_SEND, .sg_list = &sge, .num_sge = 1 };
	struct waiter *w;
	int status;

	if (set_up(&m, t, 0))
		return -EIO;
	sge.addr = m.near->addr;
	sge.lkey = m.a->pd->local_dma_lkey;
	w = post_receive(m.b, m.far, 0, 199);
	if (!w)
		return -EIO;
	status = act(m.a, &wr);
	return expect(t, "a receive that is too short", finish(w), IB_WC_LOC_LEN_ERR) ?:
	       expect(t, "for its sender", status, IB_WC_REM_INV_REQ_ERR);
}

static int no_receive(struct test *t)
{
	struct attempt m;
	struct ib_send_wr wr = { .opcode = IB_WR_SEND };

	return set_up(&m, t, 0) ?:
	       expect(t, "no receive", act(m.a, &wr), IB_WC_RNR_RETRY_EXC_ERR);
}

static int nobody(struct test *t)
{
	struct attempt m;
	struct ib_send_wr wr = { .opcode = IB_WR_SEND };

	if (set_up(&m, t, 1))
		return -EIO;
	end_end(m.b);
	return expect(t, "nobody there", act(m.a, &wr), IB_WC_RETRY_EXC_ERR);
}

const struct kuser_case error_cases[] = {
	{ "wrong-local-key", wrong_local_key },
	{ "too-long", too_long },
	{ "no-receive", no_receive },
	{ "nobody-there", nobody },
	{}
};
