/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A collective between works of a stream: what the stream has computed starts it, what the stream
 * does next finds its results, and the thread waits once, at the end. Needs cuda.h, and is linked
 * with -lcuda; with CUDA's runtime it is the same, for a cudaStream_t is a CUstream.
 *
 *   stream_ordered [RANKS [STEPS]]
 */
#include <cuda.h>
#include <stdio.h>
#include <stdlib.h>
#include <weft/cuda.h>
#include <weft/device.h>
#include <weft/weft.h>

enum { LAYERS = 3, COUNT = 20000 };

struct options {
    int ranks;
    int steps;
};

/* What a rank has: a layer's gradients are COUNT elements, one layer behind the other. */
struct trainer {
    CUstream stream;
    float *data;                   /* on the device */
    float *gradients;              /* of the host, pinned */
    float *sums;                   /* the same */
    struct weft_run *runs[LAYERS]; /* of an allreduce each */
};

static int told(CUresult code, const char *call)
{
    const char *text = NULL;

    if (code == CUDA_SUCCESS)
        return WEFT_OK;
    cuGetErrorString(code, &text);
    return weft_error_set(WEFT_ERR_SYSTEM, "%s: %s", call, text ? text : "unknown");
}

/* [step] */
/* A step, put on the stream; none of this waits for the device. Gradients of a layer come (a kernel
 * of a trainer's would compute them there), and all ranks sum them while the next layer's come. */
static int put_step(const struct trainer *t)
{
    size_t bytes = COUNT * sizeof(float);
    int status = WEFT_OK;

    for (int layer = 0; layer < LAYERS && !status; layer++) {
        CUdeviceptr there = (CUdeviceptr)(uintptr_t)(t->data + layer * COUNT);

        status = told(cuMemcpyHtoDAsync(there, t->gradients + layer * COUNT, bytes, t->stream),
                      "cuMemcpyHtoDAsync");
        if (!status)
            status = weft_run_start_on(t->runs[layer], t->stream); /* when the stream gets here */
    }
    for (int layer = 0; layer < LAYERS && !status; layer++) {
        CUdeviceptr there = (CUdeviceptr)(uintptr_t)(t->data + layer * COUNT);

        status = weft_run_wait_on(t->runs[layer], t->stream); /* the stream waits, no thread */
        if (!status)
            status = told(cuMemcpyDtoHAsync(t->sums + layer * COUNT, there, bytes, t->stream),
                          "cuMemcpyDtoHAsync");
    }
    return status;
}

/* The one wait of a step. The runs have ended when the stream has got past them: this says how. */
static int wait_step(const struct trainer *t)
{
    int status = told(cuStreamSynchronize(t->stream), "cuStreamSynchronize");

    for (int layer = 0; layer < LAYERS && !status; layer++)
        status = weft_run_wait(t->runs[layer], WEFT_NEVER);
    return status;
}
/* [step] */

static float gradient(int rank, int step, size_t i)
{
    return (float)((i + (size_t)(step + rank)) % 100);
}

static int take_steps(const struct options *options, int rank, const struct trainer *t)
{
    int status = WEFT_OK;

    for (int step = 0; step < options->steps && !status; step++) {
        for (size_t i = 0; i < LAYERS * COUNT; i++)
            t->gradients[i] = gradient(rank, step, i);
        status = put_step(t);
        if (!status)
            status = wait_step(t);
        for (size_t i = 0; i < LAYERS * COUNT && !status; i++) {
            float expected = 0;

            for (int r = 0; r < options->ranks; r++)
                expected += gradient(r, step, i);
            if (t->sums[i] != expected)
                status = weft_error_set(WEFT_ERR_STATE, "step %d: element %zu is %g, expected %g",
                                        step, i, (double)t->sums[i], (double)expected);
        }
    }
    return status;
}

static int open_trainer(struct trainer *t, struct weft_context *context)
{
    size_t bytes = LAYERS * COUNT * sizeof(float);
    struct weft_template_params params;
    void *data = NULL, *pinned = NULL;
    int status = told(cuStreamCreate(&t->stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");

    if (!status)
        status = weft_context_device_alloc(context, WEFT_MEMORY_DEVICE, bytes, &data);
    if (!status)
        status = weft_context_device_alloc(context, WEFT_MEMORY_HOST, 2 * bytes, &pinned);
    if (status)
        return status;
    t->data = data;
    t->gradients = pinned;
    t->sums = t->gradients + LAYERS * COUNT;
    weft_template_params_init(&params);
    params.count = COUNT;
    params.in_place = 1;
    params.memory = WEFT_MEMORY_DEVICE;
    for (int layer = 0; layer < LAYERS && !status; layer++) {
        status = weft_template_create_run(&t->runs[layer], context, "allreduce", &params);
        if (!status)
            status = weft_run_bind_name(t->runs[layer], "recv", t->data + layer * COUNT, COUNT,
                                        WEFT_F32);
    }
    return status;
}

/* Memory goes with the context. */
static void close_trainer(struct trainer *t)
{
    for (int layer = 0; layer < LAYERS; layer++)
        weft_run_destroy(t->runs[layer]);
    if (t->stream)
        cuStreamDestroy(t->stream);
}

/* One rank, on the device of its context, whose primary context of CUDA is its thread's. */
static int train(struct weft_context *context, void *user)
{
    const struct options *options = user;
    struct trainer trainer = {0};
    const char *name = NULL;
    CUcontext primary = NULL;
    int status = weft_context_device(context, &name);
    int device = status ? 0 : (int)strtol(name + sizeof "cuda:" - 1, NULL, 10);

    if (!status)
        status = told(cuDevicePrimaryCtxRetain(&primary, device), "cuDevicePrimaryCtxRetain");
    if (status)
        return status;
    status = told(cuCtxSetCurrent(primary), "cuCtxSetCurrent");
    if (!status)
        status = open_trainer(&trainer, context);
    if (!status)
        status = take_steps(options, weft_context_rank(context), &trainer);
    close_trainer(&trainer);
    cuCtxSetCurrent(NULL);
    cuDevicePrimaryCtxRelease(device);
    return status;
}

int main(int argc, char **argv)
{
    struct options options = {.ranks = 2, .steps = 5};
    struct weft_context_config config;

    if (argc > 1)
        options.ranks = (int)strtol(argv[1], NULL, 10);
    if (argc > 2)
        options.steps = (int)strtol(argv[2], NULL, 10);
    if (options.ranks < 1 || options.steps < 1) {
        fputs("usage: stream_ordered [RANKS [STEPS]], both from 1\n", stderr);
        return 2;
    }
    weft_context_config_init(&config);
    config.progress = WEFT_PROGRESS_HELPER; /* who drives while the threads do something else */
    int status = weft_local_run(options.ranks, &config, train, &options);
    if (status) {
        fprintf(stderr, "%s: %s\n", weft_status_text(status), weft_error_text());
        return 1;
    }
    printf("%d ranks, %d steps: every sum is right\n", options.ranks, options.steps);
    return 0;
}
