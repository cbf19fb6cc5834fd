/* SPDX-License-Identifier: BSD-3-Clause */
/* Parameter servers, on virtual ranks: workers that come late, leave early, fail or die; servers
 * that do; deadlines; gradients with NaNs. */
#include <criterion/criterion.h>

#include "server_job.h"

enum { LAYERS = 4, STEPS = 6, RANKS = 8 };

#define SECOND UINT64_C(1000000000)

static const size_t counts[LAYERS] = {9, 0, 70, 3};

/* A rank's part in a test. */
struct rank {
    struct weft_context *context;
    struct weft_server *server;
    struct weft_server_config config;
    struct shape shape;
    struct tensors tensors;
    int number;
};

static void rank_init(struct rank *rank, struct weft_context *context,
                      const struct weft_server_config *config)
{
    memset(rank, 0, sizeof *rank);
    rank->context = context;
    rank->number = weft_context_rank(context);
    rank->shape = shape_of(counts, LAYERS);
    rank->config = *config;
    rank->config.rate = 1;
    rank->config.split_bytes = 100;
    tensors_make(&rank->tensors, &rank->shape, WEFT_F64);
    tensors_bind(&rank->tensors, &rank->config);
}

static void rank_create(struct rank *rank, struct weft_context *context,
                        const struct weft_server_config *config)
{
    rank_init(rank, context, config);
    OK(weft_server_create(&rank->server, context, &rank->config));
}

static int rank_end(struct rank *rank)
{
    int status = weft_server_destroy(rank->server);
    tensors_free(&rank->tensors);
    return status;
}

static void fill(struct rank *rank, double value)
{
    for (size_t i = 0; i < rank->shape.elements; i++)
        piece_put(rank->tensors.g, WEFT_F64, i, value + (double)i);
}

static int step(struct rank *rank, double value)
{
    fill(rank, value);
    return weft_server_step(rank->server, NULL);
}

/* Every synchronisation model, place and way to push. */
struct way {
    struct weft_server_config config;
    int workers, ranks;
    uint64_t seed;
};

static struct way way_of(uint64_t seed, int workers)
{
    struct way way = {.workers = workers, .seed = seed};
    weft_server_config_init(&way.config);
    way.config.sync = (weft_server_sync_t)(seed % 6);
    way.config.place = seed / 6 % 2 ? WEFT_SERVER_COLOCATED : WEFT_SERVER_APART;
    way.config.servers = 1 + (int)(seed / 12 % 2);
    way.config.flow = (weft_server_flow_t)(seed / 24 % 3);
    way.config.segment_bytes = 64;
    way.config.osp_share = seed / 3 % 2 ? 1 : 0.5;
    way.config.staleness = 1;
    way.config.staleness_most = 2;
    way.ranks = workers + (way.config.place == WEFT_SERVER_APART ? way.config.servers : 0);
    return way;
}

static int merges(const struct weft_server_config *config)
{
    return config->sync == WEFT_SERVER_BSP || config->sync == WEFT_SERVER_OSP;
}

enum { WAYS = 72 };

static void run_way(struct way *way, weft_rank_fn fn, void *user,
                    const struct weft_virtual_config *given)
{
    struct weft_virtual_config config = given ? *given : rough(way->seed);
    tell_seed(way->seed);
    int status = weft_virtual_run(way->ranks, &config, fn, user);
    cr_assert_eq(status, WEFT_OK, "seed %d: %s", (int)way->seed, weft_error_text());
}

/* ---- who leaves early ---- */

struct leaving {
    struct way way;
    int steps[RANKS];
    double weights[RANKS];
};

/* What BSP and OSP have made of element 0 after a number of steps: those that are left count. */
static double merged_after(const struct leaving *leaving, int steps)
{
    double is = 0;
    for (int t = 0; t < steps; t++) {
        double sum = 0, weights = 0;
        for (int w = 0; w < leaving->way.workers; w++)
            if (leaving->steps[w] > t) {
                sum += leaving->weights[w] * (w + 10 * t);
                weights += leaving->weights[w];
            }
        is -= sum / weights;
    }
    return is;
}

static int leave(struct weft_context *context, void *user)
{
    struct leaving *leaving = user;
    struct rank rank;
    struct weft_server_config config = leaving->way.config;
    int number = weft_context_rank(context);
    config.weight = number < leaving->way.workers ? leaving->weights[number] : 0;
    rank_create(&rank, context, &config);
    if (!weft_server_is_worker(rank.server)) {
        /* Workers without a step may all have left by then. */
        int status = weft_server_serve(rank.server, 1000);
        CHECK(status == WEFT_IN_PROGRESS || status == WEFT_OK);
        OK(weft_server_serve(rank.server, WEFT_NEVER));
        OK(weft_server_serve(rank.server, WEFT_NEVER));
        return rank_end(&rank);
    }
    for (int t = 0; t < leaving->steps[number]; t++) {
        OK(weft_context_sleep(context, (uint64_t)number * 50000));
        OK(step(&rank, number + 10 * t));
    }
    OK(weft_server_correct(rank.server));
    if (merges(&config) && leaving->steps[number]) {
        double is = piece_get(rank.tensors.x, WEFT_F64, 0);
        double expected = merged_after(leaving, leaving->steps[number]);
        CHECK(fabs(is - expected) < 1e-9 * (1 + fabs(expected)));
    }
    return rank_end(&rank);
}

