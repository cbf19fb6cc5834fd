/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Batches: their way to the device, and the scores at the end of it. The thread writes one while
 * the device may still have the one before.
 */
#include "tools/train/cuda/device.h"

#include <string.h>
#include <weft/weft.h>

/* ---- memory ---- */

/* Arrays begin at multiples of it. */
enum { LINE = 256 };

static size_t round_up(size_t bytes)
{
    return (bytes + LINE - 1) / LINE * LINE;
}

static int make_events(struct train_cuda *cuda)
{
    for (int i = 0; i < TRAIN_CUDA_BATCHES; i++) {
        struct train_cuda_batch *batch = &cuda->batches[i];

        TRAIN_CUDA_CALL(cuda, cuEventCreate, &batch->begins, CU_EVENT_BLOCKING_SYNC);
        TRAIN_CUDA_CALL(cuda, cuEventCreate, &batch->ends, CU_EVENT_BLOCKING_SYNC);
    }
    return train_cuda_status(cuda);
}

int train_cuda_make_batches(struct train_cuda *cuda, size_t numbers)
{
    size_t images = round_up(cuda->most * numbers * sizeof(float));
    size_t labels = round_up(cuda->most);
    size_t losses = round_up((cuda->most + 1) * sizeof(double));
    size_t each = images + labels + LINE;
    void *memory = NULL;

    TRAIN_CUDA_CALL(cuda, cuMemHostAlloc, &cuda->pinned, TRAIN_CUDA_BATCHES * each,
                    CU_MEMHOSTALLOC_PORTABLE);
    if (train_cuda_alloc(cuda, images + labels + losses + LINE, &memory) != WEFT_OK)
        return train_cuda_status(cuda);
    for (int i = 0; i < TRAIN_CUDA_BATCHES; i++) {
        char *at = (char *)cuda->pinned + (size_t)i * each;

        cuda->batches[i].images = (float *)(void *)at;
        cuda->batches[i].labels = (uint8_t *)at + images;
        cuda->batches[i].loss = (double *)(void *)(at + images + labels);
        cuda->batches[i].right = (unsigned long long *)(cuda->batches[i].loss + 1);
    }
    cuda->images = memory;
    cuda->labels = (uint8_t *)memory + images;
    cuda->losses = (double *)(void *)(cuda->labels + labels);
    cuda->right = (unsigned long long *)(void *)((char *)cuda->losses + losses);
    return make_events(cuda);
}

void train_cuda_free_batches(struct train_cuda *cuda)
{
    for (int i = 0; i < TRAIN_CUDA_BATCHES; i++) {
        if (cuda->batches[i].ends)
            cuda->calls->cuEventDestroy(cuda->batches[i].ends);
        if (cuda->batches[i].begins)
            cuda->calls->cuEventDestroy(cuda->batches[i].begins);
    }
    if (cuda->images)
        cuda->calls->cuMemFree(train_cuda_at(cuda->images));
    if (cuda->pinned)
        cuda->calls->cuMemFreeHost(cuda->pinned);
}

/* ---- there ---- */

/* Waits until the device is done with a batch. */
static int finish(struct train_cuda *cuda, struct train_cuda_batch *batch)
{
    float milliseconds = 0;

    if (!batch->is_used)
        return train_cuda_status(cuda);
    TRAIN_CUDA_CALL(cuda, cuEventSynchronize, batch->ends);
    if (batch->is_gradient)
        TRAIN_CUDA_CALL(cuda, cuEventElapsedTime, &milliseconds, batch->begins, batch->ends);
    if (cuda->status)
        return train_cuda_status(cuda);
    cuda->seconds += (double)milliseconds * 1e-3;
    batch->is_gradient = 0;
    return WEFT_OK;
}

