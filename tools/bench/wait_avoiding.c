/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * weft bench wait-avoiding: what a sleeping rank costs the others, how soon a passive rank takes
 * part, and what being able to do without anybody costs when everybody is there.
 *
 *   sleeper     steps of group averaging, a short sleep before each; rank 0 sleeps 300 ms instead.
 *               The latencies of the others' steps, beside those of a turn without the sleeper.
 *   activation  2 ranks: rank 0 fires the event of an activation, rank 1 computes or sleeps; until
 *               its first node behind the activation, which is its first send, is reached.
 *   cost        back to back, everybody waited for: a wait-avoiding allreduce in a group beside the
 *               plain one, and a step of group averaging beside allreduce and division in place.
 */
#include "tools/bench/bench.h"
#include "tools/cli/ranks.h"

#include <math.h>
#include <string.h>
#include <time.h>
#include <weft/activation.h>
#include <weft/groups.h>
#include <weft/memory.h>
#include <weft/plan.h>

enum {
    STEPS = 150,     /* of a turn with or without a sleeper */
    MODEL = 1024,    /* elements there */
    SETTLE = 10,     /* first steps that do not count */
    WAIT_MS = 20,    /* before an activation */
    TURN_US = 30000, /* of a contender's turn */
    MOST_REPS = 2000,
    APPLICATION = 0 /* the first node of an activation */
};
static const uint64_t sleep_ns = 300000000, compute_ns = 2000000;

/* One rank. */
struct side {
    struct weft_context *context;
    /* sleeper */
    double *mine;
    double *all; /* of all ranks, by rank */
    struct weft_run *gather;
    /* activation */
    struct weft_op *stamp;
    struct weft_run *activated;
    weft_node_t event;
    uint64_t stamped;
    uint64_t fired;
    /* cost */
    struct weft_group_average *average;
    struct weft_run *runs[4]; /* of the other contenders */
    float *send;
    float *recv;
    double us;
};

struct contest;
typedef int (*side_fn)(struct contest *contest, struct side *side);

struct contest {
    struct bench *bench;
    int ranks;
    enum bench_over over;
    int local; /* over local ranks */
    struct bench_team team;
    struct weft_context *context;
    struct side *sides; /* one of a process */
    /* of the turn under way */
    side_fn fn;
    int sleeps; /* rank 0 does; or: the passive rank sleeps */
    int contender;
    size_t count;
    size_t reps;
};

/* ---- all ranks of a transport ---- */

static int member(struct bench_team *team, int rank, void *user)
{
    struct contest *contest = user;

    contest->sides[rank].context = team->contexts[rank];
    return contest->fn(contest, &contest->sides[rank]);
}

/* Runs a function on all ranks. Over processes collective. */
static int on_all(struct contest *contest, side_fn fn)
{
    contest->fn = fn;
    if (contest->local)
        return bench_team_run(&contest->team, member, contest);
    contest->sides[0].context = contest->context;
    bench_mpi_meet();
    return fn(contest, &contest->sides[0]);
}

static int open_ranks(struct contest *contest)
{
    struct weft_context_config config;

    weft_context_config_init(&config);
    config.progress = WEFT_PROGRESS_HELPER;
    contest->sides = calloc(contest->local ? (size_t)contest->ranks : 1, sizeof(struct side));
    if (!contest->sides)
        return weft_error_set(WEFT_ERR_MEMORY, "out of memory for %d ranks", contest->ranks);
    if (contest->local)
        return bench_team_open(&contest->team, contest->ranks, &config);
    contest->context = bench_context(contest->bench, contest->over, &config);
    return contest->context ? WEFT_OK : WEFT_ERR_TRANSPORT;
}

static void close_ranks(struct contest *contest)
{
    if (contest->local)
        bench_team_close(&contest->team);
    weft_context_destroy(contest->context);
    free(contest->sides);
}

/* The side of a rank that is in this process, for what only it knows. */
static struct side *side_of(struct contest *contest, int rank)
{
    if (contest->local)
        return &contest->sides[rank];
    return contest->bench->rank == rank ? &contest->sides[0] : NULL;
}

