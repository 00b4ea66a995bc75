/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What every program of the guest does with verbs before it comes to what it is about: devices, memory, queue pairs and
 * their connections, completions, events, and the end when something is not as it must be.
 */
#ifndef FERROCE_TESTS_RDMA_H
#define FERROCE_TESTS_RDMA_H

#define _GNU_SOURCE

#include <errno.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/types.h>
#include <unistd.h>

#define REMOTE_ACCESS (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC)
#define ALL_ACCESS (IBV_ACCESS_LOCAL_WRITE | REMOTE_ACCESS)
#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* Ends the program with exit status 1 and says "failed: ...", unless the program has its own way to end. */
void fail(const char *fmt, ...) __attribute__((format(printf, 1, 2), noreturn));
extern void (*on_failure)(const char *text);
#define CHECK(cond, ...) do { if (!(cond)) fail(__VA_ARGS__); } while (0)
/* A verb that returns an errno, or -1 with errno set. */
void must(int rc, const char *what);
#define MUST(call) must(call, #call)
/* A verb that returns what it has made, or NULL with errno set. */
void *made(void *object, const char *what);
#define MADE(call) made(call, #call)

/* How much of the same to do: `less` on a kernel full of checks, as in tests/guest/scenario.py. */
int shortened(int full, int less);

double now(void);
/*
 * Seconds without any progress that are a hang: long under emulation, short against the limit of a scenario, and as many
 * more as FERROCE_PATIENCE says. Nothing else here says how long is too long. A program whose steps are long has more.
 */
double patience(void);
void be_patient(int times);
/* A moment of sleep: one processor may have to serve both sides and the network. */
void rest(void);
/* Waits until something is so; else the text says what is not. */
#define WAIT_UNTIL(cond, ...) do { \
		for (double end_ = now() + patience(); !(cond); rest()) \
			CHECK(now() < end_, __VA_ARGS__); \
	} while (0)

/* Each of these returns what was made, or ends the program. Files of events do not block. */
struct ibv_context *open_device(const char *name);
union ibv_gid gid_of(struct ibv_context *ctx, int gid_index);
struct ibv_device_attr device_of(struct ibv_context *ctx);
struct ibv_pd *new_pd(struct ibv_context *ctx);
struct ibv_comp_channel *new_channel(struct ibv_context *ctx);
struct ibv_cq *new_cq(struct ibv_context *ctx, int entries, struct ibv_comp_channel *channel, void *context);
struct ibv_cq_ex *new_cq_ex(struct ibv_context *ctx, struct ibv_cq_init_attr_ex attr);
uint8_t *new_memory(size_t len);
struct ibv_mr *new_mr(struct ibv_pd *pd, void *at, size_t len, int access);
/* Both queues complete into one completion queue. */
struct ibv_qp *new_qp(struct ibv_pd *pd, struct ibv_cq *cq, struct ibv_qp_cap cap);
struct ibv_qp *new_qp_of(enum ibv_qp_type type, struct ibv_pd *pd, struct ibv_cq *cq, struct ibv_qp_cap cap);
/* The same with receives from a shared queue. */
struct ibv_qp *new_sharing_qp(struct ibv_pd *pd, struct ibv_cq *cq, struct ibv_qp_cap cap, struct ibv_srq *srq);
struct ibv_qp *new_sharing_qp_of(enum ibv_qp_type type, struct ibv_pd *pd, struct ibv_cq *cq, struct ibv_qp_cap cap,
				 struct ibv_srq *srq);
struct ibv_srq *new_srq(struct ibv_pd *pd, int max_wr, int max_sge);
struct ibv_mw *new_mw(struct ibv_pd *pd, enum ibv_mw_type type);
struct ibv_ah *new_ah(struct ibv_pd *pd, struct ibv_ah_attr attr);

/* Each of these objects must end, in this order. */
#define DESTROY(...) do { \
		LAST_OF_SIX(__VA_ARGS__, DESTROY_6, DESTROY_5, DESTROY_4, DESTROY_3, DESTROY_2, DESTROY_1, 0)(__VA_ARGS__); \
	} while (0)