int train_cuda_load(struct backend *backend, const float *images, size_t numbers,
                    const uint8_t *labels, size_t count)
{
    struct train_cuda *cuda = train_cuda_of(backend);
    struct train_cuda_batch *batch =
        &cuda->batches[(cuda->batch - cuda->batches + 1) % TRAIN_CUDA_BATCHES];

    if (count > cuda->most)
        return weft_error_set(WEFT_ERR_INVALID, "a batch of %zu images; expected up to %zu", count,
                              cuda->most);
    int status = train_cuda_enter(cuda);
    if (status == WEFT_OK)
        status = finish(cuda, batch);
    if (status != WEFT_OK)
        return status;
    cuda->batch = batch;
    memcpy(batch->images, images, numbers * sizeof *images);
    if (labels)
        memcpy(batch->labels, labels, count);
    TRAIN_CUDA_CALL(cuda, cuEventRecord, batch->begins, cuda->stream);
    TRAIN_CUDA_CALL(cuda, cuMemcpyHtoDAsync, train_cuda_at(cuda->images), batch->images,
                    numbers * sizeof *images, cuda->stream);
    if (labels)
        TRAIN_CUDA_CALL(cuda, cuMemcpyHtoDAsync, train_cuda_at(cuda->labels), batch->labels, count,
                        cuda->stream);
    TRAIN_CUDA_CALL(cuda, cuEventRecord, batch->ends, cuda->stream);
    batch->is_used = 1;
    backend->images = cuda->images;
    return train_cuda_status(cuda);
}

/* ---- and back ---- */

int train_cuda_derive_scores(struct backend *backend, const struct operation *last, size_t batch)
{
    struct train_cuda *cuda = train_cuda_of(backend);
    double *mean = cuda->losses + cuda->most;
    uint64_t classes = last->out.channels;
    uint64_t images = batch;

    TRAIN_CUDA_LAUNCH(cuda, train_softmax, images, (void *)&last->to_delta, &cuda->losses,
                      (void *)&last->to, &cuda->labels, &classes, &images);
    TRAIN_CUDA_LAUNCH(cuda, train_mean_loss, 1, &mean, &cuda->losses, &images);
    return TRAIN_CUDA_CALL(cuda, cuMemcpyDtoHAsync, cuda->batch->loss, train_cuda_at(mean),
                           sizeof *mean, cuda->stream);
}

int train_cuda_end_gradient(struct backend *backend)
{
    struct train_cuda *cuda = train_cuda_of(backend);
    int status = TRAIN_CUDA_CALL(cuda, cuEventRecord, cuda->batch->ends, cuda->stream);

    cuda->batch->is_gradient = status == WEFT_OK;
    return status;
}

int train_cuda_loss(struct backend *backend, double *loss)
{
    struct train_cuda *cuda = train_cuda_of(backend);
    int status = train_cuda_enter(cuda);

    if (status == WEFT_OK)
        status = finish(cuda, cuda->batch);
    if (status == WEFT_OK)
        *loss = *cuda->batch->loss;
    return status;
}

int train_cuda_count_right(struct backend *backend, const struct operation *last, size_t batch,
                           size_t *right)
{
    struct train_cuda *cuda = train_cuda_of(backend);
    uint64_t classes = last->out.channels;
    uint64_t images = batch;

    train_cuda_clear(cuda, cuda->right, sizeof *cuda->right);
    TRAIN_CUDA_LAUNCH(cuda, train_count_right, images, &cuda->right, (void *)&last->to,
                      &cuda->labels, &classes, &images);
    TRAIN_CUDA_CALL(cuda, cuMemcpyDtoHAsync, cuda->batch->right, train_cuda_at(cuda->right),
                    sizeof *cuda->right, cuda->stream);
    int status = TRAIN_CUDA_CALL(cuda, cuStreamSynchronize, cuda->stream);
    if (status == WEFT_OK)
        *right = (size_t)*cuda->batch->right;
    return status;
}

int train_cuda_seconds(struct backend *backend, double *seconds)
{
    struct train_cuda *cuda = train_cuda_of(backend);
    int status = train_cuda_enter(cuda);

    for (int i = 0; i < TRAIN_CUDA_BATCHES && status == WEFT_OK; i++)
        status = finish(cuda, &cuda->batches[i]);
    if (status == WEFT_OK)
        *seconds = cuda->seconds;
    return status;
}
