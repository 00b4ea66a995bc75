// SPDX-License-Identifier: GPL-2.0
/*
 * What stands behind the core's part of a command may grow in later versions: a kernel takes a longer request whose
 * tail is zero, for then the program asks for nothing new, and refuses one that asks for what it does not know. A
 * program that knows less gets less of a response, one that knows more gets zeros. The commands are written by hand.
 */
#include "pair.h"

#include <rdma/ib_user_verbs.h>

/* Bytes of the first version of the request and of the response of GET_CONTEXT. */
enum { CONTEXT_IN = 8, CONTEXT_OUT = 8, MOST = 64, UNTOUCHED = 0xee };

/* One command: the core's part, and what is behind it. The response of both parts is in one piece. 0 or an errno. */
static int command(int fd, uint32_t number, void *core, size_t core_in, const void *tail, size_t tail_in,
		   uint8_t *response, size_t out)
{
	uint8_t request[128 + MOST];
	uint64_t where = (uintptr_t)response;

	memcpy(core, &where, sizeof(where));
	memset(response, UNTOUCHED, out);
	memcpy(request, core, core_in);
	memcpy(request + core_in, tail, tail_in);
	return uverbs_command(fd, number, request, core_in + tail_in, out);
}

/* GET_CONTEXT on a file of its own, which is closed but where it is asked for. */
static int get_context(const uint8_t *tail, size_t in, uint8_t *response, size_t out, int *keep)
{
	struct ib_uverbs_get_context core = { 0 };
	struct ib_uverbs_get_context_resp resp;
	int fd = open_device_file();
	int rc = command(fd, IB_USER_VERBS_CMD_GET_CONTEXT, &core, sizeof(core), tail, in, response, sizeof(resp) + out);

	if (!rc) {
		memcpy(&resp, response, sizeof(resp));
		close(resp.async_fd);
	}
	if (keep)
		*keep = fd;
	else
		close(fd);
	return rc;
}

CASE("users.growth-lengths", "GET_CONTEXT of every length, and of its response", .paths = LOCAL_PATH,
     .rxe = "looks at no request")
{
	uint8_t tail[MOST] = { 0 }, response[128];
	const size_t head = sizeof(struct ib_uverbs_get_context_resp);

	for (size_t in = 0; in <= MOST; in += 4) {
		int rc = get_context(tail, in, response, CONTEXT_OUT, NULL);

		CHECK(in >= CONTEXT_IN ? !rc : rc == EINVAL, "a request of %zu bytes: %s", in, strerror(rc));
	}
	for (size_t out = 0; out <= MOST; out += 8) {
		int rc = get_context(tail, CONTEXT_IN, response, out, NULL);

		CHECK(!rc, "room for %zu bytes of response: %s", out, strerror(rc));
		/* The last quarter is beyond everything known: it is zero, not left as it was. */
		for (size_t i = 48; i < out; i++)
			CHECK(!response[head + i], "byte %zu of the response is %02x", i, response[head + i]);
	}
}

CASE("users.growth-tails", "behind what the driver knows of a command zeros are taken, and requests are not",
     .paths = LOCAL_PATH, .rxe = "looks at no request")
{
	uint64_t page[512] __attribute__((aligned(4096)));
	struct ib_uverbs_alloc_pd pd = { 0 };
	struct ib_uverbs_create_cq cq = { .cqe = 16, .comp_channel = -1 };
	struct ib_uverbs_reg_mr mr = { .start = (uintptr_t)page, .hca_va = (uintptr_t)page, .length = sizeof(page),
				       .access_flags = IBV_ACCESS_LOCAL_WRITE };
	const struct {
		uint32_t number;
		void *core;
		size_t len, known;
	} rows[] = {
		{ IB_USER_VERBS_CMD_GET_CONTEXT, NULL, 0, CONTEXT_IN },
		{ IB_USER_VERBS_CMD_CREATE_CQ, &cq, sizeof(cq) },
		{ IB_USER_VERBS_CMD_ALLOC_PD, &pd, sizeof(pd) },
		{ IB_USER_VERBS_CMD_REG_MR, &mr, sizeof(mr) },
	};
	uint8_t tail[MOST] = { 0 }, response[128];
	int fd;

	MUST(get_context(tail, CONTEXT_IN, response, CONTEXT_OUT, &fd));
	for (size_t i = 0; i < COUNT(rows); i++) {
		/* The domain, which was made by the row before, is the first word of its response. */
		memcpy(&mr.pd_handle, response, sizeof(mr.pd_handle));
		/* Each byte asks for something; at the end there is none. */
		for (size_t at = rows[i].known; at <= MOST; at++) {
			if (at < MOST)
				tail[at] = 1;
			int rc = rows[i].core ? command(fd, rows[i].number, rows[i].core, rows[i].len, tail, MOST, response, 64) :
						get_context(tail, MOST, response, CONTEXT_OUT, NULL);

			if (at < MOST)
				tail[at] = 0;
			CHECK(at < MOST ? rc == EOPNOTSUPP || rc == E2BIG || rc == EINVAL : !rc,
			      "command %u with byte %zu of %d behind it set: %s", rows[i].number, at, MOST, strerror(rc));
		}
	}
	/* Closing destroys it all. */
	close(fd);
}

/*
 * Rings are moved in the process's memory, and back: they are the same. None is made longer or twice there, none is for
 * children, and one that is cut or gone harms nobody but who has done it.
 */
CASE("users.ring-mappings", "rings moved, cut, or taken out of a process's memory", .paths = LOCAL_PATH,
     .rxe = "has rings of another kind")
{
	enum { PAGE = 4096 };
	struct mapping rings[16];
	struct pair p, beside;

	pair_open(&p, NULL, 8192);
	int n = mapped_rings(rings, COUNT(rings));

	CHECK(n >= 4 && n < (int)COUNT(rings), "%d rings are mapped", n);
	for (int i = 0; i < n; i++) {
		size_t len = rings[i].len;
		uint8_t *place = new_memory(len), *at = rings[i].at;

		CHECK(mremap(at, len, len + PAGE, MREMAP_MAYMOVE) == MAP_FAILED, "ring %d became longer", i);
		CHECK(mremap(at, 0, len, MREMAP_MAYMOVE) == MAP_FAILED, "ring %d is there twice", i);
		CHECK(madvise(at, len, MADV_DOFORK) && errno == EINVAL, "ring %d is for children, too", i);
		CHECK(mremap(at, len, len, MREMAP_MAYMOVE | MREMAP_FIXED, place) == place, "moving ring %d: %s", i,
		      strerror(errno));
		CHECK(mremap(place, len, len, MREMAP_MAYMOVE | MREMAP_FIXED, at) == at, "back: %s", strerror(errno));
	}
	for (int i = 0; i < 3 * DEPTH; i++)
		send_checked(&p.a, &p.b, i);
	/* They are lost, whole or in part. */
	pair_open_beside(&beside, &p, 8192);
	for (int i = 0; i < n; i++) {
		uint8_t *last = rings[i].at + rings[i].len - PAGE;

		if (i % 3 == 2)
			MUST(madvise(rings[i].at, rings[i].len, MADV_DONTNEED));
		else
			MUST(munmap(i % 3 ? last : rings[i].at, i % 3 ? PAGE : rings[i].len));
	}
	send_checked(&beside.a, &beside.b, 1);
	/* The library would look for the rings: they go with the process. */
}
