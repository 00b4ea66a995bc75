// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include "meet.h"

#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

void give_up(const char *what, int error)
{
	if (error)
		fprintf(stderr, "%s: %s\n", what, strerror(error));
	else
		fprintf(stderr, "%s\n", what);
	exit(1);
}

int meet(const char *host, const char *port)
{
	struct addrinfo hints = { .ai_flags = AI_PASSIVE, .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM }, *list;
	int s, yes = 1, connection;
	int rc = getaddrinfo(host, port, &hints, &list);

	if (rc)
		give_up(gai_strerror(rc), 0);
	s = socket(list->ai_family, SOCK_STREAM, 0);
	if (s < 0)
		give_up("socket", errno);
	if (host) {
		if (connect(s, list->ai_addr, list->ai_addrlen))
			give_up(host, errno);
		connection = s;
	} else {
		setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
		if (bind(s, list->ai_addr, list->ai_addrlen) || listen(s, 1))
			give_up("waiting for the other program", errno);
		connection = accept(s, NULL, NULL);
		if (connection < 0)
			give_up("accept", errno);
		close(s);
	}
	freeaddrinfo(list);
	return connection;
}

void swap(int connection, const void *mine, void *theirs, size_t length)
{
	if (send(connection, mine, length, MSG_NOSIGNAL) != (ssize_t)length)
		give_up("telling the other program", errno);
	if (recv(connection, theirs, length, MSG_WAITALL) != (ssize_t)length)
		give_up("the other program has gone", 0);
}
