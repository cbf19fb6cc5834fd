/* SPDX-License-Identifier: BSD-3-Clause */
/* What functions of the API are called with in the test of its rules. */
#ifndef WEFT_TESTS_API_FIXTURE_H
#define WEFT_TESTS_API_FIXTURE_H

#include <criterion/criterion.h>
#include <stddef.h>
#include <stdlib.h>
#include <unistd.h>

#include "tests/support/ranks.h"

#define API_TEXT "weft 1\nschedule \"api\" size 1\nrank 0 {\n}\n"
#define API_REFUSED_TEXT                                                                           \
    "weft 1\nschedule \"api\" size 2\nrank 0 {\ninout a i32 4\nsend a to 7\n}\n"

static struct api {
    struct weft_local *local;
    struct weft_context *context;
    struct weft_local *more; /* a group of two whose contexts a test makes */
    struct weft_schedule *schedule;
    struct weft_schedule *open; /* to be built on */
    const struct weft_schedule *schedules[1];
    struct weft_plan *plan;
    struct weft_check_report *report; /* of a fault */
    struct weft_trace *trace;
    struct weft_merge_cost merge_cost;
    struct weft_merge_plan *merge; /* of one layer */
    struct weft_net net;
    struct weft_cost_model cost;
    char folder[64];
    char path[128]; /* of a file of costs */
    float values[8];
    struct weft_argument vector; /* of these */
    struct weft_device_term terms[1];
    float residual[8];
    unsigned char codes[64]; /* of the values, quantised */
    uint32_t indices[2];
    float magnitudes[2];
    struct weft_sparse list;
    uint32_t out_indices[16];
    float out_values[16];
    struct weft_sparse out;
} api;

static struct weft_sparse *api_pairs(void)
{
    api.out = (struct weft_sparse){.indices = api.out_indices,
                                   .values = api.out_values,
                                   .capacity = 16,
                                   .index_dtype = WEFT_U32,
                                   .dtype = WEFT_F32};
    return &api.out;
}

static int api_done(void *user)
{
    (void)user;
    return 1;
}

static int api_rank(struct weft_context *context, void *user)
{
    (void)context;
    (void)user;
    return WEFT_OK;
}

static int api_reduce(void *user, void *dst, const void *a, const void *b, size_t count,
                      weft_dtype_t dtype)
{
    (void)user;
    (void)dst;
    (void)a;
    (void)b;
    (void)count;
    (void)dtype;
    return WEFT_OK;
}

/* No version of a series ever starts. */
static int api_arm(void *user, struct weft_series *series, struct weft_series_arm *arm)
{
    (void)user;
    (void)series;
    (void)arm;
    return WEFT_IN_PROGRESS;
}

static int api_create_local(const struct weft_context_config *config)
{
    struct weft_local *local = NULL;
    struct weft_context *context = NULL;
    int status;

    OK(weft_local_create(&local, 1, NULL));
    status = weft_context_create_local(&context, local, 0, config);
    OK(weft_context_destroy(context));
    weft_local_destroy(local);
    return status;
}

static int api_create_shared(const struct weft_context_config *config,
                             const struct weft_shared_config *given)
{
    struct weft_shared_config standard;
    struct weft_context *context = NULL;
    int status;

    weft_shared_config_init(&standard);
    standard.name = "api";
    status = weft_context_create_shared(&context, 0, 1, config, given ? given : &standard);
    OK(weft_context_destroy(context));
    return status;
}

static int api_add_result(const struct weft_result *result)
{
    struct weft_schedule *schedule = new_schedule(0, 1);
    int status;

    weft_schedule_add_slot(schedule, "data", WEFT_I32, 4, WEFT_SLOT_INOUT);
    status = weft_schedule_add_result(schedule, result);
    cr_expect_eq(weft_schedule_status(schedule), status);
    weft_schedule_destroy(schedule);
    return status;
}

static int api_add_part(const struct weft_part_config *config)
{
    struct weft_schedule *schedule = new_schedule(0, 1), *part = new_schedule(0, 1);
    int status;

    weft_schedule_add_join(part);
    status = weft_schedule_add_part(schedule, part, WEFT_NODE_NONE, config);
    cr_expect_eq(weft_schedule_status(schedule), status < 0 ? status : WEFT_OK);
    weft_schedule_destroy(schedule);
    weft_schedule_destroy(part);
    return status < 0 ? status : WEFT_OK;
}

