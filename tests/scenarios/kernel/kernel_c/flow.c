// SPDX-License-Identifier: GPL-2.0
/*
 * Messages from one end to another, posted in one of the contexts that users in the kernel post in,
 * always with interrupts disabled and a lock held that the completions take as well.
 *
 * Each message says in its first bytes which it is, and the rest follows from that; it has its own
 * length, its own number of pieces, immediate data or none, a completion or none.
 */
#include <linux/bitmap.h>
#include <linux/delay.h>
#include <linux/slab.h>
#include "kuser.h"

#define HEAD 8
#define BATCH 4
#define INLINE_MOST 60
#define SHARED_MOST 2000

struct flow;

struct slot {
	struct ib_cqe cqe;
	struct flow *flow;
	/* Where its memory is in the room. */
	u32 at;
	u32 seq;
};

struct flow {
	struct test *t;
	/* Those that run at once. */
	struct flows *all;
	struct run run;
	struct room *out, *in;
	struct slot *sends, *recvs;
	unsigned long *seen;
	u32 head, stride, limit;
	u32 posted, done, arrived;
	u32 posts_in_context;
	bool ended;
	spinlock_t lock;
	struct poster poster;
};

static u32 length_of(const struct flow *f, u32 seq)
{
	return HEAD + seq * 977 % (f->run.size - HEAD + 1);
}

static bool signals(const struct flow *f, u32 seq)
{
	/* The last one always does: what stands before it is complete then, too. */
	return seq % 4 == 3 || seq + 1 == f->limit;
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
	u32 len = length_of(f, seq), pieces = 1 + seq % 3, at = 0;
	struct ib_sge sge[3];
	struct ib_ud_wr wr = {
		.wr.wr_cqe = &s->cqe,
		.wr.sg_list = sge,
		.wr.opcode = seq % 2 ? IB_WR_SEND_WITH_IMM : IB_WR_SEND,
		.wr.ex.imm_data = cpu_to_be32(seq),
		.wr.send_flags = seq % 5 == 0 ? IB_SEND_SOLICITED : 0,
	};

	if (e->kind == IB_QPT_UD) {
		wr.ah = e->ah;
		wr.remote_qpn = e->peer->qp->qp_num;
		wr.remote_qkey = QKEY;
	}
	if (signals(f, seq))
		wr.wr.send_flags |= IB_SEND_SIGNALED;
	if (len <= INLINE_MOST)
		wr.wr.send_flags |= IB_SEND_INLINE;
	s->seq = seq;
	write_message(f->out->mem + s->at, len, seq);
	for (u32 i = 0; i < pieces; i++) {
		u32 part = i + 1 == pieces ? len - at : len / pieces;

		sge[i] = (struct ib_sge) {
			.addr = f->out->addr + s->at + at,
			.length = part,
			.lkey = e->pd->local_dma_lkey,
		};
		at += part;
	}
	wr.wr.num_sge = pieces;
	return ib_post_send(e->qp, &wr.wr, NULL);
}

