// SPDX-License-Identifier: GPL-2.0
/* The TCP connection between the two processes: addresses, and steps taken together. */
#include "peer.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static int control = -1;
bool deserted;

static struct sockaddr_in address(const char *host, int port)
{
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = INADDR_ANY };

	CHECK(!host || inet_pton(AF_INET, host, &at.sin_addr) == 1, "%s is no IPv4 address", host);
	return at;
}

void control_open(const char *server, int port)
{
	struct sockaddr_in at = address(server, port);
	int fd = socket(AF_INET, SOCK_STREAM, 0), one = 1;

	CHECK(fd >= 0, "socket: %s", strerror(errno));
	if (server) {
		CHECK(!connect(fd, (void *)&at, sizeof(at)), "connect: %s", strerror(errno));
		control = fd;
	} else {
		setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
		CHECK(!bind(fd, (void *)&at, sizeof(at)) && !listen(fd, 1), "listen: %s", strerror(errno));
		control = accept(fd, NULL, NULL);
		CHECK(control >= 0, "accept: %s", strerror(errno));
		close(fd);
	}
	setsockopt(control, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
}

/* False: nobody is there, and that does not matter. */
static bool receive(void *to, size_t len)
{
	double end = now() + PATIENCE;

	while (len) {
		struct pollfd fd = { .fd = control, .events = POLLIN };

		CHECK(now() < end, "the other side said nothing for %.0f s", PATIENCE);
		if (poll(&fd, 1, 1000) <= 0)
			continue;
		ssize_t n = read(control, to, len);
		if (n <= 0 && plan.alone)
			return false;
		if (n <= 0)
			leave(PEER_GONE, "the other side is gone");
		to = (char *)to + n;
		len -= n;
	}
	return true;
}

bool swap(const void *mine, void *theirs, size_t len)
{
	/* A side that has left says so by closing; SIGPIPE would say nothing. */
	if (send(control, mine, len, MSG_NOSIGNAL) != (ssize_t)len) {
		if (!plan.alone)
			leave(PEER_GONE, "the other side is gone");
		return false;
	}
	return receive(theirs, len);
}

bool together(const char *where)
{
	static uint32_t step;
	struct {
		uint32_t step, stop;
	} mine = { ++step, stop_asked }, theirs = mine;

	if (!swap(&mine, &theirs, sizeof(mine))) {
		deserted = true;
		return stop_asked;
	}
	CHECK(mine.step == theirs.step, "%s: step %u here, step %u there", where, mine.step, theirs.step);
	return mine.stop || theirs.stop;
}

bool peer_left(void)
{
	char c;

	return recv(control, &c, 1, MSG_PEEK | MSG_DONTWAIT) == 0;
}
