/* SPDX-License-Identifier: BSD-3-Clause */
/* Sparse averaging: who is late, what is empty or infinite, what is out of memory. */
#include <criterion/criterion.h>
#include <float.h>
#include <math.h>

#include "runtime/base/alloc.h"
#include "sparse_config.h"
#include "support/ranks.h"

enum { METHODS = 4 };

/* On devices, whose kernels the host plays, few ranks. */
#ifdef WEFT_TEST_DEVICE
enum { FEW = 1 };
#else
enum { FEW = 0 };
#endif

/* ---- late ranks ---- */

static void late(struct ranks *ranks, struct weft_context *context, int rank)
{
    struct weft_sparse_average_config config;
    struct weft_sparse_average *average = NULL;
    struct weft_sparse_average_state state = {.struct_size = sizeof state};
    float data[2] = {1 + (float)rank, 0};
    struct weft_piece tensor = {data, 2};
    weft_sparse_average_config_init(&config);
    config.method = *(weft_sparse_method_t *)ranks->user;
    config.tensors = &tensor;
    config.tensor_count = 1;
    config.deadline_ns = rank == 0 ? 1000000 : 0;
    OK(weft_sparse_average_create(&average, context, &config));
    if (rank == 1)
        ranks_meet(ranks); /* until rank 0 has given up twice */
    if (rank == 0) {
        CHECK_STATUS(weft_sparse_average_step(average, NULL), WEFT_ERR_TIMEOUT);
        CHECK_TEXT(weft_error_text(), "step 0");
        CHECK_TEXT(weft_error_text(), "rank 1");
        CHECK_STATUS(weft_sparse_average_wait(average, NULL), WEFT_ERR_TIMEOUT);
        CHECK_STATUS(weft_sparse_average_step(average, NULL), WEFT_ERR_STATE);
        CHECK_STATUS(weft_sparse_average_post(average), WEFT_ERR_STATE);
        CHECK_STATUS(weft_sparse_average_get_state(average, &state), WEFT_ERR_STATE);
        CHECK(data[0] == 1);
        ranks_meet(ranks);
        int status;
        while ((status = weft_sparse_average_wait(average, NULL)) == WEFT_ERR_TIMEOUT) {
        }
        OK(status);
    } else {
        OK(weft_sparse_average_step(average, NULL));
    }
    CHECK(data[0] == 1.5f && data[1] == 0);
    weft_sparse_average_destroy(average);
}

Test(sparse_average_life, a_deadline_leaves_the_step_to_be_waited_for)
{
    for (int m = 0; m < METHODS; m++) {
        weft_sparse_method_t method = (weft_sparse_method_t)m;
        ranks_run_once(late, 2, &method);
    }
}

/* Tensors are waited for one by one: what a rank has not posted yet holds nobody else up. */
static void layers(struct ranks *ranks, struct weft_context *context, int rank)
{
    struct weft_sparse_average_config config;
    struct weft_sparse_average *average = NULL;
    float data[3] = {1, 2, 3}, model[3] = {0};
    struct weft_piece tensors[] = {{data, 1}, {data + 1, 1}, {data + 2, 1}};
    weft_sparse_average_config_init(&config);
    config.method = *(weft_sparse_method_t *)ranks->user;
    config.scope = WEFT_SPARSE_TENSOR;
    config.tensors = tensors;
    config.tensor_count = 3;
    config.deadline_ns = rank == 0 ? 1000000 : 0;
    OK(weft_sparse_average_create(&average, context, &config));
    for (uint64_t step = 0; step < 3; step++) {
        int status;
        OK(weft_sparse_average_post_tensor(average, 0));
        CHECK_STATUS(weft_sparse_average_post_tensor(average, 0), WEFT_ERR_STATE);
        while ((status = weft_sparse_average_wait_tensor(average, 0, NULL)) == WEFT_ERR_TIMEOUT) {
        }
        OK(status);
        OK(weft_sparse_average_apply_tensor(average, 0, 1, WEFT_F32, &model[0]));
        CHECK(weft_sparse_average_next(average) == step);
        CHECK_STATUS(weft_sparse_average_get_state(
                         average,
                         &(struct weft_sparse_average_state){
                             .struct_size = sizeof(struct weft_sparse_average_state)}),
                     WEFT_ERR_STATE); /* tensor 0 is ahead */
        if (rank == 0) {              /* the others meet first */
            OK(weft_sparse_average_post_tensor(average, 1));
            CHECK_STATUS(weft_sparse_average_wait_tensor(average, 1, NULL), WEFT_ERR_TIMEOUT);
            CHECK_STATUS(weft_sparse_average_step(average, NULL), WEFT_ERR_STATE);
        }
        ranks_meet(ranks);
        if (rank != 0)
            OK(weft_sparse_average_post_tensor(average, 1));
        OK(weft_sparse_average_post_tensor(average, 2));
        while ((status = weft_sparse_average_wait(average, NULL)) == WEFT_ERR_TIMEOUT) {
        }
        OK(status);
        OK(weft_sparse_average_apply_tensor(average, 1, -1, WEFT_F32, &model[1]));
        OK(weft_sparse_average_apply_tensor(average, 2, 0.5, WEFT_F32, &model[2]));
        CHECK(weft_sparse_average_next(average) == step + 1);
    }
    CHECK(model[0] == 3 && model[1] == -6 && model[2] == 4.5f);
    weft_sparse_average_destroy(average);
}

