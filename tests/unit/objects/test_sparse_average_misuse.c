/* SPDX-License-Identifier: BSD-3-Clause */
/* Sparse averaging: settings and calls that are refused, and ranks that disagree. */
#include <criterion/criterion.h>
#include <math.h>

#include "sparse_config.h"
#include "support/ranks.h"

/* Expects a configuration to be refused, with a text that has the word. */
static void refuse(struct weft_context *context, const struct weft_sparse_average_config *config,
                   int status, const char *word)
{
    struct weft_sparse_average *average = NULL;
    CHECK_STATUS(weft_sparse_average_create(&average, context, config), status);
    CHECK_TEXT(weft_error_text(), word);
    CHECK(!average);
}

#define REFUSE_WITH(field, value, status, word)                                                    \
    do {                                                                                           \
        struct weft_sparse_average_config wrong_ = config_of(tensors, 2);                          \
        wrong_.field = (value);                                                                    \
        refuse(alone.context, &wrong_, status, word);                                              \
    } while (0)

Test(sparse_average_misuse, wrong_settings_are_named)
{
    struct alone alone = alone_create(WEFT_PROGRESS_CALLER);
    float data[4] = {1, 2, 3, 4};
    static const double wrong[] = {0.1, 1.5};
    struct weft_piece tensors[] = {{data, 3}, {data + 3, 1}};
    struct weft_piece missing[] = {{data, 3}, {NULL, 1}};
    struct weft_sparse_average_state state = {.struct_size = sizeof state, .velocity = data};
    struct weft_sparse_average_config config = config_of(tensors, 2);
    struct weft_sparse_average *average = NULL;
    CHECK_STATUS(weft_sparse_average_create(NULL, alone.context, &config), WEFT_ERR_INVALID);
    CHECK_STATUS(weft_sparse_average_create(&average, NULL, &config), WEFT_ERR_INVALID);
    CHECK_STATUS(weft_sparse_average_create(&average, alone.context, NULL), WEFT_ERR_INVALID);
    REFUSE_WITH(struct_size, 8, WEFT_ERR_INVALID, "struct_size is 8");
    REFUSE_WITH(dtype, WEFT_F64, WEFT_ERR_UNSUPPORTED, "dtype is f64");
    REFUSE_WITH(dtype, (weft_dtype_t)99, WEFT_ERR_INVALID, "dtype");
    REFUSE_WITH(method, (weft_sparse_method_t)9, WEFT_ERR_INVALID, "method is 9");
    REFUSE_WITH(scope, (weft_sparse_scope_t)-1, WEFT_ERR_INVALID, "scope is -1");
    REFUSE_WITH(residual, (weft_sparse_residual_t)2, WEFT_ERR_INVALID, "residual is 2");
    REFUSE_WITH(nan, (weft_nan_policy_t)7, WEFT_ERR_INVALID, "nan is 7");
    REFUSE_WITH(threads, -1, WEFT_ERR_INVALID, "threads is -1");
    REFUSE_WITH(density, -0.1, WEFT_ERR_INVALID, "density is -0.1");
    REFUSE_WITH(density, 1.01, WEFT_ERR_INVALID, "density is 1.01");
    REFUSE_WITH(density, NAN, WEFT_ERR_INVALID, "density");
    REFUSE_WITH(momentum, 1, WEFT_ERR_INVALID, "momentum is 1");
    REFUSE_WITH(momentum, NAN, WEFT_ERR_INVALID, "momentum");
    REFUSE_WITH(clip_norm, -1, WEFT_ERR_INVALID, "clip_norm is -1");
    REFUSE_WITH(clip_norm, INFINITY, WEFT_ERR_INVALID, "clip_norm");
    REFUSE_WITH(warmup_count, 2, WEFT_ERR_INVALID, "warmup is NULL");
    REFUSE_WITH(tensors, NULL, WEFT_ERR_INVALID, "tensors is NULL");
    REFUSE_WITH(tensors, missing, WEFT_ERR_INVALID, "tensors[1]");
    REFUSE_WITH(state, &state, WEFT_ERR_INVALID, "velocity");
    state.struct_size = 1;
    REFUSE_WITH(state, &state, WEFT_ERR_INVALID, "state->struct_size is 1");
    config.method = WEFT_SPARSE_OKTOPK;
    config.residual = WEFT_SPARSE_PAPER;
    refuse(alone.context, &config, WEFT_ERR_UNSUPPORTED, "WEFT_SPARSE_PAPER");
    config.residual = WEFT_SPARSE_CONSERVING;
    state = (struct weft_sparse_average_state){
        .struct_size = sizeof state, .regions = (uint64_t[]){0, 0}, .region_count = 2};
    config.state = &state; /* of other ranks */
    refuse(alone.context, &config, WEFT_ERR_INVALID, "region_count is 2");
    state.regions = (uint64_t[]){0, 1, 4};
    state.region_count = 3;
    refuse(alone.context, &config, WEFT_ERR_INVALID, "bounds");
    state.regions = (uint64_t[]){0x7fc00000, 0, 4};
    refuse(alone.context, &config, WEFT_ERR_INVALID, "threshold");
    config.state = NULL;
    config.warmup = wrong;
    config.warmup_count = 2;
    refuse(alone.context, &config, WEFT_ERR_INVALID, "warmup[1] is 1.5");
    alone_destroy(&alone);
}

