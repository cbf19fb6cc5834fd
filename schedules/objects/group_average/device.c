/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Group averaging of models that are memory of a device. Buffers are there, too, and what the
 * processor does to tensors elsewhere is put on streams here, by two runs of this rank alone:
 *
 *     load    tensors -> a free buffer     mend: of a gradient that is not finite nothing is left
 *             when it has ended: published, and the step has arrived
 *     mix     known -> the result of the step goes to the tensors
 *
 * A thread starts them and waits; or a stream does:
 *
 *     the user's stream    compute    post_on    compute      wait_on             compute
 *     load                            load            |       .                   ^
 *     engine                              published,  |       |                   |
 *                                         activated ... version ended: known      |
 *     mix                                                     mix ----------------+
 *
 * Which buffers they work on is chosen when they begin, in the functions that put the work on the
 * device: the engine calls these, as all callbacks, by one thread at a time. While a gradient is
 * added to what is pending no version takes that (`folds`), or it would count twice; the host loads
 * again instead, but the tensors are the stream's by then.
 */
#include <stdio.h>
#include <string.h>

#include <weft/cuda.h>

#include "schedules/objects/group_average/group_average.h"

/* ---- what is put on streams ---- */

static struct weft_argument tensors_of(const struct weft_group_average *average)
{
    return weft__vector_of(average->tensors, average->config.tensor_count, average->count,
                           average->config.dtype);
}

static struct weft_argument buffer_of(const struct weft_group_average *average, const void *data)
{
    return weft__vector(data, average->count, average->work);
}

/* buffer = tensors, or base + tensors; flags: of the tensors. */
static int put_load(const struct weft_group_average *average, void *buffer, const void *base,
                    unsigned flags, void *stream)
{
    struct weft_argument tensors = tensors_of(average), to = buffer_of(average, buffer);
    struct weft_argument added = buffer_of(average, base);
    struct weft_device_term terms[2] = {{.vector = &added}};
    struct weft_device_sum sum;
    size_t count = base ? 1 : 0;
    terms[count++] = (struct weft_device_term){.vector = &tensors, .flags = flags};
    weft_device_sum_init(&sum);
    sum.to = &to;
    sum.terms = terms;
    sum.term_count = count;
    sum.found = average->device->work.found;
    return weft_device_combine(&sum, stream);
}

static int put_combine(const struct weft_group_average *average, void *to, double scale,
                       const void *from, double by, void *stream)
{
    struct weft_argument target = buffer_of(average, to), source = buffer_of(average, from);
    const struct weft_device_term terms[] = {{&target, scale, 0}, {&source, by, 0}};
    struct weft_device_sum sum;
    weft_device_sum_init(&sum);
    sum.to = &target;
    sum.terms = terms;
    sum.term_count = 2;
    return weft_device_combine(&sum, stream);
}

static int put_zero(const struct weft_argument *to, void *stream)
{
    static const double zero;
    return weft_device_fill(to, &zero, stream);
}

/* As mix() of convert.c. */
static int put_mix(const struct weft_group_average *average, const struct weft__average_mix *mix,
                   void *stream)
{
    struct weft_argument tensors = tensors_of(average), total = buffer_of(average, mix->sum);
    struct weft_argument own = buffer_of(average, mix->own);
    struct weft_argument posted = buffer_of(average, mix->posted);
    struct weft_device_term terms[3] = {{.vector = &total}};
    struct weft_device_sum sum;
    weft_device_sum_init(&sum);
    sum.to = &tensors;
    sum.terms = terms;
    sum.term_count = 1;
    if (mix->stale && mix->own)
        terms[sum.term_count++] = (struct weft_device_term){.vector = &own, .factor = -1};
    if (mix->stale)
        terms[sum.term_count++].vector = mix->posted ? &posted : &tensors;
    sum.divisor = mix->divisor;
    if (mix->posted) {
        sum.less = &posted;
        sum.adds = 1;
    }
    return weft_device_combine(&sum, stream);
}

int weft__average_divide_there(struct weft_call *call, void *stream)
{
    const struct weft_device_term term = {.vector = &call->arguments[0]};
    struct weft_device_sum sum;
    weft_device_sum_init(&sum);
    sum.to = &call->arguments[0];
    sum.terms = &term;
    sum.term_count = 1;
    sum.divisor = call->size;
    return weft_device_combine(&sum, stream);
}

/* ---- work that is waited for, when nothing else goes on ---- */

struct job {
    const struct weft_group_average *average;
    void *to;
    const void *from;
    double scale, by;
};

static int do_load(void *user, void *stream)
{
    const struct job *job = user;
    return put_load(job->average, job->to, NULL, 0, stream);
}

