/* SPDX-License-Identifier: BSD-3-Clause */
/* Sparse averaging on devices whose driver fails, and without memory: nothing is left, all ranks
 * come to an end, and steps that succeed are right. */
#include <criterion/criterion.h>
#include <cuda.h>

#include "runtime/base/alloc.h"
#include "runtime/device/library.h"
#include "schedules/objects/sparse_average/member.h"
#include "tests/gpu/support/device_memory.h"
#include "tests/gpu/support/standin_calls.h"
#include "tests/support/draw.h"
#include "tests/support/ranks.h"

enum { RANKS = 2, COUNT = 60, K = 3, KINDS = 4 };

/* A test tries one of so many calls; sanitizers take ten times as long over each. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { STRIDE = 4 };
#else
enum { STRIDE = 1 };
#endif

/* ---- a life of which any call may fail; none of the driver's is the test's own ---- */

struct part {
    struct weft_context *context;
    struct weft_sparse_average *average;
    float *host;
    void *tensors;
    int some;
};

struct job {
    struct weft_sparse_average_config config;
    atomic_int over; /* ranks that have no step to take any more */
};

/* A copy of the test's own: if it fails nobody but this rank knows. */
static int copy(struct part *part, void *to, const void *from)
{
    int status = weft_context_device_copy(part->context, to, from, COUNT * sizeof(float));
    if (status && part->average)
        OK(weft_sparse_average_fail(part->average, status, weft_error_text()));
    return status;
}

static int put(struct part *part, float value)
{
    for (int i = 0; i < COUNT; i++)
        part->host[i] = value;
    return copy(part, part->tensors, part->host);
}

/* The first K are the largest, since none is larger. (Of those Ok-Topk sends what it has room for.)
 */
static int has(struct part *part, float value)
{
    int status = copy(part, part->host, part->tensors);
    for (int i = 0; i < COUNT && !status; i++)
        CHECK(i < K ? part->host[i] == value || (part->some && !part->host[i]) : !part->host[i]);
    return status;
}

static int begin(struct part *part, const struct job *job)
{
    struct weft_sparse_average_config config = job->config;
    int status = weft_context_device_alloc(part->context, WEFT_MEMORY_DEVICE, COUNT * sizeof(float),
                                           &part->tensors);
    if (!status)
        status = put(part, 1);
    struct weft_piece tensors[] = {{part->tensors, 20}, {(float *)part->tensors + 20, COUNT - 20}};
    config.tensors = tensors;
    config.tensor_count = 2;
    return status ? status : weft_sparse_average_create(&part->average, part->context, &config);
}

/* A step in one piece, and one in two. */
static int go(struct part *part, int rank)
{
    struct weft_piece tensors[] = {{part->tensors, 20}, {(float *)part->tensors + 20, COUNT - 20}};
    int status = put(part, (float)rank + 1);
    if (!status)
        status = weft_sparse_average_step(part->average, NULL);
    if (!status)
        status = has(part, 1.5f);
    if (!status)
        status = put(part, 0);
    if (!status)
        status = weft_sparse_average_post(part->average);
    if (!status)
        status = weft_sparse_average_wait(part->average, NULL);
    if (!status)
        status = put(part, 7);
    return status ? status : weft_sparse_average_apply(part->average, 1, WEFT_F32, tensors, 2);
}

static int live(struct weft_context *context, void *user)
{
    struct job *job = user;
    struct weft_sparse_average_state state = {.struct_size = sizeof state};
    struct part part = {.context = context,
                        .host = calloc(COUNT, sizeof(float)),
                        .some = job->config.method == WEFT_SPARSE_OKTOPK};
    CHECK(part.host);
    int status = begin(&part, job);
    if (!status)
        status = go(&part, weft_context_rank(context));
    if (status)
        CHECK(weft_error_text()[0]);
    /* Who fails is still there when the others hear of it. */
    atomic_fetch_add(&job->over, 1);
    while (part.average && atomic_load(&job->over) < RANKS)
        sched_yield();
    if (part.average)
        weft_sparse_average_get_state(part.average, &state);
    int ended = part.average ? weft_sparse_average_destroy(part.average) : WEFT_OK;
    weft_context_device_free(context, part.tensors);
    free(part.host);
    return status ? status : ended;
}

