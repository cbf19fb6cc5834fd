/* SPDX-License-Identifier: BSD-3-Clause */
/* Compressed averaging: settings and calls that are refused, and ranks that disagree. */
#include <criterion/criterion.h>

#include "compressed_config.h"
#include "support/ranks.h"

enum { QSGD_METHOD = 2, POWERSGD_METHOD = 5 }; /* of compressed_methods; both keep residuals */

static void refuse(struct weft_context *context,
                   const struct weft_compressed_average_config *config, int status,
                   const char *word)
{
    struct weft_compressed_average *average = NULL;
    CHECK_STATUS(weft_compressed_average_create(&average, context, config), status);
    CHECK_TEXT(weft_error_text(), word);
    CHECK(!average);
}

/* With one member of the settings changed. */
#define REFUSE_WITH(member, value, status, word)                                                   \
    do {                                                                                           \
        struct compressed_settings wrong_;                                                         \
        compressed_set(&wrong_, &compressed_methods[method], WEFT_F32, data, 0);                   \
        wrong_.member = (value);                                                                   \
        refuse(alone.context, &wrong_.config, status, word);                                       \
    } while (0)

Test(compressed_misuse, wrong_settings_are_named)
{
    static float data[COMPRESSED_ELEMENTS];
    struct alone alone = alone_create(WEFT_PROGRESS_CALLER);
    struct weft_compressed_average *average = NULL;
    struct compressed_settings settings;
    int method = QSGD_METHOD;
    compressed_set(&settings, &compressed_methods[method], WEFT_F32, data, 0);
    CHECK_STATUS(weft_compressed_average_create(NULL, alone.context, &settings.config),
                 WEFT_ERR_INVALID);
    CHECK_STATUS(weft_compressed_average_create(&average, NULL, &settings.config),
                 WEFT_ERR_INVALID);
    CHECK_STATUS(weft_compressed_average_create(&average, alone.context, NULL), WEFT_ERR_INVALID);
    REFUSE_WITH(config.struct_size, 8, WEFT_ERR_INVALID, "struct_size is 8");
    REFUSE_WITH(config.dtype, WEFT_F64, WEFT_ERR_UNSUPPORTED, "dtype is f64");
    REFUSE_WITH(config.dtype, (weft_dtype_t)99, WEFT_ERR_INVALID, "dtype");
    REFUSE_WITH(config.method, (weft_compressed_method_t)9, WEFT_ERR_INVALID, "method is 9");
    REFUSE_WITH(config.residual, (weft_compressed_residual_t)3, WEFT_ERR_INVALID, "residual is 3");
    REFUSE_WITH(config.qsgd_way, (weft_qsgd_way_t)2, WEFT_ERR_INVALID, "qsgd_way is 2");
    REFUSE_WITH(config.nan, (weft_nan_policy_t)7, WEFT_ERR_INVALID, "nan is 7");
    REFUSE_WITH(config.sum, 2, WEFT_ERR_INVALID, "sum is 2");
    REFUSE_WITH(config.tensors, NULL, WEFT_ERR_INVALID, "tensors is NULL");
    REFUSE_WITH(config.deadline_ns, WEFT_NS_NONE, WEFT_ERR_INVALID, "deadline_ns");
    REFUSE_WITH(config.meet_ns, WEFT_NS_NONE, WEFT_ERR_INVALID, "meet_ns");
    REFUSE_WITH(config.leave_ns, WEFT_NS_NONE, WEFT_ERR_INVALID, "leave_ns");
    REFUSE_WITH(tensors[1].data, NULL, WEFT_ERR_INVALID, "tensors[1].data is NULL");
    REFUSE_WITH(tensors[3].data, (char *)data + 2, WEFT_ERR_INVALID, "tensors[3].data");
    REFUSE_WITH(quantiser.struct_size, 1, WEFT_ERR_INVALID, "config->quantiser");
    REFUSE_WITH(quantiser.bits, 3, WEFT_ERR_INVALID, "config->quantiser->bits is 3");
    REFUSE_WITH(quantiser.bucket, 12, WEFT_ERR_INVALID, "config->quantiser->bucket is 12");
    REFUSE_WITH(quantiser.norm, (weft_quantise_norm_t)5, WEFT_ERR_INVALID,
                "config->quantiser->norm is 5");
    REFUSE_WITH(quantiser.nan, WEFT_NAN_ZERO, WEFT_ERR_INVALID, "config->quantiser->nan is 1");
    method = POWERSGD_METHOD;
    REFUSE_WITH(powersgd.struct_size, 1, WEFT_ERR_INVALID, "config->powersgd");
    REFUSE_WITH(powersgd.cold_start, 2, WEFT_ERR_INVALID, "config->powersgd->cold_start is 2");
    REFUSE_WITH(powersgd.least_ratio, -1, WEFT_ERR_INVALID, "config->powersgd->least_ratio is -1");
    REFUSE_WITH(powersgd.least_ratio, NAN, WEFT_ERR_INVALID, "config->powersgd->least_ratio");
    alone_destroy(&alone);
}

