/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/* What the examples need besides verbs: a way to end, and a TCP connection on which two programs introduce themselves. */
#ifndef FERROCE_EXAMPLES_MEET_H
#define FERROCE_EXAMPLES_MEET_H

#include <stddef.h>

/* Ends the program: says what failed, and why, which is an errno or 0. */
void give_up(const char *what, int error) __attribute__((noreturn));

/* A TCP connection: waits for the other program without a host, connects to it with one. */
int meet(const char *host, const char *port);

/* Gives the other program `mine` and gets as much from it. Both must call it. */
void swap(int connection, const void *mine, void *theirs, size_t length);

#endif
