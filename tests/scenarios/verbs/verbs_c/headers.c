// SPDX-License-Identifier: GPL-2.0
/* Cases about what a receiver, and who looks at the packets, sees of the headers that an address vector asks for. */
#include "datagrams.h"

#include <endian.h>

/* Prints one line for who looks at the packets: what was asked for, and between whom. */
static void told(const char *what, bool v6, const struct ibv_global_route *grh, const struct ibv_qp *from,
		 const struct ibv_qp *to)
{
	printf("asked %s %d %u %u %u %u %u\n", what, v6 ? 6 : 4, grh->flow_label, grh->traffic_class, grh->hop_limit,
	       from->qp_num, to->qp_num);
}

/* What the header of a received datagram says of its way. ECN bits do not leave. */
static void judge_way(const uint8_t *header, bool v6, const struct ibv_global_route *grh, int hops)
{
	uint32_t first;
	int class, ttl;

	memcpy(&first, header, 4);
	first = be32toh(first);
	class = v6 ? first >> 20 & 0xff : header[21];
	ttl = v6 ? header[7] : header[28];
	CHECK(class == (grh->traffic_class & 0xfc) && ttl == hops, "traffic class %x of %x, hop limit %d, not %d", class,
	      grh->traffic_class, ttl, hops);
	CHECK(!v6 || (first & 0xfffff) == grh->flow_label, "flow label %x, not %x", first & 0xfffff, grh->flow_label);
}

/* A datagram to b, or to a group that it is in, by an address vector that asks for this; its header has it. */
static void send_datagram(bool v6, bool group, const struct ibv_global_route *asked)
{
	const struct ibv_qp all = { .qp_num = 0xffffff };
	struct ibv_ah_attr attr = way(&p.a, &p.b);

	attr.grh.flow_label = asked->flow_label;
	attr.grh.traffic_class = asked->traffic_class;
	attr.grh.hop_limit = asked->hop_limit;
	if (group)
		attr.grh.dgid = v6 ? (union ibv_gid){ .raw = { 0xff, 0x15, [15] = 9 } } :
				     (union ibv_gid){ .raw = { [10] = 0xff, 0xff, 239, 1, 2, 3 } };
	struct ibv_ah *ah = new_ah(p.a.pd, attr);
	struct ibv_send_wr w = datagram(NULL, ah, group ? &all : p.b.qp, KEY);

	if (group)
		MUST(ibv_attach_mcast(p.b.qp, &attr.grh.dgid, 0));
	told(group ? "group" : "peer", v6, asked, p.a.qp, p.b.qp);
	post_room(&p.b, 2, HALF, 200);
	post(&p.a, &w);
	expect(&p.a, 1, IBV_WC_SUCCESS, "a datagram");
	expect(&p.b, 2, IBV_WC_SUCCESS, "its receive");
	/* ib_core gives a handle that leads to a peer the hop limit of the route. */
	judge_way(p.b.buf + HALF, v6, asked, group ? asked->hop_limit ?: 1 : 64);
	if (group)
		MUST(ibv_detach_mcast(p.b.qp, &attr.grh.dgid, 0));
	DESTROY(ah);
}

/* A message of a connection whose paths ask for this. */
static void send_connected(bool v6, const struct ibv_global_route *asked)
{
	struct side sides[] = { side_beside(&p.a, IBV_QPT_RC, DEPTH), side_beside(&p.b, IBV_QPT_RC, DEPTH) };
	struct connection c = usual;

	c.flow_label = asked->flow_label;
	c.traffic_class = asked->traffic_class;
	c.hop_limit = asked->hop_limit;
	connect_sides(&sides[0], &sides[1], c);
	told("connection", v6, asked, sides[0].qp, sides[1].qp);
	send_checked(&sides[0], &sides[1], 1);
	side_end(&sides[0]);
	side_end(&sides[1]);
}

CASE("verbs.flow", "flow labels, traffic classes and hop limits as the receiver sees them", .paths = BY_HAND)
{
	static const struct ibv_global_route asked[] = {
		{ .hop_limit = 0 },
		{ .flow_label = 1, .traffic_class = 0x20, .hop_limit = 1 },
		{ .flow_label = 0x3fff, .traffic_class = 0xb9, .hop_limit = 7 },
		{ .flow_label = 0x12345, .traffic_class = 0xfc, .hop_limit = 200 },
		{ .flow_label = 0xfffff, .traffic_class = 0x03, .hop_limit = 255 },
	};

	for (unsigned int i = 0; i < 2 * COUNT(asked); i++) {
		bool v6 = i % 2;

		pair_open(&p, &(struct options){ .type = IBV_QPT_UD }, 2 * HALF);
		use_family(&p.a, v6);
		use_family(&p.b, v6);
		send_datagram(v6, false, &asked[i / 2]);
		send_datagram(v6, true, &asked[i / 2]);
		send_connected(v6, &asked[i / 2]);
		pair_close(&p);
	}
}

