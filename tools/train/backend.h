/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Who computes a model, and has its memory: the processor (cpu.c), or a device. All memory that is
 * spoken of here is the backend's, but for images, labels and what get() and put() call `host`.
 *
 * What is asked for is done in that order, perhaps later: on a device it is put on a stream. Who
 * wants to read the results waits for them: by loss(), count_right(), get() or settle(). A backend
 * that has failed says so to every call from then on.
 *
 * Functions return WEFT_OK or a negative status. One thread at a time.
 */
#ifndef WEFT_TOOLS_TRAIN_BACKEND_H
#define WEFT_TOOLS_TRAIN_BACKEND_H

#include "tools/train/operations.h"

#include <stddef.h>
#include <stdint.h>

struct weft_context;

struct backend_ops {
    /** Of each kind of operation. */
    const struct operation_passes *const *passes;

    /** Makes room for so many numbers, all 0. @param sent 1: ranks send it to each other. Nothing
     *  is under way that uses what is freed. NULL is accepted. */
    int (*alloc)(struct backend *backend, size_t count, int sent, train_real_t **memory);
    void (*free)(struct backend *backend, train_real_t *memory, int sent);

    /** The batch that operations work on from now on: `images` is set to where they find it. Images
     *  and labels may be written again when this returns, but on the processor. @param labels NULL:
     *  there are none. */
    int (*load)(struct backend *backend, const train_real_t *images, size_t numbers,
                const uint8_t *labels, size_t batch);
    /** From the scores of the last operation, the derivatives of the mean loss by them. */
    int (*derive_scores)(struct backend *backend, const struct operation *last, size_t batch);
    /** The gradient of the batch has been asked for, all of it. */
    int (*end_gradient)(struct backend *backend);
    /** The mean loss of the batch for which they were derived last. Blocking. */
    int (*loss)(struct backend *backend, double *loss);
    /** How many images of the batch have their highest score where their label is. Blocking. */
    int (*count_right)(struct backend *backend, const struct operation *last, size_t batch,
                       size_t *right);
    /** v = momentum v + gradient, w = w - rate v. */
    int (*update)(struct backend *backend, train_real_t *weights, train_real_t *velocities,
                  const train_real_t *gradients, size_t count, train_real_t rate,
                  train_real_t momentum);

    /* ---- vectors: none overlaps another, but where it is said ---- */

    int (*clear)(struct backend *backend, train_real_t *to, size_t count);
    int (*copy)(struct backend *backend, train_real_t *to, const train_real_t *from, size_t count);
    /** to = factor from; @p to may be @p from. */
    int (*scale)(struct backend *backend, train_real_t *to, const train_real_t *from,
                 train_real_t factor, size_t count);
    /** data = data + (factor sum - posted). */
    int (*shift)(struct backend *backend, train_real_t *data, const train_real_t *sum,
                 train_real_t factor, const train_real_t *posted, size_t count);
    int (*swap)(struct backend *backend, train_real_t *a, train_real_t *b, size_t count);
    /** To and from memory of the host. Blocking. */
    int (*get)(struct backend *backend, train_real_t *host, const train_real_t *from, size_t count);
    int (*put)(struct backend *backend, train_real_t *to, const train_real_t *host, size_t count);

    /* ---- only where things are done later (backend.stream); else NULL ---- */

    /** Numbers as they are then, for kept(), which waits until they are there: in memory of the
     *  host, until the next keep(). */
    int (*keep)(struct backend *backend, const train_real_t *from, size_t count);
    int (*kept)(struct backend *backend, const train_real_t **host);
    /** How long all gradients have taken so far. Blocking. */
    int (*seconds)(struct backend *backend, double *seconds);

    /** Waits until all that was asked for has been done. Blocking. */
    int (*settle)(struct backend *backend);
    /** After settle(); memory has been freed. NULL is accepted. */
    void (*destroy)(struct backend *backend);
};

/** The part of a backend that others see. */
struct backend {
    const struct backend_ops *ops;
    /** Of the batch that was loaded. */
    const train_real_t *images;
    /** The stream of CUDA on which it computes. NULL: all is done when a call returns. */
    struct CUstream_st *stream;
    /** 1: a stream that waits might block what it waits for, so the thread is to wait. */
    int crowded;
};

/** The processor: all is done when a call returns. What ranks send each other is memory of the
 *  context, which outlives it; NULL: as all else. @return WEFT_OK or WEFT_ERR_MEMORY. */
int backend_create_cpu(struct backend **backend, struct weft_context *context);

#endif
