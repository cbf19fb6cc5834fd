/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Vectors that are combined, filled, copied, squared, and what pairs go to, for functions of
 * devices. Each but the last may be in pieces of its own: they are cut at the ends of all pieces,
 * and as many cuts as fit go into one launch.
 *
 *     to       |------|-----------|
 *     terms    |----|----|--------|
 *     cuts     |----|-|--|--------|
 */
#include "gpu/cuda_device.h"

#include "gpu/kernels/arguments.h"

/* A block has so many threads at most, with so many elements each; a grid goes round where there
 * are more. */
enum { THREADS = 256, WARP = 32, ELEMENTS = 4, MOST_BLOCKS = 65536, VECTOR = 16 };

/* ---- pieces ---- */

/* How far a vector has been walked. */
struct walk {
    const struct weft_piece *pieces;
    struct weft_piece whole; /* of one that has no list */
    size_t piece, offset;    /* elements */
    size_t size;             /* bytes an element */
};

static void begin(struct walk *walk, const struct weft_argument *vector)
{
    *walk = (struct walk){.pieces = vector->pieces,
                          .whole = {vector->data, vector->count},
                          .size = weft_dtype_size(vector->dtype)};
}

static const struct weft_piece *piece_of(const struct walk *walk)
{
    return walk->pieces ? &walk->pieces[walk->piece] : &walk->whole;
}

/* Elements from here to the end of a piece that has some: the vector goes on. */
static size_t rest_of(struct walk *walk)
{
    while (walk->offset == piece_of(walk)->count) {
        walk->piece++;
        walk->offset = 0;
    }
    return piece_of(walk)->count - walk->offset;
}

static void *step(struct walk *walk, size_t count)
{
    char *at = (char *)piece_of(walk)->data + walk->offset * walk->size;

    walk->offset += count;
    return at;
}

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* ---- combinations ---- */

static uint8_t format_of_dtype(weft_dtype_t dtype)
{
    return dtype == WEFT_F16    ? WEFT_GPU_F16
           : dtype == WEFT_BF16 ? WEFT_GPU_BF16
           : dtype == WEFT_F32  ? WEFT_GPU_F32
                                : WEFT_GPU_F64;
}

static uint8_t format_of(const struct weft_argument *vector)
{
    return format_of_dtype(vector->dtype);
}

struct combining {
    struct weft_gpu_combination of;
    struct walk terms[WEFT_GPU_MOST_TERMS], to, less;
    int has_to, has_less, wide;
    unsigned threads;
    uint64_t blocks;
};

_Static_assert((int)WEFT_GPU_MOST_TERMS == (int)WEFT_DEVICE_TERMS, "terms of a launch");
_Static_assert(sizeof(struct weft_gpu_combination) <= 4096, "what a launch takes");

/* Whole warps, and no more of them than have something to do. */
static unsigned threads_of(size_t count)
{
    size_t warps = count / ((size_t)WARP * ELEMENTS) + 1;

    return WARP * (unsigned)least(warps, THREADS / WARP);
}

static void prepare(struct combining *c, const struct weft_device_sum *sum)
{
    struct weft_gpu_combination *of = &c->of;

    *c = (struct combining){.has_to = sum->to != NULL,
                            .has_less = sum->to && sum->less,
                            .threads = threads_of(sum->terms[0].vector->count)};
    of->found = (unsigned long long *)(void *)sum->found;
    of->factor = sum->factor;
    of->divisor = sum->divisor;
    of->terms = (uint32_t)sum->term_count;
    of->adds = sum->to && sum->adds;
    for (uint32_t k = 0; k < of->terms; k++) {
        const struct weft_device_term *term = &sum->terms[k];

        begin(&c->terms[k], term->vector);
        of->formats[k] = format_of(term->vector);
        of->factors[k] = term->factor == 0 ? 1 : term->factor;
        of->looks |= (term->flags & WEFT_DEVICE_COUNT) ? 1u << k : 0;
        of->clears |= (term->flags & WEFT_DEVICE_CLEAR) ? 1u << k : 0;
        c->wide |= of->formats[k] == WEFT_GPU_F64;
    }
    if (c->has_to) {
        begin(&c->to, sum->to);
        of->to_format = format_of(sum->to);
        c->wide |= of->to_format == WEFT_GPU_F64;
    }
    if (c->has_less) {
        begin(&c->less, sum->less);
        of->less_format = format_of(sum->less);
        c->wide |= of->less_format == WEFT_GPU_F64;
    }
}

/* Up to the next end of a piece; at most `left`. Returns how many elements. */
static size_t cut(struct combining *c, size_t place, size_t left)
{
    struct weft_gpu_segment *part = &c->of.segment[c->of.segments++];
    size_t count = left;

    for (uint32_t k = 0; k < c->of.terms; k++)
        count = least(count, rest_of(&c->terms[k]));
    if (c->has_to)
        count = least(count, rest_of(&c->to));
    if (c->has_less)
        count = least(count, rest_of(&c->less));
    for (uint32_t k = 0; k < c->of.terms; k++)
        part->terms[k] = step(&c->terms[k], count);
    part->to = c->has_to ? step(&c->to, count) : NULL;
    part->less = c->has_less ? step(&c->less, count) : NULL;
    part->count = count;
    part->place = place;
    part->before = c->blocks;
    c->blocks += least((count - 1) / ((size_t)c->threads * ELEMENTS) + 1, MOST_BLOCKS);
    return count;
}

