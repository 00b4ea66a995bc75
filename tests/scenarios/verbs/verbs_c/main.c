// SPDX-License-Identifier: GPL-2.0
/*
 * verbs_cases DEVICE GID_INDEX [DEVICE_OF_B GID_INDEX_OF_B] CASE runs one case. "table" is the case that provokes every
 * error and prints a line about each, "table-FAMILY" those of one kind.
 * verbs_cases --list prints a line for each case and each family of errors; the scenarios are made from it. Its columns,
 * with tabs between them: GROUP.CASE, ways, seconds, counter, what rdma_rxe does otherwise, what the case shows.
 * Exit: 0 passed, 1 failed, 77 skipped.
 */
#include "pair.h"

#include <stdarg.h>

struct place places[2];
struct pair p;

/* The linker has them in one piece, in the order of their files. */
extern const struct test_case *const __start_cases[], *const __stop_cases[];

void skip(const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	printf("skipped: ");
	vprintf(fmt, args);
	printf("\n");
	exit(77);
}

void expect_success_of(int pid, const char *who)
{
	int status;

	CHECK(waitpid(pid, &status, 0) > 0, "waitpid of %s", who);
	/* It has said why. */
	if (WIFEXITED(status) && WEXITSTATUS(status) == 1)
		exit(1);
	CHECK(WIFEXITED(status) && !WEXITSTATUS(status), "%s ended with %s %d", who,
	      WIFSIGNALED(status) ? "signal" : "status", WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
}

void run_crews(const struct crew *crews, size_t n)
{
	pthread_t threads[16];
	size_t count = 0;

	for (size_t k = 0; k < n; k++)
		for (uintptr_t i = 0; i < crews[k].count; i++) {
			CHECK(count < COUNT(threads), "too many threads");
			MUST(pthread_create(&threads[count++], NULL, crews[k].run, (void *)i));
		}
	while (count)
		MUST(pthread_join(threads[--count], NULL));
}

static int list_all(void)
{
	static const char *const ways[] = { "local wire", "local", "" };

	for (const struct test_case *const *each = __start_cases; each < __stop_cases; each++) {
		const struct test_case *c = *each;

		printf("%s\t%s\t%d\t%s\t%s\t%s\n", c->name, ways[c->paths], c->seconds ? c->seconds : 60,
		       c->counts ? c->counts : "", c->rxe ? c->rxe : "", c->shows);
	}
	list_families();
	return 0;
}

int main(int argc, char **argv)
{
	const char *name = argv[argc - 1];

	if (argc == 2 && !strcmp(name, "--list"))
		return list_all();
	if (argc != 6 && argc != 4) {
		fprintf(stderr, "usage: verbs_cases DEVICE GID_INDEX [DEVICE_OF_B GID_INDEX_OF_B] CASE | --list\n");
		return 2;
	}
	for (int i = 0; i < 2; i++) {
		char **place = argv + (i && argc == 6 ? 3 : 1);

		places[i] = (struct place){ place[0], atoi(place[1]) };
	}
	if (!strcmp(name, "table"))
		return run_causes(NULL);
	if (!strncmp(name, "table-", 6))
		return run_causes(name + 6);
	for (const struct test_case *const *each = __start_cases; each < __stop_cases; each++) {
		const struct test_case *c = *each;

		if (strcmp(strchr(c->name, '.') + 1, name))
			continue;
		if (c->len)
			pair_open(&p, &c->opt, c->len);
		c->run();
		if (c->len)
			pair_close(&p);
		puts("passed");
		return 0;
	}
	fprintf(stderr, "no case %s\n", name);
	return 2;
}
