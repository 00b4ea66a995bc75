/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A user of RDMA in the kernel, for tests: it knows ib_core and nothing of the driver.
 *
 * A case is a function that makes what it needs by the helpers here. It runs in a thread of its
 * own, which CHECK ends as soon as something is wrong, so that a helper returns only when all is
 * well; handlers and timers note it by fail(). Who has started the thread ends what was made.
 */
#ifndef KUSER_H
#define KUSER_H

#include <linux/completion.h>
#include <linux/irq_work.h>
#include <linux/list.h>
#include <linux/scatterlist.h>
#include <linux/spinlock.h>
#include <linux/timer.h>
#include <linux/types.h>
#include <linux/workqueue.h>
#include <rdma/ib_verbs.h>

/* The two ends of a conversation: where, and who takes the completions. */
#define SIDES 2

/* How a completion queue is polled. */
enum way {
	BY_DIRECT,
	BY_SOFTIRQ,
	BY_WORKQUEUE,
	BY_UNBOUND,
	BY_HAND,
	WAYS,
};

extern const char *const way_names[WAYS];

/* A device, and an entry of its table of GIDs. */
struct place {
	struct ib_device *dev;
	int index;
	union ib_gid gid;
};

/* What users in the kernel post in. */
enum context {
	IN_TASK,
	IN_TIMER,
	IN_WORK,
	IN_IRQ,
	IN_HANDLER,
	CONTEXTS,
};

extern const char *const context_names[CONTEXTS];

struct test;

struct kuser_case {
	const char *name;
	void (*run)(struct test *t);
	/* Of queue pairs of this type, for a function of several cases. */
	enum ib_qp_type kind;
};

/* One run of a case. */
struct test {
	const struct kuser_case *how;
	struct place place[SIDES];
	/* Where single work requests are posted: not in a handler. */
	enum context context;
	struct list_head ends, queues, objects, flows;
	spinlock_t lock;
	/* Completions that were waited for. */
	atomic_t order;
	bool failed;
	/* The thread of the case has ended. */
	struct completion over;
};

/* A completion queue. */
struct queue {
	struct list_head list;
	struct test *t;
	struct ib_cq *cq;
	enum way way;
	/* By hand: whether it is armed again when it is empty. */
	bool rearms;
	atomic_t inside, events;
};

/* Memory that a device uses. */
struct room {
	struct ib_device *dev;
	u8 *mem;
	u64 addr;
	u32 size;
};

/* Pieces of rooms that are registered as one, for QPs of the domain of an end. */
struct region {
	struct end *e;
	struct ib_mr *mr;
	struct scatterlist *sg;
	int pieces, most;
};

/* A queue pair with what belongs to it. */
struct end {
	struct list_head list;
	struct test *t;
	struct place *at;
	struct ib_pd *pd;
	struct queue *sends, *recvs;
	struct ib_qp *qp;
	struct ib_ah *ah;
	struct end *peer;
	enum ib_qp_type kind;
	bool connected;
};

/* How ends are made. What is 0 is chosen for the case. */
struct wish {
	enum ib_qp_type kind;
	enum way way;
	u32 inline_data, cqe;
	u8 rnr_timer;
	/* One completion queue for all. */
	struct queue *queue;
	/* Whose domain it has. */
	struct end *mate;
};

/* A work request that somebody waits for. */
struct waiter {
	struct test *t;
	struct ib_cqe cqe;
	struct ib_wc wc;
	bool done;
	/* Which completion this was. */
	int order;
	atomic_t times;
};

/* Users have lists in packed structures, too. */
struct odd_list {
	u8 odd;
	struct ib_sge sge;
} __packed;

#define QKEY 0x11223344
#define GRH_BYTES 40
/* What stands where nobody writes. */
#define GUARD 0x5a

/* main.c */
__printf(2, 3) void fail(struct test *t, const char *form, ...);
void __noreturn end_case(struct test *t);
#define CHECK(t, truth, ...) do { if (!(truth)) { fail(t, __VA_ARGS__); end_case(t); } } while (0)
void must(struct test *t, const char *what, int status);
void expect(struct test *t, const char *what, int status, int want);
void *new_object(struct test *t, size_t size, void (*end)(void *object));
void *new_memory(struct test *t, size_t size);
void end_objects(struct test *t);
bool on_completion(struct test *t, struct ib_cq *cq, bool handler);
void lock_to_post(spinlock_t *lock, unsigned long *flags);
void unlock_posted(spinlock_t *lock, unsigned long *flags);
void poll_all(struct test *t);

/* Seconds without what must come that are a hang: a parameter of the module. */
extern unsigned int patience;

