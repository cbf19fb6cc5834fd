/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Turns over communicators, in virtual time and with imagined devices: several runs on each rank,
 * some in a known order and some agreed on message by message, started in another order on each
 * rank, that fail on some rank at some moment, and ranks that die. Whatever happens, nothing waits
 * for what cannot come, and what ends well has the right sums.
 *
 * WEFT_TEST_SEEDS=n: so many plays for each test. WEFT_TEST_SEED=s: this one.
 */
#include <criterion/criterion.h>
#include <stdio.h>

#include "support/virtual_ranks.h"
#include "tests/gpu/support/device_memory.h"
#include "tests/support/draw.h"
#include "tests/support/imagined_device.h"

enum { SEEDS = 60, MOST_RANKS = 7, RUNS = 4, ROUNDS = 5, COUNT = 40 };

struct play {
    uint64_t seed;
    int size;
    int fails; /* runs fail now and then */
    int dies;  /* a rank does */
};

static const char *const algos[] = {"ring", "recursive-doubling", "reduce-scatter-allgather"};

/* What all ranks draw alike, and what each draws by itself. */
static uint64_t alike(const struct play *play, int what, int number)
{
    struct draw draw = {play->seed * 1000003 + (uint64_t)what * 1009 + (uint64_t)number};

    return draw_word(&draw);
}

struct rank {
    const struct play *play;
    struct weft_context *context;
    int rank;
    struct draw random;
    struct weft_run *runs[RUNS];
    int64_t *memory[RUNS];
};

static int create(struct rank *rank, int run)
{
    uint64_t any = alike(rank->play, 1, run);
    struct weft_template_params params;
    struct weft_run_config config;
    struct weft_schedule *s;
    struct weft_plan *plan;
    int status;

    weft_template_params_init(&params);
    params.count = COUNT;
    params.dtype = WEFT_I64;
    params.op = weft_op_builtin(WEFT_SUM);
    params.algo = algos[any % 3];
    params.in_place = 1;
    OK(weft_template_build("allreduce", rank->rank, rank->play->size, &params, &s));
    OK(weft_schedule_set_memory(s, WEFT_SLOT_ALL, WEFT_MEMORY_DEVICE));
    OK(weft_schedule_commit(s, &plan));
    weft_schedule_destroy(s);
    weft_run_config_init(&config);
    config.nccl = any / 3 % 2 ? WEFT_NCCL_KNOWN : WEFT_NCCL_AGREED;
    status = weft_run_create(&rank->runs[run], rank->context, plan, &config);
    weft_plan_destroy(plan);
    if (status == WEFT_OK)
        OK(bind_slot(rank->runs[run], 0, rank->memory[run]));
    return status;
}

static void fill(struct rank *rank, int run, int round)
{
    for (int i = 0; i < COUNT; i++)
        rank->memory[run][i] = rank->rank + 100 * round + 1000 * run + i;
}

static void check(const struct rank *rank, int run, int round)
{
    int64_t size = rank->play->size;

    for (int i = 0; i < COUNT; i++)
        CHECK(rank->memory[run][i] ==
              size * (size - 1) / 2 + size * (100 * round + 1000 * run + i));
}

/* All start all runs, each in its own order; the status of each. */
static int one_round(struct rank *rank, int round, int statuses[RUNS])
{
    int order[RUNS];
    /* In this round, on that rank, at some moment after its start. */
    int culprit = (int)(alike(rank->play, 2, round) % (unsigned)rank->play->size);
    int failing = rank->play->fails ? (int)(alike(rank->play, 3, round) % (2 * RUNS)) : RUNS;

    for (int i = 0; i < RUNS; i++)
        order[i] = i;
    for (int i = RUNS - 1; i > 0; i--) {
        int other = (int)draw_below(&rank->random, (unsigned)i + 1), held = order[i];

        order[i] = order[other];
        order[other] = held;
    }
    for (int i = 0; i < RUNS; i++) {
        fill(rank, order[i], round);
        if (draw_below(&rank->random, 2))
            weft_context_sleep(rank->context, draw_below(&rank->random, 30000));
        statuses[order[i]] = weft_run_start(rank->runs[order[i]]);
        if (statuses[order[i]] != WEFT_OK)
            return statuses[order[i]];
    }
    if (failing < RUNS && culprit == rank->rank) {
        if (draw_below(&rank->random, 2))
            weft_context_sleep(rank->context, draw_below(&rank->random, 60000));
        OK(weft_run_cancel(rank->runs[failing]));
    }
    for (int i = 0; i < RUNS; i++)
        statuses[i] = weft_run_wait(rank->runs[i], WEFT_NEVER);
    return WEFT_OK;
}