Test(sparse_average_misuse, more_elements_than_indices_are_refused)
{
    struct alone alone = alone_create(WEFT_PROGRESS_CALLER);
    struct weft_piece tensor = {&alone, ((size_t)1 << 32) + 1};
    struct weft_sparse_average_config config = config_of(&tensor, 1);
    refuse(alone.context, &config, WEFT_ERR_UNSUPPORTED, "2^32");
    alone_destroy(&alone);
}

Test(sparse_average_misuse, wrong_calls_are_named)
{
    struct alone alone = alone_create(WEFT_PROGRESS_CALLER);
    float data[4] = {1, 2, 3, 4};
    struct weft_piece tensors[] = {{data, 3}, {data + 3, 1}};
    struct weft_sparse_average_config config = config_of(tensors, 2);
    struct weft_sparse_average *average = NULL;
    struct weft_sparse pairs;
    config.density = 1;
    OK(weft_sparse_average_create(&average, alone.context, &config));
    CHECK_STATUS(weft_sparse_average_wait(average, NULL), WEFT_ERR_STATE);
    CHECK_STATUS(weft_sparse_average_apply(average, 1, WEFT_F32, tensors, 2), WEFT_ERR_STATE);
    CHECK_STATUS(weft_sparse_average_get_pairs(average, 0, &pairs), WEFT_ERR_STATE);
    OK(weft_sparse_average_post(average));
    CHECK_STATUS(weft_sparse_average_apply(average, 1, WEFT_F32, tensors, 2), WEFT_ERR_STATE);
    CHECK_STATUS(weft_sparse_average_get_pairs(average, 0, &pairs), WEFT_ERR_STATE);
    OK(weft_sparse_average_wait(average, NULL));
    CHECK_STATUS(weft_sparse_average_get_pairs(average, 1, &pairs), WEFT_ERR_INVALID);
    CHECK_STATUS(weft_sparse_average_get_pairs(average, 0, NULL), WEFT_ERR_INVALID);
    CHECK_STATUS(weft_sparse_average_apply(average, 1, WEFT_I32, tensors, 2), WEFT_ERR_UNSUPPORTED);
    CHECK_TEXT(weft_error_text(), "i32");
    CHECK_STATUS(weft_sparse_average_apply(average, NAN, WEFT_F32, tensors, 2), WEFT_ERR_INVALID);
    CHECK_STATUS(weft_sparse_average_apply(average, 1, WEFT_F32, tensors, 1), WEFT_ERR_INVALID);
    CHECK_TEXT(weft_error_text(), "tensor_count is 1");
    CHECK_STATUS(weft_sparse_average_apply(average, 1, WEFT_F32, NULL, 2), WEFT_ERR_INVALID);
    tensors[1].count = 2;
    CHECK_STATUS(weft_sparse_average_apply(average, 1, WEFT_F32, tensors, 2), WEFT_ERR_INVALID);
    CHECK_TEXT(weft_error_text(), "tensors[1].count is 2");
    tensors[1] = (struct weft_piece){NULL, 1};
    CHECK_STATUS(weft_sparse_average_apply(average, 1, WEFT_F32, tensors, 2), WEFT_ERR_INVALID);
    CHECK(data[0] == 1 && data[3] == 4);
    CHECK_STATUS(weft_sparse_average_post_tensor(average, 0), WEFT_ERR_INVALID);
    CHECK_TEXT(weft_error_text(), "scope");
    CHECK_STATUS(weft_sparse_average_wait_tensor(average, 0, NULL), WEFT_ERR_INVALID);
    CHECK_STATUS(weft_sparse_average_apply_tensor(average, 0, 1, WEFT_F32, data), WEFT_ERR_INVALID);
    CHECK_STATUS(weft_sparse_average_step(NULL, NULL), WEFT_ERR_INVALID);
    CHECK_STATUS(weft_sparse_average_post(NULL), WEFT_ERR_INVALID);
    CHECK_STATUS(weft_sparse_average_wait(NULL, NULL), WEFT_ERR_INVALID);
    CHECK_STATUS(weft_sparse_average_post_tensor(NULL, 0), WEFT_ERR_INVALID);
    CHECK_STATUS(weft_sparse_average_get_stats(average, NULL), WEFT_ERR_INVALID);
    CHECK_STATUS(weft_sparse_average_residual_norm(average, NULL), WEFT_ERR_INVALID);
    CHECK_STATUS(weft_sparse_average_get_state(average, NULL), WEFT_ERR_INVALID);
    CHECK(weft_sparse_average_next(NULL) == 0);
    weft_sparse_average_destroy(average);
    weft_sparse_average_destroy(NULL);
    tensors[1] = (struct weft_piece){data + 3, 1};
    config.scope = WEFT_SPARSE_TENSOR;
    OK(weft_sparse_average_create(&average, alone.context, &config));
    CHECK_STATUS(weft_sparse_average_post_tensor(average, 2), WEFT_ERR_INVALID);
    CHECK_TEXT(weft_error_text(), "tensor is 2");
    OK(weft_sparse_average_step(average, NULL));
    CHECK_STATUS(weft_sparse_average_apply_tensor(average, 0, 1, WEFT_F32, NULL), WEFT_ERR_INVALID);
    weft_sparse_average_destroy(average);
    alone_destroy(&alone);
}

