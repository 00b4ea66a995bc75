// SPDX-License-Identifier: GPL-2.0
/*
 * LOC_QP_OP: requests that no provider writes. A process may write into its rings what it likes, so this one does: it
 * finds them among its mappings by a request that it has posted, and writes the next ones itself. The layouts are
 * those of rust/core/uabi.
 */
#include "causes.h"

#include <rdma/ib_user_verbs.h>

static const uint64_t MARK = 0xfe110ce5f00d0000;

/* Writes two requests behind the one that is there, of the same length; the second is a good one. */
static void write_two(uint8_t *ring, size_t stride, const void *bad, const void *good, size_t len)
{
	memcpy(ring + UABI_CONTROL_SIZE + stride, bad, len);
	memcpy(ring + UABI_CONTROL_SIZE + 2 * stride, good, len);
	atomic_store(producer_of(ring), 3);
}

/* What the provider does when it has written requests. */
void ring_doorbell(struct ibv_qp *qp, bool receives)
{
	struct ib_uverbs_post_send_resp resp;
	/* That of a list of receives begins the same way. */
	const struct ib_uverbs_post_send request = {
		.response = (uintptr_t)&resp, .qp_handle = qp->handle,
		.wqe_size = receives ? sizeof(struct ib_uverbs_recv_wr) : sizeof(struct ib_uverbs_send_wr),
	};
	int rc = uverbs_command(qp->context->cmd_fd, receives ? IB_USER_VERBS_CMD_POST_RECV : IB_USER_VERBS_CMD_POST_SEND,
				&request, sizeof(request), sizeof(resp));

	/* In some states of the queue pair it is refused. */
	CHECK(!rc || rc == EINVAL, "doorbell: %s", strerror(rc));
}

/* The send ring of a, with one good request in it that is done. */
static uint8_t *send_ring(struct scene *s)
{
	post_one(&s->p.a, IBV_WR_RDMA_WRITE, MARK, 0, 0);
	expect(&s->p.a, MARK, IBV_WC_SUCCESS, "the request that marks the ring");
	return marked_ring(MARK, IBV_WR_RDMA_WRITE | IBV_SEND_SIGNALED << 8);
}

/* Requests that contradict themselves; behind each stands a good one. */
static const struct forgery {
	const char *text;
	struct uabi_send_wqe wqe;
} forgeries[] = {
	{ "an opcode that does not exist", { .opcode = 200 } },
	{ "an operation that is not served", { .opcode = IBV_WR_TSO } },
	{ "an atomic operation inline", { .opcode = IBV_WR_ATOMIC_FETCH_AND_ADD, .flags = IBV_SEND_INLINE, .count = 8 } },
	{ "a flag that does not exist", { .opcode = IBV_WR_SEND, .flags = 0x40 } },
	{ "more entries than the queue has room for", { .opcode = IBV_WR_SEND, .count = MAX_SGE + 1 } },
	{ "65535 entries", { .opcode = IBV_WR_SEND, .count = 65535 } },
	{ "a READ inline", { .opcode = IBV_WR_RDMA_READ, .flags = IBV_SEND_INLINE, .count = 8 } },
	{ "more inline data than the queue has room for",
	  { .opcode = IBV_WR_SEND, .flags = IBV_SEND_INLINE, .count = INLINE_BYTES + 1 } },
	{ "65535 bytes of inline data", { .opcode = IBV_WR_SEND, .flags = IBV_SEND_INLINE, .count = 65535 } },
	{ "the opcode of a request of the kernel", { .opcode = UABI_OP_KERNEL } },
	{ "an SRQ number without XRC", { .opcode = IBV_WR_SEND, .srqn = 1 } },
	{ "a SEND to a remote address", { .opcode = IBV_WR_SEND, .remote_addr = 1 } },
	{ "a SEND with a remote key", { .opcode = IBV_WR_SEND, .rkey = 1 } },
	{ "immediate data where there is none", { .opcode = IBV_WR_RDMA_WRITE, .imm = 1 } },
	{ "operands that the operation has not", { .opcode = IBV_WR_SEND, .operands = { 0, 1 } } },
};

static void forge(struct scene *s, const struct cause *c, struct draft *d)
{
	uint8_t *ring = send_ring(s);
	struct uabi_send_wqe bad = forgeries[c->arg[0]].wqe;
	struct uabi_send_wqe good = { .wr_id = 2, .opcode = IBV_WR_SEND, .flags = IBV_SEND_SIGNALED };

	(void)d;
	bad.wr_id = 1;
	bad.flags |= IBV_SEND_SIGNALED;
	write_two(ring, UABI_SEND_STRIDE, &bad, &good, sizeof(bad));
	ring_doorbell(s->p.a.qp, false);
}