/* What a rank knows, on all processes. */
static double ask(struct contest *contest, int rank, double (*what)(const struct side *side))
{
    struct side *side = side_of(contest, rank);
    double value = side ? what(side) : 0;

    return contest->local ? value : bench_mpi_agree(value, 0);
}

static void print(struct contest *contest, const char *what, const char *unit, const char *peer,
                  const struct bench_samples *weft, const struct bench_samples *peers, double limit,
                  size_t bytes)
{
    struct bench_row row = {.what = what,
                            .unit = unit,
                            .transport = bench_over_name(contest->over),
                            .peer = peer,
                            .weft = weft,
                            .peers = peers,
                            .limit = limit,
                            .bytes = bytes};

    bench_print(contest->bench, &row);
}

/* ---- a rank that sleeps ---- */

static int open_sleeper(struct contest *contest, struct side *side)
{
    struct weft_template_params params;
    size_t ranks = (size_t)contest->ranks;

    side->mine = weft_memory_alloc(STEPS, sizeof(double));
    side->all = weft_memory_alloc(STEPS * ranks, sizeof(double));
    if (!side->mine || !side->all)
        return weft_error_set(WEFT_ERR_MEMORY, "out of memory for %d latencies", STEPS);
    weft_template_params_init(&params);
    params.count = STEPS;
    params.dtype = WEFT_F64;
    int status = weft_template_create_run(&side->gather, side->context, "allgather", &params);
    if (status == WEFT_OK)
        status = weft_run_bind_input_name(side->gather, "send", side->mine, STEPS, WEFT_F64);
    return status == WEFT_OK
               ? weft_run_bind_name(side->gather, "recv", side->all, STEPS * ranks, WEFT_F64)
               : status;
}

static int close_sleeper(struct contest *contest, struct side *side)
{
    (void)contest;
    weft_run_destroy(side->gather);
    weft_memory_free(side->mine);
    weft_memory_free(side->all);
    return WEFT_OK;
}

static int steps(struct contest *contest, struct side *side, struct weft_group_average *average)
{
    int asleep = contest->sleeps && weft_context_rank(side->context) == 0;
    int count = asleep ? (int)((STEPS * compute_ns + sleep_ns - 1) / sleep_ns) : STEPS;
    int status = WEFT_OK;

    for (int i = 0; i < count && status == WEFT_OK; i++) {
        weft_context_sleep(side->context, asleep ? sleep_ns : compute_ns);
        uint64_t began = ranks_now();
        status = weft_group_average_step(average, NULL);
        side->mine[i] = (double)(ranks_now() - began) * 1e-3;
    }
    return status;
}

static int sleeper_turn(struct contest *contest, struct side *side)
{
    float model[MODEL] = {0};
    struct weft_piece tensor = {model, MODEL};
    struct weft_group_average_config config;
    struct weft_group_average *average = NULL;

    weft_group_average_config_init(&config);
    config.tensors = &tensor;
    config.tensor_count = 1;
    config.sync_period = WEFT_NEVER;
    int status = weft_group_average_create(&average, side->context, &config);
    if (status == WEFT_OK) {
        status = steps(contest, side, average);
        int ended = weft_group_average_destroy(average);
        status = status == WEFT_OK ? ended : status;
    }
    return status == WEFT_OK ? weft_run_execute(side->gather) : status;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;

    return (x > y) - (x < y);
}

/* Median and 99th percentile of the steps of all ranks but the one that may sleep. */
static void add_latencies(struct contest *contest, struct bench_samples *median,
                          struct bench_samples *high)
{
    double *all = contest->sides[0].all, *end = all;

    for (int r = 1; r < contest->ranks; r++)
        for (int i = SETTLE; i < STEPS; i++)
            *end++ = all[r * STEPS + i];
    size_t n = (size_t)(end - all);
    qsort(all, n, sizeof(double), by_value);
    bench_sample(median, all[n / 2]);
    bench_sample(high, all[n - 1 - n / 100]);
}

