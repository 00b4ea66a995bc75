// SPDX-License-Identifier: GPL-2.0
/* Cases about what a receiver, and who looks at the packets, sees of the headers that an address vector asks for. */
#include "datagrams.h"

#include <endian.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

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

/* A datagram to a queue pair, one to a group that it is in, and a connection, for each of several address vectors. */
static void flow(void)
{
	static const struct {
		uint32_t label;
		uint8_t class, hops;
	} asked[] = { { 0, 0, 0 }, { 1, 0x20, 1 }, { 0x3fff, 0xb9, 7 }, { 0x12345, 0xfc, 200 }, { 0xfffff, 0x03, 255 } };

	for (unsigned int i = 0; i < 2 * COUNT(asked); i++) {
		const struct ibv_qp all = { .qp_num = 0xffffff };
		struct side a, b;
		struct pair p;
		bool v6 = i % 2;

		open_ud(&p);
		use_family(&p.a, v6);
		use_family(&p.b, v6);
		for (int group = 0; group < 2; group++) {
			struct ibv_ah_attr attr = way(&p.a, &p.b);
			struct ibv_sge room = sge(&p.b, HALF, 200);
			struct ibv_send_wr w = wr(IBV_WR_SEND, 1, NULL, 0);

			if (group)
				attr.grh.dgid = v6 ? (union ibv_gid){ .raw = { 0xff, 0x15, [15] = 9 } } :
						     (union ibv_gid){ .raw = { [10] = 0xff, 0xff, 239, 1, 2, 3 } };
			attr.grh.flow_label = asked[i / 2].label;
			attr.grh.traffic_class = asked[i / 2].class;
			attr.grh.hop_limit = asked[i / 2].hops;
			struct ibv_ah *ah = new_ah(p.a.pd, attr);

			if (group)
				MUST(ibv_attach_mcast(p.b.qp, &attr.grh.dgid, 0));
			address(&w, ah, group ? &all : p.b.qp, KEY);
			told(group ? "group" : "peer", v6, &attr.grh, p.a.qp, p.b.qp);
			post_recv(&p.b, 2, &room, 1);
			post(&p.a, &w);
			expect(&p.a, 1, IBV_WC_SUCCESS, "a datagram");
			expect(&p.b, 2, IBV_WC_SUCCESS, "its receive");
			/* ib_core gives a handle that leads to a peer the hop limit of the route. */
			judge_way(p.b.buf + HALF, v6, &attr.grh, group ? attr.grh.hop_limit ?: 1 : 64);
			if (group)
				MUST(ibv_detach_mcast(p.b.qp, &attr.grh.dgid, 0));
			MUST(ibv_destroy_ah(ah));
		}
		a = p.a;
		b = p.b;
		a.cq = new_cq(a.ctx, DEPTH, NULL, NULL);
		b.cq = new_cq(b.ctx, DEPTH, NULL, NULL);
		a.qp = make_qp_of(IBV_QPT_RC, &a);
		b.qp = make_qp_of(IBV_QPT_RC, &b);
		for (int side = 0; side < 2; side++) {
			struct side *here = side ? &b : &a, *there = side ? &a : &b;
			struct connection c = usual;

			c.gid_index = here->gid_index;
			c.gid = there->gid;
			c.qpn = there->qp->qp_num;
			c.flow_label = asked[i / 2].label;
			c.traffic_class = asked[i / 2].class;
			c.hop_limit = asked[i / 2].hops;
			connect_qp(here->qp, &c);
		}
		struct ibv_global_route grh = { .flow_label = asked[i / 2].label, .traffic_class = asked[i / 2].class,
						.hop_limit = asked[i / 2].hops };

		told("connection", v6, &grh, a.qp, b.qp);
		send_checked(&a, &b, i);
		MUST(ibv_destroy_qp(a.qp));
		MUST(ibv_destroy_qp(b.qp));
		MUST(ibv_destroy_cq(a.cq));
		MUST(ibv_destroy_cq(b.cq));
		pair_close(&p);
	}
}

