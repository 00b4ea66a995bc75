// SPDX-License-Identifier: GPL-2.0
/*
 * LOC_QP_OP: requests that no provider writes. A process may write into its rings what it likes, so this one does: it
 * finds them among its mappings by a request that it has posted, and writes the next ones itself. The layouts are
 * those of rust/uabi.
 */
#include "causes.h"

#include <errno.h>
#include <rdma/ib_user_verbs.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { CONTROL = 256, STRIDE = 128, PRODUCER_AT = 0, FLAG_INLINE = 8, FLAG_SIGNALED = 2 };

struct send_wqe {
	uint64_t wr_id;
	uint8_t opcode, flags;
	uint16_t num_sge;
	uint32_t inline_len;
	uint64_t remote_addr;
	uint32_t rkey, imm;
	uint64_t reserved[2];
	struct ibv_sge list[MAX_SGE];
};

struct recv_wqe {
	uint64_t wr_id;
	uint32_t num_sge, reserved;
};

static const uint64_t MARK = 0xfe110ce5f00d0000;

/*
 * The ring whose first slot begins with the mark and, behind it, opcode and flags. A completion queue has the mark too,
 * with a status of 0 behind it.
 */
static uint8_t *marked_ring(uint64_t mark, uint16_t behind)
{
	FILE *maps = fopen("/proc/self/maps", "r");
	uint8_t *found = NULL;
	char line[512];

	CHECK(maps, "/proc/self/maps: %s", strerror(errno));
	while (!found && fgets(line, sizeof(line), maps)) {
		unsigned long from;

		if (!strstr(line, "/uverbs") || sscanf(line, "%lx-", &from) != 1)
			continue;
		if (!memcmp((uint8_t *)from + CONTROL, &mark, sizeof(mark)) &&
		    !memcmp((uint8_t *)from + CONTROL + sizeof(mark), &behind, sizeof(behind)))
			found = (uint8_t *)from;
	}
	fclose(maps);
	CHECK(found, "no ring begins with the request that was posted");
	return found;
}

static _Atomic uint32_t *producer(uint8_t *ring)
{
	return (_Atomic uint32_t *)(ring + PRODUCER_AT);
}

/* What the provider does when it has written requests. */
void ring_doorbell(struct ibv_qp *qp, bool receives)
{
	struct ib_uverbs_post_send_resp resp;
	struct {
		struct ib_uverbs_cmd_hdr hdr;
		/* That of a list of receives begins the same way. */
		struct ib_uverbs_post_send cmd;
	} call = {
		.hdr = { .command = receives ? IB_USER_VERBS_CMD_POST_RECV : IB_USER_VERBS_CMD_POST_SEND,
			 .in_words = sizeof(call) / 4, .out_words = sizeof(resp) / 4 },
		.cmd = { .response = (uintptr_t)&resp, .qp_handle = qp->handle,
			 .wqe_size = receives ? sizeof(struct ib_uverbs_recv_wr) : sizeof(struct ib_uverbs_send_wr) },
	};

	/* In some states of the queue pair it is refused. */
	CHECK(write(qp->context->cmd_fd, &call, sizeof(call)) == sizeof(call) || errno == EINVAL, "doorbell: %s",
	      strerror(errno));
}

static void doorbell(struct ibv_qp *qp)
{
	ring_doorbell(qp, false);
}

/* The send ring of a, with one good request in it that is done. */
static uint8_t *send_ring(struct scene *s)
{
	struct ibv_send_wr first = wr(IBV_WR_RDMA_WRITE, MARK, NULL, 0);

	post(&s->p.a, &first);
	expect(&s->p.a, MARK, IBV_WC_SUCCESS, "the request that marks the ring");
	return marked_ring(MARK, IBV_WR_RDMA_WRITE | FLAG_SIGNALED << 8);
}

/* Requests that contradict themselves; behind each stands a good one. */
static const struct forgery {
	const char *text;
	struct send_wqe wqe;
} forgeries[] = {
	{ "an opcode that does not exist", { .opcode = 200 } },
	{ "the opcode of an atomic operation", { .opcode = IBV_WR_ATOMIC_FETCH_AND_ADD } },
	{ "a flag that does not exist", { .opcode = 2, .flags = 0x40 } },
	{ "more entries than the queue has room for", { .opcode = 2, .num_sge = MAX_SGE + 1 } },
	{ "65535 entries", { .opcode = 2, .num_sge = 65535 } },
	{ "a READ inline", { .opcode = 4, .flags = FLAG_INLINE, .inline_len = 8 } },
	{ "more inline data than the queue has room for", { .opcode = 2, .flags = FLAG_INLINE, .inline_len = INLINE_BYTES + 1 } },
	{ "4 GiB of inline data", { .opcode = 2, .flags = FLAG_INLINE, .inline_len = ~0u } },
	{ "inline data and entries", { .opcode = 2, .flags = FLAG_INLINE, .inline_len = 8, .num_sge = 1 } },
};

