// SPDX-License-Identifier: GPL-2.0
/* Cases about multicast groups: who gets a datagram, how often, and when this host is a member. */
#include "datagrams.h"

/* Queue pair 0 is that of a, the others belong to the device of b. */
enum { CROWD = 5, GROUPS = 2, ROOM = 8192, SPARE = 2, WARM = 0x77777777 };

/* Those who may be in a group. Each always has SPARE receives, so that it would get a datagram that comes twice. */
static struct side side[CROWD];

/* Two groups, and the one that is talked of. */
static struct group {
	union ibv_gid gid;
	struct ibv_ah *ah[CROWD];
	bool in[CROWD];
} groups[GROUPS], *g;

static const struct ibv_qp all = { .qp_num = 0xffffff };

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
	post_room(&side[i], i, HALF + ROOM * i, GRH + 4096);
}

/* The numbers of the two groups have the same low byte. */
static void open_crowd(bool v6, uint16_t number)
{
	use_family(&p.a, v6);
	use_family(&p.b, v6);
	side[0] = p.a;
	side[1] = p.b;
	for (int i = 2; i < CROWD; i++)
		side[i] = ready_side(&p.b, DEPTH);
	for (int n = 0; n < GROUPS; n++) {
		struct side group = { .gid = group_of(v6, number + 256 * n) };

		g = &groups[n];
		*g = (struct group){ .gid = group.gid };
		for (int i = 0; i < CROWD; i++)
			g->ah[i] = new_ah(side[i].pd, way(&side[i], &group));
	}
	g = groups;
	for (int i = 0; i < CROWD * SPARE; i++)
		put_receive(i / SPARE);
}

static void join(int i)
{
	MUST(ibv_attach_mcast(side[i].qp, &g->gid, 0));
	g->in[i] = true;
}

static void leave(int i)
{
	MUST(ibv_detach_mcast(side[i].qp, &g->gid, 0));
	g->in[i] = false;
}

/* Who is in the group, one bit each; others leave. */
static void members(unsigned int mask)
{
	for (int i = 0; i < CROWD; i++) {
		bool in = mask >> i & 1;

		if (in && !g->in[i])
			join(i);
		if (!in && g->in[i])
			leave(i);
	}
}

static void close_crowd(void)
{
	for (g = groups; g < groups + GROUPS; g++) {
		members(0);
		for (int i = 0; i < CROWD; i++)
			DESTROY(g->ah[i]);
	}
	for (int i = 2; i < CROWD; i++)
		side_end(&side[i]);
}

static void send_to_group(int from, uint32_t len, uint32_t number)
{
	struct ibv_sge list = sge(&side[from], 0, len);
	struct ibv_send_wr w = wr(IBV_WR_SEND_WITH_IMM, 100, &list, 1);

	w.imm_data = number;
	address(&w, g->ah[from], &all, KEY);
	post(&side[from], &w);
}

/* What a member gets: the data, from whom, and to which group. */
static void judge(int i, const struct ibv_wc *wc, int from, uint32_t len, uint32_t number)
{
	const uint8_t *header = side[i].buf + HALF + ROOM * i;
	int at = g->gid.raw[0] ? 0 : 12;

	CHECK(wc->status == IBV_WC_SUCCESS && wc->byte_len == GRH + len && (wc->wc_flags & IBV_WC_GRH),
	      "%d: %s, %u bytes, flags %x", i, ibv_wc_status_str(wc->status), wc->byte_len, wc->wc_flags);
	CHECK(wc->imm_data == number, "%d: datagram %x, not %x", i, wc->imm_data, number);
	CHECK(wc->src_qp == side[from].qp->qp_num, "%d: from queue pair %u", i, wc->src_qp);
	CHECK(!memcmp(header + 24 + at, g->gid.raw + at, 16 - at), "%d: the header names another group", i);
	CHECK(!memcmp(header + (at ? 32 : 8), side[from].gid.raw + at, 16 - at), "%d: the header names another sender",
	      i);
	compare(header + GRH, len, number, "what a member got");
}

