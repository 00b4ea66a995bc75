/* SPDX-License-Identifier: GPL-2.0 */
/* Two RC queue pairs of one device, connected to each other, and what the cases need to talk through them. */
#ifndef FERROCE_TESTS_PAIR_H
#define FERROCE_TESTS_PAIR_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { DEPTH = 64, MAX_SGE = 4, INLINE_BYTES = 64 };

/* What a case may ask for; zero means the default. */
struct options {
	int mtu;		/* bytes, default 1024 */
	int rnr_retry;		/* default 7 */
	int retry_cnt;		/* default 7 */
	int timeout;		/* exponent, default 14 */
	int rd_atomic;		/* default 4 */
	int qp_access;		/* -1: none; default everything */
	bool no_connect;	/* leave both in RESET */
	bool events;		/* completion channels */
	bool zero_retries;	/* take rnr_retry 0 and retry_cnt 0 literally */
};

struct side {
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	uint8_t *buf;
	size_t len;
};

struct pair {
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct options opt;
	struct side a, b;
};

/* Given on the command line. */
extern const char *device_name;
extern int gid_index;

/* Ends the case; the text is its verdict. */
void fail(const char *fmt, ...) __attribute__((format(printf, 1, 2), noreturn));
void skip(const char *fmt, ...) __attribute__((format(printf, 1, 2), noreturn));

#define CHECK(cond, ...) do { if (!(cond)) fail(__VA_ARGS__); } while (0)

void pair_open(struct pair *p, const struct options *opt, size_t len);
void pair_close(struct pair *p);
void pair_connect(struct pair *p);
struct ibv_qp *make_qp(struct pair *p, struct side *s);
int to_init(struct pair *p, struct side *s);
int to_rtr(struct pair *p, struct side *s, uint32_t dest_qpn);
int to_rts(struct pair *p, struct side *s);
int to_state(struct side *s, enum ibv_qp_state state);
enum ibv_qp_state state_of(struct side *s);

void fill(uint8_t *at, size_t len, unsigned int seed);
void compare(const uint8_t *at, size_t len, unsigned int seed, const char *what);

struct ibv_sge sge(struct side *s, size_t offset, uint32_t len);
struct ibv_send_wr wr(enum ibv_wr_opcode op, uint64_t id, struct ibv_sge *list, int n);
void aim(struct ibv_send_wr *w, struct side *target, size_t offset);
void post(struct side *s, struct ibv_send_wr *w);
void post_recv(struct side *s, uint64_t id, struct ibv_sge *list, int n);
struct ibv_wc next(struct side *s, const char *what);
struct ibv_wc expect(struct side *s, uint64_t id, enum ibv_wc_status status, const char *what);
void expect_none(struct side *s, int ms, const char *what);

struct test_case {
	const char *name;
	void (*run)(void);
};

extern const struct test_case data_cases[], error_cases[];

#endif
