// SPDX-License-Identifier: GPL-2.0
/*
 * Work requests one by one, and their completions. They are posted in the context that the test
 * says, with interrupts disabled.
 */
#include <linux/slab.h>
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
	struct waiter *w = kzalloc(sizeof(*w), GFP_KERNEL);

	if (!w) {
		fail(t, "no memory");
		return NULL;
	}
	w->t = t;
	w->cqe.done = on_waited;
	timer_setup(&w->pause, after_pause, 0);
	list_add(&w->list, &t->waiters);
	return w;
}

/* Its completion is waited for. */
struct waiter *wait_on(struct test *t, struct ib_send_wr *wr)
{
	struct waiter *w = make_waiter(t);

	if (!w)
		return NULL;
	wr->wr_cqe = &w->cqe;
	wr->send_flags |= IB_SEND_SIGNALED;
	return w;
}

struct receiving {
	struct end *e;
	struct ib_recv_wr wr;
};

static int receive_now(void *arg)
{
	struct receiving *r = arg;

	if (r->e->pool)
		return ib_post_srq_recv(r->e->pool->srq, &r->wr, NULL);
	return ib_post_recv(r->e->qp, &r->wr, NULL);
}

struct waiter *post_receive(struct end *e, struct room *room, u32 at, u32 len)
{
	struct waiter *w = make_waiter(e->t);
	/* Users have lists at odd addresses, too. */
	struct {
		u8 odd;
		struct ib_sge sge;
	} __packed list = {
		.sge.addr = room ? room->addr + at : 0,
		.sge.length = len,
		.sge.lkey = e->pd->local_dma_lkey,
	};
	struct receiving r = {
		.e = e,
		.wr = { .wr_cqe = w ? &w->cqe : NULL, .sg_list = &list.sge, .num_sge = !!room },
	};
	int err;

	if (!w)
		return NULL;
	err = run_in(e->t, e->t->context, receive_now, &r);
	if (err) {
		fail(e->t, "posting a receive: error %d", err);
		return NULL;
	}
	return w;
}

struct sending {
	struct end *e;
	struct ib_send_wr *first;
};

static int send_now(void *arg)
{
	struct sending *s = arg;

	return ib_post_send(s->e->qp, s->first, NULL);
}

/* Posts what hangs together in one go. */
int post_list(struct end *e, struct ib_send_wr *first)
{
	struct sending s = { .e = e, .first = first };
	int err = run_in(e->t, e->t->context, send_now, &s);

	return err ? fail(e->t, "posting opcode %d: error %d", first->opcode, err) : 0;
}

struct waiter *post(struct end *e, struct ib_send_wr *wr)
{
	struct waiter *w = wait_on(e->t, wr);

	return w && !post_list(e, wr) ? w : NULL;
}

bool is_done(struct waiter *w)
{
	/* Pairs with the release in on_waited(): what it brought is there. */
	return smp_load_acquire(&w->done);
}

/* The status of the request when it has completed, or an error. */
int finish(struct waiter *w)
{
	if (!w)
		return -EIO;
	if (!wait_for(w->t, is_done(w)))
		return fail(w->t, "a work request did not complete");
	return w->wc.status;
}

int act(struct end *e, struct ib_send_wr *wr)
{
	return finish(post(e, wr));
}

/* Who posted what failed. */
int came_from(struct test *t)
{
	note(t, "posted from %s", context_names[t->context]);
	return -EIO;
}

/* That a request ends with this status, and says so. */
int expect(struct test *t, const char *what, int status, int want)
{
	if (status < 0)
		return status;
	if (status != want)
		return fail(t, "%s: status %d instead of %d", what, status, want);
	note(t, "%s: status %d", what, status);
	return 0;
}

void fill(u8 *mem, u32 len, u32 seed)
{
	for (u32 i = 0; i < len; i++)
		mem[i] = seed * 31 + i * 7 + (i >> 8);
}

/* Where the first wrong byte stands, or -1. */
int differs(const u8 *mem, u32 len, u32 seed)
{
	for (u32 i = 0; i < len; i++)
		if (mem[i] != (u8)(seed * 31 + i * 7 + (i >> 8)))
			return i;
	return -1;
}

/* One message, checked; both queue pairs have to work for it. */
int send_one(struct end *from, struct end *to, struct room *out, struct room *in, u32 len, u32 seed)
{
	struct waiter *w = post_receive(to, in, 0, in->size);
	struct ib_sge sge = { .addr = out->addr, .length = len, .lkey = from->pd->local_dma_lkey };
	struct ib_send_wr wr = { .opcode = IB_WR_SEND, .sg_list = &sge, .num_sge = 1 };
	int status;

	if (!w)
		return -EIO;
	fill(out->mem, len, seed);
	memset(in->mem, 0, in->size);
	status = act(from, &wr);
	if (status)
		return fail(from->t, "a SEND: status %d", status);
	status = finish(w);
	if (status || w->wc.byte_len != len)
		return fail(from->t, "its receive: status %d, %u bytes", status, w->wc.byte_len);
	if (differs(in->mem, len, seed) >= 0)
		return fail(from->t, "byte %d is wrong", differs(in->mem, len, seed));
	return 0;
}
