// SPDX-License-Identifier: GPL-2.0
/* Cases in which everything goes well: what was asked for arrives, whole and in order. */
#define _GNU_SOURCE
#include "pair.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static const uint32_t IMM = 0xfe110ce5;

static void send_sg(void)
{
	struct pair p;
	struct ibv_sge from[3], to[2];

	pair_open(&p, NULL, 65536);
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
	pair_close(&p);
}

static void imm(void)
{
	struct pair p;

	pair_open(&p, NULL, 65536);
	fill(p.a.buf, 5000, 2);
	struct ibv_sge from = sge(&p.a, 0, 5000), to = sge(&p.b, 0, 8192);
	post_recv(&p.b, 1, &to, 1);
	struct ibv_send_wr w = wr(IBV_WR_SEND_WITH_IMM, 1, &from, 1);
	w.imm_data = htonl(IMM);
	post(&p.a, &w);
	struct ibv_wc wc = expect(&p.b, 1, IBV_WC_SUCCESS, "SEND with immediate");
	CHECK((wc.wc_flags & IBV_WC_WITH_IMM) && ntohl(wc.imm_data) == IMM, "the immediate is lost");
	CHECK(wc.opcode == IBV_WC_RECV && wc.byte_len == 5000, "opcode %d, %u bytes", wc.opcode, wc.byte_len);
	expect(&p.a, 1, IBV_WC_SUCCESS, "SEND with immediate");
	compare(p.b.buf, 5000, 2, "sent data");

	/* A WRITE with immediate takes a receive, whose buffer it leaves alone. */
	post_recv(&p.b, 2, NULL, 0);
	w = wr(IBV_WR_RDMA_WRITE_WITH_IMM, 2, &from, 1);
	w.imm_data = htonl(IMM + 1);
	aim(&w, &p.b, 20001);
	post(&p.a, &w);
	wc = expect(&p.b, 2, IBV_WC_SUCCESS, "WRITE with immediate");
	CHECK((wc.wc_flags & IBV_WC_WITH_IMM) && ntohl(wc.imm_data) == IMM + 1, "the immediate is lost");
	CHECK(wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM && wc.byte_len == 5000, "opcode %d, %u bytes", wc.opcode,
	      wc.byte_len);
	wc = expect(&p.a, 2, IBV_WC_SUCCESS, "WRITE with immediate");
	CHECK(wc.opcode == IBV_WC_RDMA_WRITE, "opcode of the WRITE's completion is %d", wc.opcode);
	compare(p.b.buf + 20001, 5000, 2, "written data");
	pair_close(&p);
}

static void inline_data(void)
{
	struct pair p;

	pair_open(&p, NULL, 65536);
	for (uint32_t len = 0; len <= INLINE_BYTES; len += len ? len : 1) {
		struct ibv_sge from[2] = { sge(&p.a, 0, len / 2), sge(&p.a, len / 2, len - len / 2) };
		struct ibv_sge to = sge(&p.b, 0, 4096);

		fill(p.a.buf, len, len);
		/* No key is looked at for inline data. */
		from[0].lkey = from[1].lkey = 0xdeadbeef;
		post_recv(&p.b, len, &to, 1);
		struct ibv_send_wr w = wr(IBV_WR_SEND, len, from, 2);
		w.send_flags |= IBV_SEND_INLINE;
		post(&p.a, &w);
		/* The buffer is the caller's again at once. */
		memset(p.a.buf, 0xee, INLINE_BYTES);
		struct ibv_wc wc = expect(&p.b, len, IBV_WC_SUCCESS, "inline receive");
		CHECK(wc.byte_len == len, "%u bytes of %u", wc.byte_len, len);
		expect(&p.a, len, IBV_WC_SUCCESS, "inline send");
		compare(p.b.buf, len, len, "inline data");

		fill(p.a.buf, len, len + 1);
		w = wr(IBV_WR_RDMA_WRITE, len, from, 2);
		w.send_flags |= IBV_SEND_INLINE;
		aim(&w, &p.b, 9000);
		post(&p.a, &w);
		memset(p.a.buf, 0xee, INLINE_BYTES);
		expect(&p.a, len, IBV_WC_SUCCESS, "inline WRITE");
		compare(p.b.buf + 9000, len, len + 1, "data written inline");
	}
	pair_close(&p);
}

