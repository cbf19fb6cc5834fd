/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Averaging in pairs. All elements of a model are the same multiple of a number, so a torn exchange
 * is seen; ranks add known amounts, so the sum over ranks is known whatever the exchanges do.
 */
#include <criterion/criterion.h>

#include <math.h>

#include "runtime/base/alloc.h"
#include "support/ranks.h"

enum { MOST_RANKS = 33 };

static uint64_t scramble(uint64_t x)
{
    x += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

struct story {
    weft_dtype_t dtype;
    size_t elements;
    int steps;
    int unequal;          /* ranks take different numbers of steps */
    int split;            /* post and wait */
    uint64_t seed;        /* of the pauses */
    unsigned pause_every; /* on average; 0: never */
    double added[MOST_RANKS];
    double found[MOST_RANKS];
    double mean[MOST_RANKS];
    double apart[MOST_RANKS];
    struct weft_pair_average_stats stats[MOST_RANKS];
};

struct model {
    weft_dtype_t dtype;
    size_t count;
    char *data;
    struct weft_piece tensors[2];
};

static void model_init(struct model *model, weft_dtype_t dtype, size_t count)
{
    size_t element = weft_dtype_size(dtype);
    *model = (struct model){dtype, count, calloc(count + 1, element), {{0}}};
    CHECK(model->data);
    model->tensors[0] = (struct weft_piece){model->data, count / 3};
    model->tensors[1] = (struct weft_piece){model->data + count / 3 * element, count - count / 3};
}

static void add(struct model *model, double value)
{
    for (size_t i = 0; i < model->count; i++)
        if (model->dtype == WEFT_F64)
            ((double *)model->data)[i] += value;
        else
            ((float *)model->data)[i] += (float)value;
}

/* All elements have gone through the same, so they are the same bits, or an exchange was torn. */
static double same(const struct model *model)
{
    size_t element = weft_dtype_size(model->dtype);
    for (size_t i = 1; i < model->count; i++)
        CHECK(memcmp(model->data, model->data + i * element, element) == 0);
    return model->dtype == WEFT_F64 ? *(double *)model->data : *(float *)model->data;
}

/* A sum over all ranks may add in another order in each of its blocks: elements differ by rounding.
 */
static double close_to_same(const struct model *model)
{
    double first = 0;
    for (size_t i = 0; i < model->count; i++) {
        double value = model->dtype == WEFT_F64 ? ((const double *)model->data)[i]
                                                : ((const float *)model->data)[i];
        if (i == 0)
            first = value;
        CHECK(fabs(value - first) <= (1 + fabs(first)) * (model->dtype == WEFT_F64 ? 1e-12 : 1e-5));
    }
    return first;
}

static void pause_at_random(const struct story *story, struct weft_context *context, int rank,
                            int step)
{
    uint64_t drawn = scramble(story->seed + scramble((uint64_t)(rank * 100000 + step)));
    if (story->pause_every && drawn % story->pause_every == 0)
        OK(weft_context_sleep(context, drawn / story->pause_every % 300000));
}

static void take_steps(struct story *story, struct weft_pair_average *average,
                       struct weft_context *context, struct model *model, int rank)
{
    int steps = story->steps;
    if (story->unequal)
        steps = (int)(scramble(story->seed + (uint64_t)rank) % (uint64_t)(2 * story->steps));
    for (int step = 0; step < steps; step++) {
        double value = (double)(rank + 1) * ldexp(1.0, -(step % 5));
        CHECK(weft_pair_average_next(average) == (uint64_t)step);
        pause_at_random(story, context, rank, step);
        if (story->split) {
            OK(weft_pair_average_post(average));
            CHECK_STATUS(weft_pair_average_step(average), WEFT_ERR_STATE);
            CHECK_STATUS(weft_pair_average_synchronise(average), WEFT_ERR_STATE);
            add(model, value);
            OK(weft_pair_average_wait(average));
        } else {
            add(model, value);
            OK(weft_pair_average_step(average));
        }
        story->added[rank] += value;
        same(model);
    }
}

static void live(struct ranks *ranks, struct weft_context *context, int rank)
{
    struct story *story = ranks->user;
    struct weft_pair_average_config config;
    struct weft_pair_average *average = NULL;
    struct model model;
    model_init(&model, story->dtype, story->elements);
    weft_pair_average_config_init(&config);
    config.dtype = story->dtype;
    config.tensors = model.tensors;
    config.tensor_count = 2;
    config.seed = story->seed;
    OK(weft_pair_average_create(&average, context, &config));
    take_steps(story, average, context, &model, rank);
    story->found[rank] = same(&model);
    OK(weft_pair_average_synchronise(average));
    story->mean[rank] = close_to_same(&model);
    /* Some go on at once: the others' models are the mean all the same. */
    for (int i = 0; i < rank % 3; i++)
        OK(weft_pair_average_step(average));
    story->stats[rank].struct_size = sizeof story->stats[rank];
    OK(weft_pair_average_get_stats(average, &story->stats[rank]));
    OK(weft_pair_average_synchronise(average));
    story->apart[rank] = close_to_same(&model);
    OK(weft_pair_average_destroy(average));
    free(model.data);
}

static void tell(struct story *story, int size, double bound)
{
    struct ranks ranks;
    double total = 0;
    uint64_t begun = 0, answered = 0;
    ranks_init(&ranks, size, live, story);
    ranks.config.progress = WEFT_PROGRESS_HELPER;
    ranks_run(&ranks);
    for (int r = 0; r < size; r++) {
        total += story->added[r];
        begun += story->stats[r].begun;
        answered += story->stats[r].answered;
        cr_assert(r % 2 == 0 || story->stats[r].begun == 0);
        cr_assert(r % 2 == 1 || story->stats[r].answered == 0);
    }
    for (int r = 0; r < size; r++) {
        cr_assert(fabs(story->mean[r] - total / size) <= bound * (1 + fabs(total / size)),
                  "seed %llu, P = %d, rank %d: the mean is %.17g, expected %.17g",
                  (unsigned long long)story->seed, size, r, story->mean[r], total / size);
        cr_assert_eq(story->mean[r], story->mean[0], "bit by bit");
        cr_assert(fabs(story->apart[r] - story->mean[0]) <= bound * (1 + fabs(total / size)));
    }
    /* An answer is counted when its send has ended, which the asker does not wait for. */
    cr_assert(answered <= begun);
    cr_assert(size > 1 || begun == 0);
}

Test(pair_average, keeps_the_mean_under_random_pauses)
{
    static const int sizes[] = {1, 2, 3, 4, 5, 7, 8, 13, 16, 17};
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s += SWEPT(1, 2))
        for (int variant = 0; variant < 4; variant++) {
            struct story story = {.dtype = variant == 3 ? WEFT_F32 : WEFT_F64,
                                  .elements = variant == 2 ? 100000 : 50,
                                  .steps = variant == 2 ? 6 : 40,
                                  .unequal = variant == 1,
                                  .split = variant & 1,
                                  .seed = 1 + s * 100 + (uint64_t)variant,
                                  .pause_every = 5};
            tell(&story, sizes[s], story.dtype == WEFT_F32 ? 1e-4 : 1e-11);
        }
}

