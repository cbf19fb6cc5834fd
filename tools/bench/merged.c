/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * weft bench merged: the object that merges gradients, with everything merged into one group,
 * beside an allreduce of the same memory. What the object adds to it: layers are announced one by
 * one, the step begins and ends. Sums stand beside the sum alone; averages beside a sum after which
 * each rank divides. Contenders take turns, as in a contest.
 *
 * The memory is summed in place, call after call, so it holds zeros while time is taken; one call
 * before has numbers, and is checked.
 */
#include "tools/bench/bench.h"
#include "tools/cli/ranks.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { LAYERS = 32, MANY_LAYERS = 1000 };
enum { OBJECT_SUM, PLAN_SUM, OBJECT_AVERAGE, PLAN_AVERAGE, PEER, CONTENDERS };

/* A rank. */
struct side {
    float *data;
    struct weft_gradients *gradients[2]; /* sums, averages */
    struct weft_run *run;
    double us;
};

struct merged {
    struct bench *bench;
    int ranks;
    size_t bytes, count;
    struct bench_team team; /* on the first process */
    struct side *sides;
    struct bench_side mine; /* of this process' rank of MPI */
    int peer;               /* MPI is there */
    size_t reps[CONTENDERS];
    struct bench_samples samples[CONTENDERS];
    /* of the turn under way */
    int now;
    size_t calls;
};

/* ---- one rank ---- */

/* Layers that divide the memory, all in one group. */
static int open_object(struct weft_gradients **gradients, struct weft_context *context, float *data,
                       size_t count, size_t layers, weft_gradients_reduction_t reduction)
{
    struct weft_piece *tensors = weft_memory_alloc(layers, sizeof *tensors);
    struct weft_gradients_config config;
    struct weft_merge_config merge;
    struct weft_merge_cost cost;

    if (!tensors)
        return weft_error_set(WEFT_ERR_MEMORY, "out of memory for %zu layers", layers);
    for (size_t l = 0; l < layers; l++) {
        size_t from = count * l / layers, to = count * (l + 1) / layers;
        tensors[l] = (struct weft_piece){data + from, to - from};
    }
    weft_merge_cost_init(&cost);
    cost.a_us = 1;
    weft_merge_config_init(&merge);
    merge.method = WEFT_MERGE_SINGLE;
    weft_gradients_config_init(&config);
    config.tensors = tensors;
    config.tensor_count = layers;
    config.reduction = reduction;
    config.merge = &merge;
    config.cost = &cost;
    config.check_steps = WEFT_NEVER;
    int status = weft_gradients_create(gradients, context, &config);
    weft_memory_free(tensors);
    return status;
}

static int open_run(struct weft_run **run, struct weft_context *context, float *data, size_t count)
{
    struct weft_template_params params;

    weft_template_params_init(&params);
    params.count = count;
    params.in_place = 1;
    int status = weft_template_create_run(run, context, "allreduce", &params);
    return status == WEFT_OK ? weft_run_bind_name(*run, "recv", data, count, WEFT_F32) : status;
}

static int open_side(struct bench_team *team, int rank, void *user)
{
    struct merged *m = user;
    struct side *side = &m->sides[rank];
    struct weft_context *context = team->contexts[rank];

    side->data = weft_memory_alloc(m->count, sizeof *side->data);
    if (!side->data)
        return weft_error_set(WEFT_ERR_MEMORY, "out of memory for %zu elements", m->count);
    memset(side->data, 0, m->bytes); /* touched before it is timed */
    int status =
        open_object(&side->gradients[0], context, side->data, m->count, LAYERS, WEFT_GRADIENTS_SUM);
    if (status == WEFT_OK)
        status = open_object(&side->gradients[1], context, side->data, m->count, LAYERS,
                             WEFT_GRADIENTS_AVERAGE);
    return status == WEFT_OK ? open_run(&side->run, context, side->data, m->count) : status;
}

static int close_side(struct bench_team *team, int rank, void *user)
{
    struct side *side = &((struct merged *)user)->sides[rank];

    (void)team;
    weft_gradients_destroy(side->gradients[0]);
    weft_gradients_destroy(side->gradients[1]);
    weft_run_destroy(side->run);
    weft_memory_free(side->data);
    *side = (struct side){0};
    return WEFT_OK;
}

