/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What cases about unreliable services share: only counters tell what was lost; queue pairs of UD are not connected, and
 * handles say where each datagram goes.
 */
#ifndef FERROCE_TESTS_DATAGRAMS_H
#define FERROCE_TESTS_DATAGRAMS_H

#include "pair.h"

/* A counter of the device of a; -1 if it has no such one. */
long counter_of(const char *name);
/* Waits until a counter has grown. */
void want_counted(const char *name, long before);
/* A message that is lost for a reason: the sender has its completion, the receiver nothing, and both go on. */
void lose(struct side *from, struct side *to, struct ibv_send_wr *w, const char *counter);

enum { GRH = 40 };

/* In the row of a case: its pair is ready for datagrams. */
#define UD .opt = { .type = IBV_QPT_UD }, .len = 2 * HALF

/* One more at the same place that is ready, with a completion queue of so many entries. */
struct side ready_side(const struct side *s, int entries);
/* The way from one side to the other, of traffic class 0x20. */
struct ibv_ah_attr way(const struct side *from, const struct side *to);
void address(struct ibv_send_wr *w, struct ibv_ah *ah, const struct ibv_qp *to, uint32_t qkey);
/* A SEND of number 1, of one entry or of no bytes. */
struct ibv_send_wr datagram(struct ibv_sge *list, struct ibv_ah *ah, const struct ibv_qp *to, uint32_t qkey);
/* One datagram, everything of which is checked. */
void send_one(struct side *from, struct side *to, struct ibv_ah *ah, uint32_t len, unsigned int seed);
/* Bytes of the longest datagram. */
uint32_t longest(struct side *s);
/* A side has a GID of IPv4 or of IPv6 from here on: the one of its netdev that is not link-local. */
void use_family(struct side *s, bool v6);

#endif
