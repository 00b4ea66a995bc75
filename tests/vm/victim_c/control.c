// SPDX-License-Identifier: GPL-2.0
/* A TCP connection of lines: the generator asks, the victim answers. */
#define _GNU_SOURCE
#include "victim.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static FILE *in, *out;

void fail(const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	printf("failed: ");
	vprintf(fmt, args);
	printf("\n");
	va_end(args);
	if (out) {
		va_start(args, fmt);
		fprintf(out, "failed ");
		vfprintf(out, fmt, args);
		fprintf(out, "\n");
		fflush(out);
	}
	exit(1);
}

void control_open(int port)
{
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = INADDR_ANY };
	int fd = socket(AF_INET, SOCK_STREAM, 0), one = 1, peer;

	CHECK(fd >= 0, "socket: %s", strerror(errno));
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	CHECK(!bind(fd, (void *)&at, sizeof(at)) && !listen(fd, 1), "listen: %s", strerror(errno));
	peer = accept(fd, NULL, NULL);
	CHECK(peer >= 0, "accept: %s", strerror(errno));
	close(fd);
	setsockopt(peer, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	in = fdopen(peer, "r");
	out = fdopen(dup(peer), "w");
	CHECK(in && out, "fdopen: %s", strerror(errno));
}

const char *control_line(void)
{
	static char line[256];

	if (!fgets(line, sizeof(line), in))
		return NULL;
	line[strcspn(line, "\n")] = 0;
	return line;
}

void tell(const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	vfprintf(out, fmt, args);
	va_end(args);
}

void control_flush(void)
{
	fflush(out);
}