/* As many columns as no operation makes orthonormal. */
Test(compressed_misuse, too_large_a_rank_is_named)
{
    enum { SIDE = 1025 };
    float *data = calloc((size_t)SIDE * SIDE, sizeof *data);
    struct alone alone = alone_create(WEFT_PROGRESS_CALLER);
    const struct weft_piece tensor = {data, (size_t)SIDE * SIDE};
    const struct weft_tensor_shape shape = {WEFT_TENSOR_DENSE, SIDE, SIDE, 0, 0};
    struct weft_compressed_average_config config;
    struct weft_powersgd_config powersgd;
    weft_compressed_average_config_init(&config);
    weft_powersgd_config_init(&powersgd);
    config.tensors = &tensor;
    config.tensor_count = 1;
    config.shapes = &shape;
    config.method = WEFT_COMPRESSED_POWERSGD;
    config.powersgd = &powersgd;
    powersgd.rank = 3000;
    powersgd.least_ratio = 1e-9;
    refuse(
        alone.context, &config, WEFT_ERR_INVALID,
        "weft_compressed_average_create: config->powersgd->rank is 3000, of which tensor 0 takes "
        "1025, expected at most 1024");
    alone_destroy(&alone);
    free(data);
}

Test(compressed_misuse, wrong_shapes_are_named)
{
    static float data[COMPRESSED_ELEMENTS];
    static const struct {
        int tensor;
        struct weft_tensor_shape shape;
        const char *word;
    } wrong[] = {
        {0, {(weft_tensor_layout_t)9, 15, 7, 0, 0}, "shapes[0].layout is 9"},
        {0, {WEFT_TENSOR_DENSE, 15, 8, 0, 0}, "shapes[0] is 15 outputs, 8 inputs"},
        {0, {WEFT_TENSOR_DENSE, 15, 7, 1, 0}, "shapes[0] has height 1"},
        {1, {WEFT_TENSOR_VECTOR, 14, 0, 0, 0}, "shapes[1].outputs is 14"},
        {1, {WEFT_TENSOR_VECTOR, 15, 1, 0, 0}, "shapes[1].inputs is 1"},
        {3, {WEFT_TENSOR_OIHW, 6, 2, 3, 0}, "shapes[3] is 6 outputs"},
        {3, {WEFT_TENSOR_OHWI, 0, 2, 3, 3}, "shapes[3] is 0 outputs"},
        {5, {WEFT_TENSOR_HWIO, SIZE_MAX / 2, 3, 10, 10}, "shapes[5] is"},
    };
    struct alone alone = alone_create(WEFT_PROGRESS_CALLER);
    for (size_t w = 0; w < sizeof wrong / sizeof *wrong; w++) {
        struct compressed_settings settings;
        struct weft_tensor_shape shapes[COMPRESSED_TENSORS];
        compressed_set(&settings, &compressed_methods[QSGD_METHOD], WEFT_F32, data, 0);
        memcpy(shapes, compressed_shapes, sizeof shapes);
        shapes[wrong[w].tensor] = wrong[w].shape;
        settings.config.shapes = shapes;
        refuse(alone.context, &settings.config, WEFT_ERR_INVALID, wrong[w].word);
    }
    alone_destroy(&alone);
}