Test(sparse_average_life, a_tensor_waits_for_itself_alone)
{
    for (int m = 0; m < METHODS; m++) {
        weft_sparse_method_t method = (weft_sparse_method_t)m;
        ranks_run_helped(layers, 4, &method);
    }
}

static void leave(struct ranks *ranks, struct weft_context *context, int rank)
{
    struct weft_sparse_average_config config;
    struct weft_sparse_average *average = NULL;
    float data[2] = {1, 2};
    struct weft_piece tensor = {data, 2};
    double norm;
    weft_sparse_average_config_init(&config);
    config.tensors = &tensor;
    config.tensor_count = 1;
    config.leave_ns = 1000000;
    OK(weft_sparse_average_create(&average, context, &config));
    if (rank == 0) { /* the root, which waits for the other */
        OK(weft_sparse_average_post(average));
        CHECK_STATUS(weft_sparse_average_residual_norm(average, &norm), WEFT_ERR_STATE);
        /* The other does not come in time. */
        CHECK_STATUS(weft_sparse_average_destroy(average), WEFT_ERR_TIMEOUT);
        ranks_meet(ranks);
    } else {
        ranks_meet(ranks);
        CHECK_STATUS(weft_sparse_average_step(average, NULL), WEFT_ERR_PEER);
        CHECK_STATUS(weft_sparse_average_step(average, NULL), WEFT_ERR_PEER);
        CHECK_TEXT(weft_error_text(), "rank 0 has failed: ");
        CHECK_STATUS(weft_sparse_average_apply(average, 1, WEFT_F32, &tensor, 1), WEFT_ERR_PEER);
        struct weft_sparse_average_state state = {.struct_size = sizeof state};
        OK(weft_sparse_average_get_state(average, &state));
        CHECK(state.failed && state.next == 0);
        CHECK_TEXT(weft_error_text(), "rank 0 has failed: ");
        weft_sparse_average_destroy(average);
    }
}

Test(sparse_average_life, who_leaves_in_the_middle_of_a_step_fails_it)
{
    ranks_run_once(leave, 2, NULL);
}

/* Ranks end after as many steps as they like: a step that needs one that has ended fails. */
static void end_early(struct ranks *ranks, struct weft_context *context, int rank)
{
    const int steps = rank == ranks->size / 2 ? 2 : 4;
    struct weft_sparse_average_config config;
    struct weft_sparse_average *average = NULL;
    float data[] = {1, 2, 3};
    struct weft_piece tensor = {data, 3};
    int status = WEFT_OK, step = 0;
    weft_sparse_average_config_init(&config);
    config.method = *(weft_sparse_method_t *)ranks->user;
    config.tensors = &tensor;
    config.tensor_count = 1;
    config.k = 1;
    OK(weft_sparse_average_create(&average, context, &config));
    while (!status && step < steps) {
        status = weft_sparse_average_step(average, NULL);
        step += !status;
    }
    /* Others may hear of the failure before they have ended the step before. */
    CHECK(steps > 2 ? step <= 2 : step == 2);
    if (steps > 2) {
        char named[32];
        snprintf(named, sizeof named, "rank %d has left", ranks->size / 2);
        CHECK_STATUS(status, WEFT_ERR_PEER);
        CHECK_TEXT(weft_error_text(), named);
    }
    CHECK(!weft_sparse_average_destroy(average) == (steps == 2));
}

