/* SPDX-License-Identifier: BSD-3-Clause */
/* Parameter servers that go on from a checkpoint: as if nothing had happened, in every bit of the
 * models, in versions, staleness, counts and in the state at the end. Two trainings on virtual
 * ranks of the same draws, of which one is put away and made anew after every step at which all
 * workers are as far. */
#include <criterion/criterion.h>

#include "server_job.h"

enum { STEPS = 8, RANKS = 12, MOST_LAYERS = 16 };

struct training {
    uint64_t seed;
    int ranks, workers;
    struct weft_server_config config;
    struct shape shape;
    int cuts;   /* a bit each: put away after that step */
    int before; /* workers that take a step before it is put away in the middle; 0: it is not */
    double *x[RANKS][STEPS];
    struct weft_server_result results[RANKS][STEPS];
    uint64_t versions[RANKS][STEPS][MOST_LAYERS];
    struct weft_server_state last[RANKS]; /* pointers are borrowed, and over */
    uint64_t clocks[RANKS][RANKS];
    int met;  /* who has come to the meeting under way */
    int late; /* layers that were pending at a cut */
};

/* ---- a rank ---- */

/* All ranks of the training, while the object goes on. */
static void meet(struct training *training, struct weft_context *context, int ranks)
{
    int until = training->met / ranks * ranks + ranks;
    training->met++;
    while (training->met < until)
        OK(weft_context_sleep(context, 10000));
}

static void take_step(struct training *training, struct weft_server *server,
                      struct weft_context *context, const struct tensors *tensors)
{
    uint64_t step = weft_server_next(server);
    size_t worker = (size_t)weft_context_rank(context);
    /* There are turns where there is something to push. */
    int turns = training->config.sync == WEFT_SERVER_R2SP && training->shape.elements;
    OK(weft_context_sleep(context, turns ? 0 : 200000 * (uint64_t)worker));
    for (size_t l = 0; l < training->shape.layers; l++)
        fill_layer(tensors, 0, training->seed, worker, step, l);
    OK(weft_server_tell_loss(server, 1.0 / (double)(1 + step)));
    struct weft_server_result *result = &training->results[worker][step];
    result->struct_size = sizeof *result;
    OK(weft_server_step(server, result));
    CHECK(training->shape.layers <= MOST_LAYERS);
    for (size_t l = 0; l < training->shape.layers; l++)
        training->versions[worker][step][l] = weft_server_layer_version(server, l);
    training->x[worker][step] = calloc(training->shape.elements + 1, sizeof(double));
    CHECK(training->x[worker][step]);
    tensors_read(tensors, training->x[worker][step]);
}

/* A worker of a model that goes on from what others have seen of it. */
static struct weft_server *make(struct training *training, struct weft_context *context,
                                const struct tensors *tensors, const struct state_copy *copy)
{
    struct weft_server_config config = training->config;
    struct weft_server *server = NULL;
    tensors_bind(tensors, &config);
    config.weight = 1 + weft_context_rank(context) % 2;
    config.state = copy ? &copy->state : NULL;
    OK(weft_server_create(&server, context, &config));
    return server;
}

/* What a state is told right after the creation from one is that one. */
static void same_again(struct weft_server *server, const struct weft_server_state *before)
{
    struct weft_server_state now = {.struct_size = sizeof now};
    OK(weft_server_get_state(server, &now));
    CHECK(now.next == before->next);
    CHECK(now.version == before->version);
    CHECK(now.pulled_version == before->pulled_version);
    CHECK(now.first_loss == before->first_loss && now.loss == before->loss);
    for (size_t w = 0; now.clocks && w < now.clock_count; w++)
        CHECK(now.clocks[w] == before->clocks[w]);
}

static struct weft_server *put_away(struct training *training, struct weft_server *server,
                                    struct weft_context *context, const struct tensors *tensors,
                                    int step)
{
    struct state_copy copy;
    int worker = weft_server_is_worker(server);
    if (worker) { /* with OSP its second stage is over then */
        copy.state.struct_size = sizeof copy.state;
        OK(weft_server_get_state(server, &copy.state));
    }
    meet(training, context, training->ranks);
    state_copy(&copy, server, &training->shape, training->config.dtype);
    for (size_t l = 0; worker && copy.state.late && l < training->shape.layers; l++)
        training->late += copy.state.late[l] >> 1;
    CHECK(!worker || copy.state.next == (uint64_t)step);
    meet(training, context, training->ranks);
    uint64_t versions[MOST_LAYERS];
    CHECK(training->shape.layers <= MOST_LAYERS);
    for (size_t l = 0; l < training->shape.layers; l++)
        versions[l] = weft_server_layer_version(server, l);
    OK(weft_server_destroy(server));
    server = make(training, context, tensors, &copy);
    CHECK(!worker || weft_server_next(server) == (uint64_t)step);
    for (size_t l = 0; l < training->shape.layers; l++)
        CHECK(weft_server_layer_version(server, l) == versions[l]);
    same_again(server, &copy.state);
    state_free(&copy);
    return server;
}

