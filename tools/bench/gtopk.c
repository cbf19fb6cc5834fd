/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * weft bench gtopk: sums of sparse vectors over all ranks, beside the dense sum and the sparse sum
 * that keeps everything (Shi et al., ICDCS 2019, Table I). What is timed is the sum alone: the
 * lists of k pairs are there, at indices drawn anew for each rank, so few are in two lists.
 *
 * `bytes` are those that the busiest rank sends, as they were in the last call. The limit is the
 * formula of the algorithm: what weft_simulate() says of its schedule with L = alpha, G = beta and
 * nothing else, which is Table I at powers of two, and has a value for all others. Merging costs
 * nothing in it, all ranks have cores of their own, lists are as long as they can be, and what a
 * rank sends to several at once (Ok-Topk) has one alpha together.
 *
 * All take turns, each as many calls as fill one; a turn's time is the slowest rank's. Every turn
 * puts other values at both ends of the vector, larger than all others, and finds their sum in the
 * result.
 */
#include "tools/bench/bench.h"
#include "tools/bench/data.h"
#include "tools/bench/sums.h"
#include "tools/cli/ranks.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { TURN_US = 4000, MOST_CALLS = 4096 };

struct contest {
    struct bench *bench;
    enum bench_over over;
    int local; /* over local ranks */
    struct sums_shape shape;
    struct bench_team team;
    struct weft_context *context;
    struct sums_side *sides; /* of local ranks; of MPI one */
    double *us;              /* of each in the turn under way */
    size_t calls[SUMS];
    int cold[SUMS]; /* 1: a call is long enough to warm itself up */
    double limit[SUMS];
    double bytes[SUMS];
    struct bench_samples samples[SUMS];
    /* of the turn under way */
    int now;
    int turns; /* so far: the data of a turn */
};

static int takes_part(const struct contest *c, int sum)
{
    return sum != SUMS_MPI || c->shape.mpi;
}

static int side_count(const struct contest *c)
{
    return c->local ? c->shape.ranks : 1;
}

/* ---- turns ---- */

static void meet(struct contest *c)
{
    if (c->local)
        bench_team_meet(&c->team);
    else
        bench_mpi_meet();
}

static int one_turn(struct contest *c, int at, int rank)
{
    struct sums_side *side = &c->sides[at];
    size_t calls = c->calls[c->now], warm = c->cold[c->now] ? 0 : calls / 10 + 1;
    int status = WEFT_OK;

    sums_set(side, &c->shape, rank, c->turns);
    meet(c);
    for (size_t i = 0; i < warm && status == WEFT_OK; i++)
        status = sums_run(side, c->now);
    meet(c);
    uint64_t start = ranks_now();
    for (size_t i = 0; i < calls && status == WEFT_OK; i++)
        status = sums_run(side, c->now);
    c->us[at] = (double)(ranks_now() - start) * 1e-3 / (double)calls;
    return status == WEFT_OK ? sums_check(side, &c->shape, c->now, c->turns) : status;
}

static int local_turn(struct bench_team *team, int rank, void *user)
{
    struct contest *c = user;
    int status = one_turn(c, rank, rank);

    bench_team_meet(team);
    return status;
}

/* The largest of a number of each side, over all ranks. */
static double most(const struct contest *c, double (*number)(const struct contest *c, int at))
{
    double result = number(c, 0);

    for (int at = 1; at < side_count(c); at++)
        result = fmax(result, number(c, at));
    return c->local ? result : bench_mpi_agree(result, 0);
}

static double side_us(const struct contest *c, int at)
{
    return c->us[at];
}

static double side_bytes(const struct contest *c, int at)
{
    return (double)c->sides[at].bytes;
}

static double side_hash(const struct contest *c, int at)
{
    return (double)c->sides[at].hash;
}

static double side_hash_down(const struct contest *c, int at)
{
    return -(double)c->sides[at].hash;
}

/* Microseconds a call, the same number on all ranks; all must have the same pairs. */
static int take_turn(struct contest *c, int sum, double *us)
{
    c->now = sum;
    c->turns++;
    int status =
        c->local ? bench_team_run(&c->team, local_turn, c) : one_turn(c, 0, c->bench->rank);
    if (status != WEFT_OK)
        return status;
    *us = most(c, side_us);
    c->bytes[sum] = most(c, side_bytes);
    if (most(c, side_hash) != -most(c, side_hash_down))
        return weft_error_set(WEFT_ERR_COMPUTE, "%s: ranks have different results", sums_name(sum));
    return WEFT_OK;
}

