// SPDX-License-Identifier: GPL-2.0
/*
 * Commands that no library would send: on the device file of uverbs, by write(), with any number, any lengths, and
 * arguments at their limits or random; and mappings of any offset and size. Whatever is refused, the kernel must stay
 * whole, and closing the file must take everything with it. SEED and COUNT are in the environment.
 */
#define _GNU_SOURCE
#include "pair.h"

#include <errno.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/rdma_user_ioctl_cmds.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
	PAGE = 4096, ARENA = 64 * PAGE, LONGEST_RESPONSE = 1 << 20,
	/* Bytes of a command. */
	MOST = 512,
	COMMANDS_OF_ONE_FILE = 400,
};

static uint64_t state;
/* Memory that arguments may name. */
static uint8_t *arena;
static unsigned int taken[64], refused[64];

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
		return limits[below(sizeof(limits) / sizeof(limits[0]))];
	default:
		return dice();
	}
}

/* What the driver and the core expect of a command, roughly: its own part, and the room for its response. */
struct shape {
	uint32_t number;
	size_t in, out;
};

#define SHAPE(name, type) { IB_USER_VERBS_CMD_##name, sizeof(struct ib_uverbs_##type), \
			    sizeof(struct ib_uverbs_##type##_resp) }

static const struct shape shapes[] = {
	SHAPE(QUERY_DEVICE, query_device), SHAPE(QUERY_PORT, query_port), SHAPE(ALLOC_PD, alloc_pd),
	{ IB_USER_VERBS_CMD_DEALLOC_PD, sizeof(struct ib_uverbs_dealloc_pd), 0 },
	SHAPE(REG_MR, reg_mr), SHAPE(REREG_MR, rereg_mr),
	{ IB_USER_VERBS_CMD_DEREG_MR, sizeof(struct ib_uverbs_dereg_mr), 0 },
	SHAPE(ALLOC_MW, alloc_mw), { IB_USER_VERBS_CMD_DEALLOC_MW, sizeof(struct ib_uverbs_dealloc_mw), 0 },
	SHAPE(CREATE_COMP_CHANNEL, create_comp_channel), SHAPE(CREATE_CQ, create_cq), SHAPE(RESIZE_CQ, resize_cq),
	{ IB_USER_VERBS_CMD_POLL_CQ, sizeof(struct ib_uverbs_poll_cq), 256 },
	{ IB_USER_VERBS_CMD_REQ_NOTIFY_CQ, sizeof(struct ib_uverbs_req_notify_cq), 0 },
	SHAPE(DESTROY_CQ, destroy_cq), SHAPE(CREATE_QP, create_qp), SHAPE(QUERY_QP, query_qp),
	{ IB_USER_VERBS_CMD_MODIFY_QP, sizeof(struct ib_uverbs_modify_qp), 0 },
	SHAPE(DESTROY_QP, destroy_qp), SHAPE(POST_SEND, post_send), SHAPE(POST_RECV, post_recv),
	SHAPE(CREATE_AH, create_ah), { IB_USER_VERBS_CMD_DESTROY_AH, sizeof(struct ib_uverbs_destroy_ah), 0 },
	{ IB_USER_VERBS_CMD_ATTACH_MCAST, sizeof(struct ib_uverbs_attach_mcast), 0 },
	SHAPE(CREATE_SRQ, create_srq), SHAPE(QUERY_SRQ, query_srq), SHAPE(DESTROY_SRQ, destroy_srq),
	{ IB_USER_VERBS_CMD_MODIFY_SRQ, sizeof(struct ib_uverbs_modify_srq), 0 },
};

static ssize_t command(int fd, uint32_t number, const void *body, size_t in, size_t out)
{
	uint8_t buf[sizeof(struct ib_uverbs_cmd_hdr) + 2 * MOST];
	struct ib_uverbs_cmd_hdr head = { .command = number, .in_words = (sizeof(head) + in) / 4,
					  .out_words = out / 4 };

	memcpy(buf, &head, sizeof(head));
	memcpy(buf + sizeof(head), body, in);
	return write(fd, buf, sizeof(head) + in);
}

static void get_context(int fd)
{
	struct {
		struct ib_uverbs_get_context core;
		uint64_t ours;
	} req = { .core.response = (uintptr_t)arena };
	struct ib_uverbs_get_context_resp *resp = (void *)arena;

	CHECK(command(fd, IB_USER_VERBS_CMD_GET_CONTEXT, &req, sizeof(req), sizeof(*resp) + 64) > 0, "GET_CONTEXT: %s",
	      strerror(errno));
	close(resp->async_fd);
}

/* Handles that the kernel gave out for this file, the newest of each kind; some of them are gone again. */
enum kind { PD, CQ, QP, MR, SRQ, KINDS };
enum { KEPT = 4 };
static uint32_t handles[KINDS][KEPT];

static uint32_t handle_of(enum kind kind)
{
	return below(8) ? handles[kind][below(KEPT)] : word();
}

static void keep(enum kind kind, uint32_t handle)
{
	handles[kind][below(KEPT)] = handle;
}

/* What would be taken: the contents of commands that other commands need. */
static void fill_in(uint32_t number, void *body)
{
	switch (number) {
	case IB_USER_VERBS_CMD_DEALLOC_PD:
		((struct ib_uverbs_dealloc_pd *)body)->pd_handle = handle_of(PD);
		break;
	case IB_USER_VERBS_CMD_CREATE_CQ: {
		struct ib_uverbs_create_cq *c = body;

		c->cqe = 1 + below(64);
		c->comp_channel = -1;
		c->comp_vector = 0;
		break;
	}
	case IB_USER_VERBS_CMD_DESTROY_CQ:
		((struct ib_uverbs_destroy_cq *)body)->cq_handle = handle_of(CQ);
		break;
	case IB_USER_VERBS_CMD_REG_MR: {
		struct ib_uverbs_reg_mr *c = body;

		c->start = c->hca_va = (uintptr_t)arena + below(ARENA / 2);
		c->length = below(ARENA / 2);
		c->pd_handle = handle_of(PD);
		c->access_flags = below(8);
		break;
	}
	case IB_USER_VERBS_CMD_DEREG_MR:
		((struct ib_uverbs_dereg_mr *)body)->mr_handle = handle_of(MR);
		break;
	case IB_USER_VERBS_CMD_CREATE_QP: {
		struct ib_uverbs_create_qp *c = body;

		c->pd_handle = handle_of(PD);
		c->send_cq_handle = handle_of(CQ);
		c->recv_cq_handle = handle_of(CQ);
		c->srq_handle = handle_of(SRQ);
		c->max_send_wr = below(64);
		c->max_recv_wr = below(64);
		c->max_send_sge = below(5);
		c->max_recv_sge = below(5);
		c->max_inline_data = below(128);
		c->qp_type = IBV_QPT_RC;
		c->is_srq = below(4) == 0;
		break;
	}
	case IB_USER_VERBS_CMD_MODIFY_QP: {
		struct ib_uverbs_modify_qp *c = body;

		c->qp_handle = handle_of(QP);
		c->attr_mask = IBV_QP_STATE | (below(2) ? IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS : 0);
		c->qp_state = c->attr_mask == IBV_QP_STATE ? below(8) : IBV_QPS_INIT;
		c->port_num = 1;
		c->pkey_index = 0;
		break;
	}
	case IB_USER_VERBS_CMD_QUERY_QP:
		((struct ib_uverbs_query_qp *)body)->qp_handle = handle_of(QP);
		break;
	case IB_USER_VERBS_CMD_DESTROY_QP:
		((struct ib_uverbs_destroy_qp *)body)->qp_handle = handle_of(QP);
		break;
	case IB_USER_VERBS_CMD_RESIZE_CQ: {
		struct ib_uverbs_resize_cq *c = body;

		c->cq_handle = handle_of(CQ);
		c->cqe = 1 + below(200);
		break;
	}
	case IB_USER_VERBS_CMD_CREATE_SRQ: {
		struct ib_uverbs_create_srq *c = body;

		c->pd_handle = handle_of(PD);
		c->max_wr = below(64);
		c->max_sge = below(5);
		break;
	}
	case IB_USER_VERBS_CMD_MODIFY_SRQ: {
		struct ib_uverbs_modify_srq *c = body;

		c->srq_handle = handle_of(SRQ);
		c->attr_mask = below(4);
		c->max_wr = below(200);
		c->srq_limit = below(20);
		break;
	}
	case IB_USER_VERBS_CMD_QUERY_SRQ:
		((struct ib_uverbs_query_srq *)body)->srq_handle = handle_of(SRQ);
		break;
	case IB_USER_VERBS_CMD_DESTROY_SRQ:
		((struct ib_uverbs_destroy_srq *)body)->srq_handle = handle_of(SRQ);
		break;
	}
}

/* Rings that the driver made, as its part of a response says: where to map them, and how much. */
static struct {
	uint64_t offset, length;
} rings[KEPT];

static void keep_ring(const void *driver_part)
{
	memcpy(&rings[below(KEPT)], driver_part, sizeof(rings[0]));
}

static void note(uint32_t number, const uint8_t *response)
{
	switch (number) {
	case IB_USER_VERBS_CMD_ALLOC_PD:
		keep(PD, ((const struct ib_uverbs_alloc_pd_resp *)(const void *)response)->pd_handle);
		break;
	case IB_USER_VERBS_CMD_CREATE_CQ:
		keep(CQ, ((const struct ib_uverbs_create_cq_resp *)(const void *)response)->cq_handle);
		keep_ring(response + sizeof(struct ib_uverbs_create_cq_resp));
		break;
	case IB_USER_VERBS_CMD_CREATE_QP:
		keep_ring(response + sizeof(struct ib_uverbs_create_qp_resp));
		keep(QP, ((const struct ib_uverbs_create_qp_resp *)(const void *)response)->qp_handle);
		break;
	case IB_USER_VERBS_CMD_RESIZE_CQ:
		keep_ring(response + sizeof(struct ib_uverbs_resize_cq_resp));
		break;
	case IB_USER_VERBS_CMD_CREATE_SRQ:
		keep(SRQ, ((const struct ib_uverbs_create_srq_resp *)(const void *)response)->srq_handle);
		keep_ring(response + sizeof(struct ib_uverbs_create_srq_resp));
		break;
	case IB_USER_VERBS_CMD_REG_MR:
		keep(MR, ((const struct ib_uverbs_reg_mr_resp *)(const void *)response)->mr_handle);
		break;
	case IB_USER_VERBS_CMD_CREATE_COMP_CHANNEL:
		close(((const struct ib_uverbs_create_comp_channel_resp *)(const void *)response)->fd);
		break;
	}
}

/* One command: of the right form and right contents, with some words changed, or of no right form. */
static void throw_one(int fd)
{
	uint64_t body[2 * MOST / 8] = { 0 };
	const struct shape *shape = &shapes[below(sizeof(shapes) / sizeof(shapes[0]))];
	uint32_t number = below(32) ? shape->number : word();
	size_t in = shape->in, out = shape->out + below(8) * 8;
	uint32_t *words = (uint32_t *)body;
	bool ok;

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
	ok = command(fd, number, body, in, out) > 0;
	if (ok && shape->out && body[0] == (uintptr_t)arena)
		note(number, arena);
	if (number < 64)
		(ok ? taken : refused)[number]++;
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
		.num_attrs = below(16) ? n : word(), .driver_id = below(8) ? 0 : word(),
	};
	for (unsigned int i = 0; i < n; i++)
		req.attrs[i] = (struct ib_uverbs_attr){
			.attr_id = below(4) ? below(32) : 0x1000 + below(8), .len = below(4) * 8, .flags = below(2),
			.data = below(2) ? word() : address(),
		};
	ioctl(fd, RDMA_VERBS_IOCTL, &req);
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
static unsigned int throw_mapping(int fd)
{
	static const int rights[] = { PROT_READ, PROT_READ | PROT_WRITE, PROT_NONE, PROT_READ | PROT_EXEC };
	static const int kinds[] = { MAP_SHARED, MAP_PRIVATE };
	unsigned int which = below(KEPT);
	size_t len = below(2) ? rings[which].length % (1 << 20) : (1 + below(32)) * PAGE;
	off_t at = below(4) ? (off_t)rings[which].offset : (off_t)(dice() >> 12 << 12 & INT64_MAX);
	int prot = rights[below(4)];

	if (!below(4))
		at += PAGE;
	if (!len)
		return 0;
	uint8_t *map = mmap(NULL, len, prot, kinds[below(2)], fd, at & INT64_MAX);

	if (map == MAP_FAILED)
		return 0;
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
	return 1;
}

static void random_commands(void)
{
	unsigned int n = number_of("COUNT"), mapped = 0, all = 0, good = 0;
	struct sigaction act = { .sa_handler = on_fault };

	state = number_of("SEED") | 1;
	sigaction(SIGBUS, &act, NULL);
	sigaction(SIGSEGV, &act, NULL);
	/* A response may begin at the last byte. */
	arena = mmap(NULL, ARENA + LONGEST_RESPONSE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(arena != MAP_FAILED, "mmap: %s", strerror(errno));
	for (unsigned int i = 0; i < n; i += COMMANDS_OF_ONE_FILE) {
		int fd = open_device_file();

		/* Sometimes there is no context, which few commands do without. */
		memset(handles, 0, sizeof(handles));
		memset(rings, 0, sizeof(rings));
		if (i % (8 * COMMANDS_OF_ONE_FILE))
			get_context(fd);
		for (unsigned int k = 0; k < COMMANDS_OF_ONE_FILE; k++) {
			switch (below(8)) {
			case 0:
				throw_ioctl(fd);
				break;
			case 1:
				mapped += throw_mapping(fd);
				break;
			default:
				throw_one(fd);
			}
		}
		close(fd);
	}
	for (unsigned int i = 0; i < 64; i++) {
		all += taken[i] + refused[i];
		good += taken[i];
		if (taken[i] + refused[i] > 8)
			printf("command %u: %u taken, %u refused\n", i, taken[i], refused[i]);
	}
	/* Else nothing was reached behind the first look. */
	CHECK(taken[IB_USER_VERBS_CMD_ALLOC_PD] && taken[IB_USER_VERBS_CMD_CREATE_CQ] &&
	      taken[IB_USER_VERBS_CMD_CREATE_QP] && taken[IB_USER_VERBS_CMD_REG_MR] &&
	      taken[IB_USER_VERBS_CMD_MODIFY_QP] && taken[IB_USER_VERBS_CMD_DESTROY_QP],
	      "some command was never taken");
	CHECK(mapped, "no ring was ever mapped");
	printf("%u commands, %u taken; %u mappings\n", all, good, mapped);
}

const struct test_case command_cases[] = {
	{ "random", random_commands, "uverbs commands, ioctls and mappings with any numbers, lengths and arguments",
	  LOCAL_PATH, .seconds = 240, .rxe = "is not judged here" },
	{ NULL },
};