/* What takes different ways: the selection adds the gradient; velocities, which clipping leaves as
 * they are; what goes back; regions. */
static struct job job_of(int kind)
{
    static const weft_sparse_method_t methods[KINDS] = {
        WEFT_SPARSE_GTOPK, WEFT_SPARSE_ALLGATHER, WEFT_SPARSE_GTOPK_BUTTERFLY, WEFT_SPARSE_OKTOPK};
    struct job job = {.over = 0};
    weft_sparse_average_config_init(&job.config);
    job.config.memory = WEFT_MEMORY_DEVICE;
    job.config.method = methods[kind];
    job.config.k = K;
    if (kind == 1) {
        job.config.momentum = 0.5;
        job.config.clip_norm = 1e6;
    }
    if (kind == 2)
        job.config.residual = WEFT_SPARSE_PAPER;
    return job;
}

static int try_job(struct job *job)
{
    struct weft_context_config config;
    weft_context_config_init(&config);
    config.progress = WEFT_PROGRESS_HELPER;
    return weft_local_run(RANKS, &config, live, job);
}

/* Lives of this process in which something was made to fail. */
static unsigned broken;

/* Nothing was misused, and nothing is left but pages of words. */
static void check_clean(const char *what, unsigned long n)
{
    char text[2000] = "";
    cr_assert_eq(standin_find()->report(text, sizeof text), 0, "%s %lu: %s", what, n, text);
    cr_assert(standin_left_words(text, sizeof text, broken, RANKS), "%s %lu, of %u lives: %s", what,
              n, broken, text);
}

/* So that no life loads all kernels. */
static void hold_devices(struct weft__device *devices[2], const char *second)
{
    for (int i = 0; i < 2; i++)
        OK(weft__device_open(i ? second : "cuda:0", 0, &devices[i]));
}

static void let_devices_go(struct weft__device *devices[2])
{
    for (int i = 0; i < 2; i++)
        devices[i]->ops->end(devices[i]);
}

/* ---- what fails ---- */

Test(sparse_average_faults, lives_that_nothing_fails_in, .timeout = 300)
{
    for (int kind = 0; kind < KINDS; kind++) {
        struct job job = job_of(kind);
        OK(try_job(&job));
    }
    if (standin_find()->there)
        check_clean("after", 0);
}

static void fail_calls(int kind, int code, unsigned most)
{
    const struct standin *standin = standin_find();
    struct weft__device *devices[2];
    struct draw draw = {(uint64_t)(code + kind)};
    unsigned failed = 0;
    unsigned long n = 0, calls;
    hold_devices(devices, "cuda:1");
    do {
        struct job job = job_of(kind);
        n += 1 + draw_below(&draw, most * STRIDE);
        calls = standin->calls();
        standin->fail_at(n, code);
        broken++;
        int status = try_job(&job);
        standin->fail_at(0, 0);
        failed += status != WEFT_OK;
        /* What ends a life may fail, and nobody is told. */
        calls = standin->calls() - calls;
    } while (calls >= n);
    let_devices_go(devices);
    cr_assert(failed > 3 && n > 100, "%u of %lu calls failed", failed, n);
    check_clean("after call", n);
}

Test(sparse_average_faults, any_call_of_the_driver_may_fail, .timeout = 300)
{
    if (!standin_find()->there)
        cr_skip_test("nothing can be made to fail on a device");
    for (int kind = 0; kind < KINDS; kind++)
        fail_calls(kind, kind % 2 ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_UNKNOWN, 28);
}

