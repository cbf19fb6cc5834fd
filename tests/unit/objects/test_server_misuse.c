/* SPDX-License-Identifier: BSD-3-Clause */
/* Parameter servers: what is refused, in which words, and that it changes nothing. */
#include <criterion/criterion.h>

#include "server_job.h"

enum { LAYERS = 3 };

static const size_t counts[LAYERS] = {4, 0, 2};

struct bench {
    struct shape shape;
    struct tensors tensors;
    struct weft_server_config config;
};

static void bench_init(struct bench *bench)
{
    bench->shape = shape_of(counts, LAYERS);
    weft_server_config_init(&bench->config);
    tensors_make(&bench->tensors, &bench->shape, WEFT_F32);
    tensors_bind(&bench->tensors, &bench->config);
}

static void on_ranks(int ranks, int (*play)(struct weft_context *, void *))
{
    struct weft_virtual_config config = with_seed(1);
    cr_assert_eq(weft_virtual_run(ranks, &config, play, NULL), WEFT_OK, "%s", weft_error_text());
}

/* A configuration that is refused; `text` is part of what is said. */
static void refuse(struct weft_context *context, const struct weft_server_config *config,
                   int status, const char *text)
{
    struct weft_server *server = NULL;
    CHECK_STATUS(weft_server_create(&server, context, config), status);
    CHECK_TEXT(weft_error_text(), "weft_server_create: ");
    CHECK_TEXT(weft_error_text(), text);
    CHECK(!server);
}

#define REFUSE(member, value, text)                                                                \
    do {                                                                                           \
        struct weft_server_config refused_ = bench.config;                                         \
        refused_.member = (value);                                                                 \
        refuse(context, &refused_, WEFT_ERR_INVALID, text);                                        \
    } while (0)

/* ---- numbers of a configuration ---- */

static int refuse_numbers(struct weft_context *context, void *user)
{
    struct bench bench;
    (void)user;
    bench_init(&bench);
    REFUSE(sync, (weft_server_sync_t)6, "config->sync is 6, expected one of weft_server_sync_t");
    REFUSE(place, (weft_server_place_t)2, "config->place is 2");
    REFUSE(push, (weft_server_push_t)-1, "config->push is -1");
    REFUSE(optimiser, (weft_server_optimiser_t)2, "config->optimiser is 2");
    REFUSE(flow, (weft_server_flow_t)3, "config->flow is 3");
    REFUSE(osp_correction, (weft_osp_correction_t)2, "config->osp_correction is 2");
    REFUSE(nan, (weft_nan_policy_t)9, "config->nan is 9, expected WEFT_NAN_ERROR");
    REFUSE(servers, 3, "config->servers is 3, expected 1 to 2 for 3 ranks");
    REFUSE(servers, -1, "config->servers is -1");
    REFUSE(momentum, 1, "config->momentum is 1, expected at least 0, and less than 1");
    REFUSE(momentum, -0.5, "config->momentum is -0.5");
    REFUSE(momentum, NAN, "config->momentum is nan");
    REFUSE(weight, -1, "config->weight is -1, expected a number above 0");
    REFUSE(weight, INFINITY, "config->weight is inf");
    REFUSE(rate, -1, "config->rate is -1, expected a number above 0");
    REFUSE(rate, NAN, "config->rate is nan");
    REFUSE(rate, 1e301, "config->rate is 1e+301, expected a number above 0, at most 1e300");
    REFUSE(staleness, UINT64_MAX, "config->staleness is 18446744073709551615, expected less");
    REFUSE(turns, -2, "config->turns is -2, expected");
    REFUSE(window, -2, "config->window is -2, expected");
    REFUSE(segment_bytes, 7, "config->segment_bytes is 7, expected 8 or more");
    REFUSE(osp_most, 1.5, "config->osp_most is 1.5");
    REFUSE(osp_share, -0.5, "config->osp_share is -0.5");
    REFUSE(osp_share, 2, "config->osp_share is 2, expected 0 to 1, or WEFT_OSP_NOTHING");
    REFUSE(osp_goodput, -1, "config->osp_goodput is -1");
    REFUSE(osp_average, 1, "config->osp_average is 1");
    bench.config.sync = WEFT_SERVER_DSSP;
    bench.config.staleness = 3;
    REFUSE(staleness_most, 2, "config->staleness_most is 2, expected at least config->staleness");
    bench.config.sync = WEFT_SERVER_BSP;
    tensors_free(&bench.tensors);
    return WEFT_OK;
}