/* The receive ring of b, with one good receive in it that is done. */
static uint8_t *receive_ring(struct scene *s)
{
	post_recv(&s->p.b, MARK + 1, NULL, 0);
	uint8_t *ring = marked_ring(MARK + 1, 0);

	post_one(&s->p.a, IBV_WR_SEND, MARK, 0, 0);
	expect(&s->p.a, MARK, IBV_WC_SUCCESS, "the request for the receive that marks the ring");
	expect(&s->p.b, MARK + 1, IBV_WC_SUCCESS, "the receive that marks the ring");
	return ring;
}

static void forge_receive(struct scene *s, const struct cause *c, struct draft *d)
{
	struct uabi_recv_wqe bad = { .wr_id = 101, .num_sge = c->arg[0], .reserved = c->arg[1] };
	struct uabi_recv_wqe good = { .wr_id = 102 };

	(void)d;
	write_two(receive_ring(s), UABI_RECV_STRIDE, &bad, &good, sizeof(bad));
}

/*
 * A producer's index that cannot be, of a's sends or (arg[1]) of b's receives: only an event can tell, for there is no
 * request to complete. That of receives is looked at when a message comes.
 */
static void forge_index(struct scene *s, const struct cause *c)
{
	struct side *at = c->arg[1] ? &s->p.b : &s->p.a;

	atomic_store(producer_of(c->arg[1] ? receive_ring(s) : send_ring(s)), c->arg[0]);
	if (c->arg[1])
		post_one(&s->p.a, IBV_WR_SEND, MARK + 2, 0, 0);
	else
		ring_doorbell(at->qp, false);
	want_device_event(at->ctx, IBV_EVENT_QP_FATAL, at->qp, "an index that cannot be");
	want_state(at, IBV_QPS_ERR, "the queue pair");
	if (!c->arg[1])
		want_state(&s->p.b, IBV_QPS_RTS, "its peer");
	expect_none(at, 5, "of requests that do not exist");
}

static const char RXE_HAS_OTHER_RINGS[] = "has rings of another layout";

/* arg: its number of entries, and its reserved field. */
#define FORGED_RECEIVE .build = forge_receive, .status = IBV_WC_REM_OP_ERR, .responder = ENDS_BY_RECEIVE, \
		       .receive = IBV_WC_LOC_QP_OP_ERR, .receives_itself = true, .rxe = RXE_HAS_OTHER_RINGS
#define FORGED_INDEX .refused = forge_index, .status = IBV_WC_LOC_QP_OP_ERR, .rxe = RXE_HAS_OTHER_RINGS

static const struct cause others[] = {
	{ "READ where max_rd_atomic is 0", .opt = { .rd_atomic = NONE, .dest_rd_atomic = 4 }, .build = plain,
	  .arg = { IBV_WR_RDMA_READ, 100 }, .status = IBV_WC_LOC_QP_OP_ERR, .rxe = "neither sends it nor reports it" },
	{ "SEND into a receive written by hand with too many entries", FORGED_RECEIVE, .arg = { MAX_SGE + 1 } },
	{ "SEND into a receive written by hand with 2^31 entries", FORGED_RECEIVE, .arg = { 1 << 31 } },
	{ "SEND into a receive written by hand with a reserved field that is not zero", FORGED_RECEIVE, .arg = { 0, 1 } },
	{ "a send index written by hand that is beyond the ring", FORGED_INDEX, .arg = { 1 + DEPTH + 1 } },
	{ "a send index written by hand that goes backwards", FORGED_INDEX, .arg = { 0 } },
	{ "a receive index written by hand that is beyond the ring", FORGED_INDEX, .arg = { 1 + 4 * DEPTH, 1 } },
	{ "a receive index written by hand that goes backwards", FORGED_INDEX, .arg = { 0, 1 } },
};

enum { FORGERIES = COUNT(forgeries), OTHERS = COUNT(others) };

static void get(int i, struct cause *c)
{
	if (i >= FORGERIES) {
		*c = others[i - FORGERIES];
		return;
	}
	snprintf(c->text, sizeof(c->text), "a request written by hand with %s", forgeries[i].text);
	c->build = forge;
	c->arg[0] = i;
	c->posts_itself = true;
	c->status = IBV_WC_LOC_QP_OP_ERR;
	c->rxe = RXE_HAS_OTHER_RINGS;
}

const struct family qp_op_family = { "local-operation", 60, NULL, FORGERIES + OTHERS, get };