static int do_combine(void *user, void *stream)
{
    const struct job *job = user;
    return put_combine(job->average, job->to, job->scale, job->from, job->by, stream);
}

static int do_clear(void *user, void *stream)
{
    const struct job *job = user;
    struct weft_argument to = buffer_of(job->average, job->to);
    return put_zero(&to, stream);
}

int weft__average_device_load(struct weft_group_average *average, void *buffer)
{
    struct job job = {.average = average, .to = buffer};
    return weft__device_do(&average->device->work, do_load, &job);
}

int weft__average_device_combine(struct weft_group_average *average, void *to, double scale,
                                 const void *from, double by)
{
    struct job job = {average, to, from, scale, by};
    return weft__device_do(&average->device->work, do_combine, &job);
}

int weft__average_device_clear(struct weft_group_average *average, void *buffer)
{
    struct job job = {.average = average, .to = buffer};
    return weft__device_do(&average->device->work, do_clear, &job);
}

/* ---- loading ---- */

static int load(struct weft_call *call, void *stream)
{
    static const unsigned flags[] = {[WEFT_NAN_ERROR] = WEFT_DEVICE_COUNT,
                                     [WEFT_NAN_ZERO] = WEFT_DEVICE_COUNT | WEFT_DEVICE_CLEAR,
                                     [WEFT_NAN_SPREAD] = 0};
    struct weft_group_average *average = call->user;
    struct weft__average_device *device = average->device;
    weft__average_begin_loading(average);
    int base = average->loading.base;
    atomic_store(&device->folds, base >= 0);
    *device->work.found = (struct weft_device_found){.first = UINT64_MAX};
    return put_load(average, average->buffers[average->loading.to].data,
                    base >= 0 ? average->buffers[base].data : NULL, flags[average->config.nan],
                    stream);
}

/* The engine comes here when the load has been done: what it has found is known. */
static int see(struct weft_call *call)
{
    (void)call;
    return WEFT_OK;
}

/* Of a gradient that is not finite what was pending before is left, or zero. */
static int mend(struct weft_call *call, void *stream)
{
    const struct weft_group_average *average = call->user;
    int base = average->loading.base;
    struct weft_argument to = buffer_of(average, average->buffers[average->loading.to].data);
    struct weft_argument from = buffer_of(average, base >= 0 ? average->buffers[base].data : NULL);
    if (!average->device->work.found->count)
        return WEFT_OK;
    return base >= 0 ? weft_device_copy(&to, &from, stream) : put_zero(&to, stream);
}

/* A run that was not cancelled has failed: that is a failure of all. */
static void fail(struct weft_group_average *average, const struct weft_run *run, int status)
{
    if (status != WEFT_ERR_CANCELLED)
        weft_object_fail(average->object, status, weft_run_error(run));
}

static void load_ended(void *user, struct weft_run *run, int status)
{
    struct weft_group_average *average = user;
    struct weft__average_device *device = average->device;
    const struct weft_device_found *found = device->work.found;
    if (status) {
        fail(average, run, status);
        return;
    }
    average->bad = (struct weft__bad){.count = found->count};
    if (found->count)
        average->bad.tensor = weft__tensor_at(average->tensors, found->first);
    int takes = weft__average_end_loading(average, device->step);
    atomic_store(&device->folds, 0);
    atomic_store_explicit(&device->loads, takes ? WEFT__LOADS_PUBLISHED : WEFT__LOADS_REFUSED,
                          memory_order_release);
    if (takes)
        weft__average_arrive(average, device->step);
    /* A version may have waited for it, or have ended before. */
    weft_series_poke(average->versions);
}

/* ---- mixing ---- */

static int mix(struct weft_call *call, void *stream)
{
    struct weft_group_average *average = call->user;
    struct weft__average_device *device = average->device;
    const struct weft__average_taking *taking = &average->taking;
    struct weft_argument tensors = tensors_of(average);
    int status = WEFT_OK;
    if (atomic_load(&device->loads) == WEFT__LOADS_REFUSED)
        return WEFT_OK;
    weft__average_choose(average, device->step, device->difference);
    device->mixed = 1;
    if (taking->carries != 0) /* nobody else reads the sum */
        status = put_combine(average, average->buffers[taking->sum.buffer].data, 1,
                             average->carried, taking->carries, stream);
    if (!status && taking->mixes)
        return put_mix(average, &taking->mix, stream);
    return !status && taking->clears ? put_zero(&tensors, stream) : status;
}

