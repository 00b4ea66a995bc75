// SPDX-License-Identifier: GPL-2.0
/* Memory that a device uses, what is registered of it, and requests that name that. */
#include <linux/slab.h>
#include <linux/string.h>
#include "kuser.h"

void fill(u8 *mem, u32 len, u32 seed)
{
	for (u32 i = 0; i < len; i++)
		mem[i] = seed * 31 + i * 7 + (i >> 8);
}

/* Where the first wrong byte stands from there on, or -1. */
int differs(const u8 *mem, u32 from, u32 len, u32 seed)
{
	for (u32 i = from; i < len; i++)
		if (mem[i] != (u8)(seed * 31 + i * 7 + (i >> 8)))
			return i;
	return -1;
}

void compare(struct test *t, const u8 *mem, u32 len, u32 seed)
{
	int at = differs(mem, 0, len, seed);

	CHECK(t, at < 0, "byte %d of %u is wrong", at, len);
}

static void end_room(void *object)
{
	struct room *r = object;

	ib_dma_unmap_single(r->dev, r->addr, r->size, DMA_BIDIRECTIONAL);
	kfree(r->mem);
}

/*
 * Devices that see the memory as the processors do are what is tested, so that nothing is handed
 * over between the two.
 */
struct room *make_room(struct end *e, u32 size)
{
	u8 *mem = kzalloc(PAGE_ALIGN(size), GFP_KERNEL);
	struct room *r;

	CHECK(e->t, mem, "no memory");
	r = new_object(e->t, sizeof(*r), end_room);
	r->dev = e->at->dev;
	r->size = size;
	r->mem = mem;
	r->addr = ib_dma_map_single(r->dev, mem, size, DMA_BIDIRECTIONAL);
	return r;
}

struct ib_sge piece(struct end *e, struct room *room, u32 at, u32 len)
{
	return (struct ib_sge) {
		.addr = room->addr + at, .length = len, .lkey = e->pd->local_dma_lkey,
	};
}

/* Into so many, or as many as there are bytes; how many. */
u32 cut(struct ib_sge *sge, struct ib_sge whole, u32 pieces)
{
	u32 at = 0;

	pieces = min(pieces, whole.length);
	for (u32 i = 0; i < pieces; i++) {
		sge[i] = whole;
		sge[i].addr += at;
		sge[i].length = i + 1 == pieces ? whole.length - at : whole.length / pieces;
		at += sge[i].length;
	}
	return pieces;
}

static void end_region(void *object)
{
	struct region *r = object;
	int err = r->mr ? ib_dereg_mr(r->mr) : 0;

	if (err)
		fail(r->e->t, "deregistering: error %d", err);
	list_again(r);
}

/* One for lists of so many pages or pieces, with nothing in it. */
struct region *make_region(struct end *e, enum ib_mr_type type, u32 most)
{
	/* Lists may be longer than what is registered of them. */
	struct scatterlist *sg = new_memory(e->t, (most + 1) * sizeof(*sg));
	struct region *r = new_object(e->t, sizeof(*r), end_region);
	struct ib_mr *mr = ib_alloc_mr(e->pd, type, most);

	r->e = e;
	r->sg = sg;
	r->most = most + 1;
	CHECK(e->t, !IS_ERR(mr), "a region of %u pages: error %ld", most, PTR_ERR(mr));
	r->mr = mr;
	return r;
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
int map_list(struct region *r, unsigned int *skip)
{
	int count;

	sg_mark_end(&r->sg[r->pieces - 1]);
	count = ib_dma_map_sg(r->e->at->dev, r->sg, r->pieces, DMA_BIDIRECTIONAL);
	CHECK(r->e->t, count == r->pieces, "%d of %d pieces were mapped", count, r->pieces);
	return ib_map_mr_sg(r->mr, r->sg, count, skip, PAGE_SIZE);
}

/* A part of a room, as one piece. */
void map_room(struct region *r, struct room *room, u32 at, u32 len)
{
	int taken;

	list_again(r);
	list_piece(r, room, at, len);
	taken = map_list(r, NULL);
	CHECK(r->e->t, taken == 1 && r->mr->length == len, "mapping %u bytes: %d, %llu bytes", len,
	      taken, r->mr->length);
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
void set_scene(struct test *t, struct scene *s, u32 size, int access)
{
	static const struct wish usual = { .kind = IB_QPT_RC, .way = BY_SOFTIRQ };

	make_pair(t, &usual, &s->a, &s->b);
	s->near = make_room(s->a, size);
	s->far = make_room(s->b, size);
	s->r = make_region(s->b, IB_MR_TYPE_MEM_REG, DIV_ROUND_UP(size, PAGE_SIZE));
	memset(s->far->mem, GUARD, size);
	map_room(s->r, s->far, 0, size);
	if (access)
		must(t, "registering", register_by(s->b, s->r, access));
}

/* Another pair of the same domains, with the same memory. */
void beside(struct scene *s, struct scene *other, enum ib_qp_type kind)
{
	struct wish wish = { .kind = kind, .way = BY_SOFTIRQ, .mate = s->a };

	*other = *s;
	other->a = make_end(s->a->t, 0, &wish);
	wish.mate = s->b;
	other->b = make_end(s->a->t, 1, &wish);
	connect(other->a, other->b, &wish);
}

struct ib_sge near_piece(struct scene *s, u32 at, u32 len)
{
	return piece(s->a, s->near, at, len);
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
	struct odd_list list = { .sge = near_piece(s, 0, len) };
	struct ib_rdma_wr wr = {
		.wr.opcode = opcode, .wr.sg_list = &list.sge, .wr.num_sge = 1,
		.remote_addr = addr, .rkey = key,
	};

	return act(s->a, &wr.wr);
}

/* Nobody has written there. */
void check_guard(struct test *t, struct room *room, u32 from, u32 to)
{
	CHECK(t, !memchr_inv(room->mem + from, GUARD, to - from),
	      "something between %u and %u was written", from, to);
}

/* A room has these bytes there, and was written nowhere else. */
void check_room(struct test *t, struct room *room, u32 at, u32 len, u32 seed)
{
	compare(t, room->mem + at, len, seed);
	check_guard(t, room, 0, at);
	check_guard(t, room, at + len, room->size);
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
void touch_all(struct scene *s, enum ib_wr_opcode opcode)
{
	struct ib_mr *mr = s->r->mr;

	must(s->a->t, opcode == IB_WR_RDMA_READ ? "a READ of it all" : "a WRITE of it all",
	     touch(s, opcode, mr->length, mr->iova, mr->rkey));
}