Test(server_misuse, numbers_are_named_with_what_was_expected)
{
    on_ranks(3, refuse_numbers);
}

/* ---- models and layers ---- */

static int refuse_models(struct weft_context *context, void *user)
{
    static const size_t too_many[] = {1, 3}, too_few[] = {1, 1};
    struct bench bench;
    struct weft_server *server = NULL;
    (void)user;
    bench_init(&bench);
    CHECK_STATUS(weft_server_create(NULL, context, &bench.config), WEFT_ERR_INVALID);
    CHECK_TEXT(weft_error_text(), "server is NULL");
    CHECK_STATUS(weft_server_create(&server, context, NULL), WEFT_ERR_INVALID);
    CHECK_TEXT(weft_error_text(), "config is NULL");
    CHECK_STATUS(weft_server_create(&server, NULL, &bench.config), WEFT_ERR_INVALID);
    CHECK_TEXT(weft_error_text(), "context is NULL");
    REFUSE(struct_size, 3, "struct_size is 3");
    REFUSE(gradients, NULL, "config->gradients is NULL, expected 3 tensors");
    REFUSE(tensors, NULL, "config->tensors is NULL");
    bench.config.layer_count = 2;
    bench.config.layer_tensors = too_many;
    REFUSE(rate, 1, "config->layer_tensors[1] is 3, expected at most 2: there are 3 tensors");
    bench.config.layer_tensors = too_few;
    REFUSE(rate, 1, "config->layer_tensors add up to 2, expected config->tensor_count, 3");
    bench.config.layer_tensors = NULL;
    REFUSE(rate, 1, "config->layer_tensors is NULL, expected a list for config->layer_count 2");
    bench.config.layer_count = 3;
    bench.tensors.g[1].count = 5;
    REFUSE(rate, 1, "config->gradients[1].count is 5, expected 0, as config->tensors[1].count");
    bench.tensors.g[1].count = 0;
    void *kept = bench.tensors.g[2].data;
    bench.tensors.g[2].data = NULL;
    REFUSE(rate, 1, "config->gradients[2].data is NULL");
    bench.tensors.g[2].data = kept;
    bench.config.push = WEFT_SERVER_MODELS;
    REFUSE(rate, 0, "expected config->gradients to be 0");
    bench.config.gradients = NULL;
    REFUSE(rate, 1, "expected config->rate to be 0");
    REFUSE(momentum, 0.5, "expected config->momentum to be 0");
    REFUSE(optimiser, WEFT_WORKER_UPDATES, "expected config->optimiser to be 0");
    REFUSE(sync, WEFT_SERVER_OSP, "expected WEFT_SERVER_GRADIENTS with WEFT_SERVER_OSP");
    struct weft_server_config config = bench.config;
    config.dtype = WEFT_I32;
    refuse(context, &config, WEFT_ERR_UNSUPPORTED, "config->dtype is i32");
    tensors_free(&bench.tensors);
    return WEFT_OK;
}

Test(server_misuse, models_are_named_with_what_was_expected)
{
    on_ranks(1, refuse_models);
}

/* ---- ranks that disagree ---- */

/* Rank 1, a worker, has another value; all are told which ones. */
#define DIFFER(member, value, text)                                                                \
    do {                                                                                           \
        struct weft_server_config config_ = bench.config;                                          \
        if (weft_context_rank(context) == 1)                                                       \
            config_.member = (value);                                                              \
        refuse(context, &config_, WEFT_ERR_INVALID, "do not agree about " text);                   \
    } while (0)

