/* SPDX-License-Identifier: GPL-2.0 */
/* Two queue pairs, RC unless a case says otherwise, of one device or of two, connected to each other, and what the cases need to talk through them. */
#ifndef FERROCE_TESTS_PAIR_H
#define FERROCE_TESTS_PAIR_H

#include "rdma.h"
#include "uabi.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/wait.h>

enum { DEPTH = 64, MAX_SGE = UABI_QUEUE_SGES, INLINE_BYTES = UABI_QUEUE_INLINE };
/* Where messages of unreliable services go in a buffer that is twice as long, and the Q_Key of datagrams. */
enum { HALF = 1 << 16, KEY = 0x11223344 };

/* What a case may ask for; zero means the default, NONE means zero. */
enum { NONE = -1 };

struct options {
	int mtu;		/* bytes, default 1024 */
	int mtu_of_b;		/* default the same */
	int rnr_retry;		/* default 7 */
	int rnr_timer;		/* the code that RNR NAKs carry, default 1 */
	int retry_cnt;		/* default 7 */
	int timeout;		/* exponent, default 14 */
	int rd_atomic;		/* default 4: READs that a side has under way */
	int dest_rd_atomic;	/* default the same: READs that a side serves */
	int psn_ahead;		/* a begins with a PSN so far from what b expects */
	bool wrong_qpn;		/* a names a queue pair that does not exist */
	int qp_access;		/* NONE, or default everything */
	bool no_connect;	/* leave both in RESET */
	bool events;		/* completion channels */
	enum ibv_qp_type type;	/* default RC */
};

struct side {
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	union ibv_gid gid;
	int gid_index;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	uint8_t *buf;
	size_t len;
};

struct pair {
	struct options opt;
	bool neighbours;	/* contexts and domains are those of another pair */
	struct side a, b;
};

/* Given on the command line: where a is, and where b is, which may be the same device. */
struct place {
	const char *device;
	int gid_index;
};

extern struct place places[2];

/* The pair of a case that has one. */
extern struct pair p;

/* The driver is rdma_rxe, on which the cases themselves are judged. */
bool on_rxe(void);

/* The device file of a, for commands and mappings made by hand. */
int open_device_file(void);
/*
 * One command of uverbs by write(): its number, what the request says, and the bytes of room for the response, whose address
 * is the first field of every request that has one. 0 or an errno.
 */
int uverbs_command(int fd, uint32_t number, const void *request, size_t in, size_t out);

/*
 * How the commands of libibverbs reach the kernel: by methods of their own, by the one that stands for write(), or by
 * write(). It counts from when a device is opened. By write() the answers may be lost: then all is done and undone.
 */
extern enum command_form { BY_METHOD, BY_INVOKE, BY_WRITE, FORMS } command_form;
extern bool answers_lost;

/* A number in the environment, which must be there. */
uint64_t number_of(const char *name);

/* Ends the case; the text is why nothing can be said. */
void skip(const char *fmt, ...) __attribute__((format(printf, 1, 2), noreturn));

/* Contexts and protection domains alone: what pair_open_beside needs. */
void pair_open_device(struct pair *p, const struct options *opt);
void pair_open(struct pair *p, const struct options *opt, size_t len);
/* Another pair of the same process, in the same protection domains. */
void pair_open_beside(struct pair *p, const struct pair *other, size_t len);
void pair_close(struct pair *p);
void pair_options(struct pair *p, const struct options *opt);
/* Two of UD are not connected: both are ready for datagrams with KEY. */
void pair_connect(struct pair *p);
/* Both to RESET, which empties everything, and connected anew. */
void pair_reconnect(struct pair *p, const struct options *opt);
/* The queues of a are destroyed, and a new queue pair completes into this one. */
void use_cq(struct pair *p, struct ibv_cq *cq);
struct ibv_qp *make_qp(struct side *s);
struct ibv_qp *make_qp_of(enum ibv_qp_type type, struct side *s);
/* A queue pair of UD from RESET to RTS. */
void ready(struct ibv_qp *qp, uint32_t qkey);
int to_init(struct pair *p, struct side *s);
int to_rtr(struct pair *p, struct side *s, const struct side *dest, uint32_t dest_qpn);
int to_rts(struct pair *p, struct side *s);
int to_state(struct side *s, enum ibv_qp_state state);
/* Connected, but for b's step from RTR to RTS. */
void pair_open_b_in_rtr(struct pair *p, const struct options *opt, size_t len);
/* The same place and memory, with queues of its own: a completion queue of so many entries, and a queue pair in RESET. */
struct side side_beside(const struct side *s, enum ibv_qp_type type, int entries);
void side_end(struct side *s);
void want_state(struct side *s, enum ibv_qp_state want, const char *who);
/* A doorbell by hand, of the receive queue or the send queue. */
void ring_doorbell(struct ibv_qp *qp, bool receives);

static inline void fill(uint8_t *at, size_t len, unsigned int seed)
{
	fill_piece(at, 0, len, seed);
}

static inline void compare(const uint8_t *at, size_t len, unsigned int seed, const char *what)
{
	compare_piece(at, 0, len, seed, what);
}

/* Two sides that are no pair, each with the other, in this way. */
void connect_sides(const struct side *one, const struct side *other, struct connection c);

