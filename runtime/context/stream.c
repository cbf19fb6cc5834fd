/* SPDX-License-Identifier: BSD-3-Clause */
/* Streams of the user: they start runs, fire events, and wait for runs. */
#include "runtime/context/context.h"

#include "runtime/base/error.h"
#include "runtime/engine/flight.h"
#include "runtime/engine/gate.h"

#include <weft/cuda.h>

/* The engine, for a thread that may be in one of its callbacks. */
static int enter(struct weft_context *context)
{
    int driving = weft__drives(context);

    if (!driving)
        weft__drive_lock(context);
    return !driving;
}

static void leave(struct weft_context *context, int locked)
{
    if (locked)
        weft__drive_unlock(context);
}

/* A gate that a stream will open. The run has a stream of its own, by which a device that fails is
 * noticed. */
static int give(struct weft_run *run, uint32_t node, uint64_t version, void *stream,
                struct weft__gate **out)
{
    struct weft__engine *engine = run->engine;
    struct weft__device *device;
    struct weft__gate *gate;
    int status = weft__context_device(run->context, &device);

    if (status == WEFT_OK && !run->flights)
        status = weft__flights_open(run, device);
    if (status != WEFT_OK)
        return status;
    gate = weft__gate_take(engine, device);
    if (!gate)
        return WEFT_ERR_MEMORY;
    gate->run = run;
    gate->node = node;
    gate->version = version;
    gate->ticket++;
    status = device->ops->write(device, stream, gate->word, gate->ticket);
    if (status != WEFT_OK) {
        gate->ticket--;
        weft__gate_give_back(engine, gate);
        return status;
    }
    *out = gate;
    return WEFT_OK;
}

int weft_run_start_on(struct weft_run *run, struct CUstream_st *stream)
{
    uint64_t version = 0;
    struct weft__gate *gate;
    int status = weft__run_check_start(__func__, run, &version, 0);
    int locked;

    if (status != WEFT_OK)
        return status;
    locked = enter(run->context);
    status = give(run, WEFT__NONE, version, stream, &gate);
    if (status == WEFT_OK) {
        weft__run_prepare(run, version);
        weft__gate_shut(run->engine, gate);
    }
    leave(run->context, locked);
    return status;
}

static int fire_on(const char *who, struct weft_run *run, weft_node_t event,
                   struct CUstream_st *stream)
{
    struct weft__gate *gate;
    int status;

    if (weft__run_idle(run))
        return weft__error(WEFT_ERR_STATE, "%s: the run of `%s` is not active", who,
                           run->plan->name);
    status = give(run, (uint32_t)event, run->version, stream, &gate);
    if (status == WEFT_OK)
        weft__gate_shut(run->engine, gate);
    return status;
}

int weft_run_fire_on(struct weft_run *run, weft_node_t event, struct CUstream_st *stream)
{
    int status, locked;

    if (!run)
        return WEFT__INVALID("%s: argument `run` is NULL", __func__);
    status = weft__check_event(run->plan, event, __func__);
    if (status != WEFT_OK)
        return status;
    locked = enter(run->context);
    status = fire_on(__func__, run, event, stream);
    leave(run->context, locked);
    return status;
}

static int wait_on(struct weft_run *run, struct CUstream_st *stream)
{
    struct weft__device *device;
    int status;

    if (weft__run_idle(run))
        return WEFT_OK;
    status = weft__context_device(run->context, &device);
    if (status == WEFT_OK)
        status = weft__hold_make(run, device);
    return status == WEFT_OK ? device->ops->hold(device, stream, run->hold->gate->word, run->starts)
                             : status;
}

int weft_run_wait_on(struct weft_run *run, struct CUstream_st *stream)
{
    int status, locked;

    if (!run)
        return WEFT__INVALID("%s: argument `run` is NULL", __func__);
    locked = enter(run->context);
    status = wait_on(run, stream);
    leave(run->context, locked);
    return status;
}