static int differ(struct weft_context *context, void *user)
{
    struct bench bench;
    (void)user;
    bench_init(&bench);
    bench.config.place = WEFT_SERVER_COLOCATED;
    bench.config.sync = WEFT_SERVER_DSSP;
    DIFFER(sync, WEFT_SERVER_SSP, "config->sync: rank 0 has DSSP, rank 1 has SSP");
    DIFFER(place, WEFT_SERVER_APART, "config->place: rank 0 has co-located, rank 1 has apart");
    DIFFER(servers, 2, "config->servers: rank 0 has 1, rank 1 has 2");
    DIFFER(split_bytes, 5, "config->split_bytes");
    DIFFER(staleness_most, 2, "config->staleness_most: rank 0 has 0, rank 1 has 2");
    bench.config.staleness_most = 9;
    DIFFER(staleness, 3, "config->staleness: rank 0 has 0, rank 1 has 3");
    DIFFER(optimiser, WEFT_WORKER_UPDATES, "config->optimiser");
    DIFFER(rate, 0.5, "config->rate: rank 0 has 0.1");
    DIFFER(momentum, 0.5, "config->momentum: rank 0 has 0, rank 1 has 0.5");
    DIFFER(flow, WEFT_SERVER_PACED, "config->flow: rank 0 has at once, rank 1 has paced");
    DIFFER(turns, 2, "config->turns: rank 0 has 1, rank 1 has 2");
    DIFFER(segment_bytes, 64, "config->segment_bytes");
    DIFFER(window, 2, "config->window");
    DIFFER(osp_most, 0.5, "config->osp_most");
    DIFFER(osp_share, 0.5, "config->osp_share");
    DIFFER(osp_goodput, 5, "config->osp_goodput");
    DIFFER(osp_compute_ns, 5, "config->osp_compute_ns");
    DIFFER(osp_average, 0.5, "config->osp_average");
    DIFFER(osp_correction, WEFT_OSP_BEFORE_LAYER, "config->osp_correction");
    DIFFER(dtype, WEFT_F64, "config->dtype: rank 0 has f32, rank 1 has f64");
    tensors_free(&bench.tensors);
    return WEFT_OK;
}

Test(server_misuse, ranks_that_disagree_are_told_about_what)
{
    on_ranks(3, differ);
}

static int differ_in_models(struct weft_context *context, void *user)
{
    struct bench bench;
    int rank = weft_context_rank(context);
    (void)user;
    bench_init(&bench);
    bench.tensors.x[2].count = bench.tensors.g[2].count = rank == 2 ? 1 : 2;
    refuse(context, &bench.config, WEFT_ERR_INVALID, "the number of elements: rank 0 has 6");
    bench.tensors.x[2].count = bench.tensors.g[2].count = rank == 2 ? 0 : 2;
    bench.tensors.x[1].count = bench.tensors.g[1].count = rank == 2 ? 2 : 0;
    refuse(context, &bench.config, WEFT_ERR_INVALID, "the layers' elements");
    bench.tensors.x[2].count = bench.tensors.g[2].count = 2;
    bench.tensors.x[1].count = bench.tensors.g[1].count = 0;
    piece_put(bench.tensors.x, WEFT_F32, 5, rank == 2); /* the server */
    refuse(context, &bench.config, WEFT_ERR_INVALID, "rank 2");
    if (rank == 1)
        bench.config.weight = -1;
    struct weft_server *server = NULL;
    CHECK_STATUS(weft_server_create(&server, context, &bench.config),
                 rank == 1 ? WEFT_ERR_INVALID : WEFT_ERR_PEER);
    CHECK_TEXT(weft_error_text(), "config->weight is -1");
    tensors_free(&bench.tensors);
    return WEFT_OK;
}

Test(server_misuse, models_that_differ_are_found)
{
    on_ranks(3, differ_in_models);
}

/* ---- calls ---- */

