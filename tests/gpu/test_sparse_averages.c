/* SPDX-License-Identifier: BSD-3-Clause */
/* Sparse averaging of gradients on devices: each object has a twin on the host, with its bits. */
#include <criterion/criterion.h>
#include <math.h>

#include "schedules/objects/sparse_average/sparse_average.h"
#include "tests/gpu/support/device_memory.h"
#include "tests/gpu/support/standin_calls.h"
#include "tests/support/draw.h"
#include "tests/support/ranks.h"

/* Rounds of a test; sanitizers take ten times as long over each. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { ROUNDS = 4 };
#else
enum { ROUNDS = 16 };
#endif

enum { ELEMENTS = 421, TENSORS = 5, STEPS = 3, LONG = 70001 };

static const size_t counts[TENSORS] = {40, 0, 300, 1, ELEMENTS - 341};

/* ---- twins ---- */

/* Memory of a model on both sides, and of a device. */
struct both {
    struct weft_piece here[TENSORS], there[TENSORS];
    char *host, *pinned, *device;
    size_t bytes, tensors;
};

struct twins {
    struct weft_sparse_average_config config;
    struct weft_sparse_average *host, *device;
    struct both gradients, weights;
    weft_dtype_t weight_dtype;
    int placed; /* the second is on a device: else both are on the host */
};

/* gap: bytes between tensors. */
static void both_make(struct both *both, const size_t *lengths, size_t tensors, weft_dtype_t dtype,
                      size_t gap)
{
    size_t size = weft_dtype_size(dtype), at = 0;
    *both = (struct both){.tensors = tensors};
    for (size_t t = 0; t < tensors; t++)
        both->bytes += lengths[t] * size + gap;
    both->host = calloc(both->bytes + 1, 1);
    both->pinned = device_pin(both->bytes);
    both->device = device_alloc(both->bytes);
    CHECK(both->host);
    memset(both->pinned, 0, both->bytes);
    for (size_t t = 0; t < tensors; t++) {
        both->here[t] = (struct weft_piece){lengths[t] ? both->host + at : NULL, lengths[t]};
        both->there[t] = (struct weft_piece){lengths[t] ? both->device + at : NULL, lengths[t]};
        at += lengths[t] * size + gap;
    }
}

static void both_free(struct both *both)
{
    device_unpin(both->pinned);
    device_free(both->device);
    free(both->host);
}

static void both_put(struct both *both)
{
    memcpy(both->pinned, both->host, both->bytes);
    device_put(both->device, both->pinned, both->bytes);
}

/* Bits, or a NaN for a NaN. */
static int same_floats(const float *x, const float *y, size_t count)
{
    for (size_t i = 0; x != y && i < count; i++)
        if (memcmp(x + i, y + i, sizeof *x) != 0 && !(isnan(x[i]) && isnan(y[i])))
            return 0;
    return 1;
}

static void both_check(struct both *both, weft_dtype_t dtype)
{
    size_t count = both->bytes / weft_dtype_size(dtype);
    float *x = calloc(count + 1, sizeof *x), *y = calloc(count + 1, sizeof *y);
    CHECK(x && y);
    device_get(both->pinned, both->device, both->bytes);
    if (memcmp(both->pinned, both->host, both->bytes) != 0) { /* NaNs have any bits */
        OK(weft_convert(WEFT_F32, x, dtype, both->host, count));
        OK(weft_convert(WEFT_F32, y, dtype, both->pinned, count));
        CHECK(dtype != WEFT_F64 && same_floats(x, y, count));
    }
    free(x);
    free(y);
}

static void twins_make(struct twins *twins, struct weft_context *context, const size_t *lengths,
                       size_t tensors, int gap)
{
    struct weft_sparse_average_config *config = &twins->config;
    device_use(weft_context_rank(context) % device_count());
    both_make(&twins->gradients, lengths, tensors, config->dtype,
              gap ? weft_dtype_size(config->dtype) : 0);
    both_make(&twins->weights, lengths, tensors, twins->weight_dtype, 0);
    config->tensor_count = tensors;
    config->tensors = twins->gradients.here;
    OK(weft_sparse_average_create(&twins->host, context, config));
    config->memory = twins->placed ? WEFT_MEMORY_DEVICE : WEFT_MEMORY_HOST;
    config->tensors = twins->placed ? twins->gradients.there : twins->gradients.here;
    OK(weft_sparse_average_create(&twins->device, context, config));
}

