// SPDX-License-Identifier: GPL-2.0
/*
 * Messages from one end to another, posted in one of the contexts that users in the kernel post in,
 * always with interrupts disabled and a lock held that the completions take as well.
 *
 * Each message says in its first bytes which it is, and the rest follows from that; it has its own
 * length, its own number of pieces, immediate data or none, a completion or none.
 */
#include <linux/delay.h>
#include "kuser.h"

#define HEAD 8
#define BATCH 4
#define INLINE_MOST 60

struct slot {
	struct ib_cqe cqe;
	struct flow *flow;
	/* Where its memory is in the room. */
	u32 at;
	u32 seq;
};

struct flow {
	struct list_head list;
	struct test *t;
	struct run run;
	struct room *out, *in;
	struct slot *sends, *recvs;
	unsigned long *seen;
	u32 head, stride;
	u32 posted, done, arrived;
	bool ended;
	spinlock_t lock;
	struct poster poster;
};

/* Every fifth message is short enough to be inline. */
static u32 length_of(const struct flow *f, u32 seq)
{
	u32 most = seq % 5 ? f->run.size : INLINE_MOST;

	return HEAD + seq * 977 % (most - HEAD + 1);
}

static bool signals(const struct flow *f, u32 seq)
{
	/* The last one always does: what stands before it is complete then, too. */
	return seq % 4 == 3 || seq + 1 == f->run.messages;
}

static void write_message(u8 *mem, u32 len, u32 seq)
{
	fill(mem, len, seq);
	((u32 *)mem)[0] = seq;
	((u32 *)mem)[1] = len;
}

/* One message; the lock is held. */
static int post_message(struct flow *f, u32 seq)
{
	struct slot *s = &f->sends[seq % f->run.depth];
	struct end *e = f->run.from;
	u32 len = length_of(f, seq);
	struct ib_sge sge[3];
	struct ib_ud_wr wr = {
		.wr.wr_cqe = &s->cqe,
		.wr.sg_list = sge,
		.wr.opcode = seq % 2 ? IB_WR_SEND_WITH_IMM : IB_WR_SEND,
		.wr.ex.imm_data = cpu_to_be32(seq),
		.wr.send_flags = seq % 5 == 0 ? IB_SEND_SOLICITED : 0,
	};
	int err;

	if (e->kind == IB_QPT_UD) {
		wr.ah = e->ah;
		wr.remote_qpn = e->peer->qp->qp_num;
		wr.remote_qkey = QKEY;
	}
	if (signals(f, seq))
		wr.wr.send_flags |= IB_SEND_SIGNALED;
	s->seq = seq;
	write_message(f->out->mem + s->at, len, seq);
	wr.wr.num_sge = cut(sge, piece(e, f->out, s->at, len), 1 + seq % 3);
	if (len > INLINE_MOST)
		return ib_post_send(e->qp, &wr.wr, NULL);
	/* It is taken when it is posted, and needs no key. */
	wr.wr.send_flags |= IB_SEND_INLINE;
	for (int i = 0; i < wr.wr.num_sge; i++)
		sge[i].lkey = ~0;
	err = ib_post_send(e->qp, &wr.wr, NULL);
	memset(f->out->mem + s->at, 0xee, len);
	return err;
}

static bool may_post(struct flow *f)
{
	return !f->ended && f->posted < f->run.messages && f->posted - f->done < f->run.depth;
}

/* Posts some of what may be posted; says whether there is more. */
static bool post_some(struct flow *f)
{
	unsigned long flags;
	bool more;

	lock_to_post(&f->lock, &flags);
	check_context(f->t, f->run.context);
	for (int i = 0; i < BATCH && may_post(f); i++) {
		int err = post_message(f, f->posted);

		if (err) {
			fail(f->t, "posting message %u: error %d", f->posted, err);
			f->ended = true;
		} else {
			f->posted++;
		}
	}
	more = may_post(f);
	unlock_posted(&f->lock, &flags);
	return more;
}

static void post_more(struct poster *poster)
{
	struct flow *f = container_of(poster, struct flow, poster);

	if (post_some(f))
		kick(&f->poster);
}

static void on_sent(struct ib_cq *cq, struct ib_wc *wc)
{
	struct slot *s = container_of(wc->wr_cqe, struct slot, cqe);
	struct flow *f = s->flow;
	unsigned long flags;
	bool goes_on;

	if (!on_completion(f->t, cq, false))
		return;
	spin_lock_irqsave(&f->lock, flags);
	goes_on = !f->ended && wc->status == IB_WC_SUCCESS;
	if (!f->ended && !goes_on)
		fail(f->t, "message %u: status %d", s->seq, wc->status);
	else if (goes_on && (s->seq < f->done || s->seq >= f->posted || !signals(f, s->seq)))
		fail(f->t, "message %u completed, between %u and %u", s->seq, f->done, f->posted);
	else if (goes_on)
		f->done = s->seq + 1;
	/* With the lock held: what stops the flow must not be overtaken. */
	if (goes_on)
		kick(&f->poster);
	spin_unlock_irqrestore(&f->lock, flags);
	while (goes_on && f->run.context == IN_HANDLER && post_some(f))
		;
}

static int give_slot(struct flow *f, struct slot *s)
{
	struct ib_sge sge = piece(f->run.to, f->in, s->at, f->stride);
	struct ib_recv_wr wr = { .wr_cqe = &s->cqe, .sg_list = &sge, .num_sge = 1 };

	return ib_post_recv(f->run.to->qp, &wr, NULL);
}

static int give_all(void *arg)
{
	struct flow *f = arg;
	int err = 0;

	for (u32 i = 0; i < f->run.depth && !err; i++)
		err = give_slot(f, &f->recvs[i]);
	return err;
}

