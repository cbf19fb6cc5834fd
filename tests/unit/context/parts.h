/* SPDX-License-Identifier: BSD-3-Clause */
/* What an object of the suites is made of: runs of a chain that one rank holds, and series. */
#ifndef WEFT_TESTS_CONTEXT_PARTS_H
#define WEFT_TESTS_CONTEXT_PARTS_H

#include "support/virtual_ranks.h"
#include "tests/support/compute.h"

#define MS UINT64_C(1000000)
#define S  UINT64_C(1000000000)

/* An operation that fails, for compute nodes. */
static inline int break_down(struct weft_call *call)
{
    (void)call;
    return weft_error_set(WEFT_ERR_COMPUTE, "it broke");
}

static inline struct weft_op *broken_op(void)
{
    struct weft_op_config config;
    struct weft_op *op = NULL;
    weft_op_config_init(&config);
    config.name = "broken";
    config.compute = break_down;
    OK(weft_op_create(&op, &config));
    return op;
}

/* A chain from `first` on to all ranks, which that rank begins by event 0. `op`: it is called there
 * before the message is sent; or NULL. */
static inline struct weft_plan *chain_from(int first, int rank, int size, const char *name,
                                           const struct weft_op *op)
{
    struct weft_schedule *s = new_schedule(rank, size);
    weft_slot_t x = weft_schedule_add_slot(s, "x", WEFT_I64, 1, WEFT_SLOT_INOUT);
    weft_node_t before;
    OK(weft_schedule_set_name(s, name));
    if (rank == first)
        before = weft_schedule_add_event(s, WEFT_CHANNEL_NONE);
    else
        before = weft_schedule_add_recv(s, weft_region_at(x, 0, 1), (rank + size - 1) % size, 0);
    if (rank == first && op) {
        weft_node_t call = add_compute(s, op, NULL, 0, 0, 0);
        OK(weft_schedule_add_order(s, before, call));
        before = call;
    }
    if ((rank + 1) % size != first)
        OK(weft_schedule_add_order(
            s, before, weft_schedule_add_send(s, weft_region_at(x, 0, 1), (rank + 1) % size, 0)));
    return commit(s);
}

/* A run of it, bound. */
static inline struct weft_run *chain_run(struct weft_context *context, struct weft_object *object,
                                         int first, const char *name, const struct weft_op *op,
                                         int64_t *x)
{
    struct weft_run_config config;
    weft_run_config_init(&config);
    config.object = object;
    struct weft_run *run = make_run(
        context,
        chain_from(first, weft_context_rank(context), weft_context_size(context), name, op),
        &config);
    OK(bind_slot(run, 0, x));
    return run;
}

/* Starts a chain, and begins it where it begins. */
static inline int chain_start(struct weft_run *run, int first, int rank)
{
    int status = weft_run_start(run);
    return status == WEFT_OK && rank == first ? weft_run_fire(run, 0) : status;
}

/* One event, and nothing else. */
static inline struct weft_plan *wait_plan(int rank, int size)
{
    struct weft_schedule *s = new_schedule(rank, size);
    OK(weft_schedule_set_name(s, "wait"));
    weft_schedule_add_event(s, WEFT_CHANNEL_NONE);
    return commit(s);
}

static inline struct weft_series *wait_series(struct weft_context *context,
                                              struct weft_series_config *config)
{
    struct weft_series *series = NULL;
    struct weft_plan *plan = wait_plan(weft_context_rank(context), weft_context_size(context));
    config->plans = &plan;
    config->plan_count = 1;
    OK(weft_series_create(&series, context, config));
    weft_plan_destroy(plan);
    return series;
}

/* The context still works: a chain of its own, which belongs to nothing. Collective. */
static inline void still_works(struct weft_context *context)
{
    int rank = weft_context_rank(context);
    int64_t x = rank == 0 ? 4711 : 0;
    struct weft_run *run = chain_run(context, NULL, 0, "other", NULL, &x);
    OK(chain_start(run, 0, rank));
    OK(weft_run_wait(run, WEFT_NEVER));
    CHECK(x == 4711);
    weft_run_destroy(run);
}

/* Returns when all ranks are here. Collective. */
static inline void meet(struct weft_context *context)
{
    int64_t in = 1, out = 0;
    struct weft_run *run = allreduce(context, 1);
    OK(bind_name(run, "send", &in));
    OK(bind_name(run, "recv", &out));
    OK(weft_run_execute(run));
    CHECK(out == weft_context_size(context));
    weft_run_destroy(run);
}

static inline int local_run(int size, weft_progress_t progress, weft_rank_fn fn, void *user)
{
    struct weft_context_config config;
    weft_context_config_init(&config);
    config.progress = progress;
    config.log_level = WEFT_LOG_ERROR;
    return weft_local_run(size, &config, fn, user);
}

/* A number that depends on the seed and where it is wanted. */
static inline uint64_t drawn(uint64_t seed, uint64_t what, uint64_t below)
{
    uint64_t x = seed * UINT64_C(0x9e3779b97f4a7c15) + what * UINT64_C(0xbf58476d1ce4e5b9) + 1;
    x = (x ^ (x >> 31)) * UINT64_C(0x94d049bb133111eb);
    x = (x ^ (x >> 29)) * UINT64_C(0xbf58476d1ce4e5b9);
    return (x ^ (x >> 32)) % below;
}

#endif
