/* SPDX-License-Identifier: BSD-3-Clause */
/* Group averaging on devices whose driver fails, without memory, and used wrongly. */
#include <criterion/criterion.h>
#include <cuda.h>

#include "runtime/base/alloc.h"
#include "runtime/device/library.h"
#include "tests/gpu/averages_job.h"
#include "tests/gpu/support/standin_calls.h"
#include "tests/support/draw.h"

enum { RANKS = 2, COUNT = 300 };

/* ---- a life of which any call may fail; none of the driver's is the test's own ---- */

struct part {
    struct weft_context *context;
    struct weft_group_average *average;
    float *host;
    void *tensors;
};

static int put(struct part *part, float value)
{
    for (int i = 0; i < COUNT; i++)
        part->host[i] = value;
    return weft_context_device_copy(part->context, part->tensors, part->host,
                                    COUNT * sizeof(float));
}

static int has(struct part *part, float value)
{
    int status =
        weft_context_device_copy(part->context, part->host, part->tensors, COUNT * sizeof(float));
    for (int i = 0; i < COUNT && !status; i++)
        CHECK(part->host[i] == value);
    return status;
}

static int begin(struct part *part, const struct job *job)
{
    struct weft_group_average_config config = job->config;
    int status = weft_context_device_alloc(part->context, WEFT_MEMORY_DEVICE, COUNT * sizeof(float),
                                           &part->tensors);
    if (!status)
        status = put(part, 1);
    struct weft_piece tensors[] = {{part->tensors, 100},
                                   {(float *)part->tensors + 100, COUNT - 100}};
    config.tensors = tensors;
    config.tensor_count = 2;
    return status ? status : weft_group_average_create(&part->average, part->context, &config);
}

/* Four steps, of which two are put on the driver's default stream. Whatever fails, the step that
 * had been begun is waited for. */
static int go(struct part *part, int rank)
{
    struct weft_group_average *average = part->average;
    int status = put(part, (float)rank);
    if (!status)
        status = weft_group_average_step(average, NULL);
    if (!status)
        status = has(part, 0.5f);
    if (!status)
        status = put(part, (float)rank + 2);
    if (!status)
        status = weft_group_average_post_on(average, NULL);
    if (!status) {
        int waits = weft_group_average_wait_on(average, NULL);
        CHECK(!waits || (waits < 0 && waits != WEFT_ERR_INVALID && weft_error_text()[0]));
        status = weft_group_average_wait(average, NULL);
    }
    if (!status)
        status = has(part, 2.5f);
    if (!status)
        status = put(part, (float)rank + 4);
    if (!status)
        status = weft_group_average_step_on(average, NULL);
    int waited = average->step == WEFT__STEP_NONE ? status : weft_group_average_wait(average, NULL);
    if (!waited)
        status = has(part, 4.5f);
    return status ? status : waited;
}

static int live(struct job *job, struct weft_context *context, int rank)
{
    struct weft_group_average_state state = {.struct_size = sizeof state};
    struct part part = {.context = context, .host = calloc(COUNT, sizeof(float))};
    CHECK(part.host);
    int status = begin(&part, job);
    if (!status)
        status = go(&part, rank);
    if (status)
        CHECK(weft_error_text()[0]);
    /* What this rank alone knows (a copy of the test's, a step that did not begin) would let it
     * leave, and others average with its last model. */
    if (status && part.average)
        OK(weft_group_average_fail(part.average, status, weft_error_text()));
    if (part.average)
        weft_group_average_get_state(part.average, &state);
    int ended = part.average ? weft_group_average_destroy(part.average) : WEFT_OK;
    weft_context_device_free(context, part.tensors);
    free(part.host);
    return status ? status : ended;
}

