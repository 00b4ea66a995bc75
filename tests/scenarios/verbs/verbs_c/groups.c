// SPDX-License-Identifier: GPL-2.0
/* Cases about multicast groups: who gets a datagram, how often, and when this host is a member. */
#include "datagrams.h"

#include <errno.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

/* Queue pair 0 is that of a, the others belong to the device of b. */
enum { CROWD = 5, ROOM = 8192, SPARE = 2, WARM = 0x77777777 };

/* Those who may be in a group. Each always has SPARE receives, so that it would get a datagram that comes twice. */
static struct crowd {
	struct side side[CROWD];
	union ibv_gid group;
	struct ibv_ah *ah[CROWD];
	bool in[CROWD];
} c;

static union ibv_gid group_of(bool v6, uint16_t number)
{
	union ibv_gid gid = { .raw = { 0xff, 0x15, [13] = 1, [14] = number >> 8, [15] = number } };

	if (!v6)
		gid = (union ibv_gid){ .raw = { [10] = 0xff, [11] = 0xff, [12] = 239, [13] = 1, [14] = number >> 8,
						[15] = number } };
	return gid;
}

static void put_receive(int i)
{
	post_room(&c.side[i], i, HALF + ROOM * i, GRH + 4096);
}

static void open_crowd(bool v6, uint16_t number)
{
	c = (struct crowd){ .group = group_of(v6, number) };
	use_family(&p.a, v6);
	use_family(&p.b, v6);
	c.side[0] = p.a;
	c.side[1] = p.b;
	for (int i = 2; i < CROWD; i++)
		c.side[i] = ready_side(&p.b, DEPTH);
	for (int i = 0; i < CROWD; i++) {
		struct side group = { .gid = c.group };

		c.ah[i] = new_ah(c.side[i].pd, way(&c.side[i], &group));
		for (int n = 0; n < SPARE; n++)
			put_receive(i);
	}
}

static void join(int i)
{
	MUST(ibv_attach_mcast(c.side[i].qp, &c.group, 0));
	c.in[i] = true;
}

static void leave(int i)
{
	MUST(ibv_detach_mcast(c.side[i].qp, &c.group, 0));
	c.in[i] = false;
}

static void close_crowd(void)
{
	for (int i = 0; i < CROWD; i++) {
		if (c.in[i])
			leave(i);
		DESTROY(c.ah[i]);
	}
	for (int i = 2; i < CROWD; i++)
		side_end(&c.side[i]);
}

static void send_to_group(int from, uint32_t len, uint32_t number)
{
	static const struct ibv_qp all = { .qp_num = 0xffffff };
	struct ibv_sge list = sge(&c.side[from], 0, len);
	struct ibv_send_wr w = wr(IBV_WR_SEND_WITH_IMM, 100, &list, 1);

	w.imm_data = number;
	address(&w, c.ah[from], &all, KEY);
	post(&c.side[from], &w);
}

/* What a member gets: the data, from whom, and to which group. */
static void judge(int i, const struct ibv_wc *wc, int from, uint32_t len, uint32_t number)
{
	const uint8_t *header = c.side[i].buf + HALF + ROOM * i;
	int at = c.group.raw[0] ? 0 : 12;

	CHECK(wc->status == IBV_WC_SUCCESS && wc->byte_len == GRH + len && (wc->wc_flags & IBV_WC_GRH),
	      "%d: %s, %u bytes, flags %x", i, ibv_wc_status_str(wc->status), wc->byte_len, wc->wc_flags);
	CHECK(wc->imm_data == number, "%d: datagram %x, not %x", i, wc->imm_data, number);
	CHECK(wc->src_qp == c.side[from].qp->qp_num, "%d: from queue pair %u", i, wc->src_qp);
	CHECK(!memcmp(header + 24 + at, c.group.raw + at, 16 - at), "%d: the header names another group", i);
	CHECK(!memcmp(header + (at ? 32 : 8), c.side[from].gid.raw + at, 16 - at), "%d: the header names another sender",
	      i);
	compare(header + GRH, len, number, "what a member got");
}