static int measure_sleeper(struct contest *contest)
{
    struct bench_samples median[2], high[2];
    char what[64];
    int status = on_all(contest, open_sleeper);

    memset(median, 0, sizeof median);
    memset(high, 0, sizeof high);
    for (int round = 0; round < contest->bench->rounds && status == WEFT_OK; round++) {
        for (int i = 0; i < 2 && status == WEFT_OK; i++) {
            contest->sleeps = (i + round) % 2;
            status = on_all(contest, sleeper_turn);
            if (status == WEFT_OK)
                add_latencies(contest, &median[contest->sleeps], &high[contest->sleeps]);
        }
    }
    if (status != WEFT_OK)
        return bench_fail(contest->bench, "steps beside a sleeping rank");
    on_all(contest, close_sleeper);
    for (int i = 0; i < 2; i++) {
        const struct bench_samples *samples = i ? high : median;
        snprintf(what, sizeof what, "sleeper %s P=%d %s", bench_over_name(contest->over),
                 contest->ranks, i ? "99th" : "median");
        print(contest, what, "us", "nobody sleeps", &samples[1], &samples[0],
              !i ? 1.2 * bench_median(&samples[0]) : NAN, MODEL * sizeof(float));
    }
    return 0;
}

/* ---- activation ---- */

static int stamp(struct weft_call *call)
{
    *(uint64_t *)call->user = ranks_now();
    return WEFT_OK;
}

static int open_activation(struct contest *contest, struct side *side)
{
    struct weft_op_config config;
    struct weft_schedule *s = NULL;
    struct weft_plan *plan = NULL;
    weft_node_t started;
    int rank = weft_context_rank(side->context);

    (void)contest;
    weft_op_config_init(&config);
    config.name = "stamp";
    config.compute = stamp;
    config.user = &side->stamped;
    int status = weft_op_create(&side->stamp, &config);
    if (status == WEFT_OK)
        status = weft_schedule_create(&s, rank, 2);
    if (status != WEFT_OK)
        return status;
    weft_slot_t token = weft_schedule_add_slot(s, "token", WEFT_U8, 1, WEFT_SLOT_SCRATCH);
    struct weft_region region = weft_region_at(token, 0, 1);
    struct weft_compute_argument written = {region, WEFT_WRITE};
    weft_schedule_set_name(s, "activation");
    side->event = weft_activation_add(s, 0, &started);
    if (rank == 1) {
        weft_node_t stamped = weft_schedule_add_compute(s, side->stamp, &written, 1, 0);
        weft_schedule_add_order(s, started, stamped);
        weft_schedule_add_order(s, stamped, weft_schedule_add_send(s, region, 0, 0));
    } else {
        weft_schedule_add_recv(s, region, 1, 0);
    }
    status = weft_schedule_commit(s, &plan);
    weft_schedule_destroy(s);
    if (status == WEFT_OK)
        status = weft_run_create(&side->activated, side->context, plan, NULL);
    weft_plan_destroy(plan);
    return status;
}

static int close_activation(struct contest *contest, struct side *side)
{
    (void)contest;
    weft_run_destroy(side->activated);
    weft_op_destroy(side->stamp);
    return WEFT_OK;
}

static int activation_turn(struct contest *contest, struct side *side)
{
    uint64_t wait_ns = WAIT_MS * UINT64_C(1000000);
    int status = weft_run_start(side->activated);

    if (status == WEFT_OK && weft_context_rank(side->context) == 0) {
        weft_context_sleep(side->context, wait_ns);
        side->fired = ranks_now();
        status = weft_run_fire(side->activated, side->event);
    } else if (status == WEFT_OK && contest->sleeps) {
        weft_context_sleep(side->context, 2 * wait_ns);
    } else {
        uint64_t end = ranks_now() + 2 * wait_ns;
        while (ranks_now() < end) {
        }
    }
    return status == WEFT_OK ? weft_run_wait(side->activated, WEFT_NEVER) : status;
}

static double stamped(const struct side *side)
{
    return (double)side->stamped;
}

static double fired(const struct side *side)
{
    return (double)side->fired;
}

