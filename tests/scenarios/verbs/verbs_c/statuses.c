// SPDX-License-Identifier: GPL-2.0
/* Every status of a completion: provoked, and named in one printed table. causes.h has all the causes of each. */
#include "pair.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/ip.h>
#include <netinet/udp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* One request of a to b, in a pair that is made for it. */
struct attempt {
	struct options opt;
	enum ibv_wr_opcode op;
	uint32_t room;		/* bytes of b's receive, or no receive */
	bool bad_lkey, bad_rkey, bad_receive;
	bool in_error;		/* a is in ERR */
	bool at_receive;	/* the status of the receive is what matters */
};

static enum ibv_wc_status attempt(const struct attempt *what)
{
	enum ibv_wc_status status;
	struct pair p;

	pair_open(&p, &what->opt, 4096);
	struct ibv_sge list = sge(&p.a, 0, 64), room = sge(&p.b, 1024, what->room);
	struct ibv_send_wr w = wr(what->op, 1, &list, 1);

	aim(&w, &p.b, 2048);
	list.lkey ^= what->bad_lkey ? 0x5500 : 0;
	room.lkey ^= what->bad_receive ? 0x5500 : 0;
	w.wr.rdma.rkey ^= what->bad_rkey ? 0x5500 : 0;
	if (what->room)
		post_recv(&p.b, 2, &room, 1);
	if (what->in_error)
		MUST(to_state(&p.a, IBV_QPS_ERR));
	post(&p.a, &w);
	status = next(what->at_receive ? &p.b : &p.a, "the request").status;
	pair_close(&p);
	return status;
}

/* A window on a region that was registered without the right to that. */
static enum ibv_wc_status bind_without_right(void)
{
	struct ibv_send_wr w = wr(IBV_WR_BIND_MW, 1, NULL, 0);
	enum ibv_wc_status status;
	struct pair p;

	pair_open(&p, NULL, 4096);
	w.bind_mw.mw = ibv_alloc_mw(p.a.pd, IBV_MW_TYPE_2);
	CHECK(w.bind_mw.mw, "ibv_alloc_mw: %s", strerror(errno));
	w.bind_mw.rkey = ibv_inc_rkey(w.bind_mw.mw->rkey);
	w.bind_mw.bind_info = (struct ibv_mw_bind_info){ .mr = p.a.mr, .addr = (uintptr_t)p.a.buf, .length = 64,
							 .mw_access_flags = IBV_ACCESS_REMOTE_READ };
	post(&p.a, &w);
	status = next(&p.a, "the binding").status;
	MUST(ibv_dealloc_mw(w.bind_mw.mw));
	pair_close(&p);
	return status;
}

/* A RoCEv2 packet: a READ response of 32 bytes. */
struct packet {
	struct iphdr ip;
	struct udphdr udp;
	uint8_t bth[12], aeth[4], data[32], icrc[4];
} __attribute__((packed));

static uint32_t crc32(uint32_t crc, const uint8_t *at, size_t len)
{
	for (; len; len--)
		for (int bit = (crc ^= *at++, 0); bit < 8; bit++)
			crc = crc >> 1 ^ (crc & 1 ? 0xedb88320 : 0);
	return crc;
}

/* Over all that no router changes; what one may change counts as ones (IBTA A17.3.3). */
static void sign(struct packet *packet)
{
	static const uint8_t ones[8] = { 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff };
	struct packet masked = *packet;
	uint32_t crc;

	masked.ip.tos = masked.ip.ttl = masked.bth[4] = 0xff;
	masked.ip.check = masked.udp.check = 0xffff;
	crc = crc32(crc32(~0u, ones, sizeof(ones)), (uint8_t *)&masked, sizeof(masked) - sizeof(masked.icrc));
	for (int i = 0; i < 4; i++)
		packet->icrc[i] = ~crc >> 8 * i;
}

/* A READ of 64 bytes, which nobody has seen, is answered by a packet of 32. */
static enum ibv_wc_status forged_answer(void)
{
	int s = socket(AF_INET, SOCK_RAW, IPPROTO_RAW);
	struct sockaddr_in to = { .sin_family = AF_INET };
	struct ibv_qp_init_attr init;
	enum ibv_wc_status status;
	struct ibv_qp_attr attr;
	struct pair p;

	CHECK(s >= 0, "a raw socket: %s", strerror(errno));
	pair_open(&p, &(struct options){ .wrong_qpn = true, .timeout = 20 }, 4096);
	MUST(ibv_query_qp(p.a.qp, &attr, IBV_QP_SQ_PSN, &init));
	struct ibv_sge list = sge(&p.a, 0, 64);
	struct ibv_send_wr w = wr(IBV_WR_RDMA_READ, 1, &list, 1);
	uint32_t qpn = p.a.qp->qp_num, psn = attr.sq_psn;
	struct packet packet = {
		.ip = { .ihl = 5, .version = 4, .tot_len = htons(sizeof(packet)), .id = htons(1), .ttl = 64,
			.frag_off = htons(IP_DF), .protocol = IPPROTO_UDP },
		.udp = { .source = htons(0xc000), .dest = htons(4791),
			 .len = htons(sizeof(packet) - sizeof(packet.ip)) },
		/* RDMA READ RESPONSE ONLY, the default P_Key, the queue pair, its PSN. */
		.bth = { 0x10, 0, 0xff, 0xff, 0, qpn >> 16, qpn >> 8, qpn, 0, psn >> 16, psn >> 8, psn },
		.aeth = { 0x1f, 0, 0, 1 },
	};

