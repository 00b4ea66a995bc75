/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/* What the parts of the scenario share; main.c runs them in turn. */
#ifndef SCENARIO_H
#define SCENARIO_H

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include "../mock.h"

/* What was refused last has these words in the log. */
#define SAID(words) do { \
	CHECK(strstr(mock.said, words)); \
	mock.said[0] = 0; \
} while (0)

#define CHECK(x)                                                                    \
	do {                                                                        \
		if (!(x)) {                                                         \
			fprintf(stderr, "%s:%d: %s: not so: %s (errno %d)\n",       \
				__FILE__, __LINE__, __func__, #x, errno);           \
			exit(1);                                                    \
		}                                                                   \
	} while (0)

#define NEED_DOORBELL 1

/* uabi::wqe and uabi::cqe, written down a second time. */
struct send_wqe {
	uint64_t wr_id;
	uint8_t opcode, flags;
	uint16_t count;
	uint32_t srqn;
	uint64_t remote_addr;
	uint32_t rkey, imm;
	uint64_t operands[2];
	union {
		struct ibv_sge sge[5];
		char data[80];
	};
};

struct recv_wqe {
	uint64_t wr_id;
	uint32_t num_sge, reserved;
	struct ibv_sge sge[3];
};

struct cqe {
	uint64_t wr_id;
	uint32_t status, opcode, byte_len, imm, qp_num, src_qp, flags, vendor_err;
	uint64_t timestamp;
	uint16_t pkey_index, vlan;
	uint8_t sl, network_hdr, smac[6];
	uint32_t reserved;
};

_Static_assert(sizeof(struct send_wqe) == 128 && sizeof(struct recv_wqe) == 64 &&
	       sizeof(struct cqe) == 64, "uABI");

extern char *file;
extern struct ibv_context *context;
extern struct ibv_pd *pd;
extern struct ibv_cq *send_cq, *recv_cq;

/* rings.c */
struct control *control(size_t ring);
struct send_wqe *send_slot(uint32_t index);
struct recv_wqe *recv_slot(uint32_t index);
int send_doorbells(void);
int recv_doorbells(void);
int mappings(void);
void clear_rings(void);
void complete_for(uint32_t qp_num, uint64_t wr_id);
void complete(uint64_t wr_id);
struct ibv_cq *create_cq(void);
struct ibv_qp *create_qp(int sig_all);
void set_state(struct ibv_qp *qp, enum ibv_qp_state state);

/* objects.c */
void registration(void);
void contexts(void);
void plain_objects(void);

/* completions.c */
void completion_queue(void);
void bad_rings(void);
void extended_completion_queue(void);
void times(void);
void resizing(void);

/* queue_pairs.c */
void shorter_attributes(void);
void queue_pair_life(void);

/* shared_receives.c */
void shared_receive_queue(void);

/* posting.c */
void sending(void);
void windows(void);
void sending_by_calls(void);
void receiving(void);

/* reset.c */
void reset(void);
uint64_t poll_all(struct ibv_cq *cq);
void completions_of_the_gone(void);

/* waiting.c */
void cancelled(void);
void forked(void);

/* load.c */
void forgetting_under_load(void);
void threads(void);

#endif
