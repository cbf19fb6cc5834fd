/* SPDX-License-Identifier: BSD-3-Clause */
/* Work on devices that objects wait for. */
#include "schedules/objects/device.h"

#define LOOK_AGAIN_NS UINT64_C(20000)

static int call(struct weft_call *call, void *stream)
{
    struct weft__device_work *work = call->user;
    return work->function(work->user, stream);
}

/* What it works on is the function's affair; the slot says that it is on the device. */
static int make_plan(struct weft__device_work *work, struct weft_plan **plan)
{
    struct weft_schedule *schedule;
    struct weft_op_config op;
    weft_op_config_init(&op);
    op.name = "work";
    op.device = call;
    op.user = work;
    int status = weft_op_create(&work->op, &op);
    if (!status)
        status = weft_schedule_create(&schedule, 0, 1);
    if (status)
        return status;
    weft_slot_t here = weft_schedule_add_slot(schedule, "here", WEFT_U8, 1, WEFT_SLOT_SCRATCH);
    struct weft_compute_argument argument = {weft_region_at(here, 0, 1), WEFT_WRITE};
    weft_schedule_set_memory(schedule, here, WEFT_MEMORY_DEVICE);
    weft_schedule_set_name(schedule, "device-work");
    weft_schedule_add_compute(schedule, work->op, &argument, 1, 0);
    status = weft_schedule_commit(schedule, plan);
    weft_schedule_destroy(schedule);
    return status;
}

int weft__device_work_make(struct weft__device_work *work, struct weft_context *context,
                           struct weft_object *object)
{
    struct weft_run_config config;
    struct weft_plan *plan = NULL;
    void *found = NULL;
    weft_run_config_init(&config);
    config.local_only = 1;
    config.object = object;
    work->context = context;
    int status = make_plan(work, &plan);
    if (!status)
        status = weft_run_create(&work->run, context, plan, &config);
    if (!status)
        status = weft_context_device_alloc(context, WEFT_MEMORY_HOST, sizeof *work->found, &found);
    work->found = found;
    weft_plan_destroy(plan);
    return status;
}

void weft__device_work_free(struct weft__device_work *work)
{
    weft_run_destroy(work->run);
    weft_op_destroy(work->op);
    weft_context_device_free(work->context, work->found);
}

int weft__device_execute(struct weft_context *context, struct weft_run *run)
{
    int status = weft_run_execute(run);
    while (weft_run_reclaim(run) == WEFT_IN_PROGRESS)
        weft_context_sleep(context, LOOK_AGAIN_NS);
    return status;
}

int weft__device_do(struct weft__device_work *work, int (*function)(void *user, void *stream),
                    void *user)
{
    work->function = function;
    work->user = user;
    return weft__device_execute(work->context, work->run);
}

struct weft_argument weft__vector(const void *data, size_t count, weft_dtype_t dtype)
{
    return (struct weft_argument){.data = (void *)(uintptr_t)data, .count = count, .dtype = dtype};
}

struct weft_argument weft__vector_of(const struct weft_piece *tensors, size_t tensor_count,
                                     size_t count, weft_dtype_t dtype)
{
    return (struct weft_argument){
        .count = count, .dtype = dtype, .pieces = tensors, .piece_count = tensor_count};
}

struct look {
    const struct weft__model *model;
    struct weft_device_found *found;
};

static int look(void *user, void *stream)
{
    const struct look *look = user;
    const struct weft__model *model = look->model;
    struct weft_argument tensors =
        weft__vector_of(model->tensors, model->tensor_count, model->count, model->dtype);
    const struct weft_device_term term = {.vector = &tensors, .flags = WEFT_DEVICE_COUNT};
    struct weft_device_sum sum;
    weft_device_sum_init(&sum);
    sum.terms = &term;
    sum.term_count = 1;
    sum.found = look->found;
    return weft_device_combine(&sum, stream);
}

int weft__device_look(struct weft__device_work *work, const struct weft__model *model,
                      struct weft__bad *bad)
{
    struct look looks = {model, work->found};
    *work->found = (struct weft_device_found){.first = UINT64_MAX};
    int status = weft__device_do(work, look, &looks);
    if (status || !work->found->count)
        return status;
    bad->count = work->found->count;
    bad->tensor = weft__tensor_at(model->tensors, work->found->first);
    return WEFT_OK;
}

void weft__run_drain(struct weft_context *context, struct weft_run *run)
{
    if (weft_run_version(run) == UINT64_MAX)
        return; /* it was never started */
    weft_run_cancel(run);
    weft_run_wait(run, WEFT_NEVER);
    while (weft_run_reclaim(run) == WEFT_IN_PROGRESS)
        weft_context_sleep(context, LOOK_AGAIN_NS);
}
