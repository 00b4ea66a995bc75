// SPDX-License-Identifier: GPL-2.0
/* Moves checked data between two devices: verbs_peer -d DEVICE -g GID_INDEX [options] [SERVER]; see peer.h for how it ends. */
#include "peer.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct plan plan = { .port = 18800, .mtu = 1024, .rounds = 1, .ops = "sSwWrb", .sizes = "0,1,M", .retry = 7,
		     .timeout = 14 };
volatile sig_atomic_t stop_asked, tear_asked;
static const char *stage = "start";
static unsigned long steps;

double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec * 1e-9;
}

void leave(int code, const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	printf("%s after %lu steps: ", stage, steps);
	vprintf(fmt, args);
	printf("\n");
	fflush(stdout);
	/* What the process still holds is for the kernel to clean up, which is a part of the test. */
	_exit(code);
}

static void on_signal(int number)
{
	if (number == SIGTERM)
		stop_asked = 1;
	else
		tear_asked = 1;
}

static uint32_t size_of(const char *text)
{
	/* M, M-1 and M+1 are the edges of a packet. */
	return *text == 'M' ? plan.mtu + (text[1] ? atoi(text + 1) : 0) : atoi(text);
}

static void round_of_steps(unsigned int round)
{
	char sizes[256], text[64];

	snprintf(sizes, sizeof(sizes), "%s", plan.sizes);
	for (char *save, *s = strtok_r(sizes, ",", &save); s; s = strtok_r(NULL, ",", &save))
		for (const char *op = plan.ops; *op; op++)
			for (int who = 0; who < (plan.one_way ? 1 : 2); who++) {
				/* First the client asks, then the server. */
				bool ask = (plan.server != NULL) == (who == 0);

				snprintf(text, sizeof(text), "%c of %s bytes, %s", *op, s, ask ? "asking" : "asked");
				stage = text;
				run_step(*op, size_of(s), ask, 1000 * round + 2 * (unsigned int)steps + 1);
				steps++;
				if (plan.rounds == 0 && steps == 1) {
					printf("running\n");
					fflush(stdout);
				}
			}
	stage = "end of a round";
}

int main(int argc, char **argv)
{
	int c;

	signal(SIGTERM, on_signal);
	signal(SIGUSR1, on_signal);
	while ((c = getopt(argc, argv, "d:g:p:m:n:o:s:r:t:1a")) != -1) {
		switch (c) {
		case 'd': plan.device = optarg; break;
		case 'g': plan.gid_index = atoi(optarg); break;
		case 'p': plan.port = atoi(optarg); break;
		case 'm': plan.mtu = atoi(optarg); break;
		case 'n': plan.rounds = atoi(optarg); break;
		case 'o': plan.ops = optarg; break;
		case 's': plan.sizes = optarg; break;
		case 'r': plan.retry = atoi(optarg); break;
		case 't': plan.timeout = atoi(optarg); break;
		case '1': plan.one_way = true; break;
		case 'a': plan.alone = true; break;
		default: return USAGE;
		}
	}
	plan.server = argv[optind];
	if (!plan.device) {
		fprintf(stderr, "usage: verbs_peer -d DEVICE -g GID_INDEX [options] [SERVER]\n");
		return USAGE;
	}
	control_open(plan.server, plan.port);
	stage = "connecting";
	endpoint_open();
	for (int round = 0; !plan.rounds || round < plan.rounds; round++) {
		round_of_steps(round);
		if (together("end of a round"))
			break;
	}
	endpoint_close();
	printf("%lu steps, data checked at both ends\n", steps);
	return 0;
}