static void mix_ended(void *user, struct weft_run *run, int status)
{
    struct weft_group_average *average = user;
    struct weft__average_device *device = average->device;
    if (status) {
        fail(average, run, status);
        return;
    }
    if (device->mixed)
        weft__average_taken(average, &device->got);
    atomic_store_explicit(&device->mixes, WEFT__MIXES_ENDED, memory_order_release);
}

/* Tells a mix that waits for it that the step's version has ended. */
void weft__average_device_look(struct weft_group_average *average, uint64_t ended)
{
    struct weft__average_device *device = average->device;
    int waits = WEFT__MIXES;
    if (!device || atomic_load_explicit(&device->mixes, memory_order_acquire) != waits)
        return;
    int loads = atomic_load_explicit(&device->loads, memory_order_acquire);
    if ((loads == WEFT__LOADS_PUBLISHED && ended > device->step) || loads == WEFT__LOADS_REFUSED)
        if (atomic_compare_exchange_strong(&device->mixes, &waits, WEFT__MIXES_KNOWN))
            weft_run_fire(device->mix, device->known);
}

/* ---- making ---- */

enum { OP_LOAD, OP_SEE, OP_MEND, OP_MIX, OPS };

_Static_assert((int)OPS <= (int)WEFT__AVERAGE_OPS, "operations of models on devices");

static int make_ops(struct weft_group_average *average)
{
    static const struct {
        const char *name;
        weft_compute_fn compute;
        weft_device_fn device;
    } functions[OPS] = {
        [OP_LOAD] = {"load", NULL, load},
        [OP_SEE] = {"see", see, NULL},
        [OP_MEND] = {"mend", NULL, mend},
        [OP_MIX] = {"mix", NULL, mix},
    };
    int status = WEFT_OK;
    for (int i = 0; i < OPS && !status; i++) {
        struct weft_op_config op;
        weft_op_config_init(&op);
        op.name = functions[i].name;
        op.compute = functions[i].compute;
        op.device = functions[i].device;
        op.user = average;
        status = weft_op_create(&average->device->ops[i], &op);
    }
    return status;
}

static weft_node_t call_after(struct weft_schedule *schedule,
                              const struct weft_group_average *average, int op,
                              const struct weft_compute_argument *argument, weft_node_t before)
{
    weft_node_t node = weft_schedule_add_compute(schedule, average->device->ops[op], argument,
                                                 argument ? 1 : 0, 0);
    if (before >= 0)
        weft_schedule_add_order(schedule, before, node);
    return node;
}

static void build_load(struct weft_group_average *average, struct weft_schedule *schedule,
                       weft_slot_t tensors)
{
    struct weft_compute_argument read = {weft_region_at(tensors, 0, average->count), WEFT_READ};
    weft_node_t node = call_after(schedule, average, OP_LOAD, &read, -1);
    if (average->config.contribution != WEFT_AVERAGE_ACCUMULATE ||
        average->config.nan != WEFT_NAN_ERROR)
        return;
    node = call_after(schedule, average, OP_SEE, NULL, node);
    call_after(schedule, average, OP_MEND, &read, node);
}

static void build_mix(struct weft_group_average *average, struct weft_schedule *schedule,
                      weft_slot_t tensors)
{
    struct weft_compute_argument write = {weft_region_at(tensors, 0, average->count), WEFT_UPDATE};
    average->device->known = weft_schedule_add_event(schedule, WEFT_CHANNEL_NONE);
    call_after(schedule, average, OP_MIX, &write, average->device->known);
}

static int make_run(struct weft_group_average *average, struct weft_run **run, const char *name,
                    int loads)
{
    struct weft_run_config config;
    struct weft_schedule *schedule;
    struct weft_plan *plan = NULL;
    int status = weft_schedule_create(&schedule, 0, 1);
    if (status)
        return status;
    weft_run_config_init(&config);
    config.local_only = 1;
    config.object = average->object; /* with which it goes; what fails that cancels it */
    config.ended = loads ? load_ended : mix_ended;
    config.user = average;
    weft_schedule_set_name(schedule, name);
    weft_slot_t tensors =
        weft_schedule_add_slot(schedule, "tensors", average->config.dtype, average->count,
                               loads ? WEFT_SLOT_INPUT : WEFT_SLOT_INOUT);
    weft_schedule_set_memory(schedule, tensors, WEFT_MEMORY_DEVICE);
    (loads ? build_load : build_mix)(average, schedule, tensors);
    status = weft_schedule_commit(schedule, &plan);
    weft_schedule_destroy(schedule);
    if (!status)
        status = weft_run_create(run, average->context, plan, &config);
    if (!status)
        status = weft_run_bind_list(*run, tensors, average->tensors, average->config.tensor_count,
                                    average->config.dtype);
    weft_plan_destroy(plan);
    return status;
}