static struct job new_life(void)
{
    struct job job = new_job(live);
    job.config.initial = WEFT_INITIAL_SAME;
    job.config.sync_period = 2;
    job.config.mode = WEFT_AVERAGE_WAITING;
    return job;
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

/* ---- what fails ---- */

static void fail_calls(int code, unsigned most)
{
    const struct standin *standin = standin_find();
    struct weft__device *devices[2];
    struct draw draw = {(uint64_t)code};
    unsigned failed = 0;
    unsigned long n = 0, calls;
    for (int i = 0; i < 2; i++) /* so that no life loads all kernels */
        OK(weft__device_open(i ? "cuda:1" : "cuda:0", 0, &devices[i]));
    do {
        struct job job = new_life();
        n += 1 + draw_below(&draw, most);
        calls = standin->calls();
        standin->fail_at(n, code);
        broken++;
        int status = try_job(&job, RANKS);
        standin->fail_at(0, 0);
        failed += status != WEFT_OK;
        /* What ends a life may fail, and nobody is told. */
        calls = standin->calls() - calls;
    } while (calls >= n);
    for (int i = 0; i < 2; i++)
        devices[i]->ops->end(devices[i]);
    cr_assert(failed > 10 && n > 150, "%u of %lu calls failed", failed, n);
    check_clean("after call", n);
}

Test(average_faults, any_call_of_the_driver_may_fail, .timeout = 300)
{
    if (!standin_find()->there)
        cr_skip_test("nothing can be made to fail on a device");
    fail_calls(CUDA_ERROR_UNKNOWN, 12);
    fail_calls(CUDA_ERROR_OUT_OF_MEMORY, 16);
}

/* A kernel, a copy or a write ends the context of a device: nothing on it goes on, and all ranks
 * hear of it. */
Test(average_faults, any_operation_of_a_stream_may_end_its_device, .timeout = 300)
{
    const struct standin *standin = standin_find();
    unsigned failed = 0;
    if (!standin->there)
        cr_skip_test("nothing can be made to fail on a device");
    for (unsigned long n = 1; n < 120; n += 1 + n / 4) {
        struct job job = new_life();
        standin->fault_at(n, CUDA_ERROR_ILLEGAL_ADDRESS);
        broken++;
        int status = try_job(&job, RANKS);
        standin->fault_at(0, 0);
        failed += status != WEFT_OK;
        check_clean("operation", n);
    }
    cr_assert_gt(failed, 5);
    struct job job = new_life();
    OK(try_job(&job, RANKS));
    check_clean("after", 0);
}

Test(average_faults, any_allocation_may_fail, .timeout = 300)
{
    struct weft__device *devices[2];
    unsigned long n = 1, failed = 0;
    struct draw draw = {3};
    long left;
    for (int i = 0; i < 2; i++)
        OK(weft__device_open(i && device_count() > 1 ? "cuda:1" : "cuda:0", 0, &devices[i]));
    do {
        struct job job = new_life();
        atomic_store(&weft__alloc_countdown, (long)n);
        int status = try_job(&job, RANKS);
        left = atomic_exchange(&weft__alloc_countdown, -1);
        failed += status != WEFT_OK;
        CHECK(left <= 0 || status == WEFT_OK);
        n += 1 + draw_below(&draw, 12);
    } while (left <= 0);
    for (int i = 0; i < 2; i++)
        devices[i]->ops->end(devices[i]);
    cr_assert(failed > 20, "%lu of %lu allocations", failed, n);
    device_check();
}

/* ---- what is refused ---- */

static void refused(struct weft_context *context, struct weft_group_average_config *config,
                    int status, const char *text)
{
    struct weft_group_average *average = NULL;
    CHECK_STATUS(weft_group_average_create(&average, context, config), status);
    CHECK(!average);
    CHECK_TEXT(weft_error_text(), text);
}

Test(average_faults, wrong_calls_are_named, .timeout = 300)
{
    struct alone alone = alone_create(WEFT_PROGRESS_HELPER);
    struct weft_group_average *average = NULL;
    struct weft_group_average_config config;
    struct model model;
    float host[10] = {0};
    weft_group_average_config_init(&config);
    config.memory = (weft_memory_t)7;
    refused(alone.context, &config, WEFT_ERR_INVALID, "config->memory is 7, expected a weft_mem");
    config.memory = WEFT_MEMORY_DEVICE;
    model_make(&model, &config, 0);
    model_set(&model, 1);
    model_put(&model);
    struct weft_piece tensors[] = {{model.memory, 10}, {host, 10}};
    config.tensors = tensors;
    config.tensor_count = 2;
    refused(alone.context, &config, WEFT_ERR_INVALID, "config->tensors[1].data, ");
    CHECK_TEXT(weft_error_text(), " is memory of the host, expected memory of the device, as "
                                  "config->memory says");
    struct weft_piece longer[] = {{model.memory, 10}, {model.memory, 1 << 24}};
    config.tensors = longer;
    refused(alone.context, &config, WEFT_ERR_INVALID, "config->tensors[1].data, ");
    CHECK_TEXT(weft_error_text(), " is of 67108864 bytes, of which the last is outside: expected "
                                  "memory of the device, as config->memory says");
    config.tensors = tensors;
    CHECK_STATUS(weft_group_average_post_on(NULL, NULL), WEFT_ERR_INVALID);
    CHECK_STATUS(weft_group_average_wait_on(NULL, NULL), WEFT_ERR_INVALID);
    CHECK_STATUS(weft_group_average_step_on(NULL, NULL), WEFT_ERR_INVALID);
    CHECK_STATUS(weft_group_average_test(NULL, NULL), WEFT_ERR_INVALID);
    tensors[0] = tensors[1];
    config.memory = WEFT_MEMORY_HOST;
    OK(weft_group_average_create(&average, alone.context, &config));
    CHECK_STATUS(weft_group_average_post_on(average, NULL), WEFT_ERR_STATE);
    CHECK_TEXT(weft_error_text(), "weft_group_average_post_on: the tensors are memory of the host");
    CHECK_STATUS(weft_group_average_wait_on(average, NULL), WEFT_ERR_STATE);
    CHECK_STATUS(weft_group_average_step_on(average, NULL), WEFT_ERR_STATE);
    CHECK_STATUS(weft_group_average_test(average, NULL), WEFT_ERR_STATE);
    OK(weft_group_average_post(average));
    int status;
    while ((status = weft_group_average_test(average, NULL)) == WEFT_IN_PROGRESS)
        sched_yield();
    OK(status);
    OK(weft_group_average_destroy(average));
    OK(weft_group_average_create(&average, alone.context, &model.config));
    CHECK_STATUS(weft_group_average_wait_on(average, model.stream), WEFT_ERR_STATE);
    CHECK_TEXT(weft_error_text(), "weft_group_average_wait_on: no step has been posted");
    OK(weft_group_average_post_on(average, model.stream));
    CHECK_STATUS(weft_group_average_post_on(average, model.stream), WEFT_ERR_STATE);
    CHECK_TEXT(weft_error_text(), "step 0 has been posted and not been waited for");
    CHECK_STATUS(weft_group_average_step_on(average, model.stream), WEFT_ERR_STATE);
    OK(weft_group_average_wait_on(average, model.stream));
    OK(weft_group_average_wait_on(average, model.stream)); /* as often as it likes */
    OK(weft_group_average_wait(average, NULL));
    OK(weft_group_average_destroy(average));
    model_free(&model);
    alone_destroy(&alone);
    device_check();
}

Test(average_faults, a_device_that_is_not_there_is_told, .timeout = 300)
{
    struct weft_context_config settings;
    struct weft_group_average_config config;
    struct weft_local *local;
    struct weft_context *context;
    weft_context_config_init(&settings);
    settings.progress = WEFT_PROGRESS_HELPER;
    settings.device = "cuda:99";
    OK(weft_local_create(&local, 1, NULL));
    OK(weft_context_create_local(&context, local, 0, &settings));
    weft_group_average_config_init(&config);
    config.memory = WEFT_MEMORY_DEVICE;
    refused(context, &config, WEFT_ERR_INVALID, "device is cuda:99, expected one of cuda:0 to");
    weft_context_destroy(context);
    weft_local_destroy(local);
}

/* ---- what it takes ---- */

static int count_streams(struct job *job, struct weft_context *context, int rank)
{
    const struct standin *standin = standin_find();
    struct model model;
    struct weft_group_average *average = NULL;
    OK(weft_context_device(context, NULL));
    model_make(&model, &job->config, rank);
    model_set(&model, 0);
    model_put(&model);
    meet(job);
    unsigned long before = standin->calls_of("cuStreamCreate");
    meet(job);
    OK(weft_group_average_create(&average, context, &model.config));
    meet(job);
    /* Of all versions, of what is loaded, mixed, and waited for. */
    CHECK(standin->calls_of("cuStreamCreate") - before == 4 * (unsigned long)job->ranks);
    CHECK(average->plan_count > 1);
    meet(job);
    OK(weft_group_average_destroy(average));
    model_free(&model);
    return WEFT_OK;
}

Test(average_faults, versions_have_one_stream, .timeout = 300)
{
    struct job job = new_job(count_streams);
    if (!standin_find()->there)
        cr_skip_test("a driver does not count");
    job.config.group_size = 3;
    run_job(&job, 5);
}