/* All have taken their last step. */
static void keep_last(struct training *training, struct weft_server *server,
                      struct weft_context *context)
{
    int rank = weft_context_rank(context);
    struct weft_server_state *last = &training->last[rank];
    last->struct_size = sizeof *last;
    if (weft_server_is_worker(server))
        OK(weft_server_get_state(server, last));
    meet(training, context, training->ranks);
    OK(weft_server_get_state(server, last));
    for (size_t w = 0; last->clocks && w < last->clock_count; w++)
        training->clocks[rank][w] = last->clocks[w];
    meet(training, context, training->ranks);
}

static int train(struct weft_context *context, void *user)
{
    struct training *training = user;
    struct tensors tensors;
    tensors_make(&tensors, &training->shape, training->config.dtype);
    for (size_t i = 0; i < training->shape.elements; i++)
        piece_put(tensors.x, training->config.dtype, i, initial_value(i));
    struct weft_server *server = make(training, context, &tensors, NULL);
    for (int t = 0; t < STEPS; t++) {
        int worker = weft_server_is_worker(server);
        int first = weft_context_rank(context) < training->before;
        if (worker && (first || !training->before))
            take_step(training, server, context, &tensors);
        meet(training, context, training->ranks);
        if (training->before && training->cuts >> t & 1)
            server = put_away(training, server, context, &tensors, t + first);
        if (worker && training->before && !first)
            take_step(training, server, context, &tensors);
        if (!training->before && t + 1 < STEPS && training->cuts >> t & 1)
            server = put_away(training, server, context, &tensors, t + 1);
        else
            meet(training, context, training->ranks);
    }
    keep_last(training, server, context);
    OK(weft_server_destroy(server));
    tensors_free(&tensors);
    return WEFT_OK;
}

/* ---- trainings ---- */

static struct training new_training(uint64_t seed, weft_server_sync_t sync)
{
    struct draw draw = {seed};
    struct training training = {.seed = seed};
    struct weft_server_config *config = &training.config;
    weft_server_config_init(config);
    training.workers = 1 + (int)draw_below(&draw, 5);
    training.shape = shape_draw(&draw, 1);
    config->sync = sync;
    config->dtype = WEFT_F32;
    config->servers = 1 + (int)draw_below(&draw, 3);
    config->place = draw_below(&draw, 2) ? WEFT_SERVER_COLOCATED : WEFT_SERVER_APART;
    if (config->place == WEFT_SERVER_COLOCATED && config->servers > training.workers)
        config->servers = training.workers;
    training.ranks = training.workers + (config->place == WEFT_SERVER_APART ? config->servers : 0);
    if (training.ranks == 1)
        config->place = WEFT_SERVER_COLOCATED;
    config->split_bytes = draw_below(&draw, 2) ? 1 + draw_below(&draw, 300) : 0;
    config->momentum = draw_below(&draw, 3) ? 0.75 : 0;
    config->optimiser = draw_below(&draw, 3) ? WEFT_SERVER_UPDATES : WEFT_WORKER_UPDATES;
    config->flow = (weft_server_flow_t)draw_below(&draw, 3);
    config->segment_bytes = 64;
    config->staleness = 1;
    config->staleness_most = 2;
    config->osp_share = draw_below(&draw, 3) ? (double)(1 + draw_below(&draw, 10)) / 10 : 0;
    config->osp_goodput = 1e6;
    config->osp_compute_ns = 1000000;
    config->osp_average = draw_below(&draw, 2) ? 0.5 : 0;
    config->rate = 0.25;
    return training;
}

/* But for times, which depend on what a creation takes. */
static void compare_stats(const struct weft_server_stats *whole,
                          const struct weft_server_stats *parts)
{
    cr_assert_eq(parts->steps, whole->steps);
    cr_assert_eq(parts->staleness, whole->staleness);
    cr_assert_eq(parts->staleness_most, whole->staleness_most);
    cr_assert_eq(parts->pushed_bytes, whole->pushed_bytes);
    cr_assert_eq(parts->late_bytes, whole->late_bytes);
    cr_assert_eq(parts->nans, whole->nans);
    cr_assert_eq(parts->updates, whole->updates);
    cr_assert_eq(parts->pushes, whole->pushes);
    cr_assert_eq(parts->received_bytes, whole->received_bytes);
    cr_assert_eq(parts->sent_bytes, whole->sent_bytes);
    cr_assert_eq(parts->ahead_most, whole->ahead_most);
}