/* A kernel, a copy or a write ends the context of a device: nothing on it goes on, and all ranks
 * hear of it. */
Test(sparse_average_faults, any_operation_of_a_stream_may_end_its_device, .timeout = 300)
{
    const struct standin *standin = standin_find();
    if (!standin->there)
        cr_skip_test("nothing can be made to fail on a device");
    for (int kind = 0; kind < KINDS; kind++) {
        unsigned failed = 0;
        for (unsigned long n = 1; n < 150; n += STRIDE + n / 2) {
            struct job job = job_of(kind);
            standin->fault_at(n, CUDA_ERROR_ILLEGAL_ADDRESS);
            broken++;
            int status = try_job(&job);
            standin->fault_at(0, 0);
            failed += status != WEFT_OK;
            check_clean("operation", n);
        }
        cr_assert_gt(failed, 3);
    }
    struct job job = job_of(0);
    OK(try_job(&job));
    check_clean("after", 0);
}

Test(sparse_average_faults, any_allocation_may_fail, .timeout = 300)
{
    struct weft__device *devices[2];
    struct draw draw = {3};
    hold_devices(devices, device_count() > 1 ? "cuda:1" : "cuda:0");
    for (int kind = 0; kind < KINDS; kind++) {
        unsigned long n = 1, failed = 0;
        long left;
        do {
            struct job job = job_of(kind);
            atomic_store(&weft__alloc_countdown, (long)n);
            int status = try_job(&job);
            left = atomic_exchange(&weft__alloc_countdown, -1);
            failed += status != WEFT_OK;
            CHECK(left <= 0 || status == WEFT_OK);
            n += 1 + draw_below(&draw, 32 * STRIDE);
        } while (left <= 0);
        cr_assert(failed > 3, "%lu of %lu allocations", failed, n);
    }
    let_devices_go(devices);
    device_check();
}

/* ---- what is refused ---- */

Test(sparse_average_faults, a_device_that_is_not_there_is_told, .timeout = 300)
{
    struct weft_context_config settings;
    struct weft_sparse_average_config config;
    struct weft_sparse_average *average = NULL;
    struct weft_local *local;
    struct weft_context *context;
    weft_context_config_init(&settings);
    settings.device = "cuda:99";
    OK(weft_local_create(&local, 1, NULL));
    OK(weft_context_create_local(&context, local, 0, &settings));
    weft_sparse_average_config_init(&config);
    config.memory = WEFT_MEMORY_DEVICE;
    CHECK_STATUS(weft_sparse_average_create(&average, context, &config), WEFT_ERR_INVALID);
    CHECK_TEXT(weft_error_text(), "device is cuda:99, expected one of cuda:0 to");
    weft_context_destroy(context);
    weft_local_destroy(local);
}

Test(sparse_average_faults, parts_of_other_objects_are_on_the_host, .timeout = 300)
{
    struct alone alone = alone_create(WEFT_PROGRESS_CALLER);
    struct weft_sparse_average_config config;
    struct weft_sparse_average *average = NULL;
    struct weft_gradients_config gradients;
    struct weft_gradients *made = NULL;
    float tensor[4] = {0};
    struct weft_piece piece = {tensor, 4};
    weft_sparse_average_config_init(&config);
    config.memory = WEFT_MEMORY_DEVICE;
    CHECK_STATUS(
        weft__sparse_average_create_member(&average, "a part", alone.context, NULL, &config),
        WEFT_ERR_UNSUPPORTED);
    CHECK_TEXT(weft_error_text(), "a part: config->memory is WEFT_MEMORY_DEVICE, expected WEFT_");
    weft_gradients_config_init(&gradients);
    gradients.tensors = &piece;
    gradients.tensor_count = 1;
    gradients.sparse = &config;
    CHECK(weft_gradients_create(&made, alone.context, &gradients) < 0);
    CHECK_TEXT(weft_error_text(), "config->sparse->memory");
    alone_destroy(&alone);
}
