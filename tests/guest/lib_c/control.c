// SPDX-License-Identifier: GPL-2.0
/* What two programs tell each other beside RDMA. */
#include "rdma.h"

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

static int at_once(int fd)
{
	int one = 1;

	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	return fd;
}

int tcp_accept(int port)
{
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = INADDR_ANY };
	int fd = socket(AF_INET, SOCK_STREAM, 0), one = 1;

	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	CHECK(fd >= 0 && !bind(fd, (void *)&at, sizeof(at)) && !listen(fd, 1), "listen: %s", strerror(errno));
	int peer = accept(fd, NULL, NULL);

	CHECK(peer >= 0, "accept: %s", strerror(errno));
	close(fd);
	return at_once(peer);
}

int tcp_connect(const char *host, int port)
{
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_port = htons(port) };
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	CHECK(inet_pton(AF_INET, host, &at.sin_addr) == 1, "%s is no IPv4 address", host);
	CHECK(fd >= 0 && !connect(fd, (void *)&at, sizeof(at)), "connect: %s", strerror(errno));
	return at_once(fd);
}

bool swap_over(int fd, const void *mine, void *theirs, size_t len)
{
	double end = now() + patience();
	struct pollfd in = { .fd = fd, .events = POLLIN };

	/* A side that has left says so by closing; SIGPIPE would say nothing. */
	if (send(fd, mine, len, MSG_NOSIGNAL) != (ssize_t)len)
		return false;
	while (len) {
		CHECK(now() < end, "the other side said nothing for %.0f s", patience());
		if (poll(&in, 1, 100) <= 0)
			continue;
		ssize_t n = read(fd, theirs, len);

		if (n <= 0)
			return false;
		theirs = (char *)theirs + n;
		len -= n;
	}
	return true;
}
