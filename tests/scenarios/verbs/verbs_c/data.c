// SPDX-License-Identifier: GPL-2.0
/* Cases in which everything goes well: what was asked for arrives, whole and in order. */
#define _GNU_SOURCE
#include "pair.h"

#include <arpa/inet.h>
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static void send_sg(void)
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

static void inline_data(void)
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

/* The bytes of three pieces of a's buffer become one piece behind them, or the other way round. */
static void join_pieces(const struct ibv_sge *list, bool apart)
{
	uint8_t *whole = p.a.buf + 100000;

	for (int i = 0; i < 3; whole += list[i++].length) {
		uint8_t *piece = (uint8_t *)(uintptr_t)list[i].addr;

		memcpy(apart ? piece : whole, apart ? whole : piece, list[i].length);
	}
}

static void write_read(void)
{
	static const uint32_t sizes[] = { 1, 2, 3, 4, 5, 1023, 1024, 1025, 2048, 4095, 16385 };

	for (size_t i = 0; i < COUNT(sizes); i++) {
		uint32_t len = sizes[i], third = len / 3;
		struct ibv_sge list[3] = { sge(&p.a, 1, third), sge(&p.a, 50001, third),
					   sge(&p.a, 80003, len - 2 * third) };

		fill(p.a.buf + 100000, len, i);
		join_pieces(list, true);
		struct ibv_send_wr w = wr(IBV_WR_RDMA_WRITE, i, list, 3);
		aim(&w, &p.b, 7);
		post(&p.a, &w);
		expect(&p.a, i, IBV_WC_SUCCESS, "WRITE");
		compare(p.b.buf + 7, len, i, "written data");
		CHECK(p.b.buf[6] == 0, "a byte before the target was written");

		fill(p.b.buf + 60001, len, i + 100);
		w = wr(IBV_WR_RDMA_READ, i, list, 3);
		aim(&w, &p.b, 60001);
		post(&p.a, &w);
		struct ibv_wc wc = expect(&p.a, i, IBV_WC_SUCCESS, "READ");
		CHECK(wc.opcode == IBV_WC_RDMA_READ, "opcode of the READ's completion is %d", wc.opcode);
		join_pieces(list, false);
		compare(p.a.buf + 100000, len, i + 100, "read data");
	}
}

/*
 * As much as two buffers in a guest of 2 GiB may take, and with all checks no more than shows what is behind 64 MiB. Each of
 * the 8-byte words of the pattern is another one.
 */
static void huge(void)
{
	const uint32_t len = (shortened(128, 65) << 20) + 4099;

	be_patient(6);
	pair_open(&p, &(struct options){ .mtu = 4096, .timeout = 20 }, len + 4096);
	move(IBV_WR_SEND, &p.a, 5, &p.b, 11, len, 1);
	move(IBV_WR_RDMA_WRITE, &p.a, 5, &p.b, 3, len, 2);
	move(IBV_WR_RDMA_READ, &p.a, 5, &p.b, 3, len, 3);
	pair_close(&p);
}

static void solicited(void)
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

static void notify(void)
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

static void fence(void)
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

/* Many times round the ring, with one completion in 16, each message from a place and to a place of its own. */
static void unsignalled(void)
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
static void order(void)
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

static void big_mr(void)
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

static void two_gib(void)
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

const struct test_case data_cases[] = {
	{ "send-sg", send_sg, "a SEND of several pieces arrives whole in several pieces", .len = 65536 },
	{ "inline", inline_data, "inline data are taken when they are posted, of any length that was granted",
	  .len = 65536 },
	{ "write-read-sg", write_read, "WRITE and READ of several pieces, around the edges of packets",
	  .len = 131072 },
	{ "huge-messages", huge, "SEND, WRITE and READ of 128 MiB (65 with all checks) and some bytes, no two words of them alike", .seconds = 300 },
	{ "solicited", solicited, "events for solicited messages alone, and for errors",
	  .rxe = "makes no event for a completion in error", .opt = { .events = true }, .len = 4096 },
	{ "notify", notify, "one event for each arming", .opt = { .events = true }, .len = 4096 },
	{ "fence", fence, "a fenced SEND sends what the READ before it has brought", .len = 1 << 17 },
	{ "unsignalled", unsignalled, "a completion stands for the unsignalled messages before it",
	  .len = 641 << 10 },
	{ "order", order, "completions in order, and no operation overtakes another, of 0 B to 9 kB",
	  .opt = { .rd_atomic = 1 }, .len = 1 << 20 },
	{ "large-mr", big_mr, "a region of 1.5 GiB, used at both ends and in the middle", .seconds = 120,
	  .rxe = "cannot register more than 1 GiB", .len = 65536 },
	{ "two-gib", two_gib, "SEND, WRITE and READ of 2 GiB, over memory of which 31 in 32 parts are the same pages",
	  .paths = LOCAL_PATH, .seconds = 240, .rxe = "takes minutes",
	  .opt = { .mtu = 4096, .timeout = 20 }, .len = 4096 },
	{ "stream", stream, "a process that waits for nothing, with another CPU for it", .counts = "sq_offloaded" },
	{ "stream-in-bursts", stream_in_bursts, "streams that begin and end, and one that is cut off",
	  .counts = "sq_offloaded" },
	{ "stream-on-one-cpu", stream_on_one_cpu, "streams of a process that may run on one CPU only",
	  .counts = "sq_polled" },
	{ "stream-busy-cpus", stream_busy_cpus, "streams while every CPU is wanted by others", .counts = "sq_offload_ended" },
	{ NULL },
};