Test(pair_average, thousands_of_exchanges)
{
    struct story story = {.dtype = WEFT_F64, .elements = 5, .steps = 2000, .seed = 7};
    tell(&story, 5, 1e-10);
    cr_assert_geq(story.stats[0].begun, 2000);
    story = (struct story){.dtype = WEFT_F64,
                           .elements = 5,
                           .steps = 1000,
                           .unequal = 1,
                           .seed = 8,
                           .pause_every = 50};
    tell(&story, 7, 1e-10);
}

Test(pair_average, an_empty_model_is_averaged)
{
    struct story story = {.dtype = WEFT_F32, .elements = 0, .steps = 20, .seed = 3};
    tell(&story, 3, INFINITY);
}

/* ---- partners ---- */

Test(pair_average, partners_are_odd_and_all_are_drawn)
{
    for (int ranks = 1; ranks <= 33; ranks++)
        for (int rank = -1; rank <= ranks; rank++) {
            int seen[MOST_RANKS] = {0}, kinds = 0;
            for (uint64_t step = 0; step < 2000; step++) {
                int partner = weft_pair_average_partner(5, ranks, rank, step);
                if (rank < 0 || rank >= ranks || rank % 2 || ranks == 1) {
                    cr_assert_eq(partner, WEFT_PEER_NONE);
                    continue;
                }
                cr_assert(partner % 2 == 1 && partner < ranks);
                kinds += !seen[partner]++;
            }
            if (rank >= 0 && rank < ranks && rank % 2 == 0)
                cr_assert_eq(kinds, ranks / 2);
        }
}