Test(server_life, workers_leave_when_they_like, .timeout = 140)
{
    for (uint64_t seed = 0; seed < SWEPT(6, 2) * WAYS; seed++) {
        struct draw draw = {seed};
        struct leaving leaving = {.way = way_of(seed, 2 + (int)(seed / WAYS) % 5)};
        unsigned most = seed % 5 ? STEPS : 2;
        for (int w = 0; w < leaving.way.workers; w++) {
            leaving.steps[w] = (int)draw_below(&draw, most);
            leaving.weights[w] = seed % 4 ? 1 : 1 + draw_below(&draw, 3);
        }
        run_way(&leaving.way, leave, &leaving, NULL);
    }
}

/* ---- who comes late ---- */

static int come_late(struct weft_context *context, void *user)
{
    struct way *way = user;
    struct rank rank;
    struct weft_server_config config = way->config;
    int number = weft_context_rank(context), waits = 0;
    config.deadline_ns = SECOND / 2;
    rank_create(&rank, context, &config);
    if (!weft_server_is_worker(rank.server)) {
        OK(weft_server_serve(rank.server, WEFT_NEVER));
        return rank_end(&rank);
    }
    if (number == 1)
        OK(weft_context_sleep(context, 3 * SECOND + 1));
    for (int t = 0; t < STEPS; t++) {
        int status = step(&rank, number + 10 * t);
        for (; status == WEFT_ERR_TIMEOUT; waits++) {
            CHECK_TEXT(weft_error_text(), "rank");
            status = weft_server_step(rank.server, NULL);
        }
        OK(status);
        CHECK(weft_server_next(rank.server) == (uint64_t)t + 1);
    }
    CHECK((number == 1 || config.sync == WEFT_SERVER_ASP) == (waits == 0));
    return rank_end(&rank);
}

Test(server_life, who_is_late_by_seconds_is_waited_for_again)
{
    for (uint64_t seed = 0; seed < WAYS; seed++) {
        struct way way = way_of(seed, 3);
        run_way(&way, come_late, &way, NULL);
    }
}

/* ---- failures ---- */

struct failing {
    struct way way;
    int who;          /* fails */
    int how;          /* FAIL, LEAVE, STOP */
    uint64_t when_ns; /* STOP */
    int ended, failed;
};

enum { FAIL, LEAVE, STOP, HOWS };

static void end_failing(struct failing *failing, struct rank *rank, int status)
{
    char name[32];
    snprintf(name, sizeof name, "rank %d", failing->who);
    failing->ended++;
    if (rank->number != failing->who && status) {
        failing->failed++;
        CHECK_STATUS(status, WEFT_ERR_PEER);
        CHECK_TEXT(weft_error_text(), name);
        if (failing->how == FAIL)
            CHECK_TEXT(weft_error_text(), "the loss is not finite");
        CHECK(weft_context_now(rank->context) < failing->when_ns + SECOND);
        if (!rank->server) {
            CHECK(status == WEFT_ERR_PEER);
        } else if (weft_server_is_worker(rank->server)) {
            CHECK(weft_server_step(rank->server, NULL) == status);
            CHECK(weft_server_ready(rank->server, 0) == status);
            CHECK(weft_server_correct(rank->server) == status);
        } else {
            CHECK(weft_server_serve(rank->server, WEFT_NEVER) == status);
        }
    }
    rank_end(rank);
}

static int fail_somewhere(struct weft_context *context, void *user)
{
    struct failing *failing = user;
    struct rank rank;
    int status = WEFT_OK;
    rank_init(&rank, context, &failing->way.config);
    status = weft_server_create(&rank.server, context, &rank.config);
    int me = rank.number == failing->who, worker = weft_server_is_worker(rank.server);
    if (status) { /* it has failed as early as that */
        end_failing(failing, &rank, status);
        return WEFT_OK;
    }
    if (!worker && me && failing->how == FAIL) {
        OK(weft_context_sleep(context, failing->when_ns));
        OK(weft_server_fail(rank.server, WEFT_ERR_COMPUTE, "the loss is not finite"));
        CHECK_STATUS(weft_server_serve(rank.server, WEFT_NEVER), WEFT_ERR_COMPUTE);
    } else if (!worker) {
        status = weft_server_serve(rank.server, WEFT_NEVER);
    }
    for (int t = 0; worker && status == WEFT_OK && t < 40; t++) {
        status = weft_context_sleep(context, 100000);
        if (status == WEFT_OK && me && failing->how == FAIL && t == 3)
            OK(weft_server_fail(rank.server, WEFT_ERR_COMPUTE, "the loss is not finite"));
        if (status == WEFT_OK && me && failing->how == LEAVE && t == 3) {
            OK(weft_server_ready(rank.server, 2));
            CHECK_STATUS(weft_server_destroy(rank.server), WEFT_ERR_STATE);
            CHECK_TEXT(weft_error_text(), "layer 3 has not been announced");
            tensors_free(&rank.tensors);
            failing->ended++;
            return WEFT_OK;
        }
        if (status == WEFT_OK)
            status = step(&rank, 1);
    }
    end_failing(failing, &rank, status);
    return WEFT_OK;
}

