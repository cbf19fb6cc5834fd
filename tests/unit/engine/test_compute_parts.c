/* SPDX-License-Identifier: BSD-3-Clause */
/* Long computations in parts: a step does one part of one of them. */
#include <criterion/criterion.h>

#include "runtime/graph/op.h"
#include "support/ranks.h"
#include "tests/support/bind.h"
#include "tests/support/compute.h"

enum { PARTS = 50, CALLS = 3 };

/* Which node has done a part, part after part; parts of calls, and what they are to end with. */
struct parts {
    int32_t done[CALLS * PARTS * 4];
    int count;
    int begun;
    int status;
};

static int begin(struct weft_call *call)
{
    struct parts *parts = call->user;

    parts->begun++;
    return WEFT_IN_PROGRESS;
}

static int next(struct weft_call *call)
{
    struct parts *parts = call->user;

    cr_assert_lt((size_t)parts->count, sizeof parts->done / sizeof parts->done[0]);
    parts->done[parts->count++] = call->node;
    return ++call->state < PARTS ? WEFT_IN_PROGRESS : parts->status;
}

static struct weft_op *make_op(struct parts *parts)
{
    struct weft_op_config config;
    struct weft_op *op = NULL;

    weft_op_config_init(&config);
    config.name = "in-parts";
    config.flags = WEFT_OP_MAY_PEND;
    config.compute = begin;
    config.poll = next;
    config.user = parts;
    OK(weft_op_create(&op, &config));
    op->in_parts = 1;
    return op;
}

static int refuse(struct weft_call *call)
{
    (void)call;
    return WEFT_ERR_INVALID;
}

static struct weft_op *make_refusal(void)
{
    struct weft_op_config config;
    struct weft_op *op = NULL;

    weft_op_config_init(&config);
    config.name = "refuse";
    config.compute = refuse;
    OK(weft_op_create(&op, &config));
    return op;
}

Test(compute_parts, a_step_does_one_part_and_calls_end_in_the_order_of_their_beginnings)
{
    struct alone alone = alone_create(WEFT_PROGRESS_CALLER);
    struct parts parts = {.status = WEFT_OK};
    struct weft_op *op = make_op(&parts);
    struct weft_schedule *s = new_schedule(0, 1);

    for (int i = 0; i < CALLS; i++)
        add_compute(s, op, NULL, 0, 0, 0);
    struct weft_run *run = make_run(alone.context, commit(s), NULL);
    for (int round = 0; round < 3; round++) {
        parts.count = parts.begun = 0;
        OK(weft_run_start(run));
        for (int before = parts.count; weft_run_test(run) == WEFT_IN_PROGRESS; before = parts.count)
            cr_assert(parts.count <= before + 1, "%d parts in a step", parts.count - before);
        OK(weft_run_wait(run, WEFT_NEVER));
        cr_assert_eq(parts.begun, CALLS);
        cr_assert_eq(parts.count, CALLS * PARTS);
        for (int i = 0; i < parts.count; i++)
            cr_assert_eq(parts.done[i], i / PARTS, "part %d of node %d", i, parts.done[i]);
    }
    weft_run_destroy(run);
    weft_op_destroy(op);
    alone_destroy(&alone);
}

Test(compute_parts, what_becomes_ready_meanwhile_does_not_wait_for_the_end)
{
    struct alone alone = alone_create(WEFT_PROGRESS_CALLER);
    struct parts parts = {.status = WEFT_OK};
    struct weft_op *op = make_op(&parts), *idle = idle_op("idle");
    struct weft_schedule *s = new_schedule(0, 1);
    weft_node_t event, end;

    add_compute(s, op, NULL, 0, 0, 0);
    event = weft_schedule_add_event(s, WEFT_CHANNEL_NONE);
    OK(weft_schedule_add_order(s, event, add_compute(s, idle, NULL, 0, 0, 0)));
    end = weft_schedule_add_join(s);
    OK(weft_schedule_add_order(s, event, end));
    struct weft_run *run = make_run(alone.context, commit(s), NULL);
    OK(weft_run_start(run));
    while (parts.count < 1)
        weft_context_progress(alone.context);
    OK(weft_run_fire(run, event));
    OK(weft_run_wait_node(run, end, WEFT_NEVER));
    cr_assert_lt(parts.count, PARTS / 2);
    OK(weft_run_wait(run, WEFT_NEVER));
    cr_assert_eq(parts.count, PARTS);
    weft_run_destroy(run);
    weft_op_destroy(idle);
    weft_op_destroy(op);
    alone_destroy(&alone);
}