static int launch(struct weft__cuda *cuda, CUstream stream, struct combining *c)
{
    void *arguments[] = {&c->of};
    int status = weft__cuda_launch(
        cuda, stream, c->wide ? WEFT__GPU_weft_combine_f64 : WEFT__GPU_weft_combine_f32,
        (unsigned)c->blocks, c->threads, 0, arguments);

    c->of.segments = 0;
    c->blocks = 0;
    return status;
}

int weft__cuda_combine(struct weft__device *device, void *stream, const struct weft_device_sum *sum)
{
    size_t total = sum->terms[0].vector->count;
    struct combining c;
    int status = WEFT_OK;

    prepare(&c, sum);
    for (size_t done = 0; done < total && status == WEFT_OK;) {
        done += cut(&c, done, total - done);
        if (done == total || c.of.segments == WEFT_GPU_MOST_SEGMENTS)
            status = launch(weft__cuda_of(device), stream, &c);
    }
    return status;
}

/* ---- fills and copies ---- */

static unsigned blocks_of(size_t bytes)
{
    return (unsigned)least(bytes / ((size_t)THREADS * VECTOR) + 1, MOST_BLOCKS);
}

int weft__cuda_fill(struct weft__device *device, void *stream, const struct weft_argument *to,
                    uint64_t bits)
{
    static const enum weft__gpu_kernel kernels[] = {
        [1] = WEFT__GPU_weft_fill_8,
        [2] = WEFT__GPU_weft_fill_16,
        [4] = WEFT__GPU_weft_fill_32,
        [8] = WEFT__GPU_weft_fill_64,
    };
    struct walk walk;
    int status = WEFT_OK;

    begin(&walk, to);
    for (size_t done = 0; done < to->count && status == WEFT_OK;) {
        uint64_t count = rest_of(&walk);
        void *at = step(&walk, count);
        void *arguments[] = {&at, &bits, &count};

        status = weft__cuda_launch(weft__cuda_of(device), stream, kernels[walk.size],
                                   blocks_of(count * walk.size), THREADS, 0, arguments);
        done += count;
    }
    return status;
}

int weft__cuda_copy_vector(struct weft__device *device, void *stream,
                           const struct weft_argument *to, const struct weft_argument *from)
{
    struct weft_gpu_pieces pieces = {.count = 0};
    void *arguments[] = {&pieces};
    struct walk target, source;
    size_t most = 0;
    int status = WEFT_OK;

    begin(&target, to);
    begin(&source, from);
    for (size_t done = 0; done < to->count && status == WEFT_OK;) {
        struct weft_gpu_piece *piece = &pieces.piece[pieces.count++];
        size_t count = least(rest_of(&target), rest_of(&source));

        *piece = (struct weft_gpu_piece){step(&target, count), step(&source, count),
                                         count * target.size};
        most = piece->bytes > most ? piece->bytes : most;
        done += count;
        if (done < to->count && pieces.count < WEFT_GPU_MOST_PIECES)
            continue;
        status = weft__cuda_launch(weft__cuda_of(device), stream, WEFT__GPU_weft_copy_pieces,
                                   blocks_of(most), THREADS, 0, arguments);
        pieces.count = 0;
        most = 0;
    }
    return status;
}

/* ---- squares, and pairs ---- */

_Static_assert((int)WEFT_SQUARES_BLOCKS == (int)WEFT_DEVICE_SQUARES, "sums of a launch");

int weft__cuda_squares(struct weft__device *device, void *stream,
                       const struct weft_argument *vector, int clears, double *sums)
{
    const struct weft_device_term term = {.vector = vector,
                                          .flags = clears ? WEFT_DEVICE_CLEAR : 0};
    const struct weft_device_sum of = {.terms = &term, .term_count = 1, .factor = 1, .divisor = 1};
    struct combining c;
    void *arguments[] = {&c.of, &sums};
    int status = WEFT_OK;

    prepare(&c, &of);
    for (size_t done = 0; done < vector->count && status == WEFT_OK;) {
        done += cut(&c, done, vector->count - done);
        if (done < vector->count && c.of.segments < WEFT_GPU_MOST_SEGMENTS)
            continue;
        status = weft__cuda_launch(weft__cuda_of(device), stream, WEFT__GPU_weft_squares,
                                   (unsigned)least(c.blocks, WEFT_SQUARES_BLOCKS), c.threads, 0,
                                   arguments);
        c.of.segments = 0;
        c.blocks = 0;
    }
    return status;
}

int weft__cuda_scatter(struct weft__device *device, void *stream,
                       const struct weft__device_scatter *scatter)
{
    const struct weft_sparse *pairs = scatter->pairs;
    struct weft_gpu_scatter of = {.indices = pairs->indices,
                                  .values = pairs->values,
                                  .dense = scatter->to->data,
                                  .count = pairs->count,
                                  .scale = scatter->scale,
                                  .wide = pairs->index_dtype == WEFT_U64,
                                  .format = format_of(scatter->to),
                                  .value_format = format_of_dtype(pairs->dtype),
                                  .adds = (uint8_t)scatter->adds};
    void *arguments[] = {&of};

    if (pairs->count == 0)
        return WEFT_OK;
    return weft__cuda_launch(weft__cuda_of(device), stream, WEFT__GPU_weft_scatter,
                             (unsigned)least((pairs->count - 1) / THREADS + 1, MOST_BLOCKS),
                             THREADS, 0, arguments);
}