/* ---- nobody waits for who computes ---- */

static void sleeper(struct ranks *ranks, struct weft_context *context, int rank)
{
    struct weft_pair_average_config config;
    struct weft_pair_average *average = NULL;
    double data[] = {rank == 1 ? 8 : 0};
    struct weft_piece tensor = {data, 1};
    weft_pair_average_config_init(&config);
    config.initial = WEFT_INITIAL_ANY;
    config.dtype = WEFT_F64;
    config.tensors = &tensor;
    config.tensor_count = 1;
    OK(weft_pair_average_create(&average, context, &config));
    if (rank == 1) {
        OK(weft_pair_average_step(average)); /* publishes 8 */
        ranks_meet(ranks);
        ranks_meet(ranks); /* the others exchange while this rank does nothing */
        OK(weft_pair_average_step(average));
        CHECK(data[0] > 0 && data[0] < 8);
    } else {
        ranks_meet(ranks);
        for (int i = 0; i < 100; i++)
            OK(weft_pair_average_step(average));
        CHECK(data[0] > 0);
        ranks_meet(ranks);
    }
    OK(weft_pair_average_destroy(average));
}

Test(pair_average, a_rank_that_computes_answers)
{
    ranks_run_helped(sleeper, 3, NULL);
}

/* ---- misuse ---- */

Test(pair_average, misuse_is_named)
{
    struct alone caller = alone_create(WEFT_PROGRESS_CALLER);
    struct alone alone = alone_create(WEFT_PROGRESS_HELPER);
    struct weft_pair_average_config config;
    struct weft_pair_average *average = NULL;
    weft_pair_average_config_init(&config);
    CHECK_STATUS(weft_pair_average_create(&average, caller.context, &config), WEFT_ERR_STATE);
    CHECK_TEXT(weft_error_text(), "helper");
    CHECK_STATUS(weft_pair_average_create(NULL, alone.context, &config), WEFT_ERR_INVALID);
    CHECK_STATUS(weft_pair_average_create(&average, NULL, &config), WEFT_ERR_INVALID);
    CHECK_STATUS(weft_pair_average_create(&average, alone.context, NULL), WEFT_ERR_INVALID);
    config.dtype = WEFT_I32;
    CHECK_STATUS(weft_pair_average_create(&average, alone.context, &config), WEFT_ERR_UNSUPPORTED);
    CHECK_TEXT(weft_error_text(), "i32");
    config.dtype = WEFT_F32;
    config.tensor_count = 1;
    CHECK_STATUS(weft_pair_average_create(&average, alone.context, &config), WEFT_ERR_INVALID);
    CHECK_TEXT(weft_error_text(), "tensors");
    config.tensor_count = 0;
    config.struct_size = 3;
    CHECK_STATUS(weft_pair_average_create(&average, alone.context, &config), WEFT_ERR_INVALID);
    CHECK(!average);
    weft_pair_average_config_init(&config);
    OK(weft_pair_average_create(&average, alone.context, &config));
    CHECK_STATUS(weft_pair_average_wait(average), WEFT_ERR_STATE);
    OK(weft_pair_average_post(average));
    CHECK_STATUS(weft_pair_average_post(average), WEFT_ERR_STATE);
    CHECK_STATUS(weft_pair_average_get_stats(average, NULL), WEFT_ERR_INVALID);
    OK(weft_pair_average_destroy(average)); /* ends the step */
    OK(weft_pair_average_destroy(NULL));
    alone_destroy(&alone);
    alone_destroy(&caller);
}

static void disagree(struct ranks *ranks, struct weft_context *context, int rank)
{
    struct weft_pair_average_config config;
    struct weft_pair_average *average = NULL;
    (void)ranks;
    weft_pair_average_config_init(&config);
    config.seed = rank == 3;
    CHECK_STATUS(weft_pair_average_create(&average, context, &config), WEFT_ERR_INVALID);
    CHECK_TEXT(weft_error_text(), "config->seed: rank 0 has 0, rank 3 has 1");
}

Test(pair_average, ranks_that_disagree_are_told)
{
    ranks_run_helped(disagree, 4, NULL);
}

