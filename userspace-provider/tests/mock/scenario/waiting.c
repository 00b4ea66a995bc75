// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/* Who waits for the lock of a queue that another thread holds between two calls. */
#include "scenario.h"

static struct ibv_cq_ex *held;
static _Atomic int holding, waiting, came_back;

static void *holder(void *arg)
{
	struct ibv_poll_cq_attr poll = {};

	CHECK(!ibv_start_poll(held, &poll));
	holding = 1;
	while (holding)
		sched_yield();
	ibv_end_poll(held);
	return NULL;
}

static pthread_t hold(void)
{
	struct ibv_cq_init_attr_ex attr = { .cqe = 16 };
	pthread_t thread;

	clear_rings();
	held = mock.ops.create_cq_ex(context, &attr);
	CHECK(held);
	complete(1);
	CHECK(!pthread_create(&thread, NULL, holder, NULL));
	while (!holding)
		sched_yield();
	return thread;
}

static void *waiter(void *arg)
{
	struct ibv_wc wc;

	waiting = 1;
	CHECK(!mock.ops.poll_cq(ibv_cq_ex_to_cq(held), 1, &wc));
	came_back = 1;
	pthread_testcancel();
	return NULL;
}

/* Verbs are no cancellation points, not even while they wait: the thread ends behind the verb. */
void cancelled(void)
{
	pthread_t holds = hold(), waits;
	void *result;

	CHECK(!pthread_create(&waits, NULL, waiter, NULL));
	while (!waiting)
		sched_yield();
	/* It sleeps by then. */
	usleep(50000);
	CHECK(!pthread_cancel(waits));
	usleep(50000);
	CHECK(!came_back);
	holding = 0;
	CHECK(!pthread_join(waits, &result) && came_back && result == PTHREAD_CANCELED);
	CHECK(!pthread_join(holds, NULL));
	CHECK(!mock.ops.destroy_cq(ibv_cq_ex_to_cq(held)) && mappings() == 0);
}

/* A child that destroys what it inherited does not wait for a thread that it has not. */
void forked(void)
{
	pthread_t holds = hold();
	struct ibv_qp *qp;
	int status;
	pid_t pid;

	send_cq = recv_cq = ibv_cq_ex_to_cq(held);
	qp = create_qp(0);
	CHECK(qp);
	pid = fork();
	CHECK(pid >= 0);
	if (!pid) {
		alarm(20);
		_exit(mock.ops.destroy_qp(qp) ? 1 : 7);
	}
	CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 7);
	holding = 0;
	CHECK(!pthread_join(holds, NULL));
	CHECK(!mock.ops.destroy_qp(qp) && !mock.ops.destroy_cq(ibv_cq_ex_to_cq(held)));
	CHECK(mappings() == 0);
	send_cq = recv_cq = NULL;
}
