// SPDX-License-Identifier: GPL-2.0
/*
 * Starts conversations on command and tells what becomes of them. It exists because starting programs is what takes
 * time in an emulated machine: this one is started once, and forks.
 *
 * Commands: "DEVICE GID_INDEX DEVICE GID_INDEX SIZE" starts one conversation. Answers: "forked PID PID", then
 * "running PID" of both, when a message each way is complete, and at some time "ended PID STATUS" of both; "closed PID"
 * after a SIGUSR2; "error PID STATUS" once when completions say that the other side, or the device, is gone; and
 * "broken PID TEXT" for all that may never be.
 */
#include "traffic.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static void say_args(const char *word, int pid, const char *fmt, va_list args)
{
	char text[256];
	int n = snprintf(text, sizeof(text), "%s %d ", word, pid);

	n += vsnprintf(text + n, sizeof(text) - n - 1, fmt, args);
	if (n > (int)sizeof(text) - 2)
		n = sizeof(text) - 2;
	text[n++] = '\n';
	/* One write, so that lines of several processes do not mix. */
	if (write(1, text, n) != n)
		_exit(TRAFFIC_BROKEN);
}

void say(const char *word, const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	say_args(word, getpid(), fmt, args);
	va_end(args);
}

void broken(const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	say_args("broken", getpid(), fmt, args);
	_exit(TRAFFIC_BROKEN);
}

static pid_t side(struct plan *plan, int other)
{
	pid_t pid = fork();

	if (pid)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	/* Else a side never sees that the other has left. */
	close(other);
	close(0);
	open("/dev/null", O_RDONLY);
	run_side(plan);
}

static void start(const char *line)
{
	static unsigned int conversations;
	char device[2][64];
	struct plan plans[2] = { { .device = device[0], .asks = true }, { .device = device[1] } };
	int ends[2];

	if (sscanf(line, "%63s %d %63s %d %u", device[0], &plans[0].gid_index, device[1], &plans[1].gid_index,
		   &plans[0].size) != 5)
		broken("no command: %s", line);
	plans[1].size = plans[0].size;
	/* Both kinds of receive queues, in both directions. */
	plans[conversations / 2 % 2].shares = conversations % 2;
	plans[0].datagrams = plans[1].datagrams = conversations / 2 % 2;
	conversations++;
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends))
		broken("socketpair: %s", strerror(errno));
	plans[0].peer = ends[0];
	plans[1].peer = ends[1];
	pid_t first = side(&plans[0], ends[1]), second = side(&plans[1], ends[0]);
	close(ends[0]);
	close(ends[1]);
	printf("forked %d %d\n", first, second);
	fflush(stdout);
}

int main(void)
{
	struct pollfd in = { .fd = 0, .events = POLLIN };
	char line[256];
	int status;
	pid_t pid;

	setvbuf(stdin, NULL, _IONBF, 0);
	for (;;) {
		if (poll(&in, 1, 10) > 0) {
			if (!fgets(line, sizeof(line), stdin))
				return 0;
			start(line);
		}
		while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
			printf("ended %d %d\n", pid, WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status));
			fflush(stdout);
		}
	}
}
