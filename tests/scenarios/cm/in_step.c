// SPDX-License-Identifier: GPL-2.0
/*
 * Preloaded into both sides of perftest -R, which makes two connections to one port. Its client asks for the second
 * as soon as the server has answered over the first, while the server is only about to listen again; one that comes
 * too early is refused, tries again with what it has freed, and crashes. So the client's n-th request waits here
 * until the server has come back from its n-th rdma_listen: a byte in the file $LISTENED stands for each.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

int rdma_listen(void *id, int backlog)
{
	int (*listens)(void *, int) = dlsym(RTLD_NEXT, "rdma_listen");
	int status = listens(id, backlog);
	int file = open(getenv("LISTENED"), O_WRONLY | O_APPEND);

	if (!status && write(file, "L", 1) != 1)
		abort();
	close(file);
	return status;
}

int rdma_connect(void *id, void *parameters)
{
	static int requests;
	int (*connects)(void *, void *) = dlsym(RTLD_NEXT, "rdma_connect");
	struct stat listened = { 0 };

	for (requests++; !stat(getenv("LISTENED"), &listened) && listened.st_size < requests;)
		usleep(10000);
	return connects(id, parameters);
}
