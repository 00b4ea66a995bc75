// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Drives the provider as libibverbs and an application would, and looks at what arrives in the
 * rings: the program takes the path of the provider. Every failed check ends it.
 */
#include "scenario.h"

int main(int argc, char **argv)
{
	/* A request that is lost must not hang the test. */
	alarm(120);
	setenv("VERBS_LOG_LEVEL", "1", 1);
	mock.cmd_fd = memfd_create("uverbs", MFD_ALLOW_SEALING);
	CHECK(argc == 2 && mock.cmd_fd >= 0 && !ftruncate(mock.cmd_fd, FILE_SIZE));
	file = mmap(NULL, FILE_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, mock.cmd_fd, 0);
	CHECK(file != MAP_FAILED);
	/* Nothing is to be written to it any more. */
	CHECK(!fcntl(mock.cmd_fd, F_ADD_SEALS, F_SEAL_GROW | F_SEAL_SHRINK));
	lseek(mock.cmd_fd, 0, SEEK_END);
	if (!dlopen(argv[1], RTLD_NOW)) {
		fprintf(stderr, "%s\n", dlerror());
		return 1;
	}
	registration();
	contexts();
	plain_objects();
	completion_queue();
	bad_rings();
	extended_completion_queue();
	times();
	resizing();
	shared_receive_queue();
	queue_pair_life();
	shorter_attributes();
	sending();
	windows();
	sending_by_calls();
	receiving();
	reset();
	completions_of_the_gone();
	cancelled();
	forked();
	forgetting_under_load();
	threads();
	CHECK(!mock.ops.dealloc_pd(pd) && !mock.objects && mappings() == 0);
	mock.ops.free_context(context);
	CHECK(!mock.contexts);
	puts("ok");
	return 0;
}
