/* SPDX-License-Identifier: BSD-3-Clause */
/* Large numbers: nodes, successors, requests in flight, objects. */
#include <criterion/criterion.h>

#include "support/ranks.h"
#include "tests/support/bind.h"
#include "tests/support/compute.h"

static int count_call(struct weft_call *call)
{
    ++*(size_t *)call->user;
    return WEFT_OK;
}

static struct weft_op *counting(size_t *counter)
{
    struct weft_op_config config;
    struct weft_op *op = NULL;
    weft_op_config_init(&config);
    config.name = "count";
    config.compute = count_call;
    config.user = counter;
    OK(weft_op_create(&op, &config));
    return op;
}

enum { MILLION = 1000000, FAN = 100000 };

Test(limits, a_million_nodes_in_a_chain)
{
    struct alone alone = alone_create(WEFT_PROGRESS_CALLER);
    struct weft_schedule *s = new_schedule(0, 1);
    size_t counter = 0;
    struct weft_op *op = counting(&counter);
    weft_node_t before = -1;
    for (int i = 0; i < MILLION; i++) {
        weft_node_t node =
            i % 1000 == 999 ? add_compute(s, op, NULL, 0, 0, 0) : weft_schedule_add_join(s);
        if (before >= 0)
            OK(weft_schedule_add_order(s, before, node));
        before = node;
    }
    struct weft_run *run = make_run(alone.context, commit(s), NULL);
    for (int i = 1; i <= 3; i++) {
        OK(weft_run_execute(run));
        cr_expect_eq(counter, (size_t)i * MILLION / 1000);
    }
    weft_run_destroy(run);
    weft_op_destroy(op);
    alone_destroy(&alone);
}

Test(limits, a_million_nodes_without_order)
{
    struct alone alone = alone_create(WEFT_PROGRESS_HELPER);
    struct weft_schedule *s = new_schedule(0, 1);
    struct weft_context_stats stats = {.struct_size = sizeof stats};
    for (int i = 0; i < MILLION; i++)
        weft_schedule_add_join(s);
    struct weft_run *run = make_run(alone.context, commit(s), NULL);
    OK(weft_run_execute(run));
    OK(weft_run_execute(run));
    OK(weft_context_get_stats(alone.context, &stats));
    cr_expect_eq(stats.nodes, 2u * MILLION);
    weft_run_destroy(run);
    alone_destroy(&alone);
}

/* event -> FAN computes -> one that waits for all, one that waits for any. */
Test(limits, a_node_with_a_hundred_thousand_successors_and_one_with_as_many_predecessors)
{
    struct alone alone = alone_create(WEFT_PROGRESS_CALLER);
    struct weft_schedule *s = new_schedule(0, 1);
    size_t middle = 0, end = 0;
    struct weft_op *op = counting(&middle), *last = counting(&end);
    weft_node_t events[2] = {weft_schedule_add_event(s, WEFT_CHANNEL_NONE),
                             weft_schedule_add_event(s, WEFT_CHANNEL_NONE)};
    OK(weft_schedule_add_choice(s, events, 2));
    weft_node_t all = add_compute(s, last, NULL, 0, 0, 0);
    weft_node_t any = add_compute(s, last, NULL, 0, 0, 0);
    OK(weft_schedule_set_any(s, any));
    for (int i = 0; i < FAN; i++) {
        weft_node_t node = add_compute(s, op, NULL, 0, 0, 0);
        OK(weft_schedule_add_order(s, events[0], node));
        OK(weft_schedule_add_order(s, node, all));
        OK(weft_schedule_add_order(s, node, any));
    }
    struct weft_run *run = make_run(alone.context, commit(s), NULL);
    for (int retired = 0; retired < 4; retired++) {
        middle = end = 0;
        OK(weft_run_start(run));
        OK(weft_run_fire(run, events[retired % 2]));
        OK(weft_run_wait(run, WEFT_NEVER));
        cr_expect_eq(middle, retired % 2 ? 0 : FAN);
        cr_expect_eq(end, retired % 2 ? 0 : 2);
    }
    weft_run_destroy(run);
    weft_op_destroy(op);
    weft_op_destroy(last);
    alone_destroy(&alone);
}

/* ---- requests in flight ---- */

enum { REQUESTS = 10000 };

/* All to the next rank and from the one before, receives posted in the opposite order. */
static void flood(struct ranks *ranks, struct weft_context *context, int rank)
{
    int size = ranks->size;
    int before = (rank + size - 1) % size;
    struct weft_schedule *s = new_schedule(rank, size);
    weft_slot_t in = weft_schedule_add_slot(s, "in", WEFT_I64, REQUESTS, WEFT_SLOT_INPUT);
    weft_slot_t out = weft_schedule_add_slot(s, "out", WEFT_I64, REQUESTS, WEFT_SLOT_OUTPUT);
    for (uint32_t i = 0; i < REQUESTS; i++)
        weft_schedule_add_send(s, weft_region_at(in, i, 1), (rank + 1) % size, i);
    for (uint32_t i = REQUESTS; i-- > 0;)
        weft_schedule_add_recv(s, weft_region_at(out, i, 1), before, i);
    struct weft_run *run = make_run(context, commit(s), NULL);
    int64_t *x = calloc(REQUESTS, sizeof *x), *y = calloc(REQUESTS, sizeof *y);
    OK(bind_slot(run, in, x));
    OK(bind_slot(run, out, y));
    for (int64_t round = 0; round < 3; round++) {
        for (int64_t i = 0; i < REQUESTS; i++)
            x[i] = i + rank * 1000000 + round;
        OK(weft_run_execute(run));
        for (int64_t i = 0; i < REQUESTS; i++)
            CHECK(y[i] == i + before * 1000000 + round);
    }
    weft_run_destroy(run);
    free(x);
    free(y);
}