static void zero_bytes(void)
{
	struct pair p;

	pair_open(&p, NULL, 4096);
	post_recv(&p.b, 1, NULL, 0);
	struct ibv_send_wr w = wr(IBV_WR_SEND, 1, NULL, 0);
	post(&p.a, &w);
	struct ibv_wc wc = expect(&p.b, 1, IBV_WC_SUCCESS, "empty receive");
	CHECK(wc.byte_len == 0, "%u bytes received", wc.byte_len);
	expect(&p.a, 1, IBV_WC_SUCCESS, "empty SEND");

	/* Without a byte to move no key is looked at. */
	w = wr(IBV_WR_RDMA_WRITE, 2, NULL, 0);
	post(&p.a, &w);
	expect(&p.a, 2, IBV_WC_SUCCESS, "empty WRITE");
	w = wr(IBV_WR_RDMA_READ, 3, NULL, 0);
	post(&p.a, &w);
	expect(&p.a, 3, IBV_WC_SUCCESS, "empty READ");
	post_recv(&p.b, 4, NULL, 0);
	w = wr(IBV_WR_RDMA_WRITE_WITH_IMM, 4, NULL, 0);
	w.imm_data = htonl(IMM);
	post(&p.a, &w);
	wc = expect(&p.b, 4, IBV_WC_SUCCESS, "empty WRITE with immediate");
	CHECK(wc.byte_len == 0 && ntohl(wc.imm_data) == IMM, "%u bytes, immediate %x", wc.byte_len, ntohl(wc.imm_data));
	expect(&p.a, 4, IBV_WC_SUCCESS, "empty WRITE with immediate");
	pair_close(&p);
}

static void write_read(void)
{
	static const uint32_t sizes[] = { 1, 2, 3, 4, 5, 1023, 1024, 1025, 2048, 4095, 16385 };
	struct pair p;

	pair_open(&p, NULL, 131072);
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		uint32_t len = sizes[i], third = len / 3;
		struct ibv_sge list[3] = { sge(&p.a, 1, third), sge(&p.a, 50001, third),
					   sge(&p.a, 80003, len - 2 * third) };

		fill(p.a.buf + 100000, len, i);
		memcpy(p.a.buf + 1, p.a.buf + 100000, third);
		memcpy(p.a.buf + 50001, p.a.buf + 100000 + third, third);
		memcpy(p.a.buf + 80003, p.a.buf + 100000 + 2 * third, len - 2 * third);
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
		memcpy(p.a.buf + 100000, p.a.buf + 1, third);
		memcpy(p.a.buf + 100000 + third, p.a.buf + 50001, third);
		memcpy(p.a.buf + 100000 + 2 * third, p.a.buf + 80003, len - 2 * third);
		compare(p.a.buf + 100000, len, i + 100, "read data");
	}
	pair_close(&p);
}

static void large(void)
{
	static const uint32_t sizes[] = { 1 << 20, (1 << 20) + 1, 4 << 20, 8 << 20 };
	struct options opt = { .mtu = 4096 };
	struct pair p;

	pair_open(&p, &opt, 9 << 20);
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		uint32_t len = sizes[i];
		struct ibv_sge from = sge(&p.a, 5, len), to = sge(&p.b, 11, len);

		fill(p.a.buf + 5, len, i);
		post_recv(&p.b, i, &to, 1);
		struct ibv_send_wr w = wr(IBV_WR_SEND, i, &from, 1);
		post(&p.a, &w);
		CHECK(expect(&p.b, i, IBV_WC_SUCCESS, "large receive").byte_len == len, "wrong length");
		expect(&p.a, i, IBV_WC_SUCCESS, "large SEND");
		compare(p.b.buf + 11, len, i, "sent data");
		memset(p.b.buf, 0, len + 16);
		w = wr(IBV_WR_RDMA_WRITE, i, &from, 1);
		aim(&w, &p.b, 3);
		post(&p.a, &w);
		expect(&p.a, i, IBV_WC_SUCCESS, "large WRITE");
		compare(p.b.buf + 3, len, i, "written data");
		memset(p.a.buf, 0, len + 16);
		w = wr(IBV_WR_RDMA_READ, i, &from, 1);
		aim(&w, &p.b, 3);
		post(&p.a, &w);
		expect(&p.a, i, IBV_WC_SUCCESS, "large READ");
		compare(p.a.buf + 5, len, i, "read data");
	}
	pair_close(&p);
}