/* A step, the layers announced as a backward pass would. */
static int step(struct weft_gradients *gradients, size_t layers)
{
    int status = WEFT_OK;

    for (size_t l = layers; l > 0 && status == WEFT_OK; l--)
        status = weft_gradients_ready(gradients, l - 1);
    return status == WEFT_OK ? weft_gradients_wait_all(gradients, NULL) : status;
}

/* As fast as can be: the ranks are mostly a power of two. */
static void scale(float *data, size_t count, float by)
{
    for (size_t i = 0; i < count; i++)
        data[i] *= by;
}

static int execute(const struct merged *m, const struct side *side)
{
    if (m->now == OBJECT_SUM || m->now == OBJECT_AVERAGE)
        return step(side->gradients[m->now == OBJECT_AVERAGE], LAYERS);
    int status = weft_run_execute(side->run);
    if (m->now == PLAN_AVERAGE)
        scale(side->data, m->count, 1 / (float)m->ranks);
    return status;
}

/* ---- turns ---- */

/* One call on numbers. */
static int check(const struct merged *m, const struct side *side, int rank)
{
    float sum = (float)(m->ranks * (m->ranks + 1) / 2), *data = side->data;
    float expected =
        m->now == OBJECT_AVERAGE || m->now == PLAN_AVERAGE ? sum / (float)m->ranks : sum;

    data[0] = data[m->count - 1] = (float)(rank + 1);
    int status = execute(m, side);
    if (status == WEFT_OK && (data[0] != expected || data[m->count - 1] != expected))
        status = weft_error_set(WEFT_ERR_COMPUTE, "wrong result of %zu bytes: %g, expected %g",
                                m->bytes, (double)data[0], (double)expected);
    data[0] = data[m->count - 1] = 0;
    return status;
}

static int local_turn(struct bench_team *team, int rank, void *user)
{
    struct merged *m = user;
    struct side *side = &m->sides[rank];
    uint64_t start = 0;
    size_t warm = m->calls / 10 + 1;
    int status = check(m, side, rank);

    bench_team_meet(team);
    for (size_t i = 0; i < warm + m->calls && status == WEFT_OK; i++) {
        if (i == warm) {
            bench_team_meet(team);
            start = ranks_now();
        }
        status = execute(m, side);
    }
    side->us = (double)(ranks_now() - start) * 1e-3 / (double)m->calls;
    bench_team_meet(team);
    return status;
}

static double peer_turn(const struct merged *m)
{
    uint64_t start = 0;
    size_t warm = m->calls / 10 + 1;

    bench_mpi_meet();
    for (size_t i = 0; i < warm + m->calls; i++) {
        if (i == warm) {
            bench_mpi_meet();
            start = ranks_now();
        }
        bench_peer_run(BENCH_ALLREDUCE);
    }
    return (double)(ranks_now() - start) * 1e-3 / (double)m->calls;
}

/* Microseconds a call: the slowest rank's, the same number on all processes. */
static int take_turn(struct merged *m, int who, size_t calls, double *us)
{
    int status = WEFT_OK;

    m->now = who;
    m->calls = calls;
    *us = 0;
    if (who == PEER) {
        *us = peer_turn(m);
    } else if (m->bench->rank == 0) {
        status = bench_team_run(&m->team, local_turn, m);
        for (int r = 0; r < m->ranks; r++)
            *us = fmax(*us, m->sides[r].us);
    }
    if (status == WEFT_OK && m->bench->world > 1)
        *us = bench_mpi_agree(*us, who != PEER);
    return status;
}

/* As many calls as fill a turn. */
static int calibrate(struct merged *m, int who)
{
    double us = 0;
    size_t calls = 1;

    for (;;) {
        int status = take_turn(m, who, calls, &us);
        if (status != WEFT_OK)
            return status;
        double fits = us > 0 ? 4000 / us : 1e9;
        if (calls >= 20000 || fits < 2 * (double)calls)
            break;
        calls = fits > 8 * (double)calls ? calls * 8 : calls * 2;
    }
    m->reps[who] = calls;
    return WEFT_OK;
}

/* ---- a size ---- */

