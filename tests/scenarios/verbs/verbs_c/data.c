// SPDX-License-Identifier: GPL-2.0
/* Cases in which everything goes well: what was asked for arrives, whole and in order. */
#include "pair.h"

#include <arpa/inet.h>

CASE("verbs.send-sg", "a SEND of several pieces arrives whole in several pieces", .len = 65536)
{
	struct ibv_sge from[3], to[2];

	fill(p.a.buf, 7001, 1);
	/* The pieces of one pattern, apart from each other in memory. */
	memmove(p.a.buf + 30000, p.a.buf + 1, 4000);
	from[0] = sge(&p.a, 0, 1);
	from[1] = sge(&p.a, 30000, 4000);
	from[2] = sge(&p.a, 4001, 3000);
	to[0] = sge(&p.b, 3, 1030);
	to[1] = sge(&p.b, 20000, 8000);
	post_recv(&p.b, 7, to, 2);
	struct ibv_send_wr w = wr(IBV_WR_SEND, 1, from, 3);
	post(&p.a, &w);
	struct ibv_wc wc = expect(&p.b, 7, IBV_WC_SUCCESS, "receive");
	CHECK(wc.byte_len == 7001, "received %u bytes of 7001", wc.byte_len);
	CHECK(wc.opcode == IBV_WC_RECV && !(wc.wc_flags & IBV_WC_WITH_IMM), "wrong kind of completion");
	CHECK(wc.src_qp == p.a.qp->qp_num || !wc.src_qp, "the completion names a wrong source");
	wc = expect(&p.a, 1, IBV_WC_SUCCESS, "send");
	CHECK(wc.opcode == IBV_WC_SEND, "opcode of the send's completion is %d", wc.opcode);
	memmove(p.b.buf + 3 + 1030, p.b.buf + 20000, 7001 - 1030);
	compare(p.b.buf + 3, 7001, 1, "received data");
	CHECK(p.b.buf[2] == 0 && p.b.buf[20000 + 7001 - 1030] == 0, "bytes beyond the message were written");
}

CASE("verbs.inline", "inline data are taken when they are posted, of any length that was granted", .len = 65536)
{
	static const enum ibv_wr_opcode ops[] = { IBV_WR_SEND, IBV_WR_RDMA_WRITE };

	for (uint32_t len = 0; len <= INLINE_BYTES; len += len ? len : 1)
		for (unsigned int i = 0; i < COUNT(ops); i++) {
			struct ibv_sge from[2] = { sge(&p.a, 0, len / 2), sge(&p.a, len / 2, len - len / 2) };
			struct ibv_send_wr w = wr(ops[i], len, from, 2);

			fill(p.a.buf, len, len + i);
			/* No key is looked at for inline data. */
			from[0].lkey = from[1].lkey = 0xdeadbeef;
			w.send_flags |= IBV_SEND_INLINE;
			if (ops[i] == IBV_WR_SEND)
				post_room(&p.b, len, 9000, 4096);
			else
				aim(&w, &p.b, 9000);
			post(&p.a, &w);
			/* The buffer is the caller's again at once. */
			memset(p.a.buf, 0xee, INLINE_BYTES);
			expect(&p.a, len, IBV_WC_SUCCESS, "an inline request");
			if (ops[i] == IBV_WR_SEND)
				CHECK(expect(&p.b, len, IBV_WC_SUCCESS, "its receive").byte_len == len, "not %u bytes", len);
			compare(p.b.buf + 9000, len, len + i, "inline data");
		}
}