/* As many calls as fill a turn. */
static int calibrate(struct contest *c, int sum)
{
    double us = 0;

    c->calls[sum] = 1;
    c->cold[sum] = 0;
    for (;;) {
        int status = take_turn(c, sum, &us);
        if (status != WEFT_OK)
            return status;
        double fits = us > 0 ? TURN_US / us : MOST_CALLS;
        if (c->calls[sum] >= MOST_CALLS || fits < 2 * (double)c->calls[sum]) {
            c->cold[sum] = us > 10 * TURN_US;
            return WEFT_OK;
        }
        c->calls[sum] *= fits > 8 * (double)c->calls[sum] ? 8 : 2;
    }
}

/* ---- the limit ---- */

struct job {
    const struct contest *contest;
    int sum;
};

static int build(void *user, int rank, struct weft_schedule **schedule)
{
    const struct job *job = user;
    return sums_build(&job->contest->shape, job->sum, rank, schedule);
}

static int predict(struct contest *c, int sum)
{
    struct job job = {c, sum};
    struct weft_sim_config config;
    struct weft_net net;
    struct weft_sim_result *result = NULL;

    weft_sim_config_init(&config);
    weft_net_init(&net);
    config.net = &net;
    config.ranks = c->shape.ranks;
    config.build = build;
    config.user = &job;
    net.L = c->shape.cost.alpha_us;
    net.G = c->shape.cost.beta_us_per_byte;
    int status = weft_simulate(&config, &result);
    if (status == WEFT_OK)
        c->limit[sum] = result->time_us;
    weft_sim_result_destroy(result);
    return status;
}

/* ---- rows ---- */

static void print_rows(struct contest *c)
{
    static const int peers[] = {SUMS_ALLREDUCE, SUMS_RING, SUMS_MPI, SUMS_ALLGATHER};
    char what[96], n[24], k[24];

    for (int sum = SUMS_FIRST_SPARSE; sum < SUMS; sum++) {
        snprintf(what, sizeof what, "%s P=%d n=%s k=%s", sums_name(sum), c->shape.ranks,
                 bench_count_text(c->shape.n, n), bench_count_text(c->shape.k, k));
        for (size_t i = 0; i < sizeof peers / sizeof peers[0]; i++) {
            if (peers[i] == sum || !takes_part(c, peers[i]))
                continue;
            bench_print(c->bench, &(struct bench_row){.what = what,
                                                      .unit = "us",
                                                      .transport = bench_over_name(c->over),
                                                      .peer = sums_name(peers[i]),
                                                      .weft = &c->samples[sum],
                                                      .peers = &c->samples[peers[i]],
                                                      .limit = c->limit[sum],
                                                      .bytes = (size_t)c->bytes[sum]});
        }
    }
}

/* ---- one case ---- */

static int open_member(struct bench_team *team, int rank, void *user)
{
    struct contest *c = user;

    return sums_open(&c->sides[rank], &c->shape, team->contexts[rank]);
}

static int measure_case(struct contest *c)
{
    double us = 0;
    int status = c->local ? bench_team_run(&c->team, open_member, c)
                          : sums_open(&c->sides[0], &c->shape, c->context);

    memset(c->samples, 0, sizeof c->samples);
    for (int sum = 0; status == WEFT_OK && sum < SUMS; sum++) {
        status = takes_part(c, sum) ? calibrate(c, sum) : WEFT_OK;
        if (status == WEFT_OK && sum >= SUMS_FIRST_SPARSE)
            status = predict(c, sum);
    }
    for (int round = 0; status == WEFT_OK && round < c->bench->rounds; round++) {
        for (int i = 0; status == WEFT_OK && i < SUMS; i++) {
            int sum = (i + round) % SUMS;
            if (takes_part(c, sum)) {
                status = take_turn(c, sum, &us);
                bench_sample(&c->samples[sum], us);
            }
        }
    }
    if (status == WEFT_OK)
        print_rows(c);
    for (int at = 0; at < side_count(c); at++)
        sums_close(&c->sides[at]);
    return status;
}

static int each_case(struct contest *c)
{
    static const size_t sizes[] = {4000000, 40000000};
    static const double shares[] = {0.001, 0.01};
    const struct bench *bench = c->bench;
    const size_t *bytes = bench->size_count ? bench->sizes : sizes;
    const double *densities = bench->density_count ? bench->densities : shares;
    size_t size_count = bench->size_count ? bench->size_count : sizeof sizes / sizeof sizes[0];
    size_t density_count =
        bench->density_count ? bench->density_count : sizeof shares / sizeof shares[0];
    int status = WEFT_OK;

    for (size_t i = 0; status == WEFT_OK && i < size_count; i++) {
        for (size_t j = 0; status == WEFT_OK && j < density_count; j++) {
            c->shape.n = bytes[i] / sizeof(float);
            c->shape.k = (size_t)ceil(densities[j] * (double)c->shape.n);
            status = measure_case(c);
        }
    }
    return status;
}