static void forge(struct scene *s, const struct cause *c, struct draft *d)
{
	uint8_t *ring = send_ring(s);
	struct send_wqe bad = forgeries[c->arg[0]].wqe, good = { .wr_id = 2, .opcode = 2, .flags = FLAG_SIGNALED };

	(void)d;
	bad.wr_id = 1;
	bad.flags |= FLAG_SIGNALED;
	memcpy(ring + CONTROL + STRIDE, &bad, sizeof(bad));
	memcpy(ring + CONTROL + 2 * STRIDE, &good, sizeof(good));
	atomic_store(producer(ring), 3);
	doorbell(s->p.a.qp);
}

/* A producer's index that cannot be: only an event can tell, for there is no request to complete. */
static void forge_index(struct scene *s, const struct cause *c)
{
	uint8_t *ring = send_ring(s);
	struct ibv_async_event e;

	atomic_store(producer(ring), c->arg[0]);
	doorbell(s->p.a.qp);
	CHECK(next_event(&s->p.a, 5000, &e), "no event");
	CHECK(e.event_type == IBV_EVENT_QP_FATAL && e.element.qp == s->p.a.qp, "the event is \"%s\"",
	      ibv_event_type_str(e.event_type));
	want_state(&s->p.a, IBV_QPS_ERR, "the queue pair");
	want_state(&s->p.b, IBV_QPS_RTS, "its peer");
	expect_none(&s->p.a, 5, "of requests that do not exist");
}

static void forge_receive(struct scene *s, const struct cause *c, struct draft *d)
{
	struct recv_wqe bad = { .wr_id = 101, .num_sge = c->arg[0] }, good = { .wr_id = 102 };
	uint8_t *ring;

	(void)d;
	post_recv(&s->p.b, MARK + 1, NULL, 0);
	ring = marked_ring(MARK + 1, 0);
	struct ibv_send_wr first = wr(IBV_WR_SEND, MARK, NULL, 0);
	post(&s->p.a, &first);
	expect(&s->p.a, MARK, IBV_WC_SUCCESS, "the request for the receive that marks the ring");
	expect(&s->p.b, MARK + 1, IBV_WC_SUCCESS, "the receive that marks the ring");
	memcpy(ring + CONTROL + STRIDE, &bad, sizeof(bad));
	memcpy(ring + CONTROL + 2 * STRIDE, &good, sizeof(good));
	atomic_store(producer(ring), 3);
}

static void no_reads(struct scene *s, const struct cause *c, struct draft *d)
{
	(void)c;
	d->w.opcode = IBV_WR_RDMA_READ;
	d->list[0] = sge(&s->p.a, TARGET, 100);
	aim(&d->w, &s->p.b, 0);
}

static const char *const RXE_HAS_OTHER_RINGS = "has rings of another layout";
enum { FORGERIES = sizeof(forgeries) / sizeof(forgeries[0]), OTHERS = 5 };

static int count(void)
{
	return FORGERIES + OTHERS;
}

static void get(int i, struct cause *c)
{
	static const struct cause others[OTHERS] = {
		{ "READ where max_rd_atomic is 0", .opt = { .rd_atomic = NONE, .dest_rd_atomic = 4 }, .build = no_reads },
		{ "SEND into a receive written by hand with too many entries", .build = forge_receive,
		  .arg = { MAX_SGE + 1 } },
		{ "SEND into a receive written by hand with 2^31 entries", .build = forge_receive, .arg = { 1 << 31 } },
		{ "a send index written by hand that is beyond the ring", .refused = forge_index, .arg = { 1 + DEPTH + 1 } },
		{ "a send index written by hand that goes backwards", .refused = forge_index, .arg = { 0 } },
	};

	if (i < FORGERIES) {
		snprintf(c->text, sizeof(c->text), "a request written by hand with %s", forgeries[i].text);
		c->build = forge;
		c->arg[0] = i;
		c->posts_itself = true;
		c->status = IBV_WC_LOC_QP_OP_ERR;
		c->rxe = RXE_HAS_OTHER_RINGS;
		return;
	}
	*c = others[i - FORGERIES];
	c->rxe = i == FORGERIES ? "neither sends it nor reports it" : RXE_HAS_OTHER_RINGS;
	c->status = IBV_WC_LOC_QP_OP_ERR;
	if (c->build == forge_receive) {
		c->status = IBV_WC_REM_OP_ERR;
		c->responder = ENDS_BY_RECEIVE;
		c->receive = IBV_WC_LOC_QP_OP_ERR;
		c->receives_itself = true;
	}
}

const struct family qp_op_family = { "local-operation", count, get };
