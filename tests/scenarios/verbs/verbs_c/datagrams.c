// SPDX-License-Identifier: GPL-2.0
/* Cases about datagrams: address handles, Q_Keys, and what a completion says. */
#include "datagrams.h"

struct side ready_side(const struct side *s, int entries)
{
	struct side other = side_beside(s, IBV_QPT_UD, entries);

	ready(other.qp, KEY);
	return other;
}

struct ibv_ah_attr way(const struct side *from, const struct side *to)
{
	return (struct ibv_ah_attr){ .is_global = 1, .port_num = 1,
				     .grh = { .dgid = to->gid, .sgid_index = from->gid_index, .hop_limit = 9,
					      .traffic_class = 0x20 } };
}

void address(struct ibv_send_wr *w, struct ibv_ah *ah, const struct ibv_qp *to, uint32_t qkey)
{
	w->wr.ud.ah = ah;
	w->wr.ud.remote_qpn = to->qp_num;
	w->wr.ud.remote_qkey = qkey;
}

struct ibv_send_wr datagram(struct ibv_sge *list, struct ibv_ah *ah, const struct ibv_qp *to, uint32_t qkey)
{
	struct ibv_send_wr w = wr(IBV_WR_SEND, 1, list, list ? 1 : 0);

	address(&w, ah, to, qkey);
	return w;
}

/* Whether a GID is an address of IPv4. */
static bool is_mapped(const union ibv_gid *gid)
{
	static const uint8_t mapped[12] = { [10] = 0xff, [11] = 0xff };

	return !memcmp(gid->raw, mapped, sizeof(mapped));
}

void use_family(struct side *s, bool v6)
{
	struct ibv_gid_entry entry;

	for (int i = 0; i < 16; i++)
		if (!ibv_query_gid_ex(s->ctx, 1, i, &entry, 0) && entry.gid_type == IBV_GID_TYPE_ROCE_V2 &&
		    entry.gid.raw[0] != 0xfe && is_mapped(&entry.gid) == !v6) {
			s->gid_index = i;
			s->gid = entry.gid;
			return;
		}
	fail("%s has no GID of IPv%d", ibv_get_device_name(s->ctx->device), v6 ? 6 : 4);
}

/* What a receive of a datagram must say. */
static void judge(struct side *to, const struct ibv_wc *wc, const struct side *from, const uint8_t *header, uint32_t len)
{
	struct ibv_ah_attr back;

	CHECK(wc->opcode == IBV_WC_RECV && wc->byte_len == GRH + len, "opcode %d, %u bytes of %u", wc->opcode,
	      wc->byte_len, GRH + len);
	CHECK(wc->src_qp == from->qp->qp_num, "from queue pair %u, not %u", wc->src_qp, from->qp->qp_num);
	CHECK(wc->wc_flags & IBV_WC_GRH, "flags %x", wc->wc_flags);
	/* In place of the SL, which RoCE v2 has not, mlx5 tells the IP version, and UCX reads it there. */
	CHECK(!wc->pkey_index && wc->sl == (on_rxe() ? 0 : is_mapped(&from->gid) ? 10 : 9) && !wc->slid && !wc->dlid_path_bits,
	      "P_Key %u, SL %u, LID %u, bits %u", wc->pkey_index, wc->sl, wc->slid, wc->dlid_path_bits);
	MUST(ibv_init_ah_from_wc(to->ctx, 1, (struct ibv_wc *)wc, (struct ibv_grh *)header, &back));
	CHECK(!memcmp(&back.grh.dgid, &from->gid, sizeof(from->gid)), "the header names another sender");
	CHECK(back.grh.sgid_index == to->gid_index || !memcmp(&back.grh.dgid, &to->gid, sizeof(to->gid)),
	      "the header names GID %u of the receiver", back.grh.sgid_index);
	CHECK(back.grh.traffic_class == 0x20 || on_rxe(), "traffic class %x", back.grh.traffic_class);
	/* Behind the IP header are UDP, BTH, DETH, perhaps immediate data, the payload in words of four bytes and the ICRC. */
	uint32_t said = is_mapped(&from->gid) ? header[20 + 2] << 8 | header[20 + 3] : header[4] << 8 | header[5];
	uint32_t want = (is_mapped(&from->gid) ? 20 : 0) + 8 + 12 + 8 + (wc->wc_flags & IBV_WC_WITH_IMM ? 4 : 0) +
			(len + 3) / 4 * 4 + 4;

	CHECK(said == want || on_rxe(), "the IP header says %u bytes, of %u", said, want);
}