static void fail_each(int how)
{
    int failed = 0;
    for (uint64_t seed = 0; seed < 3 * WAYS; seed++) {
        struct failing failing = {.way = way_of(seed, 3), .how = how};
        struct weft_virtual_fault fault = {.for_ns = WEFT_NEVER};
        struct weft_virtual_config config = rough(seed);
        failing.who = (int)(seed / WAYS + seed) % failing.way.ranks;
        if (how == LEAVE)
            failing.who %= failing.way.workers;
        failing.when_ns = 200000 + seed * 7919 % 3000000;
        fault.rank = failing.who;
        fault.at_ns = failing.when_ns;
        config.pauses_per_second = 0;
        if (how == STOP) {
            config.faults = &fault;
            config.fault_count = 1;
            config.deaths = 1;
            config.death_ns = 50000;
        }
        failing.way.config.leave_ns = SECOND / 4;
        run_way(&failing.way, fail_somewhere, &failing, &config);
        cr_assert_eq(failing.ended, failing.way.ranks);
        failed += failing.failed;
    }
    cr_assert_gt(failed, 5 * WAYS, "%d", failed);
}

Test(server_life, a_failure_is_everybodys, .timeout = 140)
{
    fail_each(FAIL);
}

Test(server_life, who_leaves_in_a_step_is_named, .timeout = 140)
{
    fail_each(LEAVE);
}

Test(server_life, who_dies_is_named, .timeout = 140)
{
    fail_each(STOP);
}

/* ---- gradients that are no numbers ---- */

static int push_bad(struct weft_context *context, void *user)
{
    struct way *way = user;
    struct rank rank;
    struct weft_server_stats stats = {.struct_size = sizeof stats};
    rank_create(&rank, context, &way->config);
    if (!weft_server_is_worker(rank.server)) {
        OK(weft_server_serve(rank.server, WEFT_NEVER));
        return rank_end(&rank);
    }
    for (int t = 0; t < STEPS; t++) {
        fill(&rank, 1);
        if (t == 2 && rank.number == 0) {
            double *g = rank.tensors.g[2].data;
            g[1] = NAN;
            g[5] = -INFINITY;
            CHECK_STATUS(weft_server_ready(rank.server, 2), WEFT_ERR_COMPUTE);
            CHECK_TEXT(weft_error_text(),
                       "layer 2 has 2 NaNs or infinities, the first in tensor 2");
            CHECK_TEXT(weft_error_text(), "step 2");
            CHECK_STATUS(weft_server_step(rank.server, NULL), WEFT_ERR_COMPUTE);
            g[1] = g[5] = 0;
        }
        OK(weft_server_step(rank.server, NULL));
    }
    OK(weft_server_correct(rank.server));
    for (size_t i = 0; i < rank.shape.elements; i++)
        CHECK(isfinite(piece_get(rank.tensors.x, WEFT_F64, i)));
    OK(weft_server_get_stats(rank.server, &stats));
    CHECK(stats.nans == (rank.number == 0 ? 4 : 0));
    return rank_end(&rank);
}

Test(server_life, what_is_no_number_is_refused_and_may_be_mended)
{
    for (uint64_t seed = 0; seed < WAYS; seed++) {
        struct way way = way_of(seed, 3);
        run_way(&way, push_bad, &way, NULL);
    }
}

static int spread_bad(struct weft_context *context, void *user)
{
    struct way *way = user;
    struct rank rank;
    way->config.nan = WEFT_NAN_SPREAD;
    rank_create(&rank, context, &way->config);
    if (!weft_server_is_worker(rank.server)) {
        OK(weft_server_serve(rank.server, WEFT_NEVER));
        return rank_end(&rank);
    }
    for (int t = 0; t < STEPS; t++) {
        fill(&rank, 1);
        ((double *)rank.tensors.g[2].data)[1] = NAN;
        OK(weft_server_step(rank.server, NULL));
    }
    OK(weft_server_correct(rank.server));
    CHECK(isnan(((double *)rank.tensors.x[2].data)[1]));
    CHECK(isfinite(((double *)rank.tensors.x[2].data)[0]));
    return rank_end(&rank);
}

Test(server_life, what_is_no_number_may_spread)
{
    for (uint64_t seed = 0; seed < WAYS; seed++) {
        struct way way = way_of(seed, 3);
        run_way(&way, spread_bad, &way, NULL);
    }
}