static void twins_free(struct twins *twins)
{
    OK(weft_sparse_average_destroy(twins->host));
    OK(weft_sparse_average_destroy(twins->device));
    both_free(&twins->gradients);
    both_free(&twins->weights);
}

static void twins_state(const struct twins *twins)
{
    struct weft_sparse_average_state x = {.struct_size = sizeof x}, y = {.struct_size = sizeof y};
    size_t count = 0;
    double norms[2];
    for (size_t t = 0; t < twins->gradients.tensors; t++)
        count += twins->gradients.here[t].count;
    OK(weft_sparse_average_get_state(twins->host, &x));
    OK(weft_sparse_average_get_state(twins->device, &y));
    CHECK(same_floats(x.residual, y.residual, count));
    CHECK(!x.velocity == !y.velocity);
    CHECK(!x.velocity || same_floats(x.velocity, y.velocity, count));
    CHECK(x.region_count == y.region_count);
    CHECK(!x.region_count || !memcmp(x.regions, y.regions, x.region_count * sizeof *x.regions));
    CHECK(x.next == y.next);
    OK(weft_sparse_average_residual_norm(twins->host, &norms[0]));
    OK(weft_sparse_average_residual_norm(twins->device, &norms[1]));
    CHECK(memcmp(&norms[0], &norms[1], sizeof norms[0]) == 0 || isnan(norms[0]));
    x.stats.waited_ns = y.stats.waited_ns = x.stats.selection_ns = y.stats.selection_ns = 0;
    CHECK(memcmp(&x.stats, &y.stats, sizeof x.stats) == 0);
}

/* ---- steps ---- */

static void draw_vector(struct both *both, weft_dtype_t dtype, struct draw *draw, int odd)
{
    size_t count = both->bytes / weft_dtype_size(dtype);
    for (size_t i = 0; i < count; i++) {
        static const double numbers[] = {0, -0.0, 3e38, -3e38, 1e-40, 0.25, -0.25};
        double value = ldexp(2 * draw_real(draw) - 1, (int)draw_below(draw, 8));
        if (draw_below(draw, 12) == 0)
            value = numbers[draw_below(draw, odd ? 7 : 2)];
        OK(weft_convert(dtype, both->host + i * weft_dtype_size(dtype), WEFT_F64, &value, 1));
    }
}

/* Now and then a gradient is not finite. */
static void spoil(struct both *both, weft_dtype_t dtype, struct draw *draw)
{
    double value = draw_below(draw, 2) ? (double)NAN : (double)INFINITY;
    size_t count = both->bytes / weft_dtype_size(dtype), at = draw_below(draw, (unsigned)count);
    OK(weft_convert(dtype, both->host + at * weft_dtype_size(dtype), WEFT_F64, &value, 1));
}

static void compare_pairs(const struct twins *twins)
{
    size_t units = twins->config.scope == WEFT_SPARSE_TENSOR ? twins->gradients.tensors : 1;
    for (size_t u = 0; u < units; u++) {
        struct weft_sparse x, y;
        OK(weft_sparse_average_get_pairs(twins->host, u, &x));
        OK(weft_sparse_average_get_pairs(twins->device, u, &y));
        CHECK(x.count == y.count);
        CHECK(!x.count || !memcmp(x.indices, y.indices, x.count * sizeof(uint32_t)));
        CHECK(same_floats(x.values, y.values, x.count));
    }
}

