/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/* What all examples do: open a device, wait for a completion, meet the other program, and end when something fails. */
#ifndef FERROCE_EXAMPLES_COMMON_H
#define FERROCE_EXAMPLES_COMMON_H

#include <infiniband/verbs.h>
#include <stddef.h>

/* Ends the program: says what failed, and why, which is an errno or 0. */
void give_up(const char *what, int error) __attribute__((noreturn));

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

#endif
