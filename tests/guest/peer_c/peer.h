/* SPDX-License-Identifier: GPL-2.0 */
/* One of two processes that move checked data between two devices, over one or more queue pairs ("lanes"). */
#ifndef FERROCE_TESTS_PEER_H
#define FERROCE_TESTS_PEER_H

#include "rdma.h"

#include <signal.h>

/* How the program ends, other than 0. A hang is never one of the expected ways: it is FAILED. */
enum { FAILED = 1, USAGE = 2, ERROR_COMPLETION = 3, PEER_GONE = 4, DEVICE_GONE = 5, TORN_DOWN = 6 };

enum { DEPTH = 64, MAX_SGE = 16, MAX_LANES = 16 };

/* The command line. */
struct plan {
	const char *device, *server;
	int gid_index, port, mtu;
	int rounds;		/* 0: until the end of the world */
	const char *types;	/* a letter for each lane: r(RC), u(UC), d(UD); without them all are RC, and only lane 0 has
				 * every operation */
	const char *ops;	/* letters of kinds[] in steps.c, of mixtures.c and of windows.c */
	const char *mistakes;	/* letters of mistakes[] in mistakes.c; only the client makes them, at the end */
	const char *sizes;	/* separated by commas; M stands for the MTU */
	bool one_way;		/* only the client asks */
	bool alone;		/* go on when the other side has left */
	bool tell;		/* print what is done, for those who watch the packets */
	int retry, timeout, rnr_timer;
	int lanes;
	int traffic_class;	/* TOS or traffic class of the packets */
	int shapes;		/* how many of shapes[] in steps.c a message goes through */
};

extern struct plan plan;
/* Set by SIGTERM: end well after this round. By SIGUSR1: destroy everything in the middle of what is under way. */
extern volatile sig_atomic_t stop_asked, tear_asked;

/* What each side tells the other. */
struct contact {
	union ibv_gid gid;
	uint64_t addr;
	uint32_t rkey;
	struct {
		uint32_t qpn, psn;
	} lane[MAX_LANES];
};

/* A CHECK that does not hold leaves with FAILED. */
void leave(int code, const char *fmt, ...) __attribute__((format(printf, 2, 3), noreturn));

void control_open(const char *server, int port);
/* False: nobody is there, and that does not matter. */
bool swap(const void *mine, void *theirs, size_t len);
/* Waits for the other side; tells whether one of the two was asked to stop. Both get the same answer. */
bool together(const char *where);
/* The other side has left: what it was about to do to our memory may have been done in part. */
extern bool deserted;
bool peer_left(void);

/* Two areas in one region: ASKER for the side that posts, TARGET for the side that is written to and read from. */
enum area { ASKER, TARGET };

extern struct contact here, there;

/* Each area has room for a message of `largest` bytes in pieces. */
void endpoint_open(size_t largest);
void endpoint_close(void);
size_t area_size(void);
uint8_t *at(enum area area, size_t offset);
struct ibv_sge piece(enum area area, size_t offset, uint32_t len);
/* Where the peer's region has this byte. */
uint64_t remote(enum area area, size_t offset);
void expect_message(int lane, uint64_t id, struct ibv_sge *list, int n);
void post(int lane, struct ibv_send_wr *w);
/* ATOMIC WRITE of eight bytes, for which ibv_post_send has no place. */
void post_atomic_write(int lane, uint64_t id, uint64_t addr, const void *value);
enum ibv_qp_type type_of(int lane);
struct ibv_qp *queue_pair(int lane);
/* The peer may do no more than this to our memory on this lane. */
void permit(int lane, int access);
/* The next completion, whatever it says. */
struct ibv_wc outcome(int lane, const char *what);
/* The next completion, which must be this one, and good. */
struct ibv_wc completion(int lane, uint64_t id, enum ibv_wc_opcode opcode, const char *what);

/* One message cut into pieces that lie apart from each other, on odd addresses; and what is in them. */
enum { MARGIN = 16 };
struct layout {
	int n;
	size_t offset[MAX_SGE];
	uint32_t len[MAX_SGE];
};

struct layout lay(uint32_t size, int pieces);
struct layout lay_at(size_t offset, uint32_t size);
int list(const struct layout *l, enum area area, struct ibv_sge *to);
void fill(const struct layout *l, enum area area, unsigned int seed);
void clear(const struct layout *l, enum area area);
void compare(const struct layout *l, enum area area, unsigned int seed, const char *what);
/* Whether the message is there, for one that nobody acknowledges. */
bool arrived(const struct layout *l, enum area area, unsigned int seed);

/* A kind of message: how it is posted, and what both ends are told. */
struct kind {
	char letter;
	const char *name;
	enum ibv_wr_opcode post;
	enum ibv_wc_opcode done, received;
	bool takes_receive, places, imm;
	int flags;
};

const struct kind *kind(char letter);
struct ibv_send_wr request(const struct kind *k, uint64_t id, struct ibv_sge *sges, int n, size_t offset);
/* Bytes in front of a datagram. */
enum { GRH_BYTES = 40 };
void check_received(const struct kind *k, const struct ibv_wc *wc, uint32_t size, uint32_t imm);

void run_step(char op, uint32_t size, bool ask, unsigned int seed);
/* False: not one of these letters. */
bool run_mixture(char op, uint32_t size, bool ask, unsigned int seed);
bool run_window(char op, uint32_t size, bool ask, unsigned int seed);
void run_mistake(char op, uint32_t size, bool ask, unsigned int seed);

#endif
