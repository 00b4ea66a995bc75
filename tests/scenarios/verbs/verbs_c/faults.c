// SPDX-License-Identifier: GPL-2.0
/*
 * Memory that may not be used. Address, length and key name memory in three places, and every fault is tried in each
 * of them, with every operation: in the list of the request (LOC_PROT), in its remote part (REM_ACCESS), and in the
 * list of the receive (REM_OP).
 */
#include "causes.h"

enum where { IN_LIST, IN_SECOND_ENTRY, REMOTE, IN_RECEIVE };

/* What a place names: first the small region, whole or in part, then something wrong. */
struct named {
	uint64_t addr;
	uint32_t len, key;
};

/* What a cause has made, to be taken away after it. */
static struct ibv_mr *regions[8];
static struct ibv_pd *domain;

static struct ibv_mr *kept(struct ibv_mr *mr)
{
	int i = 0;

	CHECK(mr, "registering the small region: %s", strerror(errno));
	while (regions[i])
		i++;
	return regions[i] = mr;
}

static struct ibv_mr *region(struct ibv_pd *pd, struct side *s, uint64_t iova, int access)
{
	return kept(ibv_reg_mr_iova(pd, s->buf + SMALL, SMALL_LEN, iova, access));
}

void drop_regions(void)
{
	for (size_t i = 0; i < COUNT(regions); i++)
		if (regions[i]) {
			DESTROY(regions[i]);
			regions[i] = NULL;
		}
	if (domain)
		DESTROY(domain);
	domain = NULL;
}

static uint64_t small_at(struct side *s)
{
	return (uintptr_t)s->buf + SMALL;
}

static uint32_t deregistered_key(struct side *s)
{
	struct ibv_mr *mr = new_mr(s->pd, s->buf + SMALL, SMALL_LEN, ALL_ACCESS);
	uint32_t key = mr->lkey;

	DESTROY(mr);
	return key;
}

enum kind {
	UNKNOWN_KEY, STALE_TAG, ZERO_KEY, ONES_KEY, DEREGISTERED, REGISTERED_ANEW, OTHER_DOMAIN, BYTE_BEFORE, BYTE_BEYOND,
	RIGHT_BEHIND, FAR_OFF, FROM_THE_KERNEL, WRAPS, WRAPS_INTO_REGION, WRAPS_OUT_OF_REGION, RIGHTS, END_OF_ALL, NO_BYTES,
	SHIFTED,
};

static const struct fault {
	const char *text;
	enum kind kind;
	int rights;		/* of the region, with RIGHTS */
	bool is_none;		/* that is permitted */
	/* Which operations it is one for; the others may do that. */
	bool writes_only, reads_only;
	bool remote_only, atomics_only;
} faults[] = {
	{ "an unknown key", UNKNOWN_KEY },
	{ "a key with another tag", STALE_TAG },
	{ "key 0", ZERO_KEY },
	{ "key 0xffffffff", ONES_KEY },
	{ "a deregistered key", DEREGISTERED },
	{ "the old key of memory registered anew", REGISTERED_ANEW },
	{ "a key of another protection domain", OTHER_DOMAIN },
	{ "a byte before the region", BYTE_BEFORE },
	{ "a byte beyond the region", BYTE_BEYOND },
	{ "memory right behind the region", RIGHT_BEHIND },
	{ "an address far off", FAR_OFF },
	{ "an address of the kernel", FROM_THE_KERNEL },
	{ "a range that wraps at 2^64", WRAPS },
	{ "a range that wraps at 2^64 into a region at 0", WRAPS_INTO_REGION },
	{ "a range that wraps at 2^64 out of a region that ends there", WRAPS_OUT_OF_REGION },
	{ "a region that may not be written", RIGHTS, IBV_ACCESS_REMOTE_READ, .writes_only = true },
	{ "a region without remote rights", RIGHTS, IBV_ACCESS_LOCAL_WRITE, .remote_only = true },
	{ "a region that may not be read remotely", RIGHTS, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE,
	  .reads_only = true, .remote_only = true },
	{ "a region that permits no atomic operation", RIGHTS, ALL_ACCESS & ~IBV_ACCESS_REMOTE_ATOMIC,
	  .remote_only = true, .atomics_only = true },
	{ "a region whose words are not aligned in memory", SHIFTED, .remote_only = true, .atomics_only = true },
	{ "the last bytes before 2^64, which are in the region", END_OF_ALL, .is_none = true },
	{ "no bytes of an unknown key", NO_BYTES, .is_none = true },
};