static int open_size(struct merged *m, size_t bytes)
{
    int status = WEFT_OK;

    m->bytes = bytes;
    m->count = bytes / sizeof(float);
    memset(m->samples, 0, sizeof m->samples);
    if (m->bench->rank == 0)
        status = bench_team_run(&m->team, open_side, m);
    if (status == WEFT_OK && m->bench->world > 1) {
        status = bench_side_open(&m->mine, NULL, m->count, 0);
        m->peer = status == WEFT_OK &&
                  bench_peer_open(BENCH_ALLREDUCE, m->mine.send, m->mine.recv, m->count);
    }
    return status;
}

static void close_size(struct merged *m)
{
    if (m->peer)
        bench_peer_close(BENCH_ALLREDUCE);
    m->peer = 0;
    if (m->bench->rank == 0)
        bench_team_run(&m->team, close_side, m);
    bench_side_close(&m->mine);
}

/* The object may take a twentieth more than what it does. */
static void print_size(struct merged *m)
{
    static const struct {
        const char *what, *peer;
        int weft, beside;
    } rows[] = {{"sum", "plan", OBJECT_SUM, PLAN_SUM},
                {"sum", "MPI_Allreduce", OBJECT_SUM, PEER},
                {"average", "plan, then scaled", OBJECT_AVERAGE, PLAN_AVERAGE},
                {"average", "plan", OBJECT_AVERAGE, PLAN_SUM}};
    char what[64], size[16];

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const struct bench_samples *beside = &m->samples[rows[i].beside];
        if (rows[i].beside == PEER && !m->peer)
            continue;
        snprintf(what, sizeof what, "P=%d %s, %s", m->ranks, bench_size_text(m->bytes, size),
                 rows[i].what);
        struct bench_row row = {.what = what,
                                .unit = "us",
                                .transport = "local",
                                .peer = rows[i].peer,
                                .weft = &m->samples[rows[i].weft],
                                .peers = beside,
                                .limit = rows[i].beside == PEER ? NAN : 1.05 * bench_median(beside),
                                .bytes = m->bytes};
        bench_print(m->bench, &row);
    }
}

static int contest_size(struct merged *m, size_t bytes)
{
    double us;
    int status = open_size(m, bytes);

    for (int who = 0; status == WEFT_OK && who < PEER + m->peer; who++)
        status = calibrate(m, who);
    for (int round = 0; status == WEFT_OK && round < m->bench->rounds; round++)
        for (int i = 0; status == WEFT_OK && i < PEER + m->peer; i++) {
            int who = (round + i) % (PEER + m->peer); /* whoever is next to MPI pays for it */
            status = take_turn(m, who, m->reps[who], &us);
            bench_sample(&m->samples[who], us);
        }
    if (status == WEFT_OK)
        print_size(m);
    close_size(m);
    return status;
}

static int contest(struct bench *bench, int ranks)
{
    static const size_t usual[] = {1u << 12, 1u << 16, 1u << 20, 1u << 22, 1u << 24, 1u << 26};
    const size_t *sizes = bench->size_count ? bench->sizes : usual;
    size_t count = bench->size_count ? bench->size_count : sizeof usual / sizeof usual[0];
    struct merged m = {.bench = bench, .ranks = ranks};
    int status = WEFT_OK;

    m.sides = weft_memory_alloc((size_t)ranks, sizeof *m.sides);
    if (!m.sides)
        return bench_fail(bench, "sides");
    if (bench->rank == 0)
        status = bench_team_open(&m.team, ranks, NULL);
    for (size_t i = 0; status == WEFT_OK && i < count; i++)
        status = contest_size(&m, sizes[i]);
    int failed = status == WEFT_OK ? 0 : bench_fail(bench, "merged gradients");
    if (m.team.size)
        bench_team_close(&m.team);
    weft_memory_free(m.sides);
    return failed;
}

/* ---- a layer ---- */

static int open_alone(struct weft_local **local, struct weft_context **context,
                      struct weft_gradients **gradients, float *data)
{
    int status = weft_local_create(local, 1, NULL);

    if (status == WEFT_OK)
        status = weft_context_create_local(context, *local, 0, NULL);
    return status == WEFT_OK ? open_object(gradients, *context, data, MANY_LAYERS, MANY_LAYERS,
                                           WEFT_GRADIENTS_SUM)
                             : status;
}