Test(limits, ten_thousand_requests_in_flight)
{
    const int sizes[] = {1, 2, 3};
    for (int i = 0; i < 3; i++)
        ranks_run_each_protocol(flood, sizes[i], NULL);
}

/* ---- objects ---- */

enum { OBJECTS = 3000 };

static struct weft_plan *shift(int rank, int size)
{
    struct weft_schedule *s = new_schedule(rank, size);
    weft_slot_t x = weft_schedule_add_slot(s, "x", WEFT_I64, 2, WEFT_SLOT_INOUT);
    weft_schedule_add_send(s, weft_region_at(x, 0, 1), (rank + 1) % size, 0);
    weft_schedule_add_recv(s, weft_region_at(x, 1, 1), (rank + size - 1) % size, 0);
    return commit(s);
}

static void many_objects(struct ranks *ranks, struct weft_context *context, int rank)
{
    struct weft_run **runs = calloc(OBJECTS, sizeof *runs);
    int64_t(*x)[2] = calloc(OBJECTS, sizeof *x);
    int before = (rank + ranks->size - 1) % ranks->size;
    struct weft_plan *plan = shift(rank, ranks->size);
    for (int o = 0; o < OBJECTS; o++) {
        OK(weft_run_create(&runs[o], context, plan, NULL));
        OK(bind_slot(runs[o], 0, x[o]));
        x[o][0] = rank * OBJECTS + o;
        /* Some start before the later ones exist. */
        if (o % 2)
            OK(weft_run_start(runs[o]));
    }
    weft_plan_destroy(plan);
    for (int o = 0; o < OBJECTS; o += 2)
        OK(weft_run_start(runs[o]));
    for (int o = OBJECTS; o-- > 0;) {
        OK(weft_run_wait(runs[o], WEFT_NEVER));
        CHECK(x[o][1] == before * OBJECTS + o);
    }
    for (int o = 0; o < OBJECTS; o++)
        weft_run_destroy(runs[(o * 7) % OBJECTS]);
    free(runs);
    free(x);
}

Test(limits, thousands_of_objects_are_in_flight)
{
    ranks_run_each_protocol(many_objects, 2, NULL);
}

Test(limits, objects_come_and_go)
{
    struct alone alone = alone_create(WEFT_PROGRESS_CALLER);
    struct weft_plan *plan = shift(0, 1);
    int64_t x[2] = {5, 0};
    for (int o = 0; o < 20000; o++) {
        struct weft_run *run = NULL;
        OK(weft_run_create(&run, alone.context, plan, NULL));
        OK(bind_slot(run, 0, x));
        x[1] = 0;
        OK(weft_run_execute(run));
        CHECK(x[1] == 5);
        weft_run_destroy(run);
    }
    weft_plan_destroy(plan);
    alone_destroy(&alone);
}

/* ---- ranks and contexts ---- */

static void sum_of_ranks(struct ranks *ranks, struct weft_context *context, int rank)
{
    struct weft_template_params params;
    struct weft_run *run = NULL;
    int64_t in = rank, out = 0;
    weft_template_params_init(&params);
    params.count = 1;
    params.dtype = WEFT_I64;
    OK(weft_template_create_run(&run, context, "allreduce", &params));
    OK(bind_name(run, "send", &in));
    OK(bind_name(run, "recv", &out));
    for (int i = 0; i < 3; i++) {
        OK(weft_run_execute(run));
        CHECK(out == ranks->size * (ranks->size - 1) / 2);
    }
    weft_run_destroy(run);
}

Test(limits, sixty_four_ranks_in_one_process)
{
    ranks_run_each_progress(sum_of_ranks, 64, NULL);
}

/* A slot larger than 4 GiB of elements may be described; nothing needs its memory offline. */
Test(limits, counts_are_size_t)
{
    struct weft_schedule *s = new_schedule(0, 2);
    const size_t huge = (size_t)3 << 32;
    weft_slot_t x = weft_schedule_add_slot(s, "x", WEFT_F64, huge, WEFT_SLOT_INPUT);
    weft_schedule_add_send(s, weft_region_at(x, huge - 5, 5), 1, UINT32_MAX);
    weft_schedule_add_send(s, weft_region_at(x, 0, huge - 5), 1, 0);
    weft_plan_destroy(commit(s));
}