/* One datagram: each member of the group gets it once, the sender too if it is, and nobody else. */
static void tell(int from, uint32_t len, uint32_t number)
{
	fill(side[from].buf, len, number);
	send_to_group(from, len, number);
	for (int i = 0; i < CROWD; i++)
		for (int n = (i == from) + g->in[i]; n; n--) {
			struct ibv_wc wc = next(&side[i], i == from ? "of the sender" : "of a member");

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
		expect_none(&side[i], 0, g->in[i] ? "of one that had its own" : "of one that is not in the group");
}

/*
 * A switch on the way learns of a member only when its host says so, which may take a second: datagrams are sent until
 * every member had one, and then until none is under way.
 */
static void warm(int from)
{
	double end = now() + patience(), last = now();
	bool had[CROWD] = { false };
	struct ibv_wc wc;
	int missing = 0;

	for (int i = 0; i < CROWD; i++)
		missing += g->in[i];
	while (missing || now() < last + 0.3) {
		CHECK(now() < end, "%d members get nothing", missing);
		if (missing)
			send_to_group(from, 0, WARM);
		usleep(20000);
		for (int i = 0; i < CROWD; i++)
			while (ibv_poll_cq(side[i].cq, 1, &wc)) {
				if (!(wc.opcode & IBV_WC_RECV))
					continue;
				CHECK(g->in[i] && wc.imm_data == WARM, "%d got %x", i, wc.imm_data);
				missing -= !had[i];
				had[i] = true;
				put_receive(i);
				last = now();
			}
	}
}

CASE("groups.messages", "each member of the group gets each datagram once, the sender's host too", .seconds = 90, UD)
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
		/* Another group has other members. */
		g = &groups[1];
		members(0b01100);
		warm(0);
		tell(0, 10, number++);
		members(0);
		g = groups;
		tell(0, 10, number++);
		members(0);
		tell(0, 10, number++);
		/* And again. */
		members(0b00010);
		warm(0);
		tell(0, 10, number++);
		close_crowd();
	}
}

/* Whether this is a word of a file. */
static bool has_word(const char *path, const char *word)
{
	char line[128];

	snprintf(line, sizeof(line), "grep -qiw %s %s", word, path);
	return !system(line);
}

/* Whether this host says that it is in the group, and its netdev listens to the right MAC address. */
static void want_member(bool want)
{
	const uint8_t *raw = g->gid.raw;
	char name[40], mac[16];
	uint32_t v4;

	if (raw[0]) {
		for (int i = 0; i < 16; i++)
			sprintf(name + 2 * i, "%02x", raw[i]);
		sprintf(mac, "3333%02x%02x%02x%02x", raw[12], raw[13], raw[14], raw[15]);
	} else {
		/* As a number in the order of this machine. */
		memcpy(&v4, raw + 12, 4);
		sprintf(name, "%08X", v4);
		sprintf(mac, "01005e%02x%02x%02x", raw[13] & 0x7f, raw[14], raw[15]);
	}
	CHECK(has_word(raw[0] ? "/proc/net/igmp6" : "/proc/net/igmp", name) == want, "the group is%s among those of this host",
	      want ? " not" : "");
	CHECK(has_word("/proc/net/dev_mcast", mac) == want, "%s is%s among the addresses", mac, want ? " not" : "");
}

CASE("groups.membership", "IGMP and MLD memberships and MAC filters come and go with the queue pairs",
     .paths = LOCAL_PATH, .rxe = "joins no group", UD)
{
	for (int v6 = 0; v6 < 2; v6++) {
		open_crowd(v6, 4711);
		want_member(false);
		join(1);
		want_member(true);
		join(2);
		leave(1);
		want_member(true);
		/* Again: it is in it, and stays. */
		join(2);
		leave(2);
		want_member(false);
		/* A queue pair that is in a group is in use. */
		join(3);
		CHECK(ibv_destroy_qp(side[3].qp) == EBUSY, "a queue pair in a group was destroyed");
		MUST(qp_to(side[3].qp, IBV_QPS_ERR));
		MUST(qp_to(side[3].qp, IBV_QPS_RESET));
		want_member(true);
		leave(3);
		want_member(false);
		close_crowd();
	}
}