/*
 * The VLAN, the MAC address of the sender and the kind of network header of a datagram: libibverbs shows the first alone, the
 * others are for the kernel's own users. VLAN and SMAC in the environment say what must be there.
 */
CASE("verbs.ud-fields", "VLAN, source MAC address and kind of network header of a datagram", .paths = BY_HAND,
     .opt = { .type = IBV_QPT_UD }, .len = 2 * HALF)
{
	static const uint64_t MARK = 0xfe110ce5f00d0001;
	const struct ibv_cq_init_attr_ex init = { .cqe = 16, .wc_flags = IBV_WC_STANDARD_FLAGS | IBV_WC_EX_WITH_CVLAN };
	uint64_t vlan = number_of("VLAN"), mac = number_of("SMAC");
	struct ibv_poll_cq_attr poll = { 0 };
	int rc;
	bool v6 = p.b.gid.raw[0];
	struct ibv_cq_ex *cq = new_cq_ex(p.b.ctx, init);
	struct ibv_ah *ah = new_ah(p.a.pd, way(&p.a, &p.b));
	struct side to = p.b;

	to.cq = ibv_cq_ex_to_cq(cq);
	to.qp = make_qp_of(IBV_QPT_UD, &to);
	ready(to.qp, KEY);
	struct ibv_sge list = sge(&p.a, 0, 10);
	struct ibv_send_wr w = datagram(&list, ah, to.qp, KEY);

	post_room(&to, MARK, HALF, 100);
	post(&p.a, &w);
	for (double end = now() + patience(); (rc = ibv_start_poll(cq, &poll)) == ENOENT; usleep(100))
		CHECK(now() < end, "no datagram");
	CHECK(!rc && cq->wr_id == MARK && !cq->status, "ibv_start_poll: %d, status %d", rc, cq->status);
	CHECK(ibv_wc_read_cvlan(cq) == vlan, "VLAN %u, not %lu", ibv_wc_read_cvlan(cq), (unsigned long)vlan);
	CHECK(ibv_wc_read_src_qp(cq) == p.a.qp->qp_num && ibv_wc_read_byte_len(cq) == GRH + 10, "from %u, %u bytes",
	      ibv_wc_read_src_qp(cq), ibv_wc_read_byte_len(cq));
	CHECK(ibv_wc_read_wc_flags(cq) == IBV_WC_GRH, "flags %x", ibv_wc_read_wc_flags(cq));
	ibv_end_poll(cq);
	/* A receive ring has the mark, too, with one entry behind it. */
	struct uabi_cqe seen;
	uint64_t smac = 0;

	memcpy(&seen, marked_ring(MARK, IBV_WC_SUCCESS) + UABI_CONTROL_SIZE, sizeof(seen));
	CHECK(seen.opcode == IBV_WC_RECV && seen.qp_num == to.qp->qp_num, "another completion");
	for (int i = 0; i < 6; i++)
		smac = smac << 8 | seen.smac[i];
	CHECK(seen.vlan == vlan && !!(seen.flags & UABI_WC_WITH_VLAN) == !!vlan, "VLAN %u, flags %x", seen.vlan, seen.flags);
	CHECK(smac == mac && (seen.flags & UABI_WC_WITH_SMAC), "from %012lx, not %012lx", (unsigned long)smac,
	      (unsigned long)mac);
	CHECK(seen.network_hdr == (v6 ? UABI_NETWORK_IPV6 : UABI_NETWORK_IPV4) && (seen.flags & UABI_WC_WITH_NETWORK_HDR),
	      "network header %u", seen.network_hdr);
	/* A handle made of it leads back by the same VLAN. */
	struct ibv_wc wc = { .wc_flags = IBV_WC_GRH, .src_qp = p.a.qp->qp_num };
	struct ibv_ah *back = ibv_create_ah_from_wc(p.b.pd, &wc, (struct ibv_grh *)(p.b.buf + HALF), 1);

	CHECK(back, "ibv_create_ah_from_wc: %s", strerror(errno));
	expect(&p.a, 1, IBV_WC_SUCCESS, "its request");
	send_one(&p.b, &p.a, back, 77, 2);
	DESTROY(back, ah, to.qp, to.cq);
}