static void spoil(const struct fault *fault, struct side *s, struct named *n)
{
	const uint64_t small = small_at(s);

	switch (fault->kind) {
	case UNKNOWN_KEY: n->key ^= 0x00a5a500; break;
	case STALE_TAG: n->key ^= 1; break;
	case ZERO_KEY: n->key = 0; break;
	case ONES_KEY: n->key = ~0u; break;
	case DEREGISTERED: n->key = deregistered_key(s); break;
	case REGISTERED_ANEW:
		n->key = deregistered_key(s);
		region(s->pd, s, small, ALL_ACCESS);
		break;
	case OTHER_DOMAIN:
		domain = new_pd(s->ctx);
		n->key = region(domain, s, small, ALL_ACCESS)->lkey;
		break;
	case BYTE_BEFORE: n->addr = small - 1; break;
	case BYTE_BEYOND: n->addr = small + SMALL_LEN - n->len + 1; break;
	case RIGHT_BEHIND: n->addr = small + SMALL_LEN; break;
	case FAR_OFF: n->addr ^= 1ull << 46; break;
	case FROM_THE_KERNEL: n->addr |= 0xffff800000000000; break;
	case WRAPS: n->addr = -(uint64_t)n->len / 2; break;
	case WRAPS_INTO_REGION:
		n->addr = -50ull;
		n->key = region(s->pd, s, 0, ALL_ACCESS)->lkey;
		break;
	case WRAPS_OUT_OF_REGION:
	case END_OF_ALL:
		n->addr = fault->kind == END_OF_ALL ? -(uint64_t)n->len : -50ull;
		n->key = region(s->pd, s, -(uint64_t)SMALL_LEN, ALL_ACCESS)->lkey;
		break;
	case RIGHTS: n->key = region(s->pd, s, small, fault->rights)->lkey; break;
	case SHIFTED:
		/* Offset 0 is four bytes behind a multiple of eight: the offset is aligned, and the word is not. */
		n->addr = 8;
		n->key = kept(ibv_reg_mr(s->pd, s->buf + SMALL + 4, SMALL_LEN - 8, ALL_ACCESS | IBV_ACCESS_ZERO_BASED))->lkey;
		break;
	case NO_BYTES: *n = (struct named){ .addr = -1ull, .key = 0x77777777 }; break;
	}
}

static const char *const operations[] = {
	[IBV_WR_SEND] = "SEND", [IBV_WR_SEND_WITH_IMM] = "SEND with immediate", [IBV_WR_RDMA_WRITE] = "WRITE",
	[IBV_WR_RDMA_WRITE_WITH_IMM] = "WRITE with immediate", [IBV_WR_RDMA_READ] = "READ",
	[IBV_WR_ATOMIC_FETCH_AND_ADD] = "FETCH_ADD", [IBV_WR_ATOMIC_CMP_AND_SWP] = "CMP_SWAP",
};

static bool is_atomic(enum ibv_wr_opcode op)
{
	return op == IBV_WR_ATOMIC_FETCH_AND_ADD || op == IBV_WR_ATOMIC_CMP_AND_SWP;
}

/* With immediate data it is of one packet, which takes the receive; else of several. */
static uint32_t length_of(enum ibv_wr_opcode op)
{
	if (is_atomic(op))
		return 8;
	return op == IBV_WR_SEND_WITH_IMM || op == IBV_WR_RDMA_WRITE_WITH_IMM ? 100 : 3000;
}

/* A region of its own, so that what lies around it can be told from what lies in it. */
static struct named good(struct side *s, uint32_t len)
{
	return (struct named){ .addr = small_at(s) + 8, .len = len,
			       .key = region(s->pd, s, small_at(s), ALL_ACCESS)->lkey };
}

static void build(struct scene *s, const struct cause *c, struct draft *d)
{
	enum where where = c->arg[0];
	const struct fault *fault = &faults[c->arg[1]];
	enum ibv_wr_opcode op = c->arg[2];
	uint32_t len = length_of(op);
	struct side *a = &s->p.a, *b = &s->p.b, *at = where == REMOTE || where == IN_RECEIVE ? b : a;
	struct named n = good(at, len);

	d->w.opcode = op;
	d->list[0] = sge(a, op == IBV_WR_RDMA_READ || is_atomic(op) ? TARGET : 0, len);
	aim(&d->w, b, op == IBV_WR_RDMA_READ ? 0 : TARGET);
	spoil(fault, at, &n);
	struct ibv_sge bad = { .addr = n.addr, .length = n.len, .lkey = n.key };
	if (is_atomic(op)) {
		/* A remote place that is not aligned is a fault of another kind. */
		d->w.wr.atomic.remote_addr = where == REMOTE ? n.addr & ~7ull : (uintptr_t)b->buf + TARGET;
		d->w.wr.atomic.rkey = where == REMOTE ? n.key : b->mr->rkey;
		d->w.wr.atomic.compare_add = 1;
		d->w.wr.atomic.swap = 2;
		if (where == IN_LIST)
			d->list[0] = bad;
	} else if (where == REMOTE) {
		d->w.wr.rdma.remote_addr = n.addr;
		d->w.wr.rdma.rkey = n.key;
		/* The range is as long as the list. */
		if (n.len == 0)
			d->w.num_sge = 0;
	} else if (where == IN_RECEIVE) {
		d->receive[0] = bad;
	} else if (where == IN_LIST) {
		d->list[0] = bad;
	} else {
		/* The first entry fills two packets, which may leave before the fault is found. */
		d->list[0].length = 2048;
		d->list[1] = bad;
		d->w.num_sge = 2;
	}
}

