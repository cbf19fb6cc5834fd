/* SPDX-License-Identifier: BSD-3-Clause */
/* Structs that kernels take by value: C, for those who launch them. */
#ifndef WEFT_GPU_KERNELS_ARGUMENTS_H
#define WEFT_GPU_KERNELS_ARGUMENTS_H

#include <stdint.h>

enum { WEFT_GPU_MOST_INPUTS = 8, WEFT_GPU_MOST_PIECES = 64, WEFT_GPU_MOST_LISTS = 32 };

/* The inputs of a reduction, in the order in which they are combined. */
struct weft_gpu_inputs {
    const void *from[WEFT_GPU_MOST_INPUTS];
    uint32_t count;
};

/* Bytes to copy from one place to another. */
struct weft_gpu_piece {
    void *to;
    const void *from;
    uint64_t bytes;
};

struct weft_gpu_pieces {
    struct weft_gpu_piece piece[WEFT_GPU_MOST_PIECES];
    uint32_t count;
};

/* Datatypes of a linear combination (combine.cu), and how much of one a launch takes: what it is
 * handed has at most 4 KiB. */
enum weft_gpu_format { WEFT_GPU_F16, WEFT_GPU_BF16, WEFT_GPU_F32, WEFT_GPU_F64 };
enum { WEFT_GPU_MOST_TERMS = 8, WEFT_GPU_MOST_SEGMENTS = 36 };

/* Contiguous parts of all vectors of one. */
struct weft_gpu_segment {
    void *to;                               /* or NULL */
    const void *less;                       /* or NULL */
    const void *terms[WEFT_GPU_MOST_TERMS]; /* at least one; NULL behind the last */
    uint64_t count;                         /* elements */
    uint64_t place;                         /* of the first of them in the whole vectors */
    uint64_t before;                        /* blocks of the segments before it */
};

struct weft_gpu_combination {
    unsigned long long *found; /* two: how many are not finite, and the place of the first */
    double factors[WEFT_GPU_MOST_TERMS];
    double factor, divisor;
    uint32_t terms, segments;
    uint32_t looks, clears; /* a bit a term */
    uint32_t adds;
    uint8_t formats[WEFT_GPU_MOST_TERMS];
    uint8_t to_format, less_format;
    struct weft_gpu_segment segment[WEFT_GPU_MOST_SEGMENTS];
};

/* Pairs on their way to a dense vector (sparse.cu). */
struct weft_gpu_scatter {
    const void *indices;
    const void *values; /* NULL, where they do not add: zeros */
    void *dense;
    uint64_t count;
    double scale;         /* of what is added */
    uint8_t wide;         /* indices are u64 */
    uint8_t format;       /* of the dense vector */
    uint8_t value_format; /* the same, or f32 */
    uint8_t adds;
};

/* A list of pairs, `count` at most: those from place range[0] up to place range[1], which lies in
 * device memory, of these arrays; NULL: all `count`. */
struct weft_gpu_list {
    const void *indices;
    const void *values;
    uint64_t count;
    const uint64_t *range;
};

struct weft_gpu_lists {
    struct weft_gpu_list list[WEFT_GPU_MOST_LISTS];
    uint32_t count;
};

/* A selection (topk.cu), in device memory. weft_select_begin and weft_select_of_list begin one. */
struct weft_gpu_select {
    uint64_t k;
    uint64_t wanted; /* k, at most as many as there are; by a threshold: UINT64_MAX */
    uint64_t prefix; /* of the k-th largest key: without its lower `shift` bits; or the threshold */
    uint64_t above;  /* keys that are greater in those bits */
    uint64_t equal;  /* and equal */
    unsigned long long reserved; /* scratch memory that is taken */
    unsigned long long nans;
    uint64_t begin; /* 0: with `count` the range of what has been written */
    uint64_t count;
    uint64_t found; /* entries that might have been written, had there been room */
    uint32_t shift;
    uint32_t guessed;  /* the prefix is a guess, which may be too high or too low */
    uint32_t prepared; /* the vector is: addends have been added, NaNs counted */
    uint32_t gathered; /* entries have been */
    uint32_t blocks;   /* of the kernel that runs, that are done */
    uint32_t refused;  /* the threshold is */
};

/* What is done to a vector at the first look at it; NaNs become +0 there; a guess is tried; where
 * more are equal than scratch memory has room for, their places are kept. */
enum { WEFT_GPU_FIRST = 1, WEFT_GPU_ERASE = 2, WEFT_GPU_GUESS = 4, WEFT_GPU_TIES = 8 };

/* What an operation on lists has found: the report that the host gets. */
struct weft_gpu_found {
    unsigned long long disorder; /* list << 48 | the first index that is not above the one before */
    unsigned long long nans;
    unsigned long long outside; /* 1 + the largest index that a residual did not have; or 0 */
    uint64_t count;             /* pairs written */
    uint64_t total;             /* pairs that there were */
    uint64_t detail[3];         /* each operation its own */
};

/* An operation on lists at work (lists.cu), in device memory. */
struct weft_gpu_chain {
    struct weft_gpu_found found;
    struct weft_gpu_select select;
    uint64_t range[2]; /* of a part, or of a sum */
    uint32_t loose;    /* pairs are taken as they are */
    uint32_t blocks;   /* as of a selection */
};

/* How buckets are quantised (quantise.cu), and what their norms are of. */
enum { WEFT_GPU_LARGEST, WEFT_GPU_SQUARES, WEFT_GPU_MAGNITUDES };

struct weft_gpu_quantiser {
    uint64_t bucket;
    uint64_t seed, stream;
    uint32_t norm;
    uint32_t padding;
};

/* A product (project.cu): rows of c are rows of a times b, added to `start` (NULL: zeros). */
struct weft_gpu_product {
    const float *a;
    const float *b;
    const float *start;
    float *c;
    uint64_t a_stride, b_stride, c_stride; /* of rows, of c those of `start`, too */
    uint64_t rows, depth, columns;
    const float *mean; /* of a, with its stride; NULL: zeros */
    float share;
};

/* Squares of a projection, in parts (project.cu). */
struct weft_gpu_squares {
    const float *values;
    const float *mean; /* NULL: zeros */
    const float *out;
    uint64_t count, slice, components;
    float share;
    uint32_t narrow;
    uint64_t tall, wide;  /* slices and components of a part */
    uint64_t down, parts; /* parts of a column, and in all */
    uint64_t rows, deep;  /* slices, and elements of them, that are read at a time */
    uint64_t joined;      /* whole slices that are read as one */
};

#endif