static void compare_ranks(const struct training *whole, const struct training *parts, int rank)
{
    const struct weft_server_state *a = &whole->last[rank], *b = &parts->last[rank];
    for (int t = 0; t < STEPS && rank < whole->workers; t++) {
        const struct weft_server_result *is = &parts->results[rank][t];
        const struct weft_server_result *expected = &whole->results[rank][t];
        cr_assert_eq(is->step, (uint64_t)t);
        cr_assert_eq(is->version, expected->version);
        cr_assert_eq(is->staleness, expected->staleness, "seed %d, rank %d, step %d",
                     (int)whole->seed, rank, t);
        cr_assert_eq(is->late_bytes, expected->late_bytes);
        for (size_t l = 0; l < whole->shape.layers; l++)
            cr_assert_eq(parts->versions[rank][t][l], whole->versions[rank][t][l],
                         "seed %d, rank %d, step %d, layer %zu", (int)whole->seed, rank, t, l);
    }
    cr_assert_eq(b->next, a->next);
    cr_assert_eq(b->version, a->version);
    cr_assert_eq(b->pulled_version, a->pulled_version);
    cr_assert_eq(b->element_count, a->element_count);
    cr_assert_eq(b->clock_count, a->clock_count);
    for (size_t w = 0; w < a->clock_count; w++)
        cr_assert_eq(parts->clocks[rank][w], whole->clocks[rank][w]);
    cr_assert_eq(b->first_loss, a->first_loss);
    cr_assert_eq(b->loss, a->loss);
    compare_stats(&a->stats, &b->stats);
}

static int tell(weft_server_sync_t sync, uint64_t seed)
{
    struct weft_virtual_config config;
    struct training whole = new_training(seed, sync), parts = new_training(seed, sync);
    tell_seed(seed);
    /* ASP and its relatives depend on time: what is sent takes none, who computes does. */
    weft_virtual_config_init(&config);
    config.seed = seed;
    config.limit_ns = UINT64_C(60000000000);
    if (sync != WEFT_SERVER_BSP && sync != WEFT_SERVER_OSP && seed % 2)
        whole.before = parts.before = 1 + (int)(seed % (uint64_t)whole.workers);
    parts.cuts = (int)(scramble(seed, 1, 2, 3) % (1 << (STEPS - 1)));
    cr_assert_eq(weft_virtual_run(whole.ranks, &config, train, &whole), WEFT_OK, "seed %d: %s",
                 (int)seed, weft_error_text());
    cr_assert_eq(weft_virtual_run(parts.ranks, &config, train, &parts), WEFT_OK, "seed %d: %s",
                 (int)seed, weft_error_text());
    for (int r = 0; r < whole.ranks; r++)
        compare_ranks(&whole, &parts, r);
    for (int w = 0; w < whole.workers; w++)
        for (int t = 0; t < STEPS; t++) {
            for (size_t i = 0; i < whole.shape.elements; i++)
                cr_assert(whole.x[w][t][i] == parts.x[w][t][i],
                          "seed %d, worker %d of %d, step %d: element %zu is %.17g, expected %.17g",
                          (int)seed, w, whole.workers, t, i, parts.x[w][t][i], whole.x[w][t][i]);
            free(whole.x[w][t]);
            free(parts.x[w][t]);
        }
    return parts.late;
}

static int tell_all(weft_server_sync_t sync)
{
    int late = 0;
    for (uint64_t seed = 1; seed <= SWEPT(80, 16); seed++)
        late += tell(sync, seed);
    return late;
}

Test(server_again, bsp_goes_on)
{
    tell_all(WEFT_SERVER_BSP);
}

Test(server_again, asp_goes_on)
{
    tell_all(WEFT_SERVER_ASP);
}

Test(server_again, ssp_and_dssp_go_on)
{
    tell_all(WEFT_SERVER_SSP);
    tell_all(WEFT_SERVER_DSSP);
}

Test(server_again, r2sp_goes_on)
{
    tell_all(WEFT_SERVER_R2SP);
}

Test(server_again, osp_goes_on_with_late_layers)
{
    cr_assert_gt(tell_all(WEFT_SERVER_OSP), SWEPT(100, 20));
}
