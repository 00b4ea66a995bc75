// SPDX-License-Identifier: GPL-2.0
/* Moves checked data between two devices: verbs_peer -d DEVICE -g GID_INDEX [options] [SERVER]; see peer.h for how it ends. */
#include "peer.h"

#include <stdarg.h>

struct plan plan = { .port = 18800, .mtu = 1024, .rounds = 1, .ops = "sSwWrb", .sizes = "0,1,M", .retry = 7,
		     .timeout = 14, .rnr_timer = 1, .lanes = 1, .shapes = 2 };
volatile sig_atomic_t stop_asked, tear_asked;
static const char *stage = "start";
static unsigned long steps;

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

static void failed(const char *text)
{
	leave(FAILED, "%s", text);
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
	/* M, M-1 and M+1 are the edges of a packet; 3M is three of them. */
	const char *m = strchr(text, 'M');

	return m ? (m == text ? 1 : atoi(text)) * plan.mtu + atoi(m + 1) : atoi(text);
}

static size_t largest(void)
{
	char sizes[256];
	size_t most = 0;

	snprintf(sizes, sizeof(sizes), "%s", plan.sizes);
	for (char *save, *s = strtok_r(sizes, ",", &save); s; s = strtok_r(NULL, ",", &save))
		if (size_of(s) > most)
			most = size_of(s);
	return most;
}

static void round_of_steps(void)
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
				run_step(*op, size_of(s), ask, 64 * (unsigned int)steps + 1);
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

	on_failure = failed;
	/* The longest legitimate pause, all retries of one packet, is 17 s (-t 17) and may be meant to be longer. */
	be_patient(4);
	signal(SIGTERM, on_signal);
	signal(SIGUSR1, on_signal);
	while ((c = getopt(argc, argv, "d:g:p:m:n:o:s:r:t:R:q:e:x:c:T:1av")) != -1) {
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
		case 'R': plan.rnr_timer = atoi(optarg); break;
		case 'q': plan.lanes = atoi(optarg); break;
		case 'e': plan.shapes = atoi(optarg); break;
		case 'x': plan.mistakes = optarg; break;
		case 'c': plan.traffic_class = atoi(optarg); break;
		case 'T': plan.types = optarg; plan.lanes = strlen(optarg); break;
		case 'v': plan.tell = true; break;
		case '1': plan.one_way = true; break;
		case 'a': plan.alone = true; break;
		default: return USAGE;
		}
	}
	plan.server = argv[optind];
	if (!plan.device || plan.lanes < 1 || plan.lanes > MAX_LANES) {
		fprintf(stderr, "usage: verbs_peer -d DEVICE -g GID_INDEX [options] [SERVER]\n");
		return USAGE;
	}
	control_open(plan.server, plan.port);
	stage = "connecting";
	endpoint_open(largest());
	for (int round = 0; !plan.rounds || round < plan.rounds; round++) {
		round_of_steps();
		if (together("end of a round"))
			break;
	}
	stage = "mistakes";
	for (const char *m = plan.mistakes; m && *m; m++)
		run_mistake(*m, 2 * plan.mtu + 1, plan.server != NULL, 64 * (unsigned int)steps++ + 1);
	endpoint_close();
	printf("%lu steps, data checked at both ends\n", steps);
	return 0;
}
