/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Wait-avoiding group averaging of models that are memory of devices, by the stream that trains
 * them: no thread waits before the end. Needs cuda.h, and is linked with -lcuda; with CUDA's
 * runtime it is the same, for a cudaStream_t is a CUstream.
 *
 *   device_averaging [RANKS]
 */
#include <cuda.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <weft/cuda.h>
#include <weft/device.h>
#include <weft/weft.h>

enum { WEIGHTS = 20000, STEPS = 10 };

static int told(CUresult code, const char *call)
{
    const char *text = NULL;

    if (code == CUDA_SUCCESS)
        return WEFT_OK;
    cuGetErrorString(code, &text);
    return weft_error_set(WEFT_ERR_SYSTEM, "%s: %s", call, text ? text : "unknown");
}

/* Stands for a kernel of a trainer's: all weights become the same number. */
static int compute(float *weights, float value, CUstream stream)
{
    unsigned bits;

    memcpy(&bits, &value, sizeof bits);
    return told(cuMemsetD32Async((CUdeviceptr)(uintptr_t)weights, bits, WEIGHTS, stream),
                "cuMemsetD32Async");
}

/* [create] */
static int create(struct weft_group_average **average, struct weft_context *context, float *weights)
{
    struct weft_piece tensors[] = {{weights, WEIGHTS}};
    struct weft_group_average_config config;

    weft_group_average_config_init(&config);
    config.memory = WEFT_MEMORY_DEVICE; /* where the tensors are, and the sums are made */
    config.tensors = tensors;
    config.tensor_count = 1;
    config.sync_period = STEPS;
    return weft_group_average_create(average, context, &config);
}
/* [create] */

/* [steps] */
/* Steps, put on the stream; the thread is ahead of it by a step at most. */
static int put_steps(struct weft_group_average *average, float *weights, float *other, int rank,
                     CUstream stream)
{
    int status = WEFT_OK;

    for (int step = 0; step < STEPS && !status; step++) {
        status = compute(weights, (float)(rank + step), stream);
        if (!status) /* published and activated when the stream gets here, however late it is */
            status = weft_group_average_post_on(average, stream);
        if (!status) /* what is computed while the average is made */
            status = compute(other, (float)step, stream);
        if (!status) /* what comes behind this finds the average in the weights */
            status = weft_group_average_wait_on(average, stream);
    }
    return status;
}
/* [steps] */

/* The last step synchronises: all ranks have the average of all. */
static int check(const float *weights, int ranks, CUstream stream)
{
    static const char *const what = "weight %zu is %g, expected %g";
    float expected =
        ((float)(ranks * (ranks - 1)) / 2 + (float)(ranks * (STEPS - 1))) / (float)ranks;
    float *host = malloc(WEIGHTS * sizeof *host);
    int status = host ? told(cuMemcpyDtoHAsync(host, (CUdeviceptr)(uintptr_t)weights,
                                               WEIGHTS * sizeof *host, stream),
                             "cuMemcpyDtoHAsync")
                      : weft_error_set(WEFT_ERR_MEMORY, "no memory for a model");

    if (!status)
        status = told(cuStreamSynchronize(stream), "cuStreamSynchronize");
    for (size_t i = 0; i < WEIGHTS && !status; i++)
        if (host[i] != expected)
            status = weft_error_set(WEFT_ERR_STATE, what, i, (double)host[i], (double)expected);
    free(host);
    return status;
}

static int go(struct weft_context *context, float *weights, float *other, CUstream stream)
{
    struct weft_group_average *average = NULL;
    struct weft_group_average_result got = {.struct_size = sizeof got};
    int rank = weft_context_rank(context), ranks = weft_context_size(context);
    int status = compute(weights, 0, stream); /* all begin with the same model */

    if (!status)
        status = told(cuStreamSynchronize(stream), "cuStreamSynchronize");
    if (!status)
        status = create(&average, context, weights);
    if (status)
        return status;
    status = put_steps(average, weights, other, rank, stream);
    if (!status)
        status = weft_group_average_wait(average, &got); /* how the last step has ended */
    if (!status)
        status = check(weights, ranks, stream);
    if (!status)
        printf("rank %d of %d: the last step has the models of %d\n", rank, ranks, got.members);
    int ended = weft_group_average_destroy(average);
    return status ? status : ended;
}

/* One rank, on the device of its context, whose primary context of CUDA is its thread's. Memory
 * goes with the context. */
static int train(struct weft_context *context, void *user)
{
    void *weights = NULL, *other = NULL;
    const char *name = NULL;
    CUcontext primary = NULL;
    CUstream stream = NULL;
    int status = weft_context_device(context, &name);
    int device = status ? 0 : (int)strtol(name + sizeof "cuda:" - 1, NULL, 10);

    (void)user;
    if (!status)
        status = weft_context_device_alloc(context, WEFT_MEMORY_DEVICE, WEIGHTS * sizeof(float),
                                           &weights);
    if (!status)
        status =
            weft_context_device_alloc(context, WEFT_MEMORY_DEVICE, WEIGHTS * sizeof(float), &other);
    if (!status)
        status = told(cuDevicePrimaryCtxRetain(&primary, device), "cuDevicePrimaryCtxRetain");
    if (status)
        return status;
    status = told(cuCtxSetCurrent(primary), "cuCtxSetCurrent");
    if (!status)
        status = told(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
    if (!status)
        status = go(context, weights, other, stream);
    if (stream)
        cuStreamDestroy(stream);
    cuCtxSetCurrent(NULL);
    cuDevicePrimaryCtxRelease(device);
    return status;
}

int main(int argc, char **argv)
{
    struct weft_context_config config;
    int ranks = argc > 1 ? (int)strtol(argv[1], NULL, 10) : 4;

    if (ranks < 1) {
        fputs("usage: device_averaging [RANKS], from 1\n", stderr);
        return 2;
    }
    weft_context_config_init(&config);
    config.progress = WEFT_PROGRESS_HELPER; /* late ranks take part while they compute */
    int status = weft_local_run(ranks, &config, train, NULL);
    if (status)
        fprintf(stderr, "%s: %s\n", weft_status_text(status), weft_error_text());
    return status != WEFT_OK;
}
