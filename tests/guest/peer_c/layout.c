// SPDX-License-Identifier: GPL-2.0
/* Messages in memory: how they are cut into pieces, what is in them, and that nothing beside them was touched. */
#include "peer.h"

enum { UNTOUCHED = 0xa5 };

struct layout lay(uint32_t size, int pieces)
{
	struct layout l = { 0 };
	uint32_t share = size / (pieces + 2);
	size_t offset = MARGIN + 1;

	for (int i = 0; i < pieces && size; i++) {
		/* Odd lengths, long and short ones. The last piece is the largest: pieces end inside packets. */
		uint32_t len = (i % 2 ? share : share / 4 + 3 * i) | 1;

		if (len > size || i == pieces - 1)
			len = size;
		size -= len;
		l.offset[l.n] = offset;
		l.len[l.n++] = len;
		offset += len + 2 * MARGIN + 1;
	}
	return l;
}

struct layout lay_at(size_t offset, uint32_t size)
{
	return (struct layout){ .n = size ? 1 : 0, .offset = { offset }, .len = { size } };
}

int list(const struct layout *l, enum area area, struct ibv_sge *to)
{
	for (int i = 0; i < l->n; i++)
		to[i] = piece(area, l->offset[i], l->len[i]);
	return l->n;
}

void fill(const struct layout *l, enum area area, unsigned int seed)
{
	size_t from = 0;

	for (int p = 0; p < l->n; from += l->len[p++])
		fill_piece(at(area, l->offset[p]), from, l->len[p], seed);
}

void clear(const struct layout *l, enum area area)
{
	memset(at(area, 0), UNTOUCHED, 2 * MARGIN);
	for (int p = 0; p < l->n; p++)
		memset(at(area, l->offset[p] - MARGIN), UNTOUCHED, l->len[p] + 2 * MARGIN);
}

void compare(const struct layout *l, enum area area, unsigned int seed, const char *what)
{
	size_t from = 0;

	for (int p = 0; p < l->n; from += l->len[p++]) {
		const uint8_t *data = at(area, l->offset[p]);

		compare_piece(data, from, l->len[p], seed, what);
		for (int i = 0; i < MARGIN; i++)
			CHECK(data[-1 - i] == UNTOUCHED && data[l->len[p] + i] == UNTOUCHED,
			      "%s: bytes around piece %d were written", what, p);
	}
	if (!l->n)
		for (int i = 0; i < 2 * MARGIN; i++)
			CHECK(at(area, i)[0] == UNTOUCHED, "%s: bytes were written by an empty message", what);
}

bool arrived(const struct layout *l, enum area area, unsigned int seed)
{
	size_t from = 0;
	bool same = true;

	for (int p = 0; p < l->n && same; from += l->len[p++]) {
		uint8_t *want = malloc(l->len[p]);

		CHECK(want, "no memory");
		fill_piece(want, from, l->len[p], seed);
		same = !memcmp(at(area, l->offset[p]), want, l->len[p]);
		free(want);
	}
	return same;
}