Test(compressed_misuse, wrong_calls_are_named)
{
    static float data[COMPRESSED_ELEMENTS];
    struct alone alone = alone_create(WEFT_PROGRESS_CALLER);
    struct weft_compressed_average *average = NULL;
    struct compressed_settings settings;
    struct weft_gradiveq_tensor info = {.struct_size = sizeof info};
    struct weft_compressed_average_result result = {.struct_size = 1};
    compressed_set(&settings, &compressed_methods[QSGD_METHOD], WEFT_F32, data, 0);
    OK(weft_compressed_average_create(&average, alone.context, &settings.config));
    CHECK_STATUS(weft_compressed_average_wait(average, NULL), WEFT_ERR_STATE);
    CHECK_TEXT(weft_error_text(), "no step has been posted");
    CHECK_STATUS(weft_compressed_average_step(average, &result), WEFT_ERR_INVALID);
    OK(weft_compressed_average_post(average));
    CHECK_STATUS(weft_compressed_average_post(average), WEFT_ERR_STATE);
    CHECK_STATUS(weft_compressed_average_step(average, NULL), WEFT_ERR_STATE);
    CHECK_TEXT(weft_error_text(), "step 0 has been posted");
    OK(weft_compressed_average_wait(average, NULL));
    CHECK_STATUS(weft_compressed_average_get_tensor(average, COMPRESSED_TENSORS, &info),
                 WEFT_ERR_INVALID);
    CHECK_TEXT(weft_error_text(), "tensor is 6");
    OK(weft_compressed_average_get_tensor(average, 0, &info));
    CHECK(info.slice == 0 && info.components == 0 && info.loss == 0);
    CHECK_STATUS(weft_compressed_average_get_stats(average, NULL), WEFT_ERR_INVALID);
    CHECK_STATUS(weft_compressed_average_residual_norm(average, NULL), WEFT_ERR_INVALID);
    CHECK_STATUS(weft_compressed_average_get_state(average, NULL), WEFT_ERR_INVALID);
    CHECK_STATUS(weft_compressed_average_step(NULL, NULL), WEFT_ERR_INVALID);
    CHECK_STATUS(weft_compressed_average_post(NULL), WEFT_ERR_INVALID);
    CHECK_STATUS(weft_compressed_average_wait(NULL, NULL), WEFT_ERR_INVALID);
    CHECK_STATUS(weft_compressed_average_fail(NULL, WEFT_ERR_COMPUTE, NULL), WEFT_ERR_INVALID);
    CHECK(weft_compressed_average_next(NULL) == 0);
    CHECK(weft_compressed_average_phase(NULL) == WEFT_COMPRESSED_WARMUP);
    CHECK(!strcmp(weft_compressed_phase_name(WEFT_COMPRESSED_SAMPLING), "sampling"));
    CHECK(!weft_compressed_phase_name((weft_compressed_phase_t)3));
    OK(weft_compressed_average_destroy(average));
    OK(weft_compressed_average_destroy(NULL));
    alone_destroy(&alone);
}

/* What PowerSGD says of tensors: a row is a slice, and its factors' rank is the components. */
Test(compressed_misuse, factors_are_told)
{
    static float data[COMPRESSED_ELEMENTS];
    static const struct weft_gradiveq_tensor expected[COMPRESSED_TENSORS] = {
        {.slice = 7, .slices = 15, .reuse = 15, .components = 2, .loss = -1},
        {.loss = 0},
        {.loss = 0},
        {.slice = 18, .slices = 6, .reuse = 6, .components = 2, .loss = -1},
        {.loss = 0},
        {.slice = 4, .slices = 300, .reuse = 300, .components = 2, .loss = -1},
    };
    struct alone alone = alone_create(WEFT_PROGRESS_CALLER);
    struct weft_compressed_average *average = NULL;
    struct compressed_settings settings;
    compressed_set(&settings, &compressed_methods[POWERSGD_METHOD], WEFT_F32, data, 0);
    OK(weft_compressed_average_create(&average, alone.context, &settings.config));
    for (size_t t = 0; t < COMPRESSED_TENSORS; t++) {
        struct weft_gradiveq_tensor info = {.struct_size = sizeof info};
        OK(weft_compressed_average_get_tensor(average, t, &info));
        CHECK(info.slice == expected[t].slice && info.slices == expected[t].slices);
        CHECK(info.reuse == expected[t].reuse && info.components == expected[t].components);
        CHECK(info.loss == expected[t].loss);
    }
    OK(weft_compressed_average_destroy(average));
    alone_destroy(&alone);
}

