/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * weft bench gpu: from the launch to the end of one node, as who waits for it sees it: by a run
 * that is started and waited for, and by one that a stream starts and waits for, with a helper that
 * drives. The peer is the driver's shortest piece of work, waited for on the same stream.
 */
#include "tools/bench/gpu.h"
#include "tools/cli/ranks.h"

#include <math.h>
#include <weft/cuda.h>

enum { CALLS = 200, WARM = 20 };

struct contest {
    struct gpu *gpu;
    struct weft_context *context;
    struct weft_run *run;
    float *data;
    int on_stream;
    struct bench_samples weft, peer;
};

/* One element is added to itself. */
static int open_run(struct contest *c)
{
    struct weft_schedule *s = NULL;
    struct weft_plan *plan = NULL;
    void *data;
    int status = weft_context_device_alloc(c->context, WEFT_MEMORY_DEVICE, sizeof *c->data, &data);

    if (status != WEFT_OK)
        return status;
    c->data = data;
    status = weft_schedule_create(&s, 0, 1);
    if (status == WEFT_OK) {
        weft_slot_t slot = weft_schedule_add_slot(s, "x", WEFT_F32, 1, WEFT_SLOT_INOUT);
        struct weft_region x = weft_region_at(slot, 0, 1);

        weft_schedule_set_memory(s, slot, WEFT_MEMORY_DEVICE);
        weft_schedule_add_reduce(s, weft_op_builtin(WEFT_SUM), x, x, x);
        status = weft_schedule_commit(s, &plan);
    }
    if (status == WEFT_OK)
        status = weft_run_create(&c->run, c->context, plan, NULL);
    if (status == WEFT_OK)
        status = weft_run_bind(c->run, 0, c->data, 1, WEFT_F32);
    weft_plan_destroy(plan);
    weft_schedule_destroy(s);
    return status;
}

static int weft_call(const struct contest *c)
{
    struct CUstream_st *stream = gpu_driver_stream(c->gpu->driver);
    int status;

    if (!c->on_stream)
        return weft_run_execute(c->run);
    status = weft_run_start_on(c->run, stream);
    if (status == WEFT_OK)
        status = weft_run_wait_on(c->run, stream);
    if (status == WEFT_OK)
        status = gpu_driver_wait(c->gpu->driver);
    /* The stream has been let go when the run had ended. */
    return status == WEFT_OK ? weft_run_wait(c->run, WEFT_NEVER) : status;
}

static int peer_call(const struct contest *c)
{
    int status = gpu_driver_touch(c->gpu->driver, c->data);

    return status == WEFT_OK ? gpu_driver_wait(c->gpu->driver) : status;
}

/* Microseconds of a call. */
static int turn(const struct contest *c, int (*call)(const struct contest *), double *us)
{
    int status = WEFT_OK;
    uint64_t start = 0;

    for (int i = -WARM; i < CALLS && status == WEFT_OK; i++) {
        if (i == 0)
            start = ranks_now();
        status = call(c);
    }
    *us = (double)(ranks_now() - start) * 1e-3 / CALLS;
    return status;
}

static int take_turns(struct contest *c)
{
    double us;
    int status = WEFT_OK;

    for (int round = 0; round < c->gpu->bench->rounds && status == WEFT_OK; round++) {
        status = turn(c, weft_call, &us);
        bench_sample(&c->weft, us);
        if (status == WEFT_OK)
            status = turn(c, peer_call, &us);
        bench_sample(&c->peer, us);
    }
    return status;
}

static int measure(struct gpu *gpu, struct weft_context *context, int on_stream, const char *what)
{
    struct contest c = {.gpu = gpu, .context = context, .on_stream = on_stream};
    struct bench_row row = {.what = what,
                            .unit = "us",
                            .peer = "cuMemsetD8Async",
                            .weft = &c.weft,
                            .peers = &c.peer,
                            .limit = NAN,
                            .bytes = SIZE_MAX};
    int status = open_run(&c);

    if (status == WEFT_OK)
        status = take_turns(&c);
    if (status == WEFT_OK)
        gpu_print(gpu, &row, NAN, NAN);
    weft_run_destroy(c.run);
    weft_context_device_free(context, c.data);
    return status;
}

/* The stream's thread waits in the driver meanwhile. */
static int measure_on_stream(struct gpu *gpu)
{
    struct weft_context_config config;
    struct weft_local *local = NULL;
    struct weft_context *context = NULL;
    int status = weft_local_create(&local, 1, NULL);

    weft_context_config_init(&config);
    config.progress = WEFT_PROGRESS_HELPER;
    config.device = gpu->name;
    if (status == WEFT_OK)
        status = weft_context_create_local(&context, local, 0, &config);
    if (status == WEFT_OK)
        status = measure(gpu, context, 1, "a node between works of a stream");
    weft_context_destroy(context);
    weft_local_destroy(local);
    return status;
}

int gpu_latency(struct gpu *gpu)
{
    int status = measure(gpu, gpu->context, 0, "a node, started and waited for");

    if (status == WEFT_OK)
        status = measure_on_stream(gpu);
    return status == WEFT_OK ? 0 : bench_fail(gpu->bench, "a run of one node");
}