struct ibv_sge sge(struct side *s, size_t offset, uint32_t len);
struct ibv_send_wr wr(enum ibv_wr_opcode op, uint64_t id, struct ibv_sge *list, int n);
void aim(struct ibv_send_wr *w, struct side *target, size_t offset);
void post(struct side *s, struct ibv_send_wr *w);
/* So many in one list. */
void post_list(struct side *s, struct ibv_send_wr *w, int n);
void post_recv(struct side *s, uint64_t id, struct ibv_sge *list, int n);
/* One request of `len` bytes from or to `mine` in the buffer, signaled; without bytes it has no entry. */
void post_one(struct side *s, enum ibv_wr_opcode op, uint64_t id, size_t mine, uint32_t len);
/* The same with a place in the buffer of another side, for operations that name one. */
void post_at(struct side *s, enum ibv_wr_opcode op, uint64_t id, size_t mine, uint32_t len, struct side *to, size_t theirs);
/* The same, named by an address and a key. */
void post_named(struct side *s, enum ibv_wr_opcode op, uint64_t id, size_t mine, uint32_t len, uint64_t addr, uint32_t rkey);
/* A receive of so many bytes of the buffer. */
void post_room(struct side *s, uint64_t id, size_t offset, uint32_t len);
struct ibv_wc next(struct side *s, const char *what);
struct ibv_wc expect(struct side *s, uint64_t id, enum ibv_wc_status status, const char *what);
/* A message is done at both ends; what its receive says. */
struct ibv_wc expect_both(struct side *from, uint64_t id, struct side *to, uint64_t receive, const char *what);
/*
 * One message between a place in the buffer of `from`, who posts it, and one in that of `to`, with everything checked.
 * The seed is its number, too.
 */
void move(enum ibv_wr_opcode op, struct side *from, size_t mine, struct side *to, size_t theirs, uint32_t len,
	  unsigned int seed);
/* One SEND from the beginning of a buffer to the second page of the other. */
void send_checked(struct side *from, struct side *to, unsigned int seed);
void expect_none(struct side *s, int ms, const char *what);
/*
 * a moves bytes from or to the beginning of its buffer, and succeeds, or has a remote access error; then both are connected
 * anew.
 */
void want_access(struct pair *p, enum ibv_wr_opcode op, uint64_t addr, uint32_t rkey, uint32_t len, bool allowed,
		 const char *what);
/* Bytes within b's buffer that peers name by `begin` and this key: a may write and read all of them, and none besides. */
void want_exactly(struct pair *p, const uint8_t *bytes, uint32_t len, uint64_t begin, uint32_t rkey);

/* A thread by which a writes from the beginning of its buffer, without a pause, until it is refused or stopped. */
struct writer {
	struct pair *p;
	uint64_t addr;
	uint32_t rkey, len;
	pthread_t thread;
	atomic_bool stop;
	atomic_int written, refused;
};

/* Returns when it has written; `refused` is then right behind the end. */
void begin_writing(struct writer *w);
void end_writing(struct writer *w);

/* Whether the channel of a side has an event within some milliseconds; it is taken, and acknowledged. */
bool event_within(struct side *s, int ms);
/*
 * The ring whose first slot begins with the mark and, behind it, opcode and flags of a request, or entries of a receive. A
 * completion queue has the mark too, with a status of 0 behind it.
 */
uint8_t *marked_ring(uint64_t mark, uint16_t behind);
_Atomic uint32_t *producer_of(uint8_t *ring);

/* By which ways a case is run: on one device by its local path and by packets, or as its scenario in Python says. */
enum paths { BOTH_PATHS, LOCAL_PATH, BY_HAND };

struct test_case {
	const char *name;	/* with its subject in front */
	const char *shows;
	void (*run)(void);
	enum paths paths;
	int seconds;		/* on an idle emulated machine it takes less; default 60 */
	const char *rxe;	/* what rdma_rxe, on which the cases are judged, is known to do otherwise */
	const char *counts;	/* a counter of the device: unless it grows, what the case is about has not happened */
	struct options opt;	/* of the pair that is opened for the case */
	size_t len;		/* of its buffers; 0 if the case opens what it needs itself */
};

/*
 * All that there is to know of a case: its name, what it shows, and more of the above. Its body follows. The scenarios
 * are made from this (`--list`).
 */
#define CASE(...) CASE_OF_LINE(__LINE__, __VA_ARGS__)
#define CASE_OF_LINE(line, ...) CASE_NUMBERED(line, __VA_ARGS__)
#define CASE_NUMBERED(line, named, showing, ...) \
	static void case_##line(void); \
	static const struct test_case row_##line = { .name = named, .shows = showing, .run = case_##line, __VA_ARGS__ }; \
	static const struct test_case *const listed_##line __attribute__((section("cases"), used)) = &row_##line; \
	static void case_##line(void)

/* Threads that do the same, each with its number among them. */
struct crew {
	void *(*run)(void *number);
	unsigned int count;
};

/* All of them at once, to their end. */
void run_crews(const struct crew *crews, size_t n);

/* Ends the case with the reason of another process of it, if that has not ended well. */
void expect_success_of(int pid, const char *who);

/* Runs the causes of errors of a family, or of all; see causes.h. Returns an exit status. */
int run_causes(const char *family);
void list_families(void);

#endif