CASE("verbs.solicited", "events for solicited messages alone, and for errors",
     .rxe = "makes no event for a completion in error", .opt = { .events = true }, .len = 4096)
{
	for (int i = 0; i < 4; i++)
		post_recv(&p.b, i, NULL, 0);
	CHECK(!ibv_req_notify_cq(p.b.cq, 1), "ibv_req_notify_cq");
	post_one(&p.a, IBV_WR_SEND, 0, 0, 0);
	expect(&p.a, 0, IBV_WC_SUCCESS, "unsolicited SEND");
	CHECK(!event_within(&p.b, 300), "an event for a message that does not ask for one");
	expect(&p.b, 0, IBV_WC_SUCCESS, "unsolicited receive");
	struct ibv_send_wr w = wr(IBV_WR_SEND, 1, NULL, 0);
	w.send_flags |= IBV_SEND_SOLICITED;
	post(&p.a, &w);
	CHECK(event_within(&p.b, 1000 * patience()), "no event for a solicited message");
	expect(&p.b, 1, IBV_WC_SUCCESS, "solicited receive");
	/* One arming is good for one event. */
	post(&p.a, &w);
	expect(&p.a, 1, IBV_WC_SUCCESS, "solicited SEND");
	expect(&p.a, 1, IBV_WC_SUCCESS, "solicited SEND");
	CHECK(!event_within(&p.b, 300), "an event although the queue was not armed again");
	expect(&p.b, 2, IBV_WC_SUCCESS, "solicited receive");
	/* A completion in error asks for an event by itself. */
	CHECK(!ibv_req_notify_cq(p.b.cq, 1), "ibv_req_notify_cq");
	CHECK(!to_state(&p.b, IBV_QPS_ERR), "to ERR");
	CHECK(event_within(&p.b, 1000 * patience()), "no event for a completion in error");
	expect(&p.b, 3, IBV_WC_WR_FLUSH_ERR, "flushed receive");
}

CASE("verbs.notify", "one event for each arming", .opt = { .events = true }, .len = 4096)
{
	for (int i = 0; i < 20; i++) {
		post_recv(&p.b, i, NULL, 0);
		CHECK(!ibv_req_notify_cq(p.b.cq, 0) && !ibv_req_notify_cq(p.a.cq, 0), "ibv_req_notify_cq");
		post_one(&p.a, IBV_WR_SEND, i, 0, 0);
		CHECK(event_within(&p.b, 1000 * patience()), "no event for receive %d", i);
		CHECK(event_within(&p.a, 1000 * patience()), "no event for send %d", i);
		expect(&p.b, i, IBV_WC_SUCCESS, "receive");
		expect(&p.a, i, IBV_WC_SUCCESS, "send");
	}
	CHECK(!event_within(&p.b, 50) && !event_within(&p.a, 50), "one event too many");
}

CASE("verbs.fence", "a fenced SEND sends what the READ before it has brought", .len = 1 << 17)
{
	for (int i = 0; i < 8; i++) {
		struct ibv_sge mine = sge(&p.a, 0, 30000);

		fill(p.b.buf, 30000, i);
		memset(p.a.buf, 0, 30000);
		post_room(&p.b, i, 60000, 30000);
		/* The SEND sends what the READ before it brings: that needs the fence. */
		struct ibv_send_wr second = wr(IBV_WR_SEND, 100 + i, &mine, 1);
		second.send_flags |= IBV_SEND_FENCE;
		struct ibv_send_wr first = wr(IBV_WR_RDMA_READ, i, &mine, 1);
		aim(&first, &p.b, 0);
		first.next = &second;
		post(&p.a, &first);
		expect(&p.b, i, IBV_WC_SUCCESS, "fenced receive");
		expect(&p.a, i, IBV_WC_SUCCESS, "READ");
		expect(&p.a, 100 + i, IBV_WC_SUCCESS, "fenced SEND");
		compare(p.b.buf + 60000, 30000, i, "data behind the fence");
	}
}