int weft__average_make_device(struct weft_group_average *average)
{
    struct weft__average_device *device = average->device;
    int status = weft__device_work_make(&device->work, average->context, average->object);
    if (!status)
        status = make_ops(average);
    if (!status)
        status = make_run(average, &device->load, "group-average-load", 1);
    if (!status)
        status = make_run(average, &device->mix, "group-average-mix", 0);
    if (!status)
        atomic_store_explicit(&average->device_made, 1, memory_order_release);
    return status;
}

void weft__average_free_device(struct weft_group_average *average)
{
    struct weft__average_device *device = average->device;
    if (!device)
        return;
    weft_run_destroy(device->load);
    weft_run_destroy(device->mix);
    for (int i = 0; i < OPS; i++)
        weft_op_destroy(device->ops[i]);
    weft__device_work_free(&device->work);
    weft_memory_free(device);
    average->device = NULL;
}

void weft__average_failed(void *user, struct weft_object *object, int status)
{
    struct weft_group_average *average = user;
    (void)object;
    (void)status;
    if (!atomic_load_explicit(&average->device_made, memory_order_acquire))
        return;
    weft_run_cancel(average->device->load);
    weft_run_cancel(average->device->mix);
}

/* ---- steps: what threads call ---- */

/* What has been started on a stream waits for it, and the stream for that. It may have failed
 * before it could be cancelled with the object. */
static int hold(const struct weft_group_average *average, struct weft_run *run,
                struct CUstream_st *stream, const char *who)
{
    int failed = weft_object_check(average->object, who);
    if (!failed)
        return weft_run_wait_on(run, stream);
    weft_run_cancel(run);
    return failed;
}

/* A load that could not be begun, or held: if it has ended all the same it has been posted. */
static int undo(struct weft_group_average *average, int status, const char *who)
{
    struct weft__average_device *device = average->device;
    char text[512];
    snprintf(text, sizeof text, "%s", weft_error_text());
    weft__run_drain(average->context, device->load);
    if (atomic_load(&device->loads) != WEFT__LOADS)
        return WEFT_OK;
    weft__average_device_stop(average);
    int failed = weft_object_check(average->object, who);
    return failed ? failed : weft_error_set(status, "%s", text);
}

int weft__average_device_post(struct weft_group_average *average,
                              const struct weft__average_begin *begins)
{
    struct weft__average_device *device = average->device;
    device->step = average->next;
    device->mixed = 0;
    atomic_store(&device->loads, WEFT__LOADS);
    int status = begins->on_stream ? weft_run_start_on(device->load, begins->stream)
                                   : weft_run_start(device->load);
    if (!status && !begins->on_stream)
        status = weft_run_wait(device->load, WEFT_NEVER);
    else if (!status && begins->step == WEFT__STEP_POSTED)
        status = hold(average, device->load, begins->stream, begins->who);
    if (status)
        return undo(average, status, begins->who);
    if (begins->on_stream || atomic_load(&device->loads) != WEFT__LOADS_REFUSED)
        return WEFT_OK;
    atomic_store(&device->loads, WEFT__LOADS_NONE);
    return weft__bad_refuse(begins->who, average->next, &average->bad);
}

int weft__average_device_await(struct weft_group_average *average, uint64_t began, const char *who)
{
    struct weft__average_device *device = average->device;
    if (atomic_load(&device->loads) != WEFT__LOADS)
        return WEFT_OK;
    int status = weft_run_wait(device->load, weft__average_left(average, began));
    if (status == WEFT_IN_PROGRESS && atomic_load(&device->loads) != WEFT__LOADS)
        status = weft_run_wait(device->load, WEFT_NEVER); /* only its callback is to return */
    return status == WEFT_IN_PROGRESS
               ? weft__average_late_stream(average, who, "the beginning", began)
               : status;
}

static int wait_for_mix(struct weft_group_average *average, uint64_t began, const char *who)
{
    struct weft__average_device *device = average->device;
    int status = weft_run_wait(device->mix,
                               device->on_stream ? weft__average_left(average, began) : WEFT_NEVER);
    if (status == WEFT_IN_PROGRESS && atomic_load(&device->mixes) == WEFT__MIXES_ENDED)
        status = weft_run_wait(device->mix, WEFT_NEVER); /* only its callback is to return */
    return status == WEFT_IN_PROGRESS ? weft__average_late_stream(average, who, "the end", began)
                                      : status;
}

static void forget(struct weft__average_device *device)
{
    device->on_stream = 0;
    atomic_store(&device->loads, WEFT__LOADS_NONE);
    atomic_store(&device->mixes, WEFT__MIXES_NONE);
}

