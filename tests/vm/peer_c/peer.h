/* SPDX-License-Identifier: GPL-2.0 */
/* One of two processes that move checked data between two devices, each with one RC queue pair. */
#ifndef FERROCE_TESTS_PEER_H
#define FERROCE_TESTS_PEER_H

#include <infiniband/verbs.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* How the program ends, other than 0. A hang is never one of the expected ways: it is FAILED. */
enum { FAILED = 1, USAGE = 2, ERROR_COMPLETION = 3, PEER_GONE = 4, DEVICE_GONE = 5, TORN_DOWN = 6 };

enum { DEPTH = 64, MAX_SGE = 4, AREA = 5 << 18 };

/* Seconds without any progress that are a hang. The longest legitimate pause, all retries of one packet, is 1 s. */
#define PATIENCE 40.0

/* The command line. */
struct plan {
	const char *device, *server;
	int gid_index, port, mtu;
	int rounds;		/* 0: until the end of the world */
	const char *ops;	/* letters of enum op */
	const char *sizes;	/* separated by commas; M stands for the MTU */
	bool one_way;		/* only the client asks */
	bool alone;		/* go on when the other side has left */
	int retry, timeout;
};

extern struct plan plan;
/* Set by SIGTERM: end well after this round. By SIGUSR1: destroy everything in the middle of what is under way. */
extern volatile sig_atomic_t stop_asked, tear_asked;

/* What each side tells the other. */
struct contact {
	union ibv_gid gid;
	uint64_t addr;
	uint32_t qpn, psn, rkey;
};

void leave(int code, const char *fmt, ...) __attribute__((format(printf, 2, 3), noreturn));
#define CHECK(cond, ...) do { if (!(cond)) leave(FAILED, __VA_ARGS__); } while (0)
double now(void);

void control_open(const char *server, int port);
bool swap(const void *mine, void *theirs, size_t len);
/* Waits for the other side; tells whether one of the two was asked to stop. Both get the same answer. */
bool together(const char *where);
/* The other side has left: what it was about to do to our memory may have been done in part. */
extern bool deserted;
bool peer_left(void);

/* Two areas in one region: ASKER for the side that posts, TARGET for the side that is written to and read from. */
enum area { ASKER, TARGET };

extern struct ibv_qp *qp;
extern struct contact there;

void endpoint_open(void);
void endpoint_close(void);
uint8_t *at(enum area area, size_t offset);
struct ibv_sge piece(enum area area, size_t offset, uint32_t len);
void post_receive(uint64_t id, struct ibv_sge *list, int n);
void post(struct ibv_send_wr *w);
struct ibv_wc completion(uint64_t id, enum ibv_wc_opcode opcode, const char *what);

void run_step(char op, uint32_t size, bool ask, unsigned int seed);

#endif