	memcpy(&packet.ip.saddr, p.b.gid.raw + 12, 4);
	memcpy(&packet.ip.daddr, p.a.gid.raw + 12, 4);
	to.sin_addr.s_addr = packet.ip.daddr;
	sign(&packet);
	aim(&w, &p.b, 0);
	post(&p.a, &w);
	CHECK(sendto(s, &packet, sizeof(packet), 0, (struct sockaddr *)&to, sizeof(to)) == sizeof(packet), "sendto: %s",
	      strerror(errno));
	status = next(&p.a, "the READ").status;
	close(s);
	pair_close(&p);
	return status;
}

#define TRY(...) &(const struct attempt){ __VA_ARGS__ }, NULL
#define CALL(function) NULL, function
#define NEVER NULL, NULL

#define STATUSES(ROW)                                                                                              \
	ROW(SUCCESS, "a SEND into a receive", TRY(.op = IBV_WR_SEND, .room = 64))                                  \
	ROW(LOC_LEN_ERR, "a SEND into a receive that is too short; the receive",                                   \
	    TRY(.op = IBV_WR_SEND, .room = 63, .at_receive = true))                                                \
	ROW(LOC_QP_OP_ERR, "a READ where max_rd_atomic is 0",                                                      \
	    TRY(.op = IBV_WR_RDMA_READ, .opt = { .rd_atomic = NONE, .dest_rd_atomic = 4 }))                        \
	ROW(LOC_PROT_ERR, "a SEND with an lkey of nothing", TRY(.op = IBV_WR_SEND, .room = 64, .bad_lkey = true))   \
	ROW(WR_FLUSH_ERR, "a SEND in ERR", TRY(.op = IBV_WR_SEND, .room = 64, .in_error = true))                   \
	ROW(MW_BIND_ERR, "a window on a region without IBV_ACCESS_MW_BIND", CALL(bind_without_right))              \
	ROW(BAD_RESP_ERR, "a READ that is answered with fewer bytes", CALL(forged_answer))                         \
	ROW(REM_INV_REQ_ERR, "a SEND into a receive that is too short; the SEND",                                  \
	    TRY(.op = IBV_WR_SEND, .room = 63))                                                                    \
	ROW(REM_ACCESS_ERR, "a WRITE with an rkey of nothing", TRY(.op = IBV_WR_RDMA_WRITE, .bad_rkey = true))     \
	ROW(REM_OP_ERR, "a SEND into a receive with an lkey of nothing",                                           \
	    TRY(.op = IBV_WR_SEND, .room = 64, .bad_receive = true))                                               \
	ROW(RETRY_EXC_ERR, "a SEND to a queue pair that there is not",                                             \
	    TRY(.op = IBV_WR_SEND, .opt = { .wrong_qpn = true, .retry_cnt = 1, .timeout = 10 }))                   \
	ROW(LOC_ACCESS_ERR, "a WRITE with immediate data and an rkey of nothing; the receive",                     \
	    TRY(.op = IBV_WR_RDMA_WRITE_WITH_IMM, .room = 64, .bad_rkey = true, .at_receive = true))               \
	ROW(RNR_RETRY_EXC_ERR, "a SEND to a queue pair without a receive",                                         \
	    TRY(.op = IBV_WR_SEND, .opt.rnr_retry = NONE))                                                         \
	ROW(LOC_EEC_OP_ERR, "never: of reliable datagrams, which nobody has", NEVER)                               \
	ROW(LOC_RDD_VIOL_ERR, "never: of reliable datagrams", NEVER)                                               \
	ROW(REM_INV_RD_REQ_ERR, "never: of reliable datagrams", NEVER)                                             \
	ROW(REM_ABORT_ERR, "never: of reliable datagrams", NEVER)                                                  \
	ROW(INV_EECN_ERR, "never: of reliable datagrams", NEVER)                                                   \
	ROW(INV_EEC_STATE_ERR, "never: of reliable datagrams", NEVER)                                              \
	ROW(FATAL_ERR, "never: what no request can tell is an event", NEVER)                                       \
	ROW(RESP_TIMEOUT_ERR, "never: RETRY_EXC_ERR says it", NEVER)                                               \
	ROW(GENERAL_ERR, "never: each error has a status of its own", NEVER)                                       \
	ROW(TM_ERR, "never: there is no tag matching", NEVER)                                                      \
	ROW(TM_RNDV_INCOMPLETE, "never: there is no tag matching", NEVER)

static const struct {
	enum ibv_wc_status status;
	const char *name, *by;
	const struct attempt *attempt;
	enum ibv_wc_status (*call)(void);
} statuses[] = {
#define ROW(status, by, ...) { IBV_WC_##status, #status, by, __VA_ARGS__ },
	STATUSES(ROW)
#undef ROW
};

/* The compiler refuses this if the header has a status that the table does not name. */
static bool is_named(enum ibv_wc_status status)
{
	switch (status) {
#define ROW(status, ...) case IBV_WC_##status:
	STATUSES(ROW)
#undef ROW
		return true;
	}
	return false;
}

void every_status(void)
{
	for (size_t i = 0; i < COUNT(statuses); i++) {
		enum ibv_wc_status got = statuses[i].status;

		if (statuses[i].attempt)
			got = attempt(statuses[i].attempt);
		else if (statuses[i].call)
			got = statuses[i].call();
		CHECK(is_named(got) && got == statuses[i].status, "%s: it is \"%s\"", statuses[i].by,
		      ibv_wc_status_str(got));
		printf("%2d %-18s | %s\n", statuses[i].status, statuses[i].name, statuses[i].by);
		fflush(stdout);
	}
}