/* Of the file that was given. 0 or CLI_WRONG. */
static int read_costs(const struct bench *bench, enum bench_over over, struct weft_cost_model *cost)
{
    const char *transport = bench_over_name(over);

    weft_cost_model_init(cost, transport);
    return weft_cost_model_read(bench->cost, transport, cost, NULL) == WEFT_OK
               ? 0
               : cli_usage("bench", "--cost: %s", weft_error_text());
}

static int open_ranks(struct contest *c)
{
    int count = side_count(c);

    c->sides = calloc((size_t)count, sizeof *c->sides);
    c->us = calloc((size_t)count, sizeof *c->us);
    if (!c->sides || !c->us)
        return weft_error_set(WEFT_ERR_MEMORY, "out of memory for %d ranks", count);
    if (c->local)
        return bench_team_open(&c->team, c->shape.ranks, NULL);
    c->context = bench_context(c->bench, c->over, NULL);
    return c->context ? WEFT_OK : WEFT_ERR_TRANSPORT;
}

static int measure(struct bench *bench, int ranks, enum bench_over over)
{
    struct contest c = {.bench = bench,
                        .over = over,
                        .local = over == BENCH_LOCAL,
                        .shape = {.ranks = ranks, .mpi = over != BENCH_LOCAL}};
    int status = 0;

    if (bench->cost)
        status = read_costs(bench, over, &c.shape.cost);
    else if (bench_model_messages(bench, over, &c.shape.cost) != WEFT_OK)
        status = bench_fail(bench, "messages");
    if (status)
        return status;
    bench_note(bench, "%d ranks over %s: alpha %.3g us, beta %.3g us a MiB", ranks,
               bench_over_name(over), c.shape.cost.alpha_us,
               c.shape.cost.beta_us_per_byte * 1048576);
    status = open_ranks(&c);
    if (status == WEFT_OK)
        status = each_case(&c);
    status = status == WEFT_OK ? 0 : bench_fail(bench, "a sum");
    weft_context_destroy(c.context);
    if (c.team.contexts)
        bench_team_close(&c.team);
    free(c.sides);
    free(c.us);
    return status;
}

/* Before anything is measured. 0 or CLI_WRONG. */
static int check_options(const struct bench *bench)
{
    struct weft_cost_model cost;

    if (bench->ranks == 1)
        return cli_usage("bench", "gtopk: 1 rank; expected at least 2");
    for (size_t i = 0; i < bench->size_count; i++) {
        if (bench->sizes[i] / sizeof(float) > INT_MAX) { /* MPI counts in int */
            return cli_usage("bench", "--bytes: %zu; expected at most %zu, %d elements of 4 bytes",
                             bench->sizes[i], INT_MAX * sizeof(float), INT_MAX);
        }
    }
    for (size_t i = 0; i < bench->density_count; i++)
        if (bench->densities[i] == 0)
            return cli_usage("bench", "--density: 0; expected shares above 0, up to 1");
    return bench->cost ? read_costs(bench, bench->world == 1 ? BENCH_LOCAL : BENCH_MPI, &cost) : 0;
}

int bench_gtopk(struct bench *bench)
{
    static const int all[] = {2, 3, 4, 5, 7, 8, 13, 16};
    int one[] = {bench->ranks};
    const int *ranks = bench->ranks ? one : all;
    size_t count = bench->ranks ? 1 : sizeof all / sizeof all[0];
    int status = check_options(bench);

    if (status)
        return status;
    if (bench->rank == 0)
        bench_machine(bench);
    if (bench->world > 1) {
        bench_mpi_agree(0, 1);
        status = bench_shares(bench) ? measure(bench, bench->world, BENCH_SHARED) : 0;
        return status ? status : measure(bench, bench->world, BENCH_MPI);
    }
    bench_note(bench,
               "sparse sums over all ranks, lists ready; limit: the formula, with alpha and beta "
               "as above\neach; hand-over between cores %.0f ns, yield on one %.0f ns",
               bench->handover_ns, bench->yield_ns);
    for (size_t i = 0; i < count && !status; i++)
        status = measure(bench, ranks[i], BENCH_LOCAL);
    for (size_t i = 0; i < count && !status && !bench->mpi; i++)
        status = bench_respawn(bench, ranks[i]);
    if (status == CLI_NO_MPI) {
        bench_note(bench, "no mpiexec here: local ranks alone");
        return 0;
    }
    return status;
}
