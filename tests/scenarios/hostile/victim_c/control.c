// SPDX-License-Identifier: GPL-2.0
/* A TCP connection of lines: the generator asks, the victim answers. */
#include "victim.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static FILE *in, *out;

/* The generator, which judges, is told too. */
static void failed(const char *text)
{
	fprintf(out, "failed %s\n", text);
	fflush(out);
}

void control_open(int port)
{
	int peer = tcp_accept(port);

	in = fdopen(peer, "r");
	out = fdopen(dup(peer), "w");
	CHECK(in && out, "fdopen: %s", strerror(errno));
	on_failure = failed;
}

const char *control_line(void)
{
	static char line[256];

	if (!fgets(line, sizeof(line), in))
		return NULL;
	line[strcspn(line, "\n")] = 0;
	return line;
}

void tell(const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	vfprintf(out, fmt, args);
	va_end(args);
}

void control_flush(void)
{
	fflush(out);
}
