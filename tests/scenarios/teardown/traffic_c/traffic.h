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
	int peer;		/* socket to the other side, for the beginning */
};

/* One line to whoever reads the program: WORD PID TEXT. */
void say(const char *word, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void broken(const char *fmt, ...) __attribute__((format(printf, 1, 2), noreturn));

/* Runs a side until it is ended. SIGUSR1: destroy everything in the middle. SIGUSR2: close the command file. */
void run_side(const struct plan *plan) __attribute__((noreturn));

#endif
