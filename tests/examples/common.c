// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include "common.h"

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

struct ibv_context *open_device(const char *name)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *context = NULL;

	if (!list)
		give_up("ibv_get_device_list", errno);
	for (int i = 0; list[i] && !context; i++) {
		if (strcmp(ibv_get_device_name(list[i]), name))
			continue;
		context = ibv_open_device(list[i]);
		if (!context)
			give_up("ibv_open_device", errno);
	}
	/* The list may go: the context does not need it. */
	ibv_free_device_list(list);
	if (!context)
		give_up("there is no such RDMA device", ENODEV);
	return context;
}

struct ibv_wc next_completion(struct ibv_cq *cq)
{
	struct ibv_wc completion;
	int n;

	/* Asking again and again is the fastest; ibv_req_notify_cq and ibv_get_cq_event sleep instead. */
	do
		n = ibv_poll_cq(cq, 1, &completion);
	while (!n);
	if (n < 0)
		give_up("ibv_poll_cq", -n);
	return completion;
}

struct ibv_wc wait_for(struct ibv_cq *cq, const char *what)
{
	struct ibv_wc completion = next_completion(cq);

	if (completion.status != IBV_WC_SUCCESS) {
		fprintf(stderr, "%s: %s\n", what, ibv_wc_status_str(completion.status));
		exit(1);
	}
	printf("%s: done\n", what);
	return completion;
}
