// SPDX-License-Identifier: GPL-2.0
/*
 * Commands that no library would send: on the device file of uverbs, by write() and by ioctl(), with any number, any
 * lengths, and arguments at their limits or random; and mappings of any offset and size. Whatever is refused, the kernel must stay
 * whole, and closing the file must take everything with it. SEED and COUNT are in the environment.
 */
#include "pair.h"

#include <rdma/ib_user_verbs.h>
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/rdma_user_ioctl_cmds.h>
#include <setjmp.h>
#include <sys/ioctl.h>

enum {
	PAGE = 4096, ARENA = 64 * PAGE, LONGEST_RESPONSE = 1 << 20,
	/* Bytes of a command. */
	MOST = 512,
	COMMANDS_OF_ONE_FILE = 2000,
};

static uint64_t state;
/* Memory that arguments may name. */
static uint8_t *arena;
/* By write() and by ioctl(). */
static unsigned int taken[2][64], refused[64];
/* Ioctls of any form that were taken, and mappings. */
static unsigned int odd_ioctls, mappings, remapped;

static uint64_t dice(void)
{
	/* xorshift64* */
	state ^= state >> 12;
	state ^= state << 25;
	state ^= state >> 27;
	return state * 2685821657736338717ull;
}

static uint64_t below(uint64_t n)
{
	return dice() % n;
}

static union ibv_gid own_gid;

static uint64_t address(void)
{
	return below(8) ? (uintptr_t)arena + below(ARENA) / 8 * 8 : dice();
}

/* A word of 32 bits: a handle that may exist, a small number, a limit, or anything. */
static uint32_t word(void)
{
	static const uint32_t limits[] = { 0x7fffffff, 0x80000000, 0xffffffff, 0xfffffffe, 65535, 65536, 4096, 1 << 20 };

	switch (below(8)) {
	case 0: case 1: case 2: case 3:
		return below(8);
	case 4: case 5:
		return below(4097);
	case 6:
		return limits[below(COUNT(limits))];
	default:
		return dice();
	}
}

/* Handles that the kernel gave out for this file, the newest of each kind; some of them are gone again. */
enum kind { NOTHING, PD, CQ, QP, MR, SRQ, MW, AH, CHANNEL, KINDS };
enum { KEPT = 4 };
static uint32_t handles[KINDS][KEPT];
static bool kept[KINDS];

/* Rings that the driver made, as its part of a response says: where to map them, and how much. */
static struct ring {
	uint64_t offset, length;
} rings[KEPT];

/* What the driver and the core expect of a command, roughly: its own part, and the room for its response. */
struct shape {
	uint32_t number;
	size_t in, out;
	bool unserved;
	bool ends;		/* what it names is gone then */
	enum kind makes;	/* its handle is the first word of the response */
	bool has_ring;		/* of which the driver's part of the response tells */
	struct {
		enum kind kind;
		size_t at;
	} names[4];		/* the handles in the request */
	struct {
		size_t at, len;
		int least;
		unsigned int many;
	} fields[5];		/* what would be taken there: one of so many numbers */
};