#define LAST_OF_SIX(a, b, c, d, e, f, last, ...) last
#define DESTROY_1(object) must(_Generic((object), \
		struct ibv_qp *: ibv_destroy_qp, struct ibv_cq *: ibv_destroy_cq, struct ibv_srq *: ibv_destroy_srq, \
		struct ibv_ah *: ibv_destroy_ah, struct ibv_mr *: ibv_dereg_mr, struct ibv_mw *: ibv_dealloc_mw, \
		struct ibv_pd *: ibv_dealloc_pd, struct ibv_comp_channel *: ibv_destroy_comp_channel, \
		struct ibv_td *: ibv_dealloc_td, struct ibv_context *: ibv_close_device)(object), "the end of " #object)
#define DESTROY_2(object, ...) DESTROY_1(object); DESTROY_1(__VA_ARGS__)
#define DESTROY_3(object, ...) DESTROY_1(object); DESTROY_2(__VA_ARGS__)
#define DESTROY_4(object, ...) DESTROY_1(object); DESTROY_3(__VA_ARGS__)
#define DESTROY_5(object, ...) DESTROY_1(object); DESTROY_4(__VA_ARGS__)
#define DESTROY_6(object, ...) DESTROY_1(object); DESTROY_5(__VA_ARGS__)

/* What the device's port counts under this name; -1 where it knows none. */
long hw_counter(const char *device, const char *name);

/* How a queue pair is connected. */
struct connection {
	int gid_index;
	union ibv_gid gid;	/* the peer's, like the number */
	uint32_t qpn, rq_psn, sq_psn;
	int mtu;		/* in bytes */
	int access, rd_atomic, dest_rd_atomic, rnr_timer, timeout, retry_cnt, rnr_retry, traffic_class, hop_limit;
	uint32_t flow_label;
	uint32_t qkey;		/* of UD, which of all this has its PSN besides */
};

extern const struct connection usual;

/* One transition each, which may be refused: 0 or an errno. */
int qp_to_init(struct ibv_qp *qp, const struct connection *c);
int qp_to_rtr(struct ibv_qp *qp, const struct connection *c);
int qp_to_rts(struct ibv_qp *qp, const struct connection *c);
int qp_to(struct ibv_qp *qp, enum ibv_qp_state state);
/* From RESET to RTS. */
void connect_qp(struct ibv_qp *qp, const struct connection *c);
enum ibv_qp_state state_of_qp(struct ibv_qp *qp);

int post_send(struct ibv_qp *qp, struct ibv_send_wr *w);
int post_receive(struct ibv_qp *qp, uint64_t id, struct ibv_sge *list, int n);
int post_shared_receive(struct ibv_srq *srq, uint64_t id, struct ibv_sge *list, int n);
/* The next completion, whatever it says; it must come within the patience. */
struct ibv_wc next_completion(struct ibv_cq *cq, const char *what);
/* The next asynchronous event of a device within some milliseconds, acknowledged; false without one. */
bool next_device_event(struct ibv_context *ctx, int ms, struct ibv_async_event *e);
/* It must be this one, about this object. */
void want_device_event(struct ibv_context *ctx, enum ibv_event_type type, const void *object, const char *what);

/* A pattern without a short period, so that a shifted or repeated piece is seen. A piece of it begins at `from`. */
void fill_piece(uint8_t *at, size_t from, size_t len, unsigned int seed);
void compare_piece(const uint8_t *at, size_t from, size_t len, unsigned int seed, const char *what);

/* The rings that are mapped into this process; how many there are, of which `most` are told. */
struct mapping {
	uint8_t *at;
	size_t len;
};
int mapped_rings(struct mapping *rings, int most);

/* Another process, with nothing of this one's output in its buffers. */
pid_t new_process(void);

/* The number behind a key in /proc/PID/status. */
long process_status(const char *pid, const char *key);

/* A TCP connection between two programs: one waits for the other. */
int tcp_accept(int port);
int tcp_connect(const char *host, int port);
/* Tells the other side something, and is told as much: false when it has gone. */
bool swap_over(int fd, const void *mine, void *theirs, size_t len);

#endif