/* Posts some of what may be posted; says whether there is more. */
static bool post_some(struct flow *f)
{
	unsigned long flags;
	bool more;
	int err;

	lock_to_post(&f->lock, &flags);
	if (!is_right_context(f->run.context) || !irqs_disabled())
		fail(f->t, "posted in the wrong context");
	for (int i = 0; i < BATCH && !f->ended && f->posted < f->limit &&
	     f->posted - f->done < f->run.depth; i++) {
		err = post_message(f, f->posted);
		if (err) {
			fail(f->t, "posting message %u: error %d", f->posted, err);
			f->ended = true;
			break;
		}
		f->posted++;
		f->posts_in_context++;
	}
	more = !f->ended && f->posted < f->limit && f->posted - f->done < f->run.depth;
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

static int give_receive(struct flow *f, struct slot *s)
{
	struct ib_sge sge = {
		.addr = f->in->addr + s->at,
		.length = f->stride,
		.lkey = f->run.to->pd->local_dma_lkey,
	};
	struct ib_recv_wr wr = { .wr_cqe = &s->cqe, .sg_list = &sge, .num_sge = 1 };

	if (f->run.to->pool)
		return ib_post_srq_recv(f->run.to->pool->srq, &wr, NULL);
	return ib_post_recv(f->run.to->qp, &wr, NULL);
}

static int give_all(void *arg)
{
	struct flow *f = arg;
	int err = 0;

	for (u32 i = 0; i < f->run.depth && !err; i++)
		err = give_receive(f, &f->recvs[i]);
	return err;
}

/* What a test has run. A poller may still be about to leave one until the queues have gone. */
struct flows {
	struct list_head list;
	int count;
	struct flow flow[];
};

/* Whose message it is: a receive that several share is not that of its flow. */
static struct flow *flow_of(struct flows *all, const struct ib_wc *wc)
{
	for (int i = 0; i < all->count; i++)
		if (all->flow[i].run.to && all->flow[i].run.to->qp == wc->qp)
			return &all->flow[i];
	return NULL;
}

static void check_message(struct flow *f, const u8 *mem, const struct ib_wc *wc)
{
	u32 seq = ((u32 *)mem)[0], len = wc->byte_len - f->head, want;
	int at = -1;

	if (wc->byte_len < f->head + HEAD || seq >= f->run.messages) {
		fail(f->t, "a message of %u bytes that nobody sent", wc->byte_len);
		return;
	}
	want = length_of(f, seq);
	if (len != want || ((u32 *)mem)[1] != want) {
		fail(f->t, "message %u has %u bytes instead of %u", seq, len, want);
		return;
	}
	for (u32 i = HEAD; i < len; i++)
		if (mem[i] != (u8)(seq * 31 + i * 7 + (i >> 8))) {
			at = i;
			break;
		}
	if (at >= 0)
		fail(f->t, "message %u: byte %d is wrong", seq, at);
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
	struct flow *given = s->flow, *f;
	unsigned long flags;
	u8 *mem = given->in->mem + s->at + given->head;
	u32 seq;
	int err;

	if (!on_completion(given->t, cq, false))
		return;
	f = flow_of(given->all, wc);
	if (wc->status || !f) {
		if (!READ_ONCE(given->ended))
			fail(given->t, "a receive: status %d", wc->status);
		return;
	}
	check_message(f, mem, wc);
	seq = ((u32 *)mem)[0];
	lock_to_post(&f->lock, &flags);
	/* Reliable messages come in the order in which they were sent. */
	if (f->run.to->kind == IB_QPT_RC && seq != f->arrived)
		fail(f->t, "message %u came for %u", seq, f->arrived);
	f->arrived++;
	err = READ_ONCE(given->ended) ? 0 : give_receive(given, s);
	if (err)
		fail(f->t, "posting a receive again: error %d", err);
	unlock_posted(&f->lock, &flags);
}

static void stop_flow(struct flow *f)
{
	unsigned long flags;

	spin_lock_irqsave(&f->lock, flags);
	f->ended = true;
	spin_unlock_irqrestore(&f->lock, flags);
	stop_poster(&f->poster);
}

void free_flows(struct test *t)
{
	struct flows *all, *next;

	list_for_each_entry_safe(all, next, &t->flows, list) {
		for (int i = 0; i < all->count; i++) {
			kfree(all->flow[i].sends);
			kfree(all->flow[i].recvs);
			bitmap_free(all->flow[i].seen);
		}
		list_del(&all->list);
		kfree(all);
	}
}

static int make_slots(struct flow *f, struct slot **slots, struct room **room, struct end *e,
		      void (*done)(struct ib_cq *, struct ib_wc *), u32 count)
{
	*room = make_room(e, f->stride * count);
	*slots = kcalloc(count, sizeof(**slots), GFP_KERNEL);
	if (!*room || !*slots)
		return -ENOMEM;
	for (u32 i = 0; i < count; i++) {
		(*slots)[i].cqe.done = done;
		(*slots)[i].flow = f;
		(*slots)[i].at = i * f->stride;
	}
	return 0;
}

static int start_flow(struct flow *f, struct test *t, struct flows *all, const struct run *run)
{
	int err;

	f->t = t;
	f->all = all;
	f->run = *run;
	f->head = run->to->kind == IB_QPT_UD ? GRH_BYTES : 0;
	/* Receives that several share hold what each of them sends. */
	f->stride = ALIGN((run->to->pool ? SHARED_MOST : run->size) + GRH_BYTES, 64);
	spin_lock_init(&f->lock);
	set_up_poster(&f->poster, run->context, post_more);
	f->seen = bitmap_zalloc(run->messages, GFP_KERNEL);
	if (!f->seen)
		return -ENOMEM;
	err = make_slots(f, &f->sends, &f->out, run->from, on_sent, run->depth) ?:
	      make_slots(f, &f->recvs, &f->in, run->to, on_received, run->depth);
	/* A handler has nothing to handle yet. */
	return err ?: run_in(t, run->context == IN_HANDLER ? IN_TASK : run->context, give_all, f);
}

static bool all_done(struct flow *f, int count)
{
	for (int i = 0; i < count; i++)
		if (READ_ONCE(f[i].done) < f[i].limit)
			return false;
	return true;
}

static bool all_arrived(struct flow *f, int count)
{
	for (int i = 0; i < count; i++)
		if (READ_ONCE(f[i].arrived) < f[i].limit)
			return false;
	return true;
}

/* Whatever posts in this task. */
static bool push(struct flow *f, int count)
{
	for (int i = 0; i < count; i++)
		if (f[i].run.context == IN_TASK)
			post_some(&f[i]);
	return true;
}

static u32 sum_arrived(struct flow *f, int count)
{
	u32 sum = 0;

	for (int i = 0; i < count; i++)
		sum += READ_ONCE(f[i].arrived);
	return sum;
}

/*
 * What is unreliable is sent by as many as there are receives for, and then looked for: what does
 * not come for a while is lost. Nothing but how long this takes hangs on that while.
 */
static void settle(struct test *t, struct flow *f, int count)
{
	unsigned long quiet = jiffies;
	u32 before = sum_arrived(f, count), now;

	while (!all_arrived(f, count) && time_before(jiffies, quiet + HZ / 5) && !t->failed) {
		poll_all(t);
		usleep_range(500, 2000);
		now = sum_arrived(f, count);
		if (now != before)
			quiet = jiffies;
		before = now;
	}
}

static bool is_reliable(const struct run *runs)
{
	return runs[0].from->kind == IB_QPT_RC;
}

static int drive(struct test *t, struct flow *f, int count)
{
	bool reliable = is_reliable(&f[0].run);
	u32 lost = 0, arrived = 0, sent = 0;
	u32 step = reliable ? f->run.messages : f->run.depth;

	for (u32 limit = 0; limit < f->run.messages; ) {
		limit = min(limit + step, f->run.messages);
		for (int i = 0; i < count; i++) {
			unsigned long flags;

			spin_lock_irqsave(&f[i].lock, flags);
			f[i].limit = limit;
			spin_unlock_irqrestore(&f[i].lock, flags);
			if (f[i].run.context == IN_HANDLER) {
				/* The first ones have no completion that could post them. */
				post_some(&f[i]);
			} else {
				kick(&f[i].poster);
			}
		}
		if (!wait_for(t, push(f, count) && all_done(f, count)))
			return fail(t, "only %u of %u messages completed", f->done, limit);
		if (reliable) {
			if (!wait_for(t, all_arrived(f, count)))
				return fail(t, "only %u of %u messages arrived", f->arrived, limit);
		} else {
			settle(t, f, count);
		}
		for (int i = 0; i < count && !reliable; i++) {
			unsigned long flags;

			/* The next round counts from here. */
			spin_lock_irqsave(&f[i].lock, flags);
			if (f[i].arrived < limit) {
				lost += limit - f[i].arrived;
				f[i].arrived = limit;
			}
			spin_unlock_irqrestore(&f[i].lock, flags);
		}
	}
	for (int i = 0; i < count; i++) {
		arrived += bitmap_weight(f[i].seen, f[i].run.messages);
		sent += f[i].run.messages;
		if (f[i].posts_in_context != f[i].run.messages)
			return fail(t, "%u of %u messages were posted", f[i].posts_in_context,
				    f[i].run.messages);
	}
	note(t, "%s from %s: %u of %u messages", reliable ? "RC" : f->run.from->kind == IB_QPT_UC ?
	     "UC" : "UD", count == 1 ? context_names[f->run.context] : "many", arrived, sent);
	if (!t->lossy && lost)
		return fail(t, "%u messages were lost on one device", lost);
	if (!arrived || (reliable && arrived != sent))
		return fail(t, "%u of %u messages arrived", arrived, sent);
	return 0;
}

/* Runs several at once, and ends their queue pairs. */
int run_flows(struct test *t, const struct run *runs, int count)
{
	struct flows *all = kzalloc(struct_size(all, flow, count), GFP_KERNEL);
	int err = 0, started;

	if (!all)
		return -ENOMEM;
	all->count = count;
	list_add(&all->list, &t->flows);
	for (started = 0; started < count && !err; started++)
		err = start_flow(&all->flow[started], t, all, &runs[started]);
	if (!err)
		err = drive(t, all->flow, count);
	else
		fail(t, "starting: error %d", err);
	for (int i = 0; i < started; i++)
		stop_flow(&all->flow[i]);
	for (int i = 0; i < started; i++) {
		end_end(runs[i].from);
		end_end(runs[i].to);
	}
	return err;
}

int run_flow(struct test *t, const struct run *run)
{
	return run_flows(t, run, 1);
}