#define SHAPE(name, type, ...) { IB_USER_VERBS_CMD_##name, sizeof(struct ib_uverbs_##type), \
				 sizeof(struct ib_uverbs_##type##_resp), __VA_ARGS__ }
/* Without a response. */
#define MUTE(name, type, ...) { IB_USER_VERBS_CMD_##name, sizeof(struct ib_uverbs_##type), 0, __VA_ARGS__ }
#define NAMED(kind, type, field) { kind, offsetof(struct ib_uverbs_##type, field) }
#define FIELD(type, field, least, many) { offsetof(struct ib_uverbs_##type, field), \
					  sizeof(((struct ib_uverbs_##type *)0)->field), least, many }

static const struct shape shapes[] = {
	SHAPE(QUERY_DEVICE, query_device), SHAPE(QUERY_PORT, query_port, .fields = { FIELD(query_port, port_num, 1, 1) }),
	SHAPE(ALLOC_PD, alloc_pd, .makes = PD),
	MUTE(DEALLOC_PD, dealloc_pd, .ends = true, .names = { NAMED(PD, dealloc_pd, pd_handle) }),
	SHAPE(REG_MR, reg_mr, .makes = MR, .names = { NAMED(PD, reg_mr, pd_handle) }),
	SHAPE(REREG_MR, rereg_mr, .names = { NAMED(MR, rereg_mr, mr_handle), NAMED(PD, rereg_mr, pd_handle) }),
	MUTE(DEREG_MR, dereg_mr, .ends = true, .names = { NAMED(MR, dereg_mr, mr_handle) }),
	SHAPE(ALLOC_MW, alloc_mw, .makes = MW, .names = { NAMED(PD, alloc_mw, pd_handle) },
	      .fields = { FIELD(alloc_mw, mw_type, 1, 2) }),
	MUTE(DEALLOC_MW, dealloc_mw, .ends = true, .names = { NAMED(MW, dealloc_mw, mw_handle) }),
	SHAPE(CREATE_COMP_CHANNEL, create_comp_channel, .makes = CHANNEL),
	SHAPE(CREATE_CQ, create_cq, .makes = CQ, .has_ring = true,
	      .fields = { FIELD(create_cq, cqe, 1, 64), FIELD(create_cq, comp_channel, -1, 1) }),
	SHAPE(RESIZE_CQ, resize_cq, .has_ring = true, .names = { NAMED(CQ, resize_cq, cq_handle) },
	      .fields = { FIELD(resize_cq, cqe, 1, 200) }),
	{ IB_USER_VERBS_CMD_POLL_CQ, sizeof(struct ib_uverbs_poll_cq), 256, .unserved = true },
	MUTE(REQ_NOTIFY_CQ, req_notify_cq, .unserved = true),
	SHAPE(DESTROY_CQ, destroy_cq, .ends = true, .names = { NAMED(CQ, destroy_cq, cq_handle) }),
	SHAPE(CREATE_QP, create_qp, .makes = QP, .has_ring = true,
	      .names = { NAMED(PD, create_qp, pd_handle), NAMED(CQ, create_qp, send_cq_handle),
			 NAMED(CQ, create_qp, recv_cq_handle), NAMED(SRQ, create_qp, srq_handle) },
	      .fields = { FIELD(create_qp, max_send_wr, 0, 64), FIELD(create_qp, max_recv_wr, 0, 64),
			  FIELD(create_qp, max_send_sge, 0, 5), FIELD(create_qp, max_recv_sge, 0, 5),
			  FIELD(create_qp, max_inline_data, 0, 128) }),
	SHAPE(QUERY_QP, query_qp, .names = { NAMED(QP, query_qp, qp_handle) }),
	MUTE(MODIFY_QP, modify_qp, .names = { NAMED(QP, modify_qp, qp_handle) }),
	SHAPE(DESTROY_QP, destroy_qp, .ends = true, .names = { NAMED(QP, destroy_qp, qp_handle) }),
	SHAPE(POST_SEND, post_send, .names = { NAMED(QP, post_send, qp_handle) },
	      .fields = { FIELD(post_send, wqe_size, sizeof(struct ib_uverbs_send_wr), 1) }),
	SHAPE(POST_RECV, post_recv, .names = { NAMED(QP, post_recv, qp_handle) },
	      .fields = { FIELD(post_recv, wqe_size, sizeof(struct ib_uverbs_send_wr), 1) }),
	SHAPE(CREATE_AH, create_ah, .makes = AH, .names = { NAMED(PD, create_ah, pd_handle) }),
	MUTE(DESTROY_AH, destroy_ah, .ends = true, .names = { NAMED(AH, destroy_ah, ah_handle) }),
	MUTE(ATTACH_MCAST, attach_mcast, .names = { NAMED(QP, attach_mcast, qp_handle) }),
	MUTE(DETACH_MCAST, detach_mcast, .names = { NAMED(QP, detach_mcast, qp_handle) }),
	SHAPE(CREATE_SRQ, create_srq, .makes = SRQ, .has_ring = true, .names = { NAMED(PD, create_srq, pd_handle) },
	      .fields = { FIELD(create_srq, max_wr, 0, 64), FIELD(create_srq, max_sge, 0, 5) }),
	SHAPE(QUERY_SRQ, query_srq, .names = { NAMED(SRQ, query_srq, srq_handle) }),
	MUTE(MODIFY_SRQ, modify_srq, .names = { NAMED(SRQ, modify_srq, srq_handle) },
	     .fields = { FIELD(modify_srq, attr_mask, 0, 4), FIELD(modify_srq, max_wr, 0, 200),
			 FIELD(modify_srq, srq_limit, 0, 20) }),
	SHAPE(DESTROY_SRQ, destroy_srq, .ends = true, .names = { NAMED(SRQ, destroy_srq, srq_handle) }),
};

static const struct shape *shape_of(uint32_t number)
{
	for (size_t i = 0; i < COUNT(shapes); i++)
		if (shapes[i].number == number)
			return &shapes[i];
	return NULL;
}

/* What is short stands in the attribute itself. */
static struct ib_uverbs_attr input(uint16_t id, const uint8_t *from, size_t len)
{
	struct ib_uverbs_attr attr = { .attr_id = id, .len = len, .data = (uintptr_t)from };

	if (len <= sizeof(attr.data))
		memcpy(&attr.data, from, len);
	return attr;
}

/* The same by the ioctl that stands for write(), as libraries of today do it. */
static int command_by_ioctl(int fd, uint32_t number, const uint8_t *body, const struct shape *shape, size_t in, size_t out)
{
	struct {
		struct ib_uverbs_ioctl_hdr head;
		struct ib_uverbs_attr attrs[5];
	} req = { .head = { .object_id = UVERBS_OBJECT_DEVICE, .method_id = UVERBS_METHOD_INVOKE_WRITE,
			    .driver_id = UABI_DRIVER_ID } };
	struct ib_uverbs_attr *at = req.attrs;
	size_t core = in < shape->in ? in : shape->in;

	*at++ = input(UVERBS_ATTR_CORE_IN, body, core);
	*at++ = (struct ib_uverbs_attr){ .attr_id = UVERBS_ATTR_WRITE_CMD, .len = 8, .flags = UVERBS_ATTR_F_MANDATORY,
					 .data = number };
	if (shape->out)
		*at++ = (struct ib_uverbs_attr){ .attr_id = UVERBS_ATTR_CORE_OUT, .len = shape->out,
						 .flags = UVERBS_ATTR_F_MANDATORY, .data = *(const uint64_t *)(const void *)body };
	if (in > core)
		*at++ = input(UVERBS_ATTR_UHW_IN, body + core, in - core);
	if (out > shape->out)
		*at++ = (struct ib_uverbs_attr){ .attr_id = UVERBS_ATTR_UHW_OUT, .len = out - shape->out,
						 .data = *(const uint64_t *)(const void *)body + shape->out };
	req.head.num_attrs = at - req.attrs;
	req.head.length = sizeof(req.head) + req.head.num_attrs * sizeof(req.attrs[0]);
	return ioctl(fd, RDMA_VERBS_IOCTL, &req);
}

static void get_context(int fd)
{
	struct {
		struct ib_uverbs_get_context core;
		uint64_t ours;
	} req = { .core.response = (uintptr_t)arena };
	struct ib_uverbs_get_context_resp *resp = (void *)arena;

	MUST(uverbs_command(fd, IB_USER_VERBS_CMD_GET_CONTEXT, &req, sizeof(req), sizeof(*resp) + 64));
	close(resp->async_fd);
}

static uint32_t handle_of(enum kind kind)
{
	return below(8) ? handles[kind][below(KEPT)] : word();
}

static void keep(enum kind kind, uint32_t handle)
{
	/* The first of a file is everywhere. */
	for (int i = 0; !kept[kind] && i < KEPT; i++)
		handles[kind][i] = handle;
	kept[kind] = true;
	handles[kind][below(KEPT)] = handle;
}

/* The step of a queue pair's life that is asked for, mostly with what it needs. */
static void fill_in_modify(struct ib_uverbs_modify_qp *c)
{
	static const struct {
		uint8_t state;
		uint32_t mask;
	} steps[] = {
		{ IBV_QPS_INIT, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY },
		{ IBV_QPS_INIT, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS },
		{ IBV_QPS_RTR, IBV_QP_STATE }, { IBV_QPS_RTS, IBV_QP_STATE | IBV_QP_SQ_PSN }, { IBV_QPS_SQD, IBV_QP_STATE },
		{ IBV_QPS_ERR, IBV_QP_STATE }, { IBV_QPS_RESET, IBV_QP_STATE },
	};
	unsigned int step = below(COUNT(steps));

	c->attr_mask = steps[step].mask;
	c->qp_state = below(8) ? steps[step].state : below(8);
	c->port_num = 1;
}

/* What would be taken: the contents of commands that other commands need. */
static void fill_in(uint32_t number, void *body)
{
	static const uint8_t multicast[16] = { 0xff, 0x15, [13] = 1, [15] = 0x51 };
	const struct shape *shape = shape_of(number);
	struct ib_uverbs_reg_mr *mr = body;
	struct ib_uverbs_rereg_mr *again = body;
	struct ib_uverbs_create_qp *qp = body;
	struct ib_uverbs_create_ah *ah = body;

	for (size_t i = 0; shape && i < COUNT(shape->names) && shape->names[i].kind; i++)
		*(uint32_t *)((uint8_t *)body + shape->names[i].at) = handle_of(shape->names[i].kind);
	for (size_t i = 0; shape && i < COUNT(shape->fields) && shape->fields[i].many; i++) {
		/* The low bytes come first. */
		uint64_t value = shape->fields[i].least + below(shape->fields[i].many);

		memcpy((uint8_t *)body + shape->fields[i].at, &value, shape->fields[i].len);
	}
	switch (number) {
	case IB_USER_VERBS_CMD_REG_MR:
		mr->start = mr->hca_va = (uintptr_t)arena + below(ARENA / 2);
		mr->length = below(ARENA / 2);
		mr->access_flags = below(8);
		break;
	case IB_USER_VERBS_CMD_REREG_MR:
		again->flags = 1 + below(7);
		again->start = again->hca_va = (uintptr_t)arena + below(ARENA / 2);
		again->length = below(ARENA / 2);
		again->access_flags = below(8);
		break;
	case IB_USER_VERBS_CMD_CREATE_QP:
		/* Most commands that name a queue pair are for UD. */
		qp->qp_type = below(3) ? IBV_QPT_UD : below(2) ? IBV_QPT_RC : IBV_QPT_UC;
		qp->is_srq = below(4) == 0;
		break;
	case IB_USER_VERBS_CMD_CREATE_AH:
		ah->attr = (struct ib_uverbs_ah_attr){ .is_global = 1, .port_num = 1,
						       .grh = { .sgid_index = places[0].gid_index, .hop_limit = 1 } };
		memcpy(ah->attr.grh.dgid, &own_gid, sizeof(own_gid));
		break;
	case IB_USER_VERBS_CMD_ATTACH_MCAST:
	case IB_USER_VERBS_CMD_DETACH_MCAST:
		memcpy(((struct ib_uverbs_attach_mcast *)body)->gid, multicast, sizeof(multicast));
		break;
	case IB_USER_VERBS_CMD_MODIFY_QP:
		fill_in_modify(body);
		break;
	}
}

/* What was made is kept, and may be named by what comes later. */
static void note(const struct shape *shape, const uint8_t *response)
{
	uint32_t made = *(const uint32_t *)(const void *)response;

	if (shape->makes == CHANNEL)
		close(made);
	else if (shape->makes)
		keep(shape->makes, made);
	if (shape->has_ring)
		memcpy(&rings[below(KEPT)], response + shape->out, sizeof(rings[0]));
}

/* One that is served, and was not yet taken in both ways. */
static const struct shape *missed(void)
{
	for (size_t i = 0; i < COUNT(shapes); i++)
		if (!shapes[i].unserved && !(taken[0][shapes[i].number] && taken[1][shapes[i].number]))
			return &shapes[i];
	return NULL;
}

/* One command: of the right form and right contents, with some words changed, or of no right form. Often it is `wanted`. */
static void throw_one(int fd, const struct shape *wanted)
{
	uint64_t body[2 * MOST / 8] = { 0 };
	const struct shape *shape = &shapes[below(COUNT(shapes))];

	/* What is made lives a while. */
	if (shape->ends && below(4))
		shape = &shapes[below(COUNT(shapes))];
	if (wanted && !below(4))
		shape = wanted;
	uint32_t number = below(32) ? shape->number : word();
	size_t in = shape->in, out = shape->out + below(8) * 8;
	uint32_t *words = (uint32_t *)body;
	bool ok, by_ioctl = below(2);

	if (below(8))
		fill_in(number, body);
	else
		for (size_t i = 0; i < in / 4; i++)
			words[i] = word();
	for (unsigned int n = below(2) ? below(4) : 0; n; n--)
		words[below(in / 4)] = word();
	if (!below(8))
		body[below(in / 8 + 1)] = address();
	/* Behind what the core knows is the driver's part: zeros, or what it cannot know. */
	in += below(3) * 8;
	if (!below(8))
		words[in / 4 + below(8)] = word();
	/* The address of the response is the first field of all that have one. */
	if (shape->out)
		body[0] = below(32) ? (uintptr_t)arena : address();
	if (!below(16))
		in = below(MOST) / 4 * 4;
	if (!below(16))
		out = word() & 0x3fffc;
	if (by_ioctl)
		ok = !command_by_ioctl(fd, number, (uint8_t *)body, shape, in, out);
	else
		ok = !uverbs_command(fd, number, body, in, out);
	if (ok && shape->out && body[0] == (uintptr_t)arena && shape_of(number))
		note(shape_of(number), arena);
	if (number < 64)
		ok ? taken[by_ioctl][number]++ : refused[number]++;
}

/* An ioctl with any object, method and attributes. */
static void throw_ioctl(int fd)
{
	struct {
		struct ib_uverbs_ioctl_hdr head;
		struct ib_uverbs_attr attrs[8];
	} req;
	unsigned int n = below(9);

	memset(&req, 0, sizeof(req));
	req.head = (struct ib_uverbs_ioctl_hdr){
		.length = sizeof(req.head) + n * sizeof(req.attrs[0]),
		.object_id = below(4) ? below(24) : word(), .method_id = below(4) ? below(8) : word(),
		.num_attrs = below(16) ? n : word(), .driver_id = below(16) ? UABI_DRIVER_ID : word(),
	};
	for (unsigned int i = 0; i < n; i++)
		req.attrs[i] = (struct ib_uverbs_attr){
			.attr_id = below(4) ? below(32) : 0x1000 + below(8), .len = below(4) * 8, .flags = below(2),
			.data = below(2) ? word() : address(),
		};
	odd_ioctls += !ioctl(fd, RDMA_VERBS_IOCTL, &req);
}

static sigjmp_buf back;
static volatile sig_atomic_t may_fault;

static void on_fault(int number)
{
	if (!may_fault) {
		static const char text[] = "failed: a fault outside of the mappings\n";

		_exit(write(STDOUT_FILENO, text, sizeof(text) - 1) > 0 ? 1 : number);
	}
	siglongjmp(back, 1);
}

/* A mapping of whatever the kernel has made, whole or in part, or of nothing; what is mapped is written to. */
static void throw_mapping(int fd)
{
	static const int rights[] = { PROT_READ, PROT_READ | PROT_WRITE, PROT_NONE, PROT_READ | PROT_EXEC };
	static const int kinds[] = { MAP_SHARED, MAP_PRIVATE };
	static const int advice[] = { MADV_DONTNEED, MADV_REMOVE, MADV_DOFORK, MADV_FREE, MADV_WILLNEED, MADV_HUGEPAGE };
	unsigned int which = below(KEPT);
	size_t len = below(2) ? rings[which].length % (1 << 20) : (1 + below(32)) * PAGE;
	off_t at = below(4) ? (off_t)rings[which].offset : (off_t)(dice() >> 12 << 12 & INT64_MAX);
	int prot = rights[below(4)];

	if (!below(4))
		at += PAGE;
	if (!len)
		return;
	uint8_t *map = mmap(NULL, len, prot, kinds[below(2)], fd, at & INT64_MAX);

	if (map == MAP_FAILED)
		return;
	mappings++;
	/* It may be elsewhere, or longer, or twice; or its pages may be gone, or be other ones in a child. */
	if (!below(4)) {
		size_t more = below(2) ? len : below(2) ? len + PAGE : PAGE;
		uint8_t *moved = mremap(map, below(8) ? len : 0, more, MREMAP_MAYMOVE | (below(8) ? 0 : MREMAP_DONTUNMAP));

		if (moved != MAP_FAILED) {
			map = moved;
			len = more;
			remapped++;
		}
	}
	if (!below(4))
		madvise(map, len, advice[below(COUNT(advice))]);
	may_fault = 1;
	if (!sigsetjmp(back, 1)) {
		for (size_t i = 0; i < len && prot & PROT_READ; i += 64) {
			volatile uint8_t *byte = map + i;

			if (prot & PROT_WRITE)
				*byte = dice();
			else
				(void)*byte;
		}
	}
	may_fault = 0;
	if (!below(4))
		munmap(map + len / 2 / PAGE * PAGE, PAGE);
	/* The mapping goes now, or with the file, or with the process. */
	if (below(4))
		munmap(map, len);
}

CASE("commands.random", "uverbs commands, ioctls and mappings with any numbers, lengths and arguments",
     .paths = LOCAL_PATH, .seconds = 240, .rxe = "is not judged here")
{
	unsigned int n = number_of("COUNT");
	struct sigaction act = { .sa_handler = on_fault };
	struct ibv_context *ctx = open_device(places[0].device);

	own_gid = gid_of(ctx, places[0].gid_index);
	DESTROY(ctx);
	state = number_of("SEED") | 1;
	sigaction(SIGBUS, &act, NULL);
	sigaction(SIGSEGV, &act, NULL);
	/* A response may begin at the last byte. */
	arena = new_memory(ARENA + LONGEST_RESPONSE);
	/* Some commands are seldom taken, for what they need is seldom there: they are tried until they were. So is the rest. */
	for (unsigned int i = 0; i < n || (i < 16 * n && (missed() || !mappings || !remapped || !odd_ioctls));
	     i += COMMANDS_OF_ONE_FILE) {
		const struct shape *wanted = i < n ? NULL : missed();
		int fd = open_device_file();

		/* Sometimes there is no context, which few commands do without. */
		memset(handles, 0, sizeof(handles));
		memset(kept, 0, sizeof(kept));
		memset(rings, 0, sizeof(rings));
		if (i % (8 * COMMANDS_OF_ONE_FILE))
			get_context(fd);
		for (unsigned int k = 0; k < COMMANDS_OF_ONE_FILE; k++) {
			unsigned int what = below(8);

			if (what == 0)
				throw_ioctl(fd);
			else if (what == 1)
				throw_mapping(fd);
			else
				throw_one(fd, wanted);
		}
		close(fd);
	}
	/* Else nothing was reached behind the first look. */
	for (size_t i = 0; i < COUNT(shapes); i++) {
		const unsigned int number = shapes[i].number, by_write = taken[0][number], by_ioctl = taken[1][number];

		printf("command %u: %u taken by write, %u by ioctl, %u refused\n", number, by_write, by_ioctl, refused[number]);
		CHECK(shapes[i].unserved || (by_write && by_ioctl), "command %u was taken %u times by write, %u by ioctl", number,
		      by_write, by_ioctl);
	}
	CHECK(mappings && remapped, "%u rings were mapped, %u mapped again", mappings, remapped);
	CHECK(odd_ioctls, "no ioctl of any form was ever taken");
	printf("%u other ioctls; %u mappings, %u moved\n", odd_ioctls, mappings, remapped);
}
