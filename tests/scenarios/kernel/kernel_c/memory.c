// SPDX-License-Identifier: GPL-2.0
/* Memory that a device uses, what is registered of it, and requests that name that. */
#include <linux/slab.h>
#include <linux/string.h>
#include "kuser.h"

/*
 * Devices that see the memory as the processors do are what is tested, so that nothing is handed
 * over between the two.
 */
struct room *make_room(struct end *e, u32 size)
{
	struct room *r = kzalloc(sizeof(*r), GFP_KERNEL);

	if (!r)
		return NULL;
	r->dev = e->at->dev;
	r->size = size;
	r->mem = kzalloc(PAGE_ALIGN(size), GFP_KERNEL);
	if (!r->mem) {
		kfree(r);
		fail(e->t, "no memory");
		return NULL;
	}
	r->addr = ib_dma_map_single(r->dev, r->mem, size, DMA_BIDIRECTIONAL);
	list_add_tail(&r->list, &e->t->rooms);
	return r;
}

void free_room(struct room *r)
{
	ib_dma_unmap_single(r->dev, r->addr, r->size, DMA_BIDIRECTIONAL);
	list_del(&r->list);
	kfree(r->mem);
	kfree(r);
}

/* One for lists of so many pages or pieces, with nothing in it. */
struct region *make_region(struct end *e, enum ib_mr_type type, u32 most)
{
	struct region *r = kzalloc(sizeof(*r), GFP_KERNEL);

	if (!r)
		return NULL;
	r->e = e;
	/* Lists may be longer than what is registered of them. */
	r->most = most + 1;
	r->sg = kcalloc(r->most, sizeof(*r->sg), GFP_KERNEL);
	r->mr = r->sg ? ib_alloc_mr(e->pd, type, most) : ERR_PTR(-ENOMEM);
	if (IS_ERR(r->mr)) {
		fail(e->t, "a region of %u pages: error %ld", most, PTR_ERR(r->mr));
		kfree(r->sg);
		kfree(r);
		return NULL;
	}
	list_add_tail(&r->list, &e->t->regions);
	return r;
}

void free_region(struct region *r)
{
	int err = r->mr ? ib_dereg_mr(r->mr) : 0;

	if (err)
		fail(r->e->t, "deregistering: error %d", err);
	list_again(r);
	list_del(&r->list);
	kfree(r->sg);
	kfree(r);
}

/* Begins a list. */
void list_again(struct region *r)
{
	if (r->pieces)
		ib_dma_unmap_sg(r->e->at->dev, r->sg, r->pieces, DMA_BIDIRECTIONAL);
	r->pieces = 0;
	sg_init_table(r->sg, r->most);
}

void list_piece(struct region *r, struct room *room, u32 at, u32 len)
{
	if (WARN_ON(r->pieces == r->most))
		return;
	if (r->pieces)
		sg_unmark_end(&r->sg[r->pieces - 1]);
	sg_set_buf(&r->sg[r->pieces++], room->mem + at, len);
}

/* How many pieces of the list were taken, or an error. */
int map_list(struct region *r, unsigned int *skip, u32 page)
{
	int count;

	sg_mark_end(&r->sg[r->pieces - 1]);
	count = ib_dma_map_sg(r->e->at->dev, r->sg, r->pieces, DMA_BIDIRECTIONAL);
	if (count != r->pieces)
		return fail(r->e->t, "%d of %d pieces were mapped", count, r->pieces);
	return ib_map_mr_sg(r->mr, r->sg, count, skip, page);
}

/* A part of a room, as one piece. */
int map_room(struct region *r, struct room *room, u32 at, u32 len)
{
	int taken;

	list_again(r);
	list_piece(r, room, at, len);
	taken = map_list(r, NULL, PAGE_SIZE);
	if (taken != 1 || r->mr->length != len)
		return fail(r->e->t, "mapping %u bytes: %d, %llu bytes", len, taken, r->mr->length);
	return 0;
}

/* The key that it is registered under next. */
void next_key(struct region *r)
{
	ib_update_fast_reg_key(r->mr, ib_inc_rkey(r->mr->rkey));
}

struct ib_reg_wr registration(struct region *r, int access)
{
	return (struct ib_reg_wr) {
		.wr.opcode = IB_WR_REG_MR,
		.mr = r->mr,
		.key = r->mr->rkey,
		.access = access,
	};
}