static int api_add_joint(const struct weft_joint *joint, int which)
{
    struct weft_schedule *schedule = new_schedule(0, 1);
    const struct weft_region data = weft_region_at(0, 0, 4);
    int status;

    weft_schedule_add_slot(schedule, "data", WEFT_I32, 4, WEFT_SLOT_INOUT);
    status = which < 0    ? weft_schedule_add_joint(schedule, joint, &data, NULL)
             : which == 0 ? weft_schedule_nccl_allgather(schedule, data, data, joint)
             : which == 1 ? weft_schedule_nccl_allreduce(schedule, WEFT_SUM, data, data, joint)
             : which == 2 ? weft_schedule_nccl_broadcast(schedule, data, 0, joint)
             : which == 3
                 ? weft_schedule_nccl_reduce(schedule, WEFT_SUM, data, data, 0, joint)
                 : weft_schedule_nccl_reduce_scatter(schedule, WEFT_SUM, data, data, joint);
    cr_expect_eq(weft_schedule_status(schedule), status < 0 ? status : WEFT_OK);
    weft_schedule_destroy(schedule);
    return status < 0 ? status : WEFT_OK;
}

static int api_read(const struct weft_read_options *options, const char *text)
{
    struct weft_schedule **schedules = NULL;
    size_t count = 0;
    int status = weft_schedule_read_with(text, strlen(text), options, &schedules, &count);

    for (size_t i = 0; i < count; i++)
        weft_schedule_destroy(schedules[i]);
    weft_memory_free((void *)schedules);
    return status;
}

static int api_write_goal(const struct weft_goal_options *options)
{
    char *text = NULL;
    size_t length;
    int status = weft_schedule_write_goal(api.schedules, 1, options, &text, &length);

    weft_memory_free(text);
    return status;
}

static int api_allocate(void **memory)
{
    void *made = weft_memory_alloc(1, 8);

    if (!made)
        return WEFT_ERR_MEMORY;
    *memory = made;
    return WEFT_OK;
}

static int api_allocate_in_context(void **memory)
{
    void *made = weft_context_memory_alloc(api.context, 1, 8);

    if (!made)
        return WEFT_ERR_MEMORY;
    *memory = made;
    return WEFT_OK;
}

static int api_allocate_on_device(void **memory)
{
    int status = weft_context_device_alloc(api.context, WEFT_MEMORY_DEVICE, 8, memory);

    if (status != WEFT_ERR_UNSUPPORTED)
        return status;
    *memory = NULL;
    return WEFT_OK;
}

static int api_make_op(struct weft_op **op)
{
    const struct weft_op_config config = {
        .struct_size = sizeof config, .name = "api", .reduce = api_reduce};

    return weft_op_create(op, &config);
}

static int api_make_series(struct weft_series **series)
{
    const struct weft_series_config config = {
        .struct_size = sizeof config, .plans = &api.plan, .plan_count = 1, .arm = api_arm};

    return weft_series_create(series, api.context, &config);
}

static int api_simulate(struct weft_sim_result **result)
{
    const struct weft_sim_config config = {
        .struct_size = sizeof config, .ranks = 1, .schedules = api.schedules};

    return weft_simulate(&config, result);
}

/* The first of a group of its own: each rank is made once. */
static int api_make_context(struct weft_context **context)
{
    int status;

    weft_local_destroy(api.more);
    api.more = NULL;
    status = weft_local_create(&api.more, 2, NULL);
    return status ? status : weft_context_create_local(context, api.more, 0, NULL);
}

