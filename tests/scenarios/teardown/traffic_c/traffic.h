/* SPDX-License-Identifier: GPL-2.0 */
/* Traffic that never ends by itself, for everything to be taken away from under it. */
#ifndef FERROCE_TESTS_TRAFFIC_H
#define FERROCE_TESTS_TRAFFIC_H

#include "rdma.h"

/* How a side ends. TRAFFIC_BROKEN is the only wrong one; most are killed. */
enum { TRAFFIC_BROKEN = 1, TRAFFIC_NO_DEVICE = 3, TRAFFIC_DESTROYED = 4, TRAFFIC_PEER_GONE = 5 };

struct plan {
	const char *device;
	int gid_index;
	uint32_t size;		/* bytes of the largest message */
	bool asks;		/* posts WRITE, READ and SEND; the other side posts SEND only */
	bool shares;		/* its receives are in a shared queue */
	bool datagrams;		/* beside the connection there are datagrams, not messages of UC */
	int peer;		/* socket to the other side, for the beginning */
};

/* One line to the reader of the program: WORD PID TEXT. */
void say(const char *word, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void broken(const char *fmt, ...) __attribute__((format(printf, 1, 2), noreturn));

/* Runs a side until it is ended. SIGUSR1: destroy everything in the middle. SIGUSR2: close the command file. */
void run_side(const struct plan *plan) __attribute__((noreturn));

/*
 * loose.c: messages beside the connection that may be lost. Their wr_ids have this bit, those of receives the next one
 * as well.
 */
#define LOOSE (1ull << 62)
#define LOOSE_RECEIVE (1ull << 61)
/* Returns the number of the queue pair. */
uint32_t loose_open(struct ibv_pd *pd, struct ibv_cq *cq, bool datagrams);
/* What is sent are the first bytes of a region; what comes has the pattern of this seed. */
void loose_connect(const struct connection *c, uint32_t qpn, uint32_t seed, const struct ibv_mr *from);
void loose_post(uint32_t size);
/* A new handle in place of the old one, which goes when the datagrams that name it have gone. */
void loose_renew(void);
void loose_take(const struct ibv_wc *wc);
void loose_destroy(void);

#endif