Test(sparse_average_misuse, tensors_are_aligned)
{
    static const weft_dtype_t dtypes[] = {WEFT_F16, WEFT_BF16, WEFT_F32, WEFT_F64};
    struct alone alone = alone_create(WEFT_PROGRESS_CALLER);
    double data[4] = {0}, model[4] = {0};
    struct weft_piece tensors[] = {{data, 1}, {NULL, 1}};
    struct weft_sparse_average *average = NULL;
    struct weft_sparse_average_config config = config_of(tensors, 2);
    config.scope = WEFT_SPARSE_TENSOR;
    for (int d = 0; d < 4; d++) {
        char *data_off = (char *)(data + 1) + weft_dtype_size(dtypes[d]) / 2;
        char *model_off = (char *)(model + 1) + weft_dtype_size(dtypes[d]) / 2;
        if (dtypes[d] != WEFT_F64) {
            config.dtype = dtypes[d];
            tensors[1].data = data_off;
            refuse(alone.context, &config, WEFT_ERR_INVALID, "tensors[1].data");
            tensors[1].data = data_off + weft_dtype_size(dtypes[d]) / 2;
        }
        OK(weft_sparse_average_create(&average, alone.context, &config));
        OK(weft_sparse_average_step(average, NULL));
        struct weft_piece models[] = {{model, 1}, {model_off, 1}};
        CHECK_STATUS(weft_sparse_average_apply(average, 1, dtypes[d], models, 2), WEFT_ERR_INVALID);
        CHECK_TEXT(weft_error_text(), "tensors[1].data");
        CHECK_STATUS(weft_sparse_average_apply_tensor(average, 0, 1, dtypes[d], model_off),
                     WEFT_ERR_INVALID);
        CHECK_TEXT(weft_error_text(), "data is");
        models[1].data = model + 1;
        OK(weft_sparse_average_apply(average, 1, dtypes[d], models, 2));
        weft_sparse_average_destroy(average);
    }
    alone_destroy(&alone);
}

