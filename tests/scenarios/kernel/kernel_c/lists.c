// SPDX-License-Identifier: GPL-2.0
/* What is registered fast: lists of pages and of pieces, as many as there may be. */
#include "kuser.h"

#define PAGES 16

/* Memory of several rooms, page by page, so that no two neighbours are one. */
struct pages {
	struct room *room[4];
	u32 each;
};

/* A pair, and so many pages at its far end, with one more in each room. */
static void set_pages(struct test *t, struct scene *s, struct pages *p, u32 count)
{
	set_scene(t, s, NULL, count * PAGE_SIZE, 0);
	p->each = count / ARRAY_SIZE(p->room) + 1;
	for (int i = 0; i < ARRAY_SIZE(p->room); i++) {
		p->room[i] = make_room(s->b, p->each * PAGE_SIZE);
		memset(p->room[i]->mem, GUARD, p->room[i]->size);
	}
}

/* Lists a part of a page: of each room the last one comes first. */
static void list_page(struct region *r, struct pages *p, u32 i, u32 from, u32 to)
{
	u32 at = (p->each - 1 - i / ARRAY_SIZE(p->room)) * PAGE_SIZE;

	list_piece(r, p->room[i % ARRAY_SIZE(p->room)], at + from, to - from);
}

static void whole_pages(struct region *r, struct pages *p, u32 from, u32 to)
{
	for (u32 i = from; i < to; i++)
		list_page(r, p, i, 0, PAGE_SIZE);
}

/* WRITEs all of what is listed, compares it, READs it back, and looks that nothing else changed. */
static void check_listed(struct scene *s, struct pages *p, u32 seed)
{
	struct test *t = s->a->t;
	struct scatterlist *sg = s->r->sg;
	u32 len = s->r->mr->length, at = 0;

	must(t, "registering", register_by(s->b, s->r, ALL_RIGHTS));
	fill(s->near->mem, len, seed);
	touch_all(s, IB_WR_RDMA_WRITE);
	for (int i = 0; i < s->r->pieces && at < len; i++) {
		u32 part = min(sg[i].length, len - at);

		CHECK(t, !memcmp(sg_virt(&sg[i]), s->near->mem + at, part),
		      "piece %d of %u bytes is wrong", i, len);
		at += part;
	}
	memset(s->near->mem, 0, len);
	touch_all(s, IB_WR_RDMA_READ);
	compare(t, s->near->mem, len, seed);
	must(t, "invalidating", invalidate(s->b, s->r->mr->rkey));
	/* With the pieces set back nothing of what was written may be left. */
	at = 0;
	for (int i = 0; i < s->r->pieces && at < len; i++) {
		memset(sg_virt(&sg[i]), GUARD, min(sg[i].length, len - at));
		at += min(sg[i].length, len - at);
	}
	for (int i = 0; i < ARRAY_SIZE(p->room); i++)
		check_guard(t, p->room[i], 0, p->room[i]->size);
}

/* Maps what is listed, of which so many pieces can be taken with so many bytes, and uses it. */
static void use_list(struct scene *s, struct pages *p, int pieces, u32 bytes)
{
	unsigned int skip = 0;
	int taken = map_list(s->r, &skip);

	CHECK(s->a->t, taken == pieces && s->r->mr->length == bytes && !skip,
	      "%d of %d pieces, %llu bytes and %u of the next instead of %d and %u", taken,
	      s->r->pieces, s->r->mr->length, skip, pieces, bytes);
	check_listed(s, p, bytes);
}

/* Pages: the first one may begin, and the last one end, somewhere within. */
static void page_lists(struct test *t)
{
	struct scene s;
	struct pages p;
	u32 count = 0;

	set_pages(t, &s, &p, PAGES);
	for (u32 first = 0; first < PAGE_SIZE; first += 1365) {
		for (u32 last = 1; last <= PAGE_SIZE; last += 1365, count++) {
			list_again(s.r);
			list_page(s.r, &p, 0, first, PAGE_SIZE);
			whole_pages(s.r, &p, 1, 5);
			list_page(s.r, &p, 5, 0, last);
			use_list(&s, &p, 6, 5 * PAGE_SIZE - first + last);
		}
	}
	/* A piece that is more than a page, as they are behind each other in a room. */
	list_again(s.r);
	list_piece(s.r, p.room[0], 100, 2 * PAGE_SIZE - 100);
	list_piece(s.r, p.room[1], 0, 3 * PAGE_SIZE + 7);
	use_list(&s, &p, 2, 5 * PAGE_SIZE - 93);
	/* One within a page alone. */
	list_again(s.r);
	list_page(s.r, &p, 3, 77, 78);
	use_list(&s, &p, 1, 1);
	note(t, "%u lists", count + 2);
}