/* Whether the channel has an event within some milliseconds; takes it. */
static bool event(struct side *s, int ms)
{
	struct pollfd fd = { .fd = s->channel->fd, .events = POLLIN };
	struct ibv_cq *cq;
	void *context;

	if (poll(&fd, 1, ms) <= 0)
		return false;
	CHECK(!ibv_get_cq_event(s->channel, &cq, &context), "ibv_get_cq_event: %s", strerror(errno));
	CHECK(cq == s->cq && context == s, "the event is about another completion queue");
	ibv_ack_cq_events(cq, 1);
	return true;
}

static void solicited(void)
{
	struct options opt = { .events = true };
	struct pair p;

	pair_open(&p, &opt, 4096);
	for (int i = 0; i < 4; i++)
		post_recv(&p.b, i, NULL, 0);
	CHECK(!ibv_req_notify_cq(p.b.cq, 1), "ibv_req_notify_cq");
	struct ibv_send_wr w = wr(IBV_WR_SEND, 0, NULL, 0);
	post(&p.a, &w);
	expect(&p.a, 0, IBV_WC_SUCCESS, "unsolicited SEND");
	CHECK(!event(&p.b, 300), "an event for a message that does not ask for one");
	expect(&p.b, 0, IBV_WC_SUCCESS, "unsolicited receive");
	w = wr(IBV_WR_SEND, 1, NULL, 0);
	w.send_flags |= IBV_SEND_SOLICITED;
	post(&p.a, &w);
	CHECK(event(&p.b, 20000), "no event for a solicited message");
	expect(&p.b, 1, IBV_WC_SUCCESS, "solicited receive");
	/* One arming is good for one event. */
	post(&p.a, &w);
	expect(&p.a, 1, IBV_WC_SUCCESS, "solicited SEND");
	expect(&p.a, 1, IBV_WC_SUCCESS, "solicited SEND");
	CHECK(!event(&p.b, 300), "an event although the queue was not armed again");
	expect(&p.b, 2, IBV_WC_SUCCESS, "solicited receive");
	/* A completion in error asks for an event by itself. */
	CHECK(!ibv_req_notify_cq(p.b.cq, 1), "ibv_req_notify_cq");
	CHECK(!to_state(&p.b, IBV_QPS_ERR), "to ERR");
	CHECK(event(&p.b, 20000), "no event for a completion in error");
	expect(&p.b, 3, IBV_WC_WR_FLUSH_ERR, "flushed receive");
	pair_close(&p);
}

static void notify(void)
{
	struct options opt = { .events = true };
	struct pair p;

	pair_open(&p, &opt, 4096);
	for (int i = 0; i < 20; i++) {
		post_recv(&p.b, i, NULL, 0);
		CHECK(!ibv_req_notify_cq(p.b.cq, 0) && !ibv_req_notify_cq(p.a.cq, 0), "ibv_req_notify_cq");
		struct ibv_send_wr w = wr(IBV_WR_SEND, i, NULL, 0);
		post(&p.a, &w);
		CHECK(event(&p.b, 20000), "no event for receive %d", i);
		CHECK(event(&p.a, 20000), "no event for send %d", i);
		expect(&p.b, i, IBV_WC_SUCCESS, "receive");
		expect(&p.a, i, IBV_WC_SUCCESS, "send");
	}
	CHECK(!event(&p.b, 50) && !event(&p.a, 50), "one event too many");
	pair_close(&p);
}

