/* SPDX-License-Identifier: BSD-3-Clause */
/* What nodes of a run mean: operations, computes that finish later, order, slices, values. */
#include <criterion/criterion.h>

#include "support/ranks.h"
#include "tests/support/bind.h"
#include "tests/support/compute.h"

/* ---- operations ---- */

/* a then b: (a0 * x + a1) composed; does not commute. */
static int compose(void *user, void *dst, const void *a, const void *b, size_t count,
                   weft_dtype_t dtype)
{
    uint64_t *d = dst;
    const uint64_t *p = a, *q = b;
    (void)user;
    if (dtype != WEFT_U64 || count % 2 != 0)
        return -1;
    for (size_t i = 0; i < count; i += 2) {
        uint64_t m = p[i] * q[i], c = p[i + 1] * q[i] + q[i + 1];
        d[i] = m;
        d[i + 1] = c;
    }
    return WEFT_OK;
}

/* A chain of receive and reduce over all ranks, in order, then back: every rank has all. */
static void ordered(struct ranks *ranks, struct weft_context *context, int rank)
{
    int size = ranks->size;
    size_t count = *(size_t *)ranks->user;
    struct weft_op_config config;
    struct weft_op *op = NULL;
    weft_op_config_init(&config);
    config.name = "compose";
    config.reduce = compose;
    OK(weft_op_create(&op, &config));
    CHECK(!weft_op_commutes(op));
    struct weft_schedule *s = new_schedule(rank, size);
    weft_slot_t x = weft_schedule_add_slot(s, "x", WEFT_U64, count, WEFT_SLOT_INOUT);
    weft_slot_t tmp = weft_schedule_add_slot(s, "tmp", WEFT_U64, count, WEFT_SLOT_SCRATCH);
    weft_node_t at = weft_schedule_add_join(s);
    if (rank > 0) {
        weft_node_t recv = weft_schedule_add_recv(s, weft_region_at(tmp, 0, count), rank - 1, 0);
        at = weft_schedule_add_reduce(s, op, weft_region_at(x, 0, count),
                                      weft_region_at(tmp, 0, count), weft_region_at(x, 0, count));
        weft_schedule_add_order(s, recv, at);
    }
    if (rank < size - 1) {
        weft_node_t send = weft_schedule_add_send(s, weft_region_at(x, 0, count), rank + 1, 0);
        weft_node_t recv = weft_schedule_add_recv(s, weft_region_at(x, 0, count), size - 1, 1);
        weft_schedule_add_order(s, at, send);
        weft_schedule_add_order(s, send, recv);
    } else {
        for (int r = 0; r < size - 1; r++)
            weft_schedule_add_order(s, at,
                                    weft_schedule_add_send(s, weft_region_at(x, 0, count), r, 1));
    }
    struct weft_run *run = make_run(context, commit(s), NULL);
    weft_op_destroy(op);
    uint64_t *data = calloc(count, sizeof *data);
    OK(bind_slot(run, x, data));
    for (uint64_t i = 0; i < 5; i++) {
        uint64_t m = 1, c = 0;
        for (size_t k = 0; k < count; k += 2) {
            data[k] = 3 + (uint64_t)rank + i;
            data[k + 1] = 7 * (uint64_t)rank + 1;
        }
        for (uint64_t r = 0; r < (uint64_t)size; r++) {
            c = c * (3 + r + i) + 7 * r + 1;
            m *= 3 + r + i;
        }
        OK(weft_run_execute(run));
        for (size_t k = 0; k < count; k += 2)
            CHECK(data[k] == m && data[k + 1] == c);
    }
    weft_run_destroy(run);
    free(data);
}

Test(run_nodes, an_operation_that_does_not_commute_keeps_the_order_of_ranks)
{
    size_t counts[] = {2, 5000, 200000};
    for (int i = 0; i < 3; i++) {
        ranks_run_each_way(ordered, 2, &counts[i]);
        ranks_run_each_way(ordered, 5, &counts[i]);
    }
}

/* ---- pending computes ---- */

struct pending {
    atomic_int started, polled, finished;
    int how; /* 0: poll says; 1: completed before the return; 2: completed by a thread */
    pthread_t thread;
};

static void *complete_soon(void *argument)
{
    weft_call_complete(argument, WEFT_OK);
    return NULL;
}

