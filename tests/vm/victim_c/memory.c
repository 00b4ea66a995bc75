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

#define BOTH (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ)

struct area areas[REGIONS] = {
	[RW] = { .name = "rw", .access = BOTH, .may_be_read = true },
	[RO] = { .name = "ro", .access = IBV_ACCESS_REMOTE_READ, .may_be_read = true },
	[WO] = { .name = "wo", .access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE },
	[LOCAL] = { .name = "local", .access = IBV_ACCESS_LOCAL_WRITE },
	[FOREIGN] = { .name = "foreign", .access = BOTH },
	[STALE] = { .name = "stale", .access = BOTH },
	/* Readable until the generator has it deregistered; after that a byte of it is not secret, only gone. */
	[VOLATILE] = { .name = "volatile", .access = BOTH, .may_be_read = true },
	[RECEIVES] = { .name = "receives", .access = IBV_ACCESS_LOCAL_WRITE },
	[SENDS] = { .name = "sends", .access = IBV_ACCESS_LOCAL_WRITE, .may_be_read = true },
};

static uint8_t *arena, *pristine;

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
	for (int i = 0; i < REGIONS; i++)
		areas[i].from = areas[i].to = 0;
}

void memory_allow(struct area *area, size_t offset, size_t len)
{
	CHECK(offset <= REGION && len <= REGION - offset, "a range outside its region");
	if (area->from == area->to)
		area->from = offset;
	area->from = offset < area->from ? offset : area->from;
	area->to = offset + len > area->to ? offset + len : area->to;
}

bool memory_is_whole(void)
{
	if (!memcmp(arena, pristine, ARENA))
		return true;
	for (size_t i = 0; i < ARENA; i++) {
		if (arena[i] == pristine[i])
			continue;
		const struct area *area = area_of(i);
		size_t at = area ? (size_t)(arena + i - area->at) : i;

		if (area && at >= area->from && at < area->to)
			continue;
		tell("changed %s byte %zu is %02x, was %02x\n", area ? area->name : "between regions:", at, arena[i],
		     pristine[i]);
		return false;
	}
	return true;
}

void memory_open(struct ibv_pd *own, struct ibv_pd *foreign)
{
	int rc;

	arena = mmap(NULL, ARENA, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(arena != MAP_FAILED, "mmap: %s", strerror(errno));
	pristine = malloc(ARENA);
	CHECK(pristine, "malloc: %s", strerror(errno));
	for (int i = 0; i < REGIONS; i++)
		areas[i].at = arena + 2 * WINDOW * i + ODD;
	for (size_t i = 0; i < ARENA; i++)
		pristine[i] = original(i);
	memory_renew();
	for (int i = 0; i < REGIONS; i++) {
		struct area *area = &areas[i];

		area->mr = ibv_reg_mr(i == FOREIGN ? foreign : own, area->at, REGION, area->access);
		CHECK(area->mr, "ibv_reg_mr: %s", strerror(errno));
		tell("mr %s %llu %d %u\n", area->name, (unsigned long long)(uintptr_t)area->at, REGION,
		     area->mr->rkey);
	}
	rc = ibv_dereg_mr(areas[STALE].mr);
	CHECK(!rc, "ibv_dereg_mr: %s", strerror(rc));
	areas[STALE].mr = NULL;
}

void memory_close(void)
{
	for (int i = 0; i < REGIONS; i++)
		if (areas[i].mr) {
			int rc = ibv_dereg_mr(areas[i].mr);

			CHECK(!rc, "ibv_dereg_mr: %s", strerror(rc));
		}
	munmap(arena, ARENA);
	free(pristine);
}
