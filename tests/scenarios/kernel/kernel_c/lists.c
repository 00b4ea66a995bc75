// SPDX-License-Identifier: GPL-2.0
/* What is registered fast: lists of pages and of pieces, as many as there may be. */
#include "kuser.h"

#define PAGES 16

/* Memory of several rooms, page by page, so that no two neighbours are one. */
struct pages {
	struct room *room[4];
	u32 each;
};

static int make_pages(struct scene *s, struct pages *p, u32 count)
{
	p->each = count / ARRAY_SIZE(p->room);
	for (int i = 0; i < ARRAY_SIZE(p->room); i++) {
		p->room[i] = make_room(s->b, p->each * PAGE_SIZE);
		if (!p->room[i])
			return -EIO;
		memset(p->room[i]->mem, GUARD, p->room[i]->size);
	}
	return 0;
}

static struct room *page(struct pages *p, u32 i, u32 *at)
{
	/* Backwards. */
	*at = (p->each - 1 - i / ARRAY_SIZE(p->room)) * PAGE_SIZE;
	return p->room[i % ARRAY_SIZE(p->room)];
}

/* Lists a part of a page. */
static void list_page(struct region *r, struct pages *p, u32 i, u32 from, u32 to)
{
	struct room *room;
	u32 at;

	room = page(p, i, &at);
	list_piece(r, room, at + from, to - from);
}

static void whole_pages(struct region *r, struct pages *p, u32 from, u32 to)
{
	for (u32 i = from; i < to; i++)
		list_page(r, p, i, 0, PAGE_SIZE);
}

/* WRITEs all of what is listed, compares it, READs it back, and looks that nothing else changed. */
static int check_listed(struct scene *s, struct pages *p, u32 seed)
{
	struct test *t = s->a->t;
	struct scatterlist *sg = s->r->sg;
	u32 len = s->r->mr->length, at = 0, status;

	status = register_by(s->b, s->r, ALL_RIGHTS);
	if (status)
		return fail(t, "registering %u bytes: status %d", len, status);
	fill(s->near->mem, len, seed);
	if (touch_all(s, IB_WR_RDMA_WRITE))
		return -EIO;
	for (int i = 0; i < s->r->pieces && at < len; i++) {
		u32 part = min(sg[i].length, len - at);

		if (memcmp(sg_virt(&sg[i]), s->near->mem + at, part))
			return fail(t, "piece %d of %u bytes is wrong", i, len);
		at += part;
	}
	memset(s->near->mem, 0, len);
	if (touch_all(s, IB_WR_RDMA_READ))
		return -EIO;
	if (differs(s->near->mem, len, seed) >= 0)
		return fail(t, "byte %d of %u was read wrong",
			    differs(s->near->mem, len, seed), len);
	if (invalidate(s->b, s->r->mr->rkey))
		return fail(t, "invalidating");
	/* With the pieces set back nothing of what was written may be left. */
	at = 0;
	for (int i = 0; i < s->r->pieces && at < len; i++) {
		memset(sg_virt(&sg[i]), GUARD, min(sg[i].length, len - at));
		at += min(sg[i].length, len - at);
	}
	for (int i = 0; i < ARRAY_SIZE(p->room); i++)
		if (!is_guarded(p->room[i], 0, p->room[i]->size))
			return fail(t, "others were written");
	return 0;
}

/* Maps what is listed, of which so many pieces can be taken with so many bytes, and uses it. */
static int use_list(struct scene *s, struct pages *p, unsigned int *skip, int pieces, u32 bytes)
{
	int taken = map_list(s->r, skip, PAGE_SIZE);

	if (taken != pieces || s->r->mr->length != bytes)
		return fail(s->a->t, "%d of %d pieces and %llu bytes instead of %d and %u", taken,
			    s->r->pieces, s->r->mr->length, pieces, bytes);
	return check_listed(s, p, bytes);
}

/* Pages: the first one may begin, and the last one end, somewhere within. */
static int page_lists(struct test *t)
{
	struct scene s;
	struct pages p;
	u32 count = 0;

	if (set_scene(t, &s, NULL, PAGES * PAGE_SIZE, 0) || make_pages(&s, &p, PAGES))
		return -EIO;
	for (u32 first = 0; first < PAGE_SIZE; first += 1365) {
		for (u32 last = 1; last <= PAGE_SIZE; last += 1365, count++) {
			list_again(s.r);
			list_page(s.r, &p, 0, first, PAGE_SIZE);
			whole_pages(s.r, &p, 1, 5);
			list_page(s.r, &p, 5, 0, last);
			if (use_list(&s, &p, NULL, 6, 5 * PAGE_SIZE - first + last))
				return -EIO;
		}
	}
	/* A piece that is more than a page, as they are behind each other in a room. */
	list_again(s.r);
	list_piece(s.r, p.room[0], 100, 2 * PAGE_SIZE - 100);
	list_piece(s.r, p.room[1], 0, 3 * PAGE_SIZE + 7);
	if (use_list(&s, &p, NULL, 2, 5 * PAGE_SIZE - 93))
		return -EIO;
	/* One within a page alone. */
	list_again(s.r);
	list_page(s.r, &p, 3, 77, 78);
	if (use_list(&s, &p, NULL, 1, 1))
		return -EIO;
	note(t, "%u lists", count + 2);
	return 0;
}