/* Registers what is mapped, under the next key, by the QP of an end; the status. */
int register_by(struct end *e, struct region *r, int access)
{
	struct ib_reg_wr wr;

	next_key(r);
	wr = registration(r, access);
	return act(e, &wr.wr);
}

int invalidate(struct end *e, u32 key)
{
	struct ib_send_wr wr = { .opcode = IB_WR_LOCAL_INV, .ex.invalidate_rkey = key };

	return act(e, &wr);
}

/* Without rights nothing is registered, though it is mapped. */
int set_scene(struct test *t, struct scene *s, const struct wish *wish, u32 size, int access)
{
	static const struct wish usual = { .kind = IB_QPT_RC, .way = BY_SOFTIRQ, .retry = 7 };
	int status;

	memset(s, 0, sizeof(*s));
	if (make_pair(t, wish ?: &usual, &s->a, &s->b))
		return -EIO;
	s->near = make_room(s->a, size);
	s->far = make_room(s->b, size);
	s->r = make_region(s->b, IB_MR_TYPE_MEM_REG, DIV_ROUND_UP(size, PAGE_SIZE));
	if (!s->near || !s->far || !s->r)
		return -EIO;
	memset(s->far->mem, GUARD, size);
	if (map_room(s->r, s->far, 0, size))
		return -EIO;
	status = access ? register_by(s->b, s->r, access) : 0;
	return status ? fail(t, "registering: status %d", status) : 0;
}

/* Another pair of the same domains, with the same memory. */
int beside(struct scene *s, struct scene *other, enum ib_qp_type kind)
{
	struct wish wish = { .kind = kind, .way = BY_SOFTIRQ, .mate = s->a };

	*other = *s;
	other->a = make_end(s->a->t, 0, &wish);
	wish.mate = s->b;
	other->b = other->a ? make_end(s->a->t, 1, &wish) : NULL;
	return other->b ? connect(other->a, other->b, &wish) : -EIO;
}

struct ib_sge near_piece(struct scene *s, u32 at, u32 len)
{
	return (struct ib_sge) {
		.addr = s->near->addr + at, .length = len, .lkey = s->a->pd->local_dma_lkey,
	};
}

/* A request of one piece for the byte `at` of what is registered. */
struct ib_rdma_wr reach(struct scene *s, enum ib_wr_opcode opcode, struct ib_sge *sge, u64 at)
{
	return (struct ib_rdma_wr) {
		.wr.opcode = opcode,
		.wr.sg_list = sge,
		.wr.num_sge = 1,
		.remote_addr = s->r->mr->iova + at,
		.rkey = s->r->mr->rkey,
	};
}

/* The status of a request that moves the first bytes of the near room. */
int touch(struct scene *s, enum ib_wr_opcode opcode, u32 len, u64 addr, u32 key)
{
	struct ib_sge sge = near_piece(s, 0, len);
	struct ib_rdma_wr wr = reach(s, opcode, &sge, 0);

	wr.remote_addr = addr;
	wr.rkey = key;
	return act(s->a, &wr.wr);
}

/* Whether nobody has written there. */
bool is_guarded(struct room *room, u32 from, u32 to)
{
	return !memchr_inv(room->mem + from, GUARD, to - from);
}

/* That a room has these bytes there, and was written nowhere else. */
bool holds(struct room *room, u32 at, u32 len, u32 seed)
{
	return differs(room->mem + at, len, seed) < 0 && is_guarded(room, 0, at) &&
	       is_guarded(room, at + len, room->size);
}

/* As reach(), for the word there. */
struct ib_atomic_wr reach_word(struct scene *s, struct ib_sge *sge, u64 at)
{
	return (struct ib_atomic_wr) {
		.wr.sg_list = sge,
		.wr.num_sge = 1,
		.wr.opcode = IB_WR_ATOMIC_FETCH_AND_ADD,
		.remote_addr = s->r->mr->iova + at,
		.rkey = s->r->mr->rkey,
	};
}

/* WRITEs all of a region, or READs it; the caller looks at what stands at both ends. */
int touch_all(struct scene *s, enum ib_wr_opcode opcode)
{
	struct ib_mr *mr = s->r->mr;
	int status = touch(s, opcode, mr->length, mr->iova, mr->rkey);

	return status ? fail(s->a->t, "opcode %d: status %d", opcode, status) : 0;
}