void send_one(struct side *from, struct side *to, struct ibv_ah *ah, uint32_t len, unsigned int seed)
{
	struct ibv_sge list = sge(from, 0, len);
	struct ibv_send_wr w = wr(seed % 2 ? IBV_WR_SEND_WITH_IMM : IBV_WR_SEND, seed, &list, 1);
	uint8_t *sink = to->buf + HALF;

	fill(from->buf, len, seed);
	memset(sink, 0xee, GRH + len + 1);
	w.imm_data = 0x10203040 + seed;
	address(&w, ah, to->qp, KEY);
	post_room(to, seed, HALF, GRH + len);
	post(from, &w);
	if (from->cq == to->cq) {
		/* To itself: in which order is not said. */
		for (int i = 0; i < 2; i++) {
			struct ibv_wc wc = next(to, "to itself");

			if (wc.opcode == IBV_WC_RECV)
				judge(to, &wc, from, sink, len);
		}
	} else {
		struct ibv_wc wc = expect(to, seed, IBV_WC_SUCCESS, "a datagram");

		judge(to, &wc, from, sink, len);
		CHECK(!!(wc.wc_flags & IBV_WC_WITH_IMM) == seed % 2, "flags %x", wc.wc_flags);
		CHECK(seed % 2 == 0 || wc.imm_data == 0x10203040 + seed, "immediate data %x", wc.imm_data);
		expect(from, seed, IBV_WC_SUCCESS, "its request");
	}
	compare(sink + GRH, len, seed, "data");
	CHECK(sink[GRH + len] == 0xee, "the byte behind the data was written");
}

uint32_t longest(struct side *s)
{
	struct ibv_port_attr port;

	MUST(ibv_query_port(s->ctx, 1, &port));
	return 128u << port.active_mtu;
}

CASE("verbs.ud-messages", "UD: 0 B to the MTU, and every field of the completions", UD)
{
	struct ibv_ah *there = new_ah(p.a.pd, way(&p.a, &p.b)), *back = new_ah(p.b.pd, way(&p.b, &p.a));
	struct ibv_ah *self = new_ah(p.a.pd, way(&p.a, &p.a));
	uint32_t lengths[] = { 0, 1, 3, 255, 1024, longest(&p.a) };

	for (unsigned int i = 0; i < 2 * COUNT(lengths); i++) {
		send_one(&p.a, &p.b, there, lengths[i / 2], i);
		send_one(&p.b, &p.a, back, lengths[i / 2], i);
	}
	send_one(&p.a, &p.a, self, 100, 6);
	DESTROY(self, there, back);
}

CASE("verbs.ud-lost", "UD: without a receive, too long for it, to a number of nobody, with a wrong Q_Key: lost and counted",
     .rxe = "sends controlled Q_Keys as they are", UD)
{
	struct ibv_ah *ah = new_ah(p.a.pd, way(&p.a, &p.b));
	struct ibv_sge list = sge(&p.a, 0, 100);
	struct ibv_send_wr w = datagram(&list, ah, p.b.qp, KEY);
	/* Numbers of nobody: one of management that no device has, that of groups, and each that has one bit else. */
	uint32_t nobody[26] = { 0, 0xffffff };

	lose(&p.a, &p.b, &w, "lost_no_receive");
	/* One that is too short for it serves the next. */
	post_room(&p.b, 2, HALF, GRH + 99);
	lose(&p.a, &p.b, &w, "lost_too_long");
	list.length = 99;
	post(&p.a, &w);
	expect_both(&p.a, 1, &p.b, 2, "one that fits");
	lose(&p.a, &p.b, &w, "lost_no_receive");
	for (int bit = 0; bit < 24; bit++)
		nobody[2 + bit] = p.b.qp->qp_num ^ 1u << bit;
	for (size_t i = 0; i < COUNT(nobody); i++) {
		w.wr.ud.remote_qpn = nobody[i];
		if (nobody[i] != p.a.qp->qp_num && nobody[i] != 1)
			lose(&p.a, &p.b, &w, "drop_unknown_qp");
	}
	/* To the one of management that every device has, with a Q_Key that no process can say. */
	w.wr.ud.remote_qpn = 1;
	lose(&p.a, &p.b, &w, "drop_qkey");
	address(&w, ah, p.b.qp, KEY + 1);
	lose(&p.a, &p.b, &w, "drop_qkey");
	/* In place of a controlled key that of the queue pair is used. */
	address(&w, ah, p.b.qp, 0x80000000 | (KEY + 1));
	post_room(&p.b, 2, HALF, GRH + 99);
	post(&p.a, &w);
	expect_both(&p.a, 1, &p.b, 2, "with a controlled key, the own one instead");
	send_one(&p.a, &p.b, ah, 50, 8);
	DESTROY(ah);
}

