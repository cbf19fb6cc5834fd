/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ALL, ANY, choices and retirement are written twice: in graph/settle.h for all who execute
 * offline, and in the engine. Random graphs of one rank, of joins and events that the test fires,
 * go through the engine and through each of the others: the same nodes end, and the same are
 * retired.
 */
#include <criterion/criterion.h>

#include "runtime/base/hash.h"
#include "runtime/check/check.h"
#include "runtime/engine/engine.h"
#include "runtime/graph/resolve.h"
#include "support/ranks.h"

enum { SEEDS = 300, MOST_NODES = 40, TURNS = 4 };

static uint64_t below(uint64_t *random, uint64_t most)
{
    return weft__random(random) % most;
}

static struct weft_schedule *draw(uint64_t *random)
{
    struct weft_schedule *schedule = new_schedule(0, 1);
    int nodes = 2 + (int)below(random, MOST_NODES - 2), events[MOST_NODES], event_count = 0;
    uint64_t density = 1 + below(random, 30);

    for (int n = 0; n < nodes; n++) {
        if (below(random, 3)) {
            weft_schedule_add_join(schedule);
        } else {
            weft_schedule_add_event(schedule, WEFT_CHANNEL_NONE);
            events[event_count++] = n;
        }
        if (!below(random, 3))
            weft_schedule_set_any(schedule, n);
        for (int before = 0; before < n; before++)
            for (uint64_t times = below(random, 100) < density ? 1 + below(random, 2) : 0;
                 times > 0; times--)
                weft_schedule_add_order(schedule, before, n);
    }
    /* Choices of events that are not neighbours. */
    for (int c = 0; c < 3; c++) {
        weft_node_t members[MOST_NODES];
        size_t count = 0;

        for (int i = c; i < event_count; i += 3)
            members[count++] = events[i];
        if (count && below(random, 4))
            OK(weft_schedule_add_choice(schedule, members, count));
    }
    OK(weft_schedule_status(schedule));
    return schedule;
}

/* ---- the engine ---- */

/* Executes until nothing goes on. */
static void settle_engine(struct weft_run *run)
{
    for (int i = 0; i < TURNS; i++)
        weft_run_test(run);
}

/* Fires the events in the given order. The words of the run's nodes say what has become of them. */
static void execute_engine(struct weft_run *run, const weft_node_t *events, size_t count)
{
    OK(weft_run_start(run));
    settle_engine(run);
    for (size_t i = 0; i < count && weft_run_test(run) == WEFT_IN_PROGRESS; i++) {
        CHECK(weft_run_fire(run, events[i]) >= 0);
        settle_engine(run);
    }
    OK(weft_run_wait(run, UINT64_C(10000000000)));
}

static int is_retired(const struct weft_run *run, size_t node)
{
    return (run->waits[node] & WEFT__RETIRE) != 0;
}

/* All events, those that wait for others before the rest if `waiting_first`. */
static size_t all_events(const struct weft_schedule *schedule, int waiting_first,
                         weft_node_t events[MOST_NODES])
{
    uint8_t waits[MOST_NODES] = {0};
    size_t count = 0;

    for (size_t e = 0; e < schedule->edge_count; e++)
        waits[schedule->edges[e].after] = 1;
    for (int turn = 0; turn < 2; turn++)
        for (size_t n = 0; n < schedule->node_count; n++)
            if (schedule->nodes[n].kind == WEFT_NODE_EVENT &&
                (waiting_first ? waits[n] != turn : !turn))
                events[count++] = (weft_node_t)n;
    return count;
}

/* ---- the others ---- */

static void compare_resolution(const struct weft_schedule *schedule, struct weft_run *run,
                               uint64_t seed)
{
    struct weft__pairs pairs = {0};
    struct weft__resolution resolution;
    weft_node_t events[MOST_NODES];

    execute_engine(run, events, all_events(schedule, 0, events));
    OK(weft__resolution_build(&resolution, &schedule, 1, &pairs, NULL, 0));
    for (size_t n = 0; n < schedule->node_count; n++)
        cr_assert_eq(resolution.fate[n], is_retired(run, n) ? WEFT__FATE_RETIRED : WEFT__FATE_ENDED,
                     "resolution: seed %lu node %zu", seed, n);
    weft__resolution_free(&resolution);
}

static void compare_simulation(const struct weft_schedule *schedule, struct weft_run *run,
                               uint64_t seed)
{
    struct weft_sim_config config;
    struct weft_sim_result *result;
    weft_node_t events[MOST_NODES];

    execute_engine(run, events, all_events(schedule, 1, events));
    weft_sim_config_init(&config);
    config.ranks = 1;
    config.schedules = &schedule;
    config.flags = WEFT_SIM_KEEP_NODES;
    OK(weft_simulate(&config, &result));
    cr_assert(result->complete, "simulation: seed %lu", seed);
    for (size_t n = 0; n < schedule->node_count; n++)
        cr_assert_eq(result->nodes_at[n].retired, is_retired(run, n),
                     "simulation: seed %lu node %zu", seed, n);
    weft_sim_result_destroy(result);
}

/* The checker draws which event of each choice wins; the engine is made to let the same win. */
static void compare_check(const struct weft_schedule *schedule, struct weft_run *run, uint64_t seed)
{
    struct weft_check_report report = {0};
    struct weft__check check = {.report = &report, .size = 1};
    struct weft__execution execution;
    weft_node_t events[MOST_NODES];
    size_t count = 0;

    OK(weft__check_graph(&check, &schedule, 1));
    cr_assert_eq(weft__execution_create(&execution, &check), 0);
    execution.symbolic = 0;
    execution.decisions.random = seed;
    execution.decisions.only = -1;
    cr_assert_eq(weft__execute(&execution), 0);
    cr_assert_eq(execution.ended, schedule->node_count, "check: seed %lu", seed);
    for (size_t n = 0; n < schedule->node_count; n++)
        if (schedule->nodes[n].kind == WEFT_NODE_EVENT && schedule->nodes[n].choice < 0)
            events[count++] = (weft_node_t)n;
    for (size_t c = 0; c < check.choice_count; c++)
        if (execution.winner[c] != WEFT__CHECK_NONE)
            events[count++] = (weft_node_t)execution.winner[c];
    execute_engine(run, events, count);
    for (size_t n = 0; n < schedule->node_count; n++)
        cr_assert_eq(execution.state[n], is_retired(run, n) ? WEFT__NODE_RETIRED : WEFT__NODE_ENDED,
                     "check: seed %lu node %zu", seed, n);
    weft__execution_destroy(&execution);
    weft__check_graph_free(&check);
}

static void compare_all(uint64_t first, uint64_t last)
{
    struct alone alone = alone_create(WEFT_PROGRESS_CALLER);

    for (uint64_t seed = first; seed <= last; seed++) {
        uint64_t random = seed;
        struct weft_schedule *schedule = draw(&random);
        struct weft_plan *plan = NULL;
        struct weft_run *run;

        OK(weft_schedule_commit(schedule, &plan));
        run = make_run(alone.context, plan, NULL);
        compare_resolution(schedule, run, seed);
        compare_simulation(schedule, run, seed);
        compare_check(schedule, run, seed);
        weft_run_destroy(run);
        weft_schedule_destroy(schedule);
    }
    alone_destroy(&alone);
}

Test(settle, the_engine_and_all_others_retire_the_same_nodes)
{
    compare_all(1, SEEDS);
}
