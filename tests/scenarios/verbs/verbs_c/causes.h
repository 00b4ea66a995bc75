/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The table of errors: every status that a reliable connection can report, with everything a user can do to provoke it.
 *
 * A cause is one request that ends badly. What is judged around it is the same for all: what stands behind the request
 * and what comes later is flushed in order, the responder is in the state the specification says and has the event it
 * says, memory nobody named is as it was, two other queue pairs of the same process and the same protection domains
 * move data, and so do the two that failed once they went through RESET.
 */
#ifndef FERROCE_TESTS_CAUSES_H
#define FERROCE_TESTS_CAUSES_H

#include "pair.h"

enum {
	BUF = 1 << 16,
	TARGET = 16384,		/* where messages go in a buffer; they come from its beginning */
	TARGET_LEN = 16384,
	SMALL = 32768,		/* where the small region begins, with room around it that is not in the region */
	SMALL_LEN = 4096,
};

struct scene {
	struct pair p;		/* what fails */
	struct pair n;		/* its neighbours */
};

/* What becomes of the responder. */
enum responder_end {
	STAYS,			/* in RTS, without an event */
	ENDS_BY_ACCESS,		/* ERR, with IBV_EVENT_QP_ACCESS_ERR */
	ENDS_BY_REQUEST,	/* ERR, with IBV_EVENT_QP_REQ_ERR */
	ENDS_BY_RECEIVE,	/* ERR, told by the completion of its receive */
	LEFT_BEFORE,		/* the cause itself took it out of RTS */
};

/* The request and the receive for it, before they are posted. */
struct draft {
	struct ibv_send_wr w;
	struct ibv_send_wr *before;	/* posted in one list with it, ahead of it */
	struct ibv_sge list[MAX_SGE];
	struct ibv_sge receive[MAX_SGE];
	int receive_sges;
};

struct cause {
	char text[144];
	struct options opt;
	/* Changes the draft, a SEND of 100 bytes into a receive of the whole target, into the one that fails. */
	void (*build)(struct scene *s, const struct cause *c, struct draft *d);
	int arg[3];			/* for build */
	bool posts_itself;		/* build writes the request into the ring, and the one behind it */
	enum ibv_wc_status status;	/* of the request */
	enum responder_end responder;
	enum ibv_wc_status receive;	/* of the receive, with ENDS_BY_RECEIVE */
	bool no_receives, receives_itself;	/* none, or build posts them */
	bool may_fill_region;		/* a part of the message, or all of it, goes to the small region */
	uint32_t at_least_us;		/* the error may not come sooner */
	/* Does everything itself, in place of all above: something is refused, and nothing happens. */
	void (*refused)(struct scene *s, const struct cause *c);
	const char *rxe;		/* why rdma_rxe is not asked */
	bool wire_only, local_only;	/* there is nothing like it on the other path */
};

struct family {
	const char *name;
	int seconds;		/* on an idle emulated machine it takes less */
	const struct cause *causes;	/* `count` of them, to which `get` may add */
	int count;
	void (*get)(int i, struct cause *c);
};

/* Of faults.c, lengths.c, retries.c, own_ring.c and posting.c. */
extern struct family prot_family, access_family, receive_family;
extern const struct family length_family, invalid_family, qp_op_family, retry_family, rnr_family, flush_family,
	refusal_family;

/* One message without a fault; arg: its operation and length. Changed by those who take something else away. */
void plain(struct scene *s, const struct cause *c, struct draft *d);
/* Takes away what the faults of memory have registered for a cause. */
void drop_regions(void);
/* Data moves both ways, by every operation. */
void exchange(struct pair *p, unsigned int seed);
/* Takes n completions of a side, in any order between its two queues, and checks that ids all ended with the status. */
void gather(struct side *s, int n, const uint64_t *ids, enum ibv_wc_status status, const char *what);
const char *status_name(enum ibv_wc_status status);
/* Whether both sides are one device that serves itself without packets. */
bool by_local_path(void);

#endif
