// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/* Opens a device where struct verbs_context is not of the length that the ABI has: context PROVIDER.so. */
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include "mock.h"

int main(int argc, char **argv)
{
	if (argc != 2 || !dlopen(argv[1], RTLD_NOW)) {
		fprintf(stderr, "%s\n", dlerror());
		return 1;
	}
	if (mock.device_ops->alloc_context(NULL, mock.cmd_fd, NULL)) {
		puts("opened");
		return 0;
	}
	puts(errno == EPROTO && !mock.contexts ? "refused" : "failed in another way");
	return 0;
}