Test(sparse_average_life, a_step_that_needs_who_has_ended_fails)
{
    for (int m = 0; m < METHODS; m++) {
        weft_sparse_method_t method = (weft_sparse_method_t)m;
        for (int size = 2; size < (FEW ? 4 : 8); size++)
            ranks_run_once(end_early, size, &method);
    }
}

/* ---- infinities of both signs ---- */

/* Residuals overflow on two ranks, and their infinities meet in a merge. */
static void overflow(struct ranks *ranks, struct weft_context *context, int rank)
{
    struct weft_sparse_average_config config;
    struct weft_sparse_average *average = NULL;
    struct weft_sparse_average_stats stats = {.struct_size = sizeof stats};
    float data[4];
    struct weft_piece tensor = {data, 4};
    double sign = rank % 2 ? -1 : 1;
    weft_sparse_average_config_init(&config);
    config.method = *(weft_sparse_method_t *)ranks->user;
    config.k = 1;
    config.tensors = &tensor;
    config.tensor_count = 1;
    OK(weft_sparse_average_create(&average, context, &config));
    for (int step = 0; step < 5; step++) {
        data[0] = (float)(sign * 0.9 * (double)FLT_MAX);
        data[1] = (float)(sign * 0.8 * (double)FLT_MAX);
        data[2] = data[3] = 1;
        OK(weft_sparse_average_step(average, NULL));
        CHECK(!isnan(data[0]) && !isnan(data[1]));
    }
    OK(weft_sparse_average_get_stats(average, &stats));
    if (rank == 0)
        CHECK(ranks->size == 1 || stats.nans > 0);
    weft_sparse_average_destroy(average);
}

Test(sparse_average_life, infinities_of_both_signs_hang_nobody)
{
    for (int m = 0; m < WEFT_SPARSE_OKTOPK; m++)
        for (int size = 1; size <= 4; size++) {
            weft_sparse_method_t method = (weft_sparse_method_t)m;
            ranks_run_once(overflow, size, &method);
        }
}

enum { PLAIN, BF16, MOMENTUM, CLIPPED, IN_PIECES, PATHS };

/* An infinity that a merge drops meets one of the other sign in a residual. That element counts as
 * zero from then on, however gradients get into the residual. */
static void meet(struct ranks *ranks, struct weft_context *context, int rank)
{
    static const float residuals[2][4] = {{INFINITY, INFINITY}, {0, -INFINITY}};
    const int path = *(int *)ranks->user;
    struct weft_sparse_average_config config;
    struct weft_sparse_average_state state = {.struct_size = sizeof state,
                                              .residual = residuals[rank]};
    struct weft_sparse_average_stats stats = {.struct_size = sizeof stats};
    struct weft_sparse_average *average = NULL;
    uint16_t half[4];
    float data[5];
    double norm = NAN;
    struct weft_piece tensors[] = {{data, 4}, {data + 4, 0}};
    weft_sparse_average_config_init(&config);
    config.state = &state;
    config.k = 1;
    config.dtype = path == BF16 ? WEFT_BF16 : WEFT_F32;
    config.momentum = path == MOMENTUM ? 0.5 : 0;
    config.clip_norm = path == CLIPPED ? 0.125 : 0;
    config.tensors = tensors;
    config.tensor_count = 2;
    if (path == BF16)
        tensors[0].data = half;
    if (path == IN_PIECES) {
        tensors[0].count = 1;
        tensors[1] = (struct weft_piece){data + 2, 3};
    }
    OK(weft_sparse_average_create(&average, context, &config));
    for (int step = 0; step < 4; step++) {
        for (int i = 0; i < 5; i++)
            data[i] = 1;
        for (int i = 0; i < 4; i++)
            half[i] = 0x3f80;
        OK(weft_sparse_average_step(average, NULL));
    }
    OK(weft_sparse_average_residual_norm(average, &norm));
    CHECK(isfinite(norm));
    OK(weft_sparse_average_get_stats(average, &stats));
    CHECK(stats.nans == (rank == 0));
    weft_sparse_average_destroy(average);
}