static void check_message(struct flow *f, const u8 *mem, const struct ib_wc *wc)
{
	u32 seq = ((u32 *)mem)[0], len = wc->byte_len - f->head, want = length_of(f, seq);

	if (wc->byte_len < f->head + HEAD || seq >= f->run.messages)
		fail(f->t, "a message of %u bytes that nobody sent", wc->byte_len);
	else if (len != want || ((u32 *)mem)[1] != want)
		fail(f->t, "message %u has %u bytes instead of %u", seq, len, want);
	else if (differs(mem, HEAD, len, seq) >= 0)
		fail(f->t, "message %u: byte %d is wrong", seq, differs(mem, HEAD, len, seq));
	else if (!!(wc->wc_flags & IB_WC_WITH_IMM) != seq % 2 ||
		 (seq % 2 && be32_to_cpu(wc->ex.imm_data) != seq))
		fail(f->t, "message %u: wrong immediate data", seq);
	else if (f->run.to->kind == IB_QPT_UD && (!(wc->wc_flags & IB_WC_GRH) ||
		 wc->src_qp != f->run.from->qp->qp_num))
		fail(f->t, "message %u: from queue pair %u", seq, wc->src_qp);
	else if (wc->opcode != IB_WC_RECV || wc->qp != f->run.to->qp)
		fail(f->t, "message %u: opcode %d, or another queue pair", seq, wc->opcode);
	else if (test_and_set_bit(seq, f->seen))
		fail(f->t, "message %u came twice", seq);
}

static void on_received(struct ib_cq *cq, struct ib_wc *wc)
{
	struct slot *s = container_of(wc->wr_cqe, struct slot, cqe);
	struct flow *f = s->flow;
	unsigned long flags;
	u8 *mem = f->in->mem + s->at + f->head;
	u32 seq;
	int err;

	if (!on_completion(f->t, cq, false))
		return;
	if (wc->status) {
		if (!READ_ONCE(f->ended))
			fail(f->t, "a receive: status %d", wc->status);
		return;
	}
	check_message(f, mem, wc);
	seq = ((u32 *)mem)[0];
	lock_to_post(&f->lock, &flags);
	/* Reliable messages come in the order in which they were sent. */
	if (f->run.to->kind == IB_QPT_RC && seq != f->arrived)
		fail(f->t, "message %u came for %u", seq, f->arrived);
	f->arrived++;
	err = f->ended ? 0 : give_slot(f, s);
	if (err)
		fail(f->t, "posting a receive again: error %d", err);
	unlock_posted(&f->lock, &flags);
}

/* Those that have run stay, for a poller may still be about to leave one. */
void stop_flows(struct test *t)
{
	struct flow *f;

	list_for_each_entry(f, &t->flows, list) {
		unsigned long flags;

		spin_lock_irqsave(&f->lock, flags);
		f->ended = true;
		spin_unlock_irqrestore(&f->lock, flags);
		stop_poster(&f->poster);
	}
}

static void make_slots(struct flow *f, struct slot **slots, struct room **room, struct end *e,
		       void (*done)(struct ib_cq *, struct ib_wc *))
{
	*room = make_room(e, f->stride * f->run.depth);
	*slots = new_memory(f->t, f->run.depth * sizeof(**slots));
	for (u32 i = 0; i < f->run.depth; i++) {
		(*slots)[i].cqe.done = done;
		(*slots)[i].flow = f;
		(*slots)[i].at = i * f->stride;
	}
}

static void make_flow(struct test *t, const struct run *run)
{
	struct flow *f = new_memory(t, sizeof(*f));

	f->t = t;
	f->run = *run;
	f->head = run->to->kind == IB_QPT_UD ? GRH_BYTES : 0;
	f->stride = ALIGN(run->size + GRH_BYTES, 64);
	f->seen = new_memory(t, BITS_TO_LONGS(run->messages) * sizeof(long));
	spin_lock_init(&f->lock);
	set_up_poster(&f->poster, run->context, post_more);
	make_slots(f, &f->sends, &f->out, run->from, on_sent);
	make_slots(f, &f->recvs, &f->in, run->to, on_received);
	list_add(&f->list, &t->flows);
	/* A handler has nothing to handle yet. */
	must(t, "the first receives",
	     run_in(t, run->context == IN_HANDLER ? IN_TASK : run->context, give_all, f));
}

/* Whatever posts in this task. */
static void push(struct test *t)
{
	struct flow *f;

	list_for_each_entry(f, &t->flows, list)
		if (f->run.context == IN_TASK)
			post_some(f);
}

/* One of which not all has completed, and arrived. */
static struct flow *unfinished(struct test *t)
{
	struct flow *f;

	list_for_each_entry(f, &t->flows, list)
		if (READ_ONCE(f->done) < f->run.messages || READ_ONCE(f->arrived) < f->run.messages)
			return f;
	return NULL;
}

/* Runs several at once, and ends their queue pairs. */
void run_flows(struct test *t, const struct run *runs, int count)
{
	struct flow *f;

	for (int i = 0; i < count; i++)
		make_flow(t, &runs[i]);
	list_for_each_entry(f, &t->flows, list) {
		if (f->ended)
			continue;
		/* The first ones have no completion that could post them. */
		if (f->run.context == IN_HANDLER)
			post_some(f);
		else
			kick(&f->poster);
	}
	wait_for(t, (push(t), !unfinished(t)));
	f = unfinished(t);
	CHECK(t, !f, "of %u messages %u completed, %u arrived", f->run.messages, f->done, f->arrived);
	stop_flows(t);
	for (int i = 0; i < count; i++) {
		end_end(runs[i].from);
		end_end(runs[i].to);
	}
}
