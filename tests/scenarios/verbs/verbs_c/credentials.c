// SPDX-License-Identifier: GPL-2.0
/*
 * Programs whose credentials change after they have opened the device: servers that give up root, daemons, children.
 * uverbs refuses write() on the command file then, since those who opened it were others.
 */
#include "pair.h"

#include <grp.h>

#define RXE "posts by write(), which is refused then"

enum { NOBODY = 65534, RINGS = 16 };

/* Whether uverbs takes write() from this process. It looks at the credentials before it looks at the command. */
static bool may_write(struct side *s)
{
	uint32_t short_command = 0;

	CHECK(write(s->ctx->cmd_fd, &short_command, sizeof(short_command)) < 0, "uverbs took half a command");
	CHECK(errno == EACCES || errno == EINVAL, "half a command: %s", strerror(errno));
	return errno == EINVAL;
}

/* Messages both ways, and both queues in ERR, where a request is only flushed if the module learns of it. */
static void works(struct pair *p)
{
	for (int i = 0; i < 8; i++) {
		send_checked(&p->a, &p->b, i);
		send_checked(&p->b, &p->a, i + 100);
	}
	CHECK(!to_state(&p->b, IBV_QPS_ERR), "to ERR");
	post_room(&p->b, 50, 0, 100);
	expect(&p->b, 50, IBV_WC_WR_FLUSH_ERR, "receive in ERR");
	post_one(&p->b, IBV_WR_SEND, 51, 0, 100);
	expect(&p->b, 51, IBV_WC_WR_FLUSH_ERR, "SEND in ERR");
}

static void become_nobody(void)
{
	CHECK(!setgroups(0, NULL) && !setresgid(NOBODY, NOBODY, NOBODY) && !setresuid(NOBODY, NOBODY, NOBODY),
	      "becoming nobody: %s", strerror(errno));
	CHECK(geteuid() == NOBODY, "the user is %d", geteuid());
}

static void works_after(void (*change)(void))
{
	send_checked(&p.a, &p.b, 1);
	CHECK(may_write(&p.a), "uverbs refuses write() before anything has changed");
	change();
	CHECK(!may_write(&p.a), "the credentials are still those of the opener");
	works(&p);
}

CASE("users.setuid", "a program that gives up root goes on", .rxe = RXE, .len = 8192)
{
	works_after(become_nobody);
}

CASE("users.fork", "a child and its parent both go on",
     .rxe = "does not flush what is posted to a receive queue in ERR")
{
	int go[2];
	char gid[16], c;
	struct mapping rings[RINGS];

	CHECK(!ibv_fork_init(), "ibv_fork_init");
	CHECK(!pipe(go), "pipe: %s", strerror(errno));
	pair_open(&p, NULL, 8192);
	send_checked(&p.a, &p.b, 1);
	CHECK(mapped_rings(rings, RINGS), "the parent has no rings");
	pid_t pid = new_process();

	if (!pid) {
		struct pair own;

		if (read(go[0], &c, 1) != 1)
			_exit(2);
		CHECK(!mapped_rings(rings, RINGS), "the child has rings of its parent");
		CHECK(!may_write(&p.a), "the child has the credentials of the opener");
		pair_open(&own, NULL, 8192);
		works(&own);
		pair_close(&own);
		fflush(stdout);
		snprintf(gid, sizeof(gid), "%d", places[0].gid_index);
		execl("/proc/self/exe", "verbs_cases", places[0].device, gid, "send-sg", NULL);
		_exit(2);
	}
	/* The child has not run yet: these write to pages that both have. */
	for (int i = 0; i < 4; i++)
		send_checked(&p.a, &p.b, i + 10);
	CHECK(write(go[1], "x", 1) == 1, "pipe: %s", strerror(errno));
	for (int i = 0; i < 50; i++)
		send_checked(&p.a, &p.b, i + 20);
	expect_success_of(pid, "the child");
	works(&p);
	pair_close(&p);
}