/* Objects on the context, with tensors where they must have one. */
#define AVERAGE(name, ...)                                                                         \
    static const struct name##_config *api_default_##name##_config(void)                           \
    {                                                                                              \
        static const struct weft_piece tensor = {api.values, 8};                                   \
        static const struct name##_config config = {                                               \
            .struct_size = sizeof config, .tensors = &tensor, .tensor_count = 1, __VA_ARGS__};     \
        return &config;                                                                            \
    }                                                                                              \
    static struct name *api_##name(void)                                                           \
    {                                                                                              \
        struct name *average = NULL;                                                               \
        OK(name##_create(&average, api.context, api_default_##name##_config()));                   \
        return average;                                                                            \
    }

AVERAGE(weft_gossip, .neighbours = 0)
AVERAGE(weft_pair_average, .seed = 1)
AVERAGE(weft_gradients, .measure_steps = 1)
AVERAGE(weft_group_average, .seed = 1)
AVERAGE(weft_compressed_average, .method = WEFT_COMPRESSED_QSGD)
AVERAGE(weft_server, .gradients = &tensor)
AVERAGE(weft_sparse_average, .scope = WEFT_SPARSE_TENSOR, .k = 2)

static int api_report(struct weft_group_average *average, uint64_t timeout_ns)
{
    char *text = NULL;
    int status = weft_group_average_report(average, timeout_ns, &text);

    weft_memory_free(text);
    return status;
}

static void make_schedule(void)
{
    struct weft_schedule *s = new_schedule(0, 1);
    weft_slot_t data = weft_schedule_add_slot(s, "data", WEFT_I32, 4, WEFT_SLOT_INOUT);
    const struct weft_result result = {.struct_size = sizeof result,
                                       .dst = weft_region_at(data, 0, 4),
                                       .from = "data",
                                       .ranks = 1};

    weft_schedule_add_value(s, "value", 4);
    weft_schedule_add_event(s, WEFT_CHANNEL_NONE);
    OK(weft_schedule_add_result(s, &result));
    api.schedules[0] = api.schedule = s;
    OK(weft_schedule_commit(s, &api.plan));
}

/* Two nodes that race for a slot. */
static void make_report(void)
{
    struct weft_schedule *s = new_schedule(0, 1);
    const struct weft_schedule *all[] = {s};
    weft_slot_t a = weft_schedule_add_slot(s, "a", WEFT_I32, 4, WEFT_SLOT_INOUT);
    weft_slot_t b = weft_schedule_add_slot(s, "b", WEFT_I32, 4, WEFT_SLOT_INOUT);

    weft_schedule_add_copy(s, weft_region_at(a, 0, 4), weft_region_at(b, 0, 4));
    weft_schedule_add_copy(s, weft_region_at(a, 0, 4), weft_region_at(b, 0, 4));
    OK(weft_check(all, 1, NULL, &api.report));
    CHECK(weft_check_report_fault_count(api.report) > 0);
    weft_schedule_destroy(s);
}

static void api_begin(void)
{
    const struct weft_trace_span span = {.struct_size = sizeof span};
    struct alone alone = alone_create(WEFT_PROGRESS_HELPER);

    memset(&api, 0, sizeof api);
    api.local = alone.local;
    api.context = alone.context;
    OK(weft_local_create(&api.more, 2, NULL));
    make_schedule();
    make_report();
    api.open = new_schedule(0, 1);
    weft_merge_cost_init(&api.merge_cost);
    OK(weft_merge_plan_create(&api.merge, &(const struct weft_merge_layer){4, 1}, 1,
                              &api.merge_cost, NULL));
    OK(weft_trace_create(&api.trace));
    OK(weft_trace_add(api.trace, &span));
    weft_net_init(&api.net);
    weft_cost_model_init(&api.cost, "local");
    snprintf(api.folder, sizeof api.folder, "/tmp/weft-rules-XXXXXX");
    CHECK(mkdtemp(api.folder));
    snprintf(api.path, sizeof api.path, "%s/cost", api.folder);
    OK(weft_cost_model_write(api.path, "local", &api.cost, &api.net, 0));
    for (int i = 0; i < 8; i++)
        api.values[i] = (float)(i + 1);
    for (int i = 0; i < 2; i++) {
        api.indices[i] = (uint32_t)i;
        api.magnitudes[i] = (float)(i + 1);
    }
    api.vector = (struct weft_argument){.data = api.values, .count = 8, .dtype = WEFT_F32};
    api.terms[0] = (struct weft_device_term){.vector = &api.vector};
    api.list = (struct weft_sparse){.indices = api.indices,
                                    .values = api.magnitudes,
                                    .count = 2,
                                    .capacity = 2,
                                    .index_dtype = WEFT_U32,
                                    .dtype = WEFT_F32};
}

static void api_end(void)
{
    weft_check_report_destroy(api.report);
    weft_plan_destroy(api.plan);
    weft_schedule_destroy(api.schedule);
    weft_schedule_destroy(api.open);
    weft_merge_plan_destroy(api.merge);
    weft_trace_destroy(api.trace);
    OK(weft_context_destroy(api.context));
    weft_local_destroy(api.local);
    weft_local_destroy(api.more);
    unlink(api.path);
    rmdir(api.folder);
}

#endif