CASE("verbs.ud-errors", "UD: errors of a sender lead to SQE, and RTS leads back", .rxe = "goes to ERR", UD)
{
	struct ibv_pd *other = new_pd(p.a.ctx);
	struct ibv_ah *ah = new_ah(p.a.pd, way(&p.a, &p.b)), *foreign = new_ah(other, way(&p.a, &p.b));
	struct ibv_ah *back = new_ah(p.b.pd, way(&p.b, &p.a));
	const struct {
		const char *what;
		uint32_t len, other_key;
		struct ibv_ah *ah;
		enum ibv_wc_status status;
	} rows[] = {
		{ "longer than the MTU", longest(&p.a) + 1, 0, ah, IBV_WC_LOC_LEN_ERR },
		{ "with a key of nothing", 10, 0x100, ah, IBV_WC_LOC_PROT_ERR },
		{ "by a handle of another domain", 10, 0, foreign, IBV_WC_LOC_QP_OP_ERR },
		{ "without a handle", 10, 0, NULL, IBV_WC_LOC_QP_OP_ERR },
	};

	for (size_t i = 0; i < COUNT(rows); i++) {
		struct ibv_sge list = sge(&p.a, 0, rows[i].len);
		struct ibv_send_wr w[] = { datagram(&list, rows[i].ah, p.b.qp, KEY), datagram(NULL, ah, p.b.qp, KEY) };

		list.lkey ^= rows[i].other_key;
		w[1].wr_id = 2;
		post_list(&p.a, w, 2);
		expect(&p.a, 1, rows[i].status, rows[i].what);
		expect(&p.a, 2, IBV_WC_WR_FLUSH_ERR, "the one behind it");
		want_state(&p.a, IBV_QPS_SQE, "the sender");
		send_one(&p.b, &p.a, back, 20, 2);
		MUST(to_state(&p.a, IBV_QPS_RTS));
		send_one(&p.a, &p.b, ah, 20, 3);
	}
	DESTROY(foreign, other, ah, back);
}

/* One list whose first requests fail others, whose completion queues are full, and whose last one fails the sender. */
CASE("verbs.ud-fails-many", "UD: a sender that fails together with many receivers goes to SQE", .rxe = "goes to ERR",
     UD)
{
	enum { QPS = 4 };
	struct ibv_send_wr w[QPS + 1];
	struct side to[QPS];
	struct ibv_ah *ah = new_ah(p.a.pd, way(&p.a, &p.b));
	struct ibv_sge bad = sge(&p.a, 0, 10);

	bad.lkey ^= 0x5500;
	for (int i = 0; i < QPS; i++) {
		to[i] = ready_side(&p.b, 1);
		CHECK(to[i].cq->cqe == 1, "the queue has %d places", to[i].cq->cqe);
		post_room(&to[i], 0, HALF, 100);
		post_room(&to[i], 1, HALF, 100);
		w[i] = datagram(NULL, ah, to[i].qp, KEY);
		w[i].wr_id = i;
		post(&p.a, &w[i]);
		expect(&p.a, i, IBV_WC_SUCCESS, "what fills the queue of one place");
	}
	w[QPS] = datagram(&bad, ah, p.b.qp, KEY);
	w[QPS].wr_id = QPS;
	post_list(&p.a, w, QPS + 1);
	for (int i = 0; i < QPS; i++)
		expect(&p.a, i, IBV_WC_SUCCESS, "what finds no place");
	expect(&p.a, QPS, IBV_WC_LOC_PROT_ERR, "the bad request");
	want_state(&p.a, IBV_QPS_SQE, "the sender");
	for (int i = 0; i < QPS; i++) {
		want_state(&to[i], IBV_QPS_ERR, "who cannot report a receive");
		side_end(&to[i]);
	}
	MUST(to_state(&p.a, IBV_QPS_RTS));
	send_one(&p.a, &p.b, ah, 20, 3);
	DESTROY(ah);
}