/* The first completion in a ring of this process. */
static struct uabi_cqe first_completion(uint64_t id, uint32_t qp_num)
{
	struct mapping rings[64];
	struct uabi_cqe cqe;
	int n = mapped_rings(rings, COUNT(rings));

	for (int i = 0; i < n; i++) {
		memcpy(&cqe, rings[i].at + UABI_CONTROL_SIZE, sizeof(cqe));
		if (cqe.wr_id == id && cqe.opcode == IBV_WC_RECV && cqe.qp_num == qp_num)
			return cqe;
	}
	fail("no ring begins with the completion");
}

/*
 * The VLAN, the MAC address of the sender and the kind of network header of a datagram: libibverbs shows the first alone, the
 * others are for the kernel's own users. VLAN and SMAC in the environment say what must be there.
 */
static void ud_fields(void)
{
	static const uint64_t MARK = 0xfe110ce5f00d0001;
	struct ibv_cq_init_attr_ex init = { .cqe = 16, .wc_flags = IBV_WC_STANDARD_FLAGS | IBV_WC_EX_WITH_CVLAN };
	uint64_t vlan = number_of("VLAN"), mac = number_of("SMAC");
	struct ibv_poll_cq_attr poll = { 0 };
	struct pair p;
	int rc;

	open_ud(&p);
	bool v6 = p.b.gid.raw[0];
	struct ibv_cq_ex *cq = ibv_create_cq_ex(p.b.ctx, &init);
	struct ibv_ah *ah = new_ah(p.a.pd, way(&p.a, &p.b));
	struct side to = p.b;

	CHECK(cq, "ibv_create_cq_ex: %s", strerror(errno));
	to.cq = ibv_cq_ex_to_cq(cq);
	to.qp = make_qp_of(IBV_QPT_UD, &to);
	ready(to.qp, KEY);
	struct ibv_sge list = sge(&p.a, 0, 10), room = sge(&to, HALF, 100);
	struct ibv_send_wr w = wr(IBV_WR_SEND, 1, &list, 1);

	address(&w, ah, to.qp, KEY);
	post_recv(&to, MARK, &room, 1);
	post(&p.a, &w);
	for (double end = now() + patience(); (rc = ibv_start_poll(cq, &poll)) == ENOENT; usleep(100))
		CHECK(now() < end, "no datagram");
	CHECK(!rc && cq->wr_id == MARK && !cq->status, "ibv_start_poll: %d, status %d", rc, cq->status);
	CHECK(ibv_wc_read_cvlan(cq) == vlan, "VLAN %u, not %lu", ibv_wc_read_cvlan(cq), (unsigned long)vlan);
	CHECK(ibv_wc_read_src_qp(cq) == p.a.qp->qp_num && ibv_wc_read_byte_len(cq) == GRH + 10, "from %u, %u bytes",
	      ibv_wc_read_src_qp(cq), ibv_wc_read_byte_len(cq));
	CHECK(ibv_wc_read_wc_flags(cq) == IBV_WC_GRH, "flags %x", ibv_wc_read_wc_flags(cq));
	ibv_end_poll(cq);
	struct uabi_cqe seen = first_completion(MARK, to.qp->qp_num);
	uint64_t smac = 0;

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
	MUST(ibv_destroy_ah(back));
	MUST(ibv_destroy_ah(ah));
	MUST(ibv_destroy_qp(to.qp));
	MUST(ibv_destroy_cq(to.cq));
	pair_close(&p);
}

const struct test_case header_cases[] = {
	{ "flow", flow, "flow labels, traffic classes and hop limits as the receiver sees them", BY_HAND },
	{ "ud-fields", ud_fields, "VLAN, source MAC address and kind of network header of a datagram", BY_HAND },
	{ NULL },
};
