/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Operations on compressed vectors (weft/compress.h), by the kernels of quantise.cu, project.cu and
 * orthonormal.cu. How many slices and components there are the runtime says, and in which parts the
 * host would add squares up (runtime/compress/compute.c).
 */
#include "gpu/operate.h"

#include "ops/project.h"
#include "runtime/base/hash.h"
#include "runtime/compress/operations.h"

enum {
    /* Elements of a bucket that a warp quantises by itself, and of a part of larger ones. */
    SMALL_BUCKET = 4096,
    BUCKET_PART = 8192,
    GROUP = 8, /* elements of a thread */
    /* Tiles of products. */
    SLIM = 16,
    SLIM_ROWS = 32,
    WIDE = 64,
    SUMS = 3, /* of squares */
};

/* By the logarithm of the bits of an element. */
#define OF_BITS(name)                                                                              \
    {                                                                                              \
        WEFT__GPU_##name##_1, WEFT__GPU_##name##_2, WEFT__GPU_##name##_4, WEFT__GPU_##name##_8     \
    }

_Static_assert((int)WEFT_ORTHONORMALISE_COLUMNS == (int)WEFT_ORTHONORMAL_MOST,
               "a block has sums for all columns");

static size_t ceiling(size_t a, size_t b)
{
    return a / b + (a % b != 0);
}