/* Nanoseconds of an announcement, of as many steps as there are rounds. */
static int time_layers(struct bench *bench, struct weft_gradients *gradients)
{
    struct bench_samples samples = {0};
    int status = WEFT_OK;

    for (int round = -2; round < bench->rounds && status == WEFT_OK; round++) {
        uint64_t start = ranks_now();
        for (size_t l = MANY_LAYERS; l > 0 && status == WEFT_OK; l--)
            status = weft_gradients_ready(gradients, l - 1);
        double ns = (double)(ranks_now() - start) / MANY_LAYERS;
        if (status == WEFT_OK)
            status = weft_gradients_wait_all(gradients, NULL);
        if (round >= 0) /* two warm up */
            bench_sample(&samples, ns);
    }
    if (status != WEFT_OK)
        return bench_fail(bench, "announcements");
    struct bench_row row = {.what = "P=1 announcing, 1000 layers",
                            .unit = "ns/layer",
                            .transport = "local",
                            .weft = &samples,
                            .limit = NAN,
                            .bytes = SIZE_MAX};
    bench_print(bench, &row);
    return 0;
}

/* Instructions of a whole step, by its layers. */
static void count_layers(struct bench *bench)
{
    enum { FEW = 5, MANY = 25 };
    struct bench_samples samples = {0};
    double few = bench_valgrind(bench, BENCH_INSTRUCTIONS, "merged", FEW);
    double many = isfinite(few) ? bench_valgrind(bench, BENCH_INSTRUCTIONS, "merged", MANY) : NAN;

    if (!isfinite(many)) {
        bench_note(bench, "instructions were not counted: valgrind did not run");
        return;
    }
    bench_sample(&samples, (many - few) / (MANY - FEW) / MANY_LAYERS);
    struct bench_row row = {.what = "P=1 a step, 1000 layers",
                            .unit = "instructions/layer",
                            .transport = "local",
                            .weft = &samples,
                            .limit = NAN,
                            .bytes = SIZE_MAX};
    bench_print(bench, &row);
}

static int layers(struct bench *bench)
{
    static float data[MANY_LAYERS];
    struct weft_local *local = NULL;
    struct weft_context *context = NULL;
    struct weft_gradients *gradients = NULL;
    int status = open_alone(&local, &context, &gradients, data);
    int failed = status == WEFT_OK ? time_layers(bench, gradients) : bench_fail(bench, "one rank");

    weft_gradients_destroy(gradients);
    weft_context_destroy(context);
    weft_local_destroy(local);
    if (!failed)
        count_layers(bench);
    return failed;
}

/* "merged:STEPS". */
int bench_merged_inside(const char *what)
{
    static float data[MANY_LAYERS];
    struct weft_local *local = NULL;
    struct weft_context *context = NULL;
    struct weft_gradients *gradients = NULL;
    size_t steps = 0;

    if (cli_size("bench", "--inside", strchr(what, ':') + 1, &steps))
        return CLI_WRONG;
    int status = open_alone(&local, &context, &gradients, data);
    for (size_t s = 0; s < steps && status == WEFT_OK; s++)
        status = step(gradients, MANY_LAYERS);
    weft_gradients_destroy(gradients);
    weft_context_destroy(context);
    weft_local_destroy(local);
    return status == WEFT_OK ? 0 : cli_fail("bench", "%s: %s", what, weft_error_text());
}

int bench_merged(struct bench *bench)
{
    int numbers[] = {2, 4}, status = 0, with_mpi = 1;

    if (bench->mpi || bench->world > 1) {
        if (bench->rank == 0)
            bench_machine(bench);
        if (bench->world > 1)
            bench_mpi_agree(0, 1); /* the others sleep meanwhile */
        return contest(bench, bench->world);
    }
    bench_machine(bench);
    bench_note(bench, "%d layers in one group, f32, beside an allreduce of the same memory",
               LAYERS);
    for (int i = 0; i < (bench->ranks ? 1 : 2) && !status; i++) {
        int ranks = bench->ranks ? bench->ranks : numbers[i];
        status = with_mpi && ranks > 1 ? bench_respawn(bench, ranks) : CLI_NO_MPI;
        if (status == CLI_NO_MPI) {
            with_mpi = 0;
            status = contest(bench, ranks);
        }
    }
    return status ? status : layers(bench);
}