static void disagree(struct ranks *ranks, struct weft_context *context, int rank)
{
    float data[4] = {0};
    struct weft_piece tensors[] = {{data, 1}, {data + 1, 2}, {data + 3, 1}};
    struct weft_piece others[] = {{data, 2}, {data + 2, 1}, {data + 3, 1}};
    struct weft_sparse_average *average = NULL;
    struct weft_sparse_average_state state = {.struct_size = sizeof state, .next = (uint64_t)rank};
    struct weft_sparse_average_config config = config_of(tensors, 3);
    (void)ranks;
    config.scope = WEFT_SPARSE_TENSOR;
    config.tensor_count = rank == 1 ? 2 : 3;
    refuse(context, &config, WEFT_ERR_INVALID,
           "the number of elements: rank 0 has 4, rank 1 has 3");
    config.tensor_count = 3;
    config.tensors = rank == 1 ? others : tensors;
    refuse(context, &config, WEFT_ERR_INVALID,
           "the tensors' counts: rank 0 has 1, 2, 1, rank 1 has 2, 1, 1");
    config.tensors = tensors;
    config.method = rank == 2 ? WEFT_SPARSE_ALLGATHER : WEFT_SPARSE_GTOPK;
    refuse(context, &config, WEFT_ERR_INVALID,
           "config->method: rank 0 has gtopk, rank 2 has allgather");
    config.method = WEFT_SPARSE_GTOPK;
    config.density = rank ? 0.001 : 0.002;
    refuse(context, &config, WEFT_ERR_INVALID, "config->density: rank 0 has 0.002");
    config.density = 0.001;
    config.momentum = rank ? 0.5 : 0;
    refuse(context, &config, WEFT_ERR_INVALID, "config->momentum: rank 0 has 0, rank 1 has 0.5");
    config.momentum = 0;
    config.clip_norm = rank ? 1 : 0;
    refuse(context, &config, WEFT_ERR_INVALID, "config->clip_norm");
    config.clip_norm = 0;
    config.method = WEFT_SPARSE_OKTOPK;
    config.threshold_steps = rank ? 8 : 4;
    refuse(context, &config, WEFT_ERR_INVALID,
           "config->threshold_steps: rank 0 has 4, rank 1 has 8");
    config.threshold_steps = 8;
    config.balance_steps = rank ? 8 : 4;
    refuse(context, &config, WEFT_ERR_INVALID, "config->balance_steps: rank 0 has 4, rank 1 has 8");
    config.method = WEFT_SPARSE_GTOPK; /* which has none */
    OK(weft_sparse_average_create(&average, context, &config));
    weft_sparse_average_destroy(average);
    config.balance_steps = 8;
    config.state = &state;
    refuse(context, &config, WEFT_ERR_INVALID, "the next step: rank 0 has 0, rank 2 has 2");
    config.state = NULL;
    config.deadline_ns = rank ? 0 : UINT64_MAX; /* each rank's own */
    config.threads = rank;
    OK(weft_sparse_average_create(&average, context, &config));
    OK(weft_sparse_average_step(average, NULL));
    weft_sparse_average_destroy(average);
}

Test(sparse_average_misuse, ranks_that_disagree_are_told)
{
    ranks_run_once(disagree, 3, NULL);
}

/* A rank that is refused comes to the comparison all the same: nobody waits for it, and what is
 * made next goes well. */
static void refused_alone(struct ranks *ranks, struct weft_context *context, int rank)
{
    struct weft_sparse_average *average = NULL;
    float data[4] = {1 + (float)rank, 0, 0, 0};
    struct weft_piece tensors[] = {{data, 2}, {data + 2, 2}};
    for (int fault = 0; fault < 4; fault++) {
        struct weft_sparse_average_config config = config_of(tensors, 2);
        int here = rank == ranks->size - 1;
        if (here && fault == 0)
            config.density = NAN;
        if (here && fault == 1)
            config.dtype = WEFT_I8;
        if (here && fault == 2)
            config.struct_size = 1;
        int status =
            weft_sparse_average_create(&average, context, here && fault == 3 ? NULL : &config);
        CHECK(!average);
        CHECK((status == WEFT_ERR_PEER) == !here && status != WEFT_OK);
        CHECK_TEXT(weft_error_text(), here ? "config" : "has failed: ");
    }
    struct weft_sparse_average_config config = config_of(tensors, 2);
    config.k = 1;
    OK(weft_sparse_average_create(&average, context, &config));
    OK(weft_sparse_average_step(average, NULL));
    CHECK(data[0] == (float)(ranks->size + 1) / 2);
    weft_sparse_average_destroy(average);
}

Test(sparse_average_misuse, who_is_refused_alone_is_not_waited_for)
{
    for (int size = 2; size <= 5; size++)
        ranks_run_once(refused_alone, size, NULL);
}
