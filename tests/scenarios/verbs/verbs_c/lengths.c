// SPDX-License-Identifier: GPL-2.0
/* Messages that are too long, for a queue pair (LOC_LEN) or for a receive, and what else is no valid request (REM_INV_REQ). */
#include "causes.h"

static void longer_than_any_message(struct scene *s, const struct cause *c, struct draft *d)
{
	d->w.opcode = c->arg[0];
	aim(&d->w, &s->p.b, TARGET);
	d->list[0] = sge(&s->p.a, 0, 1u << 31);
	/* One byte too many, or so many that 32 bits do not hold them and seem to be few. */
	d->list[1] = sge(&s->p.a, 0, c->arg[1] ? 1u << 31 : 1);
	d->list[2] = sge(&s->p.a, 0, c->arg[1] ? 100 : 0);
	d->w.num_sge = 3;
}

/* arg: length of the message, of the first and of the second entry of the receive; -1 for no entry. */
static void receive_too_short(struct scene *s, const struct cause *c, struct draft *d)
{
	d->list[0] = sge(&s->p.a, 0, c->arg[0]);
	d->receive_sges = 0;
	for (int i = 1; i < 3; i++)
		if (c->arg[i] >= 0)
			d->receive[d->receive_sges++] = sge(&s->p.b, TARGET + 8192 * (i - 1), c->arg[i]);
}

static void receive_too_short_for_immediate(struct scene *s, const struct cause *c, struct draft *d)
{
	receive_too_short(s, c, d);
	d->w.opcode = IBV_WR_SEND_WITH_IMM;
}

void plain(struct scene *s, const struct cause *c, struct draft *d)
{
	d->w.opcode = c->arg[0];
	d->list[0] = sge(&s->p.a, c->arg[0] == IBV_WR_RDMA_READ ? TARGET : 0, c->arg[1]);
	aim(&d->w, &s->p.b, c->arg[0] == IBV_WR_RDMA_READ ? 0 : TARGET);
}

/* arg: the operation, bytes of its list, and where the word is in the target. */
static void atomic_operation(struct scene *s, const struct cause *c, struct draft *d)
{
	d->w.opcode = c->arg[0];
	d->list[0] = sge(&s->p.a, TARGET, c->arg[1]);
	d->w.wr.atomic.remote_addr = (uintptr_t)s->p.b.buf + TARGET + c->arg[2];
	d->w.wr.atomic.rkey = s->p.b.mr->rkey;
	d->w.wr.atomic.compare_add = 1;
	d->w.wr.atomic.swap = 2;
}

/* Two READs at a time. The first is of more packets than a responder sends in one go, so it is there when the second comes. */
static void two_reads(struct scene *s, const struct cause *c, struct draft *d)
{
	static struct ibv_sge list[MAX_SGE];
	static struct ibv_send_wr first;

	first = wr(IBV_WR_RDMA_READ, 50, list, MAX_SGE);
	for (int i = 0; i < MAX_SGE; i++)
		list[i] = sge(&s->p.a, TARGET, TARGET_LEN);
	first.send_flags = 0;
	aim(&first, &s->p.b, 0);
	d->before = &first;
	d->w.opcode = IBV_WR_RDMA_READ;
	d->list[0] = sge(&s->p.a, TARGET, 100);
	aim(&d->w, &s->p.b, 0);
	(void)c;
}

/* A byte more than a message may have, or so many that 32 bits do not hold them. */
#define TOO_LONG(what, op, wraps) \
	{ what, .build = longer_than_any_message, .arg = { op, wraps }, .status = IBV_WC_LOC_LEN_ERR }
#define NOT_A_WORD(what, op, len) \
	{ what, .build = atomic_operation, .arg = { op, len, 0 }, .status = IBV_WC_LOC_LEN_ERR }

static const struct cause lengths[] = {
	TOO_LONG("SEND of 2 GiB and a byte", IBV_WR_SEND, 0),
	TOO_LONG("SEND of 4 GiB and 100 bytes", IBV_WR_SEND, 1),
	TOO_LONG("WRITE of 2 GiB and a byte", IBV_WR_RDMA_WRITE, 0),
	TOO_LONG("WRITE of 4 GiB and 100 bytes", IBV_WR_RDMA_WRITE, 1),
	TOO_LONG("WRITE with immediate of 4 GiB and 100 bytes", IBV_WR_RDMA_WRITE_WITH_IMM, 1),
	TOO_LONG("READ of 2 GiB and a byte", IBV_WR_RDMA_READ, 0),
	TOO_LONG("READ of 4 GiB and 100 bytes", IBV_WR_RDMA_READ, 1),
	{ "READ of 2 GiB from a region of 64 KiB", .build = plain, .arg = { IBV_WR_RDMA_READ, 1 << 31 },
	  .status = IBV_WC_REM_ACCESS_ERR, .responder = ENDS_BY_ACCESS },
	NOT_A_WORD("FETCH_ADD with a list of 7 bytes", IBV_WR_ATOMIC_FETCH_AND_ADD, 7),
	NOT_A_WORD("CMP_SWAP with a list of 9 bytes", IBV_WR_ATOMIC_CMP_AND_SWP, 9),
	NOT_A_WORD("CMP_SWAP without a byte of a list", IBV_WR_ATOMIC_CMP_AND_SWP, 0),
	{ "SEND of 100 bytes into a receive of 100", .build = receive_too_short, .arg = { 100, 100, -1 } },
	{ "SEND of 3000 bytes into a receive of 1000 and 2000", .build = receive_too_short, .arg = { 3000, 1000, 2000 } },
	{ "SEND of 0 bytes into a receive without entries", .build = receive_too_short, .arg = { 0, -1, -1 } },
};