CASE("verbs.unsignalled", "a completion stands for the unsignalled messages before it", .len = 641 << 10)
{
	enum { MESSAGES = 640, EACH = 16, PLACE = 1024 };

	for (int i = 1; i <= MESSAGES; i++) {
		struct ibv_sge from = sge(&p.a, i * PLACE, 8 + i);
		struct ibv_send_wr w = wr(IBV_WR_RDMA_WRITE, i, &from, 1);

		fill(p.a.buf + i * PLACE, 8 + i, i);
		aim(&w, &p.b, i * PLACE);
		w.send_flags = i % EACH ? 0 : IBV_SEND_SIGNALED;
		post(&p.a, &w);
		if (i % EACH)
			continue;
		expect(&p.a, i, IBV_WC_SUCCESS, "the signalled one");
		/* Its completion stands for those before it. */
		for (int k = i - EACH + 1; k <= i; k++) {
			compare(p.b.buf + k * PLACE, 8 + k, k, "written data");
			CHECK(!p.b.buf[k * PLACE + 8 + k], "a byte behind message %d was written", k);
		}
	}
	expect_none(&p.a, 20, "after the last");
}

/*
 * In turns SEND, WRITE, READ and WRITE with immediate, of no bytes and more, each to a place of its own. A READ fetches
 * what the WRITE before it has written in this round: it must not overtake it.
 */
CASE("verbs.order", "completions in order, and no operation overtakes another, of 0 B to 9 kB",
     .opt = { .rd_atomic = 1 }, .len = 1 << 20)
{
	enum { PLACE = 10000 };
	struct ibv_send_wr w[DEPTH];
	struct ibv_sge list[DEPTH];

	for (int round = 0; round < 4; round++) {
		memset(p.b.buf, 0xee, p.b.len);
		for (int i = 0; i < DEPTH; i++) {
			bool reads = i % 4 == 2, takes = i % 4 == 0 || i % 4 == 3;
			uint32_t len = i / 4 * 977 % 9000;

			list[i] = sge(&p.a, i * PLACE, len);
			w[i] = wr(i % 4 == 0 ? IBV_WR_SEND : i % 4 == 1 ? IBV_WR_RDMA_WRITE :
				  reads ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE_WITH_IMM, i, &list[i], 1);
			memset(p.a.buf + i * PLACE, 0xee, PLACE);
			if (!reads)
				fill(p.a.buf + i * PLACE, len, round * DEPTH + i);
			if (i % 4)
				aim(&w[i], &p.b, (i - reads) * PLACE);
			w[i].imm_data = htonl(i);
			w[i].next = i + 1 < DEPTH ? &w[i + 1] : NULL;
			if (takes)
				post_room(&p.b, i, i * PLACE, PLACE);
		}
		post(&p.a, w);
		for (int i = 0; i < DEPTH; i++)
			expect(&p.a, i, IBV_WC_SUCCESS, "mixed operations");
		for (int i = 0; i < DEPTH; i++) {
			bool reads = i % 4 == 2;
			struct side *to = reads ? &p.a : &p.b;

			if (i % 4 == 0 || i % 4 == 3) {
				struct ibv_wc wc = expect(&p.b, i, IBV_WC_SUCCESS, "mixed receives");

				CHECK(wc.byte_len == list[i].length, "%u bytes", wc.byte_len);
				CHECK(i % 4 == 0 || ntohl(wc.imm_data) == (uint32_t)i, "immediate of another message");
			}
			compare(to->buf + i * PLACE, list[i].length, round * DEPTH + i - reads, "data of a mixture");
			CHECK(to->buf[i * PLACE + list[i].length] == 0xee, "a byte behind message %d was written", i);
		}
	}
}

/* Pages that are mapped at `at` again and again, as often as it takes: little memory of any apparent size. */
static void map_pages(uint8_t *at, size_t total, size_t piece)
{
	int fd = memfd_create("repeated", 0);

	CHECK(fd >= 0 && !ftruncate(fd, piece), "memory: %s", strerror(errno));
	for (size_t i = 0; i < total; i += piece)
		CHECK(mmap(at + i, piece, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) == at + i,
		      "mmap: %s", strerror(errno));
	close(fd);
}