/* ---- states ---- */

Test(compressed_misuse, states_of_something_else_are_refused)
{
    static float data[COMPRESSED_ELEMENTS];
    struct alone alone = alone_create(WEFT_PROGRESS_CALLER);
    struct weft_compressed_average *average = NULL;
    struct compressed_settings settings, others;
    struct weft_compressed_average_state state = {.struct_size = sizeof state}, wrong;
    struct weft_compressed_average_state again = {.struct_size = sizeof again};
    struct weft_tensor_shape shapes[COMPRESSED_TENSORS];
    uint64_t words[64];
    compressed_set(&settings, &compressed_methods[POWERSGD_METHOD], WEFT_F32, data, 0);
    OK(weft_compressed_average_create(&average, alone.context, &settings.config));
    OK(weft_compressed_average_step(average, NULL));
    OK(weft_compressed_average_get_state(average, &state));
    CHECK(state.next == 1 && state.word_count <= 64 && state.number_count && state.residual);
    OK(weft_compressed_average_get_state(average, &again)); /* what it has given stays */
    CHECK(again.words == state.words && again.numbers == state.numbers);
    others = settings;
    others.config.state = &state;
    compressed_set(&others, &compressed_methods[QSGD_METHOD], WEFT_F32, data, 0);
    others.config.state = &state;
    refuse(alone.context, &others.config, WEFT_ERR_INVALID, "config->state is of method 2");
    compressed_set(&others, &compressed_methods[POWERSGD_METHOD], WEFT_F32, data, 0);
    others.config.state = &state;
    others.config.tensor_count--;
    refuse(alone.context, &others.config, WEFT_ERR_INVALID, "of other tensors");
    others.config.tensor_count++;
    memcpy(shapes, compressed_shapes, sizeof shapes);
    shapes[3].layout = WEFT_TENSOR_HWIO;
    others.config.shapes = shapes;
    refuse(alone.context, &others.config, WEFT_ERR_INVALID, "of other shapes");
    others.config.shapes = compressed_shapes;
    others.powersgd.rank = 3;
    refuse(alone.context, &others.config, WEFT_ERR_INVALID, "config->state is of rank 2");
    others.powersgd.rank = 2;
    others.config.residual = WEFT_COMPRESSED_RESIDUAL_NONE;
    refuse(alone.context, &others.config, WEFT_ERR_INVALID, "config->state->residual");
    others.config.residual = WEFT_COMPRESSED_RESIDUAL_DEFAULT;
    others.config.state = &wrong;
    wrong = state;
    wrong.number_count--;
    refuse(alone.context, &others.config, WEFT_ERR_INVALID, "config->state->number_count");
    wrong = state;
    wrong.words = NULL;
    refuse(alone.context, &others.config, WEFT_ERR_INVALID, "config->state->words is NULL");
    wrong = state;
    wrong.numbers = NULL;
    refuse(alone.context, &others.config, WEFT_ERR_INVALID, "config->state->numbers is NULL");
    wrong = state;
    data[7] = NAN;
    wrong.residual = data;
    refuse(alone.context, &others.config, WEFT_ERR_INVALID, "config->state->residual[7] is nan");
    wrong = state;
    wrong.failed = 1;
    wrong.unsent = data;
    refuse(alone.context, &others.config, WEFT_ERR_INVALID, "config->state->unsent[7] is nan");
    data[7] = 0;
    wrong = state;
    wrong.unsent = data;
    refuse(alone.context, &others.config, WEFT_ERR_INVALID, "config->state->unsent");
    wrong = state;
    wrong.struct_size = 1;
    refuse(alone.context, &others.config, WEFT_ERR_INVALID, "config->state");
    wrong = state;
    for (size_t i = 0; i < state.word_count; i++) { /* whatever is in it */
        memcpy(words, state.words, state.word_count * sizeof *words);
        wrong.words = words;
        words[i] = UINT64_MAX;
        refuse(alone.context, &others.config, WEFT_ERR_INVALID, "config->state");
    }
    for (size_t count = 0; count < state.word_count; count++) {
        wrong.word_count = count;
        wrong.words = state.words;
        refuse(alone.context, &others.config, WEFT_ERR_INVALID, "config->state");
    }
    OK(weft_compressed_average_destroy(average));
    alone_destroy(&alone);
}