Test(compute_parts, a_run_that_has_failed_does_no_more_parts_and_borrows_nothing)
{
    struct alone alone = alone_create(WEFT_PROGRESS_CALLER);
    struct parts parts = {.status = WEFT_OK};
    struct weft_op *op = make_op(&parts), *refusal = make_refusal();
    struct weft_schedule *s = new_schedule(0, 1);
    weft_node_t event;

    for (int i = 0; i < CALLS; i++)
        add_compute(s, op, NULL, 0, 0, 0);
    event = weft_schedule_add_event(s, WEFT_CHANNEL_NONE);
    OK(weft_schedule_add_order(s, event, add_compute(s, refusal, NULL, 0, 0, 0)));
    struct weft_run *run = make_run(alone.context, commit(s), NULL);
    for (int round = 0; round < 3; round++) {
        parts.count = 0;
        OK(weft_run_start(run));
        while (parts.count < PARTS + 2)
            weft_context_progress(alone.context);
        OK(weft_run_fire(run, event));
        CHECK_STATUS(weft_run_wait(run, WEFT_NEVER), WEFT_ERR_COMPUTE);
        int count = parts.count;
        for (int i = 0; i < 10; i++)
            weft_context_progress(alone.context);
        cr_assert_eq(parts.count, count);
        OK(weft_run_reclaim(run));
    }
    weft_run_destroy(run);
    weft_op_destroy(refusal);
    weft_op_destroy(op);
    alone_destroy(&alone);
}

Test(compute_parts, a_part_that_fails_fails_the_run)
{
    struct alone alone = alone_create(WEFT_PROGRESS_CALLER);
    struct parts parts = {.status = WEFT_ERR_INVALID};
    struct weft_op *op = make_op(&parts);
    struct weft_schedule *s = new_schedule(0, 1);

    for (int i = 0; i < CALLS; i++)
        add_compute(s, op, NULL, 0, 0, 0);
    struct weft_run *run = make_run(alone.context, commit(s), NULL);
    CHECK_STATUS(weft_run_execute(run), WEFT_ERR_COMPUTE);
    cr_assert_eq(parts.count, PARTS);
    weft_run_destroy(run); /* with two calls that have not ended */
    weft_op_destroy(op);
    alone_destroy(&alone);
}

Test(compute_parts, a_run_is_destroyed_in_the_middle)
{
    struct alone alone = alone_create(WEFT_PROGRESS_HELPER);
    struct parts parts = {.status = WEFT_OK};
    struct weft_op *op = make_op(&parts);
    struct weft_schedule *s = new_schedule(0, 1);

    add_compute(s, op, NULL, 0, 0, 0);
    weft_schedule_add_event(s, WEFT_CHANNEL_NONE);
    struct weft_run *run = make_run(alone.context, commit(s), NULL);
    OK(weft_run_start(run));
    weft_run_destroy(run);
    weft_op_destroy(op);
    alone_destroy(&alone);
}

/* Computing takes what the network says, however many parts it comes in. */
static int in_virtual_time(struct weft_context *context, void *user)
{
    struct parts parts = {.status = WEFT_OK};
    struct weft_op *op = make_op(&parts);
    struct weft_schedule *s = new_schedule(weft_context_rank(context), weft_context_size(context));
    uint64_t begin_ns = weft_context_now(context);

    (void)user;
    for (int i = 0; i < CALLS; i++)
        add_compute(s, op, NULL, 0, 0, 0);
    struct weft_run *run = make_run(context, commit(s), NULL);
    OK(weft_run_execute(run));
    cr_assert_eq(parts.count, CALLS * PARTS);
    cr_assert_eq(weft_context_now(context), begin_ns);
    weft_run_destroy(run);
    weft_op_destroy(op);
    return WEFT_OK;
}

Test(compute_parts, parts_take_no_virtual_time)
{
    struct weft_virtual_config config;

    weft_virtual_config_init(&config);
    OK(weft_virtual_run(3, &config, in_virtual_time, NULL));
}