static void apply(struct twins *twins, struct draw *draw)
{
    const double scale = (draw_real(draw) - 0.5) / 3;
    struct both *weights = &twins->weights;
    struct weft_piece *there = twins->placed ? weights->there : weights->here;
    draw_vector(weights, twins->weight_dtype, draw, 0);
    both_put(weights);
    OK(weft_sparse_average_apply(twins->host, scale, twins->weight_dtype, weights->here,
                                 weights->tensors));
    if (twins->placed) {
        OK(weft_sparse_average_apply(twins->device, scale, twins->weight_dtype, there,
                                     weights->tensors));
        both_check(weights, twins->weight_dtype);
    }
}

/* In one piece: gradients become the mean; or in two. */
static void one_step(struct twins *twins, struct draw *draw)
{
    struct weft_sparse_average_result x = {.struct_size = sizeof x}, y = {.struct_size = sizeof y};
    struct both *gradients = &twins->gradients;
    char *before = malloc(gradients->bytes + 1);
    CHECK(before);
    memcpy(before, gradients->host, gradients->bytes);
    both_put(gradients);
    int split = (int)draw_below(draw, 2), first, second;
    if (split)
        OK(weft_sparse_average_post(twins->host));
    first = split ? weft_sparse_average_wait(twins->host, &x)
                  : weft_sparse_average_step(twins->host, &x);
    if (!twins->placed)
        memcpy(gradients->host, before, gradients->bytes); /* of both */
    if (split)
        OK(weft_sparse_average_post(twins->device));
    second = split ? weft_sparse_average_wait(twins->device, &y)
                   : weft_sparse_average_step(twins->device, &y);
    CHECK(first == second && (first == WEFT_OK || first == WEFT_ERR_COMPUTE));
    CHECK(memcmp(&x, &y, sizeof x) == 0);
    if (twins->placed)
        both_check(gradients, twins->config.dtype);
    free(before);
}

struct round {
    struct weft_sparse_average_config config;
    uint64_t seed;
    int gap, odd, spoils, mixed;
};

static void draw_round(struct round *round, uint64_t seed)
{
    static const weft_dtype_t dtypes[] = {WEFT_F32, WEFT_F32, WEFT_BF16, WEFT_F16};
    struct draw draw = {seed};
    struct weft_sparse_average_config *config = &round->config;
    weft_sparse_average_config_init(config);
    config->method = (weft_sparse_method_t)(seed % 4);
    config->dtype = dtypes[draw_below(&draw, 4)];
    config->scope = draw_below(&draw, 3) ? WEFT_SPARSE_MODEL : WEFT_SPARSE_TENSOR;
    if (config->method != WEFT_SPARSE_OKTOPK && draw_below(&draw, 3) == 0)
        config->residual = WEFT_SPARSE_PAPER;
    config->momentum = draw_below(&draw, 3) ? 0 : 0.9;
    config->clip_norm = draw_below(&draw, 3) ? 0 : 40;
    config->nan = draw_below(&draw, 2) ? WEFT_NAN_ERROR : WEFT_NAN_ZERO;
    config->density = draw_below(&draw, 2) ? 0.02 : 0.2;
    config->threshold_steps = config->balance_steps = 2;
    round->seed = seed;
    round->gap = (int)draw_below(&draw, 2);
    round->spoils = draw_below(&draw, 3) == 0;
    /* Sums that are not finite fail Ok-Topk. */
    round->odd = config->method != WEFT_SPARSE_OKTOPK;
    round->mixed = draw_below(&draw, 4) == 0;
}

static void live_as_twins(struct ranks *ranks, struct weft_context *context, int rank)
{
    static const weft_dtype_t dtypes[] = {WEFT_F16, WEFT_BF16, WEFT_F32, WEFT_F64};
    const struct round *round = ranks->user;
    struct draw common = {round->seed}, draw = {round->seed * 16 + (uint64_t)rank};
    struct twins twins = {.config = round->config, .placed = !round->mixed || rank % 2 == 0};
    twins.weight_dtype = dtypes[draw_below(&common, 4)];
    OK(weft_context_device(context, NULL));
    twins_make(&twins, context, counts, TENSORS, round->gap);
    for (int step = 0; step < STEPS; step++) {
        draw_vector(&twins.gradients, round->config.dtype, &draw, round->odd);
        if (round->spoils && draw_below(&draw, 2))
            spoil(&twins.gradients, round->config.dtype, &draw);
        struct draw same = common; /* all ranks do it in the same way */
        one_step(&twins, &same);
        common = same;
        compare_pairs(&twins);
        twins_state(&twins);
        apply(&twins, &draw);
    }
    twins_free(&twins);
}