/* What a receive is too short for. */
#define TOO_SHORT(what, ...) \
	{ what, .build = receive_too_short, .arg = { __VA_ARGS__ }, .status = IBV_WC_REM_INV_REQ_ERR, \
	  .responder = ENDS_BY_RECEIVE, .receive = IBV_WC_LOC_LEN_ERR }

#define DENIED { .qp_access = NONE }
#define SERVES_NONE { .dest_rd_atomic = NONE }
#define MTUS(of_a, of_b) { .mtu = of_a, .mtu_of_b = of_b }
#define INVALID(what, how, options, ...) \
	{ what, .opt = options, .build = how, .arg = { __VA_ARGS__ }, .status = IBV_WC_REM_INV_REQ_ERR, \
	  .responder = ENDS_BY_REQUEST }

static const struct cause invalid[] = {
	TOO_SHORT("SEND of 101 bytes into a receive of 100", 101, 100, -1),
	TOO_SHORT("SEND of 1 byte into a receive of 0", 1, 0, -1),
	TOO_SHORT("SEND of 1 byte into a receive without entries", 1, -1, -1),
	TOO_SHORT("SEND of 3001 bytes into a receive of 1000 and 2000", 3001, 1000, 2000),
	TOO_SHORT("SEND of 3000 bytes into a receive of 1024, an edge of a packet", 3000, 1024, -1),
	TOO_SHORT("SEND of 9000 bytes into a receive of 10", 9000, 10, -1),
	{ "SEND with immediate of 2000 bytes into a receive of 1999", .build = receive_too_short_for_immediate,
	  .arg = { 2000, 1999, -1 }, .status = IBV_WC_REM_INV_REQ_ERR, .responder = ENDS_BY_RECEIVE,
	  .receive = IBV_WC_LOC_LEN_ERR },
	INVALID("WRITE to a queue pair that does not permit it", plain, DENIED, IBV_WR_RDMA_WRITE, 100),
	INVALID("WRITE of 3000 bytes to a queue pair that does not permit it", plain, DENIED, IBV_WR_RDMA_WRITE, 3000),
	INVALID("WRITE with immediate to a queue pair that does not permit it", plain, DENIED, IBV_WR_RDMA_WRITE_WITH_IMM, 100),
	INVALID("READ from a queue pair that does not permit it", plain, DENIED, IBV_WR_RDMA_READ, 100),
	INVALID("READ from a queue pair that serves none", plain, SERVES_NONE, IBV_WR_RDMA_READ, 100),
	INVALID("FETCH_ADD to a queue pair that does not permit it", atomic_operation, DENIED, IBV_WR_ATOMIC_FETCH_AND_ADD, 8, 0),
	INVALID("CMP_SWAP to a queue pair that serves none", atomic_operation, SERVES_NONE, IBV_WR_ATOMIC_CMP_AND_SWP, 8, 0),
	INVALID("FETCH_ADD on a word that is not aligned", atomic_operation, {}, IBV_WR_ATOMIC_FETCH_AND_ADD, 8, 4),
	INVALID("CMP_SWAP on a word that is not aligned", atomic_operation, {}, IBV_WR_ATOMIC_CMP_AND_SWP, 8, 1),
	{ "two READs at a time from a queue pair that serves one",
	  .opt = { .mtu = 256, .rd_atomic = 4, .dest_rd_atomic = 1 }, .build = two_reads, .status = IBV_WC_REM_INV_REQ_ERR,
	  .responder = ENDS_BY_REQUEST, .wire_only = true },
	INVALID("SEND in packets longer than the responder's path MTU", plain, MTUS(1024, 256), IBV_WR_SEND, 1000),
	INVALID("WRITE in packets shorter than the responder's path MTU", plain, MTUS(256, 1024), IBV_WR_RDMA_WRITE, 1000),
};

static void length(int i, struct cause *c)
{
	(void)i;
	if (c->status == IBV_WC_LOC_LEN_ERR)
		c->rxe = "takes it for the length modulo 2^32, or reports a flush";
}

static void invalid_request(int i, struct cause *c)
{
	(void)i;
	c->rxe = c->responder == ENDS_BY_RECEIVE ? "answers with an operational error" :
		 c->build == two_reads ? "serves more than it was told" : "has no event for an invalid request";
}

const struct family length_family = { "lengths", 60, lengths, COUNT(lengths), length };
const struct family invalid_family = { "invalid-requests", 60, invalid, COUNT(invalid), invalid_request };