/* One datagram: each member of the group gets it once, the sender too if it is, and nobody else. */
static void tell(int from, uint32_t len, uint32_t number)
{
	fill(c.side[from].buf, len, number);
	send_to_group(from, len, number);
	for (int i = 0; i < CROWD; i++)
		for (int n = (i == from) + c.in[i]; n; n--) {
			struct ibv_wc wc = next(&c.side[i], i == from ? "of the sender" : "of a member");

			if (!(wc.opcode & IBV_WC_RECV)) {
				CHECK(wc.status == IBV_WC_SUCCESS && wc.wr_id == 100, "the request ended with \"%s\"",
				      ibv_wc_status_str(wc.status));
				continue;
			}
			judge(i, &wc, from, len, number);
			put_receive(i);
		}
	usleep(5000);
	for (int i = 0; i < CROWD; i++)
		expect_none(&c.side[i], 0, c.in[i] ? "of one that had its own" : "of one that is not in the group");
}

/*
 * A switch on the way learns of a member only when its host says so, which may take a second: datagrams are sent until
 * every member had one, and then until none is under way.
 */
static void warm(int from)
{
	double end = now() + patience(), quiet = 0;
	bool had[CROWD] = { false };
	struct ibv_wc wc;

	for (bool all = false; !all || now() < quiet;) {
		CHECK(now() < end, "some member gets nothing");
		if (!all)
			send_to_group(from, 0, WARM);
		usleep(20000);
		bool every = true;

		for (int i = 0; i < CROWD; i++) {
			while (ibv_poll_cq(c.side[i].cq, 1, &wc)) {
				if (!(wc.opcode & IBV_WC_RECV))
					continue;
				CHECK(c.in[i] && wc.imm_data == WARM, "%d got %x", i, wc.imm_data);
				had[i] = true;
				put_receive(i);
				quiet = now() + 0.3;
			}
			every &= had[i] || !c.in[i];
		}
		if (every && !all)
			quiet = now() + 0.3;
		all |= every;
	}
}

/* Who is in the group, one bit each; others leave. */
static void members(unsigned int mask)
{
	for (int i = 0; i < CROWD; i++) {
		bool in = mask >> i & 1;

		if (in && !c.in[i])
			join(i);
		if (!in && c.in[i])
			leave(i);
	}
}

static void group_messages(void)
{
	for (int v6 = 0; v6 < 2; v6++) {
		uint32_t number = 0x100;
		open_crowd(v6, 77);
		uint32_t lengths[] = { 0, 1, 101, longest(&p.a) };

		members(0b10111);
		warm(0);
		warm(3);
		for (size_t i = 0; i < COUNT(lengths); i++) {
			tell(0, lengths[i], number++);
			tell(1, lengths[i], number++);
			/* It is not in the group itself. */
			tell(3, lengths[i], number++);
		}
		members(0b00110);
		tell(0, 10, number++);
		tell(1, 10, number++);
		members(0b01000);
		tell(0, 10, number++);
		tell(3, 10, number++);
		members(0);
		tell(0, 10, number++);
		/* And again. */
		members(0b00010);
		warm(0);
		tell(0, 10, number++);
		close_crowd();
	}
}

/* Two groups, whose members are others. */
static void group_apart(void)
{
	for (int v6 = 0; v6 < 2; v6++) {
		open_crowd(v6, 1);
		union ibv_gid other = group_of(v6, 257), first = c.group;
		struct side group = { .gid = other };
		struct ibv_ah *ah = new_ah(p.a.pd, way(&p.a, &group)), *to_first = c.ah[0];

		members(0b00110);
		warm(0);
		tell(0, 5, 1);
		c.group = other;
		c.ah[0] = ah;
		c.in[1] = false;
		MUST(ibv_attach_mcast(c.side[2].qp, &other, 0));
		MUST(ibv_attach_mcast(c.side[3].qp, &other, 0));
		c.in[3] = true;
		warm(0);
		tell(0, 6, 2);
		MUST(ibv_detach_mcast(c.side[2].qp, &other, 0));
		MUST(ibv_detach_mcast(c.side[3].qp, &other, 0));
		c.group = first;
		c.ah[0] = to_first;
		c.in[1] = true;
		c.in[3] = false;
		tell(0, 7, 3);
		DESTROY(ah);
		close_crowd();
	}
}