Test(sparse_averages, have_the_bits_of_the_host, .timeout = 300)
{
    for (uint64_t seed = 1; seed <= ROUNDS; seed++) {
        struct round round;
        struct ranks ranks;
        draw_round(&round, seed);
        ranks_init(&ranks, 2 + (int)(seed / 4 % 2), live_as_twins, &round);
        ranks.config.progress = seed % 2 ? WEFT_PROGRESS_HELPER : WEFT_PROGRESS_CALLER;
        ranks_run(&ranks);
        device_check();
    }
}

/* In one piece, with a hint from step to step, and so long that there is a second look at it. */
Test(sparse_averages, long_gradients_are_selected_from_in_one_go, .timeout = 300)
{
    struct alone alone = alone_create(WEFT_PROGRESS_CALLER);
    const size_t length = LONG;
    struct twins twins = {.placed = 1, .weight_dtype = WEFT_F32};
    struct draw draw = {5}, same = {6};
    weft_sparse_average_config_init(&twins.config);
    OK(weft_context_device(alone.context, NULL));
    twins_make(&twins, alone.context, &length, 1, 0);
    CHECK(twins.device->device->fuses);
    for (int step = 0; step < 2; step++) {
        draw_vector(&twins.gradients, WEFT_F32, &draw, 1);
        one_step(&twins, &same);
        CHECK(twins.device->device->fused);
        compare_pairs(&twins);
        twins_state(&twins);
    }
    twins_free(&twins);
    alone_destroy(&alone);
    device_check();
}

/* ---- what is left of a step that has failed ---- */

struct failing {
    weft_memory_t memory;
    weft_sparse_residual_t residual;
    float residuals[2][ELEMENTS], unsent[ELEMENTS], velocity[ELEMENTS];
    uint64_t next;
    size_t dropped;
};

/* Rank 0 has merged what rank 1 sent when rank 2, whose list it waits for, gives up. All drive
 * themselves: nothing happens but what they do. */
static void fail_in_between(struct ranks *ranks, struct weft_context *context, int rank)
{
    struct failing *failing = ranks->user;
    struct weft_sparse_average_config config;
    struct weft_sparse_average *average = NULL;
    struct both gradients;
    struct draw draw = {(uint64_t)rank + 1};
    const int there = failing->memory == WEFT_MEMORY_DEVICE;
    device_use(rank % device_count());
    OK(weft_context_device(context, NULL));
    weft_sparse_average_config_init(&config);
    both_make(&gradients, counts, TENSORS, WEFT_F32, 0);
    draw_vector(&gradients, WEFT_F32, &draw, 0);
    both_put(&gradients);
    config.tensors = there ? gradients.there : gradients.here;
    config.tensor_count = TENSORS;
    config.memory = failing->memory;
    config.residual = failing->residual;
    config.momentum = 0.5;
    config.k = 20;
    OK(weft_sparse_average_create(&average, context, &config));
    if (rank < 2)
        OK(weft_sparse_average_post(average));
    while (rank == 0 && !average->units[0].dropped)
        CHECK(weft_context_progress(context) >= 0);
    ranks_meet_driving(ranks, context);
    if (rank == 2)
        OK(weft_sparse_average_fail(average, WEFT_ERR_COMPUTE, "enough"));
    else
        CHECK_STATUS(weft_sparse_average_wait(average, NULL), WEFT_ERR_PEER);
    if (rank == 0) {
        struct weft_sparse_average_state state = {.struct_size = sizeof state};
        for (int again = 0; again < 2; again++) { /* a look at it changes nothing */
            OK(weft_sparse_average_get_state(average, &state));
            memcpy(failing->residuals[again], state.residual, sizeof failing->residuals[0]);
        }
        CHECK(state.failed && state.unsent);
        memcpy(failing->unsent, state.unsent, sizeof failing->unsent);
        memcpy(failing->velocity, state.velocity, sizeof failing->velocity);
        failing->next = state.next;
        failing->dropped = average->units[0].dropped;
    }
    ranks_meet_driving(ranks, context);
    CHECK(weft_sparse_average_destroy(average) < 0);
    both_free(&gradients);
}