static void misuse_worker(struct weft_server *server)
{
    struct weft_server_state state = {.struct_size = sizeof state};
    struct weft_server_result result = {.struct_size = sizeof result};
    CHECK_STATUS(weft_server_serve(server, 0), WEFT_ERR_STATE);
    CHECK_TEXT(weft_error_text(), "is a worker, expected one that is a server alone");
    CHECK_STATUS(weft_server_ready(server, 3), WEFT_ERR_INVALID);
    CHECK_TEXT(weft_error_text(), "weft_server_ready: layer is 3, expected less than 3");
    CHECK_STATUS(weft_server_wait(server, 9), WEFT_ERR_INVALID);
    OK(weft_server_wait(server, 2)); /* between steps */
    CHECK_STATUS(weft_server_set_rate(server, 0), WEFT_ERR_INVALID);
    CHECK_TEXT(weft_error_text(), "rate is 0, expected a number above 0");
    CHECK_STATUS(weft_server_tell_loss(server, NAN), WEFT_ERR_INVALID);
    CHECK_STATUS(weft_server_tell_loss(server, -1), WEFT_ERR_INVALID);
    CHECK_TEXT(weft_error_text(), "loss is -1, expected 0 to 1e300");
    OK(weft_server_ready(server, 2));
    CHECK_STATUS(weft_server_ready(server, 2), WEFT_ERR_STATE);
    CHECK_TEXT(weft_error_text(), "weft_server_ready: layer 2 has been announced in step 0");
    CHECK_STATUS(weft_server_absent(server, 2), WEFT_ERR_STATE);
    CHECK_STATUS(weft_server_wait(server, 0), WEFT_ERR_STATE);
    CHECK_TEXT(weft_error_text(), "layer 0 has not been announced in step 0");
    CHECK_STATUS(weft_server_set_rate(server, 1), WEFT_ERR_STATE);
    CHECK_TEXT(weft_error_text(), "step 0 is under way");
    CHECK_STATUS(weft_server_correct(server), WEFT_ERR_STATE);
    CHECK_STATUS(weft_server_get_state(server, &state), WEFT_ERR_STATE);
    OK(weft_server_ready(server, 0));
    OK(weft_server_ready(server, 1));
    OK(weft_server_wait(server, 1));
    CHECK_STATUS(weft_server_ready(server, 1), WEFT_ERR_STATE);
    result.struct_size = 1;
    CHECK_STATUS(weft_server_step(server, &result), WEFT_ERR_INVALID);
    CHECK(weft_server_next(server) == 0);
    result.struct_size = sizeof result;
    OK(weft_server_step(server, &result));
    CHECK(weft_server_next(server) == 1 && result.step == 0 && result.version > 0);
    CHECK(weft_server_layer_version(server, 7) == 0 && weft_server_layer_late(server, 7) == 0);
    CHECK_STATUS(weft_server_fail(server, WEFT_OK, NULL), WEFT_ERR_INVALID);
}

static void misuse_server(struct weft_server *server)
{
    static const char alone[] = "is a server alone, expected a worker";
    CHECK_STATUS(weft_server_ready(server, 0), WEFT_ERR_STATE);
    CHECK_TEXT(weft_error_text(), alone);
    CHECK_STATUS(weft_server_wait(server, 0), WEFT_ERR_STATE);
    CHECK_STATUS(weft_server_step(server, NULL), WEFT_ERR_STATE);
    CHECK_STATUS(weft_server_pull(server, NULL), WEFT_ERR_STATE);
    CHECK_STATUS(weft_server_correct(server), WEFT_ERR_STATE);
    CHECK_STATUS(weft_server_set_rate(server, 1), WEFT_ERR_STATE);
    CHECK_STATUS(weft_server_tell_loss(server, 1), WEFT_ERR_STATE);
    CHECK_TEXT(weft_error_text(), alone);
    OK(weft_server_serve(server, WEFT_NEVER));
}

static int misuse(struct weft_context *context, void *user)
{
    struct bench bench;
    struct weft_server *server = NULL;
    bench_init(&bench);
    bench.config.sync = *(const weft_server_sync_t *)user;
    OK(weft_server_create(&server, context, &bench.config));
    CHECK(weft_server_workers(server) == 2);
    CHECK(weft_server_is_worker(server) == (weft_context_rank(context) < 2));
    CHECK(weft_server_index(server) == weft_context_rank(context) - 2 ||
          weft_server_is_worker(server));
    if (weft_server_is_worker(server))
        misuse_worker(server);
    else
        misuse_server(server);
    OK(weft_server_destroy(server));
    tensors_free(&bench.tensors);
    return WEFT_OK;
}