/* Whether this is a word of a file. */
static bool has_word(const char *path, const char *word)
{
	char line[256];
	bool found = false;
	FILE *f = fopen(path, "r");

	CHECK(f, "%s: %s", path, strerror(errno));
	while (fgets(line, sizeof(line), f))
		for (char *save, *w = strtok_r(line, " \t\n", &save); w; w = strtok_r(NULL, " \t\n", &save))
			found |= !strcasecmp(w, word);
	fclose(f);
	return found;
}

/* As the kernel lists it, and whether it does. */
static bool is_member(const union ibv_gid *gid)
{
	char name[40];
	uint32_t v4;

	if (gid->raw[0]) {
		for (int i = 0; i < 16; i++)
			sprintf(name + 2 * i, "%02x", gid->raw[i]);
		return has_word("/proc/net/igmp6", name);
	}
	/* As a number in the order of this machine. */
	memcpy(&v4, gid->raw + 12, 4);
	sprintf(name, "%08X", v4);
	return has_word("/proc/net/igmp", name);
}

/* Whether this host says that it is in the group, and its netdev listens to the right MAC address. */
static void want_member(const union ibv_gid *gid, bool want)
{
	const uint8_t *g = gid->raw;
	char mac[16];

	if (g[0])
		sprintf(mac, "3333%02x%02x%02x%02x", g[12], g[13], g[14], g[15]);
	else
		sprintf(mac, "01005e%02x%02x%02x", g[13] & 0x7f, g[14], g[15]);
	CHECK(is_member(gid) == want, "the group is%s among those of this host", want ? " not" : "");
	CHECK(has_word("/proc/net/dev_mcast", mac) == want, "%s is%s among the addresses", mac, want ? " not" : "");
}

/* A process that does something with groups until it is killed; returns when it says that it is at it. */
static pid_t begin_child(void (*run)(bool v6, int told), bool v6)
{
	int told[2];
	char byte;

	MUST(pipe(told));
	pid_t child = new_process();

	if (!child) {
		open_ud(&p);
		run(v6, told[1]);
		_exit(1);
	}
	close(told[1]);
	CHECK(read(told[0], &byte, 1) == 1, "the child has failed");
	close(told[0]);
	return child;
}

static void kill_child(pid_t child)
{
	int status;

	kill(child, SIGKILL);
	CHECK(waitpid(child, &status, 0) == child && WIFSIGNALED(status), "the child ended with %x", status);
}

/* With a process its memberships go. */
static void stay(bool v6, int told)
{
	open_crowd(v6, 4711);
	members(0b00101);
	if (write(told, "x", 1) == 1)
		pause();
}

static void group_membership(void)
{
	for (int v6 = 0; v6 < 2; v6++) {
		open_crowd(v6, 4711);
		want_member(&c.group, false);
		join(1);
		want_member(&c.group, true);
		join(2);
		leave(1);
		want_member(&c.group, true);
		/* Again: it is in it, and stays. */
		join(2);
		leave(2);
		want_member(&c.group, false);
		/* A queue pair that is in a group is in use. */
		join(3);
		CHECK(ibv_destroy_qp(c.side[3].qp) == EBUSY, "a queue pair in a group was destroyed");
		MUST(qp_to(c.side[3].qp, IBV_QPS_ERR));
		MUST(qp_to(c.side[3].qp, IBV_QPS_RESET));
		want_member(&c.group, true);
		leave(3);
		want_member(&c.group, false);
		pid_t child = begin_child(stay, v6);

		want_member(&c.group, true);
		kill_child(child);
		/* Its objects may outlive the process for a moment. */
		for (double end = now() + patience(); is_member(&c.group); usleep(10000))
			CHECK(now() < end, "the group of a dead process is not left");
		want_member(&c.group, false);
		close_crowd();
	}
}