static int start_pending(struct weft_call *call)
{
    struct pending *pending = call->user;
    CHECK(call->state == 0);
    CHECK(call->argument_count == 1 && call->arguments[0].count == 3);
    CHECK(call->arguments[0].dtype == WEFT_I64 && call->size == 1 && call->rank == 0);
    atomic_fetch_add(&pending->started, 1);
    ((int64_t *)call->arguments[0].data)[0] = (int64_t)call->version;
    *call->value = call->version % 4;
    if (pending->how == 1)
        weft_call_complete(call, WEFT_OK);
    if (pending->how == 2)
        CHECK(pthread_create(&pending->thread, NULL, complete_soon, call) == 0);
    return WEFT_IN_PROGRESS;
}

static int poll_pending(struct weft_call *call)
{
    struct pending *pending = call->user;
    atomic_fetch_add(&pending->polled, 1);
    return ++call->state < 3 ? WEFT_IN_PROGRESS : WEFT_OK;
}

static void run_pending(weft_progress_t progress, int how, int rounds)
{
    struct alone alone = alone_create(progress);
    struct pending pending = {.how = how};
    struct weft_op_config config;
    struct weft_op *op = NULL;
    int64_t x[3] = {0};
    weft_op_config_init(&config);
    config.name = "pending";
    config.flags = WEFT_OP_MAY_PEND;
    config.compute = start_pending;
    config.poll = how == 0 ? poll_pending : NULL;
    config.user = &pending;
    OK(weft_op_create(&op, &config));
    struct weft_schedule *s = new_schedule(0, 1);
    weft_slot_t slot = weft_schedule_add_slot(s, "x", WEFT_I64, 3, WEFT_SLOT_INOUT);
    weft_value_t value = weft_schedule_add_value(s, "v", 3);
    struct weft_region region = weft_region_at(slot, 0, 3);
    weft_node_t node = add_compute(s, op, &region, 1, 1, value);
    weft_node_t copy =
        weft_schedule_add_copy(s, weft_region_at(slot, 1, 1), weft_region_at(slot, 0, 1));
    weft_schedule_add_order(s, node, copy);
    struct weft_run *run = make_run(alone.context, commit(s), NULL);
    OK(bind_slot(run, slot, x));
    for (int i = 0; i < rounds; i++) {
        OK(weft_run_execute(run));
        if (how == 2)
            pthread_join(pending.thread, NULL);
        CHECK(x[1] == i);
        CHECK(weft_run_get_value(run, value) == (uint64_t)i % 4);
    }
    CHECK(atomic_load(&pending.started) == rounds);
    CHECK(how != 0 || atomic_load(&pending.polled) == 3 * rounds);
    weft_run_destroy(run);
    weft_op_destroy(op);
    alone_destroy(&alone);
}

Test(run_nodes, a_compute_may_finish_later)
{
    for (int how = 0; how < 3; how++) {
        run_pending(WEFT_PROGRESS_CALLER, how, 300);
        run_pending(WEFT_PROGRESS_HELPER, how, 300);
    }
}

/* Called at first, and asked twice: each time by the same number. */
static int tell_node(struct weft_call *call)
{
    int32_t *told = call->arguments[0].data;

    if (call->state && *told != call->node)
        return WEFT_ERR_INVALID;
    *told = call->node;
    return call->state++ < 2 ? WEFT_IN_PROGRESS : WEFT_OK;
}

Test(run_nodes, a_call_knows_the_number_of_its_node)
{
    enum { NODES = 5, ROUNDS = 3 };
    struct alone alone = alone_create(WEFT_PROGRESS_CALLER);
    struct weft_op_config config;
    struct weft_op *op = NULL;
    struct weft_schedule *s = new_schedule(0, 1);
    weft_slot_t slot = weft_schedule_add_slot(s, "x", WEFT_I32, NODES, WEFT_SLOT_OUTPUT);
    weft_node_t nodes[NODES];
    int32_t x[NODES];

    weft_op_config_init(&config);
    config.name = "tell-node";
    config.flags = WEFT_OP_MAY_PEND;
    config.compute = tell_node;
    config.poll = tell_node;
    OK(weft_op_create(&op, &config));
    for (int i = 0; i < NODES; i++) {
        struct weft_region region = weft_region_at(slot, (size_t)i, 1);

        for (int j = 0; j < i; j++)
            weft_schedule_add_join(s);
        nodes[i] = add_compute(s, op, &region, 1, 1, 0);
    }
    struct weft_run *run = make_run(alone.context, commit(s), NULL);
    OK(bind_slot(run, slot, x));
    for (int round = 0; round < ROUNDS; round++) {
        memset(x, -1, sizeof x);
        OK(weft_run_execute(run));
        for (int i = 0; i < NODES; i++)
            CHECK(x[i] == nodes[i]);
    }
    weft_run_destroy(run);
    weft_op_destroy(op);
    alone_destroy(&alone);
}