Test(sparse_average_life, an_infinity_that_is_dropped_on_another_counts_as_zero)
{
    for (int path = 0; path < PATHS; path++)
        ranks_run_once(meet, 2, &path);
}

/* ---- small models, densities, datatypes ---- */

static void small(struct ranks *ranks, struct weft_context *context, int rank)
{
    struct weft_sparse_average_config config;
    struct weft_sparse_average *average = NULL;
    struct weft_sparse_average_result result = {.struct_size = sizeof result};
    struct weft_sparse pairs;
    float data[2];
    struct weft_piece tensors[] = {{NULL, 0}, {data, 1}, {NULL, 0}, {data + 1, 1}};
    const size_t tensor_counts[] = {0, 1, 2, 4}, elements[] = {0, 0, 1, 2};
    const size_t many = ranks->size > 1; /* on rank 0 alone the first element is a zero */
    const size_t expected[] = {0, 0, many, 1 + many};
    for (int c = 0; c < 4; c++)
        for (int scope = 0; scope < 2; scope++) {
            weft_sparse_average_config_init(&config);
            config.method = *(weft_sparse_method_t *)ranks->user;
            config.scope = (weft_sparse_scope_t)scope;
            config.tensors = tensor_counts[c] ? tensors : NULL;
            config.tensor_count = tensor_counts[c];
            config.density = 1;
            OK(weft_sparse_average_create(&average, context, &config));
            for (uint64_t step = 0; step < 3; step++) {
                data[0] = (float)rank;
                data[1] = -1;
                OK(weft_sparse_average_step(average, &result));
                CHECK(result.version == step && result.pairs == expected[c]);
                CHECK(result.k == elements[c] && weft_sparse_average_next(average) == step + 1);
                CHECK(c < 2 || data[0] == (float)(ranks->size - 1) / 2);
                CHECK(data[1] == -1);
            }
            OK(weft_sparse_average_post(average));
            OK(weft_sparse_average_wait(average, NULL));
            OK(weft_sparse_average_get_pairs(average, 0, &pairs));
            OK(weft_sparse_average_apply(average, 1, WEFT_F32, tensors, tensor_counts[c]));
            weft_sparse_average_destroy(average);
        }
}

Test(sparse_average_life, models_may_be_empty_or_tiny)
{
    for (int m = 0; m < METHODS; m++)
        for (int size = 1 + FEW; size <= 3 - FEW; size++) {
            weft_sparse_method_t method = (weft_sparse_method_t)m;
            ranks_run_once(small, size, &method);
        }
}

Test(sparse_average_life, the_densities_of_the_paper)
{
    static const double densities[] = {0.25, 0.25, 0.0725, 0.0725, 0.015, 0.015, 0.004, 0.004};
    static float data[1000];
    struct alone alone = alone_create(WEFT_PROGRESS_CALLER);
    struct weft_sparse_average_config config;
    struct weft_sparse_average *average = NULL;
    struct weft_sparse_average_result result = {.struct_size = sizeof result};
    struct weft_piece tensor = {data, 1000};
    weft_sparse_average_config_init(&config);
    config.tensors = &tensor;
    config.tensor_count = 1;
    config.warmup_steps = 2;
    OK(weft_sparse_average_create(&average, alone.context, &config));
    for (uint64_t step = 0; step < 10; step++) {
        double density = step < 8 ? densities[step] : 0.001;
        for (size_t i = 0; i < 1000; i++)
            data[i] = (float)(1 + (i * 7 + step) % 100);
        CHECK(weft_sparse_average_density(average, step) == density);
        OK(weft_sparse_average_step(average, &result));
        CHECK(result.density == density);
        CHECK(result.k == (step < 2 ? 250 : step < 4 ? 73 : (size_t)(density * 1000 + 0.5)));
        CHECK(result.selected == result.k && result.pairs == result.k);
    }
    CHECK(weft_sparse_average_density(average, UINT64_MAX) == 0.001);
    CHECK(weft_sparse_average_density(NULL, 0) == 0);
    weft_sparse_average_destroy(average);
    config.density = 0.02; /* the list ends where it comes down to that */
    OK(weft_sparse_average_create(&average, alone.context, &config));
    CHECK(weft_sparse_average_density(average, 3) == 0.0725);
    CHECK(weft_sparse_average_density(average, 4) == 0.02);
    weft_sparse_average_destroy(average);
    config.k = 100;
    OK(weft_sparse_average_create(&average, alone.context, &config));
    CHECK(weft_sparse_average_density(average, 1) == 0.25);
    CHECK(weft_sparse_average_density(average, 2) == 0.1);
    weft_sparse_average_destroy(average);
    config.density = 0.001;
    config.k = 0;
    config.warmup_steps = UINT64_MAX; /* the first density for ever */
    OK(weft_sparse_average_create(&average, alone.context, &config));
    CHECK(weft_sparse_average_density(average, UINT64_MAX - 1) == 0.25);
    CHECK(weft_sparse_average_density(average, UINT64_MAX) == 0.0725);
    weft_sparse_average_destroy(average);
    alone_destroy(&alone);
}