/* Waits until something is true, as long as a hung machine may take, and polls meanwhile. */
#define wait_for(t, truth) ({							\
	unsigned long _end = jiffies + patience * HZ;				\
	while (!(truth) && time_before(jiffies, _end) && !(t)->failed) {	\
		poll_all(t);							\
		if (!(truth))							\
			usleep_range(100, 1000);				\
	}									\
	!!(truth);								\
})

/* contexts.c */
struct poster {
	enum context context;
	void (*post)(struct poster *poster);
	struct timer_list timer;
	struct work_struct work;
	struct irq_work irq;
};

void check_context(struct test *t, enum context context);
void set_up_poster(struct poster *p, enum context context, void (*post)(struct poster *));
void kick(struct poster *p);
void stop_poster(struct poster *p);
int run_in(struct test *t, enum context context, int (*act)(void *arg), void *arg);

/* end.c */
struct queue *make_queue(struct test *t, int side, enum way way, u32 cqe);
void end_queue(struct queue *q);
struct end *make_end(struct test *t, int side, const struct wish *wish);
void make_pair(struct test *t, const struct wish *wish, struct end **a, struct end **b);
void connect(struct end *a, struct end *b, const struct wish *wish);
int to_state(struct end *e, enum ib_qp_state state);
bool comes_to(struct end *e, enum ib_qp_state state);
void end_end(struct end *e);
void end_all(struct test *t);

/* request.c */
struct waiter *make_waiter(struct test *t);
struct waiter *wait_on(struct test *t, struct ib_send_wr *wr);
struct waiter *post_receive_into(struct end *e, const struct ib_sge *sge);
struct waiter *post_receive(struct end *e, struct room *room, u32 at, u32 len);
void post_list(struct end *e, struct ib_send_wr *first);
bool is_done(struct waiter *w);
int finish(struct waiter *w);
int act(struct end *e, struct ib_send_wr *wr);
void check_order(struct waiter *const w[], int count);

/* memory.c */
void fill(u8 *mem, u32 len, u32 seed);
int differs(const u8 *mem, u32 from, u32 len, u32 seed);
void compare(struct test *t, const u8 *mem, u32 len, u32 seed);
struct room *make_room(struct end *e, u32 size);
struct ib_sge piece(struct end *e, struct room *room, u32 at, u32 len);
u32 cut(struct ib_sge *sge, struct ib_sge whole, u32 pieces);
struct region *make_region(struct end *e, enum ib_mr_type type, u32 most);
void list_again(struct region *r);
void list_piece(struct region *r, struct room *room, u32 at, u32 len);
int map_list(struct region *r, unsigned int *skip);
void map_room(struct region *r, struct room *room, u32 at, u32 len);
void next_key(struct region *r);
struct ib_reg_wr registration(struct region *r, int access);
int register_by(struct end *e, struct region *r, int access);
int invalidate(struct end *e, u32 key);

/* A pair, memory at both ends, and that of the far one registered there. */
struct scene {
	struct end *a, *b;
	struct room *near, *far;
	struct region *r;
};

#define ALL_RIGHTS (IB_ACCESS_LOCAL_WRITE | IB_ACCESS_REMOTE_WRITE | IB_ACCESS_REMOTE_READ | \
		    IB_ACCESS_REMOTE_ATOMIC)

void set_scene(struct test *t, struct scene *s, u32 size, int access);
void beside(struct scene *s, struct scene *other, enum ib_qp_type kind);
struct ib_sge near_piece(struct scene *s, u32 at, u32 len);
struct ib_rdma_wr reach(struct scene *s, enum ib_wr_opcode opcode, struct ib_sge *sge, u64 at);
struct ib_atomic_wr reach_word(struct scene *s, struct ib_sge *sge, u64 at);
int touch(struct scene *s, enum ib_wr_opcode opcode, u32 len, u64 addr, u32 key);
void touch_all(struct scene *s, enum ib_wr_opcode opcode);
void check_guard(struct test *t, struct room *room, u32 from, u32 to);
void check_room(struct test *t, struct room *room, u32 at, u32 len, u32 seed);

/* flow.c */
/* Checked messages from one end to the other. */
struct run {
	struct end *from, *to;
	enum context context;
	u32 messages, depth, size;
};

void stop_flows(struct test *t);
void run_flows(struct test *t, const struct run *runs, int count);

/* The cases. */
extern const struct kuser_case posting_cases[], polling_cases[], queue_cases[];
extern const struct kuser_case operation_cases[], registration_cases[];
extern const struct kuser_case misuse_cases[];

#endif