static void fail_on(struct failing *failing, weft_memory_t memory)
{
    struct ranks ranks;
    failing->memory = memory;
    ranks_init(&ranks, 3, fail_in_between, failing);
    ranks.config.progress = WEFT_PROGRESS_CALLER;
    ranks_run(&ranks);
    device_check();
}

/* One that goes on from it, on either side. */
static void go_on(const struct failing *failing, weft_memory_t memory, float *residual)
{
    struct alone alone = alone_create(WEFT_PROGRESS_CALLER);
    struct weft_sparse_average_state state = {.struct_size = sizeof state};
    struct weft_sparse_average_config config;
    struct weft_sparse_average *average = NULL;
    struct both gradients;
    device_use(0);
    OK(weft_context_device(alone.context, NULL));
    weft_sparse_average_config_init(&config);
    both_make(&gradients, counts, TENSORS, WEFT_F32, 0);
    state.next = failing->next;
    state.residual = failing->residuals[0];
    state.velocity = failing->velocity;
    state.unsent = failing->unsent;
    state.failed = 1;
    config.tensors = memory == WEFT_MEMORY_DEVICE ? gradients.there : gradients.here;
    config.tensor_count = TENSORS;
    config.scope = WEFT_SPARSE_TENSOR;
    config.memory = memory;
    config.residual = failing->residual;
    config.momentum = 0.5;
    config.state = &state;
    OK(weft_sparse_average_create(&average, alone.context, &config));
    state = (struct weft_sparse_average_state){.struct_size = sizeof state};
    OK(weft_sparse_average_get_state(average, &state));
    memcpy(residual, state.residual, ELEMENTS * sizeof *residual);
    CHECK(!memcmp(state.velocity, failing->velocity, sizeof failing->velocity));
    OK(weft_sparse_average_destroy(average));
    both_free(&gradients);
    alone_destroy(&alone);
    device_check();
}

Test(sparse_averages, a_step_that_fails_leaves_what_it_leaves_on_the_host, .timeout = 300)
{
    for (int residual = WEFT_SPARSE_CONSERVING; residual <= WEFT_SPARSE_PAPER; residual++) {
        static struct failing host, device;
        float after[2][ELEMENTS];
        host = device = (struct failing){.residual = (weft_sparse_residual_t)residual};
        fail_on(&host, WEFT_MEMORY_HOST);
        fail_on(&device, WEFT_MEMORY_DEVICE);
        cr_assert(host.dropped > 0 && host.dropped == device.dropped);
        cr_assert_arr_eq(host.residuals[0], device.residuals[0], sizeof host.residuals[0]);
        cr_assert_arr_eq(device.residuals[1], device.residuals[0], sizeof host.residuals[0]);
        cr_assert_arr_eq(host.unsent, device.unsent, sizeof host.unsent);
        cr_assert_arr_eq(host.velocity, device.velocity, sizeof host.velocity);
        cr_assert_eq(host.next, device.next);
        go_on(&host, WEFT_MEMORY_HOST, after[0]);
        go_on(&device, WEFT_MEMORY_DEVICE, after[1]);
        cr_assert_arr_eq(after[0], after[1], sizeof after[0]);
        cr_assert(memcmp(after[0], host.residuals[0], sizeof after[0]) != 0);
    }
}

/* ---- what is refused ---- */

static void refused(struct weft_context *context, const struct weft_sparse_average_config *config,
                    int status, const char *text)
{
    struct weft_sparse_average *average = NULL;
    CHECK_STATUS(weft_sparse_average_create(&average, context, config), status);
    CHECK(!average);
    CHECK_TEXT(weft_error_text(), text);
}

