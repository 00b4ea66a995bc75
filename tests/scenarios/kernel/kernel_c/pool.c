// SPDX-License-Identifier: GPL-2.0
/* Shared receive queues. */
#include <linux/slab.h>
#include "kuser.h"

static void hear_pool(struct ib_event *event, void *context)
{
	struct pool *pool = context;

	fail(pool->t, "event %d of a shared receive queue", event->event);
}

struct pool *make_pool(struct test *t, int side, u32 receives)
{
	struct ib_device *dev = t->place[side].dev;
	struct pool *pool = kzalloc(sizeof(*pool), GFP_KERNEL);
	struct ib_srq_init_attr init = {
		.event_handler = hear_pool,
		.srq_context = pool,
		.srq_type = IB_SRQT_BASIC,
		.attr = { .max_wr = receives, .max_sge = 2 },
	};

	if (!pool)
		return NULL;
	pool->t = t;
	pool->pd = ib_alloc_pd(dev, 0);
	if (IS_ERR(pool->pd)) {
		fail(t, "a protection domain: error %ld", PTR_ERR(pool->pd));
		kfree(pool);
		return NULL;
	}
	pool->srq = ib_create_srq(pool->pd, &init);
	if (IS_ERR(pool->srq)) {
		fail(t, "a shared receive queue: error %ld", PTR_ERR(pool->srq));
		ib_dealloc_pd(pool->pd);
		kfree(pool);
		return NULL;
	}
	list_add(&pool->list, &t->pools);
	return pool;
}

void end_pool(struct pool *pool)
{
	ib_destroy_srq(pool->srq);
	ib_dealloc_pd(pool->pd);
	list_del(&pool->list);
	kfree(pool);
}