Test(sparse_average_life, the_density_of_a_tensor_is_its_own)
{
    struct alone alone = alone_create(WEFT_PROGRESS_CALLER);
    float data[110] = {0};
    struct weft_piece tensors[] = {{data, 10}, {data + 10, 100}, {NULL, 0}};
    const double expected[] = {0.5, 0.05, 0};
    struct weft_sparse_average *average = NULL;
    struct weft_sparse_average_result result = {.struct_size = sizeof result};
    struct weft_sparse_average_config config = config_of(tensors, 3);
    config.scope = WEFT_SPARSE_TENSOR;
    config.k = 5;
    OK(weft_sparse_average_create(&average, alone.context, &config));
    for (size_t t = 0; t < 3; t++) {
        OK(weft_sparse_average_post_tensor(average, t));
        OK(weft_sparse_average_wait_tensor(average, t, &result));
        CHECK(result.density == expected[t]);
    }
    OK(weft_sparse_average_step(average, &result));
    CHECK(result.density == 10.0 / 110);
    CHECK(weft_sparse_average_density(average, 0) == 10.0 / 110);
    weft_sparse_average_destroy(average);
    alone_destroy(&alone);
}

/* Sums that are exact in any datatype are applied to tensors of it. */
static void apply_everywhere(struct ranks *ranks, struct weft_context *context, int rank)
{
    static const weft_dtype_t dtypes[] = {WEFT_F16, WEFT_BF16, WEFT_F32, WEFT_F64};
    struct weft_sparse_average_config config;
    struct weft_sparse_average *average = NULL;
    float data[3000];
    struct weft_piece gradients[] = {{data, 1000}, {data + 1000, 2000}};
    (void)ranks;
    weft_sparse_average_config_init(&config);
    config.tensors = gradients;
    config.tensor_count = 2;
    config.density = 1;
    config.method = WEFT_SPARSE_ALLGATHER;
    OK(weft_sparse_average_create(&average, context, &config));
    for (int i = 0; i < 3000; i++)
        data[i] = (float)(i % 3 ? (i + 2 * rank) % 13 - 6 : 0);
    OK(weft_sparse_average_post(average));
    OK(weft_sparse_average_wait(average, NULL));
    for (int d = 0; d < 4; d++) {
        double memory[3000];
        float model[3000], mean;
        struct weft_piece tensors[] = {{memory, 1000},
                                       {(char *)memory + 1000 * weft_dtype_size(dtypes[d]), 2000}};
        for (int i = 0; i < 3000; i++)
            model[i] = (float)(i % 17);
        OK(weft_convert(dtypes[d], memory, WEFT_F32, model, 3000));
        OK(weft_sparse_average_apply(average, -4, dtypes[d], tensors, 2));
        OK(weft_convert(WEFT_F32, model, dtypes[d], memory, 3000));
        for (int i = 0; i < 3000; i++) {
            mean = i % 3 ? (float)(i % 13 - 6 + (i + 2) % 13 - 6) / 2 : 0;
            CHECK(model[i] == (float)(i % 17) - 4 * mean);
        }
    }
    weft_sparse_average_destroy(average);
}