static int measure_activation(struct contest *contest)
{
    struct bench_samples delay[2];
    int status = on_all(contest, open_activation);

    memset(delay, 0, sizeof delay);
    for (int round = 0; round < contest->bench->rounds && status == WEFT_OK; round++) {
        for (int i = 0; i < 2 && status == WEFT_OK; i++) {
            contest->sleeps = (i + round) % 2;
            status = on_all(contest, activation_turn);
            if (status == WEFT_OK) {
                double end = ask(contest, 1, stamped), start = ask(contest, 0, fired);
                bench_sample(&delay[contest->sleeps], (end - start) * 1e-3);
            }
        }
    }
    if (status != WEFT_OK)
        return bench_fail(contest->bench, "activation");
    on_all(contest, close_activation);
    print(contest, "activation to send, computes", "us", NULL, &delay[0], NULL, NAN, SIZE_MAX);
    print(contest, "activation to send, sleeps", "us", NULL, &delay[1], NULL, NAN, SIZE_MAX);
    return 0;
}

/* ---- the cost when all are there ---- */

enum { AVERAGE, PLAIN_STEP, ACTIVATED, PLAIN, CONTENDERS };

static int open_group(struct contest *contest, struct side *side, int contender)
{
    struct weft_template_params params;

    weft_template_params_init(&params);
    params.count = contest->count;
    params.in_place = contender == PLAIN_STEP;
    int status = weft_template_create_run(
        &side->runs[contender], side->context,
        contender == ACTIVATED ? "wait-avoiding-allreduce" : "group-allreduce", &params);
    if (status == WEFT_OK && !params.in_place)
        status = weft_run_bind_input_name(side->runs[contender], "send", side->send, contest->count,
                                          WEFT_F32);
    return status == WEFT_OK ? weft_run_bind_name(side->runs[contender], "recv", side->recv,
                                                  contest->count, WEFT_F32)
                             : status;
}

static int open_cost(struct contest *contest, struct side *side)
{
    struct weft_group_average_config config;

    side->send = weft_memory_alloc(contest->count, sizeof(float));
    side->recv = weft_memory_alloc(contest->count, sizeof(float));
    if (!side->send || !side->recv)
        return weft_error_set(WEFT_ERR_MEMORY, "out of memory for %zu elements", contest->count);
    for (size_t i = 0; i < contest->count; i++)
        side->send[i] = side->recv[i] = 1;
    struct weft_piece tensor = {side->recv, contest->count};
    weft_group_average_config_init(&config);
    config.tensors = &tensor;
    config.tensor_count = 1;
    config.sync_period = WEFT_NEVER;
    config.patience_ns = UINT64_C(1000000000); /* everybody is waited for, as by the plain ones */
    int status = weft_group_average_create(&side->average, side->context, &config);
    for (int i = PLAIN_STEP; i < CONTENDERS && status == WEFT_OK; i++)
        status = open_group(contest, side, i);
    return status;
}

static int close_cost(struct contest *contest, struct side *side)
{
    int status = weft_group_average_destroy(side->average);

    (void)contest;
    for (int i = PLAIN_STEP; i < CONTENDERS; i++)
        weft_run_destroy(side->runs[i]);
    weft_memory_free(side->send);
    weft_memory_free(side->recv);
    return status;
}

static int call(struct contest *contest, struct side *side, float members)
{
    struct weft_run *run = side->runs[contest->contender];

    switch (contest->contender) {
    case AVERAGE:
        return weft_group_average_step(side->average, NULL);
    case ACTIVATED: {
        int status = weft_run_start(run);
        int fired = status == WEFT_OK ? weft_run_fire(run, APPLICATION) : status;
        /* another rank's activation may have come first, and the run may have ended already */
        if (fired != WEFT_OK && fired != WEFT_RETIRED && fired != WEFT_ERR_STATE)
            return fired;
        return weft_run_wait(run, WEFT_NEVER);
    }
    case PLAIN_STEP: {
        int status = weft_run_execute(run);
        for (size_t i = 0; i < contest->count; i++)
            side->recv[i] /= members;
        return status;
    }
    default:
        return weft_run_execute(run);
    }
}

static int cost_turn(struct contest *contest, struct side *side)
{
    int status = WEFT_OK;
    int size = weft_groups_default_size(contest->ranks);
    uint64_t began = 0;

    for (size_t i = 0; i < contest->reps + 2 && status == WEFT_OK; i++) {
        if (i == 2) /* the first ones warm up */
            began = ranks_now();
        status = call(contest, side, (float)size);
    }
    side->us = (double)(ranks_now() - began) * 1e-3 / (double)contest->reps;
    return status;
}

static double microseconds(const struct side *side)
{
    return side->us;
}

