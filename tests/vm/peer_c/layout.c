// SPDX-License-Identifier: GPL-2.0
/* Messages in memory: how they are cut into pieces, what is in them, and that nothing beside them was touched. */
#include "peer.h"

#include <string.h>

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

/* Eight bytes of the pattern. It has no short period, so that a shifted or repeated piece is seen. */
static uint64_t word(uint64_t n, unsigned int seed)
{
	uint64_t x = (n + 1) * 0x9e3779b97f4a7c15u + seed * 0xbf58476d1ce4e5b9u;

	return x ^ x >> 29;
}

/* How many bytes from here on are in one word of the pattern. */
static size_t run(size_t from, size_t left)
{
	size_t n = 8 - from % 8;

	return n < left ? n : left;
}

void fill(const struct layout *l, enum area area, unsigned int seed)
{
	size_t from = 0;

	for (int p = 0; p < l->n; p++) {
		uint8_t *data = at(area, l->offset[p]);

		for (size_t i = 0, n; i < l->len[p]; i += n, from += n) {
			uint64_t w = word(from / 8, seed);

			n = run(from, l->len[p] - i);
			if (n == 8)
				memcpy(data + i, &w, 8);
			else
				memcpy(data + i, (uint8_t *)&w + from % 8, n);
		}
	}
}

void clear(const struct layout *l, enum area area)
{
	memset(at(area, 0), UNTOUCHED, 2 * MARGIN);
	for (int p = 0; p < l->n; p++)
		memset(at(area, l->offset[p] - MARGIN), UNTOUCHED, l->len[p] + 2 * MARGIN);
}

static void compare_word(const uint8_t *data, uint64_t w, size_t from, size_t n, const char *what)
{
	const uint8_t *want = (uint8_t *)&w + from % 8;

	for (size_t i = 0; i < n; i++)
		CHECK(data[i] == want[i], "%s: byte %zu is %02x, not %02x", what, from + i, data[i], want[i]);
}

void compare(const struct layout *l, enum area area, unsigned int seed, const char *what)
{
	size_t from = 0;

	for (int p = 0; p < l->n; p++) {
		const uint8_t *data = at(area, l->offset[p]);

		for (size_t i = 0, n; i < l->len[p]; i += n, from += n) {
			uint64_t w = word(from / 8, seed);

			n = run(from, l->len[p] - i);
			if (n != 8 || memcmp(data + i, &w, 8))
				compare_word(data + i, w, from, n, what);
		}
		for (int i = 0; i < MARGIN; i++)
			CHECK(data[-1 - i] == UNTOUCHED && data[l->len[p] + i] == UNTOUCHED,
			      "%s: bytes around piece %d were written", what, p);
	}
	if (!l->n)
		for (int i = 0; i < 2 * MARGIN; i++)
			CHECK(at(area, i)[0] == UNTOUCHED, "%s: bytes were written by an empty message", what);
}
