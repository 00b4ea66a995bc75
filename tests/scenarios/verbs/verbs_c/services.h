/* SPDX-License-Identifier: GPL-2.0 */
/* What cases about services without answers share: only counters tell what was lost. */
#ifndef FERROCE_TESTS_SERVICES_H
#define FERROCE_TESTS_SERVICES_H

#include "pair.h"

/* A counter of the device of a; -1 if it has no such one. */
long counter_of(const char *name);
/* Waits until a counter has grown. */
void want_counted(const char *name, long before);
/* A message that is lost for a reason: the sender has its completion, the receiver nothing, and both go on. */
void lose(struct side *from, struct side *to, struct ibv_send_wr *w, const char *counter);

#endif