/* What follows a piece that ends within a page is not taken. */
static int torn_lists(struct test *t)
{
	unsigned int skip = 0;
	struct scene s;
	struct pages p;

	if (set_scene(t, &s, NULL, PAGES * PAGE_SIZE, 0) || make_pages(&s, &p, PAGES))
		return -EIO;
	list_again(s.r);
	list_page(s.r, &p, 0, 0, PAGE_SIZE);
	list_page(s.r, &p, 1, 0, 100);
	whole_pages(s.r, &p, 2, 4);
	if (use_list(&s, &p, &skip, 2, PAGE_SIZE + 100))
		return -EIO;
	if (skip)
		return fail(t, "the next list begins %u bytes within a piece", skip);
	list_again(s.r);
	whole_pages(s.r, &p, 0, 2);
	list_page(s.r, &p, 2, 1, PAGE_SIZE);
	if (use_list(&s, &p, NULL, 2, 2 * PAGE_SIZE))
		return -EIO;
	note(t, "two lists that were not taken as a whole");
	return 0;
}

/* A list that is longer than a region is taken bit by bit; `skip` says how far. */
static int skipped(struct test *t)
{
	unsigned int skip = 300;
	struct region *small, *all;
	struct scene s;
	struct pages p;
	int taken;

	if (set_scene(t, &s, NULL, PAGES * PAGE_SIZE, 0) || make_pages(&s, &p, PAGES))
		return -EIO;
	all = s.r;
	small = make_region(s.b, IB_MR_TYPE_MEM_REG, 3);
	if (!small)
		return -EIO;
	list_again(small);
	list_piece(small, p.room[0], 0, 2 * PAGE_SIZE);
	list_piece(small, p.room[1], 0, 4 * PAGE_SIZE);
	taken = map_list(small, &skip, PAGE_SIZE);
	if (taken != 1 || skip != PAGE_SIZE || small->mr->length != 3 * PAGE_SIZE - 300)
		return fail(t, "%d pieces, %u bytes of the next, %llu in all", taken, skip,
			    small->mr->length);
	/* The rest, from there on. */
	taken = ib_map_mr_sg(small->mr, small->sg + taken, 1, &skip, PAGE_SIZE);
	if (taken != 1 || skip || small->mr->length != 3 * PAGE_SIZE)
		return fail(t, "of the rest %d pieces, %u bytes of the next, %llu in all", taken,
			    skip, small->mr->length);
	s.r = small;
	if (register_by(s.b, small, ALL_RIGHTS))
		return fail(t, "registering");
	fill(s.near->mem, 3 * PAGE_SIZE, 3);
	if (touch_all(&s, IB_WR_RDMA_WRITE))
		return -EIO;
	if (differs(p.room[1]->mem + PAGE_SIZE, 3 * PAGE_SIZE, 3) >= 0 ||
	    !is_guarded(p.room[1], 0, PAGE_SIZE) || !is_guarded(p.room[0], 0, 2 * PAGE_SIZE))
		return fail(t, "wrong bytes");
	s.r = all;
	note(t, "two halves of a list");
	return 0;
}

/* Pieces of any size that begin and end anywhere. */
static int gap_lists(struct test *t)
{
	struct scene s;
	struct pages p;
	u32 bytes = 0;

	if (!(t->place[1].dev->attrs.kernel_cap_flags & IBK_SG_GAPS_REG))
		return -EOPNOTSUPP;
	if (set_scene(t, &s, NULL, PAGES * PAGE_SIZE, 0) || make_pages(&s, &p, PAGES))
		return -EIO;
	s.r = make_region(s.b, IB_MR_TYPE_SG_GAPS, PAGES);
	if (!s.r)
		return -EIO;
	list_again(s.r);
	for (u32 i = 0; i < PAGES; i++) {
		u32 from = i * 37 % 50, to = i % 4 ? from + 1 + i * 251 : PAGE_SIZE;

		list_page(s.r, &p, i, from, to);
		bytes += to - from;
	}
	if (use_list(&s, &p, NULL, PAGES, bytes))
		return -EIO;
	/* A piece more than there is room for. */
	list_page(s.r, &p, 0, 60, 90);
	if (use_list(&s, &p, NULL, PAGES, bytes))
		return -EIO;
	note(t, "%d pieces, %u bytes", PAGES, bytes);
	return 0;
}

/* As many pages, and pieces, as the device says. */
static int largest(struct test *t)
{
	static const enum ib_mr_type types[] = { IB_MR_TYPE_MEM_REG, IB_MR_TYPE_SG_GAPS };
	struct ib_device *dev = t->place[1].dev;
	u32 most = dev->attrs.max_fast_reg_page_list_len;
	bool gaps = dev->attrs.kernel_cap_flags & IBK_SG_GAPS_REG;
	struct scene s;
	struct pages p;

	if (most < 64 || most > 512)
		return fail(t, "%u pages", most);
	if (set_scene(t, &s, NULL, most * PAGE_SIZE, 0) ||
	    make_pages(&s, &p, most + ARRAY_SIZE(p.room)))
		return -EIO;
	for (int i = 0; i < (gaps ? 2 : 1); i++) {
		s.r = make_region(s.b, types[i], most);
		if (!s.r)
			return -EIO;
		list_again(s.r);
		whole_pages(s.r, &p, 0, most);
		if (use_list(&s, &p, NULL, most, most * PAGE_SIZE))
			return -EIO;
		/* One more is not taken. */
		whole_pages(s.r, &p, most, most + 1);
		if (use_list(&s, &p, NULL, most, most * PAGE_SIZE))
			return -EIO;
	}
	note(t, "%u pages", most);
	return 0;
}

const struct kuser_case list_cases[] = {
	{ "page-lists", page_lists },
	{ "torn-lists", torn_lists },
	{ "half-lists", skipped },
	{ "gap-lists", gap_lists },
	{ "largest", largest },
	{}
};