static bool tried(enum where where, const struct fault *f, enum ibv_wr_opcode op)
{
	bool read = op == IBV_WR_RDMA_READ, send = op == IBV_WR_SEND || op == IBV_WR_SEND_WITH_IMM;
	/* Whether the memory at this place is written. */
	bool written = where == REMOTE ? !read : where == IN_RECEIVE ? true : read || is_atomic(op);

	/* An aligned word does not run over an edge; and it is never of no bytes, or in pieces that are long. */
	if (is_atomic(op) && (f->kind == BYTE_BEYOND || f->kind == WRAPS_OUT_OF_REGION || f->kind == NO_BYTES ||
			      where == IN_SECOND_ENTRY))
		return false;
	if (f->atomics_only && !is_atomic(op))
		return false;
	if ((f->writes_only && !written) || (f->reads_only && written) || (f->remote_only && where != REMOTE))
		return false;
	if (where == REMOTE)
		return !send;
	if (where == IN_RECEIVE)
		/* A receive without room is a fault of another kind. */
		return send && f->kind != NO_BYTES;
	return true;
}

/* A WRITE of one packet with immediate data would have taken the receive, which says what was wrong with it. */
static bool is_told_by_receive(enum where where, enum ibv_wr_opcode op)
{
	return where == IN_RECEIVE || (where == REMOTE && op == IBV_WR_RDMA_WRITE_WITH_IMM);
}

/* rdma_rxe's own faults, which are not those of the cases. */
static const char *rxe_differs(enum where where, enum ibv_wr_opcode op)
{
	if ((where == IN_LIST || where == IN_SECOND_ENTRY) && op != IBV_WR_RDMA_READ)
		return "reports a flush in place of the error";
	if (where == IN_RECEIVE)
		return "completes the receive with an operation error";
	return is_told_by_receive(where, op) ? "gives the receive the status of the request" : NULL;
}

static void combine(enum where where, int f, enum ibv_wr_opcode op, struct cause *c)
{
	static const char *const places_text[] = { "", " in its second entry", " at the remote end", "" };
	bool fine = faults[f].is_none;
	uint32_t len = faults[f].kind == NO_BYTES ? 0 : length_of(op);

	snprintf(c->text, sizeof(c->text), where == IN_RECEIVE ?
		 "%s of %u bytes into a receive of %s" : "%s of %u bytes with %s%s", operations[op],
		 where == IN_SECOND_ENTRY ? 2048 + len : len, faults[f].text, places_text[where]);
	c->build = build;
	c->arg[0] = where;
	c->arg[1] = f;
	c->arg[2] = op;
	c->status = fine ? IBV_WC_SUCCESS : where == REMOTE ? IBV_WC_REM_ACCESS_ERR :
		    where == IN_RECEIVE ? IBV_WC_REM_OP_ERR : IBV_WC_LOC_PROT_ERR;
	c->responder = is_told_by_receive(where, op) ? ENDS_BY_RECEIVE : where == REMOTE ? ENDS_BY_ACCESS : STAYS;
	c->receive = where == REMOTE ? IBV_WC_LOC_ACCESS_ERR : IBV_WC_LOC_PROT_ERR;
	if (on_rxe() && !fine)
		c->rxe = faults[f].kind == SHIFTED ? "has no regions of offsets" : rxe_differs(where, op);
	/* The packets before the one that does not fit are in their place. */
	c->may_fill_region = fine || (len > 1024 && where != REMOTE);
}

/* The i-th of the combinations that are tried at a place; -1 counts them. */
static int nth(enum where where, int i, struct cause *c)
{
	int count = 0;

	for (size_t f = 0; f < COUNT(faults); f++)
		for (size_t op = 0; op < COUNT(operations); op++)
			if (tried(where, &faults[f], op) && count++ == i)
				combine(where, f, op, c);
	return count;
}

static void prot(int i, struct cause *c)
{
	int first = nth(IN_LIST, -1, c);

	if (i < first)
		nth(IN_LIST, i, c);
	else
		nth(IN_SECOND_ENTRY, i - first, c);
}

static void remote_access(int i, struct cause *c)
{
	nth(REMOTE, i, c);
}

static void receive(int i, struct cause *c)
{
	nth(IN_RECEIVE, i, c);
}

/* What is tried in each place is counted when the program begins. */
struct family prot_family = { "local-protection", 120, NULL, 0, prot };
struct family access_family = { "remote-access", 90, NULL, 0, remote_access };
struct family receive_family = { "remote-operation", 90, NULL, 0, receive };

__attribute__((constructor)) static void count(void)
{
	prot_family.count = nth(IN_LIST, -1, NULL) + nth(IN_SECOND_ENTRY, -1, NULL);
	access_family.count = nth(REMOTE, -1, NULL);
	receive_family.count = nth(IN_RECEIVE, -1, NULL);
}