/* ---- ranks that disagree ---- */

struct dispute {
    struct weft_context *context;
    int rank, method;
};

/* Rank 1 has another value. */
#define DISAGREE(member, value, word)                                                              \
    do {                                                                                           \
        struct compressed_settings wrong_;                                                         \
        compressed_set(&wrong_, &compressed_methods[method], WEFT_F32, data, 0);                   \
        if (rank == 1)                                                                             \
            wrong_.member = (value);                                                               \
        refuse(context, &wrong_.config, WEFT_ERR_INVALID, word);                                   \
    } while (0)

static void disagree(struct ranks *ranks, struct weft_context *context, int rank)
{
    float *data = calloc(COMPRESSED_ELEMENTS, sizeof *data);
    struct weft_tensor_shape shapes[COMPRESSED_TENSORS];
    struct weft_compressed_average_state state = {.struct_size = sizeof state, .next = 2};
    int method = QSGD_METHOD;
    CHECK(data);
    (void)ranks;
    memcpy(shapes, compressed_shapes, sizeof shapes);
    shapes[3] = (struct weft_tensor_shape){WEFT_TENSOR_OIHW, 2, 6, 3, 3};
    DISAGREE(config.tensor_count, 5, "the number of elements: rank 0 has 1429, rank 1 has 229");
    DISAGREE(config.dtype, WEFT_F16, "config->dtype: rank 0 has f32, rank 1 has f16");
    DISAGREE(config.sum, 1, "config->sum: rank 0 has 0, rank 1 has 1");
    DISAGREE(config.residual, WEFT_COMPRESSED_RESIDUAL_NONE,
             "config->residual: rank 0 has kept, rank 1 has none");
    DISAGREE(config.nan, WEFT_NAN_ZERO, "config->nan: rank 0 has error, rank 1 has zero");
    DISAGREE(config.shapes, NULL, "the layouts of config->shapes");
    DISAGREE(config.shapes, shapes,
             "the shapes' outputs: rank 0 has 15, 15, 0, 6, 1, 4, rank 1 has 15, 15, 0, 2, 1, 4");
    DISAGREE(config.state, &state, "the next step: rank 0 has 0, rank 1 has 2");
    DISAGREE(config.qsgd_way, WEFT_QSGD_RING,
             "config->qsgd_way: rank 0 has shards, rank 1 has ring");
    DISAGREE(quantiser.bits, 8, "config->quantiser->bits: rank 0 has 2, rank 1 has 8");
    DISAGREE(quantiser.bucket, 128, "config->quantiser->bucket: rank 0 has 64, rank 1 has 128");
    DISAGREE(quantiser.norm, WEFT_QUANTISE_L2,
             "config->quantiser->norm: rank 0 has max, rank 1 has l2");
    DISAGREE(quantiser.seed, 7, "config->quantiser->seed: rank 0 has 0, rank 1 has 7");
    method = POWERSGD_METHOD;
    DISAGREE(config.method, WEFT_COMPRESSED_QSGD,
             "config->method: rank 0 has powersgd, rank 1 has qsgd");
    DISAGREE(powersgd.rank, 4, "config->powersgd->rank: rank 0 has 2, rank 1 has 4");
    DISAGREE(powersgd.warmup_steps, 9,
             "config->powersgd->warmup_steps: rank 0 has 0, rank 1 has 9");
    DISAGREE(powersgd.cold_start, 1, "config->powersgd->cold_start: rank 0 has 0, rank 1 has 1");
    DISAGREE(powersgd.seed, 3, "config->powersgd->seed: rank 0 has 0, rank 1 has 3");
    DISAGREE(powersgd.least_ratio, 0.5,
             "config->powersgd->least_ratio: rank 0 has 1, rank 1 has 0.5");
    /* Each rank's own. */
    struct compressed_settings settings;
    struct weft_compressed_average *average = NULL;
    compressed_set(&settings, &compressed_methods[method], WEFT_F32, data, (size_t)rank * 0);
    settings.config.deadline_ns = rank ? 0 : UINT64_MAX;
    settings.config.leave_ns = rank ? 0 : 5000000000;
    settings.quantiser.bits = rank ? 4 : 8; /* which this method has not */
    OK(weft_compressed_average_create(&average, context, &settings.config));
    OK(weft_compressed_average_step(average, NULL));
    OK(weft_compressed_average_destroy(average));
    free(data);
}

