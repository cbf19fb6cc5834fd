/* SPDX-License-Identifier: BSD-3-Clause */
/* NaNs and infinities in models and gradients: they are told of on the rank that has them, and no
 * other gets them, unless that was asked for. */
#include <criterion/criterion.h>
#include <math.h>

#include "support/ranks.h"

enum { MOST = 5, ELEMENTS = 5003, BAD_AT = 4100 }; /* in the last tensor, not in its first block */

enum object { GROUP, GOSSIP, PAIR, OBJECTS };

static const char *const names[] = {"group_average", "gossip", "pair_average"};

struct sick {
    enum object object;
    weft_dtype_t dtype;
    weft_nan_policy_t nan;
    int rank;  /* who has one */
    int split; /* steps are posted and waited for */
    double bad;
    int found[MOST]; /* how many models or gradients were not finite after a step */
};

struct any {
    enum object object;
    struct weft_group_average *group;
    struct weft_gossip *gossip;
    struct weft_pair_average *pair;
};

#define EITHER(any, what, ...)                                                                     \
    ((any)->object == GROUP    ? weft_group_average_##what((any)->group __VA_ARGS__)               \
     : (any)->object == GOSSIP ? weft_gossip_##what((any)->gossip)                                 \
                               : weft_pair_average_##what((any)->pair))

#define COMMA ,

static int create(struct any *any, struct weft_context *context, const struct sick *sick,
                  const struct weft_piece tensors[3])
{
    struct weft_group_average_config group;
    struct weft_gossip_config gossip;
    struct weft_pair_average_config pair;
    weft_group_average_config_init(&group);
    weft_gossip_config_init(&gossip);
    weft_pair_average_config_init(&pair);
    group.tensors = gossip.tensors = pair.tensors = tensors;
    group.tensor_count = gossip.tensor_count = pair.tensor_count = 3;
    group.dtype = gossip.dtype = pair.dtype = sick->dtype;
    group.nan = gossip.nan = pair.nan = sick->nan;
    group.initial = gossip.initial = pair.initial = WEFT_INITIAL_ANY;
    group.group_size = weft_context_size(context);
    group.sync_period = 3;
    group.patience_ns = WEFT_NS_NONE;
    gossip.neighbours = MOST;
    any->object = sick->object;
    return any->object == GROUP    ? weft_group_average_create(&any->group, context, &group)
           : any->object == GOSSIP ? weft_gossip_create(&any->gossip, context, &gossip)
                                   : weft_pair_average_create(&any->pair, context, &pair);
}

static int take_step(struct any *any, const struct sick *sick)
{
    if (!sick->split)
        return EITHER(any, step, COMMA NULL);
    int status = EITHER(any, post, );
    return status ? status : EITHER(any, wait, COMMA NULL);
}

static uint64_t nans_of(const struct any *any)
{
    struct weft_group_average_stats group = {.struct_size = sizeof group};
    struct weft_gossip_stats gossip = {.struct_size = sizeof gossip};
    struct weft_pair_average_stats pair = {.struct_size = sizeof pair};
    if (any->object == GROUP)
        OK(weft_group_average_get_stats(any->group, &group));
    else if (any->object == GOSSIP)
        OK(weft_gossip_get_stats(any->gossip, &gossip));
    else
        OK(weft_pair_average_get_stats(any->pair, &pair));
    return group.nans + gossip.nans + pair.nans;
}

static void set(const struct sick *sick, unsigned char *model, size_t i, double value)
{
    size_t size = weft_dtype_size(sick->dtype);
    OK(weft_convert(sick->dtype, model + i * size, WEFT_F64, &value, 1));
}

static double get(const struct sick *sick, const unsigned char *model, size_t i)
{
    size_t size = weft_dtype_size(sick->dtype);
    double value;
    OK(weft_convert(WEFT_F64, &value, sick->dtype, model + i * size, 1));
    return value;
}

static int is_finite(const struct sick *sick, const unsigned char *model)
{
    for (size_t i = 0; i < ELEMENTS; i++)
        if (!isfinite(get(sick, model, i)))
            return 0;
    return 1;
}

static unsigned char *new_model(const struct sick *sick, struct weft_piece tensors[3])
{
    size_t size = weft_dtype_size(sick->dtype);
    unsigned char *model = calloc(ELEMENTS, sizeof(double));
    CHECK(model);
    for (size_t i = 0; i < ELEMENTS; i++)
        set(sick, model, i, (double)(i % 50));
    tensors[0] = (struct weft_piece){model, 1000};
    tensors[1] = (struct weft_piece){NULL, 0};
    tensors[2] = (struct weft_piece){model + 1000 * size, ELEMENTS - 1000};
    return model;
}

/* ---- models ---- */

static int live(struct weft_context *context, void *user)
{
    struct sick *sick = user;
    struct any any = {0};
    struct weft_piece tensors[3];
    char word[64];
    int rank = weft_context_rank(context), ill = rank == sick->rank;
    unsigned char *model = new_model(sick, tensors);
    OK(create(&any, context, sick, tensors));
    for (int step = 0; step < 7; step++) {
        weft_context_sleep(context, 1000000 * (uint64_t)(1 + rank % 2));
        if (ill && step == 2) {
            double was = get(sick, model, BAD_AT);
            set(sick, model, BAD_AT, sick->bad);
            if (sick->nan == WEFT_NAN_ERROR) {
                CHECK_STATUS(take_step(&any, sick), WEFT_ERR_COMPUTE);
                snprintf(word, sizeof word, "weft_%s_%s: step 2: 1 NaNs", names[sick->object],
                         sick->split ? "post" : "step");
                CHECK_TEXT(weft_error_text(), word);
                CHECK_TEXT(weft_error_text(), "in tensor 2");
                weft_context_sleep(context, 20000000); /* others go on, or wait */
                set(sick, model, BAD_AT, was);
            }
        }
        OK(take_step(&any, sick));
        sick->found[rank] += !is_finite(sick, model);
    }
    CHECK(nans_of(&any) == (uint64_t)(ill && sick->nan == WEFT_NAN_ERROR));
    OK(EITHER(&any, destroy, ));
    free(model);
    return WEFT_OK;
}

static void run(struct sick *sick, int ranks,
                int (*program)(struct weft_context *context, void *user))
{
    struct weft_virtual_config config;
    weft_virtual_config_init(&config);
    memset(sick->found, 0, sizeof sick->found);
    OK(weft_virtual_run(ranks, &config, program, sick));
}

static const weft_dtype_t dtypes[] = {WEFT_F32, WEFT_F64, WEFT_F16, WEFT_BF16};

static void every_model(weft_nan_policy_t nan)
{
    const double bads[] = {(double)NAN, (double)INFINITY, -(double)INFINITY};
    for (int object = 0; object < OBJECTS; object++)
        for (int d = 0; d < (object == GROUP ? 4 : 2); d++)
            for (int ranks = 1; ranks <= MOST; ranks++)
                for (int ill = 0; ill < ranks; ill++) {
                    struct sick sick = {.object = (enum object)object,
                                        .dtype = dtypes[d],
                                        .nan = nan,
                                        .rank = ill,
                                        .split = (ill + ranks) % 2,
                                        .bad = bads[(ill + d) % 3]};
                    run(&sick, ranks, live);
                    int found = 0;
                    for (int r = 0; r < ranks; r++)
                        found += sick.found[r] > 0;
                    if (nan == WEFT_NAN_ERROR)
                        cr_assert_eq(found, 0);
                    else if (object != PAIR) /* who meets whom is drawn */
                        cr_assert_eq(found, ranks, "%s, %s: %d of %d", names[object],
                                     weft_dtype_name(dtypes[d]), found, ranks);
                }
}

Test(not_finite, a_model_is_refused_and_spreads_nowhere, .timeout = 140)
{
    every_model(WEFT_NAN_ERROR);
}

Test(not_finite, a_model_spreads_if_that_was_asked_for, .timeout = 140)
{
    every_model(WEFT_NAN_SPREAD);
}

static int begin_ill(struct weft_context *context, void *user)
{
    struct sick *sick = user;
    struct any any = {0};
    struct weft_piece tensors[3];
    char word[128];
    int ill = weft_context_rank(context) == sick->rank;
    unsigned char *model = new_model(sick, tensors);
    if (ill)
        set(sick, model, BAD_AT, sick->bad);
    CHECK_STATUS(create(&any, context, sick, tensors), ill ? WEFT_ERR_COMPUTE : WEFT_ERR_PEER);
    snprintf(word, sizeof word, "weft_%s_create: 1 NaNs or infinities in the model of this rank",
             names[sick->object]);
    if (ill)
        CHECK(strncmp(weft_error_text(), word, strlen(word)) == 0);
    CHECK_TEXT(weft_error_text(), word);
    CHECK_TEXT(weft_error_text(), "tensor 2");
    free(model);
    return WEFT_OK;
}

Test(not_finite, a_first_model_is_refused)
{
    for (int object = 0; object < OBJECTS; object++) {
        struct sick sick = {.object = (enum object)object, .rank = 1, .bad = (double)NAN};
        run(&sick, 3, begin_ill);
    }
}

/* ---- gradients ---- */

/* The gradient of a rank is 1 + its number everywhere; that of the ill one in step 1 has two bad
 * elements. Everybody waits for everybody: sums are exact. */
static int descend(struct weft_context *context, void *user)
{
    struct sick *sick = user;
    struct weft_group_average_config config;
    struct weft_group_average *average = NULL;
    struct weft_group_average_result result = {.struct_size = sizeof result};
    struct weft_group_average_stats stats = {.struct_size = sizeof stats};
    struct weft_piece tensors[3];
    int rank = weft_context_rank(context), ranks = weft_context_size(context);
    int ill = rank == sick->rank;
    unsigned char *gradient = new_model(sick, tensors);
    weft_group_average_config_init(&config);
    config.tensors = tensors;
    config.tensor_count = 3;
    config.dtype = sick->dtype;
    config.contribution = WEFT_AVERAGE_ACCUMULATE;
    config.mode = WEFT_AVERAGE_NONE; /* what is published adds up to the synchronisation */
    config.sync_period = 2;
    config.nan = sick->nan;
    OK(weft_group_average_create(&average, context, &config));
    for (int step = 0; step < 4; step++) {
        for (size_t i = 0; i < ELEMENTS; i++)
            set(sick, gradient, i, 1 + rank);
        if (ill && step == 1) {
            set(sick, gradient, 3, sick->bad);
            set(sick, gradient, BAD_AT, -sick->bad);
        }
        int status = weft_group_average_step(average, &result);
        int told = ill && step == 1 && sick->nan == WEFT_NAN_ERROR;
        CHECK_STATUS(status, told ? WEFT_ERR_COMPUTE : WEFT_OK);
        if (told)
            CHECK_TEXT(weft_error_text(),
                       "weft_group_average_step: step 1: 2 NaNs or infinities in "
                       "the gradient of this rank, the first in tensor 0");
        CHECK(result.synchronised == step % 2);
        for (size_t i = 0; i < ELEMENTS && step % 2; i++) {
            double sum = ranks * (ranks + 1);
            if (step == 1 && (sick->nan == WEFT_NAN_ERROR || i == 3 || i == BAD_AT))
                sum -= 1 + sick->rank;
            if (sick->nan == WEFT_NAN_SPREAD && step == 1 && (i == 3 || i == BAD_AT))
                CHECK(!isfinite(get(sick, gradient, i)));
            else
                CHECK(fabs(get(sick, gradient, i) * ranks - sum) < 0.1 * ranks);
        }
    }
    OK(weft_group_average_get_stats(average, &stats));
    CHECK(stats.nans == (ill && sick->nan != WEFT_NAN_SPREAD ? 2 : 0) && stats.steps == 4);
    OK(weft_group_average_destroy(average));
    free(gradient);
    return WEFT_OK;
}

Test(not_finite, a_gradient_counts_as_zero_and_is_told_of_once, .timeout = 140)
{
    for (int nan = WEFT_NAN_ERROR; nan <= WEFT_NAN_SPREAD; nan++)
        for (int d = 0; d < 4; d++)
            for (int ranks = 1; ranks <= MOST; ranks++) {
                struct sick sick = {.dtype = dtypes[d],
                                    .nan = (weft_nan_policy_t)nan,
                                    .rank = ranks / 2,
                                    .bad = ranks % 2 ? (double)NAN : (double)INFINITY};
                run(&sick, ranks, descend);
            }
}

/* Elements beside those that count as zero stay as they are, to the sign of a zero. */
static int beside(struct weft_context *context, void *user)
{
    (void)user;
    float gradient[] = {-0.0f, NAN, 1};
    struct weft_piece tensor = {gradient, 3};
    struct weft_group_average_config config;
    struct weft_group_average *average = NULL;
    weft_group_average_config_init(&config);
    config.tensors = &tensor;
    config.tensor_count = 1;
    config.contribution = WEFT_AVERAGE_ACCUMULATE;
    config.mode = WEFT_AVERAGE_WAITING;
    config.nan = WEFT_NAN_ZERO;
    OK(weft_group_average_create(&average, context, &config));
    OK(weft_group_average_step(average, NULL));
    CHECK(gradient[0] == 0 && signbit(gradient[0]));
    CHECK(gradient[1] == 0 && !signbit(gradient[1]) && gradient[2] == 1);
    OK(weft_group_average_destroy(average));
    return WEFT_OK;
}

Test(not_finite, what_is_finite_stays_as_it_is)
{
    struct sick nobody = {0};
    run(&nobody, 1, beside);
}

/* ---- policies ---- */

static int differ(struct weft_context *context, void *user)
{
    struct sick sick = *(struct sick *)user;
    struct any any = {0};
    struct weft_piece tensors[3];
    unsigned char *model = new_model(&sick, tensors);
    sick.nan = weft_context_rank(context) == 1 ? WEFT_NAN_SPREAD : WEFT_NAN_ERROR;
    CHECK_STATUS(create(&any, context, &sick, tensors), WEFT_ERR_INVALID);
    CHECK_TEXT(weft_error_text(), "config->nan: rank 0 has error, rank 1 has spread");
    sick.nan = WEFT_NAN_ZERO;
    CHECK_STATUS(create(&any, context, &sick, tensors), WEFT_ERR_INVALID);
    CHECK_TEXT(weft_error_text(), "config->nan is 1, expected WEFT_NAN_ERROR or WEFT_NAN_SPREAD");
    free(model);
    return WEFT_OK;
}

Test(not_finite, ranks_have_one_policy_that_suits_models)
{
    for (int object = 0; object < OBJECTS; object++) {
        struct sick sick = {.object = (enum object)object};
        run(&sick, 3, differ);
    }
}