static uint8_t *address_space(size_t total)
{
	uint8_t *at = mmap(NULL, total, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	CHECK(at != MAP_FAILED, "mmap: %s", strerror(errno));
	return at;
}

CASE("verbs.large-mr", "a region of 1.5 GiB, used at both ends and in the middle", .seconds = 120,
     .rxe = "cannot register more than 1 GiB", .len = 65536)
{
	const size_t total = (size_t)3 << 29, places[] = { 0, ((size_t)1 << 30) - 5000, total - 10001 };
	uint8_t *at = address_space(total);

	map_pages(at, total, 64 << 20);
	struct side large = p.b;
	large.buf = at;
	large.mr = new_mr(p.b.pd, at, total, ALL_ACCESS);
	for (unsigned int i = 0; i < COUNT(places); i++) {
		move(IBV_WR_RDMA_WRITE, &p.a, 0, &large, places[i], 10000, 2 * i);
		move(IBV_WR_RDMA_READ, &p.a, 0, &large, places[i], 10000, 2 * i + 1);
	}
	DESTROY(large.mr);
	munmap(at, total);
}

/*
 * The longest message. There is not so much memory: all but the last 64 MiB of each side are the same 64 MiB again and
 * again. What is in the two pieces at the end shows that the last bytes of the message came, and came to their place.
 */
enum { PIECE = 64 << 20 };
static const size_t LONGEST = (size_t)1 << 31;

static uint8_t *two_pieces(void)
{
	uint8_t *at = address_space(LONGEST);

	map_pages(at, LONGEST - PIECE, PIECE);
	map_pages(at + LONGEST - PIECE, PIECE, PIECE);
	return at;
}

CASE("verbs.two-gib", "SEND, WRITE and READ of 2 GiB, over memory of which 31 in 32 parts are the same pages",
     .paths = LOCAL_PATH, .seconds = 240, .rxe = "takes minutes", .opt = { .mtu = 4096, .timeout = 20 }, .len = 4096)
{
	static const enum ibv_wr_opcode ops[] = { IBV_WR_SEND, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ };

	be_patient(6);
	uint8_t *mine = two_pieces(), *theirs = two_pieces();
	struct ibv_mr *a = new_mr(p.a.pd, mine, LONGEST, ALL_ACCESS), *b = new_mr(p.b.pd, theirs, LONGEST, ALL_ACCESS);
	struct ibv_sge list = { .addr = (uintptr_t)mine, .length = LONGEST, .lkey = a->lkey };
	struct ibv_sge room = { .addr = (uintptr_t)theirs, .length = LONGEST, .lkey = b->lkey };
	for (unsigned int i = 0; i < COUNT(ops); i++) {
		bool reads = ops[i] == IBV_WR_RDMA_READ;
		uint8_t *from = reads ? theirs : mine, *to = reads ? mine : theirs;
		struct ibv_send_wr w = wr(ops[i], i, &list, 1);

		fill(from, PIECE, 2 * i + 1);
		fill(from + LONGEST - PIECE, PIECE, 2 * i + 2);
		w.wr.rdma.remote_addr = (uintptr_t)theirs;
		w.wr.rdma.rkey = b->rkey;
		if (ops[i] == IBV_WR_SEND)
			post_recv(&p.b, i, &room, 1);
		post(&p.a, &w);
		expect(&p.a, i, IBV_WC_SUCCESS, "a message of 2 GiB");
		if (ops[i] == IBV_WR_SEND)
			CHECK(expect(&p.b, i, IBV_WC_SUCCESS, "a receive of 2 GiB").byte_len == LONGEST, "wrong length");
		compare(to, PIECE, 2 * i + 1, "the pages that are there 31 times");
		compare(to + LONGEST - PIECE, PIECE, 2 * i + 2, "the last 64 MiB");
	}
	DESTROY(a, b);
}
