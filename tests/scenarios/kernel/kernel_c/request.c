// SPDX-License-Identifier: GPL-2.0
/*
 * Work requests one by one, and their completions. They are posted in the context that the test
 * says, with interrupts disabled.
 */
#include "kuser.h"

static void on_waited(struct ib_cq *cq, struct ib_wc *wc)
{
	struct waiter *w = container_of(wc->wr_cqe, struct waiter, cqe);

	if (!on_completion(w->t, cq, false))
		return;
	if (atomic_inc_return(&w->times) != 1)
		fail(w->t, "one work request completed twice");
	w->wc = *wc;
	w->order = atomic_inc_return(&w->t->order);
	/* What it brought is there before it is said to be there. */
	smp_store_release(&w->done, true);
}

struct waiter *make_waiter(struct test *t)
{
	struct waiter *w = new_memory(t, sizeof(*w));

	w->t = t;
	w->cqe.done = on_waited;
	return w;
}

/* Its completion is waited for. */
struct waiter *wait_on(struct test *t, struct ib_send_wr *wr)
{
	struct waiter *w = make_waiter(t);

	wr->wr_cqe = &w->cqe;
	wr->send_flags |= IB_SEND_SIGNALED;
	return w;
}

/* One of both. */
struct posting {
	struct end *e;
	struct ib_send_wr *send;
	struct ib_recv_wr *receive;
};

static int post_now(void *arg)
{
	struct posting *p = arg;

	return p->send ? ib_post_send(p->e->qp, p->send, NULL) :
			 ib_post_recv(p->e->qp, p->receive, NULL);
}

struct waiter *post_receive_into(struct end *e, const struct ib_sge *sge)
{
	struct waiter *w = make_waiter(e->t);
	struct odd_list list = {};
	struct ib_recv_wr wr = {
		.wr_cqe = &w->cqe, .sg_list = &list.sge, .num_sge = !!sge,
	};
	struct posting p = { .e = e, .receive = &wr };

	if (sge)
		list.sge = *sge;
	must(e->t, "posting a receive", run_in(e->t, e->t->context, post_now, &p));
	return w;
}

struct waiter *post_receive(struct end *e, struct room *room, u32 at, u32 len)
{
	struct ib_sge sge;

	if (!room)
		return post_receive_into(e, NULL);
	sge = piece(e, room, at, len);
	return post_receive_into(e, &sge);
}

/* Posts what hangs together in one go. */
void post_list(struct end *e, struct ib_send_wr *first)
{
	struct posting p = { .e = e, .send = first };
	int err = run_in(e->t, e->t->context, post_now, &p);

	CHECK(e->t, !err, "posting opcode %d: error %d", first->opcode, err);
}

bool is_done(struct waiter *w)
{
	/* Pairs with the release in on_waited(): what it brought is there. */
	return smp_load_acquire(&w->done);
}

/* The status of the request when it has completed. */
int finish(struct waiter *w)
{
	CHECK(w->t, wait_for(w->t, is_done(w)), "a work request did not complete");
	return w->wc.status;
}

int act(struct end *e, struct ib_send_wr *wr)
{
	struct waiter *w = wait_on(e->t, wr);

	post_list(e, wr);
	return finish(w);
}

/* So many have gone well, one after the other. */
void check_order(struct waiter *const w[], int count)
{
	for (int i = 0; i < count; i++) {
		int status = finish(w[i]);

		CHECK(w[i]->t, !status && (!i || w[i]->order > w[i - 1]->order),
		      "request %d: status %d, or out of order", i, status);
	}
}
