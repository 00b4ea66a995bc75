// SPDX-License-Identifier: GPL-2.0
/*
 * What the machine does without RDMA: a plain memcpy, and TCP over the same wire. Each prints one number.
 *
 * floor memcpy SIZE SECONDS           MiB/s of copying SIZE bytes again and again
 * floor server PORT                   serves one client of either kind, then ends
 * floor stream ADDRESS PORT SECONDS   MiB/s of a TCP stream written 64 KiB at a time, until the server has it all
 * floor pingpong ADDRESS PORT COUNT   microseconds one way of 64 bytes, typical of COUNT round trips
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define SMALL 64
#define CHUNK 65536

static char buffer[CHUNK];

static void die(const char *what)
{
	perror(what);
	exit(1);
}

static double now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec + ts.tv_nsec * 1e-9;
}

static void whole(int fd, int out, size_t len)
{
	size_t done = 0;

	while (done < len) {
		ssize_t n = out ? write(fd, buffer + done, len - done) : read(fd, buffer + done, len - done);

		if (n == 0)
			errno = EPIPE;
		if (n <= 0)
			die(out ? "write" : "read");
		done += n;
	}
}

static void copy(size_t size, double seconds)
{
	char *from = malloc(size), *to = malloc(size);
	double began, ended;
	unsigned long rounds = 0;

	if (!from || !to)
		die("malloc");
	memset(from, 1, size);
	memset(to, 2, size);
	began = now();
	do {
		memcpy(to, from, size);
		__asm__ volatile("" : : "r"(to) : "memory");
		rounds++;
		ended = now();
	} while (ended - began < seconds);
	printf("%.1f\n", rounds * (double)size / (1 << 20) / (ended - began));
}

static void serve(int port)
{
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_port = htons(port) };
	int one = 1, listener = socket(AF_INET, SOCK_STREAM, 0), fd;
	char kind;

	if (listener < 0 || setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) ||
	    bind(listener, (struct sockaddr *)&at, sizeof(at)) || listen(listener, 1))
		die("listen");
	fd = accept(listener, NULL, NULL);
	if (fd < 0 || setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)) || read(fd, &kind, 1) != 1)
		die("accept");
	if (kind == 's') {
		while (read(fd, buffer, CHUNK) > 0)
			;
		/* The client's clock stops when it sees this. */
		whole(fd, 1, 1);
		return;
	}
	for (;;) {
		if (recv(fd, buffer, SMALL, MSG_WAITALL) != SMALL)
			return;
		whole(fd, 1, SMALL);
	}
}

static int meet(const char *address, int port, char kind)
{
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons(port) };
	int one = 1, fd = socket(AF_INET, SOCK_STREAM, 0);

	if (inet_pton(AF_INET, address, &to.sin_addr) != 1 || fd < 0 ||
	    connect(fd, (struct sockaddr *)&to, sizeof(to)) ||
	    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)) || write(fd, &kind, 1) != 1)
		die("connect");
	return fd;
}

static void stream(int fd, double seconds)
{
	double began = now(), sent = 0;

	while (now() - began < seconds) {
		whole(fd, 1, CHUNK);
		sent += CHUNK;
	}
	if (shutdown(fd, SHUT_WR))
		die("shutdown");
	whole(fd, 0, 1);
	printf("%.1f\n", sent / (1 << 20) / (now() - began));
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static void pingpong(int fd, int count)
{
	double *took = calloc(count, sizeof(*took));
	int i;

	if (!took || count < 1)
		die("count");
	for (i = 0; i < count; i++) {
		double began = now();

		whole(fd, 1, SMALL);
		whole(fd, 0, SMALL);
		took[i] = now() - began;
	}
	qsort(took, count, sizeof(*took), by_value);
	printf("%.2f\n", took[count / 2] * 1e6 / 2);
}

int main(int argc, char **argv)
{
	if (argc == 4 && !strcmp(argv[1], "memcpy"))
		copy(atol(argv[2]), atof(argv[3]));
	else if (argc == 3 && !strcmp(argv[1], "server"))
		serve(atoi(argv[2]));
	else if (argc == 5 && !strcmp(argv[1], "stream"))
		stream(meet(argv[2], atoi(argv[3]), 's'), atof(argv[4]));
	else if (argc == 5 && !strcmp(argv[1], "pingpong"))
		pingpong(meet(argv[2], atoi(argv[3]), 'p'), atoi(argv[4]));
	else
		return 2;
	return 0;
}
