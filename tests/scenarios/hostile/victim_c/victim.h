/* SPDX-License-Identifier: GPL-2.0 */
/* The victim of hostile packets: memory of which every byte is known, and queue pairs that a stranger attacks. */
#ifndef FERROCE_TESTS_VICTIM_H
#define FERROCE_TESTS_VICTIM_H

#include "rdma.h"

enum {
	MAX_QP = 128,
	DEPTH = 16,
	/* A place for each region, with as much forbidden memory behind it. */
	WINDOW = 64 * 1024,
	WINDOWS = 15,
	ARENA = 2 * WINDOW * WINDOWS,
	/* Regions begin and end within pages, so that the rest of the page is a guard as well. */
	ODD = 1032,
	REGION = 20000,
	/* Bytes of a posted receive. */
	RECEIVE = 1024,
};

/* control.c: what the generator asks, and what it is told. */
void control_open(int port);
/* A line without its end, or NULL when the generator has gone. */
const char *control_line(void);
void tell(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void control_flush(void);

/* memory.c */
enum region { RW, RO, WO, LOCAL, FOREIGN, STALE, VOLATILE, RECEIVES, SENDS, MW_RW, MW_RO, MW_STALE, MW_FOREIGN, MW_OWN,
	      REGIONS };

/* Whose a memory window is. */
enum window {
	NO_WINDOW,		/* it is a region */
	OF_DOMAIN,		/* type 1: all queue pairs of the domain may use it */
	OF_ANOTHER,		/* type 2B of a queue pair that is not attacked */
	OF_EACH,		/* one of type 2B of each queue pair that has such, over the same bytes */
};

struct area {
	const char *name;
	int access;		/* of the region, or of the window; then the region around it is larger and has none */
	bool may_be_read;	/* by a remote READ or with a SEND */
	enum window window;
	struct ibv_mr *mr;
	struct ibv_mw *mw;
	uint8_t *at;
};

extern struct area areas[REGIONS];

void memory_open(struct ibv_pd *own, struct ibv_pd *foreign);
void memory_close(void);
/* Tells the generator its address and its key. */
void memory_register(struct area *area, struct ibv_pd *pd);
void memory_deregister(struct area *area);
/* Binds a window of type 2B to these bytes, by the queue pair's own send queue; its key. */
uint32_t memory_bind(struct area *area, struct ibv_qp *qp, struct ibv_mw *mw);
/* From here on these bytes may change. */
void memory_allow(struct area *area, size_t offset, size_t len);
/* Tells the first byte that is not what it was and may not differ. */
bool memory_is_whole(void);
/* Everything as it was in the beginning, and nothing may change. */
void memory_renew(void);

/* endpoint.c */
extern struct ibv_context *ctx;
extern struct ibv_pd *own_pd, *foreign_pd;
/* One that is not attacked, and sends nothing. */
extern struct ibv_qp *helper;
extern const char *device_name;
extern int gid_index;
extern union ibv_gid attacker, other;

/* The status of the next completion. */
void succeeded(const char *what);
void endpoint_open(void);
void endpoint_close(void);
/* Makes `n` queue pairs of a kind, in place of those there were. */
void make(int n, const char *kind);
void tell_states(void);
void tell_completions(void);
void post(int index, const char *op, uint32_t len);
void tell_events(void);

#endif