CASE("verbs.ud-resumes-early", "UD: what was posted before SQE is flushed, however soon RTS is asked for", UD)
{
	enum { WRS = 8192 };
	static struct ibv_send_wr w[WRS];
	struct ibv_ah *ah = new_ah(p.a.pd, way(&p.a, &p.b));
	struct ibv_sge bad = sge(&p.a, 0, 10);
	struct side s = p.a;

	s.cq = new_cq(s.ctx, 2 * WRS, NULL, NULL);
	s.qp = new_qp_of(IBV_QPT_UD, s.pd, s.cq, (struct ibv_qp_cap){ WRS, 1, 1, 1, 0 });
	ready(s.qp, KEY);
	bad.lkey ^= 0x5500;
	for (int i = 0; i < WRS; i++) {
		/* One in the middle is bad, too, and may not hold up those behind it. */
		w[i] = datagram(i == 0 || i == WRS / 2 ? &bad : NULL, i == WRS / 2 ? NULL : ah, p.b.qp, KEY);
		w[i].wr_id = i;
	}
	post_list(&s, w, WRS);
	MUST(to_state(&s, IBV_QPS_RTS));
	expect(&s, 0, IBV_WC_LOC_PROT_ERR, "the bad request");
	for (int i = 1; i < WRS; i++) {
		struct ibv_wc wc = next(&s, "one behind it");

		CHECK(wc.wr_id == (uint64_t)i && wc.status != IBV_WC_SUCCESS, "request %d: %s", i, ibv_wc_status_str(wc.status));
	}
	send_one(&s, &p.b, ah, 20, 3);
	DESTROY(s.qp, s.cq, ah);
}

/*
 * Who asks for no completion takes for sent what is posted: the handle, and all that the queue still has, may go right
 * behind the last datagram, and they all arrive.
 */
CASE("verbs.ud-silent", "UD: 64 datagrams without a completion, and handle and queue pair gone right behind them",
     .rxe = "sends later, and loses them", UD)
{
	for (int round = 0; round < 20; round++) {
		struct ibv_ah *ah = new_ah(p.a.pd, way(&p.a, &p.b));
		struct ibv_sge list = sge(&p.a, 0, 8);
		struct ibv_send_wr w = datagram(&list, ah, p.b.qp, KEY);

		for (int i = 0; i < DEPTH; i++)
			post_room(&p.b, i, HALF, GRH + 8);
		w.send_flags = 0;
		for (int i = 0; i < DEPTH; i++)
			post(&p.a, &w);
		DESTROY(ah);
		MUST(to_state(&p.a, IBV_QPS_RESET));
		for (int i = 0; i < DEPTH; i++)
			expect(&p.b, i, IBV_WC_SUCCESS, "a datagram that nobody waits for");
		ready(p.a.qp, KEY);
	}
}

enum fate { REFUSED, LEAVES, EITHER };

/* Address vectors that no sensible program makes. In those that leave the datagram is lost, or arrives. */
static const struct {
	const char *text;
	enum fate fate;
	bool v6;
	struct ibv_ah_attr change;	/* what is not 0 of it; a GID that begins with 0xee is one of zeros */
} oddities[] = {
	{ "port 2", REFUSED, false, { .port_num = 2 } },
	{ "port 255", REFUSED, false, { .port_num = 255 } },
	{ "GID 255", REFUSED, false, { .grh.sgid_index = 255 } },
	{ "GID 15", REFUSED, false, { .grh.sgid_index = 15 } },
	{ "a LID and everything at its most", LEAVES, false,
	  { .dlid = 0xffff, .sl = 255, .src_path_bits = 255, .static_rate = 255,
	    .grh = { .flow_label = 0xffffffff, .traffic_class = 255, .hop_limit = 255 } } },
	{ "the same over IPv6", LEAVES, true,
	  { .dlid = 0xffff, .sl = 255, .src_path_bits = 255, .static_rate = 255,
	    .grh = { .flow_label = 0xffffffff, .traffic_class = 255, .hop_limit = 255 } } },
	{ "to IPv6 from IPv4", REFUSED, false, { .grh.dgid.raw = { 0x20, 1, 0x0d, 0xb8, [15] = 1 } } },
	{ "to IPv4 from IPv6", REFUSED, true, { .grh.dgid.raw = { [10] = 0xff, 0xff, 10, 77, 0, 1 } } },
	{ "to a group of IPv6 from IPv4", REFUSED, false, { .grh.dgid.raw = { 0xff, 0x15, [15] = 1 } } },
	{ "to a group of IPv4 from IPv6", REFUSED, true, { .grh.dgid.raw = { [10] = 0xff, 0xff, 239, 0, 0, 1 } } },
	{ "to nowhere", EITHER, true, { .grh.dgid.raw = { 0xee } } },
	{ "to a foreign network of IPv6", EITHER, true, { .grh.dgid.raw = { 0x20, 1, 0x0d, 0xb8, [15] = 1 } } },
	{ "to ::1", EITHER, true, { .grh.dgid.raw = { [15] = 1 } } },
	{ "to all nodes", EITHER, true, { .grh.dgid.raw = { 0xff, 2, [15] = 1 } } },
	{ "to a group of this interface", EITHER, true, { .grh.dgid.raw = { 0xff, 1, [15] = 1 } } },
	{ "to a group of scope 0", EITHER, true, { .grh.dgid.raw = { 0xff, 0, [15] = 1 } } },
	{ "to 0.0.0.0", EITHER, false, { .grh.dgid.raw = { [10] = 0xff, 0xff } } },
	{ "to 127.0.0.1", EITHER, false, { .grh.dgid.raw = { [10] = 0xff, 0xff, 127, 0, 0, 1 } } },
	{ "to 255.255.255.255", EITHER, false, { .grh.dgid.raw = { [10] = 0xff, 0xff, 0xff, 0xff, 0xff, 0xff } } },
	{ "to the broadcast of the network", EITHER, false, { .grh.dgid.raw = { [10] = 0xff, 0xff, 10, 77, 0, 255 } } },
	{ "to all hosts", EITHER, false, { .grh.dgid.raw = { [10] = 0xff, 0xff, 224, 0, 0, 1 } } },
	{ "to 240.0.0.1", EITHER, false, { .grh.dgid.raw = { [10] = 0xff, 0xff, 240, 0, 0, 1 } } },
	{ "to a foreign network of IPv4", EITHER, false, { .grh.dgid.raw = { [10] = 0xff, 0xff, 192, 0, 2, 1 } } },
};