static void group_refuses(void)
{
	struct pair rc;

	open_crowd(false, 3);
	pair_open_beside(&rc, &p, 4096);
	union ibv_gid wrong[] = { p.a.gid, { .raw = { 0x20, 1, 0x0d, 0xb8, [15] = 1 } }, { .raw = { [12] = 239, [15] = 1 } },
				  { .raw = { [10] = 0xff, [11] = 0xff, [12] = 240 } }, { .raw = { 0 } } };

	for (size_t i = 0; i < COUNT(wrong); i++)
		CHECK(ibv_attach_mcast(c.side[1].qp, &wrong[i], 0) == EINVAL, "group %zu was taken", i);
	CHECK(ibv_attach_mcast(rc.a.qp, &c.group, 0) == EINVAL, "a connection was taken into a group");
	CHECK(ibv_detach_mcast(c.side[1].qp, &c.group, 0) == EINVAL, "it has left a group that it was not in");
	join(1);
	CHECK(ibv_detach_mcast(c.side[2].qp, &c.group, 0) == EINVAL, "another one has left the group");
	/* It is in the group already, and is so once. */
	join(1);
	warm(0);
	tell(0, 9, 9);
	leave(1);
	CHECK(ibv_detach_mcast(c.side[1].qp, &c.group, 0) == EINVAL, "it has left twice");
	pair_close(&rc);
	close_crowd();
}

static void group_limits(void)
{
	struct ibv_device_attr attr;
	struct ibv_qp *qps[128];
	int n;

	open_crowd(false, 5);
	MUST(ibv_query_device(p.b.ctx, &attr));
	CHECK(attr.max_mcast_qp_attach == 64 && attr.max_mcast_grp == 4096, "limits %d and %d", attr.max_mcast_qp_attach,
	      attr.max_mcast_grp);
	for (n = 0; n <= attr.max_mcast_qp_attach; n++) {
		qps[n] = make_qp_of(IBV_QPT_UD, &p.b);
		int rc = ibv_attach_mcast(qps[n], &c.group, 0);

		CHECK(rc == (n < attr.max_mcast_qp_attach ? 0 : ENOMEM), "queue pair %d: %s", n, strerror(rc));
	}
	/* There is room for one in the place of another. */
	MUST(ibv_detach_mcast(qps[7], &c.group, 0));
	MUST(ibv_attach_mcast(qps[n - 1], &c.group, 0));
	for (int i = 0; i < n; i++) {
		if (i != 7)
			MUST(ibv_detach_mcast(qps[i], &c.group, 0));
		DESTROY(qps[i]);
	}
	for (n = 0; n <= attr.max_mcast_grp; n++) {
		union ibv_gid group = group_of(n % 2, n);
		int rc = ibv_attach_mcast(c.side[1].qp, &group, 0);

		CHECK(rc == (n < attr.max_mcast_grp ? 0 : ENOMEM), "group %d: %s", n, strerror(rc));
	}
	for (n = 0; n < attr.max_mcast_grp; n++) {
		union ibv_gid group = group_of(n % 2, n);

		MUST(ibv_detach_mcast(c.side[1].qp, &group, 0));
	}
	join(1);
	tell(0, 9, 9);
	close_crowd();
}

/* Joins and leaves all the time. */
static void come_and_go(bool v6, int told)
{
	open_crowd(v6, 55);
	for (unsigned int n = 0;; n++) {
		members(0b11111);
		for (int i = 0; i < CROWD; i++)
			leave((i + n) % CROWD);
		if (n == 3 && write(told, "x", 1) != 1)
			return;
	}
}

/* Somebody else joins and leaves the same group, and is killed at that: the members do not notice. */
static void group_churn(void)
{
	enum { ROUNDS = 40 };

	for (int v6 = 0; v6 < 2; v6++) {
		pid_t child = begin_child(come_and_go, v6);
		open_crowd(v6, 55);
		members(0b00101);
		warm(3);
		for (uint32_t n = 0; n < ROUNDS; n++) {
			tell(n % CROWD, 20, n);
			if (n % 8 == 3)
				join(4);
			if (n % 8 == 7)
				leave(4);
		}
		kill_child(child);
		tell(0, 20, 1000);
		close_crowd();
	}
}

