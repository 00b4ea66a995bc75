// SPDX-License-Identifier: GPL-2.0
/*
 * hostile_victim DEVICE GID_INDEX ATTACKER_GID OTHER_GID PORT: waits for the generator and does what it asks.
 *
 *   make N KIND           qp INDEX QPN PEER_QPN RQ_PSN SQ_PSN WINDOW, of each; the key of its own window, or 0
 *   post INDEX OP LEN     send, write or read, out of or into the region "sends"
 *   states                state INDEX STATE RQ_PSN, of each
 *   completions           wc INDEX WR_ID STATUS BYTES, of each since it was asked last
 *   events                event TYPE, as above
 *   allow NAME OFFSET LEN lets these bytes of a region change
 *   check                 changed ..., if a byte is not what it was and may not differ
 *   dereg NAME            deregisters a region; rereg NAME brings it back, with another key
 *   renew                 all memory as it was, and nothing may change
 *
 * Each answer ends with the line "done".
 */
#include "victim.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *device_name;
int gid_index;
union ibv_gid attacker, other;

static struct area *area_named(const char *name)
{
	for (int i = 0; i < REGIONS; i++)
		if (!strcmp(areas[i].name, name))
			return &areas[i];
	fail("no region %s", name);
}

static void obey(const char *line)
{
	char a[32] = "", b[32] = "", c[32] = "", d[32] = "";

	CHECK(sscanf(line, "%31s %31s %31s %31s", a, b, c, d) >= 1, "an empty line");
	if (!strcmp(a, "make"))
		make(atoi(b), c);
	else if (!strcmp(a, "post"))
		post(atoi(b), c, atoi(d));
	else if (!strcmp(a, "states"))
		tell_states();
	else if (!strcmp(a, "completions"))
		tell_completions();
	else if (!strcmp(a, "events"))
		tell_events();
	else if (!strcmp(a, "check"))
		memory_is_whole();
	else if (!strcmp(a, "allow"))
		memory_allow(area_named(b), atoi(c), atoi(d));
	else if (!strcmp(a, "dereg"))
		memory_deregister(area_named(b));
	else if (!strcmp(a, "rereg"))
		memory_register(area_named(b), own_pd);
	else if (!strcmp(a, "renew"))
		memory_renew();
	else
		fail("no command \"%s\"", line);
}

int main(int argc, char **argv)
{
	const char *line;

	if (argc != 6) {
		fprintf(stderr, "usage: hostile_victim DEVICE GID_INDEX ATTACKER_GID OTHER_GID PORT\n");
		return 2;
	}
	device_name = argv[1];
	gid_index = atoi(argv[2]);
	CHECK(inet_pton(AF_INET6, argv[3], &attacker) == 1, "%s is no GID", argv[3]);
	CHECK(inet_pton(AF_INET6, argv[4], &other) == 1, "%s is no GID", argv[4]);
	setvbuf(stdout, NULL, _IOLBF, 0);
	control_open(atoi(argv[5]));
	endpoint_open();
	memory_open(own_pd, foreign_pd);
	tell("done\n");
	control_flush();
	while ((line = control_line())) {
		obey(line);
		tell("done\n");
		control_flush();
	}
	make(0, "rts");
	memory_close();
	endpoint_close();
	printf("ended\n");
	return 0;
}