Test(server_misuse, calls_are_refused_and_change_nothing)
{
    for (int sync = WEFT_SERVER_BSP; sync <= WEFT_SERVER_OSP; sync++) {
        struct weft_virtual_config config = with_seed((uint64_t)sync);
        weft_server_sync_t one = (weft_server_sync_t)sync;
        cr_assert_eq(weft_virtual_run(3, &config, misuse, &one), WEFT_OK, "%s", weft_error_text());
    }
    OK(weft_server_destroy(NULL));
    cr_assert(weft_server_workers(NULL) == 0 && weft_server_index(NULL) == -1);
    cr_assert(!weft_server_is_worker(NULL) && weft_server_next(NULL) == 0);
    CHECK_STATUS(weft_server_serve(NULL, 0), WEFT_ERR_INVALID);
    CHECK_STATUS(weft_server_fail(NULL, WEFT_ERR_COMPUTE, NULL), WEFT_ERR_INVALID);
}

/* ---- states that do not fit ---- */

/* A rank has another state than the one that fits. */
static void refuse_state(struct weft_context *context, struct bench *bench,
                         const struct weft_server_state *good, const struct weft_server_state *bad,
                         int rank, const char *text)
{
    struct weft_server *server = NULL;
    /* What ranks find together the first one may tell the others before they do. */
    int found_by_all = strstr(text, "do not agree") || !strcmp(text, "config->state->clocks");
    bench->config.state = weft_context_rank(context) == rank ? bad : good;
    int status = weft_server_create(&server, context, &bench->config);
    CHECK(status == WEFT_ERR_INVALID || status == WEFT_ERR_PEER);
    CHECK(status == WEFT_ERR_INVALID || weft_context_rank(context) != rank || found_by_all);
    CHECK_TEXT(weft_error_text(), text);
    CHECK(!server);
    bench->config.state = NULL;
}

#define REFUSE_STATE(rank, member, value, text)                                                    \
    do {                                                                                           \
        struct weft_server_state bad_ = copy.state;                                                \
        bad_.member = (value);                                                                     \
        refuse_state(context, &bench, &copy.state, &bad_, rank, text);                             \
    } while (0)

static int refuse_states(struct weft_context *context, void *user)
{
    static const uint64_t clocks[] = {0, 3}, huge[] = {0, UINT64_MAX};
    static const unsigned char late[] = {2, 0, 0}, wrong[] = {0, 0, 4};
    struct bench bench;
    struct state_copy copy;
    struct weft_server_state bad;
    int rank = weft_context_rank(context);
    (void)user;
    bench_init(&bench);
    bench.config.sync = WEFT_SERVER_OSP;
    bench.config.momentum = bench.config.osp_average = 0.5;
    state_of_first(&copy, context, &bench.config, &bench.shape);
    CHECK(copy.state.rank == (uint64_t)rank);
    REFUSE_STATE(0, agreed[0], 4, "config->state->agreed[0] (ranks) is 4, expected 3");
    REFUSE_STATE(1, agreed[1], 2, "config->state->agreed[1] (servers) is 2, expected 1");
    REFUSE_STATE(2, agreed[2], 2, "config->state->agreed[2] (layers) is 2, expected 3");
    REFUSE_STATE(1, rank, 0, "config->state->rank is 0, expected 1");
    REFUSE_STATE(0, next, UINT64_MAX, "config->state->next is");
    REFUSE_STATE(1, next, 3, "do not agree about config->state->next: worker 0 has 0");
    REFUSE_STATE(0, late, NULL, "config->state->late is NULL, expected 3 elements");
    REFUSE_STATE(0, late, wrong, "config->state->late[2] is 4, expected 0 to 3");
    REFUSE_STATE(0, changes, NULL, "config->state->changes is NULL, expected 6 elements");
    REFUSE_STATE(1, average, NULL, "config->state->average is NULL, expected 6 elements");
    REFUSE_STATE(2, parameters, NULL, "config->state->parameters is NULL, expected 6 elements");
    REFUSE_STATE(2, velocity, NULL, "config->state->velocity is NULL, expected 6 elements");
    REFUSE_STATE(2, element_count, 5, "config->state->element_count is 5, expected 6");
    REFUSE_STATE(2, clocks, NULL, "config->state->clock_count is 2, expected 0");
    REFUSE_STATE(2, clock_count, 1, "config->state->clock_count is 1, expected 2");
    REFUSE_STATE(2, clocks, huge, "config->state->clocks[1] is 18446744073709551615, expected");
    REFUSE_STATE(2, clocks, clocks, "config->state->clocks");
    REFUSE_STATE(1, struct_size, 2, "config->state->struct_size is 2");
    bad = copy.state;
    bad.late = late;
    bad.pulled = NULL;
    refuse_state(context, &bench, &copy.state, &bad, 1,
                 "config->state->pulled is NULL, expected parameters");
    bad = copy.state;
    bad.clocks = NULL;
    bad.clock_count = 0;
    refuse_state(context, &bench, &copy.state, &bad, 2,
                 "config->state->clocks is NULL, expected 2 elements");
    struct weft_server *server = NULL;
    bad = (struct weft_server_state){.struct_size = sizeof bad}; /* it says nothing */
    bench.config.state = &bad;
    OK(weft_server_create(&server, context, &bench.config));
    OK(weft_server_destroy(server));
    server = NULL;
    bench.config.state = rank ? &copy.state : NULL;
    CHECK_STATUS(weft_server_create(&server, context, &bench.config), WEFT_ERR_INVALID);
    CHECK_TEXT(weft_error_text(), "config->state: rank 0 has none, rank 1 has a state");
    state_free(&copy);
    tensors_free(&bench.tensors);
    return WEFT_OK;
}