static int barrier(struct rank *rank)
{
    return weft_barrier(rank->context);
}

/* A run that has failed on some rank is made anew on all: they tell each other. */
static int make_anew(struct rank *rank, const int statuses[RUNS])
{
    int64_t failed[RUNS], any[RUNS];
    int status;

    for (int i = 0; i < RUNS; i++)
        failed[i] = statuses[i] < 0;
    status = weft_allreduce(rank->context, failed, any, RUNS, WEFT_I64, weft_op_builtin(WEFT_MAX));
    for (int i = 0; i < RUNS && status == WEFT_OK; i++) {
        if (!any[i])
            continue;
        while (weft_run_reclaim(rank->runs[i]) == WEFT_IN_PROGRESS)
            weft_context_sleep(rank->context, 1000);
        weft_run_destroy(rank->runs[i]);
        rank->runs[i] = NULL;
        status = create(rank, i);
    }
    return status;
}

static int play_rank(struct weft_context *context, void *user)
{
    const struct play *play = user;
    struct rank rank = {.play = play, .context = context, .rank = weft_context_rank(context)};
    int status = WEFT_OK;

    rank.random.state = alike(play, 4, rank.rank);
    for (int i = 0; i < RUNS; i++)
        rank.memory[i] = device_alloc(COUNT * sizeof(int64_t));
    for (int i = 0; i < RUNS && status == WEFT_OK; i++)
        status = create(&rank, i);
    for (int round = 0; round < ROUNDS && status == WEFT_OK; round++) {
        int statuses[RUNS] = {0};

        status = one_round(&rank, round, statuses);
        for (int i = 0; i < RUNS && status == WEFT_OK; i++) {
            CHECK(statuses[i] == WEFT_OK || play->fails || play->dies);
            if (statuses[i] == WEFT_OK)
                check(&rank, i, round);
        }
        if (status == WEFT_OK)
            status = make_anew(&rank, statuses);
    }
    if (status == WEFT_OK)
        status = barrier(&rank);
    CHECK(status == WEFT_OK || play->dies);
    for (int i = 0; i < RUNS; i++) {
        weft_run_destroy(rank.runs[i]);
        device_free(rank.memory[i]);
    }
    return WEFT_OK;
}

static void step_devices(void *user, const struct weft_virtual_event *event)
{
    (void)user;
    (void)event;
    imagined_step();
}

static void play_seed(uint64_t seed, int fails, int dies)
{
    struct play play = {.seed = seed, .fails = fails, .dies = dies};
    uint64_t any = alike(&play, 0, 0);
    struct weft_virtual_fault fault = {.for_ns = WEFT_NEVER};
    struct weft_virtual_config config;
    struct weft_net net;

    play.size = 2 + (int)(any % (MOST_RANKS - 1));
    config = with_delays(seed, any / 8 % 3 * 4000, any / 32 % 2 ? 0.1 : 0, 100000);
    give_net(&config, &net);
    config.trace = step_devices;
    config.limit_ns = UINT64_C(20000000000);
    if (dies) {
        fault.rank = (int)(any / 64 % (unsigned)play.size);
        fault.at_ns = any / 512 % 3000000;
        config.faults = &fault;
        config.fault_count = 1;
        config.deaths = 1;
        config.death_ns = any / 4096 % 3 * 20000;
    }
    imagined_begin(seed);
    int status = weft_virtual_run(play.size, &config, play_rank, &play);
    if (status != WEFT_OK)
        imagined_report();
    cr_assert_eq(status, WEFT_OK, "seed %llu: %s", (unsigned long long)seed, weft_error_text());
    if (!dies)
        imagined_end();
}

static void play_seeds(uint64_t first, int fails, int dies)
{
    const char *count = getenv("WEFT_TEST_SEEDS"), *seed = getenv("WEFT_TEST_SEED");
    uint64_t seeds = count ? strtoull(count, NULL, 10) : seed ? 1 : SEEDS;

    if (seed)
        first = strtoull(seed, NULL, 10);
    for (uint64_t s = first; s < first + seeds; s++)
        play_seed(s, fails, dies);
    cr_expect_gt(imagined_groups(), 0, "no message went over a communicator");
    cr_expect_gt(imagined_waits(), 0, "no message waited for its other end");
}

Test(turns, are_taken_in_one_order)
{
    play_seeds(1000, 0, 0);
}

Test(turns, of_runs_that_fail_are_given_back)
{
    play_seeds(2000, 1, 0);
}

Test(turns, of_ranks_that_die_are_not_waited_for)
{
    play_seeds(3000, 0, 1);
}

Test(turns, whatever_happens)
{
    play_seeds(4000, 1, 1);
}