/* This host is in the group for another program's sake. */
static int join_by_socket(void)
{
	int s = socket(AF_INET, SOCK_DGRAM, 0);
	struct ip_mreqn wish = { 0 };

	memcpy(&wish.imr_multiaddr, c.group.raw + 12, 4);
	memcpy(&wish.imr_address, c.side[1].gid.raw + 12, 4);
	CHECK(s >= 0 && !setsockopt(s, IPPROTO_IP, IP_ADD_MEMBERSHIP, &wish, sizeof(wish)), "socket: %s", strerror(errno));
	return s;
}

/* A great many datagrams that are of no use: each is counted. */
static void group_storm(void)
{
	enum { MANY = 2000, AT_ONCE = 40 };
	static const struct {
		const char *counter;
		bool member, hears;
		uint32_t qkey;
	} storms[] = {
		{ "lost_no_receive", true, true, KEY },
		{ "drop_qkey", true, true, KEY + 1 },
		/* The queue pair is in no state to receive. */
		{ "drop_state", true, false, KEY },
		/* Nobody is in the group but a socket. */
		{ "drop_group", false, true, KEY },
	};

	open_crowd(false, 99);
	struct ibv_qp *member = make_qp_of(IBV_QPT_UD, &p.b);

	for (size_t i = 0; i < COUNT(storms); i++) {
		static const struct ibv_qp all = { .qp_num = 0xffffff };
		long before = counter_of(storms[i].counter);
		int s = -1;

		if (storms[i].hears)
			ready(member, KEY);
		if (storms[i].member)
			MUST(ibv_attach_mcast(member, &c.group, 0));
		else
			s = join_by_socket();
		for (uint32_t n = 0; n < MANY; n += AT_ONCE) {
			struct ibv_sge list = sge(&p.a, 0, 64);
			struct ibv_send_wr w = datagram(&list, c.ah[0], &all, storms[i].qkey);

			for (uint32_t k = 0; k < AT_ONCE; k++)
				post(&p.a, &w);
			for (uint32_t k = 0; k < AT_ONCE; k++)
				expect(&p.a, 1, IBV_WC_SUCCESS, "one of a storm");
		}
		double end = now() + patience();

		while (before >= 0 && counter_of(storms[i].counter) < before + MANY)
			CHECK(now() < end, "%s: only %ld of %d were counted", storms[i].counter,
			      counter_of(storms[i].counter) - before, MANY);
		CHECK(before < 0 || counter_of(storms[i].counter) == before + MANY, "%s: more than %d were counted",
		      storms[i].counter, MANY);
		if (storms[i].member)
			MUST(ibv_detach_mcast(member, &c.group, 0));
		else
			close(s);
		MUST(qp_to(member, IBV_QPS_RESET));
	}
	DESTROY(member);
	/* Nobody has noticed. */
	members(0b01001);
	tell(0, 64, 1);
	close_crowd();
}

/* Stays in two groups until it is killed. */
static void group_held(void)
{
	union ibv_gid other = group_of(true, 77);

	open_crowd(false, 77);
	members(0b11111);
	for (int i = 0; i < CROWD; i++)
		MUST(ibv_attach_mcast(c.side[i].qp, &other, 0));
	puts("held");
	fflush(stdout);
	pause();
}

const struct test_case group_cases[] = {
	{ "messages", group_messages, "each member of the group gets each datagram once, the sender's host too", .seconds = 90,
	  UD },
	{ "apart", group_apart, "two groups with different members", UD },
	{ "membership", group_membership, "IGMP and MLD memberships and MAC filters come and go with the queue pairs",
	  LOCAL_PATH, .rxe = "joins no group", UD },
	{ "refuses", group_refuses, "what is no group or no UD queue pair is refused, and leaving without having joined",
	  UD },
	{ "limits", group_limits, "64 queue pairs in a group and 4096 groups, and not one more", LOCAL_PATH, .seconds = 240,
	  .rxe = "has other limits", UD },
	{ "churn", group_churn, "others join and leave, and are killed, while members talk", .seconds = 120, UD },
	{ "storm", group_storm, "8000 datagrams to a group that are of no use: each is counted", .seconds = 120,
	  .rxe = "has none of the counters", UD },
	{ "held", group_held, "queue pairs stay in groups until the process is killed", BY_HAND, UD },
	{ NULL },
};