static int too_much(struct weft_call *call)
{
    *call->value = 4;
    return WEFT_OK;
}

Test(run_nodes, a_value_beyond_its_maximum_fails_the_run)
{
    struct alone alone = alone_create(WEFT_PROGRESS_CALLER);
    struct weft_op_config config;
    struct weft_op *op = NULL;
    weft_op_config_init(&config);
    config.name = "much";
    config.compute = too_much;
    OK(weft_op_create(&op, &config));
    struct weft_schedule *s = new_schedule(0, 1);
    weft_value_t value = weft_schedule_add_value(s, "few", 3);
    add_compute(s, op, NULL, 0, 0, value);
    struct weft_run *run = make_run(alone.context, commit(s), NULL);
    CHECK_STATUS(weft_run_execute(run), WEFT_ERR_COMPUTE);
    CHECK_TEXT(weft_error_text(), "`few` became 4");
    weft_run_destroy(run);
    weft_op_destroy(op);
    alone_destroy(&alone);
}

/* ---- order, slices ---- */

struct order {
    int seen[200];
    int count;
};

static int note_version(struct weft_call *call)
{
    struct order *order = call->user;
    order->seen[order->count++] = (int)call->arguments[0].count;
    return WEFT_OK;
}

Test(run_nodes, ready_nodes_start_in_the_order_of_creation)
{
    struct alone alone = alone_create(WEFT_PROGRESS_CALLER);
    struct order order = {{0}, 0};
    struct weft_op_config config;
    struct weft_op *op = NULL;
    int64_t x[200] = {0};
    weft_op_config_init(&config);
    config.name = "note";
    config.compute = note_version;
    config.user = &order;
    OK(weft_op_create(&op, &config));
    struct weft_schedule *s = new_schedule(0, 1);
    weft_slot_t slot = weft_schedule_add_slot(s, "x", WEFT_I64, 200, WEFT_SLOT_INPUT);
    weft_node_t nodes[200];
    for (int i = 0; i < 199; i++) {
        struct weft_region region = weft_region_at(slot, 0, (size_t)i + 1);
        nodes[i] = add_compute(s, op, &region, 1, 0, 0);
    }
    /* Two gates, created last: the later one releases the nodes with even numbers. */
    weft_node_t gate = weft_schedule_add_join(s);
    weft_node_t event = weft_schedule_add_event(s, WEFT_CHANNEL_NONE);
    for (int i = 198; i >= 0; i--)
        weft_schedule_add_order(s, i % 2 ? gate : event, nodes[i]);
    struct weft_run *run = make_run(alone.context, commit(s), NULL);
    OK(bind_slot(run, slot, x));
    OK(weft_run_start(run));
    while (order.count < 99)
        weft_context_progress(alone.context);
    OK(weft_run_fire(run, event));
    OK(weft_run_wait(run, WEFT_NEVER));
    cr_assert_eq(order.count, 199);
    for (int i = 0; i < 199; i++)
        cr_expect_eq(order.seen[i], i < 99 ? 2 * i + 2 : 2 * (i - 99) + 1);
    weft_run_destroy(run);
    weft_op_destroy(op);
    alone_destroy(&alone);
}

/* A signal is served while a large reduction is under way: the reduction, of many slices, itself
 * waits in its second slice until the signal has been answered. */
struct slices {
    atomic_int answered;
    atomic_int calls;
    struct weft_context *context;
};