Test(sparse_average_life, sums_are_applied_to_models_of_any_datatype)
{
    ranks_run_once(apply_everywhere, 2, NULL);
}

/* ---- counts ---- */

/* The statistics name what the context has sent in the steps, Ok-Topk's balancing included. */
static void count_sent(struct ranks *ranks, struct weft_context *context, int rank)
{
    struct weft_sparse_average *average = NULL;
    struct weft_sparse_average_stats stats = {.struct_size = sizeof stats};
    struct weft_context_stats before = {.struct_size = sizeof before},
                              after = {.struct_size = sizeof after};
    float data[200];
    struct weft_piece tensors[] = {{data, 150}, {data + 150, 50}};
    struct weft_sparse_average_config config = config_of(tensors, 2);
    int number = *(int *)ranks->user;
    config.method = (weft_sparse_method_t)(number % METHODS);
    config.scope = number < METHODS ? WEFT_SPARSE_MODEL : WEFT_SPARSE_TENSOR;
    config.density = 0.1;
    config.balance_steps = 2;
    config.threshold_steps = 3;
    OK(weft_sparse_average_create(&average, context, &config));
    OK(weft_context_get_stats(context, &before));
    for (int step = 0; step < 5; step++) {
        for (int i = 0; i < 200; i++)
            data[i] = (float)((i * 37 + rank * 11 + step * 5) % 101 + 1);
        OK(weft_sparse_average_step(average, NULL));
    }
    OK(weft_context_get_stats(context, &after));
    OK(weft_sparse_average_get_stats(average, &stats));
    CHECK(stats.messages == after.messages_sent - before.messages_sent);
    CHECK(stats.bytes == after.bytes_sent - before.bytes_sent);
    CHECK(ranks->size == 1 || stats.bytes > 0);
    ranks_meet(ranks);
    weft_sparse_average_destroy(average);
}

Test(sparse_average_life, counts_what_is_sent)
{
    for (int size = FEW ? 3 : 1; size <= (FEW ? 3 : 9); size++)
        for (int number = 0; number < 2 * METHODS; number++)
            ranks_run_once(count_sent, size, &number);
}

/* ---- memory ---- */

/* Creates with the n-th allocation failing, until none is left to fail. Alone, one thread. */
static void fail_in_turn(weft_sparse_method_t method, weft_sparse_residual_t residual)
{
    struct alone alone = alone_create(WEFT_PROGRESS_CALLER);
    float data[100] = {1};
    struct weft_piece tensors[] = {{data, 60}, {data + 60, 40}};
    struct weft_sparse_average_config config = config_of(tensors, 2);
    struct weft_sparse_average *average = NULL;
    int status = WEFT_ERR_MEMORY;
    long n = 0;
    config.method = method;
    config.residual = residual;
    config.scope = WEFT_SPARSE_TENSOR;
    config.momentum = 0.5;
    while (status == WEFT_ERR_MEMORY) {
        atomic_store(&weft__alloc_countdown, ++n);
        status = weft_sparse_average_create(&average, alone.context, &config);
        atomic_store(&weft__alloc_countdown, -1);
        CHECK((status == WEFT_OK) == (average != NULL));
    }
    OK(status);
    cr_assert_gt(n, 10);
    atomic_store(&weft__alloc_countdown, 1); /* a step allocates nothing */
    OK(weft_sparse_average_step(average, NULL));
    CHECK(atomic_load(&weft__alloc_countdown) == 1);
    atomic_store(&weft__alloc_countdown, -1);
    CHECK(data[0] == 1);
    weft_sparse_average_destroy(average);
    alone_destroy(&alone);
}

Test(sparse_average_life, every_allocation_may_fail)
{
    for (int m = 0; m < METHODS; m++)
        for (int residual = 0; residual < 2; residual++)
            if (m != WEFT_SPARSE_OKTOPK || residual == WEFT_SPARSE_CONSERVING)
                fail_in_turn((weft_sparse_method_t)m, (weft_sparse_residual_t)residual);
}