static struct ibv_ah_attr changed(struct ibv_ah_attr attr, const struct ibv_ah_attr *change)
{
	const uint8_t *from = (const uint8_t *)change;
	uint8_t *to = (uint8_t *)&attr;
	bool dgid = false;

	for (int i = 0; i < 16; i++)
		dgid |= change->grh.dgid.raw[i];
	if (dgid)
		attr.grh.dgid = (union ibv_gid){ .raw = { 0 } };
	for (size_t i = 0; i < sizeof(attr); i++)
		to[i] = from[i] ? from[i] : to[i];
	if (attr.grh.dgid.raw[0] == 0xee)
		attr.grh.dgid.raw[0] = 0;
	return attr;
}

static long left_or_lost(void)
{
	return counter_of("sent_pkts") + counter_of("send_lost") + counter_of("local_segments");
}

CASE("verbs.ud-odd-handles", "UD: each odd address vector is refused with an errno, or does no harm", UD)
{
	struct ibv_ah_attr by_lid = way(&p.a, &p.b);

	by_lid.is_global = 0;
	CHECK(!ibv_create_ah(p.a.pd, &by_lid), "a handle without a GID was made");
	for (size_t i = 0; i < COUNT(oddities); i++) {
		use_family(&p.a, oddities[i].v6);
		use_family(&p.b, oddities[i].v6);
		struct ibv_ah_attr attr = changed(way(&p.a, &p.b), &oddities[i].change);

		errno = 0;
		struct ibv_ah *odd = ibv_create_ah(p.a.pd, &attr);

		printf("%s: %s\n", oddities[i].text, odd ? "made" : strerror(errno));
		CHECK(odd || errno, "%s: refused without a reason", oddities[i].text);
		CHECK(oddities[i].fate == EITHER || !odd == (oddities[i].fate == REFUSED), "%s: %s", oddities[i].text,
		      odd ? "it was made" : strerror(errno));
		if (odd) {
			struct ibv_sge list = sge(&p.a, 0, 10);
			/* With a Q_Key of nobody. */
			struct ibv_send_wr w = datagram(&list, odd, p.b.qp, KEY + 1);
			long before = left_or_lost();

			post(&p.a, &w);
			expect(&p.a, 1, IBV_WC_SUCCESS, oddities[i].text);
			WAIT_UNTIL(on_rxe() || left_or_lost() != before, "%s: the datagram is nowhere counted",
				   oddities[i].text);
			DESTROY(odd);
		}
		want_state(&p.a, IBV_QPS_RTS, oddities[i].text);
		struct ibv_ah *good = new_ah(p.a.pd, way(&p.a, &p.b));

		send_one(&p.a, &p.b, good, 20, i);
		DESTROY(good);
	}
}