static int count_slice(void *user, void *dst, const void *a, const void *b, size_t count,
                       weft_dtype_t dtype)
{
    struct slices *slices = user;
    (void)dst, (void)a, (void)b, (void)count, (void)dtype;
    atomic_fetch_add(&slices->calls, 1);
    sched_yield();
    return WEFT_OK;
}

static int answer(struct weft_call *call)
{
    struct slices *slices = call->user;
    atomic_store(&slices->answered, atomic_load(&slices->calls) + 1);
    return WEFT_OK;
}

static void slice(struct ranks *ranks, struct weft_context *context, int rank)
{
    enum { N = 1 << 21 };
    struct slices *slices = ranks->user;
    struct weft_op_config config;
    struct weft_op *slow = NULL, *reply = NULL;
    weft_op_config_init(&config);
    config.name = "slow";
    config.reduce = count_slice;
    config.user = slices;
    OK(weft_op_create(&slow, &config));
    config.name = "reply";
    config.reduce = NULL;
    config.compute = answer;
    OK(weft_op_create(&reply, &config));
    struct weft_schedule *s = new_schedule(rank, 2);
    weft_slot_t x = weft_schedule_add_slot(s, "x", WEFT_I8, N, WEFT_SLOT_SCRATCH);
    if (rank == 0) {
        weft_schedule_add_signal(s, 1, 1);
    } else {
        weft_schedule_add_reduce(s, slow, weft_region_at(x, 0, N), weft_region_at(x, 0, N),
                                 weft_region_at(x, 0, N));
        weft_schedule_add_order(s, weft_schedule_add_event(s, 1),
                                add_compute(s, reply, NULL, 0, 0, 0));
    }
    struct weft_run *run = make_run(context, commit(s), NULL);
    if (rank == 0) {
        while (atomic_load(&slices->calls) < 1)
            sched_yield();
        OK(weft_run_execute(run));
        ranks_meet(ranks);
    } else {
        OK(weft_run_start(run));
        while (atomic_load(&slices->calls) < 1)
            weft_context_progress(context);
        ranks_meet(ranks); /* the signal is there now, and most of the reduction is still to come */
        OK(weft_run_wait(run, WEFT_NEVER));
        CHECK(atomic_load(&slices->calls) == N / (64 << 10));
        CHECK(atomic_load(&slices->answered) > 0 &&
              atomic_load(&slices->answered) < N / (64 << 10));
    }
    weft_run_destroy(run);
    weft_op_destroy(slow);
    weft_op_destroy(reply);
}

Test(run_nodes, a_signal_is_not_stuck_behind_a_large_reduction)
{
    struct slices slices = {0, 0, NULL};
    struct ranks ranks;
    ranks_init(&ranks, 2, slice, &slices);
    ranks.config.slice_bytes = 64 << 10;
    ranks_run(&ranks);
}

/* ---- values of nodes that are retired ---- */

static int say_nine(struct weft_call *call)
{
    *call->value = 9;
    return WEFT_OK;
}

Test(run_nodes, a_value_whose_node_is_retired_is_not_an_older_one)
{
    struct alone alone = alone_create(WEFT_PROGRESS_CALLER);
    struct weft_op_config config;
    const struct weft_region none[1] = {{0}};
    struct weft_op *op = NULL;
    weft_op_config_init(&config);
    config.name = "nine";
    config.compute = say_nine;
    OK(weft_op_create(&op, &config));
    struct weft_schedule *s = new_schedule(0, 1);
    weft_value_t value = weft_schedule_add_value(s, "v", 100);
    weft_node_t events[2] = {weft_schedule_add_event(s, WEFT_CHANNEL_NONE),
                             weft_schedule_add_event(s, WEFT_CHANNEL_NONE)};
    OK(weft_schedule_add_choice(s, events, 2));
    OK(weft_schedule_add_order(s, events[0], add_compute(s, op, none, 0, 0, value)));
    struct weft_run *run = make_run(alone.context, commit(s), NULL);
    for (int i = 0; i < 4; i++) {
        OK(weft_run_start(run));
        OK(weft_run_fire(run, events[i % 2]));
        OK(weft_run_wait(run, WEFT_NEVER));
        CHECK(weft_run_get_value(run, value) == (i % 2 ? 0 : 9));
    }
    weft_run_destroy(run);
    weft_op_destroy(op);
    alone_destroy(&alone);
}
