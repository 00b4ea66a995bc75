// SPDX-License-Identifier: GPL-2.0
/*
 * verbs_cases DEVICE GID_INDEX [DEVICE_OF_B GID_INDEX_OF_B] CASE runs one case. "table" is the case that provokes every
 * error and prints a line about each, "table-FAMILY" those of one kind. Without arguments it lists the cases.
 * Exit: 0 passed, 1 failed, 77 skipped.
 */
#include "pair.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct place places[2];

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
	const char *name = argc > 1 ? argv[argc - 1] : NULL;

	if (argc != 6 && argc != 4 && argc != 1) {
		fprintf(stderr, "usage: verbs_cases DEVICE GID_INDEX [DEVICE_OF_B GID_INDEX_OF_B] CASE\n");
		return 2;
	}
	for (int i = 0; name && i < 2; i++) {
		char **place = argv + (i && argc == 6 ? 3 : 1);

		places[i] = (struct place){ place[0], atoi(place[1]) };
	}
	if (name && !strcmp(name, "table"))
		return run_causes(NULL);
	if (name && !strncmp(name, "table-", 6))
		return run_causes(name + 6);
	for (int t = 0; t < 2; t++)
		for (const struct test_case *c = tables[t]; c->name; c++) {
			if (!name) {
				puts(c->name);
			} else if (!strcmp(c->name, name)) {
				c->run();
				puts("passed");
				return 0;
			}
		}
	if (!name)
		return 0;
	fprintf(stderr, "no case %s\n", name);
	return 2;
}
