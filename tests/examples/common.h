/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/* What all examples do: open a device, wait for a completion, meet the other program, and end when something fails. */
#ifndef FERROCE_EXAMPLES_COMMON_H
#define FERROCE_EXAMPLES_COMMON_H

#include <infiniband/verbs.h>
#include <stddef.h>

/* The port of all examples: RoCE devices have one. */
enum { PORT = 1 };

/* Ends the program: says what failed, and why, which is an errno or 0. */
void give_up(const char *what, int error) __attribute__((noreturn));

/* Ends the program if a call has failed that returns an errno, as most verbs do. */
void must(const char *what, int error);

/* Ends the program if a call has made nothing; then errno says why. */
void *made(const char *what, void *object);

/* A TCP connection: waits for the other program without a host, connects to it with one. */
int meet(const char *host, const char *port);

/* Gives the other program `mine` and gets as much from it. Both must call it. */
void swap(int connection, const void *mine, void *theirs, size_t length);

/* The RDMA device with this name, opened: its device file, from which everything else is made. */
struct ibv_context *open_device(const char *name);

/* Waits for one completion, which says what became of a request, whatever that is. */
struct ibv_wc next_completion(struct ibv_cq *cq);

/* The same for a request that must have been done; says that it was. */
struct ibv_wc wait_for(struct ibv_cq *cq, const char *what);

/* A connected queue pair to be; its sends report to one completion queue, its receives to another. */
struct ibv_qp *new_rc(struct ibv_pd *pd, struct ibv_cq *sends, struct ibv_cq *receives, struct ibv_srq *srq);

/*
 * Connects two queue pairs of one device, both sides in one process; rc.c has this in full. Of `waits` it takes what a side
 * does when there is no answer or no receive: timeout, retry_cnt, rnr_retry and min_rnr_timer; and how many READs and atomic
 * operations it may have under way: max_rd_atomic.
 */
void connect_pair(struct ibv_qp *a, struct ibv_qp *b, int gid_index, const struct ibv_qp_attr *waits);

/* Posts one receive into this memory; without a length into none. */
void post_receive(struct ibv_qp *qp, uint64_t wr_id, struct ibv_mr *mr, void *memory, uint32_t length);

/* Posts one request, signaled: local memory, and for WRITE and READ where the peer's is. */
void post_request(struct ibv_qp *qp, enum ibv_wr_opcode opcode, struct ibv_mr *mr, void *memory, uint32_t length,
		  void *remote, uint32_t rkey);

/* Sleeps for so many milliseconds. */
void pause_ms(int ms);

#endif