Test(compressed_misuse, ranks_that_disagree_are_told)
{
    ranks_run_once(disagree, 3, NULL);
}

/* States of which all ranks should have the same part. */
static void disagree_about_states(struct ranks *ranks, struct weft_context *context, int rank)
{
    float *data = calloc(COMPRESSED_ELEMENTS, sizeof *data);
    struct compressed_settings settings;
    struct weft_compressed_average *average = NULL;
    struct weft_compressed_average_state state = {.struct_size = sizeof state};
    CHECK(data);
    (void)ranks;
    compressed_set(&settings, &compressed_methods[POWERSGD_METHOD], WEFT_F32, data, 0);
    OK(weft_compressed_average_create(&average, context, &settings.config));
    OK(weft_compressed_average_step(average, NULL));
    OK(weft_compressed_average_get_state(average, &state));
    float *numbers = calloc(state.number_count, sizeof *numbers);
    CHECK(numbers);
    memcpy(numbers, state.numbers, state.number_count * sizeof *numbers);
    if (rank == 1)
        numbers[3] += 1;
    state.numbers = numbers;
    settings.config.state = &state;
    refuse(context, &settings.config, WEFT_ERR_INVALID, "config->state->words and numbers");
    free(numbers);
    OK(weft_compressed_average_destroy(average));
    free(data);
}

Test(compressed_misuse, states_that_differ_between_ranks_are_refused)
{
    ranks_run_once(disagree_about_states, 3, NULL);
}

/* A rank that is refused comes to the comparison all the same: nobody waits for it, and what is
 * made next goes well. */
static void refused_alone(struct ranks *ranks, struct weft_context *context, int rank)
{
    float *data = calloc(COMPRESSED_ELEMENTS, sizeof *data);
    struct compressed_settings settings;
    struct weft_compressed_average *average = NULL;
    const int here = rank == ranks->size - 1;
    CHECK(data);
    for (int fault = 0; fault < 4; fault++) {
        compressed_set(&settings, &compressed_methods[POWERSGD_METHOD], WEFT_F32, data, 0);
        if (here && fault == 0)
            settings.powersgd.least_ratio = NAN;
        if (here && fault == 1)
            settings.config.dtype = WEFT_I8;
        if (here && fault == 2)
            settings.config.struct_size = 1;
        int status = weft_compressed_average_create(&average, context,
                                                    here && fault == 3 ? NULL : &settings.config);
        CHECK(!average);
        CHECK((status == WEFT_ERR_PEER) == !here && status != WEFT_OK);
        CHECK_TEXT(weft_error_text(), here ? "config" : "has failed: ");
    }
    compressed_set(&settings, &compressed_methods[POWERSGD_METHOD], WEFT_F32, data, 0);
    OK(weft_compressed_average_create(&average, context, &settings.config));
    OK(weft_compressed_average_step(average, NULL));
    OK(weft_compressed_average_destroy(average));
    free(data);
}

Test(compressed_misuse, who_is_refused_alone_is_not_waited_for)
{
    for (int size = 2; size <= 5; size++)
        ranks_run_once(refused_alone, size, NULL);
}