int weft__average_device_refused(struct weft_group_average *average, uint64_t began,
                                 const char *who)
{
    struct weft__average_device *device = average->device;
    if (atomic_load(&device->loads) != WEFT__LOADS_REFUSED)
        return WEFT_OK;
    int status = atomic_load(&device->mixes) ? wait_for_mix(average, began, who) : WEFT_OK;
    if (status)
        return status;
    forget(device);
    average->step = WEFT__STEP_NONE;
    return weft__bad_refuse(who, average->next, &average->bad);
}

int weft__average_device_mix(struct weft_group_average *average, uint64_t began, const char *who)
{
    struct weft__average_device *device = average->device;
    int status = WEFT_OK;
    if (!atomic_load(&device->mixes)) {
        device->difference = average->step == WEFT__STEP_POSTED;
        status = weft_run_start(device->mix);
        if (!status) {
            atomic_store(&device->mixes, WEFT__MIXES_KNOWN);
            status = weft_run_fire(device->mix, device->known);
        }
    }
    if (status >= 0)
        status = wait_for_mix(average, began, who);
    if (!status)
        forget(device);
    return status;
}

int weft__average_device_waits(const struct weft_group_average *average)
{
    int mixes = atomic_load(&average->device->mixes);
    return atomic_load(&average->device->loads) == WEFT__LOADS ||
           (mixes && mixes != WEFT__MIXES_ENDED);
}

int weft__average_device_ended(struct weft_group_average *average)
{
    struct weft__average_device *device = average->device;
    int loads = atomic_load(&device->loads), mixes = atomic_load(&device->mixes);
    if (mixes)
        return mixes == WEFT__MIXES_ENDED;
    return loads == WEFT__LOADS_REFUSED || (loads == WEFT__LOADS_PUBLISHED &&
                                            weft_series_version(average->versions) > average->next);
}

int weft__average_device_stop(struct weft_group_average *average)
{
    struct weft__average_device *device = average->device;
    weft__run_drain(average->context, device->load);
    weft__run_drain(average->context, device->mix);
    int published = atomic_load(&device->loads) == WEFT__LOADS_PUBLISHED;
    int mixes = atomic_load(&device->mixes);
    if (atomic_load(&device->loads) == WEFT__LOADS)
        weft__average_drop_loading(average);
    if (mixes && mixes != WEFT__MIXES_ENDED && device->mixed) /* it has been done all the same */
        weft__average_taken(average, &device->got);
    forget(device);
    if (atomic_exchange(&device->folds, 0))
        weft_series_poke(average->versions);
    return published;
}

/* ---- steps on streams ---- */

#define REQUIRE(average)                                                                           \
    do {                                                                                           \
        if (!(average))                                                                            \
            return weft_error_set(WEFT_ERR_INVALID, "%s: argument `average` is NULL", __func__);   \
        if (!(average)->device)                                                                    \
            return weft_error_set(WEFT_ERR_STATE,                                                  \
                                  "%s: the tensors are memory of the host, expected memory of a "  \
                                  "device (config.memory = WEFT_MEMORY_DEVICE)",                   \
                                  __func__);                                                       \
    } while (0)

int weft_group_average_post_on(struct weft_group_average *average, struct CUstream_st *stream)
{
    REQUIRE(average);
    const struct weft__average_begin begins = {__func__, WEFT__STEP_POSTED, 1, stream};
    return weft__average_begin_step(average, &begins);
}

static int wait_on(struct weft_group_average *average, struct CUstream_st *stream, const char *who)
{
    struct weft__average_device *device = average->device;
    int status = weft__step_check_posted(who, average->step);
    if (!status && !atomic_load(&device->mixes)) {
        device->difference = average->step == WEFT__STEP_POSTED;
        status = weft_run_start_on(device->mix, stream);
        if (!status) {
            device->on_stream = 1;
            atomic_store_explicit(&device->mixes, WEFT__MIXES, memory_order_release);
            weft_series_poke(average->versions);
        }
    }
    return status ? status : hold(average, device->mix, stream, who);
}

int weft_group_average_wait_on(struct weft_group_average *average, struct CUstream_st *stream)
{
    REQUIRE(average);
    return wait_on(average, stream, __func__);
}

int weft_group_average_step_on(struct weft_group_average *average, struct CUstream_st *stream)
{
    REQUIRE(average);
    const struct weft__average_begin begins = {__func__, WEFT__STEP_BEGUN, 1, stream};
    int status = weft__average_begin_step(average, &begins);
    return status ? status : wait_on(average, stream, __func__);
}
