/* SPDX-License-Identifier: BSD-3-Clause */
/* Compressed averaging: QSGD, whose sums are those of the template quantised-allreduce. */
#include "schedules/objects/compressed_average/compressed_average.h"

static int create(struct weft_compressed_average *average)
{
    struct weft__sum *sum = weft_memory_alloc(1, sizeof *sum);
    if (!sum)
        return weft_error_set(WEFT_ERR_MEMORY, "%s: out of memory", average->who);
    average->own = sum;
    return weft__sum_make(average, sum, &average->quantiser, average->model.count);
}

static void destroy(struct weft_compressed_average *average)
{
    weft__sum_free(average, average->own);
    weft_memory_free(average->own);
}

static int post(struct weft_compressed_average *average)
{
    return weft__sum_start(average, average->own);
}

static int wait(struct weft_compressed_average *average, uint64_t until)
{
    int status = weft__sum_wait(average, average->own, until);
    average->step.phase = WEFT_COMPRESSED_COMPRESSED;
    return status;
}

const struct weft__compression weft__compression_qsgd = {
    .name = "qsgd",
    .settings = weft__sum_settings,
    .create = create,
    .destroy = destroy,
    .post = post,
    .wait = wait,
};