Test(server_misuse, states_that_do_not_fit_are_refused)
{
    on_ranks(3, refuse_states);
}

static int refuse_velocities(struct weft_context *context, void *user)
{
    struct bench bench;
    struct state_copy copy;
    (void)user;
    bench_init(&bench);
    bench.config.sync = WEFT_SERVER_ASP;
    bench.config.momentum = 0.5;
    bench.config.optimiser = WEFT_WORKER_UPDATES;
    state_of_first(&copy, context, &bench.config, &bench.shape);
    copy.state.next = weft_context_rank(context) < 2; /* who has taken a step has one */
    REFUSE_STATE(1, worker_velocity, NULL,
                 "config->state->worker_velocity is NULL, expected 6 elements");
    state_free(&copy);
    tensors_free(&bench.tensors);
    return WEFT_OK;
}

Test(server_misuse, states_without_a_velocity_of_the_worker_are_refused)
{
    on_ranks(3, refuse_velocities);
}

/* Workers that hold back different layers would wait for each other. What is to be corrected is
 * each worker's own matter. */
static int differ_in_late(struct weft_context *context, void *user)
{
    static const unsigned char late[][LAYERS] = {{1, 0, 0}, {0, 0, 1}, {3, 0, 2}, {1, 2, 0}};
    struct bench bench;
    struct state_copy copy;
    struct weft_server *server = NULL;
    int rank = weft_context_rank(context);
    (void)user;
    bench_init(&bench);
    bench.config.sync = WEFT_SERVER_OSP;
    state_of_first(&copy, context, &bench.config, &bench.shape);
    struct weft_server_state state = copy.state;
    bench.config.state = &state;
    for (int i = 0; i < 2; i++) {
        state.late = late[rank ? i : !i];
        CHECK_STATUS(weft_server_create(&server, context, &bench.config), WEFT_ERR_INVALID);
        CHECK_TEXT(weft_error_text(), "do not agree about the late layers of config->state, as "
                                      "bits: rank 0 has ");
        CHECK_TEXT(weft_error_text(), ", rank 1 has ");
        CHECK(!server);
    }
    state.late = rank < 2 ? late[2 + rank] : late[1]; /* of a server alone it is nothing */
    OK(weft_server_create(&server, context, &bench.config));
    for (size_t l = 0; rank < 2 && l < LAYERS; l++)
        CHECK(weft_server_layer_late(server, l) == (l == 0));
    for (int t = 0; rank < 2 && t < 3; t++)
        OK(weft_server_step(server, NULL));
    OK(weft_server_destroy(server));
    bench.config.sync = WEFT_SERVER_BSP; /* which has none */
    state.late = late[rank % 2];
    OK(weft_server_create(&server, context, &bench.config));
    OK(weft_server_destroy(server));
    state_free(&copy);
    tensors_free(&bench.tensors);
    return WEFT_OK;
}

Test(server_misuse, states_whose_late_layers_differ_are_refused)
{
    on_ranks(3, differ_in_late);
}