static size_t lesser(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* ---- quantised ---- */

static int log2_of(int bits)
{
    return bits == WEFT_QUANTISE_SIGN ? 0 : bits == 2 ? 1 : bits == 4 ? 2 : 3;
}

static void run_kernel(struct weft__cuda_task *task, enum weft__gpu_kernel kernel, size_t things,
                       void **arguments)
{
    weft__cuda_run(task, kernel, weft__cuda_blocks(things), WEFT__GPU_THREADS, arguments);
}

/* What has been found to be not finite is counted, and told. */
static unsigned long long *begin_bad(struct weft__cuda_task *task)
{
    unsigned long long *bad = weft__cuda_carve(&task->room, 1, sizeof *bad);

    weft__cuda_run_zero(task, bad, sizeof *bad);
    return bad;
}

static void end_bad(struct weft__cuda_task *task, const unsigned long long *bad)
{
    weft__cuda_run_copy(task, (uint64_t *)(void *)task->report + WEFT__COMPRESS_BAD, bad,
                        sizeof(uint64_t));
}

static struct weft_gpu_quantiser quantiser_of(const struct weft__compress_task *work)
{
    const struct weft_quantiser *quantiser = &work->settings->quantiser;
    const struct weft_call *call = work->call;

    return (struct weft_gpu_quantiser){
        .bucket = quantiser->bucket,
        .seed = quantiser->seed,
        .stream = weft__hash_three(call->version, (uint64_t)call->rank, (uint64_t)call->node),
        .norm = quantiser->bits == WEFT_QUANTISE_SIGN ? WEFT_GPU_MAGNITUDES
                : quantiser->norm == WEFT_QUANTISE_L2 ? WEFT_GPU_SQUARES
                                                      : WEFT_GPU_LARGEST};
}

static void quantise(struct weft__cuda_task *task, const struct weft__compress_task *work)
{
    static const enum weft__gpu_kernel small[] = OF_BITS(weft_quantise);
    static const enum weft__gpu_kernel codes[] = OF_BITS(weft_quantise_codes);
    struct weft_gpu_quantiser by = quantiser_of(work);
    const int bits = log2_of(work->settings->quantiser.bits);
    const size_t buckets = ceiling(work->count, by.bucket);
    void *values = task->call->arguments[1].data, *bytes = task->call->arguments[0].data;
    uint64_t count = work->count, part = BUCKET_PART;
    unsigned long long *bad = begin_bad(task);

    if (by.bucket <= SMALL_BUCKET) {
        run_kernel(task, small[bits], buckets * 32, (void *[]){&values, &count, &by, &bytes, &bad});
    } else {
        float *norms = weft__cuda_carve(&task->room, buckets, sizeof *norms);

        weft__cuda_run_zero(task, norms, buckets * sizeof *norms);
        WEFT__CUDA_RUN(task, weft_quantise_norms,
                       lesser(buckets * ceiling(by.bucket, BUCKET_PART), WEFT__GPU_BLOCKS),
                       WEFT__GPU_THREADS, &values, &count, &by, &part, &norms, &bad);
        run_kernel(task, codes[bits], count / GROUP + 1,
                   (void *[]){&values, &count, &by, &norms, &bytes});
    }
    end_bad(task, bad);
}

static void dequantise(struct weft__cuda_task *task, const struct weft__compress_task *work)
{
    static const enum weft__gpu_kernel sets[] = OF_BITS(weft_dequantise);
    static const enum weft__gpu_kernel adds[] = OF_BITS(weft_dequantise_add);
    const struct weft_quantiser *quantiser = &work->settings->quantiser;
    const int bits = log2_of(quantiser->bits);
    void *values = task->call->arguments[0].data, *bytes = task->call->arguments[1].data;
    uint64_t count = work->count, bucket = quantiser->bucket;

    run_kernel(task, work->settings->kind == WEFT_COMPRESS_DEQUANTISE_ADD ? adds[bits] : sets[bits],
               count / GROUP + 1, (void *[]){&bytes, &count, &bucket, &values});
}

/* ---- projected ---- */

/* Products by tiles of so many columns as there are about. */
static void multiply(struct weft__cuda_task *task, const enum weft__gpu_kernel kernels[2],
                     struct weft_gpu_product product)
{
    const int slim = product.columns <= SLIM;
    const size_t rows = ceiling(product.rows, slim ? SLIM_ROWS : WIDE);
    const size_t tiles = rows * ceiling(product.columns, slim ? SLIM : WIDE);

    if (product.rows > 0 && product.columns > 0)
        weft__cuda_run(task, kernels[!slim], lesser(tiles, 64 * WEFT__GPU_BLOCKS),
                       WEFT__GPU_THREADS, (void *[]){&product});
}

static void *data_of(const struct weft_argument *argument)
{
    return !argument ? NULL : weft__cuda_data(argument);
}

/* Whole slices, and the last one, if it is shorter. */
static void project_wide(struct weft__cuda_task *task, const struct weft__compress_task *work)
{
    static const enum weft__gpu_kernel kernels[] = {WEFT__GPU_weft_project_16,
                                                    WEFT__GPU_weft_project_64};
    const struct weft_argument *arguments = task->call->arguments;
    const size_t slice = work->settings->slice, whole = work->count / slice;
    struct weft_gpu_product product = {.a = weft__cuda_data(&arguments[1]),
                                       .b = weft__cuda_data(&arguments[2]),
                                       .c = weft__cuda_data(&arguments[0]),
                                       .a_stride = slice,
                                       .b_stride = work->components,
                                       .c_stride = work->components,
                                       .rows = whole,
                                       .depth = slice,
                                       .columns = work->components,
                                       .mean = data_of(work->mean),
                                       .share = (float)(1.0 / task->call->size)};

    multiply(task, kernels, product);
    product.a += whole * slice;
    product.mean = product.mean ? product.mean + whole * slice : NULL;
    product.c += whole * work->components;
    product.rows = whole < work->slices;
    product.depth = work->count % slice;
    multiply(task, kernels, product);
}

static void project_narrow(struct weft__cuda_task *task, const struct weft__compress_task *work)
{
    const struct weft_argument *arguments = task->call->arguments;
    void *values = weft__cuda_data(&arguments[1]), *basis = weft__cuda_data(&arguments[2]);
    void *out = weft__cuda_data(&arguments[0]), *mean = data_of(work->mean);
    uint64_t count = work->count, slice = work->settings->slice;
    uint32_t components = (uint32_t)work->components;
    float share = (float)(1.0 / task->call->size);

    run_kernel(task, WEFT__GPU_weft_project_narrow, work->slices * SLIM,
               (void *[]){&values, &count, &mean, &share, &basis, &slice, &components, &out});
}

/* In the parts of the host, each by the order of its blocks. */
static void add_squares(struct weft__cuda_task *task, const struct weft__compress_task *work)
{
    const struct weft_argument *arguments = task->call->arguments;
    const size_t d = work->components, slice = work->settings->slice;
    const struct weft__project_order order =
        weft__project_order_of(slice, lesser(work->wide, d), d);
    struct weft_gpu_squares squares = {.values = weft__cuda_data(&arguments[1]),
                                       .mean = data_of(work->mean),
                                       .out = weft__cuda_data(&arguments[0]),
                                       .count = work->count,
                                       .slice = slice,
                                       .components = d,
                                       .share = (float)(1.0 / task->call->size),
                                       .narrow = (uint32_t)order.narrow,
                                       .tall = work->tall,
                                       .wide = work->wide,
                                       .down = work->down,
                                       .parts = work->parts,
                                       .rows = order.rows,
                                       .deep = order.deep,
                                       .joined = order.joined};
    double *sums = weft__cuda_carve(&task->room, work->parts * SUMS, sizeof *sums);
    void *to = work->squares->data;

    run_kernel(task, WEFT__GPU_weft_project_squares, work->parts * 32, (void *[]){&squares, &sums});
    WEFT__CUDA_RUN(task, weft_project_add_squares, 1, SUMS, &sums, &squares.down, &squares.parts,
                   &to);
}

static void project(struct weft__cuda_task *task, const struct weft__compress_task *work)
{
    if (work->components >= WEFT__NARROW)
        project_wide(task, work);
    else if (work->components > 0)
        project_narrow(task, work);
    if (work->squares)
        add_squares(task, work);
}

static void reconstruct(struct weft__cuda_task *task, const struct weft__compress_task *work)
{
    static const enum weft__gpu_kernel kernels[] = {WEFT__GPU_weft_reconstruct_16,
                                                    WEFT__GPU_weft_reconstruct_64};
    const struct weft_argument *arguments = task->call->arguments;
    const size_t slice = work->settings->slice, whole = work->count / slice;
    struct weft_gpu_product product = {.a = weft__cuda_data(&arguments[1]),
                                       .b = weft__cuda_data(&arguments[2]),
                                       .start = data_of(work->mean),
                                       .c = weft__cuda_data(&arguments[0]),
                                       .a_stride = work->components,
                                       .b_stride = work->components,
                                       .c_stride = slice,
                                       .rows = whole,
                                       .depth = work->components,
                                       .columns = slice};

    multiply(task, kernels, product);
    product.a = product.a ? product.a + whole * work->components : NULL;
    product.start = product.start ? product.start + whole * slice : NULL;
    product.c += whole * slice;
    product.rows = whole < work->slices;
    product.columns = work->count % slice;
    multiply(task, kernels, product);
}

static void correlate(struct weft__cuda_task *task, const struct weft__compress_task *work)
{
    static const enum weft__gpu_kernel kernels[] = {WEFT__GPU_weft_correlate_16,
                                                    WEFT__GPU_weft_correlate_64};
    const struct weft_argument *arguments = task->call->arguments;
    const size_t slice = work->settings->slice;

    multiply(task, kernels,
             (struct weft_gpu_product){.a = weft__cuda_data(&arguments[1]),
                                       .b = weft__cuda_data(&arguments[2]),
                                       .c = weft__cuda_data(&arguments[0]),
                                       .a_stride = slice,
                                       .b_stride = work->components,
                                       .c_stride = work->components,
                                       .rows = slice,
                                       .depth = work->slices,
                                       .columns = work->components});
}

static void orthonormalise(struct weft__cuda_task *task, const struct weft__compress_task *work)
{
    void *matrix = weft__cuda_data(&task->call->arguments[0]);
    uint64_t rows = work->count;
    uint32_t columns = (uint32_t)work->components;
    unsigned long long *bad = begin_bad(task);

    WEFT__CUDA_RUN(task, weft_orthonormalise, 1, WEFT__GPU_THREADS, &matrix, &rows, &columns, &bad);
    end_bad(task, bad);
}

/* ---- calls ---- */

static void (*const functions[WEFT_COMPRESS_OP_COUNT])(struct weft__cuda_task *task,
                                                       const struct weft__compress_task *work) = {
    [WEFT_COMPRESS_QUANTISE] = quantise,
    [WEFT_COMPRESS_DEQUANTISE] = dequantise,
    [WEFT_COMPRESS_DEQUANTISE_ADD] = dequantise,
    [WEFT_COMPRESS_PROJECT] = project,
    [WEFT_COMPRESS_RECONSTRUCT] = reconstruct,
    [WEFT_COMPRESS_CORRELATE] = correlate,
    [WEFT_COMPRESS_ORTHONORMALISE] = orthonormalise,
};

/* Parts of squares, at most: of one slice, or of some slices and 16 components (cut() in
 * runtime/compress/compute.c). */
static size_t most_parts(const struct weft_call *most, size_t slice)
{
    const size_t slices = ceiling(most->arguments[1].count, slice);
    const size_t components = most->arguments[2].count / slice;

    return slices + (slices / 8 + 1) * (components / 16 + 1);
}

size_t weft__cuda_compress_room(const struct weft_call *most)
{
    const struct weft__compress_settings *settings = most->user;
    struct weft__cuda_room room = {0};

    weft__cuda_carve(&room, 1, sizeof(uint64_t)); /* for what is not finite */
    if (settings->kind == WEFT_COMPRESS_QUANTISE && settings->quantiser.bucket > SMALL_BUCKET)
        weft__cuda_carve(&room, ceiling(most->arguments[1].count, settings->quantiser.bucket),
                         sizeof(float));
    if (settings->kind == WEFT_COMPRESS_PROJECT && most->argument_count > 3)
        weft__cuda_carve(&room, most_parts(most, settings->slice) * SUMS, sizeof(double));
    return room.used;
}

void weft__cuda_compress(struct weft__cuda_task *task)
{
    struct weft__compress_task work;

    task->status = weft__compress_plan(task->call, &work);
    ((uint64_t *)(void *)task->report)[WEFT__COMPRESS_BAD] = 0;
    if (task->status == WEFT_OK && work.parts > 0)
        functions[work.settings->kind](task, &work);
}
