/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the parts of `weft bench gpu` share: the device, and calls of CUDA's driver and of NCCL to
 * measure beside. Both are loaded, and declared here as far as they are called, so that the command
 * needs no header of CUDA's and is linked with nothing of it.
 */
#ifndef WEFT_TOOLS_BENCH_GPU_H
#define WEFT_TOOLS_BENCH_GPU_H

#include "tools/bench/bench.h"

/** The device that is measured. */
struct gpu {
    struct bench *bench;
    struct weft_local *local;
    struct weft_context *context; /* whose caller drives */
    const char *name;             /* "cuda:0" */
    int device;                   /* 0 */
    double bandwidth;             /* bytes a second; 0: unknown */
    int told;                     /* 1: by the driver; 0: a measured copy's */
    size_t devices;               /* of the machine */
    struct gpu_driver *driver;
};

/** Prints a row about the device, with @p share of the limit if that is a number, and frees nothing
 *  of it. */
void gpu_print(struct gpu *gpu, struct bench_row *row, double share, double goal);

/* ---- calls of the driver: gpu_driver.c ---- */

/** A stream of a device, whose context is the calling thread's from now on.
 *  @return WEFT_OK; an error, with its text. So for all that follow. */
int gpu_driver_open(struct gpu_driver **driver, int device);
/** By the thread that has opened it. NULL is accepted. */
void gpu_driver_close(struct gpu_driver *driver);
/** Its stream, a CUstream. */
void *gpu_driver_stream(const struct gpu_driver *driver);
/** Puts cuMemcpyAsync(), or cuMemsetD8Async() of one byte, on the stream. */
int gpu_driver_copy(struct gpu_driver *driver, void *to, const void *from, size_t bytes);
int gpu_driver_touch(struct gpu_driver *driver, void *byte);
/** cuStreamSynchronize(). */
int gpu_driver_wait(struct gpu_driver *driver);

/* ---- NCCL: gpu_nccl.c ---- */

/** What NCCL calls the ranks of one process. */
struct gpu_nccl;
/** A communicator of so many ranks in this process: each joins with its own number, in a thread
 *  whose current device is its own. NULL, with a text: NCCL is not there. */
struct gpu_nccl *gpu_nccl_open(int ranks);
int gpu_nccl_join(struct gpu_nccl *nccl, int rank);
/** Puts ncclAllReduce() of f32 sums on a stream. */
int gpu_nccl_allreduce(struct gpu_nccl *nccl, int rank, const void *from, void *to, size_t count,
                       void *stream);
void gpu_nccl_leave(struct gpu_nccl *nccl, int rank);
void gpu_nccl_close(struct gpu_nccl *nccl);

/* ---- programs of others: gpu_beside.c ---- */

struct gpu_beside;
/** Starts @p file, which selects the @p k largest of @p count. */
int gpu_beside_open(struct gpu_beside **beside, const char *file, size_t count, size_t k);
/** Seconds of one of @p times selections. */
int gpu_beside_turn(struct gpu_beside *beside, int times, double *seconds);
/** What it measures. */
const char *gpu_beside_name(const struct gpu_beside *beside);
void gpu_beside_close(struct gpu_beside *beside);

/* ---- the parts ---- */

/** Each: 0, or an exit status after a line. */
int gpu_bandwidth(struct gpu *gpu);
int gpu_topk(struct gpu *gpu);
int gpu_latency(struct gpu *gpu);
int gpu_allreduce(struct gpu *gpu);

#endif