static void fence(void)
{
	struct pair p;

	pair_open(&p, NULL, 1 << 17);
	for (int i = 0; i < 8; i++) {
		struct ibv_sge mine = sge(&p.a, 0, 30000), to = sge(&p.b, 60000, 30000);

		fill(p.b.buf, 30000, i);
		memset(p.a.buf, 0, 30000);
		post_recv(&p.b, i, &to, 1);
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
	pair_close(&p);
}

static void unsignalled(void)
{
	struct pair p;
	uint64_t done = 0;

	pair_open(&p, NULL, 65536);
	fill(p.a.buf, 4096, 5);
	/* Many times round the ring, with one completion in 16. */
	for (int i = 1; i <= 640; i++) {
		struct ibv_sge from = sge(&p.a, 0, 8 + i);
		struct ibv_send_wr w = wr(IBV_WR_RDMA_WRITE, i, &from, 1);

		aim(&w, &p.b, 0);
		w.send_flags = i % 16 ? 0 : IBV_SEND_SIGNALED;
		post(&p.a, &w);
		if (i % 16 == 0) {
			expect(&p.a, i, IBV_WC_SUCCESS, "the signalled one");
			done++;
		}
	}
	expect_none(&p.a, 20, "after the last");
	CHECK(done == 40, "%llu completions", (unsigned long long)done);
	compare(p.b.buf, 648, 5, "written data");
	pair_close(&p);
}

static void order(void)
{
	struct options opt = { .rd_atomic = 1 };
	struct ibv_send_wr w[DEPTH];
	struct ibv_sge list[DEPTH];
	struct pair p;

	pair_open(&p, &opt, 1 << 20);
	for (int round = 0; round < 4; round++) {
		int recvs = 0;

		for (int i = 0; i < DEPTH; i++) {
			uint32_t len = (i * 977) % 9000;

			list[i] = sge(&p.a, i * 10000, len);
			w[i] = wr(i % 4 == 0 ? IBV_WR_SEND : i % 4 == 1 ? IBV_WR_RDMA_WRITE :
				  i % 4 == 2 ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE_WITH_IMM, i, &list[i], 1);
			if (i % 4)
				aim(&w[i], &p.b, i * 10000);
			w[i].imm_data = htonl(i);
			w[i].next = i + 1 < DEPTH ? &w[i + 1] : NULL;
			if (i % 4 == 0 || i % 4 == 3) {
				struct ibv_sge to = sge(&p.b, i * 10000, 10000);

				post_recv(&p.b, i, &to, 1);
				recvs++;
			}
		}
		post(&p.a, w);
		for (int i = 0; i < DEPTH; i++)
			expect(&p.a, i, IBV_WC_SUCCESS, "mixed operations");
		for (int i = 0; i < DEPTH; i++)
			if (i % 4 == 0 || i % 4 == 3) {
				struct ibv_wc wc = expect(&p.b, i, IBV_WC_SUCCESS, "mixed receives");

				CHECK(wc.byte_len == (uint32_t)(i * 977) % 9000, "%u bytes", wc.byte_len);
				CHECK(i % 4 == 0 || ntohl(wc.imm_data) == (uint32_t)i, "immediate of another message");
			}
	}
	pair_close(&p);
}

/* Memory of any apparent size out of little: one file mapped again and again. */
static uint8_t *repeated(size_t total, size_t piece)
{
	int fd = memfd_create("repeated", 0);
	uint8_t *at = mmap(NULL, total, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	CHECK(fd >= 0 && !ftruncate(fd, piece) && at != MAP_FAILED, "memory: %s", strerror(errno));
	for (size_t i = 0; i < total; i += piece)
		CHECK(mmap(at + i, piece, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) == at + i,
		      "mmap: %s", strerror(errno));
	close(fd);
	return at;
}

static void big_mr(void)
{
	const size_t total = (size_t)3 << 29, piece = 64 << 20;
	struct pair p;

	pair_open(&p, NULL, 65536);
	uint8_t *at = repeated(total, piece);
	struct ibv_mr *mr = ibv_reg_mr(p.b.pd, at, total, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
				       IBV_ACCESS_REMOTE_READ);
	CHECK(mr, "ibv_reg_mr of %zu bytes: %s", total, strerror(errno));
	fill(p.a.buf, 10000, 9);
	size_t places[] = { 0, ((size_t)1 << 30) - 5000, total - 10000 };
	for (int i = 0; i < 3; i++) {
		struct ibv_sge from = sge(&p.a, 0, 10000), back = sge(&p.a, 20000, 10000);
		struct ibv_send_wr w = wr(IBV_WR_RDMA_WRITE, i, &from, 1);

		w.wr.rdma.remote_addr = (uintptr_t)at + places[i];
		w.wr.rdma.rkey = mr->rkey;
		post(&p.a, &w);
		expect(&p.a, i, IBV_WC_SUCCESS, "WRITE into a large region");
		compare(at + places[i], 10000, 9, "data in a large region");
		w.opcode = IBV_WR_RDMA_READ;
		w.sg_list = &back;
		memset(p.a.buf + 20000, 0, 10000);
		post(&p.a, &w);
		expect(&p.a, i, IBV_WC_SUCCESS, "READ from a large region");
		compare(p.a.buf + 20000, 10000, 9, "data from a large region");
		memset(at + places[i], 0, 10000);
	}
	CHECK(!ibv_dereg_mr(mr), "ibv_dereg_mr");
	munmap(at, total);
	pair_close(&p);
}

static void two_gib(void)
{
	const size_t total = (size_t)1 << 31, piece = 64 << 20;
	struct options opt = { .mtu = 4096, .timeout = 20 };
	struct pair p;

	pair_open(&p, &opt, 4096);
	uint8_t *from = repeated(total, piece), *to = repeated(total, piece);
	struct ibv_mr *a = ibv_reg_mr(p.a.pd, from, total, IBV_ACCESS_LOCAL_WRITE);
	struct ibv_mr *b = ibv_reg_mr(p.b.pd, to, total, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	CHECK(a && b, "ibv_reg_mr of 2 GiB: %s", strerror(errno));
	fill(from, piece, 3);
	struct ibv_sge list = { .addr = (uintptr_t)from, .length = total, .lkey = a->lkey };
	struct ibv_send_wr w = wr(IBV_WR_RDMA_WRITE, 1, &list, 1);
	w.wr.rdma.remote_addr = (uintptr_t)to;
	w.wr.rdma.rkey = b->rkey;
	post(&p.a, &w);
	struct ibv_wc wc;
	int n = 0;
	for (int i = 0; i < 1200 && !n; i++) {
		n = ibv_poll_cq(p.a.cq, 1, &wc);
		if (!n)
			usleep(100000);
	}
	CHECK(n == 1 && wc.status == IBV_WC_SUCCESS, "a message of 2 GiB: %s", n ? ibv_wc_status_str(wc.status) :
	      "no completion in 120 s");
	compare(to, piece, 3, "2 GiB of data");
	CHECK(!ibv_dereg_mr(a) && !ibv_dereg_mr(b), "ibv_dereg_mr");
	pair_close(&p);
}

const struct test_case data_cases[] = {
	{ "send-sg", send_sg },
	{ "immediate", imm },
	{ "inline", inline_data },
	{ "zero-bytes", zero_bytes },
	{ "write-read-sg", write_read },
	{ "large-messages", large },
	{ "solicited", solicited },
	{ "notify", notify },
	{ "fence", fence },
	{ "unsignalled", unsignalled },
	{ "order", order },
	{ "large-mr", big_mr },
	{ "two-gib", two_gib },
	{ "stream", stream },
	{ "stream-in-bursts", stream_in_bursts },
	{ "stream-crowded", stream_crowded },
	{ NULL, NULL },
};