static int cost_round(struct contest *contest, int round, struct bench_samples *samples)
{
    for (int i = 0; i < CONTENDERS; i++) {
        contest->contender = (i + round) % CONTENDERS;
        int status = on_all(contest, cost_turn);
        if (status != WEFT_OK)
            return status;
        bench_sample(&samples[contest->contender], ask(contest, 0, microseconds));
    }
    return WEFT_OK;
}

static void print_cost(struct contest *contest, const struct bench_samples *samples)
{
    static const char *const what[] = {"step", NULL, "allreduce", NULL};
    static const char *const peer[] = {"allreduce, divide", NULL, "plain allreduce", NULL};
    size_t bytes = contest->count * sizeof(float);
    char name[80], size[16];

    for (int i = AVERAGE; i < CONTENDERS; i += 2) {
        snprintf(name, sizeof name, "%s %s P=%d S=%d %s", what[i], bench_over_name(contest->over),
                 contest->ranks, weft_groups_default_size(contest->ranks),
                 bench_size_text(bytes, size));
        print(contest, name, "us", peer[i], &samples[i], &samples[i + 1],
              1.25 * bench_median(&samples[i + 1]), bytes);
    }
}

static int measure_cost(struct contest *contest, size_t bytes)
{
    struct bench_samples samples[CONTENDERS];

    contest->count = bytes / sizeof(float);
    int status = on_all(contest, open_cost);
    memset(samples, 0, sizeof samples);
    /* As many calls as take the time of a turn; all ranks must do the same number. */
    contest->reps = 3;
    contest->contender = PLAIN;
    if (status == WEFT_OK)
        status = on_all(contest, cost_turn);
    if (status == WEFT_OK) {
        double us = ask(contest, 0, microseconds), reps = TURN_US / us;
        contest->reps = reps < 3 ? 3 : reps > MOST_REPS ? MOST_REPS : (size_t)reps;
    }
    for (int round = 0; round < contest->bench->rounds && status == WEFT_OK; round++)
        status = cost_round(contest, round, samples);
    if (status == WEFT_OK)
        status = on_all(contest, close_cost);
    if (status != WEFT_OK)
        return bench_fail(contest->bench, "everybody there");
    print_cost(contest, samples);
    return 0;
}

/* ---- the measurement ---- */

static int measure(struct bench *bench, int ranks, enum bench_over over)
{
    static const size_t sizes[] = {1u << 12, 1u << 16, 1u << 20, 1u << 24};
    const size_t *bytes = bench->size_count ? bench->sizes : sizes;
    size_t count = bench->size_count ? bench->size_count : sizeof sizes / sizeof sizes[0];
    struct contest contest = {
        .bench = bench, .ranks = ranks, .over = over, .local = over == BENCH_LOCAL};
    int status = open_ranks(&contest);

    if (status != WEFT_OK) {
        free(contest.sides);
        return bench_fail(bench, "contexts");
    }
    if (ranks == 2)
        status = measure_activation(&contest);
    else
        status = measure_sleeper(&contest);
    for (size_t i = 0; i < count && ranks <= 4 && !status; i++)
        status = measure_cost(&contest, bytes[i]);
    close_ranks(&contest);
    return status;
}

int bench_wait_avoiding(struct bench *bench)
{
    static const int all[] = {2, 4, 8, 16};
    int one[] = {bench->ranks};
    const int *ranks = bench->ranks ? one : all;
    size_t count = bench->ranks ? 1 : sizeof all / sizeof all[0];

    if (bench->ranks == 1)
        return cli_usage("bench", "wait-avoiding: 1 rank; expected at least 2");
    if (bench->world > 1) {
        int status = bench_shares(bench) ? measure(bench, bench->world, BENCH_SHARED) : 0;
        return status ? status : measure(bench, bench->world, BENCH_MPI);
    }
    for (size_t i = 0; i < count; i++) {
        int status = measure(bench, ranks[i], BENCH_LOCAL);
        if (status == 0 && !bench->mpi)
            status = bench_respawn(bench, ranks[i]);
        if (status == CLI_NO_MPI)
            bench_note(bench, "no mpiexec here: local ranks alone");
        else if (status)
            return status;
    }
    return 0;
}