Test(sparse_averages, memory_of_the_other_side_is_refused, .timeout = 300)
{
    struct alone alone = alone_create(WEFT_PROGRESS_CALLER);
    struct weft_sparse_average *average = NULL;
    struct weft_sparse_average_config config;
    struct both both;
    const size_t lengths[] = {7, 3};
    char text[200];
    device_use(0);
    OK(weft_context_device(alone.context, NULL));
    both_make(&both, lengths, 2, WEFT_F32, 0);
    both_put(&both);
    weft_sparse_average_config_init(&config);
    config.memory = (weft_memory_t)7;
    refused(alone.context, &config, WEFT_ERR_INVALID, "config->memory is 7, expected a weft_mem");
    struct weft_piece mixed[] = {both.there[0], both.here[1]};
    config.memory = WEFT_MEMORY_DEVICE;
    config.tensors = mixed;
    config.tensor_count = 2;
    snprintf(text, sizeof text,
             "weft_sparse_average_create: config->tensors[1].data, %p, is memory of the host, "
             "expected memory of the device, as config->memory says",
             both.here[1].data);
    refused(alone.context, &config, WEFT_ERR_INVALID, text);
    config.tensors = both.there;
    config.scope = WEFT_SPARSE_TENSOR;
    OK(weft_sparse_average_create(&average, alone.context, &config));
    CHECK_STATUS(weft_sparse_average_apply(average, 1, WEFT_F32, mixed, 2), WEFT_ERR_INVALID);
    CHECK_TEXT(weft_error_text(), "weft_sparse_average_apply: tensors[1].data, ");
    CHECK_STATUS(weft_sparse_average_apply_tensor(average, 1, 1, WEFT_F32, both.here[1].data),
                 WEFT_ERR_INVALID);
    CHECK_TEXT(weft_error_text(), "weft_sparse_average_apply_tensor: data, ");
    CHECK_TEXT(weft_error_text(), " is memory of the host, expected memory of the device");
    if (standin_find()->there) { /* a driver may give more than was asked for */
        CHECK_STATUS(weft_sparse_average_apply_tensor(average, 0, 1, WEFT_F64, both.there[0].data),
                     WEFT_ERR_INVALID);
        CHECK_TEXT(weft_error_text(), "weft_sparse_average_apply_tensor: data, ");
        CHECK_TEXT(weft_error_text(),
                   "of which the last is outside: expected memory of the device");
    }
    CHECK_STATUS(weft_sparse_average_apply(average, 1, WEFT_F32, both.there, 2), WEFT_ERR_STATE);
    OK(weft_sparse_average_destroy(average));
    config.tensors = both.here;
    config.memory = WEFT_MEMORY_HOST;
    OK(weft_sparse_average_create(&average, alone.context, &config));
    OK(weft_sparse_average_step(average, NULL));
    CHECK_STATUS(weft_sparse_average_apply(average, 1, WEFT_F32, both.there, 2), WEFT_ERR_INVALID);
    CHECK_TEXT(weft_error_text(), " is memory of a device, expected memory of the host");
    CHECK_STATUS(weft_sparse_average_apply_tensor(average, 1, 1, WEFT_F32, both.there[1].data),
                 WEFT_ERR_INVALID);
    OK(weft_sparse_average_destroy(average));
    both_free(&both);
    alone_destroy(&alone);
    device_check();
}

Test(sparse_averages, empty_models_may_be_anywhere, .timeout = 300)
{
    struct alone alone = alone_create(WEFT_PROGRESS_CALLER);
    struct weft_sparse_average *average = NULL;
    struct weft_sparse_average_config config;
    struct weft_sparse_average_state state = {.struct_size = sizeof state};
    weft_sparse_average_config_init(&config);
    config.memory = WEFT_MEMORY_DEVICE;
    OK(weft_sparse_average_create(&average, alone.context, &config));
    OK(weft_sparse_average_step(average, NULL));
    OK(weft_sparse_average_apply(average, 1, WEFT_F32, NULL, 0));
    OK(weft_sparse_average_get_state(average, &state));
    CHECK(state.next == 1);
    OK(weft_sparse_average_destroy(average));
    alone_destroy(&alone);
    device_check();
}