/* What follows a piece that ends within a page is not taken. */
static void torn_lists(struct test *t)
{
	struct scene s;
	struct pages p;

	set_pages(t, &s, &p, PAGES);
	list_again(s.r);
	list_page(s.r, &p, 0, 0, PAGE_SIZE);
	list_page(s.r, &p, 1, 0, 100);
	whole_pages(s.r, &p, 2, 4);
	use_list(&s, &p, 2, PAGE_SIZE + 100);
	list_again(s.r);
	whole_pages(s.r, &p, 0, 2);
	list_page(s.r, &p, 2, 1, PAGE_SIZE);
	use_list(&s, &p, 2, 2 * PAGE_SIZE);
	note(t, "two lists that were not taken as a whole");
}

/* A list that is longer than a region is taken bit by bit; `skip` says how far. */
static void skipped(struct test *t)
{
	unsigned int skip = 300;
	struct region *small;
	struct scene s;
	struct pages p;
	int taken;

	set_pages(t, &s, &p, PAGES);
	s.r = small = make_region(s.b, IB_MR_TYPE_MEM_REG, 3);
	list_again(small);
	list_piece(small, p.room[0], 0, 2 * PAGE_SIZE);
	list_piece(small, p.room[1], 0, 4 * PAGE_SIZE);
	taken = map_list(small, &skip);
	CHECK(t, taken == 1 && skip == PAGE_SIZE && small->mr->length == 3 * PAGE_SIZE - 300,
	      "%d pieces, %u bytes of the next, %llu in all", taken, skip, small->mr->length);
	/* The rest, from there on. */
	taken = ib_map_mr_sg(small->mr, small->sg + taken, 1, &skip, PAGE_SIZE);
	CHECK(t, taken == 1 && !skip && small->mr->length == 3 * PAGE_SIZE,
	      "of the rest %d pieces, %u bytes of the next, %llu in all", taken, skip,
	      small->mr->length);
	must(t, "registering", register_by(s.b, small, ALL_RIGHTS));
	fill(s.near->mem, 3 * PAGE_SIZE, 3);
	touch_all(&s, IB_WR_RDMA_WRITE);
	check_room(t, p.room[1], PAGE_SIZE, 3 * PAGE_SIZE, 3);
	check_guard(t, p.room[0], 0, 2 * PAGE_SIZE);
	note(t, "two halves of a list");
}

/* Pieces of any size that begin and end anywhere. */
static void gap_lists(struct test *t)
{
	struct scene s;
	struct pages p;
	u32 bytes = 0;

	set_pages(t, &s, &p, PAGES);
	s.r = make_region(s.b, IB_MR_TYPE_SG_GAPS, PAGES);
	list_again(s.r);
	for (u32 i = 0; i < PAGES; i++) {
		u32 from = i * 37 % 50, to = i % 4 ? from + 1 + i * 251 : PAGE_SIZE;

		list_page(s.r, &p, i, from, to);
		bytes += to - from;
	}
	use_list(&s, &p, PAGES, bytes);
	/* A piece more than there is room for. */
	list_page(s.r, &p, 0, 60, 90);
	use_list(&s, &p, PAGES, bytes);
	note(t, "%d pieces, %u bytes", PAGES, bytes);
}

/* As many pages, and pieces, as the device says. */
static void largest(struct test *t)
{
	static const enum ib_mr_type types[] = { IB_MR_TYPE_MEM_REG, IB_MR_TYPE_SG_GAPS };
	struct ib_device *dev = t->place[1].dev;
	u32 most = dev->attrs.max_fast_reg_page_list_len;
	bool gaps = dev->attrs.kernel_cap_flags & IBK_SG_GAPS_REG;
	struct scene s;
	struct pages p;

	CHECK(t, most >= 64 && most <= 512, "%u pages", most);
	set_pages(t, &s, &p, most);
	for (int i = 0; i < (gaps ? 2 : 1); i++) {
		s.r = make_region(s.b, types[i], most);
		list_again(s.r);
		whole_pages(s.r, &p, 0, most);
		use_list(&s, &p, most, most * PAGE_SIZE);
		/* One more is not taken. */
		whole_pages(s.r, &p, most, most + 1);
		use_list(&s, &p, most, most * PAGE_SIZE);
	}
	note(t, "%u pages", most);
}

const struct kuser_case list_cases[] = {
	{ "page-lists", page_lists },
	{ "torn-lists", torn_lists },
	{ "half-lists", skipped },
	{ "gap-lists", gap_lists },
	{ "largest", largest },
	{}
};