CASE("groups.refuses", "what is no group or no UD queue pair is refused, and leaving without having joined", UD)
{
	struct pair rc;

	open_crowd(false, 3);
	pair_open_beside(&rc, &p, 4096);
	union ibv_gid wrong[] = { p.a.gid, { .raw = { 0x20, 1, 0x0d, 0xb8, [15] = 1 } }, { .raw = { [12] = 239, [15] = 1 } },
				  { .raw = { [10] = 0xff, [11] = 0xff, [12] = 240 } }, { .raw = { 0 } } };

	for (size_t i = 0; i < COUNT(wrong); i++)
		CHECK(ibv_attach_mcast(side[1].qp, &wrong[i], 0) == EINVAL, "group %zu was taken", i);
	CHECK(ibv_attach_mcast(rc.a.qp, &g->gid, 0) == EINVAL, "a connection was taken into a group");
	CHECK(ibv_detach_mcast(side[1].qp, &g->gid, 0) == EINVAL, "it has left a group that it was not in");
	join(1);
	CHECK(ibv_detach_mcast(side[2].qp, &g->gid, 0) == EINVAL, "another one has left the group");
	/* It is in the group already, and is so once. */
	join(1);
	warm(0);
	tell(0, 9, 9);
	leave(1);
	CHECK(ibv_detach_mcast(side[1].qp, &g->gid, 0) == EINVAL, "it has left twice");
	pair_close(&rc);
	close_crowd();
}

CASE("groups.limits", "64 queue pairs in a group and 4096 groups, and not one more", .paths = LOCAL_PATH,
     .seconds = 240, .rxe = "has other limits", UD)
{
	struct ibv_device_attr device = device_of(p.b.ctx);
	struct ibv_qp *qps[65];
	int n;

	CHECK(device.max_mcast_qp_attach == 64 && device.max_mcast_grp == 4096, "limits %d and %d",
	      device.max_mcast_qp_attach, device.max_mcast_grp);
	open_crowd(false, 5);
	for (n = 0; n <= 64; n++) {
		qps[n] = make_qp_of(IBV_QPT_UD, &p.b);
		int rc = ibv_attach_mcast(qps[n], &g->gid, 0);

		CHECK(rc == (n < 64 ? 0 : ENOMEM), "queue pair %d: %s", n, strerror(rc));
	}
	/* There is room for one in the place of another. */
	MUST(ibv_detach_mcast(qps[7], &g->gid, 0));
	MUST(ibv_attach_mcast(qps[64], &g->gid, 0));
	for (n = 0; n <= 64; n++) {
		if (n != 7)
			MUST(ibv_detach_mcast(qps[n], &g->gid, 0));
		DESTROY(qps[n]);
	}
	for (n = 0; n <= 4096; n++) {
		union ibv_gid group = group_of(n % 2, n);
		int rc = ibv_attach_mcast(side[1].qp, &group, 0);

		CHECK(rc == (n < 4096 ? 0 : ENOMEM), "group %d: %s", n, strerror(rc));
	}
	for (n = 0; n < 4096; n++) {
		union ibv_gid group = group_of(n % 2, n);

		MUST(ibv_detach_mcast(side[1].qp, &group, 0));
	}
	join(1);
	tell(0, 9, 9);
	close_crowd();
}

/* Joins and leaves all the time, in another process; says when it is at it. */
static void come_and_go(bool v6, int told)
{
	pair_open(&p, &(struct options){ .type = IBV_QPT_UD }, 2 * HALF);
	open_crowd(v6, 55);
	for (unsigned int n = 0;; n++) {
		members(0b11111);
		for (int i = 0; i < CROWD; i++)
			leave((i + n) % CROWD);
		if (n == 3 && write(told, "x", 1) != 1)
			_exit(1);
	}
}

/* Somebody else joins and leaves the same group, and is killed at that: the members do not notice. */
CASE("groups.churn", "others join and leave, and are killed, while members talk", .seconds = 120, UD)
{
	enum { ROUNDS = 40 };

	for (int v6 = 0; v6 < 2; v6++) {
		int told[2], status;
		char byte;

		MUST(pipe(told));
		pid_t child = new_process();

		if (!child)
			come_and_go(v6, told[1]);
		close(told[1]);
		CHECK(read(told[0], &byte, 1) == 1, "the child has failed");
		close(told[0]);
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
		kill(child, SIGKILL);
		CHECK(waitpid(child, &status, 0) == child && WIFSIGNALED(status), "the child ended with %x", status);
		tell(0, 20, 1000);
		close_crowd();
	}
}

CASE("groups.held", "queue pairs stay in groups until the process is killed", .paths = BY_HAND, UD)
{
	union ibv_gid other = group_of(true, 77);

	open_crowd(false, 77);
	members(0b11111);
	for (int i = 0; i < CROWD; i++)
		MUST(ibv_attach_mcast(side[i].qp, &other, 0));
	puts("held");
	fflush(stdout);
	pause();
}
