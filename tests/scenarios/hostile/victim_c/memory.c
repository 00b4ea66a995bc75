// SPDX-License-Identifier: GPL-2.0
/*
 * Memory of which every byte is known. What a stranger may read has bytes below 128, everything else bytes from 128
 * on: so one look at a packet tells whether it carries what it must not.
 */
#include "victim.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

struct area areas[REGIONS] = {
	[RW] = { .name = "rw", .access = ALL_ACCESS | IBV_ACCESS_FLUSH_GLOBAL, .may_be_read = true },
	[RO] = { .name = "ro", .access = IBV_ACCESS_REMOTE_READ, .may_be_read = true },
	[WO] = { .name = "wo", .access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE },
	[LOCAL] = { .name = "local", .access = IBV_ACCESS_LOCAL_WRITE },
	[FOREIGN] = { .name = "foreign", .access = ALL_ACCESS },
	[STALE] = { .name = "stale", .access = ALL_ACCESS },
	/* Readable until the generator has it deregistered; after that a byte of it is not secret, only gone. */
	[VOLATILE] = { .name = "volatile", .access = ALL_ACCESS, .may_be_read = true },
	[RECEIVES] = { .name = "receives", .access = IBV_ACCESS_LOCAL_WRITE },
	[SENDS] = { .name = "sends", .access = IBV_ACCESS_LOCAL_WRITE, .may_be_read = true },
	[MW_RW] = { .name = "mw-rw", .access = REMOTE_ACCESS, .may_be_read = true, .window = OF_DOMAIN },
	[MW_RO] = { .name = "mw-ro", .access = IBV_ACCESS_REMOTE_READ, .may_be_read = true, .window = OF_DOMAIN },
	/* It was bound once, and has gone. */
	[MW_STALE] = { .name = "mw-stale", .access = REMOTE_ACCESS, .window = OF_DOMAIN },
	[MW_FOREIGN] = { .name = "mw-foreign", .access = REMOTE_ACCESS, .window = OF_ANOTHER },
	[MW_OWN] = { .name = "mw-own", .access = REMOTE_ACCESS, .may_be_read = true, .window = OF_EACH },
};

static uint8_t *arena, *pristine;
/* For each byte whether it may have changed. */
static bool *may_change;

static uint8_t pattern(size_t offset)
{
	uint32_t x = (uint32_t)offset * 2654435761u;

	return (x >> 24) & 0x7f;
}

/* The region that a byte belongs to, or NULL for what lies between regions. */
static const struct area *area_of(size_t offset)
{
	for (int i = 0; i < REGIONS; i++)
		if (arena + offset >= areas[i].at && arena + offset < areas[i].at + REGION)
			return &areas[i];
	return NULL;
}

static uint8_t original(size_t offset)
{
	const struct area *area = area_of(offset);

	return pattern(offset) | (area && area->may_be_read ? 0 : 0x80);
}

void memory_renew(void)
{
	memcpy(arena, pristine, ARENA);
	memset(may_change, 0, ARENA * sizeof(*may_change));
}

void memory_allow(struct area *area, size_t offset, size_t len)
{
	CHECK(offset <= REGION && len <= REGION - offset, "a range outside its region");
	memset(may_change + (area->at - arena) + offset, true, len * sizeof(*may_change));
}

bool memory_is_whole(void)
{
	if (!memcmp(arena, pristine, ARENA))
		return true;
	for (size_t i = 0; i < ARENA; i++) {
		if (arena[i] == pristine[i] || may_change[i])
			continue;
		const struct area *area = area_of(i);
		size_t at = area ? (size_t)(arena + i - area->at) : i;

		tell("changed %s byte %zu is %02x, was %02x\n", area ? area->name : "between regions:", at, arena[i],
		     pristine[i]);
		return false;
	}
	return true;
}

static struct ibv_mw_bind_info bind_info(const struct area *area)
{
	return (struct ibv_mw_bind_info){ .mr = area->mr, .addr = (uintptr_t)area->at, .length = REGION,
					  .mw_access_flags = area->access };
}

uint32_t memory_bind(struct area *area, struct ibv_qp *qp, struct ibv_mw *mw)
{
	struct ibv_send_wr w = { .opcode = IBV_WR_BIND_MW, .send_flags = IBV_SEND_SIGNALED };

	w.bind_mw.mw = mw;
	w.bind_mw.rkey = ibv_inc_rkey(mw->rkey);
	w.bind_mw.bind_info = bind_info(area);
	MUST(post_send(qp, &w));
	succeeded("a binding of type 2");
	return w.bind_mw.rkey;
}

/* The region is all of the place and gives no rights to peers: what they reach they reach by the window. */
static uint32_t open_window(struct area *area, struct ibv_pd *pd)
{
	area->mr = new_mr(pd, area->at - ODD, WINDOW, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
	if (area->window == OF_EACH)
		return 0;
	area->mw = new_mw(pd, area->window == OF_DOMAIN ? IBV_MW_TYPE_1 : IBV_MW_TYPE_2);
	if (area->window == OF_ANOTHER)
		return memory_bind(area, helper, area->mw);
	struct ibv_mw_bind bind = { .send_flags = IBV_SEND_SIGNALED, .bind_info = bind_info(area) };

	MUST(ibv_bind_mw(helper, area->mw, &bind));
	succeeded("a binding of type 1");
	return area->mw->rkey;
}

void memory_register(struct area *area, struct ibv_pd *pd)
{
	uint32_t key;

	if (area->window == NO_WINDOW) {
		area->mr = new_mr(pd, area->at, REGION, area->access);
		key = area->mr->rkey;
	} else {
		key = open_window(area, pd);
	}
	tell("mr %s %llu %d %u\n", area->name, (unsigned long long)(uintptr_t)area->at, REGION, key);
}

void memory_deregister(struct area *area)
{
	if (area->mw)
		DESTROY(area->mw);
	DESTROY(area->mr);
	area->mw = NULL;
	area->mr = NULL;
}

void memory_open(struct ibv_pd *own, struct ibv_pd *foreign)
{
	arena = new_memory(ARENA);
	pristine = malloc(ARENA);
	may_change = calloc(ARENA, sizeof(*may_change));
	CHECK(pristine && may_change, "malloc: %s", strerror(errno));
	for (int i = 0; i < REGIONS; i++)
		areas[i].at = arena + 2 * WINDOW * i + ODD;
	for (size_t i = 0; i < ARENA; i++)
		pristine[i] = original(i);
	memory_renew();
	for (int i = 0; i < REGIONS; i++)
		memory_register(&areas[i], i == FOREIGN ? foreign : own);
	memory_deregister(&areas[STALE]);
	/* The region around it stays. */
	DESTROY(areas[MW_STALE].mw);
	areas[MW_STALE].mw = NULL;
}

void memory_close(void)
{
	for (int i = 0; i < REGIONS; i++)
		if (areas[i].mr)
			memory_deregister(&areas[i]);
	munmap(arena, ARENA);
	free(pristine);
	free(may_change);
}
