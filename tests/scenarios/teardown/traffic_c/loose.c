// SPDX-License-Identifier: GPL-2.0
/*
 * Beside the connection of a side: messages of UC, or datagrams, that nobody answers. They may be lost, and are when
 * things are taken away; what comes must be whole. Handles of datagrams are made and destroyed all the time.
 */
#include "traffic.h"

enum { DEPTH = 8, ROOMS = 4, GRH = 40, QKEY = 0x1dea, MOST = 1024 };

static struct ibv_pd *pd;
static struct ibv_qp *qp;
static struct ibv_ah *ah;
/* The handle before it, which requests before this one may still name: a handle outlives them. */
static struct ibv_ah *old_ah;
static uint64_t old_until;
static struct ibv_mr *mr;
static struct ibv_ah_attr peer;
static uint8_t *rooms;
static const uint8_t *source;
static uint32_t source_key, source_len, peer_qpn, peer_seed;
static bool posted[ROOMS];
static uint64_t turn;

static bool is_ud(void)
{
	return qp->qp_type == IBV_QPT_UD;
}

uint32_t loose_open(struct ibv_pd *of, struct ibv_cq *cq, bool datagrams)
{
	pd = of;
	rooms = new_memory(ROOMS * (GRH + MOST));
	mr = new_mr(pd, rooms, ROOMS * (GRH + MOST), IBV_ACCESS_LOCAL_WRITE);
	qp = new_qp_of(datagrams ? IBV_QPT_UD : IBV_QPT_UC, pd, cq, (struct ibv_qp_cap){ DEPTH, ROOMS, 1, 1, 0 });
	return qp->qp_num;
}

void loose_connect(const struct connection *c, uint32_t qpn, uint32_t seed, const struct ibv_mr *from)
{
	struct connection mine = *c;

	source = from->addr;
	source_key = from->lkey;
	peer_qpn = qpn;
	peer_seed = seed;
	peer = (struct ibv_ah_attr){ .is_global = 1, .port_num = 1,
				     .grh = { .sgid_index = c->gid_index, .hop_limit = 64, .dgid = c->gid } };
	mine.qpn = qpn;
	mine.access = IBV_ACCESS_REMOTE_WRITE;
	mine.qkey = QKEY;
	connect_qp(qp, &mine);
	if (!is_ud())
		return;
	ah = new_ah(pd, peer);
}

void loose_post(uint32_t size)
{
	for (int i = 0; i < ROOMS; i++) {
		struct ibv_sge room = { .addr = (uintptr_t)rooms + i * (GRH + MOST), .length = GRH + MOST,
					.lkey = mr->lkey };

		posted[i] = posted[i] || !post_receive(qp, LOOSE | LOOSE_RECEIVE | i, &room, 1);
	}
	source_len = size < MOST ? size : MOST;
	for (int i = 0; i < 2; i++) {
		struct ibv_sge list = { .addr = (uintptr_t)source, .length = turn % 3 ? source_len : 1,
					.lkey = source_key };
		struct ibv_send_wr w = { .wr_id = LOOSE | turn, .opcode = IBV_WR_SEND, .sg_list = &list, .num_sge = 1,
					 .send_flags = turn % 4 ? 0 : IBV_SEND_SIGNALED };

		if (is_ud()) {
			w.wr.ud.ah = ah;
			w.wr.ud.remote_qpn = peer_qpn;
			w.wr.ud.remote_qkey = QKEY;
		}
		if ((is_ud() && !ah) || post_send(qp, &w))
			break;
		turn++;
	}
}

void loose_renew(void)
{
	if (!ah || old_ah)
		return;
	old_ah = ah;
	old_until = turn;
	/* Refused when the device goes: then there are no datagrams any more. */
	ah = ibv_create_ah(pd, &peer);
}

void loose_take(const struct ibv_wc *wc)
{
	const uint32_t header = is_ud() ? GRH : 0;
	const int room = wc->wr_id & 0xff;

	if (wc->status != IBV_WC_SUCCESS && wc->status != IBV_WC_WR_FLUSH_ERR)
		broken("a message that may be lost: %s", ibv_wc_status_str(wc->status));
	if (!(wc->wr_id & LOOSE_RECEIVE)) {
		if (old_ah && (wc->wr_id & ~LOOSE) >= old_until) {
			ibv_destroy_ah(old_ah);
			old_ah = NULL;
		}
		return;
	}
	posted[room] = false;
	if (wc->status != IBV_WC_SUCCESS)
		return;
	const uint32_t len = wc->byte_len - header;

	if (wc->byte_len < header || (len != 1 && len != source_len))
		broken("%u bytes of a message that may be lost", wc->byte_len);
	compare_piece(rooms + room * (GRH + MOST) + header, 0, len, peer_seed, "a message that may be lost");
}

void loose_destroy(void)
{
	DESTROY(qp);
	if (old_ah)
		DESTROY(old_ah);
	if (ah)
		DESTROY(ah);
	DESTROY(mr);
}