/* Destroying is collective, so a rank that goes away cannot free its object: it stays reachable. */
static struct weft_pair_average *volatile deserted;

/* A rank that goes away fails the exchanges with it, and nobody hangs. */
static int desert(struct weft_context *context, void *user)
{
    struct weft_pair_average_config config;
    struct weft_pair_average *average = NULL;
    int rank = weft_context_rank(context), status = WEFT_OK;
    (void)user;
    weft_pair_average_config_init(&config);
    status = weft_pair_average_create(&average, context, &config);
    CHECK(status == WEFT_OK || rank != 1); /* others may still be in it when rank 1 goes */
    for (int step = 0; step < 200000 && status == WEFT_OK; step++) {
        if (rank == 1 && step == 20) {
            deserted = average;
            return weft_error_set(WEFT_ERR_COMPUTE, "rank 1 goes away");
        }
        status = weft_pair_average_step(average);
        OK(weft_context_sleep(context, 100000));
    }
    weft_pair_average_destroy(average);
    return status;
}

Test(pair_average, a_rank_that_goes_away_is_not_waited_for)
{
    struct weft_context_config config;
    weft_context_config_init(&config);
    config.progress = WEFT_PROGRESS_HELPER;
    CHECK_STATUS(weft_local_run(4, &config, desert, NULL), WEFT_ERR_COMPUTE);
}

/* ---- many ranks ---- */

/* Ranks of unequal pace. The sum of all models is kept. */
static int step_now_and_then(struct weft_context *context, void *user)
{
    int rank = weft_context_rank(context), steps = *(const int *)user;
    struct weft_pair_average_config config;
    struct weft_pair_average *average = NULL;
    double data[] = {rank, rank};
    struct weft_piece tensor = {data, 2};
    weft_pair_average_config_init(&config);
    config.initial = WEFT_INITIAL_ANY;
    config.dtype = WEFT_F64;
    config.tensors = &tensor;
    config.tensor_count = 1;
    OK(weft_pair_average_create(&average, context, &config));
    for (int step = 0; step < steps; step++) {
        OK(weft_context_sleep(context, (uint64_t)(rank % 5) * 10000));
        OK(weft_pair_average_step(average));
    }
    OK(weft_pair_average_synchronise(average));
    CHECK(fabs(data[0] - (weft_context_size(context) - 1) / 2.0) < 1e-9 && data[0] == data[1]);
    OK(weft_pair_average_destroy(average));
    return WEFT_OK;
}

Test(pair_average, signals_that_come_twice_are_answered_once)
{
    static const int sizes[] = {2, 3, 9, 16, 80};
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++)
        for (uint64_t seed = 1; seed <= 10; seed++) {
            struct weft_virtual_config config;
            int steps = 25;
            weft_virtual_config_init(&config);
            config.seed = seed;
            config.shuffle = 1;
            config.delay_ns = 20000;
            config.duplicate_share = 0.5;
            OK(weft_virtual_run(sizes[s], &config, step_now_and_then, &steps));
        }
}

static size_t bytes_of_a_rank(int ranks)
{
    int steps = 0;
    size_t before = atomic_load(&weft__alloc_bytes);
    OK(weft_virtual_run(ranks, NULL, step_now_and_then, &steps));
    return (atomic_load(&weft__alloc_bytes) - before) / (size_t)ranks;
}

/* Of what is allocated a logarithmic part is that of collectives. */
Test(pair_average, memory_of_a_rank_hardly_grows_with_the_ranks)
{
    size_t few = bytes_of_a_rank(16), many = bytes_of_a_rank(256);
    cr_expect_leq(many, 2 * few, "%zu bytes a rank of 16, %zu of 256", few, many);
}

/* ---- memory ---- */

Test(pair_average, every_allocation_may_fail)
{
    struct alone alone = alone_create(WEFT_PROGRESS_HELPER);
    struct weft_pair_average_config config;
    struct weft_pair_average *average = NULL;
    float data[100] = {1};
    struct weft_piece tensor = {data, 100};
    int status = WEFT_ERR_MEMORY;
    long n = 0;
    weft_pair_average_config_init(&config);
    config.tensors = &tensor;
    config.tensor_count = 1;
    while (status == WEFT_ERR_MEMORY) {
        atomic_store(&weft__alloc_countdown, ++n);
        status = weft_pair_average_create(&average, alone.context, &config);
        atomic_store(&weft__alloc_countdown, -1);
        CHECK((status == WEFT_OK) == (average != NULL));
    }
    OK(status);
    cr_assert_gt(n, 20);
    OK(weft_pair_average_step(average));
    OK(weft_pair_average_synchronise(average));
    CHECK(data[0] == 1);
    OK(weft_pair_average_destroy(average));
    alone_destroy(&alone);
}

