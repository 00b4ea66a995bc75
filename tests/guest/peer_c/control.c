// SPDX-License-Identifier: GPL-2.0
/* The TCP connection between the two processes: addresses, and steps taken together. */
#include "peer.h"

#include <sys/socket.h>

static int control = -1;
bool deserted;

void control_open(const char *server, int port)
{
	control = server ? tcp_connect(server, port) : tcp_accept(port);
}

bool swap(const void *mine, void *theirs, size_t len)
{
	if (swap_over(control, mine, theirs, len))
		return true;
	if (!plan.alone)
		leave(PEER_GONE, "the other side is gone");
	return false;
}

bool together(const char *where)
{
	static uint32_t step;
	struct {
		uint32_t step, stop;
	} mine = { ++step, stop_asked }, theirs = mine;

	if (!swap(&mine, &theirs, sizeof(mine))) {
		deserted = true;
		return stop_asked;
	}
	CHECK(mine.step == theirs.step, "%s: step %u here, step %u there", where, mine.step, theirs.step);
	return mine.stop || theirs.stop;
}

bool peer_left(void)
{
	char c;

	return recv(control, &c, 1, MSG_PEEK | MSG_DONTWAIT) == 0;
}
