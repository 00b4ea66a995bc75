// SPDX-License-Identifier: GPL-2.0
/* Runs one case: verbs_cases DEVICE GID_INDEX CASE; without a case it lists them. Exit: 0 passed, 1 failed, 77 skipped. */
#include "pair.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *device_name;
int gid_index;

static void verdict(const char *word, const char *fmt, va_list args)
{
	printf("%s: ", word);
	vprintf(fmt, args);
	printf("\n");
	fflush(stdout);
}

void fail(const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	verdict("failed", fmt, args);
	exit(1);
}

void skip(const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	verdict("skipped", fmt, args);
	exit(77);
}

int main(int argc, char **argv)
{
	const struct test_case *tables[] = { data_cases, error_cases };

	if (argc != 4 && argc != 1) {
		fprintf(stderr, "usage: verbs_cases DEVICE GID_INDEX CASE\n");
		return 2;
	}
	if (argc == 4) {
		device_name = argv[1];
		gid_index = atoi(argv[2]);
	}
	for (int t = 0; t < 2; t++)
		for (const struct test_case *c = tables[t]; c->name; c++) {
			if (argc == 1) {
				puts(c->name);
			} else if (!strcmp(c->name, argv[3])) {
				c->run();
				puts("passed");
				return 0;
			}
		}
	if (argc == 1)
		return 0;
	fprintf(stderr, "no case %s\n", argv[3]);
	return 2;
}