/* ---- who is refused alone ---- */

static void refused_alone(struct ranks *ranks, struct weft_context *context, int rank)
{
    struct weft_pair_average_config config;
    struct weft_pair_average *object = NULL;
    int here = rank == ranks->size - 1;
    weft_pair_average_config_init(&config);
    if (here)
        config.dtype = WEFT_I32;
    CHECK_STATUS(weft_pair_average_create(&object, context, &config),
                 here ? WEFT_ERR_UNSUPPORTED : WEFT_ERR_PEER);
    CHECK_TEXT(weft_error_text(), here ? "dtype" : "has failed: ");
    CHECK(!object);
    weft_pair_average_config_init(&config);
    OK(weft_pair_average_create(&object, context, &config));
    OK(weft_pair_average_step(object));
    ranks_meet(ranks);
    weft_pair_average_destroy(object);
}

Test(pair_average, who_is_refused_alone_is_not_waited_for)
{
    for (int size = 2; size <= 5; size++)
        ranks_run_helped(refused_alone, size, NULL);
}

/* ---- deadlines of a synchronisation ---- */

static int come_late(struct weft_context *context, void *user)
{
    float model = 0;
    struct weft_piece tensor = {&model, 1};
    struct weft_pair_average_config config;
    struct weft_pair_average *average = NULL;
    int late = weft_context_size(context) / 2, status;
    (void)user;
    weft_pair_average_config_init(&config);
    config.tensors = &tensor;
    config.tensor_count = 1;
    config.deadline_ns = 1000000;
    OK(weft_pair_average_create(&average, context, &config));
    model = (float)weft_context_rank(context);
    if (weft_context_rank(context) == late)
        OK(weft_context_sleep(context, 10000000));
    status = weft_pair_average_synchronise(average);
    if (weft_context_rank(context) != late) {
        CHECK_STATUS(status, WEFT_ERR_TIMEOUT);
        CHECK_TEXT(weft_error_text(), "the synchronisation has not ended within 1000000 ns");
        CHECK_STATUS(weft_pair_average_step(average), WEFT_ERR_STATE);
    }
    while (status == WEFT_ERR_TIMEOUT)
        status = weft_pair_average_synchronise(average);
    OK(status);
    CHECK(model == (float)(weft_context_size(context) - 1) / 2);
    OK(weft_pair_average_step(average));
    OK(weft_pair_average_destroy(average));
    return WEFT_OK;
}

/* Who does not go on with it is not waited for. */
static int give_up(struct weft_context *context, void *user)
{
    struct weft_pair_average_config config;
    struct weft_pair_average *average = NULL;
    int late = weft_context_rank(context) == 1, status;
    (void)user;
    weft_pair_average_config_init(&config);
    config.deadline_ns = 1000000;
    OK(weft_pair_average_create(&average, context, &config));
    if (late)
        OK(weft_context_sleep(context, 10000000));
    status = weft_pair_average_synchronise(average);
    CHECK_STATUS(status, late ? WEFT_ERR_PEER : WEFT_ERR_TIMEOUT);
    CHECK_TEXT(weft_error_text(), late ? "it has left in the middle" : "has not ended within");
    CHECK_STATUS(weft_pair_average_destroy(average), late ? WEFT_ERR_PEER : WEFT_OK);
    return WEFT_OK;
}

Test(pair_average, who_leaves_in_the_middle_of_a_synchronisation_fails_it)
{
    OK(weft_virtual_run(2, NULL, give_up, NULL));
}

Test(pair_average, a_synchronisation_keeps_its_deadline_and_goes_on)
{
    for (int ranks = 2; ranks < 8; ranks++) {
        struct weft_virtual_config config;
        weft_virtual_config_init(&config);
        cr_assert_eq(weft_virtual_run(ranks, &config, come_late, NULL), WEFT_OK, "%s",
                     weft_error_text());
    }
}
